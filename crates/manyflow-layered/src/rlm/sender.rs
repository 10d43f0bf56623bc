//! RLM's sender: sends each group at its own constant rate, and forwards the receivers'
//! announcements on group 0.
//!
//! Time is divided into intervals of one packet, and each packet leaves at a random point of its
//! interval. Evenly spaced packets would lock in phase with a full queue. The queue would then drop
//! packets of one group only, and only some receivers would see losses.

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::{ConfigError, SenderConfig};
use crate::Event;
use crate::{Data, Experiment, Message, Offer};
use manyflow_core::interval::Interval;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Channel, Destination, Packet};

/// The bytes of a packet that are not payload: 28 of IPv4 and UDP, and 20 of the data header.
pub(super) const HEADER_BYTES: u32 = 48;

/// The sending end of a session.
#[derive(Debug)]
pub struct Sender {
    session: u32,
    packet_bytes: u32,
    stop: Option<Time>,
    groups: Vec<Group>,
    /// Announcements that wait to be forwarded.
    relayed: VecDeque<Experiment>,
    random: Pcg64Mcg,
}

/// The next packet of a group.
#[derive(Debug)]
struct Group {
    due: Time,
    /// When the interval of the following packet begins.
    next_interval: Time,
    interval: Interval,
    /// The cumulative rate of this group and all groups below it, in bytes per second.
    cumulative: u32,
    sequence: u32,
    /// The payload that waits, if the driver offers it.
    offered: Option<u32>,
}

impl Sender {
    /// Creates the sender of `session`, which sends from `start` until `stop`. The session's number
    /// is the seed of the random times.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        config: SenderConfig,
        session: u32,
        start: Time,
        stop: Option<Time>,
    ) -> Result<Sender, ConfigError> {
        config.check()?;
        let mut random = Pcg64Mcg::seed_from_u64(session.into());
        let mut bits_per_s = 0;
        let group = |rate: &Rate| {
            bits_per_s += rate.bits_per_s();
            let mut group = Group {
                due: start,
                next_interval: start,
                interval: Interval::new(config.packet_bytes, *rate),
                cumulative: u32::try_from(bits_per_s / 8).unwrap_or(u32::MAX),
                sequence: 0,
                offered: None,
            };
            group.draw_due(1.0, &mut random);
            group
        };
        Ok(Sender {
            session,
            packet_bytes: config.packet_bytes,
            stop,
            groups: config.rates.iter().map(group).collect(),
            relayed: VecDeque::new(),
            random,
        })
    }

    /// Returns the group whose packet is due first, unless that is after the end.
    fn next(&self) -> Option<usize> {
        let first = (0..self.groups.len()).min_by_key(|&rank| self.groups[rank].due)?;
        let stopped = self.stop.is_some_and(|stop| self.groups[first].due >= stop);
        (!stopped).then_some(first)
    }

    /// Returns the next packet of a group, and schedules the one after it: a short packet takes its
    /// share of the time of a full one. A group in which nothing waits lets its time pass; the
    /// lowest one sends even so, because receivers know by it that the sender is there.
    fn take(&mut self, rank: usize) -> Option<Packet<Message>> {
        let room = self.packet_bytes - HEADER_BYTES;
        let group = &mut self.groups[rank];
        let offered = group.offered;
        group.offered = offered.map(|_| 0);
        let payload = offered.unwrap_or(room).min(room);
        let share = match payload {
            0 => 1.0,
            _ => f64::from(HEADER_BYTES + payload) / f64::from(self.packet_bytes),
        };
        group.draw_due(share, &mut self.random);
        if offered == Some(0) && rank > 0 {
            return None;
        }
        let data = Data {
            group: rank as u8,
            sequence: group.sequence,
            request: 0,
            is_for_group: false,
            rate: group.cumulative,
            rtt_us: 0,
            next_rate: 0,
            is_pair: false,
        };
        group.sequence = group.sequence.wrapping_add(1);
        Some(self.packet(data.group, Message::Data(data), payload))
    }

    fn packet(&self, group: u8, message: Message, payload_bytes: u32) -> Packet<Message> {
        Packet::new(
            Destination::Channel(Channel {
                session: self.session,
                number: group.into(),
            }),
            message,
            payload_bytes,
        )
    }
}

impl Group {
    /// Draws the time at which the next packet leaves, in an interval of this share of that of a
    /// full packet.
    fn draw_due(&mut self, share: f64, random: &mut Pcg64Mcg) {
        let whole = self.interval.advance();
        let interval = if share < 1.0 {
            whole.mul_f64(share)
        } else {
            whole
        };
        let below_one: f64 = random.random();
        self.due = self.next_interval + interval.mul_f64(below_one);
        self.next_interval += interval;
    }
}

impl Endpoint for Sender {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    /// Handles a receiver's announcement: queues it for the whole session.
    fn handle_packet(&mut self, now: Time, packet: &Packet<Message>) {
        let Message::Experiment(experiment) = packet.header else {
            return;
        };
        let known =
            experiment.session == self.session && usize::from(experiment.group) < self.groups.len();
        if known && self.stop.is_none_or(|stop| now < stop) {
            self.relayed.push_back(experiment);
        }
    }

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, now: Time) -> Option<Action<Message>> {
        if let Some(experiment) = self.relayed.pop_front() {
            let message = Message::Experiment(experiment);
            return Some(Action::Send(self.packet(0, message, 0)));
        }
        loop {
            let rank = self.next().filter(|rank| self.groups[*rank].due <= now)?;
            if let Some(packet) = self.take(rank) {
                return Some(Action::Send(packet));
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next().map(|rank| self.groups[rank].due)
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

impl Offer for Sender {
    fn offer(&mut self, group: u8, payload_bytes: u32) {
        if let Some(own) = self.groups.get_mut(usize::from(group)) {
            own.offered = Some(payload_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_core::Ecn;

    fn sender(rates: &[u64], stop_s: f64) -> Sender {
        let config = SenderConfig {
            rates: rates.iter().copied().map(Rate::from_bits_per_s).collect(),
            packet_bytes: 1000,
        };
        let stop = Some(Time::from_secs_f64(stop_s));
        Sender::new(config, 7, Time::ZERO, stop).unwrap()
    }

    /// Returns all packets that are sent, with their times in milliseconds.
    fn sent(sender: &mut Sender) -> Vec<(f64, Data)> {
        let mut sent = Vec::new();
        while let Some(now) = sender.poll_timeout() {
            let Some(Action::Send(packet)) = sender.poll_action(now) else {
                panic!("a sender that is due sends");
            };
            assert_eq!((packet.wire_bytes(), packet.ecn), (1000, Ecn::NotCapable));
            let Message::Data(data) = packet.header else {
                panic!("{packet:?}");
            };
            let number = data.group.into();
            let channel = Channel { session: 7, number };
            assert_eq!(packet.destination, Destination::Channel(channel));
            sent.push((now.as_secs_f64() * 1e3, data));
        }
        sent
    }

    #[test]
    fn header_bytes_match_the_encoding() {
        let (_, data) = sent(&mut sender(&[8_000], 10.0))[0];
        assert_eq!(Message::Data(data).wire_bytes(), HEADER_BYTES);
    }

    #[test]
    fn each_group_keeps_its_rate_with_one_packet_in_each_interval() {
        let sent = sent(&mut sender(&[800_000, 800_000, 2_400_000], 100.0));
        for (group, interval_ms, cumulative) in [
            (0, 10.0, 100_000),
            (1, 10.0, 200_000),
            (2, 10.0 / 3.0, 500_000),
        ] {
            let of_group = sent.iter().filter(|(_, data)| data.group == group);
            let mut phases = Vec::new();
            for ((time_ms, data), count) in of_group.zip(0..) {
                assert_eq!((data.sequence, data.rate), (count, cumulative));
                phases.push(time_ms / interval_ms - f64::from(count));
            }
            assert_eq!(phases.len() as f64, (100_000.0 / interval_ms).round());
            assert!(phases.iter().all(|phase| (-1e-3..1.001).contains(phase)));
            let mean = phases.iter().sum::<f64>() / phases.len() as f64;
            assert!((mean - 0.5).abs() < 0.02, "{mean}");
        }
    }

    #[test]
    fn announcements_of_the_session_go_to_group_0() {
        let mut sender = sender(&[8_000, 8_000], 10.0);
        let announcement = |session, group| {
            Packet::new(
                Destination::Endpoint(manyflow_core::EndpointId(0)),
                Message::Experiment(Experiment { session, group }),
                0,
            )
        };
        let _ = sender.poll_action(Time::ZERO);
        for (session, group, expected) in [(7, 1, true), (7, 2, false), (8, 1, false)] {
            let packet = announcement(session, group);
            sender.handle_packet(Time::ZERO, &packet);
            let channel = Channel {
                session: 7,
                number: 0,
            };
            let mut relayed = packet;
            relayed.destination = Destination::Channel(channel);
            let action = sender.poll_action(Time::ZERO);
            assert_eq!(action, expected.then_some(Action::Send(relayed)));
        }
        let end = Time::from_secs_f64(10.0);
        while sender.poll_action(end).is_some() {}
        sender.handle_packet(end, &announcement(7, 1));
        assert_eq!(
            (sender.poll_action(end), sender.poll_timeout()),
            (None, None)
        );
    }
}
