//! Records that are longer than a message of the overlay can be.

use bytes::{Bytes, BytesMut};

use crate::names::ClientId;
use crate::wire::{MESSAGE_BYTES_MAX, PART_BYTES, Part, Record};

/// Divides a record into records of at most `longest` bytes.
pub(crate) fn divide(
    client: ClientId,
    record: &Bytes,
    longest: usize,
) -> impl Iterator<Item = Bytes> {
    let is_short = record.len() <= longest;
    let whole = is_short.then(|| record.clone());
    let chunk = longest - PART_BYTES;
    let count = record.len().div_ceil(chunk);
    let chunks = record.chunks(chunk).filter(move |_| !is_short);
    let parts = chunks.enumerate().map(move |(index, bytes)| {
        let is_last = index + 1 == count;
        let part = Part {
            client,
            is_last,
            bytes,
        };
        Record::Part(part).encode()
    });
    whole.into_iter().chain(parts)
}

/// The parts of a record that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Assembly(BytesMut);

impl Assembly {
    /// Adds a part. Returns the record if it is complete. Drops records that are too long.
    pub(crate) fn add(&mut self, part: &Part<'_>) -> Option<Bytes> {
        if self.0.len() + part.bytes.len() <= MESSAGE_BYTES_MAX {
            self.0.extend_from_slice(part.bytes);
        }
        part.is_last.then(|| self.0.split().freeze())
    }
}

/// Returns whether a message is complete with this part of it.
pub fn is_last_part(part: &[u8]) -> bool {
    !matches!(Record::decode(part), Some(Record::Part(part)) if !part.is_last)
}
