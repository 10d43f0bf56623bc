//! The congestion window, which follows XCP's feedback (section IV) or losses (RFC 5681, RFC 9438).
//! Its unit is bytes on the wire.
//!
//! Under [`Control::Auto`] each acknowledgement decides. One that an XCP router has answered
//! changes the window by its feedback. Any other lets the window grow as CUBIC would, but by no
//! more than its feedback, which a receiver or a switch may have lowered. A loss halves the window
//! where routers answer, and elsewhere reduces it as CUBIC does.

use core::time::Duration;

use super::config::{AcpConfig, Control};
use super::losses::{LossWindow, Path};
use super::path::ETHERNET_BYTES;
use super::wire::DATA_HEADER_BYTES;
use manyflow_core::time::{Time, seconds};
use manyflow_core::xcp::{Congestion, Feedback, WindowChange};

/// The multiples of cwnd over the round-trip time at which CUBIC's windows are paced, in slow start
/// and later. Linux has the same: pacing at the rate of the window itself would delay the
/// acknowledgements on which the window grows.
const SLOW_START_PACE: f64 = 2.0;
const AVOIDANCE_PACE: f64 = 1.2;
/// The longest frame of a datagram of [`ETHERNET_BYTES`], in bytes.
const ETHERNET_FRAME_BYTES: u32 = (ETHERNET_BYTES - DATA_HEADER_BYTES) as u32;
/// The smallest window, in frames, whose frames leave in pairs.
const PAIRED_FRAMES_MIN: f64 = 4.0;
/// The time by which [`Control::Auto`] sends frames before their turn, so that a world whose timers
/// are coarse sends small bursts at the right rate. Linux paces in bursts of a millisecond, too.
const BURST: Duration = Duration::from_millis(1);
/// The delay of a timer that [`Control::Auto`] makes up for by sending faster.
const LATENESS: Duration = Duration::from_millis(2);

/// cwnd, and the state of the rules that change it.
#[derive(Debug)]
pub(super) struct Window {
    control: Control,
    /// cwnd, and the state of Reno, or of CUBIC under [`Control::Auto`].
    losses: LossWindow,
    initial: f64,
    send_buffer: f64,
    /// The longest frame sent so far, in bytes on the wire. Before the first frame, the longest
    /// that is allowed.
    frame: f64,
    /// The bytes on the wire of a full send buffer, if all frames have length `frame`. A larger
    /// window has no use.
    useful: f64,
    /// Whether an XCP router has answered the frame that was acknowledged last.
    is_answered: bool,
    /// The bytes that are to be acknowledged without an answer before the window falls back: those
    /// of the window at the last answer.
    answers_for: f64,
}

impl Window {
    /// Creates the initial window. Each frame has `header_bytes` of headers.
    pub(super) fn new(config: &AcpConfig, header_bytes: u32) -> Window {
        let frame = f64::from(config.frame_bytes_max + header_bytes);
        let known = config.frame_bytes_max.min(ETHERNET_FRAME_BYTES) + header_bytes;
        let initial = f64::from(known) * f64::from(config.initial_window);
        Window {
            control: config.control,
            losses: match config.control {
                Control::Auto => LossWindow::cubic(initial),
                Control::Reno | Control::Xcp => LossWindow::reno(initial),
            },
            initial,
            send_buffer: config.send_buffer.into(),
            frame,
            useful: f64::INFINITY,
            is_answered: false,
            answers_for: initial,
        }
    }

    /// Notes a frame that is about to be sent: `bytes` of payload, `wire_bytes` on the wire.
    pub(super) fn note_frame(&mut self, bytes: u32, wire_bytes: u32) {
        let frame = f64::from(wire_bytes);
        if frame > self.frame || self.useful.is_infinite() {
            self.frame = frame;
            self.useful = self.send_buffer / f64::from(bytes.max(1)) * frame;
        }
    }

    /// Returns cwnd in frames of the longest length sent so far.
    pub(super) fn frames(&self) -> f64 {
        self.losses.bytes / self.frame
    }

    /// Returns whether `wire_bytes` may be sent while `pipe` bytes are in the network. One frame
    /// always may. Where routers answer, [`spacing`](Window::spacing) sets the rate, and the window
    /// is rounded up to whole frames. In fallback it is rounded to the nearest: the windows of
    /// several members behind a switch then have their sum on average.
    pub(super) fn has_room(&self, pipe: u64, wire_bytes: u32) -> bool {
        let used = match self.control {
            Control::Auto if self.falls_back() => pipe + u64::from(wire_bytes / 2),
            Control::Xcp | Control::Auto => pipe + 1,
            Control::Reno => pipe + u64::from(wire_bytes),
        };
        pipe == 0 || used as f64 <= self.losses.bytes
    }

    /// Returns whether frames leave in pairs, as TCP's segments do: in fallback, if the window has
    /// at least four frames. In a smaller one, a frame that waits for a second would leave the path
    /// idle.
    pub(super) fn sends_pairs(&self) -> bool {
        self.control == Control::Auto && self.falls_back() && self.frames() >= PAIRED_FRAMES_MIN
    }

    /// Returns the time from one packet to the next. Under XCP, frames are sent at the rate that
    /// their headers state: cwnd over the round-trip time. Otherwise a window of three and a half
    /// frames would send only three in each round trip, and the routers would not know of the
    /// difference.
    pub(super) fn spacing(&self, wire_bytes: u32, rtt_s: f64) -> Duration {
        let pace = match self.control {
            Control::Reno => return Duration::ZERO,
            Control::Auto if self.falls_back() && self.losses.is_in_slow_start() => SLOW_START_PACE,
            Control::Auto if self.falls_back() => AVOIDANCE_PACE,
            Control::Auto | Control::Xcp => 1.0,
        };
        seconds(f64::from(wire_bytes) * rtt_s / (pace * self.losses.bytes))
    }

    /// Returns the time by which a frame may be sent before its turn.
    pub(super) fn burst(&self) -> Duration {
        match self.control {
            Control::Auto => BURST,
            Control::Xcp | Control::Reno => Duration::ZERO,
        }
    }

    /// Returns the delay for which later frames make up, where frames have this spacing.
    pub(super) fn lateness(&self, spacing: Duration) -> Duration {
        match self.control {
            Control::Auto => LATENESS.max(2 * spacing),
            Control::Xcp | Control::Reno => 2 * spacing,
        }
    }

    /// Handles the acknowledgement of a frame of `wire_bytes` at `now`, while the average
    /// round-trip time is `rtt_s`: XCP follows its feedback, Reno and CUBIC grow if `may_grow`.
    pub(super) fn on_ack(
        &mut self,
        now: Time,
        wire_bytes: u32,
        rtt_s: f64,
        feedback: Feedback,
        may_grow: bool,
    ) {
        let limit = feedback.change.bytes();
        let path = self.path(now, rtt_s);
        if self.control == Control::Auto {
            self.note_answer(wire_bytes, feedback.answered);
        }
        let change = match self.control {
            Control::Xcp => limit,
            Control::Auto if feedback.answered => limit,
            Control::Auto => self.growth(path, may_grow, limit),
            Control::Reno => self.growth(path, may_grow, f64::INFINITY),
        };
        self.losses.bytes = (self.losses.bytes + change)
            .min(self.useful)
            .max(self.frame);
    }

    /// Returns the increase for one frame by the rules for losses, or the change `limit` if that is
    /// lower.
    fn growth(&mut self, path: Path, may_grow: bool, limit: f64) -> f64 {
        let growth = if may_grow {
            self.losses.growth(path, 1.0)
        } else {
            0.0
        };
        if !may_grow || limit < growth {
            self.losses.stand();
        }
        growth.min(limit)
    }

    fn path(&self, now: Time, rtt_s: f64) -> Path {
        let frame = self.frame;
        Path { now, rtt_s, frame }
    }

    /// Notes whether an XCP router has answered. After the routers' answers, CUBIC continues with
    /// their window: it is a share of the path, so there is no slow start.
    fn note_answer(&mut self, wire_bytes: u32, answered: bool) {
        if answered {
            self.answers_for = self.losses.bytes;
        } else {
            self.answers_for -= f64::from(wire_bytes);
        }
        if self.is_answered && !answered {
            self.losses.end_slow_start();
            self.losses.restart();
        }
        self.is_answered = answered;
    }

    /// Returns whether no XCP router has answered a window of frames. Single frames may come back
    /// without an answer on a path with routers: a switch acknowledges a repeated frame itself.
    fn falls_back(&self) -> bool {
        self.answers_for <= 0.0
    }

    /// Handles the first loss in a round trip: reduces the window as Reno or CUBIC does, or halves
    /// it where routers answer, as XCP's reference code does.
    pub(super) fn on_loss(&mut self) {
        let before = self.losses.bytes;
        let kept = self.losses.on_loss(self.frame);
        let kept = match self.control {
            Control::Reno => return,
            Control::Auto if self.falls_back() => kept,
            Control::Auto | Control::Xcp => before / 2.0,
        };
        self.losses.bytes = kept.max(self.frame);
    }

    /// Handles a retransmission time-out. The threshold changes only at the first of several
    /// time-outs in a row: `again` is set if nothing was acknowledged since the last one.
    pub(super) fn on_timeout(&mut self, again: bool) {
        self.losses.on_timeout(self.frame, again);
    }

    /// Limits the window to the initial one after an idle time: the old window no longer describes
    /// the network (RFC 5681 section 4.1).
    pub(super) fn restart(&mut self) {
        self.losses.bytes = self.losses.bytes.min(self.initial);
        self.losses.restart();
    }

    /// Returns the header of a frame of `wire_bytes` that is sent at `now`. The round-trip time is
    /// `rtt_s`, 0 if it is unknown. The header asks for no increase unless the window `is_used`.
    pub(super) fn header(
        &self,
        now: Time,
        wire_bytes: u32,
        rtt_s: f64,
        is_used: bool,
    ) -> Congestion {
        let cwnd = self.losses.bytes as u32;
        if self.control == Control::Reno {
            return Congestion {
                cwnd,
                ..Congestion::default()
            };
        }
        let wanted = if is_used {
            self.wanted(now, wire_bytes, rtt_s)
        } else {
            0.0
        };
        Congestion {
            cwnd,
            rtt_us: libm::ceil(rtt_s * 1e6) as u32,
            // Rounded up: a window that is a fraction of a byte short would send one frame less.
            feedback: WindowChange(libm::ceil(wanted * 256.0) as i32),
            answered: false,
        }
    }

    /// Returns the increase that a frame of `wire_bytes` asks for: its part of the increase that
    /// gives the largest useful window after one round trip.
    ///
    /// A frame that probably no router answers asks for the increase that its acknowledgement can
    /// cause. A receiver or a switch that steers the window counts on what it has granted.
    fn wanted(&self, now: Time, wire_bytes: u32, rtt_s: f64) -> f64 {
        let missing = (self.useful - self.losses.bytes).max(0.0);
        if self.control == Control::Auto && self.falls_back() {
            // The acknowledgement comes a round trip later.
            let path = self.path(now + seconds(rtt_s), rtt_s);
            missing.min(self.losses.clone().growth(path, 1.0))
        } else {
            missing * (f64::from(wire_bytes) / self.losses.bytes)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADER: u32 = 56;
    const RTT_S: f64 = 0.1;

    fn window(control: Control) -> Window {
        let config = AcpConfig {
            control,
            frame_bytes_max: 944,
            send_buffer: 94_400,
            ..AcpConfig::default()
        };
        let mut window = Window::new(&config, HEADER);
        window.note_frame(944, 1000);
        window
    }

    /// Acknowledges a frame whose request no router has answered.
    fn ack(window: &mut Window, change: WindowChange) {
        window.on_ack(Time::ZERO, 1000, RTT_S, feedback(change, false), true);
    }

    fn feedback(change: WindowChange, answered: bool) -> Feedback {
        Feedback {
            change,
            answered,
            averaged: false,
        }
    }

    #[test]
    fn xcp_feedback_opens_the_window_in_one_round_trip() {
        let mut window = window(Control::Xcp);
        let asked = window.header(Time::ZERO, 1000, RTT_S, true);
        assert_eq!((asked.cwnd, asked.rtt_us), (2000, 100_000));
        (0..2).for_each(|_| ack(&mut window, asked.feedback));
        assert_eq!(window.frames(), 100.0);
        assert_eq!(
            window.header(Time::ZERO, 1000, RTT_S, true).feedback,
            WindowChange(0)
        );
    }

    #[test]
    fn rounding_makes_no_window_a_frame_short() {
        for initial in 1..100 {
            let mut window = window(Control::Xcp);
            window.losses.bytes = 1000.0 * f64::from(initial);
            let asked = window.header(Time::ZERO, 1000, RTT_S, true).feedback;
            (0..initial).for_each(|_| ack(&mut window, asked));
            assert_eq!(window.frames(), 100.0, "{initial}");
        }
    }

    #[test]
    fn xcp_asks_for_no_increase_while_the_window_is_not_used() {
        let window = window(Control::Xcp);
        assert_eq!(
            window.header(Time::ZERO, 1000, RTT_S, false).feedback,
            WindowChange(0)
        );
    }

    #[test]
    fn feedback_leaves_a_window_of_at_least_one_frame() {
        let mut window = window(Control::Xcp);
        ack(&mut window, WindowChange::from_bytes(-1e6));
        assert_eq!(window.frames(), 1.0);
    }

    #[test]
    fn reno_doubles_then_halves_then_adds_a_frame_per_window() {
        let mut window = window(Control::Reno);
        (0..18).for_each(|_| ack(&mut window, WindowChange::MAX));
        assert_eq!(window.frames(), 20.0);
        window.on_loss();
        (0..10).for_each(|_| ack(&mut window, WindowChange::MAX));
        assert!((window.frames() - 10.96).abs() < 0.02, "{window:?}");
        window.on_timeout(false);
        window.on_timeout(true);
        assert_eq!(window.frames(), 1.0);
        assert!(
            (window.losses.threshold - 5_480.0).abs() < 20.0,
            "{window:?}"
        );
    }

    /// Acknowledges a window of frames in each round trip for `seconds`.
    fn pass(window: &mut Window, now: &mut Time, seconds: f64, rtt_s: f64) {
        let end = *now + Duration::from_secs_f64(seconds);
        while *now < end {
            let frames = window.frames();
            for _ in 0..frames as u32 {
                *now += Duration::from_secs_f64(rtt_s / frames);
                let asked = window.header(*now, 1000, rtt_s, true).feedback;
                window.on_ack(*now, 1000, rtt_s, feedback(asked, false), true);
            }
        }
    }

    #[test]
    fn without_answers_auto_keeps_seven_tenths_and_returns_to_its_plateau() {
        let mut window = Window {
            useful: f64::INFINITY,
            send_buffer: f64::INFINITY,
            ..window(Control::Auto)
        };
        let mut now = Time::ZERO;
        (0..498).for_each(|_| ack(&mut window, WindowChange::MAX));
        assert_eq!(window.frames(), 500.0);
        window.on_loss();
        assert_eq!(window.frames(), 350.0);
        // K is the cube root of 150 / 0.4: 7.2 s, of which half a second is missing.
        pass(&mut window, &mut now, 6.7, RTT_S);
        assert!((window.frames() - 500.0).abs() < 5.0, "{}", window.frames());
        let plateau = window.frames();
        pass(&mut window, &mut now, 0.5, RTT_S);
        assert!(window.frames() - plateau < 2.0, "{}", window.frames());
        pass(&mut window, &mut now, 3.0, RTT_S);
        assert!(window.frames() > 507.0, "{}", window.frames());
    }

    #[test]
    fn small_windows_grow_as_fast_as_renos_average() {
        let mut window = window(Control::Auto);
        let mut now = Time::ZERO;
        (0..18).for_each(|_| ack(&mut window, WindowChange::MAX));
        window.on_loss();
        assert_eq!(window.frames(), 14.0);
        pass(&mut window, &mut now, 0.1, 0.02);
        // 9/17 of a frame for each window of acknowledgements, of which there are about 5.6.
        assert!((window.frames() - 16.95).abs() < 0.1, "{}", window.frames());
    }

    #[test]
    fn time_in_which_feedback_limits_the_window_does_not_count() {
        let mut window = window(Control::Auto);
        (0..48).for_each(|_| ack(&mut window, WindowChange::MAX));
        window.on_loss();
        for second in 0..30 {
            let now = Time::from_secs_f64(f64::from(second));
            window.on_ack(now, 1000, RTT_S, feedback(WindowChange(0), false), true);
        }
        assert_eq!(window.frames(), 35.0);
        let mut now = Time::from_secs_f64(30.0);
        pass(&mut window, &mut now, 0.2, RTT_S);
        assert!(window.frames() < 43.0, "{}", window.frames());
    }

    #[test]
    fn where_routers_answer_a_loss_halves_the_window() {
        let mut window = window(Control::Auto);
        let change = WindowChange::from_bytes(18_000.0);
        window.on_ack(Time::ZERO, 1000, RTT_S, feedback(change, true), true);
        window.on_loss();
        assert_eq!(window.frames(), 10.0);
    }

    #[test]
    fn with_answers_auto_follows_the_feedback() {
        let mut window = window(Control::Auto);
        let asked = window.header(Time::ZERO, 1000, RTT_S, true);
        (0..2).for_each(|_| {
            window.on_ack(
                Time::ZERO,
                1000,
                RTT_S,
                feedback(asked.feedback, true),
                false,
            )
        });
        assert_eq!(window.frames(), 100.0);
        let change = WindowChange::from_bytes(-500.0);
        window.on_ack(Time::ZERO, 1000, RTT_S, feedback(change, true), true);
        assert_eq!(window.frames(), 99.5);
    }

    #[test]
    fn a_path_that_stops_answering_is_not_probed_by_slow_start() {
        let mut window = window(Control::Auto);
        let change = WindowChange::from_bytes(8000.0);
        window.on_ack(Time::ZERO, 1000, RTT_S, feedback(change, true), true);
        assert_eq!(window.frames(), 10.0);
        (0..10).for_each(|_| ack(&mut window, WindowChange::MAX));
        assert!((window.frames() - 10.96).abs() < 0.02, "{window:?}");
        // Slow start after a time-out ends at seven tenths of the window.
        window.on_timeout(false);
        (0..7).for_each(|_| ack(&mut window, WindowChange::MAX));
        assert!((window.frames() - 7.67).abs() < 0.8, "{window:?}");
    }

    #[test]
    fn auto_asks_routers_for_the_useful_window_until_a_window_has_no_answer() {
        let mut window = window(Control::Auto);
        let all = window.header(Time::ZERO, 1000, RTT_S, true).feedback;
        assert_eq!(all, WindowChange::from_bytes(49_000.0));
        (0..2).for_each(|_| ack(&mut window, WindowChange::default()));
        let growth = window.header(Time::ZERO, 1000, RTT_S, true).feedback;
        assert_eq!(growth, WindowChange::from_bytes(1000.0));
        window.on_ack(
            Time::ZERO,
            1000,
            RTT_S,
            feedback(WindowChange::default(), true),
            true,
        );
        assert_eq!(window.header(Time::ZERO, 1000, RTT_S, true).feedback, all);
    }

    #[test]
    fn in_fallback_the_pace_leaves_room_for_growth() {
        let mut window = window(Control::Auto);
        let ms = |window: &Window| window.spacing(1000, 0.1).as_secs_f64() * 1e3;
        assert_eq!(ms(&window), 50.0, "as the header states");
        (0..2).for_each(|_| ack(&mut window, WindowChange::default()));
        assert_eq!(ms(&window), 25.0, "slow start");
        (0..18).for_each(|_| ack(&mut window, WindowChange::MAX));
        window.on_loss();
        assert!((ms(&window) - 7.14 / 1.2).abs() < 0.1, "{}", ms(&window));
    }

    proptest! {
        #[test]
        fn auto_never_grows_above_the_feedback_nor_above_slow_start(
            steps in prop::collection::vec((any::<i32>(), any::<bool>(), any::<bool>(), 0..20), 1..200),
        ) {
            let mut window = window(Control::Auto);
            for (change, answered, may_grow, event) in steps {
                match event {
                    0 => window.on_loss(),
                    1 => window.on_timeout(false),
                    _ => {}
                }
                let before = window.losses.bytes;
                let change = WindowChange(change);
                window.on_ack(Time::ZERO, 1000, RTT_S, feedback(change, answered), may_grow);
                let grown = window.losses.bytes - before;
                let floor = window.frame - before;
                prop_assert!(grown <= change.bytes().max(floor) + 1e-6);
                prop_assert!(answered || grown <= window.frame + 1e-6);
                prop_assert!(answered || may_grow || grown <= 0.0);
                prop_assert!((window.frame..=window.useful).contains(&window.losses.bytes));
            }
        }
    }
}
