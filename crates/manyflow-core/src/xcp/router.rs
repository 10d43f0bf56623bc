//! XCP's router (Katabi, Handley and Rohrs, "Congestion Control for High Bandwidth-Delay Product
//! Networks", 2002; draft-falk-xcp-spec). It writes into each packet by how much the sender may
//! change its rate, and keeps no state of any flow.
//!
//! ```text
//!   each interval:  efficiency   F = alpha (C - y) - beta Q / d       by how much the traffic may change in all
//!                   fairness     gamma y - |F|, if positive           is moved between the flows besides
//!   each packet:    + its share by X, the time between packets: so the increase is the same for every flow (AI)
//!                   - its share by bytes: so the decrease is proportional to each flow's rate (MD)
//! ```
//!
//! C is the capacity, y the traffic that came in the interval, Q the persistent queue and d the
//! mean round-trip time of the flows. The units are bytes, seconds, and bytes per second. A header
//! requests a change of a window; divided by the round-trip time, it is a change of a rate.
//!
//! A [`Link`](crate::link::Link) knows a packet's departure when it is pushed. The steps that the
//! paper performs at arrivals and at departures are therefore both done then. This makes feedback
//! older by the time in the queue, which XCP keeps short. There are no timers: the next packet
//! closes an interval that has ended. Nothing is lost by this, because no packet came in between,
//! and the queue is shortest just before a packet comes.
//!
//! Packets without XCP's header, and those without a round-trip time, count as traffic, and so are
//! part of y.
//!
//! Deviations from the draft:
//! - The decrease is shared by the bytes of XCP's packets alone. The draft divides by all bytes, so
//!   that a part of the decrease falls on packets that cannot carry it. With other traffic on the
//!   link, the shuffling of rates between flows would then give more than it takes, and a standing
//!   queue would have to compensate.
//! - The increase that flows decline, because they are limited elsewhere, is offered to the others:
//!   the shares of later intervals are larger by the average factor of what was offered to what
//!   was accepted. In the draft it counts as the flow's decrease. The others then get a part of it
//!   only if it is declined early in the interval, and a part of the link remains idle.
//! - An interval lasts until a packet with a round-trip time has come, and the rate of its traffic
//!   is computed over its whole duration. The draft's timer closes intervals without packets, and
//!   the budget of such an interval is lost. A flow whose packets come less often than that, such
//!   as a member's part of a small window, would never get any feedback.

use super::{Congestion, WindowChange, XcpConfig};
use crate::time::{Time, seconds};

/// Bounds of the control interval Te, in seconds.
const INTERVAL_MIN_S: f64 = 0.001;
const INTERVAL_MAX_S: f64 = 1.0;
/// The shortest interval Tq over which the persistent queue is measured, in seconds.
const QUEUE_INTERVAL_MIN_S: f64 = 0.002;
/// The largest factor by which flows get more than even shares of an increase that others decline.
const STRETCH_MAX: f64 = 4.0;
/// The weight of the last interval in the average of that factor.
const STRETCH_WEIGHT: f64 = 0.25;

/// The state of an XCP router for one output.
#[derive(Clone, Debug)]
pub struct Controller {
    config: XcpConfig,
    /// d, the mean round-trip time of the flows.
    average_rtt_s: f64,
    /// Te: the length of the control interval.
    interval_s: f64,
    /// The start of the current interval; `None` before the first packet.
    interval_began: Option<Time>,
    traffic: Traffic,
    budget: Budget,
    /// The factor by which shares of an increase are larger than even ones, so that the flows that
    /// want more get what the others decline: 1 to [`STRETCH_MAX`].
    stretch: f64,
    queue: PersistentQueue,
}

/// The traffic of one control interval.
#[derive(Clone, Debug, Default)]
struct Traffic {
    bytes: f64,
    /// The bytes of packets that carry feedback.
    xcp_bytes: f64,
    /// The sum of X over the packets that carry feedback.
    spacing_s: f64,
    /// The sum of X times the round-trip time over those packets.
    weighted_rtt: f64,
}

/// The remaining changes of rate in an interval, in bytes per second, and the share of each packet.
#[derive(Clone, Debug, Default)]
struct Budget {
    /// residue_pos: the increase that remains.
    give: f64,
    /// residue_neg: the decrease that remains.
    take: f64,
    /// Cp: the increase for each second of X.
    give_per_s: f64,
    /// Cn: the decrease for each byte.
    take_per_byte: f64,
    /// The sum of the shares of the increase that packets were offered.
    offered: f64,
    /// The part of `offered` that the packets wanted.
    accepted: f64,
}

/// The queue that does not drain within a round-trip time.
#[derive(Clone, Debug, Default)]
struct PersistentQueue {
    /// Q, in bytes.
    bytes: f64,
    minimum: f64,
    ends: Time,
}

impl Controller {
    /// Creates a router. Its first interval begins with the first packet.
    pub fn new(config: XcpConfig) -> Controller {
        let initial_s = config.initial_interval.as_secs_f64();
        let initial_s = initial_s.clamp(INTERVAL_MIN_S, INTERVAL_MAX_S);
        Controller {
            config,
            average_rtt_s: initial_s,
            interval_s: initial_s,
            interval_began: None,
            traffic: Traffic::default(),
            budget: Budget::default(),
            stretch: 1.0,
            queue: PersistentQueue::default(),
        }
    }

    /// Handles the arrival of a packet of `bytes` at an output of `capacity` bytes per second,
    /// where `queue_bytes` wait before it.
    pub fn on_arrival(
        &mut self,
        now: Time,
        capacity: f64,
        queue_bytes: f64,
        bytes: u32,
        congestion: Option<&Congestion>,
    ) {
        let began = *self.interval_began.get_or_insert(now);
        if self.is_due(now) {
            let ended = self.ended(began, now);
            self.end_interval((ended - began).as_secs_f64(), capacity);
            self.interval_began = Some(ended);
        }
        self.queue
            .observe(now, queue_bytes, capacity, self.average_rtt_s);
        self.traffic.count(bytes, congestion);
    }

    /// Handles the departure of a packet: lowers its feedback to the change that the router grants,
    /// and marks it as answered.
    pub fn on_departure(&mut self, bytes: u32, congestion: &mut Congestion) {
        if congestion.rtt_us == 0 {
            congestion.feedback = WindowChange::default();
            return;
        }
        congestion.answered = true;
        let rtt_s = rtt_s(congestion);
        let wanted = congestion.feedback.bytes() / rtt_s;
        let granted = self
            .budget
            .spend(spacing_s(bytes, congestion), bytes, wanted);
        if granted < wanted {
            congestion.feedback = WindowChange::from_bytes(granted * rtt_s);
        }
    }

    /// Returns whether a packet at `now` ends the interval.
    pub fn is_due(&self, now: Time) -> bool {
        self.traffic.spacing_s > 0.0 && self.lasts_s(now) >= self.interval_s
    }

    /// Returns when the interval that began at `began` has ended. If a packet comes within the next
    /// interval, this is the time at which a timer would have ended it.
    fn ended(&self, began: Time, now: Time) -> Time {
        let due = began + seconds(self.interval_s);
        let is_late = now >= due + seconds(self.interval_s);
        if is_late { now } else { due.min(now) }
    }

    /// Returns how long the interval has lasted, in seconds.
    pub fn lasts_s(&self, now: Time) -> f64 {
        let began = self.interval_began.unwrap_or(now);
        (now - began).as_secs_f64()
    }

    /// Returns d, in seconds.
    pub fn average_rtt_s(&self) -> f64 {
        self.average_rtt_s
    }

    /// Closes an interval that has lasted `lasted_s` seconds. An interval ends only after a packet
    /// with a round-trip time: without one, there is no flow to share the budget with.
    fn end_interval(&mut self, lasted_s: f64, capacity: f64) {
        let traffic = core::mem::take(&mut self.traffic);
        debug_assert!(
            traffic.spacing_s > 0.0,
            "an interval ends without a packet that has a round-trip time"
        );
        self.average_rtt_s = traffic.weighted_rtt / traffic.spacing_s;
        let XcpConfig {
            alpha, beta, gamma, ..
        } = self.config;
        let rate = traffic.bytes / lasted_s;
        let change = alpha * (capacity - rate) - beta * self.queue.bytes / self.average_rtt_s;
        let moved = (gamma * rate - change.abs()).max(0.0);
        self.stretch += STRETCH_WEIGHT * (self.budget.wanted_stretch() - self.stretch);
        self.budget = Budget::new(
            change.max(0.0) + moved,
            (-change).max(0.0) + moved,
            &traffic,
        );
        self.budget.give_per_s *= self.stretch;
        self.interval_s = self.average_rtt_s.clamp(INTERVAL_MIN_S, INTERVAL_MAX_S);
    }
}

impl Traffic {
    fn count(&mut self, bytes: u32, congestion: Option<&Congestion>) {
        self.bytes += f64::from(bytes);
        let Some(congestion) = congestion.filter(|congestion| congestion.rtt_us > 0) else {
            return;
        };
        let spacing_s = spacing_s(bytes, congestion);
        self.xcp_bytes += f64::from(bytes);
        self.spacing_s += spacing_s;
        self.weighted_rtt += spacing_s * rtt_s(congestion).min(INTERVAL_MAX_S);
    }
}

impl Budget {
    /// Returns the budget of the next interval. The shares assume that it will have the same
    /// traffic.
    fn new(give: f64, take: f64, traffic: &Traffic) -> Budget {
        let share = |of: f64, among: f64| if among > 0.0 { of / among } else { 0.0 };
        Budget {
            give,
            take,
            give_per_s: share(give, traffic.spacing_s),
            take_per_byte: share(take, traffic.xcp_bytes),
            offered: 0.0,
            accepted: 0.0,
        }
    }

    /// Returns what packets were offered, divided by what they accepted: 1 to [`STRETCH_MAX`].
    fn wanted_stretch(&self) -> f64 {
        if self.offered < STRETCH_MAX * self.accepted {
            (self.offered / self.accepted).max(1.0)
        } else if self.offered > 0.0 {
            STRETCH_MAX
        } else {
            1.0
        }
    }

    /// Returns the change granted to a packet that wants at most `wanted`, in bytes per second.
    fn spend(&mut self, spacing_s: f64, bytes: u32, wanted: f64) -> f64 {
        let share = self.give_per_s * spacing_s;
        let mut given = self.give.min(share);
        let mut taken = self.take.min(self.take_per_byte * f64::from(bytes));
        let granted = (given - taken).min(wanted);
        self.offered += share;
        // The flow is limited elsewhere or wants less. Others get the part of the increase that it
        // leaves.
        if wanted < given - taken {
            given = (wanted + taken).max(0.0);
            taken = given - wanted;
            self.accepted += given;
        } else {
            self.accepted += share;
        }
        self.give = (self.give - given).max(0.0);
        self.take = (self.take - taken).max(0.0);
        granted
    }
}

impl PersistentQueue {
    /// Tracks the minimum of the queue over half the round-trip time without queueing.
    fn observe(&mut self, now: Time, queue_bytes: f64, capacity: f64, average_rtt_s: f64) {
        self.minimum = self.minimum.min(queue_bytes);
        if now >= self.ends {
            self.bytes = self.minimum;
            self.minimum = queue_bytes;
            let interval_s = 0.5 * (average_rtt_s - queue_bytes / capacity);
            self.ends = now + seconds(interval_s.max(QUEUE_INTERVAL_MIN_S));
        }
    }
}

fn rtt_s(congestion: &Congestion) -> f64 {
    f64::from(congestion.rtt_us) / 1e6
}

/// Returns X, the time between packets: their size divided by the flow's rate.
fn spacing_s(bytes: u32, congestion: &Congestion) -> f64 {
    f64::from(bytes) * rtt_s(congestion) / f64::from(congestion.cwnd.max(1))
}
