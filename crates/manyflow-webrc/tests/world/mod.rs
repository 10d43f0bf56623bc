//! One multicast sender in the simulator, and branches of receivers. A branch is a node with
//! receivers, and a link each way between it and the sender.

use std::time::Duration;

use manyflow_core::link::LinkConfig;
use manyflow_core::{Endpoint, Header, Time};
use manyflow_netsim::{Change, Holds, LinkId, Network, NodeId, Probe};

pub(crate) struct World<H, E, S: Endpoint, R: Endpoint> {
    pub(crate) network: Network<H, E>,
    source: NodeId,
    pub(crate) sender: Probe<S>,
    pub(crate) branches: Vec<Branch<R>>,
}

pub(crate) struct Branch<R: Endpoint> {
    /// The link from the sender.
    pub(crate) down: LinkId,
    pub(crate) members: Vec<Probe<R>>,
}

impl<H, E, S, R> World<H, E, S, R>
where
    H: Header + Holds<S::Rx> + From<S::Tx> + Holds<R::Rx> + From<R::Tx> + 'static,
    E: From<S::Event> + From<R::Event> + 'static,
    S: Endpoint<Event: Clone + Send> + 'static,
    R: Endpoint<Event: Clone + Send> + 'static,
{
    /// Creates a world whose sender is endpoint 0 and serves session 0.
    pub(crate) fn new(sender: S, seed: u64) -> World<H, E, S, R> {
        let mut network = Network::new(seed);
        let source = network.add_node("source");
        assert_eq!(network.open_session(source), 0);
        World {
            sender: Probe::add(&mut network, source, sender),
            network,
            source,
            branches: Vec::new(),
        }
    }

    /// Adds a branch with a link like `down` from the sender and one like `up` to it.
    pub(crate) fn branch(
        &mut self,
        down: LinkConfig,
        up: LinkConfig,
        receivers: impl IntoIterator<Item = R>,
    ) {
        let name = format!("branch-{}", self.branches.len());
        let node = self.network.add_node(&name);
        let down = self.network.add_link(self.source, node, down);
        self.network.add_link(node, self.source, up);
        let add = |receiver| Probe::add(&mut self.network, node, receiver);
        let members = receivers.into_iter().map(add).collect();
        self.branches.push(Branch { down, members });
    }

    /// Returns the first receiver of a branch.
    pub(crate) fn member(&self, branch: usize) -> &Probe<R> {
        &self.branches[branch].members[0]
    }

    /// Runs until `end`, a time after the start.
    pub(crate) fn run_until(&mut self, end: Duration) {
        self.network
            .run_until(Time::ZERO + end, &mut ())
            .expect("time advances");
    }

    /// Runs for this long. Returns the average rate at which the first receiver of a branch
    /// receives, in bits per second.
    pub(crate) fn measure(&mut self, branch: usize, span: Duration) -> f64 {
        let id = self.member(branch).id();
        let before = self.network.received(id).bytes;
        let end = self.network.now() + span;
        self.network.run_until(end, &mut ()).expect("time advances");
        (self.network.received(id).bytes - before) as f64 * 8.0 / span.as_secs_f64()
    }

    /// Cuts the link from the sender to a branch, or restores it.
    pub(crate) fn set_cut(&mut self, branch: usize, cut: bool) {
        let change = Change::Cut(self.branches[branch].down, cut);
        self.network.at(self.network.now(), change);
    }
}

/// Returns a link that only delays.
pub(crate) fn delay(delay: Duration) -> LinkConfig {
    LinkConfig {
        delay,
        ..LinkConfig::default()
    }
}
