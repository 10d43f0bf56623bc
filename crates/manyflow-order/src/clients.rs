//! The clients of this daemon, their requests and messages.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::names::{ClientId, Service};
use crate::wire::{self, Data, MESSAGE_BYTES_MAX, NAME_BYTES_MAX, Names, Record};

/// Bytes of a message besides its payload and the names of its groups.
const HEADER_BYTES: usize = 9;

/// The number of groups that a message can be for.
pub const GROUPS_MAX: usize = 255;

/// A message that a client sends.
#[derive(Copy, Clone, Debug)]
pub struct Outgoing<'a> {
    /// The service.
    pub service: Service,
    /// The groups, 1 to [`GROUPS_MAX`]. The name of a client stands for that client alone.
    pub groups: &'a [&'a str],
    /// A number that means nothing to daemons.
    pub kind: i16,
    /// Whether the sender does not want the message itself.
    pub self_discard: bool,
    /// The contents.
    pub payload: &'a [u8],
}

/// A request of a client that cannot be met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// There is no such client.
    #[error("client {} is not connected", .0.0)]
    NotConnected(ClientId),
    /// A name is too long, or empty.
    #[error("a name has 1 to 255 bytes, not {0}")]
    NameLength(usize),
    /// Another client of this daemon has this name.
    #[error("the name {0} is taken")]
    NameTaken(String),
    /// A message is for no group, or for too many.
    #[error("a message is for 1 to {GROUPS_MAX} groups, not {0}")]
    Groups(usize),
    /// A message is too long.
    #[error("{length} bytes are too many: messages to these groups have at most {limit}")]
    Length {
        /// The bytes of the payload.
        length: usize,
        /// The bytes that a payload to these groups can have.
        limit: usize,
    },
}

/// A change that a client has asked for.
#[derive(Debug)]
enum Request {
    Hello(ClientId, Arc<str>),
    Bye(ClientId),
    Join(ClientId, Arc<str>),
    Leave(ClientId, Arc<str>),
}

/// A client of this daemon, as its records in the daemon's stream say.
#[derive(Debug)]
struct Entered {
    name: Arc<str>,
    groups: BTreeSet<Arc<str>>,
}

/// The clients of this daemon.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    last: ClientId,
    connected: BTreeMap<ClientId, Arc<str>>,
    names: BTreeSet<Arc<str>>,
    entered: BTreeMap<ClientId, Entered>,
    /// Requests whose records have not been sent.
    requests: VecDeque<Request>,
}

impl Clients {
    pub(crate) fn is_connected(&self, client: ClientId) -> bool {
        self.connected.contains_key(&client)
    }

    /// Returns the number of clients and requests.
    pub(crate) fn len(&self) -> usize {
        self.entered.len() + self.requests.len()
    }

    pub(crate) fn connect(&mut self, name: &str) -> Result<ClientId, RequestError> {
        check_name(name)?;
        let name: Arc<str> = name.into();
        if !self.names.insert(Arc::clone(&name)) {
            return Err(RequestError::NameTaken(name.as_ref().to_owned()));
        }
        self.last.0 += 1;
        self.connected.insert(self.last, Arc::clone(&name));
        self.requests.push_back(Request::Hello(self.last, name));
        Ok(self.last)
    }

    pub(crate) fn disconnect(&mut self, client: ClientId) {
        if let Some(name) = self.connected.remove(&client) {
            self.names.remove(&name);
            self.requests.push_back(Request::Bye(client));
        }
    }

    pub(crate) fn join(&mut self, client: ClientId, group: &str) -> Result<(), RequestError> {
        self.check(client)?;
        check_name(group)?;
        self.requests.push_back(Request::Join(client, group.into()));
        Ok(())
    }

    pub(crate) fn leave(&mut self, client: ClientId, group: &str) -> Result<(), RequestError> {
        self.check(client)?;
        check_name(group)?;
        let request = Request::Leave(client, group.into());
        self.requests.push_back(request);
        Ok(())
    }

    pub(crate) fn message(
        &self,
        client: ClientId,
        send: &Outgoing<'_>,
    ) -> Result<Bytes, RequestError> {
        self.check(client)?;
        if !(1..=GROUPS_MAX).contains(&send.groups.len()) {
            return Err(RequestError::Groups(send.groups.len()));
        }
        send.groups.iter().try_for_each(|group| check_name(group))?;
        let groups = wire::names(send.groups.iter().copied());
        let limit = MESSAGE_BYTES_MAX - HEADER_BYTES - groups.len();
        let length = send.payload.len();
        if length > limit {
            return Err(RequestError::Length { length, limit });
        }
        let data = Data {
            service: send.service,
            discard: send.self_discard,
            kind: send.kind,
            client,
            groups: Names(&groups),
            payload: send.payload,
        };
        Ok(Record::Data(data).encode())
    }

    /// Returns the record of the next request. From now on, it counts for
    /// [`rosters`](Clients::rosters).
    pub(crate) fn enter_next(&mut self) -> Option<Bytes> {
        let request = self.requests.pop_front()?;
        let record = request.record().encode();
        match request {
            Request::Hello(client, name) => {
                let groups = BTreeSet::new();
                self.entered.insert(client, Entered { name, groups });
            }
            Request::Bye(client) => {
                self.entered.remove(&client);
            }
            Request::Join(client, group) => {
                if let Some(entered) = self.entered.get_mut(&client) {
                    entered.groups.insert(group);
                }
            }
            Request::Leave(client, group) => {
                if let Some(entered) = self.entered.get_mut(&client) {
                    entered.groups.remove(&group);
                }
            }
        }
        Some(record)
    }

    /// Encodes the clients and their groups, as the daemon's stream says so far.
    pub(crate) fn rosters(&self, emit: impl FnMut(Bytes)) {
        let all = self.entered.iter().map(|(client, entered)| {
            let groups = entered.groups.iter().map(Arc::as_ref);
            (*client, entered.name.as_ref(), groups)
        });
        wire::rosters(all, emit);
    }

    fn check(&self, client: ClientId) -> Result<(), RequestError> {
        match self.is_connected(client) {
            true => Ok(()),
            false => Err(RequestError::NotConnected(client)),
        }
    }
}

impl Request {
    fn record(&self) -> Record<'_> {
        match self {
            Request::Hello(client, name) => {
                let (client, name) = (*client, name.as_ref());
                Record::Hello { client, name }
            }
            Request::Bye(client) => Record::Bye { client: *client },
            Request::Join(client, group) => {
                let (client, group) = (*client, group.as_ref());
                Record::Join { client, group }
            }
            Request::Leave(client, group) => {
                let (client, group) = (*client, group.as_ref());
                Record::Leave { client, group }
            }
        }
    }
}

fn check_name(name: &str) -> Result<(), RequestError> {
    match (1..=NAME_BYTES_MAX).contains(&name.len()) {
        true => Ok(()),
        false => Err(RequestError::NameLength(name.len())),
    }
}
