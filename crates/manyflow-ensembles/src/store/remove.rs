//! Removes names. The bytes remain until a garbage collection.

use manyflow_store::{Manifest, QUERY_ITEMS_MAX, Query, Reply, STORED_BYTES_MAX};

use super::client::{next_version, store_manifests};
use super::{Connect, GetError, StoreClient, StoreError};

impl<C: Connect> StoreClient<C> {
    /// Removes a name, and its earlier versions. A manifest that says so takes the place of the
    /// file's one, so that members that are away learn of it. `expected` is the only version to
    /// remove, if there is one. Returns the manifest that was removed.
    ///
    /// # Errors
    /// If there is no such name, the present version is another one, too few members store the
    /// removal, or the service cannot be reached.
    pub async fn remove(&self, name: &str, expected: Option<u64>) -> Result<Manifest, StoreError> {
        let found = self.lookup(name).await?;
        let present = found.manifest.filter(|manifest| !manifest.is_removed);
        let Some(present) = present else {
            let (name, members) = (name.to_owned(), found.members);
            return Err(GetError::NotFound { name, members }.into());
        };
        let removal = Manifest {
            version: next_version(Some(present.version)),
            copies: present.copies,
            is_removed: true,
            ..Manifest::empty(name, present.chunk_bytes)
        };
        self.store_manifest(&removal, expected).await?;
        Ok(present)
    }

    /// Removes several names at once. Returns the number of those that there were. The removals
    /// have as many copies as the client's new files.
    ///
    /// # Errors
    /// If too few members store the removals, or the service cannot be reached.
    pub async fn remove_all(&self, names: &[String]) -> Result<usize, StoreError> {
        let versions = self.versions(names).await?;
        let known = names
            .iter()
            .zip(versions)
            .filter(|(_, version)| *version > 0);
        let removals = known.map(|(name, version)| Manifest {
            version: next_version(Some(version)),
            copies: self.config().copies,
            is_removed: true,
            ..Manifest::empty(name, STORED_BYTES_MAX as u32)
        });
        let removals: Vec<_> = removals.collect();
        let mut session = self.session();
        store_manifests(&mut session, self.config(), &removals).await?;
        self.keep(session);
        Ok(removals.len())
    }

    /// Returns the newest version of each name; 0 for those that there never were.
    pub(super) async fn versions(&self, names: &[String]) -> Result<Vec<u64>, StoreError> {
        // Names have at most 1 KiB, and a request at most 1 MiB.
        let length = QUERY_ITEMS_MAX / 8;
        let queries = names
            .chunks(length)
            .map(|names| Query::Versions(names.to_vec()));
        let mut versions = vec![0; names.len()];
        let surveyed = self.survey(queries.collect()).await?;
        for (newest, answers) in versions.chunks_mut(length).zip(surveyed) {
            for reply in answers.replies.values() {
                let Reply::Versions(held) = reply else {
                    continue;
                };
                for (newest, held) in newest.iter_mut().zip(held) {
                    *newest = (*newest).max(*held);
                }
            }
        }
        Ok(versions)
    }
}
