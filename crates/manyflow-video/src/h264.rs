//! H.264 (ITU-T H.264). `h264-reader` parses parameter sets and slice headers: it is kept, and has
//! no dependency besides readers of bits.

use h264_reader::Context;
use h264_reader::nal::pps::PicParameterSet;
use h264_reader::nal::sei::recovery_point::RecoveryPoint;
use h264_reader::nal::sei::{HeaderType, SeiReader};
use h264_reader::nal::slice::{
    DecRefPicMarking, Field, FieldPic, MemoryManagementControlOperation, PicOrderCountLsb,
    SliceFamily, SliceHeader,
};
use h264_reader::nal::sps::{PicOrderCntType, SeqParameterSet};
use h264_reader::nal::{Nal, NalHeader, RefNal, UnitType};

use crate::VideoError;
use crate::codec::{Codec, Key, Part, Slice};
use crate::skipped::skipped;

/// The distance in display order between pictures before and behind a reset of the order.
const EPOCH: i64 = 1 << 40;

#[derive(Default)]
pub(crate) struct H264 {
    context: Context,
    /// The picture that the last slice belongs to.
    last: Option<Identity>,
    order: Order,
    /// Whether the next picture has the information of a recovery point.
    is_recovery_point: bool,
    fps: Option<f64>,
    reorder: u32,
}

/// The values that tell pictures apart (7.4.1.2.4).
#[derive(Debug, PartialEq)]
struct Identity {
    frame_num: u16,
    pps: u8,
    field: FieldPic,
    is_reference: bool,
    idr: Option<u32>,
    order: Option<PicOrderCountLsb>,
    /// Whether this is the second field of a frame.
    is_second: bool,
}

/// The picture order count of type 0 (8.2.1.1).
#[derive(Debug, Default)]
struct Order {
    /// Counts instantaneous decoding refreshes, which begin the count again.
    epoch: i64,
    reference_msb: i64,
    reference_lsb: i64,
    /// Pictures so far, which replaces a count of another type.
    pictures: i64,
}

impl Codec for H264 {
    fn read(&mut self, nal: &[u8]) -> Result<Part, VideoError> {
        let reader = RefNal::new(nal, &[], true);
        let header = reader
            .header()
            .map_err(|error| unreadable("NAL header", &error))?;
        Ok(match header.nal_unit_type() {
            UnitType::SeqParameterSet => {
                let sps = SeqParameterSet::from_bits(reader.rbsp_bits());
                let sps = sps.map_err(|error| unreadable("sequence parameter set", &error))?;
                Part::Parameters(self.take_sps(sps))
            }
            UnitType::PicParameterSet => {
                let pps = PicParameterSet::from_bits(&self.context, reader.rbsp_bits());
                let pps = pps.map_err(|error| unreadable("picture parameter set", &error))?;
                let id = pps.pic_parameter_set_id.id();
                self.context.put_pic_param_set(pps);
                Part::Parameters(0x100 | u32::from(id))
            }
            UnitType::SEI => {
                self.is_recovery_point |= is_recovery_point(&reader);
                Part::Before
            }
            UnitType::SliceLayerWithoutPartitioningIdr
            | UnitType::SliceLayerWithoutPartitioningNonIdr => self.read_slice(header, &reader)?,
            UnitType::SliceDataPartitionALayer
            | UnitType::SliceDataPartitionBLayer
            | UnitType::SliceDataPartitionCLayer => {
                return Err(VideoError::Unsupported("data partitions"));
            }
            UnitType::SliceLayerWithoutPartitioningAux => Part::After,
            // Delimiters and fillers, and other layers and views, without which the base layer
            // decodes.
            _ => Part::Unused,
        })
    }

    fn fps(&self) -> Option<f64> {
        self.fps
    }

    fn reorder(&self) -> u32 {
        self.reorder
    }
}

impl H264 {
    /// Notes a sequence parameter set, and returns its key.
    fn take_sps(&mut self, sps: SeqParameterSet) -> u32 {
        self.fps = sps.fps().filter(|fps| (1.0..=1_000.0).contains(fps));
        let vui = sps.vui_parameters.as_ref();
        let restrictions = vui.and_then(|vui| vui.bitstream_restrictions.as_ref());
        self.reorder = match (&sps.pic_order_cnt, restrictions) {
            (PicOrderCntType::TypeTwo, _) => 0,
            (_, Some(restrictions)) => restrictions.max_num_reorder_frames.min(16),
            // A picture that waits for the display takes the place of a reference.
            (_, None) => sps.max_num_ref_frames.min(16),
        };
        let id = sps.id().id();
        self.context.put_seq_param_set(sps);
        u32::from(id)
    }

    fn read_slice(&mut self, header: NalHeader, nal: &RefNal<'_>) -> Result<Part, VideoError> {
        let parsed = SliceHeader::from_bits(&self.context, &mut nal.rbsp_bits(), header, None);
        let (slice, sps, pps) = parsed.map_err(|error| unreadable("slice header", &error))?;
        if slice.redundant_pic_cnt.is_some_and(|count| count > 0) {
            return Ok(Part::Unused);
        }
        let is_idr = slice.idr_pic_id.is_some();
        let is_reference = header.nal_ref_idc() > 0;
        let substitute = is_reference.then(|| skipped(&slice, sps, header.nal_ref_idc()));
        let mut identity = Identity {
            frame_num: slice.frame_num,
            pps: pps.pic_parameter_set_id.id(),
            field: slice.field_pic,
            is_reference,
            idr: slice.idr_pic_id,
            order: slice.pic_order_cnt_lsb,
            is_second: false,
        };
        identity.is_second = self.last.as_ref().is_some_and(|last| identity.pairs(last));
        let differs = self.last.as_ref() != Some(&identity);
        let begins_picture = differs && !identity.is_second;
        let key = match (is_idr, self.is_recovery_point) {
            (true, _) => Some(Key::Closed),
            (false, true) if slice.slice_type.family == SliceFamily::I => Some(Key::Open),
            _ => None,
        };
        let mut order = None;
        if begins_picture {
            self.is_recovery_point = false;
            let resets = resets_order(slice.dec_ref_pic_marking.as_ref());
            let lsb = identity.order.as_ref();
            order = Some(self.order.next(lsb, sps, is_idr, is_reference, resets));
        }
        self.last = Some(identity);
        Ok(Part::Slice(Slice {
            begins_picture,
            key,
            is_reference,
            level: 0,
            order,
            is_leading: None,
            substitute: substitute.flatten(),
            frame: None,
        }))
    }
}

impl Identity {
    /// Whether this is the second field of the frame that `first` began.
    fn pairs(&self, first: &Identity) -> bool {
        let is_pair = matches!(
            (&first.field, &self.field),
            (FieldPic::Field(Field::Top), FieldPic::Field(Field::Bottom))
                | (FieldPic::Field(Field::Bottom), FieldPic::Field(Field::Top))
        );
        is_pair && !first.is_second && first.frame_num == self.frame_num && self.idr.is_none()
    }
}

impl Order {
    fn next(
        &mut self,
        lsb: Option<&PicOrderCountLsb>,
        sps: &SeqParameterSet,
        is_idr: bool,
        is_reference: bool,
        resets: bool,
    ) -> i64 {
        self.pictures += 1;
        if is_idr {
            *self = Order {
                epoch: self.epoch + 1,
                ..Order::default()
            };
        }
        let order = match (&sps.pic_order_cnt, lsb) {
            (
                PicOrderCntType::TypeZero {
                    log2_max_pic_order_cnt_lsb_minus4,
                },
                Some(lsb),
            ) => {
                let (PicOrderCountLsb::Frame(lsb)
                | PicOrderCountLsb::FieldsAbsolute {
                    pic_order_cnt_lsb: lsb,
                    ..
                }) = lsb
                else {
                    return self.epoch * EPOCH + self.pictures;
                };
                let range = 16_i64 << log2_max_pic_order_cnt_lsb_minus4;
                let (lsb, last) = (i64::from(*lsb), self.reference_lsb);
                // (8-3)
                let msb = if lsb < last && last - lsb >= range / 2 {
                    self.reference_msb + range
                } else if lsb > last && lsb - last > range / 2 {
                    self.reference_msb - range
                } else {
                    self.reference_msb
                };
                if is_reference {
                    (self.reference_msb, self.reference_lsb) = (msb, lsb);
                }
                msb + lsb
            }
            // Type 2 displays in decoding order. Type 1 is rare, and is taken for it: its pictures
            // have times in MPEG-TS.
            _ => self.pictures,
        };
        let order = self.epoch * EPOCH + order;
        if resets {
            self.epoch += 1;
            (self.reference_msb, self.reference_lsb) = (0, 0);
        }
        order
    }
}

/// Whether a picture marks all references before as unused and begins the order again (operation
/// 5).
fn resets_order(marking: Option<&DecRefPicMarking>) -> bool {
    match marking {
        Some(DecRefPicMarking::Adaptive(operations)) => operations.iter().any(|operation| {
            matches!(
                operation,
                MemoryManagementControlOperation::AllRefPicturesUnused
            )
        }),
        _ => false,
    }
}

/// Whether supplemental information says that decoding can begin at the next picture.
fn is_recovery_point(nal: &RefNal<'_>) -> bool {
    let mut scratch = Vec::new();
    let mut messages = SeiReader::from_rbsp_bytes(nal.rbsp_bytes(), &mut scratch);
    while let Ok(Some(message)) = messages.next() {
        if message.payload_type == HeaderType::RecoveryPoint {
            return RecoveryPoint::read(&message).is_ok_and(|point| point.recovery_frame_cnt == 0);
        }
    }
    false
}

fn unreadable(what: &'static str, error: &dyn std::fmt::Debug) -> VideoError {
    VideoError::Unreadable {
        what,
        error: format!("{error:?}"),
    }
}
