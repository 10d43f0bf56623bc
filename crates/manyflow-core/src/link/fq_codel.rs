//! FQ-CoDel, flow queueing with CoDel (RFC 8290).
//!
//! | RFC 8290 | here |
//! |---|---|
//! | 4.1: a packet's flow selects one of 1,024 queues by a salted hash; flows that collide share one | [`FqCoDelConfig::flows`] |
//! | 4.2: new and old queues, whose deficit grows by a quantum of 1,514 B in each round | `fair.rs` |
//! | 4.2, 5.2: CoDel with 5 ms and 100 ms for each queue | `codel.rs` |
//! | 4.1: a full queue drops half of the packets of the longest flow, at most 64, from its head | `FairQueue::shed` |
//!
//! A multicast session has several flows on the path of its packets, one for each channel, because
//! their addresses differ. In a tunnel (AMT, RFC 7450) they are one flow (section 6.2):
//! [`Multicast`].
//!
//! The RFC's total limit is that of the link ([`LinkConfig::queue`](super::LinkConfig::queue)); the
//! RFC recommends 10,240 packets for links up to 10 Gbit/s (section 5.2.3).

use super::codel::CoDelConfig;
use super::fair::{FairQueue, Shares, mix};
use super::waiting::{Store, Waiting};
use super::{Flow, Item};
use crate::time::Time;

/// The flows of a multicast session.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Multicast {
    /// Each channel, as for a router that sees their addresses.
    #[default]
    Channels,
    /// The whole session, as for a router that sees one tunnel.
    Session,
}

/// The configuration of FQ-CoDel (RFC 8290).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FqCoDelConfig {
    /// CoDel's parameters for each queue.
    pub codel: CoDelConfig,
    /// The number of queues, at least 1. Default: 1024.
    pub flows: u32,
    /// The bytes that a queue may send in each round, at least 1. Default: 1514.
    pub quantum_bytes: u32,
    /// The flows of multicast sessions. Default: a flow for each channel.
    pub multicast: Multicast,
}

impl Default for FqCoDelConfig {
    fn default() -> FqCoDelConfig {
        FqCoDelConfig {
            codel: CoDelConfig::default(),
            flows: 1024,
            quantum_bytes: 1514,
            multicast: Multicast::Channels,
        }
    }
}

/// Gives each flow the same share.
struct Equal(u32);

impl Shares for Equal {
    fn quantum(&self, _flow: usize) -> u32 {
        self.0
    }
}

/// The state of FQ-CoDel.
#[derive(Debug)]
pub(super) struct FqCoDel {
    config: FqCoDelConfig,
    salt: u64,
    queues: FairQueue,
}

impl FqCoDel {
    pub(super) fn new(config: FqCoDelConfig, salt: u64) -> FqCoDel {
        FqCoDel {
            config,
            salt,
            queues: FairQueue::new(config.flows as usize),
        }
    }

    fn queue_of(&self, flow: &Flow) -> usize {
        let key = match self.config.multicast {
            Multicast::Channels => flow.channel_key(),
            Multicast::Session => flow.key,
        };
        (mix(key ^ self.salt) % u64::from(self.config.flows.max(1))) as usize
    }

    pub(super) fn enqueue<T: Item>(&mut self, packet: Waiting<T>, store: &mut Store<T>) {
        let flow = self.queue_of(&packet.flow);
        let shares = &mut Equal(self.config.quantum_bytes);
        self.queues.enqueue(flow, packet, store, shares);
    }

    pub(super) fn dequeue<T: Item>(
        &mut self,
        now: Time,
        store: &mut Store<T>,
    ) -> Option<Waiting<T>> {
        let shares = &mut Equal(self.config.quantum_bytes);
        self.queues.dequeue(&self.config.codel, now, store, shares)
    }

    /// Removes and returns any packet that no other of its flow precedes.
    pub(super) fn take<T: Item>(&mut self, now: Time, store: &mut Store<T>) -> Option<Waiting<T>> {
        self.queues.take(now, store)
    }

    /// Drops packets of the longest flow.
    pub(super) fn shed<T: Item>(&mut self, now: Time, store: &mut Store<T>) {
        self.queues.shed(now, store);
    }
}
