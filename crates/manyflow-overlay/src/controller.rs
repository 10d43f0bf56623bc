//! Decides when a client's message may enter the overlay: Cost-Benefit, TFRC, or your own
//! controller.

use core::fmt;

use super::groups::Groups;
use super::message::{ClientId, Control, DaemonId, Data, GroupId, LinkId};
use super::topology::Topology;
use crate::Event;
use manyflow_core::time::Time;

/// What a daemon knows about the overlay.
#[derive(Debug)]
pub struct Site {
    /// The daemon itself.
    pub here: DaemonId,
    /// Daemons, links and trees.
    pub topology: std::sync::Arc<Topology>,
    /// The members of each group, as far as this daemon has heard.
    pub groups: Groups,
}

/// A client's message that waits at its daemon.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client that wants to send the message.
    pub client: ClientId,
    /// The group that the message is for.
    pub group: GroupId,
    /// The bytes that the message takes on a link, payload and all headers included.
    pub bytes: u32,
}

/// Who receives a controller's message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All daemons, over the overlay's links: reliable.
    Everyone,
    /// Sent directly to one daemon, not over overlay links. May be lost.
    One(DaemonId),
}

/// The flow control of one daemon. It admits the messages of the daemon's clients, and reports to
/// other daemons what their controllers must know.
///
/// After each call, drain [`poll_ready`](Controller::poll_ready),
/// [`poll_control`](Controller::poll_control) and [`poll_event`](Controller::poll_event), then read
/// [`poll_timeout`](Controller::poll_timeout).
pub trait Controller: fmt::Debug + Send {
    /// A client has connected. `priority` is its share as a multiple of other clients' shares,
    /// positive.
    fn add_client(&mut self, now: Time, client: ClientId, priority: f64);

    /// A client has disconnected.
    fn remove_client(&mut self, now: Time, client: ClientId);

    /// Admits a client's message and charges the client for it, if the message may enter now. If
    /// not, returns `false`, and the client waits until [`poll_ready`](Controller::poll_ready)
    /// names it. Called also for groups without members at other daemons.
    fn try_admit(&mut self, now: Time, request: &Request, site: &Site) -> bool;

    /// An admitted message has entered the overlay.
    fn on_sent(&mut self, now: Time, data: &Data, bytes: u32, site: &Site);

    /// The number of messages that wait for one of this daemon's links has changed to `messages`.
    fn on_queue(&mut self, now: Time, link: LinkId, messages: usize);

    /// Another daemon's message to a group with members at this daemon has arrived for the first
    /// time.
    fn on_arrival(&mut self, now: Time, origin: DaemonId, data: &Data, repaired: bool, bytes: u32);

    /// A message of another daemon's controller has arrived.
    fn on_control(&mut self, now: Time, from: DaemonId, control: &Control, site: &Site);

    /// A group has gained or lost a member, at this daemon or another.
    fn on_membership(&mut self, now: Time, group: GroupId, site: &Site);

    /// Does what is due at `now`. Spurious calls do nothing.
    fn handle_timeout(&mut self, now: Time, site: &Site);

    /// When [`handle_timeout`](Controller::handle_timeout) is wanted next.
    fn poll_timeout(&self) -> Option<Time>;

    /// A client whose waiting message should be offered to [`try_admit`](Controller::try_admit)
    /// again.
    fn poll_ready(&mut self) -> Option<ClientId>;

    /// The next message to other daemons.
    fn poll_control(&mut self) -> Option<(Audience, Control)>;

    /// The next event, for traces and metrics.
    fn poll_event(&mut self) -> Option<Event>;
}

/// No control: only the links' back-pressure delays clients.
#[derive(Copy, Clone, Debug, Default)]
pub struct Open;

impl Controller for Open {
    fn add_client(&mut self, _now: Time, _client: ClientId, _priority: f64) {}
    fn remove_client(&mut self, _now: Time, _client: ClientId) {}
    fn try_admit(&mut self, _now: Time, _request: &Request, _site: &Site) -> bool {
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
