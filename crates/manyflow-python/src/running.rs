//! Runs in threads of their own. Python's thread waits without the GIL, and wakes to handle signals
//! and to report progress.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use manyflow_scenario::{Job, Outcome, Progress, Scenario, Stop};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::control::{Failure, controls};
use crate::results::Results;

/// The interval at which signals are handled.
const SIGNALS: Duration = Duration::from_millis(20);
/// The interval at which progress is reported.
const REPORTS: Duration = Duration::from_millis(100);
/// The maximum time to wait for the threads of runs that were stopped. An event takes microseconds,
/// but a network of a million nodes takes seconds to build.
const GRACE: Duration = Duration::from_millis(100);

/// Counts what all runs together have done.
#[derive(Default)]
struct Done {
    simulated_ns: AtomicU64,
    runs: AtomicU64,
}

impl Done {
    fn hear(&self, progress: &Progress<'_>) {
        match progress {
            Progress::Simulated(passed) => {
                self.simulated_ns
                    .fetch_add(passed.as_nanos() as u64, Ordering::Relaxed);
            }
            Progress::Threads(_) => {}
            Progress::Ended(..) => {
                self.runs.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Calls `progress` with the simulated seconds and the number of runs that have ended.
    fn report(&self, py: Python<'_>, progress: &Py<PyAny>) -> PyResult<()> {
        let simulated_s = self.simulated_ns.load(Ordering::Relaxed) as f64 / 1e9;
        let runs = self.runs.load(Ordering::Relaxed);
        progress.call1(py, (simulated_s, runs)).map(drop)
    }
}

/// Runs that are to be made.
pub(crate) struct Runs {
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) threads: usize,
}

impl Runs {
    /// Makes the runs. An exception of a signal handler, of `progress` or of a control stops them.
    pub(crate) fn run(
        self,
        py: Python<'_>,
        progress: Option<&Py<PyAny>>,
        makers: BTreeMap<String, Py<PyAny>>,
    ) -> PyResult<Results> {
        let stop = Stop::default();
        let failure = Failure::new(stop.clone());
        let scenario = match makers.is_empty() {
            true => Arc::clone(&self.scenario),
            false => {
                Arc::new(Scenario::clone(&self.scenario).with_controls(controls(makers, &failure)))
            }
        };
        let done = Arc::new(Done::default());
        let mut ended = self.start(scenario, &stop, &done);
        let outcomes = wait(py, &mut ended, || {
            progress.map_or(Ok(()), |progress| done.report(py, progress))
        });
        let outcomes = outcomes.inspect_err(|_| {
            stop.request();
            let ended = &mut ended;
            let _ = py.detach(move || ended.recv_timeout(GRACE));
        })?;
        match failure.take() {
            Some(error) => Err(error),
            None => py.detach(|| Results::new(self.scenario, self.jobs, outcomes)),
        }
    }

    /// Begins the runs in other threads.
    fn start(
        &self,
        scenario: Arc<Scenario>,
        stop: &Stop,
        done: &Arc<Done>,
    ) -> mpsc::Receiver<Vec<Outcome>> {
        let (sender, ended) = mpsc::sync_channel(1);
        let (jobs, threads) = (self.jobs.clone(), self.threads);
        let (stop, done) = (stop.clone(), Arc::clone(done));
        std::thread::spawn(move || {
            let outcomes =
                scenario.run_until_stopped(&jobs, threads, &stop, &mut |news| done.hear(&news));
            // Nobody waits for runs that were stopped.
            let _ = sender.send(outcomes);
        });
        ended
    }
}

/// Waits for the end of all runs.
fn wait(
    py: Python<'_>,
    ended: &mut mpsc::Receiver<Vec<Outcome>>,
    mut report: impl FnMut() -> PyResult<()>,
) -> PyResult<Vec<Outcome>> {
    let mut reported = Instant::now();
    loop {
        let news = &mut *ended;
        match py.detach(move || news.recv_timeout(SIGNALS)) {
            Ok(outcomes) => {
                report()?;
                return Ok(outcomes);
            }
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("the thread of the runs panicked"));
            }
        }
        if reported.elapsed() >= REPORTS {
            reported = Instant::now();
            report()?;
        }
    }
}
