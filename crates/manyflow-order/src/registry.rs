//! The clients of all daemons, and the members of all groups, as far as this daemon has delivered
//! their changes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use manyflow_overlay::DaemonId;

use crate::event::{Cause, Delivery, Event, View};
use crate::names::{ClientId, GroupViewId, ViewId};
use crate::wire::{Data, Names, Record};

/// A client of any daemon. Clients are ordered by daemon, then by number.
pub(crate) type Who = (DaemonId, ClientId);

/// A client of any daemon.
#[derive(Debug)]
struct Client {
    name: Arc<str>,
    groups: BTreeSet<Arc<str>>,
}

/// Clients, groups, and events for the clients of this daemon.
#[derive(Debug)]
pub(crate) struct Registry {
    here: DaemonId,
    clients: BTreeMap<Who, Client>,
    groups: BTreeMap<Arc<str>, BTreeSet<Who>>,
    /// The clients of this daemon by their names, which are their private groups.
    private: BTreeMap<Arc<str>, ClientId>,
    /// Those that get the message at hand. Empty, but keeps its memory.
    receivers: Vec<ClientId>,
    /// The view of the daemons, and how many changes of members were delivered in it.
    id: GroupViewId,
    /// While a view of the daemons ends: the daemons that stay.
    staying: Option<Vec<DaemonId>>,
    /// While a view of the daemons ends: whether some do not stay. Their messages and changes can
    /// be missing, so each group gets the signal before its next message or change.
    is_breaking: bool,
    /// While a view of the daemons ends: groups that have got the transitional signal.
    transitional: BTreeSet<Arc<str>>,
    events: VecDeque<Event>,
}

impl Registry {
    pub(crate) fn new(here: DaemonId, view: ViewId) -> Registry {
        Registry {
            here,
            clients: BTreeMap::new(),
            groups: BTreeMap::new(),
            private: BTreeMap::new(),
            receivers: Vec::new(),
            id: GroupViewId {
                view,
                stage: GroupViewId::BEGUN,
                change: 0,
            },
            staying: None,
            is_breaking: false,
            transitional: BTreeSet::new(),
            events: VecDeque::new(),
        }
    }

    /// Returns the next event.
    pub(crate) fn pop_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the number of clients, members and events.
    pub(crate) fn len(&self) -> usize {
        let members: usize = self.groups.values().map(BTreeSet::len).sum();
        self.clients.len() + members + self.events.len()
    }

    /// Adds a client.
    pub(crate) fn add(&mut self, who: Who, name: &str) {
        let name: Arc<str> = name.into();
        if who.0 == self.here {
            self.private.insert(Arc::clone(&name), who.1);
        }
        let groups = BTreeSet::new();
        self.clients.entry(who).or_insert(Client { name, groups });
    }

    /// Delivers a message to those clients of this daemon that are members of its groups.
    pub(crate) fn deliver(&mut self, origin: DaemonId, record: &Bytes, data: &Data<'_>) {
        let here = self.here;
        // Whether a message without order is delivered before the end or in it depends on when it
        // arrived, which is no reason for a view that others do not get.
        if self.is_breaking && data.service.is_ordered() {
            self.signal_groups(data.groups);
        }
        let Some(sender) = self.clients.get(&(origin, data.client)) else {
            return;
        };
        for group in data.groups {
            if let Some(members) = self.groups.get(group) {
                let local = members.range((here, ClientId(0))..=(here, ClientId(u32::MAX)));
                self.receivers.extend(local.map(|(_, client)| *client));
            } else if let Some(client) = self.private.get(group) {
                self.receivers.push(*client);
            }
        }
        if data.groups.count() > 1 {
            self.receivers.sort_unstable();
            self.receivers.dedup();
        }
        let groups = record.slice_ref(data.groups.0);
        let payload = record.slice_ref(data.payload);
        for to in self.receivers.drain(..) {
            if data.discard && (here, to) == (origin, data.client) {
                continue;
            }
            self.events.push_back(Event::Delivered(Delivery {
                to,
                service: data.service,
                sender: Arc::clone(&sender.name),
                kind: data.kind,
                payload: payload.clone(),
                groups: groups.clone(),
            }));
        }
    }

    /// Delivers a change of the members of groups.
    pub(crate) fn change(&mut self, origin: DaemonId, record: &Record<'_>) {
        match *record {
            Record::Join { client, group } => self.join((origin, client), group),
            Record::Leave { client, group } => self.leave((origin, client), group),
            Record::Bye { client } => self.disconnect((origin, client)),
            _ => {}
        }
    }

    fn join(&mut self, who: Who, group: &str) {
        let Some(client) = self.clients.get_mut(&who) else {
            return;
        };
        let (group, name): (Arc<str>, _) = (group.into(), Arc::clone(&client.name));
        if !client.groups.insert(Arc::clone(&group)) {
            return;
        }
        if self.is_breaking {
            self.signal_group(&group);
        }
        let members = self.groups.entry(Arc::clone(&group)).or_default();
        let stayed: Vec<Who> = members.iter().copied().collect();
        members.insert(who);
        self.id.change += 1;
        self.announce(&group, &Cause::Join(name), &stayed);
        if who.0 == self.here && self.transitional.contains(&group) {
            let to = who.1;
            self.events.push_back(Event::Transitional { to, group });
        }
    }

    fn leave(&mut self, who: Who, group: &str) {
        let Some(client) = self.clients.get_mut(&who) else {
            return;
        };
        let Some(group) = client.groups.take(group) else {
            return;
        };
        let name = Arc::clone(&client.name);
        if self.is_breaking {
            self.signal_group(&group);
        }
        self.remove_member(&group, who);
        if who.0 == self.here {
            self.events.push_back(Event::Left {
                to: who.1,
                group: Arc::clone(&group),
            });
        }
        self.announce_rest(&group, &Cause::Leave(name));
    }

    fn disconnect(&mut self, who: Who) {
        if self.is_breaking {
            let groups = self.clients.get(&who).map(|client| client.groups.clone());
            for group in groups.iter().flatten() {
                self.signal_group(group);
            }
        }
        let Some(client) = self.remove(who) else {
            return;
        };
        for group in &client.groups {
            self.announce_rest(group, &Cause::Disconnect(Arc::clone(&client.name)));
        }
    }

    fn announce_rest(&mut self, group: &Arc<str>, cause: &Cause) {
        self.id.change += 1;
        let members = self.groups.get(group).into_iter().flatten();
        let stayed: Vec<Who> = members.copied().collect();
        self.announce(group, cause, &stayed);
    }

    /// Removes a client and its memberships.
    fn remove(&mut self, who: Who) -> Option<Client> {
        let client = self.clients.remove(&who)?;
        for group in &client.groups {
            self.remove_member(group, who);
        }
        if who.0 == self.here {
            self.private.remove(&client.name);
        }
        Some(client)
    }

    fn remove_member(&mut self, group: &Arc<str>, who: Who) {
        if let Some(members) = self.groups.get_mut(group) {
            members.remove(&who);
            if members.is_empty() {
                self.groups.remove(group);
            }
        }
    }

    /// Gives the members of a group at this daemon a view.
    fn announce(&mut self, group: &Arc<str>, cause: &Cause, stayed: &[Who]) {
        let Some(members) = self.groups.get(group) else {
            return;
        };
        let local = (self.here, ClientId(0))..=(self.here, ClientId(u32::MAX));
        if members.range(local.clone()).next().is_none() {
            return;
        }
        let all = self.names(members);
        let stayed = self.names(stayed);
        for (_, to) in members.range(local) {
            self.events.push_back(Event::View(View {
                to: *to,
                group: Arc::clone(group),
                id: self.id,
                members: Arc::clone(&all),
                cause: cause.clone(),
                stayed: Arc::clone(&stayed),
            }));
        }
    }

    fn names<'a>(&self, who: impl IntoIterator<Item = &'a Who>) -> Arc<[Arc<str>]> {
        let clients = who.into_iter().filter_map(|who| self.clients.get(who));
        clients.map(|client| Arc::clone(&client.name)).collect()
    }
}

/// The end of a view of the daemons.
impl Registry {
    /// Begins the end of the present view, after which `next` comes: gives the transitional signal
    /// to the members, here, of groups whose members will change. These are those with members at
    /// daemons that do not stay, and those that others bring.
    pub(crate) fn begin_end<'a>(
        &mut self,
        next: ViewId,
        staying: &[DaemonId],
        is_breaking: bool,
        brought: impl Iterator<Item = &'a str>,
    ) {
        debug_assert!(self.transitional.is_empty(), "one transition at a time");
        self.id = GroupViewId {
            view: next,
            stage: self.id.view.hash,
            change: 0,
        };
        self.staying = Some(staying.to_vec());
        self.is_breaking = is_breaking;
        let changing = self.groups.iter().filter(|(_, members)| {
            let mut members = members.iter();
            members.any(|(daemon, _)| !self.stays(*daemon))
        });
        let mut changing: BTreeSet<Arc<str>> =
            changing.map(|(group, _)| Arc::clone(group)).collect();
        for group in brought {
            if !changing.contains(group) {
                changing.insert(group.into());
            }
        }
        for group in changing {
            self.signal_group(&group);
        }
    }

    /// Returns whether a daemon goes from this view to the next with this one.
    fn stays(&self, daemon: DaemonId) -> bool {
        let staying = self.staying.as_ref();
        staying.is_none_or(|staying| staying.contains(&daemon))
    }

    fn signal_groups(&mut self, groups: Names<'_>) {
        for name in groups {
            let known = self.groups.get_key_value(name);
            if let Some(group) = known.map(|(group, _)| Arc::clone(group)) {
                self.signal_group(&group);
            }
        }
    }

    /// Gives the transitional signal to the members of a group at this daemon, once.
    fn signal_group(&mut self, group: &Arc<str>) {
        if !self.transitional.insert(Arc::clone(group)) {
            return;
        }
        let members = self.groups.get(group).into_iter().flatten();
        for (_, to) in members.filter(|(daemon, _)| *daemon == self.here) {
            let (to, group) = (*to, Arc::clone(group));
            self.events.push_back(Event::Transitional { to, group });
        }
    }

    /// Begins the next view: removes the clients of daemons that have not stayed, and adds those
    /// that others bring.
    pub(crate) fn begin_view<'a>(
        &mut self,
        brought: impl Iterator<Item = (Who, &'a str, &'a str)>,
    ) {
        self.id.stage = GroupViewId::BEGUN;
        self.id.change = 0;
        let gone = self.clients.keys().filter(|who| !self.stays(who.0));
        let gone: Vec<Who> = gone.copied().collect();
        for who in gone {
            self.remove(who);
        }
        for (who, name, group) in brought {
            self.add(who, name);
            if !group.is_empty() {
                self.bring(who, group);
            }
        }
        for group in core::mem::take(&mut self.transitional) {
            let members = self.groups.get(&group).into_iter().flatten();
            let stayed: Vec<Who> = members.copied().filter(|who| self.stays(who.0)).collect();
            self.announce(&group, &Cause::Network, &stayed);
        }
        self.staying = None;
        self.is_breaking = false;
    }

    fn bring(&mut self, who: Who, group: &str) {
        let Some(client) = self.clients.get_mut(&who) else {
            return;
        };
        let known = self.groups.get_key_value(group);
        let group = known.map_or_else(|| group.into(), |(known, _)| Arc::clone(known));
        client.groups.insert(Arc::clone(&group));
        self.groups.entry(group).or_default().insert(who);
    }
}
