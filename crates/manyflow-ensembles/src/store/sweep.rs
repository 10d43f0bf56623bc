//! Garbage collection by mark and sweep: removes chunks that belong to no file, manifests that
//! newer ones have replaced, and the records of removed names.

use std::collections::BTreeSet;
use std::time::Duration;

use manyflow_store::{
    Address, Hash, HeldChunk, MemberName, QUERY_ITEMS_MAX, Query, Reply, StoreConfig, Surveyed,
    Usage,
};

use super::census::Census;
use super::client::check_complete;
use super::listing::Hashed;
use super::{Connect, Listed, StoreClient, StoreError};

/// The options of [`StoreClient::collect_garbage`].
#[derive(Clone, Debug)]
pub struct GcOptions {
    /// The safe age: anything that was put, or found by a put, less than this ago remains. It has
    /// to be longer than any put takes, and than the clocks of a member are ever set forward.
    pub age: Duration,
    /// Whether to count the garbage without removing it.
    pub is_dry: bool,
}

/// The outcome of [`StoreClient::collect_garbage`].
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct GcReport {
    /// The distinct chunks that belong to files.
    pub live: u64,
    /// Copies of chunks that belong to no file and have the safe age.
    pub chunks: u64,
    /// Their bytes.
    pub chunk_bytes: u64,
    /// Copies of chunks that belong to no file, and are younger.
    pub young: u64,
    /// Manifests that newer ones have replaced and, of removed names, the records of the removal.
    pub manifests: u64,
}

impl<C: Connect> StoreClient<C> {
    /// Removes what belongs to no file and has the safe age, by each member's clock. A member that
    /// is gone for good must not be named by any file: a [`repair`](StoreClient::repair) without it
    /// sees to that.
    ///
    /// # Errors
    /// If a member that a file names does not answer: a manifest that only this member has may need
    /// the chunks. If a member fails, or the service cannot be reached.
    pub async fn collect_garbage(&self, options: &GcOptions) -> Result<GcReport, StoreError> {
        let config = StoreConfig {
            yields: true,
            rounds: 2,
            ..self.config().clone()
        };
        let census = self.census(&config).await?;
        check_members(&census)?;
        let mut report = GcReport {
            live: census.chunks.len() as u64,
            ..GcReport::default()
        };
        self.sweep_chunks(&census, options, &mut report).await?;
        self.sweep_manifests(options, &mut report).await?;
        Ok(report)
    }

    async fn sweep_chunks(
        &self,
        census: &Census,
        options: &GcOptions,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        let age_s = age_s(options);
        let mut after = None;
        loop {
            let mut surveyed = self.survey(vec![Query::Chunks(after)]).await?;
            let Some(answers) = surveyed.pop() else {
                return Ok(());
            };
            check_complete(&answers)?;
            let (held, end) = merge(&answers);
            let is_garbage = |held: &&HeldChunk| !census.chunks.contains_key(&held.hash);
            let (old, young): (Vec<&HeldChunk>, Vec<&HeldChunk>) = held
                .iter()
                .filter(is_garbage)
                .partition(|held| held.age_s >= age_s);
            report.young += young.len() as u64;
            if options.is_dry {
                report.chunks += old.len() as u64;
                report.chunk_bytes += old.iter().map(|held| u64::from(held.bytes)).sum::<u64>();
            } else {
                let hashes: BTreeSet<Hash> = old.iter().map(|held| held.hash).collect();
                let items: Vec<_> = hashes.into_iter().map(|h| (Address::Chunk(h), 0)).collect();
                let (count, bytes) = self.remove_everywhere(&items, age_s).await?;
                report.chunks += count;
                report.chunk_bytes += bytes;
            }
            match end {
                Some(end) => after = Some(end),
                None => return Ok(()),
            }
        }
    }

    async fn sweep_manifests(
        &self,
        options: &GcOptions,
        report: &mut GcReport,
    ) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let page = self.manifests("", &after).await?;
            let items: Vec<_> = page.files.values().filter_map(garbage_of).collect();
            if options.is_dry {
                report.manifests += items.len() as u64;
            } else {
                report.manifests += self.remove_everywhere(&items, age_s(options)).await?.0;
            }
            match page.next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    /// Removes addresses from all members. Returns the number of copies, and their bytes.
    async fn remove_everywhere(
        &self,
        items: &[(Address, u64)],
        age_s: u32,
    ) -> Result<(u64, u64), StoreError> {
        let queries = items.chunks(QUERY_ITEMS_MAX).map(|items| Query::Remove {
            age_s,
            member: None,
            items: items.to_vec(),
        });
        let mut sum = (0, 0);
        for answers in self.survey_all(queries.collect()).await? {
            for reply in answers.replies.values() {
                if let Reply::Removed { count, bytes } = reply {
                    sum = (sum.0 + u64::from(*count), sum.1 + bytes);
                }
            }
        }
        Ok(sum)
    }

    /// Returns what each member holds.
    ///
    /// # Errors
    /// If a member does not answer, or the service cannot be reached.
    pub async fn usage(&self) -> Result<Vec<(MemberName, Usage)>, StoreError> {
        let mut usage = Vec::new();
        for answers in self.survey_all(vec![Query::Usage]).await? {
            for (member, reply) in answers.replies {
                if let Reply::Usage(held) = reply {
                    usage.push((member, held));
                }
            }
        }
        Ok(usage)
    }
}

fn age_s(options: &GcOptions) -> u32 {
    u32::try_from(options.age.as_secs()).unwrap_or(u32::MAX)
}

fn check_members(census: &Census) -> Result<(), StoreError> {
    let missing: Vec<_> = census.named.difference(&census.members).cloned().collect();
    match missing.is_empty() {
        true => Ok(()),
        false => Err(StoreError::Missing { missing }),
    }
}

/// Returns a name whose manifest is to be removed, with the highest version to remove: an outdated
/// one if enough members have the newest, or that of a removal of which no member is to learn.
fn garbage_of(file: &Listed<Hashed>) -> Option<(Address, u64)> {
    let (manifest, _) = &file.newest;
    let address = Address::of_name(&manifest.name);
    let is_safe = file.holders.len() >= usize::from(manifest.copies);
    match file.outdated.is_empty() {
        // The revisions of one version differ only in the members that they name.
        false if is_safe && manifest.version > 0 => Some((address, manifest.version - 1)),
        true if manifest.is_removed => Some((address, manifest.version)),
        _ => None,
    }
}

/// Returns the chunks of all members up to the digest where the first answer ends, and this digest
/// if there are more.
fn merge(answers: &Surveyed) -> (Vec<HeldChunk>, Option<Hash>) {
    let replies = answers.replies.values().filter_map(|reply| match reply {
        Reply::Chunks { chunks, has_more } => Some((chunks, *has_more)),
        _ => None,
    });
    let replies: Vec<_> = replies.collect();
    let unfinished = replies.iter().filter(|(_, has_more)| *has_more);
    let end = unfinished
        .filter_map(|(chunks, _)| chunks.last().map(|chunk| chunk.hash))
        .min();
    let all = replies
        .iter()
        .flat_map(|(chunks, _)| chunks.iter().copied());
    let held = all.filter(|chunk| end.is_none_or(|end| chunk.hash <= end));
    (held.collect(), end)
}
