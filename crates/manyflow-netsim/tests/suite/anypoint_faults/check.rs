//! Checks the outcome of a run.

use core::time::Duration;
use std::collections::BTreeSet;

use manyflow_anypoint::Reason;
use manyflow_anypoint::switch::MemberId;

use crate::anypoint_faults::end::{KEYS, Log};
use crate::anypoint_faults::plan::{Fault, Plan};
use crate::anypoint_faults::world::{Failure, Outcome};

/// The time within which an end learns after a restart that its connection is over: a keep-alive
/// time, or a time-out that has backed off to the maximum, and some lost packets.
const FAILURE_WITHIN: Duration = Duration::from_secs(120);

/// Checks the outcome of a run.
///
/// # Errors
/// Returns the first check that fails.
pub(crate) fn check(plan: &Plan, outcome: &Outcome) -> Result<(), String> {
    let logs: Vec<_> = outcome.logs.iter().map(|log| log.read().unwrap()).collect();
    let logs: Vec<&Log> = logs.iter().map(|log| &**log).collect();
    for (place, log) in logs.iter().enumerate() {
        ensure(!log.garbled, || {
            format!("end {place} read a frame whose payload does not belong to its key")
        })?;
        ensure(log.is_done(), || format!("end {place} is stuck"))?;
    }
    check_inbound(plan, &logs, &outcome.failures)?;
    check_outbound(&logs)?;
    check_promises(plan, &logs)?;
    match plan.time_of(Fault::Restart) {
        Some(_) => check_restart(plan, &logs),
        None => check_endings(plan, &logs, &outcome.failures),
    }
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

fn member_at(place: usize) -> MemberId {
    MemberId((place - 1) as u16)
}

fn crashed(plan: &Plan, place: usize) -> bool {
    plan.time_of(Fault::Crash(member_at(place))).is_some()
}

/// Checks that members that live read each of the peer's frames at most once in total, and that
/// each crashed member reads a frame at most once. Each member reads in order, except for frames
/// that a failed member has left.
fn check_inbound(plan: &Plan, logs: &[&Log], failures: &[Failure]) -> Result<(), String> {
    let mut read_by_the_living = BTreeSet::new();
    for (place, log) in logs.iter().enumerate().skip(1) {
        let mut own = BTreeSet::new();
        for (index, &key) in log.read.iter().enumerate() {
            ensure(key < logs[0].sent, || {
                format!("end {place} read frame {key}, which the peer did not send")
            })?;
            let is_late = own.last().is_some_and(|highest| key < *highest);
            ensure(own.insert(key), || {
                format!("end {place} read frame {key} twice")
            })?;
            ensure(!is_late || may_be_late(place, index, key, failures), || {
                format!("end {place} read frame {key} out of order: {:?}", log.read)
            })?;
            ensure(
                crashed(plan, place) || read_by_the_living.insert(key),
                || format!("two members read frame {key}"),
            )?;
        }
    }
    Ok(())
}

/// Returns whether a frame may be out of order. Frames that the peer had sent when the switch
/// noticed a failure may have been routed to the failed member. They are sent again, behind the
/// frames that this end has received.
fn may_be_late(place: usize, index: usize, key: u32, failures: &[Failure]) -> bool {
    let leaves = |failure: &Failure| {
        failure.member != member_at(place) && index >= failure.read[place] && key < failure.sent
    };
    failures.iter().any(leaves)
}

/// Checks that the peer has read the first frames of each member, in order and without a gap.
fn check_outbound(logs: &[&Log]) -> Result<(), String> {
    let mut next = vec![0; logs.len()];
    for key in &logs[0].read {
        let (place, number) = ((key / KEYS) as usize, key % KEYS);
        ensure(place > 0 && number == next[place], || {
            format!(
                "the peer read frame {number} of end {place}, but {} comes next",
                next[place]
            )
        })?;
        next[place] += 1;
    }
    Ok(())
}

/// Checks that each acknowledged frame was read. Frames that a member had acknowledged but not read
/// when it crashed are lost, as with any host.
fn check_promises(plan: &Plan, logs: &[&Log]) -> Result<(), String> {
    let mut taken: BTreeSet<u32> = BTreeSet::new();
    for (place, log) in logs.iter().enumerate().skip(1) {
        taken.extend(&log.read);
        if crashed(plan, place) {
            taken.extend(log.arrived.range(..log.acknowledging).map(|(_, key)| key));
        }
    }
    let lost = (0..logs[0].acknowledged.min(plan.inbound)).find(|key| !taken.contains(key));
    ensure(lost.is_none(), || {
        format!("frame {lost:?} of the peer was acknowledged, but no member read it")
    })?;
    for (place, log) in logs.iter().enumerate().skip(1) {
        let read = logs[0].read.iter();
        let read = read.filter(|key| (**key / KEYS) as usize == place).count() as u32;
        let acknowledged = log.acknowledged.min(plan.outbound);
        ensure(acknowledged <= read, || {
            format!(
                "{acknowledged} frames of end {place} were acknowledged, but the peer read {read}"
            )
        })?;
    }
    Ok(())
}

/// Checks that each end has finished after a restart, or learns in time that it cannot.
fn check_restart(plan: &Plan, logs: &[&Log]) -> Result<(), String> {
    let restart = plan.time_of(Fault::Restart).unwrap_or_default();
    for (place, log) in logs.iter().enumerate().filter(|(_, log)| log.opened) {
        ensure(
            log.failed.is_some() || has_sent_all(plan, place, log),
            || format!("end {place} has not finished, and has reported no failure"),
        )?;
        let failed_at = log.over.filter(|_| log.failed.is_some());
        ensure(
            failed_at.is_none_or(|at| at <= restart + FAILURE_WITHIN),
            || format!("end {place} learned too late that its connection is over"),
        )?;
    }
    Ok(())
}

/// Returns whether an end has closed, and all its frames are acknowledged.
fn has_sent_all(plan: &Plan, place: usize, log: &Log) -> bool {
    let frames = match place {
        0 => plan.inbound,
        _ => plan.outbound,
    };
    log.finished && log.acknowledged == frames + 1
}

/// Checks that without a restart all living ends finish, and only crashed members are declared
/// failed.
fn check_endings(plan: &Plan, logs: &[&Log], failures: &[Failure]) -> Result<(), String> {
    for Failure { member, .. } in failures {
        ensure(plan.time_of(Fault::Crash(*member)).is_some(), || {
            format!("{member:?} was declared failed, but has not crashed")
        })?;
    }
    // If the only member crashes, ends of which the switch has never heard may fail, and every end
    // learns of it.
    let may_fail = plan.members == 1 && crashed(plan, 1) && logs[0].failed.is_some();
    for (place, log) in logs.iter().enumerate().filter(|(_, log)| log.opened) {
        let is_exempt =
            may_fail || (place > 0 && (crashed(plan, place) || left_at_once(plan, place, log)));
        let is_done = log.failed.is_none() && has_sent_all(plan, place, log);
        ensure(is_exempt || is_done, || {
            format!("end {place} has not finished")
        })?;
    }
    Ok(())
}

/// Returns whether a member left before it accepted, so that it was never part of the connection.
fn left_at_once(plan: &Plan, place: usize, log: &Log) -> bool {
    let leaves = plan.time_of(Fault::Leave(member_at(place))).is_some();
    leaves && log.failed == Some(Reason::Aborted) && log.read.is_empty() && log.acknowledged == 0
}
