//! The congestion window, which follows XCP's feedback (section IV) or losses (RFC 5681). Its unit
//! is bytes on the wire.

use core::time::Duration;

use super::config::{AcpConfig, Control};
use manyflow_core::time::seconds;
use manyflow_core::xcp::{Congestion, WindowChange};

/// cwnd, and ssthresh for Reno; both in bytes on the wire.
#[derive(Debug)]
pub(super) struct Window {
    control: Control,
    bytes: f64,
    initial: f64,
    threshold: f64,
    send_buffer: f64,
    /// The longest frame sent so far, in bytes on the wire. Before the first frame, the longest
    /// that is allowed.
    frame: f64,
    /// The bytes on the wire of a full send buffer, if all frames have length `frame`. A larger
    /// window has no use.
    useful: f64,
}

impl Window {
    /// Creates the initial window. Each frame has `header_bytes` of headers.
    pub(super) fn new(config: &AcpConfig, header_bytes: u32) -> Window {
        let frame = f64::from(config.frame_bytes_max + header_bytes);
        let initial = frame * f64::from(config.initial_window);
        Window {
            control: config.control,
            bytes: initial,
            initial,
            threshold: f64::INFINITY,
            send_buffer: config.send_buffer.into(),
            frame,
            useful: f64::INFINITY,
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
        self.bytes / self.frame
    }

    /// Returns whether `wire_bytes` may be sent while `pipe` bytes are in the network. One frame
    /// always may. Under XCP, [`spacing`](Window::spacing) sets the rate, and the window is rounded
    /// up to whole frames.
    pub(super) fn has_room(&self, pipe: u64, wire_bytes: u32) -> bool {
        let used = match self.control {
            Control::Xcp => pipe + 1,
            Control::Reno => pipe + u64::from(wire_bytes),
        };
        pipe == 0 || used as f64 <= self.bytes
    }

    /// Returns the time from one packet to the next. Under XCP, frames are sent at the rate that
    /// their headers state: cwnd over the round-trip time. Otherwise a window of three and a half
    /// frames would send only three in each round trip, and the routers would not know of the
    /// difference.
    pub(super) fn spacing(&self, wire_bytes: u32, rtt_s: f64) -> Duration {
        match self.control {
            Control::Xcp => seconds(f64::from(wire_bytes) * rtt_s / self.bytes),
            Control::Reno => Duration::ZERO,
        }
    }

    /// Handles an acknowledged frame: XCP follows its feedback, Reno grows if `may_grow` (RFC 5681
    /// section 3.1).
    pub(super) fn on_ack(&mut self, feedback: WindowChange, may_grow: bool) {
        let change = match self.control {
            Control::Xcp => feedback.bytes(),
            Control::Reno if !may_grow => 0.0,
            Control::Reno if self.bytes < self.threshold => self.frame,
            Control::Reno => self.frame * self.frame / self.bytes,
        };
        self.bytes = (self.bytes + change).min(self.useful).max(self.frame);
    }

    /// Handles the first loss in a round trip: halves the window (RFC 5681 Eq. (4); XCP's reference
    /// code does the same).
    pub(super) fn on_loss(&mut self) {
        self.threshold = (self.bytes / 2.0).max(2.0 * self.frame);
        self.bytes = match self.control {
            Control::Xcp => (self.bytes / 2.0).max(self.frame),
            Control::Reno => self.threshold,
        };
    }

    /// Handles a retransmission time-out. The threshold changes only at the first of several
    /// time-outs in a row: `again` is set if nothing was acknowledged since the last one.
    pub(super) fn on_timeout(&mut self, again: bool) {
        if !again {
            self.on_loss();
        }
        self.bytes = self.frame;
    }

    /// Limits the window to the initial one after an idle time: the old window no longer describes
    /// the network (RFC 5681 section 4.1).
    pub(super) fn restart(&mut self) {
        self.bytes = self.bytes.min(self.initial);
    }

    /// Returns the header of a frame of `wire_bytes`. The round-trip time is `rtt_s`, 0 if it is
    /// unknown. The header asks for the increase that gives the largest useful window after one
    /// round trip, or for none unless the window `is_used`.
    pub(super) fn header(&self, wire_bytes: u32, rtt_s: f64, is_used: bool) -> Congestion {
        let cwnd = self.bytes as u32;
        match self.control {
            Control::Reno => Congestion {
                cwnd,
                ..Congestion::default()
            },
            Control::Xcp => {
                let wanted = if is_used {
                    (self.useful - self.bytes).max(0.0)
                } else {
                    0.0
                };
                // Rounded up: a window that is a fraction of a byte short would send one frame
                // less.
                let share = f64::from(wire_bytes) / self.bytes;
                Congestion {
                    cwnd,
                    rtt_us: libm::ceil(rtt_s * 1e6) as u32,
                    feedback: WindowChange(libm::ceil(wanted * share * 256.0) as i32),
                    answered: false,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: u32 = 56;

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

    #[test]
    fn xcp_feedback_opens_the_window_in_one_round_trip() {
        let mut window = window(Control::Xcp);
        let asked = window.header(1000, 0.1, true);
        assert_eq!((asked.cwnd, asked.rtt_us), (2000, 100_000));
        (0..2).for_each(|_| window.on_ack(asked.feedback, false));
        assert_eq!(window.frames(), 100.0);
        assert_eq!(window.header(1000, 0.1, true).feedback, WindowChange(0));
    }

    #[test]
    fn rounding_makes_no_window_a_frame_short() {
        for initial in 1..100 {
            let mut window = window(Control::Xcp);
            window.bytes = 1000.0 * f64::from(initial);
            let asked = window.header(1000, 0.1, true).feedback;
            (0..initial).for_each(|_| window.on_ack(asked, false));
            assert_eq!(window.frames(), 100.0, "{initial}");
        }
    }

    #[test]
    fn xcp_asks_for_no_increase_while_the_window_is_not_used() {
        let window = window(Control::Xcp);
        assert_eq!(window.header(1000, 0.1, false).feedback, WindowChange(0));
    }

    #[test]
    fn feedback_leaves_a_window_of_at_least_one_frame() {
        let mut window = window(Control::Xcp);
        window.on_ack(WindowChange::from_bytes(-1e6), false);
        assert_eq!(window.frames(), 1.0);
    }

    #[test]
    fn reno_doubles_then_halves_then_adds_a_frame_per_window() {
        let mut window = window(Control::Reno);
        (0..18).for_each(|_| window.on_ack(WindowChange::MAX, true));
        assert_eq!(window.frames(), 20.0);
        window.on_loss();
        (0..10).for_each(|_| window.on_ack(WindowChange::MAX, true));
        assert!((window.frames() - 10.96).abs() < 0.02, "{window:?}");
        window.on_timeout(false);
        window.on_timeout(true);
        assert_eq!(window.frames(), 1.0);
        assert!((window.threshold - 5_480.0).abs() < 20.0, "{window:?}");
    }
}
