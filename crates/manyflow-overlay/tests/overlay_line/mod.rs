//! Three daemons in a line, a client that sends at the first, and a client that reads at the last.
//! Each link takes a millisecond.

use std::time::Duration;

use manyflow_core::link::LinkConfig;
use manyflow_netsim::Probe;
use manyflow_overlay::controller::Open;
use manyflow_overlay::{ClientFrame, GroupId, LinkKind};

use crate::world::{Puppet, World, hop};

const GROUP: GroupId = GroupId(1);
const MILLISECOND: Duration = Duration::from_millis(1);

pub(crate) struct Line {
    world: World,
    sender: Probe<Puppet>,
    reader: Probe<Puppet>,
}

impl Line {
    pub(crate) fn new(links: &LinkKind) -> Line {
        let delay = LinkConfig {
            delay: MILLISECOND,
            ..LinkConfig::default()
        };
        let ends = [(0, 1, delay.clone()), (1, 2, delay)];
        let mut world = World::new(3, &ends, |_| hop(links, 1), |_| Box::new(Open));
        let [sender, reader] = [0, 2].map(|at| world.add_client(at, |to| Puppet::new(to, 1000)));
        let connect = ClientFrame::Connect { priority: 100 };
        world.send(&reader, [connect, ClientFrame::Join(GROUP)]);
        world.send(&sender, [connect]);
        world.run_for(100 * MILLISECOND);
        Line {
            world,
            sender,
            reader,
        }
    }

    /// Sends a message, and runs until the last client has read it.
    pub(crate) fn message(&mut self) {
        let send = ClientFrame::Send {
            groups: GROUP.into(),
            sent_us: 0,
            layered: false,
        };
        let read = self.read();
        self.world.send(&self.sender, [send]);
        while self.read() == read {
            self.world.run_for(MILLISECOND);
        }
    }

    /// Returns the number of messages that the last client has read.
    pub(crate) fn read(&self) -> u64 {
        self.reader.get().read
    }
}
