//! The ways of datagrams between ends and switches: a UDP socket, or memory, between an end and a
//! switch of one process.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use manyflow_net::trains::{Outlet, Towards, Unsent};
use manyflow_net::udp::{Inbox, Port};
use socket2::{Domain, Protocol, Socket, Type};

/// The socket buffers that are asked for, in bytes, of which the kernel may give less. The memory
/// between two ends takes as much.
const BUFFER_BYTES: usize = 4 << 20;
/// The number of trains whose memory is kept for others.
const SPARE_MAX: usize = 16;

/// A UDP socket, or one end of a piece of memory that stands for two of them.
#[derive(Debug)]
pub(super) enum Wire {
    Udp(Port),
    Memory(Memory),
}

/// One of two ends that are joined by memory.
#[derive(Debug)]
pub(super) struct Memory {
    inbound: Arc<Queue>,
    outbound: Arc<Queue>,
}

impl Wire {
    /// The address of both ends of [`Wire::pair`].
    pub(super) const INSIDE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    /// Opens a socket. One that is bound to `[::]` takes IPv4 as well.
    pub(super) fn open(local: SocketAddr) -> io::Result<(Wire, SocketAddr)> {
        let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
        if local.ip() == Ipv6Addr::UNSPECIFIED {
            socket.set_only_v6(false)?;
        }
        socket.set_recv_buffer_size(BUFFER_BYTES)?;
        socket.set_send_buffer_size(BUFFER_BYTES)?;
        socket.set_nonblocking(true)?;
        socket.bind(&local.into())?;
        let local = socket
            .local_addr()?
            .as_socket()
            .ok_or(io::ErrorKind::Unsupported)?;
        Ok((Wire::Udp(Port::new(socket)?), local))
    }

    /// Returns two ends, each of which receives what the other sends, whatever the destination.
    pub(super) fn pair() -> [Wire; 2] {
        let [one, other] = [(); 2].map(|()| Arc::new(Queue::default()));
        let end = |inbound: &Arc<Queue>, outbound: &Arc<Queue>| {
            let (inbound, outbound) = (Arc::clone(inbound), Arc::clone(outbound));
            Wire::Memory(Memory { inbound, outbound })
        };
        [end(&one, &other), end(&other, &one)]
    }

    /// Polls until `inbox` has datagrams, which must be taken from it before the next call.
    pub(super) fn poll_recv(
        &self,
        inbox: &mut Inbox,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Wire::Udp(port) => port.poll_recv(inbox, context),
            Wire::Memory(memory) => memory.inbound.poll_recv(inbox, context).map(Ok),
        }
    }
}

impl Outlet for Wire {
    fn send_train(&self, to: Towards, train: &[u8], length: usize) -> Unsent {
        match self {
            Wire::Udp(port) => port.send_train(to, train, length),
            Wire::Memory(memory) => memory.outbound.send(train, length),
        }
    }
}

/// Trains on their way to one end.
#[derive(Debug, Default)]
struct Queue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// The bytes of each train, and the length of its datagrams.
    trains: VecDeque<(Vec<u8>, usize)>,
    bytes: usize,
    /// Memory to use again.
    spare: Vec<Vec<u8>>,
    reader: Option<Waker>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a train, unless the queue is full.
    fn send(&self, train: &[u8], length: usize) -> Unsent {
        let mut waiting = self.lock();
        if waiting.bytes + train.len() > BUFFER_BYTES {
            let refused = train.len().div_ceil(length.max(1)) as u64;
            let too_long = 0;
            return Unsent { too_long, refused };
        }
        let mut bytes = waiting.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(train);
        waiting.bytes += bytes.len();
        waiting.trains.push_back((bytes, length));
        let reader = waiting.reader.take();
        drop(waiting);
        if let Some(reader) = reader {
            reader.wake();
        }
        Unsent::default()
    }

    fn poll_recv(&self, inbox: &mut Inbox, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.lock();
        while let Some((train, length)) = waiting.trains.pop_front() {
            if !inbox.put(Wire::INSIDE, &train, length) {
                waiting.trains.push_front((train, length));
                break;
            }
            waiting.bytes -= train.len();
            if waiting.spare.len() < SPARE_MAX {
                waiting.spare.push(train);
            }
        }
        if inbox.is_empty() {
            waiting.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use manyflow_core::Ecn;

    use super::*;

    /// Returns the datagrams that wait at an end.
    fn received(end: &Wire) -> Vec<Vec<u8>> {
        let mut inbox = Inbox::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut datagrams = Vec::new();
        while end.poll_recv(&mut inbox, &mut context).is_ready() {
            while let Some(arrival) = inbox.next_arrival() {
                assert_eq!(arrival.source, Wire::INSIDE);
                datagrams.push(inbox.bytes(arrival.payload).to_vec());
            }
        }
        datagrams
    }

    fn send(end: &Wire, train: &[u8], length: usize) -> u64 {
        let to = Towards {
            source: None,
            destination: Wire::INSIDE,
            ecn: Ecn::NotCapable,
        };
        end.send_train(to, train, length).refused
    }

    #[test]
    fn each_end_of_a_pair_receives_what_the_other_sends_datagram_by_datagram() {
        let [one, other] = Wire::pair();
        assert_eq!(send(&one, b"abcdefgh", 3), 0);
        assert_eq!(send(&one, b"x", 1), 0);
        assert_eq!(send(&other, b"back", 4), 0);
        assert_eq!(received(&other), [&b"abc"[..], b"def", b"gh", b"x"]);
        assert_eq!(received(&one), [b"back"]);
        assert!(received(&one).is_empty() && received(&other).is_empty());
    }

    #[test]
    fn what_nobody_receives_takes_bounded_memory_and_is_counted() {
        let [one, other] = Wire::pair();
        let train = vec![7; 60_000];
        let refused: u64 = (0..100).map(|_| send(&one, &train, 10_000)).sum();
        let kept = BUFFER_BYTES / train.len();
        assert_eq!(refused, 6 * (100 - kept as u64));
        assert_eq!(received(&other).len(), 6 * kept);
        assert_eq!(send(&one, &train, 10_000), 0, "there is room again");
    }

    #[test]
    fn a_reader_is_woken_by_the_next_train() {
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let [one, other] = Wire::pair();
        let mut inbox = Inbox::default();
        let mut context = Context::from_waker(&waker);
        assert!(other.poll_recv(&mut inbox, &mut context).is_pending());
        send(&one, b"abc", 3);
        assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed));
        assert!(other.poll_recv(&mut inbox, &mut context).is_ready());
    }

    #[derive(Default)]
    struct Woken(std::sync::atomic::AtomicBool);

    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
