//! The gateway joins flows at a relay and takes their packets out of the tunnel (RFC 7450, section
//! 5.2).
//!
//! ```text
//!               Relay Advertisement           Membership Query
//!  Discovering ---------------------> Requesting --------------> Granted
//!      ^  (only where asked for)        ^   |  ^                    |
//!      |                                |   |  +--------------------+  each query interval
//!      +--------------------------------+---+  no answer to several attempts: the relay is lost
//! ```
//!
//! From the first Membership Query until the relay is lost, joins and leaves are sent immediately,
//! also during a refresh: the last query's MAC remains valid. Earlier joins are reported in the
//! answer to the first query.

mod config;
mod subscriptions;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use manyflow_core::time::Time;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use self::config::SUBSCRIPTIONS_MAX;
pub use self::config::{GatewayConfig, GatewayEvent, JoinError, LossReason, RelayAddress};
use self::subscriptions::Subscriptions;
use super::ip::decode_udp;
use super::membership::{DEFAULT_ROBUSTNESS, GeneralQuery, GroupRecord, Report};
use super::wire::{GatewayAddress, Message, ResponseMac};
use super::{Family, Flow, Subscription, Transmit};

/// Longest time between two reports of the same change (RFC 3376, section 8.11), and between two
/// Teardowns (RFC 7450, section 5.2.3.7.2).
const UNSOLICITED_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Group records in one report. With one source each, they fit into the 1,280 bytes that every IPv6
/// path carries.
const RECORDS_PER_REPORT: usize = 32;

/// The contents of the last Membership Query, which authorise reports.
#[derive(Clone, Copy)]
struct Grant {
    mac: ResponseMac,
    nonce: u32,
    gateway: Option<GatewayAddress>,
    robustness: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The gateway waits for a Relay Advertisement.
    Discovering { nonce: u32 },
    /// The gateway waits for a Membership Query.
    Requesting { nonce: u32 },
    /// The relay has answered. The deadline is the next refresh.
    Granted,
    /// The gateway is ending the tunnel: it has `left` more messages to send.
    Closing { left: u8 },
    /// The tunnel has ended, and nothing is left to do.
    Closed,
}

/// An AMT gateway. It has no clock and no socket.
pub struct Gateway {
    config: GatewayConfig,
    rng: StdRng,
    subscriptions: Subscriptions,
    relay: SocketAddr,
    phase: Phase,
    deadline: Time,
    repeat_at: Option<Time>,
    /// Unanswered messages since the relay's last answer.
    attempts: u32,
    /// Whether the loss of the relay has been reported.
    lost: bool,
    grant: Option<Grant>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<GatewayEvent>,
}

impl Gateway {
    /// Makes a gateway that looks for its relay immediately. `seed` determines the nonces: take it
    /// from the operating system.
    pub fn new(now: Time, config: GatewayConfig, seed: [u8; 32]) -> Self {
        let (RelayAddress::Unicast(relay) | RelayAddress::Discovery(relay)) = config.relay;
        let mut gateway = Self {
            config,
            rng: StdRng::from_seed(seed),
            subscriptions: Subscriptions::default(),
            relay,
            phase: Phase::Closed,
            deadline: now,
            repeat_at: None,
            attempts: 0,
            lost: false,
            grant: None,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        };
        gateway.start(now);
        gateway
    }

    /// Subscribes to a group. The join is sent as soon as the relay has answered, and repeated
    /// against loss. Does nothing after [`close`](Self::close).
    ///
    /// # Errors
    /// If the group is not a multicast address, an address has the wrong family, or there are too
    /// many subscriptions.
    pub fn join(&mut self, now: Time, subscription: Subscription) -> Result<(), JoinError> {
        let Subscription { group, source } = subscription;
        let family = self.config.family;
        if !group.is_multicast() {
            return Err(JoinError::NotMulticast(group));
        }
        if [Some(group), source]
            .into_iter()
            .flatten()
            .any(|ip| Family::of(ip) != family)
        {
            return Err(JoinError::Family(family));
        }
        if self.subscriptions.len() >= SUBSCRIPTIONS_MAX {
            return Err(JoinError::TooMany);
        }
        if !self.is_closing() && self.subscriptions.join(subscription, self.robustness()) {
            self.report_changes(now, &[subscription]);
        }
        Ok(())
    }

    /// Ends a subscription. Packets that are already on their way are still returned for a moment.
    pub fn leave(&mut self, now: Time, subscription: Subscription) {
        if self.subscriptions.leave(subscription, self.robustness()) {
            self.report_changes(now, &[subscription]);
        }
        if self.grant.is_none() {
            self.subscriptions.forget_leaves();
        }
    }

    /// Handles a datagram that arrived from `from`. If it carries a packet of a joined flow,
    /// returns the flow and the packet's payload.
    pub fn handle_datagram<'a>(
        &mut self,
        now: Time,
        from: SocketAddr,
        datagram: &'a [u8],
    ) -> Option<(Flow, &'a [u8])> {
        if from != self.relay {
            return None;
        }
        match Message::decode(datagram).ok()? {
            Message::MulticastData { datagram } => {
                return decode_udp(datagram)
                    .ok()
                    .filter(|(flow, _)| self.subscriptions.cover(*flow));
            }
            Message::RelayAdvertisement { nonce, relay }
                if self.phase == Phase::Discovering { nonce } =>
            {
                self.handle_advertisement(now, relay);
            }
            Message::MembershipQuery {
                limit,
                mac,
                nonce,
                query,
                gateway,
            } if self.phase == Phase::Requesting { nonce } => {
                let query = GeneralQuery::decode(query).ok()?;
                let robustness = query.robustness;
                let grant = Grant {
                    mac,
                    nonce,
                    gateway,
                    robustness,
                };
                self.handle_query(now, limit, query, grant);
            }
            _ => {}
        }
        self.assert_invariants();
        None
    }

    /// Handles an ICMP error for a message to the relay. Sends a Request immediately to find out
    /// whether the relay is still alive; if an answer is already due, the usual attempts go on (RFC
    /// 7450, section 5.2.3.9).
    pub fn handle_unreachable(&mut self, now: Time) {
        if self.phase == Phase::Granted {
            self.request(now);
        }
    }

    /// Sends a Request immediately, because this host's address or its route to the relay has
    /// changed. The answer moves the tunnel to the new address (RFC 7450, section 5.2.3.7).
    pub fn handle_network_change(&mut self, now: Time) {
        self.attempts = 0;
        match self.phase {
            Phase::Discovering { .. } => self.start(now),
            Phase::Requesting { .. } | Phase::Granted => self.request(now),
            Phase::Closing { .. } | Phase::Closed => {}
        }
    }

    /// Ends the tunnel, and tells the relay as often as its robustness variable asks. The gateway
    /// is done when [`is_closed`](Self::is_closed) returns true.
    pub fn close(&mut self, now: Time) {
        if self.is_closing() {
            return;
        }
        self.subscriptions.leave_all(self.robustness());
        self.repeat_at = None;
        self.phase = match self.grant {
            Some(grant) => Phase::Closing {
                left: grant.robustness,
            },
            None => Phase::Closed,
        };
        self.deadline = now;
        self.handle_timeout(now);
    }

    /// Whether the tunnel has ended after [`close`](Self::close).
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Returns the relay's address, or the discovery address as long as no relay is known.
    pub fn relay(&self) -> SocketAddr {
        self.relay
    }

    /// Returns the next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<GatewayEvent> {
        self.events.pop_front()
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout); `None` once closed.
    pub fn poll_timeout(&self) -> Option<Time> {
        (!self.is_closed()).then(|| {
            self.repeat_at
                .map_or(self.deadline, |repeat| repeat.min(self.deadline))
        })
    }

    /// Does what is due: attempts, refreshes, repetitions. Does nothing if called early.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.repeat_at.is_some_and(|at| at <= now) {
            self.repeat_at = None;
            let changed = self.subscriptions.changed();
            self.report_changes(now, &changed);
        }
        if now >= self.deadline {
            match self.phase {
                Phase::Discovering { .. } | Phase::Requesting { .. } => self.retry(now),
                Phase::Granted => self.request(now),
                Phase::Closing { left } => self.say_goodbye(now, left),
                Phase::Closed => {}
            }
        }
        self.assert_invariants();
    }

    /// Starts over with relay discovery, or with a Request if the relay's address is known.
    fn start(&mut self, now: Time) {
        match self.config.relay {
            RelayAddress::Discovery(address) => {
                self.relay = address;
                self.phase = Phase::Discovering {
                    nonce: self.rng.random(),
                };
                self.attempt(now);
            }
            RelayAddress::Unicast(_) => self.request(now),
        }
    }

    /// Starts a membership update cycle (RFC 7450, section 5.2.3.5).
    fn request(&mut self, now: Time) {
        self.phase = Phase::Requesting {
            nonce: self.rng.random(),
        };
        self.attempt(now);
    }

    /// Sends this phase's message, and waits for a random time that grows with the number of
    /// attempts (RFC 7450, section 5.2.3.5.3).
    fn attempt(&mut self, now: Time) {
        match self.phase {
            Phase::Discovering { nonce } => self.transmit(&Message::RelayDiscovery { nonce }),
            Phase::Requesting { nonce } => self.transmit(&Message::Request {
                nonce,
                family: self.config.family,
            }),
            _ => {}
        }
        self.deadline = now + self.backoff();
    }

    fn backoff(&mut self) -> Duration {
        let GatewayConfig {
            initial_timeout,
            maximum_timeout,
            ..
        } = self.config;
        let factor = 2u32.saturating_pow(self.attempts);
        let longest = initial_timeout
            .saturating_mul(factor)
            .min(maximum_timeout)
            .max(initial_timeout);
        self.rng.random_range(initial_timeout..=longest)
    }

    fn retry(&mut self, now: Time) {
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts < self.config.attempts_max {
            return self.attempt(now);
        }
        self.lose_relay(LossReason::Silent);
        self.start(now);
    }

    fn lose_relay(&mut self, reason: LossReason) {
        self.grant = None;
        self.repeat_at = None;
        self.subscriptions.forget_leaves();
        if !std::mem::replace(&mut self.lost, true) {
            self.events.push_back(GatewayEvent::RelayLost(reason));
        }
    }

    fn handle_advertisement(&mut self, now: Time, relay: IpAddr) {
        let sound = !relay.is_unspecified() && !relay.is_multicast();
        if !sound || Family::of(relay) != Family::of(self.relay.ip()) {
            return;
        }
        self.relay = SocketAddr::new(relay, self.relay.port());
        self.attempts = 0;
        self.request(now);
    }

    fn handle_query(&mut self, now: Time, limit: bool, query: GeneralQuery, grant: Grant) {
        if query.family != self.config.family {
            return;
        }
        if limit && self.grant.is_none() {
            // A full relay would ignore the joins. Ask again later, as rarely as if it were silent.
            self.attempts = self
                .attempts
                .max(self.config.attempts_max)
                .saturating_add(1);
            self.lose_relay(LossReason::Full);
            self.deadline = now + self.backoff();
            return;
        }
        self.attempts = 0;
        self.lost = false;
        self.phase = Phase::Granted;
        self.deadline = now + query.query_interval;
        match self.grant.replace(grant) {
            None => self.events.push_back(GatewayEvent::Ready),
            Some(old) if old.gateway != grant.gateway => self.tear_down(old),
            Some(_) => {}
        }
        self.report_state(now);
    }

    /// Ends the tunnel to the address of an old grant, so that the relay stops sending to it (RFC
    /// 7450, section 5.2.3.7).
    fn tear_down(&mut self, grant: Grant) {
        if let Some(gateway) = grant.gateway {
            self.transmit(&Message::Teardown {
                mac: grant.mac,
                nonce: grant.nonce,
                gateway,
            });
        }
    }

    fn say_goodbye(&mut self, now: Time, left: u8) {
        let Some(grant) = self.grant.filter(|_| left > 0) else {
            self.phase = Phase::Closed;
            return;
        };
        if grant.gateway.is_some() {
            self.tear_down(grant);
        } else {
            let changed = self.subscriptions.changed();
            self.send_changes(&changed);
        }
        self.phase = if left > 1 {
            Phase::Closing { left: left - 1 }
        } else {
            Phase::Closed
        };
        self.deadline = now + self.repeat_interval();
    }

    /// Reports all subscriptions; sends nothing if there are none (RFC 7450, section 5.2.3.5.1).
    /// Unlike in RFC 3376, the report is repeated as a change is: no other host's report keeps the
    /// flows alive, and these sessions expect loss.
    fn report_state(&mut self, now: Time) {
        let records = self.subscriptions.state_records();
        self.send_records(&records);
        self.subscriptions.reported_state(self.robustness() - 1);
        self.schedule_repeat(now);
    }

    fn report_changes(&mut self, now: Time, subscriptions: &[Subscription]) {
        if self.grant.is_some() {
            self.send_changes(subscriptions);
            self.schedule_repeat(now);
        }
    }

    fn send_changes(&mut self, subscriptions: &[Subscription]) {
        let records: Vec<_> = subscriptions
            .iter()
            .filter_map(|&each| self.subscriptions.change_record(each))
            .collect();
        self.send_records(&records);
        self.subscriptions.reported(subscriptions);
    }

    fn schedule_repeat(&mut self, now: Time) {
        if self.repeat_at.is_none() && !self.subscriptions.changed().is_empty() {
            self.repeat_at = Some(now + self.repeat_interval());
        }
    }

    fn repeat_interval(&mut self) -> Duration {
        self.rng
            .random_range(Duration::ZERO..UNSOLICITED_REPORT_INTERVAL)
    }

    fn send_records(&mut self, records: &[GroupRecord]) {
        let Some(Grant { mac, nonce, .. }) = self.grant else {
            return;
        };
        for records in records.chunks(RECORDS_PER_REPORT) {
            let mut report = Vec::new();
            Report {
                family: self.config.family,
                records: records.to_vec(),
            }
            .encode(&mut report);
            self.transmit(&Message::MembershipUpdate {
                mac,
                nonce,
                report: &report,
            });
        }
    }

    fn transmit(&mut self, message: &Message) {
        let mut contents = Vec::new();
        message.encode(&mut contents);
        self.transmits.push_back(Transmit {
            destination: self.relay,
            contents,
        });
    }

    fn robustness(&self) -> u8 {
        self.grant
            .map_or(DEFAULT_ROBUSTNESS, |grant| grant.robustness)
    }

    fn is_closing(&self) -> bool {
        matches!(self.phase, Phase::Closing { .. } | Phase::Closed)
    }

    fn assert_invariants(&self) {
        debug_assert!(
            self.phase != Phase::Granted || self.grant.is_some(),
            "the relay's answer is kept for as long as it is valid"
        );
        debug_assert!(
            self.repeat_at.is_none() || self.grant.is_some(),
            "a report is repeated only to a relay that has answered"
        );
        debug_assert!(
            self.subscriptions.len() <= SUBSCRIPTIONS_MAX,
            "each group's sources fit one record"
        );
    }
}
