//! Five daemons with clients that connect and disconnect at random. A frame takes 2 milliseconds on
//! a link. Links of datagrams lose one frame in a hundred.

use std::time::Duration;

use manyflow_core::link::{LinkConfig, LossModel};
use manyflow_netsim::Probe;
use manyflow_overlay::controller::Controller;
use manyflow_overlay::{ClientFrame, DaemonId, GroupId, LinkId, LinkKind};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::world::{Puppet, World, hop};

const DAEMONS: u16 = 5;
const LINKS: [(u16, u16); 4] = [(0, 1), (1, 2), (2, 3), (1, 4)];
const GROUPS: u32 = 3;
/// The time between two changes.
const STEP: Duration = Duration::from_millis(5);
const DELAY: Duration = Duration::from_millis(2);

pub(crate) struct Mesh {
    pub(crate) world: World,
    /// Clients that are connected now and will disconnect, with their daemons.
    visitors: Vec<(u16, Probe<Puppet>)>,
    /// Clients that have disconnected and will connect again.
    absent: Vec<(u16, Probe<Puppet>)>,
    /// Clients that send from their connection to the end.
    senders: Vec<Probe<Puppet>>,
    random: Pcg64Mcg,
}

impl Mesh {
    pub(crate) fn new<C: Controller>(
        links: &LinkKind,
        mut controller: impl FnMut(DaemonId) -> C,
    ) -> Mesh {
        let loss = match links {
            LinkKind::Streams(_) => LossModel::None,
            LinkKind::Datagrams => LossModel::Bernoulli(0.01),
        };
        let link = LinkConfig {
            delay: DELAY,
            loss,
            ..LinkConfig::default()
        };
        let ends = LINKS.map(|(a, b)| (a, b, link.clone()));
        let hop = |link: LinkId| hop(links, u64::from(link.from.0) << 16 | u64::from(link.to.0));
        Mesh {
            world: World::new(DAEMONS, &ends, hop, |here| Box::new(controller(here))),
            visitors: Vec::new(),
            absent: Vec::new(),
            senders: Vec::new(),
            random: Pcg64Mcg::seed_from_u64(1),
        }
    }

    fn any_group(&mut self) -> GroupId {
        GroupId(self.random.random_range(0..GROUPS))
    }

    fn send(&mut self) -> ClientFrame {
        let group = self.any_group();
        ClientFrame::Send {
            groups: group.into(),
            sent_us: 0,
            layered: false,
        }
    }

    /// Returns a client of a daemon that is not connected.
    fn absent_client(&mut self, at: u16) -> Probe<Puppet> {
        match self.absent.iter().position(|(daemon, _)| *daemon == at) {
            Some(place) => self.absent.swap_remove(place).1,
            None => self.world.add_client(at, |daemon| Puppet::new(daemon, 500)),
        }
    }

    fn connect(&mut self, at: u16) -> Probe<Puppet> {
        let client = self.absent_client(at);
        let frames = [ClientFrame::Connect { priority: 100 }, self.send()];
        self.world.send(&client, frames);
        client
    }

    pub(crate) fn add_sender(&mut self, at: u16) {
        let client = self.connect(at);
        self.senders.push(client);
    }

    /// Returns the number of accepted messages of each permanent sender.
    pub(crate) fn senders(&self) -> Vec<u32> {
        self.senders
            .iter()
            .map(|sender| sender.get().accepted)
            .collect()
    }

    /// Connects or disconnects a random client, or lets it join or leave a group.
    pub(crate) fn change(&mut self) {
        let at = self.random.random_range(0..DAEMONS);
        let visitor =
            (!self.visitors.is_empty()).then(|| self.random.random_range(0..self.visitors.len()));
        let group = self.any_group();
        let frame = match (self.random.random_range(0..10), visitor) {
            (0..2, _) if self.visitors.len() < 30 => {
                let client = self.connect(at);
                self.visitors.push((at, client));
                return;
            }
            (0..3, Some(_)) => ClientFrame::Disconnect,
            (3..7, Some(_)) => ClientFrame::Join(group),
            _ => ClientFrame::Leave(group),
        };
        let Some(place) = visitor else {
            return;
        };
        self.world.send(&self.visitors[place].1, [frame]);
        if frame == ClientFrame::Disconnect {
            self.absent.push(self.visitors.swap_remove(place));
        }
    }

    /// Disconnects all clients, and runs until everything in transit has arrived.
    pub(crate) fn end(&mut self) {
        let visitors = self.visitors.drain(..).map(|(_, visitor)| visitor);
        for client in self.senders.drain(..).chain(visitors) {
            self.world.send(&client, [ClientFrame::Disconnect]);
        }
        self.world.run_for(12_000 * STEP);
    }

    /// Runs until the next change. Each permanent sender offers a message first.
    pub(crate) fn run(&mut self) {
        for place in 0..self.senders.len() {
            let send = self.send();
            self.world.send(&self.senders[place], [send]);
        }
        self.world.run_for(STEP);
    }
}
