//! Detects forged packets by their sequence numbers.
//!
//! A sender gives each packet of a channel its own sequence number (RFC 3738 section 5.1). An
//! attacker who sends packets with a false source address has to choose numbers, too. The rate
//! control refuses numbers that are impossible, and the others belong to packets of the sender that
//! have arrived or soon will. So if two packets with one number carry different symbols, one is
//! false, and neither symbol is used.

use std::time::{Duration, Instant};

use manyflow_object::alc::{PAYLOAD_ID_BYTES, Symbol};
use manyflow_webrc::Cci;

/// The number of packets that are remembered, if their numbers do not collide.
const SLOTS: usize = 1 << 14;
/// The duration for which a packet's number is its own. It is shorter than the time until a channel
/// uses a time slot's index again, and longer than packets are delayed.
const UNIQUE_FOR: Duration = Duration::from_secs(10);

/// The packets that came last.
#[derive(Debug)]
pub(super) struct PacketNumbers {
    started: Instant,
    slots: Box<[Slot]>,
}

/// The packet that came last with this remainder of its number.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    number: u64,
    payload_id: [u8; PAYLOAD_ID_BYTES],
    /// The lower bits of the TOI: those of our senders have no others.
    toi: u32,
    /// The time of arrival, in milliseconds.
    at: u32,
    is_taken: bool,
}

/// A packet with the number of an earlier one, but another symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    /// The object of the earlier packet's symbol.
    pub(super) toi: u128,
    /// The earlier packet's symbol.
    pub(super) payload_id: [u8; PAYLOAD_ID_BYTES],
}

impl PacketNumbers {
    pub(super) fn new(now: Instant) -> PacketNumbers {
        PacketNumbers {
            started: now,
            slots: vec![Slot::default(); SLOTS].into(),
        }
    }

    /// Takes note of a packet. Returns the conflict with an earlier one, if there is any: then
    /// neither symbol should be used.
    pub(super) fn check(&mut self, now: Instant, cci: Cci, symbol: Symbol<'_>) -> Option<Conflict> {
        let number = u64::from(cci.channel) << 48 | u64::from(cci.ctsi) << 32 | u64::from(cci.psn);
        let at = now.duration_since(self.started).as_millis() as u32;
        let new = Slot {
            number,
            payload_id: symbol.payload_id,
            toi: symbol.toi as u32,
            at,
            is_taken: true,
        };
        // Neighbours of a channel are in neighbouring slots, and channels are far apart.
        let place = (u64::from(cci.psn) + u64::from(cci.channel) * 7_919) as usize % SLOTS;
        let old = std::mem::replace(&mut self.slots[place], new);
        let is_recent = u128::from(at.wrapping_sub(old.at)) < UNIQUE_FOR.as_millis();
        let is_same_number = old.is_taken && old.number == number && is_recent;
        let is_same_symbol = old.toi == new.toi && old.payload_id == new.payload_id;
        (is_same_number && !is_same_symbol).then_some(Conflict {
            toi: old.toi.into(),
            payload_id: old.payload_id,
        })
    }
}

#[cfg(test)]
mod tests {
    use manyflow_webrc::CciFormat;

    use super::*;

    fn cci(channel: u16, psn: u32) -> Cci {
        Cci {
            ctsi: 3,
            channel,
            psn,
            format: CciFormat::Short,
        }
    }

    fn symbol(esi: u8) -> Symbol<'static> {
        Symbol {
            toi: 1,
            payload_id: [0, 0, 0, esi],
            data: &[],
        }
    }

    #[test]
    fn packets_with_one_number_and_different_symbols_conflict() {
        let now = Instant::now();
        let mut numbers = PacketNumbers::new(now);
        assert_eq!(numbers.check(now, cci(1, 5), symbol(1)), None);
        assert_eq!(numbers.check(now, cci(1, 6), symbol(2)), None);
        assert_eq!(numbers.check(now, cci(2, 5), symbol(3)), None);
        // The network repeats a packet.
        assert_eq!(numbers.check(now, cci(1, 5), symbol(1)), None);
        let conflict = numbers.check(now, cci(1, 6), symbol(9));
        let expected = Conflict {
            toi: 1,
            payload_id: [0, 0, 0, 2],
        };
        assert_eq!(conflict, Some(expected));
    }

    #[test]
    fn a_number_is_used_again_after_a_while() {
        let now = Instant::now();
        let mut numbers = PacketNumbers::new(now);
        assert_eq!(numbers.check(now, cci(1, 5), symbol(1)), None);
        let later = now + UNIQUE_FOR;
        assert_eq!(numbers.check(later, cci(1, 5), symbol(2)), None);
    }
}
