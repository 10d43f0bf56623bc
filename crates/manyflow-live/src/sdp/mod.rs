//! The session description: all that a receiver must know before it joins (RFC 5775 section 2.4, RFC 3738 section
//! 3.2.1). It is an SDP file (RFC 8866) with the attributes of "SDP Descriptors for FLUTE"
//! (draft-ietf-rmt-flute-sdp-03), the source filter of RFC 4570 and two attributes of our own, `webrc` and `amt-relay`:
//!
//! ```text
//! v=0
//! o=- 7 1 IN IP4 192.0.2.1
//! s=nightly build
//! t=0 0
//! a=source-filter: incl IN IP4 * 192.0.2.1
//! a=flute-tsi:7
//! a=flute-ch:46
//! a=FEC-declaration:0 encoding-id=6
//! a=webrc:N=15;Q=30;TSD=10;BCR=1;P=0.75;LENP=1400;SR=2000000;constant=1;CCI=short;EL=0.5
//! a=amt-relay:relay.example.net:2268
//! m=application 5000 FLUTE/UDP *
//! c=IN IP4 232.1.2.0/1/46
//! a=FEC:0
//! ```
//!
//! The channel with number CN (RFC 3738 section 5.1) has the address of the first group plus CN, so that the base
//! channel, CN = T, is the last. Attributes that are not named above are ignored.

mod error;
mod webrc;

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use sdp_types::{Media, Session, SourceFilter, SourceFilterAddress, SourceFilterMode};

use crate::multicast::is_source_specific;

pub use error::DescriptionError;
use error::{in_range, invalid, missing, number, require};
pub use webrc::{CciFormat, WebrcParameters};

/// A longer text is refused unread.
pub const DESCRIPTION_BYTES_MAX: usize = 64 << 10;

/// A Transport Session Identifier has at most 48 bits (RFC 5651 section 5.1).
const TSI_MAX: u64 = (1 << 48) - 1;
const NAME_BYTES_MAX: usize = 255;
const PROTOCOL: &str = "FLUTE/UDP";

/// A session as its receivers see it.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionDescription {
    /// For people: 1 to 255 bytes without control characters.
    pub name: String,
    /// Transport Session Identifier, of at most 48 bits: with `source` it names the session.
    pub tsi: u64,
    /// The unicast address that packets come from.
    pub source: IpAddr,
    /// The group of channel 0, of the same IP version as `source`.
    pub first_group: IpAddr,
    /// The UDP port of all groups.
    pub port: u16,
    /// IPv4's time to live; `None` with IPv6, whose descriptions do not carry it (RFC 8866 section 5.7).
    pub ttl: Option<u8>,
    /// FEC Encoding ID: 0 (no code, RFC 5445) or 6 (RaptorQ, RFC 6330).
    pub fec_encoding_id: u8,
    /// An AMT relay (RFC 7450) for receivers that multicast does not reach.
    pub amt_relay: Option<AmtRelay>,
    /// Parameters of the rate control, which say how many channels there are.
    pub webrc: WebrcParameters,
}

/// Where an AMT relay listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmtRelay {
    /// A domain name, or an address without brackets.
    pub host: String,
    /// UDP port; AMT's own is 2268.
    pub port: u16,
}

impl SessionDescription {
    /// Reads the file at `path`.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, DescriptionError> {
        let path = path.as_ref();
        let failed = |cause| DescriptionError::Unreadable {
            from: path.display().to_string(),
            cause,
        };
        Self::read_from(
            File::open(path).map_err(failed)?,
            &path.display().to_string(),
        )
    }

    /// Reads all of `reader`, which errors call `from`.
    pub fn read_from(reader: impl Read, from: &str) -> Result<Self, DescriptionError> {
        let mut text = String::new();
        let limit = DESCRIPTION_BYTES_MAX as u64 + 1;
        let read = reader.take(limit).read_to_string(&mut text);
        read.map_err(|cause| DescriptionError::Unreadable {
            from: from.to_owned(),
            cause,
        })?;
        Self::parse(&text)
    }

    /// Parses a description and checks all of it.
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        if text.len() > DESCRIPTION_BYTES_MAX {
            return Err(DescriptionError::TooLong);
        }
        let sdp = Session::parse(text.as_bytes())
            .map_err(|error| DescriptionError::NotSdp(error.to_string()))?;
        let media = flute_media(&sdp)?;
        let groups = Groups::parse(&sdp, media)?;
        let description = Self {
            name: sdp.session_name.clone(),
            tsi: number("a=flute-tsi", attribute(&sdp, media, "flute-tsi")?)?,
            source: source(&sdp, media)?,
            first_group: groups.first,
            port: media.port,
            ttl: groups.ttl,
            fec_encoding_id: fec_encoding_id(&sdp, media)?,
            amt_relay: optional_attribute(&sdp, media, "amt-relay")?
                .map(AmtRelay::parse)
                .transpose()?,
            webrc: WebrcParameters::parse(attribute(&sdp, media, "webrc")?)?,
        };
        description.check()?;
        let declared: u32 = number("a=flute-ch", attribute(&sdp, media, "flute-ch")?)?;
        for (what, count) in [
            ("a=flute-ch", declared),
            ("the number of groups in c=", groups.count),
        ] {
            let channels = description.channels();
            require(count == channels, what, count, || {
                format!("{channels}, which is N+Q+1 of a=webrc")
            })?;
        }
        Ok(description)
    }

    /// The text of the description, which [`parse`](Self::parse) reads back. Fails where that would refuse it.
    pub fn to_sdp(&self) -> Result<String, DescriptionError> {
        self.check()?;
        let Self {
            name,
            tsi,
            source,
            first_group,
            port,
            fec_encoding_id,
            webrc,
            ..
        } = self;
        let version = if source.is_ipv4() { "IP4" } else { "IP6" };
        let ttl = self.ttl.map(|ttl| format!("/{ttl}")).unwrap_or_default();
        let channels = self.channels();
        let relay = self
            .amt_relay
            .as_ref()
            .map(|relay| format!("a=amt-relay:{}\r\n", relay.authority()));
        Ok([
            "v=0\r\n",
            &format!("o=- {tsi} 1 IN {version} {source}\r\n"),
            &format!("s={name}\r\n"),
            "t=0 0\r\n",
            &format!("a=source-filter: incl IN {version} * {source}\r\n"),
            &format!("a=flute-tsi:{tsi}\r\n"),
            &format!("a=flute-ch:{channels}\r\n"),
            &format!("a=FEC-declaration:0 encoding-id={fec_encoding_id}\r\n"),
            &format!("a=webrc:{webrc}\r\n"),
            &relay.unwrap_or_default(),
            &format!("m=application {port} {PROTOCOL} *\r\n"),
            &format!("c=IN {version} {first_group}{ttl}/{channels}\r\n"),
            "a=FEC:0\r\n",
        ]
        .concat())
    }

    /// How many channels, and so groups, the session has: T+1 (RFC 3738 section 3.1.1).
    pub fn channels(&self) -> u32 {
        self.webrc.wave_channels() + 1
    }

    /// The group of a channel by its number: 0 to T-1 are the waves, T is the base channel.
    pub fn group(&self, channel: u32) -> Option<IpAddr> {
        if channel >= self.channels() {
            return None;
        }
        Some(match self.first_group {
            IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits().checked_add(channel)?).into(),
            IpAddr::V6(first) => {
                Ipv6Addr::from_bits(first.to_bits().checked_add(channel.into())?).into()
            }
        })
    }

    /// What holds of each description that is written or read.
    fn check(&self) -> Result<(), DescriptionError> {
        let Self {
            name,
            source,
            first_group,
            ..
        } = self;
        let named =
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(char::is_control);
        require(named, "s=", name, || {
            format!("1 to {NAME_BYTES_MAX} bytes without control characters")
        })?;
        in_range("a=flute-tsi", self.tsi, 0..=TSI_MAX)?;
        in_range("the port in m=", self.port, 1..=u16::MAX)?;
        let fec = self.fec_encoding_id;
        require(matches!(fec, 0 | 6), "the FEC encoding-id", fec, || {
            "0 (no code) or 6 (RaptorQ)".to_owned()
        })?;
        self.webrc.check()?;
        if let Some(relay) = &self.amt_relay {
            AmtRelay::parse(&relay.authority())?;
        }
        let unicast = !source.is_multicast() && !source.is_unspecified();
        require(unicast, "a=source-filter", source, || {
            "the sender's unicast address".to_owned()
        })?;
        let same_version = source.is_ipv4() == first_group.is_ipv4();
        require(same_version, "c=", first_group, || {
            format!("the IP version of the source {source}")
        })?;
        let ttl = self.ttl.map_or("none".to_owned(), |ttl| ttl.to_string());
        let ttl_fits = self.ttl.is_some() == source.is_ipv4();
        require(ttl_fits, "the TTL in c=", ttl, || {
            "one with IPv4, none with IPv6".to_owned()
        })?;
        let channels = self.channels();
        let last = self.group(channels - 1);
        let kind = |group: IpAddr| (group.is_multicast(), is_source_specific(group));
        let inside =
            first_group.is_multicast() && last.is_some_and(|last| kind(last) == kind(*first_group));
        require(inside, "c=", first_group, || {
            format!("a first group with {channels} in one multicast range")
        })
    }
}

impl AmtRelay {
    /// `host:port`, with an IPv6 address in brackets: what resolvers take.
    pub fn authority(&self) -> String {
        let Self { host, port } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }

    fn parse(text: &str) -> Result<Self, DescriptionError> {
        let expected = || {
            invalid(
                "a=amt-relay",
                text,
                "HOST:PORT, an IPv6 address in brackets",
            )
        };
        let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
        let port = port.parse().map_err(|_| expected())?;
        let bracketed = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_domain = |host: &str| {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
            (1..=253).contains(&host.len()) && host.bytes().all(allowed)
        };
        let valid = match bracketed {
            Some(address) => address.parse::<Ipv6Addr>().is_ok(),
            None => is_domain(host),
        };
        if port == 0 || !valid {
            return Err(expected());
        }
        Ok(Self {
            host: bracketed.unwrap_or(host).to_owned(),
            port,
        })
    }
}

/// The `c=` line: `FIRST/TTL/COUNT` with IPv4, `FIRST/COUNT` with IPv6.
struct Groups {
    first: IpAddr,
    ttl: Option<u8>,
    count: u32,
}

impl Groups {
    fn parse(sdp: &Session, media: &Media) -> Result<Self, DescriptionError> {
        let connection = media.connections.first().or(sdp.connection.as_ref());
        let text = &connection
            .ok_or_else(|| missing("c=", "c=IN IP4 232.1.2.0/1/46"))?
            .connection_address;
        let expected = || {
            invalid(
                "c=",
                text,
                "FIRST/TTL/COUNT with IPv4, FIRST/COUNT with IPv6",
            )
        };
        let mut fields = text.split('/');
        let first: IpAddr = fields
            .next()
            .and_then(|field| field.parse().ok())
            .ok_or_else(expected)?;
        let ttl = match first {
            IpAddr::V4(_) => Some(
                fields
                    .next()
                    .and_then(|field| field.parse().ok())
                    .ok_or_else(expected)?,
            ),
            IpAddr::V6(_) => None,
        };
        let count = fields
            .next()
            .and_then(|field| field.parse().ok())
            .ok_or_else(expected)?;
        if fields.next().is_some() {
            return Err(expected());
        }
        Ok(Self { first, ttl, count })
    }
}

fn flute_media(sdp: &Session) -> Result<&Media, DescriptionError> {
    let mut flute = sdp
        .medias
        .iter()
        .filter(|media| media.proto.eq_ignore_ascii_case(PROTOCOL));
    let media = flute
        .next()
        .ok_or_else(|| missing("m=", "m=application PORT FLUTE/UDP *"))?;
    match flute.next() {
        None => Ok(media),
        Some(other) => Err(invalid("m=", &other.proto, "one m= line with FLUTE/UDP")),
    }
}

/// The sender's address, which FLUTE descriptions give as the only source of a source filter.
fn source(sdp: &Session, media: &Media) -> Result<IpAddr, DescriptionError> {
    let text = attribute(sdp, media, "source-filter")?;
    let expected = || {
        invalid(
            "a=source-filter",
            text,
            "incl IN IP4|IP6 * ADDRESS, with one address",
        )
    };
    let filter: SourceFilter = text.parse().map_err(|_| expected())?;
    match (filter.mode, &filter.sources[..]) {
        (SourceFilterMode::Incl, [SourceFilterAddress::IpAddr(address)]) => Ok(*address),
        _ => Err(expected()),
    }
}

/// `a=FEC:REFERENCE` picks one among the declarations `a=FEC-declaration:REFERENCE encoding-id=ID; ...`.
fn fec_encoding_id(sdp: &Session, media: &Media) -> Result<u8, DescriptionError> {
    const NAME: &str = "FEC-declaration";
    let reference = attribute(sdp, media, "FEC")?;
    let declarations = sdp
        .get_attribute_values(NAME)
        .chain(media.get_attribute_values(NAME));
    let declared = declarations.flatten().find_map(|value| {
        let (declared, parameters) = value.split_once(' ')?;
        (declared == reference).then_some(parameters)
    });
    let parameters =
        declared.ok_or_else(|| missing("a=FEC-declaration", "the one that a=FEC refers to"))?;
    let id = parameters
        .split(';')
        .find_map(|parameter| parameter.trim().strip_prefix("encoding-id="));
    number("the FEC encoding-id", id.unwrap_or_default())
}

/// The value of an attribute of the session or the media.
fn attribute<'a>(
    sdp: &'a Session,
    media: &'a Media,
    name: &'static str,
) -> Result<&'a str, DescriptionError> {
    let expected = "what `manyflow send` writes";
    optional_attribute(sdp, media, name)?.ok_or_else(|| missing(&format!("a={name}"), expected))
}

fn optional_attribute<'a>(
    sdp: &'a Session,
    media: &'a Media,
    name: &'static str,
) -> Result<Option<&'a str>, DescriptionError> {
    let mut values = sdp
        .get_attribute_values(name)
        .chain(media.get_attribute_values(name))
        .flatten();
    let value = values.next();
    match values.next() {
        None => Ok(value.map(str::trim)),
        Some(second) => Err(invalid(&format!("a={name}"), second, "the attribute once")),
    }
}
