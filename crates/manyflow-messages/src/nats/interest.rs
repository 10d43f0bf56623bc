//! The subscriptions of all clients at all daemons, by subject.
//!
//! Each pattern is a group of the overlay. Each daemon's members of a queue group are a group of
//! their own, so that the publisher's daemon can choose one of them.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use manyflow_overlay::{DaemonId, GroupId};
use sha2::{Digest, Sha256};

use super::subject::{has_wildcard, is_pattern};
use super::turns::{Circle, Queue, Turns};

/// The maximum number of subjects whose groups are remembered.
const REMEMBERED_MAX: usize = 4096;

/// The name of a group of the overlay, as daemons announce it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupName {
    /// The pattern of subjects.
    pub pattern: Bytes,
    /// The queue group, and the daemon whose members this group holds.
    pub queue: Option<(Bytes, DaemonId)>,
}

impl GroupName {
    /// Returns the name as bytes. Its parts are separated by spaces, which patterns and names of
    /// queue groups do not contain.
    pub fn encode(&self) -> Bytes {
        let Some((queue, daemon)) = &self.queue else {
            return self.pattern.clone();
        };
        let mut name = BytesMut::from(&self.pattern[..]);
        name.extend_from_slice(b" ");
        name.extend_from_slice(queue);
        name.extend_from_slice(format!(" {}", daemon.0).as_bytes());
        name.freeze()
    }

    /// Decodes a name. Returns `None` if the bytes are not a name that a daemon gives to a group of
    /// its clients.
    pub fn decode(name: &Bytes) -> Option<GroupName> {
        let mut parts = name
            .split(|byte| *byte == b' ')
            .map(|part| name.slice_ref(part));
        let pattern = parts.next().filter(|pattern| is_pattern(pattern))?;
        let queue = match parts.next() {
            None => None,
            Some(queue) => {
                let queue = Some(queue).filter(|queue| is_pattern(queue))?;
                let daemon = parts.next()?;
                let number = core::str::from_utf8(&daemon).ok()?.parse().ok()?;
                Some((queue, DaemonId(number)))
            }
        };
        parts
            .next()
            .is_none()
            .then_some(GroupName { pattern, queue })
    }

    /// Returns the number of the group with this name. Two names may have the same number; members
    /// therefore compare each message's subject with their patterns.
    pub fn number(&self) -> GroupId {
        let hash = Sha256::digest(self.encode());
        GroupId(u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]))
    }
}

/// The groups that a message goes to.
#[derive(Debug, Default)]
pub struct Targets {
    /// The groups of patterns that match the subject.
    pub groups: Vec<GroupId>,
    /// The queue groups of patterns that match the subject. The message goes to one place of each.
    pub queues: Vec<Circle>,
}

impl Targets {
    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.queues.is_empty()
    }
}

/// The groups of one pattern.
#[derive(Debug, Default)]
struct Groups {
    /// The group of members without a queue group, which the pattern alone determines, and the
    /// number of its announcements.
    plain: Option<(GroupId, u32)>,
    queues: BTreeMap<Bytes, Queue>,
}

impl Groups {
    fn is_empty(&self) -> bool {
        self.plain.is_none() && self.queues.is_empty()
    }

    fn add(&mut self, name: &GroupName, turns: &mut Turns) {
        match &name.queue {
            None => {
                let (_, count) = self.plain.get_or_insert_with(|| (name.number(), 0));
                *count += 1;
            }
            Some((queue, daemon)) => {
                let queue = self.queues.entry(queue.clone());
                let queue = queue.or_insert_with(|| turns.new_queue());
                queue.add((*daemon, name.number()));
            }
        }
    }

    fn remove(&mut self, name: &GroupName) {
        match &name.queue {
            None => {
                if let Some((_, count)) = &mut self.plain {
                    *count -= 1;
                }
                self.plain.take_if(|(_, count)| *count == 0);
            }
            Some((queue, daemon)) => {
                if let Some(places) = self.queues.get_mut(queue)
                    && places.remove((*daemon, name.number()))
                {
                    self.queues.remove(queue);
                }
            }
        }
    }
}

/// A node of the tree of patterns with wildcards: one token of a pattern.
#[derive(Debug, Default)]
struct Node {
    /// The groups of the pattern that ends here.
    groups: Groups,
    /// The next tokens, `*` and `>` among them.
    next: HashMap<Bytes, Node>,
}

impl Node {
    fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.next.is_empty()
    }
}

/// All groups with members, by their patterns.
#[derive(Debug)]
pub struct InterestTable {
    /// Patterns without wildcards.
    subjects: HashMap<Bytes, Groups>,
    /// Patterns with wildcards.
    patterns: Node,
    /// The targets of recent subjects. Cleared when a group comes or goes.
    recent: HashMap<Bytes, Rc<Targets>>,
    turns: Turns,
}

impl InterestTable {
    /// Returns a table without groups, for the publishers at a daemon.
    pub fn new(here: DaemonId) -> InterestTable {
        InterestTable {
            subjects: HashMap::new(),
            patterns: Node::default(),
            recent: HashMap::new(),
            turns: Turns::new(here),
        }
    }

    /// Adds a group that has gained its first member at some daemon.
    pub fn add(&mut self, name: &GroupName) {
        self.recent.clear();
        if has_wildcard(&name.pattern) {
            let mut node = &mut self.patterns;
            for token in tokens(&name.pattern) {
                node = node.next.entry(token).or_default();
            }
            node.groups.add(name, &mut self.turns);
        } else {
            let groups = self.subjects.entry(name.pattern.clone()).or_default();
            groups.add(name, &mut self.turns);
        }
    }

    /// Removes a group that has lost its last member at some daemon.
    pub fn remove(&mut self, name: &GroupName) {
        self.recent.clear();
        if has_wildcard(&name.pattern) {
            let path: Vec<_> = tokens(&name.pattern).collect();
            remove(&mut self.patterns, &path, name);
        } else if let Some(groups) = self.subjects.get_mut(&name.pattern) {
            groups.remove(name);
            if groups.is_empty() {
                self.subjects.remove(&name.pattern);
            }
        }
    }

    /// Returns the groups that a message with this subject goes to.
    pub fn targets(&mut self, subject: &[u8]) -> Rc<Targets> {
        if let Some(targets) = self.recent.get(subject) {
            return Rc::clone(targets);
        }
        let targets = Rc::new(self.targets_of([subject].into_iter()));
        if self.recent.len() >= REMEMBERED_MAX {
            self.recent.clear();
        }
        let subject = Bytes::copy_from_slice(subject);
        self.recent.insert(subject, Rc::clone(&targets));
        targets
    }
}

impl InterestTable {
    /// Returns the groups that a message with these subjects goes to, each once.
    pub fn targets_of<'a>(&mut self, subjects: impl Iterator<Item = &'a [u8]>) -> Targets {
        let mut found = Found::default();
        for subject in subjects {
            if let Some(groups) = self.subjects.get(subject) {
                found.add(groups);
            }
            let path: Vec<_> = subject.split(|byte| *byte == b'.').collect();
            found.walk(&self.patterns, &path);
        }
        found.targets(&mut self.turns)
    }
}

fn tokens(pattern: &Bytes) -> impl Iterator<Item = Bytes> {
    pattern
        .split(|byte| *byte == b'.')
        .map(|token| pattern.slice_ref(token))
}

/// Removes a group below a node, and nodes that are no longer needed.
fn remove(node: &mut Node, path: &[Bytes], name: &GroupName) {
    let Some((token, rest)) = path.split_first() else {
        return node.groups.remove(name);
    };
    if let Some(next) = node.next.get_mut(token) {
        remove(next, rest, name);
        if next.is_empty() {
            node.next.remove(token);
        }
    }
}

/// The groups found for one subject.
#[derive(Default)]
struct Found<'a> {
    groups: Vec<GroupId>,
    /// By the names of queue groups.
    queues: BTreeMap<Bytes, Vec<&'a Queue>>,
}

impl<'a> Found<'a> {
    fn add(&mut self, groups: &'a Groups) {
        self.groups.extend(groups.plain.map(|(group, _)| group));
        for (name, queue) in &groups.queues {
            let queues = self.queues.entry(name.clone()).or_default();
            if !queues.iter().any(|known| core::ptr::eq(*known, queue)) {
                queues.push(queue);
            }
        }
    }

    fn walk(&mut self, node: &'a Node, path: &[&[u8]]) {
        let Some((token, rest)) = path.split_first() else {
            return self.add(&node.groups);
        };
        if let Some(tail) = node.next.get(&b">"[..]) {
            self.add(&tail.groups);
        }
        for token in [token, &b"*"[..]] {
            if let Some(next) = node.next.get(token) {
                self.walk(next, rest);
            }
        }
    }

    fn targets(mut self, turns: &mut Turns) -> Targets {
        self.groups.sort_unstable();
        self.groups.dedup();
        Targets {
            groups: self.groups,
            queues: turns.circles(&self.queues),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nats::subject::matches;
    use proptest::prelude::*;

    fn plain(pattern: &str) -> GroupName {
        GroupName {
            pattern: Bytes::from(pattern.to_owned()),
            queue: None,
        }
    }

    fn queue(pattern: &str, queue: &str, daemon: u16) -> GroupName {
        GroupName {
            queue: Some((Bytes::from(queue.to_owned()), DaemonId(daemon))),
            ..plain(pattern)
        }
    }

    #[test]
    fn names_of_groups_are_read_as_they_were_written() {
        for name in [plain("a.>"), queue("a.*", "workers", 65_535)] {
            assert_eq!(GroupName::decode(&name.encode()), Some(name));
        }
        for bytes in [
            "",
            "a b",
            "a b c",
            "a b 70000",
            "a b 1 2",
            "a..b",
            "a\n",
            "a q\u{85} 1",
        ] {
            assert_eq!(GroupName::decode(&Bytes::from(bytes)), None, "{bytes}");
        }
    }

    #[test]
    fn a_message_goes_to_one_place_of_each_queue_group() {
        let mut table = InterestTable::new(DaemonId(0));
        let names = [
            queue("a", "q", 1),
            queue("a", "q", 2),
            queue("a", "r", 1),
            queue("*", "q", 1),
        ];
        names.iter().for_each(|name| table.add(name));
        let targets = table.targets(b"a");
        assert_eq!(targets.groups, []);
        let places = targets.queues.iter().map(|circle| circle.places().len());
        assert_eq!(Vec::from_iter(places), [3, 1], "q has two patterns");
        names.iter().for_each(|name| table.remove(name));
        assert!(table.targets(b"a").is_empty());
        assert!(table.patterns.is_empty());
    }

    #[test]
    fn a_message_with_several_subjects_goes_to_each_group_once() {
        let mut table = InterestTable::new(DaemonId(0));
        let names = [
            plain("a"),
            plain("*"),
            queue("*", "q", 1),
            queue("b", "q", 2),
        ];
        names.iter().for_each(|name| table.add(name));
        let targets = table.targets_of([&b"a"[..], b"b"].into_iter());
        let mut expected = [plain("a").number(), plain("*").number()];
        expected.sort_unstable();
        assert_eq!(targets.groups, expected);
        let places = targets.queues.iter().map(|circle| circle.places().len());
        assert_eq!(Vec::from_iter(places), [2]);
    }

    #[test]
    fn the_turn_of_a_queue_group_is_the_same_for_all_subjects_and_survives_changes_of_others() {
        let mut table = InterestTable::new(DaemonId(0));
        let names = [1, 2, 3].map(|daemon| queue("a.*", "q", daemon));
        names.iter().for_each(|name| table.add(name));
        let mut chosen = Vec::new();
        for subject in ["a.b", "a.c", "a.d", "a.b"] {
            let targets = table.targets(subject.as_bytes());
            chosen.extend(targets.queues[0].next(|_| 1));
            table.add(&plain(subject));
        }
        let expected = [0, 1, 2, 0].map(|place: usize| names[place].number());
        assert_eq!(chosen, expected);
    }

    #[test]
    fn a_group_remains_until_the_last_daemon_has_left_it() {
        let mut table = InterestTable::new(DaemonId(0));
        table.add(&plain("a"));
        table.add(&plain("a"));
        table.remove(&plain("a"));
        assert_eq!(table.targets(b"a").groups, [plain("a").number()]);
        table.remove(&plain("a"));
        assert!(table.targets(b"a").is_empty());
    }

    proptest! {
        #[test]
        fn the_table_finds_what_the_patterns_match(
            patterns in prop::collection::btree_set("[ab*](\\.[ab*]){0,3}(\\.>)?|>", 1..20),
            subjects in prop::collection::vec("[ab](\\.[ab]){0,4}", 1..10),
        ) {
            let mut table = InterestTable::new(DaemonId(0));
            patterns.iter().for_each(|pattern| table.add(&plain(pattern)));
            for subject in subjects {
                let matching = patterns.iter().filter(|p| matches(p.as_bytes(), subject.as_bytes()));
                let mut expected: Vec<_> = matching.map(|p| plain(p).number()).collect();
                expected.sort_unstable();
                prop_assert_eq!(&table.targets(subject.as_bytes()).groups, &expected);
            }
            patterns.iter().for_each(|pattern| table.remove(&plain(pattern)));
            prop_assert!(table.patterns.is_empty());
            prop_assert!(table.subjects.is_empty());
        }
    }
}
