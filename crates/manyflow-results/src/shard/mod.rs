//! Parts of a scenario for batch queues and clusters: each process runs some of the cells and
//! writes their rows to a folder, and [`merge`] makes the results of the whole scenario from it.
//!
//! | file | contents |
//! |---|---|
//! | `scenario-HASH.json` | the scenario |
//! | `part-HASH-WORKER-NUMBER.parquet` | runs, in the order in which a process made them |
//! | `rows-HASH-TOTAL-NUMBER.parquet` | runs by cell and seed, after [`CellStore::compact`] |
//!
//! HASH is the first 16 digits of the fingerprint, which tells different texts, forms and settings
//! apart. The page of [`rows`](crate::rows) has the columns. A file is complete when it appears
//! under its name, so a process that is killed loses only runs that it has not written. A run may
//! be in two files, whose rows are equal, after two processes have made it.

mod compact;
mod index;
mod merge;
mod parquet;
mod program;
mod read;
mod store;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;

pub use merge::{Merged, ReadScenario, merge};
pub use read::RowReader;
pub use store::{CellStore, PartWriter};

use program::Program;

use manyflow_model::ScenarioError;

/// One of the equal parts of a scenario's cells.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// The number of this part, from 1.
    number: usize,
    /// The number of parts.
    count: usize,
}

impl Shard {
    /// Returns whether the cell belongs to this part. Cells are dealt in turn, so that parts take
    /// about the same time if cells grow along an axis: shard I of N has the cells K with
    /// K mod N = I - 1.
    pub fn has(self, cell: usize) -> bool {
        debug_assert!((1..=self.count).contains(&self.number), "{self}");
        cell % self.count == self.number - 1
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.number, self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Shard, String> {
        let parts = text.split_once('/');
        let parsed = parts.and_then(|(number, count)| {
            let (number, count) = (number.parse().ok()?, count.parse().ok()?);
            (1..=count)
                .contains(&number)
                .then_some(Shard { number, count })
        });
        parsed.ok_or_else(|| {
            "give the number of the shard, from 1, and the number of shards, as in 3/10".to_owned()
        })
    }
}

/// The reason why cells cannot be written, read or merged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// A file or folder cannot be read or written.
    #[error("{path}: {cause}; check the folder and its free space", path = .path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        cause: io::Error,
    },
    /// A file does not have the format of rows, or those of another scenario.
    #[error("{path}: {reason}; remove the file and run its shard again", path = .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The folders have no cells.
    #[error("no cells in {0}: name the folders that `sim --shard` wrote with --out")]
    NoCells(String),
    /// Runs of a cell are in no file.
    #[error("{id}: of {total} cells, {} missing: run their shards; shard I of N has the cells K with K mod N = I - 1", cells(.missing))]
    Missing {
        /// The scenario.
        id: String,
        /// The cells.
        missing: Vec<usize>,
        /// The number of the scenario's cells.
        total: usize,
    },
    /// Cells are in two folders.
    #[error("{id}: {}; name each folder once, or remove one of the two files", twice(.doubled))]
    Doubled {
        /// The scenario.
        id: String,
        /// The cells with their files.
        doubled: Vec<(usize, PathBuf, PathBuf)>,
    },
    /// Cells were not made by the same program.
    #[error("{first} and {second} were made by different programs, {} and {}: run one of them again", .programs[0], .programs[1], first = .first.display(), second = .second.display())]
    Programs {
        /// A file.
        first: PathBuf,
        /// A file of another program.
        second: PathBuf,
        /// The two programs.
        programs: [String; 2],
    },
    /// Two scenarios have the same name, so that their results would have the same folder.
    #[error("{first} and {second} are different scenarios with the name {id}: merge them into different folders", first = .first.display(), second = .second.display())]
    SameName {
        /// The name.
        id: String,
        /// The file of one of them.
        first: PathBuf,
        /// The file of the other.
        second: PathBuf,
    },
    /// A scenario in a folder of cells is invalid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

impl ShardError {
    fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> ShardError {
        let path = path.into();
        move |cause| ShardError::File { path, cause }
    }

    fn rows<E: ToString>(path: impl Into<PathBuf>) -> impl FnOnce(E) -> ShardError {
        let path = path.into();
        move |reason| ShardError::Format {
            path,
            reason: reason.to_string(),
        }
    }
}

/// Names cells as a subject: `cell 3 is`, `cells 3, 7 are`.
fn cells(numbers: &[usize]) -> String {
    let listed: Vec<_> = numbers.iter().map(usize::to_string).collect();
    match listed.len() {
        1 => format!("cell {} is", listed[0]),
        _ => format!("cells {} are", listed.join(", ")),
    }
}

fn twice(cells: &[(usize, PathBuf, PathBuf)]) -> String {
    let named = cells.iter().map(|(cell, first, second)| {
        format!(
            "cell {cell} is in {} and {}",
            first.display(),
            second.display()
        )
    });
    named.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cell_belongs_to_one_shard() {
        let shards: Vec<Shard> = (1..=10)
            .map(|number| format!("{number}/10").parse().unwrap())
            .collect();
        for cell in 0..37 {
            let owners = shards.iter().filter(|shard| shard.has(cell));
            assert_eq!(owners.count(), 1, "cell {cell}");
        }
        assert!(shards[2].has(2) && shards[2].has(12));
    }

    #[test]
    fn a_shard_out_of_range_is_refused() {
        for text in [
            "0/10", "11/10", "3", "3/", "/3", "a/b", "-1/2", "1/0", "1/2/3",
        ] {
            let error = text.parse::<Shard>().unwrap_err();
            assert!(error.contains("3/10"), "{text}: {error}");
        }
    }

    #[test]
    fn errors_name_the_cells() {
        let missing = ShardError::Missing {
            id: "x".to_owned(),
            missing: vec![3, 7],
            total: 10,
        };
        let text = missing.to_string();
        assert!(
            text.starts_with("x: of 10 cells, cells 3, 7 are missing"),
            "{text}"
        );
    }
}
