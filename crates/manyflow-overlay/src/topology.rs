//! The daemons of an overlay, the links between them, and the shortest-path tree from each daemon.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;

use super::message::{DaemonId, LinkId};

/// The daemons of an overlay and the links between them, identical at all daemons. A tree is
/// computed when it is first needed and never changes, because it does not depend on clients.
#[derive(Debug)]
pub struct Topology {
    links: Vec<(DaemonId, DaemonId)>,
    weights: Vec<u32>,
    /// Each daemon's neighbours, with the link that leads to each of them.
    neighbours: Vec<Vec<(DaemonId, LinkId)>>,
    trees: Vec<OnceLock<Tree>>,
}

/// The reason why daemons and links do not form an overlay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The link with this index ends at a daemon that does not exist.
    #[error("link {0} ends at a daemon that does not exist: number daemons from 0")]
    UnknownDaemon(usize),
    /// Both ends of the link with this index are the same, or an earlier link joins the same
    /// daemons.
    #[error("link {0} joins a daemon to itself or duplicates another link: remove it")]
    Superfluous(usize),
    /// The number of daemons or links is outside its range.
    #[error("an overlay has 1 to 65,535 daemons and at most 32,767 links")]
    Size,
    /// No path leads from daemon 0 to this daemon.
    #[error("no path leads from daemon 0 to daemon {0}: add a link")]
    Apart(usize),
}

impl Topology {
    /// Returns an overlay of `daemons` daemons. Each link is given by its two ends and its weight,
    /// at least 1. The weights of links add up along a path.
    ///
    /// # Errors
    /// Returns an error if a number is outside its range, if a link ends at a daemon that does not
    /// exist or duplicates another link, or if the links leave a daemon unconnected.
    pub fn new(
        daemons: usize,
        links: &[(DaemonId, DaemonId, u32)],
    ) -> Result<Topology, TopologyError> {
        if daemons == 0
            || daemons > usize::from(u16::MAX)
            || links.len() > usize::from(u16::MAX / 2)
        {
            return Err(TopologyError::Size);
        }
        let mut topology = Topology {
            links: Vec::with_capacity(links.len()),
            weights: links.iter().map(|link| link.2.max(1)).collect(),
            neighbours: vec![Vec::new(); daemons],
            trees: (0..daemons).map(|_| OnceLock::new()).collect(),
        };
        for (index, &(a, b, _)) in links.iter().enumerate() {
            let (low, high) = (a.min(b), a.max(b));
            if usize::from(high.0) >= daemons {
                return Err(TopologyError::UnknownDaemon(index));
            }
            if low == high || topology.link(low, high).is_some() {
                return Err(TopologyError::Superfluous(index));
            }
            let forth = LinkId(2 * index as u16);
            topology.links.push((low, high));
            topology.neighbours[usize::from(low.0)].push((high, forth));
            topology.neighbours[usize::from(high.0)].push((low, LinkId(forth.0 + 1)));
        }
        topology.check_connected()?;
        Ok(topology)
    }

    fn check_connected(&self) -> Result<(), TopologyError> {
        let tree = self.tree(DaemonId(0));
        let apart = (1..self.len()).find(|daemon| tree.parent[*daemon] == NONE);
        apart.map_or(Ok(()), |daemon| Err(TopologyError::Apart(daemon)))
    }

    /// Returns the number of daemons.
    pub fn len(&self) -> usize {
        self.neighbours.len()
    }

    /// Returns whether there is no daemon.
    pub fn is_empty(&self) -> bool {
        self.neighbours.is_empty()
    }

    /// Returns a daemon's neighbours, with the link that leads to each of them.
    pub fn neighbours(&self, daemon: DaemonId) -> &[(DaemonId, LinkId)] {
        &self.neighbours[usize::from(daemon.0)]
    }

    /// Returns the link from one daemon to another, if they are neighbours.
    pub fn link(&self, from: DaemonId, to: DaemonId) -> Option<LinkId> {
        // Search at the end with fewer neighbours.
        let [there, back] = [from, to].map(|daemon| &self.neighbours[usize::from(daemon.0)]);
        if there.len() <= back.len() {
            return there
                .iter()
                .find(|(end, _)| *end == to)
                .map(|(_, link)| *link);
        }
        back.iter()
            .find(|(end, _)| *end == from)
            .map(|(_, link)| LinkId(link.0 ^ 1))
    }

    /// Returns the number of directions of links. Every [`LinkId`] is below it.
    pub fn link_count(&self) -> usize {
        2 * self.links.len()
    }

    /// Returns the daemons at the beginning and the end of a direction of a link; `None` if there
    /// is no such link.
    pub fn ends(&self, link: LinkId) -> Option<(DaemonId, DaemonId)> {
        let &(low, high) = self.links.get(usize::from(link.0 / 2))?;
        Some(if link.0.is_multiple_of(2) {
            (low, high)
        } else {
            (high, low)
        })
    }

    /// Returns the tree that is rooted at a daemon.
    pub fn tree(&self, root: DaemonId) -> &Tree {
        self.trees[usize::from(root.0)].get_or_init(|| Tree::new(self, root))
    }

    /// Returns the links on the path from one daemon to another, the last link first.
    pub fn path(&self, from: DaemonId, to: DaemonId) -> impl Iterator<Item = LinkId> {
        let tree = self.tree(from);
        core::iter::successors(Some(to), |daemon| tree.parent(*daemon))
            .filter_map(|daemon| self.link(tree.parent(daemon)?, daemon))
    }
}

/// Stands for no daemon: the parent of the root, or of a daemon that is not connected.
const NONE: u16 = u16::MAX;

/// The shortest-path tree from one daemon to all others.
#[derive(Debug)]
pub struct Tree {
    parent: Vec<u16>,
    /// Each daemon's subtree as a half-open range of places in `walk`.
    place: Vec<(u16, u16)>,
    /// The daemons in depth-first order: a daemon precedes its descendants.
    walk: Vec<u16>,
}

impl Tree {
    /// Runs Dijkstra's algorithm. [`cost`](Topology::cost) makes ties between paths improbable, so
    /// that the path from A to B is the reverse of the path from B to A. A membership that has
    /// reached a sender has therefore passed all daemons on the sender's path to the member.
    fn new(topology: &Topology, root: DaemonId) -> Tree {
        let count = topology.len();
        let mut parent = vec![NONE; count];
        let mut best = vec![u64::MAX; count];
        let mut open = BinaryHeap::from([Reverse((0, root.0))]);
        best[usize::from(root.0)] = 0;
        while let Some(Reverse((cost, daemon))) = open.pop() {
            if cost > best[usize::from(daemon)] {
                continue;
            }
            for &(next, link) in topology.neighbours(DaemonId(daemon)) {
                let through = cost + topology.cost(link);
                if through < best[usize::from(next.0)] {
                    best[usize::from(next.0)] = through;
                    parent[usize::from(next.0)] = daemon;
                    open.push(Reverse((through, next.0)));
                }
            }
        }
        Tree::walked(parent, root)
    }

    fn walked(parent: Vec<u16>, root: DaemonId) -> Tree {
        let count = parent.len();
        let mut children = vec![Vec::new(); count];
        for (daemon, &above) in parent.iter().enumerate() {
            if above != NONE {
                children[usize::from(above)].push(daemon as u16);
            }
        }
        let mut tree = Tree {
            parent,
            place: vec![(0, 0); count],
            walk: Vec::with_capacity(count),
        };
        // Each daemon is popped twice: before and after its descendants.
        let mut open = vec![(root.0, false)];
        while let Some((daemon, done)) = open.pop() {
            let here = tree.walk.len() as u16;
            if done {
                tree.place[usize::from(daemon)].1 = here;
                continue;
            }
            tree.place[usize::from(daemon)].0 = here;
            tree.walk.push(daemon);
            open.push((daemon, true));
            let below = children[usize::from(daemon)].iter().rev();
            open.extend(below.map(|child| (*child, false)));
        }
        tree
    }

    /// Returns the daemon before this one on the path from the root; `None` for the root.
    pub fn parent(&self, daemon: DaemonId) -> Option<DaemonId> {
        let parent = self.parent[usize::from(daemon.0)];
        (parent != NONE).then_some(DaemonId(parent))
    }

    /// Returns whether the path from the root to `below` contains `above`.
    pub fn is_below(&self, above: DaemonId, below: DaemonId) -> bool {
        let (first, end) = self.place[usize::from(above.0)];
        (first..end).contains(&self.place[usize::from(below.0)].0)
    }

    /// Returns the children of a daemon, in the order of the walk.
    pub fn children(&self, daemon: DaemonId) -> impl Iterator<Item = DaemonId> {
        let (first, end) = self.place[usize::from(daemon.0)];
        let mut place = first + 1;
        core::iter::from_fn(move || {
            let child = (place < end).then(|| self.walk[usize::from(place)])?;
            place = self.place[usize::from(child)].1;
            Some(DaemonId(child))
        })
    }

    /// Returns the child of `above` on the path to `below`; `None` if that path ends at `above` or
    /// does not contain it.
    pub fn child_towards(&self, above: DaemonId, below: DaemonId) -> Option<DaemonId> {
        if above == below || !self.is_below(above, below) {
            return None;
        }
        let mut daemon = below;
        loop {
            let parent = self.parent(daemon)?;
            if parent == above {
                return Some(daemon);
            }
            daemon = parent;
        }
    }
}

impl Topology {
    /// Returns a link's weight in the upper 32 bits, and a pseudo-random tie-breaker of 16 bits
    /// below. The tie-breakers of 2^16 links do not add up to a weight of 1.
    fn cost(&self, link: LinkId) -> u64 {
        let index = u64::from(link.0 / 2);
        // Part of SplitMix64's mixing function, so that sums of tie-breakers differ as well.
        let mixed = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let share = (mixed ^ (mixed >> 27)) >> 48;
        u64::from(self.weights[index as usize]) << 32 | share
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn link(a: u16, b: u16, weight: u32) -> (DaemonId, DaemonId, u32) {
        (DaemonId(a), DaemonId(b), weight)
    }

    /// Returns a connected graph: a random tree with additional links.
    fn any_topology() -> impl Strategy<Value = Topology> {
        (2..30u16).prop_flat_map(|daemons| {
            let parents: Vec<_> = (1..daemons).map(|d| (0..d, 1..4u32)).collect();
            let more = prop::collection::vec((0..daemons, 0..daemons, 1..4u32), 0..30);
            (parents, more).prop_map(move |(parents, more)| {
                let below = (1..daemons).zip(parents);
                let mut links: Vec<_> =
                    below.map(|(d, (up, weight))| link(up, d, weight)).collect();
                for (a, b, weight) in more {
                    let known = |l: &(DaemonId, DaemonId, u32)| {
                        [(l.0.0, l.1.0), (l.1.0, l.0.0)].contains(&(a, b))
                    };
                    if a != b && !links.iter().any(known) {
                        links.push(link(a, b, weight));
                    }
                }
                Topology::new(usize::from(daemons), &links).unwrap()
            })
        })
    }

    /// Returns the weight of the shortest path, found by repeatedly relaxing all links
    /// (Bellman-Ford).
    fn distance(topology: &Topology, from: DaemonId, to: DaemonId) -> u32 {
        let mut best = vec![u32::MAX; topology.len()];
        best[usize::from(from.0)] = 0;
        for _ in 0..topology.len() {
            for (link, (low, high)) in topology.links.iter().enumerate() {
                for (a, b) in [(low, high), (high, low)] {
                    let through = best[usize::from(a.0)].saturating_add(topology.weights[link]);
                    let known = &mut best[usize::from(b.0)];
                    *known = through.min(*known);
                }
            }
        }
        best[usize::from(to.0)]
    }

    proptest! {
        #[test]
        fn paths_are_shortest_and_symmetric(topology in any_topology()) {
            let daemons = || (0..topology.len() as u16).map(DaemonId);
            for (a, b) in daemons().flat_map(|a| daemons().map(move |b| (a, b))) {
                let there: Vec<_> = topology.path(a, b).collect();
                let mut back: Vec<_> = topology.path(b, a).map(|link| LinkId(link.0 ^ 1)).collect();
                back.reverse();
                prop_assert_eq!(&there, &back);
                let weight: u32 = there.iter().map(|l| topology.weights[usize::from(l.0 / 2)]).sum();
                prop_assert_eq!(weight, distance(&topology, a, b));
            }
        }

        #[test]
        fn a_daemon_is_below_exactly_its_ancestors(topology in any_topology()) {
            let daemons = || (0..topology.len() as u16).map(DaemonId);
            for root in daemons() {
                let tree = topology.tree(root);
                for above in daemons() {
                    for below in daemons() {
                        let path: Vec<_> = core::iter::successors(Some(below), |d| tree.parent(*d)).collect();
                        let place = path.iter().position(|d| *d == above);
                        prop_assert_eq!(tree.is_below(above, below), place.is_some());
                        let child = place.and_then(|place| place.checked_sub(1)).map(|place| path[place]);
                        prop_assert_eq!(tree.child_towards(above, below), child);
                    }
                    let children: Vec<_> = daemons().filter(|d| tree.parent(*d) == Some(above)).collect();
                    prop_assert_eq!(tree.children(above).collect::<Vec<_>>(), children);
                }
            }
        }
    }

    #[test]
    fn a_topology_that_is_not_a_connected_simple_graph_is_refused() {
        let refused = |links: &[_]| Topology::new(3, links).unwrap_err();
        assert_eq!(refused(&[link(0, 1, 1)]), TopologyError::Apart(2));
        assert_eq!(refused(&[link(0, 3, 1)]), TopologyError::UnknownDaemon(0));
        let twice = [link(0, 1, 1), link(1, 0, 2)];
        assert_eq!(refused(&twice), TopologyError::Superfluous(1));
        assert_eq!(refused(&[link(1, 1, 1)]), TopologyError::Superfluous(0));
    }
}
