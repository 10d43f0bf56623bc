//! Stores a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use manyflow_core::ConfigError;
use manyflow_store::{
    Address, ChunkEntry, EARLIER_MAX, Hash, Manifest, ManifestError, StoreConfig, Upload,
    UploadError, UploadEvent,
};
use sha2::{Digest, Sha256};
use tokio::task::JoinHandle;

use super::client::{next_version, replace_manifest, run_to_idle};
use super::session::StoreSession;
use super::{Connect, GetError, Progress, SessionError, StoreError};

/// The options of [`put`].
#[derive(Clone, Debug)]
pub struct PutOptions {
    /// The name in the store.
    pub name: String,
    /// The length of a chunk in bytes: 1 to [`STORED_BYTES_MAX`](manyflow_store::STORED_BYTES_MAX).
    pub chunk_bytes: u32,
    /// The number of earlier versions that remain readable, at most [`EARLIER_MAX`].
    pub keep: u8,
    /// The version that the file has to replace, 0 for none; `None` for any. The member of the
    /// name's rank 0 decides: while the service has the same members, only one of several such puts
    /// succeeds.
    pub expected: Option<u64>,
    /// The number of copies and other parameters.
    pub store: StoreConfig,
    /// The time for which to try to reach the service.
    pub patience: Duration,
}

/// A file that was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutReport {
    /// The manifest, which is stored too.
    pub manifest: Manifest,
    /// Whether an older file of the same name was replaced.
    pub replaced: bool,
}

impl PutOptions {
    /// Returns options for a file of this name: chunks of 1 MB, no earlier versions, and any
    /// version may be replaced.
    pub fn new(name: &str, store: StoreConfig, patience: Duration) -> PutOptions {
        PutOptions {
            name: name.to_owned(),
            chunk_bytes: 1_000_000,
            keep: 0,
            expected: None,
            store,
            patience,
        }
    }
}

/// The reason why a file was not stored. An older file of the same name is then intact.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// The file cannot be read.
    #[error("{path}: cannot be read ({error}); check the path")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// An option is outside its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The file needs a manifest that cannot be stored.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The service cannot be reached.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The search for older files of the name failed.
    #[error(transparent)]
    Find(#[from] GetError),
    /// Too few members have stored a chunk, or another put was faster.
    #[error(transparent)]
    Upload(#[from] UploadError),
    /// A manifest cannot be stored for another reason.
    #[error(transparent)]
    Store(Box<StoreError>),
}

impl From<StoreError> for PutError {
    fn from(error: StoreError) -> PutError {
        match error {
            StoreError::Upload(error) => PutError::Upload(error),
            StoreError::Session(error) => PutError::Session(error),
            other => PutError::Store(Box::new(other)),
        }
    }
}

/// Stores the file at `path`, and reports the progress after each chunk.
///
/// # Errors
/// If the file cannot be read, the service cannot be reached, or too few members store a chunk.
pub async fn put(
    connector: &impl Connect,
    path: &Path,
    options: PutOptions,
    mut report: impl FnMut(Progress),
) -> Result<PutReport, PutError> {
    let mut source = Source::open(path, options.chunk_bytes).await?;
    let mut manifest = empty_manifest(&options, source.total)?;
    let mut session = StoreSession::new(connector, options.patience);
    let newest = find_newest(&mut session, &options).await?;
    session.begin_machine();
    manifest.version = next_version(newest.as_ref().map(|newest| newest.version));
    let replaced = newest.filter(|newest| !newest.is_removed);
    check_expected(&options, replaced.as_ref())?;

    let mut upload = Upload::new(options.store.clone(), session.now())?;
    let mut stored = 0;
    loop {
        while upload.wants_chunk()
            && let Some((hash, bytes)) = source.read_chunk().await?
        {
            upload.add(Address::Chunk(hash), bytes);
            let members = Vec::new();
            manifest.chunks.push(ChunkEntry { hash, members });
        }
        while let Some(event) = upload.poll_event() {
            let bytes = note_stored(event, &mut manifest)?;
            stored += u64::from(bytes);
            let total = source.total.max(source.offset);
            report(Progress {
                // The last chunk may be shorter than the others.
                bytes: stored.min(total),
                total,
            });
        }
        if source.is_read() && upload.is_idle() {
            break;
        }
        session.step(&mut upload).await?;
    }
    (manifest.size, manifest.digest) = (source.offset, source.digest);
    if let Some(replaced) = &replaced {
        keep_earlier(
            &mut session,
            &mut upload,
            &mut manifest,
            replaced,
            options.keep,
        )
        .await?;
    }
    if let Some(expected) = options.expected {
        replace_manifest(&mut session, &options.store, &manifest, expected).await?;
        session.begin_machine();
    }
    upload.add(Address::of_name(&manifest.name), manifest.encode()?);
    run_to_idle(&mut session, &mut upload).await?;
    Ok(PutReport {
        manifest,
        replaced: replaced.is_some(),
    })
}

/// Fails before anything is sent if another version is present than the put has to replace.
fn check_expected(options: &PutOptions, replaced: Option<&Manifest>) -> Result<(), UploadError> {
    let held = replaced.map_or(0, |replaced| replaced.version);
    match options.expected {
        Some(expected) if expected != held => Err(UploadError::Conflict { held }),
        _ => Ok(()),
    }
}

/// Stores the manifest that is replaced as a chunk, and lists it and those that it lists.
async fn keep_earlier(
    session: &mut StoreSession<'_, impl Connect>,
    upload: &mut Upload,
    manifest: &mut Manifest,
    replaced: &Manifest,
    keep: u8,
) -> Result<(), PutError> {
    if keep == 0 {
        return Ok(());
    }
    let (earlier, bytes) = replaced.as_earlier()?;
    upload.add(Address::Chunk(earlier.manifest), bytes);
    run_to_idle(session, upload).await?;
    let all = std::iter::once(earlier).chain(replaced.earlier.iter().copied());
    manifest.earlier = all.take(usize::from(keep).min(EARLIER_MAX)).collect();
    Ok(())
}

/// Returns a manifest without chunks. Refuses a file whose manifest would be too long, before
/// anything is sent.
fn empty_manifest(options: &PutOptions, total: u64) -> Result<Manifest, PutError> {
    let chunks = Manifest::chunk_count(total, options.chunk_bytes);
    Manifest::check_room(chunks, options.store.copies)?;
    let manifest = Manifest {
        copies: options.store.copies,
        ..Manifest::empty(&options.name, options.chunk_bytes)
    };
    manifest.encode()?;
    Ok(manifest)
}

/// Returns the newest manifest of the name, if the store has one.
async fn find_newest(
    session: &mut StoreSession<'_, impl Connect>,
    options: &PutOptions,
) -> Result<Option<Manifest>, PutError> {
    let found = super::get::find(session, options.store.clone(), &options.name).await?;
    Ok(found.manifest)
}

/// Notes the members of a chunk in the manifest. Returns the bytes that are stored.
fn note_stored(event: UploadEvent, manifest: &mut Manifest) -> Result<u32, UploadError> {
    match event {
        UploadEvent::Failed(error) => Err(error),
        UploadEvent::Wanted { .. } => Ok(0),
        UploadEvent::Stored { chunk, members } => {
            if let Some(entry) = manifest.chunks.get_mut(chunk as usize) {
                entry.members = members;
            }
            Ok(manifest.chunk_bytes)
        }
    }
}

/// The reader of a file, and the chunk that it has read.
type Chunk = (Reader, io::Result<(Hash, Bytes)>);

/// A file that is read chunk by chunk, one chunk ahead: while a chunk is sent, another thread reads
/// the next one and computes its digest.
struct Source {
    path: PathBuf,
    /// The next chunk; `None` after the last one.
    next: Option<JoinHandle<Chunk>>,
    /// The digest of all that was read, after the last chunk.
    digest: Hash,
    /// The length of the file when it was opened, in bytes.
    total: u64,
    /// The bytes read so far.
    offset: u64,
}

struct Reader {
    file: File,
    digest: Sha256,
    chunk_bytes: usize,
}

impl Source {
    async fn open(path: &Path, chunk_bytes: u32) -> Result<Source, PutError> {
        let file = path.to_owned();
        // Opening a pipe waits for its writer, and a disk may be stuck.
        let opened = tokio::task::spawn_blocking(move || {
            let file = File::open(file)?;
            let metadata = file.metadata()?;
            match metadata.is_dir() {
                true => Err(io::ErrorKind::IsADirectory.into()),
                false => Ok((metadata.len(), file)),
            }
        });
        let opened = opened.await.map_err(io::Error::from).flatten();
        let (total, file) = opened.map_err(|error| unreadable(path, error))?;
        let reader = Reader {
            file,
            digest: Sha256::new(),
            chunk_bytes: chunk_bytes.max(1) as usize,
        };
        Ok(Source {
            path: path.to_owned(),
            next: Some(reader.read_chunk()),
            digest: Hash([0; 32]),
            total,
            offset: 0,
        })
    }

    /// Returns whether the whole file was read.
    fn is_read(&self) -> bool {
        self.next.is_none()
    }

    /// Returns the next chunk; `None` at the end of the file.
    async fn read_chunk(&mut self) -> Result<Option<(Hash, Bytes)>, PutError> {
        let Some(next) = &mut self.next else {
            return Ok(None);
        };
        let read = next.await;
        self.next = None;
        let (reader, chunk) = read.map_err(|error| unreadable(&self.path, error.into()))?;
        let (hash, bytes) = chunk.map_err(|error| unreadable(&self.path, error))?;
        if bytes.is_empty() {
            self.digest = Hash(reader.digest.finalize().into());
            return Ok(None);
        }
        self.offset += bytes.len() as u64;
        self.next = Some(reader.read_chunk());
        Ok(Some((hash, bytes)))
    }
}

impl Reader {
    /// Begins to read the next chunk in another thread. It is empty at the end of the file.
    fn read_chunk(mut self) -> JoinHandle<(Reader, io::Result<(Hash, Bytes)>)> {
        tokio::task::spawn_blocking(move || {
            let chunk = self.read();
            (self, chunk)
        })
    }

    fn read(&mut self) -> io::Result<(Hash, Bytes)> {
        let mut bytes = Vec::with_capacity(self.chunk_bytes);
        let mut part = (&mut self.file).take(self.chunk_bytes as u64);
        part.read_to_end(&mut bytes)?;
        self.digest.update(&bytes);
        Ok((Hash::of(&bytes), bytes.into()))
    }
}

pub(super) fn unreadable(path: &Path, error: io::Error) -> PutError {
    let path = path.to_owned();
    PutError::Read { path, error }
}
