//! OBUs of AV1 (AV1 Bitstream & Decoding Process Specification, section 5.3): from IVF, which has
//! times, or one after the other in the low-overhead format of section 5.2.

use std::collections::VecDeque;

use scuffle_av1::ObuHeader;

use crate::annexb::{NAL_BYTES_MAX, Stamp};
use crate::unit::Item;
use crate::{CLOCK_HZ, VideoError};

/// The first bytes of a stream in IVF, and its codec.
const IVF_MAGIC: [u8; 4] = *b"DKIF";
const IVF_CODEC: [u8; 4] = *b"AV01";
/// The bytes of the header of a stream in IVF, and of that of each temporal unit.
const IVF_BYTES: usize = 32;
const IVF_UNIT_BYTES: usize = 12;
/// A temporal delimiter, with which each temporal unit begins.
pub(crate) const DELIMITER: [u8; 2] = [0x12, 0x00];
/// The longest header of an OBU: a byte, its extension, and a length of eight bytes.
const HEADER_BYTES_MAX: usize = 10;

/// An OBU, and the temporal unit that it belongs to.
#[derive(Debug)]
pub(crate) struct Obu {
    /// The OBU with its header.
    pub(crate) bytes: Vec<u8>,
    /// The time of its temporal unit, if the stream has times.
    pub(crate) stamp: Option<Stamp>,
    /// The number of its temporal unit.
    pub(crate) unit: i64,
}

/// Cuts a byte stream into OBUs.
#[derive(Debug)]
pub(crate) struct ObuReader {
    rest: Vec<u8>,
    format: ObuFormat,
    units: i64,
    ready: VecDeque<Obu>,
}

/// The format around OBUs.
#[derive(Debug)]
enum ObuFormat {
    /// IVF, whose header has not been read.
    IvfHead,
    /// Temporal units of IVF, whose times are in these parts of a second.
    Ivf { numerator: u32, denominator: u32 },
    /// Nothing: each temporal unit begins with a delimiter.
    LowOverhead,
}

/// Returns whether a stream begins as one of AV1 does.
pub(crate) fn is_av1(bytes: &[u8]) -> bool {
    bytes.starts_with(&IVF_MAGIC) || bytes.starts_with(&DELIMITER)
}

impl ObuReader {
    /// Creates a reader of a stream that begins with these bytes.
    pub(crate) fn new(bytes: &[u8]) -> ObuReader {
        ObuReader {
            rest: Vec::new(),
            format: match bytes.starts_with(&IVF_MAGIC) {
                true => ObuFormat::IvfHead,
                false => ObuFormat::LowOverhead,
            },
            units: -1,
            ready: VecDeque::new(),
        }
    }

    /// Takes bytes.
    ///
    /// # Errors
    /// If they are not OBUs with their lengths.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), VideoError> {
        let mut buffer = std::mem::take(&mut self.rest);
        buffer.extend_from_slice(bytes);
        let mut rest = &buffer[..];
        while let Some(behind) = self.take_part(rest)? {
            rest = behind;
        }
        if rest.len() > NAL_BYTES_MAX {
            return Err(VideoError::TooLong(NAL_BYTES_MAX));
        }
        self.rest = rest.to_vec();
        Ok(())
    }

    pub(crate) fn poll_obu(&mut self) -> Option<Obu> {
        self.ready.pop_front()
    }

    /// Takes the next header, temporal unit or OBU, and returns the bytes behind it; `None` if it
    /// is not whole.
    fn take_part<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<&'a [u8]>, VideoError> {
        match self.format {
            ObuFormat::IvfHead => {
                let Some((head, behind)) = bytes.split_first_chunk::<IVF_BYTES>() else {
                    return Ok(None);
                };
                self.format = read_head(head)?;
                Ok(Some(behind))
            }
            ObuFormat::Ivf {
                numerator,
                denominator,
            } => {
                let Some((head, behind)) = bytes.split_first_chunk::<IVF_UNIT_BYTES>() else {
                    return Ok(None);
                };
                let [a, b, c, d, time @ ..] = *head;
                let length = u32::from_le_bytes([a, b, c, d]) as usize;
                if length > NAL_BYTES_MAX {
                    return Err(VideoError::TooLong(NAL_BYTES_MAX));
                }
                let Some((unit, behind)) = behind.split_at_checked(length) else {
                    return Ok(None);
                };
                let ticks = u128::from(u64::from_le_bytes(time)) * u128::from(numerator);
                let ticks = ticks * CLOCK_HZ as u128 / u128::from(denominator);
                // A century of ticks.
                let time = i64::try_from(ticks).unwrap_or(i64::MAX).min(1 << 48);
                let stamp = Some(Stamp {
                    pts: time,
                    dts: time,
                });
                self.units += 1;
                self.take_unit(unit, stamp)?;
                Ok(Some(behind))
            }
            ObuFormat::LowOverhead => {
                let Some((obu, behind)) = split_obu(bytes)? else {
                    return Ok(None);
                };
                self.units += i64::from(obu == DELIMITER);
                self.ready.push_back(Obu {
                    bytes: obu.to_vec(),
                    stamp: None,
                    unit: self.units.max(0),
                });
                Ok(Some(behind))
            }
        }
    }

    fn take_unit(&mut self, mut unit: &[u8], stamp: Option<Stamp>) -> Result<(), VideoError> {
        while !unit.is_empty() {
            let Some((obu, behind)) = split_obu(unit)? else {
                return Err(unreadable("temporal unit", "it ends within an OBU"));
            };
            self.ready.push_back(Obu {
                bytes: obu.to_vec(),
                stamp,
                unit: self.units,
            });
            unit = behind;
        }
        Ok(())
    }
}

/// Reads the header of IVF. All its integers are little-endian.
fn read_head(head: &[u8; IVF_BYTES]) -> Result<ObuFormat, VideoError> {
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (denominator, numerator) = (word(16), word(20));
    if head[8..12] != IVF_CODEC {
        return Err(VideoError::Unsupported("IVF of another codec than AV1"));
    }
    if usize::from(u16::from_le_bytes([head[6], head[7]])) != IVF_BYTES || denominator == 0 {
        return Err(unreadable(
            "header of IVF",
            "its length or time base is wrong",
        ));
    }
    Ok(ObuFormat::Ivf {
        numerator,
        denominator,
    })
}

/// The first OBU and the bytes behind it; `None` if it is not whole.
type Split<'a> = Option<(&'a [u8], &'a [u8])>;

/// Splits off the first OBU.
fn split_obu(bytes: &[u8]) -> Result<Split<'_>, VideoError> {
    let mut behind = &bytes[..bytes.len().min(HEADER_BYTES_MAX)];
    let before = behind.len();
    let header = match ObuHeader::parse(&mut behind) {
        Ok(header) => header,
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(unreadable("OBU", &error.to_string())),
    };
    let Some(payload) = header.size else {
        return Err(VideoError::Unsupported("OBUs without their lengths"));
    };
    match usize::try_from(payload) {
        Ok(payload) if payload <= NAL_BYTES_MAX => {
            Ok(bytes.split_at_checked(before - behind.len() + payload))
        }
        _ => Err(VideoError::TooLong(NAL_BYTES_MAX)),
    }
}

pub(crate) fn unreadable(what: &'static str, error: &str) -> VideoError {
    VideoError::Unreadable {
        what,
        error: error.to_owned(),
    }
}

/// Writes temporal units. Frames that are not shown wait for the next one that is, because a
/// temporal unit has exactly one of these.
#[derive(Debug, Default)]
pub(crate) struct ObuWriter {
    has_begun: bool,
    hidden: Vec<u8>,
}

impl ObuWriter {
    /// Forgets frames that wait, because a group of pictures begins that needs none.
    pub(crate) fn begin(&mut self) {
        self.hidden.clear();
    }

    /// Writes a frame: in IVF, or one after the other. `size` are the width and the height of the
    /// stream, for the header of IVF.
    pub(crate) fn write(
        &mut self,
        item: &Item,
        frame: &[u8],
        size: [u16; 2],
        is_ivf: bool,
        out: &mut Vec<u8>,
    ) {
        if item.is_hidden() {
            self.hidden.extend_from_slice(frame);
            return;
        }
        if is_ivf {
            if !std::mem::replace(&mut self.has_begun, true) {
                write_head(size, out);
            }
            let length = DELIMITER.len() + self.hidden.len() + frame.len();
            out.extend((length as u32).to_le_bytes());
            out.extend(u64::try_from(item.pts).unwrap_or(0).to_le_bytes());
        }
        out.extend(DELIMITER);
        out.append(&mut self.hidden);
        out.extend_from_slice(frame);
    }
}

fn write_head([width, height]: [u16; 2], out: &mut Vec<u8>) {
    out.extend(IVF_MAGIC);
    out.extend(0u16.to_le_bytes());
    out.extend((IVF_BYTES as u16).to_le_bytes());
    out.extend(IVF_CODEC);
    out.extend(width.to_le_bytes());
    out.extend(height.to_le_bytes());
    out.extend((CLOCK_HZ as u32).to_le_bytes());
    out.extend(1u32.to_le_bytes());
    // The number of temporal units is not known, and the last word is reserved.
    out.extend([0; 8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A delimiter, and an OBU of metadata with three bytes.
    const UNIT: [u8; 7] = [0x12, 0x00, 0x2a, 0x03, 1, 2, 3];

    fn read(stream: &[u8], step: usize) -> Vec<(Vec<u8>, Option<i64>, i64)> {
        let mut reader = ObuReader::new(stream);
        for part in stream.chunks(step) {
            reader.push(part).unwrap();
        }
        let obus = std::iter::from_fn(|| reader.poll_obu());
        obus.map(|obu| (obu.bytes, obu.stamp.map(|stamp| stamp.pts), obu.unit))
            .collect()
    }

    #[test]
    fn obus_do_not_depend_on_the_parts_of_the_stream() {
        let stream = [&UNIT[..], &UNIT].concat();
        let expected: Vec<_> = [
            (&UNIT[..2], 0),
            (&UNIT[2..], 0),
            (&UNIT[..2], 1),
            (&UNIT[2..], 1),
        ]
        .map(|(bytes, unit)| (bytes.to_vec(), None, unit))
        .into();
        for step in 1..=stream.len() {
            assert_eq!(read(&stream, step), expected, "in steps of {step}");
        }
    }

    #[test]
    fn units_of_ivf_are_read_as_they_were_written() {
        let (mut writer, mut out) = (ObuWriter::default(), Vec::new());
        let item = |pts, flags| Item {
            stream: 0,
            flags,
            place: 0,
            bytes: 0,
            pts,
            dts: pts,
        };
        let frame = &UNIT[2..];
        writer.write(&item(3_000, 0), frame, [64, 48], true, &mut out);
        writer.write(&item(6_000, Item::HIDDEN), frame, [64, 48], true, &mut out);
        writer.write(&item(6_000, 0), frame, [64, 48], true, &mut out);
        for step in [1, 7, 1_000] {
            let times: Vec<_> = read(&out, step).iter().map(|(_, pts, _)| *pts).collect();
            let expected = [3_000, 3_000, 6_000, 6_000, 6_000].map(Some);
            assert_eq!(times, expected, "a unit has one frame that is shown");
        }
        assert_eq!(&out[8..16], b"AV01\x40\0\x30\0");
    }

    #[test]
    fn other_codecs_and_obus_without_a_length_are_refused() {
        let mut head = Vec::new();
        write_head([1, 1], &mut head);
        head[8..12].copy_from_slice(b"VP90");
        assert!(ObuReader::new(&head).push(&head).is_err());
        let stream = [&DELIMITER[..], &[0x28, 1, 2]].concat();
        assert!(ObuReader::new(&stream).push(&stream).is_err());
    }
}
