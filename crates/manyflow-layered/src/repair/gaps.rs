//! The child's side of repair: which packets are missing, and when to ask for them.

use super::request::{GAP_GROUPS_MAX, GroupGaps, HORIZON};

/// The number of later packets after which a gap is taken for a loss.
const OVERTAKEN_MAX: u32 = 2;
/// The maximum number of requests between two soundings, beside that of a sounding.
const REQUESTS_MAX: u32 = 4;
/// The distance of numbers from which a sender has started again, or the group was left meanwhile.
const RESTART: u32 = 4096;
/// The number of duplicates in a row after which a sender has started again.
const DUPLICATES_MAX: u32 = 8;

/// The kind of a packet's arrival.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The packet arrives for the first time, and none is missing before it that was asked for.
    Fresh,
    /// The packet was missing: it is a repair, or was overtaken.
    Late,
    /// The packet has arrived before.
    Duplicate,
}

/// The groups that a child receives from its parent.
#[derive(Clone, Debug, Default)]
pub struct Gaps {
    groups: Vec<GroupGaps>,
    /// The packets since the oldest gap that was not asked for; `None` without one.
    since_gap: Option<u32>,
    /// The requests since the last sounding.
    requests: u32,
    /// The packets that were missing at the last sounding, by the counts of both ends.
    missing: Option<i64>,
    /// The number of soundings that may still ask for the losses that one has shown.
    soundings_left: u32,
    duplicates: u32,
    is_due: bool,
}

impl Gaps {
    /// Notes the arrival of a packet. Groups beyond [`GAP_GROUPS_MAX`] are not repaired.
    pub fn note(&mut self, session: u32, rank: u8, sequence: u32) -> Arrival {
        let mut known = self.groups.iter();
        let place = known.position(|group| group.rank == rank && group.session == session);
        let Some(place) = place else {
            self.begin_group(session, rank, sequence);
            return Arrival::Fresh;
        };
        let group = &mut self.groups[place];
        let arrival = note_in(group, sequence);
        let has_gap = arrival == Arrival::Fresh && group.missing & 2 != 0;
        self.duplicates = match arrival {
            Arrival::Duplicate => self.duplicates + 1,
            _ => 0,
        };
        if self.duplicates > DUPLICATES_MAX {
            (group.next, group.missing) = (sequence.wrapping_add(1), 0);
            self.duplicates = 0;
            return Arrival::Fresh;
        }
        self.follow_gap(has_gap);
        arrival
    }

    fn begin_group(&mut self, session: u32, rank: u8, sequence: u32) {
        if self.groups.len() == GAP_GROUPS_MAX {
            return;
        }
        let place = self.groups.partition_point(|group| group.rank <= rank);
        let group = GroupGaps {
            session,
            rank,
            next: sequence.wrapping_add(1),
            missing: 0,
        };
        self.groups.insert(place, group);
        debug_assert!(self.groups.is_sorted_by_key(|group| group.rank));
    }

    /// Counts the packets since a gap, and asks when it is taken for a loss.
    fn follow_gap(&mut self, has_gap: bool) {
        self.since_gap = match self.since_gap {
            Some(packets) => Some(packets + 1),
            None => has_gap.then_some(0),
        };
        if self
            .since_gap
            .is_some_and(|packets| packets >= OVERTAKEN_MAX)
        {
            self.since_gap = None;
            if self.requests < REQUESTS_MAX && self.has_missing() {
                self.requests += 1;
                self.is_due = true;
            }
        }
    }

    fn has_missing(&self) -> bool {
        self.groups.iter().any(|group| group.missing != 0)
    }

    /// Handles a sounding, before which the parent has sent `sent` packets and of which `received`
    /// have arrived. The first one after a change of the parent only sets the counts.
    pub fn handle_sounding(&mut self, sent: u64, received: u64) {
        let missing = sent.wrapping_sub(received) as i64;
        let before = self.missing.replace(missing).unwrap_or(missing);
        if missing > before {
            self.soundings_left = 2;
        }
        self.is_due |= self.soundings_left > 0;
        self.soundings_left = self.soundings_left.saturating_sub(1);
        self.requests = 0;
        self.since_gap = None;
    }

    /// Forgets the counts of the parent, as those of another one follow.
    pub fn forget_parent(&mut self) {
        (self.missing, self.soundings_left) = (None, 0);
    }

    /// Returns the groups of the request that is due, the lowest first; `None` if none is.
    pub fn poll_request(&mut self) -> Option<&[GroupGaps]> {
        core::mem::take(&mut self.is_due).then_some(&self.groups)
    }
}

/// Notes the arrival of a packet of this group.
fn note_in(group: &mut GroupGaps, sequence: u32) -> Arrival {
    let ahead = sequence.wrapping_sub(group.next);
    let behind = group.next.wrapping_sub(sequence);
    if behind != 0 && behind <= HORIZON {
        let bit = 1 << (behind - 1);
        let was_missing = group.missing & bit != 0;
        group.missing &= !bit;
        return match was_missing {
            true => Arrival::Late,
            false => Arrival::Duplicate,
        };
    }
    if behind != 0 && behind < RESTART {
        return Arrival::Late;
    }
    // All packets between are missing, unless they are too many.
    let shifted = group.missing.checked_shl(ahead + 1).unwrap_or(0);
    let between = ((1_u128 << ahead.min(HORIZON - 1)) - 1) << 1;
    group.missing = match ahead < HORIZON {
        true => shifted | between,
        false => 0,
    };
    group.next = sequence.wrapping_add(1);
    Arrival::Fresh
}

#[cfg(test)]
mod tests {
    use super::super::request::Known;
    use super::*;

    fn requests(gaps: &mut Gaps, sequences: &[u32]) -> Vec<(u32, u128)> {
        let mut requests = Vec::new();
        for sequence in sequences {
            gaps.note(7, 0, *sequence);
            let request = gaps.poll_request();
            requests.extend(request.map(|groups| (groups[0].next, groups[0].missing)));
        }
        requests
    }

    #[test]
    fn a_gap_is_asked_for_once_two_packets_later() {
        let mut gaps = Gaps::default();
        let asked = requests(&mut gaps, &[u32::MAX, 0, 2, 3, 4, 5, 6]);
        assert_eq!(asked, [(5, 0b1000)]);
        assert_eq!(gaps.note(7, 0, 1), Arrival::Late);
        assert_eq!(gaps.note(7, 0, 1), Arrival::Duplicate);
        assert_eq!(gaps.note(7, 0, 7), Arrival::Fresh);
    }

    #[test]
    fn overtaken_packets_are_not_asked_for() {
        assert_eq!(
            requests(&mut Gaps::default(), &[1, 3, 2, 4, 6, 5, 7, 8]),
            []
        );
    }

    #[test]
    fn few_requests_leave_between_two_soundings() {
        let mut gaps = Gaps::default();
        let lossy: Vec<u32> = (0..100).map(|number| 2 * number).collect();
        let asked = requests(&mut gaps, &lossy).len();
        assert_eq!(asked, REQUESTS_MAX as usize);
    }

    #[test]
    fn a_sounding_that_counts_more_packets_is_followed_by_two_requests() {
        let mut gaps = Gaps::default();
        gaps.note(7, 0, 1);
        let mut sound = |sent, received| {
            gaps.handle_sounding(sent, received);
            gaps.poll_request().is_some()
        };
        assert!(!sound(500, 100), "the first sets the counts");
        assert!(!sound(520, 120));
        assert!(sound(541, 140) && sound(561, 160) && !sound(581, 180));
    }

    #[test]
    fn a_jump_or_a_restart_is_no_gap() {
        let mut gaps = Gaps::default();
        assert_eq!(requests(&mut gaps, &[1, 500, 501, 502, 503]), []);
        assert_eq!(requests(&mut gaps, &[90_000, 0, 1, 2, 3]), []);
        let fresh = (0..20).filter(|number| gaps.note(7, 0, *number % 4) == Arrival::Fresh);
        assert!(fresh.count() > 0, "a sender that restarts soon is heard");
    }

    #[test]
    fn all_that_is_behind_the_next_packet_is_known() {
        let mut group = GroupGaps {
            session: 7,
            rank: 0,
            next: 10,
            missing: 0,
        };
        assert_eq!(note_in(&mut group, 137), Arrival::Fresh);
        assert_eq!(group.known(138), Known::Ahead);
        assert_eq!(group.known(137), Known::Settled);
        for missing in 10..137 {
            assert_eq!(group.known(missing), Known::Missing);
        }
        assert_eq!(group.known(9), Known::Settled);
        note_in(&mut group, 138 + 127);
        assert_eq!(group.missing.count_ones(), 127, "the oldest is forgotten");
        assert_eq!(group.known(138), Known::Missing);
        assert_eq!(group.known(137), Known::Settled);
    }
}
