//! WEBRC's sender and receiver over one simulated link of 2 Mbit/s: the run loop that every state
//! machine of manyflow expects, written out.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::collections::{BTreeSet, VecDeque};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::link::{Link, LinkConfig, QueueLimit};
use manyflow_core::{Action, Channel, Destination, Endpoint, Packet, Time};
use manyflow_webrc::{Event, Receiver, ReceiverConfig, Sender, Session, SessionConfig};

const DELAY: Duration = Duration::from_millis(20);

fn main() -> Result<(), Box<dyn Error>> {
    let session = Session::new(SessionConfig::wan("20 Mbit/s".parse()?))?;
    let (id, start, seed) = (0, Time::ZERO, 1);
    let mut sender = Sender::new(session.clone(), id, start);
    let config = Arc::new(ReceiverConfig::default());
    let mut receiver = Receiver::new(Arc::new(session), config, id, start)?;
    let bottleneck = LinkConfig {
        rate: Some("2 Mbit/s".parse()?),
        delay: DELAY,
        queue: QueueLimit::Packets(40),
        ..LinkConfig::default()
    };
    let mut link: Link<Packet<_>> = Link::new(bottleneck, seed);
    let mut joined = BTreeSet::new();
    // Joins and leaves take the link's delay to the sender's side.
    let mut upstream: VecDeque<(Time, Channel, bool)> = VecDeque::new();
    let mut received_bytes = 0;
    let end = Time::from_secs_f64(120.0);

    loop {
        let next = [
            sender.poll_timeout(),
            receiver.poll_timeout(),
            link.next_time(),
            upstream.front().map(|(time, ..)| *time),
        ];
        let Some(now) = next.into_iter().flatten().min().filter(|now| *now < end) else {
            break;
        };
        while upstream.front().is_some_and(|(time, ..)| *time <= now)
            && let Some((_, channel, joins)) = upstream.pop_front()
        {
            if joins {
                joined.insert(channel);
            } else {
                joined.remove(&channel);
            }
        }
        sender.handle_timeout(now);
        while let Some(Action::Send(packet)) = sender.poll_action(now) {
            // Only joined channels go onto the link; it counts the packets that it drops.
            if matches!(packet.destination, Destination::Channel(channel) if joined.contains(&channel))
            {
                let bytes = packet.wire_bytes();
                let _ = link.push(now, packet, bytes);
            }
        }
        while let Some(packet) = link.pop_ready(now) {
            received_bytes += u64::from(packet.wire_bytes());
            receiver.handle_packet(now, &packet);
        }
        receiver.handle_timeout(now);
        while let Some(action) = receiver.poll_action(now) {
            match action {
                Action::Join(channel) => upstream.push_back((now + DELAY, channel, true)),
                Action::Leave(channel) => upstream.push_back((now + DELAY, channel, false)),
                Action::Send(never) => match never.header {},
            }
        }
        while let Some(event) = receiver.poll_event() {
            if let Event::SlowStartEnded(why) = event {
                println!("{now}: start-up ended: {why:?}");
            }
        }
    }
    let mbit_per_s = received_bytes as f64 * 8.0 / 1e6 / end.as_secs_f64();
    println!("{mbit_per_s:.2} Mbit/s on average over a link of 2 Mbit/s");
    Ok(())
}
