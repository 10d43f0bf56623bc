//! The limit on answers to addresses that have not been proved.

use std::net::Ipv6Addr;

use manyflow_core::time::Time;
use manyflow_core::units::Rate;
use siphasher::sip::SipHasher24;

use super::bucket::Bucket;

/// Number of buckets, which bounds the memory. Prefixes share buckets by a keyed hash, so that an
/// attacker cannot aim at the bucket of another prefix.
const BUCKETS: usize = 4096;

/// Maximum rate of answers to one prefix, which holds some 60 answers at a time. A forged flood
/// does no harm at this rate, and a site can open hundreds of tunnels in a second.
const RATE_BITS_PER_S: u64 = 200_000;

/// Headers of an answer outside of the AMT message: IPv6 and UDP.
const HEADER_BYTES: usize = 48;

/// The limits on answers, by prefix.
pub(super) struct Answers {
    key: [u8; 16],
    buckets: Vec<Bucket>,
}

impl Answers {
    pub(super) fn new(now: Time, key: [u8; 16]) -> Self {
        Self {
            key,
            buckets: (0..BUCKETS).map(|_| Bucket::new(now)).collect(),
        }
    }

    /// Whether an answer of `bytes` may be sent to this address.
    pub(super) fn allow(&mut self, now: Time, ip: Ipv6Addr, bytes: usize) -> bool {
        let hash = SipHasher24::new_with_key(&self.key).hash(&prefix(ip).to_be_bytes());
        let bucket = &mut self.buckets[(hash % BUCKETS as u64) as usize];
        let rate = Rate::from_bits_per_s(RATE_BITS_PER_S);
        bucket.take(now, rate, bytes + HEADER_BYTES)
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
