//! Connections that were refused, by address: strangers can make any number of them.

use std::collections::HashMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_net::seldom::Seldom;

/// The maximum number of addresses that are remembered.
const ADDRESSES_MAX: usize = 4096;
/// The time for which an address is remembered after the last refusal.
const REMEMBERED: Duration = Duration::from_secs(120);
/// The number of refusals of one address at once, and the time after which it has one more.
const BURST: u32 = 16;
const INTERVAL: Duration = Duration::from_millis(250);

/// The refusals of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Refusals(HashMap<IpAddr, Refused>);

/// The refusals of one address.
#[derive(Debug)]
struct Refused {
    seldom: Seldom,
    /// The last reason.
    reason: String,
    last: Time,
    /// When there would be none, if each took [`INTERVAL`] (GCRA, ITU-T I.371).
    paid: Time,
}

impl Refusals {
    /// Returns whether an address has had so few refusals that it may try again.
    pub(super) fn may_try(&self, now: Time, from: IpAddr) -> bool {
        let known = self.0.get(&network(from));
        known.is_none_or(|known| known.paid <= now + BURST * INTERVAL)
    }

    /// Counts a refusal. One that was decided without a look at what was tried costs nothing.
    /// Returns what to log, if it is time for that.
    pub(super) fn count(
        &mut self,
        now: Time,
        from: IpAddr,
        reason: impl Display,
        was_checked: bool,
    ) -> Option<(u64, String)> {
        if self.0.len() >= ADDRESSES_MAX {
            self.0.retain(|_, known| known.paid > now);
        }
        if self.0.len() >= ADDRESSES_MAX {
            self.0.clear();
        }
        let known = self.0.entry(network(from)).or_insert_with(|| Refused {
            seldom: Seldom::default(),
            reason: String::new(),
            last: now,
            paid: now,
        });
        known.last = now;
        if was_checked {
            known.paid = known.paid.max(now) + INTERVAL;
        }
        known.reason = reason.to_string();
        let count = known.seldom.count(now)?;
        Some((count, known.reason.clone()))
    }

    /// Returns what to log of addresses that were refused again since the last line about them, and
    /// forgets those that have not been refused for a time.
    pub(super) fn take_due(&mut self, now: Time) -> Vec<(IpAddr, u64, String)> {
        let mut due = Vec::new();
        self.0.retain(|from, known| {
            let count = known.seldom.take(now);
            due.extend(count.map(|count| (*from, count, known.reason.clone())));
            now - known.last < REMEMBERED
        });
        due
    }
}

/// Returns the address; of IPv6, the first address of its network of 64 bits, all of which one host
/// can have.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() >> 64 << 64).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn an_address_that_guesses_for_a_minute_has_four_guesses_a_second_and_few_lines_in_the_log() {
        let mut refusals = Refusals::default();
        let (mut tries, mut lines) = (0, Vec::new());
        for milli in 0..60_000 {
            lines.extend(refusals.take_due(at(milli)));
            let may_try = refusals.may_try(at(milli), FROM);
            tries += u32::from(may_try);
            if let Some((count, reason)) = refusals.count(at(milli), FROM, "wrong", may_try) {
                lines.push((FROM, count, reason));
            }
        }
        assert_eq!(lines, [(FROM, 1, "wrong".to_owned())]);
        assert!((250..260).contains(&tries), "{tries}");
        assert!(
            refusals.may_try(at(61_000), FROM),
            "it has to wait a moment only"
        );
        let due = refusals.take_due(at(60_000));
        assert_eq!(due, [(FROM, 59_999, "wrong".to_owned())]);
        let other = IpAddr::from([192, 0, 2, 2]);
        assert!(refusals.may_try(at(60_000), other));
    }

    #[test]
    fn an_address_that_stops_guessing_is_forgotten() {
        let mut refusals = Refusals::default();
        for _ in 0..100 {
            refusals.count(at(0), FROM, "wrong", true);
        }
        assert!(!refusals.may_try(at(0), FROM));
        refusals.take_due(at(60_000));
        refusals.take_due(at(120_000));
        assert!(refusals.0.is_empty());
    }

    #[test]
    fn the_addresses_of_a_network_count_as_one_and_the_number_of_networks_is_bounded() {
        let mut refusals = Refusals::default();
        for host in 0..100u128 {
            let from = IpAddr::V6((0x2001_0db8 << 96 | host).into());
            refusals.count(at(0), from, "wrong", true);
        }
        assert_eq!(refusals.0.len(), 1);
        for network in 0..10_000u128 {
            let from = IpAddr::V6((0x2001_0db8 << 96 | network << 64).into());
            refusals.count(at(0), from, "wrong", true);
        }
        assert!(refusals.0.len() <= ADDRESSES_MAX);
    }
}
