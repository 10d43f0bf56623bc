//! HEVC (ITU-T H.265). Only the header of NAL units is read (7.3.1.2), so this file has no parser:
//! times come from MPEG-TS.

use crate::VideoError;
use crate::codec::{Codec, Key, Part, Slice};

/// The NAL unit types of table 7-1.
mod kind {
    pub(super) const RASL: std::ops::RangeInclusive<u8> = 8..=9;
    /// Pictures below are no references of their sub-layer if the type is even.
    pub(super) const SUBLAYER_END: u8 = 16;
    pub(super) const BLA_FIRST: u8 = 16;
    pub(super) const IDR_LAST: u8 = 20;
    pub(super) const CRA: u8 = 21;
    pub(super) const SLICE_END: u8 = 32;
    pub(super) const PARAMETERS: std::ops::RangeInclusive<u8> = 32..=34;
    pub(super) const SEI_BEFORE: u8 = 39;
    pub(super) const SEI_AFTER: u8 = 40;
}

pub(crate) struct Hevc;

impl Codec for Hevc {
    fn read(&mut self, nal: &[u8]) -> Result<Part, VideoError> {
        let [first, second, body @ ..] = nal else {
            return Ok(Part::Unused);
        };
        let (number, layer) = ((first >> 1) & 0x3f, ((first & 1) << 5) | (second >> 3));
        if layer > 0 {
            return Ok(Part::Unused);
        }
        Ok(match number {
            0..kind::SLICE_END => Part::Slice(Slice {
                // first_slice_segment_in_pic_flag
                begins_picture: body.first().is_some_and(|byte| byte & 0x80 != 0),
                key: match number {
                    kind::BLA_FIRST..=kind::IDR_LAST => Some(Key::Closed),
                    kind::CRA => Some(Key::Open),
                    _ => None,
                },
                is_reference: number >= kind::SUBLAYER_END || number % 2 == 1,
                level: (second & 7).saturating_sub(1),
                order: None,
                is_leading: Some(kind::RASL.contains(&number)),
                // References are named by each picture, not counted.
                substitute: None,
                frame: None,
            }),
            number if kind::PARAMETERS.contains(&number) => {
                Part::Parameters(u32::from(number) << 8 | parameters_id(number, body))
            }
            kind::SEI_BEFORE => Part::Before,
            kind::SEI_AFTER => Part::After,
            _ => Part::Unused,
        })
    }

    fn fps(&self) -> Option<f64> {
        None
    }

    fn reorder(&self) -> u32 {
        0
    }
}

/// Tells apart the parameter sets of a type that are valid at the same time. The identifier of a
/// sequence parameter set is far behind its begin; a layer has one of them.
fn parameters_id(number: u8, body: &[u8]) -> u32 {
    let [first, second, ..] = body else {
        return 0;
    };
    match number {
        32 => u32::from(first >> 4),
        // pps_pic_parameter_set_id, an Exp-Golomb code of at most 11 bits (9.2).
        34 => {
            let bits = u16::from_be_bytes([*first, *second]);
            let length = (2 * bits.leading_zeros() + 1).min(16);
            u32::from(bits >> (16 - length))
        }
        _ => 0,
    }
}
