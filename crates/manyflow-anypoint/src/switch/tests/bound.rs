//! Frames that are bound to a member.

use super::*;
use crate::Event;
use crate::switch::{ByPrefix, Policy, Prefix};

fn config() -> SwitchConfig {
    SwitchConfig {
        bound: true,
        ..SwitchConfig::default()
    }
}

/// Returns a switch whose connection all members have accepted, without any output.
fn opened(members: u16) -> Switch<Length> {
    let policy: Box<dyn Policy<Length>> = Box::<ByPrefix>::default();
    let mut switch = Switch::new(config(), policy, members.into()).expect("a switch");
    let credit = UNLIMITED;
    hear(&mut switch, 0.0, PEER, Body::Open { credit });
    for number in 0..members {
        let accept = Body::Accept { credit };
        hear(&mut switch, 0.0, member(number), accept);
    }
    sent(&mut switch);
    switch
}

/// Returns a frame of the peer that is bound to a member.
fn bound_to(number: u16, sequence: u32) -> Body {
    let Body::Data(frame) = data(sequence) else {
        unreachable!("data is a frame");
    };
    let prefix = Prefix::of_member(MemberId(number)).unwrap();
    Body::Data(Data {
        key: prefix.key(sequence),
        ..frame
    })
}

/// Returns the members that were sent these frames, and the cumulative number that the peer got.
fn deliver(switch: &mut Switch<Length>, seconds: f64, frames: &[Body]) -> (Vec<Leg>, Option<u32>) {
    for frame in frames {
        hear(switch, seconds, PEER, *frame);
    }
    let sent = sent(switch);
    let data = sent
        .iter()
        .filter(|(_, body)| matches!(body, Body::Data(_)));
    let to_peer: Vec<_> = sent
        .iter()
        .filter(|(to, _)| *to == PEER)
        .map(|(_, body)| *body)
        .collect();
    let cumulative = acks(&to_peer).last().map(|ack| ack.cumulative);
    (data.map(|(to, _)| *to).collect(), cumulative)
}

#[test]
fn a_frame_for_nobody_is_dropped_and_does_not_hold_others_back() {
    let mut switch = opened(2);
    let frames = [bound_to(1, 0), bound_to(7, 1), bound_to(0, 2)];
    let (to, cumulative) = deliver(&mut switch, 0.1, &frames);
    assert_eq!(to, [member(1), member(0)]);
    assert_eq!(cumulative, Some(0), "member 1 has not acknowledged");
    let Body::Data(dropped) = frames[1] else {
        unreachable!("a frame");
    };
    let event = Event::FrameDropped { key: dropped.key };
    assert_eq!(switch.poll_event(), Some(event));
    hear(&mut switch, 0.2, member(1), ack(1, 0));
    let acknowledged = acks(&sent_to(&mut switch, PEER));
    assert_eq!(acknowledged.last().unwrap().cumulative, 2);
    let (to, cumulative) = deliver(&mut switch, 0.3, &[frames[1]]);
    assert_eq!((to, cumulative), (vec![], Some(2)), "repeated");
}

#[test]
fn frames_of_a_failed_member_are_dropped_and_not_asked_for_again() {
    let mut switch = opened(2);
    let frames = [bound_to(0, 0), bound_to(1, 1), bound_to(0, 2)];
    deliver(&mut switch, 0.1, &frames);
    hear(&mut switch, 0.2, member(1), ack(1, 0));
    sent(&mut switch);
    hear(
        &mut switch,
        0.3,
        member(0),
        Body::Reset(crate::Reason::Aborted),
    );
    let answers = acks(&sent_to(&mut switch, PEER));
    let last = answers.last().expect("a report at once");
    assert_eq!((last.cumulative, last.missing), (3, NO_GAPS));
    let (to, cumulative) = deliver(&mut switch, 0.4, &[bound_to(0, 3), bound_to(1, 4)]);
    assert_eq!(to, [member(1)]);
    assert_eq!(cumulative, Some(4));
}

#[test]
fn a_single_member_is_served_like_several() {
    let mut switch = opened(1);
    let (to, cumulative) = deliver(&mut switch, 0.1, &[bound_to(3, 0), bound_to(0, 1)]);
    assert_eq!((to, cumulative), (vec![member(0)], Some(1)));
    assert!(
        switch.poll_timeout().is_some(),
        "its failure will be noticed"
    );
    let late = switch.join(at(0.2));
    sent(&mut switch);
    hear(
        &mut switch,
        0.3,
        Leg::Member(late),
        Body::Accept { credit: UNLIMITED },
    );
    let (to, _) = deliver(&mut switch, 0.4, &[bound_to(late.0, 2)]);
    assert_eq!(to, [Leg::Member(late)]);
}

#[test]
fn frames_wait_for_a_stalled_member() {
    let mut switch = opened(2);
    for repeat in 0..6 {
        let now = 0.1 * f64::from(repeat);
        deliver(&mut switch, now, &[bound_to(0, 0)]);
    }
    for half_second in 1..28 {
        let now = 0.5 * f64::from(half_second);
        for number in 0..2 {
            hear(&mut switch, now, member(number), Body::Alive);
        }
        wait(&mut switch, now, now + 0.5);
        sent(&mut switch);
    }
    let events = core::iter::from_fn(|| switch.poll_event());
    assert_eq!(
        events.collect::<Vec<_>>(),
        [Event::MemberStalled(MemberId(0))]
    );
    let (to, _) = deliver(&mut switch, 14.0, &[bound_to(0, 1), bound_to(1, 2)]);
    assert_eq!(to, [member(0), member(1)]);
    assert_eq!(switch.poll_event(), None, "nothing was dropped");
}

#[test]
fn a_member_cannot_join_once_all_have_closed() {
    let mut switch = opened(2);
    assert!(switch.takes_members());
    hear(&mut switch, 0.1, member(0), Body::Close { sequence: 0 });
    assert!(switch.takes_members(), "the other one may send");
    hear(&mut switch, 0.1, member(1), Body::Close { sequence: 0 });
    assert!(!switch.takes_members());
}
