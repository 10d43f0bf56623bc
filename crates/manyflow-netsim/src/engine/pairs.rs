//! An index of links by their ends, which exists only while a network is built.
//!
//! Two properties of a new link depend on the existing links: its number among parallel links, from
//! which its random stream is derived, and its reverse. A linear search through the links of a node
//! would make the construction of a star quadratic.

use std::collections::{BTreeMap, BTreeSet};

use super::{LinkId, NodeId};

/// The links between each ordered pair of nodes.
#[derive(Default)]
pub(super) struct Pairs {
    /// The number of links from one node to another.
    parallel: BTreeMap<(u32, u32), u32>,
    /// The links without a reverse: their ends and their number.
    unpaired: BTreeSet<(u32, u32, u32)>,
}

impl Pairs {
    /// Indexes existing links, given in order with their ends and reverses.
    pub(super) fn of(links: impl Iterator<Item = (NodeId, NodeId, Option<LinkId>)>) -> Pairs {
        let mut pairs = Pairs::default();
        for (link, (from, to, reverse)) in (0..).zip(links) {
            *pairs.parallel.entry((from.0, to.0)).or_default() += 1;
            if reverse.is_none() {
                pairs.unpaired.insert((from.0, to.0, link));
            }
        }
        pairs
    }

    /// Adds a link. Returns the number of earlier links from its first node to its second, and its
    /// reverse: the oldest link in the opposite direction that has no reverse yet.
    pub(super) fn add(&mut self, link: LinkId, from: NodeId, to: NodeId) -> (u32, Option<LinkId>) {
        let count = self.parallel.entry((from.0, to.0)).or_default();
        let before = *count;
        *count += 1;
        let back = (to.0, from.0, 0)..=(to.0, from.0, u32::MAX);
        let reverse = self.unpaired.range(back).next().copied();
        match reverse {
            Some(reverse) => self.unpaired.remove(&reverse),
            None => self.unpaired.insert((from.0, to.0, link.0)),
        };
        (before, reverse.map(|(_, _, link)| LinkId(link)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All links with their ends and reverses. Follows the rules of [`Pairs::add`] by a linear
    /// search.
    #[derive(Default)]
    struct Searched(Vec<(NodeId, NodeId, Option<LinkId>)>);

    impl Searched {
        fn add(&mut self, from: NodeId, to: NodeId) -> (u32, Option<LinkId>) {
            let parallel = self.0.iter().filter(|link| (link.0, link.1) == (from, to));
            let before = parallel.count() as u32;
            let is_free = |link: &(NodeId, NodeId, _)| *link == (to, from, None);
            let back = self.0.iter().position(is_free);
            if let Some(back) = back {
                self.0[back].2 = Some(LinkId(self.0.len() as u32));
            }
            let reverse = back.map(|back| LinkId(back as u32));
            self.0.push((from, to, reverse));
            (before, reverse)
        }
    }

    proptest! {
        #[test]
        fn numbers_and_reverses_agree_with_a_linear_search(
            ends in prop::collection::vec((0u32..3, 0u32..3), 0..60),
            interrupted: prop::sample::Index,
        ) {
            let mut searched = Searched::default();
            let mut pairs = Pairs::default();
            for (link, (from, to)) in (0..).zip(&ends) {
                if link as usize == interrupted.index(ends.len()) {
                    pairs = Pairs::of(searched.0.iter().copied());
                }
                let (from, to) = (NodeId(*from), NodeId(*to));
                let added = pairs.add(LinkId(link), from, to);
                prop_assert_eq!(added, searched.add(from, to));
            }
        }
    }
}
