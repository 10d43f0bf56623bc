//! The places of rows in the files of a folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use arrow_array::cast::AsArray as _;
use arrow_array::types::{UInt32Type, UInt64Type};

use super::parquet::{is_gone, open};
use super::{Program, ShardError};

/// How often a folder is listed again, if files have disappeared meanwhile.
const ATTEMPTS: usize = 10;

/// A run: its cell and its seed.
pub(super) type Key = (usize, u64);

/// The file of a row, by its number in the index, and the number of the row.
#[derive(Copy, Clone, Debug)]
pub(super) struct Place {
    pub(super) file: usize,
    pub(super) row: usize,
}

/// The rows of one scenario in a folder.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The files with rows of this program.
    pub(super) files: Vec<PathBuf>,
    /// One place of each run, in the order of cells and seeds.
    pub(super) rows: BTreeMap<Key, Place>,
    /// The files of other programs.
    pub(super) others: Vec<Other>,
}

/// A file of another program.
#[derive(Debug)]
pub(super) struct Other {
    pub(super) path: PathBuf,
    pub(super) program: Program,
    /// Its runs that this program has not made.
    pub(super) left_out: Vec<Key>,
}

impl Index {
    /// Reads the keys of all rows of this scenario.
    pub(super) fn read(folder: &Path, program: &Program) -> Result<Index, ShardError> {
        for _ in 1..ATTEMPTS {
            match Index::read_once(folder, program) {
                Err(error) if is_gone(&error) => {}
                ended => return ended,
            }
        }
        Index::read_once(folder, program)
    }

    fn read_once(folder: &Path, program: &Program) -> Result<Index, ShardError> {
        let mut index = Index::default();
        let entries = fs::read_dir(folder).map_err(ShardError::file(folder))?;
        let entries = entries.collect::<Result<Vec<_>, _>>();
        let entries = entries.map_err(ShardError::file(folder))?;
        let mut paths: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        let hash = &program.fingerprint[..16];
        paths.retain(|path| hash_of(path) == Some(hash));
        paths.sort_unstable();
        for path in paths {
            let (of, keys) = keys(&path)?;
            if of != *program {
                index.others.push(Other {
                    path,
                    program: of,
                    left_out: keys,
                });
                continue;
            }
            let file = index.files.len();
            for (row, key) in keys.into_iter().enumerate() {
                index.rows.entry(key).or_insert(Place { file, row });
            }
            index.files.push(path);
        }
        for other in &mut index.others {
            other.left_out.retain(|key| !index.rows.contains_key(key));
        }
        Ok(index)
    }
}

/// Returns HASH of a file `part-HASH-...parquet` or `rows-HASH-...parquet`.
pub(super) fn hash_of(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?.strip_suffix(".parquet")?;
    let rest = name.strip_prefix("part-").or(name.strip_prefix("rows-"))?;
    Some(rest.split_once('-')?.0)
}

/// Returns the program and the runs of a file, in the order of its rows.
fn keys(path: &Path) -> Result<(Program, Vec<Key>), ShardError> {
    let (program, reader) = open(path, Some(&["cell", "seed"]))?;
    let mut keys = Vec::new();
    for rows in reader {
        let rows = rows.map_err(ShardError::rows(path))?;
        let column = |name| rows.column_by_name(name);
        let cells = column("cell").and_then(|cells| cells.as_primitive_opt::<UInt32Type>());
        let seeds = column("seed").and_then(|seeds| seeds.as_primitive_opt::<UInt64Type>());
        let (Some(cells), Some(seeds)) = (cells, seeds) else {
            return Err(ShardError::rows(path)("it has no cells or seeds"));
        };
        let pairs = cells.values().iter().zip(seeds.values());
        keys.extend(pairs.map(|(cell, seed)| (*cell as usize, *seed)));
    }
    Ok((program, keys))
}
