//! The order in which blocks are served: all of them evenly, or window after window.
//!
//! Evenly, receivers of every rate need the fewest packets, but all files complete at the end. In
//! windows, files complete one after another. A receiver below the session's rate then misses a
//! part of each window. It completes the window in a later round, in which the packets beyond the
//! missing ones are surplus: at worst, for a rate just below the session's, it needs two rounds.

use super::Unit;
use crate::schedule::Schedule;

/// Chooses the unit that the next packet of a layer serves.
pub(super) struct Windows {
    windows: Vec<Window>,
    current: usize,
    /// Packets until the next window.
    left: u64,
    fdt_units: usize,
}

struct Window {
    /// The first unit besides those of the FDT, which are part of each window.
    first: usize,
    schedule: Schedule,
    /// The packets of a visit.
    packets: u64,
}

impl Windows {
    /// Creates windows of `symbols` source symbols or more, which end with an object; one window if
    /// `symbols` is `None`. The first `fdt_units` of the `units` are the FDT's.
    pub(super) fn new(
        units: &[Unit],
        fdt_units: usize,
        layers: u16,
        symbols: Option<u64>,
    ) -> Windows {
        let (fdt, files) = units.split_at(fdt_units);
        let of_session = files.iter().map(symbols_of).sum::<u64>().max(1);
        let (mut windows, mut first) = (Vec::new(), 0);
        for length in window_lengths(files, symbols.unwrap_or(u64::MAX)) {
            let weights = weights(fdt, &files[first..first + length], of_session);
            let total: u64 = weights.iter().sum();
            windows.push(Window {
                first: fdt_units + first,
                // A little more than a receiver of all packets needs.
                packets: total + total / 50 + 1,
                schedule: Schedule::new(weights, layers),
            });
            first += length;
        }
        Windows {
            left: windows[0].packets,
            windows,
            current: 0,
            fdt_units,
        }
    }

    /// Returns the unit that the next packet of `layer` serves.
    pub(super) fn next_unit(&mut self, layer: u16) -> usize {
        if self.windows.len() > 1 {
            if self.left == 0 {
                self.current = (self.current + 1) % self.windows.len();
                self.left = self.windows[self.current].packets;
            }
            self.left -= 1;
        }
        let window = &mut self.windows[self.current];
        match window.schedule.next_unit(layer) {
            unit if unit < self.fdt_units => unit,
            unit => window.first + unit - self.fdt_units,
        }
    }

    /// Counts a packet of a unit of the FDT that `layer` sends out of turn.
    pub(super) fn count_fdt(&mut self, unit: usize, layer: u16) {
        self.windows[self.current].schedule.count(unit, layer);
    }
}

/// Returns the number of units of each window; one window if there are no units.
fn window_lengths(files: &[Unit], symbols: u64) -> Vec<usize> {
    let mut lengths = vec![0];
    let (mut length, mut held) = (0, 0);
    for (number, unit) in files.iter().enumerate() {
        length += 1;
        held += symbols_of(unit);
        let ends_object = files
            .get(number + 1)
            .is_none_or(|next| next.toi != unit.toi);
        if ends_object && held >= symbols || number + 1 == files.len() {
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

/// The weight of a block in the schedule: its symbols, and up to two more that decoding may need.
/// The two do not matter for long blocks. Without them, an unlucky short block would delay all
/// others by a round.
fn weight(symbols: u64) -> u64 {
    symbols + (symbols - 1).min(2)
}

/// The weights of the FDT's units and of a window's. The FDT gets 0.3 % of the packets, so that a
/// late receiver soon knows the names. A long FDT gets as much as it needs to be complete together
/// with the files of the session, which have `of_session` symbols.
fn weights(fdt: &[Unit], files: &[Unit], of_session: u64) -> Vec<u64> {
    let total: u64 = files.iter().map(symbols_of).map(weight).sum();
    let fdt_share = (total * 3 / 1_000).div_ceil(fdt.len() as u64);
    let fdt = fdt.iter().map(|unit| {
        (weight(symbols_of(unit)) * total)
            .div_ceil(of_session)
            .max(fdt_share)
            .max(1)
    });
    fdt.chain(files.iter().map(symbols_of).map(weight))
        .collect()
}
