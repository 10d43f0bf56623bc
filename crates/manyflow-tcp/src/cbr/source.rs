//! A source that sends at its own times, whether or not its packets arrive.

use core::convert::Infallible;
use core::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{Datagram, HEADER_BYTES};
use crate::cbr::Event;
pub use manyflow_core::ConfigError;
use manyflow_core::interval::Interval;
use manyflow_core::time::{Time, seconds};
use manyflow_core::units::Rate;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Destination, Packet};

/// The configuration of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceConfig {
    /// The endpoint or multicast channel to which packets are sent.
    pub destination: Destination,
    /// The rate while the source is on, counting whole packets; not zero.
    pub rate: Rate,
    /// The bytes of a packet on a link, including [`HEADER_BYTES`]; at most 65,535.
    pub packet_bytes: u32,
    /// How the packets are distributed in time.
    pub pattern: Pattern,
    /// The time at which the source begins.
    pub start: Time,
    /// The time at which the source ends.
    pub stop: Option<Time>,
}

/// How packets are distributed in time.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pattern {
    /// Packets are sent at equal intervals.
    #[default]
    Constant,
    /// Packets are sent at equal intervals while the source is on. The mean rate is `on / (on +
    /// off)` of the rate.
    OnOff {
        /// The time for which the source is on, or its mean; at least a hundredth of the interval
        /// between packets.
        on: Duration,
        /// The time for which the source is off, or its mean.
        off: Duration,
        /// Whether the periods vary.
        periods: Periods,
    },
    /// Packets are sent at exponentially distributed intervals.
    Poisson,
}

/// The lengths of on and off periods.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Periods {
    /// All periods have the same length.
    #[default]
    Fixed,
    /// The lengths of periods are exponentially distributed.
    Exponential,
}

/// A source of datagrams.
#[derive(Debug)]
pub struct Source {
    config: SourceConfig,
    random: Pcg64Mcg,
    interval: Interval,
    /// The time at which the next packet is sent.
    due: Time,
    /// The remaining time of the on period when the next packet is sent.
    on_left: Duration,
    sequence: u32,
}

impl SourceConfig {
    fn check(&self) -> Result<(), ConfigError> {
        let size = HEADER_BYTES..=u32::from(u16::MAX);
        let interval_s = 1.0 / self.rate.packets_per_s(self.packet_bytes);
        let long_enough = match self.pattern {
            Pattern::OnOff { on, .. } => {
                on > Duration::ZERO && on.as_secs_f64() * 100.0 >= interval_s
            }
            Pattern::Constant | Pattern::Poisson => true,
        };
        let checks = [
            (
                "the rate",
                "1 bit/s to 1 Tbit/s",
                (1..=1_000_000_000_000).contains(&self.rate.bits_per_s()),
            ),
            (
                "the packet size",
                "28 to 65,535 bytes",
                size.contains(&self.packet_bytes),
            ),
            (
                "the on period",
                "at least a hundredth of the interval between packets",
                long_enough,
            ),
        ];
        ConfigError::first_of(checks)
    }
}

impl Source {
    /// Creates a source whose random times come from `seed`.
    ///
    /// # Errors
    /// Names the first parameter that is outside its range.
    pub fn new(config: SourceConfig, seed: u64) -> Result<Source, ConfigError> {
        config.check()?;
        let mut source = Source {
            random: Pcg64Mcg::seed_from_u64(seed),
            interval: Interval::new(config.packet_bytes, config.rate),
            due: config.start,
            on_left: Duration::ZERO,
            sequence: 0,
            config,
        };
        match source.config.pattern {
            Pattern::Constant => {}
            Pattern::OnOff { on, periods, .. } => source.on_left = source.period(on, periods),
            Pattern::Poisson => {
                let first = source.gap();
                source.due += first;
            }
        }
        Ok(source)
    }

    /// Returns the number of packets sent.
    pub fn sent(&self) -> u32 {
        self.sequence
    }

    /// Returns the time from the packet that is due to the next one.
    fn gap(&mut self) -> Duration {
        let interval = self.interval.advance();
        match self.config.pattern {
            Pattern::Constant => interval,
            Pattern::OnOff { on, off, periods } => {
                interval + self.time_off(interval, on, off, periods)
            }
            Pattern::Poisson => self.exponential(interval),
        }
    }

    /// Returns the total length of the off periods that pass while the source is on for `interval`.
    fn time_off(
        &mut self,
        mut interval: Duration,
        on: Duration,
        off: Duration,
        periods: Periods,
    ) -> Duration {
        let mut time_off = Duration::ZERO;
        while self.on_left <= interval {
            interval -= self.on_left;
            time_off += self.period(off, periods);
            self.on_left = self.period(on, periods);
        }
        self.on_left -= interval;
        time_off
    }

    fn period(&mut self, mean: Duration, periods: Periods) -> Duration {
        match periods {
            Periods::Fixed => mean,
            Periods::Exponential => self.exponential(mean),
        }
    }

    fn exponential(&mut self, mean: Duration) -> Duration {
        let below_one: f64 = self.random.random();
        seconds(-libm::log1p(-below_one) * mean.as_secs_f64())
    }

    fn next_due(&self) -> Option<Time> {
        let stopped = self.config.stop.is_some_and(|stop| self.due >= stop);
        (!stopped).then_some(self.due)
    }
}

impl Endpoint for Source {
    type Rx = Infallible;
    type Tx = Datagram;
    type Event = Event;

    /// Does nothing: a source expects no packets.
    fn handle_packet(&mut self, _now: Time, _packet: &Packet<Infallible>) {}

    #[inline]
    fn handle_timeout(&mut self, _now: Time) {}

    #[inline]
    fn poll_action(&mut self, now: Time) -> Option<Action<Datagram>> {
        self.next_due().filter(|due| now >= *due)?;
        let sequence = self.sequence;
        self.sequence = sequence.wrapping_add(1);
        let gap = self.gap();
        self.due += gap;
        Some(Action::Send(Packet::new(
            self.config.destination,
            Datagram { sequence },
            self.config.packet_bytes - HEADER_BYTES,
        )))
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Time> {
        self.next_due()
    }

    #[inline]
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_core::EndpointId;

    fn config(pattern: Pattern) -> SourceConfig {
        SourceConfig {
            destination: Destination::Endpoint(EndpointId(7)),
            rate: Rate::from_bits_per_s(800_000),
            packet_bytes: 1000,
            pattern,
            start: Time::ZERO,
            stop: Some(Time::from_secs_f64(1000.0)),
        }
    }

    /// Returns the times at which a source sends, in milliseconds.
    fn times_ms(config: SourceConfig, seed: u64) -> Vec<f64> {
        let mut source = Source::new(config, seed).unwrap();
        let mut times = Vec::new();
        while let Some(now) = source.poll_timeout() {
            let Some(Action::Send(packet)) = source.poll_action(now) else {
                panic!("a source that is due sends");
            };
            assert_eq!(packet.wire_bytes(), 1000);
            assert_eq!(
                packet.header,
                Datagram {
                    sequence: times.len() as u32
                }
            );
            times.push(now.as_secs_f64() * 1e3);
        }
        times
    }

    #[test]
    fn a_constant_rate_does_not_drift() {
        let times = times_ms(config(Pattern::Constant), 1);
        assert_eq!((times[1], times.len()), (10.0, 100_000));
        let third = SourceConfig {
            rate: Rate::from_bits_per_s(2_400_000),
            ..config(Pattern::Constant)
        };
        let times = times_ms(third, 1);
        assert_eq!((times[299_997], times.len()), (999_990.0, 300_000));
    }

    #[test]
    fn fixed_periods_send_only_while_on() {
        let (on, off) = (Duration::from_millis(35), Duration::from_millis(65));
        let times = times_ms(
            config(Pattern::OnOff {
                on,
                off,
                periods: Periods::Fixed,
            }),
            1,
        );
        let expected = [0.0, 10.0, 20.0, 30.0, 105.0, 115.0, 125.0, 200.0];
        times
            .iter()
            .zip(expected)
            .for_each(|(t, e)| assert!((t - e).abs() < 1e-6));
        assert_eq!(times.len(), 35_000);
        let mut in_period = times.iter().map(|t| (t + 1e-6) % 100.0);
        assert!(in_period.all(|t| t < 35.0));
    }

    #[test]
    fn exponential_periods_keep_the_mean_rate() {
        let (on, off) = (Duration::from_millis(500), Duration::from_millis(1500));
        let pattern = Pattern::OnOff {
            on,
            off,
            periods: Periods::Exponential,
        };
        let counts: Vec<usize> = (0..20)
            .map(|seed| times_ms(config(pattern), seed).len())
            .collect();
        let mean = counts.iter().sum::<usize>() as f64 / 20.0;
        assert!((mean / 25_000.0 - 1.0).abs() < 0.03, "{mean}");
    }

    #[test]
    fn poisson_intervals_have_the_mean_and_spread_of_an_exponential() {
        let times = times_ms(config(Pattern::Poisson), 3);
        let gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance =
            gaps.iter().map(|g| (g - mean) * (g - mean)).sum::<f64>() / gaps.len() as f64;
        assert!((mean - 10.0).abs() < 0.1, "{mean}");
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn the_seed_decides() {
        let run = |seed| times_ms(config(Pattern::Poisson), seed);
        assert_eq!(run(5), run(5));
        assert_ne!(run(5), run(6));
    }

    #[test]
    fn an_on_period_without_packets_is_refused() {
        let pattern = Pattern::OnOff {
            on: Duration::from_micros(50),
            off: Duration::ZERO,
            periods: Periods::Fixed,
        };
        let error = Source::new(config(pattern), 1).unwrap_err().to_string();
        assert!(error.contains("the on period"), "{error}");
    }
}
