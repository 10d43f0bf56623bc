//! A session's parameters, which sender and receivers share (RFC 3738 section 3.1.1, Table 1 of the
//! paper).

use core::error::Error;
use core::fmt;
use core::time::Duration;

use super::{CciFormat, Wave};
use manyflow_core::ConfigError;
use manyflow_core::Ecn;
use manyflow_core::time::seconds;
use manyflow_core::units::Rate;

/// The parameters of a session. [`Session::new`] checks them and derives the others.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// SR_b: the rate of all channels together, which is the maximum rate of a receiver.
    pub session_rate: Rate,
    /// LENP_B: the length of every packet in bytes, in which rates are counted; 64 to 65,535. In
    /// the simulator, it is the size on a link. On a network, it is the length of the UDP payload,
    /// without IP and UDP headers.
    pub packet_bytes: u32,
    /// BCR_P: the base channel's rate at the beginning of a time slot, in packets per second; 0.01
    /// to 10,000.
    pub base_rate_packets_per_s: f64,
    /// TSD: the duration of a time slot; 50 ms to 10 min.
    pub time_slot: Duration,
    /// QD: the minimum time in which a wave channel is quiescent. It must exceed the slowest leave
    /// in the network. At most 1 h.
    pub quiescence: Duration,
    /// P: the factor by which every rate falls over a time slot; 0.1 to 0.95.
    pub decrease: f64,
    /// Whether the beginnings of the waves are shaped such that the rate of all channels together
    /// is constant (section 3.1.2).
    pub constant_aggregate: bool,
    /// N: the number of time slots in which a wave is active. `None` takes the paper's Eq. (3), or,
    /// without a constant aggregate, the maximum within the session rate.
    pub active_slots: Option<u32>,
    /// The format of the CCI. `None` takes the short format if the session fits into it.
    pub cci_format: Option<CciFormat>,
    /// The minimum number of packets in a train of the base channel, 4 to 32. Not in the RFC.
    /// `None` sends the base channel's packets one by one.
    pub packet_trains: Option<u32>,
    /// The ECN field of the packets that the sender sends. Not in the RFC. With [`Ecn::Capable`],
    /// ECT(0), a mark counts as a loss; with [`Ecn::L4s`], ECT(1), receivers follow the share of
    /// marked packets. Never [`Ecn::Marked`].
    pub ecn: Ecn,
}

impl SessionConfig {
    /// Returns the values of the paper (Table 1) and RFC 3738 (section 3.1.1), for wide-area paths:
    /// slots of 10 s, a base rate of 1 packet/s.
    pub fn wan(session_rate: Rate) -> SessionConfig {
        SessionConfig {
            session_rate,
            packet_bytes: 1024,
            base_rate_packets_per_s: 1.0,
            time_slot: Duration::from_secs(10),
            quiescence: Duration::from_secs(300),
            decrease: 0.75,
            constant_aggregate: true,
            active_slots: None,
            cci_format: None,
            packet_trains: None,
            ecn: Ecn::NotCapable,
        }
    }

    /// Returns values for local networks, where joins take milliseconds and leaves a few seconds:
    /// slots of 1 s, a base rate of 4 packets/s. The manual explains their choice (`docs/webrc.md`
    /// in the repository).
    pub fn lan(session_rate: Rate) -> SessionConfig {
        SessionConfig {
            base_rate_packets_per_s: 4.0,
            time_slot: Duration::from_secs(1),
            quiescence: Duration::from_secs(10),
            ..SessionConfig::wan(session_rate)
        }
    }

    /// Makes the time slots longer by 0 to 5 % for session `number`, in whole milliseconds, so that
    /// those of two sessions have hardly ever the same length.
    ///
    /// Receivers of sessions on one link join once in a slot. With slots of the same length, the
    /// joins of one would always follow those of another after the same time, which decides their
    /// shares of the link (`manyflow figure webrc-phase`). With different lengths, each is the
    /// first as often as the others.
    pub fn with_slots_of(mut self, number: u32) -> SessionConfig {
        // Numbers that follow each other get lengths that lie far apart (Fibonacci hashing).
        let spread = f64::from(number.wrapping_mul(2_654_435_769)) / f64::from(u32::MAX);
        let longer = self.time_slot.mul_f64(1.0 + LONGER_SLOT_MAX * spread);
        let whole_ms = Duration::from_millis(longer.as_millis() as u64);
        self.time_slot = whole_ms.max(self.time_slot);
        self
    }
}

/// The part by which the slots of a session may be longer than those of another.
const LONGER_SLOT_MAX: f64 = 0.05;

/// The reason why a session cannot have these parameters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SessionError {
    /// A parameter is outside its range.
    OutOfRange(ConfigError),
    /// The session rate leaves no room for two waves above the base channel.
    RateTooLow {
        /// The rate asked for.
        rate: Rate,
        /// The lowest rate that suffices.
        minimum: Rate,
    },
    /// The given N does not fit the session rate.
    ActiveSlots {
        /// The number given.
        given: u32,
        /// The highest number that fits.
        most: u32,
    },
    /// The CCI format cannot number the session's channels or packets.
    CciFormat {
        /// T, the number of wave channels.
        wave_channels: u32,
        /// Packets in one wave.
        wave_packets: u64,
    },
    /// The base channel has too few packets for trains of this length.
    PacketTrains {
        /// The minimum length of a train, in packets.
        packets: u32,
        /// The lowest base rate that suffices, in packets per second.
        minimum: f64,
    },
}

impl fmt::Display for SessionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SessionError::OutOfRange(error) => error.fmt(f),
            SessionError::RateTooLow { rate, minimum } => write!(
                f,
                "a session of {rate} is too slow for these waves: \
                 take at least {minimum}, or a lower base rate"
            ),
            SessionError::ActiveSlots { given, most } => write!(
                f,
                "{given} active time slots do not fit the session rate: from 2 to {most} would"
            ),
            SessionError::CciFormat {
                wave_channels,
                wave_packets,
            } => write!(
                f,
                "{wave_channels} wave channels and {wave_packets} packets a wave exceed the CCI \
                 format: take the long format, shorter time slots, less quiescence or a lower rate"
            ),
            SessionError::PacketTrains { packets, minimum } => write!(
                f,
                "the base channel has too few packets for trains of {packets}: \
                 take a base rate (BCR) of at least {minimum:.1} packets/s, or shorter trains"
            ),
        }
    }
}

impl Error for SessionError {}

impl From<ConfigError> for SessionError {
    fn from(error: ConfigError) -> SessionError {
        SessionError::OutOfRange(error)
    }
}

/// A session: consistent parameters, and the values derived from them.
#[derive(Clone, Debug, PartialEq)]
pub struct Session {
    config: SessionConfig,
    active_slots: u32,
    quiescent_slots: u32,
    base_packets_per_slot: u32,
    cci_format: CciFormat,
    wave: Wave,
    /// P to the integer powers from `-POWERS` to `POWERS`, which receivers need at each epoch.
    powers: Vec<f64>,
}

/// The highest integer power of P that a session keeps in its table.
const POWERS: i32 = 64;

impl Session {
    /// Checks the parameters and derives N, Q, T and L.
    ///
    /// # Errors
    /// If a parameter is outside its range, or parameters contradict each other. The error names
    /// valid values.
    pub fn new(config: SessionConfig) -> Result<Session, SessionError> {
        check_ranges(&config)?;
        let mut session = Session {
            active_slots: 0,
            quiescent_slots: ceil_div(config.quiescence, config.time_slot),
            base_packets_per_slot: base_packets_per_slot(&config),
            cci_format: CciFormat::Short,
            wave: Wave::default(),
            powers: (-POWERS..=POWERS)
                .map(|exponent| libm::pow(config.decrease, exponent.into()))
                .collect(),
            config,
        };
        session.check_trains()?;
        session.active_slots = session.choose_active_slots()?;
        session.wave = Wave::new(&session);
        session.cci_format = session.choose_cci_format()?;
        Ok(session)
    }

    /// Returns the parameters that the session was made from.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Returns SR_P, the session rate in packets per second.
    pub fn session_rate(&self) -> f64 {
        self.config
            .session_rate
            .packets_per_s(self.config.packet_bytes)
    }

    /// Returns BCR_P, the base channel's rate at the beginning of a time slot, in packets per
    /// second.
    pub fn base_rate(&self) -> f64 {
        self.config.base_rate_packets_per_s
    }

    /// Returns P, the factor by which every rate falls over a time slot.
    pub fn decrease(&self) -> f64 {
        self.config.decrease
    }

    /// Returns TSD, the duration of a time slot, in seconds.
    pub fn time_slot_s(&self) -> f64 {
        self.config.time_slot.as_secs_f64()
    }

    /// Returns N, the number of time slots in which a wave is active, and of waves that are active
    /// at any time.
    pub fn active_slots(&self) -> u32 {
        self.active_slots
    }

    /// Returns Q, the number of time slots in each cycle in which a wave channel is quiescent.
    pub fn quiescent_slots(&self) -> u32 {
        self.quiescent_slots
    }

    /// Returns T = N + Q, the number of wave channels, and of time slots in a cycle. The base
    /// channel has T as its channel number.
    pub fn wave_channels(&self) -> u32 {
        self.active_slots + self.quiescent_slots
    }

    /// Returns L, the number of the base channel's packets in each time slot.
    pub fn base_packets_per_slot(&self) -> u32 {
        self.base_packets_per_slot
    }

    /// Returns the format of the CCI.
    pub fn cci_format(&self) -> CciFormat {
        self.cci_format
    }

    /// Returns the shape of the session's waves.
    pub fn wave(&self) -> &Wave {
        &self.wave
    }

    /// Returns the number of sequence numbers of the base channel: the largest multiple of L within
    /// the format.
    pub fn base_sequence_numbers(&self) -> u64 {
        let all = self.cci_format.sequence_numbers();
        all - all % u64::from(self.base_packets_per_slot)
    }

    /// Returns the rate of the base channel and the lowest `waves` layers together, in packets per
    /// second, at `phase` (0 to 1) of a time slot: BCR_P P^phase ((1/P)^(waves+1) - 1) / (1/P - 1).
    /// That holds if none of these waves is in its shaped beginning (RFC 3738 section 3.2).
    pub fn subscribed_rate(&self, waves: u32, phase: f64) -> f64 {
        self.power(phase) * self.base_rate() * (self.power(-f64::from(waves) - 1.0) - 1.0)
            / (1.0 / self.decrease() - 1.0)
    }

    /// Returns the rate in packets per second of the wave at `layer` (0 is the lowest) at `phase`
    /// (0 to 1) of a time slot.
    pub fn layer_rate(&self, layer: u32, phase: f64) -> f64 {
        self.base_rate() * self.power(phase - f64::from(layer) - 1.0)
    }

    /// Returns the rate of a wave in packets per second when `remaining` of its packets are still
    /// to be sent, from its third slot on. The rate falls exponentially to BCR_P, so the difference
    /// is proportional to the remaining packets (section 3.1.2).
    pub fn wave_rate(&self, remaining: u64) -> f64 {
        self.base_rate() - remaining as f64 * libm::log(self.decrease()) / self.time_slot_s()
    }

    /// Returns P to the power of `exponent`.
    #[inline]
    pub fn power(&self, exponent: f64) -> f64 {
        let whole = exponent as i32;
        match f64::from(whole) == exponent && (-POWERS..=POWERS).contains(&whole) {
            true => self.powers[(whole + POWERS) as usize],
            false => libm::pow(self.decrease(), exponent),
        }
    }

    /// Returns N of Eq. (3): the minimum number of waves that reach the session rate at the end of
    /// a time slot. If the aggregate is not constant, it is the maximum number that stays below the
    /// session rate at the beginning of a time slot.
    fn choose_active_slots(&self) -> Result<u32, SessionError> {
        let log_inverse = |x: f64| -libm::log(x) / libm::log(self.decrease());
        let growth = 1.0 / self.decrease() - 1.0;
        let ratio = self.session_rate() / self.base_rate();
        let most = if self.config.constant_aggregate {
            log_inverse(1.0 + growth / self.decrease() * ratio).ceil() - 1.0
        } else {
            log_inverse(1.0 + growth * ratio).floor() - 1.0
        };
        if most < 2.0 {
            let phase = if self.config.constant_aggregate {
                1.0
            } else {
                0.0
            };
            let waves = if self.config.constant_aggregate { 1 } else { 2 };
            let minimum = self.subscribed_rate(waves, phase) * 1.01;
            let minimum = Rate::from_packets_per_s(minimum, self.config.packet_bytes);
            return Err(SessionError::RateTooLow {
                rate: self.config.session_rate,
                minimum,
            });
        }
        let most = most as u32;
        match self.config.active_slots {
            None => Ok(most),
            Some(given) if (2..=most).contains(&given) => Ok(given),
            Some(given) => Err(SessionError::ActiveSlots { given, most }),
        }
    }

    fn choose_cci_format(&self) -> Result<CciFormat, SessionError> {
        let wave_channels = self.wave_channels();
        let wave_packets = self.wave.packets();
        let base_fits =
            |format: CciFormat| u64::from(self.base_packets_per_slot) <= format.sequence_numbers();
        let fits = |format: CciFormat| {
            wave_channels <= format.max_wave_channels()
                && wave_packets <= format.sequence_numbers()
                && base_fits(format)
        };
        let candidates = match self.config.cci_format {
            Some(format) => [format; 2],
            None => [CciFormat::Short, CciFormat::Long],
        };
        let chosen = candidates.into_iter().find(|&format| fits(format));
        chosen.ok_or(SessionError::CciFormat {
            wave_channels,
            wave_packets,
        })
    }
}

/// Returns L = ceil(BCR_P TSD (P - 1) / log P) (RFC 3738 section 3.1.1).
fn base_packets_per_slot(config: &SessionConfig) -> u32 {
    let fall = (config.decrease - 1.0) / libm::log(config.decrease);
    (config.base_rate_packets_per_s * config.time_slot.as_secs_f64() * fall)
        .ceil()
        .max(1.0) as u32
}

fn ceil_div(span: Duration, slot: Duration) -> u32 {
    span.as_nanos().div_ceil(slot.as_nanos()) as u32
}

fn check_ranges(config: &SessionConfig) -> Result<(), ConfigError> {
    ConfigError::first_of([
        (
            "the packet length",
            "64 to 65,535 bytes",
            (64..=65_535).contains(&config.packet_bytes),
        ),
        (
            "the base rate",
            "0.01 to 10,000 packets/s",
            (0.01..=1e4).contains(&config.base_rate_packets_per_s),
        ),
        (
            "the time slot",
            "50 ms to 10 min",
            (seconds(0.05)..=seconds(600.0)).contains(&config.time_slot),
        ),
        (
            "the quiescence",
            "at most 1 h",
            config.quiescence <= seconds(3600.0),
        ),
        (
            "the decrease P",
            "0.1 to 0.95",
            (0.1..=0.95).contains(&config.decrease),
        ),
        (
            "the session rate",
            "at most 100 Gbit/s",
            config.session_rate <= Rate::from_bits_per_s(100_000_000_000),
        ),
        (
            "the ECN field of packets",
            "other than CE",
            config.ecn != Ecn::Marked,
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mbit(rate: f64) -> Rate {
        Rate::from_bits_per_s((rate * 1e6) as u64)
    }

    #[test]
    fn the_papers_parameters_give_its_derived_values() {
        let session = Session::new(SessionConfig::wan(mbit(10.0))).unwrap();
        assert_eq!(session.quiescent_slots(), 30);
        assert_eq!(session.base_packets_per_slot(), 9); // ceil(10 * 0.25 / ln(4/3)) = ceil(8.69)
        // Eq. (3): with 1220.7 packets/s, ceil(log_{4/3}(1 + 4/9 * 1220.7)) - 1 = ceil(21.89) - 1.
        assert_eq!(session.active_slots(), 21);
        assert_eq!(session.wave_channels(), 51);
    }

    #[test]
    fn sessions_have_slots_of_different_lengths() {
        let slot = |number| {
            SessionConfig::lan(mbit(10.0))
                .with_slots_of(number)
                .time_slot
        };
        let mut lengths: Vec<Duration> = (7..17).map(slot).collect();
        lengths.sort();
        lengths.dedup();
        assert_eq!(lengths.len(), 10, "{lengths:?}");
        assert!(lengths[0] >= Duration::from_secs(1));
        assert!(lengths[9] <= Duration::from_millis(1050));
        for number in [0, 1, u32::MAX] {
            let config = SessionConfig::wan(mbit(10.0)).with_slots_of(number);
            assert!(Session::new(config).is_ok());
        }
    }

    #[test]
    fn active_slots_are_the_fewest_that_reach_the_session_rate() {
        for rate in [0.05, 0.3, 1.0, 3.2, 10.0, 45.0, 200.0, 999.0] {
            let session = Session::new(SessionConfig::wan(mbit(rate))).unwrap();
            let waves = session.active_slots();
            assert!(session.subscribed_rate(waves, 1.0) >= session.session_rate());
            assert!(session.subscribed_rate(waves - 1, 1.0) < session.session_rate());
        }
    }

    #[test]
    fn a_rate_too_low_for_the_waves_is_refused_with_one_that_works() {
        let Err(SessionError::RateTooLow { minimum, .. }) =
            Session::new(SessionConfig::wan(mbit(0.01)))
        else {
            panic!("10 kbit/s cannot hold two waves of 1 packet/s")
        };
        assert!(Session::new(SessionConfig::wan(minimum)).is_ok());
        let varying = |rate| SessionConfig {
            constant_aggregate: false,
            ..SessionConfig::wan(rate)
        };
        let Err(SessionError::RateTooLow { minimum, .. }) = Session::new(varying(mbit(0.01)))
        else {
            panic!()
        };
        assert!(Session::new(varying(minimum)).is_ok());
    }

    #[test]
    fn long_waves_take_the_long_format_unless_the_short_one_is_asked_for() {
        let fast = SessionConfig::wan(mbit(500.0));
        assert_eq!(
            Session::new(fast.clone()).unwrap().cci_format(),
            CciFormat::Long
        );
        let short = SessionConfig {
            cci_format: Some(CciFormat::Short),
            ..fast
        };
        assert!(matches!(
            Session::new(short),
            Err(SessionError::CciFormat { .. })
        ));
    }

    #[test]
    fn parameters_out_of_range_are_named() {
        let bad = SessionConfig {
            decrease: f64::NAN,
            ..SessionConfig::wan(mbit(1.0))
        };
        let message = Session::new(bad).unwrap_err().to_string();
        assert!(
            message.contains("decrease P must be 0.1 to 0.95"),
            "{message}"
        );
    }
}
