//! The progress of a scenario's runs: a bar on a terminal, elsewhere a line now and then.

use std::time::{Duration, Instant};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use manyflow_scenario::{Job, Outcome, Progress, Scenario};

use manyflow_terminal::Display;

/// The minimum interval between lines: enough for a log, and not too much for one of a whole night.
const LINE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the progress of a set of runs.
pub(crate) struct RunsProgress<'a> {
    display: &'a Display,
    bar: ProgressBar,
    status: Status,
    started: Instant,
}

impl<'a> RunsProgress<'a> {
    /// Creates the progress of `jobs`, of which none has begun.
    pub(crate) fn new(
        display: &'a Display,
        scenario: &Scenario,
        jobs: &[Job],
    ) -> Result<RunsProgress<'a>> {
        let mut total = Duration::ZERO;
        for job in jobs {
            total += scenario.cell(job.cell)?.schema.run.duration.duration();
        }
        let status = Status {
            id: scenario.id().to_owned(),
            simulated: Duration::ZERO,
            total,
            ended: 0,
            runs: jobs.len(),
            told: Duration::ZERO,
        };
        Ok(RunsProgress {
            bar: bar(display, &status),
            display,
            status,
            started: Instant::now(),
        })
    }

    /// Handles the progress of runs on several threads.
    pub(crate) fn hear(&mut self, progress: &Progress) {
        match progress {
            Progress::Simulated(passed) => self.advance(*passed),
            Progress::Threads(Ok(work)) => tracing::info!("a run on {work}"),
            Progress::Threads(Err(why)) => tracing::info!("a run on one thread: {why}"),
            Progress::Ended(outcome, _) => self.end_run(outcome),
        }
    }

    /// Adds time that was simulated.
    pub(crate) fn advance(&mut self, passed: Duration) {
        self.status.simulated += passed;
        self.show();
    }

    /// Counts a run that has ended, and logs why it failed.
    pub(crate) fn end_run(&mut self, outcome: &Outcome) {
        self.status.ended += 1;
        if let Err(failed) = outcome {
            tracing::error!("{failed}");
        }
        self.show();
    }

    /// Removes the bar after the last run.
    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }

    fn show(&mut self) {
        self.bar
            .set_position(self.status.simulated.as_millis() as u64);
        self.bar.set_message(self.status.runs_done());
        if self.bar.is_hidden()
            && let Some(line) = self.status.line(self.started.elapsed())
        {
            self.display.print_note(&line);
        }
    }
}

fn bar(display: &Display, status: &Status) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{prefix} {bar:24.cyan/blue} {percent:>3}%  {msg}  {eta} left",
    );
    let bar = display.transfer(status.id.clone());
    bar.set_style(
        style
            .expect("the template is ours")
            .progress_chars("█▉▊▋▌▍▎▏ "),
    );
    bar.set_length(status.total.as_millis() as u64);
    bar.set_message(status.runs_done());
    bar
}

/// The state of a set of runs.
#[derive(Debug)]
struct Status {
    id: String,
    /// The time simulated so far, summed over all runs.
    simulated: Duration,
    total: Duration,
    ended: usize,
    runs: usize,
    /// The time of the last line, since the start.
    told: Duration,
}

impl Status {
    fn runs_done(&self) -> String {
        format!("{} of {} runs", self.ended, self.runs)
    }

    /// Returns the line that is due at `elapsed` since the start, if one is.
    fn line(&mut self, elapsed: Duration) -> Option<String> {
        if elapsed < self.told + LINE_INTERVAL {
            return None;
        }
        self.told = elapsed;
        let share = self.simulated.as_secs_f64() / self.total.as_secs_f64();
        Some(format!(
            "{}: {:.0} % simulated, {} done, after {} s",
            self.id,
            (share * 100.0).floor(),
            self.runs_done(),
            elapsed.as_secs()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_every_ten_seconds() {
        let mut status = Status {
            id: "webrc-4".to_owned(),
            simulated: Duration::from_secs(89),
            total: Duration::from_secs(600),
            ended: 2,
            runs: 6,
            told: Duration::ZERO,
        };
        let mut line = |ms| status.line(Duration::from_millis(ms));
        assert_eq!(line(9_999), None);
        let expected = "webrc-4: 14 % simulated, 2 of 6 runs done, after 12 s";
        assert_eq!(line(12_500).as_deref(), Some(expected));
        assert_eq!(line(22_400), None);
        assert!(line(22_500).is_some());
    }
}
