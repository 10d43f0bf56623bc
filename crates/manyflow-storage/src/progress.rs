//! The progress of a transfer: a bar on a terminal, elsewhere a line now and then, or JSON.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use manyflow_core::units::{Bytes, Rate};
use manyflow_ensembles::store::Progress;
use serde_json::json;

use manyflow_terminal::display::{Display, OutputError};

/// The interval between two objects with `--json`.
const JSON_INTERVAL: Duration = Duration::from_secs(1);
/// The interval between two lines where no bar is shown.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the progress of one file.
pub(crate) struct TransferProgress<'a> {
    display: &'a Display,
    name: &'a str,
    bar: ProgressBar,
    started: Instant,
    next_report: Instant,
    /// The first error of the output, which ends the reports.
    failure: Option<OutputError>,
}

impl<'a> TransferProgress<'a> {
    pub(crate) fn new(display: &'a Display, name: &'a str) -> TransferProgress<'a> {
        let started = Instant::now();
        let interval = match display.is_json() {
            true => JSON_INTERVAL,
            false => LINE_INTERVAL,
        };
        TransferProgress {
            display,
            name,
            bar: display.transfer(name.to_owned()),
            started,
            next_report: started + interval,
            failure: None,
        }
    }

    /// Shows how far the transfer is.
    pub(crate) fn show(&mut self, progress: Progress) {
        self.bar.set_length(progress.total);
        self.bar.set_position(progress.bytes);
        let now = Instant::now();
        if now < self.next_report || self.failure.is_some() {
            return;
        }
        let (name, Progress { bytes, total }) = (self.name, progress);
        if self.display.is_json() {
            self.next_report = now + JSON_INTERVAL;
            let printed = self.display.print_json(&json!({
                "event": "progress", "name": name, "bytes": bytes, "total_bytes": total,
            }));
            self.failure = printed.err();
        } else if self.bar.is_hidden() {
            self.next_report = now + LINE_INTERVAL;
            let (bytes, total) = (Bytes(bytes), Bytes(total));
            self.display
                .print_note(&format!("{name}: {bytes} of {total}"));
        }
    }

    /// Removes the bar. Returns the time that the transfer took.
    ///
    /// # Errors
    /// If standard output could not be written to.
    pub(crate) fn finish(self) -> Result<Duration, OutputError> {
        self.bar.finish_and_clear();
        self.failure.map_or(Ok(self.started.elapsed()), Err)
    }
}

/// Returns the average rate of `bytes` in `elapsed`.
pub(crate) fn rate(bytes: u64, elapsed: Duration) -> Rate {
    let seconds = elapsed.as_secs_f64().max(1e-6);
    Rate::from_bits_per_s((bytes as f64 * 8.0 / seconds) as u64)
}
