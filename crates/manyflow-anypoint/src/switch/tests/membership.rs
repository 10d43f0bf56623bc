//! Tests of members that open, fail, probe and get credit, and of the headers that they get.

use super::*;
use crate::Event;
use crate::{Gap, Reason};

/// Returns the frames among these.
fn frames(bodies: &[Body]) -> Vec<Data> {
    let of = |body: &Body| match body {
        Body::Data(data) => Some(*data),
        _ => None,
    };
    bodies.iter().filter_map(of).collect()
}

fn missing(body: Body, gaps: &[(u16, u16)]) -> Body {
    let Body::Ack(mut ack) = body else {
        panic!("no acknowledgement: {body:?}");
    };
    for (gap, (offset, frames)) in ack.missing.iter_mut().zip(gaps) {
        (gap.offset, gap.frames) = (*offset, *frames);
    }
    Body::Ack(ack)
}

fn granted(credit: u32, cumulative: u32, of: u32) -> Body {
    let Body::Ack(ack) = ack(cumulative, of) else {
        unreachable!()
    };
    Body::Ack(Ack { credit, ..ack })
}

#[test]
fn a_members_gap_is_reported_in_the_peers_numbers_until_it_is_sent_again() {
    let mut switch = opened(SwitchConfig::default(), 2, UNLIMITED);
    (0..10).for_each(|sequence| hear(&mut switch, 0.0, PEER, data(sequence)));
    sent(&mut switch);
    // Member 1 gets the odd frames. Its frame 1, the peer's 3, is missing; frames 0, 2, 3 and 4
    // have arrived.
    hear(&mut switch, 0.1, member(1), missing(ack(1, 4), &[(0, 1)]));
    let report = acks(&sent_to(&mut switch, PEER))[0];
    assert_eq!((report.cumulative, report.of), (0, 9));
    assert_eq!(
        report.missing[0],
        Gap {
            offset: 3,
            frames: 1
        }
    );
    // The retransmission goes to the same member, with the same number. Earlier reports are
    // outdated.
    hear(&mut switch, 0.1, PEER, data(3));
    assert_eq!(frames(&sent_to(&mut switch, member(1)))[0].sequence, 1);
    hear(&mut switch, 0.1, member(1), missing(ack(1, 3), &[(0, 1)]));
    assert_eq!(acks(&sent_to(&mut switch, PEER))[0].missing, NO_GAPS);
}

#[test]
fn a_gap_at_the_peer_is_reported_to_the_member_that_can_fill_it() {
    let mut switch = opened(SwitchConfig::default(), 2, UNLIMITED);
    // Frames 0, 2 and 4 at the peer are member 0's; 1, 3 and 5 are member 1's.
    for sequence in 0..3 {
        hear(&mut switch, 0.0, member(0), data(sequence));
        hear(&mut switch, 0.0, member(1), data(sequence));
    }
    sent(&mut switch);
    hear(&mut switch, 0.1, PEER, missing(ack(1, 4), &[(0, 1)]));
    let to_first = acks(&sent_to(&mut switch, member(0)));
    assert_eq!((to_first[0].cumulative, to_first[0].of), (1, 2));
    assert_eq!(
        to_first[0].missing, NO_GAPS,
        "frame 1 belongs to the other member"
    );
    hear(&mut switch, 0.1, PEER, ack(1, 5));
    let to_second = acks(&sent_to(&mut switch, member(1)));
    assert_eq!((to_second[0].cumulative, to_second[0].of), (0, 2));
    assert_eq!(
        to_second[0].missing[0],
        Gap {
            offset: 0,
            frames: 1
        }
    );
}

#[test]
fn frames_behind_another_members_gap_are_acknowledged_when_it_closes() {
    let mut switch = opened(SwitchConfig::default(), 2, UNLIMITED);
    hear(&mut switch, 0.0, member(0), data(0));
    hear(&mut switch, 0.0, member(1), data(0));
    sent(&mut switch);
    hear(&mut switch, 0.1, PEER, ack(0, 1));
    let cumulative = |bodies: Vec<Body>| acks(&bodies)[0].cumulative;
    assert_eq!(
        cumulative(sent_to(&mut switch, member(1))),
        0,
        "that alone is no promise"
    );
    hear(&mut switch, 0.1, PEER, ack(2, 0));
    let report = sent(&mut switch);
    for number in [0, 1] {
        let to = report.iter().filter(|(to, _)| *to == member(number));
        assert_eq!(cumulative(to.map(|(_, body)| *body).collect()), 1);
    }
}

#[test]
fn strict_credit_is_the_smallest_for_the_peer_and_a_part_for_each_member() {
    let mut switch = switch(SwitchConfig::default(), 2);
    hear(&mut switch, 0.0, PEER, Body::Open { credit: 10_000 });
    let part = Body::Open { credit: 5_000 };
    assert_eq!(sent(&mut switch), [(member(0), part), (member(1), part)]);
    hear(&mut switch, 0.0, member(0), Body::Accept { credit: 8_000 });
    assert_eq!(sent(&mut switch), [], "the other member has not accepted");
    hear(&mut switch, 0.0, member(1), Body::Accept { credit: 6_000 });
    assert_eq!(sent(&mut switch), [(PEER, Body::Accept { credit: 6_000 })]);

    hear(&mut switch, 0.0, PEER, data(0));
    hear(&mut switch, 0.0, member(0), granted(3_000, 1, 0));
    assert_eq!(acks(&sent_to(&mut switch, PEER))[0].credit, 3_000);

    // The peer has not read 1000 bytes. Member 1 may still use its earlier grant, so member 0 gets
    // less than its part.
    hear(&mut switch, 0.0, member(0), data(0));
    sent(&mut switch);
    hear(&mut switch, 0.0, PEER, granted(9_000, 1, 0));
    assert_eq!(acks(&sent_to(&mut switch, member(0)))[0].credit, 4_000);
    // The peer has read everything.
    hear(&mut switch, 0.0, PEER, granted(10_000, 1, 0));
    hear(&mut switch, 0.0, member(0), data(1));
    sent(&mut switch);
    hear(&mut switch, 0.0, PEER, granted(10_000, 2, 1));
    assert_eq!(acks(&sent_to(&mut switch, member(0)))[0].credit, 5_000);
}

#[test]
fn a_member_that_left_before_its_accept_hears_the_same_reason_after_the_end() {
    let mut switch = switch(SwitchConfig::default(), 2);
    hear(&mut switch, 0.0, PEER, Body::Open { credit: UNLIMITED });
    switch.leave(at(0.1), MemberId(0));
    let aborted = Body::Reset(Reason::Aborted);
    assert!(sent_to(&mut switch, member(0)).contains(&aborted));
    // The Reset overtakes the Open, so it ends nothing. Then the connection ends.
    hear(&mut switch, 0.2, PEER, Body::Reset(Reason::TimedOut));
    sent(&mut switch);
    assert!(switch.is_idle());
    hear(
        &mut switch,
        0.3,
        member(0),
        Body::Accept { credit: UNLIMITED },
    );
    assert_eq!(sent_to(&mut switch, member(0)), [aborted]);
    hear(
        &mut switch,
        0.3,
        member(1),
        Body::Accept { credit: UNLIMITED },
    );
    let unknown = Body::Reset(Reason::Unknown);
    assert_eq!(sent_to(&mut switch, member(1)), [unknown]);
}

#[test]
fn headers_follow_a_change_of_policy_within_the_histogram() {
    let config = SwitchConfig {
        histogram_frames: 8,
        ..SwitchConfig::default()
    };
    // Keys below 100 go to the members in turn, the others to member 1.
    let policy = crate::switch::KeyRule::new(vec![(100..=u32::MAX, MemberId(1))]);
    let policy: Box<dyn crate::switch::Policy<Length>> = Box::new(policy);
    let mut switch: Switch<Length> = Switch::new(config, policy, 2).expect("a switch");
    hear(&mut switch, 0.0, PEER, Body::Open { credit: UNLIMITED });
    for number in [0, 1] {
        hear(
            &mut switch,
            0.0,
            member(number),
            Body::Accept { credit: UNLIMITED },
        );
    }
    let mut windows = Vec::new();
    for sequence in 0..24 {
        let Body::Data(mut frame) = data(sequence) else {
            unreachable!()
        };
        frame.key = if sequence < 12 { 0 } else { 100 };
        hear(&mut switch, 0.0, PEER, Body::Data(frame));
        let sent = sent(&mut switch);
        let bodies: Vec<Body> = sent.into_iter().map(|(_, body)| body).collect();
        windows.extend(frames(&bodies).iter().map(|frame| frame.congestion.cwnd));
    }
    assert_eq!(windows[11], 5_120, "half of 10,240 each");
    assert_eq!(
        windows[15], 7_680,
        "four of the last eight in turn, four to the one"
    );
    assert_eq!(windows[19..], [10_240; 5], "at most one window later");
}

#[test]
fn a_silent_member_is_probed_and_then_given_up() {
    let mut switch = opened(SwitchConfig::default(), 2, UNLIMITED);
    hear(&mut switch, 0.0, PEER, data(0));
    hear(&mut switch, 0.0, PEER, data(1));
    sent(&mut switch);
    hear(&mut switch, 0.1, member(1), ack(1, 0));
    sent(&mut switch);
    wait(&mut switch, 0.1, 1.4);
    assert!(sent_to(&mut switch, member(0)).contains(&Body::Probe));
    assert_eq!(switch.poll_event(), None);
    hear(&mut switch, 1.5, member(1), Body::Alive);
    wait(&mut switch, 1.4, 3.0);
    let report = acks(&sent_to(&mut switch, PEER))[0];
    assert_eq!(switch.poll_event(), Some(Event::MemberFailed(MemberId(0))));
    assert_eq!((report.cumulative, report.of), (0, 1));
    assert_eq!(
        report.missing[0],
        Gap {
            offset: 0,
            frames: 1
        }
    );
    // The failed member's frame goes to the other member, after the frames that this one has. The
    // failed member gets a Reset if it sends again.
    hear(&mut switch, 3.1, PEER, data(0));
    assert_eq!(frames(&sent_to(&mut switch, member(1)))[0].sequence, 1);
    hear(&mut switch, 3.2, member(0), ack(1, 0));
    assert_eq!(
        sent(&mut switch),
        [(member(0), Body::Reset(Reason::TimedOut))]
    );
}

#[test]
fn the_switch_retransmits_the_frames_of_a_failed_member() {
    let mut switch = opened(SwitchConfig::default(), 2, UNLIMITED);
    hear(&mut switch, 0.0, member(0), data(0));
    hear(&mut switch, 0.0, member(0), data(2));
    sent(&mut switch);
    hear(&mut switch, 0.1, member(0), Body::Reset(Reason::Aborted));
    assert_eq!(switch.poll_event(), Some(Event::MemberFailed(MemberId(0))));
    sent(&mut switch);
    let again = |switch: &mut Switch<Length>| frames(&sent_to(switch, PEER)).len();
    hear(&mut switch, 0.2, member(1), data(0));
    hear(&mut switch, 0.2, member(1), data(1));
    assert_eq!(again(&mut switch), 2);
    hear(&mut switch, 0.2, PEER, missing(ack(0, 1), &[(0, 1)]));
    assert_eq!(
        again(&mut switch),
        1,
        "a frame that the peer misses is retransmitted at once"
    );
    wait(&mut switch, 0.2, 1.1);
    assert_eq!(
        again(&mut switch),
        2,
        "and by the timer, twice in a second; the frame beyond the gap is gone"
    );
    hear(&mut switch, 1.1, PEER, ack(3, 0));
    sent(&mut switch);
    wait(&mut switch, 1.1, 1.9);
    assert_eq!(again(&mut switch), 0);
}

#[test]
fn frames_that_arrive_before_the_connection_is_open_wait() {
    let mut switch = switch(SwitchConfig::default(), 2);
    let credit = UNLIMITED;
    hear(&mut switch, 0.0, PEER, Body::Open { credit });
    hear(&mut switch, 0.0, member(0), data(0));
    hear(&mut switch, 0.0, member(0), Body::Accept { credit });
    hear(&mut switch, 0.0, member(0), data(1));
    assert_eq!(sent_to(&mut switch, PEER), []);
    hear(&mut switch, 0.0, member(1), Body::Accept { credit });
    let bodies = sent_to(&mut switch, PEER);
    assert_eq!(bodies[0], Body::Accept { credit });
    let sequences: Vec<u32> = frames(&bodies).iter().map(|frame| frame.sequence).collect();
    assert_eq!(sequences, [0, 1]);
}

#[test]
fn without_a_member_a_connection_is_refused() {
    let refused = [(PEER, Body::Reset(Reason::Refused))];
    let open = Body::Open { credit: UNLIMITED };
    let mut empty = switch(SwitchConfig::default(), 0);
    hear(&mut empty, 0.0, PEER, open);
    assert_eq!(sent(&mut empty), refused);

    let mut unwilling = switch(SwitchConfig::default(), 2);
    hear(&mut unwilling, 0.0, PEER, open);
    for number in [0, 1] {
        hear(
            &mut unwilling,
            0.0,
            member(number),
            Body::Reset(Reason::Refused),
        );
    }
    assert_eq!(
        sent_to(&mut unwilling, PEER),
        [Body::Reset(Reason::Refused)]
    );
}

#[test]
fn the_switch_answers_the_peers_probe_and_passes_a_members_probe_on() {
    let mut switch = opened(SwitchConfig::default(), 2, UNLIMITED);
    hear(&mut switch, 0.0, PEER, Body::Probe);
    // Before the first frame, the Accept states the present credit.
    let accept = Body::Accept { credit: UNLIMITED };
    assert_eq!(sent(&mut switch), [(PEER, Body::Alive), (PEER, accept)]);
    hear(&mut switch, 0.0, member(1), Body::Probe);
    assert_eq!(sent(&mut switch), [(PEER, Body::Probe)]);
    hear(&mut switch, 0.0, PEER, Body::Alive);
    assert_eq!(sent(&mut switch), [(member(1), Body::Alive)]);
}

#[test]
fn a_member_that_joins_after_the_peers_close_gets_a_close_too() {
    let mut switch = opened(SwitchConfig::default(), 1, UNLIMITED);
    hear(&mut switch, 0.0, PEER, data(0));
    hear(&mut switch, 0.0, PEER, Body::Close { sequence: 1 });
    hear(&mut switch, 0.0, member(0), ack(2, 1));
    assert_eq!(switch.join(at(0.1)), MemberId(1));
    sent(&mut switch);
    let credit = UNLIMITED;
    hear(&mut switch, 0.1, member(1), Body::Accept { credit });
    let to_new = sent_to(&mut switch, member(1));
    assert_eq!(to_new, [Body::Close { sequence: 0 }]);
}

#[test]
fn segments_of_a_member_that_left_before_it_accepted_are_refused() {
    let mut switch = opened(SwitchConfig::default(), 2, UNLIMITED);
    let late = switch.join(at(0.1));
    switch.leave(at(0.1), late);
    let aborted = Body::Reset(Reason::Aborted);
    assert_eq!(sent_to(&mut switch, Leg::Member(late)).pop(), Some(aborted));
    let credit = UNLIMITED;
    hear(&mut switch, 0.2, Leg::Member(late), Body::Accept { credit });
    hear(&mut switch, 0.2, Leg::Member(late), data(0));
    let refused = (Leg::Member(late), aborted);
    assert_eq!(
        sent(&mut switch),
        [refused; 2],
        "its first Reset may be lost"
    );
}

#[test]
fn the_credit_of_an_idle_peer_is_asked_for_while_a_member_waits() {
    let mut switch = opened(SwitchConfig::default(), 1, 4000);
    hear(&mut switch, 0.0, member(0), data(0));
    hear(&mut switch, 0.0, PEER, granted(100, 1, 0));
    let late = Leg::Member(switch.join(at(0.1)));
    assert_eq!(sent_to(&mut switch, late), [], "there is no credit for it");
    wait(&mut switch, 0.1, 0.7);
    assert_eq!(sent_to(&mut switch, PEER), [Body::Probe]);
    hear(&mut switch, 0.7, PEER, Body::Alive);
    hear(&mut switch, 0.7, PEER, granted(4000, 1, 0));
    let opened = sent_to(&mut switch, late);
    assert!(matches!(opened[..], [Body::Open { .. }]), "{opened:?}");
}

#[test]
fn frames_beyond_a_reduced_grant_wait_at_the_switch_until_the_peer_has_room() {
    let mut switch = opened(SwitchConfig::default(), 1, 4000);
    hear(&mut switch, 0.0, member(0), data(0));
    hear(&mut switch, 0.0, PEER, granted(4000, 1, 0));
    let late = Leg::Member(switch.join(at(0.1)));
    sent(&mut switch);
    wait(&mut switch, 0.1, 1.9);
    assert_eq!(sent_to(&mut switch, late), [], "member 0 may send 4 frames");
    wait(&mut switch, 1.9, 2.6);
    let reduced = sent(&mut switch);
    let of = |leg, sent: &[(Leg, Body)]| -> Vec<Body> {
        let sent = sent.iter().filter(|(to, _)| *to == leg);
        sent.map(|(_, body)| *body).collect()
    };
    assert_eq!(of(late, &reduced)[0], Body::Open { credit: 2000 });
    assert_eq!(acks(&of(member(0), &reduced))[0].credit, 2000);

    // That acknowledgement is lost: member 0 uses the grant that it had.
    let credit = UNLIMITED;
    hear(&mut switch, 2.6, late, Body::Accept { credit });
    hear(&mut switch, 2.6, late, data(0));
    (1..5).for_each(|number| hear(&mut switch, 2.6, member(0), data(number)));
    hear(&mut switch, 2.6, late, data(1));
    let full = sent(&mut switch);
    let keys = |sent: &[(Leg, Body)]| -> Vec<u32> {
        let frames = frames(&of(PEER, sent)).into_iter();
        frames.map(|frame| frame.key).collect()
    };
    assert_eq!(keys(&full), [0, 1, 2, 1], "4 frames fill the peer's buffer");
    let answers = acks(&of(member(0), &full)).into_iter();
    let answers: Vec<_> = answers.map(|ack| (ack.of, ack.credit)).collect();
    assert_eq!(answers, [(3, 2000), (4, 2000)], "these frames wait");

    // The peer has received and read three of the four, of which two are member 0's.
    hear(&mut switch, 2.7, PEER, granted(4000, 4, 3));
    assert_eq!(keys(&sent(&mut switch)), [3, 4]);
}

#[test]
fn a_finished_connection_answers_late_closes_and_gives_way_to_another() {
    let mut switch = opened(SwitchConfig::default(), 2, UNLIMITED);
    let close = Body::Close { sequence: 0 };
    let ends = [PEER, member(0), member(1)];
    for end in ends {
        hear(&mut switch, 0.0, end, close);
    }
    for end in ends {
        hear(&mut switch, 0.0, end, ack(1, 0));
    }
    sent(&mut switch);
    for seconds in [100.0, 200.0] {
        wait(&mut switch, seconds - 100.0, seconds);
        sent(&mut switch);
        hear(&mut switch, seconds, PEER, close);
        let answers = acks(&sent_to(&mut switch, PEER));
        assert_eq!(answers[0].cumulative, 1, "after {seconds} s");
    }
    let (connection, credit) = (CONNECTION + 1, UNLIMITED);
    let body = Body::Open { credit };
    let another = Segment { connection, body };
    switch.handle_segment(at(201.0), PEER, &another, Length(0));
    assert_eq!(sent(&mut switch), [(member(0), body), (member(1), body)]);
}

#[test]
fn the_frame_that_a_silent_member_waits_for_is_reported_again() {
    let mut switch = opened(SwitchConfig::default(), 2, UNLIMITED);
    (0..8).for_each(|sequence| hear(&mut switch, 0.0, PEER, data(sequence)));
    hear(&mut switch, 0.1, member(1), ack(4, 3));
    // Member 0 waits for its frame 0. The peer sends it again, and it is lost again.
    hear(&mut switch, 0.1, member(0), missing(ack(0, 3), &[(0, 1)]));
    hear(&mut switch, 0.1, PEER, data(0));
    sent(&mut switch);
    hear(&mut switch, 0.2, member(0), ack(0, 3));
    assert_eq!(acks(&sent_to(&mut switch, PEER))[0].missing, NO_GAPS);
    wait(&mut switch, 0.2, 1.5);
    sent(&mut switch);
    hear(&mut switch, 1.5, member(0), ack(0, 3));
    let report = acks(&sent_to(&mut switch, PEER))[0].missing;
    assert_eq!(
        report[0],
        Gap {
            offset: 0,
            frames: 1
        }
    );
}

#[test]
fn frames_of_a_peer_before_its_accept_end_the_connection() {
    let mut switch = switch(SwitchConfig::default(), 2);
    hear(&mut switch, 0.0, PEER, Body::Open { credit: UNLIMITED });
    sent(&mut switch);
    hear(&mut switch, 0.0, PEER, data(57));
    let unknown = Body::Reset(Reason::Unknown);
    let all = [PEER, member(0), member(1)].map(|leg| (leg, unknown));
    assert_eq!(sent(&mut switch), all);
}

#[test]
fn a_repeated_answer_puts_the_awaited_frame_first_in_the_next_report() {
    let mut switch = opened(SwitchConfig::default(), 1, UNLIMITED);
    switch.join(at(0.0));
    (0..12).for_each(|sequence| hear(&mut switch, 0.0, PEER, data(sequence)));
    hear(&mut switch, 0.1, member(0), ack(1, 0));
    // The scattered losses are more than an acknowledgement can name.
    let report = missing(ack(1, 11), &[(0, 1), (2, 1), (4, 1)]);
    hear(&mut switch, 0.1, member(0), report);
    hear(&mut switch, 0.1, member(0), missing(ack(1, 10), &[(6, 1)]));
    sent(&mut switch);
    hear(&mut switch, 0.1, member(0), ack(1, 9));
    let offsets = |body: &Ack| body.missing.map(|gap| gap.offset);
    assert_eq!(offsets(&acks(&sent_to(&mut switch, PEER))[0]), [4, 6, 0]);
    hear(&mut switch, 0.1, member(0), ack(1, 9));
    assert_eq!(offsets(&acks(&sent_to(&mut switch, PEER))[0])[0], 0);
}

#[test]
fn a_peer_gets_no_accept_without_credit_while_no_member_is_open() {
    let mut switch = opened(SwitchConfig::default(), 1, 10_000);
    switch.join(at(0.0));
    hear(&mut switch, 0.1, member(0), Body::Reset(Reason::Aborted));
    wait(&mut switch, 0.1, 1.1);
    let opens = sent_to(&mut switch, member(1));
    assert!(matches!(opens[0], Body::Open { .. }), "{opens:?}");
    // The peer repeats its Open: the Accept was lost.
    let open = Body::Open { credit: 10_000 };
    hear(&mut switch, 1.2, PEER, open);
    assert_eq!(sent_to(&mut switch, PEER), []);
    hear(&mut switch, 1.3, member(1), Body::Accept { credit: 5000 });
    hear(&mut switch, 1.4, PEER, open);
    let accept = Body::Accept { credit: 5000 };
    assert_eq!(sent_to(&mut switch, PEER), [accept]);
}

#[test]
fn a_peer_without_credit_hears_of_a_larger_one_at_once_and_twice_more() {
    let mut switch = switch(SwitchConfig::default(), 3);
    let credit = 10_000;
    hear(&mut switch, 0.0, PEER, Body::Open { credit });
    for (number, credit) in [(0, 9000), (1, 0), (2, 500)] {
        hear(&mut switch, 0.0, member(number), Body::Accept { credit });
    }
    let accepts = |switch: &mut Switch<Length>| sent_to(switch, PEER);
    assert_eq!(accepts(&mut switch), [Body::Accept { credit: 0 }]);
    // Nothing has been acknowledged: only an Accept can carry the credit.
    switch.leave(at(0.1), MemberId(1));
    assert_eq!(accepts(&mut switch), [Body::Accept { credit: 500 }]);
    hear(&mut switch, 0.1, member(2), Body::Accept { credit: 700 });
    assert_eq!(accepts(&mut switch), [Body::Accept { credit: 700 }]);
    hear(&mut switch, 0.1, PEER, data(0));
    hear(&mut switch, 0.1, member(0), granted(8000, 1, 0));
    sent(&mut switch);
    switch.leave(at(0.2), MemberId(2));
    assert_eq!(acks(&accepts(&mut switch))[0].credit, 8000);
    wait(&mut switch, 0.2, 1.9);
    let reports = acks(&accepts(&mut switch));
    let credits: Vec<u32> = reports.iter().map(|ack| ack.credit).collect();
    assert_eq!(credits, [8000; 2], "reports may be lost");
}

#[test]
fn the_credit_of_a_member_that_was_stalled_counts_again_after_ten_seconds() {
    let mut switch = opened(SwitchConfig::default(), 2, 8000);
    (0..2).for_each(|sequence| hear(&mut switch, 0.0, PEER, data(sequence)));
    hear(&mut switch, 0.0, member(0), granted(8000, 1, 0));
    hear(&mut switch, 0.0, member(1), granted(0, 1, 0));
    let mut seconds = 0.0;
    // Returns the credits that the peer was sent until then.
    let mut credits_until = |switch: &mut Switch<Length>, end: f64| {
        while seconds < end {
            wait(switch, seconds, seconds + 0.5);
            seconds += 0.5;
            for number in [0, 1] {
                hear(switch, seconds, member(number), Body::Alive);
            }
        }
        hear(switch, seconds, PEER, Body::Probe);
        let sent = acks(&sent_to(switch, PEER));
        sent.iter().map(|ack| ack.credit).collect::<Vec<_>>()
    };
    assert_eq!(credits_until(&mut switch, 9.0).last(), Some(&0));
    assert_eq!(credits_until(&mut switch, 11.0).last(), Some(&8000));
    hear(&mut switch, 11.0, member(1), granted(2000, 1, 0));
    let on_trial = credits_until(&mut switch, 20.0);
    assert!(
        on_trial.iter().all(|credit| *credit == 8000),
        "{on_trial:?}"
    );
    assert_eq!(credits_until(&mut switch, 22.5).last(), Some(&2000));
    let events: Vec<Event> = core::iter::from_fn(|| switch.poll_event()).collect();
    let [stalled, resumed] = [Event::MemberStalled, Event::MemberResumed];
    assert_eq!(events, [stalled(MemberId(1)), resumed(MemberId(1))]);
}
