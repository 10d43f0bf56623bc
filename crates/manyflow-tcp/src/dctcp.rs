//! DCTCP: reduces the window by the share of marked segments (RFC 8257). Sizes are in segments.
//!
//! Deviations and choices:
//!
//! - The receiver reports the exact number of marks (RFC 9768) instead of the state machine of
//!   section 3.2, which an acknowledgement for several segments needs.
//! - The window is reduced at the first mark of a window, by the estimate of the windows before it
//!   (section 3.3, step 9, and Linux).

use super::control::{Control, Delivery, Moment};
use super::delivery::Rounds;

/// g: the weight of a window's share in the average (section 4.2).
const GAIN: f64 = 1.0 / 16.0;
/// The smallest window that marks leave.
pub(super) const WINDOW_MIN: f64 = 2.0;

/// DCTCP.Alpha: the average share of marked segments (section 3.3).
#[derive(Debug)]
pub(super) struct MarkedShare {
    average: f64,
    /// The segments delivered and marked in this window.
    delivered: u32,
    marked: u32,
}

impl Default for MarkedShare {
    /// Assumes that everything is marked (section 3.3): the first mark halves the window.
    fn default() -> MarkedShare {
        MarkedShare {
            average: 1.0,
            delivered: 0,
            marked: 0,
        }
    }
}

impl MarkedShare {
    /// Returns the average, from 0 to 1.
    pub(super) fn average(&self) -> f64 {
        self.average
    }

    /// Counts a delivery.
    pub(super) fn count(&mut self, delivery: &Delivery) {
        self.delivered += delivery.segments;
        self.marked += delivery.newly_marked;
    }

    /// Ends a window: takes its share into the average (section 3.3, steps 4 to 8).
    pub(super) fn end_window(&mut self) {
        let share = f64::from(self.marked) / f64::from(self.delivered.max(1));
        self.average += GAIN * (share.min(1.0) - self.average);
        self.forget();
        debug_assert!((0.0..=1.0).contains(&self.average), "a share");
    }

    /// Begins a window without taking in the present one.
    pub(super) fn forget(&mut self) {
        self.delivered = 0;
        self.marked = 0;
    }
}

/// The control of one connection.
#[derive(Debug)]
pub(super) struct Dctcp {
    window: f64,
    threshold: f64,
    share: MarkedShare,
    rounds: Rounds,
    /// Whether a mark has reduced the window in this round trip.
    is_reduced: bool,
}

impl Dctcp {
    /// Creates the control of a connection with an initial window.
    pub(super) fn new(initial_window: f64) -> Dctcp {
        Dctcp {
            window: initial_window,
            threshold: f64::INFINITY,
            share: MarkedShare::default(),
            rounds: Rounds::default(),
            is_reduced: false,
        }
    }

    fn reduce_to(&mut self, window: f64) {
        self.window = window.max(WINDOW_MIN);
        self.threshold = self.window;
    }

    fn grow(&mut self, segments: f64) {
        self.window += match self.window < self.threshold {
            true => segments,
            false => segments / self.window,
        };
    }
}

impl Control for Dctcp {
    fn on_ack(&mut self, _moment: &Moment) {}

    /// A loss halves the window (section 3.5).
    fn on_loss(&mut self, _moment: &Moment) {
        self.reduce_to(self.window / 2.0);
    }

    fn on_timeout(&mut self, _moment: &Moment) {
        self.reduce_to(self.window / 2.0);
        self.window = 1.0;
    }

    fn on_delivery(&mut self, _moment: &Moment, delivery: &Delivery) {
        self.rounds.update(delivery);
        if self.rounds.has_begun {
            self.share.end_window();
            self.is_reduced = false;
        }
        self.share.count(delivery);
        if delivery.newly_marked > 0 && !self.is_reduced {
            self.is_reduced = true;
            self.reduce_to(self.window * (1.0 - self.share.average() / 2.0));
        } else if self.rounds.is_window_limited() && !delivery.is_recovery {
            self.grow(delivery.segments.into());
        }
        debug_assert!(self.window >= 1.0, "DCTCP always sends");
    }

    fn measures_deliveries(&self) -> bool {
        true
    }

    fn window_segments(&self) -> f64 {
        self.window
    }
}
