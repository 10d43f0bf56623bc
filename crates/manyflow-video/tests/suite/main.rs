//! Tests of manyflow-video.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod av1;
mod hostile;
mod order;
mod round_trip;

use manyflow_video::{Format, Index, Player, Splitter, VideoUnit};

/// H.264 of x264 as Annex B: closed groups of 30 pictures, with B pictures that others need.
pub(crate) const PYRAMID: &[u8] = include_bytes!("../fixtures/pyramid.h264");
/// H.264 of x264 as Annex B: one group of 45 pictures, 15 per second.
pub(crate) const LONG: &[u8] = include_bytes!("../fixtures/long.h264");
/// H.264 of x264 with AAC in MPEG-TS: open groups of 27 pictures, of which two are leading.
pub(crate) const OPEN: &[u8] = include_bytes!("../fixtures/open.ts");

/// AV1 of libaom in IVF: groups of 30 frames, with alternate references that are hidden at first.
pub(crate) const AV1: &[u8] = include_bytes!("../fixtures/hidden.ivf");

/// Returns the OBUs of a stream in IVF.
pub(crate) fn obus_of(ivf: &[u8]) -> Vec<u8> {
    let (mut obus, mut rest) = (Vec::new(), &ivf[32..]);
    while let Some((head, behind)) = rest.split_first_chunk::<12>() {
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        obus.extend_from_slice(&behind[..length]);
        rest = &behind[length..];
    }
    obus
}

/// Cuts a stream into units, in parts of `step` bytes.
pub(crate) fn split(stream: &[u8], step: usize) -> Vec<VideoUnit> {
    let mut splitter = Splitter::new(None);
    let mut units = Vec::new();
    for part in stream.chunks(step) {
        splitter.push(part).unwrap();
        units.extend(std::iter::from_fn(|| splitter.poll_unit()));
    }
    splitter.finish().unwrap();
    units.extend(std::iter::from_fn(|| splitter.poll_unit()));
    units
}

pub(crate) fn index(unit: &VideoUnit) -> Index {
    Index::decode(&unit.bytes).unwrap().0
}

/// The places at which the items of a unit end.
pub(crate) fn ends(unit: &VideoUnit) -> Vec<usize> {
    let (index, head) = Index::decode(&unit.bytes).unwrap();
    let mut end = head;
    let ends = index.items.iter().map(|item| {
        end += item.bytes as usize;
        end
    });
    ends.collect()
}

/// Plays units that follow each other.
pub(crate) fn play<'a>(format: Format, prefixes: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let (mut player, mut out) = (Player::new(format), Vec::new());
    for (number, prefix) in (0..).zip(prefixes) {
        player.play(number, prefix, &mut out).unwrap();
    }
    out
}
