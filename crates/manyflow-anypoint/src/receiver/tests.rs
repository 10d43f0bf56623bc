//! Tests of the receiving half.

use super::super::{Length, SoftConfig};
use super::*;
use manyflow_core::xcp::Congestion;

fn receiver(frames: u32, flow: FlowControl) -> Receiver<Length> {
    Receiver::new(&AcpConfig {
        flow,
        frame_bytes_max: 1000,
        receive_buffer: frames * 1000,
        ..AcpConfig::default()
    })
}

fn by_credit(frames: u32) -> Receiver<Length> {
    receiver(frames, FlowControl::Credit)
}

/// Handles a frame of `bytes`. Returns its acknowledgement, and whether the frame was dropped
/// because there was no room.
fn take(receiver: &mut Receiver<Length>, sequence: u32, bytes: u32) -> (Option<Ack>, bool) {
    let mut events = VecDeque::new();
    let data = Data {
        sequence,
        key: sequence,
        congestion: Congestion::default(),
    };
    receiver.handle_data(Time::ZERO, &data, Length(bytes), bytes + 56, &mut events);
    (receiver.poll_transmit(), events.contains(&Event::Overflow))
}

/// Returns the cumulative number of an acknowledgement, and the first and last number of each gap.
fn reported(ack: Option<Ack>) -> (u32, Vec<(u32, u32)>) {
    let ack = ack.expect("an acknowledgement");
    let used = ack.missing.iter().filter(|gap| gap.frames > 0);
    let gaps = used.map(|gap| {
        let from = ack.cumulative + u32::from(gap.offset);
        (from, from + u32::from(gap.frames) - 1)
    });
    (ack.cumulative, gaps.collect())
}

#[test]
fn a_gap_is_reported_when_three_later_frames_have_arrived() {
    let mut receiver = by_credit(100);
    assert_eq!(reported(take(&mut receiver, 0, 1000).0), (1, vec![]));
    assert_eq!(reported(take(&mut receiver, 3, 1000).0), (1, vec![]));
    assert_eq!(reported(take(&mut receiver, 5, 1000).0), (1, vec![]));
    assert_eq!(reported(take(&mut receiver, 6, 1000).0), (1, vec![(1, 2)]));
    // First two, then three frames are above the gap at 4.
    assert_eq!(
        reported(take(&mut receiver, 7, 1000).0),
        (1, vec![(1, 2), (4, 4)])
    );
    assert_eq!(
        reported(take(&mut receiver, 1, 1000).0),
        (2, vec![(2, 2), (4, 4)])
    );
    assert_eq!(reported(take(&mut receiver, 2, 1000).0), (4, vec![(4, 4)]));
    assert_eq!(reported(take(&mut receiver, 8, 1000).0), (4, vec![(4, 4)]));
    assert_eq!(reported(take(&mut receiver, 4, 1000).0), (9, vec![]));
    assert_eq!(core::iter::from_fn(|| receiver.read(Time::ZERO)).count(), 9);
}

#[test]
fn each_report_has_the_highest_gap_and_two_others_in_turn() {
    let mut receiver = by_credit(100);
    // Every second frame is lost. Each arrival from 5 on shows a gap of one frame below it.
    for arrived in (1..=29).step_by(2) {
        let (_, gaps) = reported(take(&mut receiver, arrived, 1000).0);
        let newest = arrived.checked_sub(5).map(|number| (number, number));
        assert_eq!(gaps.last().copied(), newest);
    }
    // Repeated acknowledgements name the 13 gaps, of which the highest is always there.
    let mut named = Vec::new();
    for _ in 0..6 {
        receiver.repeat_ack();
        let (_, gaps) = reported(receiver.poll_transmit());
        assert_eq!((gaps.len(), gaps[2]), (3, (24, 24)));
        named.extend(gaps[..2].iter().map(|gap| gap.0));
    }
    named.sort_unstable();
    assert_eq!(named, (0..24).step_by(2).collect::<Vec<_>>());
}

#[test]
fn credit_is_the_room_that_unread_frames_leave() {
    let mut receiver = by_credit(4);
    assert_eq!(receiver.credit(), 4000);
    assert_eq!(
        take(&mut receiver, 0, 1000).0.map(|ack| ack.credit),
        Some(3000)
    );
    // Room for a frame beyond a gap was granted already.
    assert_eq!(
        take(&mut receiver, 2, 1000).0.map(|ack| ack.credit),
        Some(3000)
    );
    assert_eq!(
        take(&mut receiver, 1, 1000).0.map(|ack| ack.credit),
        Some(1000)
    );
    assert!(take(&mut receiver, 3, 1000).0.is_some());
    assert_eq!(take(&mut receiver, 4, 1000), (None, true));
    // Room for two frames is worth a packet; room for one is not.
    receiver.read(Time::ZERO);
    assert_eq!(receiver.poll_transmit(), None);
    receiver.read(Time::ZERO);
    let update = receiver.poll_transmit().expect("an update");
    assert_eq!((update.cumulative, update.of, update.credit), (4, 3, 2000));
}

#[test]
fn soft_flow_control_reserves_room_for_the_next_frame() {
    let mut receiver = receiver(4, FlowControl::Soft(SoftConfig::default()));
    for sequence in 1..4 {
        assert!(take(&mut receiver, sequence, 1000).0.is_some());
    }
    assert_eq!(take(&mut receiver, 4, 1000), (None, true));
    assert_eq!(reported(take(&mut receiver, 0, 1000).0), (4, vec![]));
}

#[test]
fn the_furthest_frames_beyond_a_gap_give_way_to_the_next_frame() {
    let mut receiver = by_credit(4);
    // The frames exceed the credit, so the missing frame has no room.
    for sequence in 1..5 {
        assert!(take(&mut receiver, sequence, 1000).0.is_some());
    }
    assert_eq!(reported(take(&mut receiver, 0, 1000).0), (4, vec![]));
    assert_eq!((receiver.occupied(), receiver.beyond_frames), (4000, 0));
    let read = core::iter::from_fn(|| receiver.read(Time::ZERO));
    assert_eq!(
        read.map(|frame| frame.key).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    receiver.poll_transmit().expect("news of the room");
    assert_eq!(reported(take(&mut receiver, 4, 1000).0), (5, vec![]));
}

#[test]
fn the_number_of_held_one_byte_frames_is_bounded() {
    let mut receiver = by_credit(1000);
    let taken = (0..70_000).filter(|n| take(&mut receiver, *n, 1).0.is_some());
    assert_eq!(taken.count(), FLIGHT_FRAMES_MAX as usize);
    assert!(take(&mut receiver, FLIGHT_FRAMES_MAX, 1).1);
    receiver.read(Time::ZERO);
    assert!(take(&mut receiver, FLIGHT_FRAMES_MAX, 1).0.is_some());
}

#[test]
fn frames_are_held_as_far_as_gaps_can_be_reported() {
    let mut receiver = by_credit(1000);
    assert_eq!(take(&mut receiver, FLIGHT_FRAMES_MAX, 1), (None, false));
    let far = FLIGHT_FRAMES_MAX - 3..FLIGHT_FRAMES_MAX;
    let last = far.map(|n| take(&mut receiver, n, 1).0).last().flatten();
    assert_eq!(reported(last), (0, vec![(0, FLIGHT_FRAMES_MAX - 4)]));
}

#[test]
fn the_last_valid_number_is_accepted_and_no_other_follows() {
    let mut receiver = by_credit(10);
    receiver.next = u32::MAX - 2;
    assert!(take(&mut receiver, u32::MAX, 1000).0.is_none());
    assert!(take(&mut receiver, u32::MAX - 2, 1000).0.is_some());
    receiver.handle_close(u32::MAX - 1);
    assert_eq!(reported(receiver.poll_transmit()), (u32::MAX, vec![]));
    assert!(receiver.is_closed());
    assert!(take(&mut receiver, u32::MAX, 1000).0.is_none());
}

#[test]
fn frames_beyond_the_closing_are_forgotten() {
    let mut receiver = by_credit(10);
    take(&mut receiver, 3, 1000);
    receiver.handle_close(1);
    take(&mut receiver, 0, 1000);
    assert!(receiver.is_closed());
    assert_eq!((receiver.occupied(), receiver.beyond.len()), (1000, 0));
}

#[test]
fn a_missing_frame_takes_the_place_of_the_furthest_one_although_an_earlier_one_is_missing_too() {
    let mut receiver = receiver(4, FlowControl::Soft(SoftConfig::default()));
    // Frames 0 to 2 of one member are missing, while others fill the buffer.
    for sequence in 3..6 {
        assert!(take(&mut receiver, sequence, 1000).0.is_some());
    }
    for sequence in [1, 2] {
        let (ack, is_dropped) = take(&mut receiver, sequence, 1000);
        assert!(ack.is_some() && !is_dropped, "frame {sequence}");
    }
    assert_eq!(take(&mut receiver, 5, 1000), (None, true));
    assert_eq!(reported(take(&mut receiver, 0, 1000).0), (4, vec![]));
}
