//! The records in a daemon's stream. All integers are in network order; a name is its length in one
//! byte and UTF-8.
//!
//! ```text
//!   Data       1 | service, discard | kind: 2 | client: 4 | count: 1 | names of groups | the payload ...
//!   Hello      2 | client: 4 | name
//!   Bye        3 | client: 4
//!   Join       4 | client: 4 | name
//!   Leave      5 | client: 4 | name
//!   Mark       6 | round: 8 | received: 8
//!   State      7 | incarnation: 4 | attempt: 4 | first: 8 | rosters: 2 | previous: 12
//!                | count: 2 | daemon: 2, incarnation: 4 each
//!                | count: 2 | next: 8, sound: 8, flags: 1 each
//!   Roster     8 | client: 4 | name | count: 2 | names of groups | the next client ...
//!   Recover    9 | view: 12 | origin: 2 | sequence: 8 | a record ...
//!   Ready     10 | view: 12
//!   Part      11 | client: 4 | last: 1 | a part of a record ...
//! ```
//!
//! A record that is longer than the overlay's messages can be is sent in parts, one after the other
//! among the records of its client. Client 0 stands for the daemon itself.

use core::str;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use manyflow_overlay::DaemonId;

use crate::names::{ClientId, Peer, Service, ViewId};

const DATA: u8 = 1;
const HELLO: u8 = 2;
const BYE: u8 = 3;
const JOIN: u8 = 4;
const LEAVE: u8 = 5;
const MARK: u8 = 6;
const STATE: u8 = 7;
const ROSTER: u8 = 8;
const RECOVER: u8 = 9;
const READY: u8 = 10;
const PART: u8 = 11;

/// The flag of a message that its sender does not receive itself.
const DISCARD: u8 = 0x80;

/// Bytes of the longest message, the names of its groups included.
pub const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Bytes of the longest name.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// Bytes of [`Record::Recover`] before the record that it carries.
pub(crate) const RECOVER_BYTES: usize = 23;

/// Bytes of a part before its contents.
pub(crate) const PART_BYTES: usize = 6;

/// Bytes at which a roster record is full.
const ROSTER_BYTES: usize = 32 << 10;

/// A record in the stream of a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A client's message.
    Data(Data<'a>),
    /// A client has connected.
    Hello { client: ClientId, name: &'a str },
    /// A client has disconnected.
    Bye { client: ClientId },
    /// A client joins a group.
    Join { client: ClientId, group: &'a str },
    /// A client leaves a group.
    Leave { client: ClientId, group: &'a str },
    /// The daemon closes its rounds up to `round`, and has received all daemons' rounds up to
    /// `received`.
    Mark { round: u64, received: u64 },
    /// The things that the daemon brings into the next view, and the daemons with which it wants to
    /// enter it.
    State(State),
    /// Clients of the daemon and their groups.
    Roster(Roster<'a>),
    /// A record of another daemon's stream, for those that lack it.
    Recover(Recover<'a>),
    /// A part of a longer record.
    Part(Part<'a>),
    /// The daemon is ready to enter this view.
    Ready { view: ViewId },
}

/// A client's message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Data<'a> {
    pub(crate) service: Service,
    /// Whether the sender does not want it.
    pub(crate) discard: bool,
    pub(crate) kind: i16,
    pub(crate) client: ClientId,
    pub(crate) groups: Names<'a>,
    pub(crate) payload: &'a [u8],
}

/// The things that a daemon brings into the next view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) incarnation: u32,
    /// Higher with each state of the daemon, and than each attempt that it has seen.
    pub(crate) attempt: u32,
    /// The number of the daemon's first state after its present view, at which its messages in this
    /// view end; 0 if it is this one.
    pub(crate) first: u64,
    /// How many roster records precede the state.
    pub(crate) rosters: u16,
    /// The daemon's present view.
    pub(crate) previous: ViewId,
    /// Those with whom the daemon wants to enter the next view, in ascending order.
    pub(crate) peers: Vec<Peer>,
    /// For each member of the present view, in ascending order: what has arrived of its stream.
    pub(crate) arrived: Vec<Arrived>,
}

/// Returns whether a record comes from a client.
pub(crate) fn is_from_client(record: &[u8]) -> bool {
    let kind = record.first();
    kind.is_some_and(|kind| (DATA..=LEAVE).contains(kind) || *kind == PART)
}

/// Returns whether a record can concern the daemons' exchange: it comes from a daemon, is not a
/// mark, or is no record.
pub(crate) fn is_of_exchange(record: &[u8]) -> bool {
    match record {
        [DATA..=MARK, ..] => false,
        [PART, client @ ..] => client.starts_with(&0u32.to_be_bytes()),
        _ => true,
    }
}

/// Returns the service of a client's message, and the client. They have fixed places, so that the
/// rest of a message need be decoded only when it is delivered.
pub(crate) fn data_head(record: &[u8]) -> Option<(Service, ClientId)> {
    let (head, _) = record.split_first_chunk::<8>()?;
    let [DATA, service, _, _, client @ ..] = *head else {
        return None;
    };
    let service = Service::ALL.get(usize::from(service & !DISCARD))?;
    Some((*service, ClientId(u32::from_be_bytes(client))))
}

/// Returns the client of a record, and whether the record has a place in the one order.
pub(crate) fn sender(record: &[u8]) -> (ClientId, bool) {
    if let Some((service, client)) = data_head(record) {
        return (client, service.is_ordered());
    }
    match Record::decode(record) {
        Some(change) => (change.client().unwrap_or_default(), true),
        None => (ClientId::default(), true),
    }
}

/// The part of a stream that has arrived.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// The first record that has not arrived.
    pub(crate) next: u64,
    /// The daemon also has everything that the records before this one depend on: it was ready to
    /// enter a view together with those who sent them.
    pub(crate) sound: u64,
    /// Whether records are missing that will no longer arrive.
    pub(crate) is_cut: bool,
    /// Whether all records of the view have arrived.
    pub(crate) is_complete: bool,
}

/// Flags of [`Arrived`].
const CUT: u8 = 1;
const COMPLETE: u8 = 2;

/// A part of a longer record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    /// The client that sends the record; 0 if it is the daemon's own.
    pub(crate) client: ClientId,
    pub(crate) is_last: bool,
    pub(crate) bytes: &'a [u8],
}

/// A record of another daemon's stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recover<'a> {
    pub(crate) view: ViewId,
    pub(crate) origin: DaemonId,
    pub(crate) sequence: u64,
    pub(crate) record: &'a [u8],
}

/// Names of groups, one after the other: checked when they were decoded.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Names<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Names<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        take_name(&mut self.0)
    }
}

/// The clients in a roster record.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Roster<'a>(&'a [u8]);

impl<'a> Iterator for Roster<'a> {
    type Item = (ClientId, &'a str, Names<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let client = ClientId(self.0.try_get_u32().ok()?);
        let name = take_name(&mut self.0)?;
        let count = self.0.try_get_u16().ok()?;
        let names = take_names(&mut self.0, count.into())?;
        Some((client, name, names))
    }
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn take_name<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let length = bytes.try_get_u8().ok()?;
    let name = take(bytes, length.into())?;
    str::from_utf8(name).ok().filter(|name| !name.is_empty())
}

fn take_names<'a>(bytes: &mut &'a [u8], count: usize) -> Option<Names<'a>> {
    let begin = *bytes;
    for _ in 0..count {
        take_name(bytes)?;
    }
    Some(Names(&begin[..begin.len() - bytes.len()]))
}

fn take_view(bytes: &mut &[u8]) -> Option<ViewId> {
    let counter = bytes.try_get_u32().ok()?;
    let hash = bytes.try_get_u64().ok()?;
    Some(ViewId { counter, hash })
}

fn take_state(bytes: &mut &[u8]) -> Option<State> {
    let mut state = State {
        incarnation: bytes.try_get_u32().ok()?,
        attempt: bytes.try_get_u32().ok()?,
        first: bytes.try_get_u64().ok()?,
        rosters: bytes.try_get_u16().ok()?,
        previous: take_view(bytes)?,
        ..State::default()
    };
    for _ in 0..bytes.try_get_u16().ok()? {
        let daemon = DaemonId(bytes.try_get_u16().ok()?);
        let incarnation = bytes.try_get_u32().ok()?;
        state.peers.push(Peer {
            daemon,
            incarnation,
        });
    }
    for _ in 0..bytes.try_get_u16().ok()? {
        let next = bytes.try_get_u64().ok()?;
        let sound = bytes.try_get_u64().ok()?;
        let flags = bytes.try_get_u8().ok()?;
        state.arrived.push(Arrived {
            next,
            sound,
            is_cut: flags & CUT != 0,
            is_complete: flags & COMPLETE != 0,
        });
    }
    let ascending = state.peers.is_sorted_by(|a, b| a.daemon < b.daemon);
    ascending.then_some(state)
}

fn take_data<'a>(bytes: &mut &'a [u8]) -> Option<Data<'a>> {
    let first = bytes.try_get_u8().ok()?;
    let service = *Service::ALL.get(usize::from(first & !DISCARD))?;
    let kind = bytes.try_get_i16().ok()?;
    let client = ClientId(bytes.try_get_u32().ok()?);
    let count = bytes.try_get_u8().ok()?;
    let groups = take_names(bytes, count.into())?;
    let payload = core::mem::take(bytes);
    Some(Data {
        service,
        discard: first & DISCARD != 0,
        kind,
        client,
        groups,
        payload,
    })
}

impl<'a> Record<'a> {
    /// Decodes a record; `None` unless the bytes are one, and nothing else.
    pub(crate) fn decode(mut bytes: &'a [u8]) -> Option<Record<'a>> {
        let kind = bytes.try_get_u8().ok()?;
        let record = match kind {
            DATA => Record::Data(take_data(&mut bytes)?),
            HELLO..=LEAVE => take_change(kind, &mut bytes)?,
            MARK => Record::Mark {
                round: bytes.try_get_u64().ok()?,
                received: bytes.try_get_u64().ok()?,
            },
            STATE => Record::State(take_state(&mut bytes)?),
            ROSTER => {
                let mut roster = Roster(core::mem::take(&mut bytes));
                let all = roster;
                roster.by_ref().for_each(drop);
                if !roster.0.is_empty() {
                    return None;
                }
                Record::Roster(all)
            }
            RECOVER => Record::Recover(Recover {
                view: take_view(&mut bytes)?,
                origin: DaemonId(bytes.try_get_u16().ok()?),
                sequence: bytes.try_get_u64().ok()?,
                record: core::mem::take(&mut bytes),
            }),
            READY => Record::Ready {
                view: take_view(&mut bytes)?,
            },
            PART => Record::Part(Part {
                client: ClientId(bytes.try_get_u32().ok()?),
                is_last: bytes.try_get_u8().ok()? != 0,
                bytes: core::mem::take(&mut bytes),
            }),
            _ => return None,
        };
        bytes.is_empty().then_some(record)
    }

    /// Returns the client whose message or request this is.
    pub(crate) fn client(&self) -> Option<ClientId> {
        match self {
            Record::Data(data) => Some(data.client),
            Record::Hello { client, .. }
            | Record::Bye { client }
            | Record::Join { client, .. }
            | Record::Leave { client, .. } => Some(*client),
            _ => None,
        }
    }

    /// Encodes the record.
    pub(crate) fn encode(&self) -> Bytes {
        let mut to = BytesMut::new();
        match self {
            Record::Data(data) => put_data(&mut to, data),
            Record::Hello { client, name } => put_change(&mut to, HELLO, *client, Some(name)),
            Record::Bye { client } => put_change(&mut to, BYE, *client, None),
            Record::Join { client, group } => put_change(&mut to, JOIN, *client, Some(group)),
            Record::Leave { client, group } => put_change(&mut to, LEAVE, *client, Some(group)),
            Record::Mark { round, received } => {
                to.put_u8(MARK);
                to.put_u64(*round);
                to.put_u64(*received);
            }
            Record::State(state) => put_state(&mut to, state),
            Record::Roster(roster) => {
                to.put_u8(ROSTER);
                to.put_slice(roster.0);
            }
            Record::Recover(recover) => {
                to.reserve(RECOVER_BYTES + recover.record.len());
                to.put_u8(RECOVER);
                put_view(&mut to, recover.view);
                to.put_u16(recover.origin.0);
                to.put_u64(recover.sequence);
                to.put_slice(recover.record);
            }
            Record::Part(part) => {
                to.reserve(PART_BYTES + part.bytes.len());
                to.put_u8(PART);
                to.put_u32(part.client.0);
                to.put_u8(part.is_last.into());
                to.put_slice(part.bytes);
            }
            Record::Ready { view } => {
                to.put_u8(READY);
                put_view(&mut to, *view);
            }
        }
        to.freeze()
    }
}

fn take_change<'a>(kind: u8, bytes: &mut &'a [u8]) -> Option<Record<'a>> {
    let client = ClientId(bytes.try_get_u32().ok()?);
    if kind == BYE {
        return Some(Record::Bye { client });
    }
    let name = take_name(bytes)?;
    Some(match kind {
        HELLO => Record::Hello { client, name },
        JOIN => Record::Join {
            client,
            group: name,
        },
        _ => Record::Leave {
            client,
            group: name,
        },
    })
}

fn put_name(to: &mut BytesMut, name: &str) {
    debug_assert!(
        (1..=NAME_BYTES_MAX).contains(&name.len()),
        "the length of a name"
    );
    to.put_u8(name.len() as u8);
    to.put_slice(name.as_bytes());
}

fn put_view(to: &mut BytesMut, view: ViewId) {
    to.put_u32(view.counter);
    to.put_u64(view.hash);
}

fn put_change(to: &mut BytesMut, kind: u8, client: ClientId, name: Option<&str>) {
    to.put_u8(kind);
    to.put_u32(client.0);
    if let Some(name) = name {
        put_name(to, name);
    }
}

fn put_state(to: &mut BytesMut, state: &State) {
    to.put_u8(STATE);
    to.put_u32(state.incarnation);
    to.put_u32(state.attempt);
    to.put_u64(state.first);
    to.put_u16(state.rosters);
    put_view(to, state.previous);
    to.put_u16(state.peers.len() as u16);
    for peer in &state.peers {
        to.put_u16(peer.daemon.0);
        to.put_u32(peer.incarnation);
    }
    to.put_u16(state.arrived.len() as u16);
    for arrived in &state.arrived {
        to.put_u64(arrived.next);
        to.put_u64(arrived.sound);
        let cut = if arrived.is_cut { CUT } else { 0 };
        let complete = if arrived.is_complete { COMPLETE } else { 0 };
        to.put_u8(cut | complete);
    }
}

fn put_data(to: &mut BytesMut, data: &Data<'_>) {
    to.reserve(16 + data.groups.0.len() + data.payload.len());
    to.put_u8(DATA);
    to.put_u8(data.service as u8 | if data.discard { DISCARD } else { 0 });
    to.put_i16(data.kind);
    to.put_u32(data.client.0);
    to.put_u8(data.groups.count() as u8);
    to.put_slice(data.groups.0);
    to.put_slice(data.payload);
}

/// Encodes names for [`Names`].
pub(crate) fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> BytesMut {
    let mut to = BytesMut::new();
    for name in names {
        put_name(&mut to, name);
    }
    to
}

/// Encodes the clients of a daemon and their groups as records that are not much longer than
/// [`ROSTER_BYTES`].
pub(crate) fn rosters<'a, G>(
    clients: impl Iterator<Item = (ClientId, &'a str, G)>,
    mut emit: impl FnMut(Bytes),
) where
    G: Iterator<Item = &'a str>,
{
    let mut to = BytesMut::new();
    for (client, name, groups) in clients {
        let mut groups = groups.peekable();
        loop {
            if to.is_empty() {
                to.put_u8(ROSTER);
            }
            to.put_u32(client.0);
            put_name(&mut to, name);
            let count_at = to.len();
            to.put_u16(0);
            let mut count = 0u16;
            while to.len() < ROSTER_BYTES
                && let Some(group) = groups.next()
            {
                put_name(&mut to, group);
                count += 1;
            }
            to[count_at..count_at + 2].copy_from_slice(&count.to_be_bytes());
            if to.len() >= ROSTER_BYTES {
                emit(to.split().freeze());
            }
            if groups.peek().is_none() {
                break;
            }
        }
    }
    if !to.is_empty() {
        emit(to.freeze());
    }
}

#[cfg(test)]
mod tests;
