//! Builds and runs the network of a plan.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use manyflow_core::Time;
use manyflow_netsim::{Change, Network, Probe};
use manyflow_order::check::Trace;
use manyflow_order::{Attachment, Orderer, ViewId};
use manyflow_overlay::Event;

use super::clients::{Log, Person, Task};
use super::ordered::{Ordered, Traces};
use super::plan::Plan;
use super::site::{Numbered, Site, is_after_faults};

/// The time at which senders that are not done count as stuck.
const LIMIT: Time = Time::from_nanos(1_200_000_000_000);
const STEP: Duration = Duration::from_secs(5);
/// The time after which daemons keep nothing of clients that have gone.
const FORGET: Duration = Duration::from_secs(60);

/// The outcome of a run.
pub(crate) struct Outcome {
    pub(crate) senders: Vec<Log>,
    pub(crate) members: Vec<Log>,
    /// The number of entries that each daemon keeps after all clients have gone.
    pub(crate) kept: Vec<usize>,
    /// The number of versions of the topology in the end.
    pub(crate) versions: usize,
    ended_at: Time,
}

/// Runs a plan until all senders are done and all messages are read, or until the time is up.
pub(crate) fn run(plan: &Arc<Plan>) -> Outcome {
    let mut network = Network::<Numbered, Event>::new(plan.seed);
    let (sites, mut outcome) = build(plan, &mut network, None);
    while network.now() < LIMIT {
        let end = network.now() + STEP;
        network.run_until(end, &mut ()).unwrap();
        if is_after_faults(network.now()) && super::check::check_clients(plan, &outcome).is_ok() {
            break;
        }
    }
    outcome.ended_at = network.now();
    for site in &sites {
        let now = network.now();
        site.get().disconnect_all(now);
        network.wake(site.id(), &mut ());
    }
    let end = network.now() + FORGET;
    network.run_until(end, &mut ()).unwrap();
    let mut versions = Vec::new();
    for site in &sites {
        let site = site.get();
        let daemon = site.daemon.as_ref().unwrap();
        outcome.kept.push(daemon.state_size());
        versions.push(daemon.topology().version());
    }
    versions.sort_unstable();
    versions.dedup();
    outcome.versions = versions.len();
    outcome
}

/// Runs a plan with ordered groups at all sites instead of its senders and members, until all
/// daemons are in one view and all messages have entered. Returns what the clients did and saw.
///
/// # Errors
/// Returns an error if this takes too long.
pub(crate) fn run_ordered(plan: &Arc<Plan>) -> Result<Vec<Trace>, String> {
    let mut network = Network::<Numbered, Event>::new(plan.seed);
    let traces = Traces::default();
    let (sites, _) = build(plan, &mut network, Some(&traces));
    let mut state = Vec::new();
    while network.now() < LIMIT {
        let end = network.now() + STEP;
        network.run_until(end, &mut ()).unwrap();
        state = sites.iter().map(|site| state_of(&site.get())).collect();
        let first = &state[0];
        let is_one = first.is_quiet && first.members == plan.daemons.len();
        if is_after_faults(network.now()) && is_one && state.iter().all(|other| other == first) {
            // Marks and messages of the last moment are under way.
            network.run_until(end + STEP, &mut ()).unwrap();
            for site in &sites {
                site.get().ordered.iter_mut().for_each(Ordered::end);
            }
            return Ok(traces.take());
        }
    }
    Err(format!("the daemons end with {state:?}"))
}

/// The state of an orderer that all of them must agree on in the end.
#[derive(Debug, PartialEq)]
struct State {
    view: Option<ViewId>,
    members: usize,
    is_quiet: bool,
}

fn state_of(site: &Site) -> State {
    let ordered = site.ordered.as_ref();
    let orderer = ordered.and_then(|ordered| ordered.attachment());
    let orderer = orderer.map(Attachment::orderer);
    State {
        view: orderer.map(|orderer| orderer.view().0),
        members: orderer.map_or(0, |orderer| orderer.view().1.count()),
        is_quiet: orderer.is_some_and(Orderer::is_open) && ordered.is_some_and(Ordered::is_quiet),
    }
}

fn build(
    plan: &Arc<Plan>,
    network: &mut Network<Numbered, Event>,
    ordered: Option<&Traces>,
) -> (Vec<Probe<Site>>, Outcome) {
    let nodes: Vec<_> = (0..plan.daemons.len())
        .map(|daemon| network.add_node(&format!("daemon-{daemon}")))
        .collect();
    for link in &plan.links {
        let [from, to] = link.ends.map(|end| nodes[end]);
        let (there, back) = network.add_duplex(from, to, link.config.clone());
        for &(begin, end) in link.cuts.iter().chain(&link.outages) {
            for way in [there, back] {
                network.at(begin, Change::Cut(way, true));
                network.at(end, Change::Cut(way, false));
            }
        }
    }
    let (senders, members) = (logs(plan.senders.len()), logs(plan.members.len()));
    let site = |here: usize| {
        let sending = (0..).zip(plan.senders.iter().zip(&senders));
        let sending = sending.filter(|(_, (sender, _))| sender.at == here);
        let sending = sending.map(|(number, (sender, log))| {
            Person::new(Task::Sends(number, sender.clone()), log.clone())
        });
        let reading = plan.members.iter().zip(&members);
        let reading = reading.filter(|(member, _)| member.at == here);
        let reading =
            reading.map(|(member, log)| Person::new(Task::Reads(member.clone()), log.clone()));
        let seed = network.stream(&format!("daemon {here}"));
        let persons = sending.chain(reading).collect();
        let mut site = Site::new(Arc::clone(plan), here, seed, persons);
        let id = plan.daemons[here].id;
        site.ordered = ordered.map(|traces| Ordered::new(id, seed, traces.clone()));
        Probe::add(network, nodes[here], site)
    };
    let sites = (0..plan.daemons.len()).map(site).collect();
    let outcome = Outcome {
        senders,
        members,
        kept: Vec::new(),
        versions: 0,
        ended_at: Time::ZERO,
    };
    (sites, outcome)
}

fn logs(count: usize) -> Vec<Log> {
    (0..count).map(|_| Log::default()).collect()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, log) in self.senders.iter().enumerate() {
            for (life, of_life) in log.lock().iter().enumerate() {
                let (taken, over) = (of_life.taken.len(), of_life.over);
                writeln!(
                    f,
                    "  sender {number}, life {life}: {taken} taken, over {over}"
                )?;
            }
        }
        for (number, log) in self.members.iter().enumerate() {
            for (life, of_life) in log.lock().iter().enumerate() {
                let read = of_life.read.len();
                writeln!(f, "  member {number}, life {life}: {read} read")?;
            }
        }
        let ended_s = self.ended_at.as_secs_f64();
        write!(f, "  kept {:?}; the run ended at {ended_s:.0} s", self.kept)
    }
}
