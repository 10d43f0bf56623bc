//! Compaction: all rows of a folder in order, in few files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave_record_batch;

use super::index::{Index, Place};
use super::parquet::{Hidden, Unfinished, draw_number, is_gone, open};
use super::store::part_path;
use super::{Program, ShardError};

/// The maximum number of files.
const FILES_MAX: usize = 64;
/// The minimum number of rows of each file but the last.
const FILE_ROWS_MIN: usize = 16_384;
/// The rows that are brought in order at once.
const SLICE_ROWS: usize = 1024;
/// How often compaction begins again, if another process has compacted the folder meanwhile.
const ATTEMPTS: usize = 10;

/// Writes all rows of this program in the order of cells and seeds, and removes the files that had
/// them. Returns the files, which depend on nothing but the rows. A process that is killed loses no
/// row: the new files get their names after all of them are complete, and before others are
/// removed.
pub(super) fn compact(
    folder: &Path,
    schema: &SchemaRef,
    program: &Program,
) -> Result<Vec<PathBuf>, ShardError> {
    for _ in 1..ATTEMPTS {
        match compact_once(folder, schema, program) {
            Err(error) if is_gone(&error) => {}
            ended => return ended,
        }
    }
    compact_once(folder, schema, program)
}

fn compact_once(
    folder: &Path,
    schema: &SchemaRef,
    program: &Program,
) -> Result<Vec<PathBuf>, ShardError> {
    let index = Index::read(folder, program)?;
    let total = index.rows.len();
    let rows_each = total.div_ceil(FILES_MAX).max(FILE_ROWS_MIN);
    let hash = &program.fingerprint[..16];
    // The number of rows is part of the name, so that no file is replaced by one that lacks some of
    // its rows.
    let name = |number| folder.join(format!("rows-{hash}-{total}-{number:02}.parquet"));
    let wanted: Vec<PathBuf> = (0..total.div_ceil(rows_each)).map(name).collect();
    if index.files != wanted {
        let places: Vec<Place> = index.rows.values().copied().collect();
        let mut source = Source {
            index: &index,
            schema,
            open: BTreeMap::new(),
        };
        let mut hidden: Vec<Hidden> = Vec::with_capacity(wanted.len());
        for (path, places) in wanted.iter().zip(places.chunks(rows_each)) {
            let mut file = Unfinished::create(path.clone(), schema, program)?;
            for slice in places.chunks(SLICE_ROWS) {
                file.write(&source.gather(slice)?)?;
            }
            hidden.push(file.finish()?);
        }
        let others = index
            .others
            .iter()
            .filter(|other| !other.left_out.is_empty());
        for other in others.filter(|other| wanted.contains(&other.path)) {
            // Another program's rows, of the same number, have the name of a new file.
            let part = part_path(folder, program, draw_number(), 0);
            fs::rename(&other.path, part).map_err(ShardError::file(&other.path))?;
        }
        for file in hidden {
            file.show()?;
        }
    }
    let superseded = index
        .others
        .iter()
        .filter(|other| other.left_out.is_empty());
    let old = index
        .files
        .iter()
        .chain(superseded.map(|other| &other.path));
    for path in old.filter(|path| !wanted.contains(path)) {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ShardError::file(path)(error));
            }
            _ => {}
        }
    }
    Ok(wanted)
}

/// The files from which rows are taken. Those that the present slice needs are in memory.
struct Source<'a> {
    index: &'a Index,
    schema: &'a SchemaRef,
    open: BTreeMap<usize, RecordBatch>,
}

impl Source<'_> {
    /// Returns the rows at these places, in this order.
    fn gather(&mut self, places: &[Place]) -> Result<RecordBatch, ShardError> {
        let wanted: BTreeSet<usize> = places.iter().map(|place| place.file).collect();
        self.open.retain(|file, _| wanted.contains(file));
        for file in &wanted {
            if !self.open.contains_key(file) {
                let rows = read(&self.index.files[*file], self.schema)?;
                self.open.insert(*file, rows);
            }
        }
        let batches: Vec<&RecordBatch> = self.open.values().collect();
        let numbers: BTreeMap<usize, usize> = self.open.keys().copied().zip(0..).collect();
        let rows = places.iter().map(|place| (numbers[&place.file], place.row));
        let rows: Vec<(usize, usize)> = rows.collect();
        let first = &self.index.files[places[0].file];
        interleave_record_batch(&batches, &rows).map_err(ShardError::rows(first))
    }
}

/// Reads a file whose rows have this schema.
fn read(path: &Path, schema: &SchemaRef) -> Result<RecordBatch, ShardError> {
    let (_, reader) = open(path, None)?;
    let batches = reader.collect::<Result<Vec<_>, _>>();
    let batches = batches.map_err(ShardError::rows(path))?;
    concat_batches(schema, &batches).map_err(ShardError::rows(path))
}
