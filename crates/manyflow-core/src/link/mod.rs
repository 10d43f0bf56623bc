//! One direction of a link: a queue, a transmitter with a rate, and a wire with a delay and its
//! faults.
//!
//! ```text
//!   push -> [ queue: drop-tail, RED, XCP or AQM ] -> transmitter (rate) -> wire (delay, loss, duplication, jitter) -> pop_ready
//! ```
//!
//! A link is generic over its packets and has no clock, so it is the same in the simulator and
//! under real sockets. A packet's departure is known when it is pushed, because the packets before
//! it will not change. So a link needs one event for each packet, that of its arrival; queue and
//! wire cost nothing in between.
//!
//! With an [`Aqm`], the queue decides when a packet leaves, too. Such a link has an event for each
//! departure as well (`managed.rs`). So has a link whose rate varies by itself ([`Pace`],
//! `pace.rs`), with any queue.
//!
//! | file | queue |
//! |---|---|
//! | `red.rs` | random early detection |
//! | `codel.rs` | CoDel (RFC 8289) |
//! | `fq_codel.rs`, `fair.rs` | FQ-CoDel (RFC 8290), and its deficit round robin |
//! | `cake.rs` | the core of CAKE |
//! | `pie.rs` | PIE (RFC 8033) |
//! | `dualpi2.rs` | DualPI2 (RFC 9332) |

mod cake;
mod carried;
mod codel;
mod config;
mod dualpi2;
mod extras;
mod fair;
mod faults;
mod fq_codel;
mod managed;
mod pace;
mod pie;
mod rate_trace;
mod red;
mod shape;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_aqm;
#[cfg(test)]
mod tests_aqm_random;
#[cfg(test)]
mod tests_pace;
#[cfg(test)]
mod tests_xcp;
mod token_bucket;
mod waiting;

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

pub use cake::{CakeConfig, Isolation};
pub use carried::{Carried, Flow, Item};
pub use codel::CoDelConfig;
pub use config::{
    JitterDistribution, LinkConfig, LossModel, Marking, Overload, QueueLimit, RedConfig, RedVariant,
};
pub use dualpi2::DualPi2Config;
use extras::Extras;
pub use fq_codel::{FqCoDelConfig, Multicast};
use managed::Managed;
pub use managed::{Aqm, Fate};
pub use pace::Pace;
pub use pie::PieConfig;
pub use rate_trace::{FULL_PACKET_BYTES, RateTrace, RateTraceError};
pub use red::{Arrival, Notice, Red, TopGroups, Verdict};
pub use shape::{Shape, ShapeKind};
pub use token_bucket::TokenBucket;

use crate::time::Time;

/// Counts a link's packets by their fate. At all times `pushed + duplicated = delivered + dropped
/// + lost + Link::carried`.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets handed to the link.
    pub pushed: u64,
    /// Packets taken at the link's end.
    pub delivered: u64,
    /// Bytes of the packets taken at the link's end.
    pub delivered_bytes: u64,
    /// Packets that the queue dropped.
    pub dropped: u64,
    /// Packets that the queue marked.
    pub marked: u64,
    /// Packets lost on the wire, or because the link was cut. Losses on the wire are counted when
    /// the packet is pushed.
    pub lost: u64,
    /// Copies that the wire made of packets.
    pub duplicated: u64,
}

/// The reason why a link did not take a packet.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// The queue was full.
    Full,
    /// Random early detection or other active queue management dropped the packet.
    Early,
    /// The link is cut.
    Cut,
}

/// One direction of a link. It takes two cache lines besides the packets that it carries: a large
/// network has millions of links.
#[derive(Debug)]
pub struct Link<T> {
    config: Arc<LinkConfig>,
    seed: u64,
    /// The time at which the transmitter has sent every accepted packet.
    free_at: Time,
    /// The fraction of a nanosecond that the last transmission time was rounded down by, in units
    /// of 1 ns / rate. It is added to the next one, so that rates do not drift.
    carry: u64,
    /// The packets in the queue and on the wire, in the order in which they will arrive.
    wire: VecDeque<InTransit<T>>,
    pushed: u64,
    delivered: u64,
    delivered_bytes: u64,
    /// The state that most links never need.
    extras: Option<Box<Extras>>,
    /// The queue of a link with an [`Aqm`] or a [`Pace`].
    managed: Option<Box<Managed<T>>>,
    cut: bool,
    /// The kind of queue that the configuration asks for. A packet of a drop-tail link need not
    /// look there.
    kind: Kind,
}

/// How a link's queue decides about packets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// By its limit alone.
    DropTail,
    /// When a packet arrives: RED and XCP.
    Judge,
    /// In a managed queue; with a [`Pace`] also by RED and XCP.
    Managed,
}

impl Kind {
    fn of(config: &LinkConfig) -> Kind {
        let is_judged = config.red.is_some() || config.xcp.is_some();
        match config.aqm.is_some() || config.pace.is_some() {
            true => Kind::Managed,
            false if is_judged => Kind::Judge,
            false => Kind::DropTail,
        }
    }
}

#[derive(Clone, Debug)]
struct InTransit<T> {
    arrives: Time,
    bytes: u32,
    item: T,
}

impl<T: Item> Link<T> {
    /// Creates a link whose random choices come from `seed`. Links with the same configuration can
    /// share it.
    pub fn new(config: impl Into<Arc<LinkConfig>>, seed: u64) -> Link<T> {
        let config = config.into();
        Link {
            kind: Kind::of(&config),
            config,
            seed,
            free_at: Time::ZERO,
            carry: 0,
            wire: VecDeque::new(),
            pushed: 0,
            delivered: 0,
            delivered_bytes: 0,
            extras: None,
            managed: None,
            cut: false,
        }
    }

    /// Returns the link's configuration.
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Returns the counts of all packets so far.
    pub fn counters(&self) -> Counters {
        let extras = self.extras.as_deref();
        let managed = self.managed.as_deref();
        let (dropped, marked) = managed.map_or((0, 0), Managed::counts);
        Counters {
            pushed: self.pushed,
            delivered: self.delivered,
            delivered_bytes: self.delivered_bytes,
            dropped: extras.map_or(0, |extras| extras.dropped) + dropped,
            marked: extras.map_or(0, |extras| extras.marked) + marked,
            lost: extras.map_or(0, |extras| extras.lost),
            duplicated: extras.map_or(0, |extras| extras.duplicated),
        }
    }

    /// Returns how many packets are in the queue, in transmission and on the wire, without those
    /// that the wire is going to lose.
    pub fn carried(&self) -> u64 {
        let managed = self.managed.as_deref();
        let waiting = managed.map_or(0, |managed| managed.queued().0);
        (self.wire.len() + waiting) as u64
    }

    /// Returns how many packets wait for the transmitter at `now`.
    pub fn queue_packets(&mut self, now: Time) -> usize {
        self.retire(now);
        self.queued().0
    }

    /// Returns the integral over time of the number of packets that wait for the transmitter. Its
    /// growth over an interval, divided by the interval's length, is the mean queue.
    pub fn queue_time(&mut self, now: Time) -> Duration {
        self.retire(now);
        let managed = self.managed.as_deref();
        let managed = managed.map_or(0, |managed| managed.waited(now));
        let extras = self.extras.as_deref();
        let waited = extras.map_or(Duration::ZERO, |extras| extras.waited(now));
        waited + Duration::from_nanos(managed)
    }

    /// Hands a packet of `bytes` to the link. Returns how many copies will arrive: none if the wire
    /// is going to lose the packet, two if the wire duplicates it. A link with an [`Aqm`] or a
    /// [`Pace`] does not know yet and returns one; see [`pop_fate`](Link::pop_fate).
    ///
    /// `item` can be a view of a packet that is stored elsewhere. Once the queue has decided, the
    /// view is converted into what the link carries, such as the packet's place in that store.
    ///
    /// # Errors
    /// Returns an error if the queue dropped the packet or the link is cut. The packet is counted
    /// and not delivered.
    // The way of a packet over a drop-tail link without faults is inlined as a whole, and the rest
    // is not: calls would save and restore registers for each step.
    #[inline(always)]
    pub fn push(
        &mut self,
        now: Time,
        mut item: impl Carried + Into<T>,
        bytes: u32,
    ) -> Result<u32, Dropped> {
        self.pushed += 1;
        if self.cut {
            self.extras().lost += 1;
            return Err(Dropped::Cut);
        }
        match self.kind {
            // An idle transmitter has room, whatever it has not yet retired.
            Kind::DropTail if self.free_at <= now => {}
            Kind::DropTail => {
                self.retire(now);
                if !self.has_room(bytes) {
                    return self.drop_full();
                }
            }
            Kind::Judge => {
                self.retire(now);
                self.judge(now, &mut item, bytes)?;
            }
            Kind::Managed => {
                self.retire(now);
                return self.push_managed(now, item, bytes);
            }
        }
        Ok(self.accept(now, item.into(), bytes))
    }

    /// Returns whether the queue may change packets: RED and an [`Aqm`] mark them, and XCP's router
    /// lowers their window change.
    #[inline]
    pub fn changes_packets(&self) -> bool {
        self.kind != Kind::DropTail
    }

    /// Drops a packet that a full queue has no room for.
    #[inline(never)]
    fn drop_full(&mut self) -> Result<u32, Dropped> {
        self.extras().dropped += 1;
        Err(Dropped::Full)
    }

    /// Queues a packet. Returns how many copies of it will arrive.
    #[inline(always)]
    fn accept(&mut self, now: Time, item: T, bytes: u32) -> u32 {
        let begins = now.max(self.free_at);
        self.free_at = self.transmitted(begins, bytes);
        if begins > now {
            self.extras().wait(now, begins, bytes);
        }
        let copies = self.put_on_wire(self.free_at, item, bytes);
        self.check_counters();
        copies
    }

    /// Removes and returns the next packet that has arrived by `now`.
    #[inline]
    pub fn pop_ready(&mut self, now: Time) -> Option<T> {
        self.advance(now);
        if self.wire.front()?.arrives > now {
            return None;
        }
        let arrived = self.wire.pop_front()?;
        self.delivered += 1;
        self.delivered_bytes += u64::from(arrived.bytes);
        Some(arrived.item)
    }

    /// Returns when the next packet arrives or a managed queue sends one, and
    /// [`pop_ready`](Link::pop_ready) should be called.
    #[inline]
    pub fn next_time(&self) -> Option<Time> {
        let arrival = self.wire.front().map(|next| next.arrives);
        let Some(managed) = &self.managed else {
            return arrival;
        };
        let departure = managed.next_time(self.free_at);
        [arrival, departure].into_iter().flatten().min()
    }

    /// Changes the link's configuration. Packets in transmission or on the wire continue as they
    /// began; waiting packets are sent with the new rate and delay.
    pub fn reconfigure(&mut self, now: Time, config: impl Into<Arc<LinkConfig>>) {
        self.retire(now);
        let waiting = self.extras.as_mut().map(|extras| extras.take_waiting(now));
        let Some((begins, packets)) = waiting.unwrap_or_default() else {
            self.adopt(now, config.into());
            return;
        };
        // With jitter the wire is not in the order of departure. Then the packets that arrive last
        // are taken for the waiting ones.
        let kept = self.wire.len().saturating_sub(packets);
        let waiting = self.wire.split_off(kept);
        self.free_at = begins;
        self.adopt(now, config.into());
        for InTransit { item, bytes, .. } in waiting {
            let begins = self.free_at;
            let sent = self.occupy(bytes);
            self.extras().wait(now, begins, bytes);
            self.deliver_later(sent, item, bytes);
        }
    }

    /// Cuts the link, which loses all packets that it carries, or restores it. Returns the packets
    /// that were lost.
    pub fn set_cut(&mut self, now: Time, cut: bool) -> Vec<T> {
        self.cut = cut;
        let mut lost = Vec::new();
        if cut {
            self.retire(now);
            self.extras().take_waiting(now);
            lost.extend(self.wire.drain(..).map(|packet| packet.item));
            lost.extend(self.take_managed(now).into_iter().map(|packet| packet.item));
            self.stop_transmission(now);
            self.extras().lost += lost.len() as u64;
            self.free_at = now;
        }
        self.check_counters();
        lost
    }

    /// Asserts that every packet is accounted for (see [`Counters`]).
    fn check_counters(&self) {
        debug_assert!(
            {
                let counters = self.counters();
                let gone = counters.delivered + counters.dropped + counters.lost;
                counters.pushed + counters.duplicated == gone + self.carried()
            },
            "{:?} with {} packets carried",
            self.counters(),
            self.carried()
        );
    }

    /// Notes that a group of a layered session is forwarded onto this link from now on. Does
    /// nothing unless RED marks by groups.
    pub fn subscribe(&mut self, session: u32, rank: u8) {
        if self.config.marks_by_group() {
            self.extras().tops.subscribe(session, rank);
        }
    }

    /// Notes that a group of a layered session, and so every group above it, is no longer forwarded
    /// onto this link.
    pub fn unsubscribe(&mut self, session: u32, rank: u8) {
        if self.config.marks_by_group() {
            self.extras().tops.unsubscribe(session, rank);
        }
    }

    fn adopt(&mut self, now: Time, config: Arc<LinkConfig>) {
        if let Some(extras) = &mut self.extras {
            if config.red != self.config.red {
                extras.set_red(&config);
            }
            if config.xcp != self.config.xcp {
                extras.set_xcp(&config);
            }
        }
        let is_paced_otherwise = config.pace != self.config.pace;
        let (before, after) = (self.kind, Kind::of(&config));
        let is_managed_otherwise =
            config.aqm != self.config.aqm || (before == Kind::Managed) != (after == Kind::Managed);
        (self.kind, self.carry) = (after, 0);
        self.config = config;
        if is_paced_otherwise {
            self.adopt_pace(now);
        }
        if is_managed_otherwise {
            self.adopt_management(now);
        }
    }

    #[inline]
    fn extras(&mut self) -> &mut Extras {
        extras(&mut self.extras, &self.config, self.seed)
    }

    /// Removes packets from the queue whose transmission has begun.
    #[inline]
    fn retire(&mut self, now: Time) {
        self.advance(now);
        if let Some(extras) = &mut self.extras {
            extras.retire(now);
        }
    }

    /// Returns the number of waiting packets and their bytes.
    fn queued(&self) -> (usize, u64) {
        let extras = self.extras.as_ref();
        let (packets, bytes) = extras.map_or((0, 0), |extras| extras.queued());
        let managed = self.managed.as_deref();
        let (more, more_bytes) = managed.map_or((0, 0), Managed::queued);
        (packets + more, bytes + more_bytes)
    }

    /// Decides whether the packet enters the queue of a link with RED or XCP. RED may mark it, and
    /// XCP's router may lower its window change.
    #[inline(never)]
    fn judge(&mut self, now: Time, item: &mut impl Carried, bytes: u32) -> Result<(), Dropped> {
        let (waiting, waiting_bytes) = self.queued();
        let is_busy = self.free_at > now;
        let has_room = !is_busy || self.fits(waiting, waiting_bytes, bytes);
        let rate = self.config.rate;
        if let Some(rate) = rate.filter(|_| self.config.xcp.is_some()) {
            let queued = (waiting_bytes, has_room);
            self.extras().steer(now, item, bytes, rate, queued);
        }
        let idle = (!is_busy).then(|| now - self.free_at);
        let extras = self.extras();
        let arrival = Arrival {
            bytes,
            waiting,
            idle,
            rate,
        };
        let verdict = if has_room {
            extras.judge(item, arrival)
        } else {
            extras.refuse(arrival);
            Verdict::Drop
        };
        match verdict {
            Verdict::Accept => Ok(()),
            Verdict::Mark => {
                item.mark();
                extras.marked += 1;
                Ok(())
            }
            Verdict::Drop => {
                extras.dropped += 1;
                Err(if has_room {
                    Dropped::Early
                } else {
                    Dropped::Full
                })
            }
        }
    }

    fn has_room(&self, bytes: u32) -> bool {
        let (packets, waiting_bytes) = self.queued();
        self.fits(packets, waiting_bytes, bytes)
    }

    /// Returns whether a packet fits into the queue behind these packets and bytes.
    fn fits(&self, packets: usize, waiting_bytes: u64, bytes: u32) -> bool {
        match self.config.queue {
            QueueLimit::Unlimited => true,
            QueueLimit::Packets(limit) => packets < limit as usize,
            QueueLimit::Bytes(limit) => waiting_bytes + u64::from(bytes) <= limit,
        }
    }

    /// Returns when the transmission of a packet ends that begins at `begins`.
    #[inline]
    fn transmitted(&mut self, begins: Time, bytes: u32) -> Time {
        let Some(rate) = self.config.rate else {
            return begins;
        };
        let rate = rate.bits_per_s().max(1);
        // 2^32 bytes of 8 bits, times 10^9, stay below 2^65, so only giant packets need the
        // division of 128 bits.
        let scaled = u128::from(bytes) * 8_000_000_000 + u128::from(self.carry);
        let (whole, rest) = match u64::try_from(scaled) {
            Ok(scaled) => (scaled / rate, scaled % rate),
            Err(_) => (
                (scaled / u128::from(rate)) as u64,
                (scaled % u128::from(rate)) as u64,
            ),
        };
        self.carry = rest;
        Time::from_nanos(begins.as_nanos().saturating_add(whole))
    }

    /// Returns how many copies of the packet will arrive.
    #[inline(always)]
    fn put_on_wire(&mut self, sent: Time, item: T, bytes: u32) -> u32 {
        let config = &*self.config;
        if config.loss != LossModel::None || config.duplication > 0.0 {
            return self.put_on_faulty_wire(sent, item, bytes);
        }
        self.deliver_later(sent, item, bytes);
        1
    }

    #[inline(never)]
    fn draw_jitter(&mut self) -> Duration {
        let (jitter, distribution) = (self.config.jitter, self.config.jitter_distribution);
        distribution.draw(jitter, &mut self.extras().random)
    }

    #[inline(always)]
    fn deliver_later(&mut self, sent: Time, item: T, bytes: u32) {
        let mut arrives = sent + self.config.delay;
        if self.config.jitter > Duration::ZERO {
            arrives += self.draw_jitter();
        }
        make_room(&mut self.wire);
        let last = self.wire.back().map_or(Time::ZERO, |last| last.arrives);
        if arrives < last {
            if self.config.reorder {
                return self.overtake(InTransit {
                    arrives,
                    bytes,
                    item,
                });
            }
            arrives = last;
        }
        self.wire.push_back(InTransit {
            arrives,
            bytes,
            item,
        });
    }

    /// Puts a packet on the wire that overtakes others.
    #[inline(never)]
    fn overtake(&mut self, packet: InTransit<T>) {
        let is_before = |other: &InTransit<T>| other.arrives <= packet.arrives;
        let place = self.wire.iter().rposition(is_before);
        self.wire
            .insert(place.map_or(0, |before| before + 1), packet);
    }
}

fn extras<'a>(
    extras: &'a mut Option<Box<Extras>>,
    config: &LinkConfig,
    seed: u64,
) -> &'a mut Extras {
    extras.get_or_insert_with(|| Box::new(Extras::new(config, seed)))
}

/// Makes room for one more element, by doubling from one. The standard library begins with four,
/// and most links of a large network never carry two packets at once.
#[inline]
fn make_room<T>(queue: &mut VecDeque<T>) {
    if queue.len() == queue.capacity() {
        queue.reserve_exact(queue.len().max(1));
    }
}
