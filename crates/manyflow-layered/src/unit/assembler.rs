//! The assembler: collects the pieces of units, and delivers each unit's prefix at its deadline.
//!
//! # Numbers far from the present
//!
//! A piece is a *stray* if its number differs by more than 4,096 from those at hand, or if its time
//! is more than 10 s from the sender's clock. Strays are ignored. Four strays in a row that agree
//! with each other mean that the sender has restarted, or that the receiver was cut off for long.
//! The assembler then hands out the units at hand, and begins again with the fourth stray.

use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use manyflow_core::Time;

use super::partial::Partial;
use super::playout::Playout;
use super::{Latency, Piece, UNIT_BYTES_MAX};

/// The distance between numbers, from which a piece is a stray.
const NEAR: i64 = 4_096;
/// The number of strays in a row that begin a new sequence.
const STRAYS: u32 = 4;
/// Units are numbered internally from here, so that the numbers before stay positive.
const FIRST: i64 = 1 << 32;
/// The maximum number of events that wait for [`Assembler::poll_event`].
const EVENTS_MAX: usize = 256;

/// The parameters of an [`Assembler`].
#[derive(Copy, Clone, Debug)]
pub struct AssemblerConfig {
    /// The time that units wait for their pieces.
    pub latency: Latency,
    /// The number of bytes of each unit that are kept; the prefix of a longer unit ends there.
    pub unit_bytes_max: usize,
    /// The number of units that wait at the same time. Another one replaces the oldest.
    pub units_max: usize,
    /// The bytes of all units at the same time. Further bytes are refused.
    pub bytes_max: usize,
}

impl Default for AssemblerConfig {
    /// An adaptive latency from 20 ms to 2 s, and 64 MiB in at most 4,096 units.
    fn default() -> AssemblerConfig {
        AssemblerConfig {
            latency: Latency::Adaptive {
                min: Duration::from_millis(20),
                max: Duration::from_secs(2),
            },
            unit_bytes_max: UNIT_BYTES_MAX,
            units_max: 4_096,
            bytes_max: UNIT_BYTES_MAX,
        }
    }
}

/// The delivered part of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The number of the unit, modulo 2^32.
    pub number: u32,
    /// The unit's time on the sender's clock, in microseconds modulo 2^32.
    pub time_us: u32,
    /// The length of the whole unit in bytes.
    pub length: u32,
    /// The bytes before the first gap, at least one.
    pub prefix: Bytes,
    /// The delay of the unit's last piece: its transit beyond the shortest transit.
    pub delay: Duration,
    /// Whether the prefix is the whole unit.
    pub complete: bool,
}

/// An event of an [`Assembler`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AssemblerEvent {
    /// No first byte of these units has arrived before their deadline.
    Missing {
        /// The number of the first missing unit, modulo 2^32.
        first: u32,
        /// The number of missing units.
        count: u32,
    },
    /// The numbers and times have begun again: the sender has restarted, or the receiver was cut
    /// off for long.
    Restarted {
        /// The number of the first unit of the new sequence.
        number: u32,
    },
}

/// Counts of an [`Assembler`] since its creation.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct AssemblerStats {
    /// Units delivered.
    pub units: u64,
    /// Units delivered in whole.
    pub units_complete: u64,
    /// Units of which no first byte has arrived before their deadline.
    pub units_missing: u64,
    /// Bytes delivered.
    pub bytes: u64,
    /// Bytes that arrived in time behind the gap of a unit, and were dropped at its deadline.
    pub bytes_behind_gaps: u64,
    /// Pieces of units that were delivered or missed before.
    pub pieces_late: u64,
    /// Pieces that were ignored, because their number or time was far from the present.
    pub pieces_stray: u64,
    /// Pieces that were refused: for lack of memory, or because they contradict their unit.
    pub pieces_refused: u64,
    /// Sequences that began again.
    pub restarts: u64,
}

/// Delivers the prefixes of units.
///
/// The owner calls [`handle_piece`](Assembler::handle_piece) for each piece, and
/// [`poll_unit`](Assembler::poll_unit) after each piece and at each
/// [`poll_timeout`](Assembler::poll_timeout), until there is no unit.
#[derive(Debug)]
pub struct Assembler {
    config: AssemblerConfig,
    playout: Playout,
    /// The units at hand, by unwrapped number.
    units: BTreeMap<i64, Waiting>,
    /// Units that have left `units` before their deadline, for lack of room or by a restart.
    ready: VecDeque<Unit>,
    /// The bytes of `units` and `ready`.
    bytes: usize,
    /// The unwrapped number of the next unit to deliver, once one was delivered or missed.
    next: Option<i64>,
    /// The highest unwrapped number so far in this sequence.
    highest: Option<i64>,
    stray: Option<Stray>,
    events: VecDeque<AssemblerEvent>,
    stats: AssemblerStats,
}

/// A unit before its deadline.
#[derive(Debug)]
struct Waiting {
    time_us: u32,
    unwrapped_us: i64,
    length: u32,
    partial: Partial,
    delay: Duration,
}

impl Waiting {
    fn is_complete(&self) -> bool {
        self.partial.prefix_bytes() == self.length as usize
    }
}

/// The last of some strays that agree with each other.
#[derive(Debug)]
struct Stray {
    number: u32,
    time_us: u32,
    arrival: Time,
    count: u32,
}

impl Stray {
    /// Returns whether another stray may come from the same sender.
    fn agrees(&self, now: Time, piece: &Piece) -> bool {
        let ahead = i64::from(piece.unit.wrapping_sub(self.number) as i32);
        let passed_us = i64::from(piece.time_us.wrapping_sub(self.time_us) as i32);
        let elapsed_us = (now - self.arrival).as_micros();
        let skew_us = i128::from(passed_us) - elapsed_us as i128;
        ahead.abs() <= NEAR && skew_us.abs() <= 10_000_000
    }
}

impl Assembler {
    /// Creates an assembler without units. A `units_max` of zero counts as one.
    pub fn new(mut config: AssemblerConfig) -> Assembler {
        config.units_max = config.units_max.max(1);
        Assembler {
            playout: Playout::new(config.latency),
            config,
            units: BTreeMap::new(),
            ready: VecDeque::new(),
            bytes: 0,
            next: None,
            highest: None,
            stray: None,
            events: VecDeque::new(),
            stats: AssemblerStats::default(),
        }
    }

    /// Stores the bytes of a piece that arrives at `now`. Nothing in a piece is trusted: pieces
    /// that are far from the present, contradict their unit or exceed a limit are counted and
    /// ignored.
    pub fn handle_piece(&mut self, now: Time, piece: Piece, bytes: &[u8]) {
        self.handle_arrival(now, piece, bytes, false);
    }

    /// Stores the bytes of a piece as [`handle_piece`](Assembler::handle_piece) does. If the piece
    /// is late because it was repaired or overtaken, an adaptive latency leaves room for others.
    pub fn handle_arrival(&mut self, now: Time, piece: Piece, bytes: &[u8], is_late: bool) {
        let end = u64::from(piece.offset) + bytes.len() as u64;
        if bytes.is_empty() || end > u64::from(piece.length) {
            self.stats.pieces_refused += 1;
            return;
        }
        let Some(number) = self.near_number(now, &piece) else {
            return self.handle_stray(now, piece, bytes);
        };
        self.stray = None;
        let delay = self.store(now, number, piece, bytes);
        if is_late {
            self.playout.note_repair(now, delay);
        }
    }

    /// Returns the unwrapped number of a piece's unit; `None` for a stray.
    fn near_number(&self, now: Time, piece: &Piece) -> Option<i64> {
        let Some(highest) = self.highest else {
            return Some(FIRST + i64::from(piece.unit));
        };
        let ahead = i64::from(piece.unit.wrapping_sub(highest as u32) as i32);
        let near = ahead.abs() <= NEAR && self.playout.is_plausible(now, piece.time_us);
        near.then_some(highest + ahead)
    }

    fn handle_stray(&mut self, now: Time, piece: Piece, bytes: &[u8]) {
        self.stats.pieces_stray += 1;
        let before = self.stray.take().filter(|stray| stray.agrees(now, &piece));
        let count = before.map_or(1, |stray| stray.count + 1);
        if count >= STRAYS {
            self.restart(piece.unit);
            let _ = self.store(now, FIRST + i64::from(piece.unit), piece, bytes);
            return;
        }
        self.stray = Some(Stray {
            number: piece.unit,
            time_us: piece.time_us,
            arrival: now,
            count,
        });
    }

    /// Hands out the units at hand, and forgets numbers and clock.
    fn restart(&mut self, number: u32) {
        while let Some((&first, _)) = self.units.first_key_value() {
            self.retire(first);
        }
        self.playout.forget_clock();
        (self.next, self.highest) = (None, None);
        self.stats.restarts += 1;
        self.push_event(AssemblerEvent::Restarted { number });
    }

    /// Stores a piece, unless it is refused or comes too late. Returns its delay.
    fn store(&mut self, now: Time, number: i64, piece: Piece, bytes: &[u8]) -> Duration {
        let (unwrapped_us, delay) = self.playout.note_arrival(now, piece.time_us);
        self.highest = self.highest.max(Some(number));
        if self.next.is_some_and(|next| number < next) {
            self.stats.pieces_late += 1;
            return delay;
        }
        if !self.make_room(number, bytes.len()) {
            self.stats.pieces_refused += 1;
            return delay;
        }
        let unit = self.units.entry(number).or_insert(Waiting {
            time_us: piece.time_us,
            unwrapped_us,
            length: piece.length,
            partial: Partial::default(),
            delay,
        });
        if (unit.time_us, unit.length) != (piece.time_us, piece.length) {
            self.stats.pieces_refused += 1;
            return delay;
        }
        unit.delay = unit.delay.max(delay);
        let before = unit.partial.bytes();
        let start = piece.offset as usize;
        let room = self.config.unit_bytes_max.saturating_sub(start);
        if room > 0 {
            unit.partial.insert(start, &bytes[..bytes.len().min(room)]);
        }
        self.bytes = self.bytes + unit.partial.bytes() - before;
        debug_assert!(self.bytes <= self.config.bytes_max, "memory is bounded");
        debug_assert!(self.units.len() <= self.config.units_max);
        delay
    }

    /// Makes room for bytes of a unit. Returns false if the memory does not suffice.
    fn make_room(&mut self, number: i64, bytes: usize) -> bool {
        if self.bytes + bytes > self.config.bytes_max {
            return false;
        }
        if self.units.contains_key(&number) || self.units.len() < self.config.units_max {
            return true;
        }
        match self.units.first_key_value() {
            Some((&first, _)) if first < number => self.retire(first),
            _ => return false,
        }
        true
    }

    /// Takes the oldest unit out of those that wait, and keeps its prefix for the next poll.
    fn retire(&mut self, first: i64) {
        if let Some(unit) = self.take(first) {
            self.bytes += unit.prefix.len();
            self.ready.push_back(unit);
        }
        if self.ready.len() > self.config.units_max
            && let Some(unread) = self.ready.pop_front()
        {
            self.bytes -= unread.prefix.len();
        }
    }

    /// Returns the next unit whose deadline has passed, or that is complete while no earlier unit
    /// is awaited. Units come in the order of their numbers.
    pub fn poll_unit(&mut self, now: Time) -> Option<Unit> {
        if let Some(unit) = self.ready.pop_front() {
            self.bytes -= unit.prefix.len();
            return Some(self.count(unit));
        }
        loop {
            let (&first, unit) = self.units.first_key_value()?;
            let due = self.playout.deadline(unit.unwrapped_us) <= now;
            let awaited = self.next == Some(first) && unit.is_complete();
            if !due && !awaited {
                return None;
            }
            self.playout.note_unit(now, unit.delay);
            if let Some(unit) = self.take(first) {
                return Some(self.count(unit));
            }
        }
    }

    /// Removes the oldest unit, and reports those that are missing before it. Returns `None` if the
    /// unit has no first byte.
    fn take(&mut self, first: i64) -> Option<Unit> {
        let unit = self.units.remove(&first)?;
        self.bytes -= unit.partial.bytes();
        debug_assert!(self.next.is_none_or(|next| next <= first));
        let prefix_bytes = unit.partial.prefix_bytes();
        let behind = unit.partial.bytes() - prefix_bytes;
        self.stats.bytes_behind_gaps += behind as u64;
        let end = first + i64::from(prefix_bytes == 0);
        self.report_missing(self.next.unwrap_or(first), end);
        self.next = Some(first + 1);
        (prefix_bytes > 0).then(|| Unit {
            number: first as u32,
            time_us: unit.time_us,
            length: unit.length,
            complete: unit.is_complete(),
            delay: unit.delay,
            prefix: unit.partial.into_prefix().into(),
        })
    }

    fn report_missing(&mut self, first: i64, end: i64) {
        let Ok(count) = u32::try_from(end - first) else {
            return;
        };
        if count > 0 {
            self.stats.units_missing += u64::from(count);
            let first = first as u32;
            self.push_event(AssemblerEvent::Missing { first, count });
        }
    }

    fn count(&mut self, unit: Unit) -> Unit {
        self.stats.units += 1;
        self.stats.units_complete += u64::from(unit.complete);
        self.stats.bytes += unit.prefix.len() as u64;
        unit
    }

    fn push_event(&mut self, event: AssemblerEvent) {
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Returns the next event. If nobody polls, only the last events are kept.
    pub fn poll_event(&mut self) -> Option<AssemblerEvent> {
        self.events.pop_front()
    }

    /// Returns the time at which [`poll_unit`](Assembler::poll_unit) has work, if no piece arrives
    /// before: the deadline of the oldest unit.
    pub fn poll_timeout(&self) -> Option<Time> {
        if !self.ready.is_empty() {
            return Some(Time::ZERO);
        }
        let (_, unit) = self.units.first_key_value()?;
        Some(self.playout.deadline(unit.unwrapped_us))
    }

    /// Returns the present latency.
    pub fn latency(&self) -> Duration {
        self.playout.latency()
    }

    /// Returns the bytes of units in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the counts since the creation.
    pub fn stats(&self) -> AssemblerStats {
        self.stats
    }
}
