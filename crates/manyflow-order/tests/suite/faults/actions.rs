//! The clients' actions: to join and leave groups, to send, to come and to go.

use std::sync::Arc;

use manyflow_order::check::{End, Sent, TraceEvent};
use manyflow_order::{Orderer, Outgoing, Service};
use rand::RngExt;

use super::client::Client;
use super::world::{Happening, World};

impl World<'_> {
    pub(super) fn connect(&mut self, at: usize) {
        let now = self.now();
        let Some(orderer) = &mut self.daemons[at].orderer else {
            return;
        };
        self.clients += 1;
        let name: Arc<str> = format!("#c{}#d{at}", self.clients).into();
        let id = orderer.connect(now, &name).unwrap();
        self.daemons[at].clients.push(Client::new(id, name));
        self.drain(at);
        let due = self.within(self.plan.pause_us);
        self.schedule(due, Happening::Act(at, id.0));
    }

    fn find(&self, at: usize, client: u32) -> Option<usize> {
        let mut clients = self.daemons[at].clients.iter();
        clients.position(|known| known.id.0 == client)
    }

    pub(super) fn act(&mut self, at: usize, client: u32) {
        let Some(place) = self.find(at, client) else {
            return;
        };
        if self.has_ended {
            return;
        }
        match self.random.random_range(0..100) {
            0..12 => self.join(at, place),
            12..16 => self.leave(at, place),
            16..18 => return self.disconnect(at, place),
            _ => self.send(at, place),
        }
        self.drain(at);
        let due = self.within(self.plan.pause_us);
        self.schedule(due, Happening::Act(at, client));
    }

    fn any_group(&mut self) -> Arc<str> {
        ["a", "b", "c"][self.random.random_range(0..3)].into()
    }

    fn join(&mut self, at: usize, place: usize) {
        let (now, group) = (self.now(), self.any_group());
        let daemon = &mut self.daemons[at];
        let client = &mut daemon.clients[place];
        if !client.groups.contains(&group) {
            client.groups.push(Arc::clone(&group));
        }
        let orderer = daemon.orderer.as_mut().unwrap();
        orderer.join(now, client.id, &group).unwrap();
    }

    fn leave(&mut self, at: usize, place: usize) {
        let (now, group) = (self.now(), self.any_group());
        let daemon = &mut self.daemons[at];
        let client = &mut daemon.clients[place];
        client.groups.retain(|known| *known != group);
        let orderer = daemon.orderer.as_mut().unwrap();
        orderer.leave(now, client.id, &group).unwrap();
    }

    fn disconnect(&mut self, at: usize, place: usize) {
        let now = self.now();
        let daemon = &mut self.daemons[at];
        let mut client = daemon.clients.remove(place);
        // Others must not wait for the rest of a message.
        let mut rest = Vec::new();
        while client.is_amid {
            rest.extend(client.pop_part());
        }
        for part in rest {
            self.enter(at, &part);
        }
        let orderer = self.daemons[at].orderer.as_mut().unwrap();
        orderer.disconnect(now, client.id);
        self.traces.push(client.trace(End::Gone));
        self.drain(at);
        self.connect(at);
    }

    fn send(&mut self, at: usize, place: usize) {
        let service = Service::ALL[self.random.random_range(0..Service::ALL.len())];
        let mut groups = vec![self.any_group()];
        if self.random.random_bool(0.2) {
            let other = self.any_group();
            if !groups.contains(&other) {
                groups.push(other);
            }
        }
        let daemon = &mut self.daemons[at];
        if self.random.random_bool(0.05) {
            groups = vec![Arc::clone(&daemon.clients[place].name)];
        }
        self.messages += 1;
        let mut payload = self.messages.to_be_bytes().to_vec();
        if self.random.random_bool(0.1) {
            payload.resize(self.random.random_range(8..900), 0);
        }
        let self_discard = self.random.random_bool(0.1);
        let client = &mut daemon.clients[place];
        client.events.push(TraceEvent::Sent(Sent {
            message: self.messages,
            service,
            groups: groups.clone(),
            self_discard,
        }));
        let names: Vec<&str> = groups.iter().map(|group| &**group).collect();
        let message = Outgoing {
            service,
            groups: &names,
            kind: 7,
            self_discard,
            payload: &payload,
        };
        let orderer = daemon.orderer.as_mut().unwrap();
        let record = orderer.message(client.id, &message).unwrap();
        let was_idle = client.pending.is_empty();
        client.pending.extend(orderer.parts(client.id, &record));
        let id = client.id.0;
        if was_idle {
            let due = self.within(2_000);
            self.schedule(due, Happening::Enter(at, id));
        }
    }

    /// Lets the next part of a client's message enter, if it may.
    pub(super) fn enter_next(&mut self, at: usize, client: u32) {
        let Some(place) = self.find(at, client) else {
            return;
        };
        let daemon = &mut self.daemons[at];
        let is_open = daemon.orderer.as_ref().is_some_and(Orderer::is_open);
        if is_open && let Some(part) = daemon.clients[place].pop_part() {
            self.enter(at, &part);
            self.drain(at);
        }
        let is_waiting = |client: &Client| !client.pending.is_empty();
        if self
            .find(at, client)
            .is_some_and(|place| is_waiting(&self.daemons[at].clients[place]))
        {
            let due = self.within(2_000) + 100;
            self.schedule(due, Happening::Enter(at, client));
        }
    }
}
