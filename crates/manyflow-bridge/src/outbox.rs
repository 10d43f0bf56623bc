//! Messages of a JetStream stream that other sites have not all stored, as a state machine.

use std::collections::BTreeMap;

/// The maximum number of messages on the way to other sites.
pub const MESSAGES_MAX: usize = 256;
/// The bytes of messages on the way from which on no other message leaves.
pub const BYTES_MAX: usize = 4 << 20;

/// The maximum number of messages on the way that only absent sites lack. They find out whether
/// such a site is back, and all other sites get them again.
const PROBES_MAX: usize = 16;

/// The number of calls of [`Outbox::under_way`] without progress after which a message counts as
/// lost, and a site as absent: there are three in the time after which JetStream delivers a message
/// again, and the first may come at once.
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
    takes: Takes,
    /// The means to acknowledge the message in its own stream.
    acknowledger: A,
}

/// The place that a message on the way takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// Room: a site that is not absent lacks it.
    Room,
    /// A place among the probes: only absent sites lack it.
    Probe,
    /// Nothing: it is lost.
    Nothing,
}

/// The messages of a stream on their way to other sites. `A` acknowledges a message in its own
/// stream; the owner does so when [`handle_stored`](Outbox::handle_stored) returns it.
///
/// JetStream delivers a message again if it has not been acknowledged in time. Over a slow link,
/// messages may need longer. They are [under way](Outbox::under_way) as long as the sites report
/// others: the overlay keeps the order of messages. Those that are not, because a site was away,
/// count as lost and take no room, so that the owner can read them again.
///
/// A site that lacks messages and reports none becomes absent. Messages that only absent sites lack
/// take no room, so that the other sites get new ones, and few of them leave again. Once an absent
/// site reports a message, it is back, and the owner asks for those that it
/// [missed](Outbox::missed).
#[derive(Debug)]
pub struct Outbox<A> {
    sites: Vec<Site>,
    /// The number of messages that have left.
    left: u64,
    /// By sequence number in the stream. JetStream bounds them: a consumer has a maximum number of
    /// messages that are not acknowledged.
    sent: BTreeMap<u64, Sent<A>>,
    taken: Taken,
    /// Whether a site that was absent has reported a message since the last call of
    /// [`Outbox::missed`].
    is_back: bool,
}

/// The places that messages take.
#[derive(Debug, Default, PartialEq, Eq)]
struct Taken {
    messages: usize,
    bytes: usize,
    probes: usize,
}

/// A destination.
#[derive(Debug)]
struct Site {
    name: String,
    /// The order of the last message that the site has reported, and one.
    reported: u64,
    /// The number of calls of [`Outbox::under_way`] since the site has reported a message, at least
    /// 1 if it has not reported any; 1 while the site lacks none.
    calls: u32,
}

impl<A> Sent<A> {
    fn is_lost(&self) -> bool {
        self.calls >= LOST_AFTER
    }

    fn lacking<'a>(&'a self, sites: &'a [Site]) -> impl Iterator<Item = &'a Site> {
        let places = sites.iter().zip(&self.stored);
        places.filter_map(|(site, stored)| (!stored).then_some(site))
    }

    fn now_takes(&self, sites: &[Site]) -> Takes {
        if self.is_lost() {
            Takes::Nothing
        } else if self.lacking(sites).all(Site::is_absent) {
            Takes::Probe
        } else {
            Takes::Room
        }
    }
}

impl Site {
    fn is_absent(&self) -> bool {
        self.calls > LOST_AFTER
    }
}

impl Taken {
    fn add<A>(&mut self, sent: &Sent<A>) {
        match sent.takes {
            Takes::Room => {
                self.messages += 1;
                self.bytes += sent.bytes;
            }
            Takes::Probe => self.probes += 1,
            Takes::Nothing => (),
        }
    }

    fn remove<A>(&mut self, sent: &Sent<A>) {
        match sent.takes {
            Takes::Room => {
                self.messages -= 1;
                self.bytes -= sent.bytes;
            }
            Takes::Probe => self.probes -= 1,
            Takes::Nothing => (),
        }
    }
}

impl<A: Clone> Outbox<A> {
    /// Returns an outbox for messages to these sites.
    pub fn new(sites: Vec<String>) -> Outbox<A> {
        debug_assert!(!sites.is_empty(), "a message to nobody is never stored");
        let sites = sites.into_iter().map(|name| Site {
            name,
            reported: 0,
            calls: 1,
        });
        Outbox {
            sites: sites.collect(),
            left: 0,
            sent: BTreeMap::new(),
            taken: Taken::default(),
            is_back: false,
        }
    }

    /// Returns whether another message may leave.
    pub fn has_room(&self) -> bool {
        self.taken.messages < MESSAGES_MAX && self.taken.bytes < BYTES_MAX
    }

    /// Returns the number of messages that sites have not stored, those that are lost included.
    pub fn len(&self) -> usize {
        self.sent.len()
    }

    /// Returns whether all sites have stored all messages.
    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Adds a message, and returns whether it may leave: not if only absent sites lack it, and
    /// enough others are on the way to these. One that comes again keeps the sites that have stored
    /// it.
    #[must_use]
    pub fn push(&mut self, sequence: u64, bytes: usize, acknowledger: A) -> bool {
        let before = self.take(sequence);
        let stored = before.map_or(vec![false; self.sites.len()], |sent| sent.stored);
        let mut sent = Sent {
            bytes,
            calls: 0,
            order: self.left,
            stored,
            takes: Takes::Nothing,
            acknowledger,
        };
        let takes = sent.now_takes(&self.sites);
        let leaves = takes == Takes::Room || self.taken.probes < PROBES_MAX;
        if leaves {
            self.left += 1;
            sent.takes = takes;
        } else {
            sent.calls = LOST_AFTER;
        }
        self.put(sequence, sent);
        leaves
    }

    /// Handles the report of a site that it has stored a message. Returns the means to acknowledge
    /// the message if all sites have stored it. Ignores sites and messages that it does not know.
    pub fn handle_stored(&mut self, site: &str, sequence: u64) -> Option<A> {
        let place = self.sites.iter().position(|other| other.name == site)?;
        let mut sent = self.take(sequence)?;
        sent.stored[place] = true;
        let site = &mut self.sites[place];
        site.reported = site.reported.max(sent.order + 1);
        let was_absent = site.is_absent();
        site.calls = 0;
        let mut done = None;
        if sent.stored.iter().all(|stored| *stored) {
            done = Some(sent.acknowledger);
        } else {
            sent.takes = sent.now_takes(&self.sites);
            self.put(sequence, sent);
        }
        if was_absent {
            self.is_back = true;
            self.settle();
        }
        done
    }

    /// Returns the means to ask JetStream for messages again that are lost or have not left, if a
    /// site that lacks them is back.
    pub fn missed(&mut self) -> Vec<A> {
        if !std::mem::take(&mut self.is_back) {
            return Vec::new();
        }
        let sites = &self.sites;
        let is_missed =
            |sent: &&Sent<A>| sent.is_lost() && sent.lacking(sites).any(|site| !site.is_absent());
        let missed = self.sent.values().filter(is_missed);
        missed.map(|sent| sent.acknowledger.clone()).collect()
    }

    /// Returns the means to acknowledge the messages that need more time: all sites that have not
    /// reported them have reported earlier ones since the last call, and no later one. A later one
    /// shows that a message is lost. To be called three times in the time after which JetStream
    /// delivers a message again.
    pub fn under_way(&mut self) -> Vec<A> {
        let mut under_way = Vec::new();
        for sent in self.sent.values_mut().filter(|sent| !sent.is_lost()) {
            sent.calls += 1;
            let is_coming = |site: &Site| site.calls == 0 && site.reported <= sent.order;
            if sent.lacking(&self.sites).all(is_coming) {
                sent.calls = 0;
                under_way.push(sent.acknowledger.clone());
            }
        }
        for (place, site) in self.sites.iter_mut().enumerate() {
            let lacks_some = self.sent.values().any(|sent| !sent.stored[place]);
            site.calls = if lacks_some {
                site.calls.saturating_add(1)
            } else {
                1
            };
        }
        self.settle();
        under_way
    }

    /// Forgets all messages: a new connection to JetStream delivers them again.
    pub fn clear(&mut self) {
        self.sent.clear();
        self.taken = Taken::default();
        self.is_back = false;
    }

    /// Removes a message that could not leave.
    pub fn remove(&mut self, sequence: u64) {
        self.take(sequence);
    }

    fn put(&mut self, sequence: u64, sent: Sent<A>) {
        self.taken.add(&sent);
        self.sent.insert(sequence, sent);
    }

    fn take(&mut self, sequence: u64) -> Option<Sent<A>> {
        let sent = self.sent.remove(&sequence)?;
        self.taken.remove(&sent);
        Some(sent)
    }

    /// Finds out again what each message takes, after sites or messages have changed.
    fn settle(&mut self) {
        self.taken = Taken::default();
        for sent in self.sent.values_mut() {
            sent.takes = sent.now_takes(&self.sites);
            self.taken.add(sent);
        }
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
        assert!(outbox.push(7, 10, 70));
        assert!(outbox.push(8, 10, 80));
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
        assert!(outbox.push(7, 10, 70));
        outbox.handle_stored("b", 7);
        assert!(outbox.push(7, 10, 71));
        assert_eq!(outbox.len(), 1);
        assert_eq!(
            outbox.handle_stored("c", 7),
            Some(71),
            "the later one counts"
        );
        assert_eq!(outbox.taken.bytes, 0);
    }

    #[test]
    fn messages_are_under_way_while_sites_report_earlier_ones() {
        let mut outbox = Outbox::new(vec!["b".to_owned()]);
        for sequence in 1..=4 {
            assert!(outbox.push(sequence, 10, sequence));
        }
        assert!(outbox.under_way().is_empty(), "the site may be away");
        outbox.handle_stored("b", 2);
        assert_eq!(outbox.under_way(), [3, 4], "1 is lost");
        assert!(outbox.under_way().is_empty(), "nothing was reported since");
        assert!(outbox.push(1, 10, 1));
        outbox.handle_stored("b", 3);
        assert_eq!(outbox.under_way(), [1, 4], "1 has left again, behind 4");
    }

    #[test]
    fn a_message_is_under_way_to_all_sites_that_lack_it() {
        let mut outbox = outbox();
        for sequence in 1..=3 {
            assert!(outbox.push(sequence, 10, sequence));
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
            assert!(outbox.push(sequence, 10, sequence));
        }
        for _ in 1..LOST_AFTER {
            assert!(outbox.under_way().is_empty());
            assert!(!outbox.has_room(), "JetStream does not deliver them yet");
        }
        outbox.under_way();
        assert!(outbox.has_room());
        assert_eq!((outbox.len(), outbox.taken.bytes), (MESSAGES_MAX, 0));
        // One comes late after all, one leaves again.
        assert_eq!(outbox.handle_stored("b", 0), None);
        assert_eq!(outbox.handle_stored("c", 0), Some(0));
        assert!(outbox.push(1, 10, 1));
        assert_eq!((outbox.taken.messages, outbox.taken.bytes), (1, 10));
        outbox.remove(1);
        assert_eq!((outbox.taken.messages, outbox.taken.bytes), (0, 0));
    }

    /// Returns an outbox of whose messages 0 to [`MESSAGES_MAX`] `c` has stored none.
    fn outbox_without_c() -> Outbox<u64> {
        let mut outbox = outbox();
        for sequence in 0..MESSAGES_MAX as u64 {
            assert!(outbox.push(sequence, 10, sequence));
            outbox.handle_stored("b", sequence);
        }
        for _ in 1..LOST_AFTER {
            outbox.under_way();
            assert!(!outbox.has_room(), "c may be slow");
        }
        outbox.under_way();
        outbox
    }

    #[test]
    fn an_absent_site_takes_no_room_of_the_others() {
        let mut outbox = outbox_without_c();
        // JetStream delivers all again before it delivers new ones.
        for sequence in 0..MESSAGES_MAX as u64 {
            let leaves = outbox.push(sequence, 10, sequence);
            assert_eq!(leaves, sequence < PROBES_MAX as u64, "{sequence}");
            assert!(outbox.has_room());
        }
        for sequence in 0..2 * MESSAGES_MAX as u64 {
            let sequence = 1_000 + sequence;
            assert!(outbox.has_room(), "{sequence}");
            assert!(outbox.push(sequence, 10, sequence));
            assert_eq!(outbox.taken.messages, 1);
            assert_eq!(outbox.handle_stored("b", sequence), None);
        }
        for _ in 0..LOST_AFTER {
            outbox.under_way();
        }
        assert!(
            outbox.push(0, 10, 0),
            "the probes are lost, so others leave"
        );
        assert_eq!(outbox.len(), 3 * MESSAGES_MAX);
    }

    #[test]
    fn a_site_that_is_back_gets_what_it_missed_at_once() {
        let mut outbox = outbox_without_c();
        for sequence in 0..20 {
            assert_eq!(outbox.push(sequence, 10, sequence), sequence < 16);
        }
        assert!(outbox.missed().is_empty(), "c is away");
        assert_eq!(outbox.handle_stored("c", 0), Some(0));
        let expected: Vec<_> = (16..MESSAGES_MAX as u64).collect();
        assert_eq!(
            outbox.missed(),
            expected,
            "those on the way are not asked for"
        );
        assert!(outbox.missed().is_empty(), "once");
        assert_eq!(
            outbox.taken.messages, 15,
            "the probes are ordinary messages now"
        );
        assert!(outbox.push(16, 10, 16));
    }

    #[test]
    fn a_site_that_lacks_nothing_does_not_become_absent() {
        let mut outbox = outbox();
        for _ in 0..10 {
            outbox.under_way();
        }
        assert!(outbox.push(1, 10, 1));
        assert_eq!(outbox.taken.messages, 1);
    }

    #[test]
    fn the_number_and_the_bytes_of_messages_on_the_way_are_limited() {
        let mut outbox = outbox();
        assert!(outbox.push(0, BYTES_MAX, 0));
        assert!(!outbox.has_room());
        for site in ["b", "c"] {
            outbox.handle_stored(site, 0);
        }
        for sequence in 0..MESSAGES_MAX as u64 {
            assert!(outbox.has_room());
            assert!(outbox.push(sequence, 1, 0));
        }
        assert!(!outbox.has_room());
    }
}
