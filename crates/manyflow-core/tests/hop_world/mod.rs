//! A world of one overlay link: a hop at each end, and a [`Link`] each way. A greedy application at the first end numbers what it
//! pushes; the second end reads as long as it is told to.

use std::time::Duration;

use manyflow_core::link::{Carried, Link, LinkConfig};
use manyflow_core::overlay::hop::{Hop, StreamHop};
use manyflow_core::overlay::{Body, ClientId, DaemonId, Data, Frame, GroupId, Message};
use manyflow_core::tcp::TcpConfig;
use manyflow_core::{Ecn, Length, Payload, Time};

/// A frame on its way, and its payload.
#[derive(Clone, Debug)]
pub(crate) struct OnWire(pub(crate) Frame, Length);

impl Carried for OnWire {}

/// Sees each frame before its link does; false takes it away.
pub(crate) type Tamper = Box<dyn FnMut(Time, &Frame) -> bool>;

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) ends: [StreamHop<Length>; 2],
    /// From each end to the other.
    pub(crate) links: [Link<OnWire>; 2],
    pub(crate) tamper: [Tamper; 2],
    /// How many messages the application has, and how many of them are pushed.
    pub(crate) supply: u32,
    pub(crate) pushed: u32,
    /// Whether the second end is read from, and what was read.
    pub(crate) reads: bool,
    pub(crate) read: u32,
}

/// The application's message: its number from 1 on.
pub(crate) fn message(sequence: u32) -> Message {
    Message {
        origin: DaemonId(0),
        repaired: false,
        body: Body::Data(Data {
            group: GroupId(1),
            sequence,
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
            supply: 0,
            pushed: 0,
            reads: true,
            read: 0,
        }
    }

    /// Runs until `end`; messages that are offered meanwhile go as there is room.
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

    /// What a daemon does after each input: read, fill and drain until nothing moves.
    fn settle(&mut self) {
        self.read_arrivals();
        loop {
            self.drain(1);
            self.drain(0);
            if self.pushed == self.supply || !self.ends[0].has_room() {
                return;
            }
            self.pushed += 1;
            self.ends[0].push(self.now, message(self.pushed), PAYLOAD);
        }
    }

    fn drain(&mut self, from: usize) {
        while let Some((frame, payload)) = self.ends[from].poll_frame(self.now) {
            if (self.tamper[from])(self.now, &frame) {
                let bytes = frame.wire_bytes() + payload.length();
                let _ = self.links[from].push(self.now, OnWire(frame, payload), bytes);
            }
        }
    }

    /// Everything arrives once and in order.
    fn read_arrivals(&mut self) {
        while self.reads
            && let Some(arrival) = self.ends[1].poll_arrival(self.now)
        {
            self.read += 1;
            assert_eq!(arrival.message, message(self.read));
            assert_eq!(arrival.payload, PAYLOAD);
        }
    }
}
