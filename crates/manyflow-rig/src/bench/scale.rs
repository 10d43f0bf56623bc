//! `manyflow-rig bench scale`: measures WEBRC simulations of one receiver to a million.
//!
//! Each cell of the scenario `x-scale` runs in a process of its own, so that the kernel's maximum
//! resident memory covers everything. The memory of a receiver is the difference between its cell
//! and the cell with a single receiver, divided by the number of receivers.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use manyflow_terminal::display::{Display, OutputError};

/// The number of cells of the scenario, in ascending order of receivers.
const CELLS: usize = 5;
/// Limit for the memory of a receiver in bytes, checked in cells with at least `RECEIVERS_MIN`
/// receivers, where the memory of the program itself does not matter.
const BOUND: f64 = 2048.0;
const RECEIVERS_MIN: f64 = 10_000.0;

pub(crate) fn run(display: &Display) -> Result<()> {
    // The program has the scenario. In an empty folder, none of the user's has its name.
    let folder = tempfile::tempdir()?;
    display.print_line(&format!(
        "{:>10} {:>14} {:>8} {:>16} {:>10} {:>12}",
        "receivers", "transmissions", "CPU s", "million per s", "MB", "B/receiver"
    ))?;
    let alone = measure(folder.path(), 0)?;
    print_cell(display, &alone, None)?;
    let mut largest = 0.0;
    for cell in 1..CELLS {
        let measured = measure(folder.path(), cell)?;
        let share =
            (measured.memory_bytes - alone.memory_bytes) / (measured.receivers - alone.receivers);
        print_cell(display, &measured, Some(share))?;
        if measured.receivers >= RECEIVERS_MIN {
            largest = f64::max(largest, share);
        }
    }
    if largest > BOUND {
        bail!("a receiver takes {largest:.0} bytes, more than {BOUND}");
    }
    Ok(())
}

struct Measured {
    receivers: f64,
    transmissions: f64,
    cpu_s: f64,
    memory_bytes: f64,
}

fn measure(folder: &Path, cell: usize) -> Result<Measured> {
    let program = crate::program::manyflow()?;
    let mut command = Command::new(program);
    command.current_dir(folder);
    // Several threads would take more memory, and time in which they wait.
    command.args(["sim", "x-scale", "--json", "--threads", "1", "--cell"]);
    let output = command.arg(cell.to_string()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    // A single cell does not meet expectations on all cells, so the exit code is ignored; the
    // output shows whether it ran.
    let mut events = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    let done = events.find(|event: &Value| event["event"] == "done");
    let done = done.with_context(|| {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        format!("cell {cell} of {} failed: {error}", folder.display())
    })?;
    ensure!(done["failed_runs"] == 0, "cell {cell} failed");
    let number = |key: &str| {
        done[key]
            .as_f64()
            .context("the program's summary lacks a number")
    };
    Ok(Measured {
        receivers: number("receivers")?,
        transmissions: number("transmissions")?,
        cpu_s: number("cpu_seconds")?,
        memory_bytes: number("memory_bytes")?,
    })
}

fn print_cell(
    display: &Display,
    measured: &Measured,
    share: Option<f64>,
) -> Result<(), OutputError> {
    let per_second = measured.transmissions / measured.cpu_s;
    display.print_line(&format!(
        "{:>10} {:>14} {:>8.2} {:>16.2} {:>10.1} {:>12}",
        measured.receivers,
        measured.transmissions,
        measured.cpu_s,
        per_second / 1e6,
        measured.memory_bytes / 1e6,
        share.map_or("-".to_owned(), |share| format!("{share:.0}")),
    ))?;
    display.print_json(&json!({
        "event": "scale",
        "receivers": measured.receivers,
        "transmissions": measured.transmissions,
        "transmissions_per_cpu_second": per_second,
        "memory_bytes": measured.memory_bytes,
        "bytes_per_receiver": share,
    }))
}
