//! Reads rows, and makes a unit of those of each tenth of a second.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::value::RawValue;

use super::{Kind, ROW_BYTES_MAX, ROWS_MAX, columns, encode};
use crate::source::{Next, SourceError};

/// The rows that are read before they are asked for.
const AHEAD: usize = 1_024;
/// The length of a unit from which on no further row joins it, in bytes.
const UNIT_BYTES: usize = 1 << 20;

/// A finding of the reading thread.
enum Found {
    /// The kind of rows, and the header.
    Kind(Kind, Vec<u8>),
    Row(Vec<u8>),
    Error(SourceError),
}

/// The units of a text of rows. The text is opened and read by a thread of its own, because a row
/// can come at any time, and a unit does not wait for it.
pub(crate) struct RowUnits {
    found: Receiver<Found>,
    interval: Duration,
    rows_max: usize,
    /// The names of columns in the order of their importance; empty for whole rows.
    columns: Vec<String>,
    kind: Option<(Kind, Vec<u8>)>,
}

impl RowUnits {
    /// Reads the text that `open` opens, and takes the rows of each `interval` together, at most
    /// `rows_max` of them. With an interval of 0, a unit waits until it has that many. With the
    /// names of `columns`, prefixes have fewer columns instead of fewer rows. `from` names the text
    /// in messages.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(crate) fn new<R: Read>(
        from: String,
        interval: Duration,
        rows_max: usize,
        columns: Vec<String>,
        open: impl FnOnce() -> Result<R, SourceError> + Send + 'static,
    ) -> Result<RowUnits, SourceError> {
        let (into, found) = sync_channel(AHEAD);
        let names = columns.clone();
        let read = move || match open() {
            Ok(text) => read_rows(&from, &names, text, &into),
            Err(error) => drop(into.send(Found::Error(error))),
        };
        thread::Builder::new()
            .name("stream rows".to_owned())
            .spawn(read)
            .map_err(SourceError::Thread)?;
        Ok(RowUnits {
            found,
            interval,
            rows_max: rows_max.clamp(1, ROWS_MAX),
            columns,
            kind: None,
        })
    }

    /// Waits for the first row of a unit; `None` at the end.
    fn first(&mut self) -> Option<Result<Vec<u8>, SourceError>> {
        loop {
            match self.found.recv().ok()? {
                Found::Kind(kind, header) => self.kind = Some((kind, header)),
                Found::Row(row) => return Some(Ok(row)),
                Found::Error(error) => return Some(Err(error)),
            }
        }
    }
}

impl Iterator for RowUnits {
    type Item = Next;

    fn next(&mut self) -> Option<Next> {
        let first = match self.first()? {
            Ok(first) => first,
            Err(error) => return Some(Err(error)),
        };
        let end = Instant::now() + self.interval;
        let mut bytes = first.len();
        let mut rows = vec![first];
        while rows.len() < self.rows_max && bytes < UNIT_BYTES {
            let found = match self.interval.is_zero() {
                true => self.found.recv().map_err(RecvTimeoutError::from),
                false => {
                    let left = end.saturating_duration_since(Instant::now());
                    self.found.recv_timeout(left)
                }
            };
            match found {
                Ok(Found::Row(row)) => {
                    bytes += row.len();
                    rows.push(row);
                }
                Ok(Found::Error(error)) => return Some(Err(error)),
                Ok(Found::Kind(..)) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
        }
        let (kind, header) = self.kind.as_ref()?;
        let unit = match &self.columns[..] {
            [] => encode(*kind, header, &rows),
            names => columns::encode(*kind, header, names, &rows),
        };
        Some(Ok((unit.into(), None)))
    }
}

/// Reads rows until the text ends, or nobody takes them. A text that begins with `{` or `[` is JSON
/// lines, and any other one CSV.
fn read_rows(from: &str, names: &[String], text: impl Read, into: &SyncSender<Found>) {
    let mut text = BufReader::new(text);
    let first = text
        .fill_buf()
        .map(|bytes| bytes.trim_ascii_start().first().copied());
    let result = match first {
        Ok(Some(b'{' | b'[')) => read_json(from, !names.is_empty(), text, into),
        Ok(_) => read_csv(from, names, text, into),
        Err(error) => Err(error.to_string()),
    };
    if let Err(error) = result {
        let from = from.to_owned();
        let _ = into.send(Found::Error(SourceError::Rows { from, error }));
    }
}

/// Reads JSON lines; all are objects if prefixes have fewer columns.
fn read_json(
    from: &str,
    has_columns: bool,
    mut text: impl BufRead,
    into: &SyncSender<Found>,
) -> Result<(), String> {
    let mut skipped = Skipped::new(from);
    let _ = into.send(Found::Kind(Kind::JsonLines, Vec::new()));
    for number in 1.. {
        let mut line = Vec::new();
        let mut start = text.by_ref().take(ROW_BYTES_MAX as u64 + 2);
        let read = start.read_until(b'\n', &mut line);
        match read {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
        let row = line.trim_ascii();
        if line.len() > ROW_BYTES_MAX + 1 {
            skipped.add(number, "it is longer than 65,535 bytes");
            if !line.ends_with(b"\n") {
                text.skip_until(b'\n').map_err(|error| error.to_string())?;
            }
        } else if row.is_empty() {
            continue;
        } else if let Err(error) = check_json(row, has_columns) {
            skipped.add(number, &error.to_string());
        } else if into.send(Found::Row(row.to_vec())).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn check_json(row: &[u8], has_columns: bool) -> Result<(), serde_json::Error> {
    match has_columns {
        true => columns::check_object(row),
        false => serde_json::from_slice::<&RawValue>(row).map(|_| ()),
    }
}

fn read_csv(
    from: &str,
    names: &[String],
    text: impl BufRead,
    into: &SyncSender<Found>,
) -> Result<(), String> {
    let mut skipped = Skipped::new(from);
    let mut reader = csv::ReaderBuilder::new()
        .has_headers(true)
        .from_reader(text);
    let header = reader.byte_headers().map_err(|error| error.to_string())?;
    if !names.is_empty() {
        columns::check_header(header, names)?;
    }
    let header = line_of(header).filter(|line| line.len() <= ROW_BYTES_MAX);
    let header =
        header.ok_or("the line with the names of the columns is longer than 65,535 bytes")?;
    let _ = into.send(Found::Kind(Kind::Csv, header));
    let mut record = csv::ByteRecord::new();
    loop {
        let read = reader.read_byte_record(&mut record);
        let number = reader.position().line();
        match read {
            Ok(false) => return Ok(()),
            Ok(true) => match line_of(&record).filter(|line| line.len() <= ROW_BYTES_MAX) {
                Some(row) => {
                    if into.send(Found::Row(row)).is_err() {
                        return Ok(());
                    }
                }
                None => skipped.add(number, "it is longer than 65,535 bytes"),
            },
            Err(error) if error.is_io_error() => return Err(error.to_string()),
            Err(error) => skipped.add(number, &error.to_string()),
        }
    }
}

/// Returns the line of a record, quoted where necessary and without its end.
pub(super) fn line_of(record: &csv::ByteRecord) -> Option<Vec<u8>> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    writer.write_byte_record(record).ok()?;
    let mut line = writer.into_inner().ok()?;
    line.pop();
    Some(line)
}

/// Warns of lines that are not valid rows and are left out: of the first, the second, the fourth,
/// and so on.
struct Skipped<'a> {
    from: &'a str,
    count: u64,
}

impl<'a> Skipped<'a> {
    fn new(from: &'a str) -> Skipped<'a> {
        Skipped { from, count: 0 }
    }

    fn add(&mut self, line: u64, reason: &str) {
        self.count += 1;
        if self.count.is_power_of_two() {
            let Skipped { from, count } = self;
            tracing::warn!("{from}: line {line} is left out ({reason}); {count} lines so far");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::decode;

    fn lines(text: &'static str) -> Vec<String> {
        lines_by(&[], text)
    }

    fn units(columns: &[&str], text: &'static str) -> RowUnits {
        let columns = columns.iter().map(|name| (*name).to_owned()).collect();
        let interval = Duration::from_millis(1);
        let open = move || Ok(text.as_bytes());
        RowUnits::new("test".to_owned(), interval, 2, columns, open).unwrap()
    }

    fn lines_by(columns: &[&str], text: &'static str) -> Vec<String> {
        let mut written = Vec::new();
        let mut is_first = true;
        for unit in units(columns, text) {
            let (unit, _) = unit.unwrap();
            let rows = decode(&unit).unwrap();
            rows.write(core::mem::take(&mut is_first), &mut written);
        }
        let written = String::from_utf8(written).unwrap();
        written.split_terminator('\n').map(str::to_owned).collect()
    }

    #[test]
    fn csv_keeps_its_columns_and_leaves_out_rows_of_another_form() {
        let text = "time,\"a, b\"\r\n1,\"x \"\"y\"\"\"\n2\n3,\n4,5";
        let wanted = ["time,\"a, b\"", "1,\"x \"\"y\"\"\"", "3,", "4,5"];
        assert_eq!(lines(text), wanted);
    }

    #[test]
    fn json_lines_are_valid_json_and_others_are_left_out() {
        let text = "{\"a\": 1}\n\n{\"a\": \n[2, 3]\r\n{}";
        assert_eq!(lines(text), ["{\"a\": 1}", "[2, 3]", "{}"]);
    }

    #[test]
    fn whole_units_by_columns_give_the_same_rows() {
        let text = "time,\"a, b\",speed\n1,\"x\n\"\"y\"\"\",3\n2\n,,\n4,,6";
        let wanted = [
            "time,\"a, b\",speed",
            "1,\"x",
            "\"\"y\"\"\",3",
            ",,",
            "4,,6",
        ];
        assert_eq!(lines_by(&["speed", "time"], text), wanted);
        let text = "{\"note\": [1, 2], \"time\": 1}\n[3]\n{}\n{\"time\": 2, \"time\": 3}";
        let wanted = ["{\"time\":1,\"note\":[1, 2]}", "{}", "{\"time\":3}"];
        assert_eq!(lines_by(&["time"], text), wanted);
    }

    #[test]
    fn a_column_that_csv_does_not_have_is_an_error_with_those_that_it_has() {
        let mut units = units(&["time", "sped"], "time,speed\n1,2");
        let error = units.next().unwrap().unwrap_err().to_string();
        assert!(
            error.contains("`sped`") && error.contains("time, speed"),
            "{error}"
        );
    }

    #[test]
    fn an_empty_text_has_no_unit() {
        assert!(lines("").is_empty() && lines_by(&["time"], "").is_empty());
    }

    #[test]
    fn a_text_that_cannot_be_opened_is_an_error() {
        let error = || Err::<&[u8], _>(SourceError::Fps(0.0));
        let units = RowUnits::new("test".to_owned(), Duration::ZERO, 1, Vec::new(), error);
        let mut units = units.unwrap();
        assert!(matches!(units.next(), Some(Err(SourceError::Fps(_)))));
        assert!(units.next().is_none());
    }
}
