//! Relays that the owner of a source names in the DNS: the resource record AMTRELAY (RFC 8777).
//!
//! A gateway asks for the records of type [`RECORD_TYPE`] at the [reverse name](reverse_name) of
//! the source whose packets it wants, decodes the data of each with [`RelayRecord::decode`], and
//! tries the relays in the order of [`by_preference`]. This module has neither a resolver nor
//! sockets.
//!
//! ```
//! use manyflow_amt::discovery::{RelayName, RelayRecord, by_preference, reverse_name};
//!
//! assert_eq!(reverse_name("192.0.2.1".parse()?), "1.2.0.192.in-addr.arpa");
//!
//! // In a zone file: 1.2.0.192.in-addr.arpa. IN AMTRELAY 10 0 1 203.0.113.15
//! //                 1.2.0.192.in-addr.arpa. IN AMTRELAY 20 0 3 relay.example.
//! let near = RelayRecord::decode(&[10, 1, 203, 0, 113, 15])?;
//! let far = RelayRecord::decode(b"\x14\x03\x05relay\x07example\x00")?;
//! let relays = by_preference(vec![far, near]);
//! assert_eq!(relays[0], RelayName::Address("203.0.113.15".parse()?));
//! assert_eq!(relays[1].to_string(), "relay.example");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Answers of the DNS can be forged on the way, unless they come by DNSSEC. A false relay can
//! withhold packets or send others, as any router on the way can.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The type of the resource record AMTRELAY (RFC 8777 section 4.1).
pub const RECORD_TYPE: u16 = 260;
/// The D-bit, in the byte that also has the type of the relay field.
const DISCOVERY_OPTIONAL: u8 = 0x80;
/// The maximum length of a domain name in wire format, in bytes (RFC 1035 section 2.3.4).
const NAME_BYTES_MAX: usize = 255;
/// The maximum length of a label, in bytes.
const LABEL_BYTES_MAX: usize = 63;

/// The relay of a record (RFC 8777 section 4.2.3).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RelayName {
    /// The record says that there is no relay.
    None,
    /// The relay's address.
    Address(IpAddr),
    /// The relay's domain name, with dots between its labels and none at the end.
    Domain(String),
}

impl fmt::Display for RelayName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("."),
            Self::Address(address) => address.fmt(f),
            Self::Domain(name) => f.write_str(name),
        }
    }
}

/// The data of a record AMTRELAY (RFC 8777 section 4.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RelayRecord {
    /// The precedence: relays with lower values are preferred.
    pub precedence: u8,
    /// Whether a gateway may send a Request without Relay Discovery (the D-bit).
    pub is_discovery_optional: bool,
    /// The relay.
    pub relay: RelayName,
}

/// The reason why bytes are not the data of a record AMTRELAY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The data is too short or too long for its type.
    #[error("the record's length does not fit its type")]
    Length,
    /// The type of the relay field is unknown.
    #[error("the type {0} of the relay is unknown")]
    Type(u8),
    /// The name is compressed, too long, or not that of a host.
    #[error("the relay's name is not the uncompressed name of a host")]
    Name,
}

impl RelayRecord {
    /// Decodes the data of a record.
    ///
    /// # Errors
    /// See [`RecordError`].
    pub fn decode(data: &[u8]) -> Result<RelayRecord, RecordError> {
        let [precedence, kind, relay @ ..] = data else {
            return Err(RecordError::Length);
        };
        let address = |length: Option<IpAddr>| length.ok_or(RecordError::Length);
        let relay = match kind & !DISCOVERY_OPTIONAL {
            0 if relay.is_empty() => RelayName::None,
            0 => return Err(RecordError::Length),
            1 => RelayName::Address(address(
                <[u8; 4]>::try_from(relay)
                    .ok()
                    .map(|it| Ipv4Addr::from(it).into()),
            )?),
            2 => RelayName::Address(address(
                <[u8; 16]>::try_from(relay)
                    .ok()
                    .map(|it| Ipv6Addr::from(it).into()),
            )?),
            3 => RelayName::Domain(decode_name(relay).ok_or(RecordError::Name)?),
            other => return Err(RecordError::Type(other)),
        };
        Ok(RelayRecord {
            precedence: *precedence,
            is_discovery_optional: kind & DISCOVERY_OPTIONAL != 0,
            relay,
        })
    }
}

/// Returns the relays of records, the preferred ones first. Relays of one precedence remain in the
/// order of the answer, which name servers rotate. Records without a relay are left out.
pub fn by_preference(mut records: Vec<RelayRecord>) -> Vec<RelayName> {
    records.sort_by_key(|record| record.precedence);
    let relays = records.into_iter().map(|record| record.relay);
    relays.filter(|relay| *relay != RelayName::None).collect()
}

/// Returns the name at which the relays of a source are published, without a dot at the end: that
/// of its address in `in-addr.arpa` or `ip6.arpa` (RFC 8777 section 2.1).
pub fn reverse_name(source: IpAddr) -> String {
    match source {
        IpAddr::V4(source) => {
            let [a, b, c, d] = source.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa")
        }
        IpAddr::V6(source) => {
            let bits = source.to_bits();
            let digits = (0..32).map(|place| format!("{:x}.", bits >> (4 * place) & 0xf));
            format!("{}ip6.arpa", digits.collect::<String>())
        }
    }
}

/// Returns a name in wire format as text. Names of hosts have letters, digits, `-` and `_`.
fn decode_name(mut wire: &[u8]) -> Option<String> {
    if wire.len() > NAME_BYTES_MAX {
        return None;
    }
    let mut labels = Vec::new();
    loop {
        let (&length, rest) = wire.split_first()?;
        let length = usize::from(length);
        if length == 0 {
            let is_whole = rest.is_empty() && !labels.is_empty();
            return is_whole.then(|| labels.join("."));
        }
        // A longer one would be a pointer.
        let label = rest.get(..length).filter(|_| length <= LABEL_BYTES_MAX)?;
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let label = std::str::from_utf8(label).ok()?;
        labels.push(label.bytes().all(|byte| is_plain(&byte)).then_some(label)?);
        wire = &rest[length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_rfc_are_read() {
        // Section 4.3.2: 10 0 1 203.0.113.15, 10 0 2 2001:db8::15, 128 1 3 amtrelays.example.com.
        let v4 = RelayRecord::decode(&[10, 1, 203, 0, 113, 15]).unwrap();
        assert_eq!((v4.precedence, v4.is_discovery_optional), (10, false));
        assert_eq!(v4.relay.to_string(), "203.0.113.15");
        let mut data = vec![10, 2];
        data.extend("2001:db8::15".parse::<Ipv6Addr>().unwrap().octets());
        let v6 = RelayRecord::decode(&data).unwrap();
        assert_eq!(v6.relay.to_string(), "2001:db8::15");
        let name = b"\x80\x83\x09amtrelays\x07example\x03com\x00";
        let name = RelayRecord::decode(name).unwrap();
        assert_eq!((name.precedence, name.is_discovery_optional), (128, true));
        assert_eq!(name.relay.to_string(), "amtrelays.example.com");
        let none = RelayRecord::decode(&[16, 0]).unwrap();
        assert_eq!(none.relay, RelayName::None);
        let order = by_preference(vec![name, none, v6.clone(), v4.clone()]);
        assert_eq!(order[..2], [v6.relay, v4.relay]);
        assert_eq!(order.len(), 3);
    }

    #[test]
    fn records_that_are_not_whole_are_refused() {
        for (data, expected) in [
            (&[][..], RecordError::Length),
            (&[10], RecordError::Length),
            (&[10, 0, 0], RecordError::Length),
            (&[10, 1, 203, 0, 113], RecordError::Length),
            (&[10, 1, 203, 0, 113, 15, 0], RecordError::Length),
            (&[10, 2, 203, 0, 113, 15], RecordError::Length),
            (&[10, 4, 1], RecordError::Type(4)),
            (&[10, 3], RecordError::Name),
            (&[10, 3, 0], RecordError::Name),
            (b"\x0a\x03\x05relay", RecordError::Name),
            (b"\x0a\x03\x05relay\x00x", RecordError::Name),
            (b"\x0a\x03\x05re ay\x00", RecordError::Name),
            (b"\x0a\x03\xc0\x0c", RecordError::Name),
        ] {
            assert_eq!(RelayRecord::decode(data), Err(expected), "{data:?}");
        }
        let label = [&[63][..], &[b'a'; 63]].concat();
        let long = [&[10, 3][..], &label.repeat(4), &[0]].concat();
        assert_eq!(RelayRecord::decode(&long), Err(RecordError::Name));
    }

    #[test]
    fn reverse_names_are_those_of_pointers() {
        let ipv6 = reverse_name("2001:db8::15".parse().unwrap());
        let zeros = "0.".repeat(22);
        assert_eq!(ipv6, format!("5.1.{zeros}8.b.d.0.1.0.0.2.ip6.arpa"));
    }
}
