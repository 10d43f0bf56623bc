//! The rate of a TCP connection as an equation, at which WEBRC, TFMCC and TFRC aim.
//!
//! RFC 3738 section 3.2.2.3 has rounded constants; Eq. (1) and (6) of the WEBRC paper, with
//! sqrt(3/2) and 9, agree with it to a thousandth. Many-to-many TFRC uses the full equation, for a
//! TCP that acknowledges every second packet.
//!
//! These equations describe Reno. [`ResponseFunction::Cubic`] describes CUBIC (RFC 9438), whose
//! window is larger where the round-trip time is long and loss is rare.

/// The TCP beside which a protocol wants the same rate.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum ResponseFunction {
    /// Reno's average window of sqrt(3/2) / sqrt(p) packets, as in the papers.
    #[default]
    Reno,
    /// The larger of Reno's and CUBIC's average windows.
    Cubic,
}

/// The rate of a TCP as a function of its round-trip time and its loss event probability.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub struct TcpEquation {
    /// The TCP's response to losses.
    pub response: ResponseFunction,
    /// The minimum of the TCP's retransmission time-out (RTO) in seconds. The papers and RFC 3738
    /// have none: their RTO is four round-trip times.
    ///
    /// RFC 6298 has a minimum of 1 s, Linux one of 200 ms, and RFC 5348 section 3.1 allows for
    /// max(4 RTT, 1 s). But the equations count time-outs for losses that a TCP with selective
    /// acknowledgements repairs, so that 1 s for all of them would take two thirds of the rate at a
    /// loss of 1 % and a round-trip time of 10 ms. In a window of less than three packets, no loss
    /// causes three duplicate acknowledgements (RFC 5681 section 3.2), and all are repaired by
    /// time-outs. So the minimum applies to a share of time-outs: (3/W)^3 with a window of W
    /// packets, at most all. This share is this project's choice.
    pub minimum_rto_s: f64,
}

impl TcpEquation {
    /// Reno, without a minimum of the RTO.
    pub const RENO: TcpEquation = TcpEquation {
        response: ResponseFunction::Reno,
        minimum_rto_s: 0.0,
    };
    /// CUBIC, without a minimum of the RTO.
    pub const CUBIC: TcpEquation = TcpEquation {
        response: ResponseFunction::Cubic,
        minimum_rto_s: 0.0,
    };

    /// Returns whether the minimum of the RTO is between 0 and 60 s.
    pub fn is_valid(&self) -> bool {
        (0.0..=60.0).contains(&self.minimum_rto_s)
    }

    /// Returns the TCP rate in packets per second, for a round-trip time in seconds and a loss
    /// event probability in (0, 1].
    ///
    /// RFC 3738 section 3.2.2.3: `REQN = 1 / (ARTT sqrt(LOSSP) (0.816 + 7.35 LOSSP (1 + 32
    /// LOSSP^2)))`. The first term is the round-trip time over Reno's average window, and
    /// [`Cubic`](ResponseFunction::Cubic) puts its own window there; the second is that of
    /// time-outs, which are the same.
    pub fn rate_packets_per_s(self, rtt_s: f64, loss_probability: f64) -> f64 {
        let p = loss_probability;
        let reno = 0.816 * p.sqrt();
        let timeouts = 7.35 * p * p.sqrt() * (1.0 + 32.0 * p * p);
        self.rate(self.response.round_trips(reno, rtt_s, p), timeouts, rtt_s)
    }

    /// Returns the rate of the full equation, with a time-out of four round-trip times. It is
    /// Eq. (1) of Xpand's paper, which is Eq. (30) of Padhye, Firoiu, Towsley and Kurose without a
    /// limit by the window, with b = 2 packets to an acknowledgement and RTO = 4 RTT.
    ///
    /// `1 / (RTT sqrt(2 b p / 3) + RTO min(1, sqrt(27 b p / 8)) p (1 + 32 p^2))`
    ///
    /// [`Cubic`](ResponseFunction::Cubic) has b = 1: CUBIC's window grows with time, and counts
    /// bytes that are acknowledged.
    pub fn full_rate_packets_per_s(self, rtt_s: f64, loss_probability: f64) -> f64 {
        let p = loss_probability;
        let b = match self.response {
            ResponseFunction::Reno => 2.0,
            ResponseFunction::Cubic => 1.0,
        };
        let reno = (2.0 * b * p / 3.0).sqrt();
        let timeouts = 4.0 * (27.0 * b * p / 8.0).sqrt().min(1.0) * p * (1.0 + 32.0 * p * p);
        self.rate(self.response.round_trips(reno, rtt_s, p), timeouts, rtt_s)
    }

    /// Returns the rate in packets per second at which a packet takes `round_trips` of transfer and
    /// `timeouts` of time-outs, both in round-trip times, if the RTO is four of them.
    fn rate(self, round_trips: f64, timeouts: f64, rtt_s: f64) -> f64 {
        let window = 1.0 / (round_trips + timeouts);
        let longer = (self.minimum_rto_s / (4.0 * rtt_s)).max(1.0) - 1.0;
        let share = (3.0 / window).min(1.0);
        let timeouts = timeouts * (1.0 + longer * share * share * share);
        1.0 / (rtt_s * (round_trips + timeouts))
    }

    /// Returns the loss event probability at which
    /// [`rate_packets_per_s`](TcpEquation::rate_packets_per_s) gives `rate`, within (0, 1].
    pub fn loss_probability(self, rtt_s: f64, rate_packets_per_s: f64) -> f64 {
        inverse(rate_packets_per_s, |p| self.rate_packets_per_s(rtt_s, p))
    }

    /// Returns the loss event probability at which
    /// [`full_rate_packets_per_s`](TcpEquation::full_rate_packets_per_s) gives `rate`, within
    /// (0, 1].
    pub fn full_loss_probability(self, rtt_s: f64, rate_packets_per_s: f64) -> f64 {
        inverse(rate_packets_per_s, |p| {
            self.full_rate_packets_per_s(rtt_s, p)
        })
    }
}

impl ResponseFunction {
    /// Returns the number of packets between loss events at which the average window has this many
    /// packets, without time-outs.
    pub fn packets_between_losses(self, rtt_s: f64, window: f64) -> f64 {
        let reno = window * window / 1.5;
        match self {
            ResponseFunction::Reno => reno,
            ResponseFunction::Cubic => {
                let cubic = libm::pow(window / cubic_factor(), 4.0 / 3.0) / rtt_s;
                reno.min(cubic)
            }
        }
    }

    /// Returns the time in which a packet of the average window is sent, in round-trip times, if
    /// it is `reno` with Reno.
    fn round_trips(self, reno: f64, rtt_s: f64, loss_probability: f64) -> f64 {
        match self {
            ResponseFunction::Reno => reno,
            ResponseFunction::Cubic => reno.min(1.0 / cubic_window(rtt_s, loss_probability)),
        }
    }
}

/// Returns CUBIC's average window in packets, without time-outs and outside its Reno-friendly
/// region.
///
/// After a loss the window is `W(t) = C (t - K)^3 + W_max`, with `W(0) = beta W_max`, thus
/// `K^3 = W_max (1 - beta) / C`. With a loss in every 1/p packets it reaches `W_max` again after
/// K, when `K W_max / RTT (3 + beta) / 4 = 1/p` packets are sent. So the average window
/// `W_max (3 + beta) / 4` is `(C (3 + beta) / (4 (1 - beta)))^(1/4) (RTT / p)^(3/4)` (RFC 9438
/// section 5). With C = 0.4 and beta = 0.7, the factor is 1.054.
fn cubic_window(rtt_s: f64, loss_probability: f64) -> f64 {
    cubic_factor() * libm::pow(rtt_s / loss_probability, 0.75)
}

fn cubic_factor() -> f64 {
    const C: f64 = 0.4;
    const BETA: f64 = 0.7;
    (C * (3.0 + BETA) / (4.0 * (1.0 - BETA))).sqrt().sqrt()
}

/// Inverts an equation by bisection, as it falls with the probability. Bisects logarithms, because
/// the probabilities span ten decades.
fn inverse(wanted: f64, rate: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (libm::log(1e-14), 0.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if rate(libm::exp(middle)) > wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    libm::exp((low + high) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::ResponseFunction::{Cubic, Reno};
    use super::TcpEquation;

    const RENO: TcpEquation = TcpEquation::RENO;
    const CUBIC: TcpEquation = TcpEquation::CUBIC;

    #[test]
    fn the_papers_example_holds() {
        // Section 5.1.1: p = 0.0089 and 0.2 s give 60.1 packets per second.
        let rate = RENO.rate_packets_per_s(0.2, 0.0089);
        assert!((rate - 60.1).abs() < 0.2, "{rate}");
    }

    #[test]
    fn the_inverse_reproduces_the_probability() {
        for function in [RENO, CUBIC] {
            for p in [1e-9, 1e-4, 0.01, 0.1, 0.9] {
                let back = function.loss_probability(0.05, function.rate_packets_per_s(0.05, p));
                assert!((back / p - 1.0).abs() < 1e-9, "{p} came back as {back}");
                let rate = function.full_rate_packets_per_s(0.05, p);
                let back = function.full_loss_probability(0.05, rate);
                assert!((back / p - 1.0).abs() < 1e-9, "{p} came back as {back}");
            }
        }
    }

    #[test]
    fn a_rate_below_the_range_gives_a_loss_probability_near_one() {
        assert!(RENO.loss_probability(1.0, 1e-6) > 0.999);
    }

    /// RFC 9438 section 5 has the average windows of Reno and CUBIC for round-trip times of 0.1 s
    /// and 0.01 s.
    #[test]
    fn the_windows_are_those_of_the_tables_of_rfc_9438() {
        for (p, reno, at_100_ms, at_10_ms) in [
            (1e-2_f64, 12.0, 12.0, 12.0),
            (1e-3, 38.0, 38.0, 38.0),
            (1e-4, 120.0, 187.0, 120.0),
            (1e-5, 379.0, 1_054.0, 379.0),
            (1e-6, 1_200.0, 5_926.0, 1_200.0),
            (1e-7, 3_795.0, 33_325.0, 5_926.0),
            (1e-8, 12_000.0, 187_400.0, 33_325.0),
        ] {
            for (function, rtt_s, window) in [
                (Reno, 0.1, reno),
                (Cubic, 0.1, at_100_ms),
                (Cubic, 0.01, at_10_ms),
            ] {
                // The tables are without time-outs, and their Reno has b = 1 and the factor 1.2.
                let without_timeouts = 1.0 / function.round_trips(0.816 * p.sqrt(), rtt_s, p);
                let ratio = without_timeouts / window;
                assert!(
                    (ratio - 1.0).abs() < 0.035,
                    "{function:?} {rtt_s} s, {p}: {ratio}"
                );
            }
        }
    }

    #[test]
    fn packets_between_losses_are_those_of_the_window() {
        for (function, rtt_s) in [(Reno, 0.1), (Cubic, 0.1), (Cubic, 0.01)] {
            for window in [4.0, 40.0, 4_000.0] {
                let p = 1.0 / function.packets_between_losses(rtt_s, window);
                let back = 1.0 / function.round_trips((p / 1.5).sqrt(), rtt_s, p);
                assert!((back / window - 1.0).abs() < 1e-9, "{back} of {window}");
            }
        }
    }

    #[test]
    fn cubic_has_renos_rate_where_time_outs_rule() {
        for p in [0.05, 0.2, 1.0] {
            let ratio = CUBIC.rate_packets_per_s(0.1, p) / RENO.rate_packets_per_s(0.1, p);
            assert!((ratio - 1.0).abs() < 1e-12, "{ratio} at {p}");
        }
    }

    #[test]
    fn a_minimum_of_the_rto_lowers_the_rates_of_small_windows_only() {
        let with = TcpEquation {
            minimum_rto_s: 1.0,
            ..RENO
        };
        for (rtt_s, p, expected) in [
            // A window of 1.8 packets: all time-outs take 1 s instead of 108 ms.
            (0.027, 0.1, 0.17..0.19),
            // 11.2 packets: 2 % of the time-outs take 1 s instead of 40 ms.
            (0.01, 0.01, 0.95..0.97),
            // The RTO is longer than the minimum anyway.
            (0.3, 0.05, 0.999..1.001),
        ] {
            let ratio = with.rate_packets_per_s(rtt_s, p) / RENO.rate_packets_per_s(rtt_s, p);
            assert!(expected.contains(&ratio), "{rtt_s} s, {p}: {ratio}");
            let rate = with.rate_packets_per_s(rtt_s, p);
            let back = with.loss_probability(rtt_s, rate);
            assert!((back / p - 1.0).abs() < 1e-9, "{p} came back as {back}");
        }
    }
}
