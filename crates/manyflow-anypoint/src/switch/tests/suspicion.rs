//! A member that is silent while another one answers, before it fails.

use super::*;

fn config(suspect_timeout: Option<Duration>) -> SwitchConfig {
    SwitchConfig {
        suspect_timeout,
        ..SwitchConfig::default()
    }
}

/// Sends one frame to each of two members, of which the second answers if `answers`. Returns the
/// switch's answers to repetitions of the first frame after 80 ms and 120 ms.
fn repetitions(config: SwitchConfig, answers: bool) -> [Vec<Ack>; 2] {
    let mut switch = opened(config, 2, UNLIMITED);
    hear(&mut switch, 0.0, PEER, data(0));
    hear(&mut switch, 0.0, PEER, data(1));
    if answers {
        hear(&mut switch, 0.01, member(1), ack(1, 0));
    }
    sent(&mut switch);
    [0.08, 0.12].map(|seconds| {
        hear(&mut switch, seconds, PEER, data(0));
        let all = sent(&mut switch);
        let repeated = all.iter().filter(|(to, _)| *to == member(0)).count();
        assert_eq!(repeated, 1, "the member gets each repetition");
        let to_peer: Vec<_> = all
            .into_iter()
            .filter(|(to, _)| *to == PEER)
            .map(|(_, body)| body)
            .collect();
        acks(&to_peer)
    })
}

#[test]
fn the_switch_answers_repetitions_for_a_suspected_member_and_promises_nothing() {
    let limit = Some(Duration::from_millis(100));
    let [early, late] = repetitions(config(limit), true);
    assert_eq!(early, [], "it may still answer");
    let [answer] = late[..] else {
        panic!("{late:?}");
    };
    assert_eq!((answer.of, answer.cumulative), (0, 0));
}

#[test]
fn nobody_is_suspected_while_all_are_silent_or_without_a_limit() {
    let limit = Some(Duration::from_millis(100));
    for (config, answers) in [(config(limit), false), (config(None), true)] {
        let [early, late] = repetitions(config, answers);
        assert_eq!([early, late], [vec![], vec![]]);
    }
}

#[test]
fn a_member_that_sends_anything_is_no_longer_suspected() {
    let mut switch = opened(config(Some(Duration::from_millis(100))), 2, UNLIMITED);
    hear(&mut switch, 0.0, PEER, data(0));
    hear(&mut switch, 0.0, PEER, data(1));
    hear(&mut switch, 0.01, member(1), ack(1, 0));
    hear(&mut switch, 0.15, member(0), Body::Alive);
    hear(&mut switch, 0.16, member(1), Body::Alive);
    sent(&mut switch);
    hear(&mut switch, 0.2, PEER, data(0));
    assert_eq!(acks(&sent_to(&mut switch, PEER)), []);
    hear(&mut switch, 0.26, PEER, data(0));
    assert_eq!(acks(&sent_to(&mut switch, PEER)).len(), 1);
}
