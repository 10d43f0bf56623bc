//! CUBIC's congestion avoidance (RFC 9438 section 4). Windows are in segments, times in seconds.
//!
//! [`Cubic`] has no window of its own: its caller has slow start, the window and its bounds, and
//! decides which losses are one congestion event.

use crate::time::{Time, seconds};

/// C: the steepness of the curve, in segments per second cubed (section 5).
const C: f64 = 0.4;
/// beta_cubic: the share of the window that remains after congestion (section 4.6).
const BETA: f64 = 0.7;
/// alpha_cubic: the increase with which Reno's window, reduced by BETA, has Reno's average (section
/// 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The state of congestion avoidance.
#[derive(Clone, Debug, Default)]
pub struct Cubic {
    /// W_max: the plateau of the curve; 0 before any congestion and after a time-out (section 4.8).
    plateau: f64,
    /// cwnd_prior: the window at the last congestion.
    prior: f64,
    epoch: Option<Epoch>,
    /// Something else has limited the window since it last grew.
    stands: bool,
}

/// The period of congestion avoidance since the last congestion.
#[derive(Clone, Debug)]
struct Epoch {
    start: Time,
    /// W_max of this epoch.
    plateau: f64,
    /// K: the time in seconds at which the curve reaches its plateau (Figure 2).
    plateau_s: f64,
    /// W_est: the window that Reno would have (Figure 4).
    reno: f64,
}

impl Epoch {
    fn new(start: Time, window: f64, plateau: f64) -> Epoch {
        Epoch {
            start,
            plateau: plateau.max(window),
            plateau_s: libm::cbrt((plateau - window).max(0.0) / C),
            reno: window,
        }
    }

    /// Moves the curve so that it has `window` segments now, unless it has less.
    fn continue_at(&mut self, now: Time, window: f64) {
        let t_s = self.plateau_s + libm::cbrt((window - self.plateau) / C);
        if t_s < 0.0 {
            *self = Epoch::new(now, window, self.plateau);
            return;
        }
        let passed_s = (now - self.start).as_secs_f64();
        self.start += seconds((passed_s - t_s).max(0.0));
        self.reno = self.reno.min(window);
    }

    /// Returns W_cubic(t) (Figure 1).
    fn curve(&self, t_s: f64) -> f64 {
        let x = t_s - self.plateau_s;
        C * x * x * x + self.plateau
    }
}

impl Cubic {
    /// Returns the window of `window` segments after an acknowledgement of `acknowledged` segments,
    /// while the round-trip time is `rtt_s` (sections 4.2 to 4.5). The window never shrinks by it,
    /// and grows at most by half in a round trip unless Reno's would be larger.
    pub fn grown(&mut self, now: Time, window: f64, acknowledged: f64, rtt_s: f64) -> f64 {
        let plateau = self.plateau;
        let epoch = self
            .epoch
            .get_or_insert_with(|| Epoch::new(now, window, plateau));
        if core::mem::take(&mut self.stands) {
            epoch.continue_at(now, window);
        }
        let alpha = if epoch.reno < self.prior { ALPHA } else { 1.0 };
        epoch.reno += alpha * acknowledged / window;
        let t_s = (now - epoch.start).as_secs_f64();
        if epoch.curve(t_s) < epoch.reno {
            return window.max(epoch.reno);
        }
        let target = epoch.curve(t_s + rtt_s).clamp(window, 1.5 * window);
        (window + (target - window) / window * acknowledged).min(target)
    }

    /// Returns the window that remains of `window` after congestion (section 4.6), with fast
    /// convergence (section 4.7).
    pub fn on_congestion(&mut self, window: f64) -> f64 {
        self.plateau = if window < self.plateau {
            window * (1.0 + BETA) / 2.0
        } else {
            window
        };
        self.prior = window;
        self.epoch = None;
        window * BETA
    }

    /// Notes that something else limits the window: the time until it grows again does not count
    /// (section 5.8). The curve then continues from the point that has the window's size.
    pub fn stand(&mut self) {
        self.stands = true;
    }

    /// Ends the epoch: time in which the window did not limit the sender does not count (section
    /// 5.8).
    pub fn end_epoch(&mut self) {
        self.epoch = None;
    }

    /// Lets the next epoch begin at its plateau, after a time-out (section 4.8).
    pub fn on_timeout(&mut self) {
        self.plateau = 0.0;
        self.epoch = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Grows the window for `seconds`, with round-trip times of `rtt_s` and one acknowledgement for
    /// each segment.
    fn grow(cubic: &mut Cubic, mut window: f64, seconds: f64, rtt_s: f64) -> f64 {
        let mut now_s = 0.0;
        while now_s < seconds {
            now_s += rtt_s / window;
            window = cubic.grown(Time::from_secs_f64(now_s), window, 1.0, rtt_s);
        }
        window
    }

    #[test]
    fn the_window_returns_to_its_plateau_after_k_seconds() {
        let mut cubic = Cubic::default();
        let window = cubic.on_congestion(1000.0);
        assert_eq!(window, 700.0);
        let k_s = libm::cbrt(1000.0 * 0.3 / 0.4);
        let back = grow(&mut cubic, window, k_s, 0.1);
        assert!((back - 1000.0).abs() < 5.0, "{back}");
    }

    #[test]
    fn on_a_short_path_it_grows_as_reno_would() {
        let mut cubic = Cubic::default();
        let window = cubic.on_congestion(20.0);
        let back = grow(&mut cubic, window, 0.05, 0.005);
        assert!((back - (14.0 + 10.5 * ALPHA)).abs() < 0.3, "{back}");
    }

    #[test]
    fn fast_convergence_lowers_the_plateau_of_a_window_that_shrinks() {
        let mut cubic = Cubic::default();
        cubic.on_congestion(100.0);
        cubic.on_congestion(80.0);
        assert_eq!(cubic.plateau, 68.0);
    }

    #[test]
    fn a_curve_continues_where_something_else_has_held_the_window() {
        let grown = |held_s: f64| {
            let mut cubic = Cubic::default();
            let window = cubic.on_congestion(1000.0);
            let before = grow(&mut cubic, window, 14.0, 0.1);
            let now = Time::from_secs_f64(14.0 + held_s);
            if held_s > 0.0 {
                cubic.stand();
            }
            cubic.grown(now, before, 1.0, 0.1) - before
        };
        // Beyond the plateau, where a new epoch would begin without growth.
        assert!(grown(0.0) > 0.002, "{}", grown(0.0));
        // A window that grows has half of the curve's second derivative times the square of the
        // round-trip time more than the curve, so the target is 2 % nearer to it.
        let ratio = grown(30.0) / grown(0.0);
        assert!((ratio - 1.0).abs() < 0.03, "{ratio}");
    }
}
