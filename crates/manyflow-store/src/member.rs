//! A member of the service: it answers requests from its shelf.

use bytes::Bytes;

use crate::{Address, Answer, Hash, Manifest, MemberName, Outcome, Request, Shelf, ShelfError};

/// A member: handles requests one by one. Requests are idempotent, so a request that arrives twice
/// has the effect of one.
#[derive(Debug)]
pub struct Member<S> {
    name: MemberName,
    shelf: S,
    counters: MemberCounters,
}

/// Counts of the requests that a [`Member`] has handled.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Chunks and manifests that were put, also those that the member had before.
    pub puts: u64,
    /// The bytes of these.
    pub put_bytes: u64,
    /// Chunks and manifests that were read.
    pub gets: u64,
    /// The bytes of these.
    pub get_bytes: u64,
    /// Requests for bytes that the member does not have.
    pub missing: u64,
    /// Requests that failed: invalid bytes, or an error of the shelf.
    pub failed: u64,
}

impl<S: Shelf> Member<S> {
    /// Creates a member above a shelf. No other member may have its name.
    pub fn new(name: MemberName, shelf: S) -> Member<S> {
        Member {
            name,
            shelf,
            counters: MemberCounters::default(),
        }
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> MemberCounters {
        self.counters
    }

    /// Returns the shelf.
    pub fn shelf_mut(&mut self) -> &mut S {
        &mut self.shelf
    }

    /// Returns the member's name.
    pub fn name(&self) -> &MemberName {
        &self.name
    }

    /// Handles a request, and returns the answer.
    pub fn handle_request(&mut self, request: &Request) -> Answer {
        let outcome = match request {
            Request::Get { address, .. } => self.get(*address),
            Request::Put { address, bytes, .. } => match *address {
                Address::Chunk(hash) => self.put_chunk(hash, bytes),
                Address::Name(hash) => self.put_manifest(hash, bytes),
            },
        };
        let outcome = outcome.unwrap_or_else(|error| Outcome::failed(&error.to_string()));
        self.count(request, &outcome);
        Answer {
            id: request.id(),
            member: self.name.clone(),
            outcome,
        }
    }

    fn count(&mut self, request: &Request, outcome: &Outcome) {
        let counters = &mut self.counters;
        match (request, outcome) {
            (Request::Put { bytes, .. }, Outcome::Stored) => {
                counters.puts += 1;
                counters.put_bytes += bytes.len() as u64;
            }
            (_, Outcome::Chunk(bytes)) => {
                counters.gets += 1;
                counters.get_bytes += bytes.len() as u64;
            }
            (_, Outcome::Missing) => counters.missing += 1,
            (_, Outcome::Failed(_) | Outcome::Stored) => counters.failed += 1,
        }
    }

    fn get(&mut self, address: Address) -> Result<Outcome, ShelfError> {
        let bytes = self.shelf.get(address)?;
        Ok(bytes.map_or(Outcome::Missing, Outcome::Chunk))
    }

    fn put_chunk(&mut self, hash: Hash, bytes: &Bytes) -> Result<Outcome, ShelfError> {
        if Hash::of(bytes) != hash {
            return Ok(Outcome::failed(
                "the chunk does not match its hash; put it again",
            ));
        }
        let address = Address::Chunk(hash);
        if self.shelf.get(address)?.is_none_or(|held| held != *bytes) {
            self.shelf.put(address, bytes)?;
        }
        Ok(Outcome::Stored)
    }

    /// Stores a manifest, unless the shelf has a newer one of the same name.
    fn put_manifest(&mut self, hash: Hash, bytes: &Bytes) -> Result<Outcome, ShelfError> {
        let manifest = match Manifest::decode(bytes) {
            Ok(manifest) => manifest,
            Err(error) => return Ok(Outcome::failed(&error.to_string())),
        };
        let address = Address::of_name(&manifest.name);
        if address != Address::Name(hash) {
            return Ok(Outcome::failed(
                "the manifest has another name than its address",
            ));
        }
        let held = self.shelf.get(address)?;
        if held.is_none_or(|held| is_newer(bytes, &held)) {
            self.shelf.put(address, bytes)?;
        }
        Ok(Outcome::Stored)
    }
}

/// Returns whether an encoded manifest takes the place of another one of the same name. Any
/// manifest takes the place of bytes that are none.
pub(crate) fn is_newer(bytes: &[u8], than: &[u8]) -> bool {
    let rank = |bytes: &[u8]| {
        let manifest = Manifest::decode(bytes).ok();
        manifest.map(|manifest| (manifest.version, Hash::of(bytes)))
    };
    rank(bytes) > rank(than)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryShelf;

    fn member(shelf: MemoryShelf) -> Member<MemoryShelf> {
        Member::new(MemberName::new("m").unwrap(), shelf)
    }

    fn put(member: &mut Member<MemoryShelf>, address: Address, bytes: &Bytes) -> Outcome {
        let bytes = bytes.clone();
        let request = Request::Put {
            id: 5,
            address,
            bytes,
        };
        member.handle_request(&request).outcome
    }

    fn get(member: &mut Member<MemoryShelf>, address: Address) -> Outcome {
        member
            .handle_request(&Request::Get { id: 6, address })
            .outcome
    }

    fn manifest(name: &str, version: u64) -> Bytes {
        let manifest = Manifest {
            name: name.to_owned(),
            version,
            size: 0,
            chunk_bytes: 1,
            digest: Hash::of(b""),
            chunks: Vec::new(),
        };
        manifest.encode().unwrap()
    }

    #[test]
    fn a_chunk_can_be_put_again_and_read_back() {
        let mut member = member(MemoryShelf::default());
        let bytes = Bytes::from_static(b"chunk");
        let address = Address::Chunk(Hash::of(&bytes));
        assert_eq!(get(&mut member, address), Outcome::Missing);
        for _ in 0..2 {
            assert_eq!(put(&mut member, address, &bytes), Outcome::Stored);
        }
        assert_eq!(get(&mut member, address), Outcome::Chunk(bytes));
        assert_eq!(member.shelf_mut().list().unwrap(), [address]);
        let counted = MemberCounters {
            puts: 2,
            put_bytes: 10,
            gets: 1,
            get_bytes: 5,
            missing: 1,
            failed: 0,
        };
        assert_eq!(member.counters(), counted);
    }

    #[test]
    fn bytes_that_do_not_match_their_address_are_refused() {
        let mut member = member(MemoryShelf::default());
        let bytes = manifest("a", 1);
        for address in [Address::Chunk(Hash::of(b"other")), Address::of_name("b")] {
            let outcome = put(&mut member, address, &bytes);
            assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
        }
        let damaged = bytes.slice(1..);
        let outcome = put(&mut member, Address::of_name("a"), &damaged);
        assert!(matches!(outcome, Outcome::Failed(_)), "{outcome:?}");
        assert!(member.shelf_mut().list().unwrap().is_empty());
    }

    #[test]
    fn the_newest_manifest_of_a_name_remains() {
        let mut member = member(MemoryShelf::default());
        let address = Address::of_name("a");
        for version in [2, 3, 1] {
            assert_eq!(
                put(&mut member, address, &manifest("a", version)),
                Outcome::Stored
            );
        }
        assert_eq!(get(&mut member, address), Outcome::Chunk(manifest("a", 3)));
    }

    #[test]
    fn a_full_shelf_keeps_what_it_has() {
        let mut member = member(MemoryShelf::with_room(8));
        let [first, second] = [&b"first"[..], b"second"].map(Bytes::from_static);
        let [one, two] = [&first, &second].map(|bytes| Address::Chunk(Hash::of(bytes)));
        assert_eq!(put(&mut member, one, &first), Outcome::Stored);
        let outcome = put(&mut member, two, &second);
        assert_eq!(outcome, Outcome::Failed("no room is left".to_owned()));
        assert_eq!(get(&mut member, one), Outcome::Chunk(first));
        assert_eq!(get(&mut member, two), Outcome::Missing);
    }
}
