//! What must hold after a run.

use core::time::Duration;
use std::collections::BTreeMap;

use manyflow_core::Time;
use manyflow_core::overlay::{ClientId, DaemonId, SlowPolicy};

use crate::client::Log;
use crate::plan::{Member, Plan};
use crate::world::Outcome;

/// By then a join has reached all, whatever was lost and cut.
const SURELY_KNOWN: Duration = Duration::from_secs(60);

/// # Errors
/// The first thing that does not hold.
pub(crate) fn check(plan: &Plan, outcome: &Outcome) -> Result<(), String> {
    for (number, log) in outcome.senders.iter().enumerate() {
        ensure(log.borrow().over, || format!("sender {number} is stuck"))?;
    }
    for (number, (member, log)) in plan.members.iter().zip(&outcome.members).enumerate() {
        let log = log.borrow();
        ensure(!log.garbled, || {
            format!("member {number} read a message of another length")
        })?;
        check_order(plan, &log).map_err(|error| format!("member {number}: {error}"))?;
        if !log.over {
            check_whole(plan, outcome, member, &log)
                .map_err(|error| format!("member {number}: {error}"))?;
        }
    }
    Ok(())
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

/// Whether members may miss what they are too slow for.
fn may_drop(plan: &Plan) -> bool {
    plan.config.slow == SlowPolicy::Drop
}

/// The numbers of each origin follow each other, and those of each sender grow.
fn check_order(plan: &Plan, log: &Log) -> Result<(), String> {
    let mut origins: BTreeMap<DaemonId, u32> = BTreeMap::new();
    let mut senders: BTreeMap<(DaemonId, ClientId), u32> = BTreeMap::new();
    for (origin, data) in &log.read {
        let last = origins.insert(*origin, data.sequence);
        let follows = |last| data.sequence == last + 1 || (may_drop(plan) && data.sequence > last);
        ensure(last.is_none_or(follows), || {
            format!("{} came after {last:?} from {origin:?}", data.sequence)
        })?;
        let last = senders.insert((*origin, data.sender), data.sent_us);
        ensure(last.is_none_or(|last| data.sent_us > last), || {
            format!(
                "message {} of {:?} came after {last:?}",
                data.sent_us, data.sender
            )
        })?;
    }
    Ok(())
}

/// A member that stayed has read all that was sent to its group from some message on, and none that was taken so long after its join
/// was before that one.
fn check_whole(plan: &Plan, outcome: &Outcome, member: &Member, log: &Log) -> Result<(), String> {
    if may_drop(plan) {
        return Ok(());
    }
    for origin in (0..plan.daemons).map(DaemonId) {
        let taken = taken_at(plan, outcome, member, origin);
        let known = member.start + SURELY_KNOWN;
        let early = taken.iter().filter(|time| **time < known).count();
        let read = log.read.iter().filter(|(from, _)| *from == origin);
        let numbers: Vec<usize> = read.map(|(_, data)| data.sequence as usize).collect();
        let first = numbers.first().copied().unwrap_or(taken.len() + 1);
        let last = numbers.last().copied().unwrap_or(taken.len());
        ensure(first <= early + 1 && last == taken.len(), || {
            format!(
                "of {} messages from {origin:?}, {early} of them early, it read {first} to {last}",
                taken.len()
            )
        })?;
    }
    Ok(())
}

/// When a daemon took the messages to a member's group.
fn taken_at(plan: &Plan, outcome: &Outcome, member: &Member, origin: DaemonId) -> Vec<Time> {
    let senders = plan.senders.iter().zip(&outcome.senders);
    let mut taken = Vec::new();
    for (sender, log) in senders.filter(|(sender, _)| sender.at == origin.0) {
        let log = log.borrow();
        let turns = sender.groups.iter().cycle().zip(&log.taken);
        taken.extend(
            turns
                .filter(|(group, _)| **group == member.group)
                .map(|(_, at)| *at),
        );
    }
    taken
}
