//! The congestion window: that of RFC 5681, or CUBIC's in congestion avoidance.

use core::time::Duration;

use super::HEADER_BYTES;
use super::config::{Recovery, TcpConfig, Variant};
use super::control::{Control, Moment};
use super::hystart::{Ack, HyStart};
use super::prr::Prr;
use manyflow_core::cubic::Cubic;
use manyflow_core::time::Time;

/// The minimum of the slow start threshold, in segments (RFC 5681 Eq. (4)).
const LOWEST_THRESHOLD: f64 = 2.0;

/// cwnd and ssthresh, in segments.
#[derive(Debug)]
pub(super) struct Window {
    segments: f64,
    threshold: f64,
    maximum: f64,
    /// The bits of a segment with its headers.
    packet_bits: f64,
    cubic: Option<Cubic>,
    /// Watches slow start, unless only a loss ends it.
    hystart: Option<HyStart>,
    has_prr: bool,
    /// Proportional Rate Reduction and its window in segments, while losses are repaired.
    reduction: Option<(Prr, f64)>,
    /// A control in place of cwnd and ssthresh, which alone sets the window then.
    control: Option<Box<dyn Control>>,
}

/// The longest time between two segments that a control can ask for, in seconds.
const GAP_MAX_S: f64 = 3600.0;

impl Window {
    pub(super) fn new(config: &TcpConfig) -> Window {
        Window {
            segments: config.initial_window.into(),
            threshold: f64::INFINITY,
            maximum: config.maximum_window.into(),
            packet_bits: f64::from(8 * (config.segment_bytes + HEADER_BYTES)),
            cubic: (config.variant == Variant::Cubic).then(Cubic::default),
            hystart: HyStart::new(config.slow_start),
            has_prr: config.recovery == Recovery::Prr,
            reduction: None,
            control: None,
        }
    }

    /// Lets `control` set the window from now on.
    pub(super) fn set_control(&mut self, control: Box<dyn Control>) {
        self.control = Some(control);
        self.ask_control(|_| ());
    }

    /// Returns whether the control measures deliveries, or HyStart needs the time of each.
    pub(super) fn measures_deliveries(&self) -> bool {
        let control = self.control.as_ref();
        self.hystart.is_some() || control.is_some_and(|control| control.measures_deliveries())
    }

    /// Calls the control of the caller, if there is one, and takes over its window. Returns whether
    /// there is one.
    pub(super) fn ask_control(&mut self, call: impl FnOnce(&mut dyn Control)) -> bool {
        let Some(control) = &mut self.control else {
            return false;
        };
        call(&mut **control);
        self.segments = control.window_segments().max(1.0).min(self.maximum);
        debug_assert!(self.segments >= 1.0 && self.segments <= self.maximum);
        true
    }

    /// Returns whether the control sends less than the path takes, on purpose.
    pub(super) fn holds_back(&self) -> bool {
        self.control.as_ref().is_some_and(|one| one.holds_back())
    }

    /// Reports losses or a mark to the control of the caller. Returns whether there is one.
    pub(super) fn report_loss(&mut self, moment: &Moment) -> bool {
        self.ask_control(|control| control.on_loss(moment))
    }

    /// Returns the minimum time between two segments at the rate that the control of the caller
    /// gives.
    pub(super) fn gap(&self) -> Option<Duration> {
        let rate = self.control.as_ref()?.rate_bits_per_s()?;
        let gap_s = rate.is_finite().then(|| self.packet_bits / rate)?;
        (gap_s > 0.0).then(|| Duration::from_secs_f64(gap_s.min(GAP_MAX_S)))
    }

    /// Returns cwnd in segments.
    pub(super) fn segments(&self) -> f64 {
        self.segments
    }

    /// Returns whether another segment may follow `pipe` segments into the network.
    pub(super) fn has_room(&self, pipe: u32) -> bool {
        let segments = self.reduction.map_or(self.segments, |(_, window)| window);
        segments >= f64::from(pipe + 1)
    }

    /// Begins the repair of losses, with `flight` segments in flight, after the window was reduced.
    pub(super) fn begin_recovery(&mut self, flight: u32) {
        if self.has_prr {
            self.reduction = Some((Prr::new(flight, self.segments), self.segments));
        }
    }

    /// Handles an acknowledgement during the repair of losses: see [`Prr::on_ack`].
    pub(super) fn on_recovery_ack(&mut self, delivered: u32, pipe: u32, is_safe: bool) {
        if let Some((prr, window)) = &mut self.reduction {
            *window = prr.on_ack(delivered, pipe, is_safe);
        }
    }

    /// Ends the repair of losses.
    pub(super) fn end_recovery(&mut self) {
        self.reduction = None;
    }

    /// Notes the transmission of a segment.
    pub(super) fn note_transmission(&mut self) {
        if let Some((prr, _)) = &mut self.reduction {
            prr.on_sent();
        }
    }

    /// Lets HyStart see an acknowledgement in slow start.
    pub(super) fn watch_slow_start(&mut self, ack: &Ack) {
        let Some(hystart) = &mut self.hystart else {
            return;
        };
        if self.threshold.is_finite() && !hystart.watches_all() {
            self.hystart = None;
        } else if self.segments < self.threshold && hystart.on_ack(ack, self.segments) {
            self.threshold = self.segments;
        }
    }

    /// Handles an acknowledgement of `acknowledged` new segments: slow start or congestion
    /// avoidance (RFC 5681 section 3.1).
    pub(super) fn on_ack(&mut self, now: Time, acknowledged: u32, rtt_s: f64) {
        if self.control.is_some() {
            return;
        }
        let grown = if self.segments < self.threshold {
            let growth = self.hystart.as_ref().map(|one| one.growth(acknowledged));
            self.segments + growth.unwrap_or(1.0)
        } else if let Some(cubic) = &mut self.cubic {
            cubic.grown(now, self.segments, acknowledged.into(), rtt_s)
        } else {
            self.segments + 1.0 / self.segments
        };
        self.segments = grown.min(self.maximum);
    }

    /// Handles a loss: multiplicative decrease (RFC 5681 Eq. (4)). The smaller of window and flight
    /// counts; beyond the window are only segments that limited transmit has sent.
    pub(super) fn on_congestion(&mut self, flight: u32) {
        self.decrease(self.segments.min(flight.into()));
    }

    /// Handles a mark: halves the whole window (RFC 3168 section 6.1.2). The flight does not count,
    /// as the acknowledgement with the echo has just left it. If the application left room in the
    /// window, only the `used` segments count.
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

    /// Handles the expiry of the retransmission timer. If it expired `again` for the same segment,
    /// the threshold remains (RFC 5681 section 3.1).
    pub(super) fn on_timeout(&mut self, flight: u32, again: bool) {
        if !again {
            self.on_congestion(flight);
        }
        if let Some(cubic) = &mut self.cubic {
            cubic.on_timeout();
        }
        self.segments = 1.0;
    }

    /// Keeps the window as it is: it was not the limit, so an acknowledgement says nothing about
    /// the network (RFC 7661 section 4). The time does not count for CUBIC (RFC 9438 section 5.8).
    pub(super) fn stand(&mut self) {
        if let Some(cubic) = &mut self.cubic {
            cubic.end_epoch();
        }
    }

    /// Limits the window to `restart` segments, the restart window, after nothing was sent for a
    /// whole time-out (RFC 5681 section 4.1).
    pub(super) fn restart(&mut self, restart: u32) {
        if self.control.is_some() {
            return;
        }
        self.segments = self.segments.min(restart.into());
        self.stand();
    }

    /// Limits the window when NewReno leaves recovery, to avoid a burst (RFC 6582 section 3.2, step
    /// 3, option 1).
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
