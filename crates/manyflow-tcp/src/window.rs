//! The congestion window: RFC 5681's, or CUBIC's in congestion avoidance.

use super::config::{TcpConfig, Variant};
use super::cubic::Cubic;
use manyflow_core::time::Time;

/// RFC 5681 Eq. (4): the slow start threshold is never lower, in segments.
const LOWEST_THRESHOLD: f64 = 2.0;

/// cwnd and ssthresh, in segments.
#[derive(Debug)]
pub(super) struct Window {
    segments: f64,
    threshold: f64,
    maximum: f64,
    cubic: Option<Cubic>,
}

impl Window {
    pub(super) fn new(config: &TcpConfig) -> Window {
        Window {
            segments: config.initial_window.into(),
            threshold: f64::INFINITY,
            maximum: config.maximum_window.into(),
            cubic: (config.variant == Variant::Cubic).then(Cubic::default),
        }
    }

    /// cwnd in segments.
    pub(super) fn segments(&self) -> f64 {
        self.segments
    }

    /// Whether another segment may follow `pipe` of them into the network.
    pub(super) fn has_room(&self, pipe: u32) -> bool {
        self.segments >= f64::from(pipe + 1)
    }

    /// An acknowledgement of `acknowledged` new segments: slow start or congestion avoidance (RFC 5681 section 3.1).
    pub(super) fn on_ack(&mut self, now: Time, acknowledged: u32, rtt_s: f64) {
        let grown = if self.segments < self.threshold {
            self.segments + 1.0
        } else if let Some(cubic) = &mut self.cubic {
            cubic.grown(now, self.segments, acknowledged, rtt_s)
        } else {
            self.segments + 1.0 / self.segments
        };
        self.segments = grown.min(self.maximum);
    }

    /// Takes a loss: multiplicative decrease (RFC 5681 Eq. (4)). Segments in flight count where they are fewer than the
    /// window; beyond the window are only those that limited transmit has sent.
    pub(super) fn on_congestion(&mut self, flight: u32) {
        self.decrease(self.segments.min(flight.into()));
    }

    /// Takes a mark: the window itself is halved (RFC 3168 section 6.1.2), as its echo comes with an acknowledgement that has
    /// already taken segments out of the flight. Where the application left room in the window, the `used` segments count.
    pub(super) fn on_mark(&mut self, used: Option<u32>) {
        let used = used.map_or(self.segments, |used| self.segments.min(used.into()));
        self.decrease(used);
    }

    fn decrease(&mut self, used: f64) {
        let kept = match &mut self.cubic {
            Some(cubic) => cubic.on_congestion(used),
            None => used / 2.0,
        };
        self.threshold = kept.max(LOWEST_THRESHOLD);
        self.segments = self.threshold;
    }

    /// The retransmission timer ran out. `again` for the same segment: the threshold stays (RFC 5681 section 3.1).
    pub(super) fn on_timeout(&mut self, flight: u32, again: bool) {
        if !again {
            self.on_congestion(flight);
        }
        if let Some(cubic) = &mut self.cubic {
            cubic.on_timeout();
        }
        self.segments = 1.0;
    }

    /// The window was not the limit, so it says nothing about the network: it stands (RFC 7661 section 4). CUBIC's time does not
    /// count what it did not use (RFC 9438 section 5.8).
    pub(super) fn stand(&mut self) {
        if let Some(cubic) = &mut self.cubic {
            cubic.end_epoch();
        }
    }

    /// Nothing was sent for a whole time-out: begin again with at most `restart` segments, the restart window (RFC 5681 section 4.1).
    pub(super) fn restart(&mut self, restart: u32) {
        self.segments = self.segments.min(restart.into());
        self.stand();
    }

    /// NewReno leaves recovery without a burst (RFC 6582 section 3.2, step 3, option 1).
    pub(super) fn limit_to_flight(&mut self, flight: u32) {
        self.segments = self.threshold.min(f64::from(flight.max(1) + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        Window::new(&TcpConfig::default())
    }

    #[test]
    fn congestion_avoidance_adds_a_segment_per_window() {
        let mut window = window();
        window.segments = 20.0;
        window.on_congestion(20);
        (0..10).for_each(|_| window.on_ack(Time::ZERO, 1, 0.1));
        assert!((window.segments() - 10.96).abs() < 0.02, "{window:?}");
    }

    #[test]
    fn a_mark_halves_the_window_or_what_was_used_of_it() {
        for (used, kept) in [
            (None, 10.25),
            (Some(12), 6.0),
            (Some(30), 10.25),
            (Some(1), 2.0),
        ] {
            let mut window = window();
            window.segments = 20.5;
            window.on_mark(used);
            assert_eq!((window.segments(), window.threshold), (kept, kept));
        }
    }

    #[test]
    fn a_restart_keeps_the_threshold() {
        let mut window = window();
        window.segments = 20.0;
        window.on_congestion(20);
        window.restart(2);
        (0..7).for_each(|_| window.on_ack(Time::ZERO, 1, 0.1));
        assert_eq!(window.segments(), 9.0);
    }

    #[test]
    fn a_second_timeout_leaves_the_threshold() {
        let mut window = window();
        window.segments = 20.0;
        window.on_timeout(20, false);
        window.on_timeout(1, true);
        assert_eq!((window.segments(), window.threshold), (1.0, 10.0));
    }
}
