//! Stores a file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use manyflow_core::ConfigError;
use manyflow_store::{
    Address, ChunkEntry, Hash, Manifest, ManifestError, StoreConfig, Upload, UploadError,
    UploadEvent,
};
use sha2::{Digest, Sha256};

use super::session::StoreSession;
use super::{Connect, GetError, Progress, SessionError};

/// The options of [`put`].
#[derive(Clone, Debug)]
pub struct PutOptions {
    /// The name in the store.
    pub name: String,
    /// The length of a chunk in bytes: 1 to [`STORED_BYTES_MAX`](manyflow_store::STORED_BYTES_MAX).
    pub chunk_bytes: u32,
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
    /// Too few members have stored a chunk.
    #[error(transparent)]
    Upload(#[from] UploadError),
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
    let newest = find_version(&mut session, &options).await?;
    session.disconnect();
    manifest.version = newest.map_or(0, |version| version + 1).max(now_ms());

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
        if source.is_read && upload.is_idle() {
            break;
        }
        session.step(&mut upload).await?;
    }
    (manifest.size, manifest.digest) = (source.offset, source.digest());
    store_manifest(&mut session, &mut upload, &manifest).await?;
    Ok(PutReport {
        manifest,
        replaced: newest.is_some(),
    })
}

/// Returns a manifest without chunks. Refuses a file whose manifest would be too long, before
/// anything is sent.
fn empty_manifest(options: &PutOptions, total: u64) -> Result<Manifest, PutError> {
    let chunks = Manifest::chunk_count(total, options.chunk_bytes);
    Manifest::check_room(chunks, options.store.copies)?;
    let manifest = Manifest {
        name: options.name.clone(),
        version: 0,
        size: 0,
        chunk_bytes: options.chunk_bytes,
        digest: Hash([0; 32]),
        chunks: Vec::new(),
    };
    manifest.encode()?;
    Ok(manifest)
}

/// Returns the newest version of the name, if the store has one.
async fn find_version(
    session: &mut StoreSession<'_, impl Connect>,
    options: &PutOptions,
) -> Result<Option<u64>, PutError> {
    let found = super::get::find(session, options.store.clone(), &options.name).await?;
    Ok(found.manifest.map(|manifest| manifest.version))
}

/// Notes the members of a chunk in the manifest. Returns the bytes that are stored.
fn note_stored(event: UploadEvent, manifest: &mut Manifest) -> Result<u32, UploadError> {
    match event {
        UploadEvent::Failed(error) => Err(error),
        UploadEvent::Stored { chunk, members } => {
            if let Some(entry) = manifest.chunks.get_mut(chunk as usize) {
                entry.members = members;
            }
            Ok(manifest.chunk_bytes)
        }
    }
}

async fn store_manifest(
    session: &mut StoreSession<'_, impl Connect>,
    upload: &mut Upload,
    manifest: &Manifest,
) -> Result<(), PutError> {
    upload.add(Address::of_name(&manifest.name), manifest.encode()?);
    loop {
        match upload.poll_event() {
            Some(UploadEvent::Stored { .. }) => return Ok(()),
            Some(UploadEvent::Failed(error)) => return Err(error.into()),
            None => session.step(upload).await?,
        }
    }
}

/// Returns the milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// A file that is read chunk by chunk.
struct Source {
    path: PathBuf,
    /// `None` while a thread reads.
    reader: Option<Reader>,
    /// The length of the file when it was opened, in bytes.
    total: u64,
    /// The bytes read so far.
    offset: u64,
    is_read: bool,
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
        Ok(Source {
            path: path.to_owned(),
            reader: Some(Reader {
                file,
                digest: Sha256::new(),
                chunk_bytes: chunk_bytes.max(1) as usize,
            }),
            total,
            offset: 0,
            is_read: false,
        })
    }

    /// Reads the next chunk in another thread.
    async fn read_chunk(&mut self) -> Result<Option<(Hash, Bytes)>, PutError> {
        if self.is_read {
            return Ok(None);
        }
        let Some(mut reader) = self.reader.take() else {
            return Ok(None);
        };
        let read = tokio::task::spawn_blocking(move || {
            let chunk = reader.read_chunk();
            (reader, chunk)
        });
        let (reader, chunk) = read
            .await
            .map_err(|error| unreadable(&self.path, error.into()))?;
        self.reader = Some(reader);
        let (hash, bytes) = chunk.map_err(|error| unreadable(&self.path, error))?;
        self.is_read = bytes.is_empty();
        self.offset += bytes.len() as u64;
        Ok((!bytes.is_empty()).then_some((hash, bytes)))
    }

    /// Returns the digest of all that was read.
    fn digest(&mut self) -> Hash {
        let digest = self.reader.take().map(|reader| reader.digest);
        Hash(digest.unwrap_or_default().finalize().into())
    }
}

impl Reader {
    fn read_chunk(&mut self) -> io::Result<(Hash, Bytes)> {
        let mut bytes = Vec::with_capacity(self.chunk_bytes);
        let mut part = (&mut self.file).take(self.chunk_bytes as u64);
        part.read_to_end(&mut bytes)?;
        self.digest.update(&bytes);
        Ok((Hash::of(&bytes), bytes.into()))
    }
}

fn unreadable(path: &Path, error: io::Error) -> PutError {
    let path = path.to_owned();
    PutError::Read { path, error }
}
