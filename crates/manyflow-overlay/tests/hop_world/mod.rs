//! A world of one overlay link: a hop at each end, and a [`Link`] in each direction. An application
//! at each end pushes numbered messages and reads. A test can stop the reader at the second end.

use std::time::Duration;

use manyflow_core::link::{Carried, Link, LinkConfig};
use manyflow_core::{Ecn, Length, Payload, Time};
use manyflow_overlay::hop::{Hop, StreamHop};
use manyflow_overlay::{Body, ClientId, DaemonId, Data, Frame, GroupId, Message, OriginSeq};
use manyflow_tcp::TcpConfig;

/// A frame in transit, and its payload.
#[derive(Clone, Debug)]
pub(crate) struct OnWire(pub(crate) Frame, Length);

impl Carried for OnWire {}

/// Inspects each frame before its link accepts it. Returns `false` to drop the frame.
pub(crate) type Tamper = Box<dyn FnMut(Time, &Frame) -> bool>;

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) ends: [StreamHop<Length>; 2],
    /// The links from each end to the other.
    pub(crate) links: [Link<OnWire>; 2],
    pub(crate) tamper: [Tamper; 2],
    /// The number of messages that each application has produced; `pushed` of them have been
    /// pushed.
    pub(crate) supply: [u32; 2],
    pub(crate) pushed: [u32; 2],
    /// Whether the second end reads; `read` is the number of messages that each end has read.
    pub(crate) reads: bool,
    pub(crate) read: [u32; 2],
}

/// Returns the application's message with this number, from 1.
pub(crate) fn message(sequence: u32) -> Message {
    Message {
        origin: DaemonId(0),
        repaired: false,
        body: Body::Data(Data {
            group: GroupId(1),
            sequence: OriginSeq(sequence),
            sender: ClientId(1),
            sent_us: 0,
        }),
    }
}

pub(crate) const PAYLOAD: Length = Length(980);

impl World {
    pub(crate) fn new(tcp: TcpConfig, links: [LinkConfig; 2], seed: u64) -> World {
        let end = |seed| StreamHop::new(tcp.clone(), seed).expect("a valid stream");
        let [there, back] = links;
        World {
            now: Time::ZERO,
            ends: [end(seed), end(seed + 1)],
            links: [Link::new(there, seed + 2), Link::new(back, seed + 3)],
            tamper: [Box::new(|_, _| true), Box::new(|_, _| true)],
            supply: [0; 2],
            pushed: [0; 2],
            reads: true,
            read: [0; 2],
        }
    }

    /// Runs until `end`. Messages that are supplied meanwhile are pushed when there is room.
    pub(crate) fn run_until(&mut self, end: Duration) {
        let end = Time::ZERO + end;
        self.settle();
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.step();
        }
        self.now = end;
    }

    fn next_time(&self) -> Option<Time> {
        let ends = self.ends.iter().filter_map(|end| end.poll_timeout());
        let links = self.links.iter().filter_map(|link| link.next_time());
        ends.chain(links).min()
    }

    fn step(&mut self) {
        for end in &mut self.ends {
            end.handle_timeout(self.now);
        }
        self.settle();
        for from in 0..2 {
            while let Some(OnWire(frame, payload)) = self.links[from].pop_ready(self.now) {
                self.ends[1 - from].handle_frame(self.now, &frame, Ecn::NotCapable, payload);
                self.settle();
            }
        }
    }

    /// Serves the hops as a daemon does after each input: reads, fills and drains until nothing
    /// moves.
    fn settle(&mut self) {
        self.read_arrivals();
        loop {
            self.drain(1);
            self.drain(0);
            if ![0, 1].map(|end| self.push_one(end)).contains(&true) {
                return;
            }
        }
    }

    fn push_one(&mut self, end: usize) -> bool {
        if self.pushed[end] == self.supply[end] || !self.ends[end].has_room() {
            return false;
        }
        self.pushed[end] += 1;
        self.ends[end].push(self.now, message(self.pushed[end]), PAYLOAD);
        true
    }

    fn drain(&mut self, from: usize) {
        while let Some((frame, payload)) = self.ends[from].poll_transmit(self.now) {
            if (self.tamper[from])(self.now, &frame) {
                let bytes = frame.wire_bytes() + payload.length();
                let _ = self.links[from].push(self.now, &OnWire(frame, payload), bytes);
            }
        }
    }

    /// Reads arrivals and asserts that each message arrives once and in order.
    fn read_arrivals(&mut self) {
        for end in 0..2 {
            while (end == 0 || self.reads)
                && let Some(arrival) = self.ends[end].poll_arrival(self.now)
            {
                self.read[end] += 1;
                assert_eq!(arrival.message, message(self.read[end]));
                assert_eq!(arrival.payload, PAYLOAD);
            }
        }
    }
}
