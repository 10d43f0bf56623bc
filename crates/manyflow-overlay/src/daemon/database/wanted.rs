//! Whole states of other daemons that this daemon lacks, and has asked its neighbours for.

use std::collections::BTreeMap;

use super::record::State;
use crate::message::{DaemonId, Item, Part};
use crate::sequence::ChangeSeq;

/// The maximum number of parts of a state. It bounds the memory that a forged state takes.
const PARTS_MAX: u32 = 1 << 20;

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
    parts: BTreeMap<u32, (Item, P)>,
}

impl<P: Clone + Default> Wanted<P> {
    /// Returns a state that a neighbour offers and will be asked for.
    pub(super) fn new(from: DaemonId, age: (u32, ChangeSeq)) -> Wanted<P> {
        Wanted {
            offers: BTreeMap::from([(from, age)]),
            asked: from,
            change: ChangeSeq(0),
            first: None,
            parts: BTreeMap::new(),
        }
    }

    /// Notes that a neighbour has a newer state.
    pub(super) fn add_offer(&mut self, from: DaemonId, age: (u32, ChangeSeq)) {
        let offer = self.offers.entry(from).or_insert(age);
        *offer = age.max(*offer);
    }

    /// Takes a part. Returns the whole state and its age when it is complete.
    pub(super) fn insert(
        &mut self,
        from: DaemonId,
        part: &Part,
        name: P,
        neighbours: usize,
    ) -> Option<((u32, ChangeSeq), State<P>)> {
        if from != self.asked || part.index > PARTS_MAX {
            return None;
        }
        if part.change != self.change {
            self.change = part.change;
            self.first = None;
            self.parts.clear();
        }
        match (part.index, part.item) {
            (0, Item::Count { count, incarnation }) => self.first = Some((count, incarnation)),
            (0, _) | (_, Item::Count { .. }) => return None,
            (index, item) => {
                self.parts.insert(index, (item, name));
            }
        }
        let (_, incarnation) = self
            .first
            .filter(|(count, _)| *count as usize == self.parts.len())?;
        let mut state = State::default();
        for (item, name) in core::mem::take(&mut self.parts).into_values() {
            state.apply(item, name, neighbours);
        }
        self.first = None;
        Some(((incarnation, self.change), state))
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
        (self.change, self.first) = (ChangeSeq(0), None);
        self.parts.clear();
        Ok(Some(next))
    }
}
