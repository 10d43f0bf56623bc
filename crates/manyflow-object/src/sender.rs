//! The sender of objects: produces the bytes of the packets that rate control sends.

use std::collections::BTreeSet;

use bytes::Bytes;
use md5::{Digest, Md5};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use sha2::Sha256;

use crate::alc::{FdtHeader, PAYLOAD_ID_BYTES};
use crate::error::SendError;
use crate::fdt::{FdtInstance, FecAttributes, FileEntry};
use crate::fec::{BlockEncoder, FecScheme, Oti};
use crate::lct::{self, Fields};
use crate::name;
use crate::schedule::Schedule;

/// Length of EXT_FDT and EXT_FTI in bytes, which only packets of the FDT carry.
const FDT_EXTENSION_BYTES: usize = 4 + Oti::EXTENSION_BYTES;
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
    /// The time at which the FDT expires, in seconds since 1900 (the upper half of an NTP
    /// timestamp).
    pub expires: u32,
    /// Maximum memory of the encoders in bytes. RaptorQ takes about 2.1 times the length of long
    /// files, and relatively more for files of a few symbols.
    pub memory_max: u64,
}

impl SenderConfig {
    /// The default parameters: 1400-byte datagrams with 64 bits of CCI, RaptorQ blocks of 1000
    /// symbols, an FDT that does not expire before 2036, 4 GiB of memory.
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
            memory_max: 4 << 30,
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

/// A file to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// A relative path with `/` between its components, as [`name::check`] accepts.
    pub name: String,
    /// The whole content.
    pub content: Bytes,
}

/// Turns files into datagrams.
///
/// Each block counts its symbols for all layers together, so no symbol repeats before all symbols
/// of the block have been used.
pub struct ObjectSender {
    config: SenderConfig,
    fdt_extensions: [u8; FDT_EXTENSION_BYTES],
    table_sha256: [u8; 32],
    units: Vec<Unit>,
    /// The number of FDT blocks, which are the first units.
    fdt_units: usize,
    next_fdt_unit: usize,
    schedule: Schedule,
    rng: Pcg64,
}

/// A block and its object.
struct Unit {
    toi: u32,
    block: BlockEncoder,
}

impl ObjectSender {
    /// Prepares all blocks. With RaptorQ this is most of the work of sending.
    ///
    /// # Errors
    /// [`SendError`] if the configuration or a file cannot be sent. It is returned before any long
    /// computation.
    pub fn new(config: SenderConfig, files: Vec<SourceFile>) -> Result<Self, SendError> {
        check_config(&config)?;
        check_names(&files)?;
        let otis = files
            .iter()
            .map(|file| choose_oti(&config, file))
            .collect::<Result<Vec<_>, _>>()?;
        check_memory(&config, &otis)?;
        let fdt = Bytes::from(list_files(&config, &files, &otis)?.encode());
        let fdt_oti = fdt_oti(&config, fdt.len())?;

        let mut units = blocks_of(0, fdt_oti, &fdt);
        let fdt_units = units.len();
        for ((toi, file), oti) in (1..).zip(&files).zip(otis) {
            units.extend(blocks_of(toi, oti, &file.content));
        }
        let rng = Pcg64::seed_from_u64(config.seed);
        let schedule = Schedule::new(weights(&units, fdt_units), config.layers);
        let fdt_extensions = fdt_extensions(&fdt_oti);
        Ok(ObjectSender {
            config,
            fdt_extensions,
            table_sha256: Sha256::digest(&fdt).into(),
            units,
            fdt_units,
            next_fdt_unit: 0,
            schedule,
            rng,
        })
    }

    /// Appends the next datagram of `layer` to `out`: usually data, sometimes the FDT.
    ///
    /// Receivers of layer n also receive all lower layers. With WEBRC, the base channel is layer 0,
    /// and a wave channel with n time slots left, including the current one, is layer n. Every
    /// receiver then gets all blocks in proportion, whatever its rate.
    ///
    /// # Panics
    /// If `layer` is not below the configured number of layers, or if `cci` does not have the
    /// configured length.
    pub fn next_datagram(&mut self, layer: u16, cci: &[u8], out: &mut Vec<u8>) {
        let unit = self.schedule.next_unit(layer);
        self.append(unit, cci, out);
    }

    /// Appends a datagram of the FDT to `out`. The base channel sends one first in each time slot.
    ///
    /// # Panics
    /// If `cci` does not have the configured length.
    pub fn next_fdt_datagram(&mut self, cci: &[u8], out: &mut Vec<u8>) {
        let unit = self.next_fdt_unit;
        self.next_fdt_unit = (unit + 1) % self.fdt_units;
        self.schedule.count(unit, 0);
        self.append(unit, cci, out);
    }

    /// Appends a datagram that only announces the end of the session (LCT flag A). It may be lost,
    /// so send it several times.
    ///
    /// # Panics
    /// If `cci` does not have the configured length.
    pub fn close_datagram(&self, cci: &[u8], out: &mut Vec<u8>) {
        self.append_header(None, true, &[], cci, out);
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
        self.units[self.fdt_units..]
            .iter()
            .map(|unit| u64::from(unit.block.symbols()))
            .sum()
    }

    /// The number of source symbols of the FDT.
    pub fn fdt_symbols(&self) -> u64 {
        self.units[..self.fdt_units]
            .iter()
            .map(|unit| u64::from(unit.block.symbols()))
            .sum()
    }

    fn append(&mut self, unit: usize, cci: &[u8], out: &mut Vec<u8>) {
        let extensions: &[u8] = if unit < self.fdt_units {
            &self.fdt_extensions
        } else {
            &[]
        };
        self.append_header(Some(self.units[unit].toi), false, extensions, cci, out);
        self.units[unit].block.next_symbol(&mut self.rng, out);
    }

    fn append_header(
        &self,
        toi: Option<u32>,
        close_session: bool,
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
            close_session,
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

fn check_names(files: &[SourceFile]) -> Result<(), SendError> {
    if files.is_empty() {
        return Err(SendError::NoFiles);
    }
    let mut names = BTreeSet::new();
    files.iter().try_for_each(|file| {
        name::check(&file.name)?;
        if names.insert(&file.name) {
            Ok(())
        } else {
            Err(SendError::DuplicateName(file.name.clone()))
        }
    })
}

fn choose_oti(config: &SenderConfig, file: &SourceFile) -> Result<Oti, SendError> {
    Oti::choose(
        config.scheme,
        file.content.len() as u64,
        config.symbol_length,
        config.block_symbols_max,
    )
    .map_err(|error| SendError::Oti {
        name: file.name.clone(),
        error,
    })
}

/// The FDT's parameters. Its symbols leave room for its extensions, so its datagrams are as long as
/// all others.
fn fdt_oti(config: &SenderConfig, length: usize) -> Result<Oti, SendError> {
    let symbol_length = config.symbol_length - FDT_EXTENSION_BYTES as u16;
    Oti::choose(
        config.scheme,
        length as u64,
        symbol_length,
        config.block_symbols_max,
    )
    .map_err(|error| SendError::Oti {
        name: "FDT".to_owned(),
        error,
    })
}

fn check_memory(config: &SenderConfig, otis: &[Oti]) -> Result<(), SendError> {
    let needed = otis.iter().map(BlockEncoder::memory).sum();
    let limit = config.memory_max;
    if needed > limit {
        Err(SendError::Memory { needed, limit })
    } else {
        Ok(())
    }
}

fn list_files(
    config: &SenderConfig,
    files: &[SourceFile],
    otis: &[Oti],
) -> Result<FdtInstance, SendError> {
    let entries = (1..).zip(files).zip(otis).map(|((toi, file), oti)| {
        Ok(FileEntry {
            toi,
            location: name::to_location(&file.name)?,
            transfer_length: Some(oti.transfer_length()),
            content_encoding: None,
            md5: Some(Md5::digest(&file.content).into()),
            sha256: Some(Sha256::digest(&file.content).into()),
            fec: FecAttributes::from(oti),
        })
    });
    let files = entries.collect::<Result<_, SendError>>()?;
    Ok(FdtInstance {
        expires: config.expires.into(),
        complete: true,
        files,
    })
}

fn fdt_extensions(oti: &Oti) -> [u8; FDT_EXTENSION_BYTES] {
    let mut extensions = [0; FDT_EXTENSION_BYTES];
    let header = FdtHeader {
        version: FdtHeader::VERSION,
        instance: 0,
    };
    extensions[..4].copy_from_slice(&header.encode());
    extensions[4..].copy_from_slice(&oti.encode_extension());
    extensions
}

fn blocks_of(toi: u32, oti: Oti, object: &Bytes) -> Vec<Unit> {
    (0..oti.blocks())
        .map(|sbn| Unit {
            toi,
            block: BlockEncoder::new(oti, sbn, object),
        })
        .collect()
}

/// The weight of a block in the schedule: its symbols, and up to two more that decoding may need.
/// The two do not matter for long blocks. Without them, an unlucky short block would delay all
/// others by a round.
fn weight(symbols: u64) -> u64 {
    symbols + (symbols - 1).min(2)
}

/// The FDT gets 0.3 % of the packets, so that a late receiver soon knows the names. A long FDT gets
/// as much as it needs to be complete together with the files.
fn weights(units: &[Unit], fdt_units: usize) -> Vec<u64> {
    let symbols_of = |unit: &Unit| u64::from(unit.block.symbols());
    let (fdt, files) = units.split_at(fdt_units);
    let symbols = files.iter().map(symbols_of).sum::<u64>().max(1);
    let total: u64 = files.iter().map(symbols_of).map(weight).sum();
    let fdt_share = (total * 3 / 1_000).div_ceil(fdt.len() as u64);
    let fdt = fdt.iter().map(|unit| {
        (weight(symbols_of(unit)) * total)
            .div_ceil(symbols)
            .max(fdt_share)
            .max(1)
    });
    fdt.chain(files.iter().map(symbols_of).map(weight))
        .collect()
}
