//! Any payload is refused, or is pieces that decode to the same values when they are encoded again.
//! An assembler that gets pieces of any sender, at any times, stays within its memory and delivers
//! units in the order of their numbers. Any bits of a test picture decode.
#![cfg_attr(fuzzing, no_main)]

use core::time::Duration;

use arbitrary::Arbitrary;
use manyflow_core::Time;
use manyflow_fuzz::each;
use manyflow_layered::unit::pattern;
use manyflow_layered::unit::{Assembler, AssemblerConfig, AssemblerEvent, Latency, Piece};

/// A piece, and the time since the piece before.
#[derive(Debug, Arbitrary)]
enum Input {
    /// A piece of one of the next units of the pattern `unit`, in 100 bytes.
    Near {
        unit: u8,
        offset: u8,
        length: u8,
        wait_ms: u8,
    },
    /// A piece that claims anything.
    Far {
        header: [u8; 16],
        length: u8,
        wait_ms: u16,
    },
    /// The sender begins again.
    Restart { number: u32, time_us: u32 },
    /// The owner asks for units.
    Poll,
}

const BYTES_MAX: usize = 500;
const UNITS_MAX: usize = 4;

manyflow_fuzz::target!(|bytes: &[u8]| {
    decode(bytes);
    decode_picture(bytes);
    let mut start = (u32::MAX - 3, u32::MAX - 200_000);
    for latency in [
        Latency::Fixed(Duration::from_millis(100)),
        Latency::Adaptive {
            min: Duration::ZERO,
            max: Duration::from_secs(1),
        },
    ] {
        let mut assembler = Assembler::new(AssemblerConfig {
            latency,
            unit_bytes_max: 80,
            units_max: UNITS_MAX,
            bytes_max: BYTES_MAX,
        });
        let mut now = Time::ZERO;
        for input in each(bytes) {
            handle(&mut assembler, &mut now, &mut start, input);
            assert!(assembler.bytes() <= BYTES_MAX);
        }
        poll(&mut assembler, Time::MAX);
        assert_eq!((assembler.bytes(), assembler.poll_timeout()), (0, None));
    }
});

fn decode(payload: &[u8]) {
    if let Ok(pieces) = Piece::decode_all(payload).collect::<Result<Vec<_>, _>>() {
        let encode = |(piece, bytes): &(Piece, &[u8])| {
            assert!(piece.offset as usize + bytes.len() <= piece.length as usize);
            [&piece.encode()[..], bytes].concat()
        };
        let again: Vec<u8> = pieces.iter().flat_map(encode).collect();
        assert_eq!(again, payload);
    }
}

/// Decodes the bits of a picture behind a header that is valid, or nearly so.
fn decode_picture(bytes: &[u8]) {
    let [width, height, planes, bits @ ..] = bytes else {
        return;
    };
    let header = [0, 0, 0, 0, 0, width % 64, 0, height % 64, planes % 16];
    if let Ok(picture) = pattern::decode(&[&header[..], bits].concat()) {
        assert_eq!(picture.points.len(), picture.size.points());
    }
    let _ = pattern::decode(bytes);
}

fn handle(assembler: &mut Assembler, now: &mut Time, start: &mut (u32, u32), input: Input) {
    let zeros = [0; 255];
    match input {
        Input::Near {
            unit,
            offset,
            length,
            wait_ms,
        } => {
            *now += Duration::from_millis(wait_ms.into());
            let unit = u32::from(unit % 16);
            let piece = Piece {
                unit: start.0.wrapping_add(unit),
                time_us: start.1.wrapping_add(unit * 100_000),
                offset: u32::from(offset % 100),
                length: 100,
            };
            assembler.handle_piece(*now, piece, &zeros[..usize::from(length % 40)]);
        }
        Input::Far {
            header,
            length,
            wait_ms,
        } => {
            *now += Duration::from_millis(wait_ms.into());
            let payload = [&header[..], &zeros[..usize::from(length)]].concat();
            for (piece, bytes) in Piece::decode_all(&payload).flatten() {
                assembler.handle_piece(*now, piece, bytes);
            }
        }
        Input::Restart { number, time_us } => *start = (number, time_us),
        Input::Poll => poll(assembler, *now),
    }
}

/// Takes all units that are due.
fn poll(assembler: &mut Assembler, now: Time) {
    let restarted = core::iter::from_fn(|| assembler.poll_event())
        .any(|event| matches!(event, AssemblerEvent::Restarted { .. }));
    let mut before: Option<u32> = None;
    while let Some(unit) = assembler.poll_unit(now) {
        assert!(!unit.prefix.is_empty() && unit.prefix.len() <= 80);
        assert_eq!(unit.complete, unit.prefix.len() == unit.length as usize);
        let follows = |before: u32| unit.number.wrapping_sub(before) as i32 > 0;
        assert!(restarted || before.is_none_or(follows));
        before = Some(unit.number);
    }
}
