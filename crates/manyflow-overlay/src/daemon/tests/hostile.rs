//! Neighbours that ask for much, announce much, or read nothing.

use super::super::*;
use super::world::{G, Pipe};
use crate::controller::Open;
use crate::message::Message;
use crate::message::{Change, Item};
use crate::sequence::ChangeSeq;
use manyflow_core::Length;

const HERE: DaemonId = DaemonId(1);
const NEAR: DaemonId = DaemonId(2);

/// Returns a daemon with many groups, whose only neighbour takes no messages.
fn daemon_with_groups(groups: u32) -> Daemon<Length> {
    let config = OverlayConfig::default();
    let mut daemon = Daemon::new(config, Box::new(Open), HERE, 1).unwrap();
    let client = daemon.connect(Time::ZERO, 100);
    for group in 0..groups {
        let join = ClientFrame::Join(GroupId(group));
        daemon.handle_client(Time::ZERO, client, &join, Length(8));
    }
    let (closed, _) = Pipe::new(0);
    daemon.add_link(Time::ZERO, NEAR, 1, Box::new(closed));
    daemon
}

fn handle(daemon: &mut Daemon<Length>, origin: DaemonId, body: Body) {
    let message = Message {
        origin,
        copy: Default::default(),
        body,
    };
    let number = LinkSeq(0);
    let frame = Frame::Datagram { number, message };
    daemon.handle_frame(Time::ZERO, NEAR, &frame, Ecn::NotCapable, Length(8));
}

#[test]
fn a_neighbour_that_asks_for_a_state_again_and_again_gets_it_once_at_a_time() {
    let mut daemon = daemon_with_groups(1000);
    for _ in 0..1000 {
        handle(&mut daemon, HERE, Body::Request);
    }
    assert!(daemon.links.waiting() < 2000, "{}", daemon.links.waiting());
}

#[test]
fn a_neighbour_that_takes_no_messages_loses_its_link() {
    let mut daemon = daemon_with_groups(0);
    let client = daemon.connect(Time::ZERO, 100);
    let mut lost = None;
    for turn in 0..100_000u32 {
        let frame = match turn % 2 {
            0 => ClientFrame::Join(G),
            _ => ClientFrame::Leave(G),
        };
        daemon.handle_client(Time::ZERO, client, &frame, Length(8));
        assert!(daemon.links.waiting() < 70_000);
        let mut events = core::iter::from_fn(|| daemon.poll_event());
        if events.any(|event| event == Event::Overflow { neighbour: NEAR }) {
            lost = Some(turn);
        }
        while daemon.poll_transmit().is_some() {}
    }
    assert!(lost.is_some_and(|turn| turn > 60_000), "{lost:?}");
    assert!(daemon.hop(NEAR).is_none());
}

#[test]
fn a_neighbour_that_announces_absurd_states_does_no_harm() {
    let mut daemon = daemon_with_groups(0);
    let change = |change: u32, item| {
        Body::Change(Change {
            incarnation: u32::MAX,
            change: ChangeSeq(change),
            item,
        })
    };
    for number in [1, 2, u32::MAX - 1, u32::MAX] {
        let since = ChangeSeq(u32::MAX);
        for item in [
            Item::Link {
                to: HERE,
                weight: u32::MAX,
                since,
            },
            Item::Members {
                group: G,
                members: u32::MAX,
                since,
            },
            Item::Count {
                count: u32::MAX,
                incarnation: u32::MAX,
            },
        ] {
            for origin in [NEAR, HERE, DaemonId(u16::MAX)] {
                handle(&mut daemon, origin, change(number, item));
            }
        }
    }
    assert_eq!(daemon.topology().len(), 1, "nobody has sent a whole state");
    assert_eq!(daemon.members(G).count(), 0);
}
