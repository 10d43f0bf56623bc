//! AV1 (AV1 Bitstream & Decoding Process Specification). `scuffle-av1` reads the headers of OBUs
//! and of sequences: it is kept, and small. The headers of frames are read here up to the frames
//! that they need (5.9.2).

use scuffle_av1::seq::SequenceHeaderObu;
use scuffle_av1::{ObuHeader, ObuType};
use scuffle_bytes_util::BitReader;

use crate::VideoError;
use crate::codec::{Codec, Frame, Key, Part, Slice};
use crate::obu::unreadable;

/// The frames that a decoder keeps, and those that a frame can name.
const SLOTS: usize = 8;
const NAMED: usize = 7;
/// The values of `frame_type` (6.8.2).
const KEY_FRAME: u64 = 0;
const INTRA_ONLY_FRAME: u64 = 2;
const SWITCH_FRAME: u64 = 3;
/// A sequence leaves this choice to each frame (6.4.2).
const SELECT: u8 = 2;
/// The zero bytes that no sequence header has in a row. The parser would take them for a number of
/// more bits than it can count.
const ZEROS_MAX: usize = 16;

/// Reads the OBUs of a stream.
#[derive(Debug, Default)]
pub(crate) struct Av1 {
    sequence: Option<SequenceHeaderObu>,
    /// The number of the frame in each slot, and whether it is a key frame; `None` if it is not
    /// known.
    slots: [Option<(u64, bool)>; SLOTS],
    /// Frames so far.
    frames: u64,
}

/// The part of a frame's header that says which frames it needs, and which need it.
struct FrameHeader {
    /// Whether decoding can begin here.
    is_key: bool,
    is_shown: bool,
    /// The slots that the frame needs.
    needs: [bool; SLOTS],
    /// The slots that the frame takes.
    refreshes: u8,
    /// The slot of an earlier frame that is only shown.
    shows: Option<usize>,
    is_key_frame: bool,
}

impl Codec for Av1 {
    fn read(&mut self, obu: &[u8]) -> Result<Part, VideoError> {
        let mut payload = obu;
        let header = ObuHeader::parse(&mut payload)
            .map_err(|error| unreadable("OBU header", &error.to_string()))?;
        let (level, spatial) = header
            .extension_header
            .map_or((0, 0), |layers| (layers.temporal_id, layers.spatial_id));
        if spatial > 0 {
            return Err(VideoError::Unsupported("spatial layers"));
        }
        Ok(match header.obu_type {
            ObuType::SequenceHeader => {
                self.take_sequence(header, payload)?;
                Part::Parameters(0)
            }
            ObuType::Metadata => Part::Before,
            ObuType::FrameHeader | ObuType::Frame => {
                Part::Slice(self.read_frame(payload, level, spatial)?)
            }
            ObuType::TileGroup | ObuType::RedundantFrameHeader => Part::After,
            // Delimiters are written again.
            _ => Part::Unused,
        })
    }

    fn fps(&self) -> Option<f64> {
        let timing = self.sequence.as_ref()?.timing_info.as_ref()?;
        let ticks = timing.num_ticks_per_picture? as f64;
        let second = f64::from(timing.time_scale) / f64::from(timing.num_units_in_display_tick);
        Some(second / ticks).filter(|fps| (1.0..=1_000.0).contains(fps))
    }

    fn reorder(&self) -> u32 {
        0
    }

    fn start_code(&self) -> &'static [u8] {
        &[]
    }

    fn descriptors(&self) -> Option<Vec<u8>> {
        let sequence = self.sequence.as_ref()?;
        let side = |length: u64| u16::try_from(length).unwrap_or(u16::MAX);
        let size = [sequence.max_frame_width, sequence.max_frame_height];
        Some(describe(size.map(side)))
    }
}

/// The descriptor that names AV1 in a program map ("Carriage of AV1 in MPEG-2 TS"), and a private
/// one with the width and the height, which IVF has in its header.
const REGISTRATION: [u8; 6] = *b"\x05\x04AV01";
const SIZE: [u8; 2] = [0xc0, 4];

fn describe([width, height]: [u16; 2]) -> Vec<u8> {
    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    [&REGISTRATION[..], &SIZE, &size].concat()
}

/// Returns the width and the height of a stream with these descriptors; `None` if it is not AV1.
pub(crate) fn size_of(descriptors: &[u8]) -> Option<[u16; 2]> {
    let size = descriptors.strip_prefix(&REGISTRATION)?;
    match size.strip_prefix(&SIZE) {
        Some([a, b, c, d, ..]) => {
            Some([u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])])
        }
        _ => Some([0; 2]),
    }
}

impl Av1 {
    fn take_sequence(&mut self, header: ObuHeader, payload: &[u8]) -> Result<(), VideoError> {
        let zeros = [0; ZEROS_MAX];
        if payload.windows(ZEROS_MAX).any(|part| part == zeros) {
            return Err(unreadable("sequence header", "it is mostly zeros"));
        }
        let sequence = SequenceHeaderObu::parse(header, &mut &payload[..]);
        let sequence =
            sequence.map_err(|error| unreadable("sequence header", &error.to_string()))?;
        self.sequence = Some(sequence);
        Ok(())
    }

    fn read_frame(&mut self, payload: &[u8], level: u8, spatial: u8) -> Result<Slice, VideoError> {
        let Some(sequence) = &self.sequence else {
            return Err(unreadable(
                "frame header",
                "no sequence header is before it",
            ));
        };
        let mut header = read_header(sequence, payload, level, spatial)
            .map_err(|error| unreadable("frame header", &error.to_string()))?;
        let number = self.frames;
        self.frames += 1;
        let shown = header.shows.and_then(|slot| self.slots[slot]);
        if let Some((_, true)) = shown {
            // A key frame that is shown later begins the slots again (7.21).
            (header.refreshes, header.is_key_frame) = (u8::MAX, true);
        }
        let named = self.slots.iter().zip(header.needs);
        let needed = named.filter_map(|(slot, is_needed)| slot.filter(|_| is_needed));
        let mut needs: Vec<u64> = needed.chain(shown).map(|(frame, _)| frame).collect();
        needs.sort_unstable();
        needs.dedup();
        for (slot, frame) in self.slots.iter_mut().enumerate() {
            if (header.refreshes >> slot) & 1 == 1 {
                *frame = Some((number, header.is_key_frame));
            }
        }
        Ok(Slice {
            begins_picture: true,
            key: header.is_key.then_some(Key::Closed),
            is_reference: header.refreshes != 0,
            level,
            order: None,
            is_leading: Some(false),
            substitute: None,
            frame: Some(Frame {
                number,
                needs,
                is_hidden: !header.is_shown,
                is_repeat: header.shows.is_some(),
            }),
        })
    }
}

/// Reads the header of a frame (5.9.2), up to the frames that it names.
fn read_header(
    sequence: &SequenceHeaderObu,
    payload: &[u8],
    temporal: u8,
    spatial: u8,
) -> std::io::Result<FrameHeader> {
    let mut bits = BitReader::new(payload);
    if sequence.reduced_still_picture_header {
        return Ok(FrameHeader::key());
    }
    let time_bits = presentation_time_bits(sequence);
    let id_bits = sequence.frame_ids.as_ref().map_or(0, |ids| {
        ids.delta_frame_id_length + ids.additional_frame_id_length
    });
    if bits.read_bit()? {
        let slot = bits.read_bits(3)? as usize;
        return Ok(FrameHeader::showing(slot));
    }
    let kind = bits.read_bits(2)?;
    let is_intra = matches!(kind, KEY_FRAME | INTRA_ONLY_FRAME);
    let is_shown = bits.read_bit()?;
    if is_shown {
        bits.read_bits(time_bits)?;
    } else {
        // showable_frame
        bits.read_bit()?;
    }
    let is_key = kind == KEY_FRAME && is_shown;
    let is_resilient = kind == SWITCH_FRAME || is_key || bits.read_bit()?;
    // disable_cdf_update
    bits.read_bit()?;
    read_screen_tools(sequence, &mut bits)?;
    bits.read_bits(id_bits)?;
    if kind != SWITCH_FRAME {
        // frame_size_override_flag
        bits.read_bit()?;
    }
    bits.read_bits(sequence.order_hint_bits)?;
    if !is_intra && !is_resilient {
        // primary_ref_frame, which is one of the named frames
        bits.read_bits(3)?;
    }
    read_removal_times(sequence, &mut bits, temporal, spatial)?;
    let refreshes = match kind == SWITCH_FRAME || is_key {
        true => u8::MAX,
        false => bits.read_bits(8)? as u8,
    };
    if (!is_intra || refreshes != u8::MAX) && is_resilient && sequence.enable_order_hint {
        for _ in 0..SLOTS {
            bits.read_bits(sequence.order_hint_bits)?;
        }
    }
    let needs = match is_intra {
        true => [false; SLOTS],
        false => read_named(sequence, &mut bits)?,
    };
    Ok(FrameHeader {
        is_key,
        is_shown,
        needs,
        refreshes,
        shows: None,
        is_key_frame: kind == KEY_FRAME,
    })
}

/// Returns the number of bits of a frame's time, which only some sequences have (5.9.31).
fn presentation_time_bits(sequence: &SequenceHeaderObu) -> u8 {
    let timing = sequence.timing_info.as_ref();
    let has_times = timing.is_some_and(|timing| timing.num_ticks_per_picture.is_none());
    let model = sequence.decoder_model_info.as_ref();
    let model = model.filter(|_| has_times);
    model.map_or(0, |model| model.frame_presentation_time_length)
}

/// Reads the choices for screen content (5.9.2), of which none matters here.
fn read_screen_tools(
    sequence: &SequenceHeaderObu,
    bits: &mut BitReader<&[u8]>,
) -> std::io::Result<()> {
    let has_screen_tools = match sequence.seq_force_screen_content_tools {
        SELECT => bits.read_bit()?,
        forced => forced == 1,
    };
    if has_screen_tools && sequence.seq_force_integer_mv == SELECT {
        bits.read_bit()?;
    }
    Ok(())
}

/// Reads the times at which buffers are free (5.9.2), of which none matters here.
fn read_removal_times(
    sequence: &SequenceHeaderObu,
    bits: &mut BitReader<&[u8]>,
    temporal: u8,
    spatial: u8,
) -> std::io::Result<()> {
    let Some(model) = &sequence.decoder_model_info else {
        return Ok(());
    };
    if !bits.read_bit()? {
        return Ok(());
    }
    for point in &sequence.operating_points {
        let has_layers = (point.idc >> temporal) & 1 == 1 && (point.idc >> (spatial + 8)) & 1 == 1;
        if point.operating_parameters_info.is_some() && (point.idc == 0 || has_layers) {
            bits.read_bits(model.buffer_removal_time_length)?;
        }
    }
    Ok(())
}

/// Reads the slots of the frames that a frame names. With short signalling, two are named and the
/// others follow from the order of display: then all may be needed.
fn read_named(
    sequence: &SequenceHeaderObu,
    bits: &mut BitReader<&[u8]>,
) -> std::io::Result<[bool; SLOTS]> {
    if sequence.enable_order_hint && bits.read_bit()? {
        return Ok([true; SLOTS]);
    }
    let ids = sequence.frame_ids.as_ref();
    let delta_bits = ids.map_or(0, |ids| ids.delta_frame_id_length);
    let mut needs = [false; SLOTS];
    for _ in 0..NAMED {
        needs[bits.read_bits(3)? as usize] = true;
        bits.read_bits(delta_bits)?;
    }
    Ok(needs)
}

impl FrameHeader {
    /// Returns that of a still picture.
    fn key() -> FrameHeader {
        FrameHeader {
            is_key: true,
            is_shown: true,
            needs: [false; SLOTS],
            refreshes: u8::MAX,
            shows: None,
            is_key_frame: true,
        }
    }

    /// Returns that of a frame that shows an earlier one.
    fn showing(slot: usize) -> FrameHeader {
        FrameHeader {
            is_key: false,
            is_shown: true,
            needs: [false; SLOTS],
            refreshes: 0,
            shows: Some(slot),
            is_key_frame: false,
        }
    }
}
