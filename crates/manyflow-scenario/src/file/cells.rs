//! A scenario and its cells: the combinations of the values that `[sweep]` lists.

use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::check;
use crate::controls::Controls;
use crate::file::foreign;
use crate::file::traces::Traces;
use crate::plan::Plan;
use crate::schema::{Cell, PlotTable, Schema};
use manyflow_model::error::{Fault, Problem, ScenarioError};
use manyflow_model::file::de::read;
use manyflow_model::file::expand::expand;
use manyflow_model::file::sweep::{Axis, Sweep, label};
use manyflow_model::file::tree::{self, Node, Value};
use manyflow_model::{Outline, Source};

/// The maximum number of runs of a scenario. More are a mistake in `[sweep]`.
const RUNS_MAX: u64 = 100_000;

/// A scenario file that has been read and checked.
#[derive(Clone, Debug)]
pub struct Scenario {
    id: String,
    file: String,
    text: String,
    form: Form,
    tree: Node,
    sweep: Sweep,
    traces: Traces,
    /// The plots that follow those of the file.
    pub(crate) overview: Vec<PlotTable>,
    pub(crate) controls: Controls,
}

/// The form in which a scenario is read.
#[derive(Clone, Debug, Default)]
pub struct Form {
    /// Whether it is the shortened form, with the values of `[fast]`.
    pub fast: bool,
    /// The only cell whose network is checked; by default all are. The networks of other cells may
    /// be much larger.
    pub cell: Option<usize>,
    /// Values that replace those of the file, each as `KEY=VALUE`. The key is that of a value, with
    /// dots between tables and the names or numbers of their items: `links.bottleneck.rate`.
    /// The value is in TOML's notation; texts need no quotation marks.
    pub settings: Vec<String>,
}

impl Scenario {
    /// Reads and checks a scenario. Messages name `file`; without folder and extension it
    /// is the scenario's id. `fast` selects the shortened form.
    ///
    /// # Errors
    /// Returns the first error, with file, line and key.
    pub fn parse(file: &str, text: &str, fast: bool) -> Result<Scenario, ScenarioError> {
        let form = Form {
            fast,
            ..Form::default()
        };
        Scenario::parse_form(file, text, form)
    }

    /// Reads and checks a scenario in a form of its own.
    ///
    /// # Errors
    /// Returns the first error, with file, line and key. In settings, the file is `--set` and
    /// the line is the number of the setting.
    pub fn parse_form(file: &str, text: &str, form: Form) -> Result<Scenario, ScenarioError> {
        Scenario::parse_with(file, text, form, BTreeMap::new())
    }

    /// Reads and checks a scenario that may name rate traces. `traces` has their texts by the paths
    /// in the scenario; all others are read from files, whose paths begin in the folder of `file`.
    ///
    /// # Errors
    /// Returns the same errors as [`parse_form`](Scenario::parse_form).
    pub fn parse_with(
        file: &str,
        text: &str,
        form: Form,
        traces: BTreeMap<String, String>,
    ) -> Result<Scenario, ScenarioError> {
        let cell = form.cell;
        let scenario = Scenario::read(file, text, form, traces)?;
        scenario.check_cells(cell)?;
        Ok(scenario)
    }

    /// Reads and checks a scenario from its source.
    ///
    /// # Errors
    /// Returns the same errors as [`parse_form`](Scenario::parse_form).
    pub fn from_source(source: Source) -> Result<Scenario, ScenarioError> {
        let form = Form {
            fast: source.fast,
            cell: None,
            settings: source.settings,
        };
        Scenario::parse_with(&source.file, &source.text, form, source.traces)
    }

    /// Returns the scenario with controls that its sessions can name. A run fails if a session
    /// names another one.
    pub fn with_controls(mut self, controls: Controls) -> Scenario {
        self.controls = controls;
        self
    }

    /// Replaces the duration of all runs. Their steady state begins after half of it, and there are
    /// no expectations, which are about the scenario's own duration. Checks `cell`, or all cells.
    ///
    /// # Errors
    /// Returns the first error, with file, line and key: measures and changes can have times after
    /// the new end.
    pub fn with_duration(
        mut self,
        duration: Duration,
        cell: Option<usize>,
    ) -> Result<Scenario, ScenarioError> {
        let path = ["run", "duration"].map(str::to_owned);
        let value = Value::Text(format!("{} s", duration.as_secs_f64()));
        let span = self.tree.locate(&path);
        let replaced = self.tree.set(&path, Node { span, value });
        replaced.map_err(|fault| self.place(fault))?;
        self.tree.take("expect");
        if let Some(run) = self.tree.get_mut("run") {
            run.take("steady-from");
        }
        self.check_cells(cell)?;
        Ok(self)
    }

    /// Checks the network of `cell`, or of all cells, and that there are no keys without effect.
    fn check_cells(&self, cell: Option<usize>) -> Result<(), ScenarioError> {
        match cell {
            Some(cell) => self.check(cell),
            None => (0..self.cells()).try_for_each(|cell| self.check(cell)),
        }?;
        // Each axis sets its key in each cell, so that one cell has all keys.
        let known = self
            .cell_tree(0)
            .and_then(|(tree, _)| foreign::check(&tree, self.axes()));
        known.map_err(|fault| self.place(fault))
    }

    fn check(&self, cell: usize) -> Result<(), ScenarioError> {
        let cell = self.cell(cell)?;
        let planned = check::run(&cell.schema).and_then(|()| Plan::new(cell));
        let checked = planned.and_then(|plan| check::check(&plan, self.axes()));
        checked.map_err(|fault| self.place(fault))
    }

    fn read(
        file: &str,
        text: &str,
        form: Form,
        traces: BTreeMap<String, String>,
    ) -> Result<Scenario, ScenarioError> {
        let mut scenario = Scenario {
            id: id_of(file),
            file: file.to_owned(),
            text: text.to_owned(),
            form,
            tree: Node {
                span: 0..0,
                value: Value::Table(Vec::new()),
            },
            sweep: Sweep::default(),
            traces: Traces::new(traces),
            overview: Vec::new(),
            controls: Controls::default(),
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
            if self.form.fast {
                self.tree.set(&path, value.clone()).map_err(placed)?;
            } else {
                known.clone().set(&path, value.clone()).map_err(placed)?;
            }
        }
        let settings = self.read_settings()?;
        for (path, value) in &settings {
            let set = self
                .check_root(path)
                .and_then(|()| self.tree.set(path, value.clone()));
            set.map_err(|fault| fault.spanned(&value.span))?;
        }
        if let Some(sweep) = self.tree.take("sweep") {
            let parameters = self.tree.get("parameters");
            self.sweep =
                Sweep::new(sweep.node, parameters).map_err(|fault| fault.within("sweep"))?;
        }
        for (path, value) in &settings {
            // A path may have numbers instead of names, but the place of its value is its own.
            let is_swept = |axis: &Axis| {
                let found = self.tree.find(&axis.path);
                found.is_some_and(|node| node.span == value.span)
            };
            if let Some(axis) = self.sweep.axes.iter().find(|axis| is_swept(axis)) {
                let message = format!("the scenario sweeps this key: set `sweep.{}`", axis.key);
                return Err(
                    Fault::at(&[&path.join(".")], Problem::Value(message)).spanned(&value.span)
                );
            }
        }
        self.read_traces()?;
        self.check_size()
    }

    /// Reads the traces of all cells. Few scenarios have any, and their texts show it.
    fn read_traces(&mut self) -> Result<(), Fault> {
        let mut texts = self.form.settings.iter().chain([&self.text]);
        if texts.any(|text| text.contains("trace")) && self.sweep.cells() <= RUNS_MAX {
            for cell in 0..self.cells() {
                let mut schema = self.read_cell(cell)?.schema;
                self.traces.read(&self.file, &mut schema)?;
            }
        }
        Ok(())
    }

    /// Returns the keys and values of the settings. The place of each value is one byte beyond
    /// the text and the settings before it, so that errors can name the setting.
    fn read_settings(&self) -> Result<Vec<(Vec<String>, Node)>, Fault> {
        let places = self.text.len() + 1..;
        let settings = self.form.settings.iter().zip(places);
        let values = settings.map(|(setting, place)| {
            let here = place..place;
            let leaf = tree::setting(setting).map_err(|fault| fault.spanned(&here))?;
            let (path, value) = leaf;
            Ok((path, Node { span: here, value }))
        });
        values.collect()
    }

    /// Refuses a parameter's name alone as the key of a setting, with the key to set.
    fn check_root(&self, path: &[String]) -> Result<(), Fault> {
        let [key] = path else {
            return Ok(());
        };
        let has = |table: &str| {
            self.tree
                .get(table)
                .is_some_and(|node| node.get(key).is_some())
        };
        let table = ["sweep", "parameters"].into_iter().find(|table| has(table));
        match table.filter(|_| self.tree.get(key).is_none()) {
            Some(table) => Err(Fault::at(
                &[key],
                Problem::Value(format!("this is a key of [{table}]: set `{table}.{key}`")),
            )),
            None => Ok(()),
        }
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
        self.form.fast
    }

    /// Returns the settings that replace values of the file, each as `KEY=VALUE`.
    pub fn settings(&self) -> &[String] {
        &self.form.settings
    }

    /// Returns the texts of the rate traces by the paths in the scenario.
    pub fn traces(&self) -> &BTreeMap<String, String> {
        self.traces.texts()
    }

    /// Returns the SHA-256 hash of the file, in hexadecimal.
    pub fn hash(&self) -> String {
        hex(&Sha256::digest(self.text.as_bytes()))
    }

    /// Returns a hash that identifies the results of the runs, in hexadecimal: that of the text,
    /// the form, the settings, the rate traces, and the version of this crate. Results with the
    /// same fingerprint, cell and seed are the same.
    pub fn fingerprint(&self) -> String {
        let mut hasher = Sha256::new();
        let mut add = |part: &str| {
            // The length keeps parts from running into each other.
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        };
        add(env!("CARGO_PKG_VERSION"));
        add(&self.text);
        add(if self.form.fast { "fast" } else { "full" });
        self.form.settings.iter().for_each(|setting| add(setting));
        let traces = self.traces.texts().iter();
        traces.for_each(|(path, text)| [path, text].into_iter().for_each(|part| add(part)));
        hex(&hasher.finalize())
    }

    /// Returns the axes of the sweep.
    pub fn axes(&self) -> &[Axis] {
        &self.sweep.axes
    }

    /// Returns the number of cells.
    pub fn cells(&self) -> usize {
        self.sweep.cells() as usize
    }

    /// Returns the value of each axis in a cell, as written in the file.
    pub fn labels(&self, index: usize) -> Vec<String> {
        let values = self.sweep.values(index).into_iter();
        values.map(|(_, value)| label(value)).collect()
    }

    /// Returns one cell.
    ///
    /// # Errors
    /// Returns the error in its values. A file that [`parse`](Scenario::parse) has accepted has
    /// no such error.
    pub fn cell(&self, index: usize) -> Result<Cell, ScenarioError> {
        self.read_cell(index).map_err(|fault| self.place(fault))
    }

    /// Returns the scenario as its results show it, with all cells.
    ///
    /// # Errors
    /// Returns the error in a cell's values. A file that [`parse`](Scenario::parse) has accepted
    /// has no such error.
    pub fn outline(&self) -> Result<Outline, ScenarioError> {
        self.outline_of(0..self.cells())
    }

    /// Returns the scenario as its results show it, with some of its cells.
    ///
    /// # Errors
    /// Returns the error in a cell's values. A file that [`parse`](Scenario::parse) has accepted
    /// has no such error.
    pub fn outline_of(
        &self,
        cells: impl IntoIterator<Item = usize>,
    ) -> Result<Outline, ScenarioError> {
        let first = self.cell(0)?.schema;
        let cells = cells.into_iter();
        let cells = cells.map(|index| self.cell(index).map(Cell::outline));
        Ok(Outline {
            id: self.id.clone(),
            source: self.source(),
            hash: self.hash(),
            title: first.title,
            origin: first.source,
            about: first.about,
            axes: self.sweep.outline(),
            cells: cells.collect::<Result<_, _>>()?,
        })
    }

    /// Returns the file and the form in which it was read.
    pub fn source(&self) -> Source {
        Source {
            file: self.file.clone(),
            text: self.text.clone(),
            fast: self.form.fast,
            settings: self.form.settings.clone(),
            traces: self.traces.texts().clone(),
        }
    }

    /// Returns the tree with the values of a cell, and their labels.
    fn cell_tree(&self, index: usize) -> Result<(Node, Vec<String>), Fault> {
        let mut tree = self.tree.clone();
        let mut labels = Vec::new();
        for (axis, value) in self.sweep.values(index) {
            tree.set(&axis.path, value.clone())
                .map_err(|fault| fault.spanned(&value.span))?;
            labels.push(label(value));
        }
        Ok((tree, labels))
    }

    fn read_cell(&self, index: usize) -> Result<Cell, Fault> {
        let (mut tree, labels) = self.cell_tree(index)?;
        let parameters = expand(&mut tree)?;
        let mut schema: Schema = read(&tree, &parameters)?;
        schema.plots.extend_from_slice(&self.overview);
        self.traces.fill(&mut schema);
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
        let (file, line) = match span.start.checked_sub(self.text.len() + 1) {
            Some(setting) => ("--set", setting + 1),
            None => (self.file.as_str(), tree::line_of(&self.text, span.start)),
        };
        ScenarioError {
            file: file.to_owned(),
            line,
            key: fault.path.join("."),
            problem: fault.problem,
        }
    }
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn id_of(file: &str) -> String {
    let path = std::path::Path::new(file);
    let stem = path.file_stem().unwrap_or(path.as_os_str());
    stem.to_string_lossy().into_owned()
}
