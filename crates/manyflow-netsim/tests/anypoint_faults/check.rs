//! What must hold after a run.

use std::collections::BTreeSet;

use manyflow_core::anypoint::Reason;
use manyflow_core::anypoint::switch::MemberId;

use crate::end::{KEYS, Log};
use crate::plan::{Fault, Plan};
use crate::world::Outcome;

/// # Errors
/// The first thing that does not hold.
pub(crate) fn check(plan: &Plan, outcome: &Outcome) -> Result<(), String> {
    let logs: Vec<_> = outcome.logs.iter().map(|log| log.borrow()).collect();
    let logs: Vec<&Log> = logs.iter().map(|log| &**log).collect();
    for (place, log) in logs.iter().enumerate() {
        ensure(!log.garbled, || {
            format!("end {place} read a frame of another length")
        })?;
        ensure(log.is_through(), || format!("end {place} is stuck"))?;
    }
    // A switch that has restarted may open the connection again, to members that have done with it.
    let restarts = plan.time_of(Fault::Restart).is_some();
    for member in &outcome.given_up {
        let died = plan.time_of(Fault::Crash(*member)).is_some();
        ensure(died || restarts, || {
            format!("{member:?} was taken for dead, and is not")
        })?;
    }
    check_inbound(plan, &logs)?;
    check_outbound(&logs)?;
    if !restarts {
        check_endings(plan, &logs)?;
    }
    check_completeness(plan, &logs)
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

fn crashed(plan: &Plan, place: usize) -> bool {
    let member = MemberId((place - 1) as u16);
    plan.time_of(Fault::Crash(member)).is_some()
}

/// Each of the peer's frames is read at most once by those that live, and in order unless some come again after a failure.
fn check_inbound(plan: &Plan, logs: &[&Log]) -> Result<(), String> {
    let crashes = (1..logs.len()).any(|place| crashed(plan, place));
    let mut read_by_the_living = BTreeSet::new();
    for (place, log) in logs.iter().enumerate().skip(1) {
        ensure(log.read.iter().all(|key| *key < logs[0].sent), || {
            format!("end {place} read a frame that the peer did not send")
        })?;
        let ascending = log.read.is_sorted_by(|a, b| a < b);
        ensure(ascending || crashes, || {
            format!("end {place} read out of order: {:?}", log.read)
        })?;
        let mut own = BTreeSet::new();
        for key in &log.read {
            ensure(own.insert(key), || {
                format!("end {place} read frame {key} twice")
            })?;
        }
        if !crashed(plan, place) {
            for key in &log.read {
                ensure(read_by_the_living.insert(*key), || {
                    format!("two members read frame {key}")
                })?;
            }
        }
    }
    Ok(())
}

/// Of each member the peer has read the first frames, without a gap.
fn check_outbound(logs: &[&Log]) -> Result<(), String> {
    let mut next = vec![0; logs.len()];
    for key in &logs[0].read {
        let (place, number) = ((key / KEYS) as usize, key % KEYS);
        ensure(place > 0 && number == next[place], || {
            format!(
                "the peer read frame {number} of end {place}, where {} comes next",
                next[place]
            )
        })?;
        next[place] += 1;
    }
    Ok(())
}

/// Without a restart, all that live have finished; the peer hears of it where the only member died.
fn check_endings(plan: &Plan, logs: &[&Log]) -> Result<(), String> {
    if plan.members == 1 && crashed(plan, 1) {
        // The switch says so, twice if the first word is lost; where it passes all unchanged, or there is none, the peer finds out.
        return ensure(logs[0].finished || logs[0].failed.is_some(), || {
            "the only member died, and the peer does not know".to_owned()
        });
    }
    ensure(logs[0].finished && logs[0].failed.is_none(), || {
        "the peer has not finished".to_owned()
    })?;
    for (place, log) in logs.iter().enumerate().skip(1) {
        // A member that joins may come too late, and one may leave before it was there.
        let was_there = log.opened && log.failed != Some(Reason::Aborted);
        let stays = was_there && place <= plan.members.into() && !crashed(plan, place);
        ensure(!stays || (log.finished && log.failed.is_none()), || {
            format!("end {place} has not finished")
        })?;
    }
    Ok(())
}

/// Where an end has finished, all that it sent was read. What a member had acknowledged and not read when it died is lost.
fn check_completeness(plan: &Plan, logs: &[&Log]) -> Result<(), String> {
    if logs[0].finished {
        let mut missing: BTreeSet<u32> = (0..plan.inbound).collect();
        for (place, log) in logs.iter().enumerate().skip(1) {
            let taken = match crashed(plan, place) {
                true => &log.arrived,
                false => &log.read,
            };
            for key in taken {
                missing.remove(key);
            }
        }
        ensure(missing.is_empty(), || {
            format!("the peer has finished, but nobody read {missing:?}")
        })?;
    }
    for (place, log) in logs.iter().enumerate().skip(1) {
        let read = logs[0].read.iter();
        let read = read.filter(|key| (**key / KEYS) as usize == place).count() as u32;
        ensure(
            !log.finished || logs[0].failed.is_some() || read == plan.outbound,
            || format!("end {place} has finished, but the peer read {read} frames"),
        )?;
    }
    Ok(())
}
