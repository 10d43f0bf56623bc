//! The decoder thread, which makes files of datagrams. Rate control must not wait for decoding and
//! disks.

use std::mem::{Discriminant, discriminant};
use std::path::PathBuf;

use bytes::Bytes;
use manyflow_object::alc;
use manyflow_object::receiver::{ObjectEvent, ObjectReceiver, Progress};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::filecast::files::{Existing, FileError, Store};

/// Maximum size of the datagrams that wait for the decoder, in bytes. Others are dropped, as if the
/// network had lost them.
const QUEUE_BYTES: usize = 64 << 20;

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
    /// Some of the session's files were refused, or not stored because their names were taken.
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
    /// Nothing more needs to be received.
    End(Result<(), DecoderError>),
}

/// The network driver's handle of the decoder.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The queue to the decoder; `None` once the session is over.
    input: Option<mpsc::Sender<Bytes>>,
    pub(super) events: mpsc::UnboundedReceiver<DecoderEvent>,
    pub(super) progress: watch::Receiver<Progress>,
    /// Datagrams dropped because the decoder was behind.
    pub(super) dropped: u64,
    thread: JoinHandle<()>,
}

impl Decoder {
    /// Starts the thread, for datagrams of at most `packet_bytes`. It stores files below `output`,
    /// and ends when all files are complete, or soon after the handle is dropped.
    pub(super) fn start(
        receiver: ObjectReceiver,
        output: PathBuf,
        existing: Existing,
        packet_bytes: usize,
    ) -> Result<Decoder, DecoderError> {
        let store = Store::open(&output, existing)?;
        let (input, datagrams) = mpsc::channel(QUEUE_BYTES / packet_bytes);
        let (reported, events) = mpsc::unbounded_channel();
        let (progress_reported, progress) = watch::channel(receiver.progress());
        let worker = Worker {
            receiver,
            store,
            events: reported,
            progress: progress_reported,
            refused: Vec::new(),
            kept: 0,
        };
        let thread = spawn_blocking(move || worker.run(datagrams));
        Ok(Decoder {
            input: Some(input),
            events,
            progress,
            dropped: 0,
            thread,
        })
    }

    pub(super) fn push(&mut self, datagram: Bytes) {
        if let Some(input) = &self.input
            && input.try_send(datagram).is_err()
        {
            self.dropped += 1;
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

struct Worker {
    receiver: ObjectReceiver,
    store: Store,
    events: mpsc::UnboundedSender<DecoderEvent>,
    progress: watch::Sender<Progress>,
    /// Kinds of refusal that were logged.
    refused: Vec<Discriminant<manyflow_object::error::ReceiveError>>,
    /// Complete files that were not stored because their names were taken.
    kept: usize,
}

impl Worker {
    fn run(mut self, mut datagrams: mpsc::Receiver<Bytes>) {
        let end = loop {
            let Some(datagram) = datagrams.blocking_recv() else {
                break Err(DecoderError::Closed);
            };
            if self.events.is_closed() {
                return;
            }
            self.take(&datagram);
            if let Some(end) = self.handle_events() {
                break end;
            }
            if datagrams.is_empty() {
                self.progress.send_replace(self.receiver.progress());
            }
        };
        self.progress.send_replace(self.receiver.progress());
        // The driver may no longer exist.
        let _ = self.events.send(DecoderEvent::End(end));
    }

    fn take(&mut self, datagram: &[u8]) {
        // This decodes the packet again: the driver did so to read the congestion control
        // information.
        let Ok(packet) = alc::Packet::decode(datagram) else {
            return;
        };
        if let Err(error) = self.receiver.handle_packet(&packet) {
            let kind = discriminant(&error);
            if !self.refused.contains(&kind) {
                self.refused.push(kind);
                tracing::warn!("{error} (logged once; more are counted)");
            }
        }
    }

    /// Stores complete files. Returns the result when nothing more needs to be received.
    fn handle_events(&mut self) -> Option<Result<(), DecoderError>> {
        while let Some(event) = self.receiver.poll_event() {
            match event {
                ObjectEvent::ObjectComplete { name, content, .. } => {
                    match self.store.write(&name, &content) {
                        Ok(_) => {}
                        Err(error @ FileError::Exists(_)) => {
                            tracing::warn!("{error}");
                            self.kept += 1;
                            continue;
                        }
                        Err(error) => return Some(Err(error.into())),
                    }
                    let bytes = content.len() as u64;
                    let _ = self
                        .events
                        .send(DecoderEvent::Done(FileDone { name, bytes }));
                }
                ObjectEvent::ObjectFailed { name, reason } => tracing::warn!("{name}: {reason}"),
                ObjectEvent::AllComplete { refused } => {
                    return Some(match refused + self.kept {
                        0 => Ok(()),
                        unstored => Err(DecoderError::Refused(unstored)),
                    });
                }
                event => tracing::debug!("{event:?}"),
            }
        }
        None
    }
}
