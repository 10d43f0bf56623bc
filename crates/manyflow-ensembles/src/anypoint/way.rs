//! The way of long datagrams to another host: probes for what the path carries, and datagrams
//! divided into parts where they are too long for it.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use manyflow_anypoint::{ETHERNET_BYTES, PathMtu};
use manyflow_core::{Ecn, Time};
use manyflow_net::trains::{Outlet as _, Towards, Trains};

use super::Number;
use super::envelope::{self, PARTS_MAX, PATH_HEADER_BYTES, Part, Short};
use super::options::FRAME_BYTES_MAX;
use super::wire::Wire;

/// Upper bound for the length of a datagram: the longest frame behind the longest header.
const DATAGRAM_BYTES_MAX: usize = FRAME_BYTES_MAX as usize + manyflow_anypoint::HEADER_BYTES_MAX;
/// Maximum number of datagrams of a socket of which some parts have not arrived.
const INCOMPLETE_MAX: usize = 256;

/// The other end of a connection, and the address at which it reached this host.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) remote: SocketAddr,
    pub(super) local: Option<IpAddr>,
}

/// The state of the path to another host.
#[derive(Debug, Default)]
pub(super) struct Way {
    mtu: PathMtu,
    /// The number of the next datagram that is divided.
    next_datagram: u16,
    /// The log has said that the path is a small one.
    is_reported: bool,
}

impl Way {
    /// Returns the length in bytes of the longest datagram that passes undivided.
    pub(super) fn limit(&self) -> usize {
        self.mtu.limit().into()
    }

    /// Sends a datagram of a connection, in parts if the path does not carry it. `is_repeated`: it
    /// is a retransmission.
    pub(super) fn send(
        &mut self,
        now: Time,
        (wire, trains): (&Wire, &mut Trains),
        (path, number): (Path, Number),
        (header, payload): (&Short, &[u8]),
        is_repeated: bool,
    ) {
        let header = header.as_bytes();
        let length = header.len() + payload.len();
        if length >= self.limit() {
            self.probe(now, wire, path, number, length, is_repeated);
        }
        if length <= self.limit() {
            trains.push(wire, path.local, path.remote, header, payload);
        } else {
            self.send_parts((wire, trains), (path, number), header, payload);
        }
    }

    /// Returns whether a switch may answer a probe of this size that another path has carried: an
    /// end that sends datagrams longer than Ethernet's should not make the switch divide all of
    /// them. Probes for the size if it is not known to pass; the other probe is repeated, too.
    pub(super) fn carries(
        &mut self,
        now: Time,
        wire: &Wire,
        (path, number): (Path, Number),
        bytes: u16,
    ) -> bool {
        let length = usize::from(bytes);
        if bytes <= ETHERNET_BYTES || length <= self.limit() {
            return true;
        }
        self.probe(now, wire, path, number, length, false);
        false
    }

    /// Sends the probe that is due. If the interface refuses its size, tries the next one.
    fn probe(
        &mut self,
        now: Time,
        wire: &Wire,
        path: Path,
        number: Number,
        length: usize,
        is_repeated: bool,
    ) {
        while let Some(probe) = self.mtu.handle_long(now, length, is_repeated) {
            let mut bytes = [0; DATAGRAM_BYTES_MAX];
            let header = envelope::encode_path_probe(number, probe.id);
            bytes[..PATH_HEADER_BYTES].copy_from_slice(header.as_bytes());
            let size = usize::from(probe.bytes);
            let to = Towards {
                source: path.local,
                destination: path.remote,
                ecn: Ecn::NotCapable,
            };
            let unsent = wire.send_train(to, &bytes[..size], size);
            if unsent.too_long == 0 || !self.mtu.handle_too_long(now, size) {
                return;
            }
        }
    }

    #[cold]
    fn send_parts(
        &mut self,
        (wire, trains): (&Wire, &mut Trains),
        (path, number): (Path, Number),
        header: &[u8],
        payload: &[u8],
    ) {
        let whole = [header, payload].concat();
        let room = self.limit() - PATH_HEADER_BYTES;
        let count = whole.len().div_ceil(room).clamp(2, PARTS_MAX.into());
        let datagram = self.next_datagram;
        self.next_datagram = datagram.wrapping_add(1);
        for index in 0..count as u8 {
            let part = Part {
                connection: number,
                index,
                count: count as u8,
                datagram,
                total: whole.len() as u16,
            };
            let (header, bytes) = (envelope::encode_part(&part), &whole[part.range()]);
            trains.push(wire, path.local, path.remote, header.as_bytes(), bytes);
        }
    }

    /// Handles the answer to a probe.
    pub(super) fn handle_answer(&mut self, now: Time, id: u32, bytes: u16) {
        self.mtu.handle_answer(now, id, bytes);
    }

    /// Handles that the kernel refused a datagram of this length, and says so once.
    pub(super) fn handle_too_long(&mut self, now: Time, remote: SocketAddr, length: usize) {
        if self.mtu.handle_too_long(now, length) && !self.is_reported {
            self.is_reported = true;
            tracing::warn!(
                "the interface towards {remote} no longer takes datagrams of {length} bytes: its \
                 MTU has become smaller; frames are sent in shorter ones from now on"
            );
        }
    }
}

/// The parts of datagrams that are not complete yet, of all connections of a socket.
#[derive(Debug, Default)]
pub(super) struct Parts {
    /// Oldest first.
    incomplete: VecDeque<Incomplete>,
    /// Memory to use again.
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Incomplete {
    remote: SocketAddr,
    /// The first part, without its index.
    shape: Part,
    /// A bit for each part that has arrived.
    arrived: u32,
    bytes: Vec<u8>,
}

impl Parts {
    /// Handles a part that `remote` has sent. Returns the datagram that it completes; give it back
    /// with [`recycle`](Parts::recycle).
    ///
    /// The caller has checked that the part's connection exists.
    pub(super) fn join(
        &mut self,
        remote: SocketAddr,
        part: &Part,
        bytes: &[u8],
    ) -> Option<Vec<u8>> {
        if usize::from(part.total) > DATAGRAM_BYTES_MAX {
            return None;
        }
        let shape = Part { index: 0, ..*part };
        let is_it = |known: &Incomplete| known.shape == shape && known.remote == remote;
        let place = match self.incomplete.iter().rposition(is_it) {
            Some(place) => place,
            None => self.begin(remote, shape),
        };
        let known = &mut self.incomplete[place];
        known.bytes[part.range()].copy_from_slice(bytes);
        known.arrived |= 1 << part.index;
        let is_complete = known.arrived.count_ones() == u32::from(part.count);
        let complete = is_complete.then(|| self.incomplete.remove(place))?;
        complete.map(|known| known.bytes)
    }

    fn begin(&mut self, remote: SocketAddr, shape: Part) -> usize {
        if self.incomplete.len() == INCOMPLETE_MAX
            && let Some(oldest) = self.incomplete.pop_front()
        {
            self.recycle(oldest.bytes);
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.resize(shape.total.into(), 0);
        self.incomplete.push_back(Incomplete {
            remote,
            shape,
            arrived: 0,
            bytes,
        });
        self.incomplete.len() - 1
    }

    /// Takes back the memory of a datagram.
    pub(super) fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < INCOMPLETE_MAX {
            self.spare.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anypoint::envelope::{Datagram, decode};
    use proptest::prelude::*;

    const REMOTE: &str = "127.0.0.1:7000";

    fn part(datagram: u16, index: u8) -> Part {
        Part {
            connection: 1,
            index,
            count: 2,
            datagram,
            total: 1441,
        }
    }

    #[test]
    fn parts_are_joined_in_any_order_and_once() {
        let remote = REMOTE.parse().unwrap();
        let whole: Vec<u8> = (0..1441).map(|byte| byte as u8).collect();
        let mut parts = Parts::default();
        for order in [[0, 1], [1, 0]] {
            let [first, second] = order.map(|index| part(7, index));
            assert_eq!(parts.join(remote, &first, &whole[first.range()]), None);
            assert_eq!(parts.join(remote, &first, &whole[first.range()]), None);
            let joined = parts.join(remote, &second, &whole[second.range()]);
            assert_eq!(joined.as_deref(), Some(&whole[..]));
            parts.recycle(joined.unwrap());
        }
        assert!(parts.incomplete.is_empty());
    }

    #[test]
    fn parts_of_two_hosts_or_datagrams_are_not_mixed() {
        let [one, two] = ["127.0.0.1:1", "127.0.0.1:2"].map(|text| text.parse().unwrap());
        let mut parts = Parts::default();
        assert_eq!(parts.join(one, &part(7, 0), &[1; 721]), None);
        assert_eq!(parts.join(two, &part(7, 1), &[2; 720]), None);
        assert_eq!(parts.join(one, &part(8, 1), &[2; 720]), None);
        assert!(parts.join(one, &part(7, 1), &[2; 720]).is_some());
    }

    #[test]
    fn incomplete_datagrams_take_bounded_memory() {
        let remote = REMOTE.parse().unwrap();
        let mut parts = Parts::default();
        for datagram in 0..5_000 {
            assert_eq!(parts.join(remote, &part(datagram, 0), &[0; 721]), None);
        }
        assert_eq!(parts.incomplete.len(), INCOMPLETE_MAX);
        assert!(parts.spare.len() <= INCOMPLETE_MAX);
        let long = Part {
            total: u16::MAX,
            ..part(0, 0)
        };
        assert_eq!(
            parts.join(remote, &long, &vec![0; long.range().len()]),
            None
        );
        assert!(
            parts
                .incomplete
                .iter()
                .all(|known| known.bytes.len() == 1441)
        );
    }

    proptest! {
        #[test]
        fn no_parts_panic(
            drawn in prop::collection::vec((0_u8..5, 0_u8..6, 0_u16..3, 0_u16..2_000), 0..300),
        ) {
            let remote = REMOTE.parse().unwrap();
            let mut parts = Parts::default();
            for (index, count, datagram, total) in drawn {
                let part = Part { connection: 1, index, count, datagram, total };
                let length = if index < count { part.range().len() } else { 1 };
                let bytes = [envelope::encode_part(&part).as_bytes(), &vec![1; length]].concat();
                if let Ok(Datagram::Part(part)) = decode(&bytes) {
                    let joined = parts.join(remote, &part, &bytes[PATH_HEADER_BYTES..]);
                    prop_assert!(joined.is_none_or(|whole| whole == vec![1; total.into()]));
                }
            }
        }
    }
}
