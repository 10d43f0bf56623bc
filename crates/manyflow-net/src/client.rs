//! The client that an address belongs to, for limits that one client must not exceed.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the client that an address belongs to: itself, or the first address of an IPv6 network
/// of 64 bits, in which one host can take any address.
pub fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let same = |one: &str, two: &str| {
            client_of(one.parse().unwrap()) == client_of(two.parse().unwrap())
        };
        assert!(same("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"));
        assert!(same("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }
}
