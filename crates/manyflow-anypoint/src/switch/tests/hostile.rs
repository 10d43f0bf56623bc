use proptest::prelude::*;

use super::identity::any_body;
use super::*;

proptest! {
    #[test]
    fn no_sequence_of_segments_makes_the_switch_panic_or_grow(
        members in 1usize..4,
        steps in proptest::collection::vec((0u16..5, any_body(), 0u32..5, 0u16..8), 1..400),
    ) {
        let config = SwitchConfig { held_frames_max: 8, ..SwitchConfig::default() };
        let mut switch = opened(config, members, 10_000);
        let mut seconds = 0.0;
        for (from, body, wait, change) in steps {
            let leg = if from == 4 { PEER } else { member(from) };
            hear(&mut switch, seconds, leg, body);
            seconds += f64::from(wait) * 0.1;
            switch.handle_timeout(at(seconds));
            match change {
                6 if switch.ensemble.len() < 5 => { switch.join(at(seconds)); }
                7 => switch.leave(at(seconds), MemberId(from)),
                _ => {}
            }
            let answers = sent(&mut switch).len();
            prop_assert!(answers < 200, "{answers} segments in answer to one");
            while switch.poll_event().is_some() {}
        }
    }
}

#[test]
fn frames_far_ahead_are_dropped() {
    let config = SwitchConfig {
        held_frames_max: 3,
        ..SwitchConfig::default()
    };
    let mut switch = opened(config, 2, UNLIMITED);
    for sequence in [4, 5, 70_000, 1 << 30] {
        hear(&mut switch, 0.0, PEER, data(sequence));
        hear(&mut switch, 0.0, member(0), data(sequence));
        assert_eq!(sent(&mut switch), [], "frame {sequence} is not held");
    }
    hear(&mut switch, 0.0, PEER, data(3));
    assert_eq!(
        acks(&sent_to(&mut switch, PEER))[0].of,
        3,
        "frame 3 is held"
    );
}

#[test]
fn frames_after_the_services_close_do_not_reach_the_peer() {
    let mut switch = opened(SwitchConfig::default(), 2, UNLIMITED);
    for from in [member(0), member(1)] {
        hear(&mut switch, 0.0, from, Body::Close { sequence: 0 });
    }
    assert_eq!(sent_to(&mut switch, PEER), [Body::Close { sequence: 0 }]);
    // A member that joins now stays out of the connection.
    switch.join(at(0.0));
    for number in [0, 2] {
        for sequence in 0..3 {
            hear(&mut switch, 0.0, member(number), data(sequence));
            assert_eq!(
                sent_to(&mut switch, PEER),
                [],
                "frame {sequence} of {number}"
            );
        }
    }
}

#[test]
fn a_segment_of_an_unknown_connection_is_reset_and_its_data_do_not_pass() {
    use crate::Reason;
    let mut restarted = switch(SwitchConfig::default(), 2);
    let reset = Body::Reset(Reason::Unknown);
    for from in [PEER, member(1)] {
        for body in [data(5), ack(5, 4), Body::Probe] {
            hear(&mut restarted, 0.0, from, body);
            assert_eq!(sent(&mut restarted), [(from, reset)]);
        }
        hear(&mut restarted, 0.0, from, reset);
        assert_eq!(sent(&mut restarted), [], "a Reset is not answered");
    }
}
