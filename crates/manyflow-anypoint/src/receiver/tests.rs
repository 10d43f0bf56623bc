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

/// Hands over a frame; returns its acknowledgement, and whether it was dropped for want of room.
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

/// The acknowledgement's numbers: cumulative, and the gaps from first to last.
fn told(ack: Option<Ack>) -> (u32, Vec<(u32, u32)>) {
    let ack = ack.expect("an acknowledgement");
    let used = ack.missing.iter().filter(|gap| gap.frames > 0);
    let gaps = used.map(|gap| {
        let from = ack.cumulative + u32::from(gap.offset);
        (from, from + u32::from(gap.frames) - 1)
    });
    (ack.cumulative, gaps.collect())
}

#[test]
fn a_gap_is_reported_when_three_later_frames_have_come() {
    let mut receiver = by_credit(100);
    assert_eq!(told(take(&mut receiver, 0, 1000).0), (1, vec![]));
    assert_eq!(told(take(&mut receiver, 3, 1000).0), (1, vec![]));
    assert_eq!(told(take(&mut receiver, 5, 1000).0), (1, vec![]));
    assert_eq!(told(take(&mut receiver, 6, 1000).0), (1, vec![(1, 2)]));
    // Two frames are above the gap at 4, then three.
    assert_eq!(
        told(take(&mut receiver, 7, 1000).0),
        (1, vec![(1, 2), (4, 4)])
    );
    assert_eq!(told(take(&mut receiver, 1, 1000).0), (2, vec![]));
    assert_eq!(told(take(&mut receiver, 2, 1000).0), (4, vec![]));
    assert_eq!(told(take(&mut receiver, 8, 1000).0), (4, vec![(4, 4)]));
    assert_eq!(told(take(&mut receiver, 4, 1000).0), (9, vec![]));
    assert_eq!(core::iter::from_fn(|| receiver.read(Time::ZERO)).count(), 9);
}

#[test]
fn the_three_lowest_gaps_are_reported() {
    let mut receiver = by_credit(100);
    let last = [1, 3, 5, 7, 9, 11, 12].map(|n| take(&mut receiver, n, 1000).0);
    assert_eq!(told(last[6]), (0, vec![(0, 0), (2, 2), (4, 4)]));
}

#[test]
fn credit_is_what_the_unread_frames_leave() {
    let mut receiver = by_credit(4);
    assert_eq!(receiver.credit(), 4000);
    assert_eq!(
        take(&mut receiver, 0, 1000).0.map(|ack| ack.credit),
        Some(3000)
    );
    // Beyond a gap: its place was granted already.
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
    // Two frames are worth a packet, one is not.
    receiver.read(Time::ZERO);
    assert_eq!(receiver.poll_transmit(), None);
    receiver.read(Time::ZERO);
    let update = receiver.poll_transmit().expect("an update");
    assert_eq!((update.cumulative, update.of, update.credit), (4, 3, 2000));
}

#[test]
fn soft_flow_control_keeps_a_place_for_the_frame_that_is_next() {
    let mut receiver = receiver(4, FlowControl::Soft(SoftConfig::default()));
    for sequence in 1..4 {
        assert!(take(&mut receiver, sequence, 1000).0.is_some());
    }
    assert_eq!(take(&mut receiver, 4, 1000), (None, true));
    assert_eq!(told(take(&mut receiver, 0, 1000).0), (4, vec![]));
}

#[test]
fn what_is_furthest_beyond_a_gap_gives_way_to_the_frame_that_is_next() {
    let mut receiver = by_credit(4);
    // More than was granted: the missing frame has no place.
    for sequence in 1..5 {
        assert!(take(&mut receiver, sequence, 1000).0.is_some());
    }
    assert_eq!(told(take(&mut receiver, 0, 1000).0), (4, vec![]));
    assert_eq!((receiver.occupied(), receiver.beyond_frames), (4000, 0));
    let read = core::iter::from_fn(|| receiver.read(Time::ZERO));
    assert_eq!(
        read.map(|frame| frame.key).collect::<Vec<_>>(),
        [0, 1, 2, 3]
    );
    receiver.poll_transmit().expect("news of the room");
    assert_eq!(told(take(&mut receiver, 4, 1000).0), (5, vec![]));
}

#[test]
fn frames_of_a_byte_are_held_up_to_a_number() {
    let mut receiver = by_credit(1000);
    let taken = (0..70_000).filter(|n| take(&mut receiver, *n, 1).0.is_some());
    assert_eq!(taken.count(), FLIGHT_FRAMES_MAX as usize);
    assert!(take(&mut receiver, FLIGHT_FRAMES_MAX, 1).1);
    receiver.read(Time::ZERO);
    assert!(take(&mut receiver, FLIGHT_FRAMES_MAX, 1).0.is_some());
}

#[test]
fn the_farthest_frame_that_can_be_reported_is_the_farthest_that_is_held() {
    let mut receiver = by_credit(1000);
    assert_eq!(take(&mut receiver, FLIGHT_FRAMES_MAX, 1), (None, false));
    let far = FLIGHT_FRAMES_MAX - 3..FLIGHT_FRAMES_MAX;
    let last = far.map(|n| take(&mut receiver, n, 1).0).last().flatten();
    assert_eq!(told(last), (0, vec![(0, FLIGHT_FRAMES_MAX - 4)]));
}

#[test]
fn the_last_number_is_taken_and_none_follows() {
    let mut receiver = by_credit(10);
    receiver.next = u32::MAX - 2;
    assert!(take(&mut receiver, u32::MAX, 1000).0.is_none());
    assert!(take(&mut receiver, u32::MAX - 2, 1000).0.is_some());
    receiver.handle_close(u32::MAX - 1);
    assert_eq!(told(receiver.poll_transmit()), (u32::MAX, vec![]));
    assert!(receiver.is_closed());
    assert!(take(&mut receiver, u32::MAX, 1000).0.is_none());
}

#[test]
fn what_lies_beyond_the_closing_is_forgotten() {
    let mut receiver = by_credit(10);
    take(&mut receiver, 3, 1000);
    receiver.handle_close(1);
    take(&mut receiver, 0, 1000);
    assert!(receiver.is_closed());
    assert_eq!((receiver.occupied(), receiver.beyond.len()), (1000, 0));
}
