//! Sends only the symbols that receivers have named, instead of all blocks in turn.
//!
//! The focus has a unit of its own for each block that somebody lacks symbols of. Its symbols are
//! repair symbols that were never sent before, so each one is new to every receiver that lacks any.
//! The units stand behind those of the session:
//!
//! ```text
//! units   FDT | blocks of files | blocks of the focus
//! ```

use std::collections::BTreeMap;

use super::windows::weight;
use super::{ObjectSender, Unit};
use crate::fec::Encoded;
use crate::needs::Needs;
use crate::schedule::Schedule;
use crate::storage::Storage;
use rand::RngExt as _;

/// The first repair symbols of a focus, which are far from those of sessions.
const FIRST_SYMBOL: u32 = 1 << 23;
/// The part of a session's symbols, as a divisor, from which no focus is used.
const NEEDS_MAX: u64 = 4;
/// The room for repair symbols that a focus may take in any case, in bytes.
const ROOM_BYTES: u64 = 64 << 20;
/// Minimum number of repair symbols of a job.
const BATCH_MIN: u64 = 8;

/// The blocks that receivers lack symbols of.
pub(super) struct Focus {
    /// The number of units before those of the focus.
    start: usize,
    /// The number of this focus, so that results of jobs for another are not used.
    number: u64,
    /// The blocks that are served; `None` without a focus.
    served: Option<Served>,
    /// The next symbols of blocks that were in the focus, by their units in the session.
    next_symbols: BTreeMap<usize, u32>,
}

struct Served {
    /// The order of the FDT's units and those of the focus.
    schedule: Schedule,
    /// The symbols that are lacking, by unit in the session.
    needs: BTreeMap<usize, u32>,
    /// Whether nothing else is sent.
    is_alone: bool,
}

impl Focus {
    pub(super) fn new(start: usize) -> Focus {
        Focus {
            start,
            number: 0,
            served: None,
            next_symbols: BTreeMap::new(),
        }
    }
}

impl<S: Storage> ObjectSender<S> {
    /// Sends only blocks that one of the receivers needs symbols of, and as many symbols as the one
    /// needs that lacks most. If the focus `is_alone`, nothing else is sent, and otherwise every
    /// second packet has other blocks, for receivers that have not said what they need.
    ///
    /// Returns false, and sends all blocks in turn, if the receivers need nothing, or so much that
    /// this is faster: a quarter of all symbols.
    pub fn focus<'a>(
        &mut self,
        needs: impl IntoIterator<Item = &'a Needs>,
        is_alone: bool,
    ) -> bool {
        let needs = self.units_needed(needs);
        let total = total(&needs);
        if total == 0 || total > self.symbols() / NEEDS_MAX {
            self.unfocus();
            return false;
        }
        let serves = |served: &Served| {
            let has = |(unit, needed): (&usize, &u32)| served.needs.get(unit) >= Some(needed);
            needs.iter().all(has) && self::total(&served.needs) < 2 * total
        };
        if let Some(served) = self.focus.served.as_mut().filter(|served| serves(served)) {
            served.is_alone = is_alone;
            return true;
        }
        self.unfocus();
        self.serve(needs, is_alone);
        true
    }

    /// Sends all blocks in turn, as without a focus.
    pub fn unfocus(&mut self) {
        let Some(served) = self.focus.served.take() else {
            return;
        };
        let focused = self.units.drain(self.focus.start..);
        for (unit, focused) in served.needs.keys().zip(focused) {
            if let Some(next) = focused.block.next_symbol() {
                self.focus.next_symbols.insert(*unit, next);
            }
        }
        self.focus.number += 1;
        let start = self.focus.start;
        self.jobs_due.retain(|unit| *unit < start);
    }

    fn serve(&mut self, needs: BTreeMap<usize, u32>, is_alone: bool) {
        let symbol = u64::from(self.config.symbol_length);
        let room = ROOM_BYTES.max(self.windows.rooms_bytes());
        // A job gives twice what is needed, because receivers lose some, if there is room. A block
        // has room for a quarter more than a batch.
        let batches = room / symbol * 4 / 5;
        let total = total(&needs).max(1);
        let mut weights = vec![1; self.fdt_units];
        for (weighs, unit) in weights.iter_mut().zip(&self.units) {
            *weighs = weight(unit.block.symbols().into());
        }
        for (&unit, &needed) in &needs {
            let Unit { toi, block, .. } = &self.units[unit];
            let first = self.focus.next_symbols.get(&unit).copied();
            let batch = (2 * u64::from(needed)).min(batches * u64::from(needed) / total);
            let batch = batch.clamp(BATCH_MIN, block.symbols().max(BATCH_MIN as u32).into());
            let needed = match block.next_symbol() {
                Some(_) => needed,
                // Without code, each symbol is needed by its number.
                None => block.symbols(),
            };
            weights.push(weight(needed.into()));
            self.units.push(Unit {
                toi: *toi,
                block: block.restarted(first.unwrap_or(FIRST_SYMBOL), batch as u32),
                is_queued: false,
            });
        }
        self.focus.served = Some(Served {
            schedule: Schedule::new(weights, self.config.layers),
            needs,
            is_alone,
        });
        let units = self.focus.start..self.units.len();
        let room = self.fdt_room_bytes + self.windows.rooms_bytes();
        self.assign_rooms(units.clone(), room);
        units.for_each(|unit| self.queue_job(unit));
    }

    /// Returns the most that one of the receivers needs of each unit. Blocks that the session does
    /// not have are ignored.
    fn units_needed<'a>(&self, needs: impl IntoIterator<Item = &'a Needs>) -> BTreeMap<usize, u32> {
        let mut first_units: BTreeMap<u32, usize> = BTreeMap::new();
        for (unit, file_unit) in (self.fdt_units..).zip(self.file_units()) {
            first_units.entry(file_unit.toi).or_insert(unit);
        }
        let mut needed = vec![0; self.focus.start];
        for run in needs.into_iter().flat_map(Needs::runs) {
            let Some(first) = first_units.get(&run.toi) else {
                continue;
            };
            let units = (*first..self.focus.start)
                .skip(run.first as usize)
                .take(run.blocks as usize)
                .take_while(|unit| self.units[*unit].toi == run.toi);
            for unit in units {
                let symbols = run.symbols.min(self.units[unit].block.symbols());
                needed[unit] = symbols.max(needed[unit]);
            }
        }
        let needed = needed.into_iter().enumerate();
        needed.filter(|(_, symbols)| *symbols > 0).collect()
    }

    /// Returns the unit of the next packet of a layer; `None` if the packet has another block.
    pub(super) fn next_focused_unit(&mut self, layer: u16) -> Option<usize> {
        let served = self.focus.served.as_mut()?;
        if !served.is_alone && self.rng.random_bool(0.5) {
            return None;
        }
        let picked = served.schedule.next_unit(layer);
        let unit = match picked.checked_sub(self.fdt_units) {
            None => return Some(picked),
            Some(place) => self.focus.start + place,
        };
        let &Unit { toi, ref block, .. } = &self.units[unit];
        let is_withdrawn = self.objects[toi as usize].is_withdrawn;
        // While its symbols are encoded, other blocks are sent.
        (block.is_ready() && !is_withdrawn).then_some(unit)
    }

    /// Whether a result belongs to a focus that no longer exists.
    pub(super) fn is_outdated(&self, encoded: &Encoded) -> bool {
        encoded.unit >= self.focus.start && encoded.visit != self.focus.number
    }
}

impl<S> ObjectSender<S> {
    /// The number of units without those of a focus.
    pub(super) fn plain_units(&self) -> usize {
        self.focus.start
    }

    /// The blocks of files.
    pub(super) fn file_units(&self) -> impl Iterator<Item = &Unit> {
        self.units[self.fdt_units..self.focus.start].iter()
    }

    /// Whether a unit is one of the focus.
    pub(super) fn is_focused(&self, unit: usize) -> bool {
        unit >= self.focus.start
    }

    /// The number of the visit or the focus for which a job of this unit is.
    pub(super) fn job_visit(&self, unit: usize) -> u64 {
        match self.is_focused(unit) {
            true => self.focus.number,
            false => self.visit.map_or(0, |visit| visit.number),
        }
    }
}

fn total(needs: &BTreeMap<usize, u32>) -> u64 {
    needs.values().map(|needed| u64::from(*needed)).sum()
}
