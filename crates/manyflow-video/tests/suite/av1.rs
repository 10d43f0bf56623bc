//! AV1: frames that are not shown, whole units, and prefixes.

use manyflow_video::{Format, Index, Item, Player, Splitter};

use crate::{AV1, ends, index, obus_of, play, split};

/// The temporal units of a stream in IVF, with their times in parts of a second.
fn temporal_units(ivf: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(ivf[at..at + 4].try_into().unwrap());
    let (denominator, numerator) = (u64::from(word(16)), u64::from(word(20)));
    let (mut units, mut rest) = (Vec::new(), &ivf[32..]);
    while let Some((head, behind)) = rest.split_first_chunk::<12>() {
        let length = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
        let time = u64::from_le_bytes(head[4..].try_into().unwrap());
        units.push((
            time * numerator * 90_000 / denominator,
            behind[..length].to_vec(),
        ));
        rest = &behind[length..];
    }
    units
}

#[test]
fn whole_units_give_the_temporal_units_back() {
    for step in [7, 1_000, usize::MAX] {
        let units = split(AV1, step);
        assert!(units.len() >= 2 && units.iter().all(|unit| unit.is_closed));
        let written = play(Format::MpegTs, units.iter().map(|unit| &unit.bytes[..]));
        assert_eq!(
            temporal_units(&written),
            temporal_units(AV1),
            "steps of {step}"
        );
        assert_eq!(written[12..16], AV1[12..16], "width and height");
    }
    let units = split(AV1, usize::MAX);
    let written = play(Format::AnnexB, units.iter().map(|unit| &unit.bytes[..]));
    assert_eq!(written, obus_of(AV1));
}

#[test]
fn obus_without_times_get_those_of_the_given_rate() {
    let obus = obus_of(AV1);
    let mut splitter = Splitter::new(Some(30.0));
    splitter.push(&obus).unwrap();
    splitter.finish().unwrap();
    let units: Vec<_> = std::iter::from_fn(|| splitter.poll_unit()).collect();
    assert_eq!(units.len(), split(AV1, usize::MAX).len());
    for unit in &units {
        let mut shown: Vec<i64> = (index(unit).items.iter())
            .filter(|item| !item.is_hidden())
            .map(|item| item.pts)
            .collect();
        shown.sort_unstable();
        assert!(
            shown.windows(2).all(|pair| pair[1] - pair[0] == 3_000),
            "{shown:?}"
        );
    }
    let mut splitter = Splitter::new(None);
    let ended = splitter.push(&obus).and_then(|()| splitter.finish());
    assert!(ended.is_err(), "the stream announces no rate");
}

#[test]
fn hidden_frames_are_sent_early_and_written_with_the_next_that_is_shown() {
    let units = split(AV1, usize::MAX);
    let unit = &units[0];
    let Index { items, .. } = index(unit);
    let hidden = |item: &&Item| item.is_hidden();
    assert!(
        items.iter().any(|item| hidden(&item)),
        "the fixture has some"
    );
    let last_reference = items.iter().rposition(Item::is_reference).unwrap();
    let last_hidden = items.iter().rposition(|item| item.is_hidden()).unwrap();
    assert!(last_hidden <= last_reference);
    for (count, end) in (1..).zip(ends(unit)) {
        let (mut player, mut out) = (Player::new(Format::MpegTs), Vec::new());
        let played = player.play(0, &unit.bytes[..end], &mut out).unwrap();
        let shown = items[..count]
            .iter()
            .filter(|item| !item.is_hidden())
            .count();
        assert_eq!((played.pictures, played.is_av1), (shown, true));
        assert_eq!(
            temporal_units(&out).len(),
            shown,
            "each has one frame that is shown"
        );
    }
}
