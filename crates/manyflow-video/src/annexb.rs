//! NAL units of a byte stream (ITU-T H.264, Annex B; the same in H.265).
//!
//! `h264-reader` finds the start codes: it is kept, takes fragments of any length, and the slice
//! headers of H.264 need it anyway.

use std::collections::VecDeque;

use h264_reader::annexb::AnnexBReader;
use h264_reader::push::NalFragmentHandler;

/// The longest NAL unit in bytes. Level 6.2 permits no coded picture of this length.
pub(crate) const NAL_BYTES_MAX: usize = 32 << 20;

/// The times of a picture in ticks of [`CLOCK_HZ`](crate::CLOCK_HZ).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) pts: i64,
    pub(crate) dts: i64,
}

/// A NAL unit without its start code, and the times that came with its first byte.
#[derive(Debug, Default)]
pub(crate) struct Nal {
    pub(crate) bytes: Vec<u8>,
    pub(crate) stamp: Option<Stamp>,
}

/// Cuts a byte stream into NAL units.
pub(crate) struct AnnexB {
    reader: AnnexBReader<Collector>,
    collected: VecDeque<Nal>,
}

#[derive(Default)]
struct Collector {
    stamp: Option<Stamp>,
    current: Nal,
    complete: Vec<Nal>,
    is_too_long: bool,
}

impl NalFragmentHandler for Collector {
    fn nal_fragment(&mut self, fragments: &[&[u8]], end: bool) {
        if self.current.bytes.is_empty() {
            self.current.stamp = self.stamp.take();
        }
        for fragment in fragments {
            let room = NAL_BYTES_MAX.saturating_sub(self.current.bytes.len());
            self.is_too_long |= fragment.len() > room;
            self.current
                .bytes
                .extend_from_slice(&fragment[..fragment.len().min(room)]);
        }
        if end {
            self.complete.push(std::mem::take(&mut self.current));
        }
    }
}

impl AnnexB {
    pub(crate) fn new() -> AnnexB {
        AnnexB {
            reader: AnnexBReader::for_fragment_handler(Collector::default()),
            collected: VecDeque::new(),
        }
    }

    /// Takes bytes. `stamp` belongs to the first NAL unit that begins in them.
    pub(crate) fn push(&mut self, bytes: &[u8], stamp: Option<Stamp>) {
        if stamp.is_some() {
            self.reader.fragment_handler_mut().stamp = stamp;
        }
        self.reader.push(bytes);
        self.collect();
    }

    /// Ends the last NAL unit.
    pub(crate) fn finish(&mut self) {
        self.reader.reset();
        self.collect();
    }

    /// Returns the next NAL unit that is complete.
    pub(crate) fn poll_nal(&mut self) -> Option<Nal> {
        self.collected.pop_front()
    }

    /// Whether a NAL unit was longer than any picture can be, so that its end is missing.
    pub(crate) fn is_too_long(&self) -> bool {
        self.reader.fragment_handler_ref().is_too_long
    }

    fn collect(&mut self) {
        let complete = &mut self.reader.fragment_handler_mut().complete;
        let nals = complete.drain(..).filter(|nal| !nal.bytes.is_empty());
        self.collected.extend(nals);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nal_units_and_their_times_do_not_depend_on_the_fragments() {
        let stamp = |pts| Some(Stamp { pts, dts: pts });
        let parts = [
            &b"\0\0\0\x01\x09\xf0\0\0\x01\x41ab\0\0\x03c"[..],
            b"\0\0\x01\x41d",
        ];
        for step in 1..12 {
            let mut annexb = AnnexB::new();
            for (part, pts) in parts.into_iter().zip([5, 6]) {
                for (number, bytes) in part.chunks(step).enumerate() {
                    annexb.push(bytes, stamp(pts).filter(|_| number == 0));
                }
            }
            annexb.finish();
            let nals: Vec<Nal> = std::iter::from_fn(|| annexb.poll_nal()).collect();
            let bytes: Vec<&[u8]> = nals.iter().map(|nal| &nal.bytes[..]).collect();
            assert_eq!(bytes, [&b"\x09\xf0"[..], b"\x41ab\0\0\x03c", b"\x41d"]);
            let stamps: Vec<_> = nals.iter().map(|nal| nal.stamp).collect();
            assert_eq!(stamps, [stamp(5), None, stamp(6)], "in steps of {step}");
        }
    }
}
