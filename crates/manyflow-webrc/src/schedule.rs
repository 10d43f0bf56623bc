//! The time at which the sender sends each packet, as its sequence number gives it (RFC 3738
//! section 3.1.2).
//!
//! A position is a time in slots. Receivers compare the positions of packets of all channels, which
//! arrive in the order of their positions on a path that does not reorder.

use super::Session;

/// The part of a slot within which two positions count as the same: a sender computes due times in
/// whole nanoseconds.
const ROUNDING: f64 = 1e-6;

impl Session {
    /// Returns the phase, 0 to 1, of a time slot at which the base channel's packet `index` of that
    /// slot is sent: when it is due, or with the first packet of its train.
    pub(crate) fn base_phase(&self, index: u64) -> f64 {
        self.base_phase_of_single(self.train(index).start)
    }

    /// Returns the phase at which the base channel's packet `index` is due. A fluid would have sent
    /// as many packets when the rate has fallen to BCR_P + index log(P) / TSD.
    pub(crate) fn base_phase_of_single(&self, index: u64) -> f64 {
        let log = libm::log(self.decrease());
        let fallen = 1.0 + index as f64 * log / (self.time_slot_s() * self.base_rate());
        libm::log(fallen) / log
    }

    /// Returns the number of packets that the base channel sends up to `phase` of a time slot.
    pub(crate) fn base_packets_until(&self, phase: f64) -> u64 {
        let log = libm::log(self.decrease());
        let fallen = self.power(phase + ROUNDING);
        let index = (fallen - 1.0) * self.time_slot_s() * self.base_rate() / log;
        let due = (index as u64 + 1).min(self.base_packets_per_slot().into());
        self.train(due - 1).end
    }

    /// Returns the number of time slots in which the base channel uses each sequence number once.
    pub(crate) fn base_slots(&self) -> u64 {
        self.base_sequence_numbers() / u64::from(self.base_packets_per_slot())
    }

    /// Returns the position of a wave's packet, in slots relative to the end of the wave's last
    /// slot: from -N to 0.
    pub(crate) fn wave_position(&self, psn: u64) -> f64 {
        let remaining = self.cci_format().sequence_numbers() - psn;
        let since_begin_s = self.wave().time_of(remaining);
        since_begin_s / self.time_slot_s() - f64::from(self.active_slots())
    }

    /// Returns the lowest sequence number of a wave that is not sent yet at `position`, in slots
    /// relative to the end of the wave's last slot. At the end, it is the number of sequence
    /// numbers.
    pub(crate) fn wave_unsent(&self, position: f64) -> u64 {
        let since_begin = position + ROUNDING + f64::from(self.active_slots());
        let remaining = self.wave().remaining_at(since_begin * self.time_slot_s());
        self.cci_format().sequence_numbers() - remaining
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CciFormat, SessionConfig};
    use manyflow_core::units::Rate;
    use proptest::prelude::*;

    proptest! {
        /// Each number's position lies before that of the next, and numbers are unsent until then.
        #[test]
        fn positions_and_numbers_are_each_others_inverse(
            kbit in 140u64..20_000,
            constant_aggregate: bool,
            wan: bool,
            long: bool,
            trains in prop::option::of(4u32..10),
        ) {
            let rate = Rate::from_bits_per_s(kbit * 1000);
            let profile = if wan { SessionConfig::wan(rate) } else { SessionConfig::lan(rate) };
            let cci_format = long.then_some(CciFormat::Long);
            let profile = match trains {
                Some(packets) if kbit > 1000 => profile.with_packet_trains(packets),
                _ => profile,
            };
            let session = Session::new(SessionConfig { constant_aggregate, cci_format, ..profile }).unwrap();
            for index in 0..u64::from(session.base_packets_per_slot()) {
                let phase = session.base_phase(index);
                prop_assert!((0.0..1.0).contains(&phase));
                prop_assert_eq!(session.base_packets_until(phase), session.train(index).end);
            }
            let numbers = session.cci_format().sequence_numbers();
            let first = numbers - session.wave().packets();
            for psn in (first..numbers).step_by(7).chain([numbers - 1]) {
                let position = session.wave_position(psn);
                prop_assert!(position < 0.0 && position >= -f64::from(session.active_slots()));
                prop_assert_eq!(session.wave_unsent(position), psn + 1);
            }
            prop_assert_eq!(session.wave_unsent(0.0), numbers);
        }
    }
}
