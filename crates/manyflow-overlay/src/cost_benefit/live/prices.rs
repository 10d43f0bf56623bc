//! The prices that a daemon knows: those of its own links, and those that other daemons report.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use super::link::OwnLink;
use super::{UPDATE, UPDATE_IDLE};
use crate::controller::Site;
use crate::cost_benefit::benefit::Benefits;
use crate::cost_benefit::price::uses_link;
use crate::layers::Layers;
use crate::message::{CostUpdate, DaemonId, GroupSet, LinkId, LinkState};
use crate::sequence::OriginSeq;
use manyflow_core::time::Time;

/// The time for which a report counts, in updates of an idle daemon. The last report of a link can
/// get lost while the topology changes; its price must not remain forever.
const LIFETIME_UPDATES: u32 = 4;

/// Units of a reported price in an octave of its client's rate.
const UNITS_PER_OCTAVE: f64 = 1000.0;
/// The report of a price that allows one message per second.
const ONE_PER_SECOND: f64 = 40_000.0;

/// Returns the report of a price: 0 stands for none. Reports range from 2^-25 to 2^39 messages per
/// second.
pub(super) fn encode(log_cost: Option<f64>) -> u16 {
    let Some(log_cost) = log_cost else {
        return 0;
    };
    let octaves = log_cost / core::f64::consts::LN_2;
    (ONE_PER_SECOND + UNITS_PER_OCTAVE * octaves).clamp(1.0, 65_535.0) as u16
}

/// Returns the price that was reported as `report`, which is not 0.
pub(super) fn decode(report: u16) -> f64 {
    let octaves = (f64::from(report) - ONE_PER_SECOND) / UNITS_PER_OCTAVE;
    libm::exp2(octaves / 2.0)
}

/// A price that another daemon has reported.
#[derive(Copy, Clone, Debug)]
struct Reported {
    price: f64,
    at: Time,
}

/// The prices that a daemon knows, and its updates for other daemons.
#[derive(Debug, Default)]
pub(super) struct Prices {
    own: Vec<OwnLink>,
    /// Links without a price are left out, so that idle links take no memory.
    remote: BTreeMap<LinkId, Reported>,
    /// The times of the last and the next update.
    last: Time,
    next: Option<Time>,
    /// When this daemon last sent an update. A daemon that has never had a price to report stays
    /// silent, because all links count as idle until an update says otherwise.
    reported_at: Option<Time>,
    pending: VecDeque<CostUpdate>,
}

impl Prices {
    /// Returns the price of one of this daemon's links in dollars; `None` if it has none.
    pub(super) fn own_price(&self, link: LinkId) -> Option<f64> {
        let own = self.own.iter().find(|own| own.link == link)?;
        own.log_cost().map(price_of)
    }

    /// Returns how many bytes of a layered message one of this daemon's links sells.
    pub(super) fn sell(&mut self, link: LinkId, layers: &Layers, sequence: OriginSeq) -> u32 {
        let whole = layers.whole_bytes();
        let own = self.own.iter_mut().find(|own| own.link == link);
        own.map_or(whole, |own| own.sell(layers, sequence))
    }

    /// Returns the cost of a message to these groups in dollars: the sum of the prices of all links
    /// on its paths.
    pub(super) fn cost(&self, now: Time, groups: &GroupSet, site: &Site) -> f64 {
        let own = self.own.iter();
        let own = own.filter_map(|own| Some((own.link, own.log_cost()?)));
        let own = own.map(|(link, log_cost)| (link, price_of(log_cost)));
        let lifetime = LIFETIME_UPDATES * UPDATE_IDLE;
        let remote = self.remote.iter();
        let remote = remote.filter(|(_, reported)| now - reported.at <= lifetime);
        let remote = remote.map(|(link, reported)| (*link, reported.price));
        own.chain(remote)
            .filter(|(link, _)| uses_link(*link, groups, site))
            .map(|(_, price)| price)
            .sum()
    }

    /// Notes that a client of this daemon has bought a message to these groups.
    pub(super) fn note_bought(&mut self, groups: &GroupSet, site: &Site) {
        for own in &mut self.own {
            if let Some(log_cost) = own.log_cost()
                && uses_link(own.link, groups, site)
            {
                own.note_bought(log_cost);
            }
        }
    }

    /// Returns whether the queue of one of this daemon's links is so long that more messages would
    /// only wait there.
    pub(super) fn have_queue(&self) -> bool {
        self.own.iter().any(OwnLink::is_slow)
    }

    /// Handles a change of the number of messages that wait for a link.
    pub(super) fn on_queue(&mut self, now: Time, link: LinkId, messages: usize) {
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        match self.own.iter_mut().find(|own| own.link == link) {
            Some(own) => own.set(now, messages),
            None if messages > 0 => self.own.push(OwnLink::new(now, link, messages)),
            None => return,
        }
        let soon = (self.last + UPDATE).max(now);
        self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
    }

    /// Handles a measurement of the delay below the queue of a link. A link that nothing has waited
    /// for lately has none.
    pub(super) fn on_delay(&mut self, now: Time, link: LinkId, delay: Duration) {
        if let Some(own) = self.own.iter_mut().find(|own| own.link == link) {
            own.set_below(now, delay);
        }
    }

    /// Applies another daemon's update. Ignores links that do not exist.
    pub(super) fn handle_update(
        &mut self,
        now: Time,
        from: DaemonId,
        update: &CostUpdate,
        site: &Site,
    ) {
        if from == site.here {
            return;
        }
        for state in update.links.iter().flatten() {
            let Some(link) = site.topology.link(from, state.to) else {
                continue;
            };
            if state.queue == 0 {
                self.remote.remove(&link);
            } else {
                let price = decode(state.queue);
                self.remote.insert(link, Reported { price, at: now });
            }
        }
    }

    /// Forgets links that no longer exist, except for the prices of this daemon's own ones.
    pub(super) fn handle_topology(&mut self, now: Time, site: &Site) {
        let exists = |link: LinkId| site.topology.link(link.from, link.to).is_some();
        self.own
            .retain_mut(|own| own.handle_topology(now, exists(own.link)));
        self.remote.retain(|link, _| exists(*link));
    }

    /// Adapts the prices of this daemon's links if it is time, and queues updates about those that
    /// have a price or just lost it.
    pub(super) fn handle_timeout(&mut self, now: Time, benefits: &Benefits) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        let mut states = Vec::new();
        for own in self.own.iter_mut().filter(|own| own.is_up()) {
            let before = own.reported().is_some();
            own.update(now, benefits);
            if before || own.reported().is_some() {
                let (to, queue) = (own.link.to, encode(own.reported()));
                states.push(LinkState { to, queue });
            }
        }
        self.own.retain(|own| !own.is_idle(now));
        let is_heartbeat = self.reported_at.is_some_and(|at| now >= at + UPDATE_IDLE);
        self.push_updates(&states, is_heartbeat);
        if !states.is_empty() || is_heartbeat {
            self.reported_at = Some(now);
        }
        self.last = now;
        self.next = match !self.own.iter().any(OwnLink::is_up) {
            true => self.reported_at.map(|at| at + UPDATE_IDLE),
            false => Some(now + UPDATE),
        };
    }

    /// Queues updates. One without links reports that no link has a price.
    fn push_updates(&mut self, states: &[LinkState], is_heartbeat: bool) {
        let update = |states: &[LinkState]| {
            let mut links = [None; CostUpdate::LINKS];
            for (place, state) in links.iter_mut().zip(states) {
                *place = Some(*state);
            }
            CostUpdate { version: 0, links }
        };
        self.pending
            .extend(states.chunks(CostUpdate::LINKS).map(update));
        if states.is_empty() && is_heartbeat {
            self.pending.push_back(update(&[]));
        }
    }

    /// Returns when [`handle_timeout`](Prices::handle_timeout) is wanted next, if at all.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.next
    }

    pub(super) fn pop_update(&mut self) -> Option<CostUpdate> {
        self.pending.pop_front()
    }

    /// Returns the number of links with state.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.own.len() + self.remote.len()
    }
}

/// P = e^(ln(1/x) / 2)
fn price_of(log_cost: f64) -> f64 {
    libm::exp(log_cost / 2.0)
}
