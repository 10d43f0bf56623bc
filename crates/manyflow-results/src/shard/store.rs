//! The folder of a sweep's rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use serde::{Deserialize, Serialize};

use super::index::{Index, Key};
use super::parquet::{Unfinished, draw_number};
use super::{Program, ShardError, compact};
use crate::Provenance;
use crate::rows::Columns;
use manyflow_model::{CellOutline, Job, Outcome, Outline, Source};

/// The version of the format of both kinds of files.
const FORMAT: u32 = 2;
/// The number of rows after which a part is written.
const PART_ROWS_MAX: usize = 4096;

/// `scenario-HASH.json`.
#[derive(Serialize, Deserialize)]
pub(super) struct ScenarioFile {
    format: u32,
    /// The file as the caller of the first process named it.
    pub(super) file: String,
    text: String,
    fast: bool,
    settings: Vec<String>,
    /// Missing in files of scenarios without rate traces.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    traces: BTreeMap<String, String>,
}

impl ScenarioFile {
    pub(super) fn source(self) -> Source {
        Source {
            file: self.file,
            text: self.text,
            fast: self.fast,
            settings: self.settings,
            traces: self.traces,
        }
    }
}

/// A folder to which the runs of one scenario are written. Several processes may write to it at the
/// same time, on machines that share it.
#[derive(Debug)]
pub struct CellStore {
    folder: PathBuf,
    program: Program,
    columns: Columns,
}

impl CellStore {
    /// Opens a folder, creates it if it does not exist, and writes the scenario into it.
    /// `outline` has at least the first cell. `fingerprint` identifies the scenario, with at least
    /// 16 hexadecimal digits.
    ///
    /// # Errors
    /// Returns an error if the folder or the file cannot be made.
    pub fn create(
        folder: &Path,
        outline: &Outline,
        fingerprint: &str,
        provenance: Provenance,
    ) -> Result<CellStore, ShardError> {
        fs::create_dir_all(folder).map_err(ShardError::file(folder))?;
        let source = outline.source.clone();
        let file = ScenarioFile {
            format: FORMAT,
            file: source.file,
            text: source.text,
            fast: source.fast,
            settings: source.settings,
            traces: source.traces,
        };
        let text = serde_json::to_string(&file).expect("all keys of maps are texts") + "\n";
        let path = folder.join(format!("scenario-{}.json", &fingerprint[..16]));
        if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
            write_text(&path, &text)?;
        }
        Ok(CellStore {
            folder: folder.to_owned(),
            program: Program::own(fingerprint, provenance),
            columns: Columns::new(outline),
        })
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the columns of the rows.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// Returns the cell and the seed of each run in the folder that this version of the program
    /// made from this scenario.
    ///
    /// # Errors
    /// Returns an error if a file of this scenario cannot be read.
    pub fn known(&self) -> Result<BTreeSet<(usize, u64)>, ShardError> {
        let index = Index::read(&self.folder, &self.program)?;
        Ok(index.rows.into_keys().collect())
    }

    /// Returns a sentence about each other program with runs of this scenario in the folder that
    /// this one has not made: they are not among those of [`CellStore::known`].
    ///
    /// # Errors
    /// Returns an error if a file of this scenario cannot be read.
    pub fn left_out(&self) -> Result<Vec<String>, ShardError> {
        let index = Index::read(&self.folder, &self.program)?;
        let mut runs: BTreeMap<Program, BTreeSet<Key>> = BTreeMap::new();
        for other in index.others {
            let of = runs.entry(other.program).or_default();
            of.extend(other.left_out);
        }
        let runs = runs.into_iter().filter(|(_, keys)| !keys.is_empty());
        let sentence = |(other, keys): (Program, BTreeSet<Key>)| {
            format!(
                "{}: {} runs of {other} are left out, because this is {}",
                self.folder.display(),
                keys.len(),
                self.program
            )
        };
        Ok(runs.map(sentence).collect())
    }

    /// Writes all rows of this program again, in the order of cells and seeds, to at most 64 files,
    /// and removes the parts. Returns the files. The same runs give the same bytes, whichever
    /// processes made them. Several processes may do it at the same time.
    ///
    /// # Errors
    /// Returns an error if a file cannot be read or written. No row is lost.
    pub fn compact(&self) -> Result<Vec<PathBuf>, ShardError> {
        compact::compact(&self.folder, self.columns.schema(), &self.program)
    }
}

/// Writes runs to parts of their own in a folder.
#[derive(Debug)]
pub struct PartWriter {
    store: Arc<CellStore>,
    /// The number that no other writer has.
    worker: u64,
    /// The number of parts.
    parts: u32,
    /// The rows that are not written yet, and their number.
    rows: Vec<RecordBatch>,
    rows_waiting: usize,
}

impl PartWriter {
    /// Creates a writer, which writes nothing yet.
    pub fn new(store: Arc<CellStore>) -> PartWriter {
        PartWriter {
            store,
            worker: draw_number(),
            parts: 0,
            rows: Vec::new(),
            rows_waiting: 0,
        }
    }

    /// Adds the outcomes of `jobs`, runs of one cell, and writes a part if there are some thousand
    /// rows. Call [`PartWriter::flush`] now and then, and at the end: rows that are not written are
    /// lost with the process.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    pub fn add(
        &mut self,
        cell: CellOutline,
        jobs: &[Job],
        outcomes: &[Outcome],
    ) -> Result<(), ShardError> {
        let rows = self.store.columns.encode(cell, jobs, outcomes);
        self.rows
            .push(rows.map_err(ShardError::rows(&self.store.folder))?);
        self.rows_waiting += outcomes.len();
        match self.rows_waiting >= PART_ROWS_MAX {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Writes the rows that are not written yet.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written. The rows are kept then.
    pub fn flush(&mut self) -> Result<(), ShardError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let CellStore {
            folder,
            program,
            columns,
        } = &*self.store;
        let path = part_path(folder, program, self.worker, self.parts);
        let rows = concat_batches(columns.schema(), &self.rows);
        let rows = rows.map_err(ShardError::rows(&path))?;
        let mut file = Unfinished::create(path, columns.schema(), program)?;
        file.write(&rows)?;
        file.finish()?.show()?;
        self.parts += 1;
        self.rows.clear();
        self.rows_waiting = 0;
        Ok(())
    }
}

/// Returns the path of a part, which no other worker has.
pub(super) fn part_path(folder: &Path, program: &Program, worker: u64, number: u32) -> PathBuf {
    let hash = &program.fingerprint[..16];
    folder.join(format!("part-{hash}-{worker:016x}-{number}.parquet"))
}

/// Writes a file under another name and renames it, so that it is whole or missing.
fn write_text(path: &Path, text: &str) -> Result<(), ShardError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let unfinished = path.with_file_name(format!(".{name}.{:016x}", draw_number()));
    let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, path));
    if written.is_err() {
        // The error of the file itself matters more.
        let _ = fs::remove_file(&unfinished);
    }
    written.map_err(ShardError::file(path))
}

/// Reads `scenario-HASH.json`.
pub(super) fn read_scenario(path: &Path) -> Result<ScenarioFile, ShardError> {
    let text = fs::read_to_string(path).map_err(ShardError::file(path))?;
    let file: ScenarioFile = serde_json::from_str(&text).map_err(ShardError::rows(path))?;
    match file.format {
        FORMAT => Ok(file),
        other => Err(ShardError::rows(path)(format!(
            "format {other} is not {FORMAT}"
        ))),
    }
}
