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

/// Says how much of the files has been received, unless it is all.
pub fn part_that_was_new(progress: &Progress) -> String {
    let objects = &progress.objects;
    match objects.earlier_bytes {
        0 => String::new(),
        _ => format!(
            " ({} new; the rest was here)",
            Bytes(objects.received_bytes())
        ),
    }
}

/// Prints what a receiver has stored.
///
/// # Errors
/// If the line cannot be printed.
pub fn report(display: &Display, received: &Received) -> Result<(), OutputError> {
    let bytes: u64 = received.files.iter().map(|file| file.bytes).sum();
    let seconds = received.elapsed.as_secs_f64();
    let objects = &received.progress.objects;
    let new = objects.received_bytes();
    let goodput = Rate::from_bits_per_s((new.min(bytes) as f64 * 8.0 / seconds) as u64);
    let files = received.files.len();
    let loss = received.progress.packets.loss();
    display.print_line(&format!(
        "{}, {}{} in {seconds:.1} s: {goodput}, loss {:.2} %",
        count_files(files),
        Bytes(bytes),
        part_that_was_new(&received.progress),
        loss * 100.0
    ))?;
    let names: Vec<_> = received
        .files
        .iter()
        .map(|file| json!({"name": file.name, "bytes": file.bytes}))
        .collect();
    display.print_json(&json!({
        "event": "done",
        "files": names,
        "bytes": bytes,
        "received_bytes": new,
        "earlier_bytes": objects.earlier_bytes,
        "seconds": seconds,
        "goodput_bits_per_s": goodput.bits_per_s(),
        "loss": loss,
        "packets_refused": received.progress.packets.refused,
        "refused": refused_json(&received.progress),
    }))
}
