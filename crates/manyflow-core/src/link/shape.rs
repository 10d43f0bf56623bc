//! Rates of wireless links, as opportunities that a generator draws.
//!
//! A shape has the form of a rate trace (`rate_trace.rs`): in each millisecond some opportunities,
//! each for a packet of the maximum size. It never ends, and another seed gives another course.
//! `docs/paths.md` has the sources of the constants below; those without a source were chosen here.

use core::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::rate_trace::{FULL_PACKET_BYTES, RateTrace, RateTraceError};
use crate::units::Rate;

/// A model of a link whose rate varies by itself.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The kind of link.
    pub kind: ShapeKind,
    /// The average rate of full packets over a long time. It is above 0.
    pub mean: Rate,
    /// The average time of an outage; see [`ShapeKind::outage`].
    pub outage: Duration,
}

/// A kind of wireless link.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShapeKind {
    /// LTE, with the model of Sprout (Winstein, Sivaraman and Balakrishnan 2013): packets leave as
    /// a Poisson process, whose rate is a Brownian motion. When the rate reaches 0, an outage
    /// follows.
    Lte,
    /// 5G at millimetre waves: a line of sight that people block (MacCartney, Rappaport and Rangan
    /// 2017).
    MmWave,
    /// Wi-Fi: steps of rate adaptation, and other stations that take turns.
    Wifi,
    /// Starlink: another satellite, rate and delay every 15 s, after a short outage (Huston 2024;
    /// Mohan et al. 2024).
    Starlink,
}

impl ShapeKind {
    /// Returns the default for the average time of an outage: of no packets with LTE, of a blocked
    /// line of sight with 5G, and of a change of satellites with Starlink. Wi-Fi has none.
    pub fn outage(self) -> Duration {
        Duration::from_millis(match self {
            ShapeKind::Lte => 200,
            ShapeKind::MmWave => 300,
            ShapeKind::Wifi => 0,
            ShapeKind::Starlink => 40,
        })
    }
}

impl Shape {
    /// Returns a shape with the default outages of its kind.
    pub fn new(kind: ShapeKind, mean: Rate) -> Shape {
        Shape {
            kind,
            mean,
            outage: kind.outage(),
        }
    }

    /// Returns the first `duration_ms` milliseconds as a trace. `seed` selects the course.
    ///
    /// # Errors
    /// Returns an error if there is no opportunity in this time.
    pub fn trace(&self, seed: u64, duration_ms: u32) -> Result<RateTrace, RateTraceError> {
        let mut generator = Generator::new(*self, seed);
        let mut times = Vec::new();
        while let Ok(ms) = u32::try_from(generator.ms())
            && ms <= duration_ms
        {
            times.extend((0..generator.count()).map(|_| ms));
            generator.advance();
        }
        RateTrace::new(times)
    }
}

/// Sprout's interval between steps of the rate, in milliseconds (section 3.1).
const LTE_STEP_MS: u64 = 20;
/// The standard deviation of LTE's rate after a second, over the mean: Sprout's 200 packets/s
/// among rates up to 1,000 packets/s, whose middle is 500 (section 3.1).
const LTE_VOLATILITY: f64 = 0.4;
/// The average time between blockages of a 5G link, in milliseconds.
const CLEAR_MS: f64 = 3000.0;
/// The rate of a blocked 5G link, over that of a clear one: the capacity by Shannon after a fade of
/// 15.8 dB (MacCartney, Rappaport and Rangan 2017), at 20 dB of signal over noise before it.
const BLOCKED_SHARE: f64 = 0.28;
/// The rates of 802.11n with one stream, 20 MHz and a long guard interval, in Mbit/s (IEEE
/// 802.11-2020, table 19-27).
const WIFI_RATES: [f64; 8] = [6.5, 13.0, 19.5, 26.0, 39.0, 52.0, 58.5, 65.0];
/// The interval after which rate adaptation can change the rate, in milliseconds: Minstrel's.
const WIFI_STEP_MS: u64 = 100;
/// The probability that it does.
const WIFI_STEP_PROBABILITY: f64 = 0.3;
/// The time of a transmission opportunity, in milliseconds.
const WIFI_TURN_MS: u64 = 4;
/// The maximum number of other stations that contend. Each number from 0 is equally likely.
const WIFI_OTHERS_MAX: u64 = 3;
/// The average time for which the number of other stations remains, in milliseconds.
const WIFI_OTHERS_MS: f64 = 2000.0;
/// The time between changes of satellites, in milliseconds (Huston 2024; Mohan et al. 2024).
const STARLINK_INTERVAL_MS: u64 = 15_000;
/// The range of Starlink's rate, below and above the average.
const STARLINK_VARIATION: f64 = 0.5;
/// The range of outages, below and above their average: from 30 to 50 ms with the default, as the
/// peaks of the delay in Huston 2024.
const STARLINK_OUTAGE_VARIATION: f64 = 0.25;
/// The maximum of the further delay that a satellite adds, in microseconds.
const STARLINK_DELAY_MAX_US: u64 = 10_000;

/// The state of a kind. Rates are in packets per millisecond.
#[derive(Debug)]
enum State {
    Lte {
        rate: f64,
        ceiling: f64,
        deviation: f64,
        /// The integral of the rate at which the next packet leaves.
        gap: f64,
        down_until: u64,
    },
    MmWave {
        clear_rate: f64,
        is_blocked: bool,
        until: u64,
    },
    Wifi {
        rate_unit: f64,
        step: usize,
        others: u64,
        others_until: u64,
        next_turn: u64,
    },
    Starlink {
        mean: f64,
        rate: f64,
        delay: Duration,
        down_until: u64,
        next_change: u64,
    },
}

/// Draws the opportunities of a shape, millisecond by millisecond.
#[derive(Debug)]
pub(super) struct Generator {
    random: Pcg64Mcg,
    outage_ms: f64,
    state: State,
    /// The share of a packet that the rate has provided.
    credit: f64,
    /// The next millisecond to be drawn.
    next_ms: u64,
    count: u64,
    before: u64,
}

impl Generator {
    /// Returns the first opportunities.
    pub(super) fn new(shape: Shape, seed: u64) -> Generator {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let outage_ms = shape.outage.as_secs_f64() * 1000.0;
        let mean = shape.mean.bits_per_s().max(1) as f64 / (8000 * FULL_PACKET_BYTES) as f64;
        let mut generator = Generator {
            state: State::new(shape.kind, mean, outage_ms, &mut random),
            random,
            outage_ms,
            credit: 0.0,
            next_ms: 0,
            count: 0,
            before: 0,
        };
        generator.advance();
        generator
    }

    /// Returns the time of the present opportunities in milliseconds.
    pub(super) fn ms(&self) -> u64 {
        self.next_ms - 1
    }

    /// Returns the number of the present opportunities.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the number of all earlier opportunities.
    pub(super) fn before(&self) -> u64 {
        self.before
    }

    /// Returns the delay that the link adds at present.
    pub(super) fn delay(&self) -> Duration {
        match self.state {
            State::Starlink { delay, .. } => delay,
            _ => Duration::ZERO,
        }
    }

    /// Moves to the next millisecond with opportunities.
    pub(super) fn advance(&mut self) {
        self.before += self.count;
        self.count = 0;
        while self.count == 0 {
            let ms = self.next_ms;
            self.next_ms += 1;
            self.count = self.draw(ms);
        }
    }

    /// Returns the number of opportunities of a millisecond.
    fn draw(&mut self, ms: u64) -> u64 {
        let (random, outage_ms) = (&mut self.random, self.outage_ms);
        self.credit += match &mut self.state {
            State::Lte { .. } => return self.draw_lte(ms),
            State::MmWave {
                clear_rate,
                is_blocked,
                until,
            } => {
                while *until <= ms {
                    *is_blocked = !*is_blocked;
                    let mean_ms = if *is_blocked { outage_ms } else { CLEAR_MS };
                    *until += exponential_ms(random, mean_ms);
                }
                let share = if *is_blocked { BLOCKED_SHARE } else { 1.0 };
                *clear_rate * share
            }
            State::Wifi { .. } => self.take_turn(ms),
            State::Starlink {
                mean,
                rate,
                delay,
                down_until,
                next_change,
            } => {
                if ms >= *next_change {
                    *next_change += STARLINK_INTERVAL_MS;
                    let spread = |random: &mut Pcg64Mcg, range: f64| {
                        1.0 + range * (2.0 * random.random::<f64>() - 1.0)
                    };
                    *rate = *mean * spread(random, STARLINK_VARIATION);
                    let down_ms = outage_ms * spread(random, STARLINK_OUTAGE_VARIATION);
                    *down_until = ms + (down_ms + 0.5) as u64;
                    *delay = Duration::from_micros(random.random_range(0..=STARLINK_DELAY_MAX_US));
                }
                if ms < *down_until { 0.0 } else { *rate }
            }
        };
        let count = self.credit as u64;
        self.credit -= count as f64;
        count
    }

    fn draw_lte(&mut self, ms: u64) -> u64 {
        let (random, outage_ms) = (&mut self.random, self.outage_ms);
        let State::Lte {
            rate,
            ceiling,
            deviation,
            gap,
            down_until,
        } = &mut self.state
        else {
            return 0;
        };
        if ms < *down_until {
            return 0;
        }
        if ms.is_multiple_of(LTE_STEP_MS) && ms > *down_until {
            let moved = *rate + *deviation * normal(random);
            // After an outage, the rate is the one that a reflection would have given. So rates are
            // equally likely while the link is up.
            *rate = reflected(moved, *ceiling);
            if moved < 0.0 {
                *down_until = ms + exponential_ms(random, outage_ms);
                return 0;
            }
        }
        self.credit += *rate;
        let mut count = 0;
        while self.credit >= *gap {
            self.credit -= *gap;
            *gap = exponential(random);
            count += 1;
        }
        count
    }

    /// Returns the packets that a Wi-Fi station sends in a millisecond: those of a whole turn
    /// together, as one aggregate.
    fn take_turn(&mut self, ms: u64) -> f64 {
        let random = &mut self.random;
        let State::Wifi {
            rate_unit,
            step,
            others,
            others_until,
            next_turn,
        } = &mut self.state
        else {
            return 0.0;
        };
        if ms.is_multiple_of(WIFI_STEP_MS) && random.random::<f64>() < WIFI_STEP_PROBABILITY {
            let is_up = random.random::<bool>();
            *step = match is_up {
                true => (*step + 1).min(WIFI_RATES.len() - 1),
                false => step.saturating_sub(1),
            };
        }
        while *others_until <= ms {
            *others = random.random_range(0..=WIFI_OTHERS_MAX);
            *others_until += exponential_ms(random, WIFI_OTHERS_MS);
        }
        if ms < *next_turn {
            return 0.0;
        }
        *next_turn = ms + WIFI_TURN_MS * (1 + *others);
        *rate_unit * WIFI_RATES[*step] * WIFI_TURN_MS as f64
    }
}

impl State {
    /// Returns the first state. `mean` is in packets per millisecond.
    fn new(kind: ShapeKind, mean: f64, outage_ms: f64, random: &mut Pcg64Mcg) -> State {
        match kind {
            ShapeKind::Lte => {
                let ceiling = lte_ceiling(mean, outage_ms);
                let step_s = LTE_STEP_MS as f64 / 1000.0;
                State::Lte {
                    rate: ceiling * random.random::<f64>(),
                    ceiling,
                    deviation: LTE_VOLATILITY * mean * step_s.sqrt(),
                    gap: exponential(random),
                    down_until: 0,
                }
            }
            ShapeKind::MmWave => {
                let blocked = outage_ms / (outage_ms + CLEAR_MS);
                State::MmWave {
                    clear_rate: mean / (1.0 - blocked + blocked * BLOCKED_SHARE),
                    is_blocked: random.random::<f64>() >= blocked,
                    until: 0,
                }
            }
            ShapeKind::Wifi => {
                let rates: f64 = WIFI_RATES.iter().sum();
                let shares: f64 = (0..=WIFI_OTHERS_MAX).map(|n| 1.0 / (1 + n) as f64).sum();
                let share = shares / (1 + WIFI_OTHERS_MAX) as f64;
                State::Wifi {
                    rate_unit: mean / share / (rates / WIFI_RATES.len() as f64),
                    step: random.random_range(0..WIFI_RATES.len()),
                    others: 0,
                    others_until: 0,
                    next_turn: 0,
                }
            }
            ShapeKind::Starlink => {
                let down = (outage_ms / STARLINK_INTERVAL_MS as f64).min(0.9);
                State::Starlink {
                    mean: mean / (1.0 - down),
                    rate: mean,
                    delay: Duration::ZERO,
                    down_until: 0,
                    next_change: random.random_range(0..STARLINK_INTERVAL_MS),
                }
            }
        }
    }
}

/// Returns the highest rate of LTE, for which the average with outages is `mean`.
///
/// While the link is up, each rate up to the ceiling is equally likely. A step has the deviation d,
/// so that it reaches 0 with the probability d / (sqrt(2 pi) ceiling). With the share r = mean /
/// ceiling, outages take a r of the time that the link is up, and r (1 + a r) = 1/2.
fn lte_ceiling(mean: f64, outage_ms: f64) -> f64 {
    let step_s = LTE_STEP_MS as f64 / 1000.0;
    let half_normal = 1.0 / (2.0 * core::f64::consts::PI).sqrt();
    let a = half_normal * LTE_VOLATILITY * step_s.sqrt() * outage_ms / LTE_STEP_MS as f64;
    let share = match a > 1e-6 {
        true => ((1.0 + 2.0 * a).sqrt() - 1.0) / (2.0 * a),
        false => 0.5,
    };
    mean / share
}

/// Returns a value within 0 and `ceiling` that is reflected at both.
fn reflected(value: f64, ceiling: f64) -> f64 {
    let value = value.abs();
    let below = if value > ceiling {
        2.0 * ceiling - value
    } else {
        value
    };
    below.clamp(0.0, ceiling)
}

/// Draws from the exponential distribution with the mean 1.
fn exponential(random: &mut Pcg64Mcg) -> f64 {
    -libm::log(1.0 - random.random::<f64>())
}

/// Draws a time of at least a millisecond.
fn exponential_ms(random: &mut Pcg64Mcg, mean_ms: f64) -> u64 {
    ((mean_ms * exponential(random) + 0.5) as u64).max(1)
}

/// Draws from the normal distribution with the mean 0 and the deviation 1 (Box and Muller 1958).
pub(super) fn normal(random: &mut Pcg64Mcg) -> f64 {
    let radius = (2.0 * exponential(random)).sqrt();
    radius * libm::cos(2.0 * core::f64::consts::PI * random.random::<f64>())
}
