//! The parameters of WEBRC (RFC 3738 section 3.1.1) in a description: `a=webrc:NAME=VALUE;...`,
//! with the names of the RFC. Unknown names are ignored.

use std::fmt;
use std::str::FromStr;

use manyflow_net::description::error::{
    DescriptionError, in_range, invalid, missing, number, require,
};

/// The encoding of the Congestion Control Information in packets (RFC 3738 section 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CciFormat {
    /// 32 bits: at most 255 wave channels.
    Short,
    /// 64 bits: at most 65,535 wave channels, of which a description allows 1023.
    Long,
}

impl CciFormat {
    fn wave_channels_max(self) -> u32 {
        match self {
            Self::Short => 255,
            Self::Long => 1023,
        }
    }
}

/// The sender's parameters, which a WEBRC receiver has to know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WebrcParameters {
    /// N: duration of a wave in time slots, 1 to 1022.
    pub wave_slots: u16,
    /// Q: time slots in which a channel is quiescent between its waves, 1 to 1022.
    pub quiescent_slots: u16,
    /// TSD: duration of a time slot in seconds, 0.1 to 3600.
    pub time_slot_s: f64,
    /// BCR_P: rate of the base channel at the beginning of a time slot, in packets per second, 0.01
    /// to 100,000.
    pub base_rate_packets_per_s: f64,
    /// P: the fraction of its rate that a channel keeps over a time slot, 0.1 to 0.99.
    pub decay_per_slot: f64,
    /// LENP_B: length of a packet's UDP payload in bytes, 64 to 65,507.
    pub packet_bytes: u16,
    /// SR_b: maximum rate of all channels together, in bits per second, up to 10^12.
    pub session_rate_bits_per_s: u64,
    /// Whether the rate of all channels together is constant.
    pub constant_rate: bool,
    /// Format of the Congestion Control Information.
    pub cci: CciFormat,
    /// EL: duration of a receiver's epoch in seconds, from 0.001 to a time slot.
    pub epoch_s: f64,
    /// The minimum number of packets in a train of the base channel, 4 to 32; `None` if they are
    /// sent one by one. Not in the RFC: receivers that do not know the name receive the session
    /// without the use of its trains.
    pub packet_trains: Option<u32>,
}

impl WebrcParameters {
    /// Returns T = N+Q, the number of wave channels and of time slots in a cycle.
    pub fn wave_channels(&self) -> u32 {
        u32::from(self.wave_slots) + u32::from(self.quiescent_slots)
    }

    /// Returns the time in which a channel is quiescent between its waves, in seconds: at least the
    /// sender's QD.
    pub fn quiescent_s(&self) -> f64 {
        f64::from(self.quiescent_slots) * self.time_slot_s
    }

    pub(super) fn check(&self) -> Result<(), DescriptionError> {
        in_range("N in a=webrc", self.wave_slots, 1..=1022)?;
        in_range("Q in a=webrc", self.quiescent_slots, 1..=1022)?;
        in_range("TSD in a=webrc", self.time_slot_s, 0.1..=3600.0)?;
        in_range(
            "BCR in a=webrc",
            self.base_rate_packets_per_s,
            0.01..=100_000.0,
        )?;
        in_range("P in a=webrc", self.decay_per_slot, 0.1..=0.99)?;
        in_range("LENP in a=webrc", self.packet_bytes, 64..=65_507)?;
        in_range(
            "SR in a=webrc",
            self.session_rate_bits_per_s,
            1..=1_000_000_000_000,
        )?;
        in_range("EL in a=webrc", self.epoch_s, 0.001..=self.time_slot_s)?;
        if let Some(packets) = self.packet_trains {
            in_range("trains in a=webrc", packets, 4..=32)?;
        }
        let (channels, most) = (self.wave_channels(), self.cci.wave_channels_max());
        let expected = format!("at most {most} with the {} CCI format", self.cci);
        require(channels <= most, "N+Q in a=webrc", channels, &expected)
    }

    pub(super) fn parse(text: &str) -> Result<Self, DescriptionError> {
        let fields = Fields(text);
        Ok(Self {
            wave_slots: fields.number("N")?,
            quiescent_slots: fields.number("Q")?,
            time_slot_s: fields.number("TSD")?,
            base_rate_packets_per_s: fields.number("BCR")?,
            decay_per_slot: fields.number("P")?,
            packet_bytes: fields.number("LENP")?,
            session_rate_bits_per_s: fields.number("SR")?,
            constant_rate: match fields.value("constant")? {
                "0" => false,
                "1" => true,
                other => return Err(invalid("constant in a=webrc", other, "0 or 1")),
            },
            cci: match fields.value("CCI")? {
                "short" => CciFormat::Short,
                "long" => CciFormat::Long,
                other => return Err(invalid("CCI in a=webrc", other, "short or long")),
            },
            epoch_s: fields.number("EL")?,
            packet_trains: match fields.has("trains") {
                true => Some(fields.number("trains")?),
                false => None,
            },
        })
    }
}

/// Writes the value of `a=webrc`.
struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    fn value(&self, name: &str) -> Result<&'a str, DescriptionError> {
        let fields = self
            .0
            .split(';')
            .filter_map(|field| field.trim().split_once('='));
        let mut values = fields
            .filter(|(given, _)| *given == name)
            .map(|(_, value)| value);
        let what = format!("{name} in a=webrc");
        match (values.next(), values.next()) {
            (Some(value), None) => Ok(value),
            (None, _) => Err(missing(&what, "NAME=VALUE;...")),
            (_, Some(second)) => Err(invalid(&what, second, "the name once")),
        }
    }

    fn has(&self, name: &str) -> bool {
        let mut fields = self.0.split(';').filter_map(|field| field.split_once('='));
        fields.any(|(given, _)| given.trim() == name)
    }

    fn number<T: FromStr>(&self, name: &str) -> Result<T, DescriptionError> {
        number(&format!("{name} in a=webrc"), self.value(name)?)
    }
}

impl fmt::Display for WebrcParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "N={};Q={};", self.wave_slots, self.quiescent_slots)?;
        write!(
            f,
            "TSD={};BCR={};",
            self.time_slot_s, self.base_rate_packets_per_s
        )?;
        write!(f, "P={};LENP={};", self.decay_per_slot, self.packet_bytes)?;
        write!(
            f,
            "SR={};constant={};",
            self.session_rate_bits_per_s,
            u8::from(self.constant_rate)
        )?;
        write!(f, "CCI={};EL={}", self.cci, self.epoch_s)?;
        match self.packet_trains {
            Some(packets) => write!(f, ";trains={packets}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for CciFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "short",
            Self::Long => "long",
        })
    }
}
