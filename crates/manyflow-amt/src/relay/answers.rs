//! The limit on answers to addresses that have not been proved.
//!
//! Anybody can forge the source of a request, so the answers to one prefix share a rate. More than
//! half of this rate belongs to the addresses of the prefix, in equal shares: a flood of requests
//! from other addresses of the prefix does not keep a gateway from its first answers. A flood that
//! forges the gateway's own address does.

use std::net::Ipv6Addr;
use std::time::Duration;

use manyflow_core::time::Time;
use manyflow_core::units::Rate;
use siphasher::sip::SipHasher24;

use super::bucket::{BURST, Bucket};

/// Numbers of buckets for prefixes and for addresses, which bound the memory. Several prefixes or
/// addresses share a bucket by a keyed hash, so that an attacker cannot aim at the bucket of
/// another.
const PREFIX_BUCKETS: usize = 4096;
const ADDRESS_BUCKETS: usize = 16_384;

/// Number of shares of a prefix: one for each address of an IPv4 /24. Those of an IPv6 /48 are
/// assigned by hash.
const SHARES: u64 = 256;

/// Maximum rate of answers to one prefix beyond the shares of its addresses: some 60 in a second,
/// and 15 at a time. A forged flood does no harm at this rate. It is low because ARP keeps answers
/// to hosts of the relay's own network that do not exist in the send buffer for about 3 s.
const PREFIX_BITS_PER_S: u64 = 50_000;

/// Rate of the answers to one address that no other address can use up: one in some 2.5 s, which is
/// about 80 kbit/s for all shares of a prefix.
const ADDRESS_BITS_PER_S: u64 = 300;

/// Time for which a share can be saved: that of the answers to a Discovery and a Request.
const ADDRESS_BURST: Duration = Duration::from_secs(4);

/// Headers of an answer outside of the AMT message: IPv6 and UDP.
const HEADER_BYTES: usize = 48;

/// The limits on answers, by prefix and by address.
pub(super) struct Answers {
    key: [u8; 16],
    prefixes: Vec<Bucket>,
    addresses: Vec<Bucket>,
}

impl Answers {
    pub(super) fn new(now: Time, key: [u8; 16]) -> Self {
        let buckets = |count| (0..count).map(|_| Bucket::new(now)).collect();
        Self {
            key,
            prefixes: buckets(PREFIX_BUCKETS),
            addresses: buckets(ADDRESS_BUCKETS),
        }
    }

    /// Whether an answer of `bytes` may be sent to this address.
    pub(super) fn allow(&mut self, now: Time, ip: Ipv6Addr, bytes: usize) -> bool {
        let bytes = bytes + HEADER_BYTES;
        let prefix = prefix(ip);
        let share = self.hash(prefix | u128::from(self.share(ip)));
        let own = &mut self.addresses[share as usize % ADDRESS_BUCKETS];
        let rate = Rate::from_bits_per_s(ADDRESS_BITS_PER_S);
        if own.take_within(now, rate, ADDRESS_BURST, bytes) {
            return true;
        }
        let pool = self.hash(prefix) as usize % PREFIX_BUCKETS;
        let rate = Rate::from_bits_per_s(PREFIX_BITS_PER_S);
        self.prefixes[pool].take_within(now, rate, BURST, bytes)
    }

    /// Returns the share of an address among those of its prefix.
    fn share(&self, ip: Ipv6Addr) -> u64 {
        match ip.to_ipv4() {
            Some(v4) => u64::from(v4.octets()[3]),
            None => self.hash(ip.to_bits()) % SHARES,
        }
    }

    fn hash(&self, value: u128) -> u64 {
        SipHasher24::new_with_key(&self.key).hash(&value.to_be_bytes())
    }
}

/// Returns the /24 of an IPv4 address, or the /48 of an IPv6 address: the usual size of a site.
fn prefix(ip: Ipv6Addr) -> u128 {
    let host_bits = match ip.to_ipv4() {
        Some(_) => 8,
        None => 80,
    };
    ip.to_bits() >> host_bits << host_bits
}
