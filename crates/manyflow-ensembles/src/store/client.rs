//! A client that keeps its connections, and what other operations are made of.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use manyflow_store::{
    Address, Batch, ChunkEntry, Download, DownloadError, Found, Hash, Manifest, MemberName,
    QUERY_ITEMS_MAX, Query, StoreConfig, Survey, Surveyed, Upload, UploadEvent,
};

use super::session::{IdleConnection, StoreSession};
use super::{Connect, StoreError};

/// The most connections that are kept for later.
const IDLE_MAX: usize = 16;

/// A client of a store. It keeps connections, so that an operation begins without opening one.
/// Several tasks may use it at once.
pub struct StoreClient<C> {
    connector: C,
    config: StoreConfig,
    patience: Duration,
    idle: Mutex<Vec<IdleConnection>>,
}

impl<C: Connect> StoreClient<C> {
    /// Creates a client that tries to connect for `patience` each time.
    pub fn new(connector: C, config: StoreConfig, patience: Duration) -> StoreClient<C> {
        StoreClient {
            connector,
            config,
            patience,
            idle: Mutex::default(),
        }
    }

    /// Returns the number of copies of new files, and other parameters.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// Returns a session, over a connection that was kept if there is one.
    pub(super) fn session(&self) -> StoreSession<'_, C> {
        let mut session = StoreSession::new(&self.connector, self.patience);
        session.resume(self.lock_idle().pop());
        session
    }

    /// Keeps the connection of a session for later.
    pub(super) fn keep(&self, session: StoreSession<'_, C>) {
        let mut idle = self.lock_idle();
        if idle.len() < IDLE_MAX {
            idle.extend(session.leave());
        }
    }

    fn lock_idle(&self) -> std::sync::MutexGuard<'_, Vec<IdleConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks for the newest manifest of a name, which may say that the name was removed.
    ///
    /// # Errors
    /// If no member answers, or the service cannot be reached.
    pub async fn lookup(&self, name: &str) -> Result<Found, StoreError> {
        let mut session = self.session();
        let found = super::get::find(&mut session, self.config.clone(), name).await?;
        self.keep(session);
        Ok(found)
    }

    /// Returns the newest manifest of a name; `None` if there is none, or the name was removed.
    ///
    /// # Errors
    /// If no member answers, or the service cannot be reached.
    pub async fn find(&self, name: &str) -> Result<Option<Manifest>, StoreError> {
        let manifest = self.lookup(name).await?.manifest;
        Ok(manifest.filter(|manifest| !manifest.is_removed))
    }

    /// Asks every member these questions, and returns the answers in the order of the questions.
    ///
    /// # Errors
    /// If no member answers, or the service cannot be reached.
    pub(super) async fn survey(&self, queries: Vec<Query>) -> Result<Vec<Surveyed>, StoreError> {
        let mut session = self.session();
        let mut survey = Survey::new(self.config.clone(), session.now())?;
        let mut surveyed = BTreeMap::new();
        queries.into_iter().for_each(|query| {
            survey.add(query);
        });
        loop {
            while let Some(answers) = survey.poll_surveyed() {
                surveyed.insert(answers.query, answers);
            }
            if let Some(error) = survey.poll_failure() {
                return Err(error.into());
            }
            if survey.is_idle() {
                break;
            }
            session.step(&mut survey).await?;
        }
        self.keep(session);
        Ok(surveyed.into_values().collect())
    }

    /// Asks every member these questions, and fails unless all have answered all.
    ///
    /// # Errors
    /// If a member does not answer or fails, or the service cannot be reached.
    pub(super) async fn survey_all(
        &self,
        queries: Vec<Query>,
    ) -> Result<Vec<Surveyed>, StoreError> {
        let surveyed = self.survey(queries).await?;
        surveyed.iter().try_for_each(check_complete)?;
        Ok(surveyed)
    }

    /// Returns chunks in the order of their places; `None` for those that no member can give.
    ///
    /// # Errors
    /// If no member answers, or the service cannot be reached.
    pub(super) async fn fetch(
        &self,
        config: &StoreConfig,
        chunks: &[ChunkEntry],
    ) -> Result<Vec<Option<Bytes>>, StoreError> {
        let mut fetched = vec![None; chunks.len()];
        let mut wanted: Vec<usize> = (0..chunks.len()).collect();
        while !wanted.is_empty() {
            let entries = wanted.iter().map(|place| chunks[*place].clone()).collect();
            let mut session = self.session();
            let mut download = Download::of_chunks(config.clone(), entries, session.now())?;
            let lost = loop {
                while let Some((chunk, bytes)) = download.poll_chunk() {
                    fetched[wanted[chunk as usize]] = Some(bytes);
                }
                match download.poll_failure() {
                    Some(DownloadError::NoCopy { chunk, .. }) => break Some(chunk as usize),
                    Some(error) => return Err(error.into()),
                    None if download.is_complete() => break None,
                    None => session.step(&mut download).await?,
                }
            };
            self.keep(session);
            // The others are asked for again without the chunk that is lost.
            let lost = lost.map(|chunk| wanted[chunk]);
            wanted.retain(|place| {
                lost.is_some_and(|lost| lost != *place) && fetched[*place].is_none()
            });
        }
        Ok(fetched)
    }

    /// Stores chunks on as many members as the configuration says. Returns the entries of a
    /// manifest, in the order of the chunks.
    ///
    /// # Errors
    /// If too few members store a chunk, or the service cannot be reached.
    pub async fn store_chunks(&self, chunks: Vec<Bytes>) -> Result<Vec<ChunkEntry>, StoreError> {
        let mut session = self.session();
        let mut upload = Upload::new(self.config.clone(), session.now())?;
        let mut entries = Vec::new();
        for bytes in chunks {
            let hash = Hash::of(&bytes);
            upload.add(Address::Chunk(hash), bytes);
            let members = Vec::new();
            entries.push(ChunkEntry { hash, members });
        }
        for (chunk, members) in run_to_idle(&mut session, &mut upload).await? {
            entries[chunk as usize].members = members;
        }
        self.keep(session);
        Ok(entries)
    }

    /// Stores a manifest on as many members as it says. `expected` is the version that it has to
    /// replace, 0 for none, if only that one may be replaced.
    ///
    /// # Errors
    /// If the present version is another one, too few members store the manifest, or the service
    /// cannot be reached.
    pub async fn store_manifest(
        &self,
        manifest: &Manifest,
        expected: Option<u64>,
    ) -> Result<(), StoreError> {
        let mut session = self.session();
        if let Some(expected) = expected {
            replace_manifest(&mut session, &self.config, manifest, expected).await?;
        }
        let config = StoreConfig {
            copies: manifest.copies,
            ..self.config.clone()
        };
        store_manifest(&mut session, &config, manifest).await?;
        self.keep(session);
        Ok(())
    }

    /// Makes chunks as young as if they were put now: the files to which they belong may be removed
    /// before another one that has them is stored. Returns whether each is on a member.
    ///
    /// # Errors
    /// If no member answers, or the service cannot be reached.
    pub async fn refresh(&self, hashes: &[Hash]) -> Result<bool, StoreError> {
        let queries = hashes.chunks(QUERY_ITEMS_MAX).map(|hashes| Query::Holds {
            addresses: hashes.iter().copied().map(Address::Chunk).collect(),
            is_deep: false,
            refreshes: true,
        });
        let surveyed = self.survey(queries.collect()).await?;
        let parts = hashes.chunks(QUERY_ITEMS_MAX).zip(&surveyed);
        let holders = parts.map(|(hashes, answers)| super::census::holders(hashes, answers));
        Ok(holders
            .into_iter()
            .all(|holders| holders.iter().all(|holders| !holders.is_empty())))
    }
}

impl<C> std::fmt::Debug for StoreClient<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreClient")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Fails unless every member has answered.
pub(super) fn check_complete(answers: &Surveyed) -> Result<(), StoreError> {
    if let Some((member, reason)) = answers.failures.first_key_value() {
        let (member, reason) = (member.clone(), reason.clone());
        return Err(StoreError::Member { member, reason });
    }
    match answers.is_complete {
        true => Ok(()),
        false => Err(StoreError::Incomplete {
            answered: answers.replies.keys().cloned().collect(),
        }),
    }
}

/// Stores a manifest on one member, if it replaces the version `expected` there (0: none).
pub(super) async fn replace_manifest(
    session: &mut StoreSession<'_, impl Connect>,
    config: &StoreConfig,
    manifest: &Manifest,
    expected: u64,
) -> Result<(), StoreError> {
    let config = StoreConfig {
        copies: 1,
        ..config.clone()
    };
    session.begin_machine();
    let mut upload = Upload::new(config, session.now())?;
    let name = Address::of_name(&manifest.name).hash();
    upload.add_if(name, expected, manifest.encode()?);
    run_to_idle(session, &mut upload).await.map(drop)
}

/// Stores a manifest on as many members as the configuration says.
pub(super) async fn store_manifest(
    session: &mut StoreSession<'_, impl Connect>,
    config: &StoreConfig,
    manifest: &Manifest,
) -> Result<(), StoreError> {
    session.begin_machine();
    let mut upload = Upload::new(config.clone(), session.now())?;
    upload.add(Address::of_name(&manifest.name), manifest.encode()?);
    run_to_idle(session, &mut upload).await.map(drop)
}

/// Stores manifests together, each on as many members as the configuration says.
pub(super) async fn store_manifests(
    session: &mut StoreSession<'_, impl Connect>,
    config: &StoreConfig,
    manifests: &[Manifest],
) -> Result<(), StoreError> {
    session.begin_machine();
    let mut upload = Upload::new(config.clone(), session.now())?;
    let mut batch = Batch::default();
    for manifest in manifests {
        let bytes = manifest.encode()?;
        if batch.push(&bytes) {
            continue;
        }
        if !batch.is_empty() {
            upload.add_names(std::mem::take(&mut batch).into_bytes());
        }
        // A manifest of the maximum length leaves no room for its length in a batch.
        if !batch.push(&bytes) {
            upload.add(Address::of_name(&manifest.name), bytes);
        }
    }
    if !batch.is_empty() {
        upload.add_names(batch.into_bytes());
    }
    run_to_idle(session, &mut upload).await.map(drop)
}

/// Runs an upload until everything is stored. Returns the members that have stored each item, by
/// its place.
pub(super) async fn run_to_idle(
    session: &mut StoreSession<'_, impl Connect>,
    upload: &mut Upload,
) -> Result<Vec<(u32, Vec<MemberName>)>, StoreError> {
    let mut stored = Vec::new();
    loop {
        match upload.poll_event() {
            Some(UploadEvent::Stored { chunk, members }) => stored.push((chunk, members)),
            Some(UploadEvent::Failed(error)) => return Err(error.into()),
            Some(UploadEvent::Wanted { .. }) => {}
            None if upload.is_idle() => return Ok(stored),
            None => session.step(upload).await?,
        }
    }
}

/// Returns a version for a manifest that replaces one of this version: the milliseconds since 1970,
/// or more if the clock is behind.
pub fn next_version(replaced: Option<u64>) -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_or(0, |since| since.as_millis() as u64);
    now.max(replaced.map_or(0, |version| version.saturating_add(1)))
}
