//! Any input is refused, or is a report or query that decodes to the same value when it is encoded
//! again.
//!
//! Headers and checksums reject nearly all random bytes, so each input is also tried as the message
//! inside a valid datagram.
#![cfg_attr(fuzzing, no_main)]

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpNumber, Ipv4Header};
use manyflow_amt::membership::{GeneralQuery, Report};

manyflow_fuzz::target!(|bytes: &[u8]| {
    check(bytes);
    if let Some(datagram) = igmp_datagram(bytes) {
        check(&datagram);
    }
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
