//! Builds and runs the network of a plan.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use manyflow_anypoint::switch::MemberId;
use manyflow_anypoint::{Event, Segment};
use manyflow_core::{EndpointId, Packet, Time};
use manyflow_netsim::models::Outage;
use manyflow_netsim::models::anypoint::{Change, MemberChange, SwitchEndpoint};
use manyflow_netsim::{LinkId, Observer};

use crate::anypoint_faults::end::{End, KEYS, SharedLog, Task};
use crate::anypoint_faults::plan::{Fault, Plan};

type Network = manyflow_netsim::Network<Segment, Event>;

/// The time at which a connection that is not over counts as stuck.
const LIMIT: Time = Time::from_nanos(600_000_000_000);
/// The time after the end for which ends may still read frames that have arrived.
const AFTER: Duration = Duration::from_secs(5);
const PEER: EndpointId = EndpointId(0);

/// The outcome of a run.
pub(crate) struct Outcome {
    /// The log of the peer, then the logs of the members.
    pub(crate) logs: Vec<SharedLog>,
    /// The failures that the switch noticed, in order.
    pub(crate) failures: Vec<Failure>,
    ended_at: Time,
}

/// A failure of a member, as noticed by the switch.
pub(crate) struct Failure {
    pub(crate) member: MemberId,
    /// The number of frames that the peer had handed over by then.
    pub(crate) sent: u32,
    /// The number of frames that each end had read by then.
    pub(crate) read: Vec<usize>,
}

struct Watch {
    switch: EndpointId,
    logs: Vec<SharedLog>,
    failures: Vec<Failure>,
}

impl Observer<Segment, Event> for Watch {
    fn on_event(&mut self, _now: Time, endpoint: EndpointId, event: &Event) {
        if endpoint == self.switch
            && let Event::MemberFailed(member) = event
        {
            self.failures.push(Failure {
                member: *member,
                sent: self.logs[0].read().unwrap().sent,
                read: self
                    .logs
                    .iter()
                    .map(|log| log.read().unwrap().read.len())
                    .collect(),
            });
        }
    }

    fn on_tapped(&mut self, _now: Time, _link: LinkId, _packet: &Packet<Segment>) {}
}

/// Runs a plan until all ends are done.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let (mut network, logs) = build(plan);
    let mut watch = Watch {
        switch: switch_id(plan),
        logs: logs.clone(),
        failures: Vec::new(),
    };
    let last_fault = plan.faults.last().map_or(Time::ZERO, |(time, _)| *time);
    while network.now() < LIMIT {
        network
            .run_until(network.now() + AFTER, &mut watch)
            .unwrap();
        let through = logs.iter().all(|log| log.read().unwrap().is_done());
        if through && network.now() > last_fault + AFTER {
            break;
        }
    }
    let ended_at = network.now();
    network.run_until(ended_at + AFTER, &mut watch).unwrap();
    Outcome {
        logs,
        failures: watch.failures,
        ended_at,
    }
}

fn switch_id(plan: &Plan) -> EndpointId {
    EndpointId(1 + plan.spokes.len() as u32)
}

fn member_id(place: usize) -> EndpointId {
    EndpointId(1 + place as u32)
}

/// Builds the peer behind a router, the switch, and the members around the switch.
fn build(plan: &Plan) -> (Network, Vec<SharedLog>) {
    let mut network = Network::new(plan.seed);
    let [peer, router, hub] = ["peer", "router", "switch"].map(|name| network.add_node(name));
    network.add_duplex(peer, router, plan.transit.clone());
    network.add_duplex(router, hub, plan.transit.clone());
    let logs: Vec<_> = (0..=plan.spokes.len()).map(|_| Arc::default()).collect();
    let (to_members, to_peer) = match plan.is_direct {
        true => (member_id(0), PEER),
        false => (switch_id(plan), switch_id(plan)),
    };
    let end = End::initiator(
        &plan.config,
        task(plan, 0),
        to_members,
        Arc::clone(&logs[0]),
    );
    assert_eq!(network.add(peer, end), PEER);
    for (place, spoke) in plan.spokes.iter().enumerate() {
        let node = network.add_node(&format!("member-{place}"));
        network.add_duplex(hub, node, Arc::new(spoke.clone()));
        let log = Arc::clone(&logs[1 + place]);
        let end = End::acceptor(&plan.config, task(plan, 1 + place), to_peer, log);
        assert_eq!(network.add(node, end), member_id(place));
    }
    if plan.is_direct {
        return (network, logs);
    }
    // A switch that restarts forgets everything, and is down for no time.
    let restart = plan.time_of(Fault::Restart).unwrap_or(Time::MAX);
    let switch = Outage::new(switch(plan), switch(plan), restart, restart);
    assert_eq!(network.add(hub, switch), switch_id(plan));
    (network, logs)
}

fn task(plan: &Plan, place: usize) -> Task {
    let crash = place
        .checked_sub(1)
        .and_then(|member| plan.time_of(Fault::Crash(MemberId(member as u16))));
    Task {
        first_key: place as u32 * KEYS,
        frames: if place == 0 {
            plan.inbound
        } else {
            plan.outbound
        },
        service: plan.service[place],
        crash,
        initiators: 0,
    }
}

fn switch(plan: &Plan) -> SwitchEndpoint {
    let mut joining = usize::from(plan.members)..;
    let mut changes = Vec::new();
    for &(at, fault) in &plan.faults {
        let change = match fault {
            Fault::Leave(member) => MemberChange::Leave(member),
            Fault::Join => {
                MemberChange::Join(member_id(joining.next().expect("the numbers have no end")))
            }
            Fault::Crash(_) | Fault::Restart => continue,
        };
        changes.push(Change { at, change });
    }
    let members = (0..plan.members.into()).map(member_id).collect();
    let switch = SwitchEndpoint::new(plan.switch.clone(), plan.policy(), PEER, members, changes);
    switch.unwrap()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, log) in self.logs.iter().enumerate() {
            let log = log.read().unwrap();
            let name = match place {
                0 => "peer".to_owned(),
                _ => format!("member {}", place - 1),
            };
            writeln!(
                f,
                "  {name}: {} frames handed over, {} read; {}",
                log.sent,
                log.read.len(),
                log.state()
            )?;
        }
        let given_up = self.failures.iter().map(|failure| failure.member);
        writeln!(f, "  members given up: {:?}", given_up.collect::<Vec<_>>())?;
        write!(f, "  the run ended at {:.0} s", self.ended_at.as_secs_f64())
    }
}
