//! The place in which a member keeps bytes.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::Address;

/// The reason why a shelf could not do something: a full disk, an I/O error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShelfError(pub String);

/// The place in which a [`Member`](crate::Member) keeps bytes.
pub trait Shelf {
    /// Stores bytes under an address, instead of those that it has there. When the call returns,
    /// the bytes survive a crash.
    ///
    /// # Errors
    /// If the bytes cannot be stored. The shelf then still has what it had before.
    fn put(&mut self, address: Address, bytes: &Bytes) -> Result<(), ShelfError>;

    /// Returns the bytes under an address; `None` if there are none, or they no longer match their
    /// digest.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    fn get(&mut self, address: Address) -> Result<Option<Bytes>, ShelfError>;

    /// Returns all addresses, in order.
    ///
    /// # Errors
    /// If they cannot be read.
    fn list(&self) -> Result<Vec<Address>, ShelfError>;
}

/// A shelf in memory, for tests.
#[derive(Clone, Debug, Default)]
pub struct MemoryShelf {
    stored: BTreeMap<Address, Bytes>,
    /// The bytes that fit; no limit if `None`.
    room: Option<usize>,
}

impl MemoryShelf {
    /// Creates a shelf for at most `room` bytes.
    pub fn with_room(room: usize) -> MemoryShelf {
        MemoryShelf {
            stored: BTreeMap::new(),
            room: Some(room),
        }
    }
}

impl Shelf for MemoryShelf {
    fn put(&mut self, address: Address, bytes: &Bytes) -> Result<(), ShelfError> {
        let others = self.stored.iter().filter(|(other, _)| **other != address);
        let held: usize = others.map(|(_, bytes)| bytes.len()).sum();
        if self.room.is_some_and(|room| held + bytes.len() > room) {
            return Err(ShelfError("no room is left".to_owned()));
        }
        self.stored.insert(address, bytes.clone());
        Ok(())
    }

    fn get(&mut self, address: Address) -> Result<Option<Bytes>, ShelfError> {
        Ok(self.stored.get(&address).cloned())
    }

    fn list(&self) -> Result<Vec<Address>, ShelfError> {
        Ok(self.stored.keys().copied().collect())
    }
}
