//! The receiving driver of a stream: joins the groups that the rate control names, puts units
//! together, and reports to the parent.

use std::pin::Pin;
use std::time::Duration;

use manyflow_amt::Flow;
use manyflow_core::{
    Action, Channel, ConfigError, Destination, Ecn, Endpoint, EndpointId, Packet, Time,
};
use manyflow_layered::hop::HopKey;
use manyflow_layered::repair::Arrival;
use manyflow_layered::unit::{Assembler, AssemblerConfig, AssemblerStats, Latency, Piece, Unit};
use manyflow_layered::{Data, Event, Membership, Message, Reason, rlm, sim};
use manyflow_net::clock::Clock;
use manyflow_net::inlet::{self, Incoming, Inlet, Route, TransportError};
use manyflow_net::reach::{Notice, Reach};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::config::{
    live_multicast_receiver_config, live_receiver_config, live_rlm_receiver_config,
};
use super::description::{StreamDescription, StreamProtocol};
use super::parent::Parent;
use super::sequences::Sequences;

/// The bounds of the latency that follows the path.
pub const LATENCY_AUTO: Latency = Latency::Adaptive {
    min: Duration::from_millis(50),
    max: Duration::from_secs(2),
};
/// Duration without a packet after which a stream is given up, unless the caller chooses another.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time between two reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
/// Silence after which a receiver asks whether its relay is alive. The lowest group sends several
/// packets in this time.
const SILENCE: Duration = Duration::from_millis(500);
/// Time with data but without a newer request after which the sender has started again: at least
/// this, and as many of the session's longest round-trip times. A round takes up to four of them.
const RESTART_AFTER: Duration = Duration::from_secs(3);
const RESTART_AFTER_RTTS: u32 = 8;

/// The parameters of a receiver.
#[derive(Clone, Debug)]
pub struct StreamReceiveConfig {
    /// The stream to receive.
    pub description: StreamDescription,
    /// The way that packets take.
    pub route: Route,
    /// Parameters of SIM's receiver.
    pub sim: sim::ReceiverConfig,
    /// Parameters of RLM's receiver.
    pub rlm: rlm::ReceiverConfig,
    /// The maximum number of groups to join, 1 to those of the stream.
    pub groups_max: u8,
    /// The key that seals reports, if the session has one.
    pub key: Option<HopKey>,
    /// The time between the arrival of the fastest packet of a unit and its delivery.
    pub latency: Latency,
    /// Duration without a packet after which the stream is given up.
    pub patience: Duration,
}

impl StreamReceiveConfig {
    /// Returns the receiver of a stream with the parameters of live streams, all groups, a latency
    /// that follows the path, and a patience of 30 s.
    pub fn new(description: StreamDescription, route: Route) -> StreamReceiveConfig {
        StreamReceiveConfig {
            sim: match route {
                Route::Multicast(_) => live_multicast_receiver_config(),
                Route::Relays(_) => live_receiver_config(),
            },
            rlm: live_rlm_receiver_config(),
            groups_max: description.groups,
            key: None,
            latency: LATENCY_AUTO,
            patience: PATIENCE,
            description,
            route,
        }
    }
}

/// The reason why a stream was not received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamReceiveError {
    /// A parameter of the rate control is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The session's reports need a key, and the configuration has no key.
    #[error(
        "the stream's reports need a shared key (a=report-key): get the key from the sender, and give it with --key"
    )]
    NoKey,
    /// The way to the sender does not work.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// No packet of the stream arrived.
    #[error("nothing was heard of the stream for {} s: is the sender running, and does {via} lead to it?{hint}", .after.as_secs())]
    Silent {
        /// Duration of the silence.
        after: Duration,
        /// The way that packets should take.
        via: String,
        /// A reason that the description shows, to be appended; often empty.
        hint: String,
    },
}

/// The receiver of either protocol.
type LayeredEndpoint = Box<dyn Endpoint<Rx = Message, Tx = Message, Event = Event>>;

/// A receiver's progress so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamReceiveProgress {
    /// Number of joined groups.
    pub groups: u8,
    /// Packets received.
    pub packets: u64,
    /// IP bytes of the packets received.
    pub bytes: u64,
    /// Packets lost at first, by the sequence numbers of the joined groups.
    pub lost: u64,
    /// Packets lost at first that arrived later: repaired, or overtaken.
    pub repaired: u64,
    /// Packets that routers or relays have marked.
    pub marked: u64,
    /// Units delivered, with their prefixes' bytes, and those missed.
    pub units: AssemblerStats,
    /// Time from the fastest packet of a unit to the unit's delivery.
    pub latency: Duration,
    /// How often groups were joined and left.
    pub changes: u64,
    /// How often groups were changed for each reason, in the order of [`Reason::ALL`].
    pub reasons: [u64; Reason::ALL.len()],
    /// The reason for the last change.
    pub last_reason: Option<Reason>,
    /// Units that the consumer was too slow to take.
    pub dropped: u64,
    /// Datagrams that are no packets of the stream.
    pub refused: u64,
}

/// Receives a stream until `stop` is ready, and passes its units to `units`. A consumer that is too
/// slow misses units; reception goes on.
///
/// # Errors
/// See [`StreamReceiveError`].
pub async fn receive(
    config: StreamReceiveConfig,
    units: mpsc::Sender<Unit>,
    progress: watch::Sender<StreamReceiveProgress>,
    stop: impl Future<Output = ()>,
) -> Result<StreamReceiveProgress, StreamReceiveError> {
    tokio::pin!(stop);
    let mut driver = Driver::open(config, units, progress).await?;
    let result = driver.run(stop).await;
    let progress = driver.reception.snapshot();
    driver.inlet.close().await;
    result.map(|()| progress)
}

struct Driver {
    inlet: Inlet,
    flows: Vec<Flow>,
    patience: Duration,
    clock: Clock,
    reception: Reception,
    last_check: Time,
    /// Whether packets come.
    reach: Reach,
    next_report: Time,
    units: mpsc::Sender<Unit>,
    watched: watch::Sender<StreamReceiveProgress>,
}

impl Driver {
    async fn open(
        config: StreamReceiveConfig,
        units: mpsc::Sender<Unit>,
        watched: watch::Sender<StreamReceiveProgress>,
    ) -> Result<Driver, StreamReceiveError> {
        let description = &config.description;
        if description.needs_key && config.key.is_none() {
            return Err(StreamReceiveError::NoKey);
        }
        let inlet = Inlet::open(description.source, description.port, &config.route).await?;
        // The address of a sender behind a relay is one of its own network, or of its loopback.
        let sender = match &config.route {
            Route::Multicast(_) => format!("the sender {} by {inlet}", description.source),
            Route::Relays(_) => format!("the sender behind {inlet}"),
        };
        Ok(Driver {
            reach: Reach::new(sender, "is it running?"),
            inlet,
            flows: description.flows(),
            patience: config.patience,
            clock: Clock::start(),
            reception: Reception::new(config).await?,
            last_check: Time::ZERO,
            next_report: Time::ZERO,
            units,
            watched,
        })
    }

    async fn run(
        &mut self,
        mut stop: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), StreamReceiveError> {
        loop {
            let now = self.clock.now();
            self.reception.handle_timeout(now);
            self.obey(now)?;
            self.deliver_units(now);
            self.check_silence(now)?;
            self.report_if_due(now);
            let due = self.reception.poll_timeout(now);
            tokio::select! {
                biased;
                () = &mut stop => break,
                waited = self.inlet.wait() => {
                    waited?;
                    self.take_incoming();
                }
                () = self.clock.sleep_until(Some(due)) => {}
            }
        }
        self.report();
        Ok(())
    }

    /// Handles the packets and hop messages that have arrived together, in their order: a sounding
    /// counts the packets before it.
    fn take_incoming(&mut self) {
        while let Some(incoming) = self.inlet.next_incoming() {
            match incoming {
                Incoming::Packet(packet) => {
                    let now = self.clock.time_of(packet.received_at);
                    self.reception.handle_packet(now, &packet);
                }
                Incoming::Hop(message) => self.reception.parent.handle_hop_message(message),
            }
        }
    }

    /// Joins, leaves and reports as the rate control asks.
    fn obey(&mut self, now: Time) -> Result<(), TransportError> {
        while let Some(action) = self.reception.endpoint.poll_action(now) {
            match action {
                Action::Join(channel) => {
                    if let Some(flow) = self.flows.get(usize::from(channel.number)) {
                        self.inlet.join(*flow)?;
                    }
                }
                Action::Leave(channel) => {
                    if let Some(flow) = self.flows.get(usize::from(channel.number)) {
                        self.inlet.leave(*flow)?;
                    }
                }
                Action::Send(packet) => self.reception.parent.report(&packet.header),
            }
        }
        self.reception.parent.flush(&self.inlet);
        Ok(())
    }

    fn deliver_units(&mut self, now: Time) {
        while let Some(unit) = self.reception.assembler.poll_unit(now) {
            if self.units.try_send(unit).is_err() {
                self.reception.progress.dropped += 1;
            }
        }
        while self.reception.assembler.poll_event().is_some() {}
    }

    /// Looks after a way without packets: asks the relay whether it is alive, warns, and ends a
    /// stream that has been silent for too long.
    fn check_silence(&mut self, now: Time) -> Result<(), StreamReceiveError> {
        let silence = now - self.reception.last_packet;
        if silence >= self.patience {
            return Err(StreamReceiveError::Silent {
                after: silence,
                via: self.inlet.to_string(),
                hint: self.silence_hint(),
            });
        }
        if silence < SILENCE && self.reception.progress.packets > 0 {
            self.reach.up().iter().for_each(Notice::log);
        } else if now - self.last_check >= SILENCE {
            self.last_check = now;
            self.inlet.check_way();
            self.reach
                .down(format_args!("no packet comes{}", self.silence_hint()));
        }
        let notice = self.reach.poll(Instant::now());
        notice.iter().for_each(Notice::log);
        Ok(())
    }

    fn silence_hint(&self) -> String {
        let packets = self.reception.progress.packets;
        let ttl = self.reception.config.description.ttl;
        self.inlet.silence_hint(packets, ttl)
    }

    fn report_if_due(&mut self, now: Time) {
        if now >= self.next_report {
            self.next_report = now + PROGRESS_INTERVAL;
            self.report();
        }
    }

    fn report(&mut self) {
        self.watched.send_replace(self.reception.snapshot());
    }
}

/// The state machines of a receiver, and its counts.
struct Reception {
    config: StreamReceiveConfig,
    endpoint: LayeredEndpoint,
    assembler: Assembler,
    parent: Parent,
    sequences: Sequences,
    /// The sender's last request to this receiver, the time at which it came, and the group of its
    /// packet if the request was for the receivers of that group.
    request: (u16, Time, Option<u8>),
    last_packet: Time,
    progress: StreamReceiveProgress,
}

impl Reception {
    async fn new(config: StreamReceiveConfig) -> Result<Reception, StreamReceiveError> {
        let assembler = AssemblerConfig {
            latency: config.latency,
            ..AssemblerConfig::default()
        };
        let (key, latency) = (config.key.clone(), config.latency);
        let parent = Parent::open(&config.description, &config.route, key, latency).await?;
        Ok(Reception {
            endpoint: new_endpoint(&config, Time::ZERO)?,
            assembler: Assembler::new(assembler),
            parent,
            sequences: Sequences::new(config.description.groups),
            request: (0, Time::ZERO, None),
            last_packet: Time::ZERO,
            progress: StreamReceiveProgress::default(),
            config,
        })
    }

    fn handle_packet(&mut self, now: Time, packet: &inlet::Packet<'_>) {
        let arrival = match packet.message {
            Some(message) => self.parent.handle_message(message),
            None => Arrival::Fresh,
        };
        if arrival == Arrival::Duplicate {
            return;
        }
        let is_late = arrival == Arrival::Late;
        self.progress.repaired += u64::from(is_late);
        let header = match Message::decode(packet.payload) {
            Ok(header @ (Message::Data(_) | Message::Experiment(_))) => header,
            _ => {
                self.progress.refused += 1;
                return;
            }
        };
        self.last_packet = now;
        let payload = &packet.payload[header.encode().as_bytes().len()..];
        let group = match header {
            Message::Data(data) => {
                self.handle_data(now, &data, payload, is_late);
                data.group
            }
            _ => 0,
        };
        let packet = self
            .packet(group, header, payload.len() as u32)
            .with_ecn(packet.ecn);
        self.progress.packets += 1;
        self.progress.bytes += u64::from(packet.wire_bytes());
        self.progress.marked += u64::from(packet.ecn == Ecn::Marked);
        self.endpoint.handle_packet(now, &packet);
        self.take_events();
    }

    /// Returns a packet of the session as the endpoint knows it.
    fn packet(&self, group: u8, header: Message, payload_bytes: u32) -> Packet<Message> {
        let channel = Channel {
            session: self.config.description.session,
            number: group.into(),
        };
        Packet::new(Destination::Channel(channel), header, payload_bytes)
    }

    fn handle_data(&mut self, now: Time, data: &Data, payload: &[u8], is_late: bool) {
        self.progress.lost += self.sequences.count_lost(data);
        let restarts = self.assembler.stats().restarts;
        for decoded in Piece::decode_all(payload) {
            match decoded {
                Ok((piece, bytes)) => {
                    self.assembler.handle_arrival(now, piece, bytes, is_late);
                }
                Err(_) => self.progress.refused += 1,
            }
        }
        let has_restarted = match self.config.description.protocol {
            StreamProtocol::Sim => self.misses_requests(now, data),
            // The data of RLM has no requests; the numbers of units show a restart.
            StreamProtocol::Rlm => self.assembler.stats().restarts != restarts,
        };
        if has_restarted {
            self.restart(now, data);
        }
    }

    /// Notes the request of `data`. Returns whether newer ones have been missing for
    /// [`restart_after`], so that the sender must have started again.
    fn misses_requests(&mut self, now: Time, data: &Data) -> bool {
        let group = data.is_for_group.then_some(data.group);
        if group.is_some_and(|group| group + 1 != self.progress.groups) {
            // The request is for others.
            return false;
        }
        let (last, since, of) = self.request;
        if group != of || is_newer(data.request, last) {
            self.request = (data.request, now, group);
            return false;
        }
        now - since >= restart_after(data)
    }

    /// Begins again with a sender that has started again: its requests and sequence numbers are
    /// lower than before.
    fn restart(&mut self, now: Time, data: &Data) {
        tracing::info!("the sender has started again");
        self.request = (data.request, now, data.is_for_group.then_some(data.group));
        self.sequences = Sequences::new(self.config.description.groups);
        if let Ok(endpoint) = new_endpoint(&self.config, now) {
            self.endpoint = endpoint;
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Joined(channel) => {
                    self.progress.groups = channel.number as u8 + 1;
                    self.progress.changes += 1;
                    self.sequences.begin(channel.number as u8);
                }
                Event::Left(channel) => {
                    self.progress.groups = channel.number as u8;
                    self.progress.changes += 1;
                }
                Event::Changed { groups, reason } => {
                    self.progress.reasons[reason.index()] += 1;
                    self.progress.last_reason = Some(reason);
                    tracing::info!("the receiver has {groups} groups: {}", reason.because());
                }
                _ => {}
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.endpoint.handle_timeout(now);
        while let Some(experiment) = self.parent.poll_experiment() {
            let packet = self.packet(0, Message::Experiment(experiment), 0);
            self.endpoint.handle_packet(now, &packet);
        }
        self.take_events();
    }

    /// Returns when to act next if no packet arrives.
    fn poll_timeout(&self, now: Time) -> Time {
        let due = [self.endpoint.poll_timeout(), self.assembler.poll_timeout()];
        let report = now + PROGRESS_INTERVAL;
        due.into_iter().flatten().fold(report, Time::min)
    }

    fn snapshot(&self) -> StreamReceiveProgress {
        StreamReceiveProgress {
            units: self.assembler.stats(),
            latency: self.assembler.latency(),
            ..self.progress
        }
    }
}

/// Makes the endpoint of the stream's rate control, which starts at `now`.
fn new_endpoint(config: &StreamReceiveConfig, now: Time) -> Result<LayeredEndpoint, ConfigError> {
    let StreamDescription {
        session, protocol, ..
    } = config.description;
    let membership = Membership {
        session,
        groups: config.groups_max.min(config.description.groups),
        start: now,
        stop: None,
    };
    let parent = EndpointId::UNSET;
    Ok(match protocol {
        StreamProtocol::Sim => {
            let sim = config.sim.clone();
            let id = rand::random();
            Box::new(sim::Receiver::new(sim, membership, id, parent)?)
        }
        StreamProtocol::Rlm => {
            let rlm = config.rlm.clone();
            let seed = rand::random();
            Box::new(rlm::Receiver::new(rlm, membership, parent, seed)?)
        }
    })
}

/// Returns the time without a newer request after which the sender of `data` has started again.
fn restart_after(data: &Data) -> Duration {
    let rtt = Duration::from_micros(data.rtt_us.into());
    RESTART_AFTER.max(RESTART_AFTER_RTTS * rtt)
}

/// Whether a request is newer than another, modulo 2^16.
fn is_newer(request: u16, than: u16) -> bool {
    request.wrapping_sub(than) as i16 > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(rtt_us: u32) -> Data {
        Data {
            group: 0,
            sequence: 1,
            request: 1,
            is_for_group: false,
            rate: 0,
            rtt_us,
            next_rate: 0,
            is_pair: false,
        }
    }

    #[test]
    fn a_long_round_is_no_restart() {
        let behind = |rtt_us| restart_after(&data(rtt_us));
        assert_eq!(behind(100_000), RESTART_AFTER);
        assert!(behind(2_000_000) > 4 * Duration::from_secs(2));
    }

    #[test]
    fn requests_are_compared_modulo_their_range() {
        assert!(is_newer(1, u16::MAX) && !is_newer(u16::MAX, 1) && !is_newer(5, 5));
    }
}
