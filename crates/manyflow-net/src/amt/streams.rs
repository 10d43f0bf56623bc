//! The layered sessions of a relay: its hops to gateways, and the reports from them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use manyflow_amt::{DownstreamLink, FlowMessages, Relay};
use manyflow_core::{ConfigError, Time};
use manyflow_layered::hop::{HopRate, HopState};
use manyflow_layered::relay::{
    Datagrams, HopStatus, RelayConfig, SessionInfo, StreamRelay, inner_payload,
};
use manyflow_layered::repair::Arrival;
use manyflow_layered::{Data, Feedback, Message};

use super::random_seed;

/// The layered sessions of a relay.
#[derive(Clone, Debug)]
pub struct StreamsConfig {
    /// The hops and the way up.
    pub relay: RelayConfig,
    /// The sessions.
    pub sessions: Vec<SessionInfo>,
    /// The session and the rank of each flow, in the order of the relay's flows; `None` for flows
    /// of file sessions.
    pub groups: Vec<Option<(usize, u8)>>,
}

/// Sums over the hops of a relay to its gateways. Counts end with their gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopTotals {
    /// Gateways with a hop.
    pub hops: usize,
    /// Hops by the reason for their rates, in the order of [`HopState::ALL`].
    pub states: [usize; HopState::ALL.len()],
    /// The sum of the hops' rates, in bits per second.
    pub rate_bits_per_s: u64,
    /// Bytes that wait in queues.
    pub queued_bytes: u64,
    /// Messages that were marked.
    pub marked: u64,
    /// Messages that queues dropped.
    pub dropped: u64,
    /// Messages that were sent and have not arrived.
    pub lost: u64,
    /// Messages that were queued to be sent again.
    pub repairs: u64,
}

/// The layered sessions of a running relay.
pub(super) struct Streams {
    relay: StreamRelay,
    sessions: usize,
    groups: Vec<Option<(usize, u8)>>,
    links: Vec<DownstreamLink>,
    /// Gateways with a hop.
    children: BTreeSet<SocketAddr>,
    /// Joins at the last look.
    joins: usize,
    /// The datagrams that are about to be sent.
    out: Vec<u8>,
}

impl Streams {
    /// Creates the hops of a relay. A gateway behind one of `links` has a hop of that rate.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub(super) fn new(
        config: StreamsConfig,
        links: &[DownstreamLink],
        now: Time,
    ) -> Result<Streams, ConfigError> {
        Ok(Streams {
            relay: StreamRelay::new(config.relay, &config.sessions, random_seed(), now)?,
            sessions: config.sessions.len(),
            groups: config.groups,
            links: links.to_vec(),
            children: BTreeSet::new(),
            joins: 0,
            out: Vec::new(),
        })
    }

    /// Whether the flow is a group of a layered session.
    pub(super) fn has(&self, flow: usize) -> bool {
        self.groups.get(flow).is_some_and(Option::is_some)
    }

    /// Queues messages for all gateways that have joined their flows. Requests in them begin rounds
    /// of reports.
    pub(super) fn push(&mut self, now: Time, relay: &mut Relay, messages: &[(usize, Arc<[u8]>)]) {
        let mut first = 0;
        for (place, (flow, message)) in messages.iter().enumerate() {
            let Some((session, data)) = self.data(*flow, message) else {
                continue;
            };
            if self.relay.has_new_request(session, &data) {
                self.distribute(now, relay, &messages[first..place]);
                first = place;
            }
            self.relay.observe_data(now, session, &data);
        }
        self.distribute(now, relay, &messages[first..]);
    }

    fn distribute(&mut self, now: Time, relay: &mut Relay, messages: &[(usize, Arc<[u8]>)]) {
        let batch: Vec<FlowMessages<'_>> = messages
            .iter()
            .map(|(flow, message)| FlowMessages {
                flow: *flow,
                messages: message,
                length: message.len(),
            })
            .collect();
        relay.distribute(now, &batch, |gateway, local, place| {
            let (flow, message) = &messages[place];
            if let Some((session, rank)) = self.groups[*flow] {
                // The hop counts what its queue drops.
                let _ = self
                    .relay
                    .push(now, gateway, local, session, Some(rank), message);
            }
        });
    }

    /// Returns the session and the header of a message with data.
    fn data(&self, flow: usize, message: &[u8]) -> Option<(usize, Data)> {
        let (session, _) = self.groups[flow]?;
        match Message::decode(inner_payload(message)?) {
            Ok(Message::Data(data)) => Some((session, data)),
            _ => None,
        }
    }

    /// Follows the joins of a gateway, which has sent an AMT message to `local`.
    pub(super) fn follow(&mut self, now: Time, relay: &Relay, gateway: SocketAddr, local: IpAddr) {
        let mut tops = vec![None; self.sessions];
        for flow in relay.joined_flows(gateway) {
            if let Some((session, rank)) = self.groups.get(flow).copied().flatten() {
                tops[session] = tops[session].max(Some(rank));
            }
        }
        if tops.iter().all(Option::is_none) {
            if self.children.remove(&gateway) {
                self.relay.remove_child(gateway);
            }
            return;
        }
        if self.children.insert(gateway)
            && let Some(link) = self.link_of(gateway.ip())
        {
            // A relay with too many children refuses the join below, too.
            let _ = self
                .relay
                .add_child(now, gateway, local, HopRate::Given(link.rate));
        }
        for (session, top) in tops.into_iter().enumerate() {
            if let Err(error) = self.relay.set_top(now, gateway, local, session, top) {
                tracing::debug!(%gateway, %error, "no hop for a gateway");
            }
        }
    }

    /// Returns the link of the longest prefix that contains the gateway.
    fn link_of(&self, gateway: IpAddr) -> Option<&DownstreamLink> {
        let links = self.links.iter();
        links
            .filter(|link| link.gateways.contains(gateway))
            .max_by_key(|link| link.gateways.length)
    }

    /// Follows the joins of all gateways if some have expired.
    pub(super) fn follow_all(&mut self, now: Time, relay: &Relay) {
        let joins = relay.joins();
        if std::mem::replace(&mut self.joins, joins) <= joins {
            return;
        }
        let unspecified = IpAddr::from([0, 0, 0, 0]);
        for gateway in self.children.clone() {
            self.follow(now, relay, gateway, unspecified);
        }
    }

    /// Handles a hop message of a gateway, or a report of a receiver of IP multicast.
    pub(super) fn handle_datagram(
        &mut self,
        now: Time,
        from: SocketAddr,
        local: IpAddr,
        datagram: &[u8],
    ) {
        if let Err(error) = self.relay.handle_datagram(now, from, local, datagram) {
            tracing::debug!(%from, %error, "a hop message was refused");
        }
    }

    /// Handles a message of data of a flow from the parent. Returns whether it is new, so that it
    /// has to be forwarded.
    pub(super) fn handle_parent_data(&mut self, flow: usize, message: &[u8]) -> bool {
        let Some((session, _)) = self.groups.get(flow).copied().flatten() else {
            return true;
        };
        self.relay.handle_parent_data(session, message) != Arrival::Duplicate
    }

    /// Handles a hop message of the parent.
    pub(super) fn handle_parent_datagram(&mut self, now: Time, datagram: &[u8]) {
        if let Err(error) = self.relay.handle_parent_datagram(now, datagram) {
            tracing::debug!(%error, "a hop message of the parent was refused");
        }
    }

    /// Runs the timers, and passes the datagrams that are due to `emit`.
    pub(super) fn run(&mut self, now: Time, mut emit: impl FnMut(Datagrams, &[u8])) {
        self.relay.handle_timeout(now);
        while let Some(datagrams) = self.relay.poll_transmit(now, &mut self.out) {
            emit(datagrams, &self.out);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.relay.poll_timeout()
    }

    pub(super) fn poll_feedback(&mut self) -> Option<Feedback> {
        self.relay.poll_feedback()
    }

    pub(super) fn totals(&self) -> HopTotals {
        let mut totals = HopTotals::default();
        for (_, hop) in self.hops() {
            totals.hops += 1;
            totals.states[hop.state.index()] += 1;
            totals.rate_bits_per_s += hop.rate.bits_per_s();
            totals.queued_bytes += hop.queued.1;
            totals.marked += hop.counters.marked;
            totals.dropped += hop.counters.dropped + hop.counters.displaced;
            totals.lost += hop.counters.lost;
            totals.repairs += hop.counters.repairs;
        }
        totals
    }

    /// Returns the state of the hop to each gateway.
    pub(super) fn hops(&self) -> Vec<(SocketAddr, HopStatus)> {
        let children = self.relay.children();
        let status = |child| Some((child, self.relay.hop(child)?));
        children.filter_map(status).collect()
    }
}
