//! The congestion window, by XCP's feedback (section IV) or by losses (RFC 5681). In bytes on the
//! wire.

use core::time::Duration;

use super::config::{AcpConfig, Control};
use manyflow_core::time::seconds;
use manyflow_core::xcp::{Congestion, WindowChange};

/// cwnd, and ssthresh for Reno.
#[derive(Debug)]
pub(super) struct Window {
    control: Control,
    bytes: f64,
    initial: f64,
    threshold: f64,
    send_buffer: f64,
    /// The longest frame sent so far, on the wire; before the first, the longest that is allowed.
    frame: f64,
    /// What the send buffer holds at most of such frames, on the wire: a larger window has no use.
    useful: f64,
}

impl Window {
    /// `header_bytes` go with each frame.
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

    /// A frame of `bytes`, `wire_bytes` on the wire, is about to be sent.
    pub(super) fn note_frame(&mut self, bytes: u32, wire_bytes: u32) {
        let frame = f64::from(wire_bytes);
        if frame > self.frame || self.useful.is_infinite() {
            self.frame = frame;
            self.useful = self.send_buffer / f64::from(bytes.max(1)) * frame;
        }
    }

    /// cwnd in frames of the longest kind sent so far.
    pub(super) fn frames(&self) -> f64 {
        self.bytes / self.frame
    }

    /// Whether `wire_bytes` may follow the `pipe` bytes that are in the network. One frame always
    /// may. Under XCP it is [`spacing`](Window::spacing) that makes the rate, and the window is
    /// rounded up to whole frames.
    pub(super) fn has_room(&self, pipe: u64, wire_bytes: u32) -> bool {
        let used = match self.control {
            Control::Xcp => pipe + 1,
            Control::Reno => pipe + u64::from(wire_bytes),
        };
        pipe == 0 || used as f64 <= self.bytes
    }

    /// X, the time between packets: under XCP frames are sent at the rate that headers tell, cwnd
    /// over the round-trip time. A window of three and a half frames would else let three go, and
    /// the routers would miss what is rounded off.
    pub(super) fn spacing(&self, wire_bytes: u32, rtt_s: f64) -> Duration {
        match self.control {
            Control::Xcp => seconds(f64::from(wire_bytes) * rtt_s / self.bytes),
            Control::Reno => Duration::ZERO,
        }
    }

    /// A frame was acknowledged: XCP follows its feedback, Reno grows if `may_grow` (RFC 5681
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

    /// The first loss in a round trip: half the window (RFC 5681 Eq. (4); XCP's reference code does
    /// the same).
    pub(super) fn on_loss(&mut self) {
        self.threshold = (self.bytes / 2.0).max(2.0 * self.frame);
        self.bytes = match self.control {
            Control::Xcp => (self.bytes / 2.0).max(self.frame),
            Control::Reno => self.threshold,
        };
    }

    /// The retransmission timer ran out; `again` without any acknowledgement since it last did: the
    /// threshold stays.
    pub(super) fn on_timeout(&mut self, again: bool) {
        if !again {
            self.on_loss();
        }
        self.bytes = self.frame;
    }

    /// Nothing was sent for a while: what the window was says nothing about the network any more
    /// (RFC 5681 section 4.1).
    pub(super) fn restart(&mut self) {
        self.bytes = self.bytes.min(self.initial);
    }

    /// The header of a frame of `wire_bytes`, to a network whose round-trip time is `rtt_s`, 0
    /// where it is unknown. It asks for as much as gives the largest useful window after a round
    /// trip, but for nothing if the window `is_used` not.
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
                // Rounded up: what is a fraction short of a whole frame is a frame short.
                let share = f64::from(wire_bytes) / self.bytes;
                Congestion {
                    cwnd,
                    rtt_us: libm::ceil(rtt_s * 1e6) as u32,
                    feedback: WindowChange(libm::ceil(wanted * share * 256.0) as i32),
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
    fn what_xcp_asks_for_opens_the_window_in_a_round_trip() {
        let mut window = window(Control::Xcp);
        let asked = window.header(1000, 0.1, true);
        assert_eq!((asked.cwnd, asked.rtt_us), (2000, 100_000));
        (0..2).for_each(|_| window.on_ack(asked.feedback, false));
        assert_eq!(window.frames(), 100.0);
        assert_eq!(window.header(1000, 0.1, true).feedback, WindowChange(0));
    }

    #[test]
    fn rounding_leaves_no_window_a_frame_short() {
        for initial in 1..100 {
            let mut window = window(Control::Xcp);
            window.bytes = 1000.0 * f64::from(initial);
            let asked = window.header(1000, 0.1, true).feedback;
            (0..initial).for_each(|_| window.on_ack(asked, false));
            assert_eq!(window.frames(), 100.0, "{initial}");
        }
    }

    #[test]
    fn xcp_asks_for_nothing_that_it_would_not_use() {
        let window = window(Control::Xcp);
        assert_eq!(window.header(1000, 0.1, false).feedback, WindowChange(0));
    }

    #[test]
    fn feedback_leaves_one_frame_at_least() {
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
