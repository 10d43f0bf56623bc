//! Running a scenario: every seed of every cell, spread over threads. Each run is a pure function
//! of scenario and seed, and the results stand in the order of cells and seeds, whichever thread
//! was faster.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use crate::error::{Fault, ScenarioError};
use crate::file::Scenario;
use crate::measure::scalar;
use crate::plan::Plan;
use crate::protocols::Network;
use crate::record::inspect::{Inspection, Inspector, names};
use crate::record::{Recorder, Series};
use crate::scene::Scene;
use crate::world::World;
use manyflow_netsim::Halt;

/// The stack of a thread that runs simulations: endpoints at one node that answer each other at one
/// instant nest on it.
const STACK_BYTES: usize = 16 << 20;

/// What a run gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its cell.
    pub cell: usize,
    /// Its seed.
    pub seed: u64,
    /// The number of each measure of the scenario; NaN where nothing was observed, and for
    /// formulas.
    pub measures: Vec<f64>,
    /// For each plot over time the series of each of its lines; empty in runs that no plot shows.
    pub series: Vec<Vec<Vec<Series>>>,
    /// Packets that all links delivered: the work of the run.
    pub transmissions: u64,
    /// Receivers of all sessions.
    pub receivers: u64,
}

/// A run that failed, alone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cell {cell}, seed {seed}: {message}; to see it again: {replay}")]
pub struct FailedRun {
    /// Its cell.
    pub cell: usize,
    /// Its seed.
    pub seed: u64,
    /// What went wrong.
    pub message: String,
    /// The command that runs it again.
    pub replay: String,
}

/// One run of a cell of a scenario.
pub type Outcome = Result<Run, FailedRun>;

/// What is heard of runs while they are made.
#[derive(Copy, Clone, Debug)]
pub enum Progress<'a> {
    /// One of them has simulated so much more time: some hundredth of its duration.
    Simulated(Duration),
    /// One has ended, and so many are still to come.
    Ended(&'a Outcome, usize),
}

/// The same, on its way from a thread.
enum News {
    Simulated(Duration),
    /// The run at this place.
    Ended(usize, Outcome),
}

/// A run to be made.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The cell.
    pub cell: usize,
    /// The seed.
    pub seed: u64,
    /// Whether it is the first, second, ... of its cell.
    pub place: u32,
}

impl Scenario {
    /// All runs of the scenario, in their order.
    ///
    /// # Errors
    /// None after the scenario was parsed.
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

    /// Makes these runs on so many threads; `progress` hears of them in this one.
    pub fn run(
        &self,
        jobs: &[Job],
        threads: usize,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Vec<Outcome> {
        let next = AtomicUsize::new(0);
        let plans = Plans::default();
        let (told, heard) = mpsc::channel();
        let mut outcomes = vec![None; jobs.len()];
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, jobs.len().max(1)) {
                let (told, next, plans) = (told.clone(), &next, &plans);
                let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
                let spawned = thread.spawn_scoped(scope, move || {
                    let take = || next.fetch_add(1, Ordering::Relaxed);
                    let tell = |news| {
                        told.send(news)
                            .expect("whoever listens does so until all threads have ended");
                    };
                    while let (index, Some(job)) = pair(take(), jobs) {
                        let inspection = Inspection {
                            progress: Some(&mut |passed| tell(News::Simulated(passed))),
                            ..Inspection::default()
                        };
                        let world = Box::new(Network::new(job.seed));
                        let outcome = self.run_planned(plans, world, *job, inspection);
                        tell(News::Ended(index, outcome));
                    }
                });
                spawned.expect("the system has room for a thread");
            }
            drop(told);
            let mut left = jobs.len();
            for news in heard {
                match news {
                    News::Simulated(passed) => progress(Progress::Simulated(passed)),
                    News::Ended(index, outcome) => {
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

    /// Makes one run; a panic or an imbalance of packets fails it alone.
    pub fn run_one(&self, job: Job) -> Outcome {
        self.run_inspected(job, Inspection::default())
    }

    /// Makes one run as [`run_one`](Scenario::run_one) does, and writes what is asked for while it
    /// goes on; it fails where that cannot be written.
    pub fn run_inspected(&self, job: Job, inspection: Inspection) -> Outcome {
        self.run_in(Box::new(Network::new(job.seed)), job, inspection)
    }

    /// Makes one run in a world without nodes, whose random streams come from the run's seed.
    pub fn run_in(&self, world: Box<dyn World>, job: Job, inspection: Inspection) -> Outcome {
        self.run_planned(&Plans::default(), world, job, inspection)
    }

    fn run_planned(
        &self,
        plans: &Plans,
        world: Box<dyn World>,
        job: Job,
        inspection: Inspection,
    ) -> Outcome {
        let failed = |message| FailedRun::new(self, job, message);
        guarded(|| {
            let plan = plans.plan(self, job.cell)?;
            run(&plan, world, job, inspection).map_err(|fault| fault.to_string())
        })
        .map_err(failed)
    }
}

/// Keeps the plan of the latest cell, which its runs with other seeds share: runs come cell by
/// cell.
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
        let plan = Plan::new(tables).map_err(|fault| fault.to_string())?;
        let plan = Arc::new(plan);
        *latest = Some((cell, Arc::clone(&plan)));
        Ok(plan)
    }
}

impl FailedRun {
    pub(crate) fn new(scenario: &Scenario, job: Job, message: String) -> FailedRun {
        let Job { cell, seed, .. } = job;
        FailedRun {
            cell,
            seed,
            message,
            replay: FailedRun::replay(scenario, job),
        }
    }

    /// The command that makes a run again.
    fn replay(scenario: &Scenario, Job { cell, seed, .. }: Job) -> String {
        let fast = if scenario.is_fast() { " --fast" } else { "" };
        let file = scenario.file();
        format!("manyflow sim {file}{fast} --cell {cell} --seed {seed}")
    }
}

fn pair(index: usize, jobs: &[Job]) -> (usize, Option<&Job>) {
    (index, jobs.get(index))
}

/// Makes an error of a panic: a bug that one run meets must not take the others with it.
fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Err(format!(
            "the simulator panicked: {}",
            text.unwrap_or_default()
        ))
    })
}

fn run(
    plan: &Arc<Plan>,
    world: Box<dyn World>,
    job: Job,
    inspection: Inspection,
) -> Result<Run, Fault> {
    let mut scene = Scene::new(Arc::clone(plan), world)?;
    let cell = &plan.cell;
    let mut recorder = Recorder::new(cell, &mut scene)?;
    let mut inspector = Inspector::new(inspection, cell, &mut scene)?;
    let end = cell.schema.run.duration.time();
    let ended = recorder.run(&mut scene, end, &mut inspector);
    ended.map_err(|halt| given_up(&scene, halt))?;
    inspector.finish()?;
    scene.network.check_accounting().map_err(Fault::value)?;
    let measures = cell.schema.measure.iter();
    let measures = measures.map(|measure| scalar(measure, cell, &scene, &recorder));
    let bin = cell.schema.run.bin;
    let mut series = Vec::new();
    for plot in &cell.schema.plots {
        let lines = plot.series.iter().filter(|_| job.place < plot.seeds.get());
        let recorded = lines
            .map(|line| recorder.series(&scene, line.what, &line.of, line.bin.unwrap_or(bin).0))
            .map(Iterator::collect);
        series.push(recorded.collect());
    }
    Ok(Run {
        cell: job.cell,
        seed: job.seed,
        measures: measures.collect::<Result<_, _>>()?,
        series,
        transmissions: scene.network.transmissions(),
        receivers: plan.sessions.receivers(),
    })
}

/// Why a run was given up, in the scenario's words.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_with_its_message() {
        let none: Vec<u32> = Vec::new();
        let outcome = guarded(|| Ok(none[3]));
        let message = outcome.unwrap_err();
        assert!(
            message.contains("the len is 0 but the index is 3"),
            "{message}"
        );
        assert_eq!(guarded(|| Ok(7)), Ok(7));
    }
}
