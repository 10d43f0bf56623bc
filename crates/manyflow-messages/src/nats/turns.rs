//! The choice of a queue group's members by turns, over all daemons.
//!
//! Each daemon's members of a queue group are a group of the overlay, of which the publisher's
//! daemon knows the number of members. It visits the daemons in a circle, and lets each have as
//! many messages in a row as it has members. Each daemon gives its members turns as well, so that
//! each member of the queue group gets one message in each circle, at whichever daemon it is. Each
//! queue group has a circle of its own: messages to another one move no turn.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use bytes::Bytes;
use manyflow_overlay::{DaemonId, GroupId};

/// The maximum number of combinations of patterns whose turns are remembered.
const COMBINATIONS_MAX: usize = 4096;

/// A daemon's members of a queue group with one pattern.
pub(crate) type Place = (DaemonId, GroupId);

/// The place that had the last message, and the number of messages that it has had in a row.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Turn {
    at: Place,
    served: u32,
}

/// The places of a queue group whose patterns match a subject, and whose turn it is.
#[derive(Clone, Debug)]
pub struct Circle {
    /// In ascending order.
    places: Vec<Place>,
    turn: Rc<Cell<Turn>>,
}

impl Circle {
    /// Returns the group that gets the next message; `None` if no member may get one. `members` is
    /// the number of members at a place that may.
    pub(crate) fn next(&self, members: impl Fn(Place) -> u32) -> Option<GroupId> {
        let turn = self.turn.get();
        let first = self.places.partition_point(|place| *place < turn.at);
        let round = (first..self.places.len()).chain(0..first);
        // The first place may have had its messages, and be the only one.
        for (step, index) in round.chain([first]).enumerate() {
            let at = *self.places.get(index)?;
            let is_same = step == 0 && at == turn.at;
            let served = if is_same { turn.served } else { 0 };
            if served < members(at) {
                let served = served + 1;
                self.turn.set(Turn { at, served });
                return Some(at.1);
            }
        }
        None
    }

    /// Returns the places.
    pub fn places(&self) -> &[Place] {
        &self.places
    }
}

/// A queue group with one pattern.
#[derive(Debug)]
pub(super) struct Queue {
    /// Its number among all queues, which no other queue has had.
    number: u64,
    /// The number of announcements of each place.
    places: BTreeMap<Place, u32>,
    turn: Rc<Cell<Turn>>,
}

impl Queue {
    pub(super) fn add(&mut self, place: Place) {
        *self.places.entry(place).or_default() += 1;
    }

    /// Removes an announcement. Returns whether no place remains.
    pub(super) fn remove(&mut self, place: Place) -> bool {
        if let Some(count) = self.places.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.places.remove(&place);
            }
        }
        self.places.is_empty()
    }
}

/// Makes queues, and keeps the turns of those that several patterns of a subject have in common.
#[derive(Debug)]
pub(super) struct Turns {
    here: DaemonId,
    queues: u64,
    /// By the numbers of the queues, in ascending order.
    combined: HashMap<Vec<u64>, Rc<Cell<Turn>>>,
}

impl Turns {
    /// Returns the turns of the publishers at a daemon, which begin with its own members: so
    /// daemons that send few messages do not all begin with the same members.
    pub(super) fn new(here: DaemonId) -> Turns {
        Turns {
            here,
            queues: 0,
            combined: HashMap::new(),
        }
    }

    fn begin(&self) -> Rc<Cell<Turn>> {
        let at = (self.here, GroupId(0));
        Rc::new(Cell::new(Turn { at, served: 0 }))
    }

    /// Returns a queue without members.
    pub(super) fn new_queue(&mut self) -> Queue {
        self.queues += 1;
        Queue {
            number: self.queues,
            places: BTreeMap::new(),
            turn: self.begin(),
        }
    }

    /// Returns the circle of the queues with one name whose patterns match a subject. As with
    /// nats-server, they are one queue group for this subject.
    fn circle(&mut self, queues: &[&Queue]) -> Circle {
        let places = queues.iter().flat_map(|queue| queue.places.keys());
        let mut places: Vec<_> = places.copied().collect();
        places.sort_unstable();
        let turn = match queues {
            [queue] => Rc::clone(&queue.turn),
            _ => self.combined_turn(queues),
        };
        Circle { places, turn }
    }

    fn combined_turn(&mut self, queues: &[&Queue]) -> Rc<Cell<Turn>> {
        let mut key: Vec<_> = queues.iter().map(|queue| queue.number).collect();
        key.sort_unstable();
        if !self.combined.contains_key(&key) && self.combined.len() >= COMBINATIONS_MAX {
            self.combined.clear();
        }
        let first = self.begin();
        Rc::clone(self.combined.entry(key).or_insert(first))
    }

    /// Returns the circle of each queue group, given its queues by their names.
    pub(super) fn circles(&mut self, found: &BTreeMap<Bytes, Vec<&Queue>>) -> Vec<Circle> {
        found.values().map(|queues| self.circle(queues)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(daemon: u16) -> Place {
        (DaemonId(daemon), GroupId(u32::from(daemon)))
    }

    fn circle(here: u16, daemons: &[u16]) -> Circle {
        let mut turns = Turns::new(DaemonId(here));
        let mut queue = turns.new_queue();
        daemons.iter().for_each(|daemon| queue.add(place(*daemon)));
        turns.circle(&[&queue])
    }

    /// Sends messages to members, given by their daemons. Returns those of each daemon.
    fn send(circle: &Circle, messages: u32, members: &[(u16, u32)]) -> BTreeMap<u32, u32> {
        let count = |at: Place| {
            let mut members = members.iter();
            let found = members.find(|(daemon, _)| place(*daemon) == at);
            found.map_or(0, |(_, count)| *count)
        };
        let mut sent = BTreeMap::new();
        for _ in 0..messages {
            if let Some(group) = circle.next(count) {
                *sent.entry(group.0).or_default() += 1;
            }
        }
        sent
    }

    #[test]
    fn each_member_has_one_message_in_each_circle_at_whichever_daemon_it_is() {
        for here in 0..5 {
            let circle = circle(here, &[1, 2, 3]);
            let members = [(1, 9), (2, 1), (3, 4)];
            let once = BTreeMap::from([(1, 9), (2, 1), (3, 4)]);
            for _ in 0..3 {
                assert_eq!(send(&circle, 14, &members), once, "from daemon {here}");
            }
        }
    }

    #[test]
    fn daemons_begin_with_their_own_members_so_that_few_messages_of_each_are_spread() {
        let members = [(1, 4), (2, 3), (3, 3)];
        let sent = [1, 2, 3].map(|here| send(&circle(here, &[1, 2, 3]), 3, &members));
        let own = [1, 2, 3].map(|here| BTreeMap::from([(here, 3)]));
        assert_eq!(sent, own);
    }

    #[test]
    fn members_that_come_and_go_change_the_turns_from_then_on() {
        let circle = circle(1, &[1, 2]);
        send(&circle, 3, &[(1, 5), (2, 1)]);
        // Two of five members leave, all of which had their messages.
        let sent = send(&circle, 8, &[(1, 3), (2, 1)]);
        assert_eq!(sent, BTreeMap::from([(1, 6), (2, 2)]));
        // One daemon cannot be reached.
        assert_eq!(send(&circle, 5, &[(2, 1)]), BTreeMap::from([(2, 5)]));
        assert_eq!(send(&circle, 5, &[]), BTreeMap::new());
        assert_eq!(circle.places().len(), 2);
    }

    #[test]
    fn queues_with_one_name_whose_patterns_match_are_one_group_with_its_own_turn() {
        let mut turns = Turns::new(DaemonId(0));
        let mut queues = [turns.new_queue(), turns.new_queue()];
        queues[0].add((DaemonId(1), GroupId(1)));
        queues[1].add((DaemonId(1), GroupId(2)));
        let [both, same, one] = [
            turns.circle(&[&queues[0], &queues[1]]),
            turns.circle(&[&queues[1], &queues[0]]),
            turns.circle(&[&queues[0]]),
        ];
        let next = |circle: &Circle| circle.next(|_| 1).unwrap().0;
        let sent = [
            next(&both),
            next(&one),
            next(&same),
            next(&one),
            next(&both),
        ];
        assert_eq!(sent, [1, 1, 2, 1, 1]);
        for _ in 0..2 * COMBINATIONS_MAX {
            let other = turns.new_queue();
            turns.circle(&[&queues[0], &other]);
        }
        assert!(turns.combined.len() <= COMBINATIONS_MAX);
    }

    #[test]
    fn a_place_remains_until_its_last_announcement_is_removed() {
        let mut queue = Turns::new(DaemonId(0)).new_queue();
        queue.add(place(1));
        queue.add(place(1));
        assert!(!queue.remove(place(1)));
        assert!(queue.remove(place(1)));
    }
}
