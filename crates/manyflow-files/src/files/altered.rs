//! Files, links and folders that receivers do not get as they are at the sender.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A way in which receivers get something else.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Alteration {
    /// A link to a file, as a file.
    Copied,
    /// The same, of a file that is not in the folder to send.
    CopiedFromOutside,
    /// A file with holes, with zeros instead.
    Filled,
    /// A folder without entries, which receivers do not get.
    EmptyFolder,
}

impl Alteration {
    /// Describes `count` of them.
    fn describe(self, count: u64) -> &'static str {
        match (self, count) {
            (Alteration::Copied, 1) => "link to a file is sent as a copy of the file",
            (Alteration::Copied, _) => "links to files are sent as copies of the files",
            (Alteration::CopiedFromOutside, 1) => {
                "link leads out of the folder to send, and its file is sent"
            }
            (Alteration::CopiedFromOutside, _) => {
                "links lead out of the folder to send, and their files are sent"
            }
            (Alteration::Filled, 1) => "sparse file is sent, and stored, with zeros for its holes",
            (Alteration::Filled, _) => {
                "sparse files are sent, and stored, with zeros for their holes"
            }
            (Alteration::EmptyFolder, 1) => "empty folder is not sent",
            (Alteration::EmptyFolder, _) => "empty folders are not sent",
        }
    }
}

/// Counts of alterations, each with its first path.
#[derive(Debug, Default)]
pub(super) struct Altered(BTreeMap<Alteration, (u64, PathBuf)>);

impl Altered {
    pub(super) fn note(&mut self, alteration: Alteration, path: &Path) {
        let (count, _) = self
            .0
            .entry(alteration)
            .or_insert_with(|| (0, path.to_owned()));
        *count += 1;
    }

    pub(super) fn count(&self) -> u64 {
        self.0.values().map(|(count, _)| count).sum()
    }

    /// Logs a sentence for each kind.
    pub(super) fn log(&self) {
        for (alteration, (count, first)) in &self.0 {
            let (what, first) = (alteration.describe(*count), first.display());
            match count {
                1 => tracing::warn!("1 {what}: {first}"),
                _ => tracing::warn!("{count} {what}, for example {first}"),
            }
        }
    }
}
