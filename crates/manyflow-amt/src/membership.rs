//! The group membership messages inside AMT: IGMPv3 (RFC 3376, section 4) and MLDv2 (RFC 3810,
//! section 5), with their IP headers.
//!
//! Both protocols have the same fields in different widths, so one codec serves both. It has only
//! the messages that AMT needs: the general query from the relay and the gateway's report. The
//! older reports of IGMPv2 and MLDv1 become records of IGMPv3 and MLDv2. A receiver checks TTL 1,
//! the Router Alert option and all checksums, but not the source address (RFC 7450, sections 5.2.1
//! and 5.3.1).

mod older;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpDscp, IpNumber, IpSlice, Ipv4Header, Ipv6Header};
use thiserror::Error;

use super::Family;
use super::ip::{IpError, decode_ip};

/// Robustness Variable if a query gives none (RFC 3376, section 8.1).
pub const DEFAULT_ROBUSTNESS: u8 = 2;
/// Query Interval if a query gives none (RFC 3376, section 8.2).
pub const DEFAULT_QUERY_INTERVAL: Duration = Duration::from_secs(125);

/// Router Alert for IPv4 (RFC 2113) and, with its hop-by-hop header, for IPv6 (RFC 2711).
const ROUTER_ALERT_V4: [u8; 4] = [0x94, 4, 0, 0];
const ROUTER_ALERT_V6: [u8; 4] = [5, 2, 0, 0];
const HOP_BY_HOP: [u8; 8] = [IpNumber::IPV6_ICMP.0, 0, 5, 2, 0, 0, 1, 0];

/// IP precedence Internetwork Control, which IGMP messages have (RFC 3376, section 4).
const DSCP_CONTROL: IpDscp = IpDscp::CS6;

/// The Max Resp Code that asks for an immediate answer (RFC 7450, section 5.3.3.3).
const MAX_RESP_CODE: u8 = 1;

const IGMP_QUERY: u8 = 0x11;
const IGMPV3_REPORT: u8 = 0x22;
const MLD_QUERY: u8 = 130;
const MLDV2_REPORT: u8 = 143;

/// The reason why an IP datagram is not a usable query or report. The receiver ignores the
/// datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// The IP datagram itself is malformed.
    #[error(transparent)]
    Ip(#[from] IpError),
    /// TTL or hop limit is not 1, or the Router Alert option is missing.
    #[error("an IGMP or MLD message needs TTL 1 and the Router Alert option: ignore it")]
    NotLinkLocal,
    /// The IGMP or ICMPv6 message has another type than expected.
    #[error("IGMP or ICMPv6 type {0} is not expected here: ignore the message")]
    Type(u8),
    /// The message is shorter than its fields claim.
    #[error("IGMP or MLD message cut short: ignore it")]
    Truncated,
    /// The query asks about one group or source.
    #[error("AMT has only general queries, but this one names a group or source: ignore it")]
    NotGeneral,
}

/// A general query, which tells the gateway how often to report and how often to repeat a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneralQuery {
    /// Whether this is IGMPv3 or MLDv2.
    pub family: Family,
    /// Querier's Robustness Variable, 1 to 7: how many times a change of state is sent.
    pub robustness: u8,
    /// Querier's Query Interval, 1 s to 31,744 s. Encoding rounds it down to a value that the wire
    /// can express.
    pub query_interval: Duration,
}

impl GeneralQuery {
    /// Appends the IP datagram with this query to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut message = match self.family {
            Family::V4 => vec![IGMP_QUERY, MAX_RESP_CODE, 0, 0],
            Family::V6 => vec![MLD_QUERY, 0, 0, 0, 0, MAX_RESP_CODE, 0, 0],
        };
        message.resize(message.len() + self.family.address_len(), 0);
        message.extend_from_slice(&[
            self.robustness.clamp(1, 7),
            interval_code(self.query_interval),
            0,
            0,
        ]);
        match self.family {
            Family::V4 => encode_igmp(Ipv4Addr::new(224, 0, 0, 1), &mut message, out),
            // RFC 3810 (section 5.1.14) demands a link-local source.
            Family::V6 => encode_mld(
                Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2),
                Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1),
                &mut message,
                out,
            ),
        }
    }

    /// Decodes the general query in an IP datagram. Unset variables get the defaults of RFC 3376,
    /// section 8.
    pub fn decode(datagram: &[u8]) -> Result<Self, MembershipError> {
        let (family, message) = decode_message(datagram)?;
        let (query_type, group_at) = match family {
            Family::V4 => (IGMP_QUERY, 4),
            Family::V6 => (MLD_QUERY, 8),
        };
        let group_end = group_at + family.address_len();
        expect_type(message, query_type)?;
        let group = message
            .get(group_at..group_end)
            .ok_or(MembershipError::Truncated)?;
        let &[flags, code, n0, n1] = message[group_end..]
            .first_chunk()
            .ok_or(MembershipError::Truncated)?;
        if group.iter().any(|&byte| byte != 0) || [n0, n1] != [0, 0] {
            return Err(MembershipError::NotGeneral);
        }
        let robustness = if flags & 7 == 0 {
            DEFAULT_ROBUSTNESS
        } else {
            flags & 7
        };
        Ok(Self {
            family,
            robustness,
            query_interval: interval(code),
        })
    }
}

/// The meaning of a group record (RFC 3376, section 4.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordType {
    /// MODE_IS_INCLUDE: exactly the listed sources are received.
    IsInclude = 1,
    /// MODE_IS_EXCLUDE: all sources except the listed ones are received.
    IsExclude = 2,
    /// CHANGE_TO_INCLUDE_MODE: from now on, exactly the listed sources are received.
    ToInclude = 3,
    /// CHANGE_TO_EXCLUDE_MODE: from now on, all sources except the listed ones are received.
    ToExclude = 4,
    /// ALLOW_NEW_SOURCES: the listed sources are received as well.
    Allow = 5,
    /// BLOCK_OLD_SOURCES: the listed sources are no longer received.
    Block = 6,
}

impl RecordType {
    fn from_wire(code: u8) -> Option<Self> {
        use RecordType::*;
        [IsInclude, IsExclude, ToInclude, ToExclude, Allow, Block]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

/// The state of one group, or a change of this state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// The meaning of the listed sources.
    pub kind: RecordType,
    /// The group's multicast address.
    pub group: IpAddr,
    /// The listed sources, of the group's family.
    pub sources: Vec<IpAddr>,
}

/// The report of a gateway or host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether this is a message of IGMP or MLD. All addresses in the records have this family.
    pub family: Family,
    /// The group records.
    pub records: Vec<GroupRecord>,
}

impl Report {
    /// Appends the IP datagram with this report to `out`. Leaves out addresses of the other family,
    /// which the message cannot carry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self.family {
            Family::V4 => IGMPV3_REPORT,
            Family::V6 => MLDV2_REPORT,
        };
        let records: Vec<_> = self
            .records
            .iter()
            .filter(|record| Family::of(record.group) == self.family)
            .collect();
        let mut message = vec![kind, 0, 0, 0, 0, 0];
        message.extend_from_slice(&(records.len() as u16).to_be_bytes());
        records
            .iter()
            .for_each(|record| self.encode_record(record, &mut message));
        match self.family {
            Family::V4 => encode_igmp(Ipv4Addr::new(224, 0, 0, 22), &mut message, out),
            Family::V6 => encode_mld(
                Ipv6Addr::UNSPECIFIED,
                Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16),
                &mut message,
                out,
            ),
        }
    }

    fn encode_record(&self, record: &GroupRecord, message: &mut Vec<u8>) {
        let sources: Vec<_> = record
            .sources
            .iter()
            .filter(|source| Family::of(**source) == self.family)
            .collect();
        message.extend_from_slice(&[record.kind as u8, 0]);
        message.extend_from_slice(&(sources.len() as u16).to_be_bytes());
        put_address(record.group, message);
        sources
            .iter()
            .for_each(|source| put_address(**source, message));
    }

    /// Decodes the report in an IP datagram. Skips records of unknown type and auxiliary data (RFC
    /// 3376, section 4.2.12). A report or leave of IGMPv2 or MLDv1 becomes a record without
    /// sources.
    pub fn decode(datagram: &[u8]) -> Result<Self, MembershipError> {
        let (family, message) = decode_message(datagram)?;
        let message_type = message.first().copied().unwrap_or_default();
        if let Some(kind) = older::kind(family, message_type) {
            return older::decode(family, kind, message);
        }
        expect_type(
            message,
            if family == Family::V4 {
                IGMPV3_REPORT
            } else {
                MLDV2_REPORT
            },
        )?;
        let (header, mut rest) = message
            .split_first_chunk::<8>()
            .ok_or(MembershipError::Truncated)?;
        let mut records = Vec::new();
        for _ in 0..u16::from_be_bytes([header[6], header[7]]) {
            let record;
            (record, rest) = decode_record(family, rest).ok_or(MembershipError::Truncated)?;
            records.extend(record);
        }
        Ok(Self { family, records })
    }
}

/// Decodes one record. Returns the record (`None` for an unknown type) and the bytes after it, or
/// `None` if the record is cut short.
fn decode_record(family: Family, bytes: &[u8]) -> Option<(Option<GroupRecord>, &[u8])> {
    let (&[code, aux_words, n0, n1], rest) = bytes.split_first_chunk()?;
    let (group, rest) = rest.split_at_checked(family.address_len())?;
    let (sources, rest) =
        rest.split_at_checked(usize::from(u16::from_be_bytes([n0, n1])) * family.address_len())?;
    let (_auxiliary, rest) = rest.split_at_checked(usize::from(aux_words) * 4)?;
    let record = RecordType::from_wire(code).map(|kind| GroupRecord {
        kind,
        group: address(group),
        sources: sources
            .chunks_exact(family.address_len())
            .map(address)
            .collect(),
    });
    Some((record, rest))
}

/// Returns the address in a slice that has the length of a family's addresses.
fn address(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(v4) => v4.into(),
        Err(_) => <[u8; 16]>::try_from(bytes)
            .expect("addresses are cut to 4 or 16 bytes")
            .into(),
    }
}

fn put_address(ip: IpAddr, out: &mut Vec<u8>) {
    match ip {
        IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
    }
}

/// Encodes an interval as QQIC: seconds, with a 4-bit mantissa and 3-bit exponent from 128 s (RFC
/// 3376, section 4.1.7).
fn interval_code(interval: Duration) -> u8 {
    let seconds = interval.as_secs().clamp(1, 31 << 10);
    if seconds < 128 {
        return seconds as u8;
    }
    let shift = seconds.ilog2() - 4;
    0x80 | ((shift - 3) as u8) << 4 | (seconds >> shift) as u8 & 0x0f
}

fn interval(code: u8) -> Duration {
    match code {
        0 => DEFAULT_QUERY_INTERVAL,
        1..128 => Duration::from_secs(code.into()),
        128.. => Duration::from_secs(u64::from(code & 0x0f | 0x10) << ((code >> 4 & 7) + 3)),
    }
}

/// Appends an IGMP message from 0.0.0.0, which RFC 7450 (sections 5.2.1 and 5.3.3.3) allows both
/// sides to use.
fn encode_igmp(destination: Ipv4Addr, message: &mut [u8], out: &mut Vec<u8>) {
    let checksum = Sum16BitWords::new()
        .add_slice(message)
        .ones_complement()
        .to_ne_bytes();
    message[2..4].copy_from_slice(&checksum);
    let length =
        u16::try_from(message.len()).expect("queries and reports are built to fit a packet");
    let mut ip =
        Ipv4Header::new(length, 1, IpNumber::IGMP, [0; 4], destination.octets()).expect("as above");
    ip.dscp = DSCP_CONTROL;
    ip.options = ROUTER_ALERT_V4.into();
    ip.total_len += ROUTER_ALERT_V4.len() as u16;
    ip.header_checksum = ip.calc_header_checksum();
    out.extend_from_slice(&ip.to_bytes());
    out.extend_from_slice(message);
}

fn encode_mld(source: Ipv6Addr, destination: Ipv6Addr, message: &mut [u8], out: &mut Vec<u8>) {
    let checksum = mld_sum(source, destination, message)
        .ones_complement()
        .to_ne_bytes();
    message[2..4].copy_from_slice(&checksum);
    let ip = Ipv6Header {
        payload_length: u16::try_from(HOP_BY_HOP.len() + message.len())
            .expect("queries and reports are built to fit a packet"),
        next_header: IpNumber::IPV6_HEADER_HOP_BY_HOP,
        hop_limit: 1,
        source: source.octets(),
        destination: destination.octets(),
        ..Default::default()
    };
    out.extend_from_slice(&ip.to_bytes());
    out.extend_from_slice(&HOP_BY_HOP);
    out.extend_from_slice(message);
}

/// Returns the sum over pseudo-header and message (RFC 4443, section 2.3).
fn mld_sum(source: Ipv6Addr, destination: Ipv6Addr, message: &[u8]) -> Sum16BitWords {
    Sum16BitWords::new()
        .add_16bytes(source.octets())
        .add_16bytes(destination.octets())
        .add_4bytes((message.len() as u32).to_be_bytes())
        .add_2bytes([0, IpNumber::IPV6_ICMP.0])
        .add_slice(message)
}

/// Returns the IGMP or MLD message in an IP datagram, after checking headers and checksums. Ignores
/// bytes after the datagram.
fn decode_message(datagram: &[u8]) -> Result<(Family, &[u8]), MembershipError> {
    let ip = decode_ip(datagram)?;
    let content = ip.payload();
    let message = content.payload;
    let (family, expected, name, link_local, sum) = match &ip {
        IpSlice::Ipv4(v4) => {
            let header = v4.header();
            let link_local = header.ttl() == 1 && has_option(header.options(), ROUTER_ALERT_V4);
            (
                Family::V4,
                IpNumber::IGMP,
                "IGMP",
                link_local,
                Sum16BitWords::new().add_slice(message),
            )
        }
        IpSlice::Ipv6(v6) => {
            let header = v6.header();
            let link_local =
                header.hop_limit() == 1 && has_option(v6.extensions().slice(), ROUTER_ALERT_V6);
            let sum = mld_sum(header.source_addr(), header.destination_addr(), message);
            (Family::V6, IpNumber::IPV6_ICMP, "ICMPv6", link_local, sum)
        }
    };
    if content.ip_number != expected {
        return Err(IpError::Protocol(content.ip_number.0, name).into());
    }
    if !link_local {
        return Err(MembershipError::NotLinkLocal);
    }
    if sum.ones_complement() != 0 {
        return Err(IpError::Checksum(name).into());
    }
    Ok((family, message))
}

/// Whether the options contain this one, in any place.
fn has_option(options: &[u8], option: [u8; 4]) -> bool {
    options.windows(option.len()).any(|bytes| bytes == option)
}

fn expect_type(message: &[u8], expected: u8) -> Result<(), MembershipError> {
    match message.first() {
        Some(&kind) if kind == expected => Ok(()),
        Some(&kind) => Err(MembershipError::Type(kind)),
        None => Err(MembershipError::Truncated),
    }
}

#[cfg(test)]
pub(crate) mod tests;
