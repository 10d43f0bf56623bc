//! The acceptable rate (Eq. (1)), and the loss interval that a first loss implies.

use core::time::Duration;

use manyflow_core::estimate::tcp_equation::TcpEquation;

/// Returns the rate in bytes per second at which TCP would send packets of `packet_bytes`, at a
/// loss event rate of `p` (Eq. (1)).
pub(super) fn acceptable_bytes_per_s(
    equation: TcpEquation,
    packet_bytes: f64,
    rtt: Duration,
    p: f64,
) -> f64 {
    packet_bytes * equation.full_rate_packets_per_s(rtt.as_secs_f64(), p)
}

/// Returns the number of packets between loss events at which TCP would send at the rate that was
/// received before the first loss (RFC 5348 section 6.3.1). The number of packets before that loss
/// depends on slow start and says little about the path. Received rates below a packet in two
/// round-trip times count as that rate.
pub(super) fn first_interval(
    equation: TcpEquation,
    rtt: Duration,
    received_packets_per_s: f64,
) -> f64 {
    let rtt_s = rtt.as_secs_f64();
    let target = received_packets_per_s.max(0.5 / rtt_s);
    1.0 / equation.full_loss_probability(rtt_s, target)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RENO: TcpEquation = TcpEquation::RENO;

    const SITES: [&str; 6] = ["Zikit1", "RON0", "RON2", "RON33", "RON35", "RON45"];

    /// A table of the paper: columns are senders, rows receivers, and 0 is a blank.
    type Table = [[f64; 6]; 6];

    /// Table 1: round-trip times in milliseconds.
    const RTT_MS: Table = [
        [0.0, 170.92, 282.15, 205.25, 277.99, 213.99],
        [170.62, 0.0, 120.18, 51.67, 122.20, 62.82],
        [260.60, 91.95, 0.0, 57.65, 77.15, 57.87],
        [236.30, 50.00, 85.70, 0.0, 85.59, 26.68],
        [299.13, 121.32, 96.58, 76.23, 0.0, 59.80],
        [242.47, 62.29, 58.75, 25.27, 59.64, 0.0],
    ];

    /// Table 2: loss rates in percent.
    const LOSS: Table = [
        [0.0, 0.0, 2.90, 0.0, 7.63, 2.33],
        [0.33, 0.0, 3.42, 0.0, 7.40, 2.47],
        [4.20, 2.87, 0.0, 3.39, 6.35, 1.96],
        [0.33, 0.0, 3.31, 0.0, 7.84, 2.67],
        [4.80, 3.26, 3.34, 4.36, 0.0, 1.50],
        [1.15, 0.82, 0.71, 0.63, 4.85, 0.0],
    ];

    /// Table 3: acceptable rates in Mbit/s.
    const RATE_MBPS: Table = [
        [0.0, 0.0, 0.16, 0.0, 0.07, 0.24],
        [0.96, 0.0, 0.33, 0.0, 0.16, 0.80],
        [0.13, 0.49, 0.0, 0.69, 0.30, 1.02],
        [0.69, 0.0, 0.48, 0.0, 0.22, 1.79],
        [0.10, 0.34, 0.42, 0.43, 0.0, 1.17],
        [0.34, 1.60, 1.84, 4.58, 0.50, 0.0],
    ];

    #[test]
    fn tables_1_and_2_give_table_3_with_packets_of_1400_bytes() {
        let mut cells = 0;
        for (row, receiver) in SITES.iter().enumerate() {
            let mut line = format!("{receiver:>7}");
            for column in 0..SITES.len() {
                let paper = RATE_MBPS[row][column];
                let p = LOSS[row][column] / 100.0;
                assert_eq!(p > 0.0, paper > 0.0, "only cells without loss are blank");
                if p == 0.0 {
                    line += &format!("{:>14}", "-");
                    continue;
                }
                let rtt = Duration::from_secs_f64(RTT_MS[row][column] / 1000.0);
                let ours = acceptable_bytes_per_s(RENO, 1400.0, rtt, p) * 8.0 / 1e6;
                line += &format!("{paper:>7.2} {ours:>6.3}");
                // The paper prints hundredths: half of one may be lost by rounding. In addition, 3
                // % are allowed.
                assert!(
                    (ours - paper).abs() <= 0.03 * paper + 0.005,
                    "{receiver} from {}: {ours}, but the paper has {paper}",
                    SITES[column]
                );
                cells += 1;
            }
            println!("{line}");
        }
        assert_eq!(cells, 26);
    }

    #[test]
    fn a_first_interval_reproduces_the_received_rate() {
        let rtt = Duration::from_millis(100);
        let interval = first_interval(RENO, rtt, 500.0);
        let rate = acceptable_bytes_per_s(RENO, 1.0, rtt, 1.0 / interval);
        assert!((rate / 500.0 - 1.0).abs() < 1e-6, "{rate}");
        let slowest = acceptable_bytes_per_s(RENO, 1.0, rtt, 1.0 / first_interval(RENO, rtt, 0.0));
        assert!((slowest / 5.0 - 1.0).abs() < 1e-6, "{slowest}");
    }
}
