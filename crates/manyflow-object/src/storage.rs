//! The place where a receiver keeps symbols until their object is complete, and where a sender
//! keeps repair symbols until they are sent.
//!
//! Symbols of large objects do not fit in memory. So both ends write them to a [`Storage`], which a
//! driver can put on a disk, and keep only numbers in memory.

use std::collections::BTreeMap;
use std::io;

/// Random-access bytes for each of several objects.
///
/// Bytes that were never written can be read; their values are unspecified. An error is returned to
/// the caller of the receiver or sender, whose state then does not include the symbol in question.
pub trait Storage {
    /// Writes `bytes` to `object`, from `offset` on.
    ///
    /// # Errors
    /// If the bytes cannot be stored, for example because a disk is full.
    fn write_at(&mut self, object: u128, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Fills `buffer` with the bytes of `object` from `offset` on.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    fn read_at(&mut self, object: u128, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Removes all bytes of `object`.
    ///
    /// # Errors
    /// If the bytes cannot be removed.
    fn remove(&mut self, object: u128) -> io::Result<()>;

    /// Takes note of a change of the receiver's state. A storage that outlives the receiver keeps
    /// these records, in order, so that [`ObjectReceiver::resume`] can continue from them.
    ///
    /// [`ObjectReceiver::resume`]: crate::receiver::ObjectReceiver::resume
    ///
    /// # Errors
    /// If the record cannot be stored.
    fn record(&mut self, _record: Record) -> io::Result<()> {
        Ok(())
    }

    /// Takes note of the session's table of files, whose digest is the expected one.
    ///
    /// # Errors
    /// If the table cannot be stored.
    fn record_table(&mut self, _table: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// A change of a receiver's state, in the order in which the changes happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// A symbol was written to the storage.
    Symbol {
        /// The object's TOI.
        object: u32,
        /// The source block's number.
        sbn: u32,
        /// The encoding symbol ID.
        esi: u32,
        /// The place in the block's bytes, counted in symbols.
        place: u32,
    },
    /// The symbol at a place no longer belongs to the block.
    Withdrawn {
        /// The object's TOI.
        object: u32,
        /// The source block's number.
        sbn: u32,
        /// The encoding symbol ID.
        esi: u32,
    },
    /// A block was decoded: the storage has its source symbols, in order.
    Decoded {
        /// The object's TOI.
        object: u32,
        /// The source block's number.
        sbn: u32,
    },
    /// All symbols of a block were dropped, because some of them were false.
    Dropped {
        /// The object's TOI.
        object: u32,
        /// The source block's number.
        sbn: u32,
    },
}

/// Length of the pages of a [`MemoryStorage`] in bytes.
const PAGE_BYTES: usize = 4_096;

/// A storage in memory. It allocates pages only for bytes that are written.
#[derive(Debug)]
pub struct MemoryStorage {
    pages: BTreeMap<(u128, u64), Box<[u8]>>,
    bytes_max: u64,
}

impl Default for MemoryStorage {
    /// Creates a storage that holds up to 4 GiB.
    fn default() -> Self {
        MemoryStorage::new(4 << 30)
    }
}

impl MemoryStorage {
    /// Creates a storage that holds up to `bytes_max` bytes, in pages of 4096 bytes.
    pub fn new(bytes_max: u64) -> Self {
        MemoryStorage {
            pages: BTreeMap::new(),
            bytes_max,
        }
    }

    /// The memory in use, in bytes.
    pub fn bytes(&self) -> u64 {
        (self.pages.len() * PAGE_BYTES) as u64
    }
}

impl Storage for MemoryStorage {
    fn write_at(&mut self, object: u128, offset: u64, mut bytes: &[u8]) -> io::Result<()> {
        let mut offset = offset;
        while !bytes.is_empty() {
            let (page, start, length) = page_part(offset, bytes.len());
            let is_new = !self.pages.contains_key(&(object, page));
            if is_new && self.bytes() + PAGE_BYTES as u64 > self.bytes_max {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let page = self
                .pages
                .entry((object, page))
                .or_insert_with(|| vec![0; PAGE_BYTES].into());
            let (now, later) = bytes.split_at(length);
            page[start..start + length].copy_from_slice(now);
            (bytes, offset) = (later, offset + length as u64);
        }
        Ok(())
    }

    fn read_at(&mut self, object: u128, offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        let mut offset = offset;
        while !buffer.is_empty() {
            let (page, start, length) = page_part(offset, buffer.len());
            let (now, later) = buffer.split_at_mut(length);
            match self.pages.get(&(object, page)) {
                Some(page) => now.copy_from_slice(&page[start..start + length]),
                None => now.fill(0),
            }
            (buffer, offset) = (later, offset + length as u64);
        }
        Ok(())
    }

    fn remove(&mut self, object: u128) -> io::Result<()> {
        let pages = self.pages.range((object, 0)..=(object, u64::MAX));
        let pages: Vec<_> = pages.map(|(&key, _)| key).collect();
        for key in pages {
            self.pages.remove(&key);
        }
        Ok(())
    }
}

/// Returns the page of `offset`, the position in this page, and the number of the next `length`
/// bytes that are in it.
fn page_part(offset: u64, length: usize) -> (u64, usize, usize) {
    let start = (offset % PAGE_BYTES as u64) as usize;
    let part = length.min(PAGE_BYTES - start);
    (offset / PAGE_BYTES as u64, start, part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_are_read_as_they_were_written(writes in proptest::collection::vec((0_u128..3, 0_u64..20_000, proptest::collection::vec(any::<u8>(), 0..9_000)), 0..8)) {
            let (mut storage, mut plain) = (MemoryStorage::default(), vec![vec![0; 30_000]; 3]);
            for (object, offset, bytes) in &writes {
                storage.write_at(*object, *offset, bytes).unwrap();
                plain[*object as usize][*offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            for (object, expected) in (0..).zip(&plain) {
                let mut read = vec![0; 30_000];
                storage.read_at(object, 0, &mut read).unwrap();
                prop_assert_eq!(&read, expected);
            }
        }
    }

    #[test]
    fn memory_is_taken_only_for_bytes_that_are_written() {
        let mut storage = MemoryStorage::new(3 * 4_096);
        storage.write_at(1, 1 << 40, &[7; 4_096]).unwrap();
        storage.write_at(1, 5, &[7]).unwrap();
        assert_eq!(storage.bytes(), 2 * 4_096);
        storage.write_at(2, 4_095, &[7, 7]).unwrap_err();
        storage.remove(1).unwrap();
        storage.write_at(2, 4_095, &[7, 7]).unwrap();
    }
}
