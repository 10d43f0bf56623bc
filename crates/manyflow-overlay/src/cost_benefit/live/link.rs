//! The price of one of a daemon's own links.

use core::time::Duration;

use super::UPDATE;
use super::below::Below;
use super::rates::Rates;
use crate::cost_benefit::benefit::Benefits;
use crate::layers::Layers;
use crate::message::LinkId;
use crate::sequence::OriginSeq;
use manyflow_core::time::Time;

/// D: the delay of a queue at which its price remains the same.
const TARGET: Duration = Duration::from_millis(20);
/// The target is at least this number of messages.
const TARGET_MESSAGES: f64 = 10.0;
/// K: the part of the logarithm of the price that is proportional to the delay, in 1/s.
const PROPORTIONAL_PER_S: f64 = 2.5;
/// L: the part of the logarithm for clients of this daemon, for a delay of one target more. They
/// learn of the delay at once, so that this part can be larger than K.
const AT_ONCE: f64 = 0.5;
/// The maximum delay for that part, in targets.
const AT_ONCE_TARGETS_MAX: f64 = 20.0;
/// G: the rate at which a delay of a second above the target changes the logarithm, in 1/s^2.
const INTEGRAL_PER_S2: f64 = 3.75;
/// The maximum rate at which the price of a link without a queue falls, in 1/s.
const FALL_MAX_PER_S: f64 = 2.5;
/// A delay above this multiple of the target is an overload.
const OVERLOAD: f64 = 2.0;
/// A queue above this multiple of the target is too long for any layer of a message.
const LONG: f64 = 4.0;
/// The share of an update in the estimate of the integral part while there is an overload.
const ESTIMATE_SHARE: f64 = 0.25;
/// The minimum and the maximum correction by one estimate.
const CORRECTION: (f64, f64) = (-1.0, 3.0);
/// The share of the present price in the price that arriving messages were bought at. They were
/// bought some 150 ms ago.
const IN_FORCE_SHARE: f64 = 0.3;
/// The number of updates until messages arrive that were bought at the first price.
const FIRST_UPDATES: u32 = 4;
/// A delay below the first share of the target leaves room on its link. One below the second leaves
/// some: it can consist of the jitter of busy machines.
const ROOM: f64 = 0.25;
const SOME_ROOM: f64 = 0.5;
/// The factor by which the fall of a price becomes faster with each update that finds some room,
/// and the maximum rate of that fall, in 1/s. It doubles in the time in which updates take effect.
const SOME_HASTE: f64 = 1.19;
const SOME_FALL_MAX_PER_S: f64 = 0.5;
/// The maximum number of clients for which the integral part divides what the link carries. A queue
/// that takes long to drain would otherwise raise it without end.
const CLIENTS_MAX: f64 = 16_384.0;
/// A price that allows each client this many times what the link carries is dropped.
const LIMITS_NOBODY: f64 = 8.0;
/// The time for which a link's delay is above twice its target before the link gets a price.
pub const ONSET: Duration = Duration::from_millis(100);
/// The time for which the price of a link that is down is kept: most links are back soon, with the
/// same clients.
const KEEP_PRICE: Duration = Duration::from_secs(30);
/// The maximum delay that counts, and the maximum time without any message after which the link's
/// rate is measured again: it may have lost its connection.
pub(super) const DELAY_MAX_S: f64 = 1.0;

/// The state of one of this daemon's links.
#[derive(Debug)]
pub(super) struct OwnLink {
    pub(super) link: LinkId,
    /// When the link went down; `None` while it is up.
    down_since: Option<Time>,
    /// The number of messages that have waited since `since`.
    messages: u32,
    since: Time,
    /// The sums since the last update: messages times seconds, messages that came, and messages
    /// that left.
    waited: f64,
    arrived: f64,
    departed: f64,
    /// The messages that clients of this daemon bought since the last update, and the sum of 1/x at
    /// their prices.
    bought: (f64, f64),
    updated: Time,
    /// The delay of messages that have left this queue.
    below: Below,
    /// Whether there were any before the last update.
    was_used: bool,
    rates: Rates,
    /// When the delay rose above twice the target.
    slow_since: Option<Time>,
    /// I: the integral part of the logarithm; `None` if the link has no price.
    integral: Option<f64>,
    /// The logarithm at the last update, which other daemons know; `None` if they know no price.
    reported: Option<f64>,
    /// Whether a layered message was cut since the last update: the price limits somebody.
    has_cut: bool,
    /// The average logarithm that messages from other daemons were bought at, and the number of
    /// updates since the first price.
    in_force: f64,
    updates: u32,
    /// The rate at which the price falls while there is room, as a multiple of the first one.
    haste: f64,
}

impl OwnLink {
    pub(super) fn new(now: Time, link: LinkId, messages: u32) -> OwnLink {
        OwnLink {
            link,
            down_since: None,
            messages,
            since: now,
            waited: 0.0,
            arrived: f64::from(messages),
            departed: 0.0,
            bought: (0.0, 0.0),
            updated: now,
            below: Below::new(now),
            was_used: true,
            rates: Rates::default(),
            slow_since: None,
            integral: None,
            reported: None,
            has_cut: false,
            in_force: 0.0,
            updates: 0,
            haste: 1.0,
        }
    }

    /// Handles a change of the topology, in which the link is up or down. A link that is up again
    /// continues with its price: without one, all clients would send a burst. Returns whether to
    /// keep the state.
    pub(super) fn handle_topology(&mut self, now: Time, is_up: bool) -> bool {
        if !is_up {
            self.down_since.get_or_insert(now);
        } else if self.down_since.take().is_some() {
            (self.messages, self.since, self.updated) = (0, now, now);
            (self.waited, self.arrived, self.departed) = (0.0, 0.0, 0.0);
            (self.bought, self.below, self.slow_since) = ((0.0, 0.0), Below::new(now), None);
        }
        self.is_up() || self.integral.is_some()
    }

    /// Returns whether the link is up.
    pub(super) fn is_up(&self) -> bool {
        self.down_since.is_none()
    }

    /// Handles a change of the queue.
    pub(super) fn set(&mut self, now: Time, messages: u32) {
        self.waited += f64::from(self.messages) * (now - self.since).as_secs_f64();
        self.arrived += f64::from(messages.saturating_sub(self.messages));
        self.departed += f64::from(self.messages.saturating_sub(messages));
        self.since = now;
        self.messages = messages;
    }

    /// Handles a measurement of the delay below the queue.
    pub(super) fn set_below(&mut self, now: Time, delay: Duration) {
        let target_s = self.target_s();
        let has_queue = self.messages > 0;
        self.below
            .set(now, delay.as_secs_f64(), target_s, has_queue);
    }

    /// Returns the time that the link takes to send a number of messages, in seconds.
    fn delay_s(&self, messages: f64) -> f64 {
        match self.rates.present() {
            Some(rate) => (messages / rate).min(DELAY_MAX_S),
            None if messages > 0.0 => DELAY_MAX_S,
            None => 0.0,
        }
    }

    /// Returns D, the target of the delay, in seconds.
    fn target_s(&self) -> f64 {
        let rate = self.rates.present().unwrap_or(0.0);
        TARGET.as_secs_f64().max(TARGET_MESSAGES / rate.max(1.0))
    }

    /// Returns ln 1/x at this moment for clients of this daemon; `None` if the link has no price.
    pub(super) fn log_cost(&self) -> Option<f64> {
        let integral = self.integral?;
        let target_s = self.target_s();
        let below_s = self.below.delay_s();
        // The part of the target that is left for the queue.
        let left_s = (target_s - below_s).max(0.0);
        let queue_s = self.delay_s(f64::from(self.messages));
        let queue_s = queue_s.min(AT_ONCE_TARGETS_MAX * target_s);
        let at_once = AT_ONCE * (queue_s - left_s) / target_s;
        Some(integral + PROPORTIONAL_PER_S * (below_s + left_s) + at_once)
    }

    /// Notes that a client of this daemon has bought a message over the link at this price.
    pub(super) fn note_bought(&mut self, log_cost: f64) {
        self.bought.0 += 1.0;
        self.bought.1 += libm::exp(log_cost);
    }

    /// Returns how many bytes of a layered message the link sells for its purse now.
    ///
    /// A layered message that finds an overload gives the link its first price at once, the one at
    /// which its purse buys one message. While the queue is longer still, messages leave it without
    /// their layers: it drains at the rate at which the link carries headers, whatever the price.
    pub(super) fn sell(&mut self, layers: &Layers, sequence: OriginSeq) -> u32 {
        let targets = f64::from(self.messages) / self.target_messages();
        if self.integral.is_none() && targets >= OVERLOAD {
            self.begin_at(libm::log(layers.purse().as_secs_f64()));
        }
        let sold = match self.log_cost() {
            _ if targets >= LONG => layers.least_bytes(),
            Some(log_cost) => layers.bytes_for(libm::exp(-log_cost), sequence),
            None => layers.whole_bytes(),
        };
        self.has_cut |= sold < layers.whole_bytes();
        sold
    }

    /// Returns the length of the queue at which its delay is the target.
    fn target_messages(&self) -> f64 {
        let rate = self.rates.present().unwrap_or(0.0);
        TARGET_MESSAGES.max(rate * TARGET.as_secs_f64())
    }

    /// Returns an estimate of the integral part: the logarithm of the number of clients over the
    /// link's rate. A message that was bought at a price shows 1/x seconds of a client.
    fn estimate(&self, span_s: f64) -> f64 {
        let (bought, clients_s) = self.bought;
        let remote = (self.arrived - bought).max(0.0);
        let clients_s = clients_s + remote * libm::exp(self.in_force);
        let least = 0.5 * libm::exp(self.in_force);
        let capacity = self.rates.capacity().unwrap_or(0.0) * span_s;
        libm::log(clients_s.max(least) / capacity.max(0.5))
    }

    /// Returns ln 1/x as it was last reported; `None` if the link had no price.
    pub(super) fn reported(&self) -> Option<f64> {
        self.reported
    }

    /// Returns whether the link has had neither a queue nor a price lately, so that its state can
    /// be dropped, or has been down for long.
    pub(super) fn is_idle(&self, now: Time) -> bool {
        match self.down_since {
            Some(since) => now - since > KEEP_PRICE,
            None => self.messages == 0 && self.integral.is_none() && !self.was_used,
        }
    }

    /// Adapts the price to the queue since the last update.
    pub(super) fn update(&mut self, now: Time, benefits: &Benefits) {
        self.set(now, self.messages);
        let span_s = (now - self.updated).as_secs_f64();
        // A link that was first used at this moment has no average yet.
        if span_s == 0.0 {
            return;
        }
        self.was_used = self.waited > 0.0 || self.departed > 0.0;
        if self.departed == 0.0 && self.messages > 0 {
            self.pass_stall(now, span_s);
            return;
        }
        let growth = self.below.update(span_s, self.departed > 0.0);
        let carried = match growth > 0.0 {
            true => self.departed / (1.0 + growth / span_s),
            false => self.departed - growth * self.rates.present().unwrap_or(0.0),
        };
        let below_s = self.below.delay_s();
        let waited = self.waited / span_s;
        let pauses = waited >= 1.0 && self.rates.is_pause(span_s, carried);
        self.rates.add(span_s, carried);
        let delay_s = self.delay_s(waited) + below_s;
        let surplus = libm::log(self.arrived.max(0.5) / carried.max(0.5));
        let estimate = self.estimate(span_s);
        (self.waited, self.updated, self.bought) = (0.0, now, (0.0, 0.0));
        (self.arrived, self.departed) = (0.0, 0.0);
        let (rate, target_s) = (self.rates.present().unwrap_or(0.0), self.target_s());
        self.adapt(
            span_s.min(4.0 * UPDATE.as_secs_f64()),
            delay_s,
            target_s,
            (!pauses).then_some(estimate),
        );
        if rate > 0.0 {
            let highest = libm::log(CLIENTS_MAX / rate);
            self.integral = self.integral.map(|integral| integral.min(highest));
        }
        self.end_if_useless(rate, delay_s, target_s, benefits);
        self.begin(now, rate, delay_s, target_s, surplus);
        self.reported = self
            .integral
            .map(|integral| integral + PROPORTIONAL_PER_S * delay_s);
        if let Some(log_cost) = self.reported {
            self.in_force += IN_FORCE_SHARE * (log_cost - self.in_force);
            self.updates = self.updates.saturating_add(1);
        }
    }

    /// Returns whether the queue has lately been too long for a link that has room.
    pub(super) fn is_slow(&self) -> bool {
        self.slow_since.is_some()
    }

    /// Handles a link that has sent nothing for `span_s`. A transport that waits for a lost packet
    /// makes the link slower; a longer silence says nothing about its rate.
    fn pass_stall(&mut self, now: Time, span_s: f64) {
        if span_s > DELAY_MAX_S {
            (self.waited, self.updated) = (0.0, now);
            self.slow_since = None;
        }
    }

    /// Adapts the integral part after `span_s`, to `estimate` while there is an overload. A link
    /// that has paused gives no estimate.
    fn adapt(&mut self, span_s: f64, delay_s: f64, target_s: f64, estimate: Option<f64>) {
        let Some(integral) = &mut self.integral else {
            return;
        };
        let change_per_s = INTEGRAL_PER_S2 * (delay_s - target_s);
        if delay_s >= OVERLOAD * target_s
            && self.updates >= FIRST_UPDATES
            && let Some(estimate) = estimate
        {
            let (lowest, highest) = CORRECTION;
            let missing = estimate - *integral;
            *integral += ESTIMATE_SHARE * missing.clamp(lowest, highest);
            self.haste = 1.0;
        } else if delay_s < ROOM * target_s {
            *integral += (change_per_s * self.haste).max(-FALL_MAX_PER_S) * span_s;
            self.haste *= 2.0;
        } else if delay_s < SOME_ROOM * target_s {
            *integral += (change_per_s * self.haste).max(-SOME_FALL_MAX_PER_S) * span_s;
            self.haste *= SOME_HASTE;
        } else {
            *integral += change_per_s * span_s;
            self.haste = 1.0;
        }
    }

    /// Drops a price that limits nobody, whatever the benefit of its messages.
    fn end_if_useless(&mut self, rate: f64, delay_s: f64, target_s: f64, benefits: &Benefits) {
        let has_cut = core::mem::take(&mut self.has_cut);
        if delay_s < ROOM * target_s
            && !has_cut
            && let Some(integral) = self.integral
            && benefits.least_rate(libm::exp(-integral)) > LIMITS_NOBODY * rate
        {
            self.integral = None;
        }
    }

    /// Gives the link its first price if it is overloaded.
    fn begin(&mut self, now: Time, rate: f64, delay_s: f64, target_s: f64, surplus: f64) {
        if delay_s < OVERLOAD * target_s {
            self.slow_since = None;
            return;
        }
        let slow_since = *self.slow_since.get_or_insert(now);
        if self.integral.is_none() && now - slow_since >= ONSET && rate > 0.0 {
            self.begin_at(surplus.clamp(0.0, CORRECTION.1) - libm::log(rate));
        }
    }

    fn begin_at(&mut self, first: f64) {
        (self.haste, self.updates, self.in_force) = (1.0, 0, first);
        self.integral = Some(first);
    }
}
