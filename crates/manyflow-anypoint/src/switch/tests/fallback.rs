//! The flag of routers that answer, and the leg to the peer where none does.

use super::*;
use crate::Gap;

/// Returns frame `sequence` of a sender with a window of ten frames, which asks for a frame more.
/// `answered`: a router has handled the frame.
fn frame(sequence: u32, answered: bool) -> Body {
    let congestion = Congestion {
        cwnd: 10_560,
        rtt_us: 20_000,
        feedback: WindowChange::from_bytes(1056.0),
        answered,
    };
    Body::Data(Data {
        sequence,
        key: sequence,
        congestion,
    })
}

/// Returns the answer to frame `of`, which leaves a frame of feedback, while `missing` frames from
/// `cumulative` on are missing.
fn answer(cumulative: u32, of: u32, answered: bool, missing: u16) -> Body {
    let mut gaps = NO_GAPS;
    gaps[0] = Gap {
        offset: 0,
        frames: missing,
    };
    Body::Ack(Ack {
        cumulative,
        of,
        credit: UNLIMITED,
        feedback: Feedback {
            change: WindowChange::from_bytes(1056.0),
            answered,
            averaged: false,
        },
        missing: gaps,
    })
}

fn with_fallback(members: usize) -> Switch<Length> {
    let config = SwitchConfig {
        fallback: true,
        ..SwitchConfig::default()
    };
    opened(config, members, UNLIMITED)
}

/// Has two members send `frames` frames each, in turn.
fn send(switch: &mut Switch<Length>, frames: core::ops::Range<u32>) {
    for sequence in frames {
        for number in 0..2 {
            hear(switch, 0.1, member(number), frame(sequence, false));
        }
    }
    sent(switch);
}

/// Returns the sum of the changes in the acknowledgements to each of two members, in bytes.
fn change_of_each(switch: &mut Switch<Length>) -> [f64; 2] {
    let packets = sent(switch);
    [0, 1].map(|number| {
        let to_member = packets.iter().filter(|(leg, _)| *leg == member(number));
        let bodies: Vec<Body> = to_member.map(|(_, body)| *body).collect();
        let changes = acks(&bodies).into_iter().map(|ack| ack.feedback.change);
        changes.map(WindowChange::bytes).sum()
    })
}

/// Returns the sum of the changes in the acknowledgements to both members, in bytes.
fn changes(switch: &mut Switch<Length>) -> f64 {
    let bodies: Vec<Body> = sent(switch).into_iter().map(|(_, body)| body).collect();
    let changes = acks(&bodies).into_iter().map(|ack| ack.feedback.change);
    changes.map(WindowChange::bytes).sum()
}

#[test]
fn the_flag_for_a_member_says_whether_either_leg_has_answered() {
    for (own, peers) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut switch = with_fallback(2);
        hear(&mut switch, 0.1, member(0), frame(0, own));
        let forwarded = sent_to(&mut switch, PEER);
        let Body::Data(data) = forwarded[0] else {
            panic!("no frame: {forwarded:?}");
        };
        assert!(!data.congestion.answered, "the leg to the peer begins");
        hear(&mut switch, 0.2, PEER, answer(1, 0, peers, 0));
        let acks = acks(&sent_to(&mut switch, member(0)));
        assert_eq!(acks[0].feedback.answered, own || peers);
    }
}

#[test]
fn inbound_flags_pass_in_frames_and_in_acknowledgements() {
    for answered in [false, true] {
        let mut switch = with_fallback(2);
        hear(&mut switch, 0.1, PEER, frame(0, answered));
        let forwarded = sent_to(&mut switch, member(0));
        assert!(matches!(forwarded[0], Body::Data(data) if data.congestion.answered == answered));
        hear(&mut switch, 0.2, member(0), answer(1, 0, answered, 0));
        let acks = acks(&sent_to(&mut switch, PEER));
        assert_eq!(acks[0].feedback.answered, answered);
    }
}

#[test]
fn a_loss_on_the_leg_to_the_peer_reduces_the_members_together_once() {
    let mut switch = with_fallback(2);
    send(&mut switch, 0..20);
    // Slow start: W grows by a frame with each answer, and each answer passes a twentieth on.
    for of in 0..4 {
        hear(&mut switch, 0.2, PEER, answer(of + 1, of, false, 0));
    }
    let change = changes(&mut switch);
    assert!((change - 528.0).abs() < 1.0, "{change}");
    // Frame 4 is of member 0, which reduces its window for the loss itself. W was 21,120 + 4 *
    // 1,056 bytes. Seven tenths remain, 3,379 bytes less than the windows, of which member 1 has
    // half.
    for of in 6..26 {
        hear(&mut switch, 0.3, PEER, answer(4, of, false, 1));
    }
    let reduced = change_of_each(&mut switch);
    assert_eq!(reduced[0], 0.0);
    assert!((reduced[1] + 1690.0).abs() < 200.0, "{reduced:?}");
    // The same loss, in the next window. Its frames say whether member 0 has reduced its window.
    send(&mut switch, 20..30);
    for of in 40..60 {
        hear(&mut switch, 0.4, PEER, answer(4, of, false, 1));
    }
    let reduced = change_of_each(&mut switch);
    assert!((reduced[0] + 1690.0).abs() < 200.0, "{reduced:?}");
    assert!((reduced[1] + 1690.0).abs() < 200.0, "{reduced:?}");
}

#[test]
fn answers_of_routers_lift_the_window_of_the_leg() {
    let mut switch = with_fallback(2);
    send(&mut switch, 0..20);
    hear(&mut switch, 0.2, PEER, answer(4, 4, false, 1));
    for of in 6..26 {
        hear(&mut switch, 0.3, PEER, answer(4, of, true, 1));
    }
    sent(&mut switch);
    hear(&mut switch, 0.3, PEER, answer(4, 26, true, 1));
    let acks = acks(&sent_to(&mut switch, member(0)));
    assert_eq!(acks[0].feedback.change, WindowChange::from_bytes(1056.0));
}

#[test]
fn without_the_fallback_the_peers_feedback_is_split_as_it_is() {
    let mut switch = opened(SwitchConfig::default(), 2, UNLIMITED);
    send(&mut switch, 0..20);
    for of in 6..26 {
        hear(&mut switch, 0.3, PEER, answer(4, of, false, 2));
    }
    assert_eq!(changes(&mut switch), 20.0 * 1056.0);
}
