//! Agreed, causal and safe delivery of group messages, and membership with Extended Virtual
//! Synchrony, over the streams of the overlay.
//!
//! Sources: Amir, Awerbuch, Danilov and Stanton, "Global Flow Control for Wide Area Overlay
//! Networks: A Cost-Benefit Approach", section III (the services of Spread); Moser, Amir,
//! Melliar-Smith and Agarwal, "Extended Virtual Synchrony" (the properties). `docs/order.md` has
//! the promises.
//!
//! Each daemon with clients of ordered groups has an [`Orderer`]. All of them are members of one
//! group of the overlay. A daemon's messages to it are its *stream*: numbered, in order,
//! and without gaps as long as the overlay can deliver it. Everything else is built on streams:
//!
//! ```text
//!   clients         connect, join, leave, message                       events
//!                              |                                           ^
//!   orderer.rs      --- requests, records ---             registry.rs: groups, views
//!                              |                                           |
//!                      the daemon's stream                present.rs: the one order
//!                              |                                           |
//!   the overlay     ===========+=================> stream.rs: the streams of all daemons
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `wire.rs` | the records in a stream |
//! | `parts.rs` | records that are longer than a message of the overlay can be |
//! | `stream.rs` | what is held of a daemon's stream |
//! | `present.rs` | the present view of the daemons, and the one order of its messages |
//! | `marks.rs` | when this daemon marks the end of a round |
//! | `exchange.rs` | the exchange that leads to the next view |
//! | `registry.rs` | clients, the members of groups, and what clients learn |
//! | `clients.rs` | the clients of this daemon, their requests and messages |
//! | `orderer.rs` | owns all of these |
//! | `attachment.rs` | an orderer at work in a daemon: flow control, peers |
//! | `endpoint.rs` | the same in the simulator |
//!
//! # The order
//!
//! No daemon decides the order, and messages carry no stamps. A daemon divides its stream into
//! rounds by *marks*. A mark that closes round 7 says: what I have sent since my last mark belongs
//! to a round of at most 7, and what follows to a later one. A message belongs to the round after
//! the last one that its daemon had closed. The order is by round, then by daemon, then by place in
//! the stream. When all daemons have closed a round, nothing can be added to it, and its messages
//! are delivered. A daemon closes a round as soon as another one has closed it, so an agreed
//! message waits for one mark of each daemon: the time from the sender to the farthest daemon, and
//! from there back. Busy daemons close rounds without being asked, and one mark is enough for many
//! messages. A daemon delivers a round only after it has closed it itself, so a client's answer to
//! a message belongs to a later round: the order is causal. Rounds are Lamport's clocks with one
//! stamp for many messages.
//!
//! A mark also says up to which round all rounds have arrived. When all daemons have said so, the
//! messages are *safe*, and no daemon needs to keep them for others.
//!
//! # Views
//!
//! When the daemons that can be reached change, each daemon sends a *state*: with whom it wants to
//! enter the next view, and what it has of the present one (`exchange.rs`). From then on, messages
//! of clients wait. The next view is known when all of these daemons have sent a state, and all
//! states name the same daemons. Those that come from one view send each other what some lack. When
//! all are ready, those that come from one view deliver the same messages: first those that are due
//! by the rules of the old view; then the transitional signal; then the rest, which may be missing
//! at daemons that do not stay. The members of groups are delivered like messages, so all members
//! of a group see the same views in the same order, with the same messages between them.
//!
//! # Example
//!
//! A daemon that is alone waits for nobody:
//!
//! ```
//! use manyflow_core::Time;
//! use manyflow_order::{Event, OrderConfig, Orderer, Outgoing, Service};
//! use manyflow_overlay::DaemonId;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (now, here) = (Time::ZERO, DaemonId(1));
//! let mut orderer = Orderer::new(OrderConfig::default(), here, 1)?;
//! let client = orderer.connect(now, "#ada#london")?;
//! orderer.join(now, client, "engines")?;
//! let message = Outgoing {
//!     service: Service::Agreed,
//!     groups: &["engines"],
//!     kind: 0,
//!     self_discard: false,
//!     payload: b"hello",
//! };
//! let mut stream: Vec<_> = std::iter::from_fn(|| orderer.poll_transmit()).collect();
//! stream.push(orderer.message(client, &message)?);
//! for (sequence, record) in stream.into_iter().enumerate() {
//!     orderer.handle_message(now, here, sequence as u64, record);
//! }
//! assert!(matches!(orderer.poll_event(), Some(Event::View(view)) if view.members.len() == 1));
//! assert!(matches!(orderer.poll_event(), Some(Event::Delivered(m)) if &m.payload[..] == b"hello"));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod attachment;
pub mod check;
mod clients;
mod config;
mod endpoint;
mod event;
mod exchange;
mod marks;
mod names;
mod orderer;
mod parts;
mod present;
mod registry;
mod stream;
#[cfg(test)]
mod tests;
mod wire;

pub use attachment::{Attachment, Carrier};
pub use clients::{GROUPS_MAX, Outgoing, RequestError};
pub use config::OrderConfig;
pub use endpoint::OrderedClients;
pub use event::{Cause, Delivery, Event, View};
pub use names::{ClientId, GroupViewId, NameError, Peer, Service, ViewId};
pub use orderer::Orderer;
pub use parts::is_last_part;
pub use wire::MESSAGE_BYTES_MAX;
