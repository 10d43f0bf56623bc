//! The order in which blocks are served: all of them evenly, or window after window.
//!
//! Evenly, receivers of every rate need the fewest packets, but all blocks complete at the end. In
//! windows, blocks complete one after another. The first round has the source symbols and nothing
//! else, so a receiver of all packets decodes nothing. A receiver below the session's rate misses a
//! part of each window, and completes it in later visits, in which the packets beyond the missing
//! ones are surplus. `itinerary.rs` has the order of these visits.

use std::ops::Range;

use super::itinerary::{Extent, Itinerary, SHORT_VISITS, Stop};
use super::{SenderConfig, Unit};
use crate::fec::{BOOKKEEPING_BYTES, Demand};
use crate::schedule::Schedule;

/// Maximum number of packets in place of repair symbols that are not ready, as a multiple of a
/// visit's packets. A visit that ended before its repair symbols are there would waste their
/// encoding.
const REPEATS_MAX: u64 = 20;
/// Maximum number of packets by which the schedule favours a unit.
const SCHEDULE_SPREAD: u32 = 8;

/// The number of symbols from which a session is long: their bookkeeping takes half of a receiver's
/// default memory.
const LONG_FROM_SYMBOLS: u64 = (128 << 20) / BOOKKEEPING_BYTES;

/// The number of windows before its visit at which a window is announced, so that its repair
/// symbols are encoded in time.
const WINDOWS_AHEAD: u64 = 4;

/// Chooses the unit that the next packet of a layer serves.
pub(super) struct Windows {
    windows: Vec<Window>,
    itinerary: Itinerary,
    present: Visit,
    /// The number of visits before the present one.
    visits: u64,
    /// The number of visits that the caller knows of.
    announced: u64,
    /// The number of windows before its visit at which a window is announced.
    ahead: u64,
    fdt_units: usize,
    /// The room for repair symbols of the longest window, in bytes.
    room_bytes: u64,
}

/// A visit that will soon begin.
pub(super) struct Upcoming {
    pub(super) units: Range<usize>,
    /// The position of the units' repair symbols in the storage, in bytes. Another visit uses this
    /// room when the visit is over.
    pub(super) room: u64,
}

struct Window {
    /// The units besides those of the FDT, which are part of each window.
    units: Range<usize>,
    schedule: Schedule,
    /// The source symbols of each unit that the first visit sends.
    source: Vec<u32>,
    /// The packets that a receiver of all packets needs.
    total: u64,
    /// The extent of the visit that was last announced.
    announced: Extent,
}

/// The rest of a window's visit.
enum Visit {
    /// This number of source symbols of each unit, and in all.
    Source { units: Vec<u32>, left: u64 },
    /// This number of packets, and at most `repeats` in place of repair symbols that are not ready.
    Packets { left: u64, repeats: u64 },
}

impl Windows {
    /// Upper bound for the number of windows that have room for repair symbols at a time.
    pub(super) const ROOMS_MAX: u64 = WINDOWS_AHEAD + 2;

    /// Creates the windows of a session; one window if the configuration has no length of them. The
    /// first `fdt_units` of the `units` are the FDT's.
    pub(super) fn new(units: &[Unit], fdt_units: usize, config: &SenderConfig) -> Windows {
        let (fdt, files) = units.split_at(fdt_units);
        let of_session = files.iter().map(symbols_of).sum::<u64>().max(1);
        let (mut windows, mut first) = (Vec::new(), 0);
        for length in window_lengths(files, config.window_symbols.unwrap_or(u64::MAX)) {
            let served = &files[first..first + length];
            let weights = weights(fdt, served, of_session, fdt_per_mille(config));
            windows.push(Window {
                units: fdt_units + first..fdt_units + first + length,
                total: weights.iter().sum(),
                schedule: Schedule::new(weights, config.layers),
                source: served.iter().map(|unit| unit.block.source_left()).collect(),
                announced: Extent::Source,
            });
            first += length;
        }
        let present = match &windows[..] {
            // Its visit has no end.
            [_] => Visit::packets(0),
            windows => windows[0].visit(Extent::Source),
        };
        let room_of = |units: &[Unit]| {
            units
                .iter()
                .map(|unit| unit.block.room_bytes())
                .sum::<u64>()
        };
        let rooms = windows
            .iter()
            .map(|window| room_of(&units[window.units.clone()]));
        let itinerary = Itinerary::new(windows.len() as u64, of_session >= LONG_FROM_SYMBOLS);
        Windows {
            present,
            itinerary,
            visits: 0,
            announced: 0,
            ahead: WINDOWS_AHEAD.min(itinerary.ahead_max()),
            fdt_units,
            room_bytes: rooms.max().unwrap_or(0),
            windows,
        }
    }

    /// The room for repair symbols of all windows, in bytes. One visit ends when another begins, so
    /// there is room for one more than those that are announced.
    pub(super) fn rooms_bytes(&self) -> u64 {
        self.rooms() * self.room_bytes
    }

    fn rooms(&self) -> u64 {
        (self.ahead + 2).min(self.windows.len() as u64)
    }

    /// Returns a visit that will soon begin, each once, in order.
    pub(super) fn take_upcoming(&mut self) -> Option<Upcoming> {
        if self.announced > self.visits + self.ahead {
            return None;
        }
        let Stop { place, extent } = self.itinerary.stop(self.announced);
        let room = self.announced % self.rooms() * self.room_bytes;
        self.announced += 1;
        let window = &mut self.windows[place];
        window.announced = extent;
        let units = window.units.clone();
        Some(Upcoming { units, room })
    }

    /// Whether a unit is served all the time, not in visits.
    pub(super) fn is_steady(&self, unit: usize) -> bool {
        self.windows.len() == 1 || unit < self.fdt_units
    }

    /// Returns the demand for repair symbols of `unit`, a block of this number of symbols in a
    /// session of `units`.
    pub(super) fn demand(&self, unit: usize, symbols: u32, units: usize) -> Demand {
        if self.is_steady(unit) {
            let share = (unit + 1) as f64 / units as f64;
            return Demand::Steady { share };
        }
        let place = self
            .windows
            .partition_point(|window| window.units.end <= unit);
        let window = &self.windows[place];
        let symbols = match window.visit(window.announced) {
            Visit::Source { .. } => 0,
            Visit::Packets { left, .. } => {
                let share = (weight(symbols.into()) * left).div_ceil(window.total);
                share as u32 + SCHEDULE_SPREAD
            }
        };
        Demand::Visit { symbols }
    }

    /// Ends the present visit if it is over. Returns its units in that case.
    pub(super) fn end_visit(&mut self) -> Option<Range<usize>> {
        if self.windows.len() == 1 {
            return None;
        }
        if !self.present.is_over() {
            return None;
        }
        let over = self.place();
        self.visits += 1;
        let Stop { place, extent } = self.itinerary.stop(self.visits);
        self.present = self.windows[place].visit(extent);
        Some(self.windows[over].units.clone())
    }

    /// Returns the unit that the next packet of `layer` serves.
    pub(super) fn next_unit(&mut self, layer: u16) -> usize {
        let fdt_units = self.fdt_units;
        let place = self.place();
        let window = &mut self.windows[place];
        window.next_unit(layer, fdt_units, &mut self.present)
    }

    /// Prolongs the present visit by a packet, because one has repeated a symbol. So receivers that
    /// have a part of the symbols still get enough others, unless most are repeated.
    pub(super) fn on_repeated(&mut self) {
        if let Visit::Packets { left, repeats } = &mut self.present
            && *repeats > 0
        {
            *left += 1;
            *repeats -= 1;
        }
    }

    /// The place of the window that is visited.
    fn place(&self) -> usize {
        self.itinerary.stop(self.visits).place
    }

    /// The number of packets of a visit of the only window.
    pub(super) fn packets_of_visit(&self) -> u64 {
        let total = self.windows[0].total;
        total + surplus(total)
    }

    /// Counts a packet of a unit of the FDT that `layer` sends out of turn.
    pub(super) fn count_fdt(&mut self, unit: usize, layer: u16) {
        let place = self.place();
        self.windows[place].schedule.count(unit, layer);
    }
}

impl Window {
    /// Returns a visit. Source symbols that were sent before the session was continued are not
    /// sent again: all packets of the visit are others then.
    fn visit(&self, extent: Extent) -> Visit {
        let left: u64 = self.source.iter().copied().map(u64::from).sum();
        match extent {
            Extent::Source if left > 0 => Visit::Source {
                units: self.source.clone(),
                left,
            },
            Extent::Source | Extent::Full => Visit::packets(self.total + surplus(self.total)),
            Extent::Short => {
                let part = self.total.div_ceil(SHORT_VISITS);
                Visit::packets(part + surplus(part))
            }
        }
    }

    fn next_unit(&mut self, layer: u16, fdt_units: usize, visit: &mut Visit) -> usize {
        let picked = self.schedule.next_unit(layer);
        let place = match visit {
            Visit::Packets { left, .. } => {
                *left = left.saturating_sub(1);
                picked
            }
            Visit::Source { .. } if picked < fdt_units => picked,
            Visit::Source { units, left } => {
                let place = take_source(units, picked - fdt_units);
                *left -= 1;
                fdt_units + place
            }
        };
        match place.checked_sub(fdt_units) {
            Some(place) => self.units.start + place,
            None => place,
        }
    }
}

impl Visit {
    fn packets(left: u64) -> Visit {
        Visit::Packets {
            left,
            repeats: left * REPEATS_MAX,
        }
    }

    fn is_over(&self) -> bool {
        let (Visit::Source { left, .. } | Visit::Packets { left, .. }) = self;
        *left == 0
    }
}

/// Takes a source symbol of the unit that the schedule has picked, or of the next one that has any.
///
/// # Panics
/// If no unit has any.
fn take_source(units: &mut [u32], picked: usize) -> usize {
    let count = units.len();
    let place = (picked..picked + count)
        .map(|place| place % count)
        .find(|&place| units[place] > 0)
        .expect("the visit has source symbols left");
    units[place] -= 1;
    place
}

/// Returns the number of units of each window; one window if there are no units.
fn window_lengths(files: &[Unit], symbols: u64) -> Vec<usize> {
    let mut lengths = vec![0];
    let (mut length, mut held) = (0, 0);
    for (number, unit) in files.iter().enumerate() {
        length += 1;
        held += symbols_of(unit);
        if held >= symbols || number + 1 == files.len() {
            lengths.push(std::mem::take(&mut length));
            held = 0;
        }
    }
    if lengths.len() > 1 {
        lengths.remove(0);
    }
    lengths
}

fn symbols_of(unit: &Unit) -> u64 {
    unit.block.symbols().into()
}

/// The number of packets in a visit beyond those that a receiver of all packets needs: some packets
/// are lost.
fn surplus(packets: u64) -> u64 {
    packets / 50 + 1
}

/// The weight of a block in the schedule: its symbols, and up to two more that decoding may need.
/// The two do not matter for long blocks. Without them, an unlucky short block would delay all
/// others by a round.
pub(super) fn weight(symbols: u64) -> u64 {
    symbols + (symbols - 1).min(2)
}

/// The demand of a block of this number of symbols for a visit that needs all of them.
pub(super) fn demand_of_visit(symbols: u32) -> Demand {
    let symbols = u64::from(symbols);
    Demand::Visit {
        symbols: (weight(symbols) + surplus(symbols)) as u32 + SCHEDULE_SPREAD,
    }
}

/// The share of the FDT in the packets, in thousandths: so much that a late receiver soon knows the
/// names. With chunks it has more symbols, and the sender hears what receivers need only after it.
fn fdt_per_mille(config: &SenderConfig) -> u64 {
    if config.content_chunks { 10 } else { 3 }
}

/// The weights of the FDT's units and of a window's. The FDT gets a share of the packets, in
/// thousandths. A long FDT gets as much as it needs to be complete together
/// with the files of the session, which have `of_session` symbols.
fn weights(fdt: &[Unit], files: &[Unit], of_session: u64, per_mille: u64) -> Vec<u64> {
    let total: u64 = files.iter().map(symbols_of).map(weight).sum();
    let fdt_share = (total * per_mille / 1_000).div_ceil(fdt.len() as u64);
    let fdt = fdt.iter().map(|unit| {
        (weight(symbols_of(unit)) * total)
            .div_ceil(of_session)
            .max(fdt_share)
            .max(1)
    });
    fdt.chain(files.iter().map(symbols_of).map(weight))
        .collect()
}
