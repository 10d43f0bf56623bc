//! The sender: paces the groups, requests feedback in each round, and sets the rates by the
//! reports.

use core::ops::Range;
use core::time::Duration;
use std::collections::VecDeque;

use super::config::{ConfigError, Edition, SenderConfig};
use super::cycle::Cycle;
use super::rates::{Rates, Reports};
use super::usage::{Usage, Used};
use crate::Event;
use crate::{Data, Feedback, Message, Offer};
use manyflow_core::time::{Time, seconds};
use manyflow_core::units::Rate;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Channel, Destination, Ecn, Packet};

/// The number of packets in a round below which a received rate is too coarse.
const COARSE_PACKETS: f64 = 4.0;

/// The bytes of a packet that are not payload: 28 of IPv4 and UDP, and 20 of the data header.
const HEADER_BYTES: u32 = 48;

/// The longest time without a packet while nothing waits, of the lowest group or of each that has
/// rounds of its own: that of this number of full packets of the group and those below it, and at
/// least a round-trip time, so that receivers notice no interruption.
const QUIET_PACKETS: f64 = 4.0;
const QUIET_MAX: Duration = Duration::from_millis(100);

/// The share of its rate at which a group sends at least, if anything waits.
const PACE_MIN: f64 = 0.125;

/// The sender of a session.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    session: u32,
    stop: Option<Time>,
    rates: Rates,
    groups: Vec<Group>,
    /// The rounds of the session, or those of each group.
    cycles: Vec<Cycle>,
    start: Time,
    menu_due: Time,
    started: bool,
    actions: VecDeque<Action<Message>>,
    events: VecDeque<Event>,
}

/// The pacing of one group.
#[derive(Debug)]
struct Group {
    /// When the rate permits the next packet.
    due: Time,
    sequence: u32,
    /// The bytes that were sent so far, on a link.
    bytes: u64,
    /// When the last packet was sent.
    sent: Time,
    /// The payload that waits, if the driver offers it; at most that of a full packet.
    offered: Option<u32>,
    /// Whether a packet was due while nothing waited.
    is_idle: bool,
    /// The bound of the driver on its rate, in bytes per second.
    bound: f64,
    usage: Usage,
    /// The cumulative rate in the last event.
    reported: Rate,
}

impl Sender {
    /// Creates the sender of the session with number `session`, which sends from `start` until
    /// `stop`.
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
        let group = |_| Group {
            due: start,
            sequence: 0,
            bytes: 0,
            sent: start,
            offered: None,
            is_idle: false,
            bound: f64::INFINITY,
            usage: Usage::default(),
            reported: Rate::default(),
        };
        let cycles = if config.group_rounds {
            config.groups
        } else {
            1
        };
        Ok(Sender {
            session,
            stop,
            rates: Rates::new(&config),
            groups: (0..config.groups).map(group).collect(),
            cycles: (0..cycles).map(|_| Cycle::new(&config, start)).collect(),
            start,
            menu_due: start + config.menu_rtts * config.initial_rtt,
            started: false,
            actions: VecDeque::new(),
            events: VecDeque::new(),
            config,
        })
    }

    /// Sets the cumulative rates of the groups, from the lowest, as if each had been congested
    /// before: a study begins in the middle of a session. Rates that are too close to each other,
    /// or above the maximum rate, change to what the configuration allows. Groups without a rate
    /// here keep theirs.
    pub fn begin_with(&mut self, cumulative: &[Rate]) {
        self.rates.begin_with(cumulative);
    }

    /// Returns the cumulative rate of a group; the lowest group is 0.
    pub fn rate(&self, group: u8) -> Rate {
        Rate::from_bits_per_s((self.rates.cumulative(group.into()) * 8.0) as u64)
    }

    /// Returns the longest round-trip time of the session, as learned from reports.
    pub fn rtt(&self) -> Duration {
        let active = self.cycles.iter().filter(|cycle| cycle.received.is_some());
        let rtts = active.map(Cycle::rtt);
        rtts.max().unwrap_or_else(|| self.cycles[0].rtt())
    }

    /// Returns the cycle that the receivers with this top group belong to.
    fn cycle_of(&self, group: u8) -> usize {
        usize::from(group).min(self.cycles.len() - 1)
    }

    /// Returns the groups whose rates a cycle adjusts.
    fn groups_of(&self, cycle: usize) -> Range<u8> {
        match self.config.group_rounds {
            true => cycle as u8..cycle as u8 + 1,
            false => 0..self.config.groups,
        }
    }

    fn is_second(&self) -> bool {
        self.config.edition == Edition::Second
    }

    fn round_due(&self, cycle: usize) -> Time {
        self.cycles[cycle].due(self.groups[cycle].due)
    }

    fn on_round_end(&mut self, now: Time, cycle: usize) {
        if !self.cycles[cycle].is_adjusted {
            self.adjust(now, cycle);
        }
        if self.menu_due <= now {
            self.rates.menu.on_interval();
            self.menu_due = now + self.config.menu_rtts * self.rtt();
        }
        self.cycles[cycle].begin(now);
    }

    /// Sets the rates of the groups of a cycle by the reports of its round.
    fn adjust(&mut self, now: Time, cycle: usize) {
        self.cycles[cycle].is_adjusted = true;
        let groups = self.groups_of(cycle);
        let mut reports = [Reports::default(); crate::GROUPS_MAX as usize];
        let mut received: Option<(u32, u32)> = None;
        let round = &self.cycles[cycle].round;
        for (group, reports) in groups.clone().zip(&mut reports) {
            reports.is_asked = round.is_open(group);
        }
        let known = |(group, _): &(u8, _)| groups.contains(group);
        for (group, summary) in round.summaries().filter(known) {
            let usage = self.usage(group);
            let range =
                [summary.minimum, summary.maximum].map(|rate| f64::from(rate) / usage.share);
            reports[usize::from(group - groups.start)] = Reports {
                is_asked: true,
                all: summary.reports,
                congested: summary.congested,
                rtt: summary.rtt,
                received: match self.is_coarse(group) && !self.is_second() {
                    true => [f64::INFINITY; 2],
                    false => range,
                },
                used: usage.rate.is_finite().then_some(usage.rate),
            };
            let [lowest, highest] = range.map(|rate| rate as u32);
            received = Some(received.map_or((lowest, highest), |(low, high)| {
                (low.min(lowest), high.max(highest))
            }));
        }
        match received {
            Some(received) => {
                self.cycles[cycle].on_reports(now, received);
                self.report_range();
                let rtt = self.cycles[cycle].interval_rtt();
                let reports = &reports[..groups.len()];
                self.rates.on_round(groups.start.into(), reports, rtt);
            }
            None => self.on_silent_round(now, cycle, reports[0]),
        }
        if self.is_second() {
            self.advance_packets(now);
        }
        // A group that has changed can move the groups above it.
        for group in 0..self.config.groups {
            let has_moved = self.rate(group) != self.groups[usize::from(group)].reported;
            if has_moved || groups.contains(&group) {
                self.report_rate(group);
            }
        }
    }

    /// Lets no group wait longer than a packet takes at its present rate. A group that has moved
    /// can have had a far lower one: its receivers would take the wait for overload.
    fn advance_packets(&mut self, now: Time) {
        for group in 0..self.config.groups {
            let packet = seconds(f64::from(self.config.packet_bytes) / self.pace(group));
            let own = &mut self.groups[usize::from(group)];
            own.due = own.due.min(now + packet);
        }
    }

    fn report_rate(&mut self, group: u8) {
        let rate = self.rate(group);
        let before = core::mem::replace(&mut self.groups[usize::from(group)].reported, rate);
        let reason = self.rates.take_reason(group.into());
        self.events.push_back(Event::GroupRate {
            group,
            rate,
            reason: reason.filter(|_| rate != before),
        });
    }

    /// Handles a round without reports. A group with rounds of its own is idle; of the others, only
    /// several such rounds count.
    fn on_silent_round(&mut self, now: Time, cycle: usize, reports: Reports) {
        let is_silent = self.cycles[cycle].on_silent_round(now);
        if self.config.group_rounds {
            let rtt = self.cycles[cycle].rtt();
            self.rates.on_round(cycle, &[reports], rtt);
        } else if is_silent {
            self.rates.on_silence();
        }
    }

    /// Lets the menu know the lowest and highest received rates of the session.
    fn report_range(&mut self) {
        let received = self.cycles.iter().filter_map(|cycle| cycle.received);
        let range = received.reduce(|(low, high), (a, b)| (low.min(a), high.max(b)));
        if let Some((low, high)) = range {
            self.rates.menu.on_reports(low.into(), high.into());
        }
    }

    /// Returns whether a round has too few packets of a group and those below it to measure a
    /// received rate. Then the reported rates do not count.
    fn is_coarse(&self, group: u8) -> bool {
        let rtt = self.cycles[self.cycle_of(group)].rtt();
        let bytes = self.rates.cumulative(group.into()) * 2.0 * rtt.as_secs_f64();
        bytes < COARSE_PACKETS * f64::from(self.config.packet_bytes)
    }

    /// Returns when a group can send: a full packet when it is due, and a short one by as much
    /// earlier as it is shorter.
    fn packet_due(&self, group: u8) -> Time {
        let own = &self.groups[usize::from(group)];
        match own.offered {
            Some(payload @ 1..) if 2 * payload < self.config.packet_bytes => {
                let rest = self.room().saturating_sub(payload);
                let early = seconds(f64::from(rest) / self.pace(group));
                Time::ZERO + (own.due - Time::ZERO).saturating_sub(early)
            }
            _ => own.due,
        }
    }

    /// Returns when a group needs a call although nothing new is offered.
    fn wake_due(&self, group: u8) -> Time {
        let own = &self.groups[usize::from(group)];
        match own.is_idle {
            false => self.packet_due(group),
            true if self.is_heard(group) => own.sent + self.quiet(group),
            true => Time::MAX,
        }
    }

    /// Returns whether receivers would notice an interruption of a group: the lowest one, and any
    /// that has receivers and rounds of its own.
    fn is_heard(&self, group: u8) -> bool {
        let cycle = &self.cycles[self.cycle_of(group)];
        group == 0 || (self.config.group_rounds && cycle.received.is_some())
    }

    /// Returns the time without a packet of a group after which receivers would notice an
    /// interruption.
    fn quiet(&self, group: u8) -> Duration {
        let rtt = self.cycles[self.cycle_of(group)].rtt();
        let packet = f64::from(self.config.packet_bytes) / self.rates.cumulative(group.into());
        seconds(QUIET_PACKETS * packet).max(rtt).min(QUIET_MAX)
    }

    /// Returns whether a packet without a payload is sent: if it carries a request, or if receivers
    /// would notice an interruption. Only packets of the lowest group carry requests, unless each
    /// group has rounds of its own.
    fn sends_empty(&self, now: Time, group: u8) -> bool {
        let asks = group == 0 || self.config.group_rounds;
        let is_asked = self.cycles[self.cycle_of(group)].round.is_open(0);
        let is_quiet = now - self.groups[usize::from(group)].sent >= self.quiet(group);
        (asks && !is_asked) || (self.is_heard(group) && is_quiet)
    }

    fn send_due(&mut self, now: Time) {
        for group in 0..self.config.groups {
            if self.packet_due(group) > now {
                continue;
            }
            // A group in which nothing waits keeps the place of one packet: to wait for the next
            // one of a slow group can take longer than a unit.
            let offered = self.groups[usize::from(group)].offered;
            if offered == Some(0) && !self.sends_empty(now, group) {
                self.groups[usize::from(group)].is_idle = true;
                continue;
            }
            let is_full = offered.is_none_or(|payload| payload >= self.room());
            self.send(now, group, false);
            // Pairs of full packets show receivers the rate of their slowest link.
            if group == 0 && is_full && self.is_second() {
                self.send(now, group, true);
            }
        }
    }

    fn send(&mut self, now: Time, group: u8, is_pair: bool) {
        let packet = self.packet(group, is_pair);
        let is_empty = packet.payload_bytes() == 0;
        let charged = match is_empty {
            true => self.config.packet_bytes,
            false => packet.wire_bytes(),
        };
        self.charge(now, group, charged);
        let own = &mut self.groups[usize::from(group)];
        own.sequence = own.sequence.wrapping_add(1);
        own.offered = own.offered.map(|_| 0);
        own.sent = now;
        let bytes = u64::from(packet.wire_bytes());
        self.actions.push_back(Action::Send(packet));
        self.open_round(now, group);
        // The packet of a request comes behind it.
        self.groups[usize::from(group)].bytes += bytes;
    }

    /// Returns how much of its cumulative rate a group has used; all of it if no driver offers
    /// payloads, or without rounds of its own.
    fn usage(&self, group: u8) -> Used {
        let own = &self.groups[usize::from(group)];
        let is_known = self.config.group_rounds && own.offered.is_some();
        if is_known {
            own.usage.used()
        } else {
            Used::ALL
        }
    }

    /// Returns the rate of a group's packets, in bytes per second. Requests must not wait long for
    /// the next packet, so some of the rate is always used.
    fn pace(&self, group: u8) -> f64 {
        let own = self.rates.own(group.into());
        own.min(self.groups[usize::from(group)].bound.max(PACE_MIN * own))
    }

    /// Notes that a packet of a group carries the present request. With rounds of its own, only the
    /// packets of a group do; otherwise the receivers with higher top groups get it, too.
    fn open_round(&mut self, now: Time, group: u8) {
        let cycle = self.cycle_of(group);
        if !self.config.group_rounds {
            self.cycles[cycle].round.open(now, group);
            return;
        }
        if !self.cycles[cycle].round.is_open(0) {
            let own = &self.groups[..=usize::from(group)];
            let sent = own.iter().map(|own| own.bytes).sum();
            let rate = self.rates.cumulative(group.into());
            let usage = &mut self.groups[usize::from(group)].usage;
            usage.on_request(now, sent, rate);
        }
        self.cycles[cycle].round.open(now, 0);
    }

    /// Lets the time pass that this number of bytes takes at the rate of a group.
    fn charge(&mut self, now: Time, group: u8, bytes: u32) {
        let interval = seconds(f64::from(bytes) / self.pace(group));
        let own = &mut self.groups[usize::from(group)];
        own.due = match core::mem::take(&mut own.is_idle) {
            true => now + interval,
            false => now.max(own.due + interval),
        };
    }

    /// Returns the payload of a full packet.
    fn room(&self) -> u32 {
        self.config.packet_bytes - HEADER_BYTES
    }

    fn packet(&self, group: u8, is_pair: bool) -> Packet<Message> {
        let cycle = &self.cycles[self.cycle_of(group)];
        let rtt_us = u32::try_from(cycle.interval_rtt().as_micros()).unwrap_or(u32::MAX);
        let has_next = self.is_second() && group + 1 < self.config.groups;
        let next = has_next.then(|| self.rates.cumulative(usize::from(group) + 1) as u32);
        let header = Message::Data(Data {
            group,
            sequence: self.groups[usize::from(group)].sequence,
            request: cycle.round.request(),
            is_for_group: self.config.group_rounds,
            rate: self.rates.cumulative(group.into()) as u32,
            rtt_us,
            next_rate: next.unwrap_or(0),
            is_pair,
        });
        // The driver fills the second packet of a pair with what still waits.
        let offered = self.groups[usize::from(group)].offered;
        let payload = offered.filter(|_| !is_pair).unwrap_or(self.room());
        Packet::new(
            Destination::Channel(Channel {
                session: self.session,
                number: group.into(),
            }),
            header,
            payload.min(self.room()),
        )
        .with_ecn(Ecn::Capable)
    }

    /// Handles an early report about the lowest group. One in a round lowers its rate.
    fn on_early(&mut self, feedback: &Feedback) {
        let of_lowest = feedback.group == 0 && !self.cycles[0].has_early;
        if of_lowest && self.rates.on_early(feedback.minimum.into()) {
            self.cycles[0].has_early = true;
            (0..self.config.groups).for_each(|group| self.report_rate(group));
        }
    }

    /// A receiver that reports about another top group than before is no longer awaited in the
    /// rounds of the former one.
    fn forget_elsewhere(&mut self, cycle: usize, feedback: &Feedback) {
        if !feedback.is_of_receiver() {
            return;
        }
        for (place, other) in self.cycles.iter_mut().enumerate() {
            if place != cycle {
                other.round.forget(feedback.source);
            }
        }
    }

    fn is_over(&self, now: Time) -> bool {
        self.stop.is_some_and(|stop| stop <= now)
    }
}

impl Endpoint for Sender {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Message>) {
        let Message::Feedback(feedback) = &packet.header else {
            return;
        };
        if feedback.session != self.session || self.is_over(now) {
            return;
        }
        if feedback.group >= self.config.groups {
            return;
        }
        if feedback.is_early() {
            self.on_early(feedback);
            return;
        }
        let cycle = self.cycle_of(feedback.group);
        self.forget_elsewhere(cycle, feedback);
        if self.cycles[cycle].add(now, feedback) {
            self.adjust(now, cycle);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.is_over(now) || now < self.start {
            return;
        }
        if !core::mem::replace(&mut self.started, true) {
            self.cycles.iter_mut().for_each(|cycle| cycle.begin(now));
        }
        for cycle in 0..self.cycles.len() {
            if self.round_due(cycle) <= now {
                self.on_round_end(now, cycle);
            }
        }
        self.send_due(now);
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Message>> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        let packets = (0..self.config.groups).map(|group| self.wake_due(group));
        let due = if self.started {
            let rounds = (0..self.cycles.len()).map(|cycle| self.round_due(cycle));
            packets.chain(rounds).fold(Time::MAX, Time::min)
        } else {
            self.start
        };
        self.stop.is_none_or(|stop| due < stop).then_some(due)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

impl Offer for Sender {
    fn offer(&mut self, group: u8, payload_bytes: u32) {
        if let Some(own) = self.groups.get_mut(usize::from(group)) {
            own.offered = Some(payload_bytes);
        }
    }

    fn spread(&mut self, group: u8, bytes_per_s: f64) {
        // Only with rounds of its own does a group's use count.
        let own = self.groups.get_mut(usize::from(group));
        if let Some(own) = own.filter(|_| self.config.group_rounds) {
            own.bound = bytes_per_s;
        }
    }
}
