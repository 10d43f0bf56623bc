//! Ordered groups by subjects: messages with services, and views as JSON.
//!
//! | a client | does this by |
//! |---|---|
//! | sends a message to the ordered group `G` | `PUB $MF.S.G`, where `S` is a service: `unreliable`, `reliable`, `fifo`, `causal`, `agreed` or `safe` |
//! | is a member, and gets its messages | `SUB $MF.agreed.G`: messages of all services, with the subject that they were sent to |
//! | is a member, and gets its views | `SUB $MF.views.G`: a JSON object for each view and each transitional signal |
//! | is a member, and gets both in their order | `SUB $MF.order.G` |
//!
//! A message for several groups has further subjects with the same service in the header
//! `Manyflow-Also`. A client gets it once by its subscriptions to `$MF.order`, whose groups are
//! then in one order. A client's own name is a group, too, for messages to this client alone, which
//! come by the same subscriptions.
//!
//! The header `Manyflow-Sender` of a message names its sender, and `Manyflow-Also` the subjects of
//! its other groups.

use std::collections::BTreeMap;

use bytes::Bytes;
use manyflow_order::{Cause, Delivery, Event, Service, View};
use serde_json::{Value, json};

use super::parse::ALSO;
use super::subject::is_subject;
use crate::core::UserId;
use crate::outgoing::Outgoing;

/// The header with the name of a message's sender.
pub(crate) const SENDER: &str = "Manyflow-Sender";
/// The beginning of the subjects of ordered groups and of daemons.
const PREFIX: &[u8] = b"$MF.";

/// The subject of an ordered group, as a client writes it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct OrderedSubject<'a> {
    pub(crate) kind: Kind,
    pub(crate) group: &'a str,
}

/// The second token of the subject of an ordered group.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Messages of this service.
    Messages(Service),
    /// Views.
    Views,
    /// Messages of all services, and views.
    Both,
}

impl<'a> OrderedSubject<'a> {
    /// Returns the parts of a subject; `None` if it is not that of an ordered group.
    pub(crate) fn parse(subject: &'a [u8]) -> Option<OrderedSubject<'a>> {
        let rest = core::str::from_utf8(subject.strip_prefix(PREFIX)?).ok()?;
        let (kind, group) = rest.split_once('.')?;
        let kind = match kind {
            "views" => Kind::Views,
            "order" => Kind::Both,
            _ => Kind::Messages(kind.parse().ok()?),
        };
        is_subject(group.as_bytes()).then_some(OrderedSubject { kind, group })
    }

    /// Returns whether clients can subscribe to it.
    pub(crate) fn is_for_members(&self) -> bool {
        self.kind == Kind::Messages(Service::Agreed) || !self.is_for_senders()
    }

    /// Returns whether clients can publish to it.
    pub(crate) fn is_for_senders(&self) -> bool {
        matches!(self.kind, Kind::Messages(_))
    }
}

/// A subscription to the messages or the views of an ordered group.
#[derive(Debug)]
struct Subscription {
    group: String,
    kind: Kind,
    max: Option<u64>,
    delivered: u64,
}

/// The subscriptions of a client to ordered groups.
#[derive(Debug, Default)]
pub(crate) struct OrderedSubscriptions {
    /// The client in ordered groups, once it takes part, and its name there.
    pub(crate) user: Option<(UserId, String)>,
    by_sid: BTreeMap<Bytes, Subscription>,
}

impl OrderedSubscriptions {
    pub(crate) fn has(&self, sid: &[u8]) -> bool {
        self.by_sid.contains_key(sid)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_sid.len()
    }

    pub(crate) fn sids(&self) -> impl Iterator<Item = &Bytes> {
        self.by_sid.keys()
    }

    fn is_member(&self, group: &str) -> bool {
        let mut subscriptions = self.by_sid.values();
        subscriptions.any(|subscription| subscription.group == group)
    }

    /// Adds a subscription. Returns whether the client must join the group for it.
    pub(crate) fn add(&mut self, sid: Bytes, subject: &OrderedSubject<'_>) -> bool {
        let is_new = !self.is_member(subject.group);
        let subscription = Subscription {
            group: subject.group.to_owned(),
            kind: subject.kind,
            max: None,
            delivered: 0,
        };
        self.by_sid.insert(sid, subscription);
        is_new
    }

    /// Removes a subscription. Returns its group if the client must leave it.
    pub(crate) fn remove(&mut self, sid: &[u8]) -> Option<String> {
        let group = self.by_sid.remove(sid)?.group;
        (!self.is_member(&group)).then_some(group)
    }

    /// Removes all subscriptions. Returns the subjects of those that there were.
    pub(crate) fn remove_all(&mut self) -> Vec<String> {
        let all = core::mem::take(&mut self.by_sid).into_values();
        let subjects = all.map(|subscription| {
            let kind = match subscription.kind {
                Kind::Messages(service) => service.to_string(),
                Kind::Views => "views".to_owned(),
                Kind::Both => "order".to_owned(),
            };
            format!("$MF.{kind}.{}", subscription.group)
        });
        subjects.collect()
    }

    /// Ends a subscription after `max` deliveries, those before included. Returns whether it ends
    /// now; `None` if there is no such subscription.
    pub(crate) fn limit(&mut self, sid: &[u8], max: Option<u64>) -> Option<bool> {
        let subscription = self.by_sid.get_mut(sid)?;
        subscription.max = max;
        Some(max.is_none_or(|max| subscription.delivered >= max))
    }

    /// Writes an event for each subscription that it concerns. Returns the subscriptions that have
    /// had their last delivery, and how many bytes of payloads were written.
    pub(crate) fn show(
        &mut self,
        out: &Outgoing,
        headers: bool,
        event: &Event,
    ) -> (Vec<Bytes>, u64) {
        let own = self.user.as_ref().map_or("", |(_, name)| name);
        let text = text_of(event, own);
        let mut ended = Vec::new();
        let mut written = 0;
        let mut is_shown_in_order = false;
        for (sid, subscription) in &mut self.by_sid {
            let Some(group) = subscription.group_of(event, own) else {
                continue;
            };
            if let Event::Delivered(delivery) = event {
                let is_in_order = subscription.kind == Kind::Both;
                if is_in_order && core::mem::replace(&mut is_shown_in_order, true) {
                    continue;
                }
                write_message(out, sid, group, headers, delivery);
                written += delivery.payload.len() as u64;
            } else {
                write_view(out, sid, group, &text);
                written += text.len() as u64;
            }
            subscription.delivered += 1;
            let max = subscription.max;
            if max.is_some_and(|max| subscription.delivered >= max) {
                ended.push(sid.clone());
            }
        }
        (ended, written)
    }
}

impl Subscription {
    /// Returns the group by which an event concerns this subscription of the client `own`.
    fn group_of<'a>(&'a self, event: &Event, own: &'a str) -> Option<&'a str> {
        let delivery = match event {
            Event::Delivered(delivery) => delivery,
            Event::View(_) | Event::Transitional { .. } => {
                let is_wanted = self.kind != Kind::Messages(Service::Agreed);
                return (is_wanted && is_about(event, &self.group)).then_some(&self.group);
            }
            Event::Left { .. } => return None,
        };
        match self.kind {
            Kind::Views => None,
            _ if is_about(event, &self.group) => Some(&self.group),
            Kind::Both => delivery.groups().any(|name| name == own).then_some(own),
            Kind::Messages(_) => None,
        }
    }
}

fn is_about(event: &Event, group: &str) -> bool {
    match event {
        Event::Delivered(delivery) => delivery.groups().any(|name| name == group),
        Event::View(view) => *view.group == *group,
        Event::Transitional { group: of, .. } | Event::Left { group: of, .. } => **of == *group,
    }
}

/// Returns a view or a signal as JSON.
fn text_of(event: &Event, own: &str) -> String {
    match event {
        Event::View(view) => view_json(view, own).to_string(),
        Event::Transitional { group, .. } => {
            json!({"group": **group, "transitional": true, "self": own}).to_string()
        }
        Event::Delivered(_) | Event::Left { .. } => String::new(),
    }
}

fn write_view(out: &Outgoing, sid: &[u8], group: &str, text: &str) {
    let length = format!(" {}\r\n", text.len());
    let line: [&[u8]; 7] = [
        b"MSG $MF.views.",
        group.as_bytes(),
        b" ",
        sid,
        length.as_bytes(),
        text.as_bytes(),
        b"\r\n",
    ];
    out.push_parts(&line, Bytes::new());
}

fn write_message(out: &Outgoing, sid: &[u8], group: &str, headers: bool, delivery: &Delivery) {
    let service = delivery.service.to_string();
    let payload = &delivery.payload;
    let (name, lengths, head) = match headers {
        false => ("MSG ", payload.len().to_string(), String::new()),
        true => {
            let head = headers_of(delivery, &service, group);
            let lengths = format!("{} {}", head.len(), head.len() + payload.len());
            ("HMSG ", lengths, head)
        }
    };
    let line: [&[u8]; 10] = [
        name.as_bytes(),
        PREFIX,
        service.as_bytes(),
        b".",
        group.as_bytes(),
        b" ",
        sid,
        b" ",
        lengths.as_bytes(),
        b"\r\n",
    ];
    out.push_parts(&line, Bytes::new());
    out.push(head.as_bytes(), payload.clone());
    out.push(b"\r\n", Bytes::new());
}

/// Returns the headers of a message whose subject is that of `group`.
fn headers_of(delivery: &Delivery, service: &str, group: &str) -> String {
    let mut head = format!("NATS/1.0\r\n{SENDER}: {}\r\n", delivery.sender);
    for other in delivery.groups().filter(|other| *other != group) {
        head.extend([ALSO, ": $MF.", service, ".", other, "\r\n"]);
    }
    head + "\r\n"
}

fn view_json(view: &View, own: &str) -> Value {
    let (cause, who) = match &view.cause {
        Cause::Join(who) => ("join", Some(&**who)),
        Cause::Leave(who) => ("leave", Some(&**who)),
        Cause::Disconnect(who) => ("disconnect", Some(&**who)),
        Cause::Network => ("network", None),
    };
    let names = |names: &[std::sync::Arc<str>]| -> Vec<Value> {
        names.iter().map(|name| Value::from(&**name)).collect()
    };
    json!({
        "group": *view.group,
        "view": view.id.to_string(),
        "members": names(&view.members),
        "cause": cause,
        "who": who,
        "stayed": names(&view.stayed),
        "self": own,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_ordered_groups_have_a_service_and_a_group() {
        let subject = OrderedSubject::parse(b"$MF.safe.orders.eu").unwrap();
        assert_eq!(subject.kind, Kind::Messages(Service::Safe));
        assert_eq!(subject.group, "orders.eu");
        assert!(!subject.is_for_members());
        for subject in [&b"$MF.views.a"[..], b"$MF.order.a"] {
            let subject = OrderedSubject::parse(subject).unwrap();
            assert!(subject.is_for_members() && !subject.is_for_senders());
        }
        for subject in [
            "$MF.members.a",
            "$MF.agreed",
            "$MF.agreed.",
            "$MF.agreed.a.*",
            "agreed.a",
        ] {
            assert_eq!(OrderedSubject::parse(subject.as_bytes()), None, "{subject}");
        }
    }

    #[test]
    fn a_client_is_a_member_from_its_first_subscription_to_its_last() {
        let mut subscriptions = OrderedSubscriptions::default();
        let views = OrderedSubject::parse(b"$MF.views.g").unwrap();
        let messages = OrderedSubject::parse(b"$MF.agreed.g").unwrap();
        assert!(subscriptions.add(Bytes::from("1"), &views));
        assert!(!subscriptions.add(Bytes::from("2"), &messages));
        assert_eq!(subscriptions.remove(b"1"), None);
        assert_eq!(subscriptions.limit(b"2", Some(1)), Some(false));
        assert_eq!(subscriptions.remove(b"2"), Some("g".to_owned()));
    }
}
