//! The receive rate (RFC 4654 section 4.3.4).
//!
//! The meter has a complete window and an open one, each k/2 round-trip times long, or one packet
//! if packets are rarer. The rate is taken over both, so over k/2 to k round-trip times.

use core::time::Duration;

use manyflow_core::Time;

/// Measures the receive rate.
#[derive(Debug)]
pub(super) struct Meter {
    /// The arrival that began the complete window. That packet itself does not count.
    since: Time,
    last_bits: f64,
    window_since: Time,
    window_bits: f64,
    last_arrival: Time,
}

impl Meter {
    /// A meter that starts with a packet. The packet does not count: its interval is unknown.
    pub(super) fn new(now: Time) -> Meter {
        Meter {
            since: now,
            last_bits: 0.0,
            window_since: now,
            window_bits: 0.0,
            last_arrival: now,
        }
    }

    /// Counts a packet. `span` is k round-trip times.
    pub(super) fn on_packet(&mut self, now: Time, bits: f64, span: Duration) {
        debug_assert!(now >= self.last_arrival, "time does not go back");
        if now - self.window_since >= span / 2 && self.window_bits > 0.0 {
            (self.since, self.last_bits) = (self.window_since, self.window_bits);
            (self.window_since, self.window_bits) = (self.last_arrival, 0.0);
        }
        self.window_bits += bits;
        self.last_arrival = now;
    }

    /// X_recv in bits per second, up to the last arrival; `None` before the second packet.
    pub(super) fn bits_per_s(&self) -> Option<f64> {
        let span_s = (self.last_arrival - self.since).as_secs_f64();
        (span_s > 0.0).then(|| (self.last_bits + self.window_bits) / span_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    /// Counts packets of 8000 bits with this spacing from one time to another.
    fn run(meter: &mut Meter, from_s: f64, to_s: f64, spacing_s: f64, span: Duration) {
        let packets = ((to_s - from_s) / spacing_s) as u32;
        for i in 1..=packets {
            meter.on_packet(at(from_s + f64::from(i) * spacing_s), 8000.0, span);
        }
    }

    #[test]
    fn one_packet_makes_no_rate_and_two_do() {
        let mut meter = Meter::new(at(1.0));
        assert_eq!(meter.bits_per_s(), None);
        meter.on_packet(at(1.5), 8000.0, Duration::from_secs(1));
        assert_eq!(meter.bits_per_s(), Some(16_000.0));
    }

    #[test]
    fn a_constant_rate_is_measured_exactly_however_rare_the_packets() {
        for spacing_s in [0.001, 0.1, 10.0] {
            let mut meter = Meter::new(at(0.0));
            run(
                &mut meter,
                0.0,
                200.0,
                spacing_s,
                Duration::from_millis(400),
            );
            let rate = meter.bits_per_s().unwrap() * spacing_s / 8000.0;
            assert!((rate - 1.0).abs() < 1e-3, "{spacing_s} s: {rate}");
        }
    }

    #[test]
    fn a_new_rate_is_found_within_the_span() {
        let span = Duration::from_millis(400);
        let mut meter = Meter::new(at(0.0));
        run(&mut meter, 0.0, 10.0, 0.01, span);
        run(&mut meter, 10.0, 10.5, 0.001, span);
        let rate = meter.bits_per_s().unwrap();
        assert!((rate / 8e6 - 1.0).abs() < 0.03, "{rate}");
    }
}
