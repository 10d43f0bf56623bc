//! Expands `[[sessions]]`: each sender, its receivers, and the times at which they are present.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::plan::aggregators::{aggregators, outage};
use crate::plan::ensemble::{Site, Switch};
use crate::plan::ids::Ends;
use crate::plan::overlays::{Affiliation, GroupNumbers, Overlays};
use crate::plan::routing::Paths;
use crate::protocols::acp::check_lie;
use crate::schema::protocols::{AcpTable, Protocol};
use manyflow_core::{EndpointId, Time};
use manyflow_model::error::{Fault, Problem};
use manyflow_model::names::numbered;
use manyflow_model::observables::{Observable, Subject};
use manyflow_model::quantity::Seconds;
use manyflow_netsim::NodeId;
use manyflow_overlay::{DaemonId, GroupId};

use crate::plan::topology::Topology;
use crate::schema::{ReceiverTable, Schema, SessionTable, Start};

/// The maximum number of repetitions of a change. More are a mistake in `every`.
pub const REPETITIONS_MAX: u32 = 100_000;

/// All sessions of a scenario.
#[derive(Clone, Debug)]
pub struct Sessions(pub Vec<PlannedSession>);

/// A session.
#[derive(Clone, Debug)]
pub struct PlannedSession {
    /// The name of the session, with the numbers of its placeholders.
    pub name: String,
    /// The protocol.
    pub protocol: Protocol,
    /// The index of the session's table in the schema.
    pub table: usize,
    key: String,
    /// The node of the sender.
    pub sender: u32,
    /// The time at which the sender stops.
    pub stop: Option<Seconds>,
    /// The receivers, in the order of their entries.
    pub receivers: Vec<Receiver>,
    /// The endpoints besides those of receivers, with their nodes. In a multicast session: the
    /// sender, then the aggregators. In an ACP session: the sender's ends, then the switches, then
    /// the initiators. In an overlay session: the sending clients. Otherwise a command.
    pub staff: Vec<(EndpointId, NodeId)>,
    /// The nodes that aggregate the feedback of SIM, from the sender downwards.
    pub aggregators: Vec<u32>,
    /// The outage of an aggregator: its node, the time of its crash, and the time of its restart.
    pub outage: Option<(u32, Time, Time)>,
    /// The switches between the sender of an ACP session and its receivers.
    pub switches: Vec<Switch>,
    /// The nodes of the ensemble that opens the connection of an ACP session, if the sender's node
    /// is its switch.
    pub initiators: Vec<u32>,
    /// The group and daemon of an overlay session.
    pub affiliation: Option<Affiliation>,
}

/// An initiator and a receiver of an ACP session, by their indexes there.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The index of the session.
    pub session: usize,
    /// The index of the initiator.
    pub initiator: usize,
    /// The index of the receiver.
    pub receiver: usize,
}

/// A receiver of a session.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// The node of the receiver.
    pub node: u32,
    /// The index of the receiver's entry in the session's table.
    pub entry: u32,
    /// The times at which the receiver is present. All receivers of an entry share them.
    pub intervals: Arc<[MembershipInterval]>,
    /// The endpoints of the receiver.
    pub ends: Ends,
}

/// A membership interval: the time between a receiver's start and stop.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct MembershipInterval {
    /// The time at which the receiver joins.
    pub start: Start,
    /// The time at which the receiver leaves. Without one it does not leave.
    pub stop: Option<Seconds>,
}

impl PlannedSession {
    /// Returns a problem with a key of the session's table.
    pub fn fault(&self, key: &str, problem: Problem) -> Fault {
        Fault::at(&["sessions", &self.key, key], problem)
    }
}

impl Sessions {
    /// Expands all sessions of a scenario.
    ///
    /// # Errors
    /// Returns an error if a name is unknown or appears twice, or if a parameter is out of its
    /// range.
    pub fn new(
        schema: &Schema,
        topology: &Topology,
        overlays: &Overlays,
    ) -> Result<Sessions, Fault> {
        let mut sessions: Vec<PlannedSession> = Vec::new();
        let mut names = BTreeSet::new();
        let mut groups = GroupNumbers::new();
        for (index, table) in schema.sessions.iter().enumerate() {
            table
                .check()
                .and_then(|()| check_lie(table))
                .and_then(|()| check_receivers(table))
                .map_err(|fault| fault.within(&table.name).within("sessions"))?;
            let count = table.count.map_or(1, |count| count.get());
            if count > REPETITIONS_MAX {
                let message = format!("{count} sessions: at most {REPETITIONS_MAX} are possible");
                let path = ["sessions", &table.name, "count"];
                return Err(Fault::at(&path, Problem::Value(message)));
            }
            for number in 0..count {
                let mut session = PlannedSession::new(schema, index, number, topology)?;
                if table.protocol == Protocol::Overlay {
                    let name =
                        numbered(table.overlay.group.as_ref().unwrap_or(&table.name), number);
                    session.affiliate(table, name, topology, overlays, &mut groups)?;
                    session.check_overlay(table, schema)?;
                }
                if !names.insert(session.name.clone()) {
                    let message = format!("there are two sessions called `{}`", session.name);
                    return Err(session.fault("name", Problem::Value(message)));
                }
                sessions.push(session);
            }
        }
        Ok(Sessions(sessions))
    }

    /// Returns the number of receivers of all sessions.
    pub fn receivers(&self) -> u64 {
        let receivers = self.0.iter().map(|session| session.receivers.len() as u64);
        receivers.sum()
    }

    /// Returns the index of a session.
    pub fn named(&self, name: &str) -> Result<usize, Problem> {
        let known = self.0.iter().map(|session| session.name.as_str());
        let found = self.0.iter().position(|session| session.name == name);
        found.ok_or_else(|| Problem::unknown("session", name, known))
    }

    /// Returns the indexes of all sessions of an entry with a `count`, if `name` is the
    /// name in the entry, such as `flow-{i}`. Any other name stands for one session.
    fn all_named(&self, name: &str) -> Result<Range<usize>, Problem> {
        let Some(first) = self.0.iter().position(|session| session.key == name) else {
            return self.named(name).map(|index| index..index + 1);
        };
        let entry = self.0[first..].iter().take_while(|other| other.key == name);
        Ok(first..first + entry.count())
    }

    /// Returns the indexes of sessions and receivers: all receivers for `SESSION`, and
    /// those at a node or group for `SESSION/NODE`.
    pub fn receivers_named(
        &self,
        name: &str,
        topology: &Topology,
    ) -> Result<Vec<(usize, usize)>, Problem> {
        let (session, node) = match name.split_once('/') {
            Some((session, node)) => (session, Some(node)),
            None => (name, None),
        };
        let nodes = node.map(|node| topology.nodes_named(node)).transpose()?;
        let wanted = |node: &u32| nodes.as_ref().is_none_or(|nodes| nodes.contains(node));
        let of = |index: usize| {
            let receivers = self.0[index].receivers.iter().enumerate();
            let chosen = receivers.filter(|(_, receiver)| wanted(&receiver.node));
            chosen.map(move |(receiver, _)| (index, receiver))
        };
        let chosen: Vec<_> = self.all_named(session)?.flat_map(of).collect();
        match chosen.is_empty() {
            true => Err(Problem::Value(format!("`{session}` has no receiver there"))),
            false => Ok(chosen),
        }
    }

    /// Returns the pairs that `SESSION/INITIATORS/RECEIVERS` names, or `None` if the name has
    /// another form.
    pub fn pairs_named(
        &self,
        name: &str,
        topology: &Topology,
    ) -> Option<Result<Vec<Pair>, Problem>> {
        let (session, ends) = name.split_once('/')?;
        let (initiators, receivers) = ends.split_once('/')?;
        Some(self.pairs_of(session, initiators, receivers, topology))
    }

    fn pairs_of(
        &self,
        session: &str,
        initiators: &str,
        receivers: &str,
        topology: &Topology,
    ) -> Result<Vec<Pair>, Problem> {
        let receivers = self.receivers_named(&format!("{session}/{receivers}"), topology)?;
        let nodes = topology.nodes_named(initiators)?;
        let mut pairs = Vec::new();
        for (session, receiver) in receivers {
            let known = self.0[session].initiators.iter().enumerate();
            let named = known.filter(|(_, node)| nodes.contains(node));
            pairs.extend(named.map(|(initiator, _)| Pair {
                session,
                initiator,
                receiver,
            }));
        }
        match pairs.is_empty() {
            true => Err(Problem::Value(format!(
                "`{session}` has no initiator at `{initiators}`"
            ))),
            false => Ok(pairs),
        }
    }

    /// Returns the overlay and group of a session.
    fn affiliation(&self, index: usize) -> Result<Affiliation, Problem> {
        let session = &self.0[index];
        session.affiliation.ok_or_else(|| {
            Problem::Value(format!("`{}` is not a session of an overlay", session.name))
        })
    }

    /// Returns the index of an overlay session, with its overlay and group.
    pub fn affiliated(&self, name: &str) -> Result<(usize, Affiliation), Problem> {
        let index = self.named(name)?;
        Ok((index, self.affiliation(index)?))
    }

    /// Returns the overlay sessions that a name stands for, with the number of sending
    /// clients of each.
    pub fn clients_named(&self, name: &str) -> Result<Vec<(usize, u32)>, Problem> {
        let clients = |index: usize| Ok((index, self.affiliation(index)?.clients));
        self.all_named(name)?.map(clients).collect()
    }

    /// Returns the session that `SESSION/NODE` names, its overlay and group, and the daemon
    /// at the node.
    pub fn reporter_named(
        &self,
        name: &str,
        overlays: &Overlays,
        topology: &Topology,
    ) -> Result<(usize, Affiliation, DaemonId), Problem> {
        let Some((session, node)) = name.split_once('/') else {
            let message = "write `SESSION/NODE` to name the daemon that reports it";
            return Err(Problem::Value(message.to_owned()));
        };
        let (index, own) = self.affiliated(session)?;
        let nodes = topology.nodes_named(node)?;
        let daemon = overlays.0[own.overlay].daemon_at(nodes.start);
        match daemon.filter(|_| nodes.len() == 1) {
            Some(daemon) => Ok((index, own, daemon)),
            None => Err(Problem::Value(format!("at `{node}` there is no daemon"))),
        }
    }

    /// Returns the kind of thing that `of` names, for an observable of several kinds.
    pub fn subject_named(&self, what: Observable, of: &str, topology: &Topology) -> Subject {
        if what.subject() != Subject::LinkOrEndpoint {
            return what.subject();
        }
        let is_endpoint = || {
            let is_receiver = self.receivers_named(of, topology).is_ok();
            is_receiver || self.staff_named(of, topology).is_some() || of.contains('/')
        };
        match topology.links_named(of).is_err() && is_endpoint() {
            true => Subject::Endpoint,
            false => Subject::Link,
        }
    }

    /// Returns session and node, if `SESSION/NODE` names the sender of an ACP or overlay
    /// session, or a switch or an initiator of an ACP session.
    pub fn staff_named(&self, name: &str, topology: &Topology) -> Option<(usize, u32)> {
        let (session, node) = name.split_once('/')?;
        let (index, nodes) = (self.named(session).ok()?, topology.nodes_named(node).ok()?);
        let is_staff = nodes.len() == 1 && self.0[index].has_staff_at(nodes.start);
        is_staff.then_some((index, nodes.start))
    }
}

impl PlannedSession {
    /// Returns the number of membership intervals of all receivers.
    pub fn intervals(&self) -> usize {
        let receivers = self.receivers.iter();
        receivers.map(|receiver| receiver.intervals.len()).sum()
    }

    /// Returns whether this is an ACP session without switches. Each receiver then has a
    /// connection of its own, whose other end is at the sender.
    pub fn is_point_to_point(&self) -> bool {
        self.protocol == Protocol::Acp && self.switches.is_empty()
    }

    /// Returns whether an ACP or overlay session has an endpoint besides receivers at this
    /// node: its sender, a switch or an initiator.
    fn has_staff_at(&self, node: u32) -> bool {
        let is_switch = || self.switches.iter().any(|switch| switch.node == node);
        let has_staff = matches!(self.protocol, Protocol::Acp | Protocol::Overlay);
        has_staff && (node == self.sender || is_switch() || self.initiators.contains(&node))
    }

    /// Returns whether an end of the session that is no receiver is at this node: the sender, or an
    /// initiator, for which the sender's node has a switch.
    pub fn has_initiator_at(&self, node: u32) -> bool {
        match self.initiators.is_empty() {
            true => node == self.sender,
            false => self.initiators.contains(&node),
        }
    }

    /// Returns the index of the initiator at a place among the staff, if one is there.
    pub fn initiator_at(&self, place: usize) -> Option<usize> {
        let index = place.checked_sub(1 + self.switches.len());
        index.filter(|index| *index < self.initiators.len())
    }

    /// Returns the first key of an initiator's frames. Initiators have equal parts of all keys, so
    /// that a receiver knows whose frame it reads.
    ///
    /// # Panics
    /// Panics if there are no initiators.
    pub fn first_key(&self, initiator: usize) -> u32 {
        ((initiator as u64) << 32).div_ceil(self.initiators.len() as u64) as u32
    }

    /// Finds the daemons of an overlay session, and numbers its group.
    fn affiliate(
        &mut self,
        table: &SessionTable,
        group: String,
        topology: &Topology,
        overlays: &Overlays,
        groups: &mut GroupNumbers,
    ) -> Result<(), Fault> {
        let index = overlays.of_session(&table.overlay).map_err(|problem| {
            Fault::at(&["sessions", &self.key, "overlay", "overlay"], problem)
        })?;
        let overlay = &overlays.0[index];
        let daemon = |key: &str, node: u32| {
            overlay.daemon_at(node).ok_or_else(|| {
                let name = topology.nodes.get(node);
                let message = format!("at `{name}` the overlay `{}` has no daemon", overlay.name);
                self.fault(key, Problem::Value(message))
            })
        };
        let sender = daemon("sender", self.sender)?;
        for receiver in &self.receivers {
            daemon("receivers", receiver.node)?;
        }
        let next = GroupId(groups.len() as u32);
        self.affiliation = Some(Affiliation {
            overlay: index,
            group: *groups.entry((index, group)).or_insert(next),
            sender,
            clients: table.overlay.clients(),
        });
        Ok(())
    }

    /// Checks the parts of an overlay session's table that depend on its overlay: the benefit and
    /// the service of its messages.
    fn check_overlay(&self, table: &SessionTable, schema: &Schema) -> Result<(), Fault> {
        let Some(own) = self.affiliation else {
            return Ok(());
        };
        let overlay = &schema.overlays[own.overlay];
        let checked = overlay.check_benefit(table.overlay.benefit.as_ref());
        let within = |fault: Fault| {
            let session = fault.within("overlay").within(&self.key);
            session.within("sessions")
        };
        checked.map_err(within)?;
        let slow = table
            .receivers()
            .iter()
            .any(|entry| entry.0.service.is_some());
        let checked = overlay.check_service(&table.overlay, slow);
        checked.map_err(within)
    }

    fn new(
        schema: &Schema,
        table_index: usize,
        number: u32,
        topology: &Topology,
    ) -> Result<PlannedSession, Fault> {
        let table = &schema.sessions[table_index];
        let mut session = PlannedSession {
            name: numbered(&table.name, number),
            protocol: table.protocol,
            table: table_index,
            key: table.name.clone(),
            sender: 0,
            stop: table.stop,
            receivers: Vec::new(),
            staff: Vec::new(),
            aggregators: Vec::new(),
            outage: None,
            switches: Vec::new(),
            initiators: Vec::new(),
            affiliation: None,
        };
        let sender = topology.nodes_named(&numbered(&table.sender, number));
        let sender = sender.map_err(|problem| session.fault("sender", problem))?;
        if sender.len() != 1 {
            let message = format!("`{}` is a group: a session has one sender", table.sender);
            return Err(session.fault("sender", Problem::Value(message)));
        }
        session.sender = sender.start;
        for (place, entry) in table.receivers().iter().enumerate() {
            let nodes = topology.nodes_named(&numbered(&entry.0.node, number));
            let nodes = nodes.map_err(|problem| session.fault("receivers", problem))?;
            let intervals = intervals(&entry.0, schema.run.duration)
                .map_err(|message| session.fault("receivers", Problem::Value(message)))?;
            let intervals: Arc<[MembershipInterval]> = intervals.into();
            let receivers = nodes.map(|node| Receiver {
                node,
                entry: place as u32,
                intervals: intervals.clone(),
                ends: Ends::default(),
            });
            session.receivers.extend(receivers);
        }
        let of_sim = |fault: Fault| fault.within("sim").within(&table.name).within("sessions");
        let aggregators = aggregators(&table.sim, topology).map_err(of_sim)?;
        if table.protocol == Protocol::Sim {
            session.place_aggregators(aggregators, topology);
        }
        session.outage = outage(&table.sim, topology).map_err(of_sim)?;
        if !table.acp.switches.is_empty() {
            let site = Site {
                topology,
                number,
                receivers: session.receivers.iter().map(|r| r.node).collect(),
            };
            session.switches = site
                .switches(&table.acp.switches)
                .map_err(|fault| fault.within("acp").within(&table.name).within("sessions"))?;
        }
        let initiators = initiators(&table.acp, number, topology);
        session.initiators = initiators
            .map_err(|fault| fault.within("acp").within(&table.name).within("sessions"))?;
        Ok(session)
    }
}

impl PlannedSession {
    /// Sets the nodes with aggregators, from the sender downwards: those that the table names, or
    /// else the sender's node and all nodes between it and the receivers.
    fn place_aggregators(&mut self, named: Option<Vec<u32>>, topology: &Topology) {
        let mut paths = Paths::new(topology);
        let sender = self.sender;
        let nodes: BTreeSet<u32> = match named {
            Some(nodes) => nodes.into_iter().collect(),
            None => {
                let receivers = self.receivers.iter();
                let above = receivers.map(|receiver| paths.find_path(sender, receiver.node));
                above.flat_map(|path| path.into_iter().skip(1)).collect()
            }
        };
        self.aggregators = nodes.into_iter().collect();
        let aggregators = &mut self.aggregators;
        aggregators.sort_by_key(|&node| (paths.find_path(sender, node).len(), node));
    }
}

/// Returns the nodes of the ensemble that opens the connection of an ACP session.
fn initiators(table: &AcpTable, number: u32, topology: &Topology) -> Result<Vec<u32>, Fault> {
    let refuse = |problem| Fault::at(&["initiators"], problem);
    let mut initiators = Vec::new();
    for name in &table.initiators {
        let nodes = topology.nodes_named(&numbered(name, number));
        for node in nodes.map_err(refuse)? {
            if initiators.contains(&node) {
                let message = format!("`{}` appears twice", topology.nodes.get(node));
                return Err(refuse(Problem::Value(message)));
            }
            initiators.push(node);
        }
    }
    match initiators.len() > usize::from(u16::MAX) {
        true => Err(refuse(Problem::Value(
            "a switch can have at most 65,535 members".to_owned(),
        ))),
        false => Ok(initiators),
    }
}

/// Checks that a session lists its receivers, and that a command has none.
fn check_receivers(table: &SessionTable) -> Result<(), Fault> {
    match (table.protocol, &table.receivers) {
        (Protocol::Command, Some(_)) => {
            let message = "a command runs at its `sender` and has no receivers";
            Err(Fault::at(
                &["receivers"],
                Problem::Value(message.to_owned()),
            ))
        }
        (Protocol::Command, None) | (_, Some(_)) => Ok(()),
        (_, None) => Err(Fault::value("the key `receivers` is missing")),
    }
}

/// Returns the membership intervals of a receiver: one, or one for each repetition.
pub fn intervals(
    table: &ReceiverTable,
    duration: Seconds,
) -> Result<Vec<MembershipInterval>, String> {
    let first = MembershipInterval {
        start: table.start,
        stop: table.stop,
    };
    let Some(stop) = table.stop else {
        return match table.every {
            Some(_) => Err("`every` needs a `stop`".to_owned()),
            None => Ok(vec![first]),
        };
    };
    if stop <= table.start.to {
        return Err("the receiver leaves before it joins".to_owned());
    }
    let Some(every) = table.every else {
        return Ok(vec![first]);
    };
    if every.0 <= stop.0 - table.start.from.0 {
        return Err("the receiver joins again before it has left".to_owned());
    }
    let count = ((duration.0 - table.start.from.0) / every.0).ceil();
    if count > f64::from(REPETITIONS_MAX) {
        return Err(format!(
            "the receiver joins more than {REPETITIONS_MAX} times"
        ));
    }
    let later = |time: Seconds, index: f64| Seconds(time.0 + index * every.0);
    let interval = |index: u32| MembershipInterval {
        start: Start {
            from: later(table.start.from, f64::from(index)),
            to: later(table.start.to, f64::from(index)),
        },
        stop: Some(later(stop, f64::from(index))),
    };
    Ok((0..count as u32).map(interval).collect())
}
