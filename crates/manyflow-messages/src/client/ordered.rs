//! Ordered groups: messages with services, and members, which get messages and views in one order.
//!
//! The manual is `docs/order.md`. Senders need not be members.
//!
//! ```
//! use manyflow_messages::{Client, ClientOptions, MemberEvent, Service};
//! # use manyflow_messages::{DaemonConfig, LinkSecurity, start};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut config = DaemonConfig::new("north", LinkSecurity::Insecure);
//! # config.clients = Some("127.0.0.1:0".to_owned());
//! # let daemon = start(config).await?;
//! # let address = daemon.addresses().clients.expect("it serves clients").to_string();
//! let client = Client::connect(&address, &ClientOptions::default()).await?;
//! let mut member = client.member()?;
//! member.join("orders").await?;
//! client.multicast(Service::Safe, &["orders"], "17 chairs").await?;
//! while let Some(event) = member.next().await {
//!     match event? {
//!         MemberEvent::View(view) => println!("{} members: {:?}", view.members.len(), view.cause),
//!         MemberEvent::Transitional(group) => println!("{group}: some may miss messages"),
//!         MemberEvent::Message(message) => {
//!             assert_eq!(&message.payload[..], b"17 chairs");
//!             break;
//!         }
//!         _ => {}
//!     }
//! }
//! # daemon.stop().await;
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use manyflow_order::{GROUPS_MAX, Service};
use tokio::sync::mpsc;

use super::connection::Target;
use super::{Client, ClientError, MemberEvent, Message};
use crate::nats::subject::is_subject;

/// Maximum length of the name of an ordered group in bytes.
const GROUP_BYTES_MAX: usize = 255;

impl Client {
    /// Sends a message to the members of ordered groups, which get it once, with the promises of
    /// `service`. The name of a client stands for that client alone. Waits while the network is
    /// full. The daemon writes to the log of this program if the user may not publish to a group.
    ///
    /// # Errors
    /// If there is no group or there are more than 255, if a name is invalid, if the message is too
    /// long, or if the connection has ended.
    pub async fn multicast(
        &self,
        service: Service,
        groups: &[&str],
        payload: impl Into<Bytes>,
    ) -> Result<(), ClientError> {
        if groups.len() > GROUPS_MAX {
            let count = groups.len();
            return Err(ClientError::Groups { count });
        }
        groups.iter().try_for_each(|group| check_group(group))?;
        let (first, others) = groups
            .split_first()
            .ok_or(ClientError::Groups { count: 0 })?;
        let mut message = Message::new(&format!("$MF.{service}.{first}"), payload)?;
        for group in others {
            message = message.also_to(&format!("$MF.{service}.{group}"))?;
        }
        self.publish_message(&message).await
    }

    /// Returns the member of ordered groups that stands for this client. It has joined no group.
    ///
    /// # Errors
    /// If there is one already: messages to several groups come once to each client.
    pub fn member(&self) -> Result<Member, ClientError> {
        if self.connection.has_member.swap(true, Ordering::Relaxed) {
            let address = self.address().to_owned();
            return Err(ClientError::HasMember { address });
        }
        let (sender, receiver) = mpsc::channel(1);
        Ok(Member {
            client: self.clone(),
            joined: BTreeMap::new(),
            sender: sender.downgrade(),
            receiver,
        })
    }
}

/// A member of ordered groups: gets the messages and the views of all groups that it has joined, in
/// one order. Dropping it leaves the groups.
///
/// If the connection ends, or the daemon removes the member from its groups because it reads too
/// slowly, the last event is an error: later messages were missed.
#[derive(Debug)]
pub struct Member {
    client: Client,
    /// The numbers of the subscriptions by their groups.
    joined: BTreeMap<String, u64>,
    /// The subscriptions have the strong senders, so the channel ends with the last of them.
    sender: mpsc::WeakSender<Message>,
    receiver: mpsc::Receiver<Message>,
}

impl Member {
    /// Joins a group, and returns when the daemon has accepted the request. The first event of the
    /// group is a view with this member. Does nothing if the member has joined it.
    ///
    /// # Errors
    /// If the name is invalid, if the daemon refuses the request, or if the connection has ended.
    pub async fn join(&mut self, group: &str) -> Result<(), ClientError> {
        check_group(group)?;
        if self.joined.contains_key(group) {
            return Ok(());
        }
        let sender = self.sender.upgrade().unwrap_or_else(|| self.open());
        let pattern = format!("$MF.order.{group}");
        let target = Target::Messages {
            pattern: pattern.clone(),
            sender,
        };
        let state = self.client.state();
        let number = state.add_subscription(target);
        // Remembered at once, in case that the call is cancelled.
        self.joined.insert(group.to_owned(), number);
        let accepted = state.ask_for_subscription(number, &pattern, None).await;
        accepted.inspect_err(|_| {
            self.joined.remove(group);
        })
    }

    /// Begins a channel for the first group.
    fn open(&mut self) -> mpsc::Sender<Message> {
        let room = self.client.connection.options.buffer_messages.max(1);
        let (sender, receiver) = mpsc::channel(room);
        (self.sender, self.receiver) = (sender.downgrade(), receiver);
        sender
    }

    /// Leaves a group, and returns when the daemon knows. Events that have arrived before can still
    /// follow.
    ///
    /// # Errors
    /// If the member has not joined the group, or if the connection has ended.
    pub async fn leave(&mut self, group: &str) -> Result<(), ClientError> {
        let Some(number) = self.joined.remove(group) else {
            let group = group.to_owned();
            return Err(ClientError::NotJoined { group });
        };
        self.client.state().forget(number);
        self.client.unsubscribe(number).await?;
        self.client.flush().await
    }

    /// Waits for the next event; `None` if the member has left all groups or has joined none yet,
    /// and after the end. No event is lost if the call is cancelled.
    pub async fn next(&mut self) -> Option<Result<MemberEvent, ClientError>> {
        let Some(message) = self.receiver.recv().await else {
            return self.take_end().map(Err);
        };
        let event = MemberEvent::decode(&message);
        Some(event.ok_or_else(|| ClientError::Refused {
            address: self.client.address().to_owned(),
            reason: format!("its message to `{}` is not valid", message.subject()),
        }))
    }

    /// Returns why the groups have ended, once; `None` if they were left.
    fn take_end(&mut self) -> Option<ClientError> {
        let state = self.client.state();
        let mut joined = core::mem::take(&mut self.joined).into_values();
        let number = joined.next()?;
        let refusal = state.take_refusal(number);
        joined.for_each(|number| drop(state.take_refusal(number)));
        let end = refusal.or_else(|| state.failure());
        end.filter(|end| !matches!(end, ClientError::Drained { .. }))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let client = self.client.clone();
        client.connection.has_member.store(false, Ordering::Relaxed);
        let joined = core::mem::take(&mut self.joined).into_values();
        let left: Vec<u64> = joined
            .filter(|number| client.state().forget(*number))
            .collect();
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !left.is_empty()
        {
            runtime.spawn(async move {
                for number in left {
                    // A connection that has ended has no members.
                    let _ = client.unsubscribe(number).await;
                }
            });
        }
    }
}

fn check_group(group: &str) -> Result<(), ClientError> {
    match is_subject(group.as_bytes()) && group.len() <= GROUP_BYTES_MAX {
        true => Ok(()),
        false => Err(ClientError::InvalidGroup {
            group: group.to_owned(),
        }),
    }
}
