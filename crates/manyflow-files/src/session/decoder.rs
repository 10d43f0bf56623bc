//! The decoder thread, which makes files of datagrams. Rate control must not wait for decoding and
//! disks. Blocks are decoded in other threads, on as many cores as the user allows.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::mem::{Discriminant, discriminant};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use manyflow_net::description::ntp_seconds;
use manyflow_object::alc::{self, Packet};
use manyflow_object::error::ReceiveError;
use manyflow_object::fec::Decoded;
use manyflow_object::receiver::{
    CompleteObject, ObjectEvent, ObjectReceiver, Progress, ReceiverConfig, Reused,
};
use manyflow_object::storage::Record;
use manyflow_webrc::Cci;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use super::image::Image;
use super::needs::NeedsReports;
use super::numbers::PacketNumbers;
use super::queue::{Batch, DecodedInput, Input, Output, queue};
use super::storer::{Stored, Storer};
use crate::files::{Existing, FileError, Spool, Store, check_room};
use crate::image::{ImageOutput, Waiting};

/// Time between two writes of symbols to the disk. A receiver that is killed loses those of this
/// time. More neighbours are written together in a longer one.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// A file that is complete and on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDone {
    /// The file's path below the output folder.
    pub name: String,
    /// The file's length.
    pub bytes: u64,
}

/// The reason why files cannot be stored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecoderError {
    /// The disk or the folder cannot be used.
    #[error(transparent)]
    Store(#[from] FileError),
    /// Some of the session's files were refused or could not be stored.
    #[error("{0} of the session's files were not stored; the log above says why")]
    Refused(usize),
    /// The sender stopped before all files were complete.
    #[error(
        "the sender ended the session before all files were complete: ask for it to be sent again"
    )]
    Closed,
}

/// An event of the decoder.
#[derive(Debug)]
pub(super) enum DecoderEvent {
    Done(FileDone),
    /// The symbols that are needed, encoded: see [`ProgressSinks::needs`].
    Needs(Option<Vec<u8>>),
    /// All symbols are there. Blocks are still being decoded, or files stored.
    Enough,
    /// More symbols are needed after all.
    More,
    /// All files are stored, or will never be.
    End(Result<(), DecoderError>),
}

/// The network driver's handle of the decoder.
pub(super) struct Decoder {
    /// The queue to the decoder; `None` once the session is over.
    input: Option<Input>,
    /// Datagrams for the queue.
    batch: Batch,
    pub(super) events: mpsc::UnboundedReceiver<DecoderEvent>,
    pub(super) progress: watch::Receiver<Progress>,
    /// The bytes of an image that wait for its output; `None` in a session of files.
    pub(super) waiting: Option<Arc<Waiting>>,
    thread: JoinHandle<()>,
}

impl Decoder {
    /// Starts the thread. It stores files below `output`, decodes up to `threads` blocks at a time,
    /// and ends when all files are complete, or soon after the handle is dropped.
    pub(super) fn start(
        config: ReceiverConfig,
        output: PathBuf,
        content_id: Option<[u8; 32]>,
        existing: Existing,
        image: ImageOutput,
        threads: usize,
    ) -> Result<Decoder, DecoderError> {
        let mut store = Store::open(&output, existing)?;
        let is_image = config.table_key.is_some();
        if config.table_sha256.is_none() && !is_image {
            store = store.refusing_hidden();
        }
        let (mut spool, earlier) = Spool::open(store.folder(), content_id.as_ref())?;
        let spool_folder = spool.folder().to_owned();
        let image = match is_image {
            true => Some(Image::open(image, &mut spool)?),
            false => None,
        };
        let (image, image_store) = image.unzip();
        let waiting = image.as_ref().map(Image::waiting);
        let receiver = ObjectReceiver::with_storage(config, spool);
        let (input, datagrams) = queue();
        let (reported, events) = mpsc::unbounded_channel();
        let (progress_reported, progress) = watch::channel(receiver.progress());
        let mut worker = Worker {
            storer: Storer::start(store.clone(), spool_folder, image_store, reported.clone()),
            image,
            receiver,
            store,
            numbers: PacketNumbers::new(Instant::now()),
            events: reported,
            progress: progress_reported,
            logged: Vec::new(),
            failed: BTreeSet::new(),
            has_enough: false,
            decoded: datagrams.decoded_input(),
            jobs: 0,
            jobs_max: threads.max(1),
            next_flush: Instant::now(),
            needs: NeedsReports::new(Instant::now()),
        };
        let thread = spawn_blocking(move || {
            let stored = earlier.stored;
            let end = match earlier.table {
                _ if is_image => worker.resume_image(),
                Some(table) => worker.resume(&table, earlier.records, stored),
                None => Ok(()),
            };
            worker.run(&datagrams, end);
        });
        Ok(Decoder {
            input: Some(input),
            batch: Batch::default(),
            events,
            progress,
            waiting,
            thread,
        })
    }

    /// Returns the datagrams that [`flush`](Self::flush) passes on, to which others can be added.
    pub(super) fn batch(&mut self) -> &mut Batch {
        &mut self.batch
    }

    /// Passes datagrams to the thread. Returns false if it is so far behind that they have to wait:
    /// the next call passes them.
    pub(super) fn flush(&mut self) -> bool {
        match &self.input {
            Some(input) => input.push(&mut self.batch),
            None => {
                self.batch.clear();
                true
            }
        }
    }

    /// Ends the input. The decoder handles the queued datagrams, and then reports its end.
    pub(super) fn finish(&mut self) {
        self.input = None;
    }

    /// Drops the queued datagrams, and waits until no file is half written.
    pub(super) async fn stop(mut self) {
        self.events.close();
        self.input = None;
        // A thread that panicked needs no waiting. Its events have stopped without an end.
        let _ = self.thread.await;
    }
}

pub(super) struct Worker {
    // Dropped first: it uses the receiver's spool.
    pub(super) storer: Storer,
    /// The image of the session; `None` in a session of files.
    pub(super) image: Option<Image>,
    pub(super) receiver: ObjectReceiver<Spool>,
    store: Store,
    numbers: PacketNumbers,
    events: mpsc::UnboundedSender<DecoderEvent>,
    progress: watch::Sender<Progress>,
    /// Kinds of refusal that were logged.
    logged: Vec<Discriminant<ReceiveError>>,
    /// Complete files that could not be stored.
    failed: BTreeSet<String>,
    /// Whether the driver knows that all symbols are there.
    has_enough: bool,
    /// Where threads put the blocks that they have decoded.
    decoded: DecodedInput,
    /// The number of blocks that are being decoded, and its maximum.
    jobs: usize,
    jobs_max: usize,
    /// Time of the next flush of the spool.
    next_flush: Instant,
    needs: NeedsReports,
}

/// The end of the decoder's work, if it has come.
type End = Option<Result<(), DecoderError>>;

impl Worker {
    /// Continues from the state of an earlier process.
    fn resume(
        &mut self,
        table: &[u8],
        records: Vec<Record>,
        stored: Vec<u32>,
    ) -> Result<(), DecoderError> {
        match self.receiver.resume(table, records) {
            Ok(0) => {}
            Ok(bytes) => tracing::info!("{bytes} bytes were received earlier"),
            Err(error) => {
                tracing::warn!("the state of an earlier run cannot be used: {error}");
                return Ok(());
            }
        }
        let bundles: BTreeSet<u128> = self
            .receiver
            .missing()
            .filter(|object| object.bundle.is_some())
            .map(|object| object.toi)
            .collect();
        for toi in stored.into_iter().map(u128::from) {
            if bundles.contains(&toi) {
                self.skip(toi)?;
            }
        }
        Ok(())
    }

    fn run(mut self, datagrams: &Output, resumed: Result<(), DecoderError>) {
        let (mut batches, mut decoded) = (Vec::new(), Vec::new());
        let mut end = resumed.map_or_else(|error| Some(Err(error)), |()| self.handle_events());
        while end.is_none() {
            self.progress.send_replace(self.receiver.progress());
            let is_decoding = self.jobs > 0;
            // Without pending symbols, there is no reason to wake up.
            let patience = match self.receiver.storage_mut().has_pending() {
                true => FLUSH_INTERVAL,
                false => Duration::from_secs(60),
            };
            let has_more = datagrams.take(&mut batches, &mut decoded, is_decoding, patience);
            if self.events.is_closed() {
                break;
            }
            end = match has_more {
                true => self.take(&batches, &decoded),
                false => Some(Err(DecoderError::Closed)),
            };
        }
        // A session whose files are all stored leaves nothing to continue.
        // Otherwise, the spool is flushed when it is dropped.
        if let Some(Ok(()) | Err(DecoderError::Refused(_))) = &end {
            self.receiver.storage_mut().discard();
        }
        self.progress.send_replace(self.receiver.progress());
        if let Some(end) = end {
            // The driver may no longer exist.
            let _ = self.events.send(DecoderEvent::End(end));
        }
    }

    fn take(&mut self, batches: &[Batch], decoded: &[Decoded]) -> End {
        for block in decoded {
            self.jobs -= 1;
            let finished = self.receiver.finish_job(block);
            if let Some(end) = self.after(finished) {
                return Some(end);
            }
        }
        let now = Instant::now();
        self.receiver.set_time(ntp_seconds(SystemTime::now()));
        for datagram in batches.iter().flat_map(Batch::datagrams) {
            // This decodes the packet again: the driver did so to read the congestion control
            // information.
            let Ok(packet) = alc::Packet::decode(datagram) else {
                continue;
            };
            let taken = self.take_packet(&packet, now);
            if let Some(end) = self.after(taken) {
                return Some(end);
            }
            if self.events.is_closed() {
                return None;
            }
        }
        self.report_enough();
        self.report_needs(now);
        if let Err(error) = self.start_jobs() {
            return Some(Err(error));
        }
        if now >= self.next_flush {
            self.next_flush = now + FLUSH_INTERVAL;
            let flushed = self.receiver.storage_mut().flush();
            if let Err(error) = flushed {
                return Some(Err(self.disk_error(error.into())));
            }
        }
        let stored: Vec<_> = std::iter::from_fn(|| self.storer.poll()).collect();
        self.note_stored(stored).err().map(Err)
    }

    /// Logs why a packet or block was not used, and handles what it has led to.
    fn after(&mut self, result: Result<(), ReceiveError>) -> End {
        if let Err(error) = result {
            if matches!(error, ReceiveError::Storage { .. }) {
                return Some(Err(self.disk_error(error)));
            }
            let kind = discriminant(&error);
            if !self.logged.contains(&kind) {
                self.logged.push(kind);
                tracing::warn!("{error} (logged once; more are counted)");
            }
        }
        self.handle_events()
    }

    fn take_packet(&mut self, packet: &Packet<'_>, now: Instant) -> Result<(), ReceiveError> {
        if let (Some(cci), Some(symbol)) = (Cci::decode(packet.cci()), packet.symbol)
            && let Some(conflict) = self.numbers.check(now, cci, symbol)
        {
            return Ok(self.receiver.withdraw(conflict.toi, conflict.payload_id)?);
        }
        self.receiver.take_packet(packet)
    }

    /// Decodes blocks that have enough symbols in other threads.
    fn start_jobs(&mut self) -> Result<(), DecoderError> {
        while self.jobs < self.jobs_max {
            let job = self.receiver.next_job();
            let Some(job) = job.map_err(|error| self.disk_error(error))? else {
                break;
            };
            self.jobs += 1;
            let decoded = self.decoded.clone();
            spawn_blocking(move || decoded.push(job.run()));
        }
        Ok(())
    }

    pub(super) fn disk_error(&self, error: ReceiveError) -> DecoderError {
        let path = self.store.folder().to_owned();
        match error {
            ReceiveError::Storage {
                kind: ErrorKind::StorageFull | ErrorKind::QuotaExceeded,
                ..
            } => FileError::DiskFull(path).into(),
            error => FileError::Write {
                path,
                error: io::Error::other(error),
            }
            .into(),
        }
    }

    /// Stores complete files. Returns the result when nothing more needs to be received.
    fn handle_events(&mut self) -> End {
        while let Some(event) = self.receiver.poll_event() {
            match event {
                ObjectEvent::FdtReceived { .. } => {
                    if let Err(error) = self.prepare() {
                        return Some(Err(error));
                    }
                }
                ObjectEvent::ObjectComplete(object) => {
                    if let Err(error) = self.store(object) {
                        return Some(Err(error));
                    }
                }
                ObjectEvent::ObjectFailed { name, reason } => tracing::warn!("{name}: {reason}"),
                ObjectEvent::ObjectWithdrawn { name } => {
                    tracing::warn!("{name}: the sender says that it sends no more of this file");
                }
                ObjectEvent::AllComplete { refused } => return Some(self.finish(refused)),
                event => tracing::debug!("{event:?}"),
            }
        }
        None
    }

    /// Reports whether no more symbols are needed, before the last blocks are decoded and the last
    /// files stored, which can take longer than their packets.
    fn report_enough(&mut self) {
        let has_enough = self.receiver.has_enough();
        if self.has_enough != has_enough {
            self.has_enough = has_enough;
            let event = if has_enough {
                DecoderEvent::Enough
            } else {
                DecoderEvent::More
            };
            let _ = self.events.send(event);
        }
    }

    /// Skips files that exist with the announced content, and checks that the disk has room for the
    /// others.
    fn prepare(&mut self) -> Result<(), DecoderError> {
        if self.image.is_some() {
            return self.prepare_sections();
        }
        let announced: Vec<_> = self.receiver.missing().collect();
        let (mut needed, mut missing) = (0_u64, Vec::new());
        for object in announced {
            let exists = object.sha256.is_some_and(|sha256| {
                object.bundle.is_none() && self.store.has(&object.name, object.length, &sha256)
            });
            if exists {
                tracing::info!("{}: exists already, and is not received again", object.name);
                self.skip(object.toi)?;
            } else {
                needed = needed.saturating_add(object.length);
                missing.push(object);
            }
        }
        let held = self.receiver.progress().useful_bytes;
        check_room(self.store.folder(), needed.saturating_sub(held))?;
        for object in missing {
            self.reuse(&object)?;
        }
        self.report_needs(Instant::now());
        Ok(())
    }

    /// Takes what a file has in common with the one that it will replace.
    fn reuse(&mut self, object: &CompleteObject) -> Result<(), DecoderError> {
        if !self.receiver.can_reuse(object.toi) {
            return Ok(());
        }
        let Some(former) = self.store.former(&object.name) else {
            return Ok(());
        };
        let reused = self.receiver.reuse(object.toi, &former);
        let Reused { bytes, unread } = reused.map_err(|error| self.disk_error(error.into()))?;
        let name = &object.name;
        if let Some(error) = unread {
            tracing::warn!("{name}: its former version cannot be read ({error})");
        }
        let length = object.length;
        tracing::info!("{name}: {bytes} of {length} bytes are in its former version");
        Ok(())
    }

    /// Reports the symbols that are needed, from time to time.
    fn report_needs(&mut self, now: Instant) {
        if let Some(needs) = self.needs.poll(now, &self.receiver) {
            let _ = self.events.send(DecoderEvent::Needs(needs));
        }
    }

    pub(super) fn skip(&mut self, toi: u128) -> Result<(), DecoderError> {
        let skipped = self.receiver.skip(toi);
        skipped.map_err(|error| self.disk_error(error.into()))
    }

    /// Passes a complete object to the thread that stores its files.
    fn store(&mut self, object: CompleteObject) -> Result<(), DecoderError> {
        self.report_enough();
        if let Some(image) = &mut self.image {
            image.note_complete(&object);
        }
        let spool = self.receiver.storage_mut();
        let content = spool.take(object.toi, object.length);
        let content = content.map_err(|error| self.disk_error(error.into()))?;
        self.storer.push(object, content);
        Ok(())
    }

    /// Takes note of objects that were stored.
    fn note_stored(
        &mut self,
        stored: impl IntoIterator<Item = Result<Stored, FileError>>,
    ) -> Result<(), DecoderError> {
        for stored in stored {
            let Stored {
                toi,
                failed,
                released,
            } = stored?;
            self.failed.extend(failed);
            self.release(released);
            let noted = self.receiver.storage_mut().note_stored(toi);
            noted.map_err(|error| self.disk_error(error.into()))?;
        }
        Ok(())
    }

    /// Waits until all files are stored.
    fn finish(&mut self, refused: usize) -> Result<(), DecoderError> {
        if self.image.is_some() && refused == 0 {
            self.storer.finish_image();
        }
        let stored = self.storer.finish();
        self.note_stored(stored)?;
        match refused + self.failed.len() {
            0 => Ok(()),
            unstored => Err(DecoderError::Refused(unstored)),
        }
    }
}

#[cfg(test)]
mod tests;
