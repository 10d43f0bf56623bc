//! Prefixes have all that their pictures need.

use std::collections::BTreeSet;

use h264_reader::Context;
use h264_reader::nal::pps::PicParameterSet;
use h264_reader::nal::slice::SliceHeader;
use h264_reader::nal::sps::SeqParameterSet;
use h264_reader::nal::{Nal, RefNal, UnitType};
use manyflow_video::{Begin, Format, Player};

use crate::{LONG, OPEN, PYRAMID, ends, index, play, split};

/// The first slice of a picture.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Picture {
    bytes: Vec<u8>,
    frame_num: u16,
    /// That of the next picture.
    next_num: u16,
    is_reference: bool,
    is_idr: bool,
}

/// The pictures of a byte stream of one slice for each, as an independent parser reads them.
fn pictures(stream: &[u8]) -> Vec<Picture> {
    let (mut context, mut pictures) = (Context::new(), Vec::new());
    let mut reader = h264_reader::annexb::AnnexBReader::accumulate(|nal: RefNal<'_>| {
        if !nal.is_complete() {
            return h264_reader::push::NalInterest::Buffer;
        }
        let header = nal.header().unwrap();
        match header.nal_unit_type() {
            UnitType::SeqParameterSet => {
                context.put_seq_param_set(SeqParameterSet::from_bits(nal.rbsp_bits()).unwrap());
            }
            UnitType::PicParameterSet => {
                let pps = PicParameterSet::from_bits(&context, nal.rbsp_bits()).unwrap();
                context.put_pic_param_set(pps);
            }
            UnitType::SliceLayerWithoutPartitioningIdr
            | UnitType::SliceLayerWithoutPartitioningNonIdr => {
                let slice = SliceHeader::from_bits(&context, &mut nal.rbsp_bits(), header, None);
                let (slice, sps, _) = slice.unwrap();
                let frame_num = slice.frame_num;
                let is_reference = header.nal_ref_idc() > 0;
                let range = 1 << sps.log2_max_frame_num();
                let mut bytes = Vec::new();
                std::io::Read::read_to_end(&mut nal.reader(), &mut bytes).unwrap();
                pictures.push(Picture {
                    bytes,
                    frame_num,
                    next_num: (frame_num + u16::from(is_reference)) % range,
                    is_reference,
                    is_idr: header.nal_unit_type() == UnitType::SliceLayerWithoutPartitioningIdr,
                });
            }
            _ => {}
        }
        h264_reader::push::NalInterest::Ignore
    });
    reader.push(stream);
    reader.reset();
    drop(reader);
    pictures
}

/// Whether `frame_num` has no gap: it increases by one behind each reference (7.4.3).
fn is_continuous(pictures: &[Picture]) -> bool {
    let follows = |pair: &[Picture]| pair[1].is_idr || pair[1].frame_num == pair[0].next_num;
    pictures.windows(2).all(follows)
}

#[test]
fn every_prefix_of_a_closed_group_has_the_references_of_its_pictures() {
    let units = split(PYRAMID, 1_000);
    assert_eq!(units.len(), 2);
    let all = pictures(PYRAMID);
    assert_eq!(all.len(), 60);
    assert!(is_continuous(&all));
    let mut counts = Vec::new();
    for end in ends(&units[0]).into_iter().flat_map(|end| [end - 1, end]) {
        let got = pictures(&play(Format::AnnexB, [&units[0].bytes[..end]]));
        assert!(is_continuous(&got), "{end}: {got:?}");
        // The pictures are in decoding order, and those left out are not references of any.
        let kept: BTreeSet<&Picture> = got.iter().collect();
        let last = all[..30].iter().rposition(|picture| kept.contains(picture));
        let before = &all[..last.map_or(0, |last| last + 1)];
        let in_order: Vec<&Picture> = before
            .iter()
            .filter(|picture| kept.contains(picture))
            .collect();
        assert!(in_order.iter().copied().eq(&got), "{end}");
        let needed = before.iter().filter(|picture| picture.is_reference);
        assert!(
            needed.clone().all(|picture| kept.contains(picture)),
            "{end}"
        );
        counts.push(got.len());
    }
    assert!(counts.is_sorted(), "{counts:?}");
    assert_eq!((counts.first(), counts.last()), (Some(&0), Some(&30)));
}

#[test]
fn pictures_that_no_other_needs_go_evenly_over_the_unit() {
    let units = split(PYRAMID, usize::MAX);
    let items = index(&units[0]).items;
    let first = items.iter().position(|item| !item.is_reference()).unwrap();
    assert!(items[first..].iter().all(|item| !item.is_reference()));
    let mut half: Vec<u16> = items[first..].iter().map(|item| item.place).collect();
    half.truncate(half.len().div_ceil(2));
    half.sort_unstable();
    let gaps: Vec<u16> = half.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (2..=5).contains(gap)), "{half:?}");
}

#[test]
fn leading_pictures_need_the_references_of_the_unit_before() {
    let units = split(OPEN, usize::MAX);
    assert_eq!(index(&units[0]).begin, Begin::Closed);
    let open = index(&units[1]);
    assert_eq!(open.begin, Begin::Open);
    let leading = open.items.iter().filter(|item| item.is_leading()).count();
    assert_eq!(leading, 2);
    let end_of_references = |unit: usize| {
        let items = index(&units[unit]).items;
        let last = items.iter().rposition(|item| item.is_reference()).unwrap();
        ends(&units[unit])[last]
    };
    let pictures = |cut: usize, number: u32| {
        let mut player = Player::new(Format::MpegTs);
        player
            .play(0, &units[0].bytes[..cut], &mut Vec::new())
            .unwrap();
        player
            .play(number, &units[1].bytes, &mut Vec::new())
            .unwrap()
            .pictures
    };
    let whole = pictures(end_of_references(0), 1);
    assert_eq!(pictures(end_of_references(0) - 1, 1), whole - leading);
    assert_eq!(pictures(units[0].bytes.len(), 2), 0, "a unit is missing");
    let mut player = Player::new(Format::MpegTs);
    let played = player.play(1, &units[1].bytes, &mut Vec::new()).unwrap();
    let without_leading = played.pictures_sent - leading;
    assert_eq!(played.pictures, without_leading, "a receiver begins here");
}

#[test]
fn a_group_that_is_continued_needs_the_references_of_all_its_units() {
    let units = split(LONG, usize::MAX);
    let keys: Vec<bool> = units.iter().map(|unit| unit.is_closed).collect();
    assert_eq!(
        keys,
        [true, false, false],
        "a group of pictures of three seconds"
    );
    let pictures = |cut: usize| {
        let mut player = Player::new(Format::AnnexB);
        player
            .play(0, &units[0].bytes[..cut], &mut Vec::new())
            .unwrap();
        player
            .play(1, &units[1].bytes, &mut Vec::new())
            .unwrap()
            .pictures
    };
    assert!(pictures(units[0].bytes.len()) > 0);
    let items = index(&units[0]).items;
    let last = items.iter().rposition(|item| item.is_reference()).unwrap();
    assert!(pictures(ends(&units[0])[last]) > 0);
    assert_eq!(pictures(ends(&units[0])[last] - 1), 0);
}

#[test]
fn substitutes_keep_the_count_of_references_without_a_gap() {
    // Three units of one group, the first of which is cut at every item.
    let units = split(LONG, usize::MAX);
    let items = index(&units[0]).items;
    let last = items.iter().rposition(|item| item.is_reference()).unwrap();
    let ends = ends(&units[0]);
    for end in ends.iter().skip(1).map(|end| end - 1) {
        let prefixes = [&units[0].bytes[..end], &units[1].bytes, &units[2].bytes];
        let mut player = Player::new(Format::AnnexB);
        let (mut out, mut substitutes, mut shown) = (Vec::new(), 0, 0);
        for (number, prefix) in (0..).zip(prefixes) {
            let played = player.play(number, prefix, &mut out).unwrap();
            substitutes += played.substitutes;
            shown += played.pictures;
        }
        let got = pictures(&out);
        assert!(is_continuous(&got), "{end}");
        assert_eq!(got.len(), shown + substitutes);
        let lacks_references = end < ends[last];
        assert_eq!(substitutes > 0, lacks_references, "{end}");
        assert_eq!(
            shown < 20,
            lacks_references,
            "{end}: {shown}, later units need all references"
        );
    }
}
