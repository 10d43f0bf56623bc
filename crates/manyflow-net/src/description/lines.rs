//! The lines of a description that files and streams have in common.

use std::net::IpAddr;

use sdp_types::{Media, Session, SourceFilter, SourceFilterAddress, SourceFilterMode};

use super::error::{DescriptionError, invalid, missing};

/// The protocols of `m=` lines, the content that they carry, and the command that receives it. A
/// user of the other command would otherwise read of a line that is missing.
const RECEIVERS: [(&str, &str, &str); 2] = [
    ("FLUTE/UDP", "files", "manyflow recv"),
    ("LAYERED/UDP", "a stream", "manyflow stream recv"),
];

/// Parses the structure of SDP.
///
/// # Errors
/// If the text is not SDP.
pub fn parse_session(text: &str) -> Result<Session, DescriptionError> {
    Session::parse(text.as_bytes()).map_err(|error| DescriptionError::NotSdp(error.to_string()))
}

/// The part of an SDP file that describes one session.
pub struct Sdp<'a> {
    session: &'a Session,
    /// The `m=` line with its attributes.
    pub media: &'a Media,
}

/// The `c=` line: `FIRST/TTL/COUNT` with IPv4, `FIRST/COUNT` with IPv6 (RFC 8866 section 5.7).
pub struct Groups {
    /// The first group.
    pub first: IpAddr,
    /// The time to live of IPv4; `None` with IPv6.
    pub ttl: Option<u8>,
    /// The number of groups, which have successive addresses.
    pub count: u32,
}

impl<'a> Sdp<'a> {
    /// Finds the one `m=` line with `protocol`.
    ///
    /// # Errors
    /// If no line has the protocol, or more than one has it. If a line has the protocol of another
    /// command, the error names that command.
    pub fn of(session: &'a Session, protocol: &str) -> Result<Self, DescriptionError> {
        let has_protocol = |media: &&Media| media.proto.eq_ignore_ascii_case(protocol);
        let mut found = session.medias.iter().filter(has_protocol);
        match (found.next(), found.next()) {
            (Some(media), None) => Ok(Self { session, media }),
            (None, _) => Err(other_content(session)
                .unwrap_or_else(|| missing("m=", &format!("m=application PORT {protocol} *")))),
            (_, Some(second)) => {
                let expected = format!("one m= line with {protocol}");
                Err(invalid("m=", &second.proto, &expected))
            }
        }
    }

    /// Returns the groups of the `c=` line.
    ///
    /// # Errors
    /// If the line is missing or has another form.
    pub fn groups(&self) -> Result<Groups, DescriptionError> {
        let connection = self
            .media
            .connections
            .first()
            .or(self.session.connection.as_ref());
        let connection = connection.ok_or_else(|| missing("c=", "c=IN IP4 232.1.2.0/1/46"))?;
        let text = &connection.connection_address;
        let fields: Vec<&str> = text.split('/').collect();
        let parsed = match fields[..] {
            [first, ttl, count] => ipv4_groups(first, ttl, count),
            [first, count] => ipv6_groups(first, count),
            _ => None,
        };
        let expected = "FIRST/TTL/COUNT with IPv4, FIRST/COUNT with IPv6";
        parsed.ok_or_else(|| invalid("c=", text, expected))
    }

    /// Returns the sender's address, which descriptions give as the only source of a source filter.
    ///
    /// # Errors
    /// If the filter is missing or has another form.
    pub fn source(&self) -> Result<IpAddr, DescriptionError> {
        let text = self.attribute("source-filter")?;
        let expected = "incl IN IP4|IP6 * ADDRESS, with one address";
        let invalid = || invalid("a=source-filter", text, expected);
        let filter: SourceFilter = text.parse().map_err(|_| invalid())?;
        match (filter.mode, &filter.sources[..]) {
            (SourceFilterMode::Incl, [SourceFilterAddress::IpAddr(address)]) => Ok(*address),
            _ => Err(invalid()),
        }
    }

    /// Returns the value of an attribute.
    ///
    /// # Errors
    /// If it is missing, or there are several.
    pub fn attribute(&self, name: &'static str) -> Result<&'a str, DescriptionError> {
        let missing = || missing(&format!("a={name}"), "what `manyflow send` writes");
        self.optional_attribute(name)?.ok_or_else(missing)
    }

    /// Returns the value of an attribute; `None` without it.
    ///
    /// # Errors
    /// If there are several.
    pub fn optional_attribute(
        &self,
        name: &'static str,
    ) -> Result<Option<&'a str>, DescriptionError> {
        let mut values = self.values(name);
        match (values.next(), values.next()) {
            (_, Some(second)) => Err(invalid(&format!("a={name}"), second, "the attribute once")),
            (value, None) => Ok(value),
        }
    }

    /// Returns the values of an attribute of the session or of the media.
    pub fn values(&self, name: &'static str) -> impl Iterator<Item = &'a str> {
        let session = self.session.get_attribute_values(name);
        session
            .chain(self.media.get_attribute_values(name))
            .flatten()
            .map(str::trim)
    }
}

/// Returns the error about a session that another command receives, if it is one.
fn other_content(session: &Session) -> Option<DescriptionError> {
    let has = |protocol: &str| {
        let mut medias = session.medias.iter();
        medias.any(|media| media.proto.eq_ignore_ascii_case(protocol))
    };
    let found = RECEIVERS.iter().find(|(protocol, ..)| has(protocol));
    found.map(|&(_, content, command)| DescriptionError::OtherContent { content, command })
}

fn ipv4_groups(first: &str, ttl: &str, count: &str) -> Option<Groups> {
    let first = IpAddr::V4(first.parse().ok()?);
    Some(Groups {
        first,
        ttl: Some(ttl.parse().ok()?),
        count: count.parse().ok()?,
    })
}

fn ipv6_groups(first: &str, count: &str) -> Option<Groups> {
    let first = IpAddr::V6(first.parse().ok()?);
    Some(Groups {
        first,
        ttl: None,
        count: count.parse().ok()?,
    })
}
