//! The receiver of objects: takes packets in any order and yields files.

mod assembly;
mod early;
mod fdts;
mod object;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::alc::{Packet, Symbol};
use crate::error::{FdtError, FileError, ReceiveError};
use crate::fdt::{FdtInstance, FileEntry};
use crate::fec::{FecScheme, Oti};
use crate::name::{abbreviate, check_visible};

use assembly::Taken;
use early::EarlyPackets;
use fdts::FdtAssemblies;
use object::Object;

/// The parameters of a receiver, with limits on the memory that a sender can make it use.
#[derive(Debug, Clone)]
pub struct ReceiverConfig {
    /// The transport session identifier (TSI).
    pub tsi: u64,
    /// The SHA-256 of the session's table of files, from a source that is trusted. Other tables are
    /// dropped, and so are files whose SHA-256 the table does not give. With `None`, anyone who can
    /// send packets of the session can choose names and contents of files, so names with a
    /// component that starts with a dot are refused.
    pub table_sha256: Option<[u8; 32]>,
    /// Maximum memory for the symbols of unfinished objects in bytes, with 64 bytes of bookkeeping
    /// for each symbol. Only bytes that have arrived count, never a length that a packet claims.
    /// Decoding a block temporarily doubles that block's memory, and assembling a finished object
    /// doubles the object's.
    pub memory_max: u64,
    /// Maximum memory for symbols of objects that no FDT has announced yet, in bytes; the oldest
    /// are dropped first.
    pub early_max: usize,
    /// Maximum length of an FDT Instance in bytes.
    pub fdt_length_max: u64,
    /// Maximum number of files in a session.
    pub files_max: usize,
}

impl ReceiverConfig {
    /// The default limits: 2 GiB of symbols, 64 MiB of early ones, FDTs of 4 MiB, 10,000 files. Any
    /// table of files is accepted.
    pub fn new(tsi: u64) -> Self {
        ReceiverConfig {
            tsi,
            table_sha256: None,
            memory_max: 2 << 30,
            early_max: 64 << 20,
            fdt_length_max: 4 << 20,
            files_max: 10_000,
        }
    }
}

/// An event of the receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectEvent {
    /// An FDT Instance arrived and announces files that were not known before.
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
    /// A file is complete, and its digests match.
    ObjectComplete {
        /// The file's safe relative path.
        name: String,
        /// The file's content.
        content: Bytes,
        /// The digests in the FDT that the content was checked against.
        verified: Verified,
    },
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
    /// The sender announces that it is about to stop (LCT flag A).
    SessionClosed,
}

/// The digests that a file's content was checked against.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Content-MD5.
    pub md5: bool,
    /// SHA-256, which only this project's senders provide.
    pub sha256: bool,
}

/// Counters since the receiver was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Packets of this session that carry a symbol.
    pub packets: u64,
    /// Packets of the FDT, included in `packets`.
    pub fdt_packets: u64,
    /// Symbols of files that contributed something new.
    pub useful_symbols: u64,
    /// Bytes of the useful symbols.
    pub useful_bytes: u64,
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
    /// Symbols that had arrived before.
    pub duplicate_symbols: u64,
    /// Symbols of blocks that were already complete.
    pub surplus_symbols: u64,
    /// Symbols held until an FDT announces their object.
    pub early_held: u64,
    /// Early symbols that were dropped at the limit.
    pub early_dropped: u64,
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
    /// Symbols for which there was no memory left.
    pub memory: u64,
}

/// Collects the files of one session.
///
/// ```text
/// packet -> TOI 0 -------> FDT assembly -> FDT -> objects announced, early packets replayed
///           known TOI ---> its object: block decoders -> content -> digests -> ObjectComplete
///           unknown TOI -> early packets
/// ```
pub struct ObjectReceiver {
    config: ReceiverConfig,
    fdts: FdtAssemblies,
    objects: BTreeMap<u128, Object>,
    /// The names of the objects that are not refused.
    names: BTreeSet<String>,
    early: EarlyPackets,
    /// Memory for the symbols in `fdts` and `objects`, in bytes.
    memory: u64,
    /// Whether an FDT claimed to list all files.
    listed_completely: bool,
    reported_all_complete: bool,
    reported_closed: bool,
    events: VecDeque<ObjectEvent>,
    progress: Progress,
}

impl ObjectReceiver {
    /// Creates a receiver without any packets.
    pub fn new(config: ReceiverConfig) -> Self {
        ObjectReceiver {
            early: EarlyPackets::new(config.early_max),
            fdts: FdtAssemblies::new(config.fdt_length_max),
            config,
            objects: BTreeMap::new(),
            names: BTreeSet::new(),
            memory: 0,
            listed_completely: false,
            reported_all_complete: false,
            reported_closed: false,
            events: VecDeque::new(),
            progress: Progress::default(),
        }
    }

    /// Handles a packet.
    ///
    /// Most calls only copy a symbol. The packet that completes a RaptorQ block of 1000 symbols
    /// takes some milliseconds. The packet that completes a file takes about 4 ms for each megabyte
    /// to compute the digests. So a driver should read the network in another thread.
    ///
    /// # Errors
    /// [`ReceiveError`] gives the reason why the packet was not used. The packet is counted in
    /// [`ObjectReceiver::progress`], and the receiver continues; a caller may log the error and
    /// ignore it.
    pub fn handle_packet(&mut self, packet: &Packet<'_>) -> Result<(), ReceiveError> {
        let result = self.dispatch(packet);
        if let Err(error) = &result {
            self.progress.count(error);
        }
        result
    }

    /// Returns the next event, the oldest first.
    pub fn poll_event(&mut self) -> Option<ObjectEvent> {
        self.events.pop_front()
    }

    /// Counters since the receiver was created.
    pub fn progress(&self) -> Progress {
        Progress {
            early_held: self.early.len() as u64,
            early_dropped: self.early.dropped(),
            ..self.progress
        }
    }

    fn dispatch(&mut self, packet: &Packet<'_>) -> Result<(), ReceiveError> {
        if packet.tsi() != self.config.tsi {
            return Err(ReceiveError::ForeignSession(packet.tsi()));
        }
        let result = packet
            .symbol
            .map_or(Ok(()), |symbol| self.on_symbol(packet, symbol));
        if packet.closes_session() && !self.reported_closed {
            self.reported_closed = true;
            self.events.push_back(ObjectEvent::SessionClosed);
        }
        result
    }

    fn on_symbol(&mut self, packet: &Packet<'_>, symbol: Symbol<'_>) -> Result<(), ReceiveError> {
        self.progress.packets += 1;
        if symbol.toi == 0 {
            self.progress.fdt_packets += 1;
            return self.on_fdt_symbol(packet, symbol);
        }
        let oti = oti_of(packet)?;
        if !self.objects.contains_key(&symbol.toi) {
            self.early.push(symbol, oti);
            return Ok(());
        }
        self.on_object_symbol(symbol, oti)
    }

    fn on_fdt_symbol(
        &mut self,
        packet: &Packet<'_>,
        symbol: Symbol<'_>,
    ) -> Result<(), ReceiveError> {
        let memory_left = self.config.memory_max.saturating_sub(self.memory);
        let before = self.fdts.bytes();
        let result = self.fdts.take(packet, symbol, memory_left);
        self.memory = self.memory - before + self.fdts.bytes();
        match result? {
            None => Ok(()),
            Some((instance, document)) => self.on_fdt(instance, &document),
        }
    }

    fn on_fdt(&mut self, instance: u32, document: &[u8]) -> Result<(), ReceiveError> {
        if let Some(expected) = self.config.table_sha256
            && expected != <[u8; 32]>::from(Sha256::digest(document))
        {
            return Err(ReceiveError::TableDigest(instance));
        }
        let fdt = FdtInstance::decode(document, self.config.files_max)?;
        let complete = fdt.complete;
        self.announce(fdt)?;
        self.fdts.note_done(instance);
        self.listed_completely |= complete;
        self.replay_early();
        self.tell_if_all_complete();
        Ok(())
    }

    fn announce(&mut self, fdt: FdtInstance) -> Result<(), FdtError> {
        let new: Vec<_> = fdt
            .files
            .into_iter()
            .filter(|file| !self.objects.contains_key(&file.toi))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        if self.objects.len() + new.len() > self.config.files_max {
            return Err(FdtError::TooManyFiles(self.config.files_max));
        }
        let total_bytes = new
            .iter()
            .filter_map(|file| file.transfer_length)
            .fold(0, u64::saturating_add);
        self.events.push_back(ObjectEvent::FdtReceived {
            files: new.len(),
            total_bytes,
        });
        self.progress.files += new.len();
        self.progress.needed_bytes = self.progress.needed_bytes.saturating_add(total_bytes);
        for file in new {
            self.announce_file(file);
        }
        Ok(())
    }

    fn announce_file(&mut self, file: FileEntry) {
        let (toi, label) = (file.toi, abbreviate(&file.location));
        let object = self.check_file(file).unwrap_or_else(|reason| {
            self.progress.files_refused += 1;
            self.events.push_back(ObjectEvent::ObjectFailed {
                name: label,
                reason,
            });
            Object::refused()
        });
        self.progress.needed_symbols = self
            .progress
            .needed_symbols
            .saturating_add(object.symbols());
        let is_empty = object.is_empty();
        self.objects.insert(toi, object);
        if is_empty {
            self.on_all_blocks(toi);
        }
    }

    /// Returns the object of a file, unless the file has to be refused.
    fn check_file(&mut self, file: FileEntry) -> Result<Object, FileError> {
        let has_digest = file.sha256.is_some();
        let object = Object::announced(file)?;
        match self.config.table_sha256 {
            Some(_) if !has_digest => return Err(FileError::NoDigest),
            Some(_) => {}
            None => check_visible(object.name())?,
        }
        if !self.names.insert(object.name().to_owned()) {
            return Err(FileError::DuplicateName);
        }
        Ok(object)
    }

    fn replay_early(&mut self) {
        for early in self.early.take_known(|toi| self.objects.contains_key(&toi)) {
            if let Err(error) = self.on_object_symbol(early.symbol(), early.oti) {
                self.progress.count(&error);
            }
        }
    }

    fn on_object_symbol(
        &mut self,
        symbol: Symbol<'_>,
        oti: Option<Oti>,
    ) -> Result<(), ReceiveError> {
        let Some(object) = self.objects.get_mut(&symbol.toi) else {
            return Ok(());
        };
        let symbols_before = object.symbols();
        object.learn(oti)?;
        let learnt = object.symbols() - symbols_before;
        self.progress.needed_symbols = self.progress.needed_symbols.saturating_add(learnt);

        let Some(assembly) = object.assembly() else {
            self.progress.surplus_symbols += 1;
            return Ok(());
        };
        let memory_left = self.config.memory_max.saturating_sub(self.memory);
        let before = assembly.bytes();
        let taken = assembly.take(symbol.payload_id, symbol.data, memory_left)?;
        self.memory = self.memory - before + assembly.bytes();
        self.on_taken(&symbol, taken);
        Ok(())
    }

    fn on_taken(&mut self, symbol: &Symbol<'_>, taken: Taken) {
        match taken {
            Taken::Duplicate => self.progress.duplicate_symbols += 1,
            Taken::Surplus => self.progress.surplus_symbols += 1,
            Taken::Kept | Taken::Complete => {
                self.progress.useful_symbols += 1;
                self.progress.useful_bytes += symbol.data.len() as u64;
                if let Some(name) = self.objects.get_mut(&symbol.toi).and_then(Object::start) {
                    self.events.push_back(ObjectEvent::ObjectStarted { name });
                }
            }
        }
        if taken == Taken::Complete {
            self.on_all_blocks(symbol.toi);
            self.tell_if_all_complete();
        }
    }

    fn on_all_blocks(&mut self, toi: u128) {
        let Some(object) = self.objects.get_mut(&toi) else {
            return;
        };
        self.memory -= object.bytes();
        let name = object.name().to_owned();
        self.events.push_back(match object.finish() {
            Ok((content, verified)) => {
                self.progress.files_complete += 1;
                ObjectEvent::ObjectComplete {
                    name,
                    content,
                    verified,
                }
            }
            Err(reason) => ObjectEvent::ObjectFailed { name, reason },
        });
    }

    fn tell_if_all_complete(&mut self) {
        let Progress {
            files,
            files_complete,
            files_refused,
            ..
        } = self.progress;
        if self.listed_completely
            && !self.reported_all_complete
            && files == files_complete + files_refused
        {
            self.reported_all_complete = true;
            self.events.push_back(ObjectEvent::AllComplete {
                refused: files_refused,
            });
        }
    }
}

/// The FEC parameters in the packet itself, if it has any; the codepoint gives their scheme
/// (RFC 5775 section 2.1).
fn oti_of(packet: &Packet<'_>) -> Result<Option<Oti>, ReceiveError> {
    let Some(content) = packet.fti else {
        return Ok(None);
    };
    let scheme = FecScheme::from_encoding_id(packet.header.codepoint.into())?;
    Ok(Some(Oti::decode_extension(scheme, content)?))
}

impl Progress {
    fn count(&mut self, error: &ReceiveError) {
        let refused = &mut self.refused;
        let counter = match error {
            ReceiveError::ForeignSession(_) => &mut self.foreign_packets,
            ReceiveError::Oti(_) | ReceiveError::OtiChanged => &mut refused.oti,
            ReceiveError::SymbolId { .. } => &mut refused.symbol_id,
            ReceiveError::PayloadLength { .. } => &mut refused.payload_length,
            ReceiveError::Memory => &mut refused.memory,
            ReceiveError::TableDigest(_) => &mut refused.table,
            ReceiveError::FdtHeader(_)
            | ReceiveError::FdtEncoding(_)
            | ReceiveError::FdtLength { .. }
            | ReceiveError::Fdt(_) => &mut refused.fdt,
        };
        *counter += 1;
    }
}
