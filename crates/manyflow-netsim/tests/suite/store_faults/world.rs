//! Builds and runs the network of a plan.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use manyflow_anypoint::switch::{MemberId, ReplicaHash};
use manyflow_anypoint::{Event, Segment};
use manyflow_core::{EndpointId, Time};
use manyflow_netsim::models::Outage;
use manyflow_netsim::models::anypoint::{Change, MemberChange, SwitchEndpoint};

use crate::store_faults::client::{ClientEnd, Log};
use crate::store_faults::member::{self, Disk, MemberEnd};
use crate::store_faults::plan::{Fault, Plan};
use crate::store_faults::task::End;

type Network = manyflow_netsim::Network<Segment, Event>;

/// The time at which a transfer that has not ended counts as stuck.
const LIMIT: Time = Time::from_nanos(3_600_000_000_000);
const STEP: Duration = Duration::from_secs(5);
const CLIENT: EndpointId = EndpointId(0);

/// The outcome of a run.
pub(crate) struct Outcome {
    pub(crate) log: Log,
    /// The disk of each member.
    pub(crate) disks: Vec<Disk>,
    ended_at: Time,
}

/// Runs a plan until all transfers have ended.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let plan = Arc::new(Plan::of(plan.seed));
    let log = Arc::default();
    let disks: Vec<_> = plan.spokes.iter().map(|_| Disk::default()).collect();
    let mut network = build(&plan, &log, &disks);
    let is_over = |log: &Arc<Mutex<Log>>| log.lock().unwrap().ended.len() == plan.steps.len();
    while network.now() < LIMIT && !is_over(&log) {
        network.run_until(network.now() + STEP, &mut ()).unwrap();
    }
    let log = log.lock().unwrap().clone();
    let ended_at = network.now();
    Outcome {
        log,
        disks,
        ended_at,
    }
}

fn member_id(place: usize) -> EndpointId {
    EndpointId(1 + place as u32)
}

/// Builds the client behind a router, the switch, and the members around the switch.
fn build(plan: &Arc<Plan>, log: &Arc<Mutex<Log>>, disks: &[Disk]) -> Network {
    let mut network = Network::new(plan.seed);
    let [client, router, hub] = ["client", "router", "switch"].map(|name| network.add_node(name));
    network.add_duplex(client, router, plan.transit.clone());
    network.add_duplex(router, hub, plan.transit.clone());
    let switch_id = member_id(plan.spokes.len());
    assert_eq!(
        network.add(client, ClientEnd::new(plan, switch_id, log)),
        CLIENT
    );
    for (place, (spoke, disk)) in plan.spokes.iter().zip(disks).enumerate() {
        let node = network.add_node(&format!("member-{place}"));
        network.add_duplex(hub, node, Arc::new(spoke.clone()));
        let changes = member_changes(plan, place);
        let end = MemberEnd::new(plan.config.clone(), switch_id, place, disk, changes);
        assert_eq!(network.add(node, end), member_id(place));
    }
    let restart = plan
        .faults
        .iter()
        .find(|(_, fault)| *fault == Fault::Restart);
    let restart = restart.map_or(Time::MAX, |(at, _)| *at);
    // A switch that restarts forgets everything, and is down for no time.
    let switch = Outage::new(switch(plan), switch(plan), restart, restart);
    assert_eq!(network.add(hub, switch), switch_id);
    network
}

fn member_changes(plan: &Plan, place: usize) -> VecDeque<(Time, member::Change)> {
    let change = |(at, fault): &(Time, Fault)| match *fault {
        Fault::Crash(other) if other == place => Some((*at, member::Change::Crash)),
        Fault::Return {
            place: other,
            keeps_disk,
        } if other == place => Some((*at, member::Change::Return { keeps_disk })),
        _ => None,
    };
    plan.faults.iter().filter_map(change).collect()
}

/// Creates the switch. A member that comes back leaves under its old number and joins under another
/// one.
fn switch(plan: &Plan) -> SwitchEndpoint {
    let mut changes = Vec::new();
    for &(at, fault) in &plan.faults {
        let mut push = |change| changes.push(Change { at, change });
        match fault {
            Fault::Leave(place) => push(MemberChange::Leave(MemberId(place as u16))),
            Fault::Join(place) => push(MemberChange::Join(member_id(place))),
            Fault::Return { place, .. } => {
                push(MemberChange::Leave(MemberId(place as u16)));
                push(MemberChange::Join(member_id(place)));
            }
            Fault::Crash(_) | Fault::Restart => {}
        }
    }
    let members = (0..plan.members).map(member_id).collect();
    let policy = Box::<ReplicaHash>::default();
    SwitchEndpoint::new(plan.switch.clone(), policy, CLIENT, members, changes).unwrap()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (step, end) in &self.log.ended {
            match end {
                End::Read(version, file) => {
                    writeln!(
                        f,
                        "  {step:?}: read version {version}, {} bytes",
                        file.len()
                    )?;
                }
                End::NotStored(error) => writeln!(f, "  {step:?}: {error}")?,
                End::NotRead(error) => writeln!(f, "  {step:?}: {error}")?,
                End::Stored(version) => writeln!(f, "  {step:?}: stored version {version}")?,
                End::NotFound(asked) => writeln!(f, "  {step:?}: no manifest on {asked:?}")?,
            }
        }
        write!(
            f,
            "  {} chunks and manifests stored over {} connections; the run ended at {:.0} s",
            self.log.acknowledged.len(),
            self.log.connections,
            self.ended_at.as_secs_f64()
        )
    }
}
