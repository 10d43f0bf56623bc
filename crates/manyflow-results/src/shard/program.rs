//! The program that made rows, in the metadata of their file.

use std::fmt;

use crate::Provenance;

/// The scenario and the program that made the rows of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Program {
    pub(super) fingerprint: String,
    pub(super) version: String,
    commit: Option<String>,
    toolchain: Option<String>,
}

impl Program {
    /// Returns this program.
    pub(super) fn own(fingerprint: &str, provenance: Provenance) -> Program {
        Program {
            fingerprint: fingerprint.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: provenance.commit,
            toolchain: provenance.toolchain,
        }
    }

    /// Returns the metadata in a fixed order, so that the same rows have the same bytes.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&'static str, Option<String>)> {
        let known = [
            ("fingerprint", Some(&self.fingerprint)),
            ("version", Some(&self.version)),
            ("commit", self.commit.as_ref()),
            ("toolchain", self.toolchain.as_ref()),
        ];
        let known = known.into_iter().filter(|(_, value)| value.is_some());
        known.map(|(key, value)| (key, value.cloned()))
    }

    pub(super) fn of_pairs(value: &dyn Fn(&str) -> Option<String>) -> Program {
        Program {
            fingerprint: value("fingerprint").unwrap_or_default(),
            version: value("version").unwrap_or_default(),
            commit: value("commit"),
            toolchain: value("toolchain"),
        }
    }

    pub(super) fn provenance(self) -> Provenance {
        Provenance {
            commit: self.commit,
            toolchain: self.toolchain,
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "manyflow {}", self.version)?;
        let known = [&self.commit, &self.toolchain].into_iter().flatten();
        known.into_iter().try_for_each(|part| write!(f, " {part}"))
    }
}
