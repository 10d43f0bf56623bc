//! The receivers of a sender, as it prints them: a table while it runs, objects for programs, and
//! those missing at the end.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::UNIX_EPOCH;

use anyhow::{Error, Result};
use httpdate::fmt_http_date;
use manyflow_files::completion::{
    Audience, Receiver, ReceiverState, ReceiverTable, Tally, Transfer,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::display::{Display, OutputError};

/// Receivers that are shown on a terminal at a time: those that need attention first.
const SHOWN_MAX: usize = 12;

/// Describes the state of a receiver for people.
fn describe(table: &ReceiverTable, receiver: &Receiver) -> String {
    let percent = (receiver.transfer.share() * 100.0).floor();
    let silence = table.silence(receiver).unwrap_or_default().as_secs();
    match receiver.state {
        ReceiverState::NeverHeard => "never heard".to_owned(),
        ReceiverState::Receiving => {
            let rate = receiver.transfer.rate;
            format!("{percent} %, {rate}, heard {silence} s ago")
        }
        ReceiverState::Silent => format!("silent for {silence} s, at {percent} %"),
        ReceiverState::Done => match receiver.done_at {
            Some(at) => format!("done at {}", fmt_http_date(table.system_time(at))),
            None => "done".to_owned(),
        },
        ReceiverState::Failed(failure) => format!("failed: {failure}, at {percent} %"),
        ReceiverState::Left => format!("stopped by its user, at {percent} %"),
    }
}

/// Returns a note behind the name of a receiver that is not in the list.
pub(crate) fn known(receiver: &Receiver) -> &'static str {
    match (receiver.is_expected, receiver.lacks_key) {
        (true, _) => "",
        (false, false) => " (not in the list)",
        (false, true) => " (in the list with a key, which it has not shown)",
    }
}

/// Returns a line about a receiver, which says how it is known.
fn line(table: &ReceiverTable, receiver: &Receiver) -> String {
    let (known, state) = (known(receiver), describe(table, receiver));
    format!("{}{known}: {state}", receiver.name)
}

/// The order in which receivers need attention.
fn urgency(receiver: &Receiver) -> u32 {
    match receiver.state {
        ReceiverState::Failed(_) => 5,
        ReceiverState::Silent => 4,
        ReceiverState::Left => 3,
        ReceiverState::Receiving => 2,
        ReceiverState::NeverHeard => 1,
        ReceiverState::Done => 0,
    }
}

/// Watches the receivers of a session, and prints what has changed.
#[derive(Debug)]
pub struct Watcher {
    tally: watch::Receiver<Tally>,
    /// The states and bytes that were printed, in the order of the table.
    printed: Vec<(ReceiverState, u64)>,
}

impl Watcher {
    /// Watches the receivers of this tally, of which nothing was printed yet.
    pub fn new(tally: watch::Receiver<Tally>) -> Watcher {
        let printed = Vec::new();
        Watcher { tally, printed }
    }

    /// Returns the numbers of receivers, and a table of those that need attention.
    pub fn summary(&self) -> String {
        let tally = self.tally.borrow();
        let (table, counts) = (tally.table(), tally.table().counts());
        let Audience::Listed { receivers, .. } = tally.audience() else {
            let expected = tally.audience().ends_after().unwrap_or_default();
            return format!("{} of {expected} receivers done", counts.done());
        };
        let mut text = format!("{} of {} receivers done", counts.done(), receivers.len());
        let others = counts.by_name().filter(|(name, _)| *name != "done");
        for (name, count) in others.filter(|(_, count)| *count > 0) {
            let _ = write!(text, ", {count} {}", name.replace('-', " "));
        }
        let mut rows: Vec<_> = table.receivers().iter().collect();
        rows.sort_by_key(|receiver| Reverse(urgency(receiver)));
        rows.retain(|receiver| receiver.state != ReceiverState::Done);
        for receiver in rows.iter().take(SHOWN_MAX) {
            let _ = write!(text, "\n  {}", line(table, receiver));
        }
        if rows.len() > SHOWN_MAX {
            let _ = write!(text, "\n  and {} others", rows.len() - SHOWN_MAX);
        }
        text
    }

    /// Prints the receivers whose state has changed; for programs, also those that have more bytes.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub fn print_changes(&mut self, display: &Display) -> Result<(), OutputError> {
        let tally = self.tally.borrow_and_update();
        if !tally.audience().reports_progress() {
            return Ok(());
        }
        let table = tally.table();
        for (row, receiver) in table.receivers().iter().enumerate() {
            if row == self.printed.len() {
                self.printed.push((ReceiverState::NeverHeard, 0));
            }
            let now = (receiver.state, receiver.transfer.bytes);
            let before = std::mem::replace(&mut self.printed[row], now);
            if before == now {
                continue;
            }
            let mut event = receiver_json(table, receiver);
            event["event"] = "receiver".into();
            display.print_json(&event)?;
            if before.0 != now.0 && now.0 != ReceiverState::Receiving {
                display.print_line(&line(table, receiver))?;
            }
        }
        Ok(())
    }
}

/// Prints who is missing at the end of a session.
///
/// # Errors
/// If fewer receivers than expected have all files, although the session should go on until they
/// have, or if standard output cannot be written to.
pub fn print_end(tally: &Tally, is_time_over: bool, lines: &Display) -> Result<()> {
    let (table, done) = (tally.table(), tally.table().counts().done());
    let Audience::Listed { receivers, .. } = tally.audience() else {
        let expected = tally.audience().ends_after().unwrap_or_default();
        let line = format!("{done} of {expected} receivers have reported that they have all files");
        return match is_time_over {
            true => Err(Error::msg(line)),
            false => Ok(lines.print_line(&line)?),
        };
    };
    let missing: Vec<_> = table.missing().collect();
    for receiver in &missing {
        lines.print_line(&format!("missing: {}", line(table, receiver)))?;
    }
    let names = missing.iter().map(|receiver| receiver.name.as_str());
    lines.print_json(&json!({
        "event": "receivers",
        "expected": receivers.len(),
        "done": done,
        "missing": names.collect::<Vec<_>>(),
        "unexpected": table.counts().unexpected,
    }))?;
    let line = format!(
        "{done} of {} expected receivers have reported that they have all files",
        receivers.len()
    );
    match tally.is_complete() || missing.is_empty() {
        true => Ok(lines.print_line(&line)?),
        false => Err(Error::msg(format!(
            "{line}; the lines above name the others"
        ))),
    }
}

/// Returns the time at which a receiver was done, in seconds since 1970.
pub(crate) fn done_at(table: &ReceiverTable, receiver: &Receiver) -> Option<u64> {
    let time = table.system_time(receiver.done_at?);
    let since_1970 = time.duration_since(UNIX_EPOCH).ok()?;
    Some(since_1970.as_secs())
}

/// Returns the state of a receiver for programs.
pub(crate) fn receiver_json(table: &ReceiverTable, receiver: &Receiver) -> Value {
    let mut json = row(receiver.name.as_str(), receiver.state, &receiver.transfer);
    json["expected"] = receiver.is_expected.into();
    json["lacks_key"] = receiver.lacks_key.into();
    json["key"] = receiver.key.map(|key| key.to_string()).into();
    json["address"] = receiver.address.map(|address| address.to_string()).into();
    json["heard_s"] = table.silence(receiver).map(|time| time.as_secs()).into();
    json["done_at"] = done_at(table, receiver).into();
    json
}

/// Returns what a receiver and its sender know of its state.
pub(crate) fn row(name: &str, state: ReceiverState, transfer: &Transfer) -> Value {
    let failure = match state {
        ReceiverState::Failed(failure) => Some(failure.to_string()),
        _ => None,
    };
    json!({
        "name": name,
        "state": state.name(),
        "failure": failure,
        "bytes": transfer.bytes,
        "total_bytes": transfer.total_bytes,
        "rate_bits_per_s": transfer.rate.bits_per_s(),
    })
}
