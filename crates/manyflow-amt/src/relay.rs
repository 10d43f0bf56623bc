//! The relay accepts joins from gateways and forwards flows to them (RFC 7450, section 5.3).
//!
//! A relay is made for a list of flows, and refuses to join anything else. Its caller has the
//! packets: it is the sender itself, or it joins a flow farther upstream when
//! [`poll_event`](Relay::poll_event) reports the first gateway of the flow.
//!
//! A Request leaves no state behind. The Membership Query that answers it contains a MAC over the
//! gateway's address and nonce. Only a Membership Update with that MAC makes the relay remember a
//! gateway and send data to it. A host that forges its source address never sees the MAC: each of
//! its Requests makes the relay send one query, and nothing else.
//!
//! Joins expire by flow, not by gateway. If a leave is lost with all its repetitions, the join ends
//! because later reports do not name the flow.

mod answers;
mod bucket;
mod event;
mod links;
mod secret;
#[cfg(test)]
mod tests;
mod train;
mod tunnels;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use manyflow_core::Ecn;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;

use self::answers::Answers;
use self::bucket::Bucket;
pub use self::event::{LeaveReason, RelayEvent};
use self::links::Links;
pub use self::links::{DownstreamLink, Prefix};
use self::secret::Secret;
pub use self::train::FlowMessages;
use self::train::Train;
use self::tunnels::{Tunnel, Tunnels};
use super::ip::{IpError, encode_data};
use super::membership::{GeneralQuery, GroupRecord, RecordType, Report};
use super::wire::{GatewayAddress, Message, ResponseMac};
use super::{Family, Flow, Transmit};

/// Time that a gateway has to answer a query: part of the lifetime of a join (RFC 7450, section
/// 5.3.3.7).
const QUERY_RESPONSE_INTERVAL: Duration = Duration::from_secs(10);

/// Minimum time between two searches for expired joins.
const EXPIRY_GRANULARITY: Duration = Duration::from_secs(1);

/// A relay's bounds and intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelayConfig {
    /// Maximum number of gateways at a time. Default 1,024.
    pub gateways_max: usize,
    /// Maximum number of gateways behind one IPv4 address, or in one IPv6 /64, at a time. Default
    /// 16: enough for a NAT, and no single host can take many places. Above it, a gateway of the
    /// same address that was silent for half of `query_interval` gives way: it is probably dead.
    pub gateways_per_address_max: usize,
    /// Maximum number of flows that one gateway has joined at a time. Default 512.
    pub joins_per_gateway_max: usize,
    /// Maximum rate of AMT messages to one gateway, without their outer IP and UDP headers.
    /// Messages above it are dropped. Default 100 Mbit/s.
    pub gateway_rate_max: Rate,
    /// Maximum rate of AMT messages to all gateways together, without their outer IP and UDP
    /// headers. Messages above it are dropped. Default 1 Gbit/s.
    pub rate_max: Rate,
    /// Time between a gateway's refreshes, 1 s to 31,744 s. Default 30 s, which keeps most NAT
    /// mappings alive. A gateway notices a dead relay only at the next refresh.
    pub query_interval: Duration,
    /// Number of times that a gateway sends each change, and number of refreshes after which a join
    /// expires; 1 to 7. Default 2.
    pub robustness: u8,
    /// Age at which the secret of the MACs is replaced. Default 2 hours (RFC 7450, section 5.3.6).
    pub secret_lifetime: Duration,
}

impl Default for RelayConfig {
    fn default() -> Self {
        Self {
            gateways_max: 1024,
            gateways_per_address_max: 16,
            joins_per_gateway_max: 512,
            gateway_rate_max: Rate::from_bits_per_s(100_000_000),
            rate_max: Rate::from_bits_per_s(1_000_000_000),
            query_interval: Duration::from_secs(30),
            robustness: 2,
            secret_lifetime: Duration::from_secs(2 * 3600),
        }
    }
}

impl RelayConfig {
    /// Returns the lifetime of a join without refresh: the Group Membership Interval (RFC 3376,
    /// section 8.4).
    fn membership_interval(&self) -> Duration {
        self.query_interval * self.robustness.clamp(1, 7).into() + QUERY_RESPONSE_INTERVAL
    }
}

/// Counts of a relay's work since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RelayCounters {
    /// Datagrams that are not messages to a relay.
    pub ignored: u64,
    /// Membership Updates and Teardowns without the right MAC.
    pub unauthenticated: u64,
    /// Membership Updates that were refused because the relay has its maximum of gateways.
    pub gateways_refused: u64,
    /// Group records that were refused because the session has no such flow, or the gateway has its
    /// maximum of joins.
    pub joins_refused: u64,
    /// Multicast Data messages passed on for sending, or queued on a link.
    pub forwarded: u64,
    /// Multicast Data messages dropped because of a gateway's maximum rate.
    pub over_rate: u64,
    /// Multicast Data messages dropped because of the relay's maximum rate.
    pub over_relay_rate: u64,
    /// Multicast Data messages dropped because the queue of their link was full.
    pub over_link: u64,
    /// Requests and Discoveries that were not answered, because too many came from their prefix.
    pub unanswered: u64,
}

/// An AMT relay for a list of flows. It has no clock and no socket.
pub struct Relay {
    config: RelayConfig,
    flows: Vec<Flow>,
    flows_of_group: BTreeMap<IpAddr, Vec<usize>>,
    secret: Secret,
    tunnels: Tunnels,
    answers: Answers,
    links: Links,
    /// The ECN field of the datagrams that the relay encodes.
    ecn: Ecn,
    /// The limit on the rate to all gateways.
    bucket: Bucket,
    next_expiry: Option<Time>,
    reply: Option<Transmit>,
    data: Vec<u8>,
    /// Messages to one gateway that are about to be sent.
    train: Train,
    counters: RelayCounters,
}

impl Relay {
    /// Makes a relay for `flows`; [`forward`](Self::forward) names a flow by its index in this
    /// list. `seed` determines the secrets: take it from the operating system.
    pub fn new(now: Time, config: RelayConfig, flows: Vec<Flow>, seed: [u8; 32]) -> Self {
        let mut flows_of_group = BTreeMap::<_, Vec<_>>::new();
        for (index, flow) in flows.iter().enumerate() {
            flows_of_group
                .entry(flow.group.ip())
                .or_default()
                .push(index);
        }
        let mut secret = Secret::new(now, seed, config.secret_lifetime, 2 * config.query_interval);
        Self {
            config,
            flows_of_group,
            tunnels: Tunnels::new(flows.len()),
            answers: Answers::new(now, secret.random_key()),
            links: Links::default(),
            ecn: Ecn::NotCapable,
            secret,
            bucket: Bucket::new(now),
            flows,
            next_expiry: None,
            reply: None,
            data: Vec::new(),
            train: Train::default(),
            counters: RelayCounters::default(),
        }
    }

    /// Sends the data of gateways behind `links` over these links.
    /// [`poll_links`](Self::poll_links) returns the messages that have crossed them.
    pub fn with_links(mut self, links: &[DownstreamLink]) -> Self {
        self.links = Links::new(links);
        self
    }

    /// Encodes payloads as datagrams with this ECN field; by default they do not support ECN.
    pub fn with_ecn(mut self, ecn: Ecn) -> Self {
        self.ecn = ecn;
        self
    }

    /// Handles a datagram that arrived from `from` at this host's address `local`; an unspecified
    /// address is not advertised. The reply, which [`poll_transmit`](Self::poll_transmit) returns,
    /// has to be sent from `local`.
    pub fn handle_datagram(&mut self, now: Time, from: SocketAddr, local: IpAddr, datagram: &[u8]) {
        match Message::decode(datagram) {
            Ok(Message::RelayDiscovery { nonce }) if !local.is_unspecified() => {
                let relay = local.to_canonical();
                self.answer(now, from, &Message::RelayAdvertisement { nonce, relay });
            }
            Ok(Message::Request { nonce, family }) => {
                self.answer_request(now, from, nonce, family);
            }
            Ok(Message::MembershipUpdate { mac, nonce, report }) => {
                if self.authenticates(mac, from.into(), nonce) {
                    self.handle_report(now, from, local, report);
                }
            }
            Ok(Message::Teardown {
                mac,
                nonce,
                gateway,
            }) => {
                if self.authenticates(mac, gateway, nonce) {
                    self.tunnels.remove(gateway, LeaveReason::Left);
                }
            }
            _ => self.counters.ignored += 1,
        }
    }

    /// Encodes each payload once, and passes the messages to `emit`, with the length of each, the
    /// address of a gateway that has joined the flow, and this host's address from which they have
    /// to be sent. All payloads have the same length, and the last may be shorter; so are the
    /// messages. Those above a maximum rate are dropped from the end.
    ///
    /// # Errors
    /// If a payload or addresses do not form a UDP datagram.
    ///
    /// # Panics
    /// If `flow` is not an index into the flows given to [`new`](Self::new).
    pub fn forward<'a>(
        &mut self,
        now: Time,
        flow: usize,
        payloads: impl IntoIterator<Item = &'a [u8]>,
        emit: impl FnMut(SocketAddr, IpAddr, &[u8], usize),
    ) -> Result<(), IpError> {
        self.forward_all(now, [(flow, payloads)], emit)
    }

    /// Forwards the payloads of several flows, as [`forward`](Self::forward) does those of one.
    /// Those of different flows to one gateway are passed together, as
    /// [`forward_messages`](Self::forward_messages) passes messages.
    ///
    /// # Errors
    /// If a payload or addresses do not form a UDP datagram. The payloads of the other flows are
    /// forwarded.
    ///
    /// # Panics
    /// If a flow is not an index into the flows given to [`new`](Self::new).
    pub fn forward_all<'a, P: IntoIterator<Item = &'a [u8]>>(
        &mut self,
        now: Time,
        flows: impl IntoIterator<Item = (usize, P)>,
        emit: impl FnMut(SocketAddr, IpAddr, &[u8], usize),
    ) -> Result<(), IpError> {
        let (mut data, mut parts) = (std::mem::take(&mut self.data), Vec::new());
        data.clear();
        let mut result = Ok(());
        for (flow, payloads) in flows {
            if self.tunnels.is_idle(flow) {
                continue;
            }
            let start = data.len();
            match encode_messages(&self.flows[flow], self.ecn, payloads, &mut data) {
                Ok(length) => parts.push((flow, start..data.len(), length)),
                Err(error) => {
                    data.truncate(start);
                    result = Err(error);
                }
            }
        }
        let messages = |(flow, range, length): (usize, Range<usize>, usize)| FlowMessages {
            flow,
            messages: &data[range],
            length,
        };
        let batch: Vec<_> = parts.into_iter().map(messages).collect();
        self.forward_messages(now, &batch, emit);
        self.data = data;
        result
    }

    /// Passes the Multicast Data messages of several flows to `emit`, as
    /// [`forward`](Self::forward) does. Messages of different flows to one gateway are passed
    /// together if they have the same length, the last may be shorter, they fit into one IP
    /// datagram, and have one [ECN field](super::ip::data_ecn), which the outer header gets, too.
    ///
    /// # Panics
    /// If a flow is not an index into the flows given to [`new`](Self::new).
    pub fn forward_messages(
        &mut self,
        now: Time,
        batch: &[FlowMessages<'_>],
        mut emit: impl FnMut(SocketAddr, IpAddr, &[u8], usize),
    ) {
        let Self {
            config,
            tunnels,
            links,
            bucket,
            train,
            counters,
            ..
        } = self;
        tunnels.for_each_listener(batch, |tunnel, place| {
            let Tunnel { address, local, .. } = *tunnel;
            for message in batch[place].chunks() {
                if !tunnel
                    .bucket
                    .take(now, config.gateway_rate_max, message.len())
                {
                    counters.over_rate += 1;
                } else if !bucket.take(now, config.rate_max, message.len()) {
                    counters.over_relay_rate += 1;
                } else if let Some(link) = tunnel.link {
                    let queued = links.push(now, link, address, local, message);
                    counters.forwarded += u64::from(queued);
                    counters.over_link += u64::from(!queued);
                } else {
                    counters.forwarded += 1;
                    train.push((address, local), message, &mut emit);
                }
            }
        });
        train.flush(&mut emit);
    }

    /// Passes the place of each message of a batch to `emit`, once for each gateway that has joined
    /// its flow: gateway by gateway, in the order of the batch. Each item of the batch is one
    /// Multicast Data message. The caller queues the messages, as a relay of streams does; links
    /// are not used. Messages above a maximum rate are dropped.
    ///
    /// # Panics
    /// If a flow is not an index into the flows given to [`new`](Self::new).
    pub fn distribute(
        &mut self,
        now: Time,
        batch: &[FlowMessages<'_>],
        mut emit: impl FnMut(SocketAddr, IpAddr, usize),
    ) {
        let Self {
            config,
            tunnels,
            bucket,
            counters,
            ..
        } = self;
        tunnels.for_each_listener(batch, |tunnel, place| {
            let Tunnel { address, local, .. } = *tunnel;
            let bytes = batch[place].messages.len();
            if !tunnel.bucket.take(now, config.gateway_rate_max, bytes) {
                counters.over_rate += 1;
            } else if !bucket.take(now, config.rate_max, bytes) {
                counters.over_relay_rate += 1;
            } else {
                counters.forwarded += 1;
                emit(address, local, place);
            }
        });
    }

    /// Iterates over the flows that a gateway has joined, in increasing order.
    pub fn joined_flows(&self, gateway: SocketAddr) -> impl Iterator<Item = usize> {
        self.tunnels.joined_flows(gateway.into())
    }

    /// Passes the messages that have crossed their links by now to `emit`, as
    /// [`forward`](Self::forward) does. [`poll_timeout`](Self::poll_timeout) includes the time of
    /// the next one.
    pub fn poll_links(&mut self, now: Time, emit: impl FnMut(SocketAddr, IpAddr, &[u8], usize)) {
        self.links.drain(now, emit);
    }

    /// Whether any gateway has joined the flow.
    ///
    /// # Panics
    /// If `flow` is not an index into the flows given to [`new`](Self::new).
    pub fn is_joined(&self, flow: usize) -> bool {
        !self.tunnels.is_idle(flow)
    }

    /// Returns the reply to the last datagram, if there is one.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.reply.take()
    }

    /// Returns the next change in what the gateways have joined. A caller that has all flows does
    /// not need to call it: memory for changes is bounded by the number of flows.
    pub fn poll_event(&mut self) -> Option<RelayEvent> {
        self.tunnels
            .poll_change()
            .map(|(flow, is_joined, reason)| match is_joined {
                true => RelayEvent::Joined(flow),
                false => RelayEvent::Left(flow, reason),
            })
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout), and
    /// [`poll_links`](Self::poll_links) if there are links.
    pub fn poll_timeout(&self) -> Time {
        let others = [self.next_expiry, self.links.next_time()];
        let others = others.into_iter().flatten();
        others.fold(self.secret.deadline(), Time::min)
    }

    /// Ends joins that were not refreshed, and renews the secret. Does nothing if called early.
    pub fn handle_timeout(&mut self, now: Time) {
        self.secret.handle_timeout(now);
        if self.next_expiry.is_some_and(|expiry| expiry <= now) {
            self.next_expiry = self
                .tunnels
                .expire(now)
                .map(|next| next.max(now + EXPIRY_GRANULARITY));
        }
    }

    /// Returns the number of gateways that have joined a flow.
    pub fn gateways(&self) -> usize {
        self.tunnels.len()
    }

    /// Returns the number of joins of all gateways.
    pub fn joins(&self) -> usize {
        self.tunnels.joins()
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> RelayCounters {
        self.counters
    }

    /// Answers a message that proves nothing about its source address.
    fn answer(&mut self, now: Time, destination: SocketAddr, message: &Message) {
        let mut contents = Vec::new();
        message.encode(&mut contents);
        let gateway = GatewayAddress::from(destination);
        if !self.tunnels.contains(gateway) && !self.answers.allow(now, gateway.ip, contents.len()) {
            self.counters.unanswered += 1;
            return;
        }
        self.reply = Some(Transmit {
            destination,
            contents,
        });
    }

    fn answer_request(&mut self, now: Time, from: SocketAddr, nonce: u32, family: Family) {
        let RelayConfig {
            robustness,
            query_interval,
            ..
        } = self.config;
        let mut query = Vec::new();
        GeneralQuery {
            family,
            robustness,
            query_interval,
        }
        .encode(&mut query);
        let gateway = GatewayAddress::from(from);
        let limit = !self.tunnels.contains(gateway) && !self.has_room_for(now, gateway);
        let mac = self.secret.mac(gateway, nonce);
        self.answer(
            now,
            from,
            &Message::MembershipQuery {
                limit,
                mac,
                nonce,
                query: &query,
                gateway: Some(gateway),
            },
        );
    }

    fn authenticates(&mut self, mac: ResponseMac, gateway: GatewayAddress, nonce: u32) -> bool {
        let authentic = self.secret.verifies(mac, gateway, nonce);
        self.counters.unauthenticated += u64::from(!authentic);
        authentic
    }

    pub(super) fn handle_report(
        &mut self,
        now: Time,
        from: SocketAddr,
        local: IpAddr,
        report: &[u8],
    ) {
        match Report::decode(report) {
            Ok(report) => report
                .records
                .iter()
                .for_each(|record| self.handle_record(now, from, local, record)),
            Err(_) => self.counters.ignored += 1,
        }
    }

    /// Applies a record to the flows of its group, as in RFC 3376, section 6.4. A leave needs no
    /// further query, since the gateway is the only host on its "link" (RFC 7450, section 5.3.1).
    fn handle_record(&mut self, now: Time, from: SocketAddr, local: IpAddr, record: &GroupRecord) {
        let mut touched = false;
        let flows = self.flows_of_group.get(&record.group).cloned();
        for flow in flows.unwrap_or_default() {
            let listed = record.sources.contains(&self.flows[flow].source.ip());
            let wanted = wanted(record.kind, listed);
            touched |= wanted.is_some();
            match wanted {
                Some(true) => self.join(now, from, local, flow),
                Some(false) => self.tunnels.leave(now, from.into(), flow),
                None => {}
            }
        }
        let excludes = matches!(record.kind, RecordType::IsExclude | RecordType::ToExclude);
        let asks = excludes || record.kind != RecordType::Block && !record.sources.is_empty();
        self.counters.joins_refused += u64::from(asks && !touched);
    }

    fn join(&mut self, now: Time, from: SocketAddr, local: IpAddr, flow: usize) {
        let gateway = GatewayAddress::from(from);
        if !self.tunnels.contains(gateway) && !self.make_room_for(now, gateway) {
            self.counters.gateways_refused += 1;
        } else if !self.tunnels.has_joined(gateway, flow)
            && self.tunnels.joined(gateway) >= self.config.joins_per_gateway_max
        {
            self.counters.joins_refused += 1;
        } else {
            let lapses = now + self.config.membership_interval();
            let link = self.links.of(from.ip());
            self.tunnels.join(now, from, local, flow, lapses, link);
            self.next_expiry.get_or_insert(lapses);
        }
        debug_assert!(self.tunnels.len() <= self.config.gateways_max);
    }

    fn has_room_for(&self, now: Time, gateway: GatewayAddress) -> bool {
        self.has_free_place(gateway) || self.dead_neighbour(now, gateway).is_some()
    }

    /// Makes room for a new gateway. Without a free place, a gateway of the same address that is
    /// probably dead gives way. Returns whether there is room.
    fn make_room_for(&mut self, now: Time, gateway: GatewayAddress) -> bool {
        if !self.has_free_place(gateway)
            && let Some(dead) = self.dead_neighbour(now, gateway)
        {
            self.tunnels.remove(dead, LeaveReason::GaveWay);
        }
        self.has_free_place(gateway)
    }

    fn has_free_place(&self, gateway: GatewayAddress) -> bool {
        self.tunnels.len() < self.config.gateways_max
            && self.tunnels.near(gateway.ip) < self.config.gateways_per_address_max
    }

    fn dead_neighbour(&self, now: Time, gateway: GatewayAddress) -> Option<GatewayAddress> {
        let (neighbour, heard) = self.tunnels.most_silent_near(gateway.ip)?;
        (heard + self.config.query_interval / 2 <= now).then_some(neighbour)
    }
}

/// Encodes each payload as a Multicast Data message in `data`. Returns the length of the first.
fn encode_messages<'a>(
    flow: &Flow,
    ecn: Ecn,
    payloads: impl IntoIterator<Item = &'a [u8]>,
    data: &mut Vec<u8>,
) -> Result<usize, IpError> {
    let (start, mut length) = (data.len(), 0);
    for payload in payloads {
        encode_data(flow, ecn, payload, data)?;
        if length == 0 {
            length = data.len() - start;
        }
    }
    Ok(length)
}

/// Whether a record joins (`true`) or leaves (`false`) a flow of its group, given whether it lists
/// the flow's source; `None` if it does neither.
fn wanted(kind: RecordType, listed: bool) -> Option<bool> {
    use RecordType::*;
    match (kind, listed) {
        (IsInclude | ToInclude | Allow, true) | (IsExclude | ToExclude, false) => Some(true),
        (Block | IsExclude | ToExclude, true) | (ToInclude, false) => Some(false),
        (IsInclude | Allow | Block, false) => None,
    }
}
