//! A relay without a sender: takes flows from upstream by IP multicast or AMT, and forwards them
//! downstream.
//!
//! ```text
//!   sender --> forwarder --> forwarder --> receiver
//!          <-- join      <-- join      <-- join
//! ```
//!
//! A forwarder joins a flow upstream when the first gateway joins it downstream, and leaves it with
//! the last. It knows addresses, not contents: a packet leaves as it came, less one hop.

mod config;
mod flows;
mod hosts;
mod upward;

use std::future::{pending, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use manyflow_amt::ip::{encode_data, pass_hop};
use manyflow_amt::{Family, Flow, FlowMessages, RelayEvent};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

pub use self::config::{Feed, ForwarderConfig, ForwarderError};
pub use self::flows::FlowReason;
use self::flows::{Demand, FlowTable};
use self::hosts::LocalHosts;
pub use self::hosts::{HostsConfig, HostsStats};
use self::upward::Upward;
pub use self::upward::report_socket;
use super::amt::{RelayOptions, RelaySender, RelayServer, RelayStats};
use super::inlet::{Incoming, Inlet, Packet, Route, TransportError};
use super::multicast::{Choice, Interface};
use super::train::Train;

/// Time between two looks at upstream's silence, and between two reports of progress.
const TICK: Duration = Duration::from_secs(1);
/// Silence on joined flows after which a forwarder asks whether its upstream relay is alive. The
/// slowest sessions send a packet each second.
const SILENCE: Duration = Duration::from_secs(2);
/// Silence on joined flows that is logged.
const SILENCE_LOGGED: Duration = Duration::from_secs(10);
/// Maximum time for leaving upstream at the end.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// The present load of a forwarder, and the counts of its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForwarderStatus {
    /// Load and counts of the AMT relay for gateways.
    pub relay: RelayStats,
    /// Load and counts of IP multicast to hosts.
    pub hosts: HostsStats,
    /// Number of flows that are joined upstream.
    pub flows_joined: usize,
    /// How often flows were joined or left upstream for each reason, in the order of
    /// [`FlowReason::ALL`].
    pub reasons: [u64; FlowReason::ALL.len()],
    /// The reason of the last join or leave upstream.
    pub last_reason: Option<FlowReason>,
    /// Packets received from upstream on joined flows.
    pub packets: u64,
    /// UDP payload of these packets, in bytes.
    pub bytes: u64,
    /// Packets from upstream that belong to no flow of the forwarder.
    pub foreign: u64,
    /// Packets dropped because they had crossed too many relays, or had no IP header.
    pub undeliverable: u64,
}

/// Forwards flows from upstream to gateways and hosts.
pub struct Forwarder {
    flows: Vec<Flow>,
    table: FlowTable,
    demand: Demand,
    upstreams: Vec<Upstream>,
    /// The upstream of each flow.
    upstream_of: Vec<usize>,
    upward: Option<Upward>,
    /// The upstream to poll first, so that a busy one does not starve the others.
    first: usize,
    server: Option<RelayServer>,
    outlets: Outlets,
    status: ForwarderStatus,
    progress: watch::Sender<ForwarderStatus>,
}

/// A way on which flows come.
struct Upstream {
    inlet: Inlet,
    /// Number of flows that are joined on this way.
    joined: usize,
    /// Time of the last packet or of the first join.
    heard: Instant,
    /// Number of packets that have come.
    packets: u64,
    /// Whether the present silence has been logged.
    is_silence_logged: bool,
}

impl Forwarder {
    /// Opens all sockets. Does not wait for a relay upstream: it may start later.
    ///
    /// # Errors
    /// If a socket cannot be opened, or no relay of a route has an address.
    ///
    /// # Panics
    /// If called outside of a tokio runtime.
    pub async fn open(config: ForwarderConfig) -> Result<Forwarder, ForwarderError> {
        check_hosts(&config)?;
        let (mut keys, mut upstreams): (Vec<UpstreamKey>, Vec<Upstream>) = Default::default();
        let (mut flows, mut upstream_of) = (Vec::new(), Vec::new());
        for Feed {
            flows: of_feed,
            route,
        } in config.feeds.clone()
        {
            for flow in of_feed {
                let key = UpstreamKey::new(flow, &route);
                let place = match keys.iter().position(|known| *known == key) {
                    Some(place) => place,
                    None => {
                        upstreams.push(Upstream::open(flow, &route).await?);
                        keys.push(key);
                        keys.len() - 1
                    }
                };
                flows.push(flow);
                upstream_of.push(place);
            }
        }
        let upward = Upward::open(&config, &upstream_of)?;
        let options = RelayOptions {
            links: config.links,
            streams: config.streams,
            ..RelayOptions::default()
        };
        let server = match config.listen {
            Some(address) => Some(
                RelayServer::bind_with(address, config.relay, flows.clone(), options)
                    .map_err(|cause| ForwarderError::Listen { address, cause })?,
            ),
            None => None,
        };
        let hosts = config.hosts.map(|hosts| LocalHosts::open(&hosts, &flows));
        Ok(Forwarder {
            table: FlowTable::new(&flows),
            demand: Demand::new(flows.len()),
            upstreams,
            upstream_of,
            upward,
            first: 0,
            outlets: Outlets::new(
                server.as_ref().map(RelayServer::sender),
                hosts.transpose()?,
                flows.len(),
            ),
            server,
            flows,
            status: ForwarderStatus::default(),
            progress: watch::Sender::default(),
        })
    }

    /// Returns the address on which gateways are served; `None` if none are.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(RelayServer::local_addr)
    }

    /// Returns the number of flows that gateways may join.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Returns the status, which changes each second.
    pub fn progress(&self) -> watch::Receiver<ForwarderStatus> {
        self.progress.subscribe()
    }

    /// Forwards until `stop` completes. Then leaves all flows upstream, for at most a second, and
    /// returns the last status.
    ///
    /// # Errors
    /// If a socket fails.
    pub async fn run(
        mut self,
        stop: impl Future<Output = ()>,
    ) -> Result<ForwarderStatus, ForwarderError> {
        let mut stop = pin!(stop);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut stop => break,
                event = next_event(self.server.as_ref()) => {
                    self.handle_event(event, FlowReason::of_gateway(event));
                }
                message = next_for_parent(self.server.as_ref()), if self.upward.is_some() => {
                    self.send_upward(&message);
                }
                event = next_host_event(self.outlets.hosts.as_mut()) => {
                    self.handle_event(event, FlowReason::of_host(event));
                }
                (place, waited) = wait_any(&mut self.upstreams, self.first) => {
                    waited?;
                    self.first = place + 1;
                    self.forward_from(place);
                }
                _ = ticks.tick() => self.tick(),
            }
        }
        self.tick();
        let status = self.status;
        self.close().await;
        Ok(status)
    }

    fn handle_event(&mut self, event: RelayEvent, reason: FlowReason) {
        let (flow, changed) = match event {
            RelayEvent::Joined(flow) => (flow, self.demand.add(flow)),
            RelayEvent::Left(flow, _) => (flow, self.demand.remove(flow)),
        };
        if !changed {
            return;
        }
        let is_joined = self.demand.is_joined(flow);
        self.note_change(flow, is_joined, reason);
        let upstream = &mut self.upstreams[self.upstream_of[flow]];
        let changed = match is_joined {
            true => upstream.join(self.flows[flow]),
            false => upstream.leave(self.flows[flow]),
        };
        if let Err(error) = changed {
            tracing::warn!("{error}");
        }
    }

    /// Counts and logs that a flow is joined or left upstream.
    fn note_change(&mut self, flow: usize, is_joined: bool, reason: FlowReason) {
        self.status.reasons[reason.index()] += 1;
        self.status.last_reason = Some(reason);
        let Flow { source, group } = self.flows[flow];
        let verb = if is_joined { "joins" } else { "leaves" };
        let (source, because) = (source.ip(), reason.because());
        tracing::info!("the relay {verb} {group} of {source}: {because}");
    }

    /// Forwards the packets that have come on one way.
    fn forward_from(&mut self, place: usize) {
        let upstream = &mut self.upstreams[place];
        let is_streams = self.upward.as_ref().is_some_and(|up| up.upstream == place);
        let streams = self.server.as_ref().filter(|_| is_streams);
        while let Some(incoming) = upstream.inlet.next_incoming() {
            let packet = match (incoming, streams) {
                (Incoming::Packet(packet), _) => packet,
                (Incoming::Hop(message), Some(server)) => {
                    server.handle_parent_datagram(message);
                    continue;
                }
                (Incoming::Hop(_), None) => continue,
            };
            (upstream.heard, upstream.is_silence_logged) = (packet.received_at, false);
            upstream.packets += 1;
            let Some(flow) = self.table.find(packet.group, packet.source.ip()) else {
                self.status.foreign += 1;
                continue;
            };
            let is_new = match (streams, packet.message) {
                (Some(server), Some(message)) => server.handle_parent_data(flow, message),
                _ => true,
            };
            // Packets of a flow that was left may still come for a moment.
            if !is_new || !self.demand.is_joined(flow) {
                continue;
            }
            self.status.packets += 1;
            self.status.bytes += packet.payload.len() as u64;
            if !self.outlets.push(flow, &self.flows, &packet) {
                self.status.undeliverable += 1;
            }
        }
        self.outlets.flush(&self.flows);
    }

    /// Sends a hop message to the parent.
    fn send_upward(&self, message: &[u8]) {
        if let Some(upward) = &self.upward {
            upward.send(message, &self.upstreams[upward.upstream].inlet);
        }
    }

    fn tick(&mut self) {
        for upstream in &mut self.upstreams {
            upstream.check_silence();
        }
        if let Some(server) = &self.server {
            self.status.relay = server.stats();
        }
        if let Some(hosts) = &self.outlets.hosts {
            self.status.hosts = hosts.stats();
        }
        self.status.flows_joined = self.demand.joined();
        self.progress.send_replace(self.status);
    }

    /// Leaves all flows on all ways at the same time.
    async fn close(self) {
        let closing = self
            .upstreams
            .into_iter()
            .map(|upstream| tokio::spawn(upstream.inlet.close()));
        let closing: Vec<_> = closing.collect();
        let closed = async {
            for inlet in closing {
                // A relay that does not hear the end stops when the joins expire.
                let _ = inlet.await;
            }
        };
        let _ = timeout(CLOSE_GRACE, closed).await;
    }
}

/// Checks that hosts can be served: by IPv4, and with packets that do not come from their network.
fn check_hosts(config: &ForwarderConfig) -> Result<(), ForwarderError> {
    let Some(hosts) = &config.hosts else {
        return Ok(());
    };
    let mut groups = config
        .feeds
        .iter()
        .flat_map(|feed| &feed.flows)
        .map(|flow| flow.group.ip());
    if let Some(group) = groups.find(IpAddr::is_ipv6) {
        return Err(ForwarderError::Ipv6Hosts(group));
    }
    let towards_hosts = hosts.interface.index()?;
    for feed in &config.feeds {
        let Route::Multicast(named) = &feed.route else {
            continue;
        };
        let from = match (named, feed.flows.first()) {
            (Some(interface), _) => interface.clone(),
            (None, Some(flow)) => Interface::Name(Choice::towards(flow.source.ip())?.interface),
            (None, None) => continue,
        };
        if from.index()? == towards_hosts {
            return Err(ForwarderError::SameInterface(from.to_string()));
        }
    }
    Ok(())
}

/// Flows with equal keys come through the same sockets.
#[derive(Debug, PartialEq)]
enum UpstreamKey {
    /// One source and port, on one interface.
    Multicast(Route, IpAddr, u16),
    /// Any flows of one IP version.
    Relays(Route, Family),
}

impl UpstreamKey {
    fn new(flow: Flow, route: &Route) -> UpstreamKey {
        let (source, route) = (flow.source.ip(), route.clone());
        match route {
            Route::Multicast(_) => Self::Multicast(route, source, flow.group.port()),
            Route::Relays(_) => Self::Relays(route, Family::of(source)),
        }
    }
}

impl Upstream {
    async fn open(flow: Flow, route: &Route) -> Result<Upstream, TransportError> {
        Ok(Upstream {
            inlet: Inlet::open(flow.source.ip(), flow.group.port(), route).await?,
            joined: 0,
            heard: Instant::now(),
            packets: 0,
            is_silence_logged: false,
        })
    }

    fn join(&mut self, flow: Flow) -> Result<(), TransportError> {
        if self.joined == 0 {
            self.heard = Instant::now();
        }
        self.joined += 1;
        self.inlet.join(flow)
    }

    fn leave(&mut self, flow: Flow) -> Result<(), TransportError> {
        self.joined -= 1;
        self.inlet.leave(flow)
    }

    /// Looks whether the way still exists if no packets come although flows are joined.
    fn check_silence(&mut self) {
        let silence = self.heard.elapsed();
        if self.joined == 0 || silence < SILENCE {
            return;
        }
        self.inlet.check_way();
        if silence >= SILENCE_LOGGED && !self.is_silence_logged {
            self.is_silence_logged = true;
            let (inlet, hint) = (&self.inlet, self.inlet.silence_hint(self.packets, None));
            tracing::warn!(
                "nothing has come by {inlet} for {} s, although receivers have joined: is the sender running?{hint}",
                SILENCE_LOGGED.as_secs()
            );
        }
    }
}

/// Waits for a change in what gateways have joined.
async fn next_event(server: Option<&RelayServer>) -> RelayEvent {
    match server {
        Some(server) => server.next_event().await,
        None => pending().await,
    }
}

/// Waits for a hop message to the parent.
async fn next_for_parent(server: Option<&RelayServer>) -> Vec<u8> {
    match server {
        Some(server) => server.next_for_parent().await,
        None => pending().await,
    }
}

/// Waits for a change in what hosts have joined.
async fn next_host_event(hosts: Option<&mut LocalHosts>) -> RelayEvent {
    match hosts {
        Some(hosts) => hosts.next_event().await,
        None => pending().await,
    }
}

/// Waits for packets on any way. Returns its place.
async fn wait_any(upstreams: &mut [Upstream], first: usize) -> (usize, Result<(), TransportError>) {
    if upstreams.is_empty() {
        return pending().await;
    }
    let waits = upstreams.iter_mut().map(|upstream| upstream.inlet.wait());
    let mut waits: Vec<_> = waits.map(Box::pin).collect();
    let count = waits.len();
    poll_fn(|context| {
        for place in (first..first + count).map(|place| place % count) {
            if let Poll::Ready(waited) = waits[place].as_mut().poll(context) {
                return Poll::Ready((place, waited));
            }
        }
        Poll::Pending
    })
    .await
}

/// The packets that wait to be sent downstream, in a train for each flow.
struct Outlets {
    relay: Option<RelaySender>,
    hosts: Option<LocalHosts>,
    trains: Vec<Train>,
    /// The flows whose trains have messages.
    waiting: Vec<usize>,
    /// One Multicast Data message.
    message: Vec<u8>,
}

impl Outlets {
    fn new(relay: Option<RelaySender>, hosts: Option<LocalHosts>, flows: usize) -> Outlets {
        Outlets {
            relay,
            hosts,
            trains: (0..flows).map(|_| Train::default()).collect(),
            waiting: Vec::new(),
            message: Vec::new(),
        }
    }

    /// Adds a packet to those that [`flush`](Self::flush) sends. Returns false if it cannot be
    /// forwarded.
    fn push(&mut self, flow: usize, flows: &[Flow], packet: &Packet<'_>) -> bool {
        self.message.clear();
        let encoded = match packet.message {
            Some(message) => {
                self.message.extend_from_slice(message);
                pass_hop(&mut self.message)
            }
            None => {
                let (source, group) = (packet.source, packet.group);
                let flow = Flow { source, group };
                encode_data(&flow, packet.ecn, packet.payload, &mut self.message)
            }
        };
        if encoded.is_err() {
            return false;
        }
        if self.trains[flow].is_empty() {
            self.waiting.push(flow);
        }
        if !self.trains[flow].push(&self.message) {
            self.flush(flows);
            self.waiting.push(flow);
            self.trains[flow].push(&self.message);
        }
        true
    }

    fn flush(&mut self, flows: &[Flow]) {
        if let Some(relay) = &self.relay {
            let of_flow = |&flow: &usize| FlowMessages {
                flow,
                messages: self.trains[flow].bytes(),
                length: self.trains[flow].length(),
            };
            let batch: Vec<_> = self.waiting.iter().map(of_flow).collect();
            relay.send_messages(&batch);
        }
        for flow in self.waiting.drain(..) {
            if let Some(hosts) = &mut self.hosts {
                hosts.send(flow, flows[flow], &self.trains[flow]);
            }
            self.trains[flow].clear();
        }
    }
}

impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder")
            .field("listen", &self.local_addr())
            .finish_non_exhaustive()
    }
}
