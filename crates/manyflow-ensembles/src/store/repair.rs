//! Verifies that every chunk has its copies, restores those that are missing, and moves copies to
//! the members that the switch would choose for them now.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use manyflow_core::units::Rate;
use manyflow_store::{
    Address, ChunkEntry, Hash, Manifest, MemberName, Query, Reply, StoreConfig, Upload, UploadEvent,
};
use tokio::time::{Instant, sleep_until};

use super::census::Census;
use super::client::store_manifests;
use super::listing::Hashed;
use super::{Connect, Listed, StoreClient, StoreError};

/// The chunks that are examined together.
const BATCH: usize = 16_384;
/// The chunks for which an upload asks at the same time.
const OPEN_MAX: usize = 64;
/// The chunks that are read at the same time.
const READ_MAX: usize = 8;

/// The work of [`StoreClient::repair`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum RepairMode {
    /// Changes nothing.
    Verify,
    /// Restores missing copies.
    Repair,
    /// Restores missing copies, and moves others to the members that the switch chooses now.
    Rebalance,
}

/// The options of [`StoreClient::repair`].
#[derive(Clone, Debug)]
pub struct RepairOptions {
    /// The work.
    pub mode: RepairMode,
    /// Whether members read all chunks, and compare them with their digests.
    pub is_deep: bool,
    /// The maximum rate at which chunks are copied; `None` for no limit. Without it, a repair still
    /// yields to other clients.
    pub rate: Option<Rate>,
}

/// The outcome of [`StoreClient::repair`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RepairReport {
    /// The members that have answered.
    pub members: BTreeSet<MemberName>,
    /// The number of files.
    pub files: u64,
    /// The bytes of all files.
    pub bytes: u64,
    /// The number of distinct chunks.
    pub chunks: u64,
    /// The chunks with fewer copies than they shall have, by the number of copies that they had.
    pub short: BTreeMap<usize, u64>,
    /// The manifests with fewer copies than they shall have.
    pub short_manifests: u64,
    /// The files of which a chunk has no copy left.
    pub lost_files: Vec<String>,
    /// The earlier versions of files that can no longer be read, as names and versions.
    pub lost_versions: Vec<(String, u64)>,
    /// The chunks that were copied.
    pub copied: u64,
    /// Their bytes.
    pub copied_bytes: u64,
    /// The chunks that have fewer copies than they shall have even now: there are fewer members, or
    /// no copy can be read.
    pub still_short: u64,
    /// Copies that were removed, because others took their place.
    pub moved: u64,
    /// The manifests that were written.
    pub manifests: u64,
}

impl RepairReport {
    /// Returns whether every chunk and manifest has all its copies now.
    pub fn is_sound(&self) -> bool {
        self.still_short == 0 && self.lost_files.is_empty() && self.lost_versions.is_empty()
    }
}

/// The progress of [`StoreClient::repair`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RepairProgress {
    /// The chunks that were examined.
    pub chunks: u64,
    /// The chunks of all files.
    pub total_chunks: u64,
    /// The bytes that were copied.
    pub copied_bytes: u64,
}

/// A repair in progress.
struct Repair<'a, C, R> {
    client: &'a StoreClient<C>,
    options: RepairOptions,
    config: StoreConfig,
    census: Census,
    report: RepairReport,
    /// The members of the chunks that were copied or moved.
    placed: BTreeMap<Hash, Vec<MemberName>>,
    /// Chunks without a copy.
    lost: BTreeSet<Hash>,
    begun: Instant,
    progress: R,
}

impl<C: Connect> StoreClient<C> {
    /// Examines every chunk of every file, and restores or moves copies, as the options say. It
    /// uses the store like a client that yields to others.
    ///
    /// # Errors
    /// If a member does not answer or cannot store a chunk, or the service cannot be reached. A
    /// later call goes on with what is missing then.
    pub async fn repair(
        &self,
        options: RepairOptions,
        progress: impl FnMut(RepairProgress),
    ) -> Result<RepairReport, StoreError> {
        let config = StoreConfig {
            yields: true,
            asks_first: true,
            // A chunk whose members do not answer is left to the next repair.
            rounds: 2,
            ..self.config().clone()
        };
        let census = self.census(&config).await?;
        let mut repair = Repair {
            report: RepairReport {
                members: census.members.clone(),
                files: census.files,
                bytes: census.bytes,
                chunks: census.chunks.len() as u64,
                lost_versions: census.lost_versions.clone(),
                ..RepairReport::default()
            },
            client: self,
            options,
            config,
            census,
            placed: BTreeMap::new(),
            lost: BTreeSet::new(),
            begun: Instant::now(),
            progress,
        };
        repair.examine_chunks().await?;
        repair.examine_manifests().await?;
        Ok(repair.report)
    }
}

impl<C: Connect, R: FnMut(RepairProgress)> Repair<'_, C, R> {
    async fn examine_chunks(&mut self) -> Result<(), StoreError> {
        let chunks: Vec<_> = self.census.chunks.iter().map(|(h, c)| (*h, *c)).collect();
        let mut examined = 0;
        for batch in chunks.chunks(BATCH) {
            let hashes: Vec<_> = batch.iter().map(|(hash, _)| *hash).collect();
            let holders = self
                .client
                .find_holders(&hashes, self.options.is_deep)
                .await?;
            let examined_chunks = batch.iter().zip(holders);
            let examined_chunks: Vec<_> = examined_chunks
                .map(|((hash, copies), holders)| Examined {
                    hash: *hash,
                    copies: *copies,
                    holders,
                })
                .collect();
            self.note_examined(&examined_chunks);
            if self.options.mode != RepairMode::Verify {
                self.restore(examined_chunks).await?;
            }
            examined += batch.len() as u64;
            self.show(examined);
        }
        Ok(())
    }

    fn show(&mut self, chunks: u64) {
        (self.progress)(RepairProgress {
            chunks,
            total_chunks: self.report.chunks,
            copied_bytes: self.report.copied_bytes,
        });
    }

    fn note_examined(&mut self, examined: &[Examined]) {
        for chunk in examined {
            if chunk.is_short() {
                *self.report.short.entry(chunk.holders.len()).or_default() += 1;
            }
            if chunk.holders.is_empty() {
                self.lost.insert(chunk.hash);
            }
            let is_left_short = match self.options.mode {
                RepairMode::Verify => chunk.is_short(),
                _ => chunk.holders.is_empty() || self.copies(chunk.copies) < chunk.copies,
            };
            self.report.still_short += u64::from(is_left_short);
        }
    }

    /// Returns the number of copies that the present members can have.
    fn copies(&self, wanted: u8) -> u8 {
        let members = u8::try_from(self.census.members.len()).unwrap_or(u8::MAX);
        wanted.min(members)
    }

    /// Copies the chunks that need it, those with the same number of copies together.
    async fn restore(&mut self, examined: Vec<Examined>) -> Result<(), StoreError> {
        let mut groups: BTreeMap<u8, Vec<Examined>> = BTreeMap::new();
        for chunk in examined {
            let copies = self.copies(chunk.copies);
            let is_short = chunk.holders.len() < usize::from(copies);
            let is_moved = self.options.mode == RepairMode::Rebalance;
            if !chunk.holders.is_empty() && (is_short || is_moved) {
                groups.entry(copies).or_default().push(chunk);
            }
        }
        for (copies, chunks) in groups {
            let placed = self.place(copies, &chunks).await?;
            if self.options.mode == RepairMode::Rebalance {
                self.remove_surplus(&chunks, &placed).await?;
            }
            self.placed.extend(placed);
        }
        Ok(())
    }

    /// Stores each chunk on the members of its first ranks, unless they have it.
    async fn place(
        &mut self,
        copies: u8,
        chunks: &[Examined],
    ) -> Result<BTreeMap<Hash, Vec<MemberName>>, StoreError> {
        let config = StoreConfig {
            copies,
            ..self.config.clone()
        };
        let mut session = self.client.session();
        let mut upload = Upload::new(config, session.now())?;
        let (mut waiting, mut open) = (chunks.iter(), 0);
        let (mut placed, mut wanted) = (BTreeMap::new(), Vec::new());
        loop {
            while open < OPEN_MAX
                && let Some(chunk) = waiting.next()
            {
                upload.add_unread(chunk.hash);
                open += 1;
            }
            while let Some(event) = upload.poll_event() {
                match event {
                    UploadEvent::Wanted { chunk } => wanted.push(chunk),
                    UploadEvent::Failed(error) => return Err(error.into()),
                    UploadEvent::Stored { chunk, members } => {
                        placed.insert(chunks[chunk as usize].hash, members);
                        open -= 1;
                    }
                }
            }
            if !wanted.is_empty() {
                let read: Vec<_> = wanted.drain(..wanted.len().min(READ_MAX)).collect();
                open -= self.supply(&mut upload, chunks, &read).await?;
            } else if open == 0 {
                break;
            } else {
                session.step(&mut upload).await?;
            }
        }
        self.client.keep(session);
        Ok(placed)
    }

    /// Reads chunks that an upload wants, and gives up those that cannot be read. Returns their
    /// number.
    async fn supply(
        &mut self,
        upload: &mut Upload,
        chunks: &[Examined],
        wanted: &[u32],
    ) -> Result<usize, StoreError> {
        let entry = |place: &u32| ChunkEntry {
            hash: chunks[*place as usize].hash,
            members: Vec::new(),
        };
        let entries: Vec<_> = wanted.iter().map(entry).collect();
        let read = self.client.fetch(&self.config, &entries).await?;
        let mut given_up = 0;
        for (place, bytes) in wanted.iter().zip(read) {
            match bytes {
                Some(bytes) => self.supply_chunk(upload, *place, bytes),
                None => {
                    upload.give_up(*place);
                    self.lost.insert(chunks[*place as usize].hash);
                    self.report.still_short += 1;
                    given_up += 1;
                }
            }
        }
        self.pace().await;
        Ok(given_up)
    }

    fn supply_chunk(&mut self, upload: &mut Upload, place: u32, bytes: Bytes) {
        self.report.copied += 1;
        self.report.copied_bytes += bytes.len() as u64;
        upload.supply(place, bytes);
    }

    /// Waits until the bytes that were copied do not exceed the rate.
    async fn pace(&self) {
        if let Some(rate) = self.options.rate {
            let seconds = self.report.copied_bytes as f64 * 8.0 / rate.bits_per_s().max(1) as f64;
            sleep_until(self.begun + Duration::from_secs_f64(seconds)).await;
        }
    }

    /// Removes the copies of chunks from members other than those where they were placed.
    async fn remove_surplus(
        &mut self,
        chunks: &[Examined],
        placed: &BTreeMap<Hash, Vec<MemberName>>,
    ) -> Result<(), StoreError> {
        let mut surplus: BTreeMap<&MemberName, Vec<(Address, u64)>> = BTreeMap::new();
        for chunk in chunks {
            let Some(members) = placed.get(&chunk.hash) else {
                continue;
            };
            for holder in chunk
                .holders
                .iter()
                .filter(|holder| !members.contains(holder))
            {
                let item = (Address::Chunk(chunk.hash), 0);
                surplus.entry(holder).or_default().push(item);
            }
        }
        let mut queries = Vec::new();
        for (member, items) in surplus {
            let queries_of_member = items.chunks(manyflow_store::QUERY_ITEMS_MAX);
            queries.extend(queries_of_member.map(|items| Query::Remove {
                age_s: 0,
                member: Some(member.clone()),
                items: items.to_vec(),
            }));
        }
        for answers in self.client.survey(queries).await? {
            self.report.moved += answers.replies.values().map(removed).sum::<u64>();
        }
        Ok(())
    }

    /// Restores copies of manifests, and notes in them where their chunks are now.
    async fn examine_manifests(&mut self) -> Result<(), StoreError> {
        let mut after = String::new();
        loop {
            let page = self.client.manifests("", &after).await?;
            let manifests = page
                .files
                .values()
                .filter_map(|file| self.examine_manifest(file));
            let manifests: Vec<_> = manifests.collect();
            self.store_manifests(manifests).await?;
            match page.next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    /// Returns the manifest of a file that is to be stored again, if there is one.
    fn examine_manifest(&mut self, file: &Listed<Hashed>) -> Option<Manifest> {
        let (manifest, _) = &file.newest;
        if manifest.referenced().any(|hash| self.lost.contains(&hash)) {
            self.report.lost_files.push(manifest.name.clone());
        }
        let is_short = file.holders.len() < usize::from(manifest.copies);
        self.report.short_manifests += u64::from(is_short);
        if self.options.mode == RepairMode::Verify {
            self.report.still_short += u64::from(is_short);
            return None;
        }
        self.report.still_short += u64::from(self.copies(manifest.copies) < manifest.copies);
        let renewed = self.renew(manifest);
        renewed.or_else(|| is_short.then(|| manifest.clone()))
    }

    /// Stores manifests, those with the same number of copies together.
    async fn store_manifests(&mut self, manifests: Vec<Manifest>) -> Result<(), StoreError> {
        let mut groups: BTreeMap<u8, Vec<Manifest>> = BTreeMap::new();
        for manifest in manifests {
            groups
                .entry(self.copies(manifest.copies))
                .or_default()
                .push(manifest);
        }
        for (copies, manifests) in groups {
            let config = StoreConfig {
                copies,
                ..self.config.clone()
            };
            let mut session = self.client.session();
            store_manifests(&mut session, &config, &manifests).await?;
            self.client.keep(session);
            self.report.manifests += manifests.len() as u64;
        }
        Ok(())
    }

    /// Returns the manifest with the members that have its chunks now, if they have changed. It
    /// does not name members that do not answer.
    fn renew(&self, manifest: &Manifest) -> Option<Manifest> {
        let mut renewed = manifest.clone();
        for chunk in &mut renewed.chunks {
            match self.placed.get(&chunk.hash) {
                Some(members) => chunk.members.clone_from(members),
                None => chunk
                    .members
                    .retain(|member| self.census.members.contains(member)),
            }
        }
        if renewed.chunks == manifest.chunks {
            return None;
        }
        renewed.revision = renewed.revision.saturating_add(1);
        Some(renewed)
    }
}

/// A chunk, and the members that hold it.
struct Examined {
    hash: Hash,
    /// The number of copies that it shall have.
    copies: u8,
    holders: BTreeSet<MemberName>,
}

impl Examined {
    fn is_short(&self) -> bool {
        self.holders.len() < usize::from(self.copies)
    }
}

fn removed(reply: &Reply) -> u64 {
    match reply {
        Reply::Removed { count, .. } => u64::from(*count),
        _ => 0,
    }
}
