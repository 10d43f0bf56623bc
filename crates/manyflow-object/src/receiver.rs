//! The receiver of objects: takes packets in any order and yields files.

mod assembly;
mod early;
mod fdts;
mod former;
mod object;
mod report;
mod resume;
mod reuse;
mod sections;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;

use sha2::{Digest, Sha256};

use crate::alc::{PAYLOAD_ID_BYTES, Packet, Symbol};
use crate::error::{FdtError, FileError, ReceiveError};
use crate::expiry::has_expired;
use crate::fdt::{FdtInstance, FileEntry};
use crate::fec::{DecodeJob, Decoded, FecScheme, Oti};
use crate::name::{abbreviate, check_visible};
use crate::storage::{MemoryStorage, Storage};

use crate::image::TableKey;
use assembly::Taken;
use early::EarlyPackets;
use fdts::{FdtAssemblies, FdtPacket};
use object::Object;
pub use report::{CompleteObject, ObjectEvent, Progress, Refused, Verified};
pub use reuse::Reused;
use sections::Sections;

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
    /// The key that signs the tables of the session's image: see [`image`](crate::image). With
    /// `None`, the session has files.
    pub table_key: Option<TableKey>,
    /// Maximum memory for tables of files and for the bookkeeping of symbols, 64 bytes for each, in
    /// bytes. The symbols themselves are in the storage. Only symbols that have arrived count,
    /// never a length that a packet claims. Without memory for all blocks at once, later blocks are
    /// dropped in favour of earlier ones, and received again. Each decoding job temporarily takes
    /// three times the length of its block.
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
    /// The default limits: 256 MiB of memory, 32 MiB for early symbols, FDTs of 32 MiB, 250,000
    /// files. Any table of files is accepted.
    pub fn new(tsi: u64) -> Self {
        ReceiverConfig {
            tsi,
            table_sha256: None,
            table_key: None,
            memory_max: 256 << 20,
            early_max: 32 << 20,
            fdt_length_max: 32 << 20,
            files_max: 250_000,
        }
    }
}

/// Collects the files of one session.
///
/// ```text
/// packet -> TOI 0 -------> FDT assembly -> FDT -> objects announced, early packets replayed
///           known TOI ---> its object: block decoders -> content -> digests -> ObjectComplete
///           unknown TOI -> early packets
/// ```
///
/// The storage has the symbols of each object under the object's TOI. An object's content is in the
/// storage when it is complete, and remains there until the caller removes it.
pub struct ObjectReceiver<S = MemoryStorage> {
    config: ReceiverConfig,
    storage: S,
    /// The time, in seconds since 1900; `None` if the caller has not given it.
    ntp_seconds: Option<u64>,
    fdts: FdtAssemblies,
    objects: BTreeMap<u128, Object>,
    /// The names of the objects that are not refused.
    names: BTreeSet<String>,
    early: EarlyPackets,
    /// Memory for the symbols in `fdts` and `objects`, in bytes.
    memory: u64,
    sections: Sections,
    /// Whether an FDT claimed to list all files.
    listed_completely: bool,
    reported_all_complete: bool,
    reported_closed: bool,
    /// The blocks that have enough symbols, by TOI and number.
    jobs_due: VecDeque<(u128, u32)>,
    events: VecDeque<ObjectEvent>,
    progress: Progress,
}

impl ObjectReceiver {
    /// Creates a receiver without any packets, which keeps symbols in memory.
    pub fn new(config: ReceiverConfig) -> Self {
        ObjectReceiver::with_storage(config, MemoryStorage::default())
    }
}

impl<S: Storage> ObjectReceiver<S> {
    /// Creates a receiver without any packets.
    pub fn with_storage(config: ReceiverConfig, storage: S) -> Self {
        ObjectReceiver {
            storage,
            ntp_seconds: None,
            early: EarlyPackets::new(config.early_max),
            fdts: FdtAssemblies::new(config.fdt_length_max),
            config,
            objects: BTreeMap::new(),
            names: BTreeSet::new(),
            memory: 0,
            sections: Sections::default(),
            listed_completely: false,
            reported_all_complete: false,
            reported_closed: false,
            jobs_due: VecDeque::new(),
            events: VecDeque::new(),
            progress: Progress::default(),
        }
    }

    /// Sets the time, in seconds since 1900. Tables of files that expired before are not used (RFC
    /// 6726 section 3.3), unless [`table_sha256`](ReceiverConfig::table_sha256) identifies them.
    pub fn set_time(&mut self, ntp_seconds: u64) {
        self.ntp_seconds = Some(ntp_seconds);
    }

    /// The storage of symbols and contents.
    pub fn storage_mut(&mut self) -> &mut S {
        &mut self.storage
    }

    /// Reads the content of a complete object into memory.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn content(&mut self, object: &CompleteObject) -> io::Result<Vec<u8>> {
        let mut content = vec![0; object.length as usize];
        self.storage.read_at(object.toi, 0, &mut content)?;
        Ok(content)
    }

    /// Handles a packet, and decodes the block that it completes.
    ///
    /// # Errors
    /// As [`take_packet`](Self::take_packet). Also if the digest of a decoded block is wrong.
    pub fn handle_packet(&mut self, packet: &Packet<'_>) -> Result<(), ReceiveError> {
        self.take_packet(packet)?;
        while let Some(job) = self.next_job()? {
            self.finish_job(&job.run())?;
        }
        Ok(())
    }

    /// Handles a packet, but leaves decoding to jobs: see [`next_job`](Self::next_job).
    ///
    /// Most calls only store a symbol. If the FDT does not give the digests of blocks, the packet
    /// that completes a file takes about 4 ms for each megabyte to compute the file's digests. So a
    /// driver should read the network in another thread.
    ///
    /// # Errors
    /// [`ReceiveError`] gives the reason why the packet was not used. The packet is counted in
    /// [`ObjectReceiver::progress`], and the receiver continues; a caller may log the error and
    /// ignore it.
    pub fn take_packet(&mut self, packet: &Packet<'_>) -> Result<(), ReceiveError> {
        let result = self.dispatch(packet);
        self.count(result)
    }

    /// Returns the decoding of the next block that has enough symbols, which the caller passes to
    /// [`finish_job`](Self::finish_job) when it has run. Several jobs may be under way.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn next_job(&mut self) -> Result<Option<DecodeJob>, ReceiveError> {
        while let Some((toi, sbn)) = self.jobs_due.pop_front() {
            let assembly = self.objects.get_mut(&toi).and_then(Object::assembly);
            let job = match assembly {
                Some(assembly) => assembly.job(sbn, &mut self.storage)?,
                None => None,
            };
            if job.is_some() {
                return Ok(job);
            }
        }
        Ok(None)
    }

    /// Takes the result of a job.
    ///
    /// # Errors
    /// If the digest of the block is wrong, or the storage fails. The receiver continues.
    pub fn finish_job(&mut self, decoded: &Decoded) -> Result<(), ReceiveError> {
        let result = self.on_decoded(decoded);
        self.count(result)
    }

    fn count(&mut self, result: Result<(), ReceiveError>) -> Result<(), ReceiveError> {
        result.inspect_err(|error| self.progress.count(error))
    }

    fn on_decoded(&mut self, decoded: &Decoded) -> Result<(), ReceiveError> {
        let toi = decoded.object;
        let Some(object) = self.objects.get_mut(&toi) else {
            return Ok(());
        };
        let before = object.bytes();
        if let Some(assembly) = object.assembly() {
            let finished = assembly.finish_job(decoded, &mut self.storage);
            self.memory = self.memory - before + object.bytes();
            if finished? {
                self.jobs_due.push_back((toi, decoded.sbn));
            }
        }
        if object.can_finish() {
            self.finish(toi)?;
            self.tell_if_all_complete();
        }
        Ok(())
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
        if let Some(toi) = packet.closes_object().filter(|_| packet.symbol.is_none()) {
            self.on_object_closed(toi);
        }
        if packet.closes_session() && !self.reported_closed {
            self.reported_closed = true;
            self.events.push_back(ObjectEvent::SessionClosed);
        }
        result
    }

    /// Notes that the sender has withdrawn a file. Anyone can forge this, so the file is still
    /// received if its packets go on.
    fn on_object_closed(&mut self, toi: u128) {
        let Some(object) = self.objects.get_mut(&toi) else {
            return;
        };
        if !object.set_withdrawn(true) {
            return;
        }
        self.progress.files_withdrawn += object.files();
        self.events.push_back(ObjectEvent::ObjectWithdrawn {
            name: object.name().to_owned(),
        });
    }

    fn on_symbol(&mut self, packet: &Packet<'_>, symbol: Symbol<'_>) -> Result<(), ReceiveError> {
        self.progress.packets += 1;
        if self.waits_for_sections() {
            self.progress.waiting_packets += 1;
        }
        if symbol.toi == 0 {
            self.progress.fdt_packets += 1;
            if self.knows_table_of(packet) {
                self.progress.known_fdt_packets += 1;
                return Ok(());
            }
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
            FdtPacket::Known => {
                self.progress.known_fdt_packets += 1;
                Ok(())
            }
            FdtPacket::Kept => Ok(()),
            FdtPacket::Complete(instance, document) => self.on_fdt(instance, &document),
        }
    }

    fn on_fdt(&mut self, instance: u32, document: &[u8]) -> Result<(), ReceiveError> {
        if self.config.table_key.is_some() {
            return self.on_section_table(instance, document);
        }
        if let Some(expected) = self.config.table_sha256
            && expected != <[u8; 32]>::from(Sha256::digest(document))
        {
            return Err(ReceiveError::TableDigest(instance));
        }
        let fdt = FdtInstance::decode(document, self.config.files_max)?;
        // A table whose digest is known is the session's own for as long as the session runs. So a
        // receiver's clock may be wrong.
        let now = self
            .ntp_seconds
            .filter(|_| self.config.table_sha256.is_none());
        if now.is_some_and(|now| has_expired(fdt.expires, now)) {
            return Err(ReceiveError::Expired(instance));
        }
        let complete = fdt.complete;
        self.announce(fdt)?;
        self.fdts.note_done(instance)?;
        if self.config.table_sha256.is_some() {
            self.storage.record_table(document)?;
        }
        self.listed_completely |= complete;
        self.replay_early();
        self.tell_if_all_complete();
        Ok(())
    }

    /// Drops a symbol that is probably false, because another packet has the number of its packet.
    /// Symbols of blocks that are already complete are not affected. The other packet counts as
    /// refused: the caller does not hand it in.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn withdraw(&mut self, toi: u128, payload_id: [u8; PAYLOAD_ID_BYTES]) -> io::Result<()> {
        let before = self.fdts.bytes();
        let had = if toi == 0 {
            self.fdts.withdraw(payload_id)?
        } else if let Some(object) = self.objects.get_mut(&toi) {
            let before = object.bytes();
            let had = object.withdraw(payload_id, &mut self.storage)?;
            self.memory = self.memory - before + object.bytes();
            had
        } else {
            self.early.withdraw(toi, payload_id)
        };
        self.memory = self.memory - before + self.fdts.bytes();
        self.progress.withdrawn_symbols += u64::from(had);
        self.progress.refused.contradiction += 1;
        Ok(())
    }

    fn announce(&mut self, fdt: FdtInstance) -> Result<(), ReceiveError> {
        let new: Vec<_> = fdt
            .files
            .into_iter()
            .filter(|file| !self.objects.contains_key(&file.toi))
            .collect();
        if new.is_empty() {
            return Ok(());
        }
        if self.objects.len() + new.len() > self.config.files_max {
            return Err(FdtError::TooManyFiles(self.config.files_max).into());
        }
        let total_bytes = new
            .iter()
            .filter_map(|file| file.transfer_length)
            .fold(0, u64::saturating_add);
        let files = |file: &FileEntry| file.bundle.map_or(1, |files| files as usize);
        let files = new.iter().map(files).fold(0, usize::saturating_add);
        self.events
            .push_back(ObjectEvent::FdtReceived { files, total_bytes });
        self.progress.needed_bytes = self.progress.needed_bytes.saturating_add(total_bytes);
        for file in new {
            self.announce_file(file)?;
        }
        Ok(())
    }

    fn announce_file(&mut self, file: FileEntry) -> io::Result<()> {
        let (toi, label) = (file.toi, abbreviate(&file.location));
        let object = self.check_file(file).unwrap_or_else(|reason| {
            self.progress.files_refused += 1;
            self.events.push_back(ObjectEvent::ObjectFailed {
                name: label,
                reason,
            });
            Object::refused()
        });
        self.progress.files = self.progress.files.saturating_add(object.files());
        self.progress.needed_symbols = self
            .progress
            .needed_symbols
            .saturating_add(object.symbols());
        let can_finish = object.can_finish();
        self.objects.insert(toi, object);
        if can_finish { self.finish(toi) } else { Ok(()) }
    }

    /// Returns the object of a file, unless the file has to be refused.
    fn check_file(&mut self, file: FileEntry) -> Result<Object, FileError> {
        let has_digest = file.sha256.is_some();
        let object = Object::announced(file)?;
        let is_verified = self.config.table_sha256.is_some() || self.config.table_key.is_some();
        match is_verified {
            true if !has_digest => return Err(FileError::NoDigest),
            true => {}
            false => check_visible(object.name())?,
        }
        // Nothing is stored under the name of a bundle.
        if !object.is_bundle() && !self.names.insert(object.name().to_owned()) {
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
        match self.take_symbol(symbol, oti) {
            Err(ReceiveError::Memory) if self.make_room(symbol)? => self.take_symbol(symbol, oti),
            result => result,
        }
    }

    /// Drops the last incomplete block, unless it is the symbol's or before it. So the first blocks
    /// become complete even if there is no memory for all at once, and then make room for others.
    fn make_room(&mut self, symbol: Symbol<'_>) -> Result<bool, ReceiveError> {
        let sbn = |object: &Object| object.block_of(symbol.payload_id);
        let after = self.objects.get(&symbol.toi).and_then(sbn);
        for (toi, object) in self.objects.range_mut(symbol.toi..).rev() {
            let before = object.bytes();
            let Some(assembly) = object.assembly() else {
                continue;
            };
            let after = after.filter(|_| *toi == symbol.toi);
            if let Some(symbols) = assembly.drop_last_block(after, &mut self.storage)? {
                self.memory = self.memory - before + object.bytes();
                self.progress.evicted_symbols += symbols;
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn take_symbol(&mut self, symbol: Symbol<'_>, oti: Option<Oti>) -> Result<(), ReceiveError> {
        let Some(object) = self.objects.get_mut(&symbol.toi) else {
            return Ok(());
        };
        if self.sections.is_ahead(object) {
            self.progress.ahead_symbols += 1;
            return Ok(());
        }
        let (symbols_before, bytes_before) = (object.symbols(), object.bytes());
        let learnt = object.learn(oti, &mut self.storage);
        self.memory = self.memory - bytes_before + object.bytes();
        let needed = self.progress.needed_symbols - symbols_before;
        self.progress.needed_symbols = needed.saturating_add(object.symbols());
        learnt?;

        if object.set_withdrawn(false) {
            self.progress.files_withdrawn -= object.files();
        }
        let Some(assembly) = object.assembly() else {
            self.progress.surplus_symbols += 1;
            return Ok(());
        };
        let memory_left = self.config.memory_max.saturating_sub(self.memory);
        let before = assembly.bytes();
        let taken = assembly.take(
            symbol.payload_id,
            symbol.data,
            memory_left,
            &mut self.storage,
        );
        self.memory = self.memory - before + assembly.bytes();
        self.on_taken(&symbol, taken?);
        Ok(())
    }

    fn on_taken(&mut self, symbol: &Symbol<'_>, taken: Taken) {
        match taken {
            Taken::Duplicate => self.progress.duplicate_symbols += 1,
            Taken::Surplus => self.progress.surplus_symbols += 1,
            Taken::Kept | Taken::Enough(_) => {
                self.progress.useful_symbols += 1;
                self.progress.useful_bytes += symbol.data.len() as u64;
                if let Some(name) = self.objects.get_mut(&symbol.toi).and_then(Object::start) {
                    self.events.push_back(ObjectEvent::ObjectStarted { name });
                }
            }
        }
        if let Taken::Enough(sbn) = taken {
            self.jobs_due.push_back((symbol.toi, sbn));
        }
    }

    /// Verifies an object whose blocks are all complete.
    fn finish(&mut self, toi: u128) -> io::Result<()> {
        let Some(object) = self.objects.get_mut(&toi) else {
            return Ok(());
        };
        let bytes = object.bytes();
        let finished = object.finish(&mut self.storage)?;
        self.memory = self.memory - bytes + object.bytes();
        self.events.push_back(match finished {
            Ok(complete) => {
                self.progress.files_complete += object.files();
                ObjectEvent::ObjectComplete(complete)
            }
            Err(reason) => ObjectEvent::ObjectFailed {
                name: object.name().to_owned(),
                reason,
            },
        });
        Ok(())
    }

    /// Whether the FDT claims to list all files, and every file that can be received is complete.
    pub fn is_complete(&self) -> bool {
        let progress = &self.progress;
        let ended = progress.files_complete + progress.files_refused;
        self.listed_completely && progress.files == ended && self.has_all_sections()
    }

    /// Whether all files are complete or almost certainly need no more symbols, so that a caller
    /// can leave the session while the last blocks are decoded. If this no longer holds when they
    /// are, more symbols are needed after all. Takes time for each block only if nearly all symbols
    /// are there.
    pub fn has_enough(&self) -> bool {
        let progress = &self.progress;
        self.is_complete()
            || self.listed_completely
                && self.has_all_sections()
                && progress.useful_bytes >= progress.needed_bytes
                && self.objects.values().all(Object::has_enough)
    }

    fn tell_if_all_complete(&mut self) {
        if self.is_complete() && !self.reported_all_complete {
            self.reported_all_complete = true;
            self.events.push_back(ObjectEvent::AllComplete {
                refused: self.progress.files_refused,
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
