use proptest::prelude::*;

use super::*;
use crate::{Gap, Reason};

pub(super) fn any_body() -> impl Strategy<Value = Body> {
    // Small numbers coincide with each other; arbitrary ones stand for an attacker's.
    let number = || prop_oneof![4 => 0u32..40, 1 => any::<u32>()];
    let congestion = (any::<u32>(), any::<u32>(), any::<i32>(), any::<bool>());
    let congestion = congestion.prop_map(|(cwnd, rtt_us, feedback, answered)| Congestion {
        cwnd,
        rtt_us,
        feedback: WindowChange(feedback),
        answered,
    });
    let gap = (0u16..40, prop_oneof![0u16..5, any::<u16>()]);
    let gap = gap.prop_map(|(offset, frames)| Gap { offset, frames });
    let missing = proptest::array::uniform3(gap);
    let ack = (
        number(),
        number(),
        any::<u32>(),
        any::<(i32, bool, bool)>(),
        missing,
    );
    let reason = prop_oneof![
        Just(Reason::Unknown),
        Just(Reason::Refused),
        Just(Reason::TimedOut),
        Just(Reason::Aborted)
    ];
    prop_oneof![
        1 => any::<u32>().prop_map(|credit| Body::Open { credit }),
        1 => any::<u32>().prop_map(|credit| Body::Accept { credit }),
        8 => (number(), any::<u32>(), congestion).prop_map(|(sequence, key, congestion)| {
            Body::Data(Data { sequence, key, congestion })
        }),
        8 => ack.prop_map(|(cumulative, of, credit, feedback, missing)| Body::Ack(Ack {
            cumulative,
            of,
            credit,
            feedback: Feedback {
                change: WindowChange(feedback.0),
                answered: feedback.1,
                averaged: feedback.2,
            },
            missing,
        })),
        1 => number().prop_map(|sequence| Body::Close { sequence }),
        1 => Just(Body::Probe),
        1 => Just(Body::Alive),
        1 => reason.prop_map(Body::Reset),
    ]
}

proptest! {
    #[test]
    fn with_one_member_every_segment_passes_unchanged(
        bodies in proptest::collection::vec((any::<bool>(), any_body(), 0u32..2000), 1..200),
    ) {
        let mut switch = switch(SwitchConfig::default(), 1);
        hear(&mut switch, 0.0, PEER, Body::Open { credit: UNLIMITED });
        sent(&mut switch);
        for (inbound, body, length) in bodies {
            let (from, to) = if inbound { (PEER, member(0)) } else { (member(0), PEER) };
            let segment = Segment { connection: CONNECTION, body };
            switch.handle_segment(at(1.0), from, &segment, Length(length));
            prop_assert_eq!(switch.poll_transmit(), Some((to, segment, Length(length))));
            prop_assert_eq!(switch.poll_transmit(), None);
            prop_assert_eq!(switch.poll_timeout(), None);
        }
    }
}

#[test]
fn a_second_member_continues_with_the_numbers_of_the_first() {
    let mut switch = opened(SwitchConfig::default(), 1, UNLIMITED);
    for sequence in [0, 1, 3] {
        hear(&mut switch, 0.1, PEER, data(sequence));
        hear(&mut switch, 0.1, member(0), data(sequence));
    }
    sent(&mut switch);
    assert_eq!(switch.join(at(0.2)), MemberId(1));
    assert_eq!(
        sent(&mut switch),
        [(member(1), Body::Open { credit: UNLIMITED })]
    );
    hear(
        &mut switch,
        0.3,
        member(1),
        Body::Accept { credit: UNLIMITED },
    );

    // A frame that was lost before the switch still goes to the first member, with its number. New
    // frames go to the members in turn.
    let number = |body: &(Leg, Body)| match body {
        (to, Body::Data(data)) => (*to, data.sequence),
        other => panic!("no frame: {other:?}"),
    };
    for (sequence, expected) in [
        (4, (member(0), 4)),
        (5, (member(1), 0)),
        (2, (member(0), 2)),
    ] {
        hear(&mut switch, 0.4, PEER, data(sequence));
        assert_eq!(
            sent(&mut switch).iter().map(number).collect::<Vec<_>>(),
            [expected]
        );
    }
    for (from, sequence, expected) in [(1, 0, 4), (0, 4, 5), (0, 2, 2)] {
        hear(&mut switch, 0.4, member(from), data(sequence));
        assert_eq!(
            sent(&mut switch).iter().map(number).collect::<Vec<_>>(),
            [(PEER, expected)]
        );
    }
    // The peer has all frames: each member gets an acknowledgement of its own.
    hear(&mut switch, 0.5, PEER, ack(6, 4));
    let to_second = acks(&sent_to(&mut switch, member(1)));
    assert_eq!((to_second[0].cumulative, to_second[0].of), (1, 0));
}
