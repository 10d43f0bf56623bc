//! The rate of a TCP connection as an equation, at which WEBRC and TFRC aim.
//!
//! RFC 3738 section 3.2.2.3 has rounded constants; Eq. (1) and (6) of the WEBRC paper, with
//! sqrt(3/2) and 9, agree with it to a thousandth. Many-to-many TFRC uses the full equation, for a
//! TCP that acknowledges every second packet.

/// Returns the TCP rate in packets per second, for a round-trip time in seconds and a loss event
/// probability in (0, 1].
///
/// RFC 3738 section 3.2.2.3: `REQN = 1 / (ARTT sqrt(LOSSP) (0.816 + 7.35 LOSSP (1 + 32 LOSSP^2)))`.
pub fn rate_packets_per_s(rtt_s: f64, loss_probability: f64) -> f64 {
    let p = loss_probability;
    1.0 / (rtt_s * p.sqrt() * (0.816 + 7.35 * p * (1.0 + 32.0 * p * p)))
}

/// Returns the rate of the full equation, for acknowledgements of every second packet and a
/// time-out of four round-trip times. It is Eq. (1) of Xpand's paper, which is Eq. (30) of Padhye,
/// Firoiu, Towsley and Kurose without a limit by the window, with b = 2 and RTO = 4 RTT.
///
/// `1 / (RTT sqrt(2 b p / 3) + RTO min(1, sqrt(27 b p / 8)) p (1 + 32 p^2))`
pub fn full_rate_packets_per_s(rtt_s: f64, loss_probability: f64) -> f64 {
    const B: f64 = 2.0;
    let p = loss_probability;
    let rto_s = 4.0 * rtt_s;
    let timeouts = (27.0 * B * p / 8.0).sqrt().min(1.0) * p * (1.0 + 32.0 * p * p);
    1.0 / (rtt_s * (2.0 * B * p / 3.0).sqrt() + rto_s * timeouts)
}

/// Returns the loss event probability at which [`rate_packets_per_s`] gives `rate`, within (0, 1].
pub fn loss_probability(rtt_s: f64, rate_packets_per_s_wanted: f64) -> f64 {
    inverse(rate_packets_per_s_wanted, |p| rate_packets_per_s(rtt_s, p))
}

/// Returns the loss event probability at which [`full_rate_packets_per_s`] gives `rate`, within (0,
/// 1].
pub fn full_loss_probability(rtt_s: f64, rate_packets_per_s_wanted: f64) -> f64 {
    inverse(rate_packets_per_s_wanted, |p| {
        full_rate_packets_per_s(rtt_s, p)
    })
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
    use super::*;

    #[test]
    fn the_papers_example_holds() {
        // Section 5.1.1: p = 0.0089 and 0.2 s give 60.1 packets per second.
        let rate = rate_packets_per_s(0.2, 0.0089);
        assert!((rate - 60.1).abs() < 0.2, "{rate}");
    }

    #[test]
    fn the_inverse_reproduces_the_probability() {
        for p in [1e-9, 1e-4, 0.01, 0.1, 0.9] {
            let back = loss_probability(0.05, rate_packets_per_s(0.05, p));
            assert!((back / p - 1.0).abs() < 1e-9, "{p} came back as {back}");
            let back = full_loss_probability(0.05, full_rate_packets_per_s(0.05, p));
            assert!((back / p - 1.0).abs() < 1e-9, "{p} came back as {back}");
        }
    }

    #[test]
    fn a_rate_below_the_range_gives_a_loss_probability_near_one() {
        assert!(loss_probability(1.0, 1e-6) > 0.999);
    }
}
