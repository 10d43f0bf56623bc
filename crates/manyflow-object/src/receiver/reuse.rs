//! Takes parts of a file from a former version of it: the chunks that both have.
//!
//! ```text
//! former version --cut--> chunks --digest in the FDT?--> copies: places in both versions
//!        |                                                  |
//!        +--------------> storage, at the places in the new one <--+
//!                         whole blocks: compared with their digests
//!                         others: symbols as if they had arrived
//! ```
//!
//! A former version that is false, or changes meanwhile, can do no harm: the digests of the blocks
//! decide. It costs the blocks that it was used for, which are received again.

use std::io;

use super::ObjectReceiver;
use super::former::{CopyError, Former, Part};
use crate::chunks::{Chunk, Chunks, chunk_of, cut_source};
use crate::needs::Needs;
use crate::source::Source;
use crate::storage::Storage;

/// The parts of a file that were taken from a former version.
#[derive(Debug)]
pub struct Reused {
    /// Their length in bytes, as far as it saves symbols.
    pub bytes: u64,
    /// The error that kept the former version from being read to its end.
    pub unread: Option<io::Error>,
}

impl<S: Storage> ObjectReceiver<S> {
    /// Whether [`reuse`](Self::reuse) can take parts of the file from a former version.
    pub fn can_reuse(&self, toi: u128) -> bool {
        self.objects
            .get(&toi)
            .is_some_and(|object| object.has_chunks())
    }

    /// Takes all chunks that the file has in common with `former`, which may be any bytes. A block
    /// that has fewer symbols than `former` gives it loses them. This reads `former` and copies the
    /// common chunks, so it takes time. A file takes one former version at most.
    ///
    /// # Errors
    /// If the storage fails.
    pub fn reuse(&mut self, toi: u128, former: &dyn Source) -> io::Result<Reused> {
        let (bytes, unread) = (0, None);
        let Some(object) = self.objects.get_mut(&toi) else {
            return Ok(Reused { bytes, unread });
        };
        let before = object.bytes();
        let Some((chunks, assembly)) = object.take_chunks().zip(object.assembly()) else {
            return Ok(Reused { bytes, unread });
        };
        let memory_left = self.config.memory_max.saturating_sub(self.memory);
        let (parts, mut unread) = common_parts(&chunks, former);
        let former = Former::new(former, parts);
        let symbol_bytes = u64::from(assembly.oti().symbol_length());
        let (held, result) = assembly.hold(&former, memory_left, &mut self.storage);
        self.memory = self.memory - before + object.bytes();
        match result {
            Ok(()) => {}
            Err(CopyError::Former(error)) => unread = Some(error),
            Err(CopyError::Storage(error)) => return Err(error),
        }
        let (bytes, dropped) = (held.bytes, held.dropped_symbols);
        self.progress.useful_bytes += bytes;
        self.progress.earlier_bytes += bytes;
        // They arrived in vain.
        self.progress.useful_symbols -= dropped.min(self.progress.useful_symbols);
        self.progress.useful_bytes -= (dropped * symbol_bytes).min(self.progress.received_bytes());
        self.progress.surplus_symbols += dropped;
        if object.can_finish() {
            self.finish(toi)?;
            self.tell_if_all_complete();
        }
        Ok(Reused { bytes, unread })
    }

    /// Returns the symbols that the receiver lacks. `None` while it does not know all files, or
    /// not the number of their symbols.
    pub fn needs(&self) -> Option<Needs> {
        let mut needs = Needs::default();
        for (&toi, object) in &self.objects {
            let blocks = object.needs()?;
            let toi = u32::try_from(toi).ok()?;
            for (sbn, symbols) in blocks {
                needs.push(toi, sbn, symbols);
            }
        }
        self.listed_completely.then_some(needs)
    }
}

/// Returns the parts of a file with these chunks that `former` has, too, and the error at which
/// reading ended.
fn common_parts(chunks: &Chunks, former: &dyn Source) -> (Vec<Part>, Option<io::Error>) {
    let mut places = places_of(chunks);
    let (mut parts, mut from, mut left) = (Vec::new(), 0, places.len());
    for bytes in cut_source(former, chunks.average()) {
        let chunk = match bytes {
            Ok(bytes) => chunk_of(&bytes),
            Err(error) => return (parts, Some(error)),
        };
        let length = u64::from(chunk.length);
        let first = places.partition_point(|place| place.chunk < chunk);
        let equal = places[first..].iter_mut();
        let equal = equal.take_while(|place| place.chunk == chunk && !place.is_found);
        for place in equal {
            place.is_found = true;
            left -= 1;
            let at = place.at;
            parts.push(Part { at, from, length });
        }
        if left == 0 {
            break;
        }
        from += length;
    }
    (parts, None)
}

/// A place of a chunk in the new version.
struct Place {
    chunk: Chunk,
    at: u64,
    /// Whether the former version has the chunk. Its further copies of the chunk are of no use, so
    /// no former version makes the receiver copy more than the file has.
    is_found: bool,
}

/// Returns the places of all chunks, those of equal chunks side by side.
fn places_of(chunks: &Chunks) -> Vec<Place> {
    let mut at = 0;
    let place = |chunk: &Chunk| {
        let place = Place {
            chunk: *chunk,
            at,
            is_found: false,
        };
        at += u64::from(chunk.length);
        place
    };
    let mut places: Vec<_> = chunks.iter().map(place).collect();
    places.sort_by_key(|place| place.chunk);
    places
}
