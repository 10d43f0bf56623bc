//! Prints what a receiver of files has got.

use manyflow_core::units::{Bytes, Rate};
use manyflow_files::session::{Progress, Received};
use serde_json::{Value, json};

use crate::display::{Display, OutputError, count_files};

/// Prints the progress of a receiver as JSON, if that is asked for.
///
/// # Errors
/// If the line cannot be printed.
pub fn print_progress(display: &Display, progress: &Progress) -> Result<(), OutputError> {
    if !display.is_json() {
        return Ok(());
    }
    let (objects, webrc) = (&progress.objects, progress.webrc);
    display.print_json(&json!({
        "event": "progress",
        "bytes": objects.useful_bytes,
        "total_bytes": objects.needed_bytes,
        "files": objects.files_complete,
        "total_files": objects.files,
        "rate_bits_per_s": webrc.map(|status| status.received.bits_per_s()),
        "waves": webrc.map(|status| status.waves),
        "rtt_s": webrc.map(|status| status.rtt_s),
        "loss_probability": webrc.map(|status| status.loss_probability),
        "equation_bits_per_s": webrc.and_then(|status| status.equation).map(Rate::bits_per_s),
        "packets_received": progress.packets.received,
        "packets_lost": progress.packets.lost,
        "packets_marked": progress.packets.marked,
        "packets_refused": progress.packets.refused,
        "packets_unauthenticated": progress.packets.unauthenticated,
        "packets_forged": {
            "channel": progress.packets.forged.channel,
            "time_slot": progress.packets.forged.time_slot,
            "sequence_number": progress.packets.forged.sequence_number,
        },
        "refused": refused_json(progress),
    }))
}

/// Returns the counts of symbols and tables that were not used, by reason.
fn refused_json(progress: &Progress) -> Value {
    let objects = &progress.objects;
    let refused = &objects.refused;
    json!({
        "oti": refused.oti,
        "symbol_id": refused.symbol_id,
        "payload_length": refused.payload_length,
        "fdt": refused.fdt,
        "table": refused.table,
        "expired": refused.expired,
        "contradiction": refused.contradiction,
        "block": refused.block,
        "memory": refused.memory,
        "storage": refused.storage,
        "withdrawn_symbols": objects.withdrawn_symbols,
        "evicted_symbols": objects.evicted_symbols,
    })
}

/// Says how much of files with `bytes` has been received, unless it is all. Symbols of a file that
/// came before its copy here was found are not counted beyond that.
pub fn part_that_was_new(progress: &Progress, bytes: u64) -> String {
    let objects = &progress.objects;
    match objects.earlier_bytes {
        0 => String::new(),
        _ => format!(
            " ({} new; the rest was here)",
            Bytes(objects.received_bytes().min(bytes))
        ),
    }
}

/// Says what a receiver has stored, how fast, and with which loss.
fn summary(received: &Received) -> String {
    let progress = &received.progress;
    if received.files.is_empty() && progress.objects.earlier_bytes > 0 {
        return "no file is new: all were here".to_owned();
    }
    let bytes = bytes_of(received);
    let seconds = received.elapsed.as_secs_f64();
    format!(
        "{}, {}{} in {seconds:.1} s: {}, loss {:.2} %",
        count_files(received.files.len()),
        Bytes(bytes),
        part_that_was_new(progress, bytes),
        goodput(received),
        progress.packets.loss() * 100.0
    )
}

fn bytes_of(received: &Received) -> u64 {
    received.files.iter().map(|file| file.bytes).sum()
}

fn goodput(received: &Received) -> Rate {
    let new = received.progress.objects.received_bytes();
    let bits = new.min(bytes_of(received)) as f64 * 8.0;
    Rate::from_bits_per_s((bits / received.elapsed.as_secs_f64()) as u64)
}

/// Prints what a receiver has stored.
///
/// # Errors
/// If the line cannot be printed.
pub fn report(display: &Display, received: &Received) -> Result<(), OutputError> {
    display.print_line(&summary(received))?;
    let objects = &received.progress.objects;
    let names: Vec<_> = received
        .files
        .iter()
        .map(|file| json!({"name": file.name, "bytes": file.bytes}))
        .collect();
    display.print_json(&json!({
        "event": "done",
        "files": names,
        "bytes": bytes_of(received),
        "received_bytes": objects.received_bytes(),
        "earlier_bytes": objects.earlier_bytes,
        "seconds": received.elapsed.as_secs_f64(),
        "goodput_bits_per_s": goodput(received).bits_per_s(),
        "loss": received.progress.packets.loss(),
        "packets_refused": received.progress.packets.refused,
        "refused": refused_json(&received.progress),
    }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use manyflow_files::session::FileDone;

    use super::*;

    #[test]
    fn a_summary_counts_nothing_beyond_the_files_that_are_new() {
        let mut received = Received {
            files: Vec::new(),
            progress: Progress::default(),
            elapsed: Duration::from_secs(2),
        };
        let objects = &mut received.progress.objects;
        (objects.earlier_bytes, objects.useful_bytes) = (9_000, 12_000);
        assert_eq!(summary(&received), "no file is new: all were here");
        // An empty file is stored again, whatever came of the others.
        received.files.push(FileDone {
            name: "empty".to_owned(),
            bytes: 0,
        });
        let expected = "1 file, 0 B (0 B new; the rest was here) in 2.0 s: 0 bit/s, loss 0.00 %";
        assert_eq!(summary(&received), expected);
        received.files[0].bytes = 5_000;
        let expected =
            "1 file, 5 kB (3 kB new; the rest was here) in 2.0 s: 12 kbit/s, loss 0.00 %";
        assert_eq!(summary(&received), expected);
    }
}
