//! The UDP datagrams inside Multicast Data messages, with their IPv4 or IPv6 headers.
//!
//! `etherparse` reads and writes the headers: it allocates nothing, and parsing headers by hand is
//! error-prone.

use std::net::{IpAddr, SocketAddr};

use etherparse::{IpEcn, IpNumber, IpSlice, Ipv4Header, Ipv6Header, UdpHeader, UdpSlice};
use manyflow_core::Ecn;
use thiserror::Error;

use super::Flow;
use super::wire::{DATA_HEADER_LEN, data_header};

/// TTL or hop limit of the inner datagram: a common default of hosts. Each further relay in a chain
/// takes one from it.
const HOP_LIMIT: u8 = 64;

/// The reason why an IP datagram cannot be encoded, or has to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IpError {
    /// A header is malformed, or claims more bytes than the datagram has.
    #[error("malformed {0} header: drop the datagram")]
    Header(&'static str),
    /// The IPv4 header checksum, or the payload's checksum, does not match.
    #[error("wrong {0} checksum: drop the datagram")]
    Checksum(&'static str),
    /// The datagram is a fragment. Fragments are not reassembled.
    #[error("the datagram is a fragment: send datagrams that fit the tunnel's MTU")]
    Fragment,
    /// The datagram has another IP protocol than expected.
    #[error("IP protocol {0} instead of {1}: drop the datagram")]
    Protocol(u8, &'static str),
    /// The datagram may cross no further hop.
    #[error("the datagram has crossed its last hop: drop it, and look for relays in a circle")]
    HopLimit,
    /// Source and group have different IP versions.
    #[error("source and group have different IP versions: give both as IPv4 or both as IPv6")]
    Family,
    /// The payload exceeds a UDP datagram.
    #[error("a payload of {0} bytes does not fit into one UDP datagram: send less at once")]
    TooLong(usize),
}

/// Appends the IP datagram that carries `payload` from `flow.source` to `flow.group` to `out`. Its
/// DF bit is set, which forbids fragmentation.
pub fn encode_udp(flow: &Flow, payload: &[u8], out: &mut Vec<u8>) -> Result<(), IpError> {
    encode(flow, payload, Ecn::NotCapable, out)
}

fn encode(flow: &Flow, payload: &[u8], ecn: Ecn, out: &mut Vec<u8>) -> Result<(), IpError> {
    let too_long = |_| IpError::TooLong(payload.len());
    let udp_len = payload.len() + UdpHeader::LEN;
    let length = u16::try_from(udp_len).map_err(|_| IpError::TooLong(payload.len()))?;
    let (source_port, group_port) = (flow.source.port(), flow.group.port());
    let udp = match (flow.source.ip(), flow.group.ip()) {
        (IpAddr::V4(source), IpAddr::V4(group)) => {
            let mut ip = Ipv4Header::new(
                length,
                HOP_LIMIT,
                IpNumber::UDP,
                source.octets(),
                group.octets(),
            )
            .map_err(|_| IpError::TooLong(payload.len()))?;
            ip.ecn = match ecn {
                Ecn::NotCapable => IpEcn::ZERO,
                Ecn::L4s => IpEcn::ONE,
                Ecn::Capable => IpEcn::TWO,
                Ecn::Marked => IpEcn::THREE,
            };
            ip.header_checksum = ip.calc_header_checksum();
            out.extend_from_slice(&ip.to_bytes());
            UdpHeader::with_ipv4_checksum(source_port, group_port, &ip, payload)
                .map_err(too_long)?
        }
        (IpAddr::V6(source), IpAddr::V6(group)) => {
            let ip = Ipv6Header {
                traffic_class: ecn.bits(),
                payload_length: length,
                next_header: IpNumber::UDP,
                hop_limit: HOP_LIMIT,
                source: source.octets(),
                destination: group.octets(),
                ..Default::default()
            };
            out.extend_from_slice(&ip.to_bytes());
            UdpHeader::with_ipv6_checksum(source_port, group_port, &ip, payload)
                .map_err(too_long)?
        }
        _ => return Err(IpError::Family),
    };
    out.extend_from_slice(&udp.to_bytes());
    out.extend_from_slice(payload);
    Ok(())
}

/// Appends the Multicast Data message that carries `payload` from `flow.source` to `flow.group` to
/// `out`, as [`encode_udp`] does. The datagram has this ECN field.
pub fn encode_data(
    flow: &Flow,
    ecn: Ecn,
    payload: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), IpError> {
    out.extend_from_slice(&data_header());
    encode(flow, payload, ecn, out)
}

/// Returns the ECN field of the IP datagram in a Multicast Data message; not capable if it is
/// another message. The outer header gets the same field (RFC 6040 section 4.1, normal mode;
/// RFC 7450 does not mention ECN).
#[inline]
pub fn data_ecn(message: &[u8]) -> Ecn {
    match message {
        // The second byte is reserved (RFC 7450 section 5.1.6).
        [kind, _, datagram @ ..] if *kind == data_header()[0] => Ecn::of_datagram(datagram),
        _ => Ecn::NotCapable,
    }
}

/// Combines the ECN field of the IP datagram in a Multicast Data message with that of the outer
/// header, with which the message has come (RFC 6040 section 4.2). Returns false if the message has
/// to be dropped.
pub fn combine_ecn(message: &mut [u8], outer: Ecn) -> bool {
    let inner = data_ecn(message);
    let combined = Ecn::decapsulated(inner, outer);
    if let Some(ecn) = combined
        && ecn != inner
    {
        ecn.write_into(&mut message[DATA_HEADER_LEN..]);
    }
    combined.is_some()
}

/// Takes one from the TTL or hop limit of the IP datagram in a Multicast Data message, as a router
/// does: datagrams do not circulate forever between relays in a circle.
///
/// # Errors
/// If the message has no IP header, or the datagram may cross no further hop.
pub fn pass_hop(message: &mut [u8]) -> Result<(), IpError> {
    let datagram = message.get_mut(DATA_HEADER_LEN..).unwrap_or_default();
    match datagram.first().map(|first| first >> 4) {
        Some(4) if datagram.len() >= Ipv4Header::MIN_LEN => {
            datagram[8] = next_hop_limit(datagram[8])?;
            // TTL is the high byte of its word (RFC 1624, equation 3).
            let sum = u32::from(!u16::from_be_bytes([datagram[10], datagram[11]])) + 0xfeff;
            let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
            datagram[10..12].copy_from_slice(&sum.to_be_bytes());
            Ok(())
        }
        Some(6) if datagram.len() >= Ipv6Header::LEN => {
            datagram[7] = next_hop_limit(datagram[7])?;
            Ok(())
        }
        _ => Err(IpError::Header("IP")),
    }
}

fn next_hop_limit(limit: u8) -> Result<u8, IpError> {
    limit
        .checked_sub(1)
        .filter(|left| *left > 0)
        .ok_or(IpError::HopLimit)
}

/// Decodes the UDP datagram in an IP datagram, and returns its flow and payload. Ignores bytes
/// after the datagram. Accepts a UDP checksum of zero, as a gateway must (RFC 7450, section
/// 5.2.3.3).
pub fn decode_udp(datagram: &[u8]) -> Result<(Flow, &[u8]), IpError> {
    let ip = decode_ip(datagram)?;
    let content = ip.payload();
    if content.ip_number != IpNumber::UDP {
        return Err(IpError::Protocol(content.ip_number.0, "UDP"));
    }
    let udp = UdpSlice::from_slice(content.payload).map_err(|_| IpError::Header("UDP"))?;
    if udp.checksum() != 0 && udp.checksum() != udp_checksum(&ip, &udp)? {
        return Err(IpError::Checksum("UDP"));
    }
    let source = SocketAddr::new(ip.source_addr(), udp.source_port());
    let group = SocketAddr::new(ip.destination_addr(), udp.destination_port());
    Ok((Flow { source, group }, udp.payload()))
}

/// Decodes the headers of a complete IP datagram. Checks lengths and the IPv4 header checksum.
pub(super) fn decode_ip(datagram: &[u8]) -> Result<IpSlice<'_>, IpError> {
    let ip = IpSlice::from_slice(datagram).map_err(|_| IpError::Header("IP"))?;
    if ip.is_fragmenting_payload() {
        return Err(IpError::Fragment);
    }
    if let IpSlice::Ipv4(v4) = &ip {
        let header = v4.header().to_header();
        if header.header_checksum != header.calc_header_checksum() {
            return Err(IpError::Checksum("IPv4 header"));
        }
    }
    Ok(ip)
}

fn udp_checksum(ip: &IpSlice, udp: &UdpSlice) -> Result<u16, IpError> {
    let too_long = |_| IpError::TooLong(udp.payload().len());
    let header = udp.to_header();
    match ip {
        IpSlice::Ipv4(v4) => header
            .calc_checksum_ipv4(&v4.header().to_header(), udp.payload())
            .map_err(too_long),
        IpSlice::Ipv6(v6) => header
            .calc_checksum_ipv6(&v6.header().to_header(), udp.payload())
            .map_err(too_long),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn flow() -> impl Strategy<Value = Flow> {
        let v4 = any::<(Ipv4Addr, u16, Ipv4Addr, u16)>().prop_map(|(s, sp, g, gp)| Flow {
            source: (s, sp).into(),
            group: (g, gp).into(),
        });
        let v6 = any::<(Ipv6Addr, u16, Ipv6Addr, u16)>().prop_map(|(s, sp, g, gp)| Flow {
            source: (s, sp).into(),
            group: (g, gp).into(),
        });
        prop_oneof![v4, v6]
    }

    fn encoded(flow: &Flow, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode_udp(flow, payload, &mut out).unwrap();
        out
    }

    fn v4_flow() -> Flow {
        Flow {
            source: ([192, 0, 2, 1], 40000).into(),
            group: ([232, 1, 1, 1], 5000).into(),
        }
    }

    proptest! {
        #[test]
        fn a_datagram_survives_encapsulation_and_trailing_bytes(
            flow in flow(),
            payload in proptest::collection::vec(any::<u8>(), 0..1500),
            trailing in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let mut bytes = encoded(&flow, &payload);
            bytes.extend_from_slice(&trailing);
            prop_assert_eq!(decode_udp(&bytes), Ok((flow, payload.as_slice())));
        }

        #[test]
        fn a_flipped_bit_is_noticed_or_harmless(
            flow in flow(),
            payload in proptest::collection::vec(any::<u8>(), 1..50),
            bit in any::<prop::sample::Index>(),
        ) {
            let mut bytes = encoded(&flow, &payload);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            // No checksum protects IPv6's traffic class, flow label and hop limit.
            if let Ok(read) = decode_udp(&bytes) {
                prop_assert_eq!(read, (flow, payload.as_slice()));
            }
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = decode_udp(&bytes);
        }
    }

    #[test]
    fn each_hop_takes_one_from_the_hop_limit_and_the_last_one_drops_the_datagram() {
        let v6 = Flow {
            source: "[2001:db8::1]:4000".parse().unwrap(),
            group: "[ff3e::1]:5000".parse().unwrap(),
        };
        for flow in [v4_flow(), v6] {
            let mut message = Vec::new();
            encode_data(&flow, Ecn::NotCapable, b"data", &mut message).unwrap();
            for _ in 1..HOP_LIMIT {
                pass_hop(&mut message).unwrap();
                let datagram = &message[DATA_HEADER_LEN..];
                assert_eq!(decode_udp(datagram), Ok((flow, b"data".as_slice())));
            }
            assert_eq!(pass_hop(&mut message), Err(IpError::HopLimit));
        }
        assert_eq!(pass_hop(&mut [6]), Err(IpError::Header("IP")));
        assert_eq!(pass_hop(&mut [6, 0, 0x45, 0]), Err(IpError::Header("IP")));
    }

    #[test]
    fn the_ecn_fields_of_a_tunnel_are_combined_and_checksums_remain_right() {
        use Ecn::{Capable, L4s, Marked, NotCapable};
        let v6 = Flow {
            source: "[2001:db8::1]:4000".parse().unwrap(),
            group: "[ff3e::1]:5000".parse().unwrap(),
        };
        let all = [NotCapable, Capable, L4s, Marked];
        for (flow, inner) in [v4_flow(), v6]
            .into_iter()
            .flat_map(|f| all.map(|e| (f, e)))
        {
            for outer in all {
                let mut message = Vec::new();
                encode_data(&flow, inner, b"data", &mut message).unwrap();
                assert_eq!(data_ecn(&message), inner);
                let expected = Ecn::decapsulated(inner, outer);
                assert_eq!(combine_ecn(&mut message, outer), expected.is_some());
                assert_eq!(data_ecn(&message), expected.unwrap_or(inner));
                let datagram = &message[DATA_HEADER_LEN..];
                assert_eq!(decode_udp(datagram), Ok((flow, b"data".as_slice())));
            }
        }
    }

    #[test]
    fn messages_other_than_data_have_no_ecn_field() {
        for mut bytes in [vec![], vec![6], vec![6, 0], vec![5, 0, 0x45, 3]] {
            let before = bytes.clone();
            assert_eq!(data_ecn(&bytes), Ecn::NotCapable);
            combine_ecn(&mut bytes, Ecn::Marked);
            assert_eq!(bytes, before);
        }
    }

    #[test]
    fn a_zero_udp_checksum_is_accepted() {
        let mut bytes = encoded(&v4_flow(), b"data");
        bytes[26..28].fill(0);
        assert_eq!(decode_udp(&bytes), Ok((v4_flow(), b"data".as_slice())));
    }

    #[test]
    fn what_is_cut_short_is_refused_at_every_length() {
        let bytes = encoded(&v4_flow(), b"data");
        for len in 0..bytes.len() {
            assert!(
                matches!(decode_udp(&bytes[..len]), Err(IpError::Header(_))),
                "cut at {len}"
            );
        }
    }

    #[test]
    fn mixed_families_and_oversized_payloads_are_refused() {
        let mixed = Flow {
            group: "[ff3e::1]:5".parse().unwrap(),
            ..v4_flow()
        };
        assert_eq!(
            encode_udp(&mixed, b"", &mut Vec::new()),
            Err(IpError::Family)
        );
        let huge = vec![0; 65_508];
        assert_eq!(
            encode_udp(&v4_flow(), &huge, &mut Vec::new()),
            Err(IpError::TooLong(65_508))
        );
    }
}
