//! The ICMP messages of routers (RFC 792, RFC 1812 section 4.3).

use std::net::Ipv4Addr;

use etherparse::icmpv4::{DestUnreachableHeader, TimeExceededCode};
use etherparse::{IcmpEchoHeader, Icmpv4Type, IpNumber, Ipv4HeaderSlice, Ipv4Slice, PacketBuilder};

use super::TTL;

/// The bytes of a packet that an error quotes. RFC 1812 section 4.3.2.3 allows 576 in all.
const QUOTED: usize = 548;

/// Returns the answer of the router `address` to a packet that is addressed to it: to a ping its
/// reply, and to any other packet an error. Returns `None` for packets that must not be answered.
pub(super) fn answer(address: Ipv4Addr, packet: &[u8]) -> Option<Vec<u8>> {
    let ip = Ipv4Slice::from_slice(packet).ok()?;
    if ip.payload().ip_number != IpNumber::ICMP {
        let unreachable = DestUnreachableHeader::Protocol;
        return error(
            address,
            Icmpv4Type::DestinationUnreachable(unreachable),
            packet,
        );
    }
    let icmp = etherparse::Icmpv4Slice::from_slice(ip.payload().payload).ok()?;
    let Icmpv4Type::EchoRequest(IcmpEchoHeader { id, seq }) = icmp.icmp_type() else {
        return None;
    };
    let reply =
        PacketBuilder::ipv4(address.octets(), ip.header().source(), TTL).icmpv4_echo_reply(id, seq);
    let mut out = vec![0; reply.size(icmp.payload().len())];
    reply.write_to_slice(&mut out, icmp.payload()).ok()?;
    Some(out)
}

/// Returns the error of the router `address` for a packet whose TTL has expired.
pub(super) fn time_exceeded(address: Ipv4Addr, packet: &[u8]) -> Option<Vec<u8>> {
    let code = TimeExceededCode::TtlExceededInTransit;
    error(address, Icmpv4Type::TimeExceeded(code), packet)
}

/// Returns the error of the router `address` for a packet without a path to its destination.
pub(super) fn host_unreachable(address: Ipv4Addr, packet: &[u8]) -> Option<Vec<u8>> {
    let code = DestUnreachableHeader::Host;
    error(address, Icmpv4Type::DestinationUnreachable(code), packet)
}

fn error(address: Ipv4Addr, kind: Icmpv4Type, packet: &[u8]) -> Option<Vec<u8>> {
    let header = Ipv4HeaderSlice::from_slice(packet).ok()?;
    if header.protocol() == IpNumber::ICMP && !is_echo_request(packet) {
        // An error about an error could circulate forever (RFC 1812 section 4.3.2.7).
        return None;
    }
    let error = PacketBuilder::ipv4(address.octets(), header.source(), TTL).icmpv4(kind);
    let quoted = &packet[..packet.len().min(QUOTED)];
    let mut out = vec![0; error.size(quoted.len())];
    error.write_to_slice(&mut out, quoted).ok()?;
    Some(out)
}

fn is_echo_request(packet: &[u8]) -> bool {
    let ip = Ipv4Slice::from_slice(packet).ok();
    let icmp = ip.and_then(|ip| etherparse::Icmpv4Slice::from_slice(ip.payload().payload).ok());
    icmp.is_some_and(|icmp| matches!(icmp.icmp_type(), Icmpv4Type::EchoRequest(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: [u8; 4] = [10, 0, 0, 1];
    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);

    fn ping() -> Vec<u8> {
        let ping = PacketBuilder::ipv4(HOST, ROUTER.octets(), 9).icmpv4_echo_request(7, 3);
        let mut packet = vec![0; ping.size(3)];
        ping.write_to_slice(&mut packet, b"abc").unwrap();
        packet
    }

    fn icmp_type(packet: &[u8]) -> Icmpv4Type {
        let ip = Ipv4Slice::from_slice(packet).unwrap();
        assert_eq!(ip.header().source_addr(), ROUTER);
        assert_eq!(ip.header().destination(), HOST);
        let icmp = etherparse::Icmpv4Slice::from_slice(ip.payload().payload).unwrap();
        icmp.icmp_type()
    }

    #[test]
    fn a_router_answers_pings() {
        let reply = answer(ROUTER, &ping()).unwrap();
        let echo = IcmpEchoHeader { id: 7, seq: 3 };
        assert_eq!(icmp_type(&reply), Icmpv4Type::EchoReply(echo));
        assert_eq!(answer(ROUTER, &reply), None);
    }

    #[test]
    fn an_error_quotes_the_packet_and_is_not_answered_by_another_error() {
        let exceeded = time_exceeded(ROUTER, &ping()).unwrap();
        assert!(matches!(icmp_type(&exceeded), Icmpv4Type::TimeExceeded(_)));
        assert!(exceeded.ends_with(&ping()));
        assert_eq!(host_unreachable(ROUTER, &exceeded), None);
    }
}
