//! The requests of a page.

use manyflow_scenario::{Form, Job, Scenario, ScenarioError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::describe::describe;

/// A scenario as a page has it, and the run that it wants.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Wanted {
    /// The text of the scenario.
    pub text: String,
    /// The name of the file in errors.
    pub file: String,
    /// Whether runs are shortened (`[fast]`).
    #[serde(default)]
    pub fast: bool,
    /// The number of the cell. A number beyond the last cell stands for the first.
    #[serde(default)]
    pub cell: usize,
    /// The seed; by default the scenario's first.
    #[serde(default)]
    pub seed: Option<u64>,
}

/// The simulations that a page wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// One, whose samples are shown while it runs.
    One(Job),
    /// Those of all cells and seeds.
    All(Vec<Job>),
}

impl Work {
    /// Returns the runs.
    pub fn jobs(&self) -> &[Job] {
        match self {
            Work::One(job) => std::slice::from_ref(job),
            Work::All(jobs) => jobs,
        }
    }

    /// Returns a name for files: the scenario's id, with cell and seed of a single run.
    pub fn name(&self, scenario: &Scenario) -> String {
        let id = scenario.id();
        match self {
            Work::One(Job { cell, seed, .. }) => format!("{id}-cell{cell}-seed{seed}"),
            Work::All(_) => id.to_owned(),
        }
    }
}

/// Runs that can begin.
pub struct Prepared {
    /// The scenario, with the plots that the page adds to a single run.
    pub scenario: Scenario,
    /// The runs.
    pub work: Work,
    /// The scenario's description, with the seed of a single run as `seed`, or the number of runs
    /// as `sweep_runs`.
    pub description: Value,
}

impl Wanted {
    /// Returns the scenario's description; or `problem`, its first error, with the line.
    pub fn check(&self) -> Value {
        let described = self.read();
        described
            .and_then(|(scenario, cell)| describe(&scenario, cell))
            .unwrap_or_else(|error| problem(&error))
    }

    /// Prepares a single run.
    ///
    /// # Errors
    /// Returns the answer to the page if the scenario has an error.
    pub fn run(&self) -> Result<Prepared, Value> {
        let prepared = || {
            let (scenario, cell) = self.read()?;
            let mut description = describe(&scenario, cell)?;
            let first_seed = scenario.jobs()?.first().map_or(1, |job| job.seed);
            let seed = self.seed.unwrap_or(first_seed);
            description["seed"] = seed.into();
            // Plots show the first runs of a cell, so this is one, whatever its seed.
            let place = 0;
            let work = Work::One(Job { cell, seed, place });
            Ok(Prepared {
                scenario,
                work,
                description,
            })
        };
        prepared().map_err(|error| problem(&error))
    }

    /// Prepares the runs of all cells and seeds.
    ///
    /// # Errors
    /// Returns the answer to the page if the scenario has an error.
    pub fn sweep(&self) -> Result<Prepared, Value> {
        let prepared = || {
            let scenario = self.parse(None)?;
            let cell = self.cell_of(&scenario);
            let (jobs, mut description) = (scenario.jobs()?, describe(&scenario, cell)?);
            description["sweep_runs"] = jobs.len().into();
            let work = Work::All(jobs);
            Ok(Prepared {
                scenario,
                work,
                description,
            })
        };
        prepared().map_err(|error| problem(&error))
    }

    /// Reads the scenario with the plots that the page adds. Returns the cell, too.
    fn read(&self) -> Result<(Scenario, usize), ScenarioError> {
        let first = self.parse(Some(0))?;
        let cell = self.cell_of(&first);
        let scenario = match cell {
            0 => first,
            _ => self.parse(Some(cell))?,
        };
        Ok((scenario.with_overview(cell)?, cell))
    }

    /// Returns the number of the cell: 0 if the wanted one is beyond the last.
    fn cell_of(&self, scenario: &Scenario) -> usize {
        if self.cell < scenario.cells() {
            self.cell
        } else {
            0
        }
    }

    /// Reads the scenario for the runs of one cell, or for all.
    fn parse(&self, cell: Option<usize>) -> Result<Scenario, ScenarioError> {
        let form = Form {
            fast: self.fast,
            cell,
            ..Form::default()
        };
        Scenario::parse_form(&self.file, &self.text, form)
    }
}

/// Returns the answer about an error in a scenario.
fn problem(error: &ScenarioError) -> Value {
    let message = error.to_string();
    let place = format!("{}:{}: ", error.file, error.line);
    let message = message.strip_prefix(&place).unwrap_or(&message);
    json!({"problem": {"line": error.line, "key": error.key, "message": message}})
}
