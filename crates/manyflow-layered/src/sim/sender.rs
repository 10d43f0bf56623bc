//! The sender: paces the groups, requests feedback in each round, and sets the rates by the
//! reports.

use core::time::Duration;
use std::collections::VecDeque;

use super::base_rtt::BaseRtt;
use super::config::{ConfigError, Edition, SenderConfig};
use super::rates::{Rates, Reports};
use super::round::Round;
use crate::Event;
use crate::{Data, Message, Offer};
use manyflow_core::time::{Time, seconds};
use manyflow_core::units::Rate;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Channel, Destination, Ecn, Packet};

/// The number of rounds in a row without any report after which rates decrease.
const SILENT_ROUNDS: u32 = 5;

/// The number of packets in a round below which a received rate is too coarse.
const COARSE_PACKETS: f64 = 4.0;

/// The bytes of a packet that are not payload: 28 of IPv4 and UDP, and 20 of the data header.
const HEADER_BYTES: u32 = 48;

/// The longest time without a packet of the lowest group while nothing waits: that of this number
/// of full packets, and at least a round-trip time, so that receivers notice no interruption.
const QUIET_PACKETS: f64 = 4.0;
const QUIET_MAX: Duration = Duration::from_millis(100);

/// The sender of a session.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    session: u32,
    stop: Option<Time>,
    rates: Rates,
    groups: Vec<Group>,
    round: Round,
    /// When the round began.
    round_since: Time,
    /// Whether the reports of the round have been acted on.
    is_adjusted: bool,
    silent_rounds: u32,
    /// The longest round-trip time of the session.
    rtt: Duration,
    /// The minimum of the longest round-trip time, in which the second edition counts.
    base_rtt: BaseRtt,
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
    /// When the last packet was sent.
    sent: Time,
    /// The payload that waits, if the driver offers it; at most that of a full packet.
    offered: Option<u32>,
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
            sent: start,
            offered: None,
        };
        Ok(Sender {
            session,
            stop,
            rates: Rates::new(&config),
            groups: (0..config.groups).map(group).collect(),
            round: Round::new(),
            round_since: start,
            is_adjusted: false,
            silent_rounds: 0,
            rtt: config.initial_rtt,
            base_rtt: BaseRtt::new(start, config.initial_rtt),
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
        self.rtt
    }

    fn begin_round(&mut self, now: Time) {
        let request = self.round.request().wrapping_add(1).max(1);
        self.round.begin(request, None);
        (self.round_since, self.is_adjusted) = (now, false);
    }

    /// Returns the end of the round: two round-trip times after its start, or four while answers
    /// are missing. Without known receivers, the round-trip time is that of the next one, which is
    /// not known, and counts from the packet of the lowest group that carries the request.
    fn round_due(&self) -> Time {
        if self.round.is_childless() {
            let asked = self.round.opened().unwrap_or(self.groups[0].due);
            return asked.max(self.round_since) + 2 * self.rtt.max(self.config.initial_rtt);
        }
        match (self.is_adjusted, self.is_second()) {
            (true, true) => self.round_since + 2 * self.base_rtt.get(),
            (true, false) => self.round_since + 2 * self.rtt,
            (false, _) => self.round_since + 4 * self.rtt,
        }
    }

    fn is_second(&self) -> bool {
        self.config.edition == Edition::Second
    }

    /// Returns the round-trip time in which the session counts its intervals.
    fn interval_rtt(&self) -> Duration {
        match self.config.edition {
            Edition::Paper => self.rtt,
            Edition::Second => self.base_rtt.get(),
        }
    }

    fn on_round_end(&mut self, now: Time) {
        if !self.is_adjusted {
            self.adjust(now);
        }
        if self.menu_due <= now {
            self.rates.menu.on_interval();
            self.menu_due = now + self.config.menu_rtts * self.rtt;
        }
        self.begin_round(now);
    }

    /// Sets the rates by the reports of the round.
    fn adjust(&mut self, now: Time) {
        self.is_adjusted = true;
        let mut reports = [Reports::default(); crate::GROUPS_MAX as usize];
        for (group, reports) in (0..self.config.groups).zip(&mut reports) {
            reports.is_asked = self.round.is_open(group);
        }
        let (mut low, mut high) = (u32::MAX, 0);
        let known = |(group, _): &(u8, _)| *group < self.config.groups;
        for (group, summary) in self.round.summaries().filter(known) {
            reports[usize::from(group)] = Reports {
                is_asked: true,
                all: summary.reports,
                congested: summary.congested,
                rtt: summary.rtt,
                received: match self.is_coarse(group) && !self.is_second() {
                    true => [f64::INFINITY; 2],
                    false => [summary.minimum.into(), summary.maximum.into()],
                },
            };
            (low, high) = (low.min(summary.minimum), high.max(summary.maximum));
        }
        if low > high {
            self.on_silent_round(now);
        } else {
            self.silent_rounds = 0;
            self.rates.menu.on_reports(low.into(), high.into());
            self.learn_rtt();
            self.base_rtt.add(now, self.rtt);
            let rtt = self.interval_rtt();
            self.rates.on_round(&reports[..self.groups.len()], rtt);
        }
        for group in 0..self.config.groups {
            let rate = self.rate(group);
            self.events.push_back(Event::GroupRate { group, rate });
        }
    }

    /// Handles a round without reports. The next receiver can have another round-trip time than
    /// those that have left.
    fn on_silent_round(&mut self, now: Time) {
        self.silent_rounds = self.silent_rounds.saturating_add(1);
        if self.silent_rounds >= SILENT_ROUNDS {
            self.rates.on_silence();
            self.rtt = self.rtt.max(self.config.initial_rtt);
            self.base_rtt = BaseRtt::new(now, self.rtt);
        }
    }

    /// Learns the longest round-trip time of all receivers. Adopts a longer one at once, up to the
    /// maximum growth of a round, and approaches a shorter one slowly.
    fn learn_rtt(&mut self) {
        let limit = self.rtt.as_secs_f64() * self.config.rtt_growth_max;
        let longest = self.round.longest_rtt().min(seconds(limit));
        if longest.is_zero() {
            return;
        }
        let smoothed = if longest > self.rtt {
            longest
        } else {
            self.rtt - (self.rtt - longest) / 8
        };
        self.rtt = smoothed.clamp(Duration::from_millis(1), Duration::from_secs(10));
    }

    /// Returns whether a round has too few packets of a group and those below it to measure a
    /// received rate. Then the reported rates do not count.
    fn is_coarse(&self, group: u8) -> bool {
        let bytes = self.rates.cumulative(group.into()) * 2.0 * self.rtt.as_secs_f64();
        bytes < COARSE_PACKETS * f64::from(self.config.packet_bytes)
    }

    /// Returns when a group can send: a full packet when it is due, and a short one by as much
    /// earlier as it is shorter.
    fn packet_due(&self, group: u8) -> Time {
        let own = &self.groups[usize::from(group)];
        match own.offered {
            Some(payload @ 1..) if 2 * payload < self.config.packet_bytes => {
                let rest = self.room().saturating_sub(payload);
                let early = seconds(f64::from(rest) / self.rates.own(group.into()));
                Time::ZERO + (own.due - Time::ZERO).saturating_sub(early)
            }
            _ => own.due,
        }
    }

    /// Returns whether a packet without a payload is sent: only in the lowest group, if it carries
    /// a request, or if receivers would notice an interruption.
    fn sends_empty(&self, now: Time, group: u8) -> bool {
        let packet = f64::from(self.config.packet_bytes) / self.rates.own(0);
        let quiet = seconds(QUIET_PACKETS * packet).max(self.rtt).min(QUIET_MAX);
        group == 0 && (!self.round.is_open(0) || now - self.groups[0].sent >= quiet)
    }

    fn send_due(&mut self, now: Time) {
        for group in 0..self.config.groups {
            if self.packet_due(group) > now {
                continue;
            }
            // A group in which nothing waits lets its time pass. So groups do not send together as
            // soon as a unit comes.
            let offered = self.groups[usize::from(group)].offered;
            if offered == Some(0) && !self.sends_empty(now, group) {
                self.charge(now, group, self.config.packet_bytes);
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
        self.actions.push_back(Action::Send(packet));
        self.round.open(now, group);
    }

    /// Lets the time pass that this number of bytes takes at the rate of a group.
    fn charge(&mut self, now: Time, group: u8, bytes: u32) {
        let interval = seconds(f64::from(bytes) / self.rates.own(group.into()));
        let own = &mut self.groups[usize::from(group)];
        own.due = now.max(own.due + interval);
    }

    /// Returns the payload of a full packet.
    fn room(&self) -> u32 {
        self.config.packet_bytes - HEADER_BYTES
    }

    fn packet(&self, group: u8, is_pair: bool) -> Packet<Message> {
        let rtt_us = u32::try_from(self.interval_rtt().as_micros()).unwrap_or(u32::MAX);
        let has_next = self.is_second() && group + 1 < self.config.groups;
        let next = has_next.then(|| self.rates.cumulative(usize::from(group) + 1) as u32);
        let header = Message::Data(Data {
            group,
            sequence: self.groups[usize::from(group)].sequence,
            request: self.round.request(),
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
        self.round.add(now, feedback);
        if !self.is_adjusted && self.round.is_complete() && self.round.has_reports() {
            self.adjust(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.is_over(now) || now < self.round_since {
            return;
        }
        if !self.started {
            self.started = true;
            self.begin_round(now);
        }
        if self.round_due() <= now {
            self.on_round_end(now);
        }
        self.send_due(now);
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Message>> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        let packets = (0..self.config.groups).map(|group| self.packet_due(group));
        let due = if self.started {
            packets.fold(self.round_due(), Time::min)
        } else {
            self.round_since
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
}
