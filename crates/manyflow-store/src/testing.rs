//! A service in memory, for tests: members in the order of the switch's policy.

use bytes::Bytes;
use manyflow_anypoint::switch::{Candidate, MemberId, Policy, ReplicaHash};
use manyflow_anypoint::{Data, Length};
use manyflow_core::xcp::Congestion;

use crate::{
    Address, Answer, ChunkEntry, Hash, Manifest, Member, MemberName, MemoryShelf, Request,
};

/// The members of a service; `None` for one that is gone.
pub(crate) struct Service {
    pub(crate) members: Vec<Option<Member<MemoryShelf>>>,
    policy: ReplicaHash,
}

pub(crate) fn name(number: usize) -> MemberName {
    MemberName::new(&format!("m{number}")).unwrap()
}

impl Service {
    pub(crate) fn new(members: usize) -> Service {
        let member = |number| Some(Member::new(name(number), MemoryShelf::default()));
        Service {
            members: (0..members).map(member).collect(),
            policy: ReplicaHash::default(),
        }
    }

    /// Returns the number of the member that gets a frame with this key.
    pub(crate) fn route(&mut self, key: u32) -> usize {
        let present = self
            .members
            .iter()
            .zip(0..)
            .filter(|(member, _)| member.is_some());
        let candidates: Vec<_> = present
            .map(|(_, number)| Candidate {
                member: MemberId(number),
                outstanding: 0,
            })
            .collect();
        let frame = Data {
            sequence: 0,
            key,
            congestion: Congestion::default(),
        };
        let place = self.policy.route(&frame, &Length(1), &candidates);
        usize::from(candidates[place].member.0)
    }

    pub(crate) fn handle(&mut self, key: u32, request: &Request) -> Answer {
        let number = self.route(key);
        let member = self.members[number].as_mut();
        member
            .expect("only members that are there are candidates")
            .handle_request(request)
    }

    /// Stores chunks of `chunk_bytes` bytes on the members of the first `copies` ranks, and returns
    /// their manifest and their bytes.
    pub(crate) fn store(
        &mut self,
        chunks: u8,
        chunk_bytes: u32,
        copies: u8,
    ) -> (Manifest, Vec<Bytes>) {
        let contents: Vec<_> = (0..chunks)
            .map(|n| Bytes::from(vec![n; chunk_bytes as usize]))
            .collect();
        let mut store = |bytes: &Bytes| {
            let (id, hash) = (0, Hash::of(bytes));
            let address = Address::Chunk(hash);
            let put = |rank| {
                let bytes = bytes.clone();
                let request = Request::Put { id, address, bytes };
                self.handle(address.key(rank), &request).member
            };
            let members = (0..copies).map(put).collect();
            ChunkEntry { hash, members }
        };
        let manifest = Manifest {
            version: 1,
            size: u64::from(chunks) * u64::from(chunk_bytes),
            digest: Hash::of(&contents.concat()),
            copies,
            chunks: contents.iter().map(&mut store).collect(),
            ..Manifest::empty("file", chunk_bytes)
        };
        (manifest, contents)
    }
}
