//! Reads a file from the store.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use manyflow_core::ConfigError;
use manyflow_net::disk::{is_special, sha256_of_file};
use manyflow_store::{
    ChunkEntry, Download, DownloadCounters, DownloadError, Found, Hash, Lookup, Manifest,
    MemberName, StoreConfig,
};

use super::disk::sync_folder;
use super::session::StoreSession;
use super::{Connect, Progress, SessionError};

/// The options of [`get`].
#[derive(Clone, Debug)]
pub struct GetOptions {
    /// The name in the store.
    pub name: String,
    /// The version to read; `None` for the newest one.
    pub version: Option<u64>,
    /// The path of the file to write. It appears when it is complete.
    pub output: PathBuf,
    /// Whether to replace an existing file.
    pub overwrite: bool,
    /// The window and other parameters; the number of copies has no effect.
    pub store: StoreConfig,
    /// The time for which to try to reach the service.
    pub patience: Duration,
}

/// A file that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GetReport {
    /// The manifest.
    pub manifest: Manifest,
    /// The bytes that each member gave, and what went wrong on the way.
    pub counters: DownloadCounters,
    /// The bytes that an earlier, interrupted call had read.
    pub resumed_bytes: u64,
}

/// The reason why a file was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// No member that answers has the name.
    #[error(
        "{name:?} was found on none of the {} members that answer ({}); check the name, and start \
         the members that are down: one of them may have it", members.len(), list(members)
    )]
    NotFound {
        /// The name.
        name: String,
        /// The members that answered.
        members: Vec<MemberName>,
    },
    /// The members that have the name cannot give its manifest.
    #[error(
        "{name:?} is in the store but cannot be read: {}; put the file again",
        list(failures.iter().map(|(member, reason)| format!("{member}: {reason}")))
    )]
    Damaged {
        /// The name.
        name: String,
        /// The members, and why they cannot give the manifest.
        failures: BTreeMap<MemberName, String>,
    },
    /// The file has no such version.
    #[error(
        "{name:?} has no version {version} that can be read; it has {}",
        list(versions)
    )]
    NoVersion {
        /// The name.
        name: String,
        /// The version.
        version: u64,
        /// The versions that the manifest lists.
        versions: Vec<u64>,
    },
    /// The output exists.
    #[error("{0}: exists already; remove it, or choose another file")]
    Exists(PathBuf),
    /// A device, pipe or socket is where the file is to be written.
    #[error("{0}: is not a regular file and is not replaced; choose another output")]
    NotRegular(PathBuf),
    /// The output cannot be written. An incomplete file is kept, and the next call continues it.
    #[error(
        "{path}: cannot be written ({error}); check the folder and the disk, and get the file again"
    )]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        error: io::Error,
    },
    /// All chunks are right, but not the whole file: the manifest is wrong.
    #[error("{0}: the SHA-256 of the file is not that of its manifest; put the file again")]
    WrongDigest(PathBuf),
    /// An option is outside its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The service cannot be reached.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// A chunk has no copy left, or no member answers.
    #[error(transparent)]
    Download(#[from] DownloadError),
}

/// Joins names for an error.
fn list<T: ToString>(names: impl IntoIterator<Item = T>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| name.to_string()).collect();
    names.join(", ")
}

/// Looks for the newest manifest of a name.
pub(super) async fn find(
    session: &mut StoreSession<'_, impl Connect>,
    config: StoreConfig,
    name: &str,
) -> Result<Found, GetError> {
    let mut lookup = Lookup::new(config, name, session.now())?;
    loop {
        if let Some(found) = lookup.poll_found() {
            return Ok(found?);
        }
        session.step(&mut lookup).await?;
    }
}

/// Reads a file, and reports the progress after each chunk.
///
/// Chunks are written to a hidden file beside the output. After an interruption, the next call
/// checks which chunks that file has, and asks only for the others.
///
/// # Errors
/// If the name or a chunk is not found, the service cannot be reached, or the file cannot be
/// written.
pub async fn get(
    connector: &impl Connect,
    options: GetOptions,
    mut report: impl FnMut(Progress),
) -> Result<GetReport, GetError> {
    if is_special(&options.output) {
        return Err(GetError::NotRegular(options.output));
    }
    if !options.overwrite && fs::symlink_metadata(&options.output).is_ok() {
        return Err(GetError::Exists(options.output));
    }
    let mut session = StoreSession::new(connector, options.patience);
    let found = find(&mut session, options.store.clone(), &options.name).await?;
    session.begin_machine();
    let Some(manifest) = found.manifest.filter(|manifest| !manifest.is_removed) else {
        let (name, members, failures) = (options.name, found.members, found.failures);
        return Err(match failures.is_empty() {
            true => GetError::NotFound { name, members },
            false => GetError::Damaged { name, failures },
        });
    };
    let manifest = match options.version {
        Some(version) if version != manifest.version => {
            let read = read_version(&mut session, &options, &manifest, version).await?;
            session.begin_machine();
            read
        }
        _ => manifest,
    };

    let (target, is_present) = Target::open(&options.output, &manifest).await?;
    let resumed = (0u32..).zip(&is_present).filter(|(_, present)| **present);
    let resumed_bytes = resumed
        .map(|(chunk, _)| u64::from(manifest.span(chunk).1))
        .sum();
    let mut progress = Progress {
        bytes: resumed_bytes,
        total: manifest.size,
    };
    report(progress);
    let is_wanted = |chunk: u32| !is_present[chunk as usize];
    let mut download = Download::new(options.store, manifest, is_wanted, session.now())?;
    loop {
        while let Some((chunk, bytes)) = download.poll_chunk() {
            let (offset, length) = download.manifest().span(chunk);
            target.write(offset, bytes).await?;
            progress.bytes += u64::from(length);
            report(progress);
        }
        if let Some(error) = download.poll_failure() {
            return Err(error.into());
        }
        if download.is_complete() {
            break;
        }
        session.step(&mut download).await?;
    }
    let manifest = download.manifest().clone();
    target.publish(&manifest, options.overwrite).await?;
    Ok(GetReport {
        manifest,
        counters: download.counters().clone(),
        resumed_bytes,
    })
}

/// Reads the manifest of an earlier version.
async fn read_version(
    session: &mut StoreSession<'_, impl Connect>,
    options: &GetOptions,
    newest: &Manifest,
    version: u64,
) -> Result<Manifest, GetError> {
    let missing = || GetError::NoVersion {
        name: newest.name.clone(),
        version,
        versions: newest
            .earlier
            .iter()
            .map(|earlier| earlier.version)
            .collect(),
    };
    let mut earlier = newest.earlier.iter();
    let earlier = earlier.find(|earlier| earlier.version == version);
    let chunk = ChunkEntry {
        hash: earlier.ok_or_else(missing)?.manifest,
        members: Vec::new(),
    };
    let mut download = Download::of_chunks(options.store.clone(), vec![chunk], session.now())?;
    loop {
        if let Some((_, bytes)) = download.poll_chunk() {
            return Manifest::decode(&bytes).map_err(|_| missing());
        }
        if let Some(error) = download.poll_failure() {
            return Err(error.into());
        }
        session.step(&mut download).await?;
    }
}

/// The output of a get.
struct Target {
    output: PathBuf,
    partial: PathBuf,
    file: Arc<File>,
}

impl Target {
    /// Opens the incomplete file, and returns which chunks it has.
    async fn open(output: &Path, manifest: &Manifest) -> Result<(Target, Vec<bool>), GetError> {
        let partial = partial_path(output, manifest.digest);
        let (path, manifest) = (partial.clone(), manifest.clone());
        let opened = run_blocking(move || {
            let mut options = File::options();
            let file = options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(path)?;
            let is_new = file.metadata()?.len() == 0;
            file.set_len(manifest.size)?;
            let is_present = match is_new {
                true => vec![false; manifest.chunks.len()],
                false => present_chunks(&file, &manifest),
            };
            Ok((file, is_present))
        });
        let opened = opened.await.map_err(|error| unwritable(&partial, error));
        let (file, is_present) = opened?;
        let target = Target {
            output: output.to_owned(),
            partial,
            file: Arc::new(file),
        };
        Ok((target, is_present))
    }

    async fn write(&self, offset: u64, bytes: Bytes) -> Result<(), GetError> {
        let file = Arc::clone(&self.file);
        let written = run_blocking(move || file.write_all_at(&bytes, offset)).await;
        written.map_err(|error| unwritable(&self.partial, error))
    }

    /// Checks the whole file, writes it to disk, and gives it its name.
    async fn publish(self, manifest: &Manifest, overwrite: bool) -> Result<(), GetError> {
        let Target {
            output,
            partial,
            file,
        } = self;
        let target = output.clone();
        // The digest of a file of several parts is that of its chunks, each of which was checked.
        let digest = (!manifest.is_composite).then_some(manifest.digest);
        let published = run_blocking(move || {
            if let Some(digest) = digest
                && Hash(sha256_of_file(&partial)?) != digest
            {
                fs::remove_file(&partial)?;
                return Ok(false);
            }
            file.sync_all()?;
            if overwrite {
                fs::rename(&partial, &target)?;
            } else {
                // Unlike a rename, a link never replaces a file.
                fs::hard_link(&partial, &target)?;
                fs::remove_file(&partial)?;
            }
            sync_folder(folder_of(&target))?;
            Ok(true)
        });
        match published.await {
            Ok(true) => Ok(()),
            Ok(false) => Err(GetError::WrongDigest(output)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(GetError::Exists(output)),
            Err(error) => Err(unwritable(&output, error)),
        }
    }
}

/// Returns the path of the incomplete file: hidden, beside the output, and different for each
/// contents.
fn partial_path(output: &Path, digest: Hash) -> PathBuf {
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    // Names of files have at most 255 bytes on most systems.
    let ends = name.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|end| *end <= 200).last();
    let name = &name[..end.unwrap_or(0)];
    output.with_file_name(format!(".{name}.{}.partial", &digest.to_string()[..16]))
}

fn folder_of(path: &Path) -> &Path {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Returns for each chunk whether the file has it.
fn present_chunks(file: &File, manifest: &Manifest) -> Vec<bool> {
    let mut buffer = vec![0; manifest.chunk_bytes as usize];
    let chunks = (0u32..).zip(&manifest.chunks);
    let mut is_present = |(chunk, entry): (u32, &manyflow_store::ChunkEntry)| {
        let (offset, length) = manifest.span(chunk);
        let bytes = &mut buffer[..length as usize];
        file.read_exact_at(bytes, offset).is_ok() && Hash::of(bytes) == entry.hash
    };
    // The chunk of a packed file has other bytes, too.
    if manifest.pack_offset.is_some() {
        return vec![false; manifest.chunks.len()];
    }
    chunks.map(&mut is_present).collect()
}

/// Runs a function that blocks on the disk in another thread.
async fn run_blocking<T: Send + 'static>(
    function: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(function).await?
}

fn unwritable(path: &Path, error: io::Error) -> GetError {
    let path = path.to_owned();
    GetError::Write { path, error }
}
