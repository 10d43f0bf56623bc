//! Rows of a folder, one batch after another.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::UInt64Type;
use arrow_array::{BooleanArray, RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::filter::filter_record_batch;
use parquet::arrow::arrow_reader::ParquetRecordBatchReader;

use super::parquet::open;

/// Reads the rows of some files, of which it has one batch in memory.
#[derive(Debug)]
pub struct RowReader {
    /// The files that have not been opened, the last one first.
    files: Vec<PathBuf>,
    schema: SchemaRef,
    seeds: BTreeSet<u64>,
    reader: Option<ParquetRecordBatchReader>,
}

impl RowReader {
    /// Creates a reader of the columns of `schema` in these files, for rows with one of the seeds.
    pub fn new(files: &[PathBuf], schema: SchemaRef, seeds: BTreeSet<u64>) -> RowReader {
        RowReader {
            files: files.iter().rev().cloned().collect(),
            schema,
            seeds,
            reader: None,
        }
    }

    fn open_next(&mut self) -> Result<Option<ParquetRecordBatchReader>, ArrowError> {
        let Some(path) = self.files.pop() else {
            return Ok(None);
        };
        let fields = self.schema.fields().iter();
        let mut columns: Vec<&str> = fields.map(|field| field.name().as_str()).collect();
        columns.push("seed");
        let opened = open(&path, Some(&columns));
        let (_, reader) = opened.map_err(|error| ArrowError::ExternalError(Box::new(error)))?;
        Ok(Some(reader))
    }

    /// Returns the rows with the wanted seeds, with the columns of the schema.
    fn chosen(&self, rows: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let missing = || ArrowError::SchemaError("the rows have no seeds".to_owned());
        let seeds = rows.column_by_name("seed");
        let seeds = seeds.and_then(|seeds| seeds.as_primitive_opt::<UInt64Type>());
        let seeds = seeds.ok_or_else(missing)?.values().iter();
        let wanted: BooleanArray = seeds.map(|seed| Some(self.seeds.contains(seed))).collect();
        let rows = filter_record_batch(rows, &wanted)?;
        let names = self.schema.fields().iter().map(|field| field.name());
        let places = names.map(|name| rows.schema_ref().index_of(name));
        let rows = rows.project(&places.collect::<Result<Vec<_>, _>>()?)?;
        RecordBatch::try_new(Arc::clone(&self.schema), rows.columns().to_vec())
    }
}

impl Iterator for RowReader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.reader.as_mut().and_then(Iterator::next) {
                Some(rows) => return Some(rows.and_then(|rows| self.chosen(&rows))),
                None => match self.open_next() {
                    Ok(None) => return None,
                    Ok(reader) => self.reader = reader,
                    Err(error) => return Some(Err(error)),
                },
            }
        }
    }
}

impl RecordBatchReader for RowReader {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
