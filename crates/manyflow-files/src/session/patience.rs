//! When to give up a session of which packets arrive.

use std::time::Duration;

use manyflow_core::Time;
use manyflow_object::receiver::Progress;

use super::receive::ReceiveError;

/// The useful packets of a session, and the time since the last of each kind.
#[derive(Debug)]
pub(super) struct Patience {
    limit: Duration,
    /// The latest counts.
    latest: Progress,
    /// Time of the last counts in which files had made progress.
    last_useful: Time,
    /// Time of the last counts with [promising](Progress::promising) packets, and these counts.
    last_promising: (Time, Progress),
    /// Time of the last counts in which packets of the expected table of files had come, and the
    /// number of other tables until then.
    last_table: (Time, u64),
}

impl Patience {
    /// Begins to wait at [`Time::ZERO`], and gives up after `limit`.
    pub(super) fn new(limit: Duration) -> Patience {
        Patience {
            limit,
            latest: Progress::default(),
            last_useful: Time::ZERO,
            last_promising: (Time::ZERO, Progress::default()),
            last_table: (Time::ZERO, 0),
        }
    }

    /// Takes the decoder's counts.
    pub(super) fn note(&mut self, now: Time, objects: &Progress) {
        let before = std::mem::replace(&mut self.latest, *objects);
        let useful = |objects: &Progress| objects.useful_symbols + objects.files as u64;
        let tables = |objects: &Progress| objects.known_fdt_packets + objects.files as u64;
        if tables(objects) > tables(&before) {
            self.last_table = (now, objects.refused.table);
        }
        if useful(objects) > useful(&before) {
            self.last_useful = now;
        }
        if objects.promising() > self.last_promising.1.promising() {
            self.last_promising = (now, *objects);
        }
    }

    /// Whether files have made no progress for too long.
    pub(super) fn is_over(&self, now: Time) -> bool {
        now >= self.last_useful + self.limit
    }

    /// Gives up a session whose sender sends another table of files, and no longer the expected
    /// one: forged tables alone do not end it. Also gives up one whose missing files were all
    /// withdrawn, and one of which no packet can be used. A decoder that waits for a disk is no
    /// reason.
    pub(super) fn check(&self, now: Time) -> Result<(), ReceiveError> {
        let (at, refused) = self.last_table;
        if self.latest.refused.table > refused && now >= at + self.limit {
            return Err(ReceiveError::OtherTable);
        }
        let objects = &self.latest;
        let ended = objects.files_complete + objects.files_refused + objects.files_withdrawn;
        if objects.files_withdrawn > 0 && ended >= objects.files && self.is_over(now) {
            return Err(ReceiveError::Withdrawn(objects.files_withdrawn));
        }
        let (at, before) = &self.last_promising;
        if self.latest.packets > before.packets && now >= *at + self.limit {
            return Err(ReceiveError::Useless {
                after: now - *at,
                reason: reason_of_useless(&self.latest, before),
            });
        }
        Ok(())
    }
}

/// Returns why most packets since `before` were not used, and what to do.
fn reason_of_useless(now: &Progress, before: &Progress) -> &'static str {
    let (refused, earlier) = (&now.refused, &before.refused);
    let fec = refused.oti + refused.symbol_id + refused.payload_length
        - (earlier.oti + earlier.symbol_id + earlier.payload_length);
    let reasons = [
        (
            refused.expired - earlier.expired,
            "its table of files has expired by this machine's clock; check the clock, or ask the sender for a new session",
        ),
        (
            refused.fdt - earlier.fdt,
            "its table of files cannot be read; the log above says why",
        ),
        (
            fec,
            "their FEC parameters are unknown here, or contradict the table of files; the log above has one",
        ),
        (
            refused.memory - earlier.memory,
            "there is no memory for them; allow more with --memory",
        ),
        (
            refused.storage - earlier.storage,
            "they cannot be stored; the log above says why",
        ),
    ];
    let most = reasons.into_iter().max_by_key(|(count, _)| *count);
    most.filter(|(count, _)| *count > 0).map_or(
        "they belong to files that no table announces; is the session description the sender's newest?",
        |(_, reason)| reason,
    )
}
