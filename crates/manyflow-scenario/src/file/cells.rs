//! A scenario and its cells: the combinations of the values that `[sweep]` lists.

use sha2::{Digest, Sha256};

use crate::error::{Fault, Problem, ScenarioError};
use crate::expression::Environment;
use crate::file::de::read;
use crate::file::expand::expand;
use crate::file::sweep::{Axis, Sweep, label};
use crate::file::tree::{self, Node, Value};
use crate::plan::Plan;
use crate::schema::Schema;
use crate::schema::check;

/// The most runs of a scenario: more is a mistake in `[sweep]`.
const RUNS_MAX: u64 = 100_000;

/// A scenario file that was read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    id: String,
    file: String,
    text: String,
    fast: bool,
    tree: Node,
    sweep: Sweep,
}

/// One combination of the values of all axes.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Its number, the last axis running fastest.
    pub index: usize,
    /// The value of each axis, as it stands in the file.
    pub labels: Vec<String>,
    /// The parameters' values.
    pub parameters: Environment,
    /// The tables with these values.
    pub schema: Schema,
}

impl Scenario {
    /// Reads and checks a scenario: `file` is its name for messages, and without ending and folder
    /// its id; `fast` takes its shortened form.
    ///
    /// # Errors
    /// The first thing that is wrong, with file, line and key.
    pub fn parse(file: &str, text: &str, fast: bool) -> Result<Scenario, ScenarioError> {
        let scenario = Scenario::read(file, text, fast)?;
        (0..scenario.cells()).try_for_each(|cell| scenario.check(cell))?;
        Ok(scenario)
    }

    /// The same, but checks the networks of no cell but `cell`: those of the others may be much
    /// larger.
    ///
    /// # Errors
    /// The first thing that is wrong, with file, line and key.
    pub fn parse_cell(
        file: &str,
        text: &str,
        fast: bool,
        cell: usize,
    ) -> Result<Scenario, ScenarioError> {
        let scenario = Scenario::read(file, text, fast)?;
        scenario.check(cell)?;
        Ok(scenario)
    }

    fn check(&self, cell: usize) -> Result<(), ScenarioError> {
        let cell = self.cell(cell)?;
        let planned = check::run(&cell.schema).and_then(|()| Plan::new(cell));
        let checked = planned.and_then(|plan| check::check(&plan, self.axes()));
        checked.map_err(|fault| self.place(fault))
    }

    fn read(file: &str, text: &str, fast: bool) -> Result<Scenario, ScenarioError> {
        let mut scenario = Scenario {
            id: id_of(file),
            file: file.to_owned(),
            text: text.to_owned(),
            fast,
            tree: Node {
                span: 0..0,
                value: Value::Table(Vec::new()),
            },
            sweep: Sweep::default(),
        };
        let prepared = scenario.prepare(text);
        prepared.map_err(|fault| scenario.place(fault))?;
        Ok(scenario)
    }

    fn prepare(&mut self, text: &str) -> Result<(), Fault> {
        self.tree = tree::parse(text)?;
        let overrides = self.tree.take("fast");
        let known = self.tree.clone();
        for (path, value) in overrides.iter().flat_map(|entry| entry.node.leaves()) {
            let placed = |fault: Fault| fault.spanned(&value.span).within("fast");
            if self.fast {
                self.tree.set(&path, value.clone()).map_err(placed)?;
            } else {
                known.clone().set(&path, value.clone()).map_err(placed)?;
            }
        }
        if let Some(sweep) = self.tree.take("sweep") {
            let parameters = self.tree.get("parameters");
            self.sweep =
                Sweep::new(sweep.node, parameters).map_err(|fault| fault.within("sweep"))?;
        }
        self.check_size()
    }

    fn check_size(&self) -> Result<(), Fault> {
        let cells = self.sweep.cells();
        let bounded = |runs: u64, key: &str| match runs <= RUNS_MAX {
            true => Ok(()),
            false => Err(Fault::at(
                &[key],
                Problem::Value(format!(
                    "this makes {runs} runs; at most {RUNS_MAX} are possible"
                )),
            )),
        };
        bounded(cells, "sweep")?;
        let seeds = self.read_cell(0)?.schema.run.seeds;
        if seeds.0 < 1.0 {
            return Err(Fault::at(
                &["run", "seeds"],
                Problem::Value("no seeds, no runs: take at least 1".to_owned()),
            ));
        }
        bounded(cells.saturating_mul(u64::from(seeds.get())), "sweep")
    }

    /// The file's name without folder and ending.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The file's name as given.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The file's text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether this is its shortened form.
    pub fn is_fast(&self) -> bool {
        self.fast
    }

    /// The SHA-256 of the file, in hexadecimal.
    pub fn hash(&self) -> String {
        let digest = Sha256::digest(self.text.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What varies.
    pub fn axes(&self) -> &[Axis] {
        &self.sweep.axes
    }

    /// Whether two axes vary together, as one; each does with itself.
    pub(crate) fn vary_together(&self, first: &str, second: &str) -> bool {
        self.sweep.vary_together(first, second)
    }

    /// How many cells there are.
    pub fn cells(&self) -> usize {
        self.sweep.cells() as usize
    }

    /// One cell.
    ///
    /// # Errors
    /// What is wrong with its values; never after [`parse`](Scenario::parse) has accepted the file.
    pub fn cell(&self, index: usize) -> Result<Cell, ScenarioError> {
        self.read_cell(index).map_err(|fault| self.place(fault))
    }

    fn read_cell(&self, index: usize) -> Result<Cell, Fault> {
        let mut tree = self.tree.clone();
        let mut labels = Vec::new();
        for (axis, value) in self.sweep.values(index) {
            tree.set(&axis.path, value.clone())
                .map_err(|fault| fault.spanned(&value.span))?;
            labels.push(label(value));
        }
        let parameters = expand(&mut tree)?;
        let schema = read(&tree, &parameters)?;
        Ok(Cell {
            index,
            labels,
            parameters,
            schema,
        })
    }

    fn place(&self, fault: Fault) -> ScenarioError {
        let span = fault.span.unwrap_or_else(|| {
            let mut tree = self.tree.clone();
            // Where it cannot be expanded, the file has the place.
            let _ = expand(&mut tree);
            tree.locate(&fault.path)
        });
        ScenarioError {
            file: self.file.clone(),
            line: tree::line_of(&self.text, span.start),
            key: fault.path.join("."),
            problem: fault.problem,
        }
    }
}

fn id_of(file: &str) -> String {
    let path = std::path::Path::new(file);
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    stem.to_string_lossy().into_owned()
}
