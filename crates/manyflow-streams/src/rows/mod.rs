//! Rows of telemetry as units: every prefix of a unit gives some of its rows, spread evenly.
//!
//! A unit holds the rows of a tenth of a second, in the order 0, 1/2, 1/4, 3/4, 1/8 and so on of
//! the rows: a short prefix has every sixteenth row, say, a longer one every second, and the whole
//! unit has all. The receiver puts the rows that it has got back into their order, and writes CSV
//! or JSON lines again. It knows by the first bytes of a unit that rows follow, and of which kind.
//!
//! ```text
//!    0       6      7      9
//!   | MAGIC | kind | rows | header: length, bytes | row: length, bytes | row ...
//! ```
//!
//! Lengths and the number of rows have 2 bytes in network order. The header is the line of a CSV
//! file that names the columns; JSON lines have an empty one. A row has no line end. With columns
//! in the order of their importance, a prefix has fewer of them instead of fewer rows
//! (`columns.rs`).

mod columns;
mod read;

use std::borrow::Cow;

pub(super) use read::RowUnits;

/// The first bytes of a unit of rows. The last one is the version of the format.
const MAGIC: [u8; 6] = *b"\x93ROWS\x01";
/// The bytes before the header: magic, kind, and number of rows.
const FIXED_BYTES: usize = MAGIC.len() + 3;
/// The maximum number of rows of a unit.
pub(super) const ROWS_MAX: usize = u16::MAX as usize;
/// The maximum length of a row, and of a header, in bytes.
pub(super) const ROW_BYTES_MAX: usize = u16::MAX as usize;

/// The form of rows in a text.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Comma-separated values (RFC 4180) below a line with the names of the columns.
    Csv,
    /// One JSON value in each line.
    JsonLines,
}

/// The bit of a kind's code that is set in units by columns.
const BY_COLUMNS: u8 = 2;

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Csv => 0,
            Kind::JsonLines => 1,
        }
    }

    /// Returns the kind with this code, and whether the unit is one by columns.
    fn of_code(code: u8) -> Option<(Kind, bool)> {
        let mut kinds = [Kind::Csv, Kind::JsonLines].into_iter();
        let kind = kinds.find(|kind| kind.code() == code & !BY_COLUMNS)?;
        Some((kind, code & BY_COLUMNS != 0))
    }
}

/// Returns the places of `count` rows in the order in which a unit holds them.
fn places(count: usize) -> impl Iterator<Item = usize> {
    let whole = count.next_power_of_two();
    let finer = move |level: u32| {
        let step = whole >> (level + 1);
        (step..count).step_by(2 * step)
    };
    (0..count.min(1)).chain((0..whole.ilog2()).flat_map(finer))
}

/// Encodes rows, at most [`ROWS_MAX`] of at most [`ROW_BYTES_MAX`] bytes each, as a unit.
pub(super) fn encode(kind: Kind, header: &[u8], rows: &[Vec<u8>]) -> Vec<u8> {
    let mut unit = begin(kind, false, header, rows.len());
    for place in places(rows.len()) {
        push(&mut unit, &rows[place]);
    }
    unit
}

/// Returns the beginning of a unit, up to its header.
fn begin(kind: Kind, is_by_columns: bool, header: &[u8], rows: usize) -> Vec<u8> {
    debug_assert!(rows <= ROWS_MAX && header.len() <= ROW_BYTES_MAX);
    let mut unit = MAGIC.to_vec();
    unit.push(kind.code() | if is_by_columns { BY_COLUMNS } else { 0 });
    unit.extend_from_slice(&(rows as u16).to_be_bytes());
    push(&mut unit, header);
    unit
}

fn push(unit: &mut Vec<u8>, text: &[u8]) {
    debug_assert!(text.len() <= ROW_BYTES_MAX);
    unit.extend_from_slice(&(text.len() as u16).to_be_bytes());
    unit.extend_from_slice(text);
}

/// The rows of a prefix of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rows<'a> {
    pub(super) kind: Kind,
    /// The line that names the columns; empty for JSON lines.
    pub(super) header: &'a [u8],
    /// The rows in their order, without those that the prefix does not hold.
    pub(super) rows: Vec<Cow<'a, [u8]>>,
}

impl Rows<'_> {
    /// Appends the text of the rows, below their header if `with_header` is set.
    pub(super) fn write(&self, with_header: bool, text: &mut Vec<u8>) {
        let header = (with_header && self.kind == Kind::Csv).then_some(self.header);
        for line in header.into_iter().chain(self.rows.iter().map(Cow::as_ref)) {
            text.extend_from_slice(line);
            text.push(b'\n');
        }
    }
}

/// Returns whether a unit holds rows, whatever its length.
pub(super) fn is_rows(prefix: &[u8]) -> bool {
    prefix.starts_with(&MAGIC)
}

/// Decodes a prefix of a unit. Returns `None` if it is too short for a header, or no unit of rows.
pub(super) fn decode(prefix: &[u8]) -> Option<Rows<'_>> {
    let (fixed, mut rest) = prefix.split_at_checked(FIXED_BYTES)?;
    let [kind, high, low] = *fixed.strip_prefix(&MAGIC)? else {
        return None;
    };
    let (kind, is_by_columns) = Kind::of_code(kind)?;
    let header = take(&mut rest)?;
    let count = u16::from_be_bytes([high, low]).into();
    let rows = match is_by_columns {
        true => columns::decode(kind, header, count, rest)?,
        false => whole_rows(count, rest),
    };
    Some(Rows { kind, header, rows })
}

/// Returns the rows that have arrived of `count`, in their order.
fn whole_rows(count: usize, mut rest: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let mut rows = Vec::new();
    for place in places(count) {
        let Some(row) = take(&mut rest) else { break };
        rows.push((place, row));
    }
    rows.sort_unstable_by_key(|(place, _)| *place);
    rows.into_iter()
        .map(|(_, row)| Cow::Borrowed(row))
        .collect()
}

/// Takes a text with its length; `None` if it is not whole.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<2>()?;
    let (text, behind) = behind.split_at_checked(u16::from_be_bytes(*length).into())?;
    *rest = behind;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_prefix_gives_a_subset_of_the_rows_in_order_and_the_whole_gives_all(
            rows in proptest::collection::vec("[ -~]{0,20}", 0..200),
            header in "[ -~]{0,20}",
            is_csv: bool,
            percent in 0_usize..=100,
        ) {
            // Numbered, so that no two rows are the same.
            let number = |(number, row): (usize, &String)| format!("{number},{row}").into_bytes();
            let rows: Vec<Vec<u8>> = rows.iter().enumerate().map(number).collect();
            let kind = if is_csv { Kind::Csv } else { Kind::JsonLines };
            let unit = encode(kind, header.as_bytes(), &rows);
            let whole = decode(&unit).unwrap();
            prop_assert_eq!((whole.kind, whole.header), (kind, header.as_bytes()));
            prop_assert!(whole.rows.iter().map(|row| row.as_ref()).eq(rows.iter()));
            let prefix = &unit[..unit.len() * percent / 100];
            prop_assert_eq!(is_rows(prefix), prefix.len() >= MAGIC.len());
            let Some(part) = decode(prefix) else {
                prop_assert!(prefix.len() < FIXED_BYTES + 2 + header.len());
                return Ok(());
            };
            let mut all = rows.iter();
            for row in &part.rows {
                prop_assert!(all.any(|known| known == row.as_ref()), "a subset, in order");
            }
        }

        #[test]
        fn any_bytes_decode_to_rows_that_are_in_them(bytes: Vec<u8>, kind in 0_u8..3) {
            let unit = [&MAGIC[..], &[kind], &bytes].concat();
            let length = |rows: Rows<'_>| rows.rows.iter().map(|row| row.len() + 2).sum::<usize>();
            prop_assert!(decode(&unit).map_or(0, length) <= bytes.len());
            decode(&bytes);
        }
    }

    #[test]
    fn a_prefix_has_rows_that_are_spread_evenly() {
        assert_eq!(places(0).count(), 0);
        assert_eq!(places(7).collect::<Vec<_>>(), [0, 4, 2, 6, 1, 3, 5]);
        let rows: Vec<Vec<u8>> = (0..1_024).map(|row| format!("{row:04}").into()).collect();
        let unit = encode(Kind::JsonLines, b"", &rows);
        // A tenth of the bytes has at least every sixteenth row.
        let part = decode(&unit[..unit.len() / 10]).unwrap();
        let numbers = part
            .rows
            .iter()
            .map(|row| String::from_utf8_lossy(row).parse::<usize>());
        let numbers: Vec<usize> = numbers.map(Result::unwrap).collect();
        assert!(
            numbers.windows(2).all(|pair| pair[1] - pair[0] <= 16),
            "{numbers:?}"
        );
    }

    #[test]
    fn the_text_of_csv_has_its_header_once() {
        let unit = encode(Kind::Csv, b"a,b", &[b"1,2".to_vec(), b"3,4".to_vec()]);
        let (mut text, rows) = (Vec::new(), decode(&unit).unwrap());
        rows.write(true, &mut text);
        rows.write(false, &mut text);
        assert_eq!(text, b"a,b\n1,2\n3,4\n1,2\n3,4\n");
    }
}
