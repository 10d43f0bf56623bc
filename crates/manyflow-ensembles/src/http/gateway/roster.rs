//! The members that a gateway has found behind one switch, and the choice among them.
//!
//! A switch whose policy keeps the frames of a key at one member gives the gateway a way to each
//! member: the gateway sends probes with keys of its own, and each answer names the member to which
//! the key leads. From then on the gateway chooses the member of a request by its key. It balances
//! by its requests in progress, because a member that refuses at once looks idle to the switch.
//!
//! ```text
//!             probe of a new key            failures in a row        time passed
//!   (unknown) ------------------> serving -------------------> ejected ------> on trial
//!                                  ^   |                                         |
//!                      slow start  |   +-- silent while others answer: suspected |
//!                                  +---------------- first success --------------+
//! ```
//!
//! The time is an argument, so that tests need none.

use std::time::Duration;

use manyflow_core::estimate::rtt::RttEstimator;
use tokio::time::Instant;

use super::super::wire::{PLACES, Pulse, RequestId};
use crate::anypoint::Prefix;

/// The silence after which a member with requests in progress is probed.
const QUIET_BUSY: Duration = Duration::from_millis(40);
/// The silence after which another member is probed.
const QUIET_IDLE: Duration = Duration::from_millis(500);
/// The shortest time that a member has for the answer to a probe. Longer paths have RFC 6298's.
const PATIENCE_MIN: Duration = Duration::from_millis(100);
/// The time between two probes of a member that does not answer.
const PROBE_AGAIN: Duration = Duration::from_millis(500);
/// The time between two probes with a new key, which find members that have joined.
const SCOUT_INTERVAL: Duration = Duration::from_millis(500);
/// The number of new keys that are tried at once at the beginning, and after a new member.
const SCOUTS: u32 = 4;
/// The silence after which a member whose key leads to another one counts as dead.
const DEAD_AFTER: Duration = Duration::from_secs(1);
/// The silence beside others after which a member is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15);
/// The maximum number of members. Their keys have the last places of those that a switch remembers.
const MEMBERS_MAX: usize = 255;
/// Keys that lead to different members within [`DIVIDED_WITHIN`] show that the policy keeps no key.
const DIVIDED_KEYS: u32 = 3;
const DIVIDED_WITHIN: Duration = Duration::from_secs(5);
/// The time for which the gateway then leaves the choice to the switch.
const DIVIDED_FOR: Duration = Duration::from_secs(30);
/// The points at which a member is ejected: see [`Outcome`].
const EJECTED_AT: u32 = 5;
/// The first time of ejection. Each further one in a row is longer by as much.
const EJECTION: Duration = Duration::from_secs(10);
const EJECTION_MAX: Duration = Duration::from_secs(300);
/// The time in which a member that comes, or comes back, gets its whole share.
const SLOW_START: Duration = Duration::from_secs(10);
/// The smallest part of its share.
const SLOW_START_MIN: f64 = 0.1;
/// Requests that are sent twice because the first server is slow: at most this part of all, and
/// this number at once.
const HEDGE_SHARE: f64 = 0.1;
const HEDGE_BURST: f64 = 32.0;

/// How a request ended, as the health of its member sees it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The server has answered.
    Answered,
    /// The server has answered with a status of 500 or above, or its answer was not complete.
    Failed,
    /// Another server has answered the same request in the meantime.
    Slow,
    /// The server has not answered in time.
    Late,
    /// The server cannot be reached. The member knows it, and says when the server is back.
    Unreachable,
}

impl Outcome {
    /// Returns the points toward ejection. An answer takes all points away.
    fn points(self) -> u32 {
        match self {
            Outcome::Answered | Outcome::Unreachable => 0,
            Outcome::Failed => 1,
            Outcome::Slow => 2,
            Outcome::Late => EJECTED_AT,
        }
    }
}

/// A member, and the key that leads to it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) member: u64,
    pub(super) key: u32,
}

/// The members behind one switch.
#[derive(Debug)]
pub(super) struct Roster {
    members: Vec<Seat>,
    /// Probes without an answer.
    probes: Vec<SentProbe>,
    next_probe: u64,
    /// The prefix of the gateway's keys and of the numbers of its probes.
    prefix: Prefix,
    next_generation: u32,
    next_scout: Instant,
    /// New keys to try before `next_scout`.
    scouts_due: u32,
    began: Instant,
    /// Keys that have led to two living members, and when the first of them did.
    divided: (u32, Instant),
    divided_until: Option<Instant>,
    rtt: RttEstimator,
    /// The place from which the next choice begins, so that equals take turns.
    turn: usize,
    hedges: f64,
    /// Members that have died since the last call of [`Roster::take_dead`].
    dead: Vec<u64>,
}

#[derive(Copy, Clone, Debug)]
struct SentProbe {
    id: u64,
    key: u32,
    sent: Instant,
}

/// A probe to send.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct DueProbe {
    pub(super) id: RequestId,
    pub(super) key: u32,
}

/// A member.
#[derive(Debug)]
struct Seat {
    member: u64,
    /// The key that leads to it; `None` if its key has led to another member since.
    key: Option<u32>,
    /// Whether the key has led to the member more than once.
    is_confirmed: bool,
    in_progress: u32,
    heard: Instant,
    /// Since when the member owes the answer to a probe.
    owes_since: Option<Instant>,
    probed: Instant,
    pulse: Pulse,
    points: u32,
    ejections: u32,
    /// When the member may be tried again, or was; `None` after a success.
    ejected_until: Option<Instant>,
    /// When its slow start began.
    warm_since: Option<Instant>,
    /// The part of a choice that the member may take part in, and whether it is the present one.
    turns: f64,
    has_turn: bool,
}

impl Seat {
    /// Lets a member in its slow start take part in a growing share of the choices.
    fn take_turn(&mut self, now: Instant) {
        let share = self.warm_since.map_or(1.0, |since| {
            (now - since).as_secs_f64() / SLOW_START.as_secs_f64()
        });
        self.turns += share.clamp(SLOW_START_MIN, 1.0);
        self.has_turn = self.turns >= 1.0;
        self.turns -= f64::from(u8::from(self.has_turn));
    }

    fn is_ejected(&self, now: Instant) -> bool {
        self.ejected_until.is_some_and(|until| now < until)
    }

    /// Returns whether the member has had no success since it was ejected.
    fn is_on_trial(&self, now: Instant) -> bool {
        self.ejected_until.is_some_and(|until| now >= until)
    }
}

/// The usefulness of a member for a request; the first is the best.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    Ready,
    /// On trial for a request that must not be lost, or with one in progress; or suspected.
    Doubtful,
    /// The server is down, or the member is ejected.
    Down,
    Draining,
}

impl Roster {
    pub(super) fn new(now: Instant, prefix: Prefix) -> Roster {
        Roster {
            prefix,
            members: Vec::new(),
            probes: Vec::new(),
            next_probe: 1,
            next_generation: 1,
            next_scout: now,
            scouts_due: SCOUTS,
            began: now,
            divided: (0, now),
            divided_until: None,
            rtt: RttEstimator::new(PATIENCE_MIN),
            turn: 0,
            hedges: HEDGE_BURST,
            dead: Vec::new(),
        }
    }

    fn seat(&mut self, member: u64) -> Option<&mut Seat> {
        self.members.iter_mut().find(|seat| seat.member == member)
    }

    /// Returns the time that a member has for the answer to a probe.
    fn patience(&self) -> Duration {
        match self.rtt.average_s() {
            0.0 => PATIENCE_MIN,
            _ => self.rtt.timeout(),
        }
    }

    /// Returns whether keys lead to members, and one is known.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        !self.is_divided(now) && self.members.iter().any(|seat| seat.is_confirmed)
    }

    /// Returns whether the policy of the switch does not keep the frames of a key together.
    pub(super) fn is_divided(&self, now: Instant) -> bool {
        self.divided_until.is_some_and(|until| now < until)
    }

    /// Returns the number of members to which requests go without need.
    pub(super) fn ready_members(&self, now: Instant) -> usize {
        let standings = self
            .members
            .iter()
            .map(|seat| self.standing(seat, true, now));
        standings
            .filter(|found| *found == Some(Standing::Ready))
            .count()
    }

    /// Chooses the member of a request, which is not one of `tried`. `is_safe`: the request can be
    /// sent again.
    pub(super) fn choose(&mut self, now: Instant, tried: &[u64], is_safe: bool) -> Option<Choice> {
        self.hedges = (self.hedges + HEDGE_SHARE).min(HEDGE_BURST);
        self.members.iter_mut().for_each(|seat| seat.take_turn(now));
        self.pick(now, tried, is_safe, Standing::Draining)
    }

    /// Chooses a member for a second copy of a request: one that answers, or none.
    pub(super) fn choose_hedge(&mut self, now: Instant, tried: &[u64]) -> Option<Choice> {
        self.pick(now, tried, true, Standing::Ready)
    }

    fn pick(
        &mut self,
        now: Instant,
        tried: &[u64],
        is_safe: bool,
        worst: Standing,
    ) -> Option<Choice> {
        if self.is_divided(now) || self.members.is_empty() {
            return None;
        }
        self.turn = (self.turn + 1) % self.members.len();
        let mut best: Option<((Standing, bool, u32), Choice)> = None;
        let (before, from) = self.members.split_at(self.turn);
        for seat in from.iter().chain(before) {
            let standing = self.standing(seat, is_safe, now).filter(|s| *s <= worst);
            let (Some(standing), Some(key)) = (standing, seat.key) else {
                continue;
            };
            let rank = (standing, !seat.has_turn, seat.in_progress);
            if best.is_none_or(|(known, _)| rank < known) && !tried.contains(&seat.member) {
                let member = seat.member;
                best = Some((rank, Choice { member, key }));
            }
        }
        best.map(|(_, choice)| choice)
    }

    /// Returns the standing of a member; `None` if no key is known to lead to it.
    fn standing(&self, seat: &Seat, is_safe: bool, now: Instant) -> Option<Standing> {
        if !seat.is_confirmed {
            return None;
        }
        let must_wait = seat.is_on_trial(now) && (!is_safe || seat.in_progress > 0);
        Some(if seat.pulse.is_draining {
            Standing::Draining
        } else if !seat.pulse.is_serving || seat.is_ejected(now) {
            Standing::Down
        } else if must_wait || self.is_silent_beside_others(seat, now) {
            Standing::Doubtful
        } else {
            Standing::Ready
        })
    }

    /// Takes the permission to send a request a second time because its server is slow.
    pub(super) fn take_hedge(&mut self) -> bool {
        let may = self.hedges >= 1.0;
        self.hedges -= f64::from(u8::from(may));
        may
    }

    /// Notes that a request goes to a member.
    pub(super) fn begin(&mut self, member: u64) {
        if let Some(seat) = self.seat(member) {
            seat.in_progress += 1;
        }
    }

    /// Notes that a request of a member has ended.
    pub(super) fn end(&mut self, member: u64) {
        if let Some(seat) = self.seat(member) {
            seat.in_progress = seat.in_progress.saturating_sub(1);
        }
    }

    /// Notes how a request ended. A member whose requests fail is ejected for some time, unless it
    /// would be the last one. Returns the time of ejection.
    pub(super) fn note(&mut self, now: Instant, member: u64, outcome: Outcome) -> Option<Duration> {
        let others = self.members.iter().filter(|seat| seat.member != member);
        let has_other = others
            .map(|seat| self.standing(seat, true, now))
            .any(|found| found == Some(Standing::Ready));
        let seat = self.seat(member)?;
        match outcome {
            Outcome::Answered => {
                seat.points = 0;
                if seat.is_on_trial(now) {
                    seat.ejected_until = None;
                    seat.warm_since = Some(now);
                }
                return None;
            }
            Outcome::Unreachable => {
                seat.pulse.is_serving = false;
                return None;
            }
            Outcome::Failed | Outcome::Slow | Outcome::Late => {}
        }
        seat.points += outcome.points();
        let is_due = seat.points >= EJECTED_AT || seat.is_on_trial(now);
        if !is_due || !has_other || seat.is_ejected(now) {
            return None;
        }
        seat.points = 0;
        // A member that has served well for as long as its last ejection begins again.
        let rested = seat
            .warm_since
            .is_some_and(|since| now - since > EJECTION_MAX);
        seat.ejections = if rested { 1 } else { seat.ejections + 1 };
        let time = (EJECTION * seat.ejections).min(EJECTION_MAX);
        seat.ejected_until = Some(now + time);
        Some(time)
    }

    /// Notes that a message has come from a member.
    pub(super) fn note_heard(&mut self, now: Instant, member: u64) {
        if let Some(seat) = self.seat(member) {
            seat.heard = now;
            seat.owes_since = None;
        }
    }

    /// Handles the answer to a probe, which names the member of a key.
    pub(super) fn handle_pulse(&mut self, now: Instant, id: RequestId, member: u64, pulse: Pulse) {
        let is_it = |probe: &SentProbe| self.prefix.id(probe.id) == id.0;
        let Some(place) = self.probes.iter().position(is_it) else {
            return;
        };
        let SentProbe { key, sent, .. } = self.probes.swap_remove(place);
        self.rtt.sample((now - sent).as_secs_f64());
        self.note_key(now, key, member);
        if let Some(seat) = self.seat(member) {
            if pulse.is_serving && !seat.pulse.is_serving {
                // The member has seen for itself that its server is back.
                seat.ejected_until = None;
                seat.points = 0;
                seat.warm_since = Some(now);
            }
            seat.pulse = pulse;
        }
    }

    /// Notes that a message with this key has reached this member.
    pub(super) fn note_key(&mut self, now: Instant, key: u32, member: u64) {
        let former = self.members.iter().position(|seat| seat.key == Some(key));
        if let Some(place) = former.filter(|place| self.members[*place].member != member) {
            self.lose_key(now, place);
        }
        if let Some(seat) = self.seat(member) {
            seat.is_confirmed |= seat.key == Some(key);
            seat.key.get_or_insert(key);
        } else if self.members.len() < MEMBERS_MAX {
            self.add(now, member, key);
        }
    }

    fn add(&mut self, now: Instant, member: u64, key: u32) {
        let is_late = now - self.began > DIVIDED_WITHIN;
        self.members.push(Seat {
            member,
            key: Some(key),
            is_confirmed: false,
            in_progress: 0,
            heard: now,
            owes_since: None,
            probed: now,
            pulse: Pulse {
                is_serving: true,
                is_draining: false,
            },
            points: 0,
            ejections: 0,
            ejected_until: None,
            warm_since: is_late.then_some(now),
            turns: 0.0,
            has_turn: true,
        });
        // Where one was, there may be more.
        self.scouts_due = SCOUTS;
    }

    /// Handles that the key of a member leads to another one: the member has died, or the policy of
    /// the switch keeps no keys.
    fn lose_key(&mut self, now: Instant, place: usize) {
        if now - self.members[place].heard >= DEAD_AFTER {
            self.dead.push(self.members.swap_remove(place).member);
            return;
        }
        self.members[place].key = None;
        self.members[place].is_confirmed = false;
        let (keys, since) = &mut self.divided;
        if now - *since > DIVIDED_WITHIN {
            (*keys, *since) = (0, now);
        }
        *keys += 1;
        if *keys >= DIVIDED_KEYS {
            self.divided_until = Some(now + DIVIDED_FOR);
            for seat in &mut self.members {
                (seat.key, seat.is_confirmed) = (None, false);
            }
        }
    }

    /// Returns the members that have died since the last call.
    pub(super) fn take_dead(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.dead)
    }

    /// Returns whether a member is silent while another one answers.
    pub(super) fn is_suspected(&self, now: Instant, member: u64) -> bool {
        let mut seats = self.members.iter();
        let seat = seats.find(|seat| seat.member == member);
        seat.is_some_and(|seat| self.is_silent_beside_others(seat, now))
    }

    fn is_silent_beside_others(&self, seat: &Seat, now: Instant) -> bool {
        seat.owes_since.is_some_and(|since| {
            let mut others = self.members.iter();
            now - since >= self.patience() && others.any(|other| other.heard > since)
        })
    }

    /// Returns for how long every member has owed an answer: the silence of the switch, if there
    /// are members at all.
    pub(super) fn silence(&self, now: Instant) -> Duration {
        let owed = self.members.iter().map(|seat| seat.owes_since);
        let owed: Option<Vec<_>> = owed.collect();
        let since = owed.and_then(|owed| owed.into_iter().max());
        since.map_or(Duration::ZERO, |since| now - since)
    }

    /// Returns the probes to send now, and forgets members that are gone.
    pub(super) fn poll_probes(&mut self, now: Instant) -> Vec<DueProbe> {
        // If all are silent, the switch may be to blame.
        let newest = self.members.iter().map(|seat| seat.heard).max();
        let is_forgotten =
            |seat: &Seat| newest.is_some_and(|newest| newest - seat.heard >= FORGOTTEN_AFTER);
        self.dead.extend(
            self.members
                .extract_if(.., |seat| is_forgotten(seat))
                .map(|seat| seat.member),
        );
        self.probes
            .retain(|probe| now - probe.sent < FORGOTTEN_AFTER);
        let mut due = Vec::new();
        // While one member owes an answer, only the answers of others show that it is to blame.
        let is_doubted = self.members.iter().any(|seat| seat.owes_since.is_some());
        for seat in &mut self.members {
            let is_busy = seat.in_progress > 0 || is_doubted;
            let quiet = if is_busy { QUIET_BUSY } else { QUIET_IDLE };
            let is_due = match seat.owes_since {
                Some(_) => now - seat.probed >= PROBE_AGAIN,
                None => now - seat.heard >= quiet,
            };
            if let Some(key) = seat.key.filter(|_| is_due) {
                seat.owes_since.get_or_insert(now);
                seat.probed = now;
                due.push(key);
            }
        }
        due.extend(self.poll_scouts(now));
        let number = |key| {
            let id = self.next_probe;
            self.next_probe += 1;
            self.probes.push(SentProbe { id, key, sent: now });
            let id = RequestId(self.prefix.id(id));
            DueProbe { id, key }
        };
        due.into_iter().map(number).collect()
    }

    /// Returns new keys to try. Each is tried twice, so that a policy that keeps no keys shows.
    fn poll_scouts(&mut self, now: Instant) -> Vec<u32> {
        let mut scouts = std::mem::take(&mut self.scouts_due);
        if now >= self.next_scout {
            self.next_scout = now + SCOUT_INTERVAL;
            scouts = scouts.max(1);
        }
        let mut keys = Vec::new();
        for _ in 0..scouts {
            let Some(key) = self.free_key(&keys) else {
                break;
            };
            keys.extend([key; 2]);
        }
        keys
    }

    /// Returns a key that no member has, with a place among those that the switch remembers that
    /// none of them has.
    fn free_key(&mut self, taken: &[u32]) -> Option<u32> {
        let places = PLACES as u32;
        let used = |place: u32| {
            let of_members = self.members.iter().filter_map(|seat| seat.key);
            // A key whose probe is on its way may become that of a member.
            let of_probes = self.probes.iter().map(|probe| probe.key);
            let mut keys = of_members.chain(of_probes).chain(taken.iter().copied());
            keys.any(|key| key % places == place)
        };
        let first = places - 2 * MEMBERS_MAX as u32;
        let place = (first..places).rev().find(|place| !used(*place))?;
        self.next_generation = self.next_generation.wrapping_add(1);
        let key = self.next_generation.wrapping_mul(places) | place;
        Some(self.prefix.key(key))
    }
}

#[cfg(test)]
mod tests;
