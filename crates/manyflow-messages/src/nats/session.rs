//! One NATS client: its subscriptions, and the messages that it waits to publish.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use manyflow_core::Time;
use manyflow_order::Event;
use manyflow_overlay::{ClientId, GroupId, GroupSet};
use serde::Deserialize;
use tokio::sync::Notify;

use super::ordered::OrderedSubscriptions;
use super::parse::Published;
use super::subject::matches;
use crate::client_stream::PeerAddress;
use crate::core::HeldMessages;
use crate::fragment::Partial;
use crate::nkey::Nonce;
use crate::outgoing::Outgoing;

/// The options of CONNECT that the daemon uses.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct ConnectOptions {
    /// The client's own name.
    #[serde(default)]
    pub(crate) name: Option<String>,
    /// The language of the client's library.
    #[serde(default)]
    pub(crate) lang: Option<String>,
    /// The version of the client's library.
    #[serde(default)]
    pub(crate) version: Option<String>,
    /// The version of the protocol: with 1 or more, the client takes INFO more than once.
    #[serde(default)]
    pub(crate) protocol: i64,
    /// Whether each operation is answered with +OK.
    #[serde(default)]
    pub(crate) verbose: bool,
    /// Whether the client receives its own messages.
    #[serde(default = "yes")]
    pub(crate) echo: bool,
    /// Whether the client understands headers.
    #[serde(default)]
    pub(crate) headers: bool,
    /// Whether a request that nobody receives is answered.
    #[serde(default)]
    pub(crate) no_responders: bool,
    /// The name of the user.
    #[serde(default)]
    pub(crate) user: Option<String>,
    /// The user's password.
    #[serde(default)]
    pub(crate) pass: Option<String>,
    /// A token.
    #[serde(default)]
    pub(crate) auth_token: Option<String>,
    /// The public key of the user.
    #[serde(default)]
    pub(crate) nkey: Option<String>,
    /// The signature of the nonce in INFO, in base 64.
    #[serde(default)]
    pub(crate) sig: Option<String>,
    /// The JWT of the user.
    #[serde(default)]
    pub(crate) jwt: Option<String>,
}

fn yes() -> bool {
    true
}

/// A subscription of a client.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) pattern: Bytes,
    /// Few subscriptions have one: the others do without its memory.
    pub(crate) queue: Option<Box<Bytes>>,
    pub(crate) group: GroupId,
    /// The number of messages after which the subscription ends.
    pub(crate) max: Option<u64>,
    pub(crate) delivered: u64,
}

impl Subscription {
    /// Returns the name of the queue group.
    pub(crate) fn queue_name(&self) -> Option<&[u8]> {
        self.queue.as_deref().map(|queue| &queue[..])
    }
}

/// The other end of a client's connection.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Peer {
    /// The client's number, which INFO has.
    pub(crate) number: u64,
    pub(crate) address: PeerAddress,
    /// Whether the connection is a WebSocket.
    pub(crate) is_websocket: bool,
    /// The nonce in INFO, if there are users with keys.
    pub(crate) nonce: Option<Nonce>,
}

/// The messages of a client, and the bytes of their headers and payloads.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) in_messages: u64,
    pub(crate) in_bytes: u64,
    pub(crate) out_messages: u64,
    pub(crate) out_bytes: u64,
}

impl Traffic {
    pub(crate) fn add(&mut self, other: &Traffic) {
        self.in_messages += other.in_messages;
        self.in_bytes += other.in_bytes;
        self.out_messages += other.out_messages;
        self.out_bytes += other.out_bytes;
    }

    fn count_out(&mut self, bytes: usize) {
        self.out_messages += 1;
        self.out_bytes += bytes as u64;
    }
}

/// The state of a connected NATS client.
#[derive(Debug)]
pub(crate) struct NatsSession {
    pub(crate) out: Rc<Outgoing>,
    pub(crate) client: ClientId,
    pub(crate) peer: Peer,
    pub(crate) options: ConnectOptions,
    /// The user, in words.
    pub(crate) user: Rc<str>,
    /// The client's share under the controller, in percent.
    pub(crate) priority: u16,
    /// The user's name, which the monitoring shows; `None` without users.
    pub(crate) authorized_user: Option<Rc<str>>,
    pub(crate) traffic: Traffic,
    /// When the client was connected.
    pub(crate) since: Time,
    /// When the client sent last.
    pub(crate) read_at: Time,
    /// The time between the daemon's last PING and its PONG.
    pub(crate) rtt: Option<Duration>,
    /// The memory that the subscriptions take at most.
    pub(crate) group_bytes: usize,
    subscriptions: HashMap<Rc<[u8]>, Subscription>,
    /// The subscriptions of each group that this client is a member of, without queue groups. One
    /// set for all groups: a set for each would take several times the memory, because most groups
    /// have one subscription.
    by_group: BTreeSet<(GroupId, Option<Rc<[u8]>>)>,
    /// The number of subscriptions in each queue group of this daemon.
    by_queue: BTreeMap<GroupId, u32>,
    /// Messages that have not entered the overlay, with their groups.
    pub(crate) pending: VecDeque<(GroupSet, Bytes, bool)>,
    /// Whether the daemon has a message of this client that has not entered.
    pub(crate) is_sending: bool,
    /// Messages of the client behind the one that waits.
    pub(crate) held: HeldMessages,
    /// The number of messages that the client has sent, held ones included.
    pub(crate) taken: u64,
    /// Notified when a message has entered.
    pub(crate) ready: Rc<Notify>,
    /// The number of messages that clients of the overlay handed over whose bytes wait for a socket
    /// that is slow: this client, and those of its queue groups.
    pub(crate) unread: Vec<(ClientId, u32)>,
    /// Messages whose fragments have not all arrived.
    pub(crate) partial: VecDeque<Partial>,
    /// Subscriptions to ordered groups.
    pub(crate) ordered: OrderedSubscriptions,
    /// Whether a message to an ordered group has not entered.
    pub(crate) is_ordering: bool,
}

impl NatsSession {
    pub(crate) fn new(
        out: Rc<Outgoing>,
        client: ClientId,
        peer: Peer,
        user: Rc<str>,
    ) -> NatsSession {
        NatsSession {
            out,
            client,
            peer,
            options: ConnectOptions {
                echo: true,
                ..ConnectOptions::default()
            },
            user,
            priority: 100,
            authorized_user: None,
            traffic: Traffic::default(),
            since: Time::ZERO,
            read_at: Time::ZERO,
            rtt: None,
            group_bytes: 0,
            subscriptions: HashMap::new(),
            by_group: BTreeSet::new(),
            by_queue: BTreeMap::new(),
            pending: VecDeque::new(),
            is_sending: false,
            held: HeldMessages::default(),
            taken: 0,
            ready: Rc::default(),
            unread: Vec::new(),
            partial: VecDeque::new(),
            ordered: OrderedSubscriptions::default(),
            is_ordering: false,
        }
    }

    /// Returns whether a message of this client waits to enter the overlay.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_sending || self.is_ordering || !self.pending.is_empty()
    }

    /// Returns the number of messages of this client that have entered the overlay, or went to no
    /// group.
    pub(crate) fn entered(&self) -> u64 {
        self.taken - self.held.len() as u64 - u64::from(self.is_busy())
    }

    pub(crate) fn subscription_count(&self) -> usize {
        self.subscriptions.len() + self.ordered.len()
    }

    pub(crate) fn has_subscription(&self, sid: &[u8]) -> bool {
        self.subscriptions.contains_key(sid) || self.ordered.has(sid)
    }

    /// Adds a subscription. Returns whether the client must join the group for it.
    pub(crate) fn subscribe(&mut self, sid: &[u8], subscription: Subscription) -> bool {
        let (group, is_queue) = (subscription.group, subscription.queue.is_some());
        let sid: Rc<[u8]> = Rc::from(sid);
        self.subscriptions.insert(Rc::clone(&sid), subscription);
        if is_queue {
            *self.by_queue.entry(group).or_default() += 1;
            return false;
        }
        let is_first = self.sids_in(group).next().is_none();
        self.by_group.insert((group, Some(sid)));
        is_first
    }

    /// Ends a subscription after `max` messages, those that were delivered already included.
    /// Returns whether it ends now.
    pub(crate) fn limit(&mut self, sid: &[u8], max: Option<u64>) -> bool {
        let Some(subscription) = self.subscriptions.get_mut(sid) else {
            return false;
        };
        subscription.max = max;
        max.is_none_or(|max| subscription.delivered >= max)
    }

    /// Removes a subscription. Returns it, and whether the client must leave its group.
    pub(crate) fn unsubscribe(&mut self, sid: &[u8]) -> Option<(Subscription, bool)> {
        let subscription = self.subscriptions.remove(sid)?;
        let group = subscription.group;
        if subscription.queue.is_some()
            && let Entry::Occupied(mut count) = self.by_queue.entry(group)
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        let entry = (group, Some(Rc::from(sid)));
        let was_member = self.by_group.remove(&entry);
        let must_leave = was_member && self.sids_in(group).next().is_none();
        Some((subscription, must_leave))
    }

    /// Returns the number of members of a group of this daemon that stand for the client and do not
    /// get its own messages, because it has turned echo off.
    pub(crate) fn members_without_echo(&self, group: GroupId) -> u32 {
        if self.options.echo {
            return 0;
        }
        let workers = self.by_queue.get(&group).copied();
        workers.unwrap_or_else(|| u32::from(self.sids_in(group).next().is_some()))
    }

    /// Returns all subscriptions with their identifiers, in no order.
    pub(crate) fn subscriptions(&self) -> impl Iterator<Item = (&[u8], &Subscription)> {
        self.subscriptions.iter().map(|(sid, of)| (&**sid, of))
    }

    /// Returns the identifiers of all subscriptions.
    pub(crate) fn sids(&self) -> Vec<Bytes> {
        let sids = self.subscriptions.keys();
        let sids = sids.map(|sid| Bytes::copy_from_slice(sid));
        sids.chain(self.ordered.sids().cloned()).collect()
    }

    /// Returns the identifiers of a group's subscriptions.
    pub(crate) fn sids_of(&self, group: GroupId) -> Vec<Bytes> {
        let sids = self.sids_in(group);
        sids.map(Bytes::copy_from_slice).collect()
    }

    fn sids_in(&self, group: GroupId) -> impl Iterator<Item = &[u8]> {
        sids_in(&self.by_group, group)
    }

    /// Sends a message of a group to the client, once for each subscription. Returns subscriptions
    /// that have had their last message.
    pub(crate) fn deliver(&mut self, group: GroupId, message: &Published) -> Vec<Bytes> {
        let mut ended = Vec::new();
        for sid in sids_in(&self.by_group, group) {
            let Some(subscription) = self.subscriptions.get_mut(sid) else {
                continue;
            };
            let Some(subject) = message.subject_for(&subscription.pattern) else {
                continue;
            };
            subscription.delivered += 1;
            let headers = self.options.headers;
            let bytes = write_message(&self.out, sid, subject, message, headers);
            self.traffic.count_out(bytes);
            if subscription
                .max
                .is_some_and(|max| subscription.delivered >= max)
            {
                ended.push(Bytes::copy_from_slice(sid));
            }
        }
        ended
    }

    /// Sends a message of a queue group to the client. Returns whether that subscription has had
    /// its last message.
    pub(crate) fn deliver_to(&mut self, sid: &[u8], message: &Published) -> bool {
        let Some(subscription) = self.subscriptions.get_mut(sid) else {
            return false;
        };
        subscription.delivered += 1;
        let subject = message.subject_for(&subscription.pattern);
        let subject = subject.unwrap_or(message.subject());
        let bytes = write_message(&self.out, sid, subject, message, self.options.headers);
        self.traffic.count_out(bytes);
        subscription
            .max
            .is_some_and(|max| subscription.delivered >= max)
    }

    /// Sends an event of ordered groups to the client. Returns subscriptions that have had their
    /// last message.
    pub(crate) fn show_ordered(&mut self, event: &Event) -> Vec<Bytes> {
        let headers = self.options.headers;
        let (ended, bytes) = self.ordered.show(&self.out, headers, event);
        self.traffic.count_out(bytes as usize);
        ended
    }

    /// Answers an operation, if the client wants that.
    pub(crate) fn acknowledge(&self) {
        if self.options.verbose {
            self.out.push_answer(&[b"+OK\r\n"]);
        }
    }

    /// Reports an error to the client.
    pub(crate) fn report(&self, error: &str) {
        let error = error.as_bytes();
        self.out.push_answer(&[b"-ERR '", error, b"'\r\n"]);
    }

    /// Returns whether the client wants to know that nobody receives this message.
    pub(crate) fn may_report_no_responders(&self, message: &Published) -> bool {
        self.options.headers && self.options.no_responders && message.reply().is_some()
    }

    /// Answers a request that nobody receives, if the client wants that.
    pub(crate) fn report_no_responders(&mut self, request: &Published) {
        const HEADERS: &str = "NATS/1.0 503\r\n\r\n";
        if self.may_report_no_responders(request) {
            self.answer(request, HEADERS, "");
        }
    }

    /// Answers a request of the client at once. Does nothing if it has no subject for replies, or
    /// if the client has no subscription to it.
    pub(crate) fn answer(&mut self, request: &Published, headers: &str, payload: &str) {
        let reply = request.reply().unwrap_or_default();
        let mut subscriptions = self.subscriptions.iter_mut();
        let inbox = subscriptions.find(|(_, subscription)| matches(&subscription.pattern, reply));
        let Some((sid, subscription)) = inbox else {
            return;
        };
        subscription.delivered += 1;
        let (header_bytes, bytes) = (headers.len(), headers.len() + payload.len());
        self.traffic.count_out(bytes);
        let (name, lengths) = match header_bytes {
            0 => ("MSG ", format!(" {bytes}\r\n")),
            _ => ("HMSG ", format!(" {header_bytes} {bytes}\r\n")),
        };
        self.out.push_answer(&[
            name.as_bytes(),
            reply,
            b" ",
            sid,
            lengths.as_bytes(),
            headers.as_bytes(),
            payload.as_bytes(),
            b"\r\n",
        ]);
    }
}

/// Returns the identifiers of a group's subscriptions in a set. None is `None`, which comes before
/// all of them.
fn sids_in(
    set: &BTreeSet<(GroupId, Option<Rc<[u8]>>)>,
    group: GroupId,
) -> impl Iterator<Item = &[u8]> {
    let first = set.range((group, None)..);
    let of_group = first.take_while(move |(of, _)| *of == group);
    of_group.filter_map(|(_, sid)| sid.as_deref())
}

/// Writes MSG or HMSG. Returns the number of bytes of headers and payload.
fn write_message(
    out: &Outgoing,
    sid: &[u8],
    subject: &[u8],
    message: &Published,
    headers: bool,
) -> usize {
    let (reply, space) = match message.reply() {
        Some(reply) => (reply, &b" "[..]),
        None => (&b""[..], &b""[..]),
    };
    let header_bytes = message.header_bytes();
    if header_bytes > 0 && headers {
        let content = message.content();
        let bytes = content.len() - 2;
        let (one, two) = (Digits::of(header_bytes), Digits::of(bytes));
        let line: [&[u8]; 10] = [
            b"HMSG ",
            subject,
            b" ",
            sid,
            b" ",
            reply,
            space,
            one.as_bytes(),
            b" ",
            two.as_bytes(),
        ];
        out.push_parts(&line, Bytes::new());
        out.push(b"\r\n", content);
        bytes
    } else {
        let payload = message.payload();
        let bytes = payload.len() - 2;
        let length = Digits::of(bytes);
        let line: [&[u8]; 9] = [
            b"MSG ",
            subject,
            b" ",
            sid,
            b" ",
            reply,
            space,
            length.as_bytes(),
            b"\r\n",
        ];
        out.push_parts(&line, payload);
        bytes
    }
}

/// A number as decimal digits, without an allocation.
struct Digits {
    digits: [u8; 20],
    begin: usize,
}

impl Digits {
    fn of(mut number: usize) -> Digits {
        let mut digits = [b'0'; 20];
        let mut begin = digits.len();
        loop {
            begin -= 1;
            digits[begin] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return Digits { digits, begin };
            }
        }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.digits[self.begin..]
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::nats::parse::{Operation, parse};

    fn session() -> NatsSession {
        let peer = Peer {
            number: 1,
            address: PeerAddress::Unix,
            is_websocket: false,
            nonce: None,
        };
        NatsSession::new(Rc::default(), ClientId(1), peer, Rc::from(""))
    }

    fn message(bytes: &str) -> Published {
        match parse(&mut BytesMut::from(bytes), 100) {
            Ok(Some(Operation::Publish(message))) => message,
            other => panic!("{other:?}"),
        }
    }

    fn subscription(pattern: &'static str, group: u32) -> Subscription {
        Subscription {
            pattern: Bytes::from(pattern),
            queue: None,
            group: GroupId(group),
            max: None,
            delivered: 0,
        }
    }

    async fn written(session: &NatsSession) -> String {
        session.out.close();
        let mut bytes = Vec::new();
        session.out.write(&mut bytes, || {}).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }

    #[tokio::test]
    async fn each_subscription_of_a_group_gets_the_message() {
        let mut session = session();
        assert!(session.subscribe(b"1", subscription("a.*", 5)));
        assert!(!session.subscribe(b"2", subscription("a.*", 5)));
        assert!(!session.limit(b"2", Some(1)));
        let ended = session.deliver(GroupId(5), &message("PUB a.b r 2\r\nhi\r\n"));
        assert_eq!(ended, ["2"]);
        let other = message("PUB other 2\r\nno\r\n");
        assert!(
            session.deliver(GroupId(5), &other).is_empty(),
            "another name of the number"
        );
        let text = written(&session).await;
        assert_eq!(text, "MSG a.b 1 r 2\r\nhi\r\nMSG a.b 2 r 2\r\nhi\r\n");
    }

    #[tokio::test]
    async fn headers_go_only_to_clients_that_understand_them() {
        let bytes = "HPUB a 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
        for (headers, expected) in [
            (false, "MSG a 1 2\r\nhi\r\n"),
            (true, "HMSG a 1 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
        ] {
            let mut session = session();
            session.options.headers = headers;
            session.subscribe(b"1", subscription("a", 5));
            session.deliver(GroupId(5), &message(bytes));
            assert_eq!(written(&session).await, expected);
        }
    }

    #[test]
    fn a_client_leaves_a_group_with_its_last_subscription() {
        let mut session = session();
        session.subscribe(b"1", subscription("a", 5));
        session.subscribe(b"2", subscription("a", 5));
        assert!(!session.unsubscribe(b"1").unwrap().1);
        assert!(session.unsubscribe(b"2").unwrap().1);
        assert!(session.unsubscribe(b"2").is_none());
    }
}
