//! Writes and parses a description as text. sdp-types handles the structure of SDP; this module
//! handles the contents for FLUTE and WEBRC.

use std::net::IpAddr;

use sdp_types::{Media, Session, SourceFilter, SourceFilterAddress, SourceFilterMode};

use super::error::{DescriptionError, invalid, missing, number, require};
use super::{
    Completion, DESCRIPTION_BYTES_MAX, HostPort, SessionDescription, WebrcParameters, digest,
    protection, signature,
};
use crate::filecast::keys::{PublicKey, SigningKey};

const PROTOCOL: &str = "FLUTE/UDP";

impl SessionDescription {
    /// Returns the text of the description, which [`parse`](Self::parse) reads back. Fails if
    /// `parse` would refuse the text.
    pub fn to_sdp(&self) -> Result<String, DescriptionError> {
        self.check()?;
        let Self {
            name,
            tsi,
            version: written,
            source,
            first_group,
            port,
            fec_encoding_id,
            webrc,
            ..
        } = self;
        let channels = self.channels();
        let version = if source.is_ipv4() { "IP4" } else { "IP6" };
        let ttl = self.ttl.map(|ttl| format!("/{ttl}")).unwrap_or_default();
        let relay = self.amt_relay.as_ref().map(HostPort::authority);
        let relay = relay
            .map(|relay| format!("a=amt-relay:{relay}\r\n"))
            .unwrap_or_default();
        let completion = self.completion.as_ref();
        let completion = completion
            .map(|completion| format!("a=completion:{completion}\r\n"))
            .unwrap_or_default();
        let digest = self.table_sha256.as_ref().map(digest::to_text);
        let digest = digest
            .map(|digest| format!("a=fdt-digest:{digest}\r\n"))
            .unwrap_or_default();
        let protection = self.protection.as_ref().map(protection::to_text);
        let protection = protection
            .map(|protection| format!("a=ext-auth:{protection}\r\n"))
            .unwrap_or_default();
        Ok(format!(
            "v=0\r\n\
             o=- {tsi} {written} IN {version} {source}\r\n\
             s={name}\r\n\
             t=0 0\r\n\
             a=source-filter: incl IN {version} * {source}\r\n\
             a=flute-tsi:{tsi}\r\n\
             a=flute-ch:{channels}\r\n\
             a=FEC-declaration:0 encoding-id={fec_encoding_id}\r\n\
             a=webrc:{webrc}\r\n\
             {digest}\
             {protection}\
             {relay}\
             {completion}\
             m=application {port} {PROTOCOL} *\r\n\
             c=IN {version} {first_group}{ttl}/{channels}\r\n\
             a=FEC:0\r\n"
        ))
    }

    /// Returns the text of the description with a signature by `key`.
    ///
    /// # Errors
    /// As [`to_sdp`](Self::to_sdp).
    pub fn to_signed_sdp(&self, key: &SigningKey) -> Result<String, DescriptionError> {
        let text = self.to_sdp()?;
        let line = signature::to_line(&text, key);
        Ok(text + &line)
    }

    /// Parses a description, and checks all of it, with its signature if there is one.
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        Self::parse_signed(text).map(|(description, _signer)| description)
    }

    /// Parses a description as [`parse`](Self::parse) does; returns the key that signed it, too.
    /// Anyone can make a key, so it is the caller's task to compare it with the keys that it
    /// trusts.
    pub fn parse_signed(text: &str) -> Result<(Self, Option<PublicKey>), DescriptionError> {
        if text.len() > DESCRIPTION_BYTES_MAX {
            return Err(DescriptionError::TooLong);
        }
        let signer = signature::verify(text)?;
        Ok((Self::parse_sdp(text)?, signer))
    }

    fn parse_sdp(text: &str) -> Result<Self, DescriptionError> {
        let session = Session::parse(text.as_bytes());
        let session = session.map_err(|error| DescriptionError::NotSdp(error.to_string()))?;
        let sdp = Sdp {
            session: &session,
            media: flute_media(&session)?,
        };
        let groups = sdp.groups()?;
        let description = Self {
            name: session.session_name.clone(),
            tsi: number("a=flute-tsi", sdp.attribute("flute-tsi")?)?,
            version: session.origin.sess_version,
            source: sdp.source()?,
            first_group: groups.first,
            port: sdp.media.port,
            ttl: groups.ttl,
            fec_encoding_id: sdp.fec_encoding_id()?,
            table_sha256: sdp
                .optional_attribute("fdt-digest")?
                .map(digest::parse)
                .transpose()?,
            protection: sdp
                .optional_attribute("ext-auth")?
                .map(protection::parse)
                .transpose()?,
            amt_relay: sdp
                .optional_attribute("amt-relay")?
                .map(|text| HostPort::parse("a=amt-relay", text))
                .transpose()?,
            completion: sdp
                .optional_attribute("completion")?
                .map(Completion::parse)
                .transpose()?,
            webrc: WebrcParameters::parse(sdp.attribute("webrc")?)?,
        };
        description.check()?;
        let channels = description.channels();
        let declared: u32 = number("a=flute-ch", sdp.attribute("flute-ch")?)?;
        let expected = format!("{channels}, which is N+Q+1 of a=webrc");
        require(declared == channels, "a=flute-ch", declared, &expected)?;
        require(
            groups.count == channels,
            "the number of groups in c=",
            groups.count,
            &expected,
        )?;
        Ok(description)
    }
}

/// The part of an SDP file that describes the FLUTE session.
struct Sdp<'a> {
    session: &'a Session,
    media: &'a Media,
}

/// The `c=` line: `FIRST/TTL/COUNT` with IPv4, `FIRST/COUNT` with IPv6 (RFC 8866 section 5.7).
struct Groups {
    first: IpAddr,
    ttl: Option<u8>,
    count: u32,
}

fn flute_media(session: &Session) -> Result<&Media, DescriptionError> {
    let is_flute = |media: &&Media| media.proto.eq_ignore_ascii_case(PROTOCOL);
    let mut flute = session.medias.iter().filter(is_flute);
    match (flute.next(), flute.next()) {
        (Some(media), None) => Ok(media),
        (None, _) => Err(missing("m=", "m=application PORT FLUTE/UDP *")),
        (_, Some(second)) => Err(invalid("m=", &second.proto, "one m= line with FLUTE/UDP")),
    }
}

impl<'a> Sdp<'a> {
    fn groups(&self) -> Result<Groups, DescriptionError> {
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

    /// Returns the sender's address, which FLUTE descriptions give as the only source of a source
    /// filter.
    fn source(&self) -> Result<IpAddr, DescriptionError> {
        let text = self.attribute("source-filter")?;
        let expected = "incl IN IP4|IP6 * ADDRESS, with one address";
        let invalid = || invalid("a=source-filter", text, expected);
        let filter: SourceFilter = text.parse().map_err(|_| invalid())?;
        match (filter.mode, &filter.sources[..]) {
            (SourceFilterMode::Incl, [SourceFilterAddress::IpAddr(address)]) => Ok(*address),
            _ => Err(invalid()),
        }
    }

    /// Returns the FEC Encoding ID. `a=FEC:REFERENCE` selects one of the declarations
    /// `a=FEC-declaration:REFERENCE encoding-id=ID; ...`.
    fn fec_encoding_id(&self) -> Result<u8, DescriptionError> {
        let reference = self.attribute("FEC")?;
        let parameters = self.values("FEC-declaration").find_map(|value| {
            let (declared, parameters) = value.split_once(' ')?;
            (declared == reference).then_some(parameters)
        });
        let missing = || missing("a=FEC-declaration", "the one that a=FEC refers to");
        let mut parameters = parameters.ok_or_else(missing)?.split(';').map(str::trim);
        let id = parameters.find_map(|parameter| parameter.strip_prefix("encoding-id="));
        number("the FEC encoding-id", id.unwrap_or_default())
    }

    fn attribute(&self, name: &'static str) -> Result<&'a str, DescriptionError> {
        let missing = || missing(&format!("a={name}"), "what `manyflow send` writes");
        self.optional_attribute(name)?.ok_or_else(missing)
    }

    fn optional_attribute(&self, name: &'static str) -> Result<Option<&'a str>, DescriptionError> {
        let mut values = self.values(name);
        match (values.next(), values.next()) {
            (_, Some(second)) => Err(invalid(&format!("a={name}"), second, "the attribute once")),
            (value, None) => Ok(value),
        }
    }

    /// Returns the values of an attribute of the session or of the media.
    fn values(&self, name: &'static str) -> impl Iterator<Item = &'a str> {
        let session = self.session.get_attribute_values(name);
        session
            .chain(self.media.get_attribute_values(name))
            .flatten()
            .map(str::trim)
    }
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
