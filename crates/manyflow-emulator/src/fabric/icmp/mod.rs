//! The ICMP and ICMPv6 messages of routers.

mod v4;
mod v6;

use super::addresses::NodeAddresses;
use super::packet::is_v6;

/// The TTL or hop limit of a router's own packets.
const TTL: u8 = 64;

/// Returns the answer to a packet that is addressed to a router: to a ping its reply, and to any
/// other packet an error. Returns `None` for packets that must not be answered.
pub(super) fn answer(router: NodeAddresses, packet: &[u8]) -> Option<Vec<u8>> {
    match is_v6(packet) {
        true => v6::answer(router.v6, packet),
        false => v4::answer(router.v4, packet),
    }
}

/// Returns a router's error for a packet whose TTL or hop limit has expired.
pub(super) fn time_exceeded(router: NodeAddresses, packet: &[u8]) -> Option<Vec<u8>> {
    match is_v6(packet) {
        true => v6::time_exceeded(router.v6, packet),
        false => v4::time_exceeded(router.v4, packet),
    }
}

/// Returns a router's error for a packet without a path to its destination.
pub(super) fn host_unreachable(router: NodeAddresses, packet: &[u8]) -> Option<Vec<u8>> {
    match is_v6(packet) {
        true => v6::address_unreachable(router.v6, packet),
        false => v4::host_unreachable(router.v4, packet),
    }
}
