//! ACP sessions: a connection to each receiver, or one connection through switches to all
//! receivers.

use manyflow_anypoint::switch::{
    HashOfKey, KeyRule, LeastOutstanding, MemberId, Policy, RateAware, RoundRobin, SwitchConfig,
    Weighted,
};
use manyflow_core::{Contents, EndpointId, Time};
use manyflow_netsim::models::anypoint::{
    Change, Liar, MemberChange, ModelledEnd, Span, SwitchEndpoint, Worker,
};

use manyflow_netsim::NodeId;
use manyflow_netsim::models::Fated;

use super::models::{lie, worker};
use crate::builder::Builder;
use crate::plan::ensemble::{Branch, Switch};
use crate::plan::sessions::PlannedSession;
use crate::protocols::session::{COUNTED, LOST, Reporter, SessionProtocol, TOGETHER, WINDOW};
use crate::schema::ReceiverTable;
use crate::schema::protocols::ControlName;
use crate::schema::protocols::{Direction, PolicyName};
use manyflow_model::error::Fault;
use manyflow_model::observables::Observable;
use manyflow_model::quantity::Seconds;

/// ACP, Anypoint's transport of frames.
pub(crate) struct Acp;

/// The observables of both ends of a connection.
const FRAMES: &[Observable] = &[
    Observable::Goodput,
    Observable::DeliveredFrames,
    Observable::Overflows,
    Observable::Failures,
];

impl SessionProtocol for Acp {
    fn receiver(&self) -> Reporter {
        Reporter::new("ACP", &[COUNTED, LOST, FRAMES, WINDOW, TOGETHER])
    }

    fn sender(&self) -> Reporter {
        Reporter::new("ACP", &[&[Observable::MemberFailures]])
    }

    fn staff(&self, is_end: bool) -> Option<Reporter> {
        Some(match is_end {
            true => Reporter::new("ACP", &[COUNTED, LOST, FRAMES, WINDOW]),
            false => Reporter::new("a switch of ACP", &[COUNTED, LOST, &[Observable::Failures]]),
        })
    }

    fn add(&self, builder: &mut Builder) -> Result<(), Fault> {
        builder.add_acp()
    }
}

/// The endpoint of a receiver during one of its membership intervals.
struct Server {
    id: EndpointId,
    /// The index of the receiver in the session.
    receiver: usize,
    name: String,
    start: Time,
    stop: Option<Time>,
}

/// A member of a switch: its endpoint, its node and its membership interval.
struct Seat {
    id: EndpointId,
    node: u32,
    start: Time,
    stop: Option<Time>,
}

impl Builder<'_> {
    /// Adds all endpoints of the session: first the receivers' ends, then the sender's, then the
    /// switches, then the initiators' ends.
    fn add_acp(&mut self) -> Result<(), Fault> {
        let servers = self.servers();
        for (number, server) in servers.iter().enumerate() {
            let remote = match self.switch_of(server.receiver) {
                Some(switch) => switch_id(self.session, switch),
                None => self.session.staff[number].0,
            };
            self.add_server(server, remote)?;
        }
        let start = self.draw(self.table.start, "sender");
        let stop = self.table.stop.map(Seconds::time);
        if self.session.switches.is_empty() {
            for (number, server) in servers.iter().enumerate() {
                let stop = [stop, server.stop].into_iter().flatten().min();
                let start = start.max(server.start);
                self.add_peer(number, server.id, &server.name, start, stop)?;
            }
        } else {
            if self.session.initiators.is_empty() {
                self.add_peer(0, switch_id(self.session, 0), "sender", start, stop)?;
            } else {
                self.add_initiator_switch()?;
            }
            for switch in 0..self.session.switches.len() {
                self.add_switch(switch, &servers, start)?;
            }
            let first = 1 + self.session.switches.len();
            for number in 0..self.session.initiators.len() {
                let own_switch = self.session.staff[0].0;
                let name = format!("initiator {number}");
                self.add_peer(first + number, own_switch, &name, start, stop)?;
            }
        }
        Ok(())
    }

    fn servers(&self) -> Vec<Server> {
        let mut servers: Vec<Server> = Vec::new();
        for (number, receiver) in self.session.receivers.iter().enumerate() {
            for (index, interval) in receiver.intervals.iter().enumerate() {
                let name = self.interval_name(receiver, index);
                servers.push(Server {
                    id: receiver.ends.receiving_in(index),
                    receiver: number,
                    start: self.draw(interval.start, &name),
                    stop: interval.stop.map(Seconds::time),
                    name,
                });
            }
        }
        servers
    }

    /// Returns the index of the switch that a receiver is a member of.
    fn switch_of(&self, receiver: usize) -> Option<usize> {
        let switches = self.session.switches.iter();
        let mut members = switches.map(|switch| &switch.members);
        members.position(|members| members.contains(&Branch::Receiver(receiver)))
    }

    fn add_server(&mut self, server: &Server, remote: EndpointId) -> Result<(), Fault> {
        let receiver = &self.session.receivers[server.receiver];
        let own = self.entry(receiver);
        let table = &self.table.acp;
        let stop = [server.stop, self.table.stop.map(Seconds::time)];
        let stop = stop.into_iter().flatten().min();
        let sends = match table.direction {
            Direction::Inbound => Vec::new(),
            Direction::Outbound | Direction::Both => {
                spans(own, server.start, stop.unwrap_or(Time::MAX))
            }
        };
        let seed = self.seed(&format!("flow of {}", server.name));
        let worker = worker(table, sends, own.service, 0, seed)?;
        let end = ModelledEnd::acceptor(table.receiver(own), worker, remote);
        let end = Liar::new(end.map_err(Fault::value)?, lie(table));
        let crash = own.crash.map(Seconds::time);
        self.add_endpoint(server.id, NodeId(receiver.node), fated(end, stop, crash));
        Ok(())
    }

    /// Adds the end of a sender or initiator at this place among the session's staff. Initiators
    /// share a connection, whose number is that of their switch.
    fn add_peer(
        &mut self,
        number: usize,
        remote: EndpointId,
        name: &str,
        start: Time,
        stop: Option<Time>,
    ) -> Result<(), Fault> {
        let table = &self.table.acp;
        let to = stop.unwrap_or(Time::MAX);
        let sends = match table.direction {
            Direction::Inbound | Direction::Both if start < to => vec![Span { from: start, to }],
            _ => Vec::new(),
        };
        let (connection, first_key) = match self.session.initiator_at(number) {
            Some(initiator) => (0, self.session.first_key(initiator)),
            None => (number, 0),
        };
        let connection = self.session.staff[connection].0.0;
        let seed = self.seed(&format!("sender's flow of {name}"));
        let worker = worker(table, sends, None, first_key, seed)?;
        let end = ModelledEnd::initiator(table.config(), worker, remote, connection, start);
        let end = Liar::new(end.map_err(Fault::value)?, lie(table));
        self.add_staff(number, fated(end, stop, None));
        Ok(())
    }

    /// Adds the switch with this number. The connection opens at `start`: receivers that have
    /// started by then are members from the beginning.
    fn add_switch(&mut self, number: usize, servers: &[Server], start: Time) -> Result<(), Fault> {
        let switch = &self.session.switches[number];
        let mut seats = self.seats(switch, servers);
        // Members are numbered in order of time. Members from the beginning keep the order of the
        // scenario.
        seats.sort_by_key(|seat| seat.start.max(start));
        if seats.len() > usize::from(u16::MAX) {
            return Err(Fault::value("a switch can have at most 65,535 members"));
        }
        let (first, later) = seats.split_at(seats.partition_point(|seat| seat.start <= start));
        let joins = later.iter().map(|seat| Change {
            at: seat.start,
            change: MemberChange::Join(seat.id),
        });
        let leaves = seats.iter().enumerate().filter_map(|(member, seat)| {
            let change = MemberChange::Leave(MemberId(member as u16));
            seat.stop.map(|at| Change { at, change })
        });
        let mut changes: Vec<Change> = joins.chain(leaves).collect();
        changes.sort_by_key(|change| change.at);
        let peers = &self.session.switches;
        let above = peers
            .iter()
            .position(|other| other.members.contains(&Branch::Switch(number)));
        let peer = above.map_or(self.session.staff[0].0, |above| {
            switch_id(self.session, above)
        });
        let policy = policy(self.table.acp.switches[number].policy, switch, &seats);
        let members = first.iter().map(|seat| seat.id).collect();
        let config = self.switch_config(number);
        let endpoint = SwitchEndpoint::new(config, policy, peer, members, changes);
        self.add_staff(1 + number, endpoint.map_err(Fault::value)?);
        Ok(())
    }

    /// Adds the switch of the initiators, whose peer is the first switch.
    fn add_initiator_switch(&mut self) -> Result<(), Fault> {
        let first = 1 + self.session.switches.len();
        let members = self.session.staff[first..].iter().map(|(id, _)| *id);
        let endpoint = SwitchEndpoint::of_initiators(
            self.switch_config(0),
            Box::<RoundRobin>::default(),
            switch_id(self.session, 0),
            members.collect(),
            Vec::new(),
        );
        self.add_staff(0, endpoint.map_err(Fault::value)?);
        Ok(())
    }

    fn switch_config(&self, number: usize) -> SwitchConfig {
        let acp = &self.table.acp;
        SwitchConfig {
            fallback: acp.control == ControlName::Auto,
            frame_bytes_max: acp.config().frame_bytes_max,
            ..acp.switches[number].config()
        }
    }

    /// Returns the members of a switch, in the order of the scenario. A receiver is one member for
    /// each of its membership intervals.
    fn seats(&self, switch: &Switch, servers: &[Server]) -> Vec<Seat> {
        let mut seats = Vec::new();
        for branch in &switch.members {
            match *branch {
                Branch::Switch(number) => seats.push(Seat {
                    id: switch_id(self.session, number),
                    node: self.session.switches[number].node,
                    start: Time::ZERO,
                    stop: None,
                }),
                Branch::Receiver(number) => {
                    let intervals = servers.iter().filter(|server| server.receiver == number);
                    seats.extend(intervals.map(|server| Seat {
                        id: server.id,
                        node: self.session.receivers[number].node,
                        start: server.start,
                        stop: server.stop,
                    }));
                }
            }
        }
        seats
    }
}

/// Returns the endpoint of a switch. The switches follow the sender's end.
fn switch_id(session: &PlannedSession, number: usize) -> EndpointId {
    session.staff[1 + number].0
}

/// An end with its application, which may lie to routers.
type End = Liar<ModelledEnd<Worker>>;

/// Makes an end that closes its direction at `stop` and crashes at `crash`.
fn fated(end: End, stop: Option<Time>, crash: Option<Time>) -> Fated<End> {
    let close: fn(&mut End) = |end| end.end_mut().close();
    let die: fn(&mut End) = |end| end.end_mut().crash();
    let ends = [
        stop.map(|time| (time, close)),
        crash.map(|time| (time, die)),
    ];
    Fated::new(end, ends.into_iter().flatten().collect())
}

/// Returns the spans in which a receiver sends, within its membership interval.
fn spans(own: &ReceiverTable, start: Time, stop: Time) -> Vec<Span> {
    let always = Span {
        from: start,
        to: stop,
    };
    if own.sends.is_empty() {
        return vec![always];
    }
    let spans = own.sends.iter().map(|span| Span {
        from: span.from.time().max(start),
        to: span.to.map_or(stop, Seconds::time).min(stop),
    });
    spans.filter(|span| span.from < span.to).collect()
}

/// Returns the policy of a switch. Members have the numbers of their places in `seats`.
fn policy(name: PolicyName, switch: &Switch, seats: &[Seat]) -> Box<dyn Policy<Contents>> {
    match name {
        PolicyName::RoundRobin => Box::new(RoundRobin::default()),
        PolicyName::RateAware => Box::new(RateAware::default()),
        PolicyName::LeastOutstanding => Box::new(LeastOutstanding::default()),
        PolicyName::Hash => Box::new(HashOfKey::default()),
        PolicyName::Weighted => {
            let weight = |seat: &Seat| {
                let mut weights = switch.weights.iter();
                let own = weights.find(|(nodes, _)| nodes.contains(&seat.node));
                own.map_or(0.0, |(_, weight)| *weight)
            };
            Box::new(Weighted::new(seats.iter().map(weight).collect()))
        }
        PolicyName::Rule => {
            let mut rules = Vec::new();
            for (keys, nodes) in &switch.rules {
                let members = seats.iter().enumerate();
                let named = members.filter(|(_, seat)| nodes.contains(&seat.node));
                rules.extend(named.map(|(member, _)| (keys.clone(), MemberId(member as u16))));
            }
            Box::new(KeyRule::new(rules))
        }
    }
}
