//! The progress and the result of receiving a session.

use std::time::Duration;

use manyflow_object::receiver as object;
use manyflow_webrc::{self as webrc, Refusals};
use tokio::sync::{mpsc, watch};

use super::decoder::FileDone;

/// A receiver's progress so far.
#[derive(Copy, Clone, Debug, Default)]
pub struct Progress {
    /// Counts of files and symbols.
    pub objects: object::Progress,
    /// State of the rate control; `None` before the first packet, also after a silent session was
    /// joined again.
    pub webrc: Option<webrc::Status>,
    /// Packets received and lost, over all joins of the session.
    pub packets: PacketCounts,
    /// The highest number of waves that were joined at a time.
    pub waves_max: u32,
}

/// Counts of packets.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Packets received on joined channels, in the session's format.
    pub received: u64,
    /// Packets lost, as the sequence numbers show.
    pub lost: u64,
    /// Packets that routers have marked (ECN), of those received.
    pub marked: u64,
    /// Datagrams that are not packets of the session, those of `forged` included.
    pub refused: u64,
    /// Packets without a valid MAC of the session's group key, or with one that was used before.
    pub unauthenticated: u64,
    /// Packets that the rate control refused, by kind.
    pub forged: Refusals,
}

impl PacketCounts {
    /// Returns the fraction of lost packets, 0 to 1.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.received + self.lost).max(1) as f64
    }
}

/// The result of receiving a session.
#[derive(Clone, Debug)]
pub struct Received {
    /// The complete files, in the order of completion.
    pub files: Vec<FileDone>,
    /// Time from the first join to the last file.
    pub elapsed: Duration,
    /// The final progress.
    pub progress: Progress,
}

/// The channels on which a receiver reports its progress.
#[derive(Clone, Debug)]
pub struct ProgressSinks {
    /// The progress, several times per second.
    pub progress: watch::Sender<Progress>,
    /// Each file, as soon as it is on disk.
    pub files: mpsc::UnboundedSender<FileDone>,
    /// The symbols that are needed, encoded, for reports to the sender. `None` while the receiver
    /// has no part of the files but from packets, or if it needs a large part of them.
    pub needs: watch::Sender<Option<Vec<u8>>>,
}

impl ProgressSinks {
    /// Returns the channels' sending ends, and their receiving ends.
    pub fn channels() -> (
        ProgressSinks,
        watch::Receiver<Progress>,
        mpsc::UnboundedReceiver<FileDone>,
    ) {
        let (progress, watched) = watch::channel(Progress::default());
        let (files, done) = mpsc::unbounded_channel();
        let needs = watch::Sender::new(None);
        let sinks = ProgressSinks {
            progress,
            files,
            needs,
        };
        (sinks, watched, done)
    }
}
