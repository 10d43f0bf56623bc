//! Stores many small files: their bytes share chunks, and their manifests share requests, so that a
//! member writes to its disk once for many of them.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use manyflow_store::{
    Address, Batch, ChunkEntry, Hash, Manifest, MemberName, STORED_BYTES_MAX, Upload, UploadEvent,
};

use super::client::next_version;
use super::put::unreadable;
use super::{Connect, PutError, PutReport, StoreClient};

/// The length of the longest file that is packed, in bytes: a quarter of a chunk, so that few bytes
/// of a chunk remain unused.
pub const PACKED_BYTES_MAX: u64 = STORED_BYTES_MAX as u64 / 4;

impl<C: Connect> StoreClient<C> {
    /// Stores small files, each under its name, and calls `report` for each when it is stored.
    ///
    /// # Errors
    /// If a file cannot be read or has more than [`PACKED_BYTES_MAX`] bytes, the service cannot be
    /// reached, or too few members store a file. Files that were reported are stored then, and
    /// others may be.
    pub async fn put_packed(
        &self,
        files: Vec<(String, PathBuf)>,
        mut report: impl FnMut(PathBuf, PutReport),
    ) -> Result<(), PutError> {
        let names: Vec<_> = files.iter().map(|(name, _)| name.clone()).collect();
        let versions = self.versions(&names).await?;
        let mut session = self.session();
        let mut packer = Packer {
            upload: Upload::new(self.config().clone(), session.now())?,
            copies: self.config().copies,
            waiting: files.into_iter().zip(versions).collect(),
            packs: BTreeMap::new(),
            batch: Batch::default(),
            batched: Vec::new(),
            batches: BTreeMap::new(),
        };
        loop {
            packer.fill().await?;
            while let Some(event) = packer.upload.poll_event() {
                for (path, stored) in packer.handle_event(event)? {
                    report(path, stored);
                }
            }
            packer.flush_last();
            if packer.is_done() {
                break;
            }
            if !packer.upload.is_idle() {
                session.step(&mut packer.upload).await?;
            }
        }
        self.keep(session);
        Ok(())
    }
}

/// A file to store, with the newest version of its name in the store.
type Waiting = ((String, PathBuf), u64);

/// A file whose bytes are on their way.
struct Packed {
    path: PathBuf,
    manifest: Manifest,
    replaced: bool,
}

/// Small files on their way into the store.
struct Packer {
    upload: Upload,
    copies: u8,
    waiting: VecDeque<Waiting>,
    /// The files in each chunk that is being stored, by the place of the chunk.
    packs: BTreeMap<u32, Vec<Packed>>,
    /// The manifests for the next request, and their files.
    batch: Batch,
    batched: Vec<Packed>,
    /// The files of each batch that is being stored, by its place.
    batches: BTreeMap<u32, Vec<Packed>>,
}

impl Packer {
    /// Returns whether every file is stored.
    fn is_done(&self) -> bool {
        self.waiting.is_empty()
            && self.packs.is_empty()
            && self.batches.is_empty()
            && self.batched.is_empty()
    }

    /// Reads files into chunks, as long as the upload takes them.
    async fn fill(&mut self) -> Result<(), PutError> {
        while self.upload.wants_chunk() && !self.waiting.is_empty() {
            let (waiting, copies) = (std::mem::take(&mut self.waiting), self.copies);
            let read = tokio::task::spawn_blocking(move || read_pack(waiting, copies)).await;
            let read = read.map_err(|error| unreadable(&PathBuf::new(), error.into()))?;
            let (bytes, packed, waiting) = read?;
            self.waiting = waiting;
            if bytes.is_empty() {
                for file in packed {
                    self.add_manifest(file)?;
                }
                continue;
            }
            let place = self.upload.add(Address::Chunk(packed_hash(&packed)), bytes);
            self.packs.insert(place, packed);
        }
        Ok(())
    }

    /// Returns the files that are stored, if the event says so.
    fn handle_event(&mut self, event: UploadEvent) -> Result<Vec<(PathBuf, PutReport)>, PutError> {
        let (place, members) = match event {
            UploadEvent::Failed(error) => return Err(error.into()),
            UploadEvent::Wanted { .. } => return Ok(Vec::new()),
            UploadEvent::Stored { chunk, members } => (chunk, members),
        };
        if let Some(files) = self.packs.remove(&place) {
            for file in files {
                self.add_manifest(file.at(&members))?;
            }
        }
        let stored = self.batches.remove(&place).unwrap_or_default();
        let report = |file: Packed| {
            let (manifest, replaced) = (file.manifest, file.replaced);
            (file.path, PutReport { manifest, replaced })
        };
        Ok(stored.into_iter().map(report).collect())
    }

    /// Adds the manifest of a file whose bytes are stored to the next batch.
    fn add_manifest(&mut self, file: Packed) -> Result<(), PutError> {
        let bytes = file.manifest.encode()?;
        if !self.batch.push(&bytes) {
            self.flush();
            let fits = self.batch.push(&bytes);
            debug_assert!(fits, "the manifest of a single chunk is short");
        }
        self.batched.push(file);
        Ok(())
    }

    /// Sends the last batch when no further manifest is to come.
    fn flush_last(&mut self) {
        if self.waiting.is_empty() && self.packs.is_empty() && !self.batch.is_empty() {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let place = self.upload.add_names(batch.into_bytes());
        self.batches
            .insert(place, std::mem::take(&mut self.batched));
    }
}

impl Packed {
    /// Notes the members that have the file's chunk.
    fn at(mut self, members: &[MemberName]) -> Packed {
        for chunk in &mut self.manifest.chunks {
            chunk.members = members.to_vec();
        }
        self
    }
}

fn packed_hash(packed: &[Packed]) -> Hash {
    let mut chunks = packed.iter().flat_map(|file| &file.manifest.chunks);
    chunks.next().map_or(Hash([0; 32]), |chunk| chunk.hash)
}

/// Reads files into one chunk, and returns those that are left.
fn read_pack(
    mut waiting: VecDeque<Waiting>,
    copies: u8,
) -> Result<(Bytes, Vec<Packed>, VecDeque<Waiting>), PutError> {
    let mut pack = BytesMut::with_capacity(STORED_BYTES_MAX);
    let mut packed: Vec<Packed> = Vec::new();
    while let Some(((name, path), version)) = waiting.pop_front() {
        let bytes = read_small(&path).map_err(|error| unreadable(&path, error))?;
        if pack.len() + bytes.len() > STORED_BYTES_MAX {
            // It is read again for the next chunk, which is faster than to keep it.
            waiting.push_front(((name, path), version));
            break;
        }
        let offset = pack.len() as u32;
        pack.extend_from_slice(&bytes);
        let manifest = Manifest {
            version: next_version(Some(version)),
            size: bytes.len() as u64,
            digest: Hash::of(&bytes),
            pack_offset: (!bytes.is_empty()).then_some(offset),
            copies,
            ..Manifest::empty(&name, STORED_BYTES_MAX as u32)
        };
        let replaced = version > 0;
        packed.push(Packed {
            path,
            manifest,
            replaced,
        });
    }
    let bytes = pack.freeze();
    let hash = Hash::of(&bytes);
    for file in packed.iter_mut().filter(|file| file.manifest.size > 0) {
        let members = Vec::new();
        file.manifest.chunks = vec![ChunkEntry { hash, members }];
    }
    Ok((bytes, packed, waiting))
}

fn read_small(path: &PathBuf) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?.take(PACKED_BYTES_MAX + 1);
    file.read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= PACKED_BYTES_MAX {
        true => Ok(bytes),
        false => Err(std::io::Error::other("it has grown while it was put")),
    }
}
