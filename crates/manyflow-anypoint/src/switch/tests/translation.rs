use proptest::prelude::*;

use super::model::{Faults, Host, World};

fn faults() -> impl Strategy<Value = Faults> {
    (0.0..0.3, 0.0..0.2, 0usize..6).prop_map(|(loss, duplication, reordering)| Faults {
        loss,
        duplication,
        reordering,
    })
}

/// Returns whether the keys only grow.
pub(super) fn is_rising(keys: &[u32]) -> bool {
    keys.is_sorted_by(|a, b| a < b)
}

proptest! {
    #[test]
    fn each_member_gets_its_frames_once_and_in_the_peers_order(
        seed: u64,
        faults in faults(),
        members in 2usize..5,
        frames in 0u32..120,
    ) {
        let ensemble = (0..members).map(|_| Host::new([], true)).collect();
        let mut world = World::new(seed, faults, Host::new(0..frames, true), ensemble);
        world.run();
        let mut all: Vec<u32> = Vec::new();
        for member in &world.members {
            prop_assert!(is_rising(&member.received) && member.closed);
            all.extend(&member.received);
        }
        all.sort_unstable();
        prop_assert_eq!(all, (0..frames).collect::<Vec<_>>());
        prop_assert!(world.peer.closed);
    }

    #[test]
    fn the_peer_gets_each_members_frames_once_and_in_its_order(
        seed: u64,
        faults in faults(),
        members in 2u32..5,
        frames in 0u32..60,
    ) {
        let keys = |member: u32| (0..frames).map(move |frame| 1000 * member + frame);
        let ensemble = (0..members).map(|member| Host::new(keys(member), true)).collect();
        let mut world = World::new(seed, faults, Host::new(0..40, true), ensemble);
        world.run();
        for member in 0..members {
            let its_own = |key: &u32| key / 1000 == member;
            let received = world.peer.received.iter().copied().filter(its_own);
            prop_assert!(received.eq(keys(member)));
        }
        prop_assert_eq!(world.peer.received.len() as u32, members * frames);
        prop_assert!(world.peer.closed);
    }
}
