//! The description of a stream: an SDP file (RFC 8866) with the source filter of RFC 4570 and
//! manyflow's own attributes `layered`, `reports`, `report-key`, `amt-relay` and `signature`:
//!
//! ```text
//! v=0
//! o=- 7 3976214400 IN IP4 192.0.2.1
//! s=north camera
//! t=0 0
//! a=source-filter: incl IN IP4 * 192.0.2.1
//! a=layered:sim groups=5 version=2
//! a=reports:192.0.2.1:2268
//! a=report-key:required
//! a=amt-relay:192.0.2.1:2268
//! m=application 5446 LAYERED/UDP *
//! c=IN IP4 232.1.3.0/1/5
//! a=signature:ed25519:KEY SIGNATURE
//! ```
//!
//! Group g has the address of the first group plus g. The first address is a multiple of the
//! number of groups, rounded up to a power of two, so that its last bits are the rank of a group
//! (SIM, section III-A2). The version is that of the packets: receivers of version 1, which had one
//! piece of one unit in each packet, refuse the description, and so do present ones that of such a
//! sender. The signature is that of [all descriptions](manyflow_net::description).

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use manyflow_amt::Flow;
use manyflow_layered::GROUPS_MAX;
use manyflow_net::description::error::{in_range, invalid, number, require};
use manyflow_net::description::lines::{Sdp, parse_session};
use manyflow_net::description::{
    DESCRIPTION_BYTES_MAX, DescriptionError, HostPort, check_addresses, check_name, group_after,
    signature,
};
use manyflow_net::keys::{PublicKey, SigningKey};

const PROTOCOL: &str = "LAYERED/UDP";
/// The version of the packets of streams: a packet can carry pieces of several units.
const VERSION: u8 = 2;
/// The value of `a=report-key` for sessions whose reports need the shared key.
const REQUIRED: &str = "required";

/// The rate control of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamProtocol {
    /// SIM: the rates of groups follow the receivers' reports.
    Sim,
    /// RLM: groups have fixed rates, and receivers try them.
    Rlm,
}

impl fmt::Display for StreamProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StreamProtocol::Sim => "sim",
            StreamProtocol::Rlm => "rlm",
        })
    }
}

/// A stream as its receivers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamDescription {
    /// The stream's name for people: 1 to 255 bytes without control characters.
    pub name: String,
    /// The number of the session, which reports carry.
    pub session: u32,
    /// The time at which the description was written, in seconds of NTP
    /// ([`ntp_seconds`](manyflow_net::description::ntp_seconds)).
    pub version: u64,
    /// The unicast source address of the packets.
    pub source: IpAddr,
    /// The address of group 0, of the same IP version as `source`.
    pub first_group: IpAddr,
    /// The UDP port of all groups.
    pub port: u16,
    /// IPv4's time to live; `None` with IPv6.
    pub ttl: Option<u8>,
    /// The rate control.
    pub protocol: StreamProtocol,
    /// n_g: the number of groups, 1 to [`GROUPS_MAX`].
    pub groups: u8,
    /// The address to which receivers of IP multicast report.
    pub reports: HostPort,
    /// Whether reports need a shared key.
    pub needs_key: bool,
    /// An AMT relay (RFC 7450) for receivers without multicast.
    pub amt_relay: Option<HostPort>,
}

impl StreamDescription {
    /// Returns whether a text describes a stream and not files.
    pub fn is_stream(text: &str) -> bool {
        text.lines().any(|line| line.starts_with("a=layered:"))
    }

    /// Returns the address of a group; `None` if there is no such group.
    pub fn group(&self, group: u8) -> Option<IpAddr> {
        (group < self.groups).then(|| group_after(self.first_group, group.into()))?
    }

    /// Returns the flow of each group, by rank.
    pub fn flows(&self) -> Vec<Flow> {
        let source = SocketAddr::new(self.source, self.port);
        let groups = (0..self.groups).map_while(|group| self.group(group));
        let flow = |group| Flow {
            source,
            group: SocketAddr::new(group, self.port),
        };
        groups.map(flow).collect()
    }

    /// Returns the text of the description, with a signature by `key` if there is one.
    ///
    /// # Errors
    /// If [`parse`](Self::parse) would refuse the text.
    pub fn to_sdp(&self, key: Option<&SigningKey>) -> Result<String, DescriptionError> {
        self.check()?;
        let version = if self.source.is_ipv4() { "IP4" } else { "IP6" };
        let ttl = self.ttl.map(|ttl| format!("/{ttl}")).unwrap_or_default();
        let relay = self.amt_relay.as_ref();
        let relay = relay.map(|relay| format!("a=amt-relay:{}\r\n", relay.authority()));
        let report_key = self.needs_key.then_some("a=report-key:required\r\n");
        let Self {
            name,
            session,
            version: written,
            source,
            first_group,
            port,
            protocol,
            groups,
            reports,
            ..
        } = self;
        let text = format!(
            "v=0\r\n\
             o=- {session} {written} IN {version} {source}\r\n\
             s={name}\r\n\
             t=0 0\r\n\
             a=source-filter: incl IN {version} * {source}\r\n\
             a=layered:{protocol} groups={groups} version={VERSION}\r\n\
             a=reports:{}\r\n\
             {}{}\
             m=application {port} {PROTOCOL} *\r\n\
             c=IN {version} {first_group}{ttl}/{groups}\r\n",
            reports.authority(),
            report_key.unwrap_or_default(),
            relay.unwrap_or_default(),
        );
        let line = key.map(|key| signature::to_line(&text, key));
        Ok(text + &line.unwrap_or_default())
    }

    /// Parses a description, and checks all of it, with its signature if there is one. Returns the
    /// key that signed it, too.
    ///
    /// # Errors
    /// If a line is missing or wrong.
    pub fn parse(text: &str) -> Result<(Self, Option<PublicKey>), DescriptionError> {
        if text.len() > DESCRIPTION_BYTES_MAX {
            return Err(DescriptionError::TooLong);
        }
        let signer = signature::verify(text)?;
        let session = parse_session(text)?;
        let sdp = Sdp::of(&session, PROTOCOL)?;
        let addresses = sdp.groups()?;
        let (protocol, groups) = parse_layered(sdp.attribute("layered")?)?;
        let host = |name: &'static str, text| HostPort::parse(&format!("a={name}"), text);
        let relay = sdp.optional_attribute("amt-relay")?;
        let description = Self {
            name: session.session_name.clone(),
            session: number("the session in o=", &session.origin.sess_id)?,
            version: session.origin.sess_version,
            source: sdp.source()?,
            first_group: addresses.first,
            port: sdp.media.port,
            ttl: addresses.ttl,
            protocol,
            groups,
            reports: host("reports", sdp.attribute("reports")?)?,
            needs_key: match sdp.optional_attribute("report-key")? {
                None => false,
                Some(REQUIRED) => true,
                Some(other) => return Err(invalid("a=report-key", other, REQUIRED)),
            },
            amt_relay: relay.map(|text| host("amt-relay", text)).transpose()?,
        };
        description.check()?;
        let expected = format!("{groups}, as in a=layered");
        let is_same = addresses.count == u32::from(groups);
        require(
            is_same,
            "the number of groups in c=",
            addresses.count,
            &expected,
        )?;
        Ok((description, signer))
    }

    fn check(&self) -> Result<(), DescriptionError> {
        check_name(&self.name)?;
        in_range("groups in a=layered", self.groups, 1..=GROUPS_MAX)?;
        in_range("the port in m=", self.port, 1..=u16::MAX)?;
        self.reports.check("a=reports")?;
        if let Some(relay) = &self.amt_relay {
            relay.check("a=amt-relay")?;
        }
        let count = u32::from(self.groups);
        check_addresses(self.source, self.first_group, self.ttl, count)?;
        let size = u128::from(count.next_power_of_two());
        let first = match self.first_group {
            IpAddr::V4(first) => u128::from(first.to_bits()),
            IpAddr::V6(first) => first.to_bits(),
        };
        let expected = format!("an address that is a multiple of {size}");
        require(
            first.is_multiple_of(size),
            "c=",
            self.first_group,
            &expected,
        )
    }
}

/// Parses the value of `a=layered`.
fn parse_layered(text: &str) -> Result<(StreamProtocol, u8), DescriptionError> {
    let wrong = || invalid("a=layered", text, "sim or rlm, and groups=NUMBER version=2");
    let (protocol, rest) = text.split_once(" groups=").ok_or_else(wrong)?;
    let protocol = match protocol {
        "sim" => StreamProtocol::Sim,
        "rlm" => StreamProtocol::Rlm,
        _ => return Err(wrong()),
    };
    let (groups, version) = rest.split_once(" version=").unwrap_or((rest, "1"));
    require(
        version == VERSION.to_string(),
        "the version of packets in a=layered",
        version,
        &format!("{VERSION}: sender and receivers need the same version of manyflow"),
    )?;
    Ok((protocol, number("groups in a=layered", groups)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description() -> StreamDescription {
        let host = |port| HostPort {
            host: "192.0.2.1".to_owned(),
            port,
        };
        StreamDescription {
            name: "north camera".to_owned(),
            session: 7,
            version: 3_976_214_400,
            source: "192.0.2.1".parse().unwrap(),
            first_group: "232.1.3.0".parse().unwrap(),
            port: 5446,
            ttl: Some(1),
            protocol: StreamProtocol::Sim,
            groups: 5,
            reports: host(2268),
            needs_key: true,
            amt_relay: Some(host(2269)),
        }
    }

    #[test]
    fn a_description_survives_its_text() {
        let plain = StreamDescription {
            amt_relay: None,
            needs_key: false,
            protocol: StreamProtocol::Rlm,
            ..description()
        };
        for description in [description(), plain] {
            let text = description.to_sdp(None).unwrap();
            assert!(StreamDescription::is_stream(&text), "{text}");
            assert_eq!(
                StreamDescription::parse(&text).unwrap(),
                (description, None)
            );
            let files = text.replace("LAYERED/UDP", "FLUTE/UDP");
            let error = StreamDescription::parse(&files).unwrap_err().to_string();
            assert!(error.contains("files: use `manyflow recv`"), "{error}");
        }
    }

    #[test]
    fn the_groups_begin_at_a_multiple_of_their_number() {
        let odd = StreamDescription {
            first_group: "232.1.3.4".parse().unwrap(),
            ..description()
        };
        let refused = odd.to_sdp(None).unwrap_err().to_string();
        assert!(refused.contains("multiple of 8"), "{refused}");
    }

    #[test]
    fn a_wrong_line_is_named() {
        let text = description().to_sdp(None).unwrap();
        for (good, bad, name) in [
            ("a=layered:sim", "a=layered:pgm", "a=layered"),
            ("groups=5", "groups=33", "groups in a=layered"),
            (" version=2", "", "the version of packets"),
            ("version=2", "version=3", "the version of packets"),
            ("groups=5", "groups=4", "the number of groups in c="),
            ("a=reports:192.0.2.1:2268", "a=reports:here", "a=reports"),
            (
                "a=report-key:required",
                "a=report-key:maybe",
                "a=report-key",
            ),
        ] {
            let changed = text.replace(good, bad);
            let refused = StreamDescription::parse(&changed).unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }
}
