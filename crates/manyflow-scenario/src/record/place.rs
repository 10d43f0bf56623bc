//! What a series is of: receivers, links, clients and daemons, found by their names.

use manyflow_core::{EndpointId, Time};
use manyflow_overlay::{self as overlay, DaemonId, GroupId};

use crate::error::{Fault, Problem};
use crate::record::audience::Audience;
use crate::schema::observables::{Observable, Subject};
use crate::world::World;

/// What is observed.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Session and receiver.
    Receiver(u32, u32),
    Link(u32),
    /// What a session has besides its receivers.
    Sender(u32),
    /// What of that is at a node.
    Staff(u32, u32),
    /// The receivers of an audience.
    Audience(u32),
    /// Session and sending client.
    Client(u32, u32),
    /// Overlay and daemon.
    Daemon(u32, DaemonId),
    /// Overlay and link.
    OverlayLink(u32, overlay::LinkId),
    /// The group of a session of an overlay.
    Group(u32),
    /// A session, and a daemon that tells something of its group.
    Reporter(u32, DaemonId),
}

impl Place {
    /// The session and the receiver's node, or the link, or what stands in the scenario.
    pub(super) fn name(self, world: &World, audiences: &[Audience]) -> String {
        match self {
            Place::Link(link) => world.plan.topology.link_name(link),
            Place::Sender(session) => world.plan.sessions.0[session as usize].name.clone(),
            Place::Audience(number) => audiences[number as usize].of.clone(),
            Place::Staff(session, node) => world.name_at(session, node),
            Place::Client(session, client) => {
                let sender = world.plan.sessions.0[session as usize].sender;
                format!("{}/{client}", world.name_at(session, sender))
            }
            Place::Group(session) => world.plan.sessions.0[session as usize].name.clone(),
            Place::Daemon(overlay, daemon) => {
                let overlay = &world.plan.overlays.0[overlay as usize];
                let node = overlay.node_name(daemon, &world.plan.topology);
                format!("{}/{node}", overlay.name)
            }
            Place::Reporter(session, daemon) => {
                let own = world.affiliation(session);
                let overlay = &world.plan.overlays.0[own.overlay];
                world.name_at(session, overlay.nodes[usize::from(daemon.0)])
            }
            Place::OverlayLink(overlay, link) => {
                let overlay = overlay as usize;
                world
                    .plan
                    .overlays
                    .link_name(overlay, link, &world.plan.topology)
            }
            Place::Receiver(session, receiver) => {
                let receivers = &world.plan.sessions.0[session as usize].receivers;
                world.name_at(session, receivers[receiver as usize].node)
            }
        }
    }
}

impl Place {
    /// When what is observed leaves, in seconds: a receiver with each of its stays, and with its
    /// sender where the protocol is unicast; a sender when its session stops.
    pub(super) fn ends_s(self, world: &World) -> Vec<f64> {
        let (session, stays) = match self {
            Place::Receiver(session, receiver) => (session, world.stays(session, receiver)),
            Place::Sender(session) | Place::Staff(session, _) => (session, Vec::new()),
            _ => return Vec::new(),
        };
        let known = &world.plan.sessions.0[session as usize];
        let with_sender =
            !(known.protocol.kind().is_multicast() && matches!(self, Place::Receiver(..)));
        let stop = known.stop.filter(|_| with_sender);
        let stays = stays.iter().map(|&(_, stop)| stop);
        let left = stays.filter(|&stop| stop < Time::MAX);
        let left = left.map(|stop| stop.as_secs_f64());
        left.chain(stop.map(|stop| stop.0)).collect()
    }
}

/// What of an overlay the events are about that a probe wants of a daemon.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topic {
    Any,
    Link(overlay::LinkId),
    Group(GroupId),
    /// What a daemon tells another of a group.
    Report(GroupId, DaemonId),
}

impl Topic {
    pub(super) fn of(world: &World, what: Observable, subject: Place) -> Topic {
        match subject {
            Place::OverlayLink(_, link) => Topic::Link(link),
            Place::Group(session) => Topic::Group(world.affiliation(session).group),
            Place::Reporter(session, _) if what == Observable::Members => {
                Topic::Group(world.affiliation(session).group)
            }
            Place::Reporter(session, daemon) => {
                Topic::Report(world.affiliation(session).group, daemon)
            }
            _ => Topic::Any,
        }
    }
}

/// The daemons that tell of a session's group: who is slow is told where it is, and views where
/// there are members; all else is told by the sender's.
pub(super) fn daemons_that_tell(
    world: &World,
    what: Observable,
    subject: Place,
) -> Vec<EndpointId> {
    let (Place::Group(session) | Place::Reporter(session, _)) = subject else {
        return Vec::new();
    };
    let own = world.affiliation(session);
    let all = 0..world.plan.overlays.0[own.overlay].nodes.len() as u16;
    let daemons = match (what, subject) {
        (Observable::SlowMembers, _) => all.map(DaemonId).collect(),
        (Observable::Members, Place::Reporter(_, daemon)) => vec![daemon],
        _ => vec![own.sender],
    };
    let endpoints = daemons.into_iter().map(|id| world.daemon(own.overlay, id));
    endpoints.collect()
}

/// What a name stands for, where it is of an overlay.
fn places_in_overlays(world: &World, what: Observable, of: &str) -> Result<Vec<Place>, Problem> {
    let (sessions, overlays) = (&world.plan.sessions, &world.plan.overlays);
    Ok(match what.subject() {
        Subject::OverlayLink => {
            let (overlay, link) = overlays.link_named(of, &world.plan.topology)?;
            vec![Place::OverlayLink(overlay as u32, link)]
        }
        Subject::Reporter => {
            let named = sessions.reporter_named(of, overlays, &world.plan.topology);
            let (session, _, daemon) = named?;
            vec![Place::Reporter(session as u32, daemon)]
        }
        Subject::Group => vec![Place::Group(sessions.affiliated(of)?.0 as u32)],
        _ => {
            let of_session = |(session, clients): (usize, u32)| {
                (0..clients).map(move |client| Place::Client(session as u32, client))
            };
            let named = sessions.clients_named(of)?.into_iter();
            named.flat_map(of_session).collect()
        }
    })
}

/// What a name stands for.
pub(super) fn places(world: &World, what: Observable, of: &str) -> Result<Vec<Place>, Fault> {
    let refuse = |problem| Fault::at(&["of"], problem);
    if what.subject() == Subject::Link {
        let links = world.plan.topology.links_named(of).map_err(refuse)?;
        return Ok(links.into_iter().map(Place::Link).collect());
    }
    if what.subject().is_in_overlays() {
        return places_in_overlays(world, what, of).map_err(refuse);
    }
    if what.subject() == Subject::Sender {
        let session = world.plan.sessions.named(of).map_err(refuse)?;
        return Ok(vec![Place::Sender(session as u32)]);
    }
    let staff = world.plan.sessions.staff_named(of, &world.plan.topology);
    let receivers = world
        .plan
        .sessions
        .receivers_named(of, &world.plan.topology);
    if let (Some((session, node)), Err(_)) = (staff, &receivers) {
        return Ok(vec![Place::Staff(session as u32, node)]);
    }
    let daemon = world.plan.overlays.daemon_named(of, &world.plan.topology);
    if let (Some((overlay, daemon)), Err(_)) = (daemon, &receivers) {
        return Ok(vec![Place::Daemon(overlay as u32, daemon)]);
    }
    let place = |(session, receiver)| Place::Receiver(session as u32, receiver as u32);
    Ok(receivers.map_err(refuse)?.into_iter().map(place).collect())
}
