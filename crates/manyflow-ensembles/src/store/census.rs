//! The needs of all files of a store, which maintenance compares with what the members hold.

use std::collections::{BTreeMap, BTreeSet};

use manyflow_store::{
    Address, ChunkEntry, Hash, Manifest, MemberName, QUERY_ITEMS_MAX, Query, Reply, StoreConfig,
    Surveyed,
};

use super::listing::Hashed;
use super::{Connect, Listed, StoreClient, StoreError};

/// The most chunks that one question asks a member to read: it answers before the question times
/// out.
const DEEP_ITEMS: usize = 16;

/// The needs of all files of a store.
#[derive(Debug, Default)]
pub(super) struct Census {
    /// The files, without those that were removed.
    pub(super) files: u64,
    /// The bytes of these files.
    pub(super) bytes: u64,
    /// The number of copies that each chunk shall have, also those of earlier versions and their
    /// manifests.
    pub(super) chunks: BTreeMap<Hash, u8>,
    /// The members that the manifests name.
    pub(super) named: BTreeSet<MemberName>,
    /// The members that have answered.
    pub(super) members: BTreeSet<MemberName>,
    /// Earlier versions whose manifest has no copy left, as the name and the version.
    pub(super) lost_versions: Vec<(String, u64)>,
}

impl Census {
    fn note(&mut self, manifest: &Manifest) {
        for hash in manifest.referenced() {
            let copies = self.chunks.entry(hash).or_default();
            *copies = manifest.copies.max(*copies);
        }
        let members = manifest.chunks.iter().flat_map(|chunk| &chunk.members);
        for member in members {
            if !self.named.contains(member) {
                self.named.insert(member.clone());
            }
        }
    }
}

impl<C: Connect> StoreClient<C> {
    /// Reads all manifests.
    ///
    /// # Errors
    /// If a member does not answer, or the service cannot be reached.
    pub(super) async fn census(&self, config: &StoreConfig) -> Result<Census, StoreError> {
        let mut census = Census::default();
        let mut after = String::new();
        loop {
            let page = self.manifests("", &after).await?;
            census.members.extend(page.members);
            for file in page.files.values() {
                self.note_file(config, &mut census, file).await?;
            }
            match page.next {
                Some(next) => after = next,
                None => return Ok(census),
            }
        }
    }

    async fn note_file(
        &self,
        config: &StoreConfig,
        census: &mut Census,
        file: &Listed<Hashed>,
    ) -> Result<(), StoreError> {
        let (manifest, _) = &file.newest;
        census.note(manifest);
        if !manifest.is_removed {
            census.files += 1;
            census.bytes += manifest.size;
        }
        for (earlier, read) in self.earlier(config, manifest).await? {
            match read {
                Some(manifest) => census.note(&manifest),
                None => census.lost_versions.push((manifest.name.clone(), earlier)),
            }
        }
        Ok(())
    }

    /// Returns the earlier versions of a file, with their manifests; `None` for one that no member
    /// can give.
    ///
    /// # Errors
    /// If no member answers, or the service cannot be reached.
    pub(super) async fn earlier(
        &self,
        config: &StoreConfig,
        manifest: &Manifest,
    ) -> Result<Vec<(u64, Option<Manifest>)>, StoreError> {
        let entry = |hash| ChunkEntry {
            hash,
            members: Vec::new(),
        };
        let entries: Vec<_> = manifest.earlier.iter().map(|e| entry(e.manifest)).collect();
        let read = self.fetch(config, &entries).await?;
        let versions = manifest.earlier.iter().map(|earlier| earlier.version);
        let manifests = read.into_iter().map(|bytes| Manifest::decode(&bytes?).ok());
        Ok(versions.zip(manifests).collect())
    }

    /// Returns the members that hold each of these chunks. With `is_deep`, they read them and
    /// compare them with their digests.
    ///
    /// # Errors
    /// If a member does not answer, or the service cannot be reached.
    pub(super) async fn find_holders(
        &self,
        hashes: &[Hash],
        is_deep: bool,
    ) -> Result<Vec<BTreeSet<MemberName>>, StoreError> {
        let length = if is_deep { DEEP_ITEMS } else { QUERY_ITEMS_MAX };
        let queries = hashes.chunks(length).map(|hashes| Query::Holds {
            addresses: hashes.iter().copied().map(Address::Chunk).collect(),
            is_deep,
            refreshes: false,
        });
        let surveyed = self.survey_all(queries.collect()).await?;
        let parts = hashes.chunks(length).zip(&surveyed);
        Ok(parts
            .flat_map(|(hashes, answers)| holders(hashes, answers))
            .collect())
    }
}

/// Returns the members that hold each chunk, as they have answered.
pub(super) fn holders(hashes: &[Hash], answers: &Surveyed) -> Vec<BTreeSet<MemberName>> {
    let mut holders = vec![BTreeSet::new(); hashes.len()];
    for (member, reply) in &answers.replies {
        let Reply::Held(held) = reply else {
            continue;
        };
        for (holders, is_held) in holders.iter_mut().zip(held) {
            if *is_held {
                holders.insert(member.clone());
            }
        }
    }
    holders
}
