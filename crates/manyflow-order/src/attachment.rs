//! An [`Orderer`] at work in a daemon of the overlay: the part of a driver that has no sockets.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use manyflow_core::time::Time;
use manyflow_core::{ConfigError, Contents};
use manyflow_overlay::{self as overlay, ClientFrame, Cut, Daemon, DaemonId, GroupId};

use crate::clients::{Outgoing, RequestError};
use crate::config::OrderConfig;
use crate::event::Event;
use crate::names::{ClientId, Peer};
use crate::orderer::Orderer;
use crate::parts::is_last_part;

/// The payload of a daemon's messages, which can be a record of a stream.
pub trait Carrier: Cut + Default + PartialEq {
    /// Returns a payload that is a record.
    fn from_record(record: Bytes) -> Self;

    /// Returns the record; it is empty if the payload has no bytes.
    fn into_record(self) -> Bytes;
}

impl Carrier for Bytes {
    fn from_record(record: Bytes) -> Bytes {
        record
    }

    fn into_record(self) -> Bytes {
        self
    }
}

impl Carrier for Contents {
    fn from_record(record: Bytes) -> Contents {
        Contents::from(&record[..])
    }

    fn into_record(self) -> Bytes {
        Bytes::copy_from_slice(self.bytes().unwrap_or_default())
    }
}

/// A client in ordered groups.
#[derive(Debug)]
struct User {
    /// The client of the overlay by which its messages enter.
    client: overlay::ClientId,
    /// Parts of messages that have not entered.
    pending: VecDeque<Bytes>,
    /// Whether the daemon has a part that has not entered.
    is_sending: bool,
    /// Whether that part is the last of its message.
    is_last: bool,
    /// Whether some parts of a message have entered, and others not.
    is_amid: bool,
}

/// An [`Orderer`] attached to a daemon.
///
/// All daemons with ordered clients are members of one group of the overlay, which carries their
/// streams. A client's messages enter under flow control, by a client of the overlay of its own.
/// Records of the orderer itself enter at once. While the daemons are on their way to another view,
/// the group is held: no message enters, except for the rest of one of which parts have entered.
///
/// After each call of a method, and after each change at the daemon, call
/// [`update_peers`](Attachment::update_peers), drain [`poll_event`](Attachment::poll_event), call
/// [`transmit`](Attachment::transmit), and repeat this until there was nothing to do.
#[derive(Debug)]
pub struct Attachment {
    orderer: Orderer,
    here: DaemonId,
    /// The client of the overlay that stands for the orderer.
    client: overlay::ClientId,
    group: GroupId,
    /// The versions of members and topology for which the orderer knows its peers.
    seen: Option<(u64, u64)>,
    users: BTreeMap<ClientId, User>,
}

impl Attachment {
    /// Attaches an orderer to daemon number `here`. `client` is a client of the daemon that joins
    /// `group`, which carries the streams; its messages go to
    /// [`handle_message`](Attachment::handle_message).
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn new<P: Carrier>(
        config: OrderConfig,
        daemon: &Daemon<P>,
        here: DaemonId,
        client: overlay::ClientId,
        group: GroupId,
    ) -> Result<Attachment, ConfigError> {
        Ok(Attachment {
            orderer: Orderer::new(config, here, daemon.incarnation())?,
            here,
            client,
            group,
            seen: None,
            users: BTreeMap::new(),
        })
    }

    /// Returns the orderer.
    pub fn orderer(&self) -> &Orderer {
        &self.orderer
    }

    /// Returns the client of the overlay that stands for the orderer.
    pub fn client(&self) -> overlay::ClientId {
        self.client
    }

    /// Returns the group of the overlay that carries the streams.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Connects a client, as [`Orderer::connect`] does. Returns it, and the client of the overlay
    /// by which its messages enter; the frames [`ClientFrame::Ready`] to that one go to
    /// [`handle_ready`](Attachment::handle_ready).
    ///
    /// # Errors
    /// Returns an error if the name is not one, or is taken.
    pub fn connect<P: Carrier>(
        &mut self,
        now: Time,
        daemon: &mut Daemon<P>,
        name: &str,
        priority: u16,
    ) -> Result<(ClientId, overlay::ClientId), RequestError> {
        let user = self.orderer.connect(now, name)?;
        let client = daemon.connect(now, priority);
        let connected = User {
            client,
            pending: VecDeque::new(),
            is_sending: false,
            is_last: true,
            is_amid: false,
        };
        self.users.insert(user, connected);
        Ok((user, client))
    }

    /// Disconnects a client, which leaves all of its groups. Its messages that have not entered
    /// vanish. Returns its client of the overlay, if it was connected.
    pub fn disconnect<P: Carrier>(
        &mut self,
        now: Time,
        daemon: &mut Daemon<P>,
        user: ClientId,
    ) -> Option<overlay::ClientId> {
        // Others must not wait for the rest of a message.
        self.finish(now, daemon, user);
        self.orderer.disconnect(now, user);
        let gone = self.users.remove(&user)?;
        let frame = ClientFrame::Disconnect;
        daemon.handle_client(now, gone.client, &frame, P::default());
        Some(gone.client)
    }

    /// Lets a client join a group.
    ///
    /// # Errors
    /// Returns an error if the client is unknown, or the name is not one.
    pub fn join(&mut self, now: Time, user: ClientId, group: &str) -> Result<(), RequestError> {
        self.orderer.join(now, user, group)
    }

    /// Lets a client leave a group.
    ///
    /// # Errors
    /// Returns an error if the client is unknown, or the name is not one.
    pub fn leave(&mut self, now: Time, user: ClientId, group: &str) -> Result<(), RequestError> {
        self.orderer.leave(now, user, group)
    }

    /// Sends a message of a client when flow control admits it.
    ///
    /// # Errors
    /// Returns an error if the client is unknown, a name is not one, or the message is too long.
    pub fn send<P: Carrier>(
        &mut self,
        now: Time,
        daemon: &mut Daemon<P>,
        user: ClientId,
        message: &Outgoing<'_>,
    ) -> Result<(), RequestError> {
        let record = self.orderer.message(user, message)?;
        if let Some(sender) = self.users.get_mut(&user) {
            sender.pending.extend(self.orderer.parts(user, &record));
            sender.send_next(now, daemon, self.group);
        }
        Ok(())
    }

    /// Handles the entry of a part of a client's message. Returns whether this was the last part of
    /// all its messages.
    pub fn handle_ready<P: Carrier>(
        &mut self,
        now: Time,
        daemon: &mut Daemon<P>,
        user: ClientId,
    ) -> bool {
        let Some(sender) = self.users.get_mut(&user) else {
            return false;
        };
        if !sender.is_sending {
            return false;
        }
        sender.is_sending = false;
        sender.is_amid = !sender.is_last;
        sender.send_next(now, daemon, self.group);
        !sender.is_sending
    }

    /// Handles a record of a daemon's stream, which the daemon has delivered to
    /// [`client`](Attachment::client).
    pub fn handle_message<P: Carrier>(
        &mut self,
        now: Time,
        origin: DaemonId,
        data: &overlay::Data,
        payload: P,
    ) {
        let (sequence, record) = (data.sequence.number(), payload.into_record());
        self.orderer.handle_message(now, origin, sequence, record);
    }

    /// Handles all timers that are due at `now`. Spurious calls do nothing.
    pub fn handle_timeout(&mut self, now: Time) {
        self.orderer.handle_timeout(now);
    }

    /// Returns when [`handle_timeout`](Attachment::handle_timeout) is wanted next, if at all.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.orderer.poll_timeout()
    }

    /// Returns the next event for a client.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.orderer.poll_event()
    }

    /// Passes on which daemons take part and can be reached, if that has changed. Returns whether
    /// it has.
    pub fn update_peers<P: Carrier>(&mut self, now: Time, daemon: &Daemon<P>) -> bool {
        let incarnation = daemon.incarnation();
        if incarnation != self.orderer.here().incarnation {
            return self.begin_incarnation(now, incarnation);
        }
        let versions = (daemon.members_version(), daemon.topology_version());
        if self.seen.replace(versions) == Some(versions) {
            return false;
        }
        let here = self.here;
        let members = daemon.members(self.group).map(|(daemon, _)| daemon);
        let reached = members.filter(|at| *at == here || daemon.topology().contains(*at));
        let peers = reached.filter_map(|at| {
            let incarnation = daemon.incarnation_of(at)?;
            Some(Peer {
                daemon: at,
                incarnation,
            })
        });
        let peers: Vec<Peer> = peers.collect();
        if peers.iter().any(|peer| peer.daemon == here) {
            self.orderer.handle_peers(now, &peers);
        }
        true
    }

    /// Follows the daemon into a later incarnation: others have known one, and outbid it. To them,
    /// this is another daemon, so the orderer leaves its view first. Returns whether there was
    /// anything to do.
    fn begin_incarnation(&mut self, now: Time, incarnation: u32) -> bool {
        let is_first = self.seen.take().is_some();
        if is_first {
            let here = self.orderer.here();
            self.orderer.handle_peers(now, &[here]);
        }
        is_first | self.orderer.begin_incarnation(incarnation)
    }

    /// Sends the records of the orderer. Returns whether there were any.
    pub fn transmit<P: Carrier>(&mut self, now: Time, daemon: &mut Daemon<P>) -> bool {
        let mut any = false;
        if !self.orderer.is_open() {
            daemon.set_held(now, self.group, true);
            let amid = self.users.iter().filter(|(_, user)| user.is_amid);
            let amid: Vec<ClientId> = amid.map(|(id, _)| *id).collect();
            for user in amid {
                self.finish(now, daemon, user);
                any = true;
            }
        }
        while daemon.has_room()
            && let Some(record) = self.orderer.poll_transmit()
        {
            daemon.send_at_once(now, self.client, self.group, P::from_record(record));
            any = true;
        }
        let must_wait = !self.orderer.is_open() || self.orderer.has_to_transmit();
        any | daemon.set_held(now, self.group, must_wait)
    }

    /// Sends the rest of a message at once of which some parts have entered.
    fn finish<P: Carrier>(&mut self, now: Time, daemon: &mut Daemon<P>, user: ClientId) {
        let Some(user) = self.users.get_mut(&user) else {
            return;
        };
        if !user.is_amid {
            return;
        }
        while user.is_amid {
            let waiting = user.is_sending.then(|| daemon.take_waiting(user.client));
            user.is_sending = false;
            let waiting = waiting.flatten().map(P::into_record);
            let Some(part) = waiting.or_else(|| user.pending.pop_front()) else {
                return;
            };
            user.is_amid = !is_last_part(&part);
            daemon.send_at_once(now, self.client, self.group, P::from_record(part));
        }
        user.send_next(now, daemon, self.group);
    }
}

impl User {
    /// Hands the next part to the daemon, if the last has entered.
    fn send_next<P: Carrier>(&mut self, now: Time, daemon: &mut Daemon<P>, group: GroupId) {
        if self.is_sending {
            return;
        }
        let Some(part) = self.pending.pop_front() else {
            return;
        };
        self.is_sending = true;
        self.is_last = is_last_part(&part);
        let frame = ClientFrame::Send {
            groups: group.into(),
            sent_us: (now - Time::ZERO).as_micros() as u32,
            layered: false,
        };
        daemon.handle_client(now, self.client, &frame, P::from_record(part));
    }
}
