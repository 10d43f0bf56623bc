//! Checks the outcome of a run.

use manyflow_store::{Address, DownloadError, Manifest, UploadError};

use crate::store_faults::member::member_name;
use crate::store_faults::plan::{Fault, Plan, Step, contents};
use crate::store_faults::task::{End, NAME};
use crate::store_faults::world::Outcome;

/// Checks the outcome of a run.
///
/// # Errors
/// Returns the first check that fails.
pub(crate) fn check(plan: &Plan, outcome: &Outcome) -> Result<(), String> {
    let ended = outcome.log.ended.len();
    ensure(ended == plan.steps.len(), || {
        format!("transfer {ended} is stuck")
    })?;
    check_acknowledged(plan, outcome)?;
    check_puts(plan, outcome)?;
    for place in 0..ended {
        check_get(plan, outcome, place)?;
    }
    Ok(())
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

fn has_lost_disk(plan: &Plan, place: usize) -> bool {
    let keeps_disk = false;
    let lost = Fault::Return { place, keeps_disk };
    plan.faults.iter().any(|(_, fault)| *fault == lost)
}

/// Checks that all bytes that were acknowledged are on the disks of as many distinct members as
/// asked for, except for disks that are lost.
fn check_acknowledged(plan: &Plan, outcome: &Outcome) -> Result<(), String> {
    for (address, members) in &outcome.log.acknowledged {
        let mut distinct = members.clone();
        distinct.sort_unstable();
        distinct.dedup();
        ensure(distinct.len() >= usize::from(plan.store.copies), || {
            format!("{address:?} was acknowledged by {members:?} only")
        })?;
        for (place, disk) in outcome.disks.iter().enumerate() {
            let is_holder = members.contains(&member_name(place));
            let is_exempt = !is_holder || has_lost_disk(plan, place);
            ensure(is_exempt || disk.read(*address).is_some(), || {
                format!("member {place} has acknowledged {address:?} and does not have it")
            })?;
        }
    }
    Ok(())
}

/// Checks that puts fail only if too few members are always there.
fn check_puts(plan: &Plan, outcome: &Outcome) -> Result<(), String> {
    let is_possible = plan.constant().len() >= usize::from(plan.store.copies);
    for (step, end) in &outcome.log.ended {
        let is_true = match end {
            End::NotStored(UploadError::TooFewCopies { .. }) => !is_possible,
            End::NotStored(_) => false,
            _ => true,
        };
        ensure(is_true, || format!("{step:?} failed: {end:?}"))?;
    }
    Ok(())
}

/// Checks the end of the transfer at `place`, if it is a get.
fn check_get(plan: &Plan, outcome: &Outcome, place: usize) -> Result<(), String> {
    let (step, end) = &outcome.log.ended[place];
    let earlier = &outcome.log.ended[..place];
    let is_safe = plan.gone().len() < usize::from(plan.store.copies);
    // A switch that restarts while a connection is being opened may give all members up that have
    // the newest manifest.
    let is_newest = is_safe && !was_restarted_in_opening(plan, outcome);
    match end {
        End::Read(_, file) => check_bytes(earlier, file, is_newest),
        End::NotFound(_) => {
            let was_stored = earlier.iter().any(|(_, end)| matches!(end, End::Stored(_)));
            let name = Address::of_name(NAME);
            ensure(
                !(is_held(plan, outcome, name) || was_stored && is_safe),
                || format!("{step:?}: the name was stored and not found"),
            )
        }
        End::NotRead(DownloadError::NoCopy { hash, .. }) => {
            let chunk = Address::Chunk(*hash);
            ensure(!is_safe && !is_held(plan, outcome, chunk), || {
                format!("{step:?}: a member has the chunk that was not found: {end:?}")
            })
        }
        End::NotRead(error) => Err(format!("{step:?} failed: {error}")),
        End::Stored(_) | End::NotStored(_) => Ok(()),
    }
}

fn was_restarted_in_opening(plan: &Plan, outcome: &Outcome) -> bool {
    let restarts = plan
        .faults
        .iter()
        .filter(|(_, fault)| *fault == Fault::Restart);
    let mut times = restarts.map(|(at, _)| *at);
    times.any(|at| {
        outcome
            .log
            .openings
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&at))
    })
}

/// Returns whether a member that was always there has the bytes.
fn is_held(plan: &Plan, outcome: &Outcome, address: Address) -> bool {
    let constant = plan.constant();
    constant
        .iter()
        .any(|place| outcome.disks[*place].read(address).is_some())
}

/// Checks that a get has read what was put last, if `is_newest`, and otherwise what was put at some
/// time. A put that failed may have stored its manifest.
fn check_bytes(earlier: &[(Step, End)], file: &[u8], is_newest: bool) -> Result<(), String> {
    let mut allowed = Vec::new();
    for (step, end) in earlier {
        if let Step::Put(number, length) = step {
            if is_newest && matches!(end, End::Stored(_)) {
                allowed.clear();
            }
            allowed.push(contents(*number, *length));
        }
    }
    ensure(allowed.iter().any(|wanted| wanted[..] == *file), || {
        format!("a get has read {} bytes that were not put last", file.len())
    })
}

#[test]
fn a_manifest_of_the_plans_fits_a_frame() {
    for seed in 0..200 {
        let plan = Plan::of(seed);
        let members: Vec<_> = (0..plan.store.copies.into()).map(member_name).collect();
        let hash = manyflow_store::Hash::of(b"");
        let entry = manyflow_store::ChunkEntry { hash, members };
        let manifest = Manifest {
            version: u64::MAX,
            size: 20 * u64::from(plan.chunk_bytes),
            digest: hash,
            chunks: vec![entry; 20],
            ..Manifest::empty(NAME, plan.chunk_bytes)
        };
        assert!(manifest.encode().unwrap().len() < 1600);
    }
}
