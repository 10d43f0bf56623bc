//! Prague: DCTCP for the Internet (draft-briscoe-iccrg-prague-congestion-control). Sizes are in
//! segments.
//!
//! It differs from DCTCP (RFC 8257) in this:
//!
//! - Its packets carry ECT(1), so that routers mark them early and queue them apart (RFC 9331).
//! - Segments are paced: at the window per round-trip time, in slow start at twice that.
//! - The window grows by unmarked segments only, also in the round trip after a reduction. So the
//!   share of marks at which it stands still is that of the model of RFC 9332, 2 / window.
//! - The average of marks begins with the first mark.
//! - Connections with a round-trip time below 25 ms grow as slowly as one with 25 ms, and average
//!   marks and reduce the window as often as that one. They do so after 500 round trips, so that
//!   short transfers do not suffer.
//!
//! Deviations and choices:
//!
//! - It never falls back to the behaviour of Reno behind queues that mark as RFC 3168 says: the
//!   reference implementation has the detection switched off.
//! - A loss halves the window, as Reno would.

use core::time::Duration;

use manyflow_core::time::Time;

use super::HEADER_BYTES;
use super::control::{Control, Delivery, Moment};
use super::dctcp::{MarkedShare, WINDOW_MIN};
use super::delivery::Rounds;

/// The round-trip time below which the rate does not depend on it.
const TARGET_RTT: Duration = Duration::from_millis(25);
/// The round trips of congestion avoidance after which that begins.
const TRANSITION_ROUNDS: u32 = 500;

/// The control of one connection.
#[derive(Debug)]
pub(super) struct Prague {
    window: f64,
    threshold: f64,
    share: MarkedShare,
    has_seen_mark: bool,
    rounds: Rounds,
    /// The round trips since slow start.
    avoidance_rounds: u32,
    /// The time of the last reduction by a mark, and the one at which the average was updated.
    reduced_at: Option<Time>,
    averaged_at: Time,
    /// The smoothed round-trip time in seconds; 0 before the first sample.
    rtt_s: f64,
    /// The bits of a segment with its headers.
    packet_bits: f64,
}

impl Prague {
    /// Creates the control of a connection with an initial window.
    pub(super) fn new(initial_window: f64) -> Prague {
        Prague {
            window: initial_window,
            threshold: f64::INFINITY,
            share: MarkedShare::default(),
            has_seen_mark: false,
            rounds: Rounds::default(),
            avoidance_rounds: 0,
            reduced_at: None,
            averaged_at: Time::ZERO,
            rtt_s: 0.0,
            packet_bits: 0.0,
        }
    }

    fn reduce_to(&mut self, window: f64) {
        self.window = window.max(WINDOW_MIN);
        self.threshold = self.window;
    }

    /// Returns the round-trip time that reductions and averages wait for: the target, if the path's
    /// is shorter and the connection is not young.
    fn virtual_rtt_s(&self) -> f64 {
        match self.avoidance_rounds >= TRANSITION_ROUNDS {
            true => self.rtt_s.max(TARGET_RTT.as_secs_f64()),
            false => self.rtt_s,
        }
    }

    /// Updates the average of marks, once for each round trip.
    fn update_share(&mut self, now: Time) {
        if self.window >= self.threshold {
            self.avoidance_rounds = self.avoidance_rounds.saturating_add(1);
        }
        if !self.has_seen_mark {
            self.share.forget();
        } else if (now - self.averaged_at).as_secs_f64() >= self.virtual_rtt_s() || self.is_young()
        {
            self.share.end_window();
            self.averaged_at = now;
        }
    }

    fn is_young(&self) -> bool {
        self.avoidance_rounds < TRANSITION_ROUNDS
    }

    /// Reduces the window for marks, at most once for each round-trip time.
    fn heed_marks(&mut self, now: Time) {
        self.has_seen_mark = true;
        let wait_s = self.virtual_rtt_s();
        let is_due = |at: Time| (now - at).as_secs_f64() >= wait_s;
        if self.reduced_at.is_none_or(is_due) {
            self.reduced_at = Some(now);
            self.reduce_to(self.window * (1.0 - self.share.average() / 2.0));
        }
    }

    /// Grows the window for `segments` that were delivered without a mark.
    fn grow(&mut self, segments: f64) {
        if self.window < self.threshold {
            self.window += segments;
            return;
        }
        // With a window of rate times R, a growth of (R / target)^2 for each R is one segment for
        // each target at the target's window.
        let share = match self.is_young() {
            true => 1.0,
            false => self.rtt_s / self.virtual_rtt_s(),
        };
        self.window += segments * share * share / self.window;
    }
}

impl Control for Prague {
    fn on_ack(&mut self, _moment: &Moment) {}

    fn on_loss(&mut self, _moment: &Moment) {
        self.reduce_to(self.window / 2.0);
    }

    fn on_timeout(&mut self, _moment: &Moment) {
        self.reduce_to(self.window / 2.0);
        self.window = 1.0;
    }

    fn on_delivery(&mut self, moment: &Moment, delivery: &Delivery) {
        self.packet_bits = f64::from(8 * (moment.segment_bytes + HEADER_BYTES));
        self.rtt_s = moment.rtt_s;
        self.rounds.update(delivery);
        if self.rounds.has_begun {
            self.update_share(moment.now);
        }
        self.share.count(delivery);
        if delivery.newly_marked > 0 {
            self.heed_marks(moment.now);
        }
        let unmarked = delivery.segments.saturating_sub(delivery.newly_marked);
        if self.rounds.is_window_limited() && !delivery.is_recovery {
            self.grow(unmarked.into());
        }
        debug_assert!(self.window >= 1.0, "Prague always sends");
    }

    fn measures_deliveries(&self) -> bool {
        true
    }

    fn window_segments(&self) -> f64 {
        self.window
    }

    fn rate_bits_per_s(&self) -> Option<f64> {
        let gain = match self.window < self.threshold / 2.0 {
            true => 2.0,
            false => 1.0,
        };
        let bits = gain * self.window * self.packet_bits;
        (self.rtt_s > 0.0 && bits > 0.0).then(|| bits / self.rtt_s)
    }
}
