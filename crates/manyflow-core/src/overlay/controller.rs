//! What decides when a client's message may enter the overlay: Cost-Benefit, TFRC, or your own.

use core::fmt;

use super::groups::Groups;
use super::message::{ClientId, Control, DaemonId, Data, GroupId, LinkId};
use super::topology::Topology;
use crate::overlay::Event;
use crate::time::Time;

/// What a daemon knows of the overlay.
#[derive(Debug)]
pub struct Site {
    /// The daemon itself.
    pub here: DaemonId,
    /// Daemons, links and trees.
    pub topology: std::sync::Arc<Topology>,
    /// Who is a member of what, as far as it was heard.
    pub groups: Groups,
}

/// A message that waits at its client's daemon.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Whose it is.
    pub client: ClientId,
    /// To whom.
    pub group: GroupId,
    /// Its bytes on a link: payload, headers and all.
    pub bytes: u32,
}

/// Who hears what a controller says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All daemons, by the overlay's links: reliable.
    Everyone,
    /// One daemon, straight: it may be lost.
    One(DaemonId),
}

/// The flow control of one daemon: of its clients' messages, and for those of others what it must tell them.
///
/// After each call drain [`poll_ready`](Controller::poll_ready), [`poll_control`](Controller::poll_control) and
/// [`poll_event`](Controller::poll_event), then read [`poll_timeout`](Controller::poll_timeout).
pub trait Controller: Send + fmt::Debug {
    /// A client is there. `priority` is a multiple of what others get, positive.
    fn add_client(&mut self, now: Time, client: ClientId, priority: f64);

    /// A client is gone.
    fn remove_client(&mut self, now: Time, client: ClientId);

    /// Whether a client's message may enter now; if so, it has been paid for. If not, the client waits until
    /// [`poll_ready`](Controller::poll_ready) names it. Groups without members elsewhere are asked for as well.
    fn admit(&mut self, now: Time, request: &Request, site: &Site) -> bool;

    /// A message that was admitted has entered.
    fn on_sent(&mut self, now: Time, data: &Data, bytes: u32, site: &Site);

    /// So many messages wait for one of this daemon's links now.
    fn on_queue(&mut self, now: Time, link: LinkId, messages: usize);

    /// Another daemon's message to a group that has members here arrived, for the first time.
    fn on_arrival(&mut self, now: Time, origin: DaemonId, data: &Data, repaired: bool, bytes: u32);

    /// Another daemon's controller said this.
    fn on_control(&mut self, now: Time, from: DaemonId, control: &Control, site: &Site);

    /// Members of a group came or went, here or elsewhere.
    fn on_membership(&mut self, now: Time, group: GroupId, site: &Site);

    /// Does what is due; a spurious call does nothing.
    fn handle_timeout(&mut self, now: Time, site: &Site);

    /// When [`handle_timeout`](Controller::handle_timeout) is wanted next.
    fn poll_timeout(&self) -> Option<Time>;

    /// A client whose waiting message is worth asking for again.
    fn poll_ready(&mut self) -> Option<ClientId>;

    /// What other daemons are to hear.
    fn poll_control(&mut self) -> Option<(Audience, Control)>;

    /// What happened, for traces and metrics.
    fn poll_event(&mut self) -> Option<Event>;
}

/// No control: only the links' back-pressure holds clients up.
#[derive(Copy, Clone, Debug, Default)]
pub struct Open;

impl Controller for Open {
    fn add_client(&mut self, _now: Time, _client: ClientId, _priority: f64) {}
    fn remove_client(&mut self, _now: Time, _client: ClientId) {}
    fn admit(&mut self, _now: Time, _request: &Request, _site: &Site) -> bool {
        true
    }
    fn on_sent(&mut self, _now: Time, _data: &Data, _bytes: u32, _site: &Site) {}
    fn on_queue(&mut self, _now: Time, _link: LinkId, _messages: usize) {}
    fn on_arrival(
        &mut self,
        _now: Time,
        _origin: DaemonId,
        _data: &Data,
        _repaired: bool,
        _bytes: u32,
    ) {
    }
    fn on_control(&mut self, _now: Time, _from: DaemonId, _control: &Control, _site: &Site) {}
    fn on_membership(&mut self, _now: Time, _group: GroupId, _site: &Site) {}
    fn handle_timeout(&mut self, _now: Time, _site: &Site) {}
    fn poll_timeout(&self) -> Option<Time> {
        None
    }
    fn poll_ready(&mut self) -> Option<ClientId> {
        None
    }
    fn poll_control(&mut self) -> Option<(Audience, Control)> {
        None
    }
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
