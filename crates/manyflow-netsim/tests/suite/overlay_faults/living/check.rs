//! Checks the outcome of a run.

use core::time::Duration;
use std::collections::BTreeMap;

use manyflow_core::Time;
use manyflow_overlay::GroupId;

use super::clients::{Life, identity};
use super::plan::{FAULTS_END, LAST, Plan};
use super::world::Outcome;

/// A time without a path at which a daemon's members may no longer count. Other times without a
/// path are shorter than the hold time, even if daemons learn of changes late.
const LONG: Duration = Duration::from_secs(5);
/// The time within which a sender's daemon surely learns of a member to which there is a path.
const KNOWN: Duration = Duration::from_secs(25);

/// Checks the outcome of a run.
///
/// # Errors
/// Returns the first check that fails.
pub(crate) fn check(plan: &Plan, outcome: &Outcome) -> Result<(), String> {
    check_clients(plan, outcome)?;
    ensure(outcome.kept.iter().all(|kept| *kept == 0), || {
        "daemons keep entries of clients that have gone".to_owned()
    })?;
    ensure(outcome.versions == 1, || {
        format!("{} versions of the topology remain", outcome.versions)
    })
}

/// Checks that all senders are done, and what the members have read.
///
/// # Errors
/// Returns the first check that fails.
pub(crate) fn check_clients(plan: &Plan, outcome: &Outcome) -> Result<(), String> {
    for (number, log) in outcome.senders.iter().enumerate() {
        let is_over = log.lock().last().is_some_and(|life| life.over);
        ensure(is_over, || format!("sender {number} is stuck"))?;
    }
    for (number, log) in outcome.members.iter().enumerate() {
        for (life, of_life) in log.lock().iter().enumerate() {
            check_life(plan, outcome, number, of_life)
                .map_err(|error| format!("member {number}, life {life}: {error}"))?;
        }
    }
    Ok(())
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

/// Checks the messages that a member read in one life, sender by sender.
fn check_life(plan: &Plan, outcome: &Outcome, member: usize, life: &Life) -> Result<(), String> {
    let mut flows: BTreeMap<(usize, usize, GroupId), Vec<usize>> = BTreeMap::new();
    for (origin, data) in &life.read {
        let (sender, sender_life, number) = identity(data);
        let expected = plan
            .senders
            .get(sender)
            .map(|sender| plan.daemons[sender.at].id);
        ensure(expected == Some(*origin), || {
            format!("{data:?} is of {origin:?}")
        })?;
        let flow = flows.entry((sender, sender_life, data.group)).or_default();
        flow.push(number);
    }
    let groups = &plan.members[member].groups;
    for (sender, log) in outcome.senders.iter().enumerate() {
        for (number, sent) in log.lock().iter().enumerate() {
            for group in groups {
                let read = flows.remove(&(sender, number, *group)).unwrap_or_default();
                let pair = Pair::new(plan, (sender, sent), (member, life));
                pair.check(*group, &read).map_err(|error| {
                    format!("messages of sender {sender}, life {number}, to {group:?}: {error}")
                })?;
            }
        }
    }
    ensure(flows.is_empty(), || {
        format!("messages of nobody: {:?}", flows.keys())
    })
}

/// A life of a sender and a life of a member.
struct Pair<'a> {
    sent: &'a Life,
    /// Whether both daemons have not crashed since.
    lives: [bool; 2],
    /// The time from which on the sender's daemon surely knows of the member.
    known: Time,
    /// Whether messages may be missing: there was no path for a [`LONG`] time, or a daemon had to
    /// outbid its own former incarnation.
    may_miss: bool,
}

impl<'a> Pair<'a> {
    fn new(plan: &Plan, sender: (usize, &'a Life), member: (usize, &Life)) -> Pair<'a> {
        let ends = [plan.senders[sender.0].at, plan.members[member.0].at];
        let lives = [sender.1.daemon_life, member.1.daemon_life];
        let crashes = [0, 1].map(|end| plan.daemons[ends[end]].lives[lives[end]].1);
        let begun = sender.1.begun.max(member.1.begun);
        let end = crashes.into_iter().flatten().min().unwrap_or(LAST);
        let (connected, longest) = plan.paths(ends, begun, end);
        Pair {
            sent: sender.1,
            lives: crashes.map(|crash| crash.is_none()),
            known: connected.max(begun) + KNOWN,
            may_miss: longest >= LONG || lives.iter().any(|life| plan.is_stale(*life)),
        }
    }

    fn check(&self, group: GroupId, read: &[usize]) -> Result<(), String> {
        let taken = self.sent.taken.iter().enumerate();
        let taken = taken.filter(|(_, (to, _))| *to == group);
        let taken: Vec<(usize, Time)> = taken.map(|(number, (_, at))| (number, *at)).collect();
        let mut next = None;
        for number in read {
            let place = taken.iter().position(|(known, _)| known == number);
            // The last message of a sender whose daemon has crashed may not be known as accepted.
            let Some(place) = place else {
                ensure(!self.lives[0], || format!("{number} was not accepted"))?;
                continue;
            };
            let follows = |next| place == next || (self.may_miss && place > next);
            ensure(next.is_none_or(follows), || {
                format!("{number} was read instead of accepted message number {next:?}")
            })?;
            next = Some(place + 1);
        }
        if !self.lives[0] || !self.lives[1] {
            return Ok(());
        }
        let must_have_read = taken.iter().position(|(_, at)| *at >= self.known);
        let Some(first) = must_have_read.filter(|first| *first < taken.len()) else {
            return Ok(());
        };
        let first_read = read
            .first()
            .and_then(|number| taken.iter().position(|(n, _)| n == number));
        ensure(next == Some(taken.len()), || {
            format!("accepted {} messages, read up to {next:?}", taken.len())
        })?;
        ensure(self.may_miss || first_read <= Some(first), || {
            format!("read from {first_read:?} on, not from {first} on")
        })
    }
}

impl Plan {
    /// Returns when two daemons are first connected by a path from `begin` on, and the longest time
    /// without a path after that and before `end`.
    fn paths(&self, [a, b]: [usize; 2], begin: Time, end: Time) -> (Time, Duration) {
        let connections = self.links.iter().flat_map(|link| &link.connections);
        let changes = connections
            .flat_map(|times| times.up.into_iter().chain(times.down.into_iter().flatten()));
        let starts = self.daemons.iter().flat_map(|daemon| {
            daemon
                .lives
                .iter()
                .flat_map(|life| [Some(life.0), life.1])
                .flatten()
        });
        let outages = self
            .links
            .iter()
            .flat_map(|link| link.outages.iter().flat_map(|o| [o.0, o.1]));
        let mut changes: Vec<_> = changes
            .chain(starts)
            .chain(outages)
            .filter(|at| *at > begin && *at < end)
            .collect();
        changes.push(begin);
        changes.sort_unstable();
        let mut first = None;
        let mut since: Option<Time> = None;
        let mut longest = Duration::ZERO;
        for at in changes {
            match self.is_path([a, b], at) {
                true => {
                    first = first.or(Some(at));
                    longest = longest.max(since.take().map_or(Duration::ZERO, |since| at - since));
                }
                false if first.is_some() => {
                    since.get_or_insert(at);
                }
                false => {}
            }
        }
        let rest = since.map_or(Duration::ZERO, |since| end - since);
        (first.unwrap_or(FAULTS_END.max(begin)), longest.max(rest))
    }

    /// Returns whether a path of connections leads from one daemon to another at a time.
    fn is_path(&self, [a, b]: [usize; 2], at: Time) -> bool {
        let lives = |daemon: usize| {
            let mut lives = self.daemons[daemon].lives.iter();
            lives.any(|(start, crash)| *start <= at && crash.is_none_or(|crash| at < crash))
        };
        let mut reached = vec![a];
        let mut place = 0;
        while let Some(&here) = reached.get(place) {
            place += 1;
            for link in &self.links {
                let Some(end) = link.ends.iter().position(|end| *end == here) else {
                    continue;
                };
                let to = link.ends[1 - end];
                let is_out = link
                    .outages
                    .iter()
                    .any(|(from, until)| (*from..*until).contains(&at));
                let is_up = link.connections.iter().any(|times| {
                    let is_down = |down: [Time; 2]| down[0].min(down[1]) <= at;
                    times.up[0].max(times.up[1]) <= at && !times.down.is_some_and(is_down)
                });
                if is_up && !is_out && lives(here) && lives(to) && !reached.contains(&to) {
                    reached.push(to);
                }
            }
        }
        reached.contains(&b)
    }
}
