//! Any input is refused, or is a report or query that decodes to the same value when it is encoded
//! again.
//!
//! Headers and checksums reject nearly all random bytes, so each input is also tried as the message
//! inside a valid datagram of IGMP and of MLD. A router on a local network remembers no more hosts
//! than there are addresses, and no flow that it does not know.
#![cfg_attr(fuzzing, no_main)]

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpNumber, Ipv4Header, Ipv6Header};
use manyflow_amt::membership::{GeneralQuery, Report};
use manyflow_amt::{Flow, Hosts};
use manyflow_core::Time;

manyflow_fuzz::target!(|bytes: &[u8]| {
    check(bytes);
    if let Some(datagram) = igmp_datagram(bytes) {
        check(&datagram);
    }
    if let Some(datagram) = mld_datagram(bytes) {
        check(&datagram);
    }
    listen(bytes);
});

fn check(datagram: &[u8]) {
    if let Ok(report) = Report::decode(datagram) {
        let mut written = Vec::new();
        report.encode(&mut written);
        assert_eq!(Report::decode(&written), Ok(report));
    }
    if let Ok(query) = GeneralQuery::decode(datagram) {
        let mut written = Vec::new();
        query.encode(&mut written);
        assert_eq!(GeneralQuery::decode(&written), Ok(query));
    }
}

/// An IPv4 datagram with TTL 1, Router Alert and valid checksums around an IGMP message; `None` if
/// the message does not fit.
fn igmp_datagram(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut message = bytes.to_vec();
    message.get_mut(2..4)?.fill(0);
    let checksum = Sum16BitWords::new()
        .add_slice(&message)
        .ones_complement()
        .to_ne_bytes();
    message[2..4].copy_from_slice(&checksum);
    let mut header = Ipv4Header::new(0, 1, IpNumber::IGMP, [0; 4], [224, 0, 0, 22]).ok()?;
    header.options = [0x94, 4, 0, 0].into();
    header.set_payload_len(message.len()).ok()?;
    header.header_checksum = header.calc_header_checksum();
    Some([&header.to_bytes()[..], &message].concat())
}

/// An IPv6 datagram with hop limit 1, Router Alert and a valid checksum around an MLD message;
/// `None` if the message does not fit.
fn mld_datagram(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut message = bytes.to_vec();
    message.get_mut(2..4)?.fill(0);
    let checksum = Sum16BitWords::new()
        .add_16bytes([0; 16])
        .add_16bytes([0; 16])
        .add_4bytes((message.len() as u32).to_be_bytes())
        .add_2bytes([0, IpNumber::IPV6_ICMP.0])
        .add_slice(&message)
        .ones_complement()
        .to_ne_bytes();
    message[2..4].copy_from_slice(&checksum);
    let header = Ipv6Header {
        payload_length: u16::try_from(8 + message.len()).ok()?,
        next_header: IpNumber::IPV6_HEADER_HOP_BY_HOP,
        hop_limit: 1,
        ..Default::default()
    };
    let router_alert = [IpNumber::IPV6_ICMP.0, 0, 5, 2, 0, 0, 1, 0];
    Some([&header.to_bytes()[..], &router_alert, &message].concat())
}

/// Hands IGMP messages of several hosts to a router.
fn listen(bytes: &[u8]) {
    let flow = |n| Flow {
        source: ([192, 0, 2, 1], 4000).into(),
        group: ([232, 0, 0, n], 5000).into(),
    };
    let mut now = Time::ZERO;
    let mut hosts = Hosts::new(now, [10, 0, 0, 5].into(), (0..4).map(flow).collect());
    for (host, message) in (0u8..).zip(bytes.chunks(40)) {
        let Some(mut datagram) = igmp_datagram(message) else {
            continue;
        };
        datagram[12..16].copy_from_slice(&[10, 0, 0, host % 8]);
        if let Ok((mut header, _)) = Ipv4Header::from_slice(&datagram) {
            header.header_checksum = header.calc_header_checksum();
            datagram[..header.header_len()].copy_from_slice(&header.to_bytes());
        }
        hosts.handle_igmp(now, &datagram);
        assert!(hosts.hosts() <= 8 && hosts.joins() <= hosts.hosts() * 4);
        while hosts.poll_event().is_some() {}
        now += std::time::Duration::from_secs(u64::from(host));
        hosts.handle_timeout(now);
        assert!(hosts.poll_timeout() > now);
    }
}
