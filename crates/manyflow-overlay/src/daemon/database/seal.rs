//! The statements about its state that a daemon signs, and the changes of others that wait for one.

use std::collections::BTreeMap;

use crate::message::{DaemonId, Item, Summary};
use crate::notary::{IDENTITY_BYTES_MAX, Notary, SIGNATURE_BYTES_MAX};
use crate::sequence::{ChangeSeq, Sequence};
use manyflow_core::Payload;

use super::digests::{Digest, GroupDigests, changes_digest, groups_digest, links_digest};
use super::record::DaemonState;

/// The maximum number of changes under one signature.
pub(super) const CHANGES_MAX: usize = 1024;
/// The maximum number of a daemon's changes that one neighbour has sent, and that wait for their
/// signature.
const WAITING_MAX: usize = 2 * CHANGES_MAX;
/// The maximum number of seals of a daemon that one neighbour has sent, and that wait for changes.
const SEALS_MAX: usize = 64;
/// The maximum length of a piece of a proof, in bytes. It fits into a datagram on any path.
const PIECE_BYTES: usize = 1000;
/// The maximum number of pieces of a proof.
pub(super) const PIECES_MAX: usize =
    (Statement::BYTES + 2 + SIGNATURE_BYTES_MAX + IDENTITY_BYTES_MAX).div_ceil(PIECE_BYTES);

/// A statement that a daemon signs: about its changes since the last one, and its state after them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Statement {
    pub(super) origin: DaemonId,
    pub(super) incarnation: u32,
    /// The first of the changes.
    pub(super) first: ChangeSeq,
    /// The last of the changes. Without changes, it is the number before `first`.
    pub(super) last: ChangeSeq,
    pub(super) changes: Digest,
    /// The digest of the state's links.
    links: Digest,
    /// The digest of the state's groups. It is apart from that of the links, so that a daemon that
    /// has no memory for the groups can still verify the links.
    groups: Digest,
    /// The number of items of the state.
    pub(super) items: u32,
    /// The bytes that the groups of the state take.
    pub(super) bytes: u64,
}

impl Statement {
    const BYTES: usize = 2 + 3 * 4 + 3 * 32 + 4 + 8;

    /// Returns a statement about this daemon's state and the changes that led to it. `groups` has
    /// the digests of parts that none of them changed.
    pub(super) fn new<P: Payload + Default>(
        notary: &dyn Notary<P>,
        origin: DaemonId,
        age: (u32, ChangeSeq),
        state: &DaemonState<P>,
        groups: &mut GroupDigests,
        changes: &[(ChangeSeq, Item, P)],
    ) -> Statement {
        let first = changes.first().map(|(number, ..)| *number);
        let (links, groups) = (links_digest(state), groups.digest(notary, state));
        let changes = changes
            .iter()
            .map(|(number, item, name)| (*number, *item, name));
        Statement {
            origin,
            incarnation: age.0,
            first: first.unwrap_or_else(|| age.1.next()),
            last: age.1,
            changes: changes_digest(notary, changes),
            links: links.digest,
            groups: groups.digest,
            items: links.items + groups.items,
            bytes: state.bytes() as u64,
        }
    }

    /// Returns whether the links of a state are those of this statement.
    pub(super) fn has_links_of<P: Payload + Default>(&self, state: &DaemonState<P>) -> bool {
        self.links == links_digest(state).digest
    }

    /// Returns whether a state is that of this statement.
    pub(super) fn is_of<P: Payload + Default>(
        &self,
        notary: &dyn Notary<P>,
        state: &DaemonState<P>,
    ) -> bool {
        self.has_links_of(state) && self.groups == groups_digest(notary, state).digest
    }

    /// Returns the encoding: what is signed.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Statement::BYTES);
        bytes.extend_from_slice(&self.origin.0.to_be_bytes());
        for word in [self.incarnation, self.first.0, self.last.0] {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        for digest in [&self.changes, &self.links, &self.groups] {
            bytes.extend_from_slice(digest);
        }
        bytes.extend_from_slice(&self.items.to_be_bytes());
        bytes.extend_from_slice(&self.bytes.to_be_bytes());
        bytes
    }

    /// Decodes a statement. Returns it, and the bytes behind it.
    fn decode(bytes: &[u8]) -> Option<(Statement, &[u8])> {
        let (origin, bytes) = bytes.split_first_chunk()?;
        let (incarnation, bytes) = bytes.split_first_chunk()?;
        let (first, bytes) = bytes.split_first_chunk()?;
        let (last, bytes) = bytes.split_first_chunk()?;
        let (changes, bytes) = bytes.split_first_chunk()?;
        let (links, bytes) = bytes.split_first_chunk()?;
        let (groups, bytes) = bytes.split_first_chunk()?;
        let (items, bytes) = bytes.split_first_chunk()?;
        let (state_bytes, bytes) = bytes.split_first_chunk()?;
        let statement = Statement {
            origin: DaemonId(u16::from_be_bytes(*origin)),
            incarnation: u32::from_be_bytes(*incarnation),
            first: ChangeSeq(u32::from_be_bytes(*first)),
            last: ChangeSeq(u32::from_be_bytes(*last)),
            changes: *changes,
            links: *links,
            groups: *groups,
            items: u32::from_be_bytes(*items),
            bytes: u64::from_be_bytes(*state_bytes),
        };
        Some((statement, bytes))
    }
}

/// A statement with the signature of its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StateSeal {
    pub(super) statement: Statement,
    pub(super) signature: Vec<u8>,
}

impl StateSeal {
    /// Returns a statement with this daemon's signature.
    pub(super) fn new<P>(notary: &dyn Notary<P>, statement: Statement) -> StateSeal {
        let signature = notary.sign(&statement.encode());
        debug_assert!((1..=SIGNATURE_BYTES_MAX).contains(&signature.len()));
        StateSeal {
            statement,
            signature,
        }
    }

    /// Returns the payload of a message with this seal.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.statement.encode();
        bytes.extend_from_slice(&self.signature);
        bytes
    }

    /// Decodes the payload of a message about this state of this daemon.
    pub(super) fn decode(bytes: &[u8], origin: DaemonId, summary: &Summary) -> Option<StateSeal> {
        let seal = StateSeal::decode_any(bytes)?;
        let statement = &seal.statement;
        let is_about = statement.origin == origin
            && (statement.incarnation, statement.last) == (summary.incarnation, summary.change);
        let count = statement.last.0.checked_sub(statement.first.0);
        let has_changes = count.is_some_and(|more| (more as usize) < CHANGES_MAX);
        (is_about && has_changes).then_some(seal)
    }

    /// Decodes the payload of a message with any seal.
    pub(super) fn decode_any(bytes: &[u8]) -> Option<StateSeal> {
        let (statement, signature) = Statement::decode(bytes)?;
        let is_known_length = (1..=SIGNATURE_BYTES_MAX).contains(&signature.len());
        is_known_length.then(|| StateSeal {
            statement,
            signature: signature.to_vec(),
        })
    }

    /// Returns the pieces of the proof of a whole state: this seal, and its origin's identity.
    pub(super) fn pieces(&self, identity: &[u8]) -> Vec<Vec<u8>> {
        let mut bytes = self.statement.encode();
        bytes.extend_from_slice(&(self.signature.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&self.signature);
        bytes.extend_from_slice(identity);
        bytes.chunks(PIECE_BYTES).map(<[u8]>::to_vec).collect()
    }

    /// Returns the seal and the identity of a proof.
    pub(super) fn of_proof(bytes: &[u8]) -> Option<(StateSeal, &[u8])> {
        let (statement, bytes) = Statement::decode(bytes)?;
        let (length, bytes) = bytes.split_first_chunk()?;
        let length = usize::from(u16::from_be_bytes(*length));
        if !(1..=SIGNATURE_BYTES_MAX).contains(&length) {
            return None;
        }
        let (signature, identity) = bytes.split_at_checked(length)?;
        let signature = signature.to_vec();
        let seal = StateSeal {
            statement,
            signature,
        };
        Some((seal, identity))
    }
}

/// The changes of a daemon that wait for their signature, by the neighbour that has sent them.
///
/// A neighbour sends only changes that it has verified itself. Those of each neighbour are
/// therefore verified alone: if they do not match their signature, it is this neighbour that lies.
#[derive(Debug)]
pub(super) struct Waiting<P>(BTreeMap<DaemonId, Stream<P>>);

/// A daemon's changes and seals that one neighbour has sent.
#[derive(Debug)]
struct Stream<P> {
    changes: BTreeMap<ChangeSeq, (Item, P)>,
    /// By the first of their changes.
    seals: BTreeMap<ChangeSeq, StateSeal>,
}

/// A seal, and the changes that it covers.
pub(super) type Sealed<P> = (StateSeal, Vec<(ChangeSeq, Item, P)>);

impl<P> Default for Waiting<P> {
    fn default() -> Waiting<P> {
        Waiting(BTreeMap::new())
    }
}

impl<P> Waiting<P> {
    fn stream(&mut self, from: DaemonId) -> &mut Stream<P> {
        self.0.entry(from).or_insert_with(|| Stream {
            changes: BTreeMap::new(),
            seals: BTreeMap::new(),
        })
    }

    /// Holds a change. Returns `false` if too many of this neighbour wait.
    pub(super) fn add_change(
        &mut self,
        from: DaemonId,
        number: ChangeSeq,
        item: Item,
        name: P,
    ) -> bool {
        let stream = self.stream(from);
        let has_room = stream.changes.len() < WAITING_MAX;
        if has_room {
            stream.changes.entry(number).or_insert((item, name));
        }
        has_room
    }

    /// Holds a seal. Returns `false` if too many of this neighbour wait.
    pub(super) fn add_seal(&mut self, from: DaemonId, seal: StateSeal) -> bool {
        let stream = self.stream(from);
        let has_room = stream.seals.len() < SEALS_MAX;
        if has_room {
            stream.seals.entry(seal.statement.first).or_insert(seal);
        }
        has_room
    }

    /// Returns the neighbour's seal of the changes from `next` on, with these changes, if all have
    /// arrived.
    pub(super) fn take(&mut self, from: DaemonId, next: ChangeSeq) -> Option<Sealed<P>> {
        let stream = self.0.get_mut(&from)?;
        let seal = stream.seals.get(&next)?;
        let covered = next..=seal.statement.last;
        let count = u64::from(covered.end().0) + 1 - u64::from(covered.start().0);
        if stream.changes.range(covered).count() as u64 != count {
            return None;
        }
        let seal = stream.seals.remove(&next)?;
        let rest = stream.changes.split_off(&seal.statement.last.next());
        let covered = core::mem::replace(&mut stream.changes, rest);
        let covered = covered.into_iter().filter(|(number, _)| *number >= next);
        let covered = covered.map(|(number, (item, name))| (number, item, name));
        Some((seal, covered.collect()))
    }

    /// Forgets changes up to `last`, and their seals.
    pub(super) fn forget_until(&mut self, last: ChangeSeq) {
        self.0.retain(|_, stream| {
            stream.changes = stream.changes.split_off(&last.next());
            stream.seals.retain(|first, _| *first > last);
            !(stream.changes.is_empty() && stream.seals.is_empty())
        });
    }

    /// Forgets what a neighbour has sent.
    pub(super) fn forget_neighbour(&mut self, from: DaemonId) {
        self.0.remove(&from);
    }

    /// Returns the number of changes that wait.
    pub(super) fn held(&self) -> usize {
        self.0.values().map(|stream| stream.changes.len()).sum()
    }
}
