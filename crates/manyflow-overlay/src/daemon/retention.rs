//! The messages of this daemon's clients that other daemons have not acknowledged, in a living
//! overlay.
//!
//! ```text
//!   push --> kept messages --acknowledged by all--> dropped
//!                |
//!   Welcome ---->|  Answer: expected, next
//!                `--> messages from expected to next, to one daemon: pop_resent
//! ```
//!
//! A message can get lost when the topology changes: a link goes down with messages on it, or a
//! daemon does not know yet the topology that a message follows. A daemon with members is therefore
//! sent a [`Welcome`](crate::Welcome) when the topology changes while messages are not
//! acknowledged, and when acknowledgements stall. It follows the messages before it, so that its
//! answer tells which of them are missing.
//!
//! **Daemons that cannot be reached.** Their messages are kept for the hold time. If the memory for
//! them were full before its end, all other members would wait for the rest of it. New messages to
//! their groups therefore enter at a pace at which the memory lasts: a part of it at once, and the
//! rest evenly over the hold time.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use crate::message::{Answer, CopyFlags, DaemonId, Data, GroupId};
use crate::sequence::{ChangeSeq, OriginSeq};
use manyflow_core::Payload;
use manyflow_core::time::Time;

/// The time between two checks for welcomes that are not answered, and for stalled daemons.
const TICK: Duration = Duration::from_millis(200);
/// The first time between two welcomes to a daemon. It doubles up to [`REPEAT_MAX`].
const REPEAT_MIN: Duration = Duration::from_millis(200);
const REPEAT_MAX: Duration = Duration::from_secs(2);
/// The first time without a new acknowledgement after which a daemon is sent a welcome. It doubles
/// up to [`STALL_MAX`] while the welcomes show that nothing was lost.
const STALL_MIN: Duration = Duration::from_secs(1);
const STALL_MAX: Duration = Duration::from_secs(16);
/// The share of the memory that messages to daemons that cannot be reached may take at once.
const AWAY_SHARE: f64 = 0.25;
/// The time between two turns of the clients that wait for the pace of such messages.
const PACE: Duration = Duration::from_millis(20);
/// The bytes that a kept message counts besides its payload.
const OVERHEAD_BYTES: usize = 64;

/// The kept messages of all groups.
#[derive(Debug)]
pub(super) struct Retention<P> {
    limit_bytes: usize,
    bytes: usize,
    groups: BTreeMap<GroupId, Kept<P>>,
    /// The ranges of messages to send again, in this order.
    resends: VecDeque<Resend>,
    /// Welcomes to send now.
    welcomes: VecDeque<(GroupId, DaemonId)>,
    tick_at: Option<Time>,
    hold: Duration,
    /// The daemons that cannot be reached, and until when their members count.
    away: BTreeMap<DaemonId, Time>,
    /// When the clients that wait for the pace have a turn.
    turn_at: Option<Time>,
}

/// The kept messages of one group.
#[derive(Debug)]
struct Kept<P> {
    /// The number of the first kept message, or of the next message if none is kept.
    first: OriginSeq,
    messages: VecDeque<(Data, CopyFlags, P)>,
    remotes: BTreeMap<DaemonId, Remote>,
}

/// Another daemon with members of the group.
#[derive(Debug)]
struct Remote {
    since: ChangeSeq,
    /// The first message that the daemon has not acknowledged.
    expected: OriginSeq,
    /// The welcome that is not answered.
    welcome: Option<Repeat>,
    /// The number of welcomes that were sent and not answered, and how many of them precede the
    /// messages that were last sent again: their answers know nothing of these messages.
    unanswered: u32,
    stale: u32,
    stall: Stall,
}

/// When a welcome is sent next, and the time to the one after it.
#[derive(Copy, Clone, Debug)]
struct Repeat {
    /// The message after those that may be lost: an answer to a welcome from before them counts
    /// only as an acknowledgement.
    next: OriginSeq,
    at: Time,
    wait: Duration,
}

/// Watches for a daemon that acknowledges nothing.
#[derive(Copy, Clone, Debug)]
struct Stall {
    expected: OriginSeq,
    since: Time,
    patience: Duration,
}

/// A range of messages to send again.
#[derive(Copy, Clone, Debug)]
struct Resend {
    group: GroupId,
    to: DaemonId,
    next: OriginSeq,
    end: OriginSeq,
}

impl<P: Payload> Retention<P> {
    pub(super) fn new(limit_bytes: usize, hold: Duration) -> Retention<P> {
        Retention {
            limit_bytes,
            hold,
            away: BTreeMap::new(),
            turn_at: None,
            bytes: 0,
            groups: BTreeMap::new(),
            resends: VecDeque::new(),
            welcomes: VecDeque::new(),
            tick_at: None,
        }
    }

    /// Returns whether no more messages may be kept, so that clients must wait.
    fn is_full(&self) -> bool {
        self.bytes >= self.limit_bytes
    }

    /// Returns whether clients' messages to a group must wait: no more may be kept at all, or at
    /// present for a daemon that cannot be reached. [`is_turn`](Retention::is_turn) ends the
    /// latter.
    pub(super) fn must_wait(&mut self, now: Time, group: GroupId) -> bool {
        if self.is_full() {
            return true;
        }
        let must_wait = self.bytes >= self.limit_bytes_at(now, group);
        if must_wait {
            self.turn_at.get_or_insert(now + PACE);
        }
        must_wait
    }

    /// Returns the bytes up to which messages to a group may be kept now.
    fn limit_bytes_at(&self, now: Time, group: GroupId) -> usize {
        let kept = self.groups.get(&group).filter(|_| !self.away.is_empty());
        let remotes = kept.into_iter().flat_map(|kept| kept.remotes.keys());
        let ends = remotes.filter_map(|daemon| self.away.get(daemon));
        let Some(&end) = ends.min() else {
            return self.limit_bytes;
        };
        let hold = self.hold.max(PACE);
        let left = (end - now).min(hold).as_secs_f64() / hold.as_secs_f64();
        let share = 1.0 - (1.0 - AWAY_SHARE) * left;
        (self.limit_bytes as f64 * share) as usize
    }

    /// Returns whether the clients that wait for the pace have a turn now.
    pub(super) fn is_turn(&mut self, now: Time) -> bool {
        self.turn_at.take_if(|at| *at <= now).is_some()
    }

    /// Sets the daemons that cannot be reached, with the times until which their members count.
    pub(super) fn set_away(&mut self, away: impl Iterator<Item = (DaemonId, Time)>) {
        self.away = away.collect();
    }

    /// Returns the bytes of all kept messages.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds another daemon with members of a group. It receives the messages from `next` on, and a
    /// welcome before them.
    pub(super) fn join(
        &mut self,
        now: Time,
        group: GroupId,
        daemon: DaemonId,
        since: ChangeSeq,
        next: OriginSeq,
    ) {
        let kept = self.groups.entry(group).or_insert_with(|| Kept {
            first: next,
            messages: VecDeque::new(),
            remotes: BTreeMap::new(),
        });
        let remote = Remote {
            since,
            expected: next,
            welcome: Some(Repeat::first(now, next)),
            unanswered: 0,
            stale: 0,
            stall: Stall::new(now, next),
        };
        kept.remotes.insert(daemon, remote);
        self.welcomes.push_back((group, daemon));
        self.arm(now);
    }

    /// Removes a daemon that no longer has members. Returns whether there is room again.
    pub(super) fn leave(&mut self, group: GroupId, daemon: DaemonId) -> bool {
        let Some(kept) = self.groups.get_mut(&group) else {
            return false;
        };
        kept.remotes.remove(&daemon);
        self.resends
            .retain(|resend| (resend.group, resend.to) != (group, daemon));
        self.release(group)
    }

    /// Keeps a message until all other daemons with members have acknowledged it. A layered one is
    /// kept whole: each link cuts what is sent again at its own price.
    pub(super) fn push(&mut self, now: Time, data: Data, copy: CopyFlags, payload: &P) {
        let Some(kept) = self.groups.get_mut(&data.group) else {
            return;
        };
        debug_assert_eq!(
            data.sequence,
            kept.end(),
            "a message does not follow the last one"
        );
        kept.messages.push_back((data, copy, payload.clone()));
        self.bytes += payload.length() as usize + OVERHEAD_BYTES;
        if self.tick_at.is_none() {
            for remote in kept.remotes.values_mut() {
                remote.stall = Stall::new(now, remote.expected);
            }
            self.arm(now);
        }
    }

    /// Handles an acknowledgement of messages below `expected`, of which the lower 32 bits are
    /// given. Returns whether there is room again.
    pub(super) fn acknowledge(&mut self, group: GroupId, from: DaemonId, expected: u32) -> bool {
        let Some(kept) = self.groups.get_mut(&group) else {
            return false;
        };
        let end = kept.end();
        let Some(remote) = kept.remotes.get_mut(&from) else {
            return false;
        };
        let ahead = expected.wrapping_sub(remote.expected.number() as u32);
        let expected = remote.expected.advance(ahead.into());
        if ahead == 0 || expected > end {
            return false;
        }
        remote.expected = expected;
        self.release(group)
    }

    /// Handles the answer to a welcome: sends the missing messages again. Returns whether there is
    /// room again.
    pub(super) fn answer(&mut self, from: DaemonId, answer: &Answer) -> bool {
        let group = answer.group;
        let Some(kept) = self.groups.get_mut(&group) else {
            return false;
        };
        let end = kept.end();
        let Some(remote) = kept.remotes.get_mut(&from) else {
            return false;
        };
        if remote.since != answer.change || answer.expected > end || answer.next > end {
            return false;
        }
        remote.expected = remote.expected.max(answer.expected);
        let next = remote.expected;
        remote.unanswered = remote.unanswered.saturating_sub(1);
        // Answers come in the order of their welcomes.
        let is_stale = remote.stale > 0;
        remote.stale = remote.stale.saturating_sub(1);
        let answered = remote
            .welcome
            .take_if(|welcome| !is_stale && welcome.next <= answer.next);
        if answered.is_some() && next < answer.next {
            remote.stale = remote.unanswered;
            remote.stall.patience = STALL_MIN;
            self.resends
                .retain(|resend| (resend.group, resend.to) != (group, from));
            self.resends.push_back(Resend {
                group,
                to: from,
                next,
                end: answer.next,
            });
        }
        self.release(group)
    }

    /// Drops the messages of a group that all daemons have acknowledged. Returns whether there is
    /// room again.
    fn release(&mut self, group: GroupId) -> bool {
        let was_full = self.is_full();
        let Some(kept) = self.groups.get_mut(&group) else {
            return false;
        };
        let expected = kept.remotes.values().map(|remote| remote.expected);
        let lowest = expected.min().unwrap_or_else(|| kept.end());
        while kept.first < lowest
            && let Some((.., payload)) = kept.messages.pop_front()
        {
            self.bytes -= payload.length() as usize + OVERHEAD_BYTES;
            kept.first = kept.first.advance(1);
        }
        if kept.remotes.is_empty() {
            self.groups.remove(&group);
        }
        was_full && !self.is_full()
    }

    /// Sends welcomes to all daemons that have not acknowledged all messages: the topology has
    /// changed, and some may be lost.
    pub(super) fn handle_topology(&mut self, now: Time) {
        for (&group, kept) in &mut self.groups {
            let end = kept.end();
            for (&daemon, remote) in &mut kept.remotes {
                // Welcomes and answers on the way may be lost.
                (remote.unanswered, remote.stale) = (0, 0);
                if remote.expected < end || remote.welcome.is_some() {
                    remote.welcome = Some(Repeat::first(now, end));
                    self.welcomes.push_back((group, daemon));
                }
            }
        }
        self.resends.clear();
        self.arm(now);
    }

    /// Forgets what other daemons have received, because this daemon begins a new incarnation.
    pub(super) fn restart(&mut self, now: Time) {
        for (&group, kept) in &mut self.groups {
            let end = kept.end();
            for (&daemon, remote) in &mut kept.remotes {
                remote.expected = end;
                remote.welcome = Some(Repeat::first(now, end));
                self.welcomes.push_back((group, daemon));
            }
            kept.messages.clear();
            kept.first = end;
        }
        self.bytes = 0;
        self.resends.clear();
        self.arm(now);
    }

    /// Returns the next welcome to send: its group, its daemon, and the first message that is
    /// guaranteed to reach the daemon.
    pub(super) fn pop_welcome(&mut self) -> Option<(GroupId, DaemonId, OriginSeq)> {
        while let Some((group, daemon)) = self.welcomes.pop_front() {
            let kept = self.groups.get_mut(&group);
            if let Some(remote) = kept.and_then(|kept| kept.remotes.get_mut(&daemon)) {
                remote.unanswered = remote.unanswered.saturating_add(1);
                return Some((group, daemon, remote.expected));
            }
        }
        None
    }

    /// Returns the next message to send again, with the daemon that lacks it.
    pub(super) fn pop_resent(&mut self) -> Option<(DaemonId, Data, CopyFlags, P)> {
        while let Some(resend) = self.resends.front_mut() {
            let kept = self.groups.get(&resend.group);
            let found = kept.and_then(|kept| {
                let expected = kept.remotes.get(&resend.to)?.expected;
                resend.next = resend.next.max(expected);
                kept.get(resend.next).filter(|_| resend.next < resend.end)
            });
            if let Some((data, copy, payload)) = found {
                resend.next = resend.next.advance(1);
                return Some((resend.to, *data, *copy, payload.clone()));
            }
            self.resends.pop_front();
        }
        None
    }

    /// Finds the welcomes that must be repeated, and the daemons that acknowledge nothing.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.tick_at.is_none_or(|time| now < time) {
            return;
        }
        self.tick_at = None;
        let mut is_idle = true;
        for (&group, kept) in &mut self.groups {
            let end = kept.end();
            for (&daemon, remote) in &mut kept.remotes {
                if remote.wants_welcome(now, end) {
                    self.welcomes.push_back((group, daemon));
                }
                is_idle &= remote.welcome.is_none() && remote.expected == end;
            }
        }
        if !is_idle {
            self.arm(now);
        }
    }

    fn arm(&mut self, now: Time) {
        self.tick_at.get_or_insert(now + TICK);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        [self.tick_at, self.turn_at].into_iter().flatten().min()
    }

    /// Returns the number of kept messages.
    #[cfg(test)]
    pub(super) fn messages(&self) -> usize {
        self.groups.values().map(|kept| kept.messages.len()).sum()
    }

    /// Returns the number of groups, daemons and messages.
    pub(super) fn state_size(&self) -> usize {
        let size = |kept: &Kept<P>| 1 + kept.remotes.len() + kept.messages.len();
        self.groups.values().map(size).sum::<usize>() + self.resends.len()
    }
}

impl<P> Kept<P> {
    /// Returns the number of the message after the last kept one.
    fn end(&self) -> OriginSeq {
        self.first.advance(self.messages.len() as u64)
    }

    fn get(&self, number: OriginSeq) -> Option<&(Data, CopyFlags, P)> {
        let place = usize::try_from(number.distance_from(self.first)).ok()?;
        self.messages.get(place)
    }
}

impl Repeat {
    fn first(now: Time, next: OriginSeq) -> Repeat {
        Repeat {
            next,
            at: now + REPEAT_MIN,
            wait: REPEAT_MIN,
        }
    }
}

impl Stall {
    fn new(now: Time, expected: OriginSeq) -> Stall {
        Stall {
            expected,
            since: now,
            patience: STALL_MIN,
        }
    }
}

impl Remote {
    /// Returns whether a welcome must be sent now: the last one was not answered, or nothing was
    /// acknowledged for some time.
    fn wants_welcome(&mut self, now: Time, end: OriginSeq) -> bool {
        if let Some(repeat) = &mut self.welcome {
            let is_due = repeat.at <= now;
            if is_due {
                repeat.wait = (2 * repeat.wait).min(REPEAT_MAX);
                repeat.at = now + repeat.wait;
            }
            return is_due;
        }
        if self.expected == end || self.expected != self.stall.expected {
            self.stall = Stall::new(now, self.expected);
            return false;
        }
        let is_stalled = now - self.stall.since >= self.stall.patience;
        if is_stalled {
            self.stall.since = now;
            self.stall.patience = (2 * self.stall.patience).min(STALL_MAX);
            self.welcome = Some(Repeat::first(now, end));
        }
        is_stalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ClientId;
    use manyflow_core::Length;

    const GROUP: GroupId = GroupId(1);
    const PEER: DaemonId = DaemonId(2);
    const SINCE: ChangeSeq = ChangeSeq(1);
    const MESSAGES: u64 = 10;

    fn at_ms(ms: u64) -> Time {
        Time::ZERO + Duration::from_millis(ms)
    }

    /// A retention with messages for one daemon, which was sent its welcome at 0 ms.
    fn kept() -> Retention<Length> {
        let mut retention = Retention::new(1 << 20, Duration::from_secs(60));
        let first = OriginSeq::new(1);
        retention.join(at_ms(0), GROUP, PEER, SINCE, first);
        for ahead in 0..MESSAGES {
            let data = Data {
                group: GROUP,
                version: 1,
                sequence: first.advance(ahead),
                sender: ClientId(1),
                sent_us: 0,
            };
            retention.push(at_ms(0), data, CopyFlags::default(), &Length(100));
        }
        retention.handle_topology(at_ms(0));
        retention
    }

    fn welcomes(retention: &mut Retention<Length>, ms: u64) -> usize {
        retention.handle_timeout(at_ms(ms));
        core::iter::from_fn(|| retention.pop_welcome()).count()
    }

    /// Answers a welcome: nothing has arrived.
    fn answer(retention: &mut Retention<Length>) {
        let first = OriginSeq::new(1);
        let answer = Answer {
            to: DaemonId(1),
            version: 1,
            group: GROUP,
            change: SINCE,
            expected: first,
            next: first.advance(MESSAGES),
        };
        retention.answer(PEER, &answer);
    }

    fn resent(retention: &mut Retention<Length>) -> u64 {
        core::iter::from_fn(|| retention.pop_resent()).count() as u64
    }

    /// A welcome that waits behind other messages is repeated. When the first one is answered, the
    /// messages are sent again; they wait too, so that a further welcome follows them. The answers
    /// to the repetitions say that nothing has arrived, which was so before.
    #[test]
    fn answers_from_before_messages_were_sent_again_do_not_send_them_twice() {
        let mut retention = kept();
        assert_eq!(welcomes(&mut retention, 0), 2, "at the join and the change");
        let repeated: usize = (1..=7)
            .map(|tick| welcomes(&mut retention, 200 * tick))
            .sum();
        assert!(repeated >= 2, "{repeated} repetitions");
        answer(&mut retention);
        assert_eq!(resent(&mut retention), MESSAGES);
        let further: usize = (8..=14)
            .map(|tick| welcomes(&mut retention, 200 * tick))
            .sum();
        assert!(further >= 1, "no welcome follows the messages");
        for _ in 0..repeated + 1 {
            answer(&mut retention);
        }
        assert_eq!(resent(&mut retention), 0);
        answer(&mut retention);
        assert_eq!(resent(&mut retention), MESSAGES, "they were lost once more");
    }

    /// Answers can be lost with the welcomes when the topology changes: the next one counts.
    #[test]
    fn a_change_of_the_topology_forgets_welcomes_without_answer() {
        let mut retention = kept();
        welcomes(&mut retention, 0);
        for tick in 1..=7 {
            welcomes(&mut retention, 200 * tick);
        }
        answer(&mut retention);
        assert_eq!(resent(&mut retention), MESSAGES);
        retention.handle_topology(at_ms(1500));
        assert_eq!(welcomes(&mut retention, 1500), 1);
        answer(&mut retention);
        assert_eq!(resent(&mut retention), MESSAGES);
    }
}
