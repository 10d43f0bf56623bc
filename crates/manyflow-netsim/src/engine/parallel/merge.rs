//! Merges the logs of a window: events get their final numbers, and observers are called in order.
//!
//! The page of the module above shows that this is the order of one thread.

use core::ops::DerefMut;

use manyflow_core::{Header, Time};

use super::Part;
use crate::engine::Observer;

/// The place in a part's log up to which it has been merged.
#[derive(Default)]
struct Cursor {
    handled: usize,
    calls: usize,
    /// The last provisional number that has a final one.
    taken: u32,
    /// The time and the final number of the next event.
    next: Option<(Time, u32)>,
}

impl Cursor {
    fn find_next<H, E>(&mut self, part: &Part<H, E>) {
        let next = part.log.handled.get(self.handled);
        self.next = next.map(|event| (event.time, part.number(event.number)));
    }
}

impl<H, E> Part<H, E> {
    /// Returns the final number of a number that was taken in the last window or before.
    #[inline]
    pub(super) fn number(&self, number: u32) -> u32 {
        match number.checked_sub(self.base + 1) {
            None => number,
            Some(place) => self.numbers[place as usize],
        }
    }
}

/// Merges the logs of all parts. Returns the last final number.
pub(super) fn merge<H: Header, E>(
    parts: &mut [impl DerefMut<Target = Part<H, E>>],
    observer: &mut dyn Observer<H, E>,
) -> u32 {
    let mut last = parts.first().map_or(0, |part| part.base);
    let mut cursors = Vec::with_capacity(parts.len());
    for part in parts.iter_mut() {
        part.numbers.clear();
        let mut cursor = Cursor {
            taken: part.base,
            ..Cursor::default()
        };
        cursor.find_next(part);
        cursors.push(cursor);
    }
    let first = |cursors: &[Cursor]| {
        let heads = cursors.iter().zip(0..);
        let heads = heads.filter_map(|(cursor, place)| Some((cursor.next?, place)));
        heads.min().map(|((time, _), place)| (time, place))
    };
    while let Some((now, place)) = first(&cursors) {
        let (cursor, part): (&mut Cursor, &mut Part<H, E>) =
            (&mut cursors[place], &mut parts[place]);
        let event = part.log.handled[cursor.handled];
        let count = event.taken - cursor.taken;
        part.numbers.extend((1..=count).map(|more| last + more));
        last += count;
        let calls = cursor.calls..event.calls as usize;
        for call in &part.log.calls[calls] {
            call.make(now, part.border(), observer);
        }
        cursor.handled += 1;
        (cursor.taken, cursor.calls) = (event.taken, event.calls as usize);
        cursor.find_next(part);
    }
    for part in parts.iter_mut() {
        part.log.handled.clear();
        part.log.calls.clear();
    }
    last
}
