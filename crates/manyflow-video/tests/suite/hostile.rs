//! Any bytes are refused, or give bytes.

use manyflow_video::{Format, Index, Player, Splitter};
use proptest::prelude::*;

use crate::{AV1, OPEN, PYRAMID, obus_of, split};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_damaged_stream_ends_or_goes_on(
        is_ts: bool,
        damage in prop::collection::vec((0_usize..30_000, any::<u8>()), 1..20),
        step in 1_usize..5_000,
    ) {
        let mut stream = if is_ts { OPEN } else { PYRAMID }.to_vec();
        for (at, byte) in damage {
            let length = stream.len();
            stream[at % length] = byte;
        }
        let mut splitter = Splitter::new(Some(25.0));
        let pushed = stream.chunks(step).try_for_each(|part| splitter.push(part));
        let _ = pushed.and_then(|()| splitter.finish());
        let mut player = Player::new(Format::MpegTs);
        for number in 0.. {
            let Some(unit) = splitter.poll_unit() else {
                break;
            };
            let played = player.play(number, &unit.bytes, &mut Vec::new());
            prop_assert!(played.is_ok(), "{played:?}");
        }
    }

    #[test]
    fn damaged_av1_ends_or_goes_on(
        is_ivf: bool,
        damage in prop::collection::vec((0_usize..30_000, any::<u8>()), 0..20),
        step in 1_usize..5_000,
    ) {
        let mut stream = if is_ivf { AV1.to_vec() } else { obus_of(AV1) };
        for (at, byte) in damage {
            let length = stream.len();
            stream[at % length] = byte;
        }
        let mut splitter = Splitter::new(Some(25.0));
        let pushed = stream.chunks(step).try_for_each(|part| splitter.push(part));
        let _ = pushed.and_then(|()| splitter.finish());
        let mut player = Player::new(Format::MpegTs);
        for number in 0.. {
            let Some(unit) = splitter.poll_unit() else {
                break;
            };
            let played = player.play(number, &unit.bytes, &mut Vec::new());
            prop_assert!(played.is_ok(), "{played:?}");
        }
    }

    #[test]
    fn a_damaged_unit_is_refused_or_written(
        damage in prop::collection::vec((0_usize..2_000, any::<u8>()), 1..10),
        cut in 0_usize..20_000,
    ) {
        let mut unit = split(OPEN, usize::MAX)[1].bytes.clone();
        for (at, byte) in damage {
            let length = unit.len();
            unit[at % length] = byte;
        }
        unit.truncate(cut);
        for format in [Format::MpegTs, Format::AnnexB] {
            let mut out = Vec::new();
            let _ = Player::new(format).play(0, &unit, &mut out);
            prop_assert!(out.len() <= 2 * unit.len() + 188 * 200);
        }
        if let Ok((index, length)) = Index::decode(&unit) {
            prop_assert!(length <= unit.len() && index.items.len() * 16 <= length);
        }
    }
}
