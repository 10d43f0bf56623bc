//! Why a description is refused, and the checks that say so.

use std::fmt::Display;
use std::io;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Why a session description could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// The file or stream failed, or is not UTF-8.
    #[error("cannot read the session description from {from}: {cause}")]
    Unreadable {
        /// Where it was to come from.
        from: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The text exceeds [`DESCRIPTION_BYTES_MAX`](super::DESCRIPTION_BYTES_MAX).
    #[error(
        "the session description is longer than 64 KiB: give the file that `manyflow send` writes"
    )]
    TooLong,
    /// The text is not SDP at all.
    #[error("not a session description: {0}; give the file that `manyflow send` writes")]
    NotSdp(String),
    /// A line or attribute is missing.
    #[error("the session description lacks {what}: expected {expected}")]
    Missing {
        /// The line or attribute.
        what: String,
        /// What it should be.
        expected: String,
    },
    /// A line or attribute has a value that no session has.
    #[error("the session description is wrong: {what} is {value:?}, expected {expected}")]
    Invalid {
        /// The line, attribute or parameter.
        what: String,
        /// What was given, shortened.
        value: String,
        /// What it should be.
        expected: String,
    },
}

pub(super) fn missing(what: &str, expected: &str) -> DescriptionError {
    DescriptionError::Missing {
        what: what.to_owned(),
        expected: expected.to_owned(),
    }
}

pub(super) fn invalid(what: &str, value: impl Display, expected: &str) -> DescriptionError {
    let value = value.to_string().chars().take(80).collect();
    DescriptionError::Invalid {
        what: what.to_owned(),
        value,
        expected: expected.to_owned(),
    }
}

/// Parses a number; its range is checked where the whole description is.
pub(super) fn number<T: FromStr>(what: &str, text: &str) -> Result<T, DescriptionError> {
    text.parse()
        .map_err(|_| invalid(what, text, "a number in its range"))
}

/// Refuses a `value` for which `condition` does not hold.
pub(super) fn require(
    condition: bool,
    what: &str,
    value: impl Display,
    expected: &str,
) -> Result<(), DescriptionError> {
    if condition {
        Ok(())
    } else {
        Err(invalid(what, value, expected))
    }
}

/// Refuses a `value` outside of `range`, and one that is not a number.
pub(super) fn in_range<T: PartialOrd + Display>(
    what: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), DescriptionError> {
    let expected = format!("{} to {}", range.start(), range.end());
    require(range.contains(&value), what, value, &expected)
}
