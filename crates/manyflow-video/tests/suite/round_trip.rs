//! Whole units give the stream back.

use std::time::Duration;

use manyflow_video::{Format, Item, Splitter, VideoError, VideoUnit};

use crate::{OPEN, PYRAMID, index, play, split};

/// The NAL units of a byte stream, without start codes.
fn nals(stream: &[u8]) -> Vec<&[u8]> {
    let mut nals = Vec::new();
    let starts = stream
        .windows(3)
        .enumerate()
        .filter(|(_, code)| *code == [0, 0, 1]);
    let starts: Vec<usize> = starts.map(|(at, _)| at + 3).collect();
    let ends = starts
        .iter()
        .skip(1)
        .map(|start| start - 3)
        .chain([stream.len()]);
    for (&start, end) in starts.iter().zip(ends) {
        let nal = &stream[start..end];
        let zeros = nal.iter().rev().take_while(|&&byte| byte == 0).count();
        nals.push(&nal[..nal.len() - zeros]);
    }
    nals
}

/// All items of units with the same stream, in decoding order.
fn items(units: &[VideoUnit], stream: u8) -> Vec<Item> {
    let mut items: Vec<Item> = units.iter().flat_map(|unit| index(unit).items).collect();
    items.retain(|item| item.stream == stream);
    items.sort_by_key(|item| item.dts);
    items
}

#[test]
fn annex_b_comes_out_as_it_went_in_whatever_the_parts_are() {
    let units = split(PYRAMID, usize::MAX);
    let out = play(Format::AnnexB, units.iter().map(|unit| &unit.bytes[..]));
    assert_eq!(nals(&out), nals(PYRAMID));
    for step in [1, 7, 188, 4_096] {
        assert_eq!(split(PYRAMID, step), units, "in parts of {step} bytes");
    }
}

#[test]
fn pictures_of_annex_b_get_times_from_their_order_counts() {
    let units = split(PYRAMID, usize::MAX);
    assert!(
        units
            .iter()
            .all(|unit| unit.duration == Duration::from_secs(1))
    );
    let items = items(&units, 0);
    let mut shown: Vec<i64> = items.iter().map(|item| item.pts).collect();
    assert!(items.iter().all(|item| item.pts >= item.dts));
    assert!(
        items
            .windows(2)
            .all(|pair| pair[1].dts - pair[0].dts == 3_000)
    );
    assert!(
        !shown.is_sorted(),
        "B pictures are decoded behind the next P picture"
    );
    shown.sort_unstable();
    assert!(
        shown.windows(2).all(|pair| pair[1] - pair[0] == 3_000),
        "{shown:?}"
    );
}

#[test]
fn mpeg_ts_keeps_pictures_audio_and_times() {
    let units = split(OPEN, 1_000);
    let out = play(Format::MpegTs, units.iter().map(|unit| &unit.bytes[..]));
    assert_eq!(out.len() % 188, 0);
    let again = split(&out, 999);
    assert_eq!(again.len(), units.len());
    for (unit, again) in units.iter().zip(&again) {
        assert_eq!(index(unit).streams, index(again).streams);
    }
    for stream in [0, 1] {
        let (before, after) = (items(&units, stream), items(&again, stream));
        assert!(before.len() > 5, "{} items", before.len());
        let times = |items: &[Item]| -> Vec<_> {
            items
                .iter()
                .map(|item| (item.pts, item.dts, item.bytes))
                .collect()
        };
        assert_eq!(times(&before), times(&after), "stream {stream}");
    }
    let video =
        |units: &[VideoUnit]| play(Format::AnnexB, units.iter().map(|unit| &unit.bytes[..]));
    assert_eq!(video(&units), video(&again));
}

#[test]
fn audio_is_first_in_a_unit() {
    for unit in split(OPEN, usize::MAX) {
        let items = index(&unit).items;
        assert!(items.is_sorted_by_key(|item| item.stream == 0));
    }
}

#[test]
fn a_stream_that_cannot_be_used_is_refused_with_the_reason() {
    let refuse = |bytes: &[u8]| {
        let mut splitter = Splitter::new(None);
        let error = splitter.push(bytes).and_then(|()| splitter.finish());
        error.unwrap_err()
    };
    assert!(matches!(refuse(&[b'x'; 1_000]), VideoError::Format));
    let hevc = [&b"\0\0\0\x01\x40\x01\x0c\x01"[..], &[0; 500]].concat();
    assert!(matches!(refuse(&hevc), VideoError::NoTimes));
    let empty = [&[0x47, 0x1f, 0xff, 0x10][..], &[0xff; 184]]
        .concat()
        .repeat(4);
    let error = refuse(&empty);
    assert!(matches!(error, VideoError::NoVideo { .. }), "{error}");
    // Without its sequence parameter set, no slice can be read.
    let stripped: Vec<u8> = nals(PYRAMID)
        .into_iter()
        .filter(|nal| nal[0] & 0x1f != 7)
        .flat_map(|nal| [&b"\0\0\x01"[..], nal].concat())
        .collect();
    let units = Splitter::new(None).push(&stripped).is_ok();
    assert!(units, "slices before the first parameter sets are skipped");
}
