//! The reasons to refuse a session description, and the checks for them.

use std::fmt::Display;
use std::io;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::keys::PublicKey;

/// The reason why a session description cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptionError {
    /// The file or stream cannot be read, or is not UTF-8.
    #[error(
        "cannot read the session description from {from}: {cause}; check the path and its mode, or \
         begin a URL with http://"
    )]
    Unreadable {
        /// Name of the file or stream.
        from: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// The text is empty.
    #[error(
        "the session description {0} is empty: its sender may not have written it yet, so try again"
    )]
    Empty(String),
    /// The text exceeds [`DESCRIPTION_BYTES_MAX`](super::DESCRIPTION_BYTES_MAX).
    #[error(
        "the session description is longer than 64 KiB: give the file that `manyflow send` writes"
    )]
    TooLong,
    /// The text is not SDP.
    #[error("not a session description: {0}; give the file that `manyflow send` writes")]
    NotSdp(String),
    /// The session is one of another command.
    #[error("the session description is that of {content}: use `{command}`")]
    OtherContent {
        /// The content of the session: `files` or `a stream`.
        content: &'static str,
        /// The command that receives it.
        command: &'static str,
    },
    /// A line or attribute is missing.
    #[error("the session description lacks {what}: expected {expected}")]
    Missing {
        /// The line or attribute.
        what: String,
        /// The expected form or range.
        expected: String,
    },
    /// A line or attribute has an invalid value.
    #[error("the session description is wrong: {what} is {value:?}, expected {expected}")]
    Invalid {
        /// The line, attribute or parameter.
        what: String,
        /// The given value, shortened.
        value: String,
        /// The expected form or range.
        expected: String,
    },
    /// The signature is not that of the text.
    #[error(
        "the session description is not what {0} signed: a line was changed, added or removed; fetch \
         it again from its sender"
    )]
    Forged(PublicKey),
}

impl DescriptionError {
    /// Whether the same description may be read at a later attempt: it is not written yet, or the
    /// system fails at the moment.
    pub fn may_pass(&self) -> bool {
        use io::ErrorKind::{
            InvalidData, InvalidFilename, IsADirectory, NotADirectory, NotFound, PermissionDenied,
        };
        let is_wrong_path = |kind| {
            [
                InvalidData,
                InvalidFilename,
                IsADirectory,
                NotADirectory,
                NotFound,
                PermissionDenied,
            ]
            .contains(&kind)
        };
        match self {
            DescriptionError::Unreadable { cause, .. } => !is_wrong_path(cause.kind()),
            DescriptionError::Empty(_) => true,
            _ => false,
        }
    }
}

/// Returns the error about a line or attribute `what` that is missing.
pub fn missing(what: &str, expected: &str) -> DescriptionError {
    DescriptionError::Missing {
        what: what.to_owned(),
        expected: expected.to_owned(),
    }
}

/// Returns the error about a line or attribute `what` whose value is not as expected.
pub fn invalid(what: &str, value: impl Display, expected: &str) -> DescriptionError {
    let value = value.to_string().chars().take(80).collect();
    DescriptionError::Invalid {
        what: what.to_owned(),
        value,
        expected: expected.to_owned(),
    }
}

/// Parses a number. Its range is checked with the whole description.
pub fn number<T: FromStr>(what: &str, text: &str) -> Result<T, DescriptionError> {
    text.parse()
        .map_err(|_| invalid(what, text, "a number in its range"))
}

/// Returns an error about `value` unless `condition` holds.
pub fn require(
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

/// Returns an error about `value` if it is outside of `range` or not a number.
pub fn in_range<T: PartialOrd + Display>(
    what: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), DescriptionError> {
    let expected = format!("{} to {}", range.start(), range.end());
    require(range.contains(&value), what, value, &expected)
}
