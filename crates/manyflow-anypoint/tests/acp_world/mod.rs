//! A world of one ACP connection: two ends, and a [`Link`] in each direction.

use std::time::Duration;

use manyflow_anypoint::Event;
use manyflow_anypoint::{AcpConfig, Connection, Frame, Payload, Segment};
use manyflow_core::Time;
use manyflow_core::link::{Carried, Link, LinkConfig};

/// A segment, and the payload of a frame.
#[derive(Clone)]
pub(crate) struct Datagram<P>(pub(crate) Segment, pub(crate) Option<P>);

impl<P: Payload> Carried for Datagram<P> {}

/// One end with its application.
pub(crate) struct End<P> {
    pub(crate) connection: Connection<P>,
    /// The frames to send, last first.
    pub(crate) to_send: Vec<(u32, P)>,
    /// Whether the application closes after the last frame.
    pub(crate) closes: bool,
    /// The time that the application spends on each frame.
    pub(crate) service: Duration,
    free_at: Time,
    pub(crate) read: Vec<Frame<P>>,
    pub(crate) events: Vec<(Time, Event)>,
    link: Link<Datagram<P>>,
    /// The number of times that the application found the send buffer full.
    pub(crate) refused: u32,
}

impl<P: Payload> End<P> {
    fn new(connection: Connection<P>, link: LinkConfig, seed: u64) -> End<P> {
        End {
            connection,
            to_send: Vec::new(),
            closes: false,
            service: Duration::ZERO,
            free_at: Time::ZERO,
            read: Vec::new(),
            events: Vec::new(),
            link: Link::new(link, seed),
            refused: 0,
        }
    }

    fn run(&mut self, now: Time) {
        while let Some((key, payload)) = self.to_send.pop() {
            if let Err(error) = self.connection.send(key, payload) {
                self.to_send.push((key, error.into_payload()));
                self.refused += 1;
                break;
            }
        }
        if self.closes && self.to_send.is_empty() {
            self.connection.close();
        }
        while self.free_at <= now
            && let Some(frame) = self.connection.receive(now)
        {
            self.read.push(frame);
            self.free_at = now + self.service;
        }
        while let Some((segment, payload)) = self.connection.poll_transmit(now) {
            let bytes = segment.wire_bytes() + payload.as_ref().map_or(0, Payload::length);
            let _ = self.link.push(now, &Datagram(segment, payload), bytes);
        }
        while let Some(event) = self.connection.poll_event() {
            self.events.push((now, event));
        }
    }

    fn next_time(&self) -> Option<Time> {
        let reads = self.connection.is_readable().then_some(self.free_at);
        let timers = [self.connection.poll_timeout(), self.link.next_time(), reads];
        timers.into_iter().flatten().min()
    }

    pub(crate) fn keys(&self) -> Vec<u32> {
        self.read.iter().map(|frame| frame.key).collect()
    }

    pub(crate) fn count(&self, event: Event) -> usize {
        self.events
            .iter()
            .filter(|(_, seen)| *seen == event)
            .count()
    }

    /// Returns the time of the first `event`.
    pub(crate) fn first(&self, event: Event) -> Option<Time> {
        let first = self.events.iter().find(|(_, seen)| *seen == event);
        first.map(|(at, _)| *at)
    }
}

/// Both ends. The first end is the initiator.
pub(crate) struct World<P> {
    pub(crate) now: Time,
    pub(crate) ends: [End<P>; 2],
    empty: P,
}

impl<P: Payload> World<P> {
    pub(crate) fn new(configs: [AcpConfig; 2], link: &LinkConfig, seed: u64, empty: P) -> World<P> {
        let [first, second] = configs;
        let initiator = Connection::connect(first, 7, Time::ZERO).expect("a valid initiator");
        let acceptor = Connection::listen(second).expect("a valid acceptor");
        World {
            now: Time::ZERO,
            ends: [
                End::new(initiator, link.clone(), seed),
                End::new(acceptor, link.clone(), seed + 1000),
            ],
            empty,
        }
    }

    /// Runs until `end`, or until no event is left.
    pub(crate) fn run_until(&mut self, end: Duration) {
        let end = Time::ZERO + end;
        self.run_ends();
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.step();
        }
        self.now = end;
    }

    fn next_time(&self) -> Option<Time> {
        self.ends.iter().filter_map(End::next_time).min()
    }

    fn run_ends(&mut self) {
        let now = self.now;
        self.ends.iter_mut().for_each(|end| end.run(now));
    }

    fn step(&mut self) {
        let now = self.now;
        for end in &mut self.ends {
            end.connection.handle_timeout(now);
        }
        self.run_ends();
        for to in 0..2 {
            while let Some(Datagram(segment, payload)) = self.ends[1 - to].link.pop_ready(now) {
                let payload = payload.unwrap_or_else(|| self.empty.clone());
                self.ends[to]
                    .connection
                    .handle_segment(now, &segment, payload);
                self.ends[to].run(now);
            }
        }
    }

    /// Cuts the link from this end, or restores it.
    pub(crate) fn set_cut(&mut self, end: usize, cut: bool) {
        self.ends[end].link.set_cut(self.now, cut);
    }
}
