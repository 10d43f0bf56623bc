//! Clients at several daemons subscribe to any patterns and unsubscribe, and messages are published
//! to any subjects. The table of groups finds the groups that a plain search through all
//! subscriptions finds, and is empty after the last subscription.
#![cfg_attr(fuzzing, no_main)]

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::Arbitrary;
use bytes::Bytes;
use manyflow_messages::nats::interest::{GroupName, InterestTable};
use manyflow_messages::nats::subject::{is_pattern, is_subject, matches};
use manyflow_overlay::{DaemonId, GroupId};

/// The tokens of patterns and subjects. Some are frequent, so that patterns match.
const TOKENS: [&str; 16] = [
    "a", "a", "a", "a", "a", "b", "b", "b", "*", "*", ">", ">", "a>", "*b", "", "\u{e9}",
];
const TOKENS_MAX: usize = 4;
/// The daemon of the table.
const HERE: DaemonId = DaemonId(0);

/// A list of tokens, of four bits each.
#[derive(Arbitrary, Copy, Clone, Debug)]
struct Tokens {
    count: u8,
    tokens: u16,
}

impl Tokens {
    fn list(self) -> Vec<&'static str> {
        let count = 1 + usize::from(self.count) % TOKENS_MAX;
        let token = |place| usize::from(self.tokens >> (4 * place) & 15);
        (0..count).map(|place| TOKENS[token(place)]).collect()
    }

    fn text(self) -> String {
        self.list().join(".")
    }
}

#[derive(Arbitrary, Debug)]
enum Step {
    Add {
        pattern: Tokens,
        queue: u8,
        daemon: u8,
    },
    Remove {
        place: u8,
    },
    Publish {
        subject: Tokens,
    },
    Compare {
        patterns: [Tokens; 2],
    },
    Name([u8; 8]),
}

manyflow_fuzz::target!(|bytes: &[u8]| {
    let mut world = World::default();
    for step in manyflow_fuzz::each(bytes) {
        world.take(step);
    }
    world.publish("a.b.a");
    // The table forgets the groups of subjects when a group comes or goes; at least one goes.
    world.add(name("a.*", 0, 0));
    for name in core::mem::take(&mut world.names) {
        world.table.remove(&name);
    }
    assert_eq!(contents(&world.table), contents(&InterestTable::new(HERE)));
});

/// Returns the contents of a table, without the turns of queue groups, which it remembers.
fn contents(table: &InterestTable) -> String {
    let text = format!("{table:?}");
    let (contents, _) = text.split_once(", turns: ").expect("a table has turns");
    contents.to_owned()
}

struct World {
    table: InterestTable,
    /// The name of each subscription, in the order of their arrival.
    names: Vec<GroupName>,
}

impl Default for World {
    fn default() -> World {
        World {
            table: InterestTable::new(HERE),
            names: Vec::new(),
        }
    }
}

impl World {
    fn take(&mut self, step: Step) {
        match step {
            Step::Add {
                pattern,
                queue,
                daemon,
            } => self.add(name(&pattern.text(), queue, daemon)),
            Step::Remove { place } if !self.names.is_empty() => {
                let place = usize::from(place) % self.names.len();
                let name = self.names.swap_remove(place);
                self.table.remove(&name);
            }
            Step::Remove { .. } => {}
            Step::Publish { subject } => {
                let subject = subject.text();
                self.publish(&subject);
                self.publish(&subject.replace(['*', '>'], "a"));
            }
            Step::Compare { patterns } => compare(patterns.map(Tokens::text)),
            Step::Name(bytes) => decode(&bytes),
        }
    }

    fn add(&mut self, name: GroupName) {
        self.table.add(&name);
        self.names.push(name);
    }

    /// Publishes to a subject twice: the second time, the table remembers the groups.
    fn publish(&mut self, subject: &str) {
        if !is_subject(subject.as_bytes()) {
            return;
        }
        let (groups, queues) = self.search(subject);
        for _ in 0..2 {
            let targets = self.table.targets(subject.as_bytes());
            assert_eq!(targets.groups, groups, "{subject}");
            let queues_found = targets.queues.iter();
            let mut found: Vec<_> = queues_found.map(|queue| queue.places().to_vec()).collect();
            found.sort_unstable();
            assert_eq!(found, queues, "{subject}");
        }
    }

    /// Searches all subscriptions.
    fn search(&self, subject: &str) -> (Vec<GroupId>, Vec<Vec<(DaemonId, GroupId)>>) {
        let mut groups = BTreeSet::new();
        let mut queues: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for name in &self.names {
            let pattern = core::str::from_utf8(&name.pattern).expect("tokens are UTF-8");
            if !is_match(&split(pattern), &split(subject)) {
                continue;
            }
            match &name.queue {
                None => _ = groups.insert(name.number()),
                Some((queue, daemon)) => {
                    let places = queues.entry(queue).or_default();
                    places.insert((*daemon, name.number()));
                }
            }
        }
        let mut queues: Vec<Vec<_>> = queues
            .into_values()
            .map(|places| places.into_iter().collect())
            .collect();
        queues.sort_unstable();
        (groups.into_iter().collect(), queues)
    }
}

fn name(pattern: &str, queue: u8, daemon: u8) -> GroupName {
    let queue = match queue % 4 {
        0 | 1 => None,
        queue => Some((
            Bytes::from(format!("q{queue}")),
            DaemonId(u16::from(daemon % 3)),
        )),
    };
    GroupName {
        pattern: Bytes::from(pattern.to_owned()),
        queue,
    }
}

fn split(text: &str) -> Vec<&str> {
    text.split('.').collect()
}

/// Returns whether a pattern matches a subject, by the definition of wildcards.
fn is_match(pattern: &[&str], subject: &[&str]) -> bool {
    match (pattern, subject) {
        ([], []) => true,
        ([">"], [_, ..]) => true,
        // Daemons may announce any pattern. A wildcard for the tail is one only at the end.
        ([">", ..], _) => false,
        (["*", pattern @ ..], [_, subject @ ..]) => is_match(pattern, subject),
        ([token, pattern @ ..], [other, subject @ ..]) => {
            token == other && is_match(pattern, subject)
        }
        _ => false,
    }
}

/// Compares two patterns: the first contains the second if it matches each of its subjects.
fn compare([pattern, other]: [String; 2]) {
    if !is_pattern(pattern.as_bytes()) || !is_pattern(other.as_bytes()) {
        return;
    }
    let pattern_tokens = split(&pattern);
    let contains = subjects(&split(&other))
        .iter()
        .all(|subject| is_match(&pattern_tokens, subject));
    let found = matches(pattern.as_bytes(), other.as_bytes());
    assert_eq!(found, contains, "{pattern} {other}");
}

/// Returns subjects that stand for all subjects of a pattern. The token `c`, which is in no
/// pattern, stands for all tokens.
fn subjects<'t>(pattern: &[&'t str]) -> Vec<Vec<&'t str>> {
    let (tail_max, fixed) = match pattern {
        [fixed @ .., ">"] => (TOKENS_MAX + 1, fixed),
        fixed => (0, fixed),
    };
    let any = |token: &&'t str| if *token == "*" { "c" } else { *token };
    let fixed: Vec<_> = fixed.iter().map(any).collect();
    (tail_max.min(1)..=tail_max)
        .map(|tail| [&fixed[..], &["c"; TOKENS_MAX + 1][..tail]].concat())
        .collect()
}

/// Decodes any bytes, and bytes that are likely to be the name of a queue group.
fn decode(bytes: &[u8; 8]) {
    let likely = bytes.map(|byte| b"a. 0199>"[usize::from(byte % 8)]);
    for bytes in [bytes, &likely] {
        let bytes = Bytes::copy_from_slice(bytes);
        if let Some(name) = GroupName::decode(&bytes) {
            let again = GroupName::decode(&name.encode());
            assert_eq!(again.as_ref(), Some(&name));
            assert_eq!(again.map(|name| name.number()), Some(name.number()));
        }
    }
}
