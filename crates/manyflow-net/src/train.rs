//! Trains: datagrams to one destination that the kernel takes in one system call, and carries
//! through the host as one packet as far as it can (generic segmentation offload, GSO).

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::ops::AddAssign;
use std::os::fd::AsFd;

use manyflow_core::Ecn;
use quinn_udp::{EcnCodepoint, Transmit, UdpSocketState};

/// Maximum number of datagrams in a train, which Linux has had since 4.18.
const DATAGRAMS_MAX: usize = 64;
/// Maximum length of a train in bytes: an IP datagram less its headers.
const BYTES_MAX: usize = 65_535 - 48;

/// Datagrams of one length, of which the last may be shorter.
#[derive(Debug, Default)]
pub struct Train {
    bytes: Vec<u8>,
    /// The length of the first datagram.
    length: usize,
}

impl Train {
    /// Returns a train of one datagram.
    pub fn of(datagram: &[u8]) -> Train {
        let mut train = Train::default();
        train.push(datagram);
        train
    }

    /// Appends a datagram. Returns false if the train has no room, or the datagram has not the
    /// length of the others.
    pub fn push(&mut self, datagram: &[u8]) -> bool {
        self.push_parts(datagram, &[])
    }

    /// Appends a datagram that is a header and a payload. Returns false as [`push`](Train::push)
    /// does.
    pub fn push_parts(&mut self, header: &[u8], payload: &[u8]) -> bool {
        let length = header.len() + payload.len();
        if self.is_empty() {
            self.length = length;
        } else if !self.has_room(length) {
            return false;
        }
        self.bytes.extend_from_slice(header);
        self.bytes.extend_from_slice(payload);
        true
    }

    fn has_room(&self, length: usize) -> bool {
        let is_last_shorter = !self.bytes.len().is_multiple_of(self.length);
        !is_last_shorter
            && (1..=self.length).contains(&length)
            && self.bytes.len() + length <= BYTES_MAX
            && self.bytes.len() / self.length < DATAGRAMS_MAX
    }

    /// Whether the train has no datagram.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the datagrams in order.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.chunks(self.length.max(1))
    }

    /// Returns all datagrams, one after another.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the length of each datagram but the last, which may be shorter.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Sends the datagrams, as [`send`] does.
    #[cfg(feature = "sessions")]
    pub(super) fn send(
        &self,
        socket: &impl AsFd,
        state: &UdpSocketState,
        destination: SocketAddr,
        ecn: Ecn,
    ) -> Unsent {
        let to = Towards {
            source: None,
            destination,
            ecn,
        };
        send(socket, state, to, &self.bytes, self.length)
    }

    /// Removes all datagrams.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }
}

/// A way on which trains arrive at nobody, to measure how long sending takes.
#[derive(Debug)]
pub struct Nowhere {
    socket: UdpSocket,
    state: UdpSocketState,
    /// Takes datagrams as long as its buffer has room.
    end: SocketAddr,
    _end: UdpSocket,
}

impl Nowhere {
    /// Opens both ends on the loopback interface.
    ///
    /// # Errors
    /// If the system has no sockets.
    pub fn open() -> io::Result<Nowhere> {
        let open = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
        let (socket, end) = (open()?, open()?);
        socket.set_nonblocking(true)?;
        Ok(Nowhere {
            state: UdpSocketState::new((&socket).into())?,
            socket,
            end: end.local_addr()?,
            _end: end,
        })
    }

    /// Sends the datagrams of a train, and removes them from it.
    pub fn send(&self, train: &mut Train) {
        let to = Towards {
            source: None,
            destination: self.end,
            ecn: Ecn::NotCapable,
        };
        send(&self.socket, &self.state, to, &train.bytes, train.length);
        train.clear();
    }
}

/// The numbers of datagrams that the kernel did not take.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Unsent {
    /// Datagrams longer than the MTU of the interface.
    pub too_long: u64,
    /// Others: the queue is full, or there is no route.
    pub refused: u64,
}

/// The addresses and the ECN field of datagrams.
#[derive(Copy, Clone, Debug)]
pub struct Towards {
    /// This host's address; `None` takes the one that the kernel chooses.
    pub source: Option<IpAddr>,
    /// The address and port to which the datagrams go.
    pub destination: SocketAddr,
    /// The ECN field.
    pub ecn: Ecn,
}

/// Sends the datagrams of `length` bytes in `train`, of which the last may be shorter. Never waits.
///
/// It does not ask tokio whether the socket is writable: tokio knows that only after it has polled,
/// so the first datagram would be lost.
pub(super) fn send(
    socket: &impl AsFd,
    state: &UdpSocketState,
    to: Towards,
    train: &[u8],
    length: usize,
) -> Unsent {
    let mut unsent = Unsent::default();
    let mut rest = train;
    while !rest.is_empty() {
        let together = state.max_gso_segments().min(BYTES_MAX / length).max(1);
        let (now, later) = rest.split_at(rest.len().min(together * length));
        let transmit = Transmit {
            destination: to.destination,
            ecn: EcnCodepoint::from_bits(to.ecn.bits()),
            contents: now,
            segment_size: (now.len() > length).then_some(length),
            src_ip: to.source,
        };
        let count = now.len().div_ceil(length) as u64;
        match state.try_send(socket.into(), &transmit) {
            Ok(()) => {}
            // quinn-udp has found that the interface cannot do GSO. The next attempt is with
            // single datagrams.
            Err(error) if count > 1 && is_refused_gso(&error) && state.max_gso_segments() == 1 => {
                continue;
            }
            Err(error) if error.raw_os_error() == Some(libc::EMSGSIZE) => match count {
                1 => unsent.too_long += 1,
                // The kernel may divide single datagrams, but not those of a train.
                _ => {
                    for datagram in now.chunks(length) {
                        unsent += send(socket, state, to, datagram, length);
                    }
                }
            },
            Err(_) => unsent.refused += count,
        }
        rest = later;
    }
    unsent
}

impl AddAssign for Unsent {
    fn add_assign(&mut self, other: Unsent) {
        self.too_long += other.too_long;
        self.refused += other.refused;
    }
}

fn is_refused_gso(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_train_has_datagrams_of_one_length_and_a_shorter_last_one() {
        let mut train = Train::default();
        assert!(train.push(b"abc") && train.push(b"def"));
        assert!(!train.push(b"long"));
        assert!(train.push(b"g"));
        assert!(!train.push(b"h"));
        let datagrams: Vec<_> = train.datagrams().collect();
        assert_eq!(datagrams, [&b"abc"[..], b"def", b"g"]);
        train.clear();
        assert!(train.is_empty() && train.push(b"long"));
    }

    #[test]
    fn a_train_is_not_longer_than_the_kernel_allows() {
        for (length, count) in [(1, 64), (1_000, 64), (1_400, 46), (60_000, 1)] {
            let mut train = Train::default();
            let datagram = vec![0; length];
            let pushed = (0..100).take_while(|_| train.push(&datagram)).count();
            assert_eq!(pushed, count, "datagrams of {length} bytes");
        }
    }
}
