//! The folder of a scenario's cells.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::ShardError;
use crate::Provenance;
use manyflow_model::{FailedRun, Job, Outcome, Run, Source};

/// The version of the format of both kinds of files.
const FORMAT: u32 = 1;
/// The name of a folder of cells in the folder of a scenario's results.
const FOLDER: &str = "cells";

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

/// The first line of `cell-HASH-NUMBER.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Header {
    format: u32,
    pub(super) cell: usize,
    pub(super) seeds: Vec<u64>,
    pub(super) version: String,
    pub(super) commit: Option<String>,
    pub(super) toolchain: Option<String>,
}

impl Header {
    /// Describes the program that made the cell.
    pub(super) fn program(&self) -> String {
        let known = [&self.commit, &self.toolchain].into_iter().flatten();
        let known = known.fold(String::new(), |text, one| text + " " + one);
        format!("manyflow {}{known}", self.version)
    }
}

/// The other lines of a cell: the outcome of each run, in the order of seeds.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line<'a> {
    Run(Cow<'a, Run>),
    Failed(Cow<'a, FailedRun>),
}

/// A folder to which the cells of one scenario are written.
#[derive(Debug)]
pub struct CellStore {
    folder: PathBuf,
    hash: String,
    provenance: Provenance,
}

impl CellStore {
    /// Opens the folder `cells` in `results`, the folder of the scenario's results, and writes the
    /// scenario into it. `fingerprint` identifies the scenario, with at least 16 hexadecimal
    /// digits.
    ///
    /// # Errors
    /// Returns an error if the folder or the file cannot be made.
    pub fn create(
        results: &Path,
        source: &Source,
        fingerprint: &str,
        provenance: Provenance,
    ) -> Result<CellStore, ShardError> {
        let folder = results.join(FOLDER);
        fs::create_dir_all(&folder).map_err(ShardError::file(&folder))?;
        let store = CellStore {
            folder,
            hash: fingerprint[..16].to_owned(),
            provenance,
        };
        let file = ScenarioFile {
            format: FORMAT,
            file: source.file.clone(),
            text: source.text.clone(),
            fast: source.fast,
            settings: source.settings.clone(),
            traces: source.traces.clone(),
        };
        let name = format!("scenario-{}.json", store.hash);
        store.write_text(&name, &line(&file))?;
        Ok(store)
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns whether the folder has the outcomes of these jobs, all runs of one cell, made from
    /// this scenario by this version of the program.
    ///
    /// # Errors
    /// Returns an error if the file exists and cannot be read. A file of another format counts as
    /// missing.
    pub fn has(&self, jobs: &[Job]) -> Result<bool, ShardError> {
        let header = self.header(jobs);
        let path = self.folder.join(self.name(header.cell));
        let file = match fs::OpenOptions::new().read(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(ShardError::file(path)(error)),
        };
        let mut line = String::new();
        let read = BufReader::new(file).read_line(&mut line);
        read.map_err(ShardError::file(path))?;
        Ok(serde_json::from_str(&line).is_ok_and(|found: Header| found == header))
    }

    /// Writes the outcomes of `jobs`, all runs of one cell. Returns the file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be written.
    ///
    /// # Panics
    /// Panics if `jobs` is empty.
    pub fn write(&self, jobs: &[Job], outcomes: &[Outcome]) -> Result<PathBuf, ShardError> {
        debug_assert_eq!(jobs.len(), outcomes.len());
        let header = self.header(jobs);
        let text = line(&header) + &outcomes_to_text(outcomes);
        self.write_text(&self.name(header.cell), &text)
    }

    fn name(&self, cell: usize) -> String {
        format!("cell-{}-{cell}.jsonl", self.hash)
    }

    fn header(&self, jobs: &[Job]) -> Header {
        let cell = jobs[0].cell;
        debug_assert!(jobs.iter().all(|job| job.cell == cell), "{jobs:?}");
        Header {
            format: FORMAT,
            cell,
            seeds: jobs.iter().map(|job| job.seed).collect(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: self.provenance.commit.clone(),
            toolchain: self.provenance.toolchain.clone(),
        }
    }

    /// Writes a file under another name and renames it, so that a file is whole or missing. The
    /// other name has the number of the process, as several may write the same scenario.
    fn write_text(&self, name: &str, text: &str) -> Result<PathBuf, ShardError> {
        let path = self.folder.join(name);
        let unfinished = self.folder.join(format!(".{name}.{}", std::process::id()));
        let written = fs::write(&unfinished, text).and_then(|()| fs::rename(&unfinished, &path));
        if written.is_err() {
            // The error of the file itself matters more.
            let _ = fs::remove_file(&unfinished);
        }
        written.map_err(ShardError::file(&path))?;
        Ok(path)
    }
}

/// Writes outcomes as text, a line for each. [`outcomes_from_text`] reads the same outcomes back,
/// with all bits of their numbers.
pub fn outcomes_to_text(outcomes: &[Outcome]) -> String {
    let lines = outcomes.iter().map(|outcome| {
        line(&match outcome {
            Ok(run) => Line::Run(Cow::Borrowed(run)),
            Err(failed) => Line::Failed(Cow::Borrowed(failed)),
        })
    });
    lines.collect()
}

/// Reads the outcomes that [`outcomes_to_text`] has written.
///
/// # Errors
/// Returns the number of the first wrong line, from 1, and the reason.
pub fn outcomes_from_text(text: &str) -> Result<Vec<Outcome>, (usize, serde_json::Error)> {
    let outcomes = (1..).zip(text.lines()).map(|(number, line)| {
        let line = serde_json::from_str(line).map_err(|error| (number, error))?;
        Ok(match line {
            Line::Run(run) => Ok(run.into_owned()),
            Line::Failed(failed) => Err(failed.into_owned()),
        })
    });
    outcomes.collect()
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("all keys of maps are texts") + "\n"
}

/// Reads `scenario-HASH.json`.
pub(super) fn read_scenario(path: &Path) -> Result<ScenarioFile, ShardError> {
    let text = fs::read_to_string(path).map_err(ShardError::file(path))?;
    serde_json::from_str(&text).map_err(wrong(path, 1))
}

/// Reads the header and the outcomes of a cell.
pub(super) fn read_cell(path: &Path) -> Result<(Header, Vec<Outcome>), ShardError> {
    let text = fs::read_to_string(path).map_err(ShardError::file(path))?;
    let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let header: Header = serde_json::from_str(first).map_err(wrong(path, 1))?;
    if header.format != FORMAT {
        let reason = format!("format {} is not {FORMAT}", header.format);
        return Err(wrong(path, 1)(reason));
    }
    let outcomes = outcomes_from_text(rest);
    let outcomes = outcomes.map_err(|(line, error)| wrong(path, line + 1)(error))?;
    Ok((header, outcomes))
}

fn wrong<E: ToString>(path: &Path, line: usize) -> impl FnOnce(E) -> ShardError {
    let path = path.to_owned();
    move |reason| ShardError::Format {
        path,
        line,
        reason: reason.to_string(),
    }
}
