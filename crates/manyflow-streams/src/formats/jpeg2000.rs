//! JPEG 2000 (ITU-T T.800): a prefix of a codestream ends with its last whole packet, and the
//! lengths before it are those of what has come.
//!
//! Packets are found by their markers (SOP, `opj_compress -SOP`) or by the lengths in the header of
//! the tile-part (PLT, `opj_compress -PLT`). Without both, the last packet remains as far as it has
//! come, and only decoders that take truncated codestreams decode it. Decoders look for the markers
//! of packets that have not come, too. So a finished codestream has no such markers, and its header
//! announces none. Lists of lengths, which no longer hold, are left out.
//!
//! High-throughput codestreams (T.814) have the same form.

use super::{long, word};

const START: [u8; 4] = [0xff, 0x4f, 0xff, 0x51];
/// The first box of a file (T.800, Annex I).
const SIGNATURE: &[u8] = b"\x00\x00\x00\x0cjP  \r\n\x87\n";
const CODESTREAM_BOX: &[u8] = b"jp2c";
const START_OF_TILE_PART: usize = 0xff90;
const START_OF_DATA: usize = 0xff93;
const END_OF_CODESTREAM: usize = 0xffd9;
const END: [u8; 2] = [0xff, 0xd9];
const PACKET_LENGTHS: usize = 0xff58;
/// The segments that list lengths: of tile-parts, and of packets in both kinds of header.
const LISTS: [usize; 3] = [0xff55, 0xff57, PACKET_LENGTHS];
/// The segment of the coding style, the place of its flags, and those of markers of packets.
const CODING_STYLE: usize = 0xff52;
const STYLE_AT: usize = 4;
const HAS_PACKET_MARKERS: u8 = 0b110;
/// The marker before a packet with its length, and the length of the whole segment.
const START_OF_PACKET: [u8; 4] = [0xff, 0x91, 0, 4];
const START_OF_PACKET_BYTES: usize = 6;
/// The length of a tile-part's first segment, and the places of two fields in it.
const TILE_PART_BYTES: usize = 12;
const LENGTH_AT: usize = 6;
const PARTS_AT: usize = 11;

pub(super) fn is_codestream(prefix: &[u8]) -> bool {
    prefix.starts_with(&START)
}

pub(super) fn is_file(prefix: &[u8]) -> bool {
    prefix.starts_with(SIGNATURE)
}

/// Returns a file whose codestream has an end. Returns `None` if it has one, or has not begun.
pub(super) fn finish_file(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut at = 0;
    loop {
        let (length, kind) = (long(prefix, at)?, prefix.get(at + 4..at + 8)?);
        // A length of 1 is followed by one of 8 bytes, and 0 reaches to the end of the file.
        let (head, length) = match length {
            1 => (
                16,
                long(prefix, at + 12).filter(|_| long(prefix, at + 8) == Some(0))?,
            ),
            length => (8, length),
        };
        if kind == CODESTREAM_BOX {
            let finished = finish(prefix.get(at + head..)?)?;
            let mut file = [&prefix[..at + head], &finished].concat();
            let fitting = u32::try_from(head + finished.len()).ok()?.to_be_bytes();
            match (head, length) {
                (_, 0) => {}
                (8, _) => file[at..at + 4].copy_from_slice(&fitting),
                (_, _) => file[at + 12..at + 16].copy_from_slice(&fitting),
            }
            return Some(file);
        }
        at += Some(length).filter(|length| *length >= head)?;
    }
}

/// Returns a codestream with its end. Returns `None` if it has one, or no packet has come.
pub(super) fn finish(prefix: &[u8]) -> Option<Vec<u8>> {
    let mut stream = prefix.get(..2)?.to_vec();
    let mut at = copy_header(prefix, 2, START_OF_TILE_PART, &mut stream)?;
    let mut has_parts = false;
    loop {
        match word(prefix, at) {
            Some(END_OF_CODESTREAM) => return None,
            Some(START_OF_TILE_PART) => {}
            _ => break,
        }
        let Some(part) = TilePart::read(prefix, at) else {
            break;
        };
        part.write(prefix, at, &mut stream)?;
        has_parts = true;
        at = part.end;
        if !part.is_whole {
            break;
        }
    }
    stream.extend_from_slice(&END);
    has_parts.then_some(stream)
}

/// Copies the segments of a header up to a marker. Returns the place of the marker; `None` if it
/// has not come.
fn copy_header(bytes: &[u8], from: usize, end: usize, into: &mut Vec<u8>) -> Option<usize> {
    let mut at = from;
    loop {
        let marker = word(bytes, at)?;
        if marker == end {
            return Some(at);
        }
        let behind = at + 2 + segment(bytes, at)?;
        let copy = bytes.get(at..behind)?;
        if !LISTS.contains(&marker) {
            into.extend_from_slice(copy);
        }
        if marker == CODING_STYLE && copy.len() > STYLE_AT {
            let style = into.len() - copy.len() + STYLE_AT;
            into[style] &= !HAS_PACKET_MARKERS;
        }
        at = behind;
    }
}

/// Returns the length of a marker's segment behind the marker.
fn segment(bytes: &[u8], at: usize) -> Option<usize> {
    word(bytes, at + 2).filter(|length| *length >= 2)
}

/// A tile-part that has begun.
struct TilePart {
    /// The place of its data.
    data: usize,
    /// The place behind its last whole packet.
    end: usize,
    is_whole: bool,
}

impl TilePart {
    /// Reads the tile-part at a place; `None` if its header has not come, or is none.
    fn read(bytes: &[u8], from: usize) -> Option<TilePart> {
        let length = long(bytes, from + LENGTH_AT)?;
        let mut at = from + TILE_PART_BYTES;
        let mut lengths = Vec::new();
        while word(bytes, at)? != START_OF_DATA {
            let segment = segment(bytes, at)?;
            if word(bytes, at)? == PACKET_LENGTHS {
                // The length is followed by the number of the segment.
                lengths.extend_from_slice(bytes.get(at + 5..at + 2 + segment)?);
            }
            at += 2 + segment;
        }
        let data = at + 2;
        let end = from + length;
        // A part without a length reaches to the end of the codestream.
        let (end, is_whole) = match length {
            0 if bytes.ends_with(&END) && bytes.len() >= data + 2 => (bytes.len() - 2, true),
            1.. if end >= data && end <= bytes.len() => (end, true),
            _ => (data + whole_packets(&bytes[data..], &lengths), false),
        };
        Some(TilePart {
            data,
            end,
            is_whole,
        })
    }

    /// Appends the part without markers of packets, and with its present length.
    fn write(&self, bytes: &[u8], from: usize, stream: &mut Vec<u8>) -> Option<()> {
        let start = stream.len();
        stream.extend_from_slice(bytes.get(from..from + TILE_PART_BYTES)?);
        copy_header(bytes, from + TILE_PART_BYTES, START_OF_DATA, stream)?;
        stream.extend_from_slice(&(START_OF_DATA as u16).to_be_bytes());
        let mut data = &bytes[self.data..self.end];
        while let Some(byte) = data.first() {
            // The data of packets contains neither marker.
            let marker = match data {
                [0xff, 0x91, ..] => START_OF_PACKET_BYTES,
                [0xff, 0x92, ..] => 2,
                _ => {
                    stream.push(*byte);
                    1
                }
            };
            data = &data[marker.min(data.len())..];
        }
        let length = u32::try_from(stream.len() - start).ok()?;
        let field = &mut stream[start + LENGTH_AT..start + LENGTH_AT + 4];
        field.copy_from_slice(&length.to_be_bytes());
        // The number of the tile's parts is no longer known.
        stream[start + PARTS_AT] = 0;
        Some(())
    }
}

/// Returns the length of the whole packets in the data of a tile-part, as far as it has come.
fn whole_packets(data: &[u8], lengths: &[u8]) -> usize {
    if START_OF_PACKET.starts_with(data) {
        return 0;
    }
    if data.starts_with(&START_OF_PACKET) {
        for begun in [3, 2] {
            if data.ends_with(&START_OF_PACKET[..begun]) {
                return data.len() - begun;
            }
        }
        let mut markers = data.windows(START_OF_PACKET.len());
        // The last packet may be whole, but nothing shows it.
        return markers
            .rposition(|window| window == START_OF_PACKET)
            .unwrap_or(0);
    }
    let mut end = 0;
    let mut length = 0_usize;
    for byte in lengths {
        length = length << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            if end + length > data.len() {
                return end;
            }
            end += core::mem::take(&mut length);
        }
    }
    match lengths {
        [] => data.len(),
        _ => end,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A codestream of one tile-part of three packets, with a list of their lengths or without, and
    /// with this coding style.
    fn codestream(packet: &[u8], lengths: Option<u8>, style: u8) -> Vec<u8> {
        let plt = lengths.map(|n| [0xff, 0x58, 0, 6, 0, n, n, n]);
        let plt = plt.as_ref().map_or(&[][..], |plt| plt);
        let data = packet.repeat(3);
        let length = (TILE_PART_BYTES + plt.len() + 2 + data.len()) as u8;
        let tile = [0xff, 0x90, 0, 10, 0, 0, 0, 0, 0, length, 0, 1];
        let header = [&START[..], &[0, 3, 9, 0xff, 0x52, 0, 3, style]].concat();
        [&header[..], &tile, plt, &[0xff, 0x93], &data, &END].concat()
    }

    #[test]
    fn a_prefix_ends_with_a_whole_packet_and_has_its_length() {
        let marked = codestream(b"\xff\x91\x00\x04\x00\x00h\xff\x92abc", None, 0b110);
        let listed = codestream(b"habc", Some(4), 0);
        for (whole, packet) in [(marked, 12), (listed, 4)] {
            assert_eq!(finish(&whole), None);
            for kept in [0, 1, 2] {
                let cut = whole.len() - 2 - (3 - kept) * packet + 2;
                let bare = codestream(b"habc", None, 0);
                let bytes = bare.len() - 2 - (3 - kept) * 4;
                let mut wanted = [&bare[..bytes], &END].concat();
                // The length of the tile-part, and the number of parts.
                (wanted[12 + 9], wanted[12 + 11]) = ((bytes - 12) as u8, 0);
                assert_eq!(finish(&whole[..cut]), Some(wanted), "{kept} packets");
            }
            assert_eq!(finish(&whole[..20]), None, "the header has not come");
        }
    }

    #[test]
    fn a_file_has_the_length_of_its_codestream() {
        let stream = codestream(b"\xff\x91\x00\x04\x00\x00abc", None, 2);
        let length = [0, 0, 0, stream.len() as u8 + 8];
        let file = [SIGNATURE, &length, CODESTREAM_BOX, &stream].concat();
        assert_eq!(finish_file(&file), None);
        assert_eq!(finish_file(&file[..18]), None);
        let cut = finish_file(&file[..file.len() - 3]).unwrap();
        let inner = finish(&stream[..stream.len() - 3]).unwrap();
        assert_eq!(cut[20..], inner);
        assert_eq!(usize::from(cut[15]), inner.len() + 8);
    }
}
