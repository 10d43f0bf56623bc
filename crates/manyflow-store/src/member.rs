//! A member of the service: it answers requests from its shelf.

use core::time::Duration;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::catalogue::Catalogue;
use crate::{
    Address, Answer, Batch, Hash, HeldChunk, Manifest, MemberName, Outcome, Query, Reply, Request,
    Shelf, ShelfError,
};

/// The most chunks in one answer.
const PAGE_CHUNKS: usize = 8192;

/// A member: handles requests, several at once if the caller has threads. Requests are idempotent,
/// so a request that arrives twice has the effect of one.
#[derive(Debug)]
pub struct Member<S> {
    name: MemberName,
    shelf: S,
    counters: Mutex<MemberCounters>,
    /// The names on the shelf; `None` before the first request that needs them. The lock is held
    /// while manifests change, so that the newest one remains.
    catalogue: Mutex<Option<Catalogue>>,
}

/// Counts of the requests that a [`Member`] has handled.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Chunks and manifests that were put, also those that the member had before.
    pub puts: u64,
    /// The bytes of these.
    pub put_bytes: u64,
    /// Chunks and manifests that were read.
    pub gets: u64,
    /// The bytes of these.
    pub get_bytes: u64,
    /// Requests for bytes that the member does not have.
    pub missing: u64,
    /// Requests that failed: invalid bytes, or an error of the shelf.
    pub failed: u64,
    /// Chunks and manifests that were removed.
    pub removed: u64,
    /// The bytes of these.
    pub removed_bytes: u64,
}

impl<S: Shelf> Member<S> {
    /// Creates a member above a shelf. No other member may have its name.
    pub fn new(name: MemberName, shelf: S) -> Member<S> {
        Member {
            name,
            shelf,
            counters: Mutex::default(),
            catalogue: Mutex::new(None),
        }
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> MemberCounters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the shelf.
    pub fn shelf(&self) -> &S {
        &self.shelf
    }

    /// Returns the shelf.
    pub fn shelf_mut(&mut self) -> &mut S {
        &mut self.shelf
    }

    /// Returns the member's name.
    pub fn name(&self) -> &MemberName {
        &self.name
    }

    /// Handles a request, and returns the answer.
    pub fn handle_request(&self, request: &Request) -> Answer {
        let outcome = match request {
            Request::Get { address, .. } => self.get(*address),
            Request::Put { address, bytes, .. } => match *address {
                Address::Chunk(hash) => self.put_chunk(hash, bytes),
                Address::Name(hash) => self.put_manifest(hash, bytes, None),
            },
            Request::PutIf {
                name,
                expected,
                bytes,
                ..
            } => self.put_manifest(*name, bytes, Some(*expected)),
            Request::PutNames { hash, bytes, .. } => self.put_manifests(*hash, bytes),
            Request::Query { query, .. } => self.answer_query(query).map(Outcome::Reply),
        };
        let outcome = outcome.unwrap_or_else(|error| Outcome::failed(&error.to_string()));
        self.count(request, &outcome);
        Answer {
            id: request.id(),
            member: self.name.clone(),
            outcome,
        }
    }

    fn count(&self, request: &Request, outcome: &Outcome) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match request {
            Request::Put { bytes, .. }
            | Request::PutIf { bytes, .. }
            | Request::PutNames { bytes, .. } => bytes.len() as u64,
            Request::Get { .. } | Request::Query { .. } => 0,
        };
        match outcome {
            Outcome::Stored => {
                counters.puts += 1;
                counters.put_bytes += bytes;
            }
            Outcome::Chunk(bytes) => {
                counters.gets += 1;
                counters.get_bytes += bytes.len() as u64;
            }
            Outcome::Missing => counters.missing += 1,
            Outcome::Failed(_) => counters.failed += 1,
            Outcome::Reply(Reply::Removed { count, bytes }) => {
                counters.removed += u64::from(*count);
                counters.removed_bytes += bytes;
            }
            Outcome::Conflict(_) | Outcome::Reply(_) => {}
        }
    }

    fn get(&self, address: Address) -> Result<Outcome, ShelfError> {
        let bytes = self.shelf.get(address)?;
        Ok(bytes.map_or(Outcome::Missing, Outcome::Chunk))
    }

    fn put_chunk(&self, hash: Hash, bytes: &Bytes) -> Result<Outcome, ShelfError> {
        if Hash::of(bytes) != hash {
            return Ok(Outcome::failed(
                "the chunk does not match its hash; put it again",
            ));
        }
        let address = Address::Chunk(hash);
        // An old chunk may be removed as garbage after it was read and before it is refreshed.
        let is_held = self.shelf.get(address)?.is_some_and(|held| held == *bytes);
        if !(is_held && self.shelf.refresh(address)?) {
            self.shelf.put(address, bytes)?;
        }
        Ok(Outcome::Stored)
    }

    /// Stores a manifest, unless the shelf has a newer one of the same name, or one of another
    /// version than `expected`.
    fn put_manifest(
        &self,
        hash: Hash,
        bytes: &Bytes,
        expected: Option<u64>,
    ) -> Result<Outcome, ShelfError> {
        let manifest = match Manifest::decode(bytes) {
            Ok(manifest) => manifest,
            Err(error) => return Ok(Outcome::failed(&error.to_string())),
        };
        let address = Address::of_name(&manifest.name);
        if address != Address::Name(hash) {
            return Ok(Outcome::failed(
                "the manifest has another name than its address",
            ));
        }
        let mut catalogue = self.lock_catalogue();
        let held = self.shelf.get(address)?;
        if let Some(expected) = expected
            && held.as_ref() != Some(bytes)
        {
            let version = held.as_ref().map_or(0, |held| present_version(held));
            if version != expected {
                return Ok(Outcome::Conflict(version));
            }
        }
        if held.is_none_or(|held| Manifest::is_newer(bytes, &held)) {
            self.shelf.put(address, bytes)?;
            if let Some(catalogue) = catalogue.as_mut() {
                catalogue.insert(&manifest);
            }
        }
        Ok(Outcome::Stored)
    }

    /// Stores the manifests of a batch, as [`Member::put_manifest`] does each.
    fn put_manifests(&self, hash: Hash, bytes: &Bytes) -> Result<Outcome, ShelfError> {
        let sound = (Hash::of(bytes) == hash).then(|| Batch::decode(bytes.clone()));
        let Some(batch) = sound.flatten() else {
            return Ok(Outcome::failed("the batch is damaged; put it again"));
        };
        let manifests: Result<Vec<_>, _> = batch.iter().map(|b| Manifest::decode(b)).collect();
        let manifests = match manifests {
            Ok(manifests) => manifests,
            Err(error) => return Ok(Outcome::failed(&error.to_string())),
        };
        let mut catalogue = self.lock_catalogue();
        let (mut items, mut newer) = (Vec::new(), Vec::new());
        for (manifest, bytes) in manifests.iter().zip(batch) {
            let address = Address::of_name(&manifest.name);
            let held = self.shelf.get(address)?;
            if held.is_none_or(|held| Manifest::is_newer(&bytes, &held)) {
                items.push((address, bytes));
                newer.push(manifest);
            }
        }
        self.shelf.put_all(&items)?;
        if let Some(catalogue) = catalogue.as_mut() {
            newer
                .into_iter()
                .for_each(|manifest| catalogue.insert(manifest));
        }
        Ok(Outcome::Stored)
    }

    fn lock_catalogue(&self) -> MutexGuard<'_, Option<Catalogue>> {
        self.catalogue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the answer to a question about names.
    fn with_catalogue(&self, ask: impl FnOnce(&Catalogue) -> Reply) -> Result<Reply, ShelfError> {
        let mut catalogue = self.lock_catalogue();
        let known = match catalogue.take() {
            Some(known) => known,
            None => Catalogue::read(&self.shelf)?,
        };
        Ok(ask(catalogue.insert(known)))
    }

    fn answer_query(&self, query: &Query) -> Result<Reply, ShelfError> {
        match query {
            Query::Holds {
                addresses,
                is_deep,
                refreshes,
            } => {
                let held = addresses.iter();
                let held = held.map(|address| self.holds(*address, *is_deep, *refreshes));
                held.collect::<Result<_, _>>().map(Reply::Held)
            }
            Query::Names {
                prefix,
                after,
                is_full: true,
            } => self.with_catalogue(|names| names.manifests(&self.shelf, prefix, after)),
            Query::Names { prefix, after, .. } => {
                self.with_catalogue(|names| names.summaries(prefix, after))
            }
            Query::Versions(names) => self.with_catalogue(|known| {
                Reply::Versions(names.iter().map(|name| known.version(name)).collect())
            }),
            Query::Chunks(after) => self.list_chunks(*after),
            Query::Remove {
                age_s,
                member,
                items,
            } => {
                let is_meant = member.as_ref().is_none_or(|member| *member == self.name);
                let items = if is_meant { &items[..] } else { &[] };
                self.remove_all(Duration::from_secs((*age_s).into()), items)
            }
            Query::Usage => self.shelf.usage().map(Reply::Usage),
        }
    }

    fn holds(&self, address: Address, is_deep: bool, refreshes: bool) -> Result<bool, ShelfError> {
        let is_held = match is_deep {
            true => self.shelf.get(address)?.is_some(),
            false => self.shelf.find(address)?.is_some(),
        };
        Ok(match is_held && refreshes {
            true => self.shelf.refresh(address)?,
            false => is_held,
        })
    }

    fn list_chunks(&self, after: Option<Hash>) -> Result<Reply, ShelfError> {
        let hashes = self.shelf.list()?.into_iter();
        let hashes = hashes.filter_map(|address| match address {
            Address::Chunk(hash) => Some(hash),
            Address::Name(_) => None,
        });
        let mut behind = hashes.filter(|hash| after.is_none_or(|after| *hash > after));
        let mut chunks = Vec::new();
        for hash in behind.by_ref().take(PAGE_CHUNKS) {
            // A chunk that was removed meanwhile is left out.
            if let Some(held) = self.shelf.find(Address::Chunk(hash))? {
                chunks.push(HeldChunk {
                    hash,
                    bytes: u32::try_from(held.bytes).unwrap_or(u32::MAX),
                    age_s: u32::try_from(held.age.as_secs()).unwrap_or(u32::MAX),
                });
            }
        }
        let has_more = behind.next().is_some() && !chunks.is_empty();
        Ok(Reply::Chunks { chunks, has_more })
    }

    fn remove_all(&self, age: Duration, items: &[(Address, u64)]) -> Result<Reply, ShelfError> {
        let mut catalogue = self.lock_catalogue();
        let (mut count, mut bytes) = (0, 0);
        for (address, version) in items {
            // Young ones stay, and so do those that are not there, such as damaged manifests.
            let held = self.shelf.find(*address)?;
            if held.is_none_or(|held| held.age < age) {
                continue;
            }
            let manifest = match address {
                Address::Chunk(_) => None,
                Address::Name(_) => self.shelf.get(*address)?,
            };
            let manifest = manifest.and_then(|held| Manifest::decode(&held).ok());
            if manifest
                .as_ref()
                .is_some_and(|held| held.version > *version)
            {
                continue;
            }
            let Some(length) = self.shelf.remove(*address, age)? else {
                continue;
            };
            if let (Some(catalogue), Some(manifest)) = (catalogue.as_mut(), manifest) {
                catalogue.remove(&manifest.name);
            }
            count += 1;
            bytes += length;
        }
        Ok(Reply::Removed { count, bytes })
    }
}

/// Returns the version of a manifest; 0 if it says that the name was removed.
fn present_version(bytes: &[u8]) -> u64 {
    let manifest = Manifest::decode(bytes).ok();
    let present = manifest.filter(|manifest| !manifest.is_removed);
    present.map_or(0, |manifest| manifest.version)
}

#[cfg(test)]
mod tests;
