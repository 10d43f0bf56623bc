//! Any bytes are refused as a stream of video, or become units that play; those behind the start of
//! a byte stream, of a packet of MPEG-TS or of a stream of AV1, too. Any prefix that claims to be a
//! unit is refused or played, within memory that its own length bounds.
#![cfg_attr(fuzzing, no_main)]

use manyflow_video::{Format, Index, Player, Splitter};

/// A temporal delimiter and the sequence header of a stream of AV1.
const SEQUENCE: [u8; 14] = [
    0x12, 0x00, 0x0a, 0x0a, 0x00, 0x00, 0x00, 0x02, 0xaf, 0xf7, 0x9b, 0x5f, 0x20, 0x08,
];

manyflow_fuzz::target!(|bytes: &[u8]| {
    split(bytes);
    let nals: Vec<u8> = bytes
        .chunks(40)
        .flat_map(|nal| [&b"\0\0\x01"[..], nal].concat())
        .collect();
    split(&nals);
    let packets: Vec<u8> = bytes
        .chunks(187)
        .flat_map(|packet| [&b"\x47"[..], packet].concat())
        .collect();
    split(&packets);
    let obus: Vec<u8> = bytes
        .chunks(40)
        .flat_map(|obu| [&[0x32, obu.len() as u8][..], obu].concat())
        .collect();
    split(&[&SEQUENCE[..], &obus].concat());
    split(&[&b"\x12\x00"[..], bytes].concat());
    play(0, bytes);
    play(1, &[&b"MFV1"[..], bytes].concat());
});

fn split(stream: &[u8]) {
    let mut splitter = Splitter::new(Some(25.0));
    let pushed = stream.chunks(100).try_for_each(|part| splitter.push(part));
    let _ = pushed.and_then(|()| splitter.finish());
    for number in 0.. {
        let Some(unit) = splitter.poll_unit() else {
            break;
        };
        assert!(Index::decode(&unit.bytes).is_ok());
        play(number, &unit.bytes);
    }
}

fn play(number: u32, prefix: &[u8]) {
    for format in [Format::MpegTs, Format::AnnexB] {
        let mut out = Vec::new();
        let _ = Player::new(format).play(number, prefix, &mut out);
        // A packet of MPEG-TS for a few bytes at worst, and each item has 16 in the index.
        assert!(out.len() <= 188 * (prefix.len() / 8 + 4));
    }
}
