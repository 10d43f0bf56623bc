//! The states that receivers report: how far they are, and how they ended.

use std::fmt;

use manyflow_core::units::Rate;

use crate::files::FileError;
use crate::session::{DecoderError, Progress, ReceiveError};

/// The state of a receiver, as the receiver reports it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ReceiverStatus {
    /// The receiver lacks some of the files, and runs.
    Receiving,
    /// The receiver has stored all files.
    Done,
    /// The receiver has ended without all files.
    Failed(Failure),
    /// The user has stopped the receiver before it had all files.
    Left,
}

impl ReceiverStatus {
    /// Whether the receiver reports nothing else after this state.
    pub(super) fn is_final(self) -> bool {
        self != ReceiverStatus::Receiving
    }

    /// Returns the state of a receiver that has ended with `error`. `None` if another process of
    /// the same receiver goes on, which reports for both.
    pub fn of_error(error: &ReceiveError) -> Option<ReceiverStatus> {
        let failure = match error {
            ReceiveError::Stopped | ReceiveError::PipeStopped => return Some(ReceiverStatus::Left),
            ReceiveError::Decoder(DecoderError::Store(error)) => match error {
                FileError::Busy(_) => return None,
                FileError::DiskFull(_) | FileError::NoRoom { .. } => Failure::DiskFull,
                _ => Failure::Storage,
            },
            ReceiveError::Decoder(DecoderError::Refused(_)) => Failure::Refused,
            ReceiveError::Decoder(DecoderError::Closed) => Failure::Closed,
            ReceiveError::Withdrawn(_) => Failure::Withdrawn,
            ReceiveError::Silent { .. } | ReceiveError::Transport(_) => Failure::Silent,
            ReceiveError::Useless { .. } | ReceiveError::OtherTable => Failure::Useless,
            _ => Failure::Session,
        };
        Some(ReceiverStatus::Failed(failure))
    }
}

/// The reason why a receiver has failed. A code and not a text, so that no report can make the
/// sender show what it likes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The disk is full, or has less room than the files need.
    DiskFull = 1,
    /// The output folder or a file in it cannot be written.
    Storage = 2,
    /// Some files were refused or could not be stored.
    Refused = 3,
    /// The sender sends no more of some files.
    Withdrawn = 4,
    /// The sender ended the session before all files were complete.
    Closed = 5,
    /// No packets came.
    Silent = 6,
    /// Packets came, but none of use.
    Useless = 7,
    /// The session cannot go on for another reason, which the receiver's log has.
    Session = 8,
    /// The command that runs after the files are stored has failed.
    Command = 9,
}

impl Failure {
    const ALL: [Failure; 9] = [
        Failure::DiskFull,
        Failure::Storage,
        Failure::Refused,
        Failure::Withdrawn,
        Failure::Closed,
        Failure::Silent,
        Failure::Useless,
        Failure::Session,
        Failure::Command,
    ];

    /// Returns the failure with this code.
    fn of_code(code: u8) -> Option<Failure> {
        let mut all = Failure::ALL.into_iter();
        all.find(|failure| *failure as u8 == code)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failure::DiskFull => "disk full",
            Failure::Storage => "cannot store files",
            Failure::Refused => "refused some files",
            Failure::Withdrawn => "files were withdrawn",
            Failure::Closed => "the session ended too early",
            Failure::Silent => "no packets came",
            Failure::Useless => "no packet was of use",
            Failure::Session => "see its log",
            Failure::Command => "its command failed",
        })
    }
}

/// How far a receiver is.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Transfer {
    /// The bytes that the receiver has of `total_bytes`.
    pub bytes: u64,
    /// The length of all files as they are sent, in bytes; 0 before the table of files has come.
    pub total_bytes: u64,
    /// The average rate at which packets arrive; 0 while none do.
    pub rate: Rate,
}

impl Transfer {
    /// Returns the part that has arrived, 0 to 1; 0 if the total is not known.
    pub fn share(&self) -> f64 {
        self.bytes as f64 / self.total_bytes.max(1) as f64
    }
}

impl From<&Progress> for Transfer {
    fn from(progress: &Progress) -> Transfer {
        let objects = &progress.objects;
        Transfer {
            // The last blocks can have more bytes than their files.
            bytes: objects.useful_bytes.min(objects.needed_bytes),
            total_bytes: objects.needed_bytes,
            rate: progress
                .webrc
                .map_or(Rate::default(), |status| status.received),
        }
    }
}

/// The two bytes that stand for a state in a report.
pub(super) fn encode(status: ReceiverStatus) -> [u8; 2] {
    match status {
        ReceiverStatus::Receiving => [1, 0],
        ReceiverStatus::Done => [2, 0],
        ReceiverStatus::Failed(failure) => [3, failure as u8],
        ReceiverStatus::Left => [4, 0],
    }
}

/// Returns the state that these bytes stand for.
pub(super) fn decode(bytes: [u8; 2]) -> Option<ReceiverStatus> {
    Some(match bytes {
        [1, 0] => ReceiverStatus::Receiving,
        [2, 0] => ReceiverStatus::Done,
        [3, code] => ReceiverStatus::Failed(Failure::of_code(code)?),
        [4, 0] => ReceiverStatus::Left,
        _ => return None,
    })
}
