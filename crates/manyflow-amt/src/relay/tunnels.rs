//! The joins of all gateways, indexed by gateway for reports and by flow for data.

use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use manyflow_core::time::Time;
use slab::Slab;

use super::LeaveReason;
use super::bucket::Bucket;
use super::train::FlowMessages;
use crate::wire::GatewayAddress;

/// The state of one gateway. It exists while the gateway has joined a flow.
pub(super) struct Tunnel {
    /// The address that data is sent to.
    pub(super) address: SocketAddr,
    /// This host's address, to which the gateway sent its last join.
    pub(super) local: IpAddr,
    /// The limit on the rate of the gateway's data.
    pub(super) bucket: Bucket,
    /// The link that the gateway's data takes.
    pub(super) link: Option<usize>,
    /// The time of the gateway's last join or leave.
    heard: Time,
    /// The joined flows, each with the time at which the join expires.
    flows: BTreeMap<usize, Time>,
}

/// The tunnels of all gateways.
///
/// Invariant: `listeners[flow]` contains a tunnel's key once if the tunnel's `flows` contains the
/// flow, and otherwise not at all.
pub(super) struct Tunnels {
    tunnels: Slab<Tunnel>,
    keys: BTreeMap<GatewayAddress, usize>,
    listeners: Vec<Vec<usize>>,
    /// Gateways and places in a batch, in memory that the next batch uses again.
    visits: Vec<(usize, usize)>,
    /// Whether each flow had gateways when [`poll_change`](Self::poll_change) last returned it.
    reported: Vec<bool>,
    /// The flows that may have got their first gateway or lost their last one since, with the
    /// reason of the last leave.
    changed: BTreeMap<usize, LeaveReason>,
}

impl Tunnels {
    pub(super) fn new(flows: usize) -> Self {
        Self {
            tunnels: Slab::new(),
            keys: BTreeMap::new(),
            listeners: vec![Vec::new(); flows],
            visits: Vec::new(),
            reported: vec![false; flows],
            changed: BTreeMap::new(),
        }
    }

    /// Returns the next flow that has got its first gateway (`true`) or lost its last one
    /// (`false`) since it was last returned, with the reason of the last leave.
    pub(super) fn poll_change(&mut self) -> Option<(usize, bool, LeaveReason)> {
        while let Some((flow, reason)) = self.changed.pop_first() {
            let joined = !self.listeners[flow].is_empty();
            if joined != std::mem::replace(&mut self.reported[flow], joined) {
                return Some((flow, joined, reason));
            }
        }
        None
    }

    pub(super) fn len(&self) -> usize {
        self.tunnels.len()
    }

    /// Returns the number of joins of all gateways.
    pub(super) fn joins(&self) -> usize {
        self.listeners.iter().map(Vec::len).sum()
    }

    pub(super) fn contains(&self, gateway: GatewayAddress) -> bool {
        self.keys.contains_key(&gateway)
    }

    /// Returns the number of gateways with this IPv4 address, or in the /64 of this IPv6 address,
    /// on any port: a host can take any address of its /64.
    pub(super) fn near(&self, ip: Ipv6Addr) -> usize {
        self.neighbours(ip).count()
    }

    /// Returns the gateway near this address that was silent for the longest time, and the time at
    /// which it was heard last.
    pub(super) fn most_silent_near(&self, ip: Ipv6Addr) -> Option<(GatewayAddress, Time)> {
        let heard =
            |(gateway, key): (&GatewayAddress, &usize)| (*gateway, self.tunnels[*key].heard);
        self.neighbours(ip)
            .map(heard)
            .min_by_key(|(_, heard)| *heard)
    }

    fn neighbours(&self, ip: Ipv6Addr) -> Range<'_, GatewayAddress, usize> {
        let host_bits = match ip.to_ipv4() {
            Some(_) => 0,
            None => u128::from(u64::MAX),
        };
        let first = GatewayAddress {
            ip: Ipv6Addr::from_bits(ip.to_bits() & !host_bits),
            port: 0,
        };
        let last = GatewayAddress {
            ip: Ipv6Addr::from_bits(ip.to_bits() | host_bits),
            port: u16::MAX,
        };
        self.keys.range(first..=last)
    }

    /// Returns the number of flows that a gateway has joined.
    pub(super) fn joined(&self, gateway: GatewayAddress) -> usize {
        self.keys
            .get(&gateway)
            .map_or(0, |&key| self.tunnels[key].flows.len())
    }

    /// Iterates over the flows that a gateway has joined.
    pub(super) fn joined_flows(&self, gateway: GatewayAddress) -> impl Iterator<Item = usize> {
        let tunnel = self.keys.get(&gateway).map(|&key| &self.tunnels[key]);
        tunnel
            .into_iter()
            .flat_map(|tunnel| tunnel.flows.keys().copied())
    }

    pub(super) fn has_joined(&self, gateway: GatewayAddress, flow: usize) -> bool {
        self.keys
            .get(&gateway)
            .is_some_and(|&key| self.tunnels[key].flows.contains_key(&flow))
    }

    /// Adds or refreshes a join. Adds the gateway if it is new.
    pub(super) fn join(
        &mut self,
        now: Time,
        address: SocketAddr,
        local: IpAddr,
        flow: usize,
        lapses: Time,
        link: Option<usize>,
    ) {
        let key = *self.keys.entry(address.into()).or_insert_with(|| {
            self.tunnels.insert(Tunnel {
                address,
                local,
                bucket: Bucket::new(now),
                link,
                heard: now,
                flows: BTreeMap::new(),
            })
        });
        self.tunnels[key].local = local;
        self.tunnels[key].heard = now;
        if self.tunnels[key].flows.insert(flow, lapses).is_none() {
            self.listeners[flow].push(key);
            self.changed.entry(flow).or_insert(LeaveReason::Left);
        }
        self.assert_listed(key, flow);
    }

    /// Ends a join. Drops the gateway's state with its last join.
    pub(super) fn leave(&mut self, now: Time, gateway: GatewayAddress, flow: usize) {
        let Some(&key) = self.keys.get(&gateway) else {
            return;
        };
        self.tunnels[key].heard = now;
        if self.tunnels[key].flows.remove(&flow).is_some() {
            self.listeners[flow].retain(|&listener| listener != key);
            self.changed.insert(flow, LeaveReason::Left);
        }
        self.assert_listed(key, flow);
        if self.tunnels[key].flows.is_empty() {
            self.remove(gateway, LeaveReason::Left);
        }
    }

    /// Drops a gateway and all its joins.
    pub(super) fn remove(&mut self, gateway: GatewayAddress, reason: LeaveReason) {
        let Some(key) = self.keys.remove(&gateway) else {
            return;
        };
        for &flow in self.tunnels.remove(key).flows.keys() {
            self.listeners[flow].retain(|&listener| listener != key);
            self.changed.insert(flow, reason);
        }
    }

    /// Ends the expired joins, in one pass over all joins. Returns when the next one expires.
    pub(super) fn expire(&mut self, now: Time) -> Option<Time> {
        let Self {
            tunnels,
            keys,
            listeners,
            changed,
            ..
        } = self;
        let mut next = None;
        for (flow, listeners) in listeners.iter_mut().enumerate() {
            listeners.retain(|&key| {
                let joined = &mut tunnels[key].flows;
                let lapses = joined[&flow];
                if lapses <= now {
                    joined.remove(&flow);
                    changed.insert(flow, LeaveReason::Expired);
                    return false;
                }
                next = Some(next.map_or(lapses, |next: Time| next.min(lapses)));
                true
            });
        }
        tunnels.retain(|_, tunnel| !tunnel.flows.is_empty());
        keys.retain(|_, key| tunnels.contains(*key));
        debug_assert_eq!(keys.len(), tunnels.len(), "each gateway has one tunnel");
        next
    }

    /// Whether no gateway has joined a flow.
    pub(super) fn is_idle(&self, flow: usize) -> bool {
        self.listeners[flow].is_empty()
    }

    /// Calls `visit` for each gateway and the place of each item of `batch` whose flow the gateway
    /// has joined: gateway by gateway, with the items in order.
    pub(super) fn for_each_listener(
        &mut self,
        batch: &[FlowMessages<'_>],
        mut visit: impl FnMut(&mut Tunnel, usize),
    ) {
        let Self {
            tunnels,
            listeners,
            visits,
            ..
        } = self;
        visits.clear();
        for (place, messages) in batch.iter().enumerate() {
            visits.extend(listeners[messages.flow].iter().map(|&key| (key, place)));
        }
        visits.sort_unstable();
        for &(key, place) in &*visits {
            visit(&mut tunnels[key], place);
        }
    }

    /// Asserts the invariant of this type for one tunnel and flow.
    fn assert_listed(&self, key: usize, flow: usize) {
        debug_assert_eq!(
            self.listeners[flow].iter().filter(|&&it| it == key).count(),
            usize::from(self.tunnels[key].flows.contains_key(&flow)),
            "a flow lists exactly the gateways that have joined it"
        );
    }
}
