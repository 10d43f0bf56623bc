//! The client's transfers, one at a time.

use bytes::Bytes;
use manyflow_core::Time;
use manyflow_store::{
    Address, Answer, ChunkEntry, Download, DownloadError, Found, Hash, Lookup, Manifest,
    MemberName, Request, Upload, UploadError, UploadEvent,
};

use crate::store_faults::plan::{Plan, Step, contents};

pub(crate) const NAME: &str = "file";

/// The end of a transfer.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// The file is stored with this version.
    Stored(u64),
    NotStored(UploadError),
    /// The file was read, with this version.
    Read(u64, Vec<u8>),
    NotRead(DownloadError),
    /// No member that answered has the name.
    NotFound(Vec<MemberName>),
}

impl End {
    pub(crate) fn is_success(&self) -> bool {
        matches!(self, End::Stored(_) | End::Read(..))
    }
}

/// A transfer in progress.
pub(crate) enum Task {
    /// Looks for the manifest, before a put or a get.
    Find(Step, Lookup),
    Put(Put),
    Get(Download, Vec<u8>),
}

/// A put: its chunks are stored first, then its manifest.
pub(crate) struct Put {
    upload: Upload,
    manifest: Manifest,
    chunks: Vec<Bytes>,
    added: usize,
    stored: usize,
}

/// Bytes that an upload has acknowledged, with the members that have them.
pub(crate) type Acknowledged = (Address, Vec<MemberName>);

impl Task {
    pub(crate) fn new(plan: &Plan, step: Step, now: Time) -> Task {
        Task::Find(step, Lookup::new(plan.store.clone(), NAME, now).unwrap())
    }

    pub(crate) fn handle_answer(&mut self, now: Time, answer: &Answer) {
        match self {
            Task::Find(_, lookup) => lookup.handle_answer(now, answer),
            Task::Put(put) => put.upload.handle_answer(now, answer),
            Task::Get(download, _) => download.handle_answer(now, answer),
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        match self {
            Task::Find(_, lookup) => lookup.handle_timeout(now),
            Task::Put(put) => put.upload.handle_timeout(now),
            Task::Get(download, _) => download.handle_timeout(now),
        }
    }

    pub(crate) fn handle_reconnect(&mut self) {
        match self {
            Task::Find(_, lookup) => lookup.handle_reconnect(),
            Task::Put(put) => put.upload.handle_reconnect(),
            Task::Get(download, _) => download.handle_reconnect(),
        }
    }

    pub(crate) fn poll_reconnect(&mut self) -> bool {
        match self {
            Task::Find(_, lookup) => lookup.poll_reconnect(),
            Task::Put(put) => put.upload.poll_reconnect(),
            Task::Get(download, _) => download.poll_reconnect(),
        }
    }

    pub(crate) fn poll_transmit(&mut self, now: Time) -> Option<(u32, Request)> {
        match self {
            Task::Find(_, lookup) => lookup.poll_transmit(now),
            Task::Put(put) => put.upload.poll_transmit(now),
            Task::Get(download, _) => download.poll_transmit(now),
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        match self {
            Task::Find(_, lookup) => lookup.poll_timeout(),
            Task::Put(put) => put.upload.poll_timeout(),
            Task::Get(download, _) => download.poll_timeout(),
        }
    }

    /// Goes on after a change. Returns how the transfer ended, if it has.
    pub(crate) fn advance(
        &mut self,
        plan: &Plan,
        now: Time,
        acknowledged: &mut Vec<Acknowledged>,
    ) -> Option<End> {
        match self {
            Task::Find(step, lookup) => {
                let found = lookup.poll_found()?;
                let next = match (found, step) {
                    (Err(error), _) => return Some(End::NotRead(error)),
                    (Ok(found), Step::Put(number, length)) => {
                        let seen = found.manifest.map_or(0, |newest| newest.version);
                        // The live client takes the time of day in milliseconds.
                        let version = (seen + 1).max(now.as_nanos() / 1_000_000);
                        Put::begin(plan, contents(*number, *length), version, now)
                    }
                    (Ok(found), Step::Get) => match start_get(plan, found, now) {
                        Ok(next) => next,
                        Err(end) => return Some(end),
                    },
                };
                *self = next;
                self.advance(plan, now, acknowledged)
            }
            Task::Put(put) => put.advance(acknowledged),
            Task::Get(download, file) => advance_get(download, file),
        }
    }
}

fn start_get(plan: &Plan, found: Found, now: Time) -> Result<Task, End> {
    let Some(manifest) = found.manifest else {
        return Err(End::NotFound(found.members));
    };
    let file = vec![0; manifest.size as usize];
    let download = Download::new(plan.store.clone(), manifest, |_| true, now);
    Ok(Task::Get(download.unwrap(), file))
}

fn advance_get(download: &mut Download, file: &mut [u8]) -> Option<End> {
    while let Some((chunk, bytes)) = download.poll_chunk() {
        let (offset, length) = download.manifest().span(chunk);
        file[offset as usize..][..length as usize].copy_from_slice(&bytes);
    }
    if let Some(error) = download.poll_failure() {
        return Some(End::NotRead(error));
    }
    let version = download.manifest().version;
    download
        .is_complete()
        .then(|| End::Read(version, file.to_vec()))
}

impl Put {
    fn begin(plan: &Plan, file: Bytes, version: u64, now: Time) -> Task {
        let parts = file.chunks(plan.chunk_bytes as usize);
        let chunks: Vec<_> = parts.map(Bytes::copy_from_slice).collect();
        let entry = |bytes: &Bytes| ChunkEntry {
            hash: Hash::of(bytes),
            members: Vec::new(),
        };
        Task::Put(Put {
            upload: Upload::new(plan.store.clone(), now).unwrap(),
            manifest: Manifest {
                version,
                size: file.len() as u64,
                digest: Hash::of(&file),
                copies: plan.store.copies,
                chunks: chunks.iter().map(entry).collect(),
                ..Manifest::empty(NAME, plan.chunk_bytes)
            },
            chunks,
            added: 0,
            stored: 0,
        })
    }

    fn advance(&mut self, acknowledged: &mut Vec<Acknowledged>) -> Option<End> {
        while let Some(event) = self.upload.poll_event() {
            let (chunk, members) = match event {
                UploadEvent::Failed(error) => return Some(End::NotStored(error)),
                UploadEvent::Stored { chunk, members } => (chunk, members),
                UploadEvent::Wanted { chunk } => panic!("chunk {chunk} was added with its bytes"),
            };
            self.stored += 1;
            let Some(entry) = self.manifest.chunks.get_mut(chunk as usize) else {
                acknowledged.push((Address::of_name(NAME), members));
                return Some(End::Stored(self.manifest.version));
            };
            entry.members = members.clone();
            acknowledged.push((Address::Chunk(entry.hash), members));
        }
        self.add_chunks();
        None
    }

    fn add_chunks(&mut self) {
        while self.upload.wants_chunk() && self.added < self.chunks.len() {
            let bytes = self.chunks[self.added].clone();
            self.upload.add(Address::Chunk(Hash::of(&bytes)), bytes);
            self.added += 1;
        }
        if self.stored == self.chunks.len() && self.added == self.chunks.len() {
            let manifest = self.manifest.encode().unwrap();
            self.upload.add(Address::of_name(NAME), manifest);
            self.added += 1;
        }
    }
}
