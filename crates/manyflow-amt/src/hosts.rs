//! The hosts of a local network that join flows by IGMPv3 (RFC 3376), as a multicast router on
//! their network sees them.
//!
//! The router asks for reports at intervals, and remembers which host has joined which flow: hosts
//! with IGMPv3 do not suppress their reports. So a flow ends at once when its last host leaves it,
//! without another question (explicit tracking, RFC 3376 appendix A.2).
//!
//! The router with the lowest address asks; the others only listen (RFC 3376, section 6.6.2).

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use manyflow_core::time::Time;

use super::ip::decode_ip;
use super::membership::{DEFAULT_ROBUSTNESS, GeneralQuery, Report};
use super::relay::{Relay, RelayConfig, RelayCounters, RelayEvent};
use super::{Family, Flow};

/// Time between two queries.
const QUERY_INTERVAL: Duration = Duration::from_secs(30);
/// Time after which a router that has heard no query of another one asks itself (Other Querier
/// Present Interval, RFC 3376 section 8.5).
const OTHER_QUERIER_PRESENT: Duration = Duration::from_secs(255);
/// Maximum number of hosts on one network.
const HOSTS_MAX: usize = 4_096;

/// The hosts of one network. It has no clock and no socket.
pub struct Hosts {
    /// The joins of hosts. They have no tunnels, so it sends nothing.
    members: Relay,
    address: Ipv4Addr,
    query_at: Time,
    query: Option<Vec<u8>>,
}

impl Hosts {
    /// Makes a router for `flows` that has `address` on the network of its hosts. It asks for
    /// reports immediately.
    pub fn new(now: Time, address: Ipv4Addr, flows: Vec<Flow>) -> Self {
        let config = RelayConfig {
            gateways_max: HOSTS_MAX,
            gateways_per_address_max: 1,
            query_interval: QUERY_INTERVAL,
            robustness: DEFAULT_ROBUSTNESS,
            ..RelayConfig::default()
        };
        let mut hosts = Self {
            // No host sees a MAC, so the secret does not matter.
            members: Relay::new(now, config, flows, [0; 32]),
            address,
            query_at: now,
            query: None,
        };
        hosts.handle_timeout(now);
        hosts
    }

    /// Handles an IPv4 datagram with an IGMP message from the network. Ignores everything except
    /// reports and the queries of other routers.
    pub fn handle_igmp(&mut self, now: Time, datagram: &[u8]) {
        let Some(IpAddr::V4(from)) = decode_ip(datagram).ok().map(|ip| ip.source_addr()) else {
            return;
        };
        if GeneralQuery::decode(datagram).is_ok() {
            self.handle_query(now, from);
        } else if Report::decode(datagram).is_ok() {
            let local = self.address.into();
            self.members
                .handle_report(now, (from, 0).into(), local, datagram);
        }
    }

    fn handle_query(&mut self, now: Time, from: Ipv4Addr) {
        if from < self.address && !from.is_unspecified() {
            self.query_at = now + OTHER_QUERIER_PRESENT;
        }
    }

    /// Returns the next IP datagram to send to the hosts.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.query.take()
    }

    /// Returns the next change in what the hosts have joined.
    pub fn poll_event(&mut self) -> Option<RelayEvent> {
        self.members.poll_event()
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Time {
        self.members.poll_timeout().min(self.query_at)
    }

    /// Asks for reports, and ends joins without one. Does nothing if called early.
    pub fn handle_timeout(&mut self, now: Time) {
        self.members.handle_timeout(now);
        if now >= self.query_at {
            let mut query = Vec::new();
            GeneralQuery {
                family: Family::V4,
                robustness: DEFAULT_ROBUSTNESS,
                query_interval: QUERY_INTERVAL,
            }
            .encode(&mut query);
            self.query = Some(query);
            self.query_at = now + QUERY_INTERVAL;
        }
        debug_assert!(self.query_at > now, "the next query is always planned");
    }

    /// Whether any host has joined the flow.
    ///
    /// # Panics
    /// If `flow` is not an index into the flows given to [`new`](Self::new).
    pub fn is_joined(&self, flow: usize) -> bool {
        self.members.is_joined(flow)
    }

    /// Returns the number of hosts that have joined a flow.
    pub fn hosts(&self) -> usize {
        self.members.gateways()
    }

    /// Returns the number of joins of all hosts.
    pub fn joins(&self) -> usize {
        self.members.joins()
    }

    /// Returns the counts of refused joins and hosts; other counts remain 0.
    pub fn counters(&self) -> RelayCounters {
        self.members.counters()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{GroupRecord, RecordType};
    use crate::relay::LeaveReason;

    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 5);
    const SOURCE: [u8; 4] = [192, 0, 2, 1];

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn flows() -> Vec<Flow> {
        let flow = |n| Flow {
            source: (SOURCE, 4000).into(),
            group: ([232, 1, 1, n], 5000).into(),
        };
        (0..2).map(flow).collect()
    }

    fn hosts() -> Hosts {
        let mut hosts = Hosts::new(at(0), ROUTER, flows());
        assert!(hosts.poll_transmit().is_some(), "it asks when it starts");
        hosts
    }

    /// The datagram, with this source and a valid header checksum.
    fn from(host: u8, mut datagram: Vec<u8>) -> Vec<u8> {
        datagram[12..16].copy_from_slice(&[10, 0, 0, host]);
        let (header, _) = etherparse::Ipv4Header::from_slice(&datagram).unwrap();
        datagram[10..12].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
        datagram
    }

    fn report(hosts: &mut Hosts, now: Time, host: u8, kind: RecordType, group: u8) {
        let mut datagram = Vec::new();
        Report {
            family: Family::V4,
            records: vec![GroupRecord {
                kind,
                group: IpAddr::from([232, 1, 1, group]),
                sources: vec![SOURCE.into()],
            }],
        }
        .encode(&mut datagram);
        hosts.handle_igmp(now, &from(host, datagram));
    }

    #[test]
    fn a_flow_is_joined_with_its_first_host_and_left_with_its_last() {
        let mut hosts = hosts();
        report(&mut hosts, at(1), 7, RecordType::Allow, 1);
        report(&mut hosts, at(1), 8, RecordType::Allow, 1);
        assert_eq!(hosts.poll_event(), Some(RelayEvent::Joined(1)));
        assert_eq!((hosts.hosts(), hosts.joins()), (2, 2));
        report(&mut hosts, at(2), 7, RecordType::Block, 1);
        assert_eq!(hosts.poll_event(), None);
        assert!(hosts.is_joined(1) && !hosts.is_joined(0));
        report(&mut hosts, at(2), 8, RecordType::Block, 1);
        assert_eq!(
            hosts.poll_event(),
            Some(RelayEvent::Left(1, LeaveReason::Left))
        );
    }

    #[test]
    fn hosts_are_asked_at_intervals_and_forgotten_without_an_answer() {
        let mut hosts = hosts();
        report(&mut hosts, at(1), 7, RecordType::Allow, 1);
        assert_eq!(hosts.poll_timeout(), at(30));
        hosts.handle_timeout(at(30));
        let query = hosts.poll_transmit().unwrap();
        assert_eq!(GeneralQuery::decode(&query).unwrap().family, Family::V4);
        report(&mut hosts, at(31), 7, RecordType::IsInclude, 1);
        hosts.handle_timeout(at(100));
        assert_eq!(hosts.hosts(), 1);
        assert_eq!(hosts.poll_event(), Some(RelayEvent::Joined(1)));
        hosts.handle_timeout(at(101));
        assert_eq!(hosts.hosts(), 0);
        let expired = RelayEvent::Left(1, LeaveReason::Expired);
        assert_eq!(hosts.poll_event(), Some(expired));
    }

    #[test]
    fn the_router_with_the_lower_address_asks() {
        let mut hosts = hosts();
        hosts.handle_timeout(at(30));
        let query = hosts.poll_transmit().unwrap();
        hosts.handle_igmp(at(31), &from(9, query.clone()));
        hosts.handle_timeout(at(60));
        assert!(hosts.poll_transmit().is_some(), "it has the lower address");
        hosts.handle_igmp(at(61), &from(2, query));
        hosts.handle_timeout(at(61 + 254));
        assert_eq!(hosts.poll_transmit(), None);
        hosts.handle_timeout(at(61 + 255));
        assert!(hosts.poll_transmit().is_some(), "the other one is gone");
    }

    #[test]
    fn other_groups_and_other_messages_are_ignored() {
        let mut hosts = hosts();
        report(&mut hosts, at(1), 7, RecordType::Allow, 99);
        hosts.handle_igmp(at(1), &[]);
        hosts.handle_igmp(at(1), &[0x45; 40]);
        assert_eq!((hosts.hosts(), hosts.counters().joins_refused), (0, 1));
    }
}
