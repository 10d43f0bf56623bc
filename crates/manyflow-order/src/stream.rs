//! The records of a daemon's stream in a view that are held.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::names::{ClientId, Peer};
use crate::parts::Assembly;
use crate::wire::{Arrived, Part, is_from_client as is_message};

/// Bytes that a record counts besides its own.
const OVERHEAD_BYTES: usize = 64;

/// A record that not all daemons of the view are known to have.
#[derive(Clone, Debug)]
struct Held {
    record: Bytes,
    /// The message whose last part this is.
    whole: Option<Bytes>,
    /// The round of the record, once it is [applied](Stream::next_unapplied).
    round: u64,
    turn: Turn,
}

/// Whether a record waits for its turn in the one order.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// It does not: it is delivered, or concerns no client.
    None,
    /// It does.
    Agreed,
    /// It does, and also until all daemons of the view have it.
    Safe,
}

/// The stream of a daemon in a view. Its first records may have been dropped, because all daemons
/// have them.
///
/// ```text
///   base            cursor             applied            next
///    |  delivered      |   with rounds    |   without        |
/// ```
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) peer: Peer,
    /// The highest round that the daemon has closed: its later records belong to later rounds.
    pub(crate) closed: u64,
    /// All rounds up to this one have arrived at the daemon completely.
    pub(crate) received: u64,
    /// Whether records are missing that will no longer arrive, unless others send them.
    pub(crate) is_cut: bool,
    /// The number of the daemon's first state after this view, where the stream ends.
    pub(crate) end: Option<u64>,
    /// Everything that the records before this number depend on is here, too.
    pub(crate) sound: u64,
    base: u64,
    held: VecDeque<Held>,
    /// Index of the first record that may wait for its turn.
    cursor: usize,
    /// Index of the first record without a round.
    applied: usize,
    bytes: usize,
    /// How many of the records come from clients.
    messages: usize,
    /// How many records of clients belong to the open round.
    open_messages: usize,
    /// How many messages of a client wait for their turn.
    waiting: BTreeMap<ClientId, u32>,
    /// Messages of which parts have arrived.
    assemblies: BTreeMap<ClientId, Assembly>,
}

impl Stream {
    /// Returns a stream whose first record has number `base`.
    pub(crate) fn new(peer: Peer, base: u64) -> Stream {
        Stream {
            peer,
            closed: 0,
            received: 0,
            is_cut: false,
            end: None,
            sound: 0,
            base,
            held: VecDeque::new(),
            cursor: 0,
            applied: 0,
            bytes: 0,
            messages: 0,
            open_messages: 0,
            waiting: BTreeMap::new(),
            assemblies: BTreeMap::new(),
        }
    }

    /// Sets the number of the first record if it is not known yet.
    pub(crate) fn begin_at(&mut self, base: u64) {
        if self.next() == 0 {
            self.base = base;
        }
    }

    /// Returns the round of the daemon's next record.
    pub(crate) fn open_round(&self) -> u64 {
        // A daemon that lies can have closed the last one.
        self.closed.saturating_add(1)
    }

    /// Returns the number of the first record that is held.
    pub(crate) fn first(&self) -> u64 {
        self.base
    }

    /// Returns the number of the first record that has not arrived.
    pub(crate) fn next(&self) -> u64 {
        self.base + self.held.len() as u64
    }

    /// Returns what has arrived.
    pub(crate) fn arrived(&self) -> Arrived {
        Arrived {
            next: self.next(),
            sound: self.sound,
            is_cut: self.is_cut,
            is_complete: self.end == Some(self.next()),
        }
    }

    /// Returns the bytes of the records held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of records held.
    pub(crate) fn len(&self) -> usize {
        self.held.len()
    }

    /// Adds the next record. Its bytes may be empty if it concerns only the daemons' exchange.
    pub(crate) fn push(&mut self, record: Bytes) {
        self.bytes += OVERHEAD_BYTES + record.len();
        self.messages += usize::from(is_message(&record));
        self.held.push_back(Held {
            record,
            whole: None,
            round: 0,
            turn: Turn::None,
        });
    }

    /// Drops the records from number `end` on, except for those that have rounds: they may have
    /// been delivered, whatever other daemons say.
    pub(crate) fn truncate(&mut self, end: u64) {
        let end = end.max(self.base + self.applied as u64);
        while self.next() > end
            && let Some(held) = self.held.pop_back()
        {
            self.forget_record(&held.record);
        }
    }

    /// Returns a record that is held.
    pub(crate) fn record(&self, sequence: u64) -> Option<&Bytes> {
        let index = sequence.checked_sub(self.base)?;
        Some(&self.held.get(index as usize)?.record)
    }

    /// Adds the part of a message that is the first record without a round. Returns the message if
    /// it is complete.
    pub(crate) fn assemble(&mut self, part: &Part<'_>) -> Option<Bytes> {
        let assembly = self.assemblies.entry(part.client).or_default();
        let whole = assembly.add(part)?;
        self.assemblies.remove(&part.client);
        self.held[self.applied].whole = Some(whole.clone());
        Some(whole)
    }

    /// Returns the first record that has no round yet.
    pub(crate) fn next_unapplied(&self) -> Option<Bytes> {
        Some(self.held.get(self.applied)?.record.clone())
    }

    /// Gives the first record without a round its round.
    pub(crate) fn apply(&mut self, round: u64, turn: Turn, client: Option<ClientId>) {
        let held = &mut self.held[self.applied];
        (held.round, held.turn) = (round, turn);
        self.open_messages += usize::from(is_message(&held.record));
        self.applied += 1;
        if let Some(client) = client
            && turn != Turn::None
        {
            *self.waiting.entry(client).or_default() += 1;
        }
    }

    /// Applies a mark, which closes rounds, and says which have been received.
    pub(crate) fn apply_mark(&mut self, round: u64, received: u64) {
        let open = self.open_round();
        if round >= open {
            self.closed = round;
            self.open_messages = 0;
        }
        self.received = self.received.max(received);
        // A mark that closes no round has to be kept until a later one has arrived everywhere.
        let own = round.max(open);
        self.apply(own, Turn::None, None);
    }

    /// Returns whether a client has messages that wait for their turn.
    pub(crate) fn waits(&self, client: ClientId) -> bool {
        self.waiting.contains_key(&client)
    }

    /// Returns the round and kind of the first record that waits for its turn.
    pub(crate) fn head(&mut self) -> Option<(u64, Turn)> {
        while self.cursor < self.applied && self.held[self.cursor].turn == Turn::None {
            self.cursor += 1;
        }
        let held = self.held.get(self.cursor)?;
        (self.cursor < self.applied).then_some((held.round, held.turn))
    }

    /// Takes the [head](Stream::head), with its number.
    pub(crate) fn pop(&mut self) -> Option<(u64, Bytes)> {
        self.head()?;
        let sequence = self.base + self.cursor as u64;
        let held = &mut self.held[self.cursor];
        held.turn = Turn::None;
        self.cursor += 1;
        let record = held.whole.take().unwrap_or_else(|| held.record.clone());
        Some((sequence, record))
    }

    /// Notes that a client's message has had its turn.
    pub(crate) fn had_turn(&mut self, client: ClientId) {
        if let Some(count) = self.waiting.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&client);
            }
        }
    }

    /// Drops the records that have had their turn and belong to rounds that all daemons have.
    pub(crate) fn forget(&mut self, stable: u64) {
        while self.cursor > 0
            && let Some(held) = self.held.front()
            && held.round <= stable
            && let Some(held) = self.held.pop_front()
        {
            self.forget_record(&held.record);
            self.base += 1;
            self.cursor -= 1;
            self.applied -= 1;
        }
    }

    /// Returns whether records of clients are held.
    pub(crate) fn holds_messages(&self) -> bool {
        self.messages > 0
    }

    /// Returns whether a record of a client belongs to the open round.
    pub(crate) fn holds_open(&self) -> bool {
        self.open_messages > 0
    }

    fn forget_record(&mut self, record: &[u8]) {
        self.bytes -= OVERHEAD_BYTES + record.len();
        self.messages -= usize::from(is_message(record));
    }
}
