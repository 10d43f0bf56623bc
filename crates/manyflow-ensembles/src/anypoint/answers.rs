//! Limits on answers to addresses that have not proved anything.

use std::net::IpAddr;
use std::time::Duration;

use manyflow_anypoint::{Body, Reason};
use manyflow_core::time::Time;
use siphasher::sip::SipHasher24;

use super::envelope::{self, NO_COOKIE, Short};
use super::{Number, segment};

/// The shortest time between two Resets to one address for unknown connections.
const RESET_INTERVAL: Duration = Duration::from_millis(10);
/// Places for the times of Resets. Addresses that share a place share its limit.
const PLACES: usize = 4096;
/// Challenges per second, to all addresses.
const CHALLENGES_PER_S: f64 = 50_000.0;
/// Challenges that may be sent at once after a pause.
const CHALLENGES_BURST: f64 = 20_000.0;

/// Counts answers. Takes the same memory whatever arrives.
#[derive(Debug)]
pub(super) struct Answers {
    key: [u8; 16],
    /// For each place, the time before which no further Reset is sent.
    quiet_until: Box<[Time]>,
    /// The number of Challenges that may be sent at `counted_at`.
    challenges: f64,
    counted_at: Time,
}

impl Answers {
    pub(super) fn new() -> Answers {
        Answers {
            key: super::random(),
            quiet_until: vec![Time::ZERO; PLACES].into(),
            challenges: CHALLENGES_BURST,
            counted_at: Time::ZERO,
        }
    }

    /// Returns the Reset that answers a segment of connection `number`, which is not known, unless
    /// too many go to this address.
    pub(super) fn reset(
        &mut self,
        now: Time,
        address: IpAddr,
        number: Number,
        reason: Reason,
    ) -> Option<Short> {
        let reset = segment(number, Body::Reset(reason));
        self.may_reset(now, address)
            .then(|| envelope::encode(&reset, &NO_COOKIE))
    }

    /// Returns whether a Reset may go to this address now, and counts it.
    fn may_reset(&mut self, now: Time, address: IpAddr) -> bool {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        std::hash::Hash::hash(&address, &mut hasher);
        let place = std::hash::Hasher::finish(&hasher) as usize % PLACES;
        let is_quiet = now < self.quiet_until[place];
        if !is_quiet {
            self.quiet_until[place] = now + RESET_INTERVAL;
        }
        !is_quiet
    }

    /// Returns whether a Challenge may be sent now, and counts it.
    pub(super) fn may_challenge(&mut self, now: Time) -> bool {
        let gained = (now - self.counted_at).as_secs_f64() * CHALLENGES_PER_S;
        self.counted_at = now;
        self.challenges = (self.challenges + gained).min(CHALLENGES_BURST);
        let may = self.challenges >= 1.0;
        if may {
            self.challenges -= 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_gets_one_reset_at_a_time() {
        let mut answers = Answers::new();
        let address = IpAddr::from([127, 0, 0, 1]);
        let now = Time::ZERO + Duration::from_secs(1);
        assert!(answers.may_reset(now, address));
        assert!(!answers.may_reset(now, address));
        assert!(answers.may_reset(now + RESET_INTERVAL, address));
    }

    #[test]
    fn challenges_are_limited_in_total() {
        let mut answers = Answers::new();
        let now = Time::ZERO + Duration::from_secs(1);
        let sent = (0..100_000).filter(|_| answers.may_challenge(now)).count();
        assert_eq!(sent, CHALLENGES_BURST as usize);
        assert!(answers.may_challenge(now + Duration::from_secs(1)));
    }
}
