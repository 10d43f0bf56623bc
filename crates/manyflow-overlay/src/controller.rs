//! The flow control of a daemon: a [`Controller`] decides when a client's message may enter the
//! overlay. Cost-Benefit and TFRC are two of them.

use core::any::Any;
use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use super::groups::Groups;
use super::layers::Layers;
use super::message::{ClientId, Control, DaemonId, Data, GroupId, GroupSet, LinkId, Message};
use super::sequence::OriginSeq;
use super::topology::Topology;
use crate::Event;
use manyflow_core::time::Time;

/// A daemon's knowledge of the overlay.
#[derive(Debug)]
pub struct Site {
    /// This daemon.
    pub here: DaemonId,
    /// The overlay's daemons and links, with a tree for each daemon.
    pub topology: Arc<Topology>,
    /// Earlier topologies, the latest first. Messages of other daemons may still follow their
    /// trees.
    pub earlier: VecDeque<Arc<Topology>>,
    /// The members of each group, as far as this daemon has learnt of them.
    pub groups: Groups,
}

impl Site {
    /// Returns a daemon's knowledge of an overlay without members.
    pub fn new(here: DaemonId, topology: Arc<Topology>) -> Site {
        Site {
            here,
            topology,
            earlier: VecDeque::new(),
            groups: Groups::default(),
        }
    }

    /// Returns the present or an earlier topology by its version; `None` if it is not known.
    #[inline]
    pub fn topology_of(&self, version: u16) -> Option<&Topology> {
        if self.topology.version() == version {
            return Some(&self.topology);
        }
        let mut earlier = self.earlier.iter();
        let found = earlier.find(|topology| topology.version() == version);
        found.map(|topology| &**topology)
    }

    /// Returns the number of members of these groups, at all daemons.
    pub fn members_of(&self, groups: &GroupSet) -> u32 {
        let groups = groups.as_slice().iter();
        let members = groups.map(|group| self.groups.members(*group));
        members.fold(0, u32::saturating_add)
    }

    /// Returns the daemons with members of a group that can be reached, in ascending order. The
    /// members of other daemons still count for the hold time, but nothing reaches them now.
    pub fn reachable(&self, group: GroupId) -> impl Iterator<Item = DaemonId> {
        let daemons = self.groups.daemons(group);
        daemons.filter(|daemon| self.topology.contains(*daemon))
    }
}

/// A client's message that waits at its daemon until the controller admits it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client that wants to send the message.
    pub client: ClientId,
    /// The groups that the message is for.
    pub groups: GroupSet,
    /// Bytes that the message takes on a link, payload and all headers included.
    pub bytes: u32,
    /// The salary that a [layered](Layers) message brings: the client must have earned it. The
    /// price of each link decides when the message leaves for it, by [`sell`](Controller::sell).
    pub purse: Option<Duration>,
}

/// The receivers of a controller's message.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All daemons, over overlay links. Reliable.
    Everyone,
    /// One daemon, addressed directly, not over overlay links. The message may be lost.
    One(DaemonId),
}

/// The flow control of one daemon. It admits the messages of the daemon's clients, and sends
/// reports to the controllers of other daemons.
///
/// After each call, drain [`poll_ready`](Controller::poll_ready),
/// [`poll_control`](Controller::poll_control) and [`poll_event`](Controller::poll_event), then read
/// [`poll_timeout`](Controller::poll_timeout).
pub trait Controller: fmt::Debug + Any + Send {
    /// Adds a client that has connected. `priority`, which is positive, is its share as a multiple
    /// of the share of a client with priority 1.
    fn add_client(&mut self, now: Time, client: ClientId, priority: f64);

    /// Removes a client that has disconnected.
    fn remove_client(&mut self, now: Time, client: ClientId);

    /// Returns whether a message to several groups enters once for all of them, so that a link
    /// carries one copy. Otherwise it enters for one group after the other.
    fn shares_copies(&self) -> bool {
        true
    }

    /// Admits a client's message and charges the client for it, if the message may enter now.
    /// Returns `false` if the client must wait until [`poll_ready`](Controller::poll_ready) names
    /// it. Also called for groups without members at other daemons.
    fn try_admit(&mut self, now: Time, request: &Request, site: &Site) -> bool;

    /// Returns how many bytes of a layered message's payload, up to a cut point, one of this
    /// daemon's links sells for the message's purse now. `sequence` is the message's number. The
    /// daemon cuts the rest. Controllers without prices of links sell the whole message.
    fn sell(&mut self, _link: LinkId, layers: &Layers, _sequence: OriginSeq) -> u32 {
        layers.whole_bytes()
    }

    /// Handles the entry of an admitted message into the overlay.
    fn on_sent(&mut self, _now: Time, _data: &Data, _bytes: u32, _site: &Site) {}

    /// Handles a change of the number of messages that wait for one of this daemon's links, to
    /// `messages`.
    fn on_queue(&mut self, _now: Time, _link: LinkId, _messages: usize) {}

    /// Handles a measurement of the time for which messages wait for one of this daemon's links
    /// after they have left its queue, in buffers that the daemon does not see.
    fn on_delay(&mut self, _now: Time, _link: LinkId, _delay: Duration) {}

    /// Returns whether routers may mark the messages of clients over links of datagrams (ECN),
    /// because the controller responds to marks as to losses.
    fn heeds_marks(&self) -> bool {
        false
    }

    /// Handles the first arrival of another daemon's message to a group with members at this
    /// daemon. `data` is the message's header, and `bytes` includes all headers.
    fn on_arrival(&mut self, _now: Time, _message: &Message, _data: &Data, _bytes: u32) {}

    /// Handles a message from another daemon's controller.
    fn on_control(&mut self, _now: Time, _from: DaemonId, _control: &Control, _site: &Site) {}

    /// Handles a change of a group's membership, at this daemon or another.
    fn on_membership(&mut self, _now: Time, _group: GroupId, _site: &Site) {}

    /// Handles a change of the topology. Members of groups at daemons that no longer exist are
    /// reported by [`on_membership`](Controller::on_membership).
    fn on_topology(&mut self, _now: Time, _site: &Site) {}

    /// Handles a daemon that no longer exists, or begins again with a new incarnation, whose
    /// messages are numbered from 1 again.
    fn on_departure(&mut self, _now: Time, _daemon: DaemonId, _site: &Site) {}

    /// Handles all timers that are due at `now`. Spurious calls do nothing.
    fn handle_timeout(&mut self, now: Time, site: &Site);

    /// Returns when [`handle_timeout`](Controller::handle_timeout) is wanted next, if at all.
    fn poll_timeout(&self) -> Option<Time>;

    /// Returns a client whose waiting message should be offered to
    /// [`try_admit`](Controller::try_admit) again.
    fn poll_ready(&mut self) -> Option<ClientId>;

    /// Returns the next message to other daemons.
    fn poll_control(&mut self) -> Option<(Audience, Control)>;

    /// Returns the next event, for traces and metrics.
    fn poll_event(&mut self) -> Option<Event>;
}

/// A controller that admits every message: only the back-pressure of links delays clients.
#[derive(Copy, Clone, Debug, Default)]
pub struct Open;

impl Controller for Open {
    fn add_client(&mut self, _now: Time, _client: ClientId, _priority: f64) {}
    fn remove_client(&mut self, _now: Time, _client: ClientId) {}
    fn try_admit(&mut self, _now: Time, _request: &Request, _site: &Site) -> bool {
        true
    }
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
