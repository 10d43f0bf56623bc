//! Rows as columns: a prefix of a unit has the most important columns of all rows.
//!
//! ```text
//!   | as in a unit of rows, up to the header | columns | column | column ...
//!
//!   column: | CSV: place in the header, 2 bytes; JSON: length, name | value: length, bytes | value ...
//! ```
//!
//! The columns follow in the order of their importance, and the values of each in the order of the
//! rows in a unit of rows: where a prefix ends within a column, the rows that have its value are
//! spread evenly. The number of columns has 2 bytes. A row is in the text if any of its values has
//! arrived. In CSV, the other values are empty; in JSON lines, their keys are missing. So an empty
//! value of JSON, which is none, stands for a key that the row does not have.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::{Kind, begin, places, push, take};

/// The maximum number of columns of a unit. A row of JSON with more keys loses the others.
const COLUMNS_MAX: usize = u16::MAX as usize;
/// The maximum length of the text of a unit. Those of [`RowUnits`](super::RowUnits) have about a
/// quarter of it; a unit that would become longer is none of them.
const TEXT_BYTES_MAX: usize = 4 << 20;

/// The keys and values of a JSON object. Of equal keys, the last value counts.
type Object<'a> = BTreeMap<String, &'a RawValue>;

/// A column: its name or place, and its values by the numbers of their rows.
struct Column {
    head: Vec<u8>,
    values: BTreeMap<usize, Vec<u8>>,
}

/// Encodes rows, which have passed the reader, by columns: first those with these names, then the
/// others, as they come in CSV, and by their names in each row of JSON.
pub(super) fn encode(kind: Kind, header: &[u8], names: &[String], rows: &[Vec<u8>]) -> Vec<u8> {
    let columns = match kind {
        Kind::Csv => columns_of_csv(header, names, rows),
        Kind::JsonLines => columns_of_json(names, rows),
    };
    debug_assert!(columns.len() <= COLUMNS_MAX);
    let mut unit = begin(kind, true, header, rows.len());
    unit.extend_from_slice(&(columns.len() as u16).to_be_bytes());
    for column in &columns {
        match kind {
            Kind::Csv => unit.extend_from_slice(&column.head),
            Kind::JsonLines => push(&mut unit, &column.head),
        }
        for place in places(rows.len()) {
            push(
                &mut unit,
                column.values.get(&place).map_or(&[], Vec::as_slice),
            );
        }
    }
    unit
}

fn columns_of_csv(header: &[u8], names: &[String], rows: &[Vec<u8>]) -> Vec<Column> {
    let order = order(&record_of(header), names);
    let column = |place: &usize| Column {
        head: (*place as u16).to_be_bytes().to_vec(),
        values: BTreeMap::new(),
    };
    let mut columns: Vec<Column> = order.iter().map(column).collect();
    for (number, row) in rows.iter().enumerate() {
        let row = record_of(row);
        for (column, place) in columns.iter_mut().zip(&order) {
            let value = row.get(*place).unwrap_or_default();
            column.values.insert(number, value.to_vec());
        }
    }
    columns
}

/// Returns the places of the columns: of those with these names, then of the others.
fn order(header: &csv::ByteRecord, names: &[String]) -> Vec<usize> {
    let place = |name: &String| header.iter().position(|other| other == name.as_bytes());
    let mut is_known = vec![false; header.len()];
    let places = names.iter().filter_map(place).chain(0..header.len());
    places
        .filter(|place| !std::mem::replace(&mut is_known[*place], true))
        .collect()
}

/// Returns the fields of a line of CSV.
fn record_of(line: &[u8]) -> csv::ByteRecord {
    let mut record = csv::ByteRecord::new();
    let reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(line)
        .read_byte_record(&mut record);
    debug_assert!(reader.is_ok(), "the line was written by this program");
    record
}

fn columns_of_json(names: &[String], rows: &[Vec<u8>]) -> Vec<Column> {
    let column = |name: &String| Column {
        head: name.clone().into_bytes(),
        values: BTreeMap::new(),
    };
    let mut columns: Vec<Column> = names.iter().map(column).collect();
    let mut places: BTreeMap<String, usize> = names.iter().cloned().zip(0..).collect();
    for (number, row) in rows.iter().enumerate() {
        let Ok(keys) = serde_json::from_slice::<Object<'_>>(row) else {
            continue;
        };
        for (key, value) in keys {
            let place = match places.get(&key) {
                Some(place) => *place,
                None if columns.len() == COLUMNS_MAX => continue,
                None => {
                    columns.push(column(&key));
                    places.insert(key, columns.len() - 1);
                    columns.len() - 1
                }
            };
            let value = value.get().as_bytes().to_vec();
            columns[place].values.insert(number, value);
        }
    }
    columns
}

/// Checks that a line is a JSON object, whose keys are columns.
pub(super) fn check_object(line: &[u8]) -> Result<(), serde_json::Error> {
    serde_json::from_slice::<Object<'_>>(line).map(|_| ())
}

/// Checks that a header of CSV has these columns, and no more than a unit can have.
pub(super) fn check_header(header: &csv::ByteRecord, names: &[String]) -> Result<(), String> {
    if header.len() > COLUMNS_MAX {
        return Err(format!("it has more than {COLUMNS_MAX} columns"));
    }
    let is_missing = |name: &&String| header.iter().all(|other| other != name.as_bytes());
    match names.iter().find(is_missing) {
        // A text without a line has no columns, and no rows that could miss one.
        Some(name) if !header.is_empty() => {
            let known: Vec<_> = header.iter().map(String::from_utf8_lossy).collect();
            let known = known.join(", ");
            Err(format!(
                "there is no column `{name}`: its columns are {known}"
            ))
        }
        _ => Ok(()),
    }
}

/// Decodes what follows the header of a unit of `count` rows by columns. Returns their lines, or
/// `None` if the unit is not valid.
pub(super) fn decode<'a>(
    kind: Kind,
    header: &[u8],
    count: usize,
    mut rest: &'a [u8],
) -> Option<Vec<Cow<'a, [u8]>>> {
    let header = record_of(header);
    let columns = take_number(&mut rest).unwrap_or(0);
    let mut rows: BTreeMap<usize, Vec<(Head<'a>, &'a [u8])>> = BTreeMap::new();
    let mut is_whole = columns > 0 || count == 0;
    'columns: for _ in 0..columns {
        let head = match kind {
            Kind::Csv => take_number(&mut rest).map(Head::Place),
            Kind::JsonLines => take(&mut rest).map(Head::Name),
        };
        for place in places(count) {
            let (Some(head), Some(value)) = (head, take(&mut rest)) else {
                is_whole = false;
                break 'columns;
            };
            if kind == Kind::Csv || !value.is_empty() {
                rows.entry(place).or_default().push((head, value));
            }
        }
    }
    if is_whole && kind == Kind::JsonLines {
        // A row without keys has no value that could be missing.
        for place in 0..count {
            rows.entry(place).or_default();
        }
    }
    let mut bytes = 0;
    let lines = rows.values().map(|values| {
        let line = match kind {
            Kind::Csv => line_of_csv(header.len(), values)?,
            Kind::JsonLines => line_of_json(values)?,
        };
        bytes += line.len() + 1;
        (bytes <= TEXT_BYTES_MAX).then_some(Cow::Owned(line))
    });
    lines.collect()
}

/// The head of a column.
#[derive(Copy, Clone)]
enum Head<'a> {
    Place(usize),
    Name(&'a [u8]),
}

fn take_number(rest: &mut &[u8]) -> Option<usize> {
    let (number, behind) = rest.split_first_chunk::<2>()?;
    *rest = behind;
    Some(u16::from_be_bytes(*number).into())
}

/// Returns the line of a row with this number of fields; `None` if it has no such column.
fn line_of_csv(fields: usize, values: &[(Head<'_>, &[u8])]) -> Option<Vec<u8>> {
    let mut row: Vec<&[u8]> = vec![b""; fields];
    for (head, value) in values {
        let Head::Place(place) = head else {
            return None;
        };
        *row.get_mut(*place)? = value;
    }
    super::read::line_of(&csv::ByteRecord::from(row))
}

/// Returns the line of a row; `None` if it is no valid JSON.
fn line_of_json(values: &[(Head<'_>, &[u8])]) -> Option<Vec<u8>> {
    let mut line = b"{".to_vec();
    for (head, value) in values {
        let Head::Name(name) = head else { return None };
        let name = std::str::from_utf8(name).ok()?;
        let value: &RawValue = serde_json::from_slice(value).ok()?;
        if line.len() > 1 {
            line.push(b',');
        }
        line.extend(serde_json::to_vec(name).ok()?);
        line.push(b':');
        line.extend_from_slice(value.get().as_bytes());
    }
    line.push(b'}');
    (line.len() <= TEXT_BYTES_MAX).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Rows, decode};
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Returns the text of a prefix, with its header.
    fn text(prefix: &[u8]) -> String {
        let mut text = Vec::new();
        if let Some(rows) = decode(prefix) {
            rows.write(true, &mut text);
        }
        String::from_utf8(text).unwrap()
    }

    fn csv(text: &str) -> Vec<Vec<String>> {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let rows = reader.records().map(|row| {
            let row = row.expect("a row with as many fields as the header");
            row.iter().map(str::to_owned).collect()
        });
        rows.collect()
    }

    fn line(fields: &[String]) -> Vec<u8> {
        let record = csv::ByteRecord::from(fields.to_vec());
        crate::rows::read::line_of(&record).unwrap()
    }

    proptest! {
        #[test]
        fn each_prefix_of_csv_is_valid_and_has_the_first_columns(
            rows in proptest::collection::vec(["[a-z\",\n]{0,9}", "[0-9]{1,9}", "[ -~]{0,30}"], 0..40),
            percent in 0_usize..=100,
        ) {
            let number = |(number, [a, b, c]): (usize, &[String; 3])| {
                [number.to_string(), a.clone(), b.clone(), c.clone()]
            };
            let rows: Vec<[String; 4]> = rows.iter().enumerate().map(number).collect();
            let lines: Vec<Vec<u8>> = rows.iter().map(|row| line(row)).collect();
            let header = b"time,\"a, b\",speed,note";
            let unit = encode(Kind::Csv, header, &names(&["time", "speed"]), &lines);
            let mut whole = header.to_vec();
            for line in &lines {
                whole.push(b'\n');
                whole.extend_from_slice(line);
            }
            whole.push(b'\n');
            prop_assert_eq!(text(&unit).into_bytes(), whole);
            let found = csv(&text(&unit[..unit.len() * percent / 100]));
            let mut expected = rows.iter();
            for row in &found {
                // The number comes first, so that it is in each row.
                let known = expected.find(|known| known[0] == row[0]).expect("in order");
                let columns = [0, 2, 1, 3].map(|place| row[place] == known[place]);
                for (place, value) in row.iter().enumerate() {
                    prop_assert!(value == &known[place] || value.is_empty());
                }
                // A later column is not there before all rows have the earlier ones.
                if columns != [true; 4] {
                    let first = columns.iter().position(|is_there| !is_there).unwrap();
                    let order = [0, 2, 1, 3];
                    for later in first + 1..4 {
                        prop_assert!(row[order[later]].is_empty());
                    }
                }
            }
        }

        #[test]
        fn each_prefix_of_json_lines_is_valid_and_has_no_other_values(
            rows in proptest::collection::vec(
                proptest::collection::btree_map("[a-e\"]{1,2}", "[ -~]{0,9}", 0..6), 0..40),
            percent in 0_usize..=100,
        ) {
            let object = |row: &BTreeMap<String, String>| {
                let keys = row.iter().map(|(key, text)| (key.clone(), Value::from(text.as_str())));
                Value::Object(keys.collect::<Map<_, _>>())
            };
            let rows: Vec<Value> = rows.iter().map(object).collect();
            let lines: Vec<Vec<u8>> = rows.iter().map(|row| row.to_string().into_bytes()).collect();
            let unit = encode(Kind::JsonLines, b"", &names(&["c", "z"]), &lines);
            let parse = |text: String| -> Vec<Value> {
                text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
            };
            prop_assert_eq!(&parse(text(&unit)), &rows);
            let mut expected = rows.iter();
            for row in parse(text(&unit[..unit.len() * percent / 100])) {
                let row = row.as_object().unwrap();
                let is_part = |known: &&Value| {
                    row.iter().all(|(key, value)| known.get(key) == Some(value))
                };
                prop_assert!(expected.any(|known| is_part(&known)), "{row:?}");
            }
        }

        #[test]
        fn any_bytes_decode_without_a_panic(bytes: Vec<u8>, kind in 2_u8..4, rows: u8, count: u8) {
            let mut unit = crate::rows::MAGIC.to_vec();
            unit.extend([kind, 0, rows, 0, 3]);
            unit.extend(b"a,b");
            unit.extend([0, count]);
            unit.extend(&bytes);
            let length = |rows: Rows<'_>| rows.rows.len();
            prop_assert!(decode(&unit).map_or(0, length) <= usize::from(rows));
        }
    }

    #[test]
    fn a_half_of_the_bytes_has_all_rows_with_the_important_columns() {
        let rows = (0..100).map(|row| format!("{row},{},{row}.5", "x".repeat(20)));
        let rows: Vec<Vec<u8>> = rows.map(String::into_bytes).collect();
        let unit = encode(
            Kind::Csv,
            b"time,note,speed",
            &names(&["time", "speed"]),
            &rows,
        );
        let found = csv(&text(&unit[..unit.len() / 2]));
        assert_eq!(found.len(), 100);
        assert!(
            found
                .iter()
                .all(|row| !row[0].is_empty() && !row[2].is_empty())
        );
        let notes = found.iter().filter(|row| !row[1].is_empty()).count();
        assert!((20..70).contains(&notes), "{notes}");
    }

    #[test]
    fn a_unit_that_would_become_a_long_text_is_refused() {
        // 60,000 rows with one value each, of 60,000 columns.
        let header = vec![b','; 60_000];
        let mut unit = begin(Kind::Csv, true, &header, 60_000);
        unit.extend_from_slice(&[0, 1, 0, 0]);
        unit.extend(std::iter::repeat_n(0, 2 * 60_000));
        assert_eq!(decode(&unit), None);
    }
}
