//! Packet trains on the base channel: an option that is not in RFC 3738.
//!
//! The base channel's packets of each time slot are grouped into trains; those that are left over
//! at the end of the slot remain single. All packets of a train are sent back to back when the
//! first of them is due, so their numbers, their time slots and the channel's average rate are
//! those of RFC 3738:
//!
//! ```text
//!   RFC 3738   0   1   2   3    4    5    6     7     8      |
//!   in trains  0123             4567                  8      |
//! ```
//!
//! A receiver that does not know of trains takes the packets for early ones. It accepts packets
//! that are early by up to half a time slot and up to a second (`receiver/timeline.rs`), so a train
//! is not longer than that.
//!
//! The time that a train takes to arrive shows the capacity of the path (`receiver/dispersion.rs`).

use core::ops::Range;

use super::{Session, SessionConfig, SessionError};
use manyflow_core::ConfigError;

/// The maximum time for which a train replaces single packets, in seconds and in time slots.
const SPAN_MAX_S: f64 = 1.0;
const SPAN_MAX_SLOTS: f64 = 0.5;

impl SessionConfig {
    /// Sends the base channel in trains of `packets` packets, 4 to 32. Raises the base rate to the
    /// minimum for two trains per time slot, and one per second.
    pub fn with_packet_trains(mut self, packets: u32) -> SessionConfig {
        let needed = self.base_rate_for_trains(packets);
        // Whole tenths, so that the rate is short in a description.
        let needed = (needed * 10.0).ceil() / 10.0;
        self.base_rate_packets_per_s = self.base_rate_packets_per_s.max(needed);
        self.packet_trains = Some(packets);
        self
    }

    /// Returns the lowest base rate for trains of `packets`, in packets per second: at the end of a
    /// slot, too, a train replaces the packets of no longer time than it may.
    fn base_rate_for_trains(&self, packets: u32) -> f64 {
        let span_s = SPAN_MAX_S.min(SPAN_MAX_SLOTS * self.time_slot.as_secs_f64());
        f64::from(packets) / (self.decrease * span_s)
    }
}

impl Session {
    /// Whether the base channel's packets are sent in trains.
    pub(crate) fn has_trains(&self) -> bool {
        self.config().packet_trains.is_some()
    }

    /// Returns the packets that the base channel sends together with packet `index` of a time slot.
    pub(crate) fn train(&self, index: u64) -> Range<u64> {
        let per_slot = u64::from(self.base_packets_per_slot());
        debug_assert!(index < per_slot, "the index of a packet of a time slot");
        let packets = self.config().packet_trains.map_or(1, u64::from);
        let begin = index - index % packets;
        match begin + packets <= per_slot {
            true => begin..begin + packets,
            false => index..index + 1,
        }
    }

    /// Returns the number of times at which the base channel sends in a time slot: of trains and
    /// single packets.
    pub(crate) fn base_times_per_slot(&self) -> u32 {
        let packets = self.config().packet_trains.unwrap_or(1);
        let per_slot = self.base_packets_per_slot();
        per_slot / packets + per_slot % packets
    }

    /// Returns the longest time between two trains of the base channel in seconds, or between two
    /// packets if there are no trains.
    pub(crate) fn base_spacing_max_s(&self) -> f64 {
        let together = self.config().packet_trains.unwrap_or(1);
        f64::from(together) / (self.base_rate() * self.decrease())
    }

    /// Checks that trains have the length that was asked for.
    pub(crate) fn check_trains(&self) -> Result<(), SessionError> {
        let config = self.config();
        let Some(packets) = config.packet_trains else {
            return Ok(());
        };
        ConfigError::first_of([(
            "the length of packet trains",
            "4 to 32 packets",
            (4..=32).contains(&packets),
        )])?;
        let minimum = config.base_rate_for_trains(packets);
        if config.base_rate_packets_per_s < minimum {
            return Err(SessionError::PacketTrains { packets, minimum });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lan() -> SessionConfig {
        SessionConfig::lan("100 Mbit/s".parse().unwrap())
    }

    #[test]
    fn the_base_rate_rises_to_two_trains_per_slot() {
        let session = Session::new(lan().with_packet_trains(16)).unwrap();
        let trains = [3, 31, 33].map(|index| session.train(index));
        assert_eq!(trains, [0..16, 16..32, 33..34]);
        let fast = SessionConfig {
            base_rate_packets_per_s: 64.0,
            ..lan()
        };
        let session = Session::new(fast.with_packet_trains(16)).unwrap();
        assert_eq!(session.config().base_rate_packets_per_s, 64.0);
    }

    #[test]
    fn a_base_rate_too_low_for_the_trains_is_refused_with_the_rate_that_works() {
        let few = SessionConfig {
            packet_trains: Some(16),
            ..lan()
        };
        let Err(SessionError::PacketTrains { minimum, .. }) = Session::new(few.clone()) else {
            panic!("4 packets do not make a train of 16")
        };
        let more = SessionConfig {
            base_rate_packets_per_s: minimum,
            ..few
        };
        assert!(Session::new(more).is_ok());
        let short = SessionConfig {
            packet_trains: Some(1),
            ..lan()
        };
        assert!(
            Session::new(short)
                .unwrap_err()
                .to_string()
                .contains("4 to 32")
        );
    }

    proptest! {
        /// Trains follow each other, and none is shorter than asked for.
        #[test]
        fn each_packet_is_in_one_train(packets in 4u32..=32, base in 4.0f64..400.0, wan: bool) {
            let profile = if wan { SessionConfig::wan } else { SessionConfig::lan };
            let config = profile("200 Mbit/s".parse().unwrap());
            let config = SessionConfig { base_rate_packets_per_s: base, ..config };
            let session = Session::new(config.with_packet_trains(packets)).unwrap();
            let count = u64::from(session.base_packets_per_slot());
            let (mut next, mut times) = (0, 0);
            while next < count {
                let train = session.train(next);
                prop_assert_eq!(train.start, next);
                prop_assert!([1, u64::from(packets)].contains(&(train.end - next)));
                let span = session.base_phase_of_single(train.end - 1) - session.base_phase(next);
                prop_assert!(span <= 0.5 && span * session.time_slot_s() <= 1.0);
                for index in train.clone() {
                    prop_assert_eq!(session.train(index), train.clone());
                }
                next = train.end;
                times += 1;
            }
            prop_assert_eq!(next, count);
            prop_assert_eq!(times, session.base_times_per_slot());
        }
    }
}
