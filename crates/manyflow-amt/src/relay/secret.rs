//! The secret behind the Response MAC, and its renewal.

use std::time::Duration;

use manyflow_core::time::Time;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use siphasher::sip::SipHasher24;

use crate::wire::{GatewayAddress, ResponseMac};

/// Makes and checks Response MACs (RFC 7450, section 5.3.5) under a secret that changes.
///
/// The MAC is SipHash-2-4 over gateway address, port and request nonce, truncated to the 48 bits of
/// the field. SipHash is a keyed hash for short inputs under attack, as in SYN cookies.
/// HMAC-SHA-256 would cost a flooded relay many times more, and its 48 bits would protect no
/// better.
pub(super) struct Secret {
    rng: StdRng,
    current: [u8; 16],
    previous: Option<[u8; 16]>,
    changed_at: Time,
    lifetime: Duration,
    overlap: Duration,
}

impl Secret {
    /// Makes a secret that lives for `lifetime` and is accepted for `overlap` after that. The
    /// generator is cryptographic, because its seed allows to forge MACs.
    pub(super) fn new(now: Time, seed: [u8; 32], lifetime: Duration, overlap: Duration) -> Self {
        let mut rng = StdRng::from_seed(seed);
        let current = rng.random();
        Self {
            rng,
            current,
            previous: None,
            changed_at: now,
            lifetime,
            overlap,
        }
    }

    /// Returns a random key for another purpose.
    pub(super) fn random_key(&mut self) -> [u8; 16] {
        self.rng.random()
    }

    /// Returns when to replace the secret, or to forget the previous one.
    pub(super) fn deadline(&self) -> Time {
        match self.previous {
            Some(_) => self.changed_at + self.overlap.min(self.lifetime),
            None => self.changed_at + self.lifetime,
        }
    }

    /// Replaces the secret, or forgets the previous one, if that is due.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.previous.is_some() && now >= self.changed_at + self.overlap {
            self.previous = None;
        }
        if now >= self.changed_at + self.lifetime {
            self.previous = Some(std::mem::replace(&mut self.current, self.rng.random()));
            self.changed_at = now;
        }
    }

    /// Returns the MAC for a Membership Query.
    pub(super) fn mac(&self, gateway: GatewayAddress, nonce: u32) -> ResponseMac {
        mac(&self.current, gateway, nonce)
    }

    /// Whether this relay gave this MAC to this gateway under a secret that is still accepted.
    pub(super) fn verifies(&self, given: ResponseMac, gateway: GatewayAddress, nonce: u32) -> bool {
        given == mac(&self.current, gateway, nonce)
            || self
                .previous
                .is_some_and(|previous| given == mac(&previous, gateway, nonce))
    }
}

fn mac(secret: &[u8; 16], gateway: GatewayAddress, nonce: u32) -> ResponseMac {
    let mut input = [0; 22];
    input[..16].copy_from_slice(&gateway.ip.octets());
    input[16..18].copy_from_slice(&gateway.port.to_be_bytes());
    input[18..].copy_from_slice(&nonce.to_be_bytes());
    let [mac @ .., _, _] = SipHasher24::new_with_key(secret).hash(&input).to_be_bytes();
    mac
}
