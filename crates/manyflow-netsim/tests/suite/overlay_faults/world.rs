//! Builds and runs the network of a plan.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use manyflow_core::{EndpointId, Time};
use manyflow_netsim::Change;
use manyflow_overlay::controller::{Controller, Open};
use manyflow_overlay::cost_benefit::{CostBenefit, CostBenefitConfig};
use manyflow_overlay::tfrc::{Tfrc, TfrcConfig};
use manyflow_overlay::{Addresses, DaemonEndpoint, DaemonId, Topology};

type Network = manyflow_netsim::Network<manyflow_overlay::Frame, manyflow_overlay::Event>;

use crate::overlay_faults::client::{LoggingClient, SharedLog, Task};
use crate::overlay_faults::plan::{Control, Plan};

/// The time at which unread messages count as stuck.
const LIMIT: Time = Time::from_nanos(7_200_000_000_000);
const STEP: Duration = Duration::from_secs(5);
/// The number of steps without reading or sending after which a run counts as over. This is longer
/// than the silence of a link that was cut, or of TFRC at its minimum rate.
const QUIET_STEPS: u32 = 60;

/// The outcome of a run.
pub(crate) struct Outcome {
    pub(crate) senders: Vec<SharedLog>,
    pub(crate) members: Vec<SharedLog>,
    ended_at: Time,
}

impl Outcome {
    /// Returns a number that grows as long as anything happens.
    fn progress(&self) -> usize {
        let logs = self.senders.iter().chain(&self.members);
        let done = logs.map(|log| {
            let log = log.lock();
            log.taken.len() + log.read.len() + usize::from(log.over)
        });
        done.sum()
    }
}

/// Runs a plan until nothing happens.
pub(crate) fn run(plan: &Plan) -> Outcome {
    let (mut network, mut outcome) = build(plan);
    let (mut last, mut quiet) = (0, 0);
    while network.now() < LIMIT && quiet < QUIET_STEPS {
        network.run_until(network.now() + STEP, &mut ()).unwrap();
        quiet += 1;
        if outcome.progress() != last {
            (last, quiet) = (outcome.progress(), 0);
        }
        // By then all links and members are back to normal, and all messages have been read.
        if quiet > 4 && crate::overlay_faults::check::check(plan, &outcome).is_ok() {
            break;
        }
    }
    outcome.ended_at = network.now();
    outcome
}

fn build(plan: &Plan) -> (Network, Outcome) {
    let mut network = Network::new(plan.seed);
    let nodes: Vec<_> = (0..plan.daemons)
        .map(|daemon| network.add_node(&format!("daemon-{daemon}")))
        .collect();
    let mut ends = Vec::new();
    for way in &plan.links {
        let (a, b) = way.ends;
        ends.push((DaemonId(a), DaemonId(b), 1));
        let [from, to] = [a, b].map(|daemon| nodes[usize::from(daemon)]);
        let (there, back) = network.add_duplex(from, to, way.config.clone());
        for &(begin, end) in &way.cuts {
            for link in [there, back] {
                network.at(begin, Change::Cut(link, true));
                network.at(end, Change::Cut(link, false));
            }
        }
    }
    let topology = Arc::new(Topology::new((0..plan.daemons).map(DaemonId), &ends).unwrap());
    let addresses = (0..u32::from(plan.daemons)).map(EndpointId).collect();
    let addresses = Arc::new(Addresses::new(addresses));
    for (number, node) in nodes.iter().enumerate() {
        let here = DaemonId(number as u16);
        let daemon = DaemonEndpoint::new(
            plan.config.clone(),
            &plan.link_kind,
            controller(plan.control, here, plan.seed),
            here,
            Arc::clone(&topology),
            Arc::clone(&addresses),
            network.stream(&format!("daemon {number}")),
        );
        network.add(*node, daemon.unwrap());
    }
    let mut add = |at: u16, task| {
        let log = SharedLog::default();
        let client = LoggingClient::new(EndpointId(at.into()), task, log.clone());
        network.add(nodes[usize::from(at)], client);
        log
    };
    let members = plan.members.iter();
    let members = members.map(|member| add(member.at, Task::Reads(member.clone())));
    let members = members.collect();
    let senders = (0..).zip(&plan.senders);
    let senders = senders.map(|(number, sender)| {
        let task = Task::Sends(number, sender.clone());
        add(sender.at, task)
    });
    let outcome = Outcome {
        senders: senders.collect(),
        members,
        ended_at: Time::ZERO,
    };
    (network, outcome)
}

/// Returns a daemon's controller.
pub(crate) fn controller(control: Control, here: DaemonId, seed: u64) -> Box<dyn Controller> {
    match control {
        Control::Open => Box::new(Open),
        Control::Tfrc => Box::new(Tfrc::new(TfrcConfig::default(), here).unwrap()),
        Control::CostBenefit => {
            let config = CostBenefitConfig::default();
            Box::new(CostBenefit::new(config, here, seed).unwrap())
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, log) in self.senders.iter().enumerate() {
            let log = log.lock();
            let (taken, over) = (log.taken.len(), log.over);
            writeln!(f, "  sender {number}: {taken} taken, over {over}")?;
        }
        for (number, log) in self.members.iter().enumerate() {
            let log = log.lock();
            let (read, over, evicted) = (log.read.len(), log.over, &log.evicted);
            writeln!(
                f,
                "  member {number}: {read} read, over {over}, evicted from {evicted:?}"
            )?;
        }
        write!(f, "  the run ended at {:.0} s", self.ended_at.as_secs_f64())
    }
}
