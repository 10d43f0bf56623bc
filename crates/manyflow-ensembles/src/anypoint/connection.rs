//! An end of a connection, as applications use it.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use manyflow_anypoint::switch::Prefix;
use manyflow_anypoint::{ConfigError, Reason};

use super::core::Shared;
use super::options::MESSAGE_BYTES_MAX;
use super::reassembly::Message;

/// The reason why a connection cannot be opened or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// No socket can be opened.
    #[error("no socket for a connection: {0}; check the address and the limit of open files")]
    Socket(io::Error),
    /// An option is outside its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The connection ended before both directions were closed.
    #[error("the connection to {remote} ended: {}", describe(*reason))]
    Failed {
        /// The other end, or the switch.
        remote: SocketAddr,
        /// The reason.
        reason: Reason,
    },
    /// This direction was closed, or has sent its last possible frame.
    #[error("the connection to {0} is closed for sending; open another one")]
    Closed(SocketAddr),
    /// The message is empty or too long.
    #[error("a message has 1 to {MESSAGE_BYTES_MAX} bytes, and this one has {0}; split it")]
    Length(usize),
}

fn describe(reason: Reason) -> &'static str {
    match reason {
        Reason::Unknown => {
            "the other end does not know it, because it has restarted; connect again"
        }
        Reason::Refused => {
            "it was refused; check that the service accepts connections and has members"
        }
        Reason::TimedOut => "nothing was received for too long; check the address and the network",
        Reason::Aborted => "it was aborted, or its last member has failed; connect again",
    }
}

/// Counters of a connection.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that were sent again.
    pub retransmissions: u64,
    /// Fragments that arrived and could not become a message: a member failed while it had the
    /// others, or they were not valid.
    pub discarded: u64,
    /// Datagrams of the socket that were longer than the MTU of the interface, which had become
    /// smaller. Their frames are sent again in shorter ones.
    pub too_long: u64,
    /// The length in bytes of the longest datagram, without the headers of IP and UDP, that the
    /// path to the other end or to its switch is known to carry.
    pub path_bytes: usize,
}

/// A connection. It is aborted when this is dropped, unless it was [closed](Connection::close).
///
/// Any number of tasks may use it at the same time.
#[derive(Debug)]
pub struct Connection {
    shared: Arc<Shared>,
    slot: usize,
    remote: SocketAddr,
}

impl Connection {
    /// Takes the application's hold of the connection in `slot`.
    pub(super) fn new(shared: Arc<Shared>, slot: usize) -> Connection {
        let remote = shared.lock().end(slot).path.remote;
        Connection {
            shared,
            slot,
            remote,
        }
    }

    fn failed(&self, reason: Reason) -> ConnectionError {
        let remote = self.remote;
        ConnectionError::Failed { remote, reason }
    }

    /// Waits until the other end has accepted the connection.
    pub(super) async fn established(&self) -> Result<(), ConnectionError> {
        let established = poll_fn(|context| {
            let mut core = self.shared.lock();
            let end = core.end(self.slot);
            match end.is_established() {
                Ok(false) => {
                    end.watchers.push(context.waker().clone());
                    Poll::Pending
                }
                Ok(true) => Poll::Ready(Ok(())),
                Err(reason) => Poll::Ready(Err(reason)),
            }
        });
        established.await.map_err(|reason| self.failed(reason))
    }

    /// Returns the address of the other end: the switch, if there is one.
    pub fn remote_address(&self) -> SocketAddr {
        self.remote
    }

    /// Returns the number of this end among the initiators that share the connection to the service
    /// behind a switch of their own; [`Prefix::NONE`] if the end has the connection for itself.
    ///
    /// An answer reaches this end if its key has this prefix. So a program whose service answers
    /// with the key of the request chooses keys by [`Prefix::key`], and any other one puts the
    /// prefix where its service finds it.
    pub fn prefix(&self) -> Prefix {
        self.shared.lock().end(self.slot).prefix()
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        let mut core = self.shared.lock();
        let too_long = core.too_long();
        let end = core.end(self.slot);
        Counters {
            too_long,
            retransmissions: end.retransmissions,
            discarded: end.discarded(),
            path_bytes: end.path_bytes(),
        }
    }

    /// Returns the congestion window in frames of the longest length sent so far.
    pub fn window_frames(&self) -> f64 {
        self.shared.lock().end(self.slot).window_frames()
    }

    /// Queues a message for sending, and waits while the send buffer is full. A switch may choose a
    /// member by `key`.
    ///
    /// If the future is dropped before it completes, a part of the message may have been sent. The
    /// receiver never reads such a message.
    ///
    /// # Errors
    /// If the message is empty or longer than [`MESSAGE_BYTES_MAX`], or the connection is closed or
    /// has failed.
    pub async fn send_frame(&self, key: u32, message: Bytes) -> Result<(), ConnectionError> {
        if !(1..=MESSAGE_BYTES_MAX).contains(&message.len()) {
            return Err(ConnectionError::Length(message.len()));
        }
        let mut divided = self
            .shared
            .lock()
            .end(self.slot)
            .begin_message(key, message);
        let mut pending = None;
        poll_fn(|context| {
            let mut core = self.shared.lock();
            let mut arena = std::mem::take(&mut core.arena);
            let end = core.end(self.slot);
            let sent = match end.is_established() {
                Err(reason) => Err(self.failed(reason)),
                Ok(_) => end
                    .send(&mut arena, key, &mut divided, &mut pending)
                    .map_err(|()| ConnectionError::Closed(self.remote)),
            };
            if let Ok(false) = sent {
                end.writers.push(context.waker().clone());
            }
            core.arena = arena;
            core.touch(self.slot);
            match sent {
                Ok(false) => Poll::Pending,
                Ok(true) => Poll::Ready(Ok(())),
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// Reads the next message. Returns `None` when the other end has closed its direction.
    ///
    /// The receive buffer fills while nobody reads, and then the other end has to wait.
    ///
    /// # Errors
    /// If the connection has failed. Messages that arrived before are read first.
    pub async fn recv_frame(&self) -> Result<Option<Message>, ConnectionError> {
        poll_fn(|context| {
            let mut core = self.shared.lock();
            let now = core.clock.now();
            let end = core.end(self.slot);
            let message = end.receive(now);
            let result = match (message, end.is_established()) {
                (Some(message), _) => Ok(Some(message)),
                (None, _) if end.is_at_end() => Ok(None),
                (None, Err(reason)) => Err(self.failed(reason)),
                (None, Ok(_)) => {
                    end.readers.push(context.waker().clone());
                    // Reading fragments of an incomplete message has made room.
                    core.touch(self.slot);
                    return Poll::Pending;
                }
            };
            core.touch(self.slot);
            Poll::Ready(result)
        })
        .await
    }

    /// Closes this direction, and waits until the other end has everything. Messages of the other
    /// end can still be read.
    ///
    /// # Errors
    /// If the connection has failed before.
    pub async fn close(&self) -> Result<(), ConnectionError> {
        {
            let mut core = self.shared.lock();
            core.end(self.slot).close();
            core.touch(self.slot);
        }
        let finished = poll_fn(|context| {
            let mut core = self.shared.lock();
            let end = core.end(self.slot);
            if end.is_finished() {
                return Poll::Ready(Ok(()));
            }
            match end.is_established() {
                Err(reason) => Poll::Ready(Err(reason)),
                Ok(_) => {
                    end.watchers.push(context.waker().clone());
                    Poll::Pending
                }
            }
        });
        finished.await.map_err(|reason| self.failed(reason))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.lock().release(self.slot);
    }
}
