//! The sender of objects: produces the bytes of the packets that rate control sends.

mod digests;
mod focus;
mod image;
mod itinerary;
mod table;
mod windows;
mod withdrawal;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use rand::SeedableRng;
use rand_pcg::Pcg64;
use sha2::{Digest, Sha256};

use crate::alc::PAYLOAD_ID_BYTES;
use crate::error::{ReadError, SendError};
use crate::fdt::FdtInstance;
use crate::fec::{
    BlockEncoder, Demand, EncodeJob, Encoded, FecScheme, Next, ObjectSource, Oti, Plans,
    RAPTORQ_BLOCKS_MAX, symbols_ahead,
};
use crate::lct::{self, Fields};
pub use crate::source::{Source, SourceFile};
use crate::storage::{MemoryStorage, Storage};
use digests::Digests;
use focus::Focus;
use image::Visit;
pub use image::{ImageSender, SealedSection};
use table::{
    FDT_EXTENSION_BYTES, check_names, choose_oti, chunk_average, describe, fdt_extensions, fdt_oti,
    instance_id, table_source,
};
use windows::{Upcoming, Windows};
use withdrawal::{Flags, TRIES, WITHDRAWAL_INTERVAL};

/// A symbol of the FDT is shorter by its extensions. With this minimum it still carries more than
/// headers.
const SYMBOL_LENGTH_MIN: u16 = 64;
/// An LCT header is shorter than 256 words, and a UDP datagram shorter than 64 KiB.
const SYMBOL_LENGTH_MAX: u16 = 65_000;

/// The parameters of a sender.
#[derive(Debug, Clone)]
pub struct SenderConfig {
    /// The transport session identifier (TSI).
    pub tsi: u32,
    /// The FEC scheme of the files.
    pub scheme: FecScheme,
    /// The symbol length in bytes: a multiple of 4 from 64 to 65000. See [`symbol_length`].
    pub symbol_length: u16,
    /// Maximum number of source symbols in a block: 1 to 56403 (RaptorQ) or 65536 (no code). Longer
    /// blocks need fewer surplus packets; shorter blocks are faster to encode and decode. Objects
    /// that would need too many blocks get longer ones.
    pub block_symbols_max: u32,
    /// Length of the congestion control information in bytes: 4, 8, 12 or 16.
    pub cci_length: usize,
    /// The number of cumulative layers. A plain FLUTE session has 1; a WEBRC session has the base
    /// channel and one for each active time slot of a wave.
    pub layers: u16,
    /// The seed of all random choices: the same seed gives the same packets.
    pub seed: u64,
    /// The time at which the FDT expires, the low 32 bits of seconds since 1900: see
    /// [`expires`](crate::expiry::expires).
    pub expires: u32,
    /// The number of the first symbol of each block with RaptorQ. A sender that continues a session
    /// chooses another number than before, so that receivers get symbols that are new to them.
    pub first_symbol: u32,
    /// Whether the table of files gives the MD5 of each file, besides its SHA-256. Receivers that
    /// know FLUTE only (RFC 6726) can check nothing else, but MD5 takes three times as long.
    pub content_md5: bool,
    /// Whether the table of files gives content-defined chunks, for receivers with former versions
    /// of the files: see [`chunks`](crate::chunks).
    pub content_chunks: bool,
    /// The minimum number of source symbols of a window. Blocks of one window complete before those
    /// of the next, but receivers below the session's rate need up to 1.4 times as many packets.
    /// With `None`, all files complete together, and receivers of every rate need the fewest
    /// packets.
    pub window_symbols: Option<u64>,
}

impl SenderConfig {
    /// The default parameters: 1400-byte datagrams with 64 bits of CCI, RaptorQ blocks of 1000
    /// symbols, an FDT that does not expire before 2036.
    pub fn new(tsi: u32, layers: u16, seed: u64) -> Self {
        SenderConfig {
            tsi,
            scheme: FecScheme::RaptorQ,
            symbol_length: 1_376,
            block_symbols_max: 1_000,
            cci_length: 8,
            layers,
            seed,
            expires: u32::MAX,
            first_symbol: 0,
            content_md5: false,
            content_chunks: false,
            window_symbols: None,
        }
    }
}

/// Length of a datagram besides its symbol in bytes, with `cci_length` bytes of congestion control
/// information.
pub const fn overhead(cci_length: usize) -> usize {
    lct::encoded_length(cci_length) + PAYLOAD_ID_BYTES
}

/// The longest symbol length with which datagrams (UDP payloads) have at most `datagram_length`
/// bytes; `None` if that is too short or too long for a session. Datagrams can be up to three bytes
/// shorter.
pub fn symbol_length(datagram_length: usize, cci_length: usize) -> Option<u16> {
    let length = datagram_length.checked_sub(overhead(cci_length))?;
    let length = u16::try_from(length - length % 4).ok()?;
    (SYMBOL_LENGTH_MIN..=SYMBOL_LENGTH_MAX)
        .contains(&length)
        .then_some(length)
}

/// An estimate of the storage that repair symbols take, for files of `length` bytes in all; 0
/// without code. [`ObjectSender::storage_bytes`] gives the exact number later.
pub fn repair_bytes(config: &SenderConfig, length: u64) -> u64 {
    if config.scheme == FecScheme::NoCode {
        return 0;
    }
    let symbol = u64::from(config.symbol_length);
    // A window ends with a block.
    let block = (u64::from(config.block_symbols_max) * symbol).max(length / RAPTORQ_BLOCKS_MAX);
    let served = config.window_symbols.map_or(length, |symbols| {
        length.min(Windows::ROOMS_MAX * (symbols * symbol + block))
    });
    served + served / 4
}

/// Turns files into datagrams.
///
/// Each block counts its symbols for all layers together, so no symbol repeats before all symbols
/// of the block have been used.
///
/// Source symbols are read from the files when they are sent. Repair symbols are encoded in jobs,
/// which a driver takes from [`ObjectSender::next_job`] and runs in another thread. A job whose
/// result is needed earlier is run by [`ObjectSender::next_datagram`] itself. In windows, source
/// symbols are sent again instead.
pub struct ObjectSender<S = MemoryStorage> {
    config: SenderConfig,
    fdt_extensions: [u8; FDT_EXTENSION_BYTES],
    table_sha256: [u8; 32],
    /// The objects by TOI; the first is the FDT.
    objects: Vec<ObjectSource>,
    units: Vec<Unit>,
    /// The number of FDT blocks, which are the first units.
    fdt_units: usize,
    next_fdt_unit: usize,
    windows: Windows,
    focus: Focus,
    rng: Pcg64,
    /// Units that may have a job, the most urgent first.
    jobs_due: VecDeque<usize>,
    /// Packets since the last one that says that an object is withdrawn.
    since_withdrawal: u32,
    plans: Arc<Plans>,
    storage: S,
    /// The room for repair symbols of the FDT, which is before that of the files.
    fdt_room_bytes: u64,
    /// The section of an image that is visited; `None` in a session of files.
    visit: Option<Visit>,
}

/// A block and its object.
struct Unit {
    toi: u32,
    block: BlockEncoder,
    /// Whether the unit is in `jobs_due`.
    is_queued: bool,
}

impl ObjectSender {
    /// Prepares a sender that stores repair symbols in memory: see [`ObjectSender::with_storage`].
    ///
    /// # Errors
    /// [`SendError`] if the configuration or a file cannot be sent.
    pub fn new(config: SenderConfig, files: Vec<SourceFile>) -> Result<Self, SendError> {
        ObjectSender::with_storage(config, files, MemoryStorage::default())
    }
}

impl<S: Storage> ObjectSender<S> {
    /// Reads all files once to compute their digests, and makes the table of files. `storage` is
    /// for repair symbols: see [`ObjectSender::storage_bytes`].
    ///
    /// # Errors
    /// [`SendError`] if the configuration or a file cannot be sent. Errors of the configuration are
    /// returned before any file is read.
    pub fn with_storage(
        config: SenderConfig,
        files: Vec<SourceFile>,
        storage: S,
    ) -> Result<Self, SendError> {
        check_config(&config)?;
        check_names(&files)?;
        let otis = files
            .iter()
            .map(|file| choose_oti(&config, file))
            .collect::<Result<Vec<_>, _>>()?;
        let total = files.iter().map(|file| file.content.length()).sum();
        let mut entries = Vec::with_capacity(files.len());
        let mut objects = vec![table_source(Bytes::new())];
        for ((toi, file), oti) in (1..).zip(files).zip(&otis) {
            let average = chunk_average(&config, &file, total);
            let digests = Digests::of(&*file.content, oti, config.content_md5, average);
            let digests = digests.map_err(|error| ReadError {
                name: file.name.clone(),
                error,
            })?;
            entries.push(describe(toi, &file, oti, &digests)?);
            objects.push(ObjectSource {
                name: file.name.into(),
                source: file.content,
                digests: digests.blocks,
                is_withdrawn: false,
            });
        }
        let fdt = FdtInstance {
            expires: config.expires.into(),
            complete: true,
            files: entries,
        };
        let fdt = Bytes::from(fdt.encode());
        objects[0] = table_source(fdt.clone());
        let fdt_oti = fdt_oti(&config, fdt.len())?;
        Ok(ObjectSender::of_objects(
            config, objects, &fdt, fdt_oti, otis, storage, None,
        ))
    }

    fn of_objects(
        config: SenderConfig,
        objects: Vec<ObjectSource>,
        fdt: &Bytes,
        fdt_oti: Oti,
        otis: Vec<Oti>,
        storage: S,
        visit: Option<Visit>,
    ) -> Self {
        let table_sha256: [u8; 32] = Sha256::digest(fdt).into();
        let instance = visit.map_or_else(|| instance_id(&table_sha256), Visit::instance);
        let mut units = Vec::new();
        let fdt_units = fdt_oti.blocks() as usize;
        let blocks = otis.iter().map(|oti| oti.blocks() as usize).sum();
        let ahead = symbols_ahead(blocks, config.symbol_length);
        for (toi, oti) in (0..).zip(std::iter::once(fdt_oti).chain(otis)) {
            for sbn in 0..oti.blocks() {
                units.push(Unit {
                    toi,
                    block: BlockEncoder::new(oti, sbn, config.first_symbol, ahead),
                    is_queued: false,
                });
            }
        }
        let rng = Pcg64::seed_from_u64(config.seed);
        let windows = Windows::new(&units, fdt_units, &config);
        let mut sender = ObjectSender {
            focus: Focus::new(units.len()),
            fdt_extensions: fdt_extensions(&fdt_oti, instance),
            config,
            table_sha256,
            objects,
            fdt_units,
            next_fdt_unit: 0,
            windows,
            rng,
            jobs_due: VecDeque::new(),
            since_withdrawal: 0,
            plans: Arc::default(),
            units,
            storage,
            fdt_room_bytes: 0,
            visit,
        };
        sender.fdt_room_bytes = sender.assign_rooms(0..fdt_units, 0);
        (0..fdt_units).for_each(|unit| sender.queue_job(unit));
        sender.queue_upcoming();
        sender
    }

    /// The length of the table of files in bytes.
    pub fn table_bytes(&self) -> u64 {
        self.objects[0].source.length()
    }

    /// The bytes of the storage that repair symbols take in the course of the session. With
    /// RaptorQ, it is about 1.25 times the length of the files, or of six windows; without code, 0.
    pub fn storage_bytes(&self) -> u64 {
        self.fdt_room_bytes + self.windows.rooms_bytes()
    }

    /// Returns a job that encodes repair symbols of the block that needs them first; `None` if all
    /// blocks have enough. Several jobs may be under way.
    pub fn next_job(&mut self) -> Option<EncodeJob> {
        while let Some(unit) = self.jobs_due.pop_front() {
            self.units[unit].is_queued = false;
            if let Some(job) = self.job_of(unit) {
                return Some(job);
            }
        }
        None
    }

    /// Stores the result of a job.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn finish_job(&mut self, encoded: &Encoded) -> Result<(), ReadError> {
        let unit = encoded.unit;
        if self.is_outdated(encoded) {
            return Ok(());
        }
        let stored = self.units[unit].block.store(encoded, &mut self.storage);
        stored.map_err(|error| self.read_error(unit, error))?;
        self.queue_job_if_steady(unit);
        Ok(())
    }

    fn read_error(&self, unit: usize, error: io::Error) -> ReadError {
        let name = &self.objects[self.units[unit].toi as usize].name;
        ReadError {
            name: name.as_ref().to_owned(),
            error,
        }
    }

    fn queue_upcoming(&mut self) {
        while let Some(Upcoming { units, room }) = self.windows.take_upcoming() {
            self.assign_rooms(units.clone(), self.fdt_room_bytes + room);
            units.for_each(|unit| self.queue_job(unit));
        }
    }

    /// Gives units room for their repair symbols, from `room` on. Returns the end of this room.
    fn assign_rooms(&mut self, units: Range<usize>, mut room: u64) -> u64 {
        for unit in &mut self.units[units] {
            unit.block.set_room(room);
            room += unit.block.room_bytes();
        }
        room
    }

    fn queue_job(&mut self, number: usize) {
        let demand = self.demand(number);
        let unit = &mut self.units[number];
        if !unit.is_queued && unit.block.wanted(demand) > 0 {
            unit.is_queued = true;
            self.jobs_due.push_back(number);
        }
    }

    /// Queues the next job of a unit that is served all the time. A visit has one job.
    fn queue_job_if_steady(&mut self, unit: usize) {
        if self.is_steady(unit) {
            self.queue_job(unit);
        }
    }

    fn job_of(&mut self, unit: usize) -> Option<EncodeJob> {
        let demand = self.demand(unit);
        let visit = self.job_visit(unit);
        let Unit { toi, block, .. } = &mut self.units[unit];
        if self.objects[*toi as usize].is_withdrawn {
            return None;
        }
        let mut job = block.job(unit, demand, &self.objects[*toi as usize], &self.plans)?;
        job.visit = visit;
        Some(job)
    }

    /// Appends the next datagram of `layer` to `out`: usually data, sometimes the FDT.
    ///
    /// Receivers of layer n also receive all lower layers. With WEBRC, the base channel is layer 0,
    /// and a wave channel with n time slots left, including the current one, is layer n. Every
    /// receiver then gets all blocks in proportion, whatever its rate.
    ///
    /// # Errors
    /// If a file cannot be read or has changed, or if the storage fails. The session can go on
    /// without the file: see [`withdraw`](Self::withdraw).
    ///
    /// # Panics
    /// If `layer` is not below the configured number of layers, or if `cci` does not have the
    /// configured length.
    pub fn next_datagram(
        &mut self,
        layer: u16,
        cci: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), ReadError> {
        if let Some(units) = self.windows.end_visit() {
            for unit in &mut self.units[units] {
                unit.block.drop_repair_symbols();
            }
            self.queue_upcoming();
        }
        self.since_withdrawal = self.since_withdrawal.saturating_add(1);
        if let Some(unit) = self.next_focused_unit(layer) {
            return self.append(unit, cci, out);
        }
        for _ in 0..TRIES {
            let unit = self.windows.next_unit(layer);
            let toi = self.units[unit].toi;
            if !self.objects[toi as usize].is_withdrawn {
                return self.append(unit, cci, out);
            }
            if self.since_withdrawal >= WITHDRAWAL_INTERVAL {
                self.since_withdrawal = 0;
                self.append_header(Some(self.wire_toi(toi)), Flags::ClosesObject, &[], cci, out);
                return Ok(());
            }
        }
        // Nearly all that is left was withdrawn.
        self.next_fdt_datagram(cci, out)
    }

    /// Appends a datagram of the FDT to `out`. The base channel sends one first in each time slot.
    ///
    /// # Errors
    /// If the storage fails.
    ///
    /// # Panics
    /// If `cci` does not have the configured length.
    pub fn next_fdt_datagram(&mut self, cci: &[u8], out: &mut Vec<u8>) -> Result<(), ReadError> {
        let unit = self.next_fdt_unit;
        self.next_fdt_unit = (unit + 1) % self.fdt_units;
        self.windows.count_fdt(unit, 0);
        self.append(unit, cci, out)
    }

    /// Appends a datagram that only announces the end of the session (LCT flag A). It may be lost,
    /// so send it several times.
    ///
    /// # Panics
    /// If `cci` does not have the configured length.
    pub fn close_datagram(&self, cci: &[u8], out: &mut Vec<u8>) {
        self.append_header(None, Flags::ClosesSession, &[], cci, out);
    }

    /// The SHA-256 of the session's table of files (its only FDT Instance). Receivers that know it
    /// accept no other table: see
    /// [`ReceiverConfig::table_sha256`](crate::receiver::ReceiverConfig::table_sha256).
    pub fn table_sha256(&self) -> [u8; 32] {
        self.table_sha256
    }

    /// The length of a full datagram in bytes. Only an object's last symbol without code can make a
    /// shorter datagram.
    pub fn datagram_length(&self) -> usize {
        overhead(self.config.cci_length) + usize::from(self.config.symbol_length)
    }

    /// The number of source symbols of all files: the least number of packets that carries every
    /// byte once.
    pub fn symbols(&self) -> u64 {
        self.file_units()
            .map(|unit| u64::from(unit.block.symbols()))
            .sum()
    }

    /// The number of source symbols of the files that are sent at the same time: all, or those of
    /// some windows.
    pub fn symbols_at_a_time(&self) -> u64 {
        let windows = self.config.window_symbols.unwrap_or(u64::MAX);
        self.symbols()
            .min(windows.saturating_mul(Windows::ROOMS_MAX))
    }

    /// The number of source symbols of the FDT.
    pub fn fdt_symbols(&self) -> u64 {
        self.units[..self.fdt_units]
            .iter()
            .map(|unit| u64::from(unit.block.symbols()))
            .sum()
    }

    fn append(&mut self, unit: usize, cci: &[u8], out: &mut Vec<u8>) -> Result<(), ReadError> {
        let extensions: &[u8] = if unit < self.fdt_units {
            &self.fdt_extensions
        } else {
            &[]
        };
        self.append_header(
            Some(self.wire_toi(self.units[unit].toi)),
            Flags::None,
            extensions,
            cci,
            out,
        );
        let mut next = self.units[unit].block.next(&mut self.rng);
        if matches!(next, Next::Missing) {
            next = match self.is_steady(unit) {
                true => self.encode_now(unit)?,
                // Others would wait for the encoding, too.
                false => {
                    self.windows.on_repeated();
                    self.units[unit].block.repeat()
                }
            };
        }
        self.append_symbol(unit, &next, out)
            .map_err(|error| self.read_error(unit, error))
    }

    /// Encodes repair symbols of a unit, and returns the next one.
    fn encode_now(&mut self, unit: usize) -> Result<Next, ReadError> {
        self.units[unit].block.abandon_job();
        if let Some(job) = self.job_of(unit) {
            self.finish_job(&job.run()?)?;
        }
        Ok(self.units[unit].block.next(&mut self.rng))
    }

    fn append_symbol(&mut self, unit: usize, next: &Next, out: &mut Vec<u8>) -> io::Result<()> {
        let Unit { toi, block, .. } = &mut self.units[unit];
        let source = &*self.objects[*toi as usize].source;
        block.append(next, source, &mut self.storage, out)?;
        if matches!(next, Next::Repair { .. }) {
            self.queue_job_if_steady(unit);
        }
        Ok(())
    }

    fn append_header(
        &self,
        toi: Option<u32>,
        flags: Flags,
        extensions: &[u8],
        cci: &[u8],
        out: &mut Vec<u8>,
    ) {
        assert_eq!(
            cci.len(),
            self.config.cci_length,
            "the CCI has its session's length"
        );
        let codepoint = self.config.scheme.encoding_id();
        Fields {
            cci,
            tsi: self.config.tsi,
            toi,
            close_session: flags == Flags::ClosesSession,
            close_object: flags == Flags::ClosesObject,
            codepoint,
            extensions,
        }
        .encode(out);
    }
}

fn check_config(config: &SenderConfig) -> Result<(), SendError> {
    let refused = |parameter, value, range| {
        Err(SendError::Config {
            parameter,
            value,
            range,
        })
    };
    let symbol_length = config.symbol_length;
    if !(SYMBOL_LENGTH_MIN..=SYMBOL_LENGTH_MAX).contains(&symbol_length)
        || !symbol_length.is_multiple_of(4)
    {
        return refused(
            "the symbol length",
            symbol_length.into(),
            "choose a multiple of 4 from 64 to 65000 bytes",
        );
    }
    if config.block_symbols_max == 0 {
        return refused("the block length", 0, "choose at least 1 symbol");
    }
    if !matches!(config.cci_length, 4 | 8 | 12 | 16) {
        return refused(
            "the CCI length",
            config.cci_length as u64,
            "choose 4, 8, 12 or 16 bytes",
        );
    }
    if config.layers == 0 {
        return refused("the number of layers", 0, "choose at least 1");
    }
    Ok(())
}
