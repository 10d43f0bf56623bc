//! Messages of a JetStream stream that other sites have not all stored, as a state machine.

use std::collections::BTreeMap;

/// The maximum number of messages on the way to other sites.
pub const MESSAGES_MAX: usize = 256;
/// The bytes of messages on the way from which on no other message leaves.
pub const BYTES_MAX: usize = 4 << 20;

/// The number of calls of [`Outbox::under_way`] without progress after which a message counts as
/// lost: there are three in the time after which JetStream delivers it again, and the first may
/// come at once.
const LOST_AFTER: u32 = 4;

/// A message on the way.
#[derive(Debug)]
struct Sent<A> {
    bytes: usize,
    /// The number of calls of [`Outbox::under_way`] since the message left or was under way.
    calls: u32,
    /// The number of messages that had left before.
    order: u64,
    /// Whether each site has stored the message, in the order of [`Outbox::sites`].
    stored: Vec<bool>,
    /// The means to acknowledge the message in its own stream.
    acknowledger: A,
}

/// The messages of a stream on their way to other sites. `A` acknowledges a message in its own
/// stream; the owner does so when [`handle_stored`](Outbox::handle_stored) returns it.
///
/// JetStream delivers a message again if it has not been acknowledged in time. Over a slow link,
/// messages may need longer. They are [under way](Outbox::under_way) as long as the sites report
/// others: the overlay keeps the order of messages. Those that are not, because a site was away,
/// count as lost and take no room, so that the owner can read them again.
#[derive(Debug)]
pub struct Outbox<A> {
    sites: Vec<Site>,
    /// The number of messages that have left.
    left: u64,
    /// By sequence number in the stream. JetStream bounds them: a consumer has a maximum number of
    /// messages that are not acknowledged.
    sent: BTreeMap<u64, Sent<A>>,
    /// The number of messages in `sent` that are not lost, and their bytes.
    counted: usize,
    bytes: usize,
}

impl<A> Sent<A> {
    fn is_lost(&self) -> bool {
        self.calls >= LOST_AFTER
    }
}

/// A destination.
#[derive(Debug)]
struct Site {
    name: String,
    /// The order of the last message that the site has reported, and one.
    reported: u64,
    /// Whether the site has reported a message since the last question for those under way.
    has_reported: bool,
}

impl<A: Clone> Outbox<A> {
    /// Returns an outbox for messages to these sites.
    pub fn new(sites: Vec<String>) -> Outbox<A> {
        debug_assert!(!sites.is_empty(), "a message to nobody is never stored");
        let sites = sites.into_iter().map(|name| Site {
            name,
            reported: 0,
            has_reported: false,
        });
        Outbox {
            sites: sites.collect(),
            left: 0,
            sent: BTreeMap::new(),
            counted: 0,
            bytes: 0,
        }
    }

    /// Returns whether another message may leave.
    pub fn has_room(&self) -> bool {
        self.counted < MESSAGES_MAX && self.bytes < BYTES_MAX
    }

    /// Returns the number of messages that sites have not stored, those that are lost included.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// Returns whether all sites have stored all messages.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Adds a message that leaves. One that leaves again keeps the sites that have stored it.
    pub fn push(&mut self, sequence: u64, bytes: usize, acknowledger: A) {
        let before = self.take(sequence);
        let stored = before.map_or(vec![false; self.sites.len()], |sent| sent.stored);
        self.counted += 1;
        self.bytes += bytes;
        let sent = Sent {
            bytes,
            calls: 0,
            order: self.left,
            stored,
            acknowledger,
        };
        self.left += 1;
        self.sent.insert(sequence, sent);
        debug_assert!(self.bytes >= bytes);
    }

    /// Handles the report of a site that it has stored a message. Returns the means to acknowledge
    /// the message if all sites have stored it. Ignores sites and messages that it does not know.
    pub fn handle_stored(&mut self, site: &str, sequence: u64) -> Option<A> {
        let place = self.sites.iter().position(|other| other.name == site)?;
        let sent = self.sent.get_mut(&sequence)?;
        let site = &mut self.sites[place];
        site.reported = site.reported.max(sent.order + 1);
        site.has_reported = true;
        sent.stored[place] = true;
        if !sent.stored.iter().all(|stored| *stored) {
            return None;
        }
        Some(self.take(sequence)?.acknowledger)
    }

    /// Returns the means to acknowledge the messages that need more time: all sites that have not
    /// reported them have reported earlier ones since the last call, and no later one. A later one
    /// shows that a message is lost. To be called three times in the time after which JetStream
    /// delivers a message again.
    pub fn under_way(&mut self) -> Vec<A> {
        let mut under_way = Vec::new();
        for sent in self.sent.values_mut() {
            let mut waiting = self
                .sites
                .iter()
                .zip(&sent.stored)
                .filter(|(_, stored)| !**stored);
            let is_under_way =
                waiting.all(|(site, _)| site.has_reported && site.reported <= sent.order);
            if sent.is_lost() {
                continue;
            }
            sent.calls += 1;
            if is_under_way {
                sent.calls = 0;
                under_way.push(sent.acknowledger.clone());
            } else if sent.is_lost() {
                self.counted -= 1;
                self.bytes -= sent.bytes;
            }
        }
        for site in &mut self.sites {
            site.has_reported = false;
        }
        under_way
    }

    /// Forgets all messages: a new connection to JetStream delivers them again.
    pub fn clear(&mut self) {
        self.sent.clear();
        (self.counted, self.bytes) = (0, 0);
    }

    /// Removes a message that could not leave.
    pub fn remove(&mut self, sequence: u64) {
        self.take(sequence);
    }

    fn take(&mut self, sequence: u64) -> Option<Sent<A>> {
        let sent = self.sent.remove(&sequence)?;
        if !sent.is_lost() {
            self.counted -= 1;
            self.bytes -= sent.bytes;
        }
        debug_assert!(self.counted <= self.sent.len());
        debug_assert!(self.bytes == 0 || self.counted > 0);
        Some(sent)
    }

    /// Returns each site with the number of messages that it has not stored.
    pub fn waiting(&self) -> impl Iterator<Item = (&str, usize)> {
        self.sites.iter().enumerate().map(|(place, site)| {
            let waits = |sent: &&Sent<A>| !sent.stored[place];
            (site.name.as_str(), self.sent.values().filter(waits).count())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox() -> Outbox<u64> {
        Outbox::new(vec!["b".to_owned(), "c".to_owned()])
    }

    #[test]
    fn a_message_is_done_when_all_sites_have_stored_it() {
        let mut outbox = outbox();
        outbox.push(7, 10, 70);
        outbox.push(8, 10, 80);
        assert_eq!(outbox.handle_stored("b", 7), None);
        assert_eq!(
            outbox.handle_stored("b", 7),
            None,
            "a report that is repeated"
        );
        assert_eq!(
            outbox.handle_stored("d", 7),
            None,
            "a site that is not named"
        );
        assert_eq!(
            outbox.handle_stored("c", 9),
            None,
            "a message that never left"
        );
        let waiting: Vec<_> = outbox.waiting().collect();
        assert_eq!(waiting, [("b", 1), ("c", 2)]);
        assert_eq!(outbox.handle_stored("c", 7), Some(70));
        assert_eq!(outbox.handle_stored("c", 7), None, "it is done");
        assert_eq!(outbox.len(), 1);
    }

    #[test]
    fn a_message_that_leaves_again_keeps_the_sites_that_have_it() {
        let mut outbox = outbox();
        outbox.push(7, 10, 70);
        outbox.handle_stored("b", 7);
        outbox.push(7, 10, 71);
        assert_eq!(outbox.len(), 1);
        assert_eq!(
            outbox.handle_stored("c", 7),
            Some(71),
            "the later one counts"
        );
        assert_eq!(outbox.bytes, 0);
    }

    #[test]
    fn messages_are_under_way_while_sites_report_earlier_ones() {
        let mut outbox = Outbox::new(vec!["b".to_owned()]);
        for sequence in 1..=4 {
            outbox.push(sequence, 10, sequence);
        }
        assert!(outbox.under_way().is_empty(), "the site may be away");
        outbox.handle_stored("b", 2);
        assert_eq!(outbox.under_way(), [3, 4], "1 is lost");
        assert!(outbox.under_way().is_empty(), "nothing was reported since");
        outbox.push(1, 10, 1);
        outbox.handle_stored("b", 3);
        assert_eq!(outbox.under_way(), [1, 4], "1 has left again, behind 4");
    }

    #[test]
    fn a_message_is_under_way_to_all_sites_that_lack_it() {
        let mut outbox = outbox();
        for sequence in 1..=3 {
            outbox.push(sequence, 10, sequence);
        }
        outbox.handle_stored("b", 1);
        assert!(outbox.under_way().is_empty(), "c is away");
        outbox.handle_stored("b", 2);
        outbox.handle_stored("c", 1);
        assert_eq!(outbox.under_way(), [2, 3]);
    }

    #[test]
    fn messages_that_are_lost_take_no_room() {
        let mut outbox = outbox();
        for sequence in 0..MESSAGES_MAX as u64 {
            outbox.push(sequence, 10, sequence);
        }
        for _ in 1..LOST_AFTER {
            assert!(outbox.under_way().is_empty());
            assert!(!outbox.has_room(), "JetStream does not deliver them yet");
        }
        outbox.under_way();
        assert!(outbox.has_room());
        assert_eq!((outbox.len(), outbox.bytes), (MESSAGES_MAX, 0));
        // One comes late after all, one leaves again.
        assert_eq!(outbox.handle_stored("b", 0), None);
        assert_eq!(outbox.handle_stored("c", 0), Some(0));
        outbox.push(1, 10, 1);
        assert_eq!((outbox.counted, outbox.bytes), (1, 10));
        outbox.remove(1);
        assert_eq!((outbox.counted, outbox.bytes), (0, 0));
    }

    #[test]
    fn the_number_and_the_bytes_of_messages_on_the_way_are_limited() {
        let mut outbox = outbox();
        outbox.push(0, BYTES_MAX, 0);
        assert!(!outbox.has_room());
        for site in ["b", "c"] {
            outbox.handle_stored(site, 0);
        }
        for sequence in 0..MESSAGES_MAX as u64 {
            assert!(outbox.has_room());
            outbox.push(sequence, 1, 0);
        }
        assert!(!outbox.has_room());
    }
}
