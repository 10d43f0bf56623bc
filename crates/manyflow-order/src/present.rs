//! The present view: the streams of its daemons, and the one order of their messages.
//!
//! Each stream is divided into rounds by the marks of its daemon. A record belongs to the round
//! after the last one that its daemon has closed. The order is: by round, then by daemon, then by
//! number. A round is *complete* when all daemons have closed it, so that nothing can be added to
//! it, and *stable* when all daemons have said that it is complete.

use bytes::Bytes;
use manyflow_overlay::DaemonId;

use crate::names::{ClientId, Peer, Service, ViewId};
use crate::stream::{Stream, Turn};
use crate::wire::{Record, data_head};

/// The present view of a daemon.
#[derive(Debug)]
pub(crate) struct Present {
    pub(crate) id: ViewId,
    /// The streams of the view's daemons, in the order of their numbers.
    pub(crate) streams: Vec<Stream>,
    /// The index of this daemon's own stream.
    pub(crate) own: usize,
    /// The round and the stream whose turn it is.
    turn: (u64, usize),
    /// How many messages wait until they are safe.
    safe_waiting: usize,
    is_closing: bool,
}

/// The consequence of a record that has just got its round.
#[derive(Debug)]
pub(crate) enum Applied {
    /// Nothing: it concerns no client.
    Nothing,
    /// It waits for its turn.
    Wait,
    /// A client has connected.
    Hello,
    /// A message that does not wait for its turn.
    Deliver,
}

/// A message whose turn has come.
#[derive(Debug)]
pub(crate) struct Due {
    /// The index of its stream.
    pub(crate) index: usize,
    pub(crate) round: u64,
    /// The number of its last record in the stream.
    pub(crate) sequence: u64,
    pub(crate) record: Bytes,
}

impl Present {
    /// Returns a view of daemons whose streams begin at these numbers.
    pub(crate) fn new(id: ViewId, here: DaemonId, members: &[(Peer, u64)]) -> Present {
        let streams: Vec<Stream> = members
            .iter()
            .map(|(peer, base)| Stream::new(*peer, *base))
            .collect();
        let own = streams
            .iter()
            .position(|stream| stream.peer.daemon == here)
            .unwrap_or(0);
        debug_assert!(
            streams[own].peer.daemon == here,
            "a view without its daemon"
        );
        Present {
            id,
            streams,
            own,
            turn: (0, usize::MAX),
            safe_waiting: 0,
            is_closing: false,
        }
    }

    /// Returns the index of a daemon's stream.
    pub(crate) fn index(&self, daemon: DaemonId) -> Option<usize> {
        let place = |stream: &Stream| stream.peer.daemon.cmp(&daemon);
        self.streams.binary_search_by(place).ok()
    }

    /// Returns whether a daemon is in the view, in this incarnation.
    pub(crate) fn has(&self, peer: Peer) -> bool {
        self.index(peer.daemon)
            .is_some_and(|index| self.streams[index].peer == peer)
    }

    /// Returns whether this daemon is alone. It then waits for nobody.
    pub(crate) fn is_alone(&self) -> bool {
        self.streams.len() == 1
    }

    /// Returns the last round that all daemons have closed.
    pub(crate) fn complete(&self) -> u64 {
        if self.is_alone() || self.is_closing {
            return u64::MAX;
        }
        self.least(|stream| stream.closed)
    }

    /// Returns the last round that all daemons have closed once this one has closed `own`.
    pub(crate) fn complete_with(&self, own: u64) -> u64 {
        let others = self.streams.iter().enumerate();
        let others = others.filter(|(index, _)| *index != self.own);
        let least = others.map(|(_, stream)| stream.closed).min();
        least.map_or(own, |least| least.min(own))
    }

    /// Returns the last round that all daemons have received.
    pub(crate) fn stable(&self) -> u64 {
        if self.is_alone() || self.is_closing {
            return u64::MAX;
        }
        self.least(|stream| stream.received)
    }

    fn least(&self, of: impl Fn(&Stream) -> u64) -> u64 {
        self.streams.iter().map(of).min().unwrap_or(0)
    }

    /// Returns the highest round that any daemon has closed.
    pub(crate) fn highest_closed(&self) -> u64 {
        let closed = self.streams.iter().map(|stream| stream.closed);
        closed.max().unwrap_or(0)
    }

    /// Returns whether messages wait until they are safe.
    pub(crate) fn awaits_safety(&self) -> bool {
        self.safe_waiting > 0
    }

    /// Returns the bytes of all records held.
    pub(crate) fn bytes(&self) -> usize {
        self.streams.iter().map(Stream::bytes).sum()
    }

    /// Returns whether any stream holds more records than this.
    pub(crate) fn is_longer_than(&self, records: usize) -> bool {
        self.streams.iter().any(|stream| stream.len() > records)
    }

    /// Returns the number of records held.
    pub(crate) fn records(&self) -> usize {
        self.streams.iter().map(Stream::len).sum()
    }

    /// Returns whether any stream holds messages.
    pub(crate) fn holds_messages(&self) -> bool {
        self.streams.iter().any(Stream::holds_messages)
    }

    /// Gives the next record of a stream its round, and says what to do with it; `None` if there is
    /// none.
    pub(crate) fn apply_next(&mut self, index: usize) -> Option<(Applied, Bytes)> {
        let stream = &mut self.streams[index];
        let mut bytes = stream.next_unapplied()?;
        let open = stream.open_round();
        let mut head = data_head(&bytes);
        if head.is_none()
            && let Some(Record::Part(part)) = Record::decode(&bytes)
        {
            bytes = stream.assemble(&part).unwrap_or_default();
            head = data_head(&bytes);
        }
        if let Some((service, client)) = head {
            let turn = turn_of(service, stream.waits(client));
            self.safe_waiting += usize::from(turn == Turn::Safe);
            stream.apply(open, turn, Some(client));
            let applied = match turn {
                Turn::None => Applied::Deliver,
                _ => Applied::Wait,
            };
            return Some((applied, bytes));
        }
        let (turn, client, applied) = match Record::decode(&bytes) {
            Some(Record::Hello { .. }) => (Turn::None, None, Applied::Hello),
            Some(Record::Bye { client })
            | Some(Record::Join { client, .. })
            | Some(Record::Leave { client, .. }) => (Turn::Agreed, Some(client), Applied::Wait),
            Some(Record::Mark { round, received }) => {
                stream.apply_mark(round, received);
                return Some((Applied::Nothing, bytes));
            }
            _ => (Turn::None, None, Applied::Nothing),
        };
        stream.apply(open, turn, client);
        Some((applied, bytes))
    }

    /// Takes the next message in the one order whose turn has come.
    pub(crate) fn pop_due(&mut self) -> Option<Due> {
        let (complete, stable) = (self.complete(), self.stable());
        loop {
            let (round, index) = self.turn;
            let Some(stream) = self.streams.get_mut(index) else {
                let heads = self.streams.iter_mut().filter_map(Stream::head);
                let next = heads.map(|(round, _)| round).min()?;
                if next > complete {
                    return None;
                }
                self.turn = (next, 0);
                continue;
            };
            match stream.head() {
                Some((at, Turn::Safe)) if at == round && round > stable => return None,
                Some((at, turn)) if at == round => {
                    self.safe_waiting -= usize::from(turn == Turn::Safe);
                    return stream.pop().map(|(sequence, record)| Due {
                        index,
                        round,
                        sequence,
                        record,
                    });
                }
                _ => self.turn.1 += 1,
            }
        }
    }

    /// Notes that a client's message has had its turn.
    pub(crate) fn had_turn(&mut self, index: usize, client: ClientId) {
        self.streams[index].had_turn(client);
    }

    /// Drops what all daemons have.
    pub(crate) fn forget(&mut self) {
        let stable = self.stable();
        for stream in &mut self.streams {
            stream.forget(stable);
        }
    }

    /// Ends the view: from now on, all messages that are held are due.
    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }
}

fn turn_of(service: Service, client_waits: bool) -> Turn {
    match service {
        Service::Safe => Turn::Safe,
        service if service.is_ordered() => Turn::Agreed,
        Service::Fifo if client_waits => Turn::Agreed,
        _ => Turn::None,
    }
}
