//! Whole states of other daemons that this daemon lacks, and has asked its neighbours for.

use core::ops::Bound;
use core::time::Duration;
use std::collections::BTreeMap;

use super::counted::{Measured, Size};
use super::offers::OfferCounts;
use super::record::{DaemonState, Limits};
use super::seal::PIECES_MAX;
use crate::message::{DaemonId, Item, Part};
use crate::sequence::ChangeSeq;
use manyflow_core::Payload;
use manyflow_core::time::Time;

/// The maximum number of parts of a state. It bounds the memory that a forged state takes.
const PARTS_MAX: u32 = 1 << 20;
/// The memory that a part takes besides its name, in bytes.
const PART_BYTES: usize = 128;

/// The time after which a neighbour that was asked for a state, and sends none, may not have it:
/// another that offers it is asked.
const PATIENCE: Duration = Duration::from_secs(5);

/// A state that neighbours have and this daemon lacks.
#[derive(Debug)]
pub(super) struct Wanted<P> {
    /// The neighbours that have a newer state, and how new it is.
    offers: BTreeMap<DaemonId, (u32, ChangeSeq)>,
    /// The neighbour that was asked.
    asked: DaemonId,
    /// The last change that the state includes; 0 until a part has arrived.
    change: ChangeSeq,
    /// The number of parts besides the first, and the incarnation; `None` until the first part has
    /// arrived.
    first: Option<(u32, u32)>,
    /// The parts within the limits, besides the first.
    parts: BTreeMap<u32, (Item, P)>,
    /// The bytes of the names in `parts`, and the number of links.
    name_bytes: usize,
    links: usize,
    /// The number of pieces of the proof in `parts`.
    pieces: usize,
    /// The lowest limit of the bytes of groups while parts arrived.
    bytes_max: usize,
    /// Whether a part was dropped that exceeds a limit.
    is_cut: bool,
    /// When the neighbour was asked, or its last part arrived.
    heard: Time,
    /// A bit for each part that has arrived, and their number. Parts beyond the limits count.
    arrived: Vec<u64>,
    arrived_count: u32,
    /// Whether a part was dropped that exceeds the share of one daemon.
    is_over_share: bool,
}

/// A whole state.
#[derive(Debug)]
pub(super) struct Whole<P> {
    /// The incarnation and the last change.
    pub(super) age: (u32, ChangeSeq),
    pub(super) state: DaemonState<P>,
    /// The pieces of the proof that the state is the daemon's.
    pub(super) proof: Vec<P>,
    /// The number of parts besides the first and the proof.
    pub(super) items: u32,
    /// Whether the state lacks items that exceed a limit.
    pub(super) is_cut: bool,
    /// The lowest limit of the bytes of groups while parts arrived.
    pub(super) bytes_max: usize,
    /// Whether the daemon has more groups than one may have. The state lacks the others.
    pub(super) is_over_share: bool,
}

impl<P: Payload + Default> Wanted<P> {
    /// Returns a state that a neighbour offers and will be asked for.
    pub(super) fn new(now: Time, from: DaemonId, age: (u32, ChangeSeq)) -> Wanted<P> {
        Wanted {
            offers: BTreeMap::from([(from, age)]),
            asked: from,
            change: ChangeSeq(0),
            first: None,
            parts: BTreeMap::new(),
            name_bytes: 0,
            links: 0,
            pieces: 0,
            bytes_max: usize::MAX,
            is_cut: false,
            heard: now,
            arrived: Vec::new(),
            arrived_count: 0,
            is_over_share: false,
        }
    }

    /// Returns the bytes that the parts take.
    pub(super) fn bytes(&self) -> usize {
        PART_BYTES * self.parts.len() + self.name_bytes
    }

    /// Notes that a neighbour has a newer state. Returns whether it had offered none.
    pub(super) fn add_offer(&mut self, from: DaemonId, age: (u32, ChangeSeq)) -> bool {
        let before = self.offers.get(&from).copied();
        self.offers
            .insert(from, before.map_or(age, |it| it.max(age)));
        before.is_none()
    }

    /// Returns the neighbours that have a newer state.
    #[cfg(test)]
    pub(super) fn offerers(&self) -> impl Iterator<Item = DaemonId> {
        self.offers.keys().copied()
    }

    /// Returns whether this neighbour was asked.
    pub(super) fn is_asked(&self, neighbour: DaemonId) -> bool {
        self.asked == neighbour
    }

    /// Forgets the offer of a neighbour that has sent another state than it offered. Returns
    /// whether there was one.
    pub(super) fn refuse_offer(&mut self, from: DaemonId) -> bool {
        self.offers.remove(&from).is_some()
    }

    /// Takes a part. Returns the whole state and its age when it is complete. The state lacks parts
    /// that exceed a limit.
    pub(super) fn insert(
        &mut self,
        now: Time,
        from: DaemonId,
        part: &Part,
        name: P,
        limits: Limits,
    ) -> Option<Whole<P>> {
        if from != self.asked || part.index > PARTS_MAX {
            return None;
        }
        self.heard = now;
        if part.change != self.change {
            self.change = part.change;
            self.clear();
        }
        match (part.index, part.item) {
            (0, Item::Count { count, incarnation }) => self.first = Some((count, incarnation)),
            (0, _) | (_, Item::Count { .. }) => return None,
            (index, item) => self.hold(index, item, name, limits),
        }
        let (count, incarnation) = self
            .first
            .filter(|(count, _)| *count == self.arrived_count)?;
        let (mut state, mut proof) = (DaemonState::default(), Vec::new());
        let (mut is_cut, mut is_over_share) = (self.is_cut, self.is_over_share);
        for (item, name) in core::mem::take(&mut self.parts).into_values() {
            if item == Item::Proof {
                proof.push(name);
                continue;
            }
            let counts = state.apply(item, name.clone(), limits);
            is_cut |= !counts;
            is_over_share |= !counts && state.would_exceed(&name, limits.share);
        }
        let bytes_max = self.bytes_max.min(limits.bytes);
        self.clear();
        Some(Whole {
            age: (incarnation, self.change),
            state,
            items: count - proof.len() as u32,
            proof,
            is_cut,
            bytes_max,
            is_over_share,
        })
    }

    /// Holds a part until the others have arrived. Only notes that it has arrived if it exceeds the
    /// limits. Links count even if groups fill the memory: without them, the daemon would be lost.
    fn hold(&mut self, index: u32, item: Item, name: P, limits: Limits) {
        if !self.note_arrival(index) {
            return;
        }
        let name_bytes = name.length() as usize;
        self.bytes_max = self.bytes_max.min(limits.bytes);
        let has_room = match item {
            Item::Link { .. } => self.links < limits.neighbours,
            Item::Proof => self.pieces < PIECES_MAX,
            _ => self.bytes() + name_bytes <= limits.bytes,
        };
        if has_room {
            self.links += usize::from(matches!(item, Item::Link { .. }));
            self.pieces += usize::from(item == Item::Proof);
            self.name_bytes += name_bytes;
            self.parts.insert(index, (item, name));
        } else {
            self.is_cut = true;
            self.is_over_share |= self.bytes() + name_bytes > limits.share;
        }
    }

    /// Notes that a part has arrived. Returns whether it is new.
    fn note_arrival(&mut self, index: u32) -> bool {
        let (word, bit) = (index as usize / 64, 1 << (index % 64));
        if self.arrived.len() <= word {
            self.arrived.resize(word + 1, 0);
        }
        let is_new = self.arrived[word] & bit == 0;
        self.arrived[word] |= bit;
        self.arrived_count += u32::from(is_new);
        is_new
    }

    /// Forgets a neighbour, and offers that are not newer than `known`. Returns the neighbour to
    /// ask next, if the asked one is gone or has delivered; `Err` if no offer remains. The offers
    /// that it forgets no longer count in `counts`.
    pub(super) fn retain(
        &mut self,
        now: Time,
        gone: Option<DaemonId>,
        known: Option<(u32, ChangeSeq)>,
        counts: &mut OfferCounts,
    ) -> Result<Option<DaemonId>, ()> {
        self.offers.retain(|from, age| {
            let is_kept = Some(*from) != gone && Some(*age) > known;
            if !is_kept {
                counts.subtract(*from);
            }
            is_kept
        });
        let Some(&next) = self.offers.keys().next() else {
            return Err(());
        };
        let is_open = self.offers.contains_key(&self.asked) && gone.is_some();
        if is_open {
            return Ok(None);
        }
        self.ask(now, next);
        Ok(Some(next))
    }

    /// Asks the next neighbour that has a newer state, if the one that was asked has sent nothing
    /// for [`PATIENCE`] and there is another. Returns it.
    pub(super) fn lose_patience(&mut self, now: Time) -> Option<DaemonId> {
        if now < self.impatient_at()? {
            return None;
        }
        let after = (Bound::Excluded(self.asked), Bound::Unbounded);
        let mut others = self
            .offers
            .range(after)
            .chain(self.offers.range(..self.asked));
        let next = *others.next()?.0;
        self.ask(now, next);
        Some(next)
    }

    /// Returns when another neighbour is asked, if there is another.
    pub(super) fn impatient_at(&self) -> Option<Time> {
        let others = self.offers.keys().filter(|from| **from != self.asked);
        (others.count() > 0).then(|| self.heard + PATIENCE)
    }

    fn ask(&mut self, now: Time, neighbour: DaemonId) {
        (self.asked, self.heard) = (neighbour, now);
        self.change = ChangeSeq(0);
        self.clear();
    }

    fn clear(&mut self) {
        (self.first, self.name_bytes) = (None, 0);
        (self.links, self.pieces) = (0, 0);
        (self.bytes_max, self.is_cut) = (usize::MAX, false);
        self.parts.clear();
        self.arrived.clear();
        self.arrived_count = 0;
        self.is_over_share = false;
    }
}

impl<P: Payload + Default> Measured for Wanted<P> {
    fn size(&self) -> Size {
        Size {
            changes: 0,
            bytes: self.bytes(),
        }
    }
}
