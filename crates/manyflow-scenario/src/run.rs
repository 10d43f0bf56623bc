//! Runs all seeds of all cells of a scenario on several threads. Each run is a pure function of
//! scenario and seed. The results are in the order of cells and seeds, regardless of the threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use crate::file::Scenario;
use crate::plan::Plan;
use crate::protocols::Network;
use crate::record::Recorder;
use crate::record::inspect::{Ended, Inspection, Inspector, names};
use crate::scene::Scene;
use crate::world::World;
use manyflow_model::error::{Fault, ScenarioError};
use manyflow_model::measure::{AllSeries, scalar};
use manyflow_model::outcome::guarded;
use manyflow_model::{FailedRun, Job, Observable, Outcome, Run};
use manyflow_netsim::{Halt, Stop, Windows};

/// The message of a run that its watcher has stopped.
const STOPPED: &str = "the run was stopped";

/// The reason why one thread makes a run whose network cannot be divided.
const UNDIVIDED: &str = "no links with a delay divide its network into parts of similar size";

/// A report of progress while runs are made.
#[derive(Copy, Clone, Debug)]
pub enum Progress<'a> {
    /// A run has simulated this much more time, about a hundredth of its duration.
    Simulated(Duration),
    /// A run that could use several threads has used them, or only one, for this reason.
    Threads(Result<Windows, &'static str>),
    /// A run has ended, and this number of runs remains.
    Ended(&'a Outcome, usize),
}

/// The reason why a run has no result.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the run needs one thread: {0}")]
    OneThread(&'static str),
    #[error("{0}")]
    Fault(Fault),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::Fault(fault)
    }
}

/// A report of progress on its way from a thread.
enum Message {
    Simulated(Duration),
    Threads(Result<Windows, &'static str>),
    /// The job at this index has ended.
    Ended(usize, Outcome),
}

impl Scenario {
    /// Returns all runs of the scenario, in order of cells and seeds.
    ///
    /// # Errors
    /// Returns no error after the scenario has been parsed.
    pub fn jobs(&self) -> Result<Vec<Job>, ScenarioError> {
        let mut jobs = Vec::new();
        for cell in 0..self.cells() {
            let run = self.cell(cell)?.schema.run;
            let first = u64::from(run.first_seed.get());
            jobs.extend((0..run.seeds.get()).map(|place| Job {
                cell,
                seed: first + u64::from(place),
                place,
            }));
        }
        Ok(jobs)
    }

    /// Makes these runs on `threads` threads. If there are fewer runs than threads, a run uses
    /// several of them, where that is faster. Calls `progress` on the current thread.
    pub fn run(
        &self,
        jobs: &[Job],
        threads: usize,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Vec<Outcome> {
        self.run_until_stopped(jobs, threads, &Stop::default(), progress)
    }

    /// Makes these runs as [`run`](Scenario::run) does. A request to `stop` ends those that have
    /// not ended: they fail.
    pub fn run_until_stopped(
        &self,
        jobs: &[Job],
        threads: usize,
        stop: &Stop,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Vec<Outcome> {
        let next = AtomicUsize::new(0);
        let plans = Plans::default();
        let (reports, received) = mpsc::channel();
        let mut outcomes = vec![None; jobs.len()];
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, jobs.len().max(1)) {
                let (reports, next, plans) = (reports.clone(), &next, &plans);
                scope.spawn(move || {
                    let take = || next.fetch_add(1, Ordering::Relaxed);
                    let report = |message| {
                        reports
                            .send(message)
                            .expect("the receiver exists until all threads have ended");
                    };
                    while let (index, Some(job)) = pair(take(), jobs) {
                        let threads = threads / jobs.len();
                        let outcome = self.make(plans, *job, threads, stop, &report);
                        report(Message::Ended(index, outcome));
                    }
                });
            }
            drop(reports);
            let mut left = jobs.len();
            for message in received {
                match message {
                    Message::Simulated(passed) => progress(Progress::Simulated(passed)),
                    Message::Threads(work) => progress(Progress::Threads(work)),
                    Message::Ended(index, outcome) => {
                        left -= 1;
                        progress(Progress::Ended(&outcome, left));
                        outcomes[index] = Some(outcome);
                    }
                }
            }
        });
        let done = |outcome: Option<Outcome>| outcome.expect("every job was done");
        outcomes.into_iter().map(done).collect()
    }

    /// Makes one run. A panic, or a packet that is not accounted for, fails only this run.
    pub fn run_one(&self, job: Job) -> Outcome {
        self.run_inspected(job, Inspection::default())
    }

    /// Makes one run as [`run_one`](Scenario::run_one) does, and writes the outputs of
    /// `inspection`. The run fails if they cannot be written.
    pub fn run_inspected(&self, job: Job, inspection: Inspection) -> Outcome {
        self.run_in(Box::new(Network::new(job.seed)), job, inspection)
    }

    /// Makes one run in `world`, which must not have nodes yet. Its random streams depend on the
    /// run's seed.
    pub fn run_in(&self, world: Box<dyn World>, job: Job, inspection: Inspection) -> Outcome {
        self.run_planned(&Plans::default(), world, job, inspection)
    }

    /// Returns the failure of a run for the reason in `message`, with the command that repeats it.
    pub fn failed(&self, job: Job, message: String) -> FailedRun {
        let Job { cell, seed, .. } = job;
        FailedRun {
            cell,
            seed,
            message,
            replay: replay(self, job),
        }
    }

    /// Makes a run on several threads, and if it needs one thread, again on one.
    fn make(
        &self,
        plans: &Plans,
        job: Job,
        threads: usize,
        stop: &Stop,
        report: &dyn Fn(Message),
    ) -> Outcome {
        let mut reported = Duration::ZERO;
        let mut attempt = |plan: &Arc<Plan>, threads| {
            let mut passed = Duration::ZERO;
            let mut progress = |more| {
                passed += more;
                if passed > reported {
                    report(Message::Simulated(passed - reported));
                    reported = passed;
                }
            };
            let inspection = Inspection {
                progress: Some(&mut progress),
                ..Inspection::default()
            };
            let mut world = Box::new(Network::new(job.seed));
            world.set_stop(stop.clone());
            world.set_threads(threads);
            run(plan, world, job, inspection)
        };
        let made = guarded(|| {
            let plan = plans.plan(self, job.cell)?;
            let one = |reason| (Err(reason), 1);
            let (reason, threads) = match (self.controls.is_empty(), threads) {
                (_, ..=1) => one(""),
                (false, _) => one("the caller's controls may share a state"),
                (true, _) => (Ok(()), threads),
            };
            let (made, work) = match attempt(&plan, threads) {
                Err(Failure::OneThread(reason)) => (attempt(&plan, 1), Err(reason)),
                made => (made, reason),
            };
            let (made, windows) = made.map_err(|failure| failure.to_string())?;
            Ok((made, work.and(windows.ok_or(UNDIVIDED))))
        });
        let (made, work) = made.map_err(|message| self.failed(job, message))?;
        if threads > 1 {
            report(Message::Threads(work));
        }
        Ok(made)
    }

    fn run_planned(
        &self,
        plans: &Plans,
        world: Box<dyn World>,
        job: Job,
        inspection: Inspection,
    ) -> Outcome {
        let failed = |message| self.failed(job, message);
        guarded(|| {
            let plan = plans.plan(self, job.cell)?;
            let made = run(&plan, world, job, inspection);
            made.map(|(run, _)| run)
                .map_err(|failure| failure.to_string())
        })
        .map_err(failed)
    }
}

/// The plan of the latest cell, which its runs with other seeds share. Runs are taken cell by cell.
#[derive(Default)]
struct Plans(Mutex<Option<(usize, Arc<Plan>)>>);

impl Plans {
    fn plan(&self, scenario: &Scenario, cell: usize) -> Result<Arc<Plan>, String> {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, plan)) = &*latest
            && *known == cell
        {
            return Ok(Arc::clone(plan));
        }
        let tables = scenario.cell(cell).map_err(|error| error.to_string())?;
        let mut plan = Plan::new(tables).map_err(|fault| fault.to_string())?;
        plan.controls = scenario.controls.clone();
        let plan = Arc::new(plan);
        *latest = Some((cell, Arc::clone(&plan)));
        Ok(plan)
    }
}

/// Returns the command that repeats a run.
fn replay(scenario: &Scenario, Job { cell, seed, .. }: Job) -> String {
    let fast = if scenario.is_fast() { " --fast" } else { "" };
    let file = scenario.file();
    let settings = scenario.settings().iter();
    // Single quotation marks keep a shell from reading the value.
    let settings = settings.map(|text| format!(" --set '{}'", text.replace('\'', "'\\''")));
    let settings: String = settings.collect();
    format!("manyflow sim {file}{fast}{settings} --cell {cell} --seed {seed}")
}

fn pair(index: usize, jobs: &[Job]) -> (usize, Option<&Job>) {
    (index, jobs.get(index))
}

fn run(
    plan: &Arc<Plan>,
    world: Box<dyn World>,
    job: Job,
    inspection: Inspection,
) -> Result<(Run, Option<Windows>), Failure> {
    let mut scene = Scene::new(Arc::clone(plan), world)?;
    let cell = &plan.cell;
    let mut recorder = Recorder::new(cell, &mut scene)?;
    let mut inspector = Inspector::new(inspection, cell, &recorder, &mut scene)?;
    let end = cell.schema.run.duration.time();
    if !inspector.needs_all_events() {
        recorder.mute_others(&mut scene);
    }
    let ended = recorder.run(&mut scene, end, &mut inspector);
    ended.map_err(|ended| match ended {
        Ended::Halted(Halt::OneThread(reason)) => Failure::OneThread(reason),
        Ended::Halted(halt) => Failure::Fault(given_up(&scene, halt)),
        Ended::Stopped => Failure::Fault(Fault::value(STOPPED)),
    })?;
    inspector.finish(&recorder, &mut *scene.network)?;
    scene.network.check_accounting().map_err(Fault::value)?;
    let measures = cell.schema.measure.iter();
    let observed = |what: Observable, of, bin_s: f64| -> AllSeries<'_> {
        Box::new(recorder.series(&scene, what, of, bin_s))
    };
    let parameters = &cell.parameters;
    let measures = measures.map(|measure| scalar(measure, &cell.schema.run, parameters, &observed));
    let bin = cell.schema.run.bin;
    let mut series = Vec::new();
    for plot in &cell.schema.plots {
        let lines = plot.series.iter().filter(|_| job.place < plot.seeds.get());
        let recorded = lines
            .map(|line| recorder.series(&scene, line.what, &line.of, line.bin.unwrap_or(bin).0))
            .map(Iterator::collect);
        series.push(recorded.collect());
    }
    let run = Run {
        cell: job.cell,
        seed: job.seed,
        measures: measures.collect::<Result<_, _>>()?,
        series,
        transmissions: scene.network.transmissions(),
        receivers: plan.sessions.receivers(),
    };
    Ok((run, scene.network.windows()))
}

/// Returns the reason why the world halted, with the scenario's names.
fn given_up(scene: &Scene, halt: Halt) -> Fault {
    match halt {
        Halt::ZeroTimeLoop {
            at,
            mut endpoints,
            links,
        } => {
            let names = names(scene);
            for (id, name) in &mut endpoints {
                let (node, of) = &names.endpoints[id.0 as usize];
                *name = format!("`{of}` at {node}");
            }
            Fault::value(Halt::ZeroTimeLoop {
                at,
                endpoints,
                links,
            })
        }
        Halt::TooManyCarried { .. } => Fault::value(halt)
            .within("carried-packets-max")
            .within("run"),
        _ => Fault::value(halt),
    }
}
