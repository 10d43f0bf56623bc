//! Tests of the messages between parents and children.

use core::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::repair::GroupGaps;
use crate::{Experiment, Feedback};

fn key(byte: u8) -> HopKey {
    HopKey::new([byte; 16])
}

fn sounding() -> Sounding {
    Sounding {
        nonce: 0x0102_0304_0506_0708,
        number: 0x1112_1314,
        packets: 0x2122,
        bytes: 0x3132_3334,
    }
}

#[test]
fn the_bytes_of_a_sounding_are_those_of_the_table() {
    let mut out = vec![0xff];
    sounding().encode(None, &mut out);
    #[rustfmt::skip]
    let bytes = [
        0xff, // was there before
        0x41, 0, 0, 0,
        1, 2, 3, 4, 5, 6, 7, 8,
        0x11, 0x12, 0x13, 0x14,
        0, 0, 0, 0, 0, 0, 0x21, 0x22,
        0, 0, 0, 0, 0x31, 0x32, 0x33, 0x34,
    ];
    assert_eq!(out, bytes);
    assert!(is_hop_message(&out[1..]) && !is_hop_message(&out) && !is_hop_message(&[]));
}

#[test]
fn messages_differ_from_those_of_amt_in_the_first_byte() {
    // The version of AMT is 0, in the high half of the first byte.
    for first in 0..=255_u8 {
        assert_eq!(is_hop_message(&[first]), (0x40..0x50).contains(&first));
    }
}

#[test]
fn a_key_is_needed_at_both_ends_or_at_none() {
    let (mut open, mut sealed) = (Vec::new(), Vec::new());
    sounding().encode(None, &mut open);
    sounding().encode(Some(&key(1)), &mut sealed);
    let decode = |bytes, key: Option<HopKey>| {
        HopMessage::decode(bytes, Direction::Down, key.as_ref()).map(|_| ())
    };
    assert_eq!(decode(&open, None), Ok(()));
    assert_eq!(decode(&sealed, Some(key(1))), Ok(()));
    assert_eq!(decode(&open, Some(key(1))), Err(HopWireError::Unsealed));
    assert_eq!(decode(&sealed, None), Err(HopWireError::NoKey));
    assert_eq!(decode(&sealed, Some(key(2))), Err(HopWireError::Mac));
    // A message that is reflected to its sender.
    let up = HopMessage::decode(&sealed, Direction::Up, Some(&key(1)));
    assert_eq!(up, Err(HopWireError::Mac));
}

#[test]
fn the_key_does_not_appear_in_debug_output() {
    assert_eq!(format!("{:?}", key(7)), "HopKey(..)");
}

#[test]
fn counts_that_are_not_those_of_the_body_are_refused() {
    let feedback = Feedback {
        source: 1,
        session: 2,
        group: 3,
        more: false,
        request: 4,
        reports: 1,
        congested: 0,
        minimum: 5,
        maximum: 6,
        population: 1,
        hold_us: 0,
        rtt_us: 0,
    };
    let mut out = Vec::new();
    Stamp::default().encode_report(&[feedback; 2], None, &mut out);
    assert_eq!(out.len(), 100);
    for count in 0..=255 {
        out[3] = count;
        let decoded = HopMessage::decode(&out, Direction::Up, None);
        assert_eq!(decoded.is_ok(), count == 2, "{count}");
    }
    // A body of another kind.
    out[3] = 2;
    out[20] = 1;
    let decoded = HopMessage::decode(&out, Direction::Up, None);
    assert_eq!(decoded, Err(HopWireError::Other));
}

fn any_feedback() -> impl Strategy<Value = Feedback> {
    let numbers = prop::array::uniform7(any::<u32>());
    (numbers, 0..32_u8, any::<bool>(), any::<u16>()).prop_map(|(n, group, more, request)| {
        Feedback {
            source: n[0],
            session: n[1],
            group,
            more,
            request,
            reports: n[2].max(n[3]),
            congested: n[2].min(n[3]),
            minimum: n[4].min(n[5]),
            maximum: n[4].max(n[5]),
            population: n[6],
            hold_us: n[0] ^ n[1],
            rtt_us: n[2] ^ n[4],
        }
    })
}

fn any_stamp() -> impl Strategy<Value = Stamp> {
    let fields = (any::<u64>(), any::<u32>(), any::<u32>());
    fields.prop_map(|(nonce, number, counter)| Stamp {
        nonce,
        number,
        counter,
    })
}

proptest! {
    #[test]
    fn reports_survive_encoding(
        stamp in any_stamp(),
        feedbacks in prop::collection::vec(any_feedback(), 0..=FEEDBACKS_MAX),
        has_key in any::<bool>(),
    ) {
        let key = has_key.then(|| key(3));
        let mut out = Vec::new();
        stamp.encode_report(&feedbacks, key.as_ref(), &mut out);
        let decoded = HopMessage::decode(&out, Direction::Up, key.as_ref());
        let Ok(HopMessage::Report(found, bodies)) = decoded else {
            return Err(TestCaseError::fail(format!("{decoded:?}")));
        };
        prop_assert_eq!(found, stamp);
        prop_assert_eq!(bodies.iter().collect::<Vec<_>>(), feedbacks);
        for length in 0..out.len() {
            prop_assert!(HopMessage::decode(&out[..length], Direction::Up, key.as_ref()).is_err());
        }
    }

    #[test]
    fn other_messages_survive_encoding(
        stamp in any_stamp(), counts in any::<(u64, u64)>(), child in any::<u32>(),
        session in any::<u32>(), group in 0..32_u8, is_down in any::<bool>(),
    ) {
        let key = key(3);
        let (nonce, number) = (stamp.nonce, stamp.number);
        let (packets, bytes) = counts;
        let mut out = Vec::new();
        let sounding = Sounding { nonce, number, packets, bytes };
        sounding.encode(Some(&key), &mut out);
        let decoded = HopMessage::decode(&out, Direction::Down, Some(&key));
        prop_assert_eq!(decoded, Ok(HopMessage::Sounding(sounding)));
        out.clear();
        let echo = Echo { nonce, number, child, packets, bytes };
        echo.encode(Some(&key), &mut out);
        let decoded = HopMessage::decode(&out, Direction::Up, Some(&key));
        prop_assert_eq!(decoded, Ok(HopMessage::Echo(echo)));
        out.clear();
        let experiment = Experiment { session, group };
        let direction = if is_down { Direction::Down } else { Direction::Up };
        stamp.encode_experiment(experiment, direction, Some(&key), &mut out);
        let decoded = HopMessage::decode(&out, direction, Some(&key));
        prop_assert_eq!(decoded, Ok(HopMessage::Experiment(stamp, experiment)));
    }

    #[test]
    fn a_sealed_message_in_which_one_bit_is_changed_is_refused(
        stamp in any_stamp(), feedback in any_feedback(), place in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let key = key(9);
        let mut out = Vec::new();
        stamp.encode_report(&[feedback], Some(&key), &mut out);
        let place = place.index(out.len());
        out[place] ^= 1 << bit;
        prop_assert!(HopMessage::decode(&out, Direction::Up, Some(&key)).is_err());
    }

    #[test]
    fn any_bytes_are_refused_or_are_a_message(
        kind in 0x3f..0x47_u8, rest in prop::collection::vec(any::<u8>(), 0..200),
        zeros in any::<bool>(),
    ) {
        let mut bytes: Vec<u8> = [kind].into_iter().chain(rest).collect();
        if zeros {
            bytes.iter_mut().skip(1).take(3).for_each(|byte| *byte = 0);
        }
        for length in 0..=bytes.len() {
            let _ = HopMessage::decode(&bytes[..length], Direction::Up, None);
            let _ = HopMessage::decode(&bytes[..length], Direction::Down, Some(&key(1)));
        }
    }
}

#[test]
fn a_request_for_repairs_decodes_to_its_groups_and_refuses_others() {
    let stamp = Stamp {
        nonce: 1,
        number: 2,
        counter: 3,
    };
    let groups = [0, 31].map(|rank| GroupGaps {
        session: 7,
        rank,
        next: 0x0102_0304,
        missing: 1 << 127 | 2,
    });
    let wait = Duration::from_millis(120);
    let mut out = Vec::new();
    stamp.encode_repair(wait, &groups, None, &mut out);
    assert_eq!(out.len(), 24 + 2 * 28);
    let decoded = HopMessage::decode(&out, Direction::Up, None);
    let Ok(HopMessage::Repair {
        stamp: found,
        wait: waits,
        gaps,
    }) = decoded
    else {
        panic!("{decoded:?}");
    };
    assert_eq!((found, waits), (stamp, wait));
    assert_eq!(gaps.iter().collect::<Vec<_>>(), groups);
    for (place, value) in [(3, 1), (28, 32), (29, 1), (31, 1)] {
        let mut wrong = out.clone();
        wrong[place] = value;
        let refused = HopMessage::decode(&wrong, Direction::Up, None);
        assert!(matches!(refused, Err(HopWireError::Length(_))), "{place}");
    }
}
