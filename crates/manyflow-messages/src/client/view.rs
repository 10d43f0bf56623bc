//! The events of members of ordered groups: messages, views, and transitional signals.

use bytes::Bytes;
use manyflow_order::{Cause, GroupViewId, Service};
use serde::Deserialize;

use super::Message;
use crate::nats::ordered::{Kind, OrderedSubject, SENDER};
use crate::nats::parse::ALSO;

/// Something that a [`Member`](super::Member) of ordered groups gets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MemberEvent {
    /// A message.
    Message(OrderedMessage),
    /// A new view of a group.
    View(View),
    /// The transitional signal: until the next view of this group, other members may miss messages
    /// unless they stay together with this one ([`View::stayed`]), and safe messages are safe only
    /// among those who stay.
    Transitional(String),
}

/// A message of ordered groups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OrderedMessage {
    /// The service that the sender chose.
    pub service: Service,
    /// The name of the sender, which need not be a member.
    pub sender: String,
    /// The groups that the message is for. The first of them is one that the member has joined, or
    /// the member's own name.
    pub groups: Vec<String>,
    /// The bytes that the sender sent.
    pub payload: Bytes,
}

/// A view of a group: its members from now on, and why they have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct View {
    /// The group.
    pub group: String,
    /// The number of the view, which is the same at all of its members. Later views of the group
    /// have higher numbers.
    pub id: GroupViewId,
    /// The names of all members, in the same order at all of them.
    pub members: Vec<String>,
    /// Why the members have changed.
    pub cause: Cause,
    /// The members that have come with this one from the same view and have got the same messages
    /// in it: the transitional set.
    pub stayed: Vec<String>,
    /// The name of the member that gets this view.
    pub own_name: String,
}

/// A view or a transitional signal, as a daemon writes it.
#[derive(Deserialize)]
struct Notice {
    group: String,
    #[serde(rename = "self")]
    own_name: String,
    #[serde(default)]
    transitional: bool,
    view: Option<String>,
    cause: Option<String>,
    who: Option<String>,
    #[serde(default)]
    members: Vec<String>,
    #[serde(default)]
    stayed: Vec<String>,
}

impl MemberEvent {
    /// Decodes a message of a subscription to `$MF.order.G`. Returns `None` if no daemon writes
    /// this.
    pub(super) fn decode(message: &Message) -> Option<MemberEvent> {
        let subject = OrderedSubject::parse(message.subject().as_bytes())?;
        match subject.kind {
            Kind::Messages(service) => {
                let also = message.headers().filter(|(name, _)| *name == ALSO);
                let also = also.map(|(_, value)| OrderedSubject::parse(value.as_bytes()));
                let groups = core::iter::once(Some(subject)).chain(also);
                let groups = groups.map(|subject| Some(subject?.group.to_owned()));
                Some(MemberEvent::Message(OrderedMessage {
                    service,
                    sender: message.header(SENDER)?.to_owned(),
                    groups: groups.collect::<Option<_>>()?,
                    payload: message.payload().clone(),
                }))
            }
            Kind::Views => {
                let notice: Notice = serde_json::from_slice(message.payload()).ok()?;
                match notice.transitional {
                    true => Some(MemberEvent::Transitional(notice.group)),
                    false => notice.into_view().map(MemberEvent::View),
                }
            }
            Kind::Both => None,
        }
    }
}

impl Notice {
    fn into_view(self) -> Option<View> {
        let who = || self.who.as_deref().map(Into::into);
        let cause = match self.cause.as_deref()? {
            "join" => Cause::Join(who()?),
            "leave" => Cause::Leave(who()?),
            "disconnect" => Cause::Disconnect(who()?),
            "network" => Cause::Network,
            _ => return None,
        };
        Some(View {
            id: self.view?.parse().ok()?,
            group: self.group,
            members: self.members,
            cause,
            stayed: self.stayed,
            own_name: self.own_name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(subject: &str, payload: &str) -> Option<MemberEvent> {
        MemberEvent::decode(&Message::new(subject, payload.to_owned()).unwrap())
    }

    #[test]
    fn views_and_signals_are_decoded() {
        let view = r##"{"group":"g","view":"3-00f1a2b3c4d5e6f7.2","members":["#a#x","#b#x"],"cause":"join","who":"#b#x","stayed":["#a#x"],"self":"#a#x"}"##;
        let Some(MemberEvent::View(view)) = decode("$MF.views.g", view) else {
            panic!("not a view");
        };
        assert_eq!(view.id.to_string(), "3-00f1a2b3c4d5e6f7.2");
        assert_eq!(view.cause, Cause::Join("#b#x".into()));
        assert_eq!((view.members.len(), view.stayed.len()), (2, 1));
        let signal = r##"{"group":"g","transitional":true,"self":"#a#x"}"##;
        let signal = decode("$MF.views.g", signal);
        assert_eq!(signal, Some(MemberEvent::Transitional("g".to_owned())));
    }

    #[test]
    fn messages_name_their_service_sender_and_groups() {
        let message = Message::new("$MF.safe.g", "hi").unwrap();
        let message = message.with_header(SENDER, "#a#x").unwrap();
        let message = message.also_to("$MF.safe.h").unwrap();
        let expected = OrderedMessage {
            service: Service::Safe,
            sender: "#a#x".to_owned(),
            groups: vec!["g".to_owned(), "h".to_owned()],
            payload: Bytes::from("hi"),
        };
        let decoded = MemberEvent::decode(&message);
        assert_eq!(decoded, Some(MemberEvent::Message(expected)));
    }

    #[test]
    fn other_messages_are_not_decoded() {
        for (subject, payload) in [
            ("$MF.views.g", "{}"),
            ("$MF.views.g", r#"{"group":"g","self":"a","cause":"join"}"#),
            ("$MF.agreed.g", "without a sender"),
            ("news", ""),
        ] {
            assert_eq!(decode(subject, payload), None, "{subject} {payload}");
        }
    }
}
