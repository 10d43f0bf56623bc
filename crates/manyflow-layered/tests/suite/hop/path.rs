//! A hop over a simulated path: a link with a queue to the child, and one without back.

use std::time::Duration;

use manyflow_core::link::{Carried, Link, LinkConfig, LossModel, QueueLimit};
use manyflow_core::{Rate, Time};
use manyflow_layered::hop::{Echo, Hop, HopConfig, HopEnd, Sounding, Transmit};

pub(crate) const BYTES: u32 = 1000;
const SOUNDING_BYTES: u32 = 76;

/// A packet of a session without groups.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Item;

impl Carried for Item {}

#[derive(Clone, Debug)]
enum Down {
    Item,
    Sounding(Sounding),
}

impl Carried for Down {}

#[derive(Clone, Debug)]
struct Up(Echo);

impl Carried for Up {}

/// The packets that arrived in an interval.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) bits_per_s: f64,
    pub(crate) loss: f64,
}

pub(crate) struct Path {
    pub(crate) now: Time,
    pub(crate) hop: Hop<Item>,
    pub(crate) end: HopEnd,
    down: Link<Down>,
    up: Link<Up>,
    /// The time between packets of an application that sends at a constant rate; `None` for one
    /// that always has a packet.
    pub(crate) pace: Option<Duration>,
    next_push: Time,
    pub(crate) answers: bool,
    /// Packets that arrived, and packets that the link dropped.
    arrived: u64,
}

pub(crate) fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

pub(crate) fn down(rate: u64, delay: Duration, queue: QueueLimit) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(rate)),
        delay,
        queue,
        ..LinkConfig::default()
    }
}

impl Path {
    pub(crate) fn new(config: HopConfig, link: LinkConfig) -> Path {
        let up = LinkConfig {
            delay: link.delay,
            ..LinkConfig::default()
        };
        Path {
            now: Time::ZERO,
            hop: Hop::new(config, 77, 1, Time::ZERO).expect("valid parameters"),
            end: HopEnd::new(9),
            down: Link::new(link, 1),
            up: Link::new(up, 2),
            pace: None,
            next_push: Time::ZERO,
            answers: true,
            arrived: 0,
        }
    }

    pub(crate) fn set_link(&mut self, change: impl FnOnce(&mut LinkConfig)) {
        let mut config = self.down.config().clone();
        change(&mut config);
        self.down.reconfigure(self.now, config);
    }

    pub(crate) fn set_loss(&mut self, probability: f64) {
        self.set_link(|config| config.loss = LossModel::Bernoulli(probability));
    }

    /// Returns the packets that have not arrived, without soundings.
    pub(crate) fn missing(&self) -> u64 {
        self.hop.counters().sent - self.arrived
    }

    /// Returns the packets and soundings that the link has dropped and lost.
    pub(crate) fn dropped(&self) -> u64 {
        let counters = self.down.counters();
        counters.dropped + counters.lost
    }

    fn feed(&mut self) {
        match self.pace {
            None => {
                while self.hop.queued().0 < 5 {
                    let _ = self.hop.push(self.now, Item, BYTES);
                }
                self.next_push = Time::MAX;
            }
            Some(pace) => {
                self.next_push = self.next_push.min(self.now);
                let _ = self.hop.push(self.now, Item, BYTES);
                self.next_push = self.now + pace;
            }
        }
    }

    fn transmit(&mut self) {
        while let Some(sent) = self.hop.poll_transmit(self.now) {
            let _ = match sent {
                Transmit::Item(Item, bytes) => self.down.push(self.now, Down::Item, bytes),
                Transmit::Sounding(sounding) => {
                    let sounding = Down::Sounding(sounding);
                    self.down.push(self.now, sounding, SOUNDING_BYTES)
                }
            };
            if self.pace.is_none() {
                self.feed();
            }
        }
    }

    fn receive(&mut self) {
        while let Some(arrived) = self.down.pop_ready(self.now) {
            match arrived {
                Down::Item => {
                    self.arrived += 1;
                    self.end.handle_data(BYTES);
                }
                Down::Sounding(sounding) => {
                    if let Some(echo) = self.end.handle_sounding(&sounding)
                        && self.answers
                    {
                        let _ = self.up.push(self.now, Up(echo), SOUNDING_BYTES);
                    }
                }
            }
        }
        while let Some(Up(echo)) = self.up.pop_ready(self.now) {
            self.hop.handle_echo(self.now, &echo);
        }
    }

    /// Runs until `end`, in seconds of simulated time.
    pub(crate) fn run_until(&mut self, end_s: f64) -> Measured {
        let (from, end) = (self.now, Time::from_secs_f64(end_s));
        let before = (self.arrived, self.hop.counters().sent);
        let lost = self.down.counters();
        let lost_before = lost.lost + lost.dropped;
        if self.pace.is_none() || self.next_push == Time::ZERO {
            self.feed();
        }
        if let Some(pace) = self.pace {
            self.next_push = self.next_push.min(self.now + pace);
        }
        loop {
            self.transmit();
            let times = [
                self.down.next_time(),
                self.up.next_time(),
                self.hop.poll_timeout(),
            ];
            let push = self.pace.map(|_| self.next_push);
            let next = times.into_iter().chain([push]).flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            self.receive();
            self.hop.handle_timeout(self.now);
            if self.pace.is_some() && self.next_push <= self.now {
                self.feed();
            }
        }
        self.now = end;
        let span = (end - from).as_secs_f64();
        let sent = self.hop.counters().sent - before.1;
        let lost = self.down.counters();
        Measured {
            bits_per_s: (self.arrived - before.0) as f64 * f64::from(BYTES) * 8.0 / span,
            loss: (lost.lost + lost.dropped - lost_before) as f64 / (sent.max(1)) as f64,
        }
    }
}
