//! The subjects of series: receivers, links, clients and daemons, found by their names.

use manyflow_core::{EndpointId, Time};
use manyflow_overlay::{self as overlay, DaemonId};

use crate::plan::sessions::Pair;
use crate::protocols::Topic;
use crate::record::audience::Audience;
use crate::scene::Scene;
use manyflow_model::error::{Fault, Problem};
use manyflow_model::observables::{Observable, Subject};

/// The subject of a series.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A receiver: its session and its index there.
    Receiver(u32, u32),
    /// The frames of an initiator at a receiver: their session, and the indexes of both there. A
    /// switch has less than 2^16 members.
    Pair(u32, u16, u32),
    Link(u32),
    /// The endpoints of a session besides its receivers.
    Sender(u32),
    /// The endpoints that a session has at a node besides its receivers.
    Staff(u32, u32),
    /// All receivers of an audience.
    Audience(u32),
    /// A sending client: its session and its number there.
    Client(u32, u32),
    /// A daemon: its overlay and its number there.
    Daemon(u32, DaemonId),
    /// A link of an overlay: its overlay and its number there.
    OverlayLink(u32, overlay::LinkId),
    /// The group of an overlay session.
    Group(u32),
    /// A daemon that reports about the group of a session.
    Reporter(u32, DaemonId),
}

impl Place {
    /// Returns the name of the subject: session and node, link, or the name in the scenario.
    pub(super) fn name(self, scene: &Scene, audiences: &[Audience]) -> String {
        match self {
            Place::Link(link) => scene.plan.topology.link_name(link),
            Place::Sender(session) => scene.plan.sessions.0[session as usize].name.clone(),
            Place::Audience(number) => audiences[number as usize].of.clone(),
            Place::Staff(session, node) => scene.name_at(session, node),
            Place::Client(session, client) => {
                let sender = scene.plan.sessions.0[session as usize].sender;
                format!("{}/{client}", scene.name_at(session, sender))
            }
            Place::Group(session) => scene.plan.sessions.0[session as usize].name.clone(),
            Place::Daemon(overlay, daemon) => {
                let overlay = &scene.plan.overlays.0[overlay as usize];
                let node = overlay.node_name(daemon, &scene.plan.topology);
                format!("{}/{node}", overlay.name)
            }
            Place::Reporter(session, daemon) => {
                let own = scene.affiliation(session);
                let overlay = &scene.plan.overlays.0[own.overlay];
                scene.name_at(session, overlay.nodes[usize::from(daemon.0)])
            }
            Place::OverlayLink(overlay, link) => {
                let overlay = overlay as usize;
                scene
                    .plan
                    .overlays
                    .link_name(overlay, link, &scene.plan.topology)
            }
            Place::Receiver(session, receiver) => {
                let receivers = &scene.plan.sessions.0[session as usize].receivers;
                scene.name_at(session, receivers[receiver as usize].node)
            }
            Place::Pair(session, initiator, receiver) => {
                let known = &scene.plan.sessions.0[session as usize];
                let initiator = scene.name_at(session, known.initiators[usize::from(initiator)]);
                let receiver = known.receivers[receiver as usize].node;
                format!("{initiator}/{}", scene.plan.topology.nodes.get(receiver))
            }
        }
    }
}

impl Place {
    /// Returns whether the world reports an observable of this subject.
    pub(super) fn reports(self, scene: &Scene, what: Observable) -> bool {
        let Place::Receiver(session, receiver) = self else {
            return true;
        };
        let mut ends = scene.ends(session, receiver).all();
        !what.is_reported() || ends.any(|(end, _)| scene.network.reports(end, what))
    }

    /// Returns the times, in seconds, at which the subject leaves. A receiver leaves at the end of
    /// each membership interval and, with a unicast protocol, when its sender stops. A sender
    /// leaves when its session stops.
    pub(super) fn ends_s(self, scene: &Scene) -> Vec<f64> {
        let (session, intervals) = match self {
            Place::Receiver(session, receiver) => (session, scene.intervals(session, receiver)),
            Place::Sender(session) | Place::Staff(session, _) => (session, Vec::new()),
            _ => return Vec::new(),
        };
        let known = &scene.plan.sessions.0[session as usize];
        let with_sender = !(known.protocol.is_multicast() && matches!(self, Place::Receiver(..)));
        let stop = known.stop.filter(|_| with_sender);
        let intervals = intervals.iter().map(|&(_, stop)| stop);
        let left = intervals.filter(|&stop| stop < Time::MAX);
        let left = left.map(|stop| stop.as_secs_f64());
        left.chain(stop.map(|stop| stop.0)).collect()
    }
}

/// Returns the part of an overlay or of a connection that a series is about.
pub(super) fn topic_of(scene: &Scene, what: Observable, subject: Place) -> Topic {
    match subject {
        Place::OverlayLink(_, link) => Topic::Link(link),
        Place::Group(session) => Topic::Group(scene.affiliation(session).group),
        Place::Reporter(session, _) if what == Observable::Members => {
            Topic::Group(scene.affiliation(session).group)
        }
        Place::Pair(session, initiator, _) => {
            let session = &scene.plan.sessions.0[session as usize];
            Topic::Initiator {
                index: initiator,
                of: session.initiators.len() as u16,
            }
        }
        Place::Reporter(_, daemon) => Topic::Report(daemon),
        _ => Topic::Any,
    }
}

/// Returns the daemons that report about a session's group. Slow members are reported by their own
/// daemons, views by daemons with members, and everything else by the sender's daemon.
pub(super) fn reporting_daemons(
    scene: &Scene,
    what: Observable,
    subject: Place,
) -> Vec<EndpointId> {
    let (Place::Group(session) | Place::Reporter(session, _)) = subject else {
        return Vec::new();
    };
    let own = scene.affiliation(session);
    let all = 0..scene.plan.overlays.0[own.overlay].nodes.len() as u16;
    let daemons = match (what, subject) {
        (Observable::SlowMembers, _) => all.map(DaemonId).collect(),
        (Observable::Members, Place::Reporter(_, daemon)) => vec![daemon],
        _ => vec![own.sender],
    };
    let endpoints = daemons.into_iter().map(|id| scene.daemon(own.overlay, id));
    endpoints.collect()
}

/// Returns the subjects that a name stands for, for an observable of overlays.
fn places_in_overlays(scene: &Scene, what: Observable, of: &str) -> Result<Vec<Place>, Problem> {
    let (sessions, overlays) = (&scene.plan.sessions, &scene.plan.overlays);
    Ok(match what.subject() {
        Subject::OverlayLink => {
            let (overlay, link) = overlays.link_named(of, &scene.plan.topology)?;
            vec![Place::OverlayLink(overlay as u32, link)]
        }
        Subject::Reporter => {
            let named = sessions.reporter_named(of, overlays, &scene.plan.topology);
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

/// Returns the subjects that a name stands for.
pub(super) fn places(scene: &Scene, what: Observable, of: &str) -> Result<Vec<Place>, Fault> {
    let refuse = |problem| Fault::at(&["of"], problem);
    let subject = scene
        .plan
        .sessions
        .subject_named(what, of, &scene.plan.topology);
    if subject == Subject::Link {
        let links = scene.plan.topology.links_named(of).map_err(refuse)?;
        return Ok(links.into_iter().map(Place::Link).collect());
    }
    if what.subject().is_in_overlays() {
        return places_in_overlays(scene, what, of).map_err(refuse);
    }
    if what.subject() == Subject::Sender {
        let session = scene.plan.sessions.named(of).map_err(refuse)?;
        return Ok(vec![Place::Sender(session as u32)]);
    }
    if let Some(pairs) = scene.plan.sessions.pairs_named(of, &scene.plan.topology) {
        let place = |pair: Pair| {
            let Pair {
                session,
                initiator,
                receiver,
            } = pair;
            Place::Pair(session as u32, initiator as u16, receiver as u32)
        };
        return Ok(pairs.map_err(refuse)?.into_iter().map(place).collect());
    }
    let staff = scene.plan.sessions.staff_named(of, &scene.plan.topology);
    let receivers = scene
        .plan
        .sessions
        .receivers_named(of, &scene.plan.topology);
    if let (Some((session, node)), Err(_)) = (staff, &receivers) {
        return Ok(vec![Place::Staff(session as u32, node)]);
    }
    let daemon = scene.plan.overlays.daemon_named(of, &scene.plan.topology);
    if let (Some((overlay, daemon)), Err(_)) = (daemon, &receivers) {
        return Ok(vec![Place::Daemon(overlay as u32, daemon)]);
    }
    let place = |(session, receiver)| Place::Receiver(session as u32, receiver as u32);
    Ok(receivers.map_err(refuse)?.into_iter().map(place).collect())
}
