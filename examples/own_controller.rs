//! A flow controller of one's own for an overlay's daemon: each client may send one message per
//! interval, whatever the links carry.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_overlay::controller::{Audience, Controller, Request, Site};
use manyflow_overlay::{
    ClientFrame, ClientId, Control, Daemon, DaemonId, Data, Event, GroupId, LinkId, OverlayConfig,
    Topology, Transmit,
};

/// One message per client and interval.
#[derive(Debug)]
struct Metronome {
    interval: Duration,
    /// When each client may send next.
    free: BTreeMap<ClientId, Time>,
    waiting: BTreeSet<ClientId>,
    ready: Vec<ClientId>,
}

impl Controller for Metronome {
    fn add_client(&mut self, now: Time, client: ClientId, _priority: f64) {
        self.free.insert(client, now);
    }

    fn remove_client(&mut self, _now: Time, client: ClientId) {
        self.free.remove(&client);
        self.waiting.remove(&client);
    }

    fn try_admit(&mut self, now: Time, request: &Request, _site: &Site) -> bool {
        let Some(free) = self.free.get_mut(&request.client) else {
            return false;
        };
        let is_free = *free <= now;
        if is_free {
            *free = now + self.interval;
        } else {
            self.waiting.insert(request.client);
        }
        is_free
    }

    fn handle_timeout(&mut self, now: Time, _site: &Site) {
        let free = &self.free;
        let is_due = |client: &&ClientId| free.get(client).is_some_and(|time| *time <= now);
        self.ready.extend(self.waiting.iter().filter(is_due));
        self.waiting.retain(|client| !self.ready.contains(client));
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.waiting
            .iter()
            .filter_map(|client| self.free.get(client))
            .min()
            .copied()
    }

    fn poll_ready(&mut self) -> Option<ClientId> {
        self.ready.pop()
    }

    // This controller needs to know nothing of links, arrivals or other daemons.
    fn on_sent(&mut self, _: Time, _: &Data, _: u32, _: &Site) {}
    fn on_queue(&mut self, _: Time, _: LinkId, _: usize) {}
    fn on_control(&mut self, _: Time, _: DaemonId, _: &Control, _: &Site) {}
    fn on_membership(&mut self, _: Time, _: GroupId, _: &Site) {}
    fn poll_control(&mut self) -> Option<(Audience, Control)> {
        None
    }
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let metronome = Metronome {
        interval: Duration::from_millis(250),
        free: BTreeMap::new(),
        waiting: BTreeSet::new(),
        ready: Vec::new(),
    };
    let topology = Arc::new(Topology::new([DaemonId(0)], &[])?);
    let config = OverlayConfig::default();
    let mut daemon = Daemon::fixed(
        config,
        Box::new(metronome),
        DaemonId(0),
        topology,
        Vec::new(),
    )?;
    let mut now = Time::ZERO;
    let group = GroupId(1);
    let client = daemon.connect(now, 100);
    let send = ClientFrame::Send {
        groups: group.into(),
        sent_us: 0,
        layered: false,
    };
    daemon.handle_client(now, client, &send, b"tick".to_vec());
    let mut sent = 0;
    while sent < 5 {
        // `Ready` says that the message has entered: the client offers its next one.
        while let Some(transmit) = daemon.poll_transmit() {
            if matches!(transmit, Transmit::Client(_, ClientFrame::Ready, _)) {
                sent += 1;
                println!("{now}: message {sent} entered");
                daemon.handle_client(now, client, &send, b"tick".to_vec());
            }
        }
        now = daemon.poll_timeout().unwrap_or(now);
        daemon.handle_timeout(now);
    }
    Ok(())
}
