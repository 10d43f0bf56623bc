//! Bytes that wait to be written to files, so that neighbours are written together.
//!
//! Symbols of one block arrive in order, but between those of other blocks. Written one by one,
//! each costs a system call, which takes longer than all else that a receiver does for it.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;

/// The length of a part of an object, in bytes. A part takes this memory, even for one symbol.
const PART_BYTES: usize = 1 << 16;
/// The memory of all parts at which they are written, in bytes.
const MEMORY_BYTES: usize = 64 << 20;

/// Bytes of several objects that are not written yet.
#[derive(Debug, Default)]
pub(super) struct WriteBehind {
    /// The parts by object and number.
    parts: BTreeMap<(u128, u64), Part>,
    /// Memory of former parts, for new ones.
    spare: Vec<Box<[u8]>>,
}

#[derive(Debug)]
struct Part {
    bytes: Box<[u8]>,
    /// The places of bytes that wait: in order, with gaps between them.
    waiting: Vec<Range<usize>>,
}

impl WriteBehind {
    /// Whether no bytes wait.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether the bytes should be written before others are added.
    pub(super) fn is_full(&self) -> bool {
        self.parts.len() * PART_BYTES >= MEMORY_BYTES
    }

    /// Adds bytes of `object` from `offset` on. They replace those that wait at the same place.
    pub(super) fn add(&mut self, object: u128, offset: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for (number, place) in parts_of(offset, bytes.len()) {
            let (now, later) = rest.split_at(place.len());
            let spare = &mut self.spare;
            let part = self.parts.entry((object, number)).or_insert_with(|| Part {
                bytes: spare.pop().unwrap_or_else(|| vec![0; PART_BYTES].into()),
                waiting: Vec::new(),
            });
            part.bytes[place.clone()].copy_from_slice(now);
            insert(&mut part.waiting, place);
            rest = later;
        }
    }

    /// Whether all bytes of `object` in a range of this length wait here.
    pub(super) fn has(&self, object: u128, offset: u64, length: usize) -> bool {
        parts_of(offset, length).all(|(number, place)| {
            let part = self.parts.get(&(object, number));
            part.is_some_and(|part| {
                let covers = |waiting: &Range<usize>| {
                    waiting.start <= place.start && place.end <= waiting.end
                };
                part.waiting.iter().any(covers)
            })
        })
    }

    /// Copies the bytes of `object` that wait at the place of `buffer`, from `offset` on.
    pub(super) fn copy_to(&self, object: u128, offset: u64, buffer: &mut [u8]) {
        let mut rest = buffer;
        for (number, place) in parts_of(offset, rest.len()) {
            let (now, later) = rest.split_at_mut(place.len());
            rest = later;
            let Some(part) = self.parts.get(&(object, number)) else {
                continue;
            };
            for waiting in &part.waiting {
                let (start, end) = (waiting.start.max(place.start), waiting.end.min(place.end));
                if start < end {
                    now[start - place.start..end - place.start]
                        .copy_from_slice(&part.bytes[start..end]);
                }
            }
        }
    }

    /// Writes all bytes of an object, or of all objects if that is `None`. Those that cannot be
    /// written remain.
    pub(super) fn write(
        &mut self,
        object: Option<u128>,
        mut write: impl FnMut(u128, u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let objects = object.map_or(0..=u128::MAX, |object| object..=object);
        let written = (*objects.start(), 0)..=(*objects.end(), u64::MAX);
        for (&(object, number), part) in self.parts.range(written) {
            for waiting in &part.waiting {
                let offset = number * PART_BYTES as u64 + waiting.start as u64;
                write(object, offset, &part.bytes[waiting.clone()])?;
            }
        }
        self.remove(object);
        Ok(())
    }

    /// Drops all bytes of an object, or of all objects if that is `None`.
    pub(super) fn remove(&mut self, object: Option<u128>) {
        let removed = match object {
            None => std::mem::take(&mut self.parts),
            Some(object) => {
                let mut removed = self.parts.split_off(&(object, 0));
                let mut behind = object
                    .checked_add(1)
                    .map_or_else(BTreeMap::new, |next| removed.split_off(&(next, 0)));
                self.parts.append(&mut behind);
                removed
            }
        };
        self.spare
            .extend(removed.into_values().map(|part| part.bytes));
    }
}

/// Returns the numbers of an object's parts that have bytes of a range, and the bytes' places.
fn parts_of(offset: u64, length: usize) -> impl Iterator<Item = (u64, Range<usize>)> {
    let end = offset + length as u64;
    let mut next = offset;
    std::iter::from_fn(move || {
        let (number, start) = (
            next / PART_BYTES as u64,
            (next % PART_BYTES as u64) as usize,
        );
        let length = (end - next).min((PART_BYTES - start) as u64) as usize;
        next += length as u64;
        (length > 0).then_some((number, start..start + length))
    })
}

/// Adds a range to others, and joins those that touch.
fn insert(ranges: &mut Vec<Range<usize>>, new: Range<usize>) {
    let first = ranges.partition_point(|range| range.end < new.start);
    let end = ranges.partition_point(|range| range.start <= new.end);
    if first == end {
        ranges.insert(first, new);
        return;
    }
    let joined = ranges[first].start.min(new.start)..ranges[end - 1].end.max(new.end);
    ranges[first] = joined;
    ranges.drain(first + 1..end);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_waits_is_read_and_written_as_it_was_added(
            adds in proptest::collection::vec((0_u128..2, 0_u64..200_000, 1_usize..70_000, any::<u8>()), 1..20),
            read_from in 0_u64..200_000, read_length in 1_usize..100_000,
        ) {
            let mut waiting = WriteBehind::default();
            let mut expected = vec![vec![None; 300_000]; 2];
            for &(object, offset, length, byte) in &adds {
                waiting.add(object, offset, &vec![byte; length]);
                expected[object as usize][offset as usize..][..length].fill(Some(byte));
            }
            let place = read_from as usize..read_from as usize + read_length;
            let has = expected[0][place.clone()].iter().all(Option::is_some);
            prop_assert_eq!(waiting.has(0, read_from, read_length), has);
            let mut buffer = vec![99; read_length];
            waiting.copy_to(0, read_from, &mut buffer);
            let read: Vec<_> = expected[0][place].iter().map(|byte| byte.unwrap_or(99)).collect();
            prop_assert_eq!(buffer, read);

            let mut written = vec![vec![None; 300_000]; 2];
            for object in [Some(1), None] {
                waiting.write(object, |object, offset, bytes| {
                    for (place, byte) in (offset as usize..).zip(bytes) {
                        // Nothing is written twice.
                        assert_eq!(written[object as usize][place].replace(*byte), None);
                    }
                    Ok(())
                }).unwrap();
                prop_assert!(object.is_none() || !waiting.has(1, 0, 1));
            }
            prop_assert_eq!(written, expected);
            prop_assert!(waiting.parts.is_empty());
        }
    }

    #[test]
    fn what_cannot_be_written_remains() {
        let mut waiting = WriteBehind::default();
        waiting.add(1, 10, b"bytes");
        let full = |_, _, _: &[u8]| Err(io::ErrorKind::StorageFull.into());
        waiting.write(None, full).unwrap_err();
        assert!(waiting.has(1, 10, 5));
        waiting.remove(Some(1));
        assert!(!waiting.has(1, 10, 5));
    }
}
