//! The rate of a TCP connection as an equation: what WEBRC and TFRC aim at.
//!
//! RFC 3738 section 3.2.2.3 writes it with rounded constants; the WEBRC paper's Eq. (1) and (6), sqrt(3/2) and 9, agree
//! with it to a thousandth.

/// The TCP rate in packets per second, for a round-trip time in seconds and a loss event probability in (0, 1].
///
/// RFC 3738 section 3.2.2.3: `REQN = 1 / (ARTT sqrt(LOSSP) (0.816 + 7.35 LOSSP (1 + 32 LOSSP^2)))`.
pub fn rate_packets_per_s(rtt_s: f64, loss_probability: f64) -> f64 {
    let p = loss_probability;
    1.0 / (rtt_s * p.sqrt() * (0.816 + 7.35 * p * (1.0 + 32.0 * p * p)))
}

/// The loss event probability at which [`rate_packets_per_s`] gives `rate`, within (0, 1].
///
/// The equation falls with the probability, so bisection finds it; in logarithms, because it spans ten decades.
pub fn loss_probability(rtt_s: f64, rate_packets_per_s_wanted: f64) -> f64 {
    let (mut low, mut high) = (libm::log(1e-14), 0.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if rate_packets_per_s(rtt_s, libm::exp(middle)) > rate_packets_per_s_wanted {
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
    fn the_inverse_gives_back_the_probability() {
        for p in [1e-9, 1e-4, 0.01, 0.1, 0.9] {
            let back = loss_probability(0.05, rate_packets_per_s(0.05, p));
            assert!((back / p - 1.0).abs() < 1e-9, "{p} came back as {back}");
        }
    }

    #[test]
    fn a_rate_below_the_equations_range_means_that_all_is_lost() {
        assert!(loss_probability(1.0, 1e-6) > 0.999);
    }
}
