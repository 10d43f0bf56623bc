use std::sync::atomic::Ordering;

use super::*;
use crate::daemon::tests::world::{G, Pipe, Room};
use crate::message::{Body, ClientId, Data};
use crate::sequence::{LinkSeq, OriginSeq};
use manyflow_core::Length;

const FIRST: NeighbourIndex = NeighbourIndex(0);
const SECOND: NeighbourIndex = NeighbourIndex(1);

fn whole(_link: LinkId, _message: &Message, payload: Length) -> Length {
    payload
}

/// Returns the links of the middle daemon in a chain of three. A full queue has 4 messages.
fn links() -> (Links<Length>, [Room; 2]) {
    let (pipes, rooms): (Vec<_>, Vec<_>) = (0..2).map(|_| Pipe::new(0)).unzip();
    let mut links = Links::new(DaemonId(1), 4);
    for (end, pipe) in [0, 2].into_iter().zip(pipes) {
        links.add(DaemonId(end), Box::new(pipe));
    }
    while links.pop_dirty().is_some() {}
    (links, rooms.try_into().unwrap())
}

fn message(number: u64) -> Message {
    Message {
        origin: DaemonId(0),
        copy: Default::default(),
        body: Body::Data(Data {
            group: G,
            version: 0,
            sequence: OriginSeq::new(number),
            sender: ClientId(0),
            sent_us: 0,
        }),
    }
}

fn enqueue(links: &mut Links<Length>, index: NeighbourIndex, count: u64) {
    for number in 1..=count {
        let queue = links.enqueue(index, message(number), &Length(1), None);
        assert!(queue.is_some());
    }
}

/// Lets a message arrive from each neighbour.
fn arrive(links: &mut Links<Length>) {
    for neighbour in [0, 2].map(DaemonId) {
        let frame = Frame::Datagram {
            number: LinkSeq(0),
            message: message(9),
        };
        links.handle_frame(Time::ZERO, neighbour, &frame, Ecn::NotCapable, Length(1));
    }
    while links.pop_dirty().is_some() {}
}

#[test]
fn while_a_queue_is_full_only_its_own_neighbour_is_read() {
    let (mut links, rooms) = links();
    arrive(&mut links);
    enqueue(&mut links, FIRST, 4);
    assert!(links.poll_arrival(Time::ZERO, SECOND).is_none());
    assert!(links.poll_arrival(Time::ZERO, FIRST).is_some());
    while links.pop_dirty().is_some() {}
    rooms[0].store(1, Ordering::Relaxed);
    assert!(links.fill_hop(Time::ZERO, FIRST, whole).any);
    let dirty = core::iter::from_fn(|| links.pop_dirty());
    assert_eq!(dirty.count(), 2, "all links are read again");
    assert!(links.poll_arrival(Time::ZERO, SECOND).is_some());
}

#[test]
fn relief_is_reported_when_no_queue_is_half_full_again() {
    let (mut links, rooms) = links();
    enqueue(&mut links, FIRST, 1);
    assert!(!links.are_half_full());
    enqueue(&mut links, FIRST, 2);
    enqueue(&mut links, SECOND, 2);
    assert!(links.are_half_full());
    rooms
        .iter()
        .for_each(|room| room.store(9, Ordering::Relaxed));
    let filled = links.fill_hop(Time::ZERO, FIRST, whole);
    let queue = filled.queue.map(|queue| queue.messages);
    assert_eq!((queue, filled.is_relieved), (Some(0), false));
    assert!(links.fill_hop(Time::ZERO, SECOND, whole).is_relieved);
    assert!(!links.are_half_full());
    assert!(!links.fill_hop(Time::ZERO, SECOND, whole).any);
}
