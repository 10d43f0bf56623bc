//! Any input is refused, or is a message between a parent and a child that decodes to the same
//! value when it is encoded again.
#![cfg_attr(fuzzing, no_main)]

use manyflow_layered::hop::{Direction, HopKey, HopMessage};

manyflow_fuzz::target!(|bytes: &[u8]| {
    // Few inputs have a known kind and no MAC, so set them.
    let mut known = bytes.to_vec();
    if let [kind, flags, high, low, ..] = known.as_mut_slice() {
        (*kind, *flags, *high) = (0x41 + *kind % 5, 0, 0);
        *low %= 4;
    }
    for bytes in [bytes, &known] {
        for direction in [Direction::Down, Direction::Up] {
            check(bytes, direction);
        }
    }
});

fn check(bytes: &[u8], direction: Direction) {
    let Ok(message) = HopMessage::decode(bytes, direction, None) else {
        return;
    };
    let key = HopKey::new([1; 16]);
    for key in [None, Some(&key)] {
        let mut out = Vec::new();
        // Soundings and echoes are encoded in their only direction.
        let direction = match message {
            HopMessage::Sounding(sounding) => {
                sounding.encode(key, &mut out);
                Direction::Down
            }
            HopMessage::Echo(echo) => {
                echo.encode(key, &mut out);
                Direction::Up
            }
            HopMessage::Report(stamp, feedbacks) => {
                let feedbacks: Vec<_> = feedbacks.iter().collect();
                stamp.encode_report(&feedbacks, key, &mut out);
                Direction::Up
            }
            HopMessage::Experiment(stamp, experiment) => {
                stamp.encode_experiment(experiment, direction, key, &mut out);
                direction
            }
            HopMessage::Repair { stamp, wait, gaps } => {
                let gaps: Vec<_> = gaps.iter().collect();
                stamp.encode_repair(wait, &gaps, key, &mut out);
                Direction::Up
            }
        };
        assert_eq!(out.len(), bytes.len() + 16 * usize::from(key.is_some()));
        let again = HopMessage::decode(&out, direction, key);
        if let HopMessage::Report(stamp, feedbacks) = message {
            let Ok(HopMessage::Report(same, others)) = again else {
                panic!("{again:?}");
            };
            assert!(same == stamp && others.iter().eq(feedbacks.iter()));
        } else if let HopMessage::Repair { stamp, wait, gaps } = message {
            let Ok(HopMessage::Repair {
                stamp: same,
                wait: other,
                gaps: others,
            }) = again
            else {
                panic!("{again:?}");
            };
            assert!((same, other) == (stamp, wait) && others.iter().eq(gaps.iter()));
        } else {
            assert_eq!(again, Ok(message));
        }
    }
}
