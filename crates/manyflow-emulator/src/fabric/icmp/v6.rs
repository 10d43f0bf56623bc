//! The ICMPv6 messages of routers (RFC 4443).

use std::net::Ipv6Addr;

use etherparse::icmpv6::{DestUnreachableCode, TimeExceededCode};
use etherparse::{
    IcmpEchoHeader, Icmpv6Slice, Icmpv6Type, IpNumber, Ipv6HeaderSlice, Ipv6Slice, PacketBuilder,
};

use super::TTL;

/// The bytes of a packet that an error quotes: the error fits the minimum MTU of 1,280 bytes (RFC
/// 4443 section 2.4).
const QUOTED: usize = 1280 - 40 - 8;
/// The first type of an informational message; smaller types are errors (RFC 4443 section 2.1).
const INFORMATIONAL: u8 = 128;
/// The type of a redirect (RFC 4861 section 4.5).
const REDIRECT: u8 = 137;

/// Returns the answer of the router `address` to a packet that is addressed to it: to a ping its
/// reply, and to any other packet an error. Returns `None` for packets that must not be answered.
pub(super) fn answer(address: Ipv6Addr, packet: &[u8]) -> Option<Vec<u8>> {
    let ip = Ipv6Slice::from_slice(packet).ok()?;
    if ip.payload().ip_number != IpNumber::IPV6_ICMP {
        let code = DestUnreachableCode::Port;
        return error(address, Icmpv6Type::DestinationUnreachable(code), packet);
    }
    let icmp = Icmpv6Slice::from_slice(ip.payload().payload).ok()?;
    let Icmpv6Type::EchoRequest(IcmpEchoHeader { id, seq }) = icmp.icmp_type() else {
        return None;
    };
    let reply =
        PacketBuilder::ipv6(address.octets(), ip.header().source(), TTL).icmpv6_echo_reply(id, seq);
    let mut out = vec![0; reply.size(icmp.payload().len())];
    reply.write_to_slice(&mut out, icmp.payload()).ok()?;
    Some(out)
}

/// Returns the error of the router `address` for a packet whose hop limit has expired.
pub(super) fn time_exceeded(address: Ipv6Addr, packet: &[u8]) -> Option<Vec<u8>> {
    let code = TimeExceededCode::HopLimitExceeded;
    error(address, Icmpv6Type::TimeExceeded(code), packet)
}

/// Returns the error of the router `address` for a packet without a path to its destination.
pub(super) fn address_unreachable(address: Ipv6Addr, packet: &[u8]) -> Option<Vec<u8>> {
    let code = DestUnreachableCode::Address;
    error(address, Icmpv6Type::DestinationUnreachable(code), packet)
}

fn error(address: Ipv6Addr, kind: Icmpv6Type, packet: &[u8]) -> Option<Vec<u8>> {
    let source = Ipv6HeaderSlice::from_slice(packet).ok()?.source_addr();
    if source.is_unspecified() || source.is_multicast() || is_error(packet) {
        // Nobody would receive the error, or errors could circulate forever (RFC 4443 section
        // 2.4).
        return None;
    }
    let error = PacketBuilder::ipv6(address.octets(), source.octets(), TTL).icmpv6(kind);
    let quoted = &packet[..packet.len().min(QUOTED)];
    let mut out = vec![0; error.size(quoted.len())];
    error.write_to_slice(&mut out, quoted).ok()?;
    Some(out)
}

/// Returns whether a packet is an ICMPv6 error or redirect, or too damaged to tell.
fn is_error(packet: &[u8]) -> bool {
    let Ok(ip) = Ipv6Slice::from_slice(packet) else {
        return true;
    };
    let kind = ip.payload().payload.first().copied().unwrap_or_default();
    ip.payload().ip_number == IpNumber::IPV6_ICMP && (kind < INFORMATIONAL || kind == REDIRECT)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    const ROUTER: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9);

    fn ping(source: Ipv6Addr, payload: &[u8]) -> Vec<u8> {
        let ping = PacketBuilder::ipv6(source.octets(), ROUTER.octets(), 9);
        let ping = ping.icmpv6_echo_request(7, 3);
        let mut packet = vec![0; ping.size(payload.len())];
        ping.write_to_slice(&mut packet, payload).unwrap();
        packet
    }

    fn icmp_type(packet: &[u8]) -> Icmpv6Type {
        let ip = Ipv6Slice::from_slice(packet).unwrap();
        assert_eq!(ip.header().source_addr(), ROUTER);
        assert_eq!(ip.header().destination_addr(), HOST);
        let icmp = Icmpv6Slice::from_slice(ip.payload().payload).unwrap();
        assert!(icmp.is_checksum_valid(ROUTER.octets(), HOST.octets()));
        icmp.icmp_type()
    }

    #[test]
    fn a_router_answers_pings() {
        let reply = answer(ROUTER, &ping(HOST, b"abc")).unwrap();
        let echo = IcmpEchoHeader { id: 7, seq: 3 };
        assert_eq!(icmp_type(&reply), Icmpv6Type::EchoReply(echo));
        assert!(reply.ends_with(b"abc"));
        assert_eq!(answer(ROUTER, &reply), None);
    }

    #[test]
    fn other_packets_to_a_router_are_answered_by_port_unreachable() {
        let datagram = PacketBuilder::ipv6(HOST.octets(), ROUTER.octets(), 9).udp(4000, 5000);
        let mut packet = vec![0; datagram.size(0)];
        datagram.write_to_slice(&mut packet, &[]).unwrap();
        let expected = Icmpv6Type::DestinationUnreachable(DestUnreachableCode::Port);
        assert_eq!(icmp_type(&answer(ROUTER, &packet).unwrap()), expected);
    }

    #[test]
    fn an_error_quotes_the_packet_and_is_not_answered_by_another_error() {
        let long = ping(HOST, &[7; 1400]);
        let exceeded = time_exceeded(ROUTER, &long).unwrap();
        let expected = Icmpv6Type::TimeExceeded(TimeExceededCode::HopLimitExceeded);
        assert_eq!(icmp_type(&exceeded), expected);
        assert_eq!(exceeded.len(), 1280);
        assert!(exceeded.ends_with(&long[..QUOTED]));
        assert_eq!(address_unreachable(ROUTER, &exceeded), None);
    }

    #[test]
    fn packets_without_a_sender_to_answer_get_no_error() {
        let nobody = ping(Ipv6Addr::UNSPECIFIED, b"");
        assert_eq!(address_unreachable(ROUTER, &nobody), None);
        assert_eq!(time_exceeded(ROUTER, &[0x60; 45]), None);
    }
}
