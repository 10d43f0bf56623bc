//! The place in which a member keeps bytes.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::{Address, Usage};

/// The reason why a shelf could not do something: a full disk, an I/O error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ShelfError(pub String);

/// Length and age of stored bytes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The length in bytes.
    pub bytes: u64,
    /// The time since they were put or refreshed last.
    pub age: Duration,
}

/// The place in which a [`Member`](crate::Member) keeps bytes. Several threads may use it at once.
pub trait Shelf {
    /// Stores bytes under an address, instead of those that it has there. When the call returns,
    /// the bytes survive a crash.
    ///
    /// # Errors
    /// If the bytes cannot be stored. The shelf then still has what it had before.
    fn put(&self, address: Address, bytes: &Bytes) -> Result<(), ShelfError>;

    /// Stores bytes under several addresses, as [`put`](Shelf::put) does. A crash before the call
    /// returns may leave some of them stored.
    ///
    /// # Errors
    /// If some bytes cannot be stored. Others may have been.
    fn put_all(&self, items: &[(Address, Bytes)]) -> Result<(), ShelfError> {
        items
            .iter()
            .try_for_each(|(address, bytes)| self.put(*address, bytes))
    }

    /// Returns the bytes under an address; `None` if there are none, or they no longer match their
    /// digest.
    ///
    /// # Errors
    /// If the bytes cannot be read.
    fn get(&self, address: Address) -> Result<Option<Bytes>, ShelfError>;

    /// Returns length and age of the bytes under an address, without reading them; `None` if there
    /// are none.
    ///
    /// # Errors
    /// If the shelf cannot be read.
    fn find(&self, address: Address) -> Result<Option<Held>, ShelfError>;

    /// Sets the age of bytes to zero. Returns whether the shelf has bytes under the address.
    ///
    /// # Errors
    /// If the shelf cannot be written.
    fn refresh(&self, address: Address) -> Result<bool, ShelfError>;

    /// Removes the bytes under an address if they have at least this age, also when others put or
    /// refresh them at the same time. Returns their length; `None` if none were removed.
    ///
    /// # Errors
    /// If the shelf cannot be written.
    fn remove(&self, address: Address, age: Duration) -> Result<Option<u64>, ShelfError>;

    /// Returns all addresses, in order.
    ///
    /// # Errors
    /// If they cannot be read.
    fn list(&self) -> Result<Vec<Address>, ShelfError>;

    /// Returns how much the shelf holds, and its room.
    ///
    /// # Errors
    /// If the shelf cannot be read.
    fn usage(&self) -> Result<Usage, ShelfError>;
}

/// A shelf in memory, for tests.
#[derive(Debug, Default)]
pub struct MemoryShelf {
    stored: Mutex<BTreeMap<Address, (Bytes, Duration)>>,
    /// The bytes that fit; no limit if `None`.
    room: Option<usize>,
    /// The time of the shelf's clock, which only [`pass`](MemoryShelf::pass) advances.
    now: Mutex<Duration>,
}

impl MemoryShelf {
    /// Creates a shelf for at most `room` bytes.
    pub fn with_room(room: usize) -> MemoryShelf {
        MemoryShelf {
            room: Some(room),
            ..MemoryShelf::default()
        }
    }

    /// Lets time pass: everything becomes older.
    pub fn pass(&self, time: Duration) {
        *lock(&self.now) += time;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shelf for MemoryShelf {
    fn put(&self, address: Address, bytes: &Bytes) -> Result<(), ShelfError> {
        let mut stored = lock(&self.stored);
        let others = stored.iter().filter(|(other, _)| **other != address);
        let held: usize = others.map(|(_, (bytes, _))| bytes.len()).sum();
        if self.room.is_some_and(|room| held + bytes.len() > room) {
            return Err(ShelfError("no room is left".to_owned()));
        }
        stored.insert(address, (bytes.clone(), *lock(&self.now)));
        Ok(())
    }

    fn get(&self, address: Address) -> Result<Option<Bytes>, ShelfError> {
        let stored = lock(&self.stored);
        Ok(stored.get(&address).map(|(bytes, _)| bytes.clone()))
    }

    fn find(&self, address: Address) -> Result<Option<Held>, ShelfError> {
        let (stored, now) = (lock(&self.stored), *lock(&self.now));
        Ok(stored.get(&address).map(|(bytes, put_at)| Held {
            bytes: bytes.len() as u64,
            age: now - *put_at,
        }))
    }

    fn refresh(&self, address: Address) -> Result<bool, ShelfError> {
        let mut stored = lock(&self.stored);
        let held = stored.get_mut(&address);
        Ok(held.map(|(_, put_at)| *put_at = *lock(&self.now)).is_some())
    }

    fn remove(&self, address: Address, age: Duration) -> Result<Option<u64>, ShelfError> {
        let (mut stored, now) = (lock(&self.stored), *lock(&self.now));
        let is_old = |(_, put_at): &(Bytes, Duration)| now - *put_at >= age;
        if !stored.get(&address).is_some_and(is_old) {
            return Ok(None);
        }
        let removed = stored.remove(&address);
        Ok(removed.map(|(bytes, _)| bytes.len() as u64))
    }

    fn list(&self) -> Result<Vec<Address>, ShelfError> {
        Ok(lock(&self.stored).keys().copied().collect())
    }

    fn usage(&self) -> Result<Usage, ShelfError> {
        let mut usage = Usage::default();
        for (address, (bytes, _)) in lock(&self.stored).iter() {
            let (count, sum) = match address {
                Address::Chunk(_) => (&mut usage.chunks, &mut usage.chunk_bytes),
                Address::Name(_) => (&mut usage.names, &mut usage.name_bytes),
            };
            *count += 1;
            *sum += bytes.len() as u64;
        }
        let held = usage.chunk_bytes + usage.name_bytes;
        usage.disk_bytes = self.room.unwrap_or(0) as u64;
        usage.free_bytes = usage.disk_bytes.saturating_sub(held);
        Ok(usage)
    }
}
