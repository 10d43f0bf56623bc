//! A member's index of names: the summary of each manifest on its shelf, in the order of the names.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::{Address, Manifest, Reply, Shelf, ShelfError, Summary};

/// A page of names is ended when it has this many bytes.
const PAGE_BYTES: usize = 256 << 10;

/// The names of a member, by which it answers listings without reading its shelf.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    names: BTreeMap<String, Summary>,
}

impl Catalogue {
    /// Reads the manifests of a shelf. Those that are damaged are left out.
    pub(crate) fn read(shelf: &impl Shelf) -> Result<Catalogue, ShelfError> {
        let mut catalogue = Catalogue::default();
        for address in shelf.list()? {
            if let Address::Name(_) = address
                && let Some(bytes) = shelf.get(address).ok().flatten()
                && let Ok(manifest) = Manifest::decode(&bytes)
            {
                catalogue.insert(&manifest);
            }
        }
        Ok(catalogue)
    }

    /// Notes that the shelf has a manifest, instead of any other of its name.
    pub(crate) fn insert(&mut self, manifest: &Manifest) {
        let summary = Summary::of(manifest);
        self.names.insert(summary.name.clone(), summary);
    }

    /// Notes that the manifest of a name was removed from the shelf.
    pub(crate) fn remove(&mut self, name: &str) {
        self.names.remove(name);
    }

    /// Returns the version of a name; 0 if there is none.
    pub(crate) fn version(&self, name: &str) -> u64 {
        self.names.get(name).map_or(0, |summary| summary.version)
    }

    /// Returns the summaries behind `after` whose names begin with `prefix`.
    fn behind<'a>(&'a self, prefix: &'a str, after: &str) -> impl Iterator<Item = &'a Summary> {
        // An empty `after` is in front of every name.
        let first = match after.is_empty() || after < prefix {
            true => Bound::Included(prefix),
            false => Bound::Excluded(after),
        };
        let range = self.names.range::<str, _>((first, Bound::Unbounded));
        let range = range.take_while(move |(name, _)| name.starts_with(prefix));
        range.map(|(_, summary)| summary)
    }

    /// Returns a page of summaries.
    pub(crate) fn summaries(&self, prefix: &str, after: &str) -> Reply {
        let mut behind = self.behind(prefix, after);
        let (mut files, mut bytes) = (Vec::new(), 0);
        while bytes < PAGE_BYTES {
            let Some(summary) = behind.next() else {
                break;
            };
            bytes += 25 + summary.name.len() + summary.metadata.len();
            files.push(summary.clone());
        }
        let has_more = behind.next().is_some();
        Reply::Summaries { files, has_more }
    }

    /// Returns a page of manifests. Those that the shelf cannot give are left out.
    pub(crate) fn manifests(&self, shelf: &impl Shelf, prefix: &str, after: &str) -> Reply {
        let mut behind = self.behind(prefix, after).peekable();
        let (mut files, mut bytes): (Vec<Bytes>, usize) = (Vec::new(), 0);
        while let Some(summary) = behind.next_if(|_| bytes < PAGE_BYTES) {
            let address = Address::of_name(&summary.name);
            let Some(manifest) = shelf.get(address).ok().flatten() else {
                continue;
            };
            // A manifest of the maximum length fits alone.
            if bytes > 0 && bytes + manifest.len() > crate::STORED_BYTES_MAX {
                return Reply::Manifests {
                    files,
                    has_more: true,
                };
            }
            bytes += 4 + manifest.len();
            files.push(manifest);
        }
        let has_more = behind.next().is_some();
        Reply::Manifests { files, has_more }
    }
}
