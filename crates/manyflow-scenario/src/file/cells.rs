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

/// The maximum number of runs of a scenario. More are a mistake in `[sweep]`.
const RUNS_MAX: u64 = 100_000;

/// A scenario file that has been read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    id: String,
    file: String,
    text: String,
    fast: bool,
    tree: Node,
    sweep: Sweep,
}

/// One combination of values of all axes.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The number of the cell. The last axis varies fastest.
    pub index: usize,
    /// The value of each axis, as written in the file.
    pub labels: Vec<String>,
    /// The values of the parameters.
    pub parameters: Environment,
    /// The tables, with these values in place.
    pub schema: Schema,
}

impl Scenario {
    /// Reads and checks a scenario. Messages name `file`; without folder and extension it
    /// is the scenario's id. `fast` selects the shortened form.
    ///
    /// # Errors
    /// Returns the first error, with file, line and key.
    pub fn parse(file: &str, text: &str, fast: bool) -> Result<Scenario, ScenarioError> {
        let scenario = Scenario::read(file, text, fast)?;
        (0..scenario.cells()).try_for_each(|cell| scenario.check(cell))?;
        Ok(scenario)
    }

    /// Reads a scenario and checks the network of `cell` only. The networks of other cells
    /// may be much larger.
    ///
    /// # Errors
    /// Returns the first error, with file, line and key.
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
                Problem::Value("without seeds there are no runs: give at least 1".to_owned()),
            ));
        }
        bounded(cells.saturating_mul(u64::from(seeds.get())), "sweep")
    }

    /// Returns the file's name without folder and extension.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the file's name as the caller gave it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the text of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether this is the shortened form.
    pub fn is_fast(&self) -> bool {
        self.fast
    }

    /// Returns the SHA-256 hash of the file, in hexadecimal.
    pub fn hash(&self) -> String {
        let digest = Sha256::digest(self.text.as_bytes());
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the axes of the sweep.
    pub fn axes(&self) -> &[Axis] {
        &self.sweep.axes
    }

    /// Returns whether two axes vary together. Each axis varies together with itself.
    pub(crate) fn vary_together(&self, first: &str, second: &str) -> bool {
        self.sweep.vary_together(first, second)
    }

    /// Returns the number of cells.
    pub fn cells(&self) -> usize {
        self.sweep.cells() as usize
    }

    /// Returns one cell.
    ///
    /// # Errors
    /// Returns the error in its values. There is none after [`parse`](Scenario::parse)
    /// accepted the file.
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

    pub(crate) fn place(&self, fault: Fault) -> ScenarioError {
        let span = fault.span.unwrap_or_else(|| {
            let mut tree = self.tree.clone();
            // If the tree cannot be expanded, the place is looked up in the tree as read.
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
