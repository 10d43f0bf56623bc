//! Refuses packets that the sender cannot have sent yet, so that forged packets do not change the
//! rate control's state.
//!
//! Each packet has a position: the time, in slots, at which the sender sends it (`schedule.rs`). A
//! timeline knows two positions. `latest` is that of the packets that arrive now; a queue holds it
//! back. `fastest` is what `latest` would be without a queue, as far as the receiver has seen.
//!
//! - A packet ahead of `fastest` by more than the tolerance is refused.
//! - A packet can bring `latest` forward by at most twice the sum of the time since the last packet
//!   and one packet spacing. A time slot begins only when `latest` has passed its start, and a
//!   missing number counts as lost only when `latest` has passed its position. So a few forged
//!   packets cause neither.
//! - A wave's packet that is more than 64 numbers behind the first that came after the join is
//!   refused: it was sent before the join.
//! - A packet that is ahead of `latest` by more numbers than its channel sends in 50 ms, at least
//!   64, is refused: more cannot remain pending, and would count as lost. It is not refused if it
//!   is within this distance of the last on its channel, and hardly ahead of `fastest`: after a
//!   pause of the sender or the receiver, packets that have waited come faster than `latest` may
//!   follow.
//!
//! The first packet of all may be the forged one, and a sender may have been restarted. So packets
//! of the base channel that are refused, but agree with each other, form rivals of the timeline.
//! Only packets with different numbers count, so that a repeated packet supports nothing.
//!
//! - Until a timeline is established, a rival replaces it that has four packets, and two more than
//!   have agreed with the timeline meanwhile.
//! - Eight packets establish a timeline. If a rival has half as many, packets of waves have to
//!   agree too: an attacker can send as many packets of the base channel as the sender. Without
//!   packets of waves, the rival gets its turn.
//! - An established timeline is replaced only if no packet of the base channel agrees with it.

use core::time::Duration;

use crate::Session;
use crate::missing::{FEW, MANY};
use manyflow_core::time::Time;

/// The number of packets that establish a timeline.
const ESTABLISHED: u8 = 8;
/// The number of packets that replace a timeline.
const REPLACING: u8 = 4;
/// The number of packets by which a rival has to lead.
const LEAD: u8 = 2;
/// Maximum number of rivals. The oldest of those with the fewest packets make room, so packets with
/// random numbers do not displace a rival whose next packet comes before this many of them.
const RIVALS_MAX: usize = 32;
/// The time by which a packet may be ahead of the latest position, in seconds, as far as its
/// channel's numbers of that time can remain pending. A queue that overflows while a host pauses
/// loses packets of some milliseconds in a row, which are thousands at some Gbit/s. A forged packet
/// of the future keeps the packets before it out of order for no longer than this.
const AHEAD_S: f64 = 0.05;
/// The number of sequence numbers by which a wave's packet may be behind the first that came: no
/// later ones would count as received.
pub(super) const NUMBERS_LATE: u64 = 64;
/// The fraction by which the fastest position falls behind in a time slot. It exceeds the drift of
/// two computers' clocks.
const DRIFT: f64 = 1e-3;

/// How far the sender has come, in slots since the beginning of the receiver's current slot.
#[derive(Debug)]
pub(super) struct Timeline {
    latest: f64,
    fastest: f64,
    /// Time at which `latest` and `fastest` held.
    at: Time,
    /// Packets of the base channel that agreed with this timeline, at most 255.
    votes: u8,
    /// Packets of waves that agreed with this timeline, at most 255.
    wave_packets: u8,
    is_established: bool,
    /// In the order of their first packets.
    rivals: Vec<Rival>,
}

/// Another timeline, on which refused packets agree.
#[derive(Copy, Clone, Debug)]
struct Rival {
    /// Its first packet.
    place: Place,
    at: Time,
    /// How far its packets have advanced since the first, in slots.
    advanced: f64,
    votes: u8,
    /// Packets that agreed with the timeline since then.
    against: u8,
}

/// The place of a packet of the base channel.
#[derive(Copy, Clone, Debug)]
pub(super) struct Place {
    /// The time slot index.
    pub(super) ctsi: u32,
    /// The number of its slot, as the sequence number gives it.
    pub(super) slot: u64,
    /// Its position within the slot.
    pub(super) phase: f64,
}

impl Place {
    /// Returns the slots from the slot with number `slot` to this packet's, which are negative if
    /// this packet's is the earlier one.
    pub(super) fn slots_since(&self, slot: u64, session: &Session) -> i64 {
        let slots = session.base_slots();
        let ahead = (self.slot + slots - slot) % slots;
        if ahead <= slots / 2 {
            ahead as i64
        } else {
            ahead as i64 - slots as i64
        }
    }

    /// Whether the time slot index has advanced by `slots` since it was `ctsi`.
    pub(super) fn index_follows(&self, ctsi: u32, slots: i64, session: &Session) -> bool {
        let t = session.wave_channels();
        let ahead = (self.ctsi + t - ctsi) % t;
        slots.rem_euclid(t.into()) == i64::from(ahead)
    }
}

impl Timeline {
    /// A timeline of the first packet, which has this position and arrived at `now`.
    pub(super) fn new(position: f64, now: Time) -> Timeline {
        Timeline {
            latest: position,
            fastest: position,
            at: now,
            votes: 0,
            wave_packets: 0,
            is_established: false,
            rivals: Vec::new(),
        }
    }

    /// Returns the position of the packets that arrive now.
    pub(super) fn latest(&self) -> f64 {
        self.latest
    }

    /// Returns the position of packets that would arrive at `now`, by the clock.
    pub(super) fn position(&self, now: Time, session: &Session) -> f64 {
        self.latest + (now - self.at).as_secs_f64() / session.time_slot_s()
    }

    /// Returns the highest position that a packet is believed to have at `now`.
    pub(super) fn limit(&self, now: Time, session: &Session) -> f64 {
        self.fastest(now, session) + tolerance(session).as_secs_f64() / session.time_slot_s()
    }

    /// Returns the position that a packet without a queue has at `now`.
    pub(super) fn fastest(&self, now: Time, session: &Session) -> f64 {
        let elapsed = (now - self.at).as_secs_f64();
        self.fastest + elapsed / session.time_slot_s()
    }

    /// Returns the lowest position that a packet of the base channel is believed to have at `now`.
    pub(super) fn floor(&self, now: Time, session: &Session) -> f64 {
        let lateness = if self.is_established() {
            lateness_max(session)
        } else {
            lateness(session)
        };
        let elapsed = (now - self.at).as_secs_f64();
        self.fastest + (elapsed - lateness.as_secs_f64()) / session.time_slot_s()
    }

    /// Returns the position to which a packet can bring `latest` at `now`, if the joined channels
    /// together have the rate `packets_per_s`.
    pub(super) fn reach(&self, now: Time, packets_per_s: f64, session: &Session) -> f64 {
        let elapsed = (now - self.at).as_secs_f64();
        self.latest + 2.0 * (elapsed + 1.0 / packets_per_s) / session.time_slot_s()
    }

    /// Moves on to the position of a packet that is in order on its channel.
    pub(super) fn advance(&mut self, now: Time, position: f64, session: &Session) {
        let elapsed = (now - self.at).as_secs_f64() / session.time_slot_s();
        self.latest = position;
        self.fastest = position.max(self.fastest + elapsed);
        self.at = now;
        debug_assert!(
            self.latest <= self.fastest,
            "no packet is faster than the fastest"
        );
    }

    /// Counts positions from the next slot on.
    pub(super) fn begin_next_slot(&mut self) {
        self.latest -= 1.0;
        self.fastest = self.latest.max(self.fastest - 1.0 - DRIFT);
    }

    pub(super) fn is_established(&self) -> bool {
        self.is_established
    }

    /// Counts a packet of the base channel that agrees with this timeline, and is no repetition.
    pub(super) fn support(&mut self) {
        self.votes = self.votes.saturating_add(1);
        for rival in &mut self.rivals {
            rival.against = rival.against.saturating_add(1);
        }
        self.establish();
    }

    /// Counts a packet of a wave that agrees with this timeline, and is no repetition.
    pub(super) fn support_by_wave(&mut self) {
        self.wave_packets = self.wave_packets.saturating_add(1);
    }

    fn establish(&mut self) {
        let is_contested = self.rivals.iter().any(|rival| self.is_equalled_by(rival));
        let has_waves = self.wave_packets >= ESTABLISHED;
        self.is_established |= self.votes >= ESTABLISHED && (has_waves || !is_contested);
        if self.is_established {
            self.rivals = Vec::new();
        }
    }

    /// Whether as many packets agree with the rival, within a factor of two.
    fn is_equalled_by(&self, rival: &Rival) -> bool {
        rival.votes >= self.votes / 2
    }

    /// Counts a packet of the base channel that does not agree with this timeline. If another
    /// timeline replaces this one, returns the arrival time of its first packet.
    pub(super) fn doubt(&mut self, now: Time, place: Place, session: &Session) -> Option<Time> {
        let agrees = |rival: &Rival| rival.agrees(now, place, session);
        let Some(rival) = self.rivals.iter().position(agrees) else {
            self.add_rival(now, place);
            return None;
        };
        self.rivals[rival].vote(place, session);
        let rival = self.rivals[rival];
        // In three of the base channel's longest spacings, packets of this timeline would have
        // come.
        let spacings_s = 3.0 * session.base_spacing_max_s();
        if rival.votes < REPLACING || (now - rival.at).as_secs_f64() < spacings_s {
            return None;
        }
        let replaces = if self.is_established {
            rival.against == 0
        } else {
            let had_its_turn = self.votes >= ESTABLISHED && self.is_equalled_by(&rival);
            had_its_turn || rival.votes >= rival.against.saturating_add(LEAD)
        };
        replaces.then_some(rival.at)
    }

    fn add_rival(&mut self, now: Time, place: Place) {
        if self.rivals.len() == RIVALS_MAX {
            let weakest = (0..RIVALS_MAX).min_by_key(|index| self.rivals[*index].votes);
            self.rivals.remove(weakest.unwrap_or_default());
        }
        self.rivals.push(Rival {
            place,
            at: now,
            advanced: 0.0,
            votes: 1,
            against: 0,
        });
    }
}

impl Rival {
    /// Returns how far a packet is from the first, in slots.
    fn advance_of(&self, place: Place, session: &Session) -> f64 {
        let slots = place.slots_since(self.place.slot, session);
        slots as f64 + place.phase - self.place.phase
    }

    /// Whether a packet's position has advanced with time since that of the first packet.
    fn agrees(&self, now: Time, place: Place, session: &Session) -> bool {
        let elapsed = (now - self.at).as_secs_f64();
        let advanced_s = self.advance_of(place, session) * session.time_slot_s();
        let slots = place.slots_since(self.place.slot, session);
        (advanced_s - elapsed).abs() <= lateness(session).as_secs_f64()
            && place.index_follows(self.place.ctsi, slots, session)
    }

    /// Counts a packet that agrees, unless it or a later one came before.
    fn vote(&mut self, place: Place, session: &Session) {
        let advanced = self.advance_of(place, session);
        if advanced > self.advanced {
            self.advanced = advanced;
            self.votes = self.votes.saturating_add(1);
        }
    }
}

/// Returns the number of sequence numbers by which a packet of a channel may be ahead of the latest
/// position: those that the channel sends in [`AHEAD_S`] at its rate, in packets per second. From
/// 64 to 4032, so that a [`Sequence`](crate::sequence::Sequence) can keep as many pending.
pub(super) fn numbers_ahead(packets_per_s: f64) -> u64 {
    ((AHEAD_S * packets_per_s) as u64).clamp(FEW, MANY)
}

/// Returns the time by which a packet may be ahead of the fastest position: the first packets may
/// have waited in a queue.
fn tolerance(session: &Session) -> Duration {
    let half = session.config().time_slot / 2;
    half.clamp(Duration::from_millis(250), Duration::from_secs(1))
}

/// Returns the time by which packets may be late: a sender and the queues on the path can hold them
/// back as long as silence does not end the session.
pub(super) fn lateness_max(session: &Session) -> Duration {
    session.config().time_slot.max(Duration::from_secs(10))
}

/// Returns the time by which packets of a timeline that is not established may be late.
fn lateness(session: &Session) -> Duration {
    (session.config().time_slot / 2).max(Duration::from_secs(1))
}
