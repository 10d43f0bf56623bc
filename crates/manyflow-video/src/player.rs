//! Prefixes of units to a byte stream that decodes.

use std::time::Duration;

use crate::av1::size_of;
use crate::duration;
use crate::obu::ObuWriter;
use crate::splitter::{KIND_AV1, KIND_H264, KIND_HEVC};
use crate::ts::TsWriter;
use crate::unit::{Begin, Index, IndexError, Item, StreamEntry};

/// The format that a [`Player`] writes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Format {
    /// MPEG-TS, with audio and times; IVF for AV1.
    MpegTs,
    /// The video alone, as a byte stream without times: ITU-T H.264, Annex B, and for AV1 OBUs one
    /// after the other.
    AnnexB,
}

/// The result of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Played {
    /// Pictures written, without substitutes.
    pub pictures: usize,
    /// Substitutes written, each of which repeats the picture before.
    pub substitutes: usize,
    /// Pictures of the whole unit; 0 if even its index was cut.
    pub pictures_sent: usize,
    /// The time until the next unit.
    pub duration: Duration,
    /// Whether the unit follows the last one without a gap in the numbers.
    pub follows: bool,
    /// Whether the bytes are those of AV1, which has IVF in place of MPEG-TS.
    pub is_av1: bool,
    /// Where in the written bytes the packets begin, and when.
    pub marks: Vec<Mark>,
}

/// A place in the bytes of a unit that has a time.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The place of the first byte.
    pub at: usize,
    /// The decoding time, from the begin of the unit on.
    pub due: Duration,
}

/// The units that a player of H.264 waits for a closed group of pictures, before it begins with an
/// open one.
const WAIT_UNITS: u32 = 4;

/// Writes the pictures of prefixes of units in decoding order. Pictures that cannot be decoded,
/// because a picture that they need was cut, are left out.
#[derive(Debug)]
pub struct Player {
    format: Format,
    ts: TsWriter,
    obus: ObuWriter,
    /// The number of the next unit.
    next: Option<u32>,
    /// The references before the next unit.
    references: References,
    /// Units that have been left out since references are missing.
    waited: u32,
}

/// An item with its bytes, and whether they are its own or those of its substitute.
type Chosen<'a> = (Item, &'a [u8], bool);

/// The references that a decoder has so far.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum References {
    /// All of them.
    Whole,
    /// As many as were sent, but some are substitutes.
    Replaced,
    /// Some are missing.
    Missing,
}

impl Player {
    /// Begins a stream.
    pub fn new(format: Format) -> Player {
        Player {
            format,
            ts: TsWriter::default(),
            obus: ObuWriter::default(),
            next: None,
            references: References::Missing,
            // Decoding can begin with an open group.
            waited: WAIT_UNITS,
        }
    }

    /// Appends the pictures and the audio of a prefix of a unit to `out`. Units come in the order
    /// of their numbers; a number that is left out stands for a unit that is missing.
    ///
    /// # Errors
    /// If the prefix is no unit of video. A prefix that ends in the index is no error: it has no
    /// pictures.
    pub fn play(
        &mut self,
        number: u32,
        prefix: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Played, IndexError> {
        let follows = self.next == Some(number);
        self.next = Some(number.wrapping_add(1));
        if !follows {
            self.references = References::Missing;
        }
        let (index, head) = match Index::decode(prefix) {
            Ok(decoded) => decoded,
            Err(IndexError::Cut(_)) => {
                self.references = References::Missing;
                return Ok(Played::default());
            }
            Err(error) => return Err(error),
        };
        let items = self.choose(&index, &prefix[head..]);
        let start = items.first().map_or(0, |(item, ..)| item.dts);
        let is_picture = |item: &Item| item.stream == 0 && !item.is_hidden();
        let av1 = av1_size(&index);
        let mut played = Played {
            pictures_sent: index.items.iter().filter(|item| is_picture(item)).count(),
            duration: duration(index.duration.into()),
            follows,
            is_av1: av1.is_some(),
            ..Played::default()
        };
        if index.begin == Begin::Closed {
            self.obus.begin();
        }
        if self.format == Format::MpegTs && av1.is_none() && !items.is_empty() {
            let written = self.ts.write_tables(&index.streams, out);
            written.map_err(|_| IndexError::Invalid)?;
        }
        for (item, bytes, is_own) in items {
            played.pictures += usize::from(is_picture(&item) && is_own);
            played.substitutes += usize::from(!is_own);
            played.marks.push(Mark {
                at: out.len(),
                due: duration(item.dts - start),
            });
            match av1 {
                Some(size) => {
                    let is_ivf = self.format == Format::MpegTs;
                    self.obus.write(&item, bytes, size, is_ivf, out);
                }
                None => self.write(&index, &item, bytes, out)?,
            }
        }
        Ok(played)
    }

    /// Returns the packets to write, in decoding order, and notes the state of references behind
    /// them.
    fn choose<'a>(&mut self, index: &'a Index, bytes: &'a [u8]) -> Vec<Chosen<'a>> {
        let before = match index.begin {
            Begin::Closed => References::Whole,
            Begin::Open | Begin::Continued => self.references,
        };
        let begins = index.begin == Begin::Open && self.may_begin(index, before);
        let is_left_out = before != References::Whole && !begins;
        self.waited = match is_left_out {
            true => self.waited.saturating_add(1),
            false => 0,
        };
        let mut after = match (is_left_out, before) {
            (true, before) => before,
            (false, _) => References::Whole,
        };
        let mut chosen = Vec::with_capacity(index.items.len());
        let mut substitutes = index.substitutes.iter();
        let mut rest = bytes;
        for item in &index.items {
            let data;
            (data, rest) = match rest.split_at_checked(item.bytes as usize) {
                Some((data, behind)) => (Some(data), behind),
                None => (None, &[][..]),
            };
            let has_substitute = item.flags & Item::SUBSTITUTE != 0;
            let substitute = has_substitute.then(|| substitutes.next()).flatten();
            let is_video = item.stream == 0;
            let lacks = before != References::Whole && item.is_leading();
            match (data, substitute) {
                (Some(data), _) if !is_video || !(is_left_out || lacks) => {
                    chosen.push((*item, data, true));
                }
                _ if !is_video || !item.is_reference() => {}
                // Without the state of a decoder, a substitute repeats nothing.
                (_, Some(substitute)) if before.max(after) != References::Missing => {
                    chosen.push((*item, substitute, false));
                    // No later group needs a leading picture.
                    if !item.is_leading() {
                        after = after.max(References::Replaced);
                    }
                }
                (Some(_), _) if lacks && !is_left_out => {}
                _ => after = References::Missing,
            }
        }
        self.references = after;
        let is_wanted = |item: &Item| item.stream == 0 || self.format == Format::MpegTs;
        chosen.retain(|(item, ..)| is_wanted(item));
        // Pictures have increasing decoding times, so this is decoding order.
        chosen.sort_by_key(|(item, ..)| (item.dts, item.stream, item.place));
        chosen
    }

    /// Whether decoding can begin with an open group. HEVC names the references of each picture,
    /// and does not miss those that no picture needs. A decoder of H.264 counts them.
    fn may_begin(&self, index: &Index, before: References) -> bool {
        let kind = index.streams.first().map(|stream| stream.kind);
        kind != Some(KIND_H264) || before != References::Missing || self.waited >= WAIT_UNITS
    }

    fn write(
        &mut self,
        index: &Index,
        item: &Item,
        bytes: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), IndexError> {
        if self.format == Format::AnnexB {
            out.extend_from_slice(bytes);
            return Ok(());
        }
        let stream = index.streams.get(usize::from(item.stream));
        let stream = stream.ok_or(IndexError::Invalid)?;
        let is_key = item.place == 0 && index.begin != Begin::Continued;
        let picture;
        let bytes = match (item.stream, delimiter(stream)) {
            (0, Some(delimiter)) => {
                picture = [delimiter, bytes].concat();
                &picture
            }
            _ => bytes,
        };
        let written = self.ts.write_item(item, stream.id, is_key, bytes, out);
        written.map_err(|_| IndexError::Invalid)
    }
}

/// Returns the width and the height of AV1; `None` for another codec.
fn av1_size(index: &Index) -> Option<[u16; 2]> {
    let video = index.streams.first()?;
    (video.kind == KIND_AV1)
        .then(|| size_of(&video.descriptors))
        .flatten()
}

/// The NAL unit with which MPEG-TS marks the begin of a picture (ISO/IEC 13818-1, 2.14.1 and
/// 2.17.1).
fn delimiter(stream: &StreamEntry) -> Option<&'static [u8]> {
    match stream.kind {
        KIND_H264 => Some(&[0, 0, 0, 1, 0x09, 0xf0]),
        KIND_HEVC => Some(&[0, 0, 0, 1, 0x46, 0x01, 0x50]),
        _ => None,
    }
}
