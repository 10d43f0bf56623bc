//! The daemons of an overlay, the links between them, and the shortest-path tree from each daemon.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::OnceLock;

use super::message::{DaemonId, LinkId};

/// The daemons of an overlay and the links between them. A tree is computed when it is first
/// needed; it depends on nothing else.
#[derive(Debug)]
pub struct Topology {
    version: u16,
    /// Sorted. The *place* of a daemon is its index here.
    daemons: Vec<DaemonId>,
    /// The incarnation of the daemon at each place.
    incarnations: Vec<u32>,
    /// The place of each daemon by its number, or [`NONE`]. Messages are routed by it.
    places: Vec<u16>,
    /// The neighbours of the daemon at each place, sorted.
    neighbours: Vec<Vec<DaemonId>>,
    /// The length of the link to each of these neighbours.
    costs: Vec<Vec<u128>>,
    trees: Vec<OnceLock<Shape>>,
}

/// The reason why daemons and links do not form an overlay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// This daemon is listed twice.
    #[error("daemon {} is listed twice: list it once", .0.0)]
    Repeated(DaemonId),
    /// The link with this index ends at a daemon that does not exist.
    #[error("link {0} ends at a daemon that does not exist: list the daemon")]
    UnknownDaemon(usize),
    /// Both ends of the link with this index are the same, or an earlier link joins the same
    /// daemons.
    #[error("link {0} joins a daemon to itself or duplicates another link: remove it")]
    Superfluous(usize),
    /// The number of daemons is outside its range.
    #[error("an overlay has 1 to 65,535 daemons")]
    Size,
    /// No path leads from the lowest daemon to this daemon.
    #[error("no path leads from the first daemon to daemon {}: add a link", .0.0)]
    Apart(DaemonId),
}

impl Topology {
    /// Returns a fixed overlay, whose version is 0. Each link is given by its two ends and its
    /// weight, from 1 to [`WEIGHT_MAX`]; a weight outside this range counts as the nearest within.
    /// The weights of links add up along a path.
    ///
    /// # Errors
    /// Returns an error if there is no daemon or more than 65,535, if a link ends at a daemon that
    /// is not listed or duplicates another link, or if the links leave a daemon unconnected.
    pub fn new(
        daemons: impl IntoIterator<Item = DaemonId>,
        links: &[(DaemonId, DaemonId, u32)],
    ) -> Result<Topology, TopologyError> {
        let mut daemons: Vec<_> = daemons.into_iter().map(|daemon| (daemon, 0)).collect();
        daemons.sort_unstable();
        if let Some(pair) = daemons.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(TopologyError::Repeated(pair[0].0));
        }
        if daemons.is_empty() || daemons.len() >= usize::from(NONE) {
            return Err(TopologyError::Size);
        }
        let mut topology = Topology::unlinked(0, &daemons);
        for (index, &(a, b, weight)) in links.iter().enumerate() {
            if !topology.contains(a) || !topology.contains(b) {
                return Err(TopologyError::UnknownDaemon(index));
            }
            if a == b || topology.link(a, b).is_some() {
                return Err(TopologyError::Superfluous(index));
            }
            topology.add_link(a, b, weight);
        }
        topology.check_connected()?;
        Ok(topology)
    }

    /// Returns daemons without links. `daemons` is sorted, lists no daemon twice, and has at most
    /// 65,535 of them, each with its incarnation.
    pub(super) fn unlinked(version: u16, daemons: &[(DaemonId, u32)]) -> Topology {
        let last = daemons.last().map_or(0, |(last, _)| usize::from(last.0));
        let mut places = vec![NONE; last + 1];
        for ((daemon, _), place) in daemons.iter().zip(0..) {
            places[usize::from(daemon.0)] = place;
        }
        let count = daemons.len();
        Topology {
            version,
            daemons: daemons.iter().map(|(daemon, _)| *daemon).collect(),
            incarnations: daemons
                .iter()
                .map(|(_, incarnation)| *incarnation)
                .collect(),
            places,
            neighbours: vec![Vec::new(); count],
            costs: vec![Vec::new(); count],
            trees: (0..count).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Adds a link between two daemons of the topology. Ignores a second link between them.
    pub(super) fn add_link(&mut self, a: DaemonId, b: DaemonId, weight: u32) {
        let cost = cost(a, b, weight);
        for (from, to) in [(a, b), (b, a)] {
            let Some(place) = self.place(from) else {
                debug_assert!(false, "{from:?} has no place");
                continue;
            };
            if let Err(gap) = self.neighbours[place].binary_search(&to) {
                self.neighbours[place].insert(gap, to);
                self.costs[place].insert(gap, cost);
            }
        }
    }

    fn check_connected(&self) -> Result<(), TopologyError> {
        let shape = self.shape(0);
        let apart = (1..self.len()).find(|place| shape.parent[*place] == NONE);
        apart.map_or(Ok(()), |place| {
            Err(TopologyError::Apart(self.daemons[place]))
        })
    }

    /// Returns the version, which daemons of equal topologies agree on. A fixed topology has
    /// version 0.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Returns whether both topologies have the same version, daemons and links.
    pub(super) fn is_same(&self, other: &Topology) -> bool {
        self.version == other.version
            && (&self.daemons, &self.incarnations) == (&other.daemons, &other.incarnations)
            && (&self.neighbours, &self.costs) == (&other.neighbours, &other.costs)
    }

    /// Returns the number of daemons.
    pub fn len(&self) -> usize {
        self.daemons.len()
    }

    /// Returns whether there is no daemon.
    pub fn is_empty(&self) -> bool {
        self.daemons.is_empty()
    }

    /// Returns the daemons in ascending order.
    pub fn daemons(&self) -> &[DaemonId] {
        &self.daemons
    }

    /// Returns whether a daemon is part of the topology.
    pub fn contains(&self, daemon: DaemonId) -> bool {
        self.place(daemon).is_some()
    }

    /// Returns the incarnation of a daemon, if it is part of the topology. It is 0 in a fixed one.
    pub fn incarnation(&self, daemon: DaemonId) -> Option<u32> {
        Some(self.incarnations[self.place(daemon)?])
    }

    /// Returns the neighbours of a daemon in ascending order; none if it does not exist.
    pub fn neighbours(&self, daemon: DaemonId) -> &[DaemonId] {
        self.place(daemon)
            .map_or(&[], |place| &self.neighbours[place])
    }

    /// Returns the link from one daemon to another, if they are neighbours.
    pub fn link(&self, from: DaemonId, to: DaemonId) -> Option<LinkId> {
        let found = self.neighbours(from).binary_search(&to);
        found.ok().map(|_| LinkId { from, to })
    }

    /// Returns all links, in both directions.
    pub fn links(&self) -> impl Iterator<Item = LinkId> {
        let all = self.daemons.iter().zip(&self.neighbours);
        all.flat_map(|(&from, ends)| ends.iter().map(move |&to| LinkId { from, to }))
    }

    #[inline]
    fn place(&self, daemon: DaemonId) -> Option<usize> {
        let place = *self.places.get(usize::from(daemon.0))?;
        (place != NONE).then_some(usize::from(place))
    }

    fn shape(&self, root: usize) -> &Shape {
        self.trees[root].get_or_init(|| Shape::new(self, root))
    }

    /// Returns the tree that is rooted at a daemon; `None` if there is no such daemon.
    #[inline]
    pub fn tree(&self, root: DaemonId) -> Option<Tree<'_>> {
        Some(Tree {
            topology: self,
            shape: self.shape(self.place(root)?),
        })
    }

    /// Returns the links on the path from one daemon to another, the last link first.
    pub fn path(&self, from: DaemonId, to: DaemonId) -> impl Iterator<Item = LinkId> {
        let tree = self.tree(from);
        let parent = move |daemon: DaemonId| tree?.parent(daemon);
        core::iter::successors(Some(to), move |daemon| parent(*daemon)).filter_map(move |to| {
            Some(LinkId {
                from: parent(to)?,
                to,
            })
        })
    }
}

/// The maximum weight of a link. The weights of the longest path add up without an overflow.
pub const WEIGHT_MAX: u32 = u16::MAX as u32;

/// Stands for no place: the parent of the root, or of a daemon that is not connected.
const NONE: u16 = u16::MAX;

/// Returns a link's weight in the upper 32 bits, and pseudo-random tie-breakers below, which all
/// daemons agree on: one of 16 bits, whose sum over 2^16 links does not reach a weight of 1, and
/// one of 48 bits in the lower half, for paths whose first ones have the same sum. Other daemons
/// announce weights, so that one outside its range counts as the nearest within.
fn cost(a: DaemonId, b: DaemonId, weight: u32) -> u128 {
    let (low, high) = (a.min(b), a.max(b));
    let mixed = mix(u64::from(low.0) << 16 | u64::from(high.0));
    let (first, second) = (mixed >> 48, mixed & 0xffff_ffff_ffff);
    let upper = u64::from(weight.clamp(1, WEIGHT_MAX)) << 32 | first;
    u128::from(upper) << 64 | u128::from(second)
}

/// Mixes the bits of a number: SplitMix64's function.
pub(super) fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The shortest-path tree from one daemon to all others.
#[derive(Copy, Clone, Debug)]
pub struct Tree<'t> {
    topology: &'t Topology,
    shape: &'t Shape,
}

/// The shape of a tree, in places.
#[derive(Debug)]
struct Shape {
    parent: Vec<u16>,
    /// Each daemon's subtree as a half-open range of indices in `walk`.
    range: Vec<(u16, u16)>,
    /// The places in depth-first order: a daemon precedes its descendants.
    walk: Vec<u16>,
}

impl Shape {
    /// Runs Dijkstra's algorithm. [`cost`] makes ties between paths improbable, so that the path
    /// from A to B is the reverse of the path from B to A. A membership that has reached a sender
    /// of a fixed overlay has therefore passed all daemons on the sender's path to the member.
    fn new(topology: &Topology, root: usize) -> Shape {
        let count = topology.len();
        let mut parent = vec![NONE; count];
        let mut best = vec![u128::MAX; count];
        let mut open = BinaryHeap::from([Reverse((0, root))]);
        best[root] = 0;
        while let Some(Reverse((cost, place))) = open.pop() {
            if cost > best[place] {
                continue;
            }
            let ends = topology.neighbours[place].iter();
            for (end, length) in ends.zip(&topology.costs[place]) {
                let next = usize::from(topology.places[usize::from(end.0)]);
                let through = cost + length;
                if through < best[next] {
                    best[next] = through;
                    parent[next] = place as u16;
                    open.push(Reverse((through, next)));
                }
            }
        }
        Shape::walked(parent, root)
    }

    fn walked(parent: Vec<u16>, root: usize) -> Shape {
        let count = parent.len();
        let mut children = vec![Vec::new(); count];
        for (place, &above) in parent.iter().enumerate() {
            if above != NONE {
                children[usize::from(above)].push(place);
            }
        }
        let mut shape = Shape {
            parent,
            range: vec![(0, 0); count],
            walk: Vec::with_capacity(count),
        };
        // Each place is popped twice: before and after its descendants.
        let mut open = vec![(root, false)];
        while let Some((place, done)) = open.pop() {
            let here = shape.walk.len() as u16;
            if done {
                shape.range[place].1 = here;
                continue;
            }
            shape.range[place].0 = here;
            shape.walk.push(place as u16);
            open.push((place, true));
            let below = children[place].iter().rev();
            open.extend(below.map(|child| (*child, false)));
        }
        shape
    }

    #[inline]
    fn is_below(&self, above: usize, below: usize) -> bool {
        let (first, end) = self.range[above];
        (first..end).contains(&self.range[below].0)
    }
}

impl<'t> Tree<'t> {
    /// Returns the daemon before this one on the path from the root; `None` for the root and for
    /// daemons that do not exist.
    pub fn parent(&self, daemon: DaemonId) -> Option<DaemonId> {
        let parent = self.shape.parent[self.topology.place(daemon)?];
        (parent != NONE).then(|| self.topology.daemons[usize::from(parent)])
    }

    /// Returns whether the path from the root to `below` contains `above`.
    pub fn is_below(&self, above: DaemonId, below: DaemonId) -> bool {
        let places = [above, below].map(|daemon| self.topology.place(daemon));
        matches!(places, [Some(above), Some(below)] if self.shape.is_below(above, below))
    }

    /// Returns the children of a daemon, in the order of the walk.
    pub fn children(&self, daemon: DaemonId) -> impl Iterator<Item = DaemonId> + use<'t> {
        let Tree { topology, shape } = *self;
        let place = topology.place(daemon);
        let (first, end) = place.map_or((0, 0), |place| shape.range[place]);
        let mut index = first.saturating_add(1);
        core::iter::from_fn(move || {
            let child = (index < end).then(|| usize::from(shape.walk[usize::from(index)]))?;
            index = shape.range[child].1;
            Some(topology.daemons[child])
        })
    }

    /// Returns the child of `above` on the path to `below`; `None` if that path ends at `above` or
    /// does not contain it.
    #[inline]
    pub fn child_towards(&self, above: DaemonId, below: DaemonId) -> Option<DaemonId> {
        let (above, below) = (self.topology.place(above)?, self.topology.place(below)?);
        if above == below || !self.shape.is_below(above, below) {
            return None;
        }
        let mut place = below;
        loop {
            let parent = usize::from(self.shape.parent[place]);
            if parent == above {
                return Some(self.topology.daemons[place]);
            }
            place = parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn link(a: u16, b: u16, weight: u32) -> (DaemonId, DaemonId, u32) {
        (DaemonId(a), DaemonId(b), weight)
    }

    /// Returns the number of the daemon at a place: numbers are sparse and not in order.
    fn id(place: u16) -> DaemonId {
        DaemonId(u16::MAX - (place * 317) % 1000)
    }

    /// Returns a topology of sparse numbers.
    fn sparse(daemons: u16, links: &[(DaemonId, DaemonId, u32)]) -> Topology {
        let links: Vec<_> = links
            .iter()
            .map(|(a, b, weight)| (id(a.0), id(b.0), *weight))
            .collect();
        Topology::new((0..daemons).map(id), &links).unwrap()
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
                sparse(daemons, &links)
            })
        })
    }

    fn weight(topology: &Topology, link: LinkId) -> u32 {
        let place = topology.place(link.from).unwrap();
        let end = topology.neighbours[place].binary_search(&link.to).unwrap();
        (topology.costs[place][end] >> 96) as u32
    }

    /// Returns the weight of the shortest path, found by repeatedly relaxing all links
    /// (Bellman-Ford).
    fn distance(topology: &Topology, from: DaemonId, to: DaemonId) -> u32 {
        let mut best = vec![u32::MAX; topology.len()];
        best[topology.place(from).unwrap()] = 0;
        for _ in 0..topology.len() {
            for link in topology.links() {
                let [a, b] = [link.from, link.to].map(|end| topology.place(end).unwrap());
                best[b] = best[b].min(best[a].saturating_add(weight(topology, link)));
            }
        }
        best[topology.place(to).unwrap()]
    }

    proptest! {
        #[test]
        fn paths_are_shortest_and_symmetric(topology in any_topology()) {
            let daemons = || topology.daemons().iter().copied();
            for (a, b) in daemons().flat_map(|a| daemons().map(move |b| (a, b))) {
                let there: Vec<_> = topology.path(a, b).collect();
                let mut back: Vec<_> = topology.path(b, a).map(|link| LinkId { from: link.to, to: link.from }).collect();
                back.reverse();
                prop_assert_eq!(&there, &back);
                let weight: u32 = there.iter().map(|link| weight(&topology, *link)).sum();
                prop_assert_eq!(weight, distance(&topology, a, b));
            }
        }

        #[test]
        fn a_daemon_is_below_exactly_its_ancestors(topology in any_topology()) {
            let daemons = || topology.daemons().iter().copied();
            for root in daemons() {
                let tree = topology.tree(root).unwrap();
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
        let refused = |links: &[_]| Topology::new((0..3).map(DaemonId), links).unwrap_err();
        assert_eq!(refused(&[link(0, 1, 1)]), TopologyError::Apart(DaemonId(2)));
        assert_eq!(refused(&[link(0, 3, 1)]), TopologyError::UnknownDaemon(0));
        let twice = [link(0, 1, 1), link(1, 0, 2)];
        assert_eq!(refused(&twice), TopologyError::Superfluous(1));
        assert_eq!(refused(&[link(1, 1, 1)]), TopologyError::Superfluous(0));
        let repeated = Topology::new([DaemonId(7), DaemonId(7)], &[]).unwrap_err();
        assert_eq!(repeated, TopologyError::Repeated(DaemonId(7)));
    }
}
