//! Runs of scenarios: single ones, which pages watch, and all runs of a sweep.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use manyflow_lab::{Prepared, SweepProgress, Work};
use manyflow_results::Results;
use manyflow_scenario::{
    Inspection, Job, Outcome, Progress, Sample, Scenario, ScenarioError, Stop,
};
use serde_json::{Value, json};

use super::log::Log;
use super::pace::{Pace, Speed};
use crate::cli::threads;
use crate::runs::provenance;

/// The maximum number of runs at a time.
const RUNNING_MAX: usize = 4;
/// The maximum number of runs that are kept for exports and for pages that load again.
const KEPT_MAX: usize = 16;
/// The minimum time between two events: pages draw at most so often.
const EVENT_INTERVAL: Duration = Duration::from_millis(33);
/// The minimum time between two reports of a sweep's progress.
const REPORT_INTERVAL: Duration = Duration::from_millis(100);
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

/// A run, or all runs of a sweep.
pub(super) struct LabRun {
    scenario: Scenario,
    work: Work,
    /// The speed of a single run. Those of a sweep are as fast as they can be.
    pub(super) pace: Pace,
    stop: Stop,
    pub(super) log: Arc<Log>,
    outcomes: OnceLock<Vec<Outcome>>,
}

impl Runs {
    /// Starts a run, or a sweep. Returns its number, or `None` if as many as possible are running.
    pub(super) fn start(&self, prepared: Prepared, speed: Speed) -> Option<u64> {
        let mut kept = self.lock();
        let running = kept.runs.values().filter(|run| !run.log.is_over());
        if running.count() >= RUNNING_MAX {
            return None;
        }
        kept.forget_oldest();
        let run = Arc::new(LabRun {
            scenario: prepared.scenario,
            work: prepared.work,
            pace: Pace::default(),
            stop: Stop::default(),
            log: Arc::default(),
            outcomes: OnceLock::new(),
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
    /// Makes the runs, on this thread and, in a sweep, on others.
    fn make(&self) {
        let began = Instant::now();
        let ended = match &self.work {
            Work::One(job) => self.make_one(*job),
            Work::All(jobs) => self.make_all(jobs),
        };
        match ended {
            Ok(mut conclusion) => {
                conclusion["seconds"] = began.elapsed().as_secs_f64().into();
                self.log.end("done", &conclusion);
            }
            Err(message) => self.log.end("failed", &json!({"message": message})),
        }
    }

    /// Makes a single run. Returns what the page shows after it, or why it failed.
    fn make_one(&self, job: Job) -> Result<Value, String> {
        let mut batch = Batch {
            run: self,
            samples: Vec::new(),
            sent: None,
            is_too_long: false,
        };
        let outcome = self.scenario.run_inspected(
            job,
            Inspection {
                watch: Some(&mut |sample| batch.take(sample)),
                ..Inspection::default()
            },
        );
        batch.flush();
        let is_too_long = batch.is_too_long;
        let outcomes = self.outcomes.get_or_init(|| vec![outcome]);
        match &outcomes[0] {
            Err(failed) if is_too_long => Err(format!(
                "this run has more points than a page can hold: use a larger `run.bin`, fewer series or a \
                 shorter run ({failed})"
            )),
            Err(failed) => Err(failed.message.clone()),
            Ok(run) => self.conclude(|results| manyflow_lab::conclusion_of_one(results, job, run)),
        }
    }

    /// Makes all runs of a sweep. Returns what the page shows after them, or why there is nothing.
    fn make_all(&self, jobs: &[Job]) -> Result<Value, String> {
        let mut progress = SweepProgress::new(&self.scenario, jobs);
        let mut reported: Option<Instant> = None;
        let mut hear = |news: Progress<'_>| {
            progress.hear(&news);
            if reported.is_none_or(|reported| reported.elapsed() >= REPORT_INTERVAL) {
                reported = Some(Instant::now());
                self.log.push("progress", &progress.report());
            }
        };
        let threads = threads(None);
        let outcomes = self
            .scenario
            .run_until_stopped(jobs, threads, &self.stop, &mut hear);
        if self.stop.is_requested() {
            return Err("the sweep was stopped".to_owned());
        }
        self.outcomes.get_or_init(|| outcomes);
        self.conclude(manyflow_lab::conclusion_of_all)
    }

    fn conclude(&self, conclusion: impl FnOnce(&Results<'_>) -> Value) -> Result<Value, String> {
        let results = self.results().expect("the runs are over, and have results");
        let concluded = results.map(|results| conclusion(&results));
        concluded.map_err(|error| error.to_string())
    }

    /// Ends the run, or the sweep.
    pub(super) fn stop(&self) {
        self.pace.stop();
        self.stop.request();
    }

    /// Returns the results; `None` before the end, and if a single run failed.
    pub(super) fn results(&self) -> Option<Result<Results<'_>, ScenarioError>> {
        let outcomes = self.outcomes.get()?;
        if let (Work::One(_), [Err(_)]) = (&self.work, &outcomes[..]) {
            return None;
        }
        Some(manyflow_lab::results(
            &self.scenario,
            &self.work,
            outcomes,
            provenance(),
        ))
    }

    /// Returns the name of the run for names of files.
    pub(super) fn name(&self) -> String {
        self.work.name(&self.scenario)
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
