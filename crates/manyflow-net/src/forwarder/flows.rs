//! The flows of a forwarder: where their packets come from, and who wants them.

use std::net::{IpAddr, SocketAddr};

use manyflow_amt::{Flow, LeaveReason, RelayEvent};

/// Finds a flow by the addresses of its packets, whatever their source port is.
#[derive(Debug)]
pub(super) struct FlowTable {
    /// Group, source and number of each flow, in order.
    places: Vec<(SocketAddr, IpAddr, usize)>,
}

impl FlowTable {
    pub(super) fn new(flows: &[Flow]) -> FlowTable {
        let flows = flows.iter().enumerate();
        let mut places: Vec<_> = flows
            .map(|(number, flow)| (flow.group, flow.source.ip(), number))
            .collect();
        places.sort_unstable();
        FlowTable { places }
    }

    /// Returns the number of the flow to this group and port from this source.
    pub(super) fn find(&self, group: SocketAddr, source: IpAddr) -> Option<usize> {
        let wanted = (group, source);
        let place = self
            .places
            .binary_search_by_key(&wanted, |&(group, source, _)| (group, source));
        place.ok().map(|place| self.places[place].2)
    }
}

/// The reason why a forwarder joins or leaves a flow upstream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FlowReason {
    /// The first gateway has joined the flow.
    GatewayJoined,
    /// The first host has joined the flow.
    HostJoined,
    /// The last gateway has left the flow.
    GatewayLeft,
    /// The last gateway of the flow has not refreshed its join.
    GatewayExpired,
    /// The last gateway of the flow was silent, and has given way to one of the same address.
    GatewayGaveWay,
    /// The last host has left the flow.
    HostLeft,
    /// The last host of the flow has not refreshed its join.
    HostExpired,
}

impl FlowReason {
    /// All reasons, in their order.
    pub const ALL: [FlowReason; 7] = [
        FlowReason::GatewayJoined,
        FlowReason::HostJoined,
        FlowReason::GatewayLeft,
        FlowReason::GatewayExpired,
        FlowReason::GatewayGaveWay,
        FlowReason::HostLeft,
        FlowReason::HostExpired,
    ];

    /// Returns the place in [`FlowReason::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Returns the reason that an event of gateways is.
    pub(super) fn of_gateway(event: RelayEvent) -> FlowReason {
        match event {
            RelayEvent::Joined(_) => FlowReason::GatewayJoined,
            RelayEvent::Left(_, LeaveReason::Left) => FlowReason::GatewayLeft,
            RelayEvent::Left(_, LeaveReason::Expired) => FlowReason::GatewayExpired,
            RelayEvent::Left(_, LeaveReason::GaveWay) => FlowReason::GatewayGaveWay,
        }
    }

    /// Returns the reason that an event of hosts is.
    pub(super) fn of_host(event: RelayEvent) -> FlowReason {
        match event {
            RelayEvent::Joined(_) => FlowReason::HostJoined,
            RelayEvent::Left(_, LeaveReason::Expired) => FlowReason::HostExpired,
            RelayEvent::Left(_, LeaveReason::Left | LeaveReason::GaveWay) => FlowReason::HostLeft,
        }
    }

    /// Returns why the flow is joined or left, as the end of a sentence.
    pub fn because(self) -> &'static str {
        match self {
            FlowReason::GatewayJoined => "the first gateway has joined it",
            FlowReason::HostJoined => "the first host has joined it",
            FlowReason::GatewayLeft => "the last gateway has left it",
            FlowReason::GatewayExpired => "its last gateway has fallen silent",
            FlowReason::GatewayGaveWay => {
                "its last gateway was silent, and has given way to one of the same address"
            }
            FlowReason::HostLeft => "the last host has left it",
            FlowReason::HostExpired => "its last host has fallen silent",
        }
    }

    /// Returns the reason's name in logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            FlowReason::GatewayJoined => "gateway-joined",
            FlowReason::HostJoined => "host-joined",
            FlowReason::GatewayLeft => "gateway-left",
            FlowReason::GatewayExpired => "gateway-expired",
            FlowReason::GatewayGaveWay => "gateway-gave-way",
            FlowReason::HostLeft => "host-left",
            FlowReason::HostExpired => "host-expired",
        }
    }
}

/// The outlets that want each flow. A flow is joined upstream while at least one wants it.
#[derive(Debug)]
pub(super) struct Demand {
    outlets: Vec<u8>,
    joined: usize,
}

impl Demand {
    pub(super) fn new(flows: usize) -> Demand {
        Demand {
            outlets: vec![0; flows],
            joined: 0,
        }
    }

    /// Returns the number of flows that are joined upstream.
    pub(super) fn joined(&self) -> usize {
        self.joined
    }

    /// Whether an outlet wants the flow.
    pub(super) fn is_joined(&self, flow: usize) -> bool {
        self.outlets[flow] > 0
    }

    /// Adds an outlet that wants the flow. Returns whether it is the first.
    pub(super) fn add(&mut self, flow: usize) -> bool {
        self.outlets[flow] += 1;
        let is_first = self.outlets[flow] == 1;
        self.joined += usize::from(is_first);
        is_first
    }

    /// Removes an outlet that wanted the flow. Returns whether it was the last.
    pub(super) fn remove(&mut self, flow: usize) -> bool {
        debug_assert!(
            self.outlets[flow] > 0,
            "an outlet leaves what it has joined"
        );
        self.outlets[flow] -= 1;
        let was_last = self.outlets[flow] == 0;
        self.joined -= usize::from(was_last);
        was_last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(source: &str, group: &str) -> Flow {
        Flow {
            source: source.parse().unwrap(),
            group: group.parse().unwrap(),
        }
    }

    #[test]
    fn a_flow_is_found_by_source_address_group_and_port() {
        let flows = [
            flow("10.0.0.1:1", "232.1.1.2:5000"),
            flow("10.0.0.1:1", "232.1.1.1:5000"),
            flow("10.0.0.2:1", "232.1.1.1:5000"),
        ];
        let table = FlowTable::new(&flows);
        let find =
            |source: &str, group: &str| table.find(group.parse().unwrap(), source.parse().unwrap());
        for (number, flow) in flows.iter().enumerate() {
            assert_eq!(table.find(flow.group, flow.source.ip()), Some(number));
        }
        assert_eq!(find("10.0.0.3", "232.1.1.1:5000"), None);
        assert_eq!(find("10.0.0.1", "232.1.1.1:5001"), None);
        assert_eq!(find("10.0.0.1", "232.1.1.3:5000"), None);
    }

    #[test]
    fn each_reason_has_its_place_and_a_name_of_its_own() {
        for (place, reason) in FlowReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), place);
            let reasons = FlowReason::ALL.iter();
            let same = reasons.filter(|other| other.name() == reason.name());
            assert_eq!(same.count(), 1);
        }
    }

    #[test]
    fn a_flow_is_joined_while_an_outlet_wants_it() {
        let mut demand = Demand::new(2);
        assert!(demand.add(1));
        assert!(!demand.add(1));
        assert_eq!(demand.joined(), 1);
        assert!(!demand.remove(1));
        assert!(demand.is_joined(1) && !demand.is_joined(0));
        assert!(demand.remove(1));
        assert_eq!(demand.joined(), 0);
    }
}
