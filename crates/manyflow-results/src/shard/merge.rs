//! The results of a whole scenario from folders of rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::index::{Key, hash_of};
use super::parquet::open;
use super::store::read_scenario;
use super::{Program, ShardError};
use crate::Provenance;
use crate::rows::Columns;
use manyflow_model::{Job, Outcome, Outline, ScenarioError, Source};

/// A scenario whose cells are all there.
#[derive(Debug)]
pub struct Merged {
    /// The scenario.
    pub outline: Outline,
    /// All runs of the scenario, in order of cells and seeds.
    pub jobs: Vec<Job>,
    /// The outcomes of these runs.
    pub outcomes: Vec<Outcome>,
    /// The program that made them.
    pub provenance: Provenance,
}

/// The files of one scenario.
#[derive(Debug, Default)]
struct Files {
    scenario: Option<PathBuf>,
    rows: Vec<PathBuf>,
}

/// The outcome of each run, with its file.
type Found = BTreeMap<Key, (PathBuf, Outcome)>;

/// Reads a scenario, and names all of its runs in order of cells and seeds.
pub type ReadScenario<'a> = &'a dyn Fn(Source) -> Result<(Outline, Vec<Job>), ScenarioError>;

/// Reads all cells in `folders` and in the folders up to two levels below them, so that the folder
/// of `--out`, that of a scenario, and that of its cells will do. `read` reads the scenarios.
///
/// # Errors
/// Returns an error if a cell is missing, is there in two folders, or cannot be read; if the cells
/// were made by different programs; or if two scenarios have the same name.
pub fn merge(folders: &[PathBuf], read: ReadScenario<'_>) -> Result<Vec<Merged>, ShardError> {
    let mut found = BTreeMap::new();
    for folder in folders {
        find(folder, 2, &mut found)?;
    }
    if found.is_empty() {
        let folders: Vec<_> = folders.iter().map(|it| it.display().to_string()).collect();
        return Err(ShardError::NoCells(folders.join(", ")));
    }
    let mut all: Vec<(PathBuf, Merged)> = Vec::new();
    for files in found.into_values() {
        let merged = files.merge(read)?;
        let same = |(_, other): &&(PathBuf, Merged)| other.outline.id == merged.1.outline.id;
        if let Some((first, _)) = all.iter().find(same) {
            return Err(ShardError::SameName {
                id: merged.1.outline.id.clone(),
                first: first.clone(),
                second: merged.0,
            });
        }
        all.push(merged);
    }
    Ok(all.into_iter().map(|(_, merged)| merged).collect())
}

/// Adds the files in `folder`, and in those `depth` levels below it, by the hashes of their
/// scenarios.
fn find(
    folder: &Path,
    depth: usize,
    found: &mut BTreeMap<String, Files>,
) -> Result<(), ShardError> {
    let entries = fs::read_dir(folder).map_err(ShardError::file(folder))?;
    let entries = entries.collect::<Result<Vec<_>, _>>();
    let mut paths: Vec<_> = entries.map_err(ShardError::file(folder))?;
    paths.sort_by_key(fs::DirEntry::file_name);
    for path in paths.iter().map(fs::DirEntry::path) {
        if path.is_dir() {
            if depth > 0 {
                find(&path, depth - 1, found)?;
            }
        } else if let Some(hash) = scenario_of(&path) {
            found.entry(hash.to_owned()).or_default().scenario = Some(path.clone());
        } else if let Some(hash) = hash_of(&path) {
            let files = found.entry(hash.to_owned()).or_default();
            files.rows.push(path.clone());
        }
    }
    Ok(())
}

/// Returns HASH of a file `scenario-HASH.json`.
fn scenario_of(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix("scenario-")?.strip_suffix(".json")
}

impl Files {
    /// Reads the scenario and all its cells. Returns the scenario's file, too.
    fn merge(self, read: ReadScenario<'_>) -> Result<(PathBuf, Merged), ShardError> {
        let Some(path) = self.scenario.clone() else {
            let file = self.rows.first().cloned().unwrap_or_default();
            return Err(ShardError::rows(file)(
                "the folder has no scenario-*.json beside this file",
            ));
        };
        let (outline, jobs) = read(read_scenario(&path)?.source())?;
        let wanted: BTreeSet<Key> = jobs.iter().map(|job| (job.cell, job.seed)).collect();
        let mut programs: BTreeMap<Program, Found> = BTreeMap::new();
        let columns = Columns::new(&outline);
        for file in &self.rows {
            read_rows(file, &columns, &outline, &wanted, &mut programs)?;
        }
        let (program, mut found) = whole(programs, &outline, &wanted)?;
        let outcomes = jobs.iter().filter_map(|job| {
            let (_, outcome) = found.remove(&(job.cell, job.seed))?;
            Some(outcome)
        });
        let merged = Merged {
            outcomes: outcomes.collect(),
            outline,
            jobs,
            provenance: program.provenance(),
        };
        debug_assert_eq!(merged.jobs.len(), merged.outcomes.len());
        Ok((path, merged))
    }
}

/// Adds the wanted runs of a file to those of its program.
fn read_rows(
    file: &Path,
    columns: &Columns,
    outline: &Outline,
    wanted: &BTreeSet<Key>,
    programs: &mut BTreeMap<Program, Found>,
) -> Result<(), ShardError> {
    let (program, reader) = open(file, None)?;
    let own = env!("CARGO_PKG_VERSION");
    if program.version != own {
        let reason = format!("{program} made these rows, and this is manyflow {own}");
        return Err(ShardError::rows(file)(reason));
    }
    let found = programs.entry(program).or_default();
    let mut doubled: BTreeMap<usize, PathBuf> = BTreeMap::new();
    for rows in reader {
        let rows = rows.map_err(ShardError::rows(file))?;
        for (job, outcome) in columns.decode(&rows).map_err(ShardError::rows(file))? {
            let key = (job.cell, job.seed);
            if !wanted.contains(&key) {
                continue;
            }
            let known = found.entry(key);
            let known = known.or_insert_with(|| (file.to_owned(), outcome));
            if known.0.parent() != file.parent() {
                doubled.insert(job.cell, known.0.clone());
            }
        }
    }
    let doubled = doubled.into_iter();
    let doubled: Vec<_> = doubled
        .map(|(cell, first)| (cell, first, file.to_owned()))
        .collect();
    match doubled.is_empty() {
        true => Ok(()),
        false => Err(ShardError::Doubled {
            id: outline.id.clone(),
            doubled,
        }),
    }
}

/// Returns the program that made all runs, with their outcomes.
fn whole(
    programs: BTreeMap<Program, Found>,
    outline: &Outline,
    wanted: &BTreeSet<Key>,
) -> Result<(Program, Found), ShardError> {
    let is_found = |key: &&Key| programs.values().any(|found| found.contains_key(key));
    let missing = wanted.iter().filter(|key| !is_found(key));
    let missing: BTreeSet<usize> = missing.map(|(cell, _)| *cell).collect();
    if !missing.is_empty() {
        return Err(ShardError::Missing {
            id: outline.id.clone(),
            missing: missing.into_iter().collect(),
            total: outline.cells.len(),
        });
    }
    let firsts = programs.iter().filter_map(|(program, found)| {
        let (file, _) = found.values().next()?;
        Some((file.clone(), program.to_string()))
    });
    let firsts: Vec<(PathBuf, String)> = firsts.collect();
    let mut complete = programs.into_iter();
    // A folder may keep the rows that an older program made before all were made again.
    let complete = complete.find(|(_, found)| found.len() == wanted.len());
    match (complete, &firsts[..]) {
        (Some(whole), _) => Ok(whole),
        (None, [(first, one), (second, other), ..]) => Err(ShardError::Programs {
            first: first.clone(),
            second: second.clone(),
            programs: [one.clone(), other.clone()],
        }),
        (None, _) => Err(ShardError::NoCells(outline.id.clone())),
    }
}
