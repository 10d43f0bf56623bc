//! The sessions that a follower wants.

use super::Announcement;
use crate::files::{FileError, Selection};

/// The rules for sessions. By default, all are wanted.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    only: Selection,
    bytes_max: Option<u64>,
}

impl Rules {
    /// Wants sessions whose names match one of the patterns, if there are any, and whose files have
    /// at most this length together, in bytes. Patterns are those of [`Selection`].
    ///
    /// # Errors
    /// [`FileError::Pattern`] if a pattern is not a glob.
    pub fn new(only: &[String], bytes_max: Option<u64>) -> Result<Rules, FileError> {
        Ok(Rules {
            only: Selection::new(only, &[])?,
            bytes_max,
        })
    }

    /// Whether the name of the session is wanted.
    pub(super) fn wants(&self, announcement: &Announcement) -> bool {
        self.only.includes(&announcement.description.name)
    }

    /// Whether files of this length together are too much. The table of files says how long they
    /// are, so it is known only after the session was joined.
    pub(super) fn is_too_large(&self, bytes: u64) -> bool {
        self.bytes_max.is_some_and(|max| bytes > max)
    }
}
