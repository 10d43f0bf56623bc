//! Whether a member takes the frames that the peer sends.
//!
//! ```text
//!   takes --hindered for `limit`--> stalled --not hindered--> on trial --for `limit`--> takes
//!                                      ^                          |
//!                                      +--------hindered----------+
//! ```
//!
//! A member is hindered while it has no room for a frame, or leaves the frame that it waits for
//! unacknowledged although the frame was sent again and again. A stalled member gets no new frames,
//! and its credit does not limit the peer. On trial it gets frames again, but its credit does not
//! count yet. Otherwise a member that grants something now and then would stop the peer most of the
//! time; so it can for half of the time at most.

use core::time::Duration;

use super::super::sequence::MemberSeq;
use manyflow_core::time::Time;

/// A member that holds frames is given up after this multiple of the time after which it counts as
/// stalled. A peer's timers back off to a minute: half of that leaves the third retransmission to a
/// path with a round-trip time of a second.
pub(in super::super) const HELD_LIMITS: u32 = 3;

/// The reasons why a member takes no frame at present.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Hindrance {
    /// The member's credit is smaller than a frame.
    pub(super) has_no_room: bool,
    /// The member was sent the frame that it waits for several times, or its Close.
    pub(super) is_unanswered: bool,
}

/// A change of a member, from one look at it to the next.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Change {
    /// The member counts as stalled.
    Stalled,
    /// The member gets frames again.
    Resumed,
}

/// The history of one member: whether it took frames, and whether it could.
#[derive(Debug)]
pub(super) struct Uptake {
    /// The first number that the member had not acknowledged at the last look.
    acknowledged: MemberSeq,
    /// When the member last took a frame or was not hindered; `None` before the first look.
    hindered_since: Option<Time>,
    /// When the member last took a frame or had none that it left unanswered.
    held_since: Option<Time>,
    is_stalled: bool,
    /// When the trial of a member that was stalled ends.
    trial_until: Option<Time>,
}

impl Uptake {
    pub(super) fn new(first: MemberSeq) -> Uptake {
        Uptake {
            acknowledged: first,
            hindered_since: None,
            held_since: None,
            is_stalled: false,
            trial_until: None,
        }
    }

    /// Looks at the member at `now`. It has acknowledged every number before `acknowledged`.
    pub(super) fn watch(
        &mut self,
        now: Time,
        acknowledged: MemberSeq,
        hindrance: Hindrance,
        limit: Duration,
    ) -> Option<Change> {
        let takes = core::mem::replace(&mut self.acknowledged, acknowledged) != acknowledged;
        let is_held = hindrance.is_unanswered && !takes;
        if !is_held || self.held_since.is_none() {
            self.held_since = Some(now);
        }
        if takes || hindrance == Hindrance::default() || self.hindered_since.is_none() {
            self.hindered_since = Some(now);
        }
        self.trial_until = self.trial_until.filter(|until| now < *until);
        let hindered = self
            .hindered_since
            .map_or(Duration::ZERO, |since| now - since);
        let is_hindered = hindrance.has_no_room || is_held;
        let is_stalled = is_hindered && (self.is_on_trial() || hindered >= limit);
        if is_stalled {
            self.trial_until = Some(now + limit);
        }
        match (
            core::mem::replace(&mut self.is_stalled, is_stalled),
            is_stalled,
        ) {
            (false, true) => Some(Change::Stalled),
            (true, false) => Some(Change::Resumed),
            _ => None,
        }
    }

    /// Returns whether the member gets no new frames while others take them.
    pub(super) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Returns whether the member is stalled, or was so recently that its credit does not count.
    pub(super) fn is_on_trial(&self) -> bool {
        self.trial_until.is_some()
    }

    /// Returns how long the member has left a frame or its Close unanswered.
    pub(super) fn held_for(&self, now: Time) -> Duration {
        self.held_since.map_or(Duration::ZERO, |since| now - since)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::sequence::Sequence;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);
    const FREE: Hindrance = Hindrance {
        has_no_room: false,
        is_unanswered: false,
    };
    const FULL: Hindrance = Hindrance {
        has_no_room: true,
        ..FREE
    };
    const UNANSWERED: Hindrance = Hindrance {
        is_unanswered: true,
        ..FREE
    };

    struct Watched(Uptake);

    impl Watched {
        fn new() -> Watched {
            Watched(Uptake::new(MemberSeq::FIRST))
        }

        fn look(&mut self, seconds: u64, frames: u32, hindrance: Hindrance) -> Option<Change> {
            let now = Time::ZERO + Duration::from_secs(seconds);
            let acknowledged = MemberSeq::FIRST.plus(frames);
            self.0.watch(now, acknowledged, hindrance, LIMIT)
        }
    }

    #[test]
    fn a_member_without_room_stalls_after_the_limit_unless_it_takes_frames() {
        let mut member = Watched::new();
        assert_eq!(member.look(100, 0, FULL), None, "the first look");
        assert_eq!(member.look(109, 0, FULL), None);
        assert_eq!(member.look(109, 1, FULL), None, "it has taken a frame");
        assert_eq!(member.look(118, 1, FULL), None);
        assert_eq!(member.look(119, 1, FULL), Some(Change::Stalled));
        assert_eq!(member.look(120, 2, FULL), None, "still no room");
        assert_eq!(member.look(121, 2, FREE), Some(Change::Resumed));
    }

    #[test]
    fn a_member_that_was_stalled_counts_again_when_it_was_free_for_the_limit() {
        let mut member = Watched::new();
        member.look(0, 0, FULL);
        assert_eq!(member.look(10, 0, FULL), Some(Change::Stalled));
        assert_eq!(member.look(11, 0, FREE), Some(Change::Resumed));
        assert!(member.0.is_on_trial());
        assert_eq!(member.look(12, 5, FULL), Some(Change::Stalled), "at once");
        assert_eq!(member.look(13, 5, FREE), Some(Change::Resumed));
        assert_eq!(member.look(21, 5, FREE), None);
        assert!(member.0.is_on_trial());
        member.look(22, 5, FREE);
        assert!(!member.0.is_on_trial());
        assert_eq!(member.look(23, 5, FULL), None);
    }

    #[test]
    fn the_time_of_a_held_frame_begins_with_the_frame() {
        let mut member = Watched::new();
        member.look(0, 0, FULL);
        member.look(50, 0, FULL);
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        assert_eq!(member.0.held_for(at(50)), Duration::ZERO, "it holds none");
        member.look(60, 0, UNANSWERED);
        assert_eq!(member.0.held_for(at(65)), Duration::from_secs(15));
        member.look(66, 1, UNANSWERED);
        assert_eq!(member.0.held_for(at(67)), Duration::from_secs(1));
    }
}
