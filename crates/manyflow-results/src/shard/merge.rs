//! The results of a whole scenario from folders of cells.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::ShardError;
use super::store::{Header, read_cell, read_scenario};
use crate::Provenance;
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

/// The files of one scenario: its own, and those of each cell.
#[derive(Debug, Default)]
struct Files {
    scenario: Option<PathBuf>,
    cells: BTreeMap<usize, Vec<PathBuf>>,
}

/// Reads a scenario, and names all of its runs in order of cells and seeds.
pub type ReadScenario<'a> = &'a dyn Fn(Source) -> Result<(Outline, Vec<Job>), ScenarioError>;

/// Reads all cells in `folders` and in the folders up to two levels below them, so that the folder
/// of `--out`, that of a scenario, and that of its cells will do. `read` reads the scenarios.
///
/// # Errors
/// Returns an error if a cell is missing, is there twice, or cannot be read; if the cells were made
/// by different programs; or if two scenarios have the same name.
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
            continue;
        }
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if let Some(hash) = middle(name, "scenario-", ".json") {
            found.entry(hash.to_owned()).or_default().scenario = Some(path.clone());
        } else if let Some((hash, cell)) = cell_name(name) {
            let files = found.entry(hash.to_owned()).or_default();
            files.cells.entry(cell).or_default().push(path.clone());
        }
    }
    Ok(())
}

fn middle<'a>(name: &'a str, before: &str, after: &str) -> Option<&'a str> {
    name.strip_prefix(before)?.strip_suffix(after)
}

/// Parses `cell-HASH-NUMBER.jsonl`.
fn cell_name(name: &str) -> Option<(&str, usize)> {
    let (hash, cell) = middle(name, "cell-", ".jsonl")?.split_once('-')?;
    Some((hash, cell.parse().ok()?))
}

impl Files {
    /// Reads the scenario and all its cells. Returns the scenario's file, too.
    fn merge(self, read: ReadScenario<'_>) -> Result<(PathBuf, Merged), ShardError> {
        let any = || self.cells.values().flatten().next().cloned();
        let Some(path) = self.scenario.clone() else {
            let cell = any().unwrap_or_default();
            return Err(ShardError::Format {
                path: cell,
                line: 1,
                reason: "the folder has no scenario-*.json beside this cell".to_owned(),
            });
        };
        let (outline, jobs) = read(read_scenario(&path)?.source())?;
        let files = self.complete(&outline)?;
        let (mut outcomes, mut first) = (Vec::with_capacity(jobs.len()), None);
        for (cell, file) in files.iter().enumerate() {
            let (header, own) = read_cell(file)?;
            check_cell(file, &header, cell, &jobs, own.len())?;
            let (known_file, known) = first.get_or_insert_with(|| (file.clone(), header.clone()));
            check_program((known_file, known), (file, &header))?;
            outcomes.extend(own);
        }
        let provenance = first.map(|(_, header)| Provenance {
            commit: header.commit,
            toolchain: header.toolchain,
        });
        let merged = Merged {
            outline,
            jobs,
            outcomes,
            provenance: provenance.unwrap_or_default(),
        };
        Ok((path, merged))
    }

    /// Returns one file for each cell of the scenario, in order.
    fn complete(&self, outline: &Outline) -> Result<Vec<PathBuf>, ShardError> {
        let id = || outline.id.clone();
        let twice = self
            .cells
            .iter()
            .filter_map(|(cell, files)| match &files[..] {
                [first, second, ..] => Some((*cell, first.clone(), second.clone())),
                _ => None,
            });
        let doubled: Vec<_> = twice.collect();
        if !doubled.is_empty() {
            return Err(ShardError::Doubled { id: id(), doubled });
        }
        let total = outline.cells.len();
        let missing: Vec<_> = (0..total)
            .filter(|cell| !self.cells.contains_key(cell))
            .collect();
        if !missing.is_empty() {
            return Err(ShardError::Missing {
                id: id(),
                missing,
                total,
            });
        }
        let files = (0..total).filter_map(|cell| self.cells[&cell].first().cloned());
        Ok(files.collect())
    }
}

/// Checks that a file has the runs of its cell.
fn check_cell(
    file: &Path,
    header: &Header,
    cell: usize,
    jobs: &[Job],
    outcomes: usize,
) -> Result<(), ShardError> {
    let wanted = jobs.iter().filter(|job| job.cell == cell);
    let seeds: Vec<_> = wanted.map(|job| job.seed).collect();
    let reason = if header.cell != cell {
        format!(
            "the file has cell {}, and its name cell {cell}",
            header.cell
        )
    } else if header.seeds != seeds {
        format!("the seeds are {:?} instead of {seeds:?}", header.seeds)
    } else if outcomes != seeds.len() {
        format!("{outcomes} runs instead of {}", seeds.len())
    } else {
        return Ok(());
    };
    Err(ShardError::Format {
        path: file.to_owned(),
        line: 1,
        reason,
    })
}

/// Checks that both cells were made by the same program, and by this version: it draws the figures.
fn check_program(
    (first, known): (&Path, &Header),
    (second, header): (&Path, &Header),
) -> Result<(), ShardError> {
    let own = env!("CARGO_PKG_VERSION");
    let same = known.program() == header.program() && header.version == own;
    match same {
        true => Ok(()),
        false if header.version != own => Err(ShardError::Format {
            path: second.to_owned(),
            line: 1,
            reason: format!(
                "{} made this cell, and this is manyflow {own}",
                header.program()
            ),
        }),
        false => Err(ShardError::Programs {
            first: first.to_owned(),
            second: second.to_owned(),
            programs: [known.program(), header.program()],
        }),
    }
}
