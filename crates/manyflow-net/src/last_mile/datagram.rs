//! A datagram on a link.

use manyflow_anypoint::{Body, Segment};
use manyflow_core::link::Carried;
use manyflow_core::xcp::Congestion;
use manyflow_core::{Ecn, Header as _};

/// A datagram, and the end to which it goes.
#[derive(Clone, Debug)]
pub(super) struct Datagram<E> {
    end: E,
    ecn: Ecn,
    bytes: Vec<u8>,
    /// ACP's header of a frame, which an XCP router changes.
    frame: Option<Segment>,
}

impl<E> Datagram<E> {
    /// Creates a datagram to `end`. Only if the link `speaks_xcp` is a header looked for.
    pub(super) fn new(end: E, ecn: Ecn, bytes: &[u8], speaks_xcp: bool) -> Datagram<E> {
        let frame = if speaks_xcp { frame(bytes) } else { None };
        Datagram {
            end,
            ecn,
            bytes: bytes.to_vec(),
            frame,
        }
    }

    /// Returns the end, the ECN field and the bytes, as the link has left them.
    pub(super) fn finish(mut self) -> (E, Ecn, Vec<u8>) {
        if let Some(segment) = self.frame {
            let header = segment.encode();
            let header = header.as_bytes();
            self.bytes[..header.len()].copy_from_slice(header);
        }
        (self.end, self.ecn, self.bytes)
    }
}

/// Returns the header of a frame of ACP, if the bytes are one.
fn frame(bytes: &[u8]) -> Option<Segment> {
    let (segment, _) = Segment::decode(bytes).ok()?;
    matches!(segment.body, Body::Data(_)).then_some(segment)
}

impl<E> Carried for Datagram<E> {
    fn is_ecn_capable(&self) -> bool {
        self.ecn != Ecn::NotCapable
    }

    fn is_l4s(&self) -> bool {
        matches!(self.ecn, Ecn::L4s | Ecn::Marked)
    }

    fn mark(&mut self) {
        self.ecn = Ecn::Marked;
    }

    fn congestion(&mut self) -> Option<&mut Congestion> {
        self.frame.as_mut()?.congestion()
    }
}

#[cfg(test)]
mod tests {
    use manyflow_anypoint::Data;
    use manyflow_core::xcp::WindowChange;

    use super::*;

    fn data() -> Vec<u8> {
        let congestion = Congestion {
            cwnd: 20_000,
            rtt_us: 10_000,
            feedback: WindowChange::from_bytes(500.0),
            answered: false,
        };
        let body = Body::Data(Data {
            sequence: 5,
            key: 6,
            congestion,
        });
        let connection = 7;
        let mut bytes = Segment { connection, body }.encode().as_bytes().to_vec();
        bytes.extend(b"the frame");
        bytes
    }

    #[test]
    fn a_router_changes_only_the_header_of_xcp() {
        let mut datagram = Datagram::new((), Ecn::NotCapable, &data(), true);
        let congestion = datagram.congestion().expect("a frame of ACP");
        congestion.feedback = WindowChange::from_bytes(-3.0);
        congestion.answered = true;
        let ((), _, bytes) = datagram.finish();
        let (segment, header) = Segment::decode(&bytes).expect("still a frame");
        let (before, _) = Segment::decode(&data()).expect("a frame");
        let (Body::Data(after), Body::Data(before)) = (segment.body, before.body) else {
            panic!("the type has changed");
        };
        assert_eq!(after.congestion.feedback, WindowChange::from_bytes(-3.0));
        assert!(after.congestion.answered);
        let restored = Data {
            congestion: before.congestion,
            ..after
        };
        assert_eq!(restored, before);
        assert_eq!(&bytes[header..], b"the frame");
    }

    #[test]
    fn other_datagrams_pass_unchanged() {
        for bytes in [&b"GET / HTTP/1.1"[..], &data()[..20], b""] {
            let mut datagram = Datagram::new((), Ecn::NotCapable, bytes, true);
            assert_eq!(datagram.congestion(), None);
            assert_eq!(datagram.finish().2, bytes);
        }
        let mut other = Datagram::new((), Ecn::NotCapable, &data(), false);
        assert_eq!(other.congestion(), None);
    }
}
