//! Writes and parses a description as text. sdp-types handles the structure of SDP; this module
//! handles the contents for FLUTE and WEBRC.

use manyflow_net::description::error::{DescriptionError, invalid, missing, number, require};
use manyflow_net::description::lines::{Sdp, parse_session};
use manyflow_net::description::{DESCRIPTION_BYTES_MAX, HostPort, signature};
use manyflow_net::keys::{PublicKey, SigningKey};

use super::{Completion, SessionDescription, WebrcParameters, digest, protection};

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
        let table_key = self.table_key.map(|key| format!("a=fdt-key:{key}\r\n"));
        let table_key = table_key.unwrap_or_default();
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
             {table_key}\
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
        let session = parse_session(text)?;
        let sdp = Sdp::of(&session, PROTOCOL)?;
        let groups = sdp.groups()?;
        let description = Self {
            name: session.session_name.clone(),
            tsi: number("a=flute-tsi", sdp.attribute("flute-tsi")?)?,
            version: session.origin.sess_version,
            source: sdp.source()?,
            first_group: groups.first,
            port: sdp.media.port,
            ttl: groups.ttl,
            fec_encoding_id: fec_encoding_id(&sdp)?,
            table_sha256: sdp
                .optional_attribute("fdt-digest")?
                .map(digest::parse)
                .transpose()?,
            table_key: sdp
                .optional_attribute("fdt-key")?
                .map(|text| text.parse().map_err(|_| key_error(text)))
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

fn key_error(text: &str) -> DescriptionError {
    invalid("a=fdt-key", text, "ed25519: and 44 characters")
}

/// Returns the FEC Encoding ID. `a=FEC:REFERENCE` selects one of the declarations
/// `a=FEC-declaration:REFERENCE encoding-id=ID; ...`.
fn fec_encoding_id(sdp: &Sdp<'_>) -> Result<u8, DescriptionError> {
    let reference = sdp.attribute("FEC")?;
    let parameters = sdp.values("FEC-declaration").find_map(|value| {
        let (declared, parameters) = value.split_once(' ')?;
        (declared == reference).then_some(parameters)
    });
    let missing = || missing("a=FEC-declaration", "the one that a=FEC refers to");
    let mut parameters = parameters.ok_or_else(missing)?.split(';').map(str::trim);
    let id = parameters.find_map(|parameter| parameter.strip_prefix("encoding-id="));
    number("the FEC encoding-id", id.unwrap_or_default())
}
