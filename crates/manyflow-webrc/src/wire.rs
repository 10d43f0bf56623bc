//! WEBRC's Congestion Control Information on the wire (RFC 3738 section 5).
//!
//! ```text
//!   short: | CTSI 8 | channel 8 | PSN 16 |      long: | CTSI 16 | channel 16 | PSN 32 |
//! ```

use manyflow_core::Header;

/// The two formats of the CCI field.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum CciFormat {
    /// 32 bits: at most 255 wave channels and 2^16 packets in a wave (section 5.1).
    #[default]
    Short,
    /// 64 bits: at most 65,535 wave channels and 2^32 packets in a wave (section 5.2).
    Long,
}

impl CciFormat {
    /// Returns the length of the field in bytes.
    pub const fn wire_bytes(self) -> usize {
        match self {
            CciFormat::Short => 4,
            CciFormat::Long => 8,
        }
    }

    /// Returns the maximum number of wave channels, T, that the format can express.
    pub const fn max_wave_channels(self) -> u32 {
        match self {
            CciFormat::Short => 255,
            CciFormat::Long => 65_535,
        }
    }

    /// Returns the number of packet sequence numbers.
    pub const fn sequence_numbers(self) -> u64 {
        match self {
            CciFormat::Short => 1 << 16,
            CciFormat::Long => 1 << 32,
        }
    }
}

/// Congestion Control Information, the header of each packet of a session.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Cci {
    /// The current time slot index, 0 to T-1.
    pub ctsi: u16,
    /// The channel number: T for the base channel, 0 to T-1 for the waves.
    pub channel: u16,
    /// The packet sequence number within the channel.
    pub psn: u32,
    /// The format of the field.
    pub format: CciFormat,
}

impl Cci {
    /// Returns the length of the field in bytes.
    pub const fn wire_bytes(&self) -> u32 {
        self.format.wire_bytes() as u32
    }

    /// Returns the field in network order, and its length in the array.
    pub fn encode(&self) -> ([u8; 8], usize) {
        let mut out = [0; 8];
        match self.format {
            CciFormat::Short => {
                out[0] = self.ctsi as u8;
                out[1] = self.channel as u8;
                out[2..4].copy_from_slice(&(self.psn as u16).to_be_bytes());
            }
            CciFormat::Long => {
                out[..2].copy_from_slice(&self.ctsi.to_be_bytes());
                out[2..4].copy_from_slice(&self.channel.to_be_bytes());
                out[4..].copy_from_slice(&self.psn.to_be_bytes());
            }
        }
        (out, self.format.wire_bytes())
    }

    /// Decodes the field, whose length gives the format; `None` if neither format has this length.
    pub fn decode(field: &[u8]) -> Option<Cci> {
        match *field {
            [ctsi, channel, a, b] => Some(Cci {
                ctsi: ctsi.into(),
                channel: channel.into(),
                psn: u16::from_be_bytes([a, b]).into(),
                format: CciFormat::Short,
            }),
            [a, b, c, d, e, f, g, h] => Some(Cci {
                ctsi: u16::from_be_bytes([a, b]),
                channel: u16::from_be_bytes([c, d]),
                psn: u32::from_be_bytes([e, f, g, h]),
                format: CciFormat::Long,
            }),
            _ => None,
        }
    }
}

impl Header for Cci {
    #[inline]
    fn wire_bytes(&self) -> u32 {
        Cci::wire_bytes(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(ctsi: u16, channel: u16, psn: u32, long: bool) {
            let format = if long { CciFormat::Long } else { CciFormat::Short };
            let mask = |value: u32, bits: u32| if long { value } else { value & ((1 << bits) - 1) };
            let cci = Cci {
                ctsi: mask(ctsi.into(), 8) as u16,
                channel: mask(channel.into(), 8) as u16,
                psn: mask(psn, 16),
                format,
            };
            let (field, length) = cci.encode();
            prop_assert_eq!(length as u32, cci.wire_bytes());
            prop_assert_eq!(Cci::decode(&field[..length]), Some(cci));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(field: Vec<u8>) {
            prop_assert_eq!(Cci::decode(&field).is_some(), field.len() == 4 || field.len() == 8);
        }
    }
}
