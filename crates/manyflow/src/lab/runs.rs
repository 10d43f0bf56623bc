//! Runs of scenarios, each in a thread of its own.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use manyflow_results::{Provenance, Results};
use manyflow_scenario::{Inspection, Job, Outcome, Sample, Scenario, ScenarioError};
use serde_json::{Value, json};

use super::log::Log;
use super::pace::{Pace, Speed};

/// The maximum number of runs at a time.
const RUNNING_MAX: usize = 4;
/// The maximum number of runs that are kept for exports and for pages that load again.
const KEPT_MAX: usize = 16;
/// The minimum time between two events: pages draw at most so often.
const EVENT_INTERVAL: Duration = Duration::from_millis(33);
/// The maximum length of the events of a run. A browser has to hold all of them.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// The runs of the lab, by their numbers.
#[derive(Default)]
pub(super) struct Runs(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    runs: BTreeMap<u64, Arc<LabRun>>,
    /// The number of the latest run.
    latest: u64,
}

/// A run.
pub(super) struct LabRun {
    scenario: Scenario,
    job: Job,
    pub(super) pace: Pace,
    pub(super) log: Arc<Log>,
    outcome: OnceLock<[Outcome; 1]>,
}

impl Runs {
    /// Starts a run. Returns its number, or `None` if as many as possible are running.
    pub(super) fn start(&self, scenario: Scenario, job: Job, speed: Speed) -> Option<u64> {
        let mut kept = self.lock();
        let running = kept.runs.values().filter(|run| !run.log.is_over());
        if running.count() >= RUNNING_MAX {
            return None;
        }
        kept.forget_oldest();
        let run = Arc::new(LabRun {
            scenario,
            job,
            pace: Pace::default(),
            log: Arc::default(),
            outcome: OnceLock::new(),
        });
        run.pace.set(speed);
        kept.latest += 1;
        let number = kept.latest;
        kept.runs.insert(number, Arc::clone(&run));
        std::thread::spawn(move || run.make());
        Some(number)
    }

    pub(super) fn find(&self, number: u64) -> Option<Arc<LabRun>> {
        self.lock().runs.get(&number).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn forget_oldest(&mut self) {
        let mut over = self.runs.iter().filter(|(_, run)| run.log.is_over());
        let oldest = over.next().map(|(number, _)| *number);
        if self.runs.len() >= KEPT_MAX
            && let Some(number) = oldest
        {
            self.runs.remove(&number);
        }
    }
}

impl LabRun {
    /// Makes the run, on the current thread.
    fn make(&self) {
        let began = Instant::now();
        let mut batch = Batch {
            run: self,
            samples: Vec::new(),
            sent: None,
            is_too_long: false,
        };
        let outcome = self.scenario.run_inspected(
            self.job,
            Inspection {
                watch: Some(&mut |sample| batch.take(sample)),
                ..Inspection::default()
            },
        );
        batch.flush();
        let is_too_long = batch.is_too_long;
        let outcome = self.outcome.get_or_init(|| [outcome]);
        let ended = match &outcome[0] {
            Err(failed) if is_too_long => Err(format!(
                "this run has more points than a page can hold: use a larger `run.bin`, fewer series or a \
                 shorter run ({failed})"
            )),
            Err(failed) => Err(failed.message.clone()),
            Ok(_) => self.conclusion().map_err(|error| error.to_string()),
        };
        match ended {
            Ok(mut conclusion) => {
                conclusion["seconds"] = began.elapsed().as_secs_f64().into();
                self.log.end("done", &conclusion);
            }
            Err(message) => self.log.end("failed", &json!({"message": message})),
        }
    }

    /// Returns the results of the run; `None` before its end, and if it failed.
    pub(super) fn results(&self) -> Option<Result<Results<'_>, ScenarioError>> {
        let outcome = self.outcome.get()?;
        outcome[0].as_ref().ok()?;
        let provenance = Provenance {
            commit: option_env!("MANYFLOW_COMMIT").map(str::to_owned),
            toolchain: option_env!("MANYFLOW_TOOLCHAIN").map(str::to_owned),
        };
        let outline = self.scenario.outline();
        Some(outline.map(|outline| Results::new(outline, &[self.job], outcome, provenance)))
    }

    /// Returns what the page shows after the run: measures and expectations.
    fn conclusion(&self) -> Result<Value, ScenarioError> {
        let Some(results) = self.results() else {
            return Ok(json!({}));
        };
        let results = results?;
        let cell = &results.cells()[self.job.cell];
        let measures = cell.cell.measure.iter().map(|measure| {
            let value = &cell.environment[&measure.name];
            json!({
                "name": measure.name,
                "value": value.values.first(),
                "unit": value.dimension.unit(),
                "shown": value.shown(),
            })
        });
        let expectations = results.expectations().iter().map(|checked| {
            json!({
                "what": checked.what,
                "shown": checked.shown(),
                "bounds": checked.bounds(),
                "verdict": checked.verdict.word(),
                "note": checked.note,
                "paper": checked.paper,
            })
        });
        Ok(json!({
            "measures": measures.collect::<Vec<_>>(),
            "expectations": expectations.collect::<Vec<_>>(),
            "ends": self.level_ends(),
            "transmissions": self.made().map(|run| run.transmissions),
            "receivers": self.made().map(|run| run.receivers),
        }))
    }

    fn made(&self) -> Option<&manyflow_scenario::Run> {
        self.outcome
            .get()
            .and_then(|outcome| outcome[0].as_ref().ok())
    }

    /// Returns the times at which levels end: plot, line, subject, channel and times of each series
    /// that has some.
    fn level_ends(&self) -> Vec<Value> {
        let plots = self
            .made()
            .into_iter()
            .flat_map(|run| run.series.iter().enumerate());
        let lines = plots.flat_map(|(plot, lines)| {
            let lines = lines.iter().enumerate();
            lines.flat_map(move |(line, all)| all.iter().map(move |series| (plot, line, series)))
        });
        let ending = lines.filter(|(_, _, series)| !series.ends_s.is_empty());
        let ending = ending.map(|(plot, line, series)| {
            json!([plot, line, series.of, series.channel, series.ends_s])
        });
        ending.collect()
    }

    /// Returns the name of the scenario with cell and seed, for names of files.
    pub(super) fn name(&self) -> String {
        let Job { cell, seed, .. } = self.job;
        format!("{}-cell{cell}-seed{seed}", self.scenario.id())
    }
}

/// The samples that have not been sent.
struct Batch<'a> {
    run: &'a LabRun,
    samples: Vec<Sample>,
    /// The time of the last event.
    sent: Option<Instant>,
    is_too_long: bool,
}

impl Batch<'_> {
    /// Takes a sample, sends it if it is time, and holds the run back.
    fn take(&mut self, sample: Sample) -> ControlFlow<()> {
        let simulated_s = sample.time_s;
        self.samples.push(sample);
        let is_due = self
            .sent
            .is_none_or(|sent| sent.elapsed() >= EVENT_INTERVAL);
        if is_due || self.run.pace.would_wait(simulated_s) {
            self.flush();
        }
        match self.is_too_long {
            true => ControlFlow::Break(()),
            false => self.run.pace.wait(simulated_s),
        }
    }

    fn flush(&mut self) {
        if self.samples.is_empty() {
            return;
        }
        let bytes = self.run.log.push("samples", &self.samples);
        self.is_too_long = bytes > EVENT_BYTES_MAX;
        self.samples.clear();
        self.sent = Some(Instant::now());
    }
}
