//! Checks the outcome of a run.

use core::time::Duration;
use std::collections::BTreeMap;

use manyflow_core::Time;
use manyflow_overlay::{DaemonId, GroupId, OriginSeq, SlowPolicy};

use crate::overlay_faults::client::{Log, SENDER};
use crate::overlay_faults::plan::{Member, Plan};
use crate::overlay_faults::world::Outcome;

/// The time within which a join reaches all daemons, despite losses and cuts.
const SURELY_KNOWN: Duration = Duration::from_secs(150);

/// Checks the outcome of a run.
///
/// # Errors
/// Returns the first check that fails.
pub(crate) fn check(plan: &Plan, outcome: &Outcome) -> Result<(), String> {
    for (number, log) in outcome.senders.iter().enumerate() {
        ensure(log.lock().over, || format!("sender {number} is stuck"))?;
    }
    for (number, (member, log)) in plan.members.iter().zip(&outcome.members).enumerate() {
        let log = log.lock();
        ensure(!log.garbled, || {
            format!("member {number} read a message of the wrong length")
        })?;
        check_numbers(plan, &log)
            .and_then(|()| check_messages(plan, outcome, member, &log))
            .map_err(|error| format!("member {number}: {error}"))?;
    }
    Ok(())
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

/// Returns whether members of a group may miss messages that they are too slow for.
fn may_drop(plan: &Plan, group: GroupId) -> bool {
    plan.config.slow_policy(group) == SlowPolicy::Drop
}

/// Checks that the numbers of each origin and group are consecutive.
fn check_numbers(plan: &Plan, log: &Log) -> Result<(), String> {
    let mut flows: BTreeMap<(DaemonId, GroupId), OriginSeq> = BTreeMap::new();
    for (origin, data) in &log.read {
        let last = flows.insert((*origin, data.group), data.sequence);
        let drops = may_drop(plan, data.group);
        let follows =
            |last: OriginSeq| data.sequence == last.advance(1) || (drops && data.sequence > last);
        ensure(last.is_none_or(follows), || {
            format!("{:?} came after {last:?} from {origin:?}", data.sequence)
        })?;
    }
    Ok(())
}

/// Checks that a member read each sender's messages to each group in order and without a gap. A
/// member that remained has read the last message, and all messages that were accepted a certain
/// time after its join.
fn check_messages(
    plan: &Plan,
    outcome: &Outcome,
    member: &Member,
    log: &Log,
) -> Result<(), String> {
    for (number, (sender, sent)) in plan.senders.iter().zip(&outcome.senders).enumerate() {
        let sent = sent.lock();
        for group in &member.groups {
            let taken = sender.groups.iter().cycle().zip(&sent.taken);
            let taken = taken.enumerate().filter(|(_, (to, _))| *to == group);
            let taken: Vec<(u32, Time)> = taken.map(|(n, (_, at))| (n as u32, *at)).collect();
            let of_sender = log
                .read
                .iter()
                .filter(|(_, data)| data.group == *group && data.sent_us / SENDER == number as u32);
            let read: Vec<u32> = of_sender.map(|(_, data)| data.sent_us % SENDER).collect();
            let stays = !log.over && !log.evicted.contains(group) && !may_drop(plan, *group);
            check_flow(&taken, &read, may_drop(plan, *group))
                .and_then(|()| match stays {
                    true => check_whole(&taken, &read, known(plan, member)),
                    false => Ok(()),
                })
                .map_err(|error| format!("messages of sender {number} to {group:?}: {error}"))?;
        }
    }
    Ok(())
}

/// Returns the time at which all daemons know of a member that joined.
fn known(plan: &Plan, member: &Member) -> Time {
    match member.start < plan.from {
        // No link is cut before this time.
        true => plan.from,
        false => member.start + SURELY_KNOWN,
    }
}

fn check_flow(taken: &[(u32, Time)], read: &[u32], drops: bool) -> Result<(), String> {
    let mut next = None;
    for message in read {
        let place = taken.iter().position(|(number, _)| number == message);
        let place =
            place.ok_or_else(|| format!("the member read {message}, which was not accepted"))?;
        let follows = |next| place == next || (drops && place > next);
        ensure(next.is_none_or(follows), || {
            format!("the member read {message} instead of accepted message number {next:?}")
        })?;
        next = Some(place + 1);
    }
    Ok(())
}

fn check_whole(taken: &[(u32, Time)], read: &[u32], known: Time) -> Result<(), String> {
    let missed = taken.len() - read.len();
    let early = taken.iter().filter(|(_, at)| *at < known).count();
    let has_last = read.is_empty() || read.last() == taken.last().map(|(number, _)| number);
    ensure(missed <= early && has_last, || {
        let last = read.last();
        format!(
            "the member read {} of {} messages, of which {early} were early, up to {last:?}",
            read.len(),
            taken.len()
        )
    })
}
