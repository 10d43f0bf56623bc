//! Messages of a JetStream stream that other sites have not all stored, as a state machine.

use std::collections::BTreeMap;

/// The maximum number of messages on the way to other sites.
pub const MESSAGES_MAX: usize = 256;
/// The bytes of messages on the way from which on no other message leaves.
pub const BYTES_MAX: usize = 4 << 20;

/// A message on the way.
#[derive(Debug)]
struct Sent<A> {
    bytes: usize,
    /// Whether each site has stored the message, in the order of [`Outbox::sites`].
    stored: Vec<bool>,
    /// The means to acknowledge the message in its own stream.
    acknowledger: A,
}

/// The messages of a stream on their way to other sites. `A` acknowledges a message in its own
/// stream; the owner does so when [`handle_stored`](Outbox::handle_stored) returns it.
///
/// There is no timer: JetStream delivers a message again if it has not been acknowledged in time.
#[derive(Debug)]
pub struct Outbox<A> {
    sites: Vec<String>,
    /// By sequence number in the stream.
    sent: BTreeMap<u64, Sent<A>>,
    bytes: usize,
}

impl<A> Outbox<A> {
    /// Returns an outbox for messages to these sites.
    pub fn new(sites: Vec<String>) -> Outbox<A> {
        debug_assert!(!sites.is_empty(), "a message to nobody is never stored");
        Outbox {
            sites,
            sent: BTreeMap::new(),
            bytes: 0,
        }
    }

    /// Returns whether another message may leave.
    pub fn has_room(&self) -> bool {
        self.sent.len() < MESSAGES_MAX && self.bytes < BYTES_MAX
    }

    /// Returns the number of messages on the way.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// Returns whether no message is on the way.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Adds a message that leaves. One that leaves again keeps the sites that have stored it.
    pub fn push(&mut self, sequence: u64, bytes: usize, acknowledger: A) {
        let before = self.sent.remove(&sequence);
        self.bytes -= before.as_ref().map_or(0, |sent| sent.bytes);
        let stored = before.map_or(vec![false; self.sites.len()], |sent| sent.stored);
        self.bytes += bytes;
        let sent = Sent {
            bytes,
            stored,
            acknowledger,
        };
        self.sent.insert(sequence, sent);
        debug_assert!(self.bytes >= bytes);
    }

    /// Handles the report of a site that it has stored a message. Returns the means to acknowledge
    /// the message if all sites have stored it. Ignores sites and messages that it does not know.
    pub fn handle_stored(&mut self, site: &str, sequence: u64) -> Option<A> {
        let place = self.sites.iter().position(|other| other == site)?;
        let sent = self.sent.get_mut(&sequence)?;
        sent.stored[place] = true;
        if !sent.stored.iter().all(|stored| *stored) {
            return None;
        }
        let sent = self.sent.remove(&sequence)?;
        self.bytes -= sent.bytes;
        debug_assert!(self.bytes == 0 || !self.sent.is_empty());
        Some(sent.acknowledger)
    }

    /// Forgets all messages: a new connection to JetStream delivers them again.
    pub fn clear(&mut self) {
        self.sent.clear();
        self.bytes = 0;
    }

    /// Removes a message that could not leave.
    pub fn remove(&mut self, sequence: u64) {
        self.bytes -= self.sent.remove(&sequence).map_or(0, |sent| sent.bytes);
    }

    /// Returns each site with the number of messages on the way that it has not stored.
    pub fn waiting(&self) -> impl Iterator<Item = (&str, usize)> {
        self.sites.iter().enumerate().map(|(place, site)| {
            let waits = |sent: &&Sent<A>| !sent.stored[place];
            (site.as_str(), self.sent.values().filter(waits).count())
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
