//! Tests of the sending half.

use super::super::segment::NO_GAPS;
use super::super::{Control, FlowControl, Length};
use super::*;
use manyflow_core::xcp::{Feedback, WindowChange};

const MS: Duration = Duration::from_millis(1);

/// Returns a sender under Reno with `frames` frames of 1 KB to send. Its window lets all of them go
/// at once.
fn sender(frames: u32) -> Sender<Length> {
    sender_by(Control::Reno, frames)
}

fn sender_by(control: Control, frames: u32) -> Sender<Length> {
    let mut sender = Sender::new(&AcpConfig {
        control,
        flow: FlowControl::Credit,
        initial_window: 100,
        ..AcpConfig::default()
    });
    sender.grant(1 << 20);
    (0..frames).for_each(|key| sender.send(frame(key)).unwrap());
    sender
}

fn frame(key: u32) -> Frame<Length> {
    let payload = Length(1024);
    Frame { key, payload }
}

/// Returns the numbers that the sender sends at `now`.
fn sent(sender: &mut Sender<Length>, now: Time) -> Vec<u32> {
    let mut numbers = Vec::new();
    while let Some((body, _)) = sender.poll_transmit(now) {
        numbers.push(match body {
            Body::Data(data) => data.sequence,
            Body::Close { sequence } => sequence,
            other => panic!("{other:?} is not a segment of a sender"),
        });
    }
    numbers
}

fn ack(cumulative: u32, of: u32, gaps: &[(u16, u16)]) -> Ack {
    let mut missing = NO_GAPS;
    for (gap, (offset, frames)) in missing.iter_mut().zip(gaps.iter().copied()) {
        *gap = Gap { offset, frames };
    }
    Ack {
        cumulative,
        of,
        credit: 1 << 20,
        feedback: Feedback::default(),
        missing,
    }
}

/// Handles an acknowledgement. Returns the events, except round-trip times.
fn take(sender: &mut Sender<Length>, now: Time, ack: &Ack) -> Vec<Event> {
    let mut events = VecDeque::new();
    sender.handle_ack(now, ack, &mut events);
    events.retain(|event| !matches!(event, Event::Rtt { .. }));
    events.into()
}

#[test]
fn an_acknowledgement_repeated_after_a_probe_gives_no_round_trip_time() {
    let mut sender = sender(2);
    sent(&mut sender, Time::ZERO);
    let mut events = VecDeque::new();
    sender.expect_repeat();
    sender.handle_ack(Time::ZERO + 5_000 * MS, &ack(1, 0, &[]), &mut events);
    assert_eq!(events, []);
    sender.handle_ack(Time::ZERO + 5_001 * MS, &ack(2, 1, &[]), &mut events);
    assert!(
        matches!(events.make_contiguous(), [Event::Rtt { .. }]),
        "{events:?}"
    );
}

#[test]
fn a_repeated_report_retransmits_once_until_a_newer_frame_is_answered() {
    let mut sender = sender(20);
    let mut now = Time::ZERO;
    assert_eq!(sent(&mut sender, now), (0..20).collect::<Vec<_>>());
    now += 10 * MS;
    let events = take(&mut sender, now, &ack(2, 6, &[(0, 2)]));
    assert_eq!(events, [Event::LossEvent]);
    assert_eq!(sent(&mut sender, now), [2, 3]);
    // The same gaps, reported by answers to frames that were sent before the retransmissions.
    assert_eq!(take(&mut sender, now, &ack(2, 7, &[(0, 2)])), []);
    assert_eq!(sent(&mut sender, now), [0u32; 0]);
    // Frame 20 was sent after the retransmissions. If it is answered and they are missing, they
    // were lost again.
    sender.send(frame(20)).unwrap();
    assert_eq!(sent(&mut sender, now), [20]);
    assert_eq!(take(&mut sender, now, &ack(2, 20, &[(0, 2)])), []);
    assert_eq!(sent(&mut sender, now), [2, 3]);
}

#[test]
fn the_second_answer_to_a_frame_gives_no_round_trip_time() {
    let mut sender = sender(8);
    let mut events = VecDeque::new();
    sent(&mut sender, Time::ZERO);
    // A switch answers frame 7, which it holds beyond a gap. The time-out forgets that.
    sender.handle_ack(Time::ZERO + 10 * MS, &ack(0, 7, &[]), &mut events);
    let average_s = sender.rtt.average_s();
    assert_eq!(time_out(&mut sender)[0], 0);
    // The gap is filled, and the member answers.
    sender.handle_ack(Time::ZERO + 5_000 * MS, &ack(8, 7, &[]), &mut events);
    assert_eq!(sender.rtt.average_s(), average_s);
}

#[test]
fn the_first_repair_does_not_wait_for_the_window() {
    let mut sender = sender(100);
    assert_eq!(sent(&mut sender, Time::ZERO).len(), 100);
    let now = Time::ZERO + 150 * MS;
    // The window is halved while 99 frames are believed to be in the network.
    take(&mut sender, now, &ack(0, 3, &[(0, 1), (2, 1)]));
    assert_eq!(sent(&mut sender, now), [0]);
    let due = sender.poll_timeout().expect("frames are in flight");
    assert_eq!(
        due,
        now + sender.timeout(),
        "the repair has time for its answer"
    );
}

#[test]
fn answers_restart_the_timer_while_the_first_frame_waits_for_others() {
    let mut sender = sender(8);
    sent(&mut sender, Time::ZERO);
    // Behind a switch, the first frame has arrived and waits for one of another member.
    for (of, at_ms) in [(0, 10), (1, 100), (2, 190)] {
        let now = Time::ZERO + at_ms * MS;
        take(&mut sender, now, &ack(0, of, &[]));
        assert_eq!(sender.poll_timeout(), Some(now + sender.timeout()));
    }
}

#[test]
fn frames_are_spaced_as_their_headers_say() {
    let mut sender = sender_by(Control::Xcp, 100);
    assert!(sender.poll_transmit(Time::ZERO).is_some());
    let mut now = Time::ZERO + 100 * MS;
    take(&mut sender, now, &ack(1, 0, &[]));
    assert!(sender.poll_transmit(now).is_some());
    for _ in 0..50 {
        assert!(sender.poll_transmit(now).is_none());
        // The rate is 100 frames in 100 ms.
        now += MS;
        assert_eq!(sender.poll_timeout(), Some(now));
        assert!(sender.poll_transmit(now).is_some());
    }
    // A world that is late by 10 ms may catch up by at most two frames.
    now += 11 * MS;
    let burst = core::iter::from_fn(|| sender.poll_transmit(now)).count();
    assert!((1..=2).contains(&burst), "{burst}");
}

#[test]
fn in_fallback_frames_leave_in_pairs_as_those_of_tcp() {
    let mut sender = sender_by(Control::Auto, 110);
    assert_eq!(sent(&mut sender, Time::ZERO).len(), 100);
    let mut acked = 0;
    // Returns how many frames leave at each of the next acknowledgements, one in a millisecond.
    let mut next = |count: u32| {
        let left = (0..count).map(|_| {
            acked += 1;
            let now = Time::ZERO + acked * MS;
            take(&mut sender, now, &ack(acked, acked - 1, &[]));
            sender.send(frame(acked)).unwrap();
            sent(&mut sender, now).len()
        });
        left.collect::<Vec<_>>()
    };
    assert_eq!(next(99), [1; 99], "a router may answer");
    assert_eq!(next(32), [0, 2].repeat(16));
}

#[test]
fn losses_of_one_round_trip_are_one_event() {
    let mut sender = sender(60);
    sent(&mut sender, Time::ZERO);
    let now = Time::ZERO + 10 * MS;
    let events = take(&mut sender, now, &ack(0, 5, &[(0, 1)]));
    assert_eq!(events, [Event::LossEvent]);
    assert_eq!(take(&mut sender, now, &ack(1, 12, &[(5, 1)])), []);
    take(&mut sender, now, &ack(60, 59, &[]));
    (60..70).for_each(|key| sender.send(frame(key)).unwrap());
    sent(&mut sender, now);
    let events = take(&mut sender, now, &ack(60, 64, &[(0, 1)]));
    assert_eq!(events, [Event::LossEvent]);
}

#[test]
fn frames_that_were_never_sent_cannot_be_acknowledged_or_lost() {
    let mut sender = sender(3);
    sent(&mut sender, Time::ZERO);
    let pipe = sender.pipe;
    take(&mut sender, Time::ZERO, &ack(4, 0, &[]));
    take(&mut sender, Time::ZERO, &ack(0, 3, &[]));
    assert_eq!((sender.first, sender.pipe), (0, pipe));
    take(&mut sender, Time::ZERO, &ack(1, 2, &[(60_000, 60_000)]));
    assert_eq!((sender.first, sender.pipe), (1, pipe / 3));
}

#[test]
fn a_time_out_retransmits_unacknowledged_frames_beginning_with_one() {
    let mut sender = sender(10);
    let mut events = VecDeque::new();
    sent(&mut sender, Time::ZERO);
    take(&mut sender, Time::ZERO + 10 * MS, &ack(1, 0, &[]));
    take(&mut sender, Time::ZERO + 10 * MS, &ack(1, 3, &[]));
    // The timer is due the minimum time-out after the last advance.
    let due = Time::ZERO + 210 * MS;
    assert_eq!(sender.poll_timeout(), Some(due));
    assert!(!sender.handle_timeout(Time::ZERO + 209 * MS, &mut events));
    assert!(sender.handle_timeout(due, &mut events));
    assert_eq!(sent(&mut sender, due), [1]);
    assert_eq!(sender.poll_timeout(), Some(due + 400 * MS));
    take(&mut sender, due + 10 * MS, &ack(2, 1, &[]));
    assert_eq!(sent(&mut sender, due + 10 * MS), [2, 3]);
}

/// Lets the timer expire. Returns the numbers that are retransmitted.
fn time_out(sender: &mut Sender<Length>) -> Vec<u32> {
    let due = sender.poll_timeout().unwrap();
    assert!(sender.handle_timeout(due, &mut VecDeque::new()));
    sent(sender, due)
}

#[test]
fn a_time_out_retransmits_frames_that_were_acknowledged_individually() {
    let mut sender = sender(4);
    sent(&mut sender, Time::ZERO);
    take(&mut sender, Time::ZERO, &ack(0, 0, &[]));
    take(&mut sender, Time::ZERO, &ack(0, 2, &[]));
    let window = sender.window_frames();
    assert_eq!(time_out(&mut sender), [0, 1, 2, 3]);
    assert_eq!(
        sender.window_frames(),
        window,
        "the first frame has arrived"
    );
}

#[test]
fn the_answer_to_a_later_frame_reveals_a_lost_retransmission() {
    let mut sender = sender(8);
    sent(&mut sender, Time::ZERO);
    take(&mut sender, Time::ZERO, &ack(0, 7, &[(0, 3)]));
    assert_eq!(sent(&mut sender, Time::ZERO), [0, 1, 2]);
    take(&mut sender, Time::ZERO, &ack(0, 6, &[(0, 3)]));
    assert_eq!(sent(&mut sender, Time::ZERO), [0u32; 0]);
    take(&mut sender, Time::ZERO, &ack(0, 1, &[(0, 1), (2, 1)]));
    assert_eq!(
        sent(&mut sender, Time::ZERO),
        [0],
        "frame 2 was sent after frame 1"
    );
}

#[test]
fn lost_frames_after_the_first_are_retransmitted_in_turn() {
    let mut sender = sender(8);
    sent(&mut sender, Time::ZERO);
    assert_eq!(time_out(&mut sender), [0]);
    let mut now = Time::ZERO + 2_000 * MS;
    take(&mut sender, now, &ack(0, 0, &[]));
    assert_eq!(sent(&mut sender, now), [1, 2]);
    assert_eq!(time_out(&mut sender), [0, 3]);
    now += 2_000 * MS;
    take(&mut sender, now, &ack(0, 3, &[(6, 1)]));
    assert_eq!(
        sent(&mut sender, now)[0],
        6,
        "the frame that was reported missing is next"
    );
}

#[test]
fn an_advance_ends_the_back_off_although_no_round_trip_is_measured() {
    let mut sender = sender(2);
    sent(&mut sender, Time::ZERO);
    let initial = sender.timeout();
    time_out(&mut sender);
    time_out(&mut sender);
    assert_eq!(sender.timeout(), 4 * initial);
    take(&mut sender, Time::ZERO, &ack(1, 0, &[]));
    assert_eq!(sender.timeout(), initial);
}

#[test]
fn a_closed_credit_is_probed_at_growing_intervals() {
    let mut sender = sender(2);
    let mut events = VecDeque::new();
    sender.grant(1024);
    assert_eq!(sent(&mut sender, Time::ZERO), [0]);
    let full = Ack {
        credit: 0,
        ..ack(1, 0, &[])
    };
    let mut now = Time::ZERO + 10 * MS;
    take(&mut sender, now, &full);
    for wait_ms in [200, 400, 800] {
        assert_eq!(sent(&mut sender, now), []);
        now += wait_ms * MS;
        assert_eq!(sender.poll_timeout(), Some(now));
        assert!(sender.handle_timeout(now, &mut events));
    }
    take(&mut sender, now, &ack(1, 0, &[]));
    assert_eq!(sent(&mut sender, now), [1]);
    assert_eq!(sender.poll_timeout(), Some(now + 200 * MS));
}

#[test]
fn the_last_number_is_kept_for_closing() {
    let mut sender = sender(0);
    (sender.first, sender.next, sender.recover) = (u32::MAX - 2, u32::MAX - 2, u32::MAX - 2);
    sender.send(frame(0)).unwrap();
    let refused = sender.send(frame(1)).unwrap_err();
    assert!(matches!(refused, SendError::Exhausted(Length(1024))));
    sender.close();
    assert_eq!(sent(&mut sender, Time::ZERO), [u32::MAX - 2, u32::MAX - 1]);
    take(&mut sender, Time::ZERO, &ack(u32::MAX, u32::MAX - 1, &[]));
    assert!(sender.is_done());
}

#[test]
fn a_frame_of_invalid_length_is_refused() {
    let mut sender = sender(0);
    for length in [0, 1025] {
        let payload = Length(length);
        let refused = sender.send(Frame { key: 0, payload });
        assert!(matches!(refused, Err(SendError::Length(_, 1024))));
    }
}

/// Returns the feedback that the frames sent at `now` ask for.
fn asked(sender: &mut Sender<Length>, now: Time) -> Vec<i32> {
    let sent = core::iter::from_fn(|| sender.poll_transmit(now));
    let feedback = sent.map(|(body, _)| match body {
        Body::Data(data) => data.congestion.feedback.0,
        other => panic!("{other:?} is not a frame"),
    });
    feedback.collect()
}

#[test]
fn a_window_that_the_application_does_not_fill_need_not_grow() {
    let mut sender = sender_by(Control::Xcp, 0);
    sender.window.on_timeout(false);
    let mut now = Time::ZERO;
    // At the start, it is unknown how much the application will send.
    sender.send(frame(0)).unwrap();
    assert!(asked(&mut sender, now)[0] > 0);
    now += 10 * MS;
    take(&mut sender, now, &ack(1, 0, &[]));
    sender.send(frame(1)).unwrap();
    assert_eq!(asked(&mut sender, now), [0]);
    // Three frames at once exceed the window of one frame.
    (2..5).for_each(|key| sender.send(frame(key)).unwrap());
    assert_eq!(asked(&mut sender, now), []);
    now += 10 * MS;
    take(&mut sender, now, &ack(2, 1, &[]));
    assert!(asked(&mut sender, now)[0] > 0);
}

#[test]
fn after_an_idle_time_the_window_is_the_initial_one() {
    let mut sender = sender(100);
    sent(&mut sender, Time::ZERO);
    let now = Time::ZERO + 10 * MS;
    let all = Ack {
        feedback: Feedback {
            change: WindowChange::MAX,
            ..Feedback::default()
        },
        ..ack(100, 99, &[])
    };
    take(&mut sender, now, &all);
    (100..300).for_each(|key| sender.send(frame(key)).unwrap());
    assert_eq!(sent(&mut sender, now + 300 * MS).len(), 100);
}

#[test]
fn an_acknowledgement_can_name_every_frame_in_flight() {
    let mut sender = Sender::new(&AcpConfig {
        frame_bytes_max: 65_000,
        send_buffer: 100_000,
        initial_window: 10_000,
        ..AcpConfig::default()
    });
    sender.grant(u32::MAX);
    for key in 0..100_000 {
        let payload = Length(1);
        sender.send(Frame { key, payload }).unwrap();
    }
    assert_eq!(
        sent(&mut sender, Time::ZERO).len(),
        FLIGHT_FRAMES_MAX as usize
    );
}

#[test]
fn after_every_second_time_out_the_reported_frame_goes_before_the_first() {
    let mut sender = sender_by(Control::Xcp, 20);
    sent(&mut sender, Time::ZERO);
    let mut now = Time::ZERO;
    // A receiver behind a switch waits for frame 7, and drops frame 0.
    take(&mut sender, now, &ack(0, 9, &[(7, 1)]));
    let mut first_sent = Vec::new();
    for _ in 0..4 {
        now = sender.timer.expect("frames are in flight");
        assert!(sender.handle_timeout(now, &mut VecDeque::new()));
        first_sent.push(sent(&mut sender, now)[0]);
    }
    assert_eq!(first_sent, [0, 7, 0, 7]);
}
