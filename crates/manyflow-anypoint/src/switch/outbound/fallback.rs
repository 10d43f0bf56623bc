//! The window of the leg to the peer where no XCP router answers: one CUBIC for all members.
//!
//! Each member sees only its own frames, so members that follow losses by themselves would take a
//! share of the leg each. The switch therefore keeps a window W for the leg, by RFC 9438, and acts
//! as a router: it lowers the feedback of each acknowledgement so that the sum of the members'
//! windows becomes W within a round trip,
//!
//! ```text
//!   fdbk = (W - sum cwnd_i) bytes / sum cwnd_i
//! ```
//!
//! which the usual transform splits among the members. A member that a link of its own limits stays
//! below its part. W grows only while the members use it.
//!
//! A loss on the leg reduces W and, because the member retransmits, the window of the member that
//! sent the frame. That member is spared the lower feedback until its headers show the reduction,
//! so that no window is reduced twice for a loss.
//!
//! A TCP stops sending when it finds a loss. The members follow W a round trip later, and the queue
//! drops frames until then. These losses belong to the same event, and reduce W no further.

use super::super::sequence::{PeerSeq, Sequence};
use super::super::transform::Aggregate;
use crate::losses::{LossWindow, Path};
use manyflow_core::time::Time;
use manyflow_core::xcp::WindowChange;

/// The members' windows follow W a round trip later: in slow start they sum up to half of it.
const LAG_IN_SLOW_START: f64 = 2.0;
/// The lag of the members' windows in congestion avoidance, where they are still being moved
/// between members.
const LAG: f64 = 1.25;
/// The lag in frames, for small windows.
const LAG_FRAMES: f64 = 2.0;

/// The fallback of the leg to the peer.
#[derive(Debug)]
pub(super) struct Fallback {
    /// The window W; `None` while XCP's routers answer, and before the first answer.
    window: Option<LossWindow>,
    /// Whether an XCP router has answered the peer's last acknowledgement.
    is_answered: bool,
    /// The longest frame so far, in bytes on the wire.
    frame: f64,
    /// The next number at the last loss event. Frames that were sent before belong to that event.
    recover: PeerSeq,
    /// The members' windows still have a larger sum than the reduced window. Until they have
    /// followed, losses belong to the same event: they have the same cause.
    is_reducing: bool,
}

impl Fallback {
    /// Creates a leg of which it is unknown whether XCP's routers answer.
    pub(super) fn new() -> Fallback {
        Fallback {
            window: None,
            is_answered: false,
            frame: 0.0,
            recover: PeerSeq::FIRST,
            is_reducing: false,
        }
    }

    /// Handles the answer to a frame of `wire_bytes`, while the peer has all frames before
    /// `cumulative`. Returns the change for the frame, unless an XCP router has answered or the sum
    /// of the members' headers is unknown.
    pub(super) fn on_answer(
        &mut self,
        now: Time,
        answered: bool,
        wire_bytes: u32,
        cumulative: PeerSeq,
        all: &Aggregate,
    ) -> Option<WindowChange> {
        let was_answered = core::mem::replace(&mut self.is_answered, answered);
        if answered {
            self.window = None;
            return None;
        }
        if !all.is_known() {
            return None;
        }
        let bytes = f64::from(wire_bytes);
        self.frame = self.frame.max(bytes);
        let window = self.window.get_or_insert_with(|| {
            let mut window = LossWindow::cubic(all.cwnd);
            if was_answered {
                window.end_slow_start();
            }
            window
        });
        let lag = if window.is_in_slow_start() {
            LAG_IN_SLOW_START
        } else {
            LAG
        };
        self.is_reducing &= all.cwnd > window.bytes + LAG_FRAMES * self.frame;
        let is_used = window.bytes <= lag * all.cwnd + LAG_FRAMES * self.frame;
        if is_used && !cumulative.is_before(self.recover) {
            let path = Path {
                now,
                rtt_s: all.rtt_us() / 1e6,
                frame: self.frame,
            };
            window.bytes += window.growth(path, bytes / self.frame);
        } else {
            window.stand();
        }
        let change = (window.bytes - all.cwnd) * bytes / all.cwnd;
        Some(WindowChange::from_bytes(change))
    }

    /// Handles the loss of a frame that was last sent before the frame `sent_before`. `next` is the
    /// next number. Reduces the window once until the members have followed, which takes a round
    /// trip.
    pub(super) fn on_loss(&mut self, sent_before: PeerSeq, next: PeerSeq) {
        debug_assert!(
            !next.is_before(sent_before),
            "a frame that was not sent is lost"
        );
        if !self.recover.is_before(sent_before) {
            return;
        }
        self.recover = next;
        if let Some(window) = &mut self.window
            && !self.is_reducing
        {
            window.on_loss(self.frame);
            self.is_reducing = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: f64 = 1000.0;
    const RTT_S: f64 = 0.02;

    /// Returns the sum of the headers of members that have `cwnd` bytes together.
    fn sum(cwnd: f64) -> Aggregate {
        Aggregate {
            cwnd,
            feedback: 0.0,
            bandwidth: cwnd / (RTT_S * 1e6),
            members: 4,
            ..Aggregate::default()
        }
    }

    fn number(number: u32) -> PeerSeq {
        PeerSeq::from_wire(number)
    }

    /// Answers a window of frames in the round trip that begins at `at_s`, and returns the sum of
    /// the changes.
    fn round(fallback: &mut Fallback, at_s: f64, cumulative: u32, cwnd: f64) -> f64 {
        let frames = (cwnd / FRAME) as u32;
        let answer = |frame| {
            let now = Time::from_secs_f64(at_s + RTT_S * f64::from(frame) / f64::from(frames));
            fallback.on_answer(now, false, FRAME as u32, number(cumulative), &sum(cwnd))
        };
        let changes = (0..frames).map(answer);
        changes.map(|change| change.unwrap().bytes()).sum()
    }

    fn window(fallback: &Fallback) -> f64 {
        fallback.window.as_ref().unwrap().bytes
    }

    #[test]
    fn the_members_together_follow_one_window() {
        let mut fallback = Fallback::new();
        let mut cwnd = 10_000.0;
        cwnd += round(&mut fallback, 0.0, 0, cwnd);
        assert_eq!(window(&fallback), 20_000.0, "slow start");
        for _ in 0..20 {
            cwnd += round(&mut fallback, 0.0, 0, cwnd);
            fallback.on_loss(number(7), number(9));
        }
        // One loss event, then no growth before the peer has all frames that were sent before it.
        let reduced = window(&fallback);
        assert!((cwnd - reduced).abs() < 1.0, "{cwnd} {reduced}");
        fallback.on_loss(number(10), number(40));
        assert!((window(&fallback) - 0.7 * reduced).abs() < 1.0);
    }

    #[test]
    fn the_losses_of_a_round_trip_leave_seven_tenths_of_the_window() {
        let mut fallback = Fallback::new();
        round(&mut fallback, 0.0, 0, 20_000.0);
        let before = window(&fallback);
        for sent_before in 3..9 {
            fallback.on_loss(number(sent_before), number(30));
        }
        assert!((window(&fallback) - 0.7 * before).abs() < 1e-6);
    }

    #[test]
    fn losses_until_the_members_have_followed_are_one_event() {
        let mut fallback = Fallback::new();
        round(&mut fallback, 0.0, 0, 20_000.0);
        let before = window(&fallback);
        fallback.on_loss(number(5), number(30));
        round(&mut fallback, 0.02, 5, before);
        // Sent after the first loss was known, at the rate of windows that were not reduced yet.
        fallback.on_loss(number(40), number(60));
        let reduced = window(&fallback);
        assert!((reduced - 0.7 * before).abs() < 1e-6);
        round(&mut fallback, 0.04, 5, reduced);
        fallback.on_loss(number(70), number(90));
        assert!((window(&fallback) - 0.7 * reduced).abs() < 1e-6);
    }

    #[test]
    fn the_window_grows_as_one_cubic_whatever_the_number_of_members() {
        let mut fallback = Fallback::new();
        round(&mut fallback, 0.0, 0, 500_000.0);
        fallback.on_loss(number(5), number(5));
        assert_eq!(window(&fallback), 700_000.0);
        // K is the cube root of 300 / 0.4: 9.1 s.
        for trip in 0..450 {
            let cwnd = window(&fallback);
            round(&mut fallback, RTT_S * f64::from(trip), 5, cwnd);
        }
        let plateau = window(&fallback);
        assert!((plateau - 1_000_000.0).abs() < 2000.0, "{plateau}");
    }

    #[test]
    fn a_window_that_members_do_not_use_stays() {
        let mut fallback = Fallback::new();
        round(&mut fallback, 0.0, 0, 10_000.0);
        fallback.on_loss(number(5), number(5));
        for trip in 0..100 {
            round(&mut fallback, RTT_S * f64::from(trip), 5, 4000.0);
        }
        assert!(window(&fallback) <= 14_000.0, "{}", window(&fallback));
        // The time in which members did not use it does not count.
        round(&mut fallback, 60.0, 5, 14_000.0);
        assert!(window(&fallback) < 17_000.0, "{}", window(&fallback));
    }

    #[test]
    fn after_answers_the_window_continues_without_slow_start() {
        let mut fallback = Fallback::new();
        round(&mut fallback, 0.0, 0, 10_000.0);
        let first = number(0);
        let answered = fallback.on_answer(Time::ZERO, true, 1000, first, &sum(30_000.0));
        assert_eq!(answered, None);
        assert!(fallback.window.is_none());
        round(&mut fallback, 0.0, 0, 30_000.0);
        assert!((window(&fallback) - 31_000.0).abs() < 30.0);
    }
}
