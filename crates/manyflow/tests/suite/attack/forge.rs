//! The packets that the attacker makes.

use manyflow_object::alc;
use manyflow_object::fdt::{FdtInstance, FileEntry};
use manyflow_object::fec::Oti;
use manyflow_object::lct::{EXT_FDT, EXT_FTI, Fields};
use manyflow_webrc::Cci;

/// The FEC Encoding ID of Compact No-Code.
const NO_CODE: u8 = 0;

/// A packet of the session that the attacker has heard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Real<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) cci: Cci,
    pub(crate) toi: Option<u32>,
    pub(crate) codepoint: u8,
    pub(crate) instance: Option<u32>,
    pub(crate) payload_id: [u8; 4],
    pub(crate) symbol: &'a [u8],
}

impl<'a> Real<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Real<'a>> {
        let packet = alc::Packet::decode(bytes).ok()?;
        Some(Real {
            bytes,
            cci: Cci::decode(packet.cci())?,
            toi: packet.header.toi.map(|toi| toi as u32),
            codepoint: packet.header.codepoint,
            instance: packet.fdt.map(|fdt| fdt.instance),
            payload_id: packet.symbol.map_or([0; 4], |symbol| symbol.payload_id),
            symbol: packet.symbol.map_or(&[], |symbol| symbol.data),
        })
    }
}

/// A forged packet.
#[derive(Clone, Copy)]
pub(crate) struct Forged<'a> {
    pub(crate) tsi: u64,
    pub(crate) cci: Cci,
    pub(crate) toi: Option<u32>,
    pub(crate) closes: bool,
    pub(crate) codepoint: u8,
    pub(crate) extensions: &'a [u8],
    pub(crate) payload_id: [u8; 4],
    pub(crate) symbol: &'a [u8],
}

impl<'a> Forged<'a> {
    /// A symbol of an object.
    pub(crate) fn symbol(tsi: u64, cci: Cci, toi: u32, symbol: &'a [u8]) -> Forged<'a> {
        Forged {
            tsi,
            cci,
            toi: Some(toi),
            closes: false,
            codepoint: NO_CODE,
            extensions: &[],
            payload_id: [0; 4],
            symbol,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let (cci, cci_length) = self.cci.encode();
        let fields = Fields {
            cci: &cci[..cci_length],
            tsi: self.tsi as u32,
            toi: self.toi,
            close_session: self.closes,
            close_object: false,
            codepoint: self.codepoint,
            extensions: self.extensions,
        };
        let mut bytes = Vec::new();
        fields.encode(&mut bytes);
        if !self.symbol.is_empty() {
            bytes.extend_from_slice(&self.payload_id);
            bytes.extend_from_slice(self.symbol);
        }
        bytes
    }
}

/// A packet of a table of files, without code unless `oti` has one.
pub(crate) fn table_packet(
    tsi: u64,
    cci: Cci,
    instance: u32,
    fti: &[u8],
    payload_id: [u8; 4],
    symbol: &[u8],
) -> Vec<u8> {
    let extensions = [&fdt_extension(instance), fti].concat();
    let forged = Forged {
        extensions: &extensions,
        payload_id,
        ..Forged::symbol(tsi, cci, 0, symbol)
    };
    forged.encode()
}

/// A whole table of files in one packet.
pub(crate) fn whole_table(tsi: u64, cci: Cci, instance: u32, files: Vec<FileEntry>) -> Vec<u8> {
    let table = FdtInstance {
        expires: u32::MAX.into(),
        complete: true,
        files,
    };
    let table = table.encode();
    let oti = Oti::no_code(table.len() as u64, table.len() as u16, 1).unwrap();
    table_packet(tsi, cci, instance, &oti.encode_extension(), [0; 4], &table)
}

/// An entry of a table: a file without content, so nothing more has to be forged.
pub(crate) fn empty_file(toi: u32, location: &str) -> FileEntry {
    FileEntry {
        toi: toi.into(),
        location: location.to_owned(),
        transfer_length: Some(0),
        ..FileEntry::default()
    }
}

/// EXT_FDT of FLUTE version 2 (RFC 6726 section 3.4.1).
fn fdt_extension(instance: u32) -> [u8; 4] {
    (u32::from(EXT_FDT) << 24 | 2 << 20 | instance & 0xf_ffff).to_be_bytes()
}

/// EXT_FTI with a length of `words` words and no valid content.
pub(crate) fn broken_fti(words: u8) -> Vec<u8> {
    let mut extension = vec![0; 4 * usize::from(words.max(1))];
    extension[..2].copy_from_slice(&[EXT_FTI, words]);
    extension
}

/// Returns the packet with a TOI of 64 bits instead of 32: `high` are the upper ones.
pub(crate) fn widen_toi(packet: &[u8], cci: Cci, high: u32) -> Vec<u8> {
    let toi = 8 + cci.wire_bytes() as usize;
    let mut wide = packet[..toi].to_vec();
    // The field O has the number of the TOI's words, and HDR_LEN those of the header (RFC 5651
    // section 5.1).
    wide[1] = wide[1] & !(3 << 5) | 2 << 5;
    wide[2] += 1;
    wide.extend_from_slice(&high.to_be_bytes());
    wide.extend_from_slice(&packet[toi..]);
    wide
}
