//! A picture of H.264 that repeats the one before: it takes the place of a reference that was cut.
//!
//! A decoder counts references (`frame_num`), and later pictures mark them as unused. Where the
//! next group of pictures is not closed, its decoder must therefore have got as many as were sent.
//! A picture whose macroblocks are all skipped has about 20 bytes. It has the header of the picture
//! that it stands for, and a picture parameter set of its own, because skipped macroblocks are
//! simplest to write in CAVLC (ITU-T H.264, 7.3.3, 7.3.4 and 9.2).

use std::io;

use h264_reader::nal::slice::{
    DecRefPicMarking, FieldPic, MemoryManagementControlOperation as Operation, PicOrderCountLsb,
    SliceHeader,
};
use h264_reader::nal::sps::{FrameMbsFlags, PicOrderCntType, SeqParameterSet};
use h264_reader::rbsp::{BitWrite, BitWriter, ByteWriter};

/// The identifier of the picture parameter set, the highest one, which encoders do not use.
const SET: u32 = 255;
const START_CODE: [u8; 4] = [0, 0, 0, 1];
/// The NAL unit header of a picture parameter set, and the type of a slice.
const SET_HEADER: u8 = 0x68;
const SLICE_TYPE: u8 = 1;
/// A picture of P slices only (table 7-6).
const P_ONLY: u32 = 5;

/// Returns a picture that repeats the one before, in place of the picture with this slice header;
/// `None` for pictures that it cannot stand for: those of an IDR, of fields, of separate colour
/// planes and of picture order counts of type 1.
pub(crate) fn skipped(slice: &SliceHeader, sps: &SeqParameterSet, ref_idc: u8) -> Option<Vec<u8>> {
    let is_plain = slice.field_pic == FieldPic::Frame
        && slice.colour_plane.is_none()
        && slice.idr_pic_id.is_none()
        && !matches!(sps.pic_order_cnt, PicOrderCntType::TypeOne { .. });
    if !is_plain {
        return None;
    }
    let mut bytes = START_CODE.to_vec();
    bytes.push(SET_HEADER);
    let has_bottom = matches!(
        slice.pic_order_cnt_lsb,
        Some(PicOrderCountLsb::FieldsAbsolute { .. })
    );
    let mut writer = BitWriter::new(ByteWriter::new(bytes));
    write_set(&mut writer, sps, has_bottom).ok()?;
    let mut bytes = writer.into_writer().into_writer();
    bytes.extend(START_CODE);
    bytes.push(ref_idc << 5 | SLICE_TYPE);
    let mut writer = BitWriter::new(ByteWriter::new(bytes));
    write_slice(&mut writer, slice, sps).ok()?;
    Some(writer.into_writer().into_writer())
}

/// Writes the picture parameter set (7.3.2.2).
fn write_set(to: &mut impl BitWrite, sps: &SeqParameterSet, has_bottom: bool) -> io::Result<()> {
    to.write_ue(SET)?;
    to.write_ue(sps.id().id().into())?;
    to.write_bit(false)?; // entropy_coding_mode_flag: CAVLC
    to.write_bit(has_bottom)?; // bottom_field_pic_order_in_frame_present_flag
    to.write_ue(0)?; // num_slice_groups_minus1
    to.write_ue(0)?; // num_ref_idx_l0_default_active_minus1
    to.write_ue(0)?; // num_ref_idx_l1_default_active_minus1
    to.write::<3, u8>(0)?; // weighted_pred_flag, weighted_bipred_idc
    to.write_se(0)?; // pic_init_qp_minus26
    to.write_se(0)?; // pic_init_qs_minus26
    to.write_se(0)?; // chroma_qp_index_offset
    to.write::<3, u8>(0)?; // deblocking control, constrained_intra_pred_flag, redundant pictures
    to.write_rbsp_trailing_bits()
}

/// Writes the slice (7.3.3): all macroblocks are skipped.
fn write_slice(
    to: &mut impl BitWrite,
    slice: &SliceHeader,
    sps: &SeqParameterSet,
) -> io::Result<()> {
    to.write_ue(0)?; // first_mb_in_slice
    to.write_ue(P_ONLY)?;
    to.write_ue(SET)?;
    to.write_var(sps.log2_max_frame_num().into(), slice.frame_num)?;
    let mut macroblocks = sps.pic_size_in_map_units();
    if let FrameMbsFlags::Fields { .. } = sps.frame_mbs_flags {
        to.write_bit(false)?; // field_pic_flag
        macroblocks *= 2;
    }
    if let PicOrderCntType::TypeZero {
        log2_max_pic_order_cnt_lsb_minus4: bits,
    } = sps.pic_order_cnt
    {
        let bits = u32::from(bits) + 4;
        match slice.pic_order_cnt_lsb {
            Some(PicOrderCountLsb::Frame(lsb)) => to.write_var(bits, lsb)?,
            Some(PicOrderCountLsb::FieldsAbsolute {
                pic_order_cnt_lsb,
                delta_pic_order_cnt_bottom,
            }) => {
                to.write_var(bits, pic_order_cnt_lsb)?;
                to.write_se(delta_pic_order_cnt_bottom)?;
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    to.write_bit(false)?; // num_ref_idx_active_override_flag
    to.write_bit(false)?; // ref_pic_list_modification_flag_l0
    write_marking(to, slice.dec_ref_pic_marking.as_ref())?;
    to.write_se(0)?; // slice_qp_delta
    to.write_ue(macroblocks)?; // mb_skip_run
    to.write_rbsp_trailing_bits()
}

/// Writes the marking of references (7.3.3.3), that of the picture which was cut.
fn write_marking(to: &mut impl BitWrite, marking: Option<&DecRefPicMarking>) -> io::Result<()> {
    let operations = match marking {
        Some(DecRefPicMarking::Adaptive(operations)) => operations,
        Some(_) => return to.write_bit(false),
        None => return Ok(()),
    };
    to.write_bit(true)?;
    for operation in operations {
        let (number, values) = match *operation {
            Operation::ShortTermUnusedForRef {
                difference_of_pic_nums_minus1,
            } => (1, [Some(difference_of_pic_nums_minus1), None]),
            Operation::LongTermUnusedForRef { long_term_pic_num } => {
                (2, [Some(long_term_pic_num), None])
            }
            Operation::ShortTermUsedForLongTerm {
                difference_of_pic_nums_minus1,
                long_term_frame_idx,
            } => (
                3,
                [
                    Some(difference_of_pic_nums_minus1),
                    Some(long_term_frame_idx),
                ],
            ),
            Operation::MaxUsedLongTermFrameRef {
                max_long_term_frame_idx_plus1,
            } => (4, [Some(max_long_term_frame_idx_plus1), None]),
            Operation::AllRefPicturesUnused => (5, [None, None]),
            Operation::CurrentUsedForLongTerm {
                long_term_frame_idx,
            } => (6, [Some(long_term_frame_idx), None]),
        };
        to.write_ue(number)?;
        for value in values.into_iter().flatten() {
            to.write_ue(value)?;
        }
    }
    to.write_ue(0)
}
