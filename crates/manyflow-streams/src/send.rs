//! The sending driver of a stream: paces the packets of the groups, and fills them with pieces of
//! units.

use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use manyflow_core::units::Rate;
use manyflow_core::{Action, ConfigError, Destination, EndpointId, Packet, Time};
use manyflow_layered::unit::{Cutter, CutterStats, PIECE_BYTES, unit_share};
use manyflow_layered::{Data, Event, Feedback, GROUPS_MAX, Message, Offer, RateReason, rlm, sim};
use manyflow_net::amt::{RelayServer, RelayStats};
use manyflow_net::clock::Clock;
use manyflow_net::outlets::Outlets;
use tokio::sync::{mpsc, watch};

/// Time between two reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// The longest time for which bytes of a group may wait in the cutter.
const BACKLOG_MAX: Duration = Duration::from_secs(1);
/// Headers of a data packet before its piece: IPv4, UDP, and that of the layered session.
const HEADER_BYTES: u32 = 48;
/// The longest interval between units from which shares are computed: after a pause of the source,
/// the groups' rates are not saved up.
const INTERVAL_MAX: Duration = Duration::from_secs(2);

/// The number of requests without an answer about a group, the present one included, after which
/// its receivers have left.
const UNANSWERED_MAX: u16 = 2;

/// The rate control of a sender, with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum SendControl {
    /// SIM.
    Sim(sim::SenderConfig),
    /// RLM.
    Rlm(rlm::SenderConfig),
}

impl SendControl {
    /// Returns the length of packets on a link, in bytes.
    pub fn packet_bytes(&self) -> u32 {
        match self {
            SendControl::Sim(config) => config.packet_bytes,
            SendControl::Rlm(config) => config.packet_bytes,
        }
    }

    /// Sets the length of packets on a link, in bytes.
    pub(super) fn set_packet_bytes(&mut self, bytes: u32) {
        match self {
            SendControl::Sim(config) => config.packet_bytes = bytes,
            SendControl::Rlm(config) => config.packet_bytes = bytes,
        }
    }

    /// Returns the number of groups.
    pub fn groups(&self) -> u8 {
        match self {
            SendControl::Sim(config) => config.groups,
            SendControl::Rlm(config) => u8::try_from(config.rates.len()).unwrap_or(u8::MAX),
        }
    }

    /// Returns the cumulative rate of each group at the start, headers included.
    pub fn initial_rates(&self) -> [Rate; GROUPS_MAX as usize] {
        let mut sum = 0;
        std::array::from_fn(|group| {
            let own = match self {
                SendControl::Sim(config) if group < config.groups.into() => config.initial_rate,
                SendControl::Rlm(config) => config.rates.get(group).copied().unwrap_or_default(),
                SendControl::Sim(_) => Rate::default(),
            };
            sum += own.bits_per_s();
            Rate::from_bits_per_s(sum)
        })
    }
}

/// A unit from a source.
#[derive(Clone, Debug)]
pub struct SourceUnit {
    /// The embedded bitstream: every prefix decodes to a coarser version.
    pub bytes: Bytes,
    /// The time until the next unit; `None` takes the time since the last one.
    pub interval: Option<Duration>,
}

/// A sender's progress so far.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSendProgress {
    /// Packets passed to the outlets, and their UDP payload in bytes.
    pub packets: u64,
    /// The UDP payload of these packets, in bytes.
    pub bytes: u64,
    /// Units of the source, and the bytes that their groups could not carry.
    pub cutter: CutterStats,
    /// Cumulative rates of the groups, in bits per second of IP packets.
    pub rates: [Rate; GROUPS_MAX as usize],
    /// Number of groups.
    pub groups: u8,
    /// How often the rate of a group changed for each reason, in the order of [`RateReason::ALL`].
    pub reasons: [u64; RateReason::ALL.len()],
    /// The reason of the last change of each group's rate.
    pub last_reasons: [Option<RateReason>; GROUPS_MAX as usize],
    /// The longest round-trip time of the session, as the sender announces it; zero with RLM.
    pub rtt: Duration,
    /// Reports that have arrived at the sender.
    pub reports: u64,
    /// The receivers that the last reports describe; 0 before the first report, and with RLM.
    pub receivers: u32,
    /// Datagrams that an outlet dropped.
    pub unsent: u64,
    /// Load and counts of the AMT relay.
    pub relay: RelayStats,
}

/// The sending end of a stream on the network.
pub struct StreamSender {
    clock: Clock,
    endpoint: Box<dyn Offer>,
    packet_bytes: u32,
    cutter: Cutter,
    outlets: Outlets,
    datagram: Vec<u8>,
    /// The number of the next packet of each group. Packets that are not sent have none, because
    /// receivers would take them for lost.
    sequences: [u32; GROUPS_MAX as usize],
    /// The last request that a packet of each group has carried, and the round-trip time with it;
    /// zero for groups that nobody receives.
    requests: [(u16, Duration); GROUPS_MAX as usize],
    /// When the last unit came from the source.
    last_unit: Option<Time>,
    /// The time until the unit after it.
    interval: Duration,
    next_report: Time,
    population: Population,
    progress: StreamSendProgress,
    watched: watch::Sender<StreamSendProgress>,
}

impl StreamSender {
    /// Makes a sender of the session with this number. The relay in `outlets` takes the reports of
    /// receivers and relays.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        session: u32,
        control: &SendControl,
        outlets: Outlets,
    ) -> Result<StreamSender, ConfigError> {
        let endpoint: Box<dyn Offer> = match control.clone() {
            SendControl::Sim(config) => {
                Box::new(sim::Sender::new(config, session, Time::ZERO, None)?)
            }
            SendControl::Rlm(config) => {
                Box::new(rlm::Sender::new(config, session, Time::ZERO, None)?)
            }
        };
        let progress = StreamSendProgress {
            rates: control.initial_rates(),
            groups: control.groups(),
            ..StreamSendProgress::default()
        };
        Ok(StreamSender {
            clock: Clock::start(),
            endpoint,
            packet_bytes: control.packet_bytes(),
            cutter: Cutter::new(control.groups(), BACKLOG_MAX)
                .starting_at(rand::random())
                .in_pieces_of(piece_bytes(control.packet_bytes())),
            outlets,
            datagram: Vec::with_capacity(control.packet_bytes() as usize),
            sequences: [0; GROUPS_MAX as usize],
            requests: [(0, Duration::ZERO); GROUPS_MAX as usize],
            last_unit: None,
            interval: Duration::ZERO,
            next_report: Time::ZERO,
            population: Population::default(),
            watched: watch::Sender::new(progress),
            progress,
        })
    }

    /// Gives the first unit this number. Without one it is random, so that receivers notice when a
    /// sender starts again.
    pub fn with_first_number(mut self, number: Option<u32>) -> StreamSender {
        if let Some(number) = number {
            self.cutter = self.cutter.starting_at(number);
        }
        self
    }

    /// Returns a channel that reports the progress several times per second.
    pub fn progress(&self) -> watch::Receiver<StreamSendProgress> {
        self.watched.subscribe()
    }

    /// Sends units until the source ends or `stop` is ready.
    pub async fn run(
        mut self,
        mut units: mpsc::Receiver<SourceUnit>,
        stop: impl Future<Output = ()>,
    ) -> StreamSendProgress {
        tokio::pin!(stop);
        self.clock = Clock::start();
        while self.turn(&mut units, stop.as_mut()).await {}
        self.report();
        self.progress
    }

    /// Sends what is due, and waits for the next thing to do. Returns whether to go on.
    async fn turn(
        &mut self,
        units: &mut mpsc::Receiver<SourceUnit>,
        stop: Pin<&mut impl Future<Output = ()>>,
    ) -> bool {
        let now = self.clock.now();
        self.send_due(now);
        tokio::select! {
            biased;
            () = stop => return false,
            feedback = next_feedback(self.outlets.server()) => self.handle_report(&feedback),
            unit = units.recv() => match unit {
                Some(unit) => self.take_unit(unit),
                None => return false,
            },
            () = self.clock.sleep_until(self.endpoint.poll_timeout()) => {}
        }
        true
    }

    fn send_due(&mut self, now: Time) {
        self.offer_payloads();
        self.endpoint.handle_timeout(now);
        while let Some(action) = self.endpoint.poll_action(now) {
            if let Action::Send(packet) = action {
                self.send(&packet);
            }
        }
        self.outlets.flush();
        let mut has_changed = false;
        while let Some(event) = self.endpoint.poll_event() {
            if let Event::GroupRate {
                group,
                rate,
                reason,
            } = event
            {
                has_changed |= self.progress.rates[usize::from(group)] != rate;
                self.note_rate(group, rate, reason);
            }
        }
        if has_changed {
            self.rebalance(now);
        }
        self.report_if_due(now);
    }

    /// Notes the rate of a group, and the reason if it has changed. Those of each round are only in
    /// the detailed log.
    fn note_rate(&mut self, group: u8, rate: Rate, reason: Option<RateReason>) {
        let place = usize::from(group);
        self.progress.rates[place] = rate;
        let Some(reason) = reason else { return };
        self.progress.reasons[reason.index()] += 1;
        let before = self.progress.last_reasons[place].replace(reason);
        match reason.is_routine() || before == Some(reason) {
            true => tracing::debug!("group {group} has {rate}: {}", reason.because()),
            false => tracing::info!("group {group} has {rate}: {}", reason.because()),
        }
    }

    /// Says what waits in each group, so that packets are charged by what they carry.
    fn offer_payloads(&mut self) {
        let room = payload_bytes(self.packet_bytes);
        for group in 0..self.progress.groups {
            let waiting = self.cutter.payload_bytes(group, room) as u32;
            self.endpoint.offer(group, waiting);
        }
    }

    /// Sends a packet with the pieces that wait in its group. It may have none: it then carries a
    /// request for reports, or shows that the sender is there.
    fn send(&mut self, packet: &Packet<Message>) {
        let Destination::Channel(channel) = packet.destination else {
            return;
        };
        let mut header = packet.header;
        let group = group_of(&header);
        if !self.outlets.wants(channel.number) {
            self.requests[usize::from(group)].1 = Duration::ZERO;
            return;
        }
        if let Message::Data(data) = &mut header {
            self.note_request(data);
            data.sequence = self.sequences[usize::from(group)];
        }
        self.datagram.clear();
        self.datagram.extend_from_slice(header.encode().as_bytes());
        let payload_max = packet.payload_bytes() as usize;
        self.cutter
            .next_payload(group, payload_max, &mut self.datagram);
        if let Message::Data(data) = header {
            self.sequences[usize::from(group)] = data.sequence.wrapping_add(1);
        }
        self.progress.packets += 1;
        self.progress.bytes += self.datagram.len() as u64;
        self.outlets.push(channel.number, &self.datagram);
    }

    /// Notes the request of a packet and the round-trip time with it.
    fn note_request(&mut self, data: &Data) {
        let known = &mut self.requests[usize::from(data.group)];
        let before = core::mem::replace(
            known,
            (data.request, Duration::from_micros(data.rtt_us.into())),
        );
        let rtts = self.requests.iter().map(|(_, rtt)| *rtt);
        self.progress.rtt = rtts.max().unwrap_or_default();
        if before.0 != data.request {
            self.population.on_request(data);
        }
    }

    /// Cuts a unit by the present rates of the groups.
    fn take_unit(&mut self, unit: SourceUnit) {
        let now = self.clock.now();
        let measured = self.last_unit.replace(now).map(|last| now - last);
        let interval = unit.interval.or(measured).unwrap_or_default();
        let time_us = ((now - Time::ZERO).as_micros() & u128::from(u32::MAX)) as u32;
        self.interval = interval.min(INTERVAL_MAX);
        let own = self.own_rates();
        self.cutter
            .push_unit(time_us, unit.bytes, self.interval, &own);
        let headers = self.header_bytes();
        self.cutter
            .spread(&mut *self.endpoint, self.interval, headers);
    }

    /// Cuts the rest of the latest unit by rates that have changed since it came.
    fn rebalance(&mut self, now: Time) {
        let ends = self.last_unit.map(|last| last + self.interval);
        let Some(left) = ends.filter(|ends| *ends > now).map(|ends| ends - now) else {
            return;
        };
        let own = self.own_rates();
        self.cutter.rebalance(left, &own);
        let headers = self.header_bytes();
        self.cutter.spread(&mut *self.endpoint, left, headers);
    }

    /// Returns the rate of each group for bytes of units, without the groups below, in bytes per
    /// second. Bytes of a group that nobody receives would be late for its first receiver.
    fn own_rates(&self) -> [f64; GROUPS_MAX as usize] {
        let headers = self.header_bytes();
        let interval = self.interval.as_secs_f64();
        let mut below = 0.0;
        std::array::from_fn(|group| {
            let cumulative = self.progress.rates[group].bits_per_s() as f64 / 8.0;
            let own = cumulative - std::mem::replace(&mut below, cumulative);
            match group < self.progress.groups.into() && self.outlets.wants(group as u16) {
                true => own * unit_share(own * interval, self.packet_bytes, headers),
                false => 0.0,
            }
        })
    }

    /// Returns the bytes of headers on a link of a packet with one piece.
    fn header_bytes(&self) -> u32 {
        self.packet_bytes - piece_bytes(self.packet_bytes) as u32
    }

    fn handle_report(&mut self, feedback: &Feedback) {
        let now = self.clock.now();
        self.progress.reports += 1;
        self.population.add(feedback);
        self.progress.receivers = self.population.receivers();
        let to = Destination::Endpoint(EndpointId::UNSET);
        let packet = Packet::new(to, Message::Feedback(*feedback), 0);
        self.endpoint.handle_packet(now, &packet);
    }

    fn report_if_due(&mut self, now: Time) {
        if now >= self.next_report {
            self.next_report = now + PROGRESS_INTERVAL;
            self.report();
        }
    }

    fn report(&mut self) {
        self.progress.cutter = self.cutter.stats();
        self.progress.unsent = self.outlets.unsent();
        self.progress.relay = self.outlets.relay_stats();
        self.watched.send_replace(self.progress);
    }
}

/// Waits for the next summary of reports.
async fn next_feedback(server: Option<&RelayServer>) -> Feedback {
    match server {
        Some(server) => server.next_feedback().await,
        None => pending().await,
    }
}

/// Returns the payload of a full packet in bytes.
fn payload_bytes(packet_bytes: u32) -> usize {
    packet_bytes.saturating_sub(HEADER_BYTES) as usize
}

/// Returns the bytes of a long unit in a full packet.
fn piece_bytes(packet_bytes: u32) -> usize {
    payload_bytes(packet_bytes).saturating_sub(PIECE_BYTES)
}

/// Returns the group of a packet of the sender. Announcements of RLM are in the lowest one.
fn group_of(message: &Message) -> u8 {
    match message {
        Message::Data(Data { group, .. }) => *group,
        Message::Feedback(_) | Message::Experiment(_) => 0,
    }
}

/// The receivers with each top group, by the last reports about them.
#[derive(Debug, Default)]
struct Population {
    /// The last request that was answered, and the number of receivers in the answer.
    answered: [(u16, u32); GROUPS_MAX as usize],
}

impl Population {
    fn add(&mut self, feedback: &Feedback) {
        if feedback.is_early() {
            return;
        }
        if let Some(answered) = self.answered.get_mut(usize::from(feedback.group)) {
            *answered = (feedback.request, feedback.population);
        }
    }

    /// Forgets receivers that have not answered the requests before this one.
    fn on_request(&mut self, data: &Data) {
        let groups = match data.is_for_group {
            true => &mut self.answered[usize::from(data.group)..=usize::from(data.group)],
            false => &mut self.answered[..],
        };
        for (request, receivers) in groups {
            if data.request.wrapping_sub(*request) > UNANSWERED_MAX {
                *receivers = 0;
            }
        }
    }

    fn receivers(&self) -> u32 {
        let counts = self.answered.iter().map(|(_, receivers)| *receivers);
        counts.fold(0, u32::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_report_of_one_receiver_does_not_hide_the_others() {
        let mut population = Population::default();
        let summary = Feedback {
            source: 1,
            session: 5,
            group: 0,
            more: false,
            request: 7,
            reports: 40,
            congested: 0,
            minimum: 125_000,
            maximum: 125_000,
            population: 40,
            hold_us: 0,
            rtt_us: 0,
        };
        population.add(&summary);
        population.add(&Feedback {
            reports: 0,
            population: 1,
            ..summary
        });
        assert_eq!(population.receivers(), 40);
    }
}
