//! Files of rows: each appears under its name when it is complete.

use std::fs::{self, File};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};

use super::{Program, ShardError};

/// The rows that a reader returns at once.
const BATCH_ROWS: usize = 1024;
/// The bytes in memory after which a writer ends a group of rows.
const GROUP_BYTES: usize = 64 << 20;

/// Returns a number that no other process draws: names of unfinished files and parts have it.
pub(super) fn draw_number() -> u64 {
    // The standard library seeds each state of its hash tables by the operating system.
    RandomState::new().hash_one(std::process::id())
}

/// A file of rows while it is written.
pub(super) struct Unfinished {
    writer: ArrowWriter<File>,
    path: PathBuf,
    hidden: PathBuf,
}

impl Unfinished {
    pub(super) fn create(
        path: PathBuf,
        schema: &SchemaRef,
        program: &Program,
    ) -> Result<Unfinished, ShardError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let hidden = path.with_file_name(format!(".{name}.{:016x}", draw_number()));
        let pairs = program.pairs();
        let pairs = pairs.map(|(key, value)| KeyValue::new(format!("manyflow.{key}"), value));
        let properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_key_value_metadata(Some(pairs.collect()))
            .build();
        let made = File::create_new(&hidden).map_err(ParquetError::from);
        let made =
            made.and_then(|file| ArrowWriter::try_new(file, Arc::clone(schema), Some(properties)));
        match made {
            Ok(writer) => Ok(Unfinished {
                writer,
                path,
                hidden,
            }),
            Err(error) => {
                // The error of the file itself matters more.
                let _ = fs::remove_file(&hidden);
                Err(ShardError::rows(&path)(error))
            }
        }
    }

    pub(super) fn write(&mut self, rows: &RecordBatch) -> Result<(), ShardError> {
        let written = self.writer.write(rows).and_then(|()| {
            match self.writer.in_progress_size() > GROUP_BYTES {
                true => self.writer.flush(),
                false => Ok(()),
            }
        });
        written.map_err(|error| self.failed(error))
    }

    /// Ends the file, which remains hidden until [`Hidden::show`].
    pub(super) fn finish(mut self) -> Result<Hidden, ShardError> {
        let ended = self.writer.finish();
        ended.map_err(|error| self.failed(error))?;
        let Unfinished { path, hidden, .. } = self;
        Ok(Hidden { path, hidden })
    }

    fn failed(&self, error: ParquetError) -> ShardError {
        let _ = fs::remove_file(&self.hidden);
        ShardError::rows(&self.path)(error)
    }
}

/// A complete file that does not have its name yet.
pub(super) struct Hidden {
    path: PathBuf,
    hidden: PathBuf,
}

impl Hidden {
    pub(super) fn show(self) -> Result<PathBuf, ShardError> {
        let shown = fs::rename(&self.hidden, &self.path);
        shown.map_err(ShardError::file(&self.path))?;
        Ok(self.path)
    }
}

/// Opens a file of rows. Returns its program, too. With `columns`, only these are read.
pub(super) fn open(
    path: &Path,
    columns: Option<&[&str]>,
) -> Result<(Program, ParquetRecordBatchReader), ShardError> {
    let file = fs::OpenOptions::new().read(true).open(path);
    let file = file.map_err(ShardError::file(path))?;
    let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(ShardError::rows(path))?;
    let pairs = builder.metadata().file_metadata().key_value_metadata();
    let pairs = pairs.map(Vec::as_slice).unwrap_or_default();
    let program = Program::of_pairs(&|key| {
        let pair = pairs
            .iter()
            .find(|pair| pair.key == format!("manyflow.{key}"));
        pair.and_then(|pair| pair.value.clone())
    });
    let all = builder.schema().fields().iter().enumerate();
    let chosen = all.filter(|(_, field)| {
        columns.is_none_or(|columns| columns.contains(&field.name().as_str()))
    });
    let mask = ProjectionMask::roots(builder.parquet_schema(), chosen.map(|(index, _)| index));
    let reader = builder.with_projection(mask).with_batch_size(BATCH_ROWS);
    let reader = reader.build().map_err(ShardError::rows(path))?;
    Ok((program, reader))
}

/// Returns whether the file no longer exists, because another process has compacted the folder.
pub(super) fn is_gone(error: &ShardError) -> bool {
    matches!(error, ShardError::File { cause, .. } if cause.kind() == io::ErrorKind::NotFound)
}
