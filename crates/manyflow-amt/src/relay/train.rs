//! Messages that are sent together.

use std::net::{IpAddr, SocketAddr};

use manyflow_core::Ecn;

use crate::ip::data_ecn;

/// Maximum length of the messages that are passed together: a UDP datagram over IPv4 or IPv6.
const BYTES_MAX: usize = 65_535 - 48;

/// Multicast Data messages of one flow.
#[derive(Clone, Copy, Debug)]
pub struct FlowMessages<'a> {
    /// Index of the flow in the list given to [`Relay::new`](super::Relay::new).
    pub flow: usize,
    /// The messages, one after another.
    pub messages: &'a [u8],
    /// Length in bytes of each message but the last, which may be shorter.
    pub length: usize,
}

impl<'a> FlowMessages<'a> {
    pub(super) fn chunks(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.messages.chunks(self.length.max(1))
    }
}

/// Consecutive messages to one gateway, in memory that the next train uses again.
#[derive(Default)]
pub(super) struct Train {
    /// The gateway's address, and this host's.
    way: Option<(SocketAddr, IpAddr)>,
    /// The ECN field of all messages, which a train has once.
    ecn: Ecn,
    bytes: Vec<u8>,
    /// Length of the first message.
    length: usize,
}

impl Train {
    /// Adds a message. Before that, passes the earlier ones to `emit` if the message cannot follow
    /// them.
    pub(super) fn push(
        &mut self,
        way: (SocketAddr, IpAddr),
        message: &[u8],
        emit: &mut impl FnMut(SocketAddr, IpAddr, &[u8], usize),
    ) {
        let ecn = data_ecn(message);
        if ecn != self.ecn || !self.has_room(way, message.len()) {
            self.flush(emit);
            (self.way, self.length, self.ecn) = (Some(way), message.len(), ecn);
        }
        self.bytes.extend_from_slice(message);
    }

    fn has_room(&self, way: (SocketAddr, IpAddr), length: usize) -> bool {
        self.way == Some(way)
            && length <= self.length
            && self.bytes.len().is_multiple_of(self.length)
            && self.bytes.len() + length <= BYTES_MAX
    }

    /// Passes the messages to `emit`.
    pub(super) fn flush(&mut self, emit: &mut impl FnMut(SocketAddr, IpAddr, &[u8], usize)) {
        if let Some((address, local)) = self.way.take() {
            emit(address, local, &self.bytes, self.length);
        }
        self.bytes.clear();
        debug_assert!(self.way.is_none(), "the next message starts a train");
    }
}
