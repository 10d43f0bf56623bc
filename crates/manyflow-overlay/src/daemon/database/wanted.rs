//! Whole states of other daemons that this daemon lacks, and has asked its neighbours for.

use std::collections::BTreeMap;

use super::record::{Limits, State};
use crate::message::{DaemonId, Item, Part};
use crate::sequence::ChangeSeq;
use manyflow_core::Payload;

/// The maximum number of parts of a state. It bounds the memory that a forged state takes.
const PARTS_MAX: u32 = 1 << 20;
/// The memory that a part takes besides its name, in bytes.
const PART_BYTES: usize = 128;

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
    pub(super) state: State<P>,
    /// Whether the daemon has more groups than one may have. The state lacks the others.
    pub(super) is_over_share: bool,
}

impl<P: Payload + Default> Wanted<P> {
    /// Returns a state that a neighbour offers and will be asked for.
    pub(super) fn new(from: DaemonId, age: (u32, ChangeSeq)) -> Wanted<P> {
        Wanted {
            offers: BTreeMap::from([(from, age)]),
            asked: from,
            change: ChangeSeq(0),
            first: None,
            parts: BTreeMap::new(),
            name_bytes: 0,
            links: 0,
            arrived: Vec::new(),
            arrived_count: 0,
            is_over_share: false,
        }
    }

    /// Returns the bytes that the parts take.
    pub(super) fn bytes(&self) -> usize {
        PART_BYTES * self.parts.len() + self.name_bytes
    }

    /// Notes that a neighbour has a newer state.
    pub(super) fn add_offer(&mut self, from: DaemonId, age: (u32, ChangeSeq)) {
        let offer = self.offers.entry(from).or_insert(age);
        *offer = age.max(*offer);
    }

    /// Returns whether this neighbour was asked.
    pub(super) fn is_asked(&self, neighbour: DaemonId) -> bool {
        self.asked == neighbour
    }

    /// Forgets the offer of a neighbour that has sent another state than it offered.
    pub(super) fn refuse_offer(&mut self, from: DaemonId) {
        self.offers.remove(&from);
    }

    /// Takes a part. Returns the whole state and its age when it is complete. The state lacks parts
    /// that exceed a limit.
    pub(super) fn insert(
        &mut self,
        from: DaemonId,
        part: &Part,
        name: P,
        limits: Limits,
    ) -> Option<Whole<P>> {
        if from != self.asked || part.index > PARTS_MAX {
            return None;
        }
        if part.change != self.change {
            self.change = part.change;
            self.clear();
        }
        match (part.index, part.item) {
            (0, Item::Count { count, incarnation }) => self.first = Some((count, incarnation)),
            (0, _) | (_, Item::Count { .. }) => return None,
            (index, item) => self.hold(index, item, name, limits),
        }
        let (_, incarnation) = self
            .first
            .filter(|(count, _)| *count == self.arrived_count)?;
        let mut state = State::default();
        let mut is_over_share = self.is_over_share;
        for (item, name) in core::mem::take(&mut self.parts).into_values() {
            let counts = state.apply(item, name.clone(), limits);
            is_over_share |= !counts && state.would_exceed(&name, limits.share);
        }
        self.clear();
        Some(Whole {
            age: (incarnation, self.change),
            state,
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
        let has_room = match item {
            Item::Link { .. } => self.links < limits.neighbours,
            _ => self.bytes() + name_bytes <= limits.bytes,
        };
        if has_room {
            self.links += usize::from(matches!(item, Item::Link { .. }));
            self.name_bytes += name_bytes;
            self.parts.insert(index, (item, name));
        } else {
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
    /// ask next, if the asked one is gone or has delivered; `Err` if no offer remains.
    pub(super) fn retain(
        &mut self,
        gone: Option<DaemonId>,
        known: Option<(u32, ChangeSeq)>,
    ) -> Result<Option<DaemonId>, ()> {
        self.offers
            .retain(|from, age| Some(*from) != gone && Some(*age) > known);
        let Some(&next) = self.offers.keys().next() else {
            return Err(());
        };
        let is_open = self.offers.contains_key(&self.asked) && gone.is_some();
        if is_open {
            return Ok(None);
        }
        self.asked = next;
        self.change = ChangeSeq(0);
        self.clear();
        Ok(Some(next))
    }

    fn clear(&mut self) {
        (self.first, self.name_bytes, self.links) = (None, 0, 0);
        self.parts.clear();
        self.arrived.clear();
        self.arrived_count = 0;
        self.is_over_share = false;
    }
}
