//! RLC's sender: sends each group at its own rate, with a burst, a relaxation and a synchronisation
//! point at the end of each interval in which the group has one.

use core::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::config::HEADER_BYTES;
use super::{BURST, ConfigError, POINT, SenderConfig};
use crate::{Data, Event, Message};
use manyflow_core::interval::Interval;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;
use manyflow_core::{Action, Channel, Destination, Endpoint, Packet};

/// The sending end of a session.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    session: u32,
    start: Time,
    stop: Option<Time>,
    groups: Vec<Group>,
    random: Pcg64Mcg,
}

/// The next packet of a group.
#[derive(Debug)]
struct Group {
    /// When the packet leaves.
    due: Time,
    /// The request field of the packet.
    signal: u16,
    /// When the even interval of the following packet begins.
    next_interval: Time,
    interval: Interval,
    /// The interval between points of group 0 in which the last packet was.
    cycle: u64,
    sequence: u32,
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
        let own = |group: u8| {
            let below = match group {
                0 => 0,
                _ => config.cumulative_bits_per_s(group - 1),
            };
            Rate::from_bits_per_s(config.cumulative_bits_per_s(group) - below)
        };
        let group = |group| Group {
            due: start,
            signal: 0,
            next_interval: start,
            interval: Interval::new(config.packet_bytes, own(group)),
            cycle: 0,
            sequence: 0,
        };
        let mut sender = Sender {
            groups: (0..config.groups).map(group).collect(),
            session,
            start,
            stop,
            random: Pcg64Mcg::seed_from_u64(session.into()),
            config,
        };
        (0..sender.config.groups).for_each(|group| sender.schedule(group));
        Ok(sender)
    }

    /// Returns whether a point of group 0, which ends this number of intervals, is one of `group`,
    /// too. The top group needs none, because there is no group to add.
    fn has_point(&self, group: u8, intervals: u64) -> bool {
        let is_top = group + 1 == self.config.groups;
        !is_top && intervals > 0 && intervals.trailing_zeros() >= group.into()
    }

    /// Draws the time of the group's next packet. Evenly spread packets in the time of a burst and
    /// its relaxation leave in its first half.
    fn schedule(&mut self, group: u8) {
        let below_one: f64 = self.random.random();
        let next = &mut self.groups[usize::from(group)];
        let interval = next.interval.advance();
        let even = next.next_interval + interval.mul_f64(below_one);
        next.next_interval += interval;
        let before = next.cycle;
        let span = self.config.point_interval;
        let cycle = ((even - self.start).as_nanos() / span.as_nanos()) as u64;
        let is_point = (before + 1..=cycle).any(|point| self.has_point(group, point));
        let point = self.start + multiple(span, cycle + 1);
        let burst = Time::ZERO + (point - Time::ZERO).saturating_sub(2 * self.config.burst);
        let is_burst = self.has_point(group, cycle + 1) && even >= burst;
        let next = &mut self.groups[usize::from(group)];
        next.cycle = cycle;
        next.due = match is_burst {
            true => burst + (even - burst) / 2,
            false => even,
        };
        next.signal = match (is_point, is_burst) {
            (true, _) => POINT,
            (false, true) => BURST,
            (false, false) => 0,
        };
    }

    /// Returns the group whose packet is due first, unless that is after the end.
    fn next(&self) -> Option<u8> {
        let due = |group: &u8| self.groups[usize::from(*group)].due;
        let first = (0..self.config.groups).min_by_key(due)?;
        let stopped = self.stop.is_some_and(|stop| due(&first) >= stop);
        (!stopped).then_some(first)
    }

    /// Returns the next packet of a group, and schedules the one after it.
    fn take(&mut self, rank: u8) -> Packet<Message> {
        let group = &mut self.groups[usize::from(rank)];
        let cumulative = self.config.cumulative_bits_per_s(rank) / 8;
        let data = Data {
            group: rank,
            sequence: group.sequence,
            request: group.signal,
            is_for_group: false,
            rate: u32::try_from(cumulative).unwrap_or(u32::MAX),
            rtt_us: 0,
            next_rate: 0,
            is_pair: false,
        };
        group.sequence = group.sequence.wrapping_add(1);
        self.schedule(rank);
        let channel = Channel {
            session: self.session,
            number: rank.into(),
        };
        let payload_bytes = self.config.packet_bytes - HEADER_BYTES;
        Packet::new(
            Destination::Channel(channel),
            Message::Data(data),
            payload_bytes,
        )
    }
}

/// Returns a multiple of a duration. Time ends after 584 years of nanoseconds.
fn multiple(span: Duration, times: u64) -> Duration {
    Duration::from_nanos((span.as_nanos() as u64).saturating_mul(times))
}

impl Endpoint for Sender {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    fn handle_packet(&mut self, _now: Time, _packet: &Packet<Message>) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, now: Time) -> Option<Action<Message>> {
        let rank = self.next()?;
        let is_due = self.groups[usize::from(rank)].due <= now;
        is_due.then(|| Action::Send(self.take(rank)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next().map(|rank| self.groups[usize::from(rank)].due)
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the packets of 64 s of three groups from 80 kbit/s, with their times in ms.
    fn sent() -> Vec<(f64, Data)> {
        let config = SenderConfig {
            groups: 3,
            rate: Rate::from_bits_per_s(800_000),
            ..SenderConfig::default()
        };
        let stop = Some(Time::from_secs_f64(64.0));
        let mut sender = Sender::new(config, 7, Time::ZERO, stop).unwrap();
        let mut sent = Vec::new();
        while let Some(now) = sender.poll_timeout() {
            let Some(Action::Send(packet)) = sender.poll_action(now) else {
                panic!("a sender that is due sends");
            };
            assert_eq!(packet.wire_bytes(), 1000);
            let Message::Data(data) = packet.header else {
                panic!("{packet:?}");
            };
            sent.push((now.as_secs_f64() * 1e3, data));
        }
        sent
    }

    #[test]
    fn cumulative_rates_double_with_each_group() {
        let sent = sent();
        for (group, packets) in [(0, 6400), (1, 6400), (2, 12_800)] {
            let count = sent.iter().filter(|(_, data)| data.group == group).count();
            assert!(count.abs_diff(packets) <= 26, "group {group}: {count}");
        }
        assert!(
            sent.iter()
                .all(|(_, data)| data.rate == 100_000 << data.group)
        );
    }

    #[test]
    fn points_of_a_group_are_twice_as_far_apart_as_those_of_the_group_below() {
        let sent = sent();
        let points = |group| {
            let of_group = sent.iter().filter(move |(_, data)| data.group == group);
            let points = of_group.filter(|(_, data)| data.request == POINT);
            points
                .map(|(time_ms, _)| (time_ms / 500.0).floor())
                .collect::<Vec<_>>()
        };
        let expected = |step| {
            (1..128)
                .step_by(1)
                .map(f64::from)
                .filter(move |n| n % step == 0.0)
        };
        assert_eq!(points(0), expected(1.0).collect::<Vec<_>>());
        assert_eq!(points(1), expected(2.0).collect::<Vec<_>>());
        assert_eq!(points(2), [] as [f64; 0], "no group is above");
    }

    #[test]
    fn before_a_point_the_rate_doubles_and_then_nothing_is_sent() {
        let sent = sent();
        let within = |from_ms: f64, to_ms: f64| {
            let times = sent.iter().filter(|(_, data)| data.group == 0);
            times
                .filter(|(time_ms, _)| (from_ms..to_ms).contains(&(time_ms % 500.0)))
                .count()
        };
        let normal = within(0.0, 125.0) as f64;
        assert_eq!(within(375.0, 500.0), 0);
        let ratio = within(250.0, 375.0) as f64 / normal;
        assert!((ratio - 2.0).abs() < 0.05, "{ratio}");
        let burst = sent
            .iter()
            .filter(|(_, data)| data.group == 0 && data.request == BURST);
        assert!(burst.clone().count() > 1000);
        assert!(
            burst
                .clone()
                .all(|(time_ms, _)| (250.0..375.0).contains(&(time_ms % 500.0)))
        );
    }
}
