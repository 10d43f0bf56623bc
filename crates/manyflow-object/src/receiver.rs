//! The receiver of objects: takes packets in any order, gives files.

mod assembly;
mod early;
mod fdts;
mod object;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::alc::{Packet, Symbol};
use crate::error::{FdtError, FileError, ReceiveError};
use crate::fdt::{FdtInstance, FileEntry};
use crate::fec::{FecScheme, Oti};
use crate::name::abbreviate;

use assembly::Taken;
use early::EarlyPackets;
use fdts::FdtAssemblies;
use object::Object;

/// What a receiver needs to know, and how much a sender may make it hold.
#[derive(Debug, Clone)]
pub struct ReceiverConfig {
    /// Transport session identifier.
    pub tsi: u64,
    /// Most bytes of symbols held for unfinished objects, with 64 bytes a symbol for bookkeeping. Only bytes that did
    /// arrive count, never a length that a packet claims. Decoding a block takes as much again of the block for a
    /// moment, and so does putting a whole object together.
    pub memory_max: u64,
    /// Most bytes of symbols held for objects that no FDT has announced yet; the oldest go first.
    pub early_max: usize,
    /// Longest FDT Instance, in bytes.
    pub fdt_length_max: u64,
    /// Most files in a session.
    pub files_max: usize,
}

impl ReceiverConfig {
    /// 2 GiB of symbols, 64 MiB of early ones, FDTs of 4 MiB, 10,000 files.
    pub fn new(tsi: u64) -> Self {
        ReceiverConfig {
            tsi,
            memory_max: 2 << 30,
            early_max: 64 << 20,
            fdt_length_max: 4 << 20,
            files_max: 10_000,
        }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObjectEvent {
    /// An FDT Instance arrived and announces files that were not known.
    FdtReceived {
        /// How many.
        files: usize,
        /// Their transfer lengths together, as far as the FDT gives them.
        total_bytes: u64,
    },
    /// A file's first symbol is used.
    ObjectStarted {
        /// Its safe relative path.
        name: String,
    },
    /// A file is there and its digests agree.
    ObjectComplete {
        /// Its safe relative path.
        name: String,
        /// All its bytes.
        content: Bytes,
        /// Which digests the FDT gave, and the content was checked against.
        verified: Verified,
    },
    /// A file cannot be had, or what arrived was wrong and it starts over.
    ObjectFailed {
        /// Its safe relative path, or the start of its URI where there is none.
        name: String,
        /// Why; [`FileError::is_retried`] says whether it starts over.
        reason: FileError,
    },
    /// The FDT says that it lists everything, and every file that can be had is there.
    AllComplete {
        /// How many files of the session were refused for good, each told as [`ObjectEvent::ObjectFailed`].
        refused: usize,
    },
    /// The sender says that it is about to stop (LCT flag A).
    SessionClosed,
}

/// Which digests a content was checked against.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verified {
    /// Content-MD5.
    pub md5: bool,
    /// SHA-256, which only senders of ours give.
    pub sha256: bool,
}

/// Counts since the receiver was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Packets of this session with a symbol.
    pub packets: u64,
    /// Packets of the FDT among them.
    pub fdt_packets: u64,
    /// Symbols of files that brought something new.
    pub useful_symbols: u64,
    /// Their bytes.
    pub useful_bytes: u64,
    /// Source symbols of all files announced, as far as their FEC parameters are known.
    pub needed_symbols: u64,
    /// Transfer lengths of all files announced.
    pub needed_bytes: u64,
    /// Files announced.
    pub files: usize,
    /// Files complete.
    pub files_complete: usize,
    /// Files that cannot be had: unsafe names, compressed content, impossible FEC parameters.
    pub files_refused: usize,
    /// Symbols that arrived before.
    pub duplicate_symbols: u64,
    /// Symbols of blocks that are complete already.
    pub surplus_symbols: u64,
    /// Symbols held until an FDT announces their object.
    pub early_held: u64,
    /// Early symbols dropped at the bound.
    pub early_dropped: u64,
    /// Packets of other sessions.
    pub foreign_packets: u64,
    /// Packets refused, by kind.
    pub refused: Refused,
}

/// Packets refused, by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Refused {
    /// FEC parameters that no object can have, or that contradict the object's.
    pub oti: u64,
    /// Block or symbol numbers outside the object.
    pub symbol_id: u64,
    /// Payloads that are not one symbol long.
    pub payload_length: u64,
    /// FDT packets that cannot be used, and whole FDTs that are none.
    pub fdt: u64,
    /// Symbols that did not fit in memory.
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
    early: EarlyPackets,
    /// Bytes of symbols in `fdts` and `objects`.
    memory: u64,
    /// An FDT said that it lists everything.
    listed_completely: bool,
    told_all_complete: bool,
    told_closed: bool,
    events: VecDeque<ObjectEvent>,
    progress: Progress,
}

impl ObjectReceiver {
    /// A receiver that has seen nothing.
    pub fn new(config: ReceiverConfig) -> Self {
        ObjectReceiver {
            early: EarlyPackets::new(config.early_max),
            fdts: FdtAssemblies::new(config.fdt_length_max),
            config,
            objects: BTreeMap::new(),
            memory: 0,
            listed_completely: false,
            told_all_complete: false,
            told_closed: false,
            events: VecDeque::new(),
            progress: Progress::default(),
        }
    }

    /// Takes a packet.
    ///
    /// Mostly this is a copy of the symbol. The packet that completes a RaptorQ block of 1000 symbols takes some
    /// milliseconds, and the one that completes a file takes about 4 ms a megabyte for its digests: a driver does well to
    /// take packets from the network elsewhere.
    ///
    /// # Errors
    /// [`ReceiveError`] says why the packet was not used. It is counted in [`ObjectReceiver::progress`], and the receiver
    /// goes on: an error never needs more than a line in a log.
    pub fn handle_packet(&mut self, packet: &Packet<'_>) -> Result<(), ReceiveError> {
        let result = self.dispatch(packet);
        if let Err(error) = &result {
            self.progress.count(error);
        }
        result
    }

    /// The next event, oldest first.
    pub fn poll_event(&mut self) -> Option<ObjectEvent> {
        self.events.pop_front()
    }

    /// Counts since the receiver was made.
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
        if packet.closes_session() && !self.told_closed {
            self.told_closed = true;
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
        let object = Object::announced(file).unwrap_or_else(|reason| {
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
            && !self.told_all_complete
            && files == files_complete + files_refused
        {
            self.told_all_complete = true;
            self.events.push_back(ObjectEvent::AllComplete {
                refused: files_refused,
            });
        }
    }
}

/// The parameters in the packet itself, where it has them; the codepoint says in which scheme (RFC 5775 section 2.1).
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
            ReceiveError::FdtHeader(_)
            | ReceiveError::FdtEncoding(_)
            | ReceiveError::FdtLength { .. }
            | ReceiveError::Fdt(_) => &mut refused.fdt,
        };
        *counter += 1;
    }
}
