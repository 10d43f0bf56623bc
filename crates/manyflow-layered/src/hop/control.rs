//! The control of a found rate.
//!
//! ```text
//!   startup --> drain --> grow --> drain ...        alone: the queue of the path stays short
//!                 |                  ^
//!                 | the queue does   | the queue stays short for several rounds
//!                 v not drain        | after a decrease
//!               compete -------------+              beside senders that fill the queue
//! ```

use core::time::Duration;

use manyflow_core::{Rate, Time};

use super::config::HopRate;
use super::noise::Noise;
use super::soundings::Observation;
use super::state::HopState;

/// The maximum multiple of the delivered rate in startup.
const START_LEAD: f64 = 2.0;
/// The share of the delivered rate at which a queue drains.
const DRAIN: f64 = 0.9;
/// The minimum share of the rate in use at which a queue can be that of the hop alone. It is below
/// the share of a startup that has just reached the rate of the path, 1 / [`START_LEAD`].
const NEARLY_USED: f64 = 0.4;
/// The share of a draining rate that is delivered unless the path has become slower.
const CONFIRMED: f64 = 0.85;
/// The maximum number of times for which a draining rate is lowered again.
const AGAIN_MAX: u8 = 2;
/// The share of a draining rate that remains at least when it is lowered again, up to a rate of
/// [`WINDOW_MIN`] packets per RTT.
const AGAIN_KEPT: f64 = 0.67;
/// The share of the delivered rate from which the rate grows.
const GROW_FROM: f64 = 0.98;
/// The increase of a growing rate in each round, as a share of the rate.
const GROWTH: f64 = 0.005;
/// The number of rounds without a queue after which the increase is twice the first.
const CALM_ROUNDS: f64 = 6.0;
/// The maximum multiple of the increase.
const VELOCITY_MAX: f64 = 16.0;
/// The factor by which the increase is smaller near a rate at which packets were lost without a
/// queue.
const CAUTION: f64 = 0.1;
/// The minimum share of a growing rate that a path carries if it loses packets without a queue.
const CLOSE: f64 = 0.9;
/// The share of a rate at which packets were lost without a queue that remains.
const AFTER_LOSS: f64 = 0.95;
/// The share of such a rate below which losses have another reason.
const BELOW: f64 = 0.97;
/// The square of TCP's window in packets is this constant over the share of packets that are lost
/// (Mathis et al., "The Macroscopic Behavior of the TCP Congestion Avoidance Algorithm", 1997).
const TCP_CONSTANT: f64 = 1.5;
/// The share of the window that remains after a loss beside other senders (RFC 5681).
const DECREASE: f64 = 0.6;
/// The minimum window in packets, that of RFC 5681 after a loss.
const WINDOW_MIN: f64 = 2.0;
/// The increase of the window in each RTT, in packets. An increase of 3 (1 - d) / (1 + d), which is
/// 0.75 for the decrease d above, gives the average window of Reno (RFC 5681). The hop paces its
/// packets and so avoids the losses that TCP's bursts cause, for which it increases less. With a
/// window of few packets TCP also waits for its timer, which a hop never does: there the increase
/// is the second value, which was chosen after streams beside TCP had up to three times the rate of
/// a simulated Reno.
const INCREASE: f64 = 0.7;
const INCREASE_SMALL: f64 = 0.5;
/// The window in packets up to which the increase is that of a small one; from twice this window on
/// it is the other.
const SMALL_WINDOW: f64 = 8.0;
/// The maximum multiple of the rate in use to which an unused window grows. It was 2 before streams
/// beside TCP missed their bound (`docs/history.md`).
const UNUSED_MAX: f64 = 8.0;
/// The multiple of the time in which the hop alone would drain the queue, after which others fill
/// it.
const PATIENCE: f64 = 1.5;
/// The number of RTTs after which a queue that the hop alone fills would have become shorter by
/// this share of what the lower rate leaves.
const TREND_ROUNDS: u32 = 4;
const TREND_SHARE: f64 = 0.5;
/// The maximum number of RTTs between two echoes for which a rate and a window increase. Soundings
/// of a slow hop are rarer than one per RTT.
const ROUNDS_MAX: f64 = 4.0;
const WINDOW_ROUNDS_MAX: f64 = 1.0;
/// The maximum increase of a growing rate at one echo, as a share of the rate.
const STEP_MAX: f64 = 0.1;
/// The time in which an unused rate loses half of its distance from the initial rate.
const IDLE_HALF_LIFE_S: f64 = 10.0;
/// The time between two tests whether a competing hop is alone.
const TEST_INTERVAL: Duration = Duration::from_secs(10);
/// The number of RTTs with a short queue, after a decrease, that show that the hop is alone.
const ALONE_ROUNDS: f64 = 8.0;

/// The share of random losses from which soundings are twice as frequent.
const NOISY: f64 = 0.003;

/// The state of the control.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Mode {
    /// The rate doubles in each RTT, until a queue builds or packets are lost.
    Startup,
    /// The rate increases slowly.
    Grow {
        /// The rounds without a queue.
        calm: f64,
    },
    /// The rate is below the delivered rate until the queue is empty.
    Drain {
        /// When the effect of the lower rate was first seen, and the queue at that time.
        since: Option<(Time, Duration)>,
        /// The time from which other senders are taken to fill the queue; `None` until the effect
        /// of the lower rate is seen.
        until: Option<Time>,
        /// How often the rate can be lowered again because the path has become slower.
        again: u8,
    },
    /// The rate follows a window, as TCP's does.
    Compete {
        /// The window in bytes.
        window: f64,
        /// The RTTs with a short queue.
        short: f64,
        /// The time from which a loss is followed by a test whether the hop is alone.
        test: Time,
    },
}

/// A rate that the hop finds.
#[derive(Clone, Debug)]
pub(super) struct Control {
    initial: f64,
    minimum: f64,
    maximum: f64,
    packet_bytes: f64,
    /// The rate in bytes per second.
    rate: f64,
    mode: Mode,
    /// The delivered rate before the last decrease.
    base: f64,
    /// The first sounding that shows the effect of the last decrease.
    settled: u32,
    /// A rate at which packets were lost without a queue.
    ceiling: Option<f64>,
    noise: Noise,
    /// Whether the child has echoed a sounding since it was silent, or was never silent.
    is_heard: bool,
}

impl Control {
    /// Creates the control of a found rate; `None` if the rate is given.
    pub(super) fn new(rate: HopRate, packet_bytes: u32) -> Option<Control> {
        let HopRate::Found {
            initial,
            minimum,
            maximum,
        } = rate
        else {
            return None;
        };
        let bytes = |rate: Rate| rate.bits_per_s() as f64 / 8.0;
        Some(Control {
            initial: bytes(initial),
            minimum: bytes(minimum),
            maximum: bytes(maximum),
            packet_bytes: packet_bytes.into(),
            rate: bytes(initial),
            mode: Mode::Startup,
            base: bytes(initial),
            settled: 0,
            ceiling: None,
            noise: Noise::default(),
            is_heard: true,
        })
    }

    pub(super) fn rate(&self) -> Rate {
        Rate::from_bits_per_s((self.rate * 8.0) as u64)
    }

    /// Returns the present reason for the rate.
    pub(super) fn state(&self) -> HopState {
        match self.mode {
            _ if !self.is_heard => HopState::Silent,
            Mode::Startup => HopState::Starting,
            Mode::Grow { .. } => HopState::Growing,
            Mode::Drain { .. } => HopState::Draining,
            Mode::Compete { .. } => HopState::Competing,
        }
    }

    /// Begins with this rate instead of a lower one, in startup.
    pub(super) fn expect(&mut self, rate: Rate) {
        if self.mode != Mode::Startup {
            return;
        }
        let expected = (rate.bits_per_s() as f64 / 8.0).min(self.maximum);
        self.rate = self.rate.max(expected);
    }

    /// Returns whether other senders fill the queue, so that it never shows the minimum RTT.
    pub(super) fn is_competing(&self) -> bool {
        matches!(self.mode, Mode::Compete { .. })
    }

    /// Returns whether the path loses packets at any rate.
    pub(super) fn is_noisy(&self) -> bool {
        self.noise.share() > NOISY
    }

    /// Returns whether the rate is still below that of the path, as far as is known: a queue of the
    /// hop shows no congestion then. The rate for a silent child is low for another reason.
    pub(super) fn is_starting(&self) -> bool {
        self.is_heard && self.mode == Mode::Startup
    }

    /// Handles the measurements of an echo that arrived at `now`. `next` is the number of the next
    /// sounding, the first after a change of the rate, and `rtt` the smoothed RTT.
    pub(super) fn on_observation(
        &mut self,
        now: Time,
        seen: &Observation,
        next: u32,
        rtt: Duration,
    ) {
        self.is_heard = true;
        if seen.number < self.settled {
            return;
        }
        // The first of these soundings counts packets that were sent before the decrease.
        let lost = if seen.number > self.settled {
            seen.lost
        } else {
            0
        };
        let seen = &Observation { lost, ..*seen };
        match self.mode {
            Mode::Startup => self.start_up(seen, next, rtt),
            Mode::Grow { calm } => self.grow(seen, next, rtt, calm),
            Mode::Drain { .. } => self.drain(now, seen, next, rtt),
            Mode::Compete { .. } => self.compete(now, seen, next, rtt),
        }
        self.rate = self.rate.clamp(self.minimum, self.maximum);
        debug_assert!(self.rate.is_finite() && self.rate > 0.0);
    }

    fn start_up(&mut self, seen: &Observation, next: u32, rtt: Duration) {
        // The shorter of two RTTs would show the queue later, when it is twice as long.
        let queue = seen.rtt.saturating_sub(seen.minimum);
        self.noise.note(seen);
        let is_overload = seen.lost > 0 && (self.noise.is_too_much() || Noise::is_burst(seen));
        if is_overload {
            self.noise = Noise::default();
        }
        if is_overload || queue > delay_limit(seen.minimum) {
            self.begin_drain(seen, next, AGAIN_MAX);
        } else if seen.is_busy {
            let doubled = self.rate * libm::exp2(rounds(seen, rtt).min(1.0));
            let limit = START_LEAD * seen.delivered.unwrap_or(self.rate);
            self.rate = doubled.min(limit.max(self.rate));
        }
    }

    fn grow(&mut self, seen: &Observation, next: u32, rtt: Duration, calm: f64) {
        let queue = seen.standing.saturating_sub(seen.minimum);
        let has_queue = queue > delay_limit(seen.minimum);
        if has_queue {
            self.begin_drain(seen, next, AGAIN_MAX);
            return;
        }
        self.learn_noise(seen);
        if seen.lost > 0 {
            let is_cause = seen.is_busy || Noise::is_burst(seen);
            if is_cause && !self.noise.explains(seen) {
                self.on_loss(seen, next, rtt, calm);
                return;
            }
            self.ceiling = None;
        }
        if !seen.is_busy {
            return;
        }
        let rounds = rounds(seen, rtt).min(ROUNDS_MAX);
        let velocity = (1.0 + calm / CALM_ROUNDS).min(VELOCITY_MAX);
        let mut share = GROWTH * velocity * rounds;
        if let Some(ceiling) = self.ceiling {
            if self.rate > 1.1 * ceiling {
                self.ceiling = None;
            } else if self.rate > 0.9 * ceiling {
                share = GROWTH * CAUTION * rounds;
            }
        }
        self.rate += self.rate * share.min(STEP_MAX);
        let is_short = queue <= delay_limit(seen.minimum) / 2;
        let calm = if is_short { calm + rounds } else { 0.0 };
        self.mode = Mode::Grow { calm };
    }

    /// Notes losses that the hop's own rate did not cause: the rate is not used, or is well below
    /// one at which packets were lost. Other losses only lower a share that is much too high.
    fn learn_noise(&mut self, seen: &Observation) {
        let is_below = |ceiling: f64| self.rate < BELOW * ceiling;
        let is_idle = !seen.is_busy || self.ceiling.is_some_and(is_below);
        if is_idle || seen.loss_share < self.noise.share() / 2.0 {
            self.noise.note(seen);
        }
    }

    /// Handles a loss while the queue is short that is not known to be random: the link has nearly
    /// no queue, or loses more packets by itself than before.
    fn on_loss(&mut self, seen: &Observation, next: u32, rtt: Duration, calm: f64) {
        self.settled = next;
        let window = self.rate * rtt.as_secs_f64() / self.packet_bytes;
        let unexplained = (seen.loss_share - self.noise.share()).max(0.0);
        if window * window * unexplained > TCP_CONSTANT {
            // TCP would have a lower rate.
            self.base = CLOSE * self.rate;
            self.rate = DRAIN * self.base;
            self.mode = Mode::Drain {
                since: None,
                until: None,
                again: AGAIN_MAX,
            };
            return;
        }
        match self.ceiling.take() {
            Some(ceiling) if self.rate < BELOW * ceiling => {
                // Packets are lost at any rate.
                self.rate *= GROW_FROM;
                self.mode = Mode::Grow { calm };
            }
            _ => {
                // The delivered rate is measured over few packets, and lower by those lost.
                let delivered = seen.delivered.unwrap_or(0.0);
                let ceiling = delivered.clamp(CLOSE * self.rate, self.rate);
                self.ceiling = Some(ceiling);
                self.rate = AFTER_LOSS * ceiling;
                self.mode = Mode::Grow { calm: 0.0 };
            }
        }
    }

    /// Decreases the rate to a share of what is delivered, until the queue has drained. A hop that
    /// uses little of its rate has not filled the queue, so that the delivered rate is not that of
    /// the path.
    fn begin_drain(&mut self, seen: &Observation, next: u32, again: u8) {
        let least = NEARLY_USED * self.rate;
        let is_used = |delivered: &f64| seen.is_busy || *delivered >= least;
        // Random losses lower the delivered rate at any rate.
        let used = seen.delivered.filter(is_used);
        let used = used.map(|delivered| delivered / (1.0 - self.noise.share()));
        self.base = used.unwrap_or(self.rate).min(self.rate).max(self.minimum);
        let drained = DRAIN * self.base;
        self.rate = match again == AGAIN_MAX {
            true => drained,
            // With fewer packets, soundings are too rare to see who fills the queue.
            false => {
                let least = WINDOW_MIN * self.packet_bytes / seen.rtt.as_secs_f64().max(1e-4);
                drained.max(least.min(AGAIN_KEPT * self.rate))
            }
        };
        self.settled = next;
        self.mode = Mode::Drain {
            since: None,
            until: None,
            again,
        };
    }

    fn drain(&mut self, now: Time, seen: &Observation, next: u32, rtt: Duration) {
        let Mode::Drain {
            since,
            until,
            again,
        } = self.mode
        else {
            return;
        };
        let queue = seen.standing.saturating_sub(seen.minimum);
        if queue <= delay_limit(seen.minimum) / 3 {
            self.rate = GROW_FROM * self.base;
            self.mode = Mode::Grow { calm: 0.0 };
            self.settled = next;
            return;
        }
        let confirmed = CONFIRMED * (1.0 - self.noise.share()) * self.rate;
        let is_slower = |delivered| delivered < confirmed;
        if again > 0 && seen.is_busy && seen.delivered.is_some_and(is_slower) {
            // The path has become slower: part of the delivered rate was measured before that.
            self.begin_drain(seen, next, again - 1);
            return;
        }
        let until = until.unwrap_or_else(|| {
            let alone = queue.div_f64(1.0 - DRAIN);
            now + alone.mul_f64(PATIENCE) + 4 * rtt.max(seen.span)
        });
        let since = since.unwrap_or((now, queue));
        self.mode = Mode::Drain {
            since: Some(since),
            until: Some(until),
            again,
        };
        let seen_for = now - since.0;
        let drained = since.1.saturating_sub(queue);
        let is_filled = seen_for >= TREND_ROUNDS * rtt.max(seen.span)
            && drained < seen_for.mul_f64((1.0 - DRAIN) * TREND_SHARE);
        if now >= until || is_filled {
            let window = (self.base * rtt.as_secs_f64()).max(WINDOW_MIN * self.packet_bytes);
            self.mode = Mode::Compete {
                window,
                short: 0.0,
                test: now + TEST_INTERVAL,
            };
            self.rate = window / rtt.as_secs_f64();
        }
    }

    fn compete(&mut self, now: Time, seen: &Observation, next: u32, rtt: Duration) {
        let Mode::Compete {
            mut window,
            short,
            test,
        } = self.mode
        else {
            return;
        };
        let rtt_s = rtt.as_secs_f64().max(1e-4);
        let queue = seen.standing.saturating_sub(seen.minimum);
        let short = if queue <= delay_limit(seen.minimum) {
            short + rounds(seen, seen.rtt).max(1.0)
        } else {
            0.0
        };
        if short >= ALONE_ROUNDS {
            self.base = self.rate;
            self.mode = Mode::Grow { calm: 0.0 };
            return;
        }
        let fair = self.fair_window(seen, rtt);
        if seen.lost > 0 {
            let reduced = (window * DECREASE).max(WINDOW_MIN * self.packet_bytes);
            window = if seen.is_busy {
                reduced
            } else {
                reduced.max(window.min(fair))
            };
            self.settled = next;
            if now >= test {
                self.base = window / rtt_s;
                self.rate = DRAIN * self.base;
                // The delivered rate says little here: others are slow to take what the hop leaves.
                self.mode = Mode::Drain {
                    since: None,
                    until: None,
                    again: 0,
                };
                return;
            }
        } else if seen.is_busy || window < fair {
            window += increase(window / self.packet_bytes)
                * self.packet_bytes
                * rounds(seen, rtt).min(WINDOW_ROUNDS_MAX);
        }
        self.rate = window / rtt_s;
        self.mode = Mode::Compete {
            window,
            short,
            test,
        };
    }

    /// Returns the window in bytes that TCP would have at the present share of losses, for a hop
    /// whose own window is not used up: at most [`UNUSED_MAX`] times what is used.
    fn fair_window(&self, seen: &Observation, rtt: Duration) -> f64 {
        let used = seen.delivered.unwrap_or(0.0) * rtt.as_secs_f64();
        let by_loss = libm::sqrt(TCP_CONSTANT / seen.event_share.max(1e-9)) * self.packet_bytes;
        by_loss.min(UNUSED_MAX * used)
    }

    /// Halves the rate after soundings that nobody answered. The answer to a sounding from number
    /// `next` on begins a startup; the losses that it shows are older.
    pub(super) fn on_silence(&mut self, next: u32) {
        self.rate = (self.rate / 2.0).max(self.minimum);
        self.settled = next;
        self.mode = Mode::Startup;
        self.is_heard = false;
    }

    /// Lowers a rate that was not used for `idle` slowly towards the initial rate.
    pub(super) fn on_idle(&mut self, idle: Duration) {
        if self.rate > self.initial {
            let kept = libm::exp2(-idle.as_secs_f64() / IDLE_HALF_LIFE_S);
            self.rate = self.initial + (self.rate - self.initial) * kept;
            if self.mode != Mode::Startup {
                self.mode = Mode::Grow { calm: 0.0 };
            }
        }
    }
}

/// Returns the increase of a window of this number of packets in each RTT, in packets.
fn increase(window_packets: f64) -> f64 {
    let large = ((window_packets - SMALL_WINDOW) / SMALL_WINDOW).clamp(0.0, 1.0);
    INCREASE_SMALL + (INCREASE - INCREASE_SMALL) * large
}

/// Returns the queueing delay at which the rate decreases: a quarter of the minimum RTT, within 2
/// and 10 ms.
fn delay_limit(minimum: Duration) -> Duration {
    (minimum / 4).clamp(Duration::from_millis(2), Duration::from_millis(10))
}

/// Returns the number of RTTs since the echo before.
fn rounds(seen: &Observation, rtt: Duration) -> f64 {
    seen.span.as_secs_f64() / rtt.as_secs_f64().max(1e-4)
}
