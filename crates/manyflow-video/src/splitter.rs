//! Bytes of a stream to units.

use crate::annexb::{AnnexB, Nal};
use crate::av1::Av1;
use crate::codec::Codec;
use crate::gop::{Extra, Gop, VideoUnit};
use crate::h264::H264;
use crate::hevc::Hevc;
use crate::obu::{ObuReader, is_av1};
use crate::ts::{PACKET_BYTES, SYNC_BYTE, TsReader};
use crate::unit::StreamEntry;

/// The bytes from which the format of a stream is certain: MPEG-TS repeats its sync byte.
const PROBE_BYTES: usize = 2 * PACKET_BYTES + 1;
/// The stream types of video in MPEG-TS (ISO/IEC 13818-1, table 2-34).
pub(crate) const KIND_H264: u8 = 0x1b;
pub(crate) const KIND_HEVC: u8 = 0x24;
/// Private data: a descriptor names the codec.
pub(crate) const KIND_AV1: u8 = 0x06;
/// The stream id of the first stream of video (table 2-22).
const ID_VIDEO: u8 = 0xe0;

/// The reason why a stream cannot be made into units.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VideoError {
    /// The bytes are neither of the supported formats.
    #[error(
        "it is none of H.264 with start codes (Annex B), MPEG-TS and AV1 (IVF or OBUs): convert it, as with `ffmpeg -i FILE -c copy -f mpegts -`, or `-f ivf` for AV1"
    )]
    Format,
    /// HEVC came without times.
    #[error(
        "HEVC without MPEG-TS has no times: convert it, as with `ffmpeg -i FILE -c copy -f mpegts -`"
    )]
    NoTimes,
    /// The stream does not announce its rate.
    #[error("the stream does not announce its pictures per second: give them with --fps")]
    NoRate,
    /// MPEG-TS has no video that can be used.
    #[error("no H.264 or HEVC in the first {bytes} bytes of MPEG-TS{reason}")]
    NoVideo {
        /// The bytes read.
        bytes: usize,
        /// The last error of its tables, to be appended; often empty.
        reason: String,
    },
    /// A part of the stream cannot be parsed.
    #[error("its {what} cannot be read ({error})")]
    Unreadable {
        /// The part.
        what: &'static str,
        /// The parser's reason.
        error: String,
    },
    /// The stream uses a tool of the codec that is not supported.
    #[error("it has {0}, which are not supported")]
    Unsupported(&'static str),
    /// A unit would be too long.
    #[error("a second of it, or a picture, has more than {0} bytes: encode it at a lower rate")]
    TooLong(usize),
}

/// Makes units of a byte stream: H.264 as Annex B, H.264 and HEVC in MPEG-TS with its audio, or AV1
/// in IVF or as OBUs.
pub struct Splitter {
    fps: Option<f64>,
    input: Input,
}

#[expect(clippy::large_enum_variant, reason = "one for each stream")]
enum Input {
    /// Bytes before the format is known.
    Unknown(Vec<u8>),
    AnnexB {
        annexb: AnnexB,
        gop: Gop,
    },
    Obus {
        reader: ObuReader,
        gop: Gop,
    },
    Ts(TsInput),
}

struct TsInput {
    reader: TsReader,
    annexb: AnnexB,
    /// The video, once the program map has named it.
    gop: Option<Gop>,
}

impl Splitter {
    /// Begins a stream. `fps` are the pictures per second of a stream without times; by default,
    /// those that its parameter sets announce.
    pub fn new(fps: Option<f64>) -> Splitter {
        Splitter {
            fps,
            input: Input::Unknown(Vec::new()),
        }
    }

    /// Takes the next bytes of the stream, in parts of any length.
    ///
    /// # Errors
    /// If the bytes are not of a supported format. The stream ends there.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), VideoError> {
        match &mut self.input {
            Input::Unknown(known) => {
                known.extend_from_slice(bytes);
                if known.len() < PROBE_BYTES {
                    return Ok(());
                }
                self.recognise()
            }
            Input::AnnexB { annexb, gop } => {
                annexb.push(bytes, None);
                push_nals(annexb, gop)
            }
            Input::Obus { reader, gop } => {
                reader.push(bytes)?;
                push_obus(reader, gop)
            }
            Input::Ts(input) => input.push(bytes, self.fps),
        }
    }

    /// Ends the stream: its last unit is complete.
    ///
    /// # Errors
    /// If the stream was of no supported format.
    pub fn finish(&mut self) -> Result<(), VideoError> {
        if let Input::Unknown(known) = &self.input {
            if known.is_empty() {
                return Ok(());
            }
            self.recognise()?;
        }
        match &mut self.input {
            Input::Unknown(_) => Ok(()),
            Input::AnnexB { annexb, gop } => {
                annexb.finish();
                push_nals(annexb, gop)?;
                gop.finish()
            }
            Input::Obus { gop, .. } => gop.finish(),
            Input::Ts(input) => input.finish(self.fps),
        }
    }

    /// Returns the next unit that is complete.
    pub fn poll_unit(&mut self) -> Option<VideoUnit> {
        match &mut self.input {
            Input::Unknown(_) => None,
            Input::AnnexB { gop, .. } | Input::Obus { gop, .. } => gop.poll_unit(),
            Input::Ts(input) => input.gop.as_mut()?.poll_unit(),
        }
    }

    /// Decides on the format, and takes the bytes so far.
    fn recognise(&mut self) -> Result<(), VideoError> {
        let Input::Unknown(known) = &mut self.input else {
            return Ok(());
        };
        let known = std::mem::take(known);
        let syncs = known.iter().step_by(PACKET_BYTES);
        self.input = if syncs.take(3).all(|&byte| byte == SYNC_BYTE) {
            Input::Ts(TsInput {
                reader: TsReader::new(),
                annexb: AnnexB::new(),
                gop: None,
            })
        } else if is_av1(&known) {
            Input::Obus {
                reader: ObuReader::new(&known),
                gop: Gop::new(Box::new(Av1::default()), self.fps, vec![entry(KIND_AV1)]),
            }
        } else {
            let codec = Box::new(recognise_codec(&known)?);
            Input::AnnexB {
                annexb: AnnexB::new(),
                gop: Gop::new(codec, self.fps, vec![entry(KIND_H264)]),
            }
        };
        self.push(&known)
    }
}

/// Returns the entry of a stream of video that no program map describes.
fn entry(kind: u8) -> StreamEntry {
    StreamEntry {
        kind,
        id: ID_VIDEO,
        descriptors: Vec::new(),
    }
}

fn push_obus(reader: &mut ObuReader, gop: &mut Gop) -> Result<(), VideoError> {
    while let Some(obu) = reader.poll_obu() {
        let stamp = obu.stamp.or_else(|| gop.stamp_of(obu.unit));
        gop.push_nal(Nal {
            bytes: obu.bytes,
            stamp,
        })?;
    }
    Ok(())
}

/// Tells H.264 from HEVC by the first NAL unit, which is a parameter set or a delimiter.
fn recognise_codec(bytes: &[u8]) -> Result<H264, VideoError> {
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    match bytes.get(zeros..) {
        Some([1, first, second, ..]) if zeros >= 2 => {
            let is_hevc = matches!(first, 0x40 | 0x42 | 0x44 | 0x46 | 0x4e) && *second == 1;
            match is_hevc {
                true => Err(VideoError::NoTimes),
                false => Ok(H264::default()),
            }
        }
        _ => Err(VideoError::Format),
    }
}

fn push_nals(annexb: &mut AnnexB, gop: &mut Gop) -> Result<(), VideoError> {
    while let Some(nal) = annexb.poll_nal() {
        gop.push_nal(nal)?;
    }
    match annexb.is_too_long() {
        true => Err(VideoError::TooLong(crate::annexb::NAL_BYTES_MAX)),
        false => Ok(()),
    }
}

impl TsInput {
    fn push(&mut self, bytes: &[u8], fps: Option<f64>) -> Result<(), VideoError> {
        self.reader.push(bytes)?;
        self.take_packets(fps)
    }

    fn finish(&mut self, fps: Option<f64>) -> Result<(), VideoError> {
        self.reader.finish();
        self.take_packets(fps)?;
        self.annexb.finish();
        match &mut self.gop {
            Some(gop) => {
                push_nals(&mut self.annexb, gop)?;
                gop.finish()
            }
            None => Err(self.reader.no_video()),
        }
    }

    fn take_packets(&mut self, fps: Option<f64>) -> Result<(), VideoError> {
        while let Some(packet) = self.reader.poll_packet() {
            let streams = self.reader.streams();
            let gop = self.gop.get_or_insert_with(|| {
                let codec: Box<dyn Codec> = match streams.first().map(|stream| stream.kind) {
                    Some(KIND_HEVC) => Box::new(Hevc),
                    _ => Box::new(H264::default()),
                };
                Gop::new(codec, fps, streams.to_vec())
            });
            if packet.stream == 0 {
                self.annexb.push(&packet.bytes, packet.stamp);
                push_nals(&mut self.annexb, gop)?;
            } else if let Some(stamp) = packet.stamp {
                gop.push_extra(Extra {
                    stream: packet.stream,
                    stamp,
                    bytes: packet.bytes,
                })?;
            }
        }
        Ok(())
    }
}
