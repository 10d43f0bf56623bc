//! Events and counters of a receiver.

use crate::error::{FileError, ReceiveError};
use crate::fdt::{Attributes, Section};

/// An event of the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectEvent {
    /// An FDT Instance arrived and announces files that were not known before. Their content may
    /// exist already: see [`ObjectReceiver::skip`](super::ObjectReceiver::skip).
    FdtReceived {
        /// The number of new files.
        files: usize,
        /// The sum of their transfer lengths in bytes, as far as the FDT gives them.
        total_bytes: u64,
    },
    /// The first symbol of a file was used.
    ObjectStarted {
        /// The file's safe relative path.
        name: String,
    },
    /// A file is complete, and its digests match. Its content is in the storage.
    ObjectComplete(CompleteObject),
    /// A file cannot be received, or its content was wrong and it is received again.
    ObjectFailed {
        /// The file's safe relative path, or the beginning of its URI if it has no safe path.
        name: String,
        /// The reason; [`FileError::is_retried`] tells whether the file is received again.
        reason: FileError,
    },
    /// The FDT claims to list all files, and every file that can be received is complete.
    AllComplete {
        /// The number of files that were refused permanently; each was reported by
        /// [`ObjectEvent::ObjectFailed`].
        refused: usize,
    },
    /// The sender announces that it sends no more packets of a file (LCT flag B). Anyone can forge
    /// this, so packets of the file are still taken.
    ObjectWithdrawn {
        /// The file's safe relative path.
        name: String,
    },
    /// The sender announces that it is about to stop (LCT flag A).
    SessionClosed,
}

/// A file that the receiver has completed, or could complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteObject {
    /// The object's identifier, which is also its number in the storage.
    pub toi: u128,
    /// The file's safe relative path.
    pub name: String,
    /// The content's length in bytes. The storage can have padding behind it.
    pub length: u64,
    /// The content's SHA-256, if the FDT gives it.
    pub sha256: Option<[u8; 32]>,
    /// The number of files if the object is a bundle.
    pub bundle: Option<u64>,
    /// The mode and time to set. For a bundle, whether there are any in its files' headers.
    pub attributes: Option<Attributes>,
    /// The place in an image if the object is a section of one. Its name is then that of the image,
    /// `/` and the section's number.
    pub section: Option<Section>,
    /// The digests in the FDT that the content was checked against.
    pub verified: Verified,
}

/// The digests that a file's content was checked against.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Content-MD5.
    pub md5: bool,
    /// SHA-256 of the file or of each of its blocks, which only this project's senders provide.
    pub sha256: bool,
}

/// Counters since the receiver was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Packets of this session that carry a symbol.
    pub packets: u64,
    /// Packets of the FDT, included in `packets`.
    pub fdt_packets: u64,
    /// Packets of FDT Instances that are known already, included in `fdt_packets`.
    pub known_fdt_packets: u64,
    /// Symbols of files that contributed something new.
    pub useful_symbols: u64,
    /// Bytes of the useful symbols, and of those that an earlier receiver had.
    pub useful_bytes: u64,
    /// Bytes that an earlier receiver had, or that exist elsewhere: included in `useful_bytes`.
    pub earlier_bytes: u64,
    /// Source symbols of all announced files, as far as their FEC parameters are known.
    pub needed_symbols: u64,
    /// Transfer lengths of all announced files in bytes.
    pub needed_bytes: u64,
    /// Announced files.
    pub files: usize,
    /// Complete files.
    pub files_complete: usize,
    /// Files that cannot be received: unsafe names, compressed content, impossible FEC parameters.
    pub files_refused: usize,
    /// Incomplete files that the sender has withdrawn (LCT flag B), and of which no symbol came
    /// since.
    pub files_withdrawn: usize,
    /// Symbols that had arrived before.
    pub duplicate_symbols: u64,
    /// Symbols of blocks that were already complete.
    pub surplus_symbols: u64,
    /// Symbols of sections that are too far ahead: see
    /// [`ObjectReceiver::set_released`](super::ObjectReceiver::set_released).
    pub ahead_symbols: u64,
    /// Packets that came while every section that was announced was complete: the sender waits for
    /// its input.
    pub waiting_packets: u64,
    /// Symbols held until an FDT announces their object.
    pub early_held: u64,
    /// Early symbols that were dropped at the limit.
    pub early_dropped: u64,
    /// Symbols that were dropped after they had been used, because they are probably false: see
    /// [`ObjectReceiver::withdraw`](super::ObjectReceiver::withdraw).
    pub withdrawn_symbols: u64,
    /// Symbols that were dropped after they had been used, because there was no memory for all
    /// blocks at once.
    pub evicted_symbols: u64,
    /// Packets of other sessions.
    pub foreign_packets: u64,
    /// Refused packets, by reason.
    pub refused: Refused,
}

/// Counters of refused packets, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// FEC parameters that no object can have, or that contradict the object's.
    pub oti: u64,
    /// Block or symbol numbers outside the object.
    pub symbol_id: u64,
    /// Payloads that are not one symbol long.
    pub payload_length: u64,
    /// FDT packets that cannot be used, and complete documents that are not FDTs.
    pub fdt: u64,
    /// Complete tables of files whose digest is not the expected one.
    pub table: u64,
    /// Tables of files that have expired.
    pub expired: u64,
    /// Symbols that contradict others with the same number, or whose packets have the number of
    /// another: see [`ObjectReceiver::withdraw`](super::ObjectReceiver::withdraw).
    pub contradiction: u64,
    /// Decoded blocks that do not have their digest, and are received again.
    pub block: u64,
    /// Symbols for which there was no memory left.
    pub memory: u64,
    /// Symbols that the storage did not take.
    pub storage: u64,
}

impl Progress {
    /// Bytes of useful symbols that have arrived. The last blocks can have more bytes than their
    /// files.
    pub fn received_bytes(&self) -> u64 {
        self.useful_bytes.saturating_sub(self.earlier_bytes)
    }

    /// Count of packets and files that show that the session can be received: it grows while there
    /// is hope. Symbols that were there before count, because the missing ones may follow. Packets
    /// of a table of files count until a table was refused.
    pub fn promising(&self) -> u64 {
        let refused = &self.refused;
        let table = match refused.table + refused.expired + refused.fdt {
            0 => self.fdt_packets - self.known_fdt_packets,
            _ => 0,
        };
        self.useful_symbols
            + self.duplicate_symbols
            + self.surplus_symbols
            + self.ahead_symbols
            + self.waiting_packets
            + self.files as u64
            + table
    }

    pub(super) fn count(&mut self, error: &ReceiveError) {
        let refused = &mut self.refused;
        let counter = match error {
            ReceiveError::ForeignSession(_) => &mut self.foreign_packets,
            ReceiveError::Oti(_) | ReceiveError::OtiChanged => &mut refused.oti,
            ReceiveError::SymbolId { .. } => &mut refused.symbol_id,
            ReceiveError::PayloadLength { .. } => &mut refused.payload_length,
            ReceiveError::Memory => &mut refused.memory,
            ReceiveError::TableDigest(_) | ReceiveError::TableSignature(_) => &mut refused.table,
            ReceiveError::Expired(_) => &mut refused.expired,
            ReceiveError::Contradiction { .. } => &mut refused.contradiction,
            ReceiveError::BlockDigest(_) => &mut refused.block,
            ReceiveError::Storage { .. } => &mut refused.storage,
            ReceiveError::FdtHeader(_)
            | ReceiveError::FdtEncoding(_)
            | ReceiveError::FdtLength { .. }
            | ReceiveError::Section(_)
            | ReceiveError::Fdt(_) => &mut refused.fdt,
        };
        *counter += 1;
    }
}
