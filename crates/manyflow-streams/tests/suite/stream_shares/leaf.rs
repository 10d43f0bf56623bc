//! A receiver and its links.

use std::time::Duration;

use manyflow_core::link::{Carried, Link, LinkConfig, LossModel, QueueLimit};
use manyflow_core::{Action, Channel, Destination, Ecn, Packet, Rate, Time};
use manyflow_layered::hop::is_hop_message;
use manyflow_layered::relay::ReportingEnd;
use manyflow_layered::repair::Arrival;
use manyflow_layered::unit::{Assembler, AssemblerConfig, Latency, Piece};
use manyflow_layered::{Event, Feedback, Message};
use manyflow_netsim::models::Lie;
use manyflow_streams::SendControl;

use crate::stream_shares::ends::{SESSION, Subscriber, subscriber};

/// The delay of each direction of a link, and its queue as the time that the queue takes to drain.
const DELAY: Duration = Duration::from_millis(20);
const QUEUE_S: f64 = 0.1;
/// The bytes of the headers of AMT, IPv4 and UDP before the header of the session.
pub(crate) const INNER_BYTES: usize = 2 + 28;
/// The time between two records of a receiver's counts.
pub(crate) const TICK: Duration = Duration::from_millis(250);

/// A datagram, or a join or leave with the new top group.
#[derive(Clone, Debug)]
pub(crate) enum Crossing {
    Datagram(Vec<u8>),
    Top(Option<u8>),
}

impl Carried for Crossing {}

/// The counts of a receiver at one moment.
#[derive(Copy, Clone, Debug, Default)]
struct Tick {
    at_s: f64,
    useful: u64,
    carried: u64,
    packets: u64,
    lost: u64,
    units: u64,
    missing: u64,
}

/// A receiver, and the links to and from it.
pub(crate) struct Leaf {
    pub(crate) lie: Option<Lie>,
    pub(crate) receiver: Box<dyn Subscriber>,
    end: ReportingEnd,
    assembler: Assembler,
    pub(crate) down: Link<Crossing>,
    pub(crate) up: Link<Crossing>,
    now: Tick,
    ticks: Vec<Tick>,
    /// When each unit was sent on the sender's clock, and whether all of it was delivered.
    units: Vec<(f64, bool)>,
}

/// Returns the parameters of a link of a rate in bits per second.
pub(crate) fn link_config(rate: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(rate)),
        delay: DELAY,
        queue: QueueLimit::Bytes((rate as f64 / 8.0 * QUEUE_S) as u64),
        ..LinkConfig::default()
    }
}

impl Leaf {
    pub(crate) fn new(number: usize, rate: u64, start: Time, control: &SendControl) -> Leaf {
        let up = LinkConfig {
            delay: DELAY,
            ..LinkConfig::default()
        };
        let latency = Latency::Adaptive {
            min: Duration::from_millis(50),
            max: Duration::from_secs(2),
        };
        let id = number as u32;
        Leaf {
            lie: None,
            receiver: subscriber(control, id, start),
            end: ReportingEnd::new(None, id),
            assembler: Assembler::new(AssemblerConfig {
                latency,
                ..AssemblerConfig::default()
            }),
            down: Link::new(link_config(rate), u64::from(id)),
            up: Link::new(up, u64::from(id)),
            now: Tick::default(),
            ticks: Vec::new(),
            units: Vec::new(),
        }
    }

    /// Lets the links lose this share of all packets, and gives units a fixed latency.
    pub(crate) fn set_losses(&mut self, share: f64, latency: Duration) {
        for link in [&mut self.down, &mut self.up] {
            let mut config = link.config().clone();
            config.loss = LossModel::Bernoulli(share);
            link.reconfigure(Time::ZERO, config);
        }
        self.end.set_wait(latency);
        self.assembler = Assembler::new(AssemblerConfig {
            latency: Latency::Fixed(latency),
            ..AssemblerConfig::default()
        });
    }

    fn receive(&mut self, now: Time, bytes: &[u8]) {
        self.now.carried += bytes.len() as u64 + 28;
        if is_hop_message(bytes) {
            // Soundings of the former relay can be on the way.
            let _ = self.end.handle_datagram(bytes);
            return;
        }
        let arrival = self.end.handle_data(SESSION, bytes);
        if arrival == Arrival::Duplicate {
            return;
        }
        let header = Message::decode(&bytes[INNER_BYTES..]).expect("valid in this test");
        let Message::Data(data) = header else {
            panic!("{header:?} is not data");
        };
        let payload = &bytes[INNER_BYTES + header.encode().as_bytes().len()..];
        for decoded in Piece::decode_all(payload) {
            let (piece, bytes) = decoded.expect("valid in this test");
            self.assembler
                .handle_arrival(now, piece, bytes, arrival == Arrival::Late);
        }
        let channel = Channel {
            session: SESSION,
            number: data.group.into(),
        };
        let ecn = match bytes[3] & 3 {
            3 if self.lie.is_none_or(Lie::sees_marks) => Ecn::Marked,
            _ => Ecn::Capable,
        };
        let length = payload.len() as u32;
        let packet = Packet::new(Destination::Channel(channel), header, length).with_ecn(ecn);
        self.now.packets += 1;
        self.receiver.handle_packet(now, &packet);
    }

    fn report(&mut self, feedback: Feedback) {
        let said = self.lie.map_or(feedback, |lie| lie.falsify(feedback));
        self.end.report(&[said]);
    }

    /// Handles the announcements of other receivers' experiments, which are for the whole session.
    fn hear(&mut self, now: Time) {
        while let Some(experiment) = self.end.poll_experiment() {
            let channel = Channel {
                session: SESSION,
                number: 0,
            };
            let message = Message::Experiment(experiment);
            let packet = Packet::new(Destination::Channel(channel), message, 0);
            self.receiver.handle_packet(now, &packet);
        }
    }

    pub(crate) fn run(&mut self, now: Time) {
        while let Some(crossing) = self.down.pop_ready(now) {
            if let Crossing::Datagram(bytes) = crossing {
                self.receive(now, &bytes);
            }
        }
        self.hear(now);
        self.receiver.handle_timeout(now);
        while let Some(unit) = self.assembler.poll_unit(now) {
            self.now.useful += unit.prefix.len() as u64;
            let sent_s = f64::from(unit.time_us) / 1e6;
            self.units.push((sent_s, unit.complete));
        }
        while let Some(action) = self.receiver.poll_action(now) {
            match action {
                Action::Send(packet) => match packet.header {
                    Message::Feedback(feedback) => self.report(feedback),
                    Message::Experiment(experiment) => self.end.announce(experiment),
                    Message::Data(_) => panic!("a receiver sends no data"),
                },
                Action::Join(_) | Action::Leave(_) => {
                    let top = self.receiver.joined().checked_sub(1);
                    let _ = self.up.push(now, Crossing::Top(top), 60);
                }
            }
        }
        while let Some(event) = self.receiver.poll_event() {
            if let Event::Lost(lost) = event {
                self.now.lost += u64::from(lost);
            }
        }
        let mut out = Vec::new();
        while self.end.poll_transmit(&mut out) {
            let bytes = out.len() as u32 + 28;
            let _ = self.up.push(now, Crossing::Datagram(out.clone()), bytes);
        }
    }

    pub(crate) fn tick(&mut self, now: Time) {
        let stats = self.assembler.stats();
        self.now.units = stats.units;
        self.now.missing = stats.units_missing;
        self.now.at_s = now.as_secs_f64();
        self.ticks.push(self.now);
    }

    pub(crate) fn timeouts(&self) -> [Option<Time>; 4] {
        [
            self.down.next_time(),
            self.up.next_time(),
            self.receiver.poll_timeout(),
            self.assembler.poll_timeout(),
        ]
    }

    /// Returns the last tick at a time or before.
    fn at(&self, at_s: f64) -> &Tick {
        let ticks = self.ticks.iter().rev();
        let mut before = ticks.skip_while(|tick| tick.at_s > at_s);
        before.next().expect("the first tick is at 0 s")
    }

    /// Returns the rate of useful bytes between two times.
    pub(crate) fn useful_bits_per_s(&self, from_s: f64, to_s: f64) -> f64 {
        let useful = self.at(to_s).useful - self.at(from_s).useful;
        useful as f64 * 8.0 / (to_s - from_s)
    }

    /// Returns the numbers of whole units among those sent between two times.
    pub(crate) fn whole_units(&self, from_s: f64, to_s: f64) -> usize {
        let within = |unit: &&(f64, bool)| unit.1 && unit.0 >= from_s && unit.0 < to_s;
        self.units.iter().filter(within).count()
    }

    /// Returns the time of the first unit from which on, for two seconds, all were whole.
    pub(crate) fn whole_from(&self) -> f64 {
        let starts = self.units.iter().filter(|unit| unit.1);
        let lasts = |from: f64| {
            let after = |unit: &&(f64, bool)| unit.0 >= from && unit.0 < from + 2.0;
            self.units.iter().filter(after).all(|unit| unit.1)
        };
        let mut found = starts.map(|unit| unit.0).filter(|from| lasts(*from));
        found.next().unwrap_or(f64::INFINITY)
    }

    /// Returns the time from `at_s` until a receiver gets 80 % of its useful rate between two times
    /// for a second.
    pub(crate) fn back(&self, from_s: f64, to_s: f64, at_s: f64) -> f64 {
        let former = self.useful_bits_per_s(from_s, to_s);
        let per_s = (1.0 / TICK.as_secs_f64()) as usize;
        let is_back = |window: &&[Tick]| {
            let (from, to) = (window[0], window[per_s]);
            from.at_s >= at_s && (to.useful - from.useful) as f64 * 8.0 >= 0.8 * former
        };
        let found = self.ticks.windows(per_s + 1).find(is_back);
        found.map_or(f64::INFINITY, |window| window[0].at_s - at_s)
    }

    /// Returns the whole units until now.
    pub(crate) fn whole(&self) -> u64 {
        self.assembler.stats().units_complete
    }

    /// Returns the share of units without a first byte until a time.
    pub(crate) fn missing(&self, until_s: f64) -> f64 {
        let tick = self.at(until_s);
        tick.missing as f64 / (tick.missing + tick.units).max(1) as f64
    }

    /// Returns the time from `from_s` to the end of the first second in which the receiver used at
    /// least 80 % of a link and lost at most 1 % of its packets. Returns infinity without such a
    /// second. The second after `from_s` does not count: relays repair, so that a packet counts as
    /// lost only a round after the one in which it was missed.
    pub(crate) fn followed(&self, from_s: f64, rate: u64) -> f64 {
        let per_s = (1.0 / TICK.as_secs_f64()) as usize;
        let follows = |window: &&[Tick]| {
            let (from, to) = (window[0], window[per_s]);
            let lost = to.lost - from.lost;
            let sent = to.packets - from.packets + lost;
            let carried = (to.carried - from.carried) as f64 * 8.0;
            from.at_s >= from_s + 1.0 && carried >= 0.8 * rate as f64 && 100 * lost <= sent
        };
        let found = self.ticks.windows(per_s + 1).find(follows);
        found.map_or(f64::INFINITY, |window| window[per_s].at_s - from_s)
    }
}
