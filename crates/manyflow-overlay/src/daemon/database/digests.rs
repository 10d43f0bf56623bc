//! Digests of what a daemon signs.
//!
//! The digest of a state's groups is made of the digests of [`PARTS`] parts of them, so that a
//! change of one group costs only a part of the state, however many groups the daemon has.

use std::ops::RangeInclusive;

use sha2::{Digest as _, Sha256};

use crate::message::{GroupId, Item};
use crate::notary::Notary;
use crate::sequence::ChangeSeq;
use manyflow_core::Payload;

use super::record::DaemonState;

/// The number of parts of a state's groups. Groups of live daemons have hashes as numbers, so the
/// highest bits divide them equally.
const PARTS: usize = 1 << PART_BITS;
const PART_BITS: u32 = 8;

/// A SHA-256 digest.
pub(super) type Digest = [u8; 32];

/// Computes the digest of items.
#[derive(Default)]
struct Hasher {
    sha: Sha256,
    items: u32,
}

impl Hasher {
    fn add(&mut self, item: Item, name: &[u8]) {
        for word in item.words() {
            self.sha.update(word.to_be_bytes());
        }
        let name = if item.has_name() { name } else { &[] };
        self.sha.update((name.len() as u32).to_be_bytes());
        self.sha.update(name);
        self.items += 1;
    }

    fn finish(self) -> Digested {
        Digested {
            digest: self.sha.finalize().into(),
            items: self.items,
        }
    }
}

/// A digest, and the number of items that it is of.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Digested {
    pub(super) digest: Digest,
    pub(super) items: u32,
}

/// Returns the digest of successive changes.
pub(super) fn changes_digest<'a, P: 'a>(
    notary: &dyn Notary<P>,
    changes: impl Iterator<Item = (ChangeSeq, Item, &'a P)>,
) -> Digest {
    let mut hasher = Hasher::default();
    for (number, item, name) in changes {
        hasher.sha.update(number.0.to_be_bytes());
        hasher.add(item, notary.bytes(name));
    }
    hasher.finish().digest
}

/// Returns the digest of a state's links.
pub(super) fn links_digest<P: Payload + Default>(state: &DaemonState<P>) -> Digested {
    let mut hasher = Hasher::default();
    for (item, _) in state.link_items() {
        hasher.add(item, &[]);
    }
    hasher.finish()
}

/// Returns the digest of a state's groups.
pub(super) fn groups_digest<P: Payload + Default>(
    notary: &dyn Notary<P>,
    state: &DaemonState<P>,
) -> Digested {
    GroupDigests::default().digest(notary, state)
}

/// The digests of the parts of this daemon's groups that have not changed since they were computed.
#[derive(Debug)]
pub(super) struct GroupDigests {
    parts: Vec<Option<Digested>>,
    /// The number of items that were read for the last digest.
    read: u32,
}

impl Default for GroupDigests {
    fn default() -> GroupDigests {
        GroupDigests {
            parts: vec![None; PARTS],
            read: 0,
        }
    }
}

impl GroupDigests {
    /// Forgets the digest of the part that a changed item is in.
    pub(super) fn forget(&mut self, item: Item) {
        if let Item::Members { group, .. } | Item::Paused { group, .. } = item {
            self.parts[part_of(group)] = None;
        }
    }

    /// Returns the digest of a state's groups. Only parts whose digest is not known are read.
    pub(super) fn digest<P: Payload + Default>(
        &mut self,
        notary: &dyn Notary<P>,
        state: &DaemonState<P>,
    ) -> Digested {
        self.read = 0;
        let mut all = Hasher::default();
        for (number, part) in self.parts.iter_mut().enumerate() {
            let Digested { digest, items } = *part.get_or_insert_with(|| {
                let digested = part_digest(notary, state, number);
                self.read += digested.items;
                digested
            });
            // Most parts of a small state are empty.
            if items > 0 {
                all.sha.update([number as u8]);
                all.sha.update(digest);
                all.items += items;
            }
        }
        all.finish()
    }

    /// Returns the number of items that were read for the last digest.
    pub(super) fn read(&self) -> u32 {
        self.read
    }
}

fn part_of(group: GroupId) -> usize {
    (group.0 >> (u32::BITS - PART_BITS)) as usize
}

fn groups_of(part: usize) -> RangeInclusive<GroupId> {
    let first = (part as u32) << (u32::BITS - PART_BITS);
    GroupId(first)..=GroupId(first | u32::MAX >> PART_BITS)
}

fn part_digest<P: Payload + Default>(
    notary: &dyn Notary<P>,
    state: &DaemonState<P>,
    part: usize,
) -> Digested {
    let mut hasher = Hasher::default();
    for (item, name) in state.group_items(groups_of(part)) {
        hasher.add(item, name.map_or(&[], |name| notary.bytes(name)));
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::record::Limits;
    use super::*;
    use crate::notary::Claim;

    /// A notary for which payloads are bytes.
    #[derive(Debug)]
    struct Bytes;

    impl Notary<Vec<u8>> for Bytes {
        fn bytes<'a>(&self, payload: &'a Vec<u8>) -> &'a [u8] {
            payload
        }

        fn payload(&self, bytes: &[u8]) -> Vec<u8> {
            bytes.to_vec()
        }

        fn identity(&self) -> &[u8] {
            &[]
        }

        fn sign(&self, _: &[u8]) -> Vec<u8> {
            vec![0]
        }

        fn verify(&self, _: &Claim<'_>) -> bool {
            true
        }
    }

    const UNLIMITED: Limits = Limits {
        neighbours: usize::MAX,
        bytes: usize::MAX,
        share: usize::MAX,
    };

    fn item() -> impl Strategy<Value = (Item, Vec<u8>)> {
        // Numbers at the ends of parts, and a few in the same part.
        let group = prop_oneof![
            any::<u32>(),
            (0..4u32, 0..2u32).prop_map(|(part, end)| (part << 24).wrapping_sub(end)),
        ];
        let members = (
            group.prop_map(GroupId),
            0..3u32,
            any::<u32>(),
            any::<[u8; 2]>(),
        );
        (members, any::<bool>()).prop_map(|((group, members, since, name), is_pause)| {
            let item = match is_pause {
                true => Item::Paused {
                    group,
                    paused: members > 0,
                },
                false => Item::Members {
                    group,
                    members,
                    since: ChangeSeq(since),
                },
            };
            (item, name.to_vec())
        })
    }

    proptest! {
        #[test]
        fn the_digest_after_changes_is_that_of_the_whole_state(
            items in prop::collection::vec(item(), 0..60)
        ) {
            let (mut state, mut digests) = (DaemonState::default(), GroupDigests::default());
            for (item, name) in items {
                state.apply(item, name, UNLIMITED);
                digests.forget(item);
                let digested = digests.digest(&Bytes, &state);
                prop_assert_eq!(digested, groups_digest(&Bytes, &state));
                let count = state.members.len() + state.paused.len();
                prop_assert_eq!(digested.items as usize, count);
            }
        }

        #[test]
        fn each_group_is_in_the_part_that_is_read_for_it(group in any::<u32>()) {
            let group = GroupId(group);
            prop_assert!(groups_of(part_of(group)).contains(&group));
        }
    }

    #[test]
    fn a_change_reads_only_a_part_of_many_groups() {
        let (mut state, mut digests) = (DaemonState::default(), GroupDigests::default());
        let members = |group: u32, members| Item::Members {
            group: GroupId(group.wrapping_mul(0x9e37_79b9)),
            members,
            since: ChangeSeq(1),
        };
        for group in 0..10_000 {
            state.apply(members(group, 1), vec![1; 20], UNLIMITED);
        }
        let before = digests.digest(&Bytes, &state);
        assert_eq!(digests.read(), 10_000);
        state.apply(members(7, 2), vec![1; 20], UNLIMITED);
        digests.forget(members(7, 2));
        assert_ne!(digests.digest(&Bytes, &state), before);
        assert!((1..=60).contains(&digests.read()), "{}", digests.read());
    }
}
