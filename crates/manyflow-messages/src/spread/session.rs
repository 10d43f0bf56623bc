//! A connected client, without its socket: its messages become requests, and events of ordered
//! groups become its messages.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use manyflow_order::{Cause, Delivery, Event, GroupViewId, Outgoing as OrderedMessage, View};
use tokio::sync::Notify;

use super::wire::{
    CAUSED_BY_DISCONNECT, CAUSED_BY_JOIN, CAUSED_BY_LEAVE, CAUSED_BY_NETWORK, GROUPS_MAX, Message,
    NAME_BYTES, Purpose, REGULAR_VIEW, TRANSITIONAL, VIEW_ID_BYTES, WireError, header, padded,
    type_of, view_id,
};
use crate::client_stream::PeerAddress;
use crate::core::UserId;
use crate::outgoing::Outgoing;

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// To join a group, leave one, or send a message.
    Message(Message),
    /// To disconnect.
    Disconnect,
}

/// A connected client.
#[derive(Debug)]
pub(crate) struct SpreadSession {
    pub(crate) out: Rc<Outgoing>,
    /// The client in ordered groups.
    pub(crate) user: UserId,
    /// The name of its private group.
    pub(crate) name: String,
    pub(crate) peer: PeerAddress,
    /// Whether the client wants messages about members.
    wants_views: bool,
    /// The last view of each group of which the client is a member.
    views: BTreeMap<Arc<str>, GroupViewId>,
    /// Whether a message of the client has not entered.
    pub(crate) is_sending: bool,
    /// Notified when a message has entered.
    pub(crate) ready: Rc<Notify>,
}

impl SpreadSession {
    pub(crate) fn new(
        out: Rc<Outgoing>,
        user: UserId,
        name: String,
        peer: PeerAddress,
        wants_views: bool,
    ) -> SpreadSession {
        SpreadSession {
            out,
            user,
            name,
            peer,
            wants_views,
            views: BTreeMap::new(),
            is_sending: false,
            ready: Rc::default(),
        }
    }

    /// Returns the next request in what the client has sent, if it has arrived.
    ///
    /// # Errors
    /// Returns an error if the client has violated the protocol.
    pub(crate) fn read(&self, bytes: &mut BytesMut) -> Result<Option<Request>, WireError> {
        let Some(message) = Message::take(bytes)? else {
            return Ok(None);
        };
        if message.header.sender != padded(&self.name) {
            return Err(WireError::Sender);
        }
        Ok(Some(match message.header.purpose {
            Purpose::Kill => Request::Disconnect,
            _ => Request::Message(message),
        }))
    }

    /// Tells the client that the daemon has rejected its message.
    pub(crate) fn reject(&self, message: &Message) {
        let (head, body) = message.rejection(&self.name);
        self.out.push_answer(&[&head, &body]);
    }

    /// Sends an event to the client, if it is one that it wants.
    pub(crate) fn show(&mut self, event: &Event) {
        match event {
            Event::Delivered(delivery) => self.deliver(delivery),
            Event::View(view) => {
                self.views.insert(Arc::clone(&view.group), view.id);
                if self.wants_views {
                    self.show_view(view);
                }
            }
            Event::Transitional { group, .. } => {
                let last = self.views.get(group).copied().unwrap_or_default();
                if self.wants_views {
                    let head = header(TRANSITIONAL, group, 0, 0, VIEW_ID_BYTES);
                    self.out.push_parts(&[&head, &view_id(last)], Bytes::new());
                }
            }
            Event::Left { group, .. } => {
                self.views.remove(group);
                if self.wants_views {
                    let head = header(CAUSED_BY_LEAVE, group, 0, 0, 0);
                    self.out.push(&head, Bytes::new());
                }
            }
        }
    }

    fn deliver(&self, delivery: &Delivery) {
        let service = type_of(delivery.service);
        let groups = delivery.groups().count();
        let payload = &delivery.payload;
        let head = header(
            service,
            &delivery.sender,
            groups,
            delivery.kind,
            payload.len(),
        );
        self.out.push(&head, Bytes::new());
        for group in delivery.groups() {
            self.out.push(&padded(group), Bytes::new());
        }
        self.out.push(&[], payload.clone());
    }

    /// Sends a view: its members, its number, and sets of those that have come together.
    fn show_view(&self, view: &View) {
        let (cause, changed) = match &view.cause {
            Cause::Join(who) => (CAUSED_BY_JOIN, Some(who)),
            Cause::Leave(who) => (CAUSED_BY_LEAVE, Some(who)),
            Cause::Disconnect(who) => (CAUSED_BY_DISCONNECT, Some(who)),
            Cause::Network => (CAUSED_BY_NETWORK, None),
        };
        let sets = match changed {
            Some(who) => vec![core::slice::from_ref(who)],
            None => sets_of(view),
        };
        let in_sets: usize = sets.iter().map(|set| 4 + set.len() * NAME_BYTES).sum();
        let head = header(
            REGULAR_VIEW | cause,
            &view.group,
            view.members.len(),
            0,
            VIEW_ID_BYTES + 8 + in_sets,
        );
        self.out.push(&head, Bytes::new());
        for member in view.members.iter() {
            self.out.push(&padded(member), Bytes::new());
        }
        // The set of this client is the first: its offset behind the two numbers is 0.
        let (count, offset) = (sets.len() as u32, 0u32);
        let numbers = [count.to_le_bytes(), offset.to_le_bytes()].concat();
        self.out
            .push_parts(&[&view_id(view.id), &numbers], Bytes::new());
        for set in sets {
            let length = set.len() as u32;
            self.out.push(&length.to_le_bytes(), Bytes::new());
            for member in set {
                self.out.push(&padded(member), Bytes::new());
            }
        }
    }
}

/// Returns the members that have come with this client, and each other member alone: who of the
/// others have come together is not known here.
fn sets_of(view: &View) -> Vec<&[Arc<str>]> {
    let others = view.members.iter();
    let others = others.filter(|member| !view.stayed.contains(member));
    let alone = others.map(core::slice::from_ref);
    core::iter::once(&view.stayed[..]).chain(alone).collect()
}

/// Calls `send` with a message as the order of groups takes it; `None` if one of its groups has no
/// valid name.
pub(crate) fn with_ordered<T>(
    message: &Message,
    send: impl FnOnce(&OrderedMessage<'_>) -> T,
) -> Option<T> {
    let Purpose::Send {
        service,
        self_discard,
    } = message.header.purpose
    else {
        return None;
    };
    let mut groups = [""; GROUPS_MAX];
    for (place, group) in groups.iter_mut().zip(message.groups()) {
        *place = group?;
    }
    Some(send(&OrderedMessage {
        service,
        groups: &groups[..message.header.groups],
        kind: message.header.kind,
        self_discard,
        payload: message.payload(),
    }))
}

#[cfg(test)]
mod tests {
    use manyflow_order::ViewId;

    use super::*;

    fn session(wants_views: bool) -> SpreadSession {
        let (name, peer) = ("#a#d".to_owned(), PeerAddress::Unix);
        SpreadSession::new(Rc::default(), UserId::default(), name, peer, wants_views)
    }

    fn view(cause: Cause, members: &[&str], stayed: &[&str]) -> Event {
        let names = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect();
        Event::View(View {
            to: UserId::default(),
            group: "g".into(),
            id: GroupViewId {
                view: ViewId {
                    counter: 7,
                    hash: 0x0000_0001_0000_0008,
                },
                stage: GroupViewId::BEGUN,
                change: 3,
            },
            members: names(members),
            cause,
            stayed: names(stayed),
        })
    }

    async fn written(session: &SpreadSession) -> Vec<u8> {
        session.out.close();
        let mut bytes = Vec::new();
        session.out.write(&mut bytes, || {}).await.unwrap();
        bytes
    }

    fn words(numbers: &[u32]) -> Vec<u8> {
        numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
    }

    #[tokio::test]
    async fn a_view_has_its_members_its_number_and_the_member_that_has_come() {
        let mut session = session(true);
        session.show(&view(
            Cause::Join("#b#d".into()),
            &["#a#d", "#b#d"],
            &["#a#d"],
        ));
        let expected = [
            header(0x1100, "g", 2, 0, 12 + 8 + 4 + 32).to_vec(),
            [padded("#a#d"), padded("#b#d")].concat(),
            words(&[9, 7, 3, 1, 0, 1]),
            padded("#b#d").to_vec(),
        ];
        assert_eq!(written(&session).await, expected.concat());
    }

    #[tokio::test]
    async fn after_a_change_of_the_network_the_set_of_the_member_is_the_first() {
        let mut session = session(true);
        let members = ["#a#d", "#b#e", "#c#d"];
        session.show(&view(Cause::Network, &members, &["#a#d", "#c#d"]));
        let expected = [
            header(0x1800, "g", 3, 0, 12 + 8 + 4 + 64 + 4 + 32).to_vec(),
            members.map(padded).concat(),
            words(&[9, 7, 3, 2, 0, 2]),
            ["#a#d", "#c#d"].map(padded).concat(),
            words(&[1]),
            padded("#b#e").to_vec(),
        ];
        assert_eq!(written(&session).await, expected.concat());
    }

    #[tokio::test]
    async fn the_signal_has_the_number_of_the_last_view_and_the_end_has_nothing() {
        let mut session = session(true);
        session.views.insert(
            "g".into(),
            GroupViewId {
                change: 5,
                ..GroupViewId::default()
            },
        );
        let (to, group) = (UserId::default(), Arc::<str>::from("g"));
        let signal = Event::Transitional {
            to,
            group: Arc::clone(&group),
        };
        session.show(&signal);
        session.show(&Event::Left { to, group });
        let expected = [
            header(0x2000, "g", 0, 0, 12).to_vec(),
            words(&[0, 0, 5]),
            header(0x0200, "g", 0, 0, 0).to_vec(),
        ];
        assert_eq!(written(&session).await, expected.concat());
    }

    #[tokio::test]
    async fn a_client_that_wants_no_views_gets_none() {
        let mut session = session(false);
        session.show(&view(Cause::Network, &["#a#d"], &["#a#d"]));
        let (to, group) = (UserId::default(), Arc::<str>::from("g"));
        session.show(&Event::Transitional {
            to,
            group: Arc::clone(&group),
        });
        session.show(&Event::Left { to, group });
        assert_eq!(written(&session).await, b"");
    }

    #[test]
    fn a_message_in_the_name_of_another_client_is_an_error() {
        let head = |name: &str| BytesMut::from(&header(0x10, name, 0, 0, 0)[..]);
        let session = session(true);
        assert!(matches!(session.read(&mut head("#a#d")), Ok(Some(_))));
        assert_eq!(session.read(&mut head("#b#d")), Err(WireError::Sender));
    }
}
