//! Layered multicast: a session of cumulative groups, of which each receiver subscribes to the
//! lowest ones.
//!
//! ```text
//!   group 0 |=====|        every receiver            C_0
//!   group 1 |===|          most of them              C_1 = C_0 + what group 1 adds
//!   ...                                              ...
//!   group n_g - 1          the most capable          C_(n_g - 1)
//! ```
//!
//! | module | protocol |
//! |---|---|
//! | [`sim`] | SIM: routers mark, the sender follows feedback that routers aggregate, receivers choose groups (Gorinsky, Ramakrishnan and Vin) |
//! | [`rlm`] | RLM: groups of fixed rates, receivers try groups and back off (McCanne, Jacobson and Vetterli, SIGCOMM 1996) |
//! | [`rlc`] | RLC: groups whose rates double, synchronisation points and bursts in the data (Vicisano, Rizzo and Crowcroft, INFOCOM 1998) |
//! | [`flid`] | FLID-DL: levels that change once in a time slot, channels that lose rate by themselves (Byers et al., NGC 2000) |
//! | [`mod@unit`] | layered data: units cut by the rates of the groups, and assembled to prefixes |
//! | [`hop`] | one link of a tree of relays: queue, marks, a rate that is found, soundings |
//! | [`relay`] | relays that take the place of SIM's routers |
//! | [`repair`] | packets that a path has lost, sent again by the nearest relay |
//! | [`optimum`] | the best menu for given capacities, for studies |
//! | `message.rs`, `wire.rs` | the packets of all protocols, and their encoding |
//! | `event.rs` | the events that endpoints report |
//! | `membership.rs` | [`Membership`]: what all receivers are created with |
//! | `offer.rs` | [`Offer`]: what a driver has to send, so that packets are charged by what they carry |
//!
//! Groups follow SIM's naming convention (section III-A2): a group is a
//! [`Channel`](manyflow_core::Channel) whose number is its rank. So a router keeps one small number
//! for each session and link: the top rank that is subscribed there.
//!
//! # Example
//!
//! A receiver of SIM joins the lowest group of a session and gets its first packet. A network would
//! deliver the packets of the joined groups, and call both ends at their
//! [`poll_timeout`](manyflow_core::Endpoint::poll_timeout).
//!
//! ```
//! use manyflow_core::{Action, Endpoint, EndpointId, Time};
//! use manyflow_layered::Membership;
//! use manyflow_layered::sim::{Receiver, ReceiverConfig, Sender, SenderConfig};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (now, session, groups) = (Time::ZERO, 1, 3);
//! let config = SenderConfig { groups, ..SenderConfig::default() };
//! let mut sender = Sender::new(config, session, now, None)?;
//! let parent = EndpointId(0); // the sender, or an aggregator before it
//! let (config, membership) = (ReceiverConfig::default(), Membership::new(session, groups));
//! let mut receiver = Receiver::new(config, membership, 7, parent)?;
//!
//! receiver.handle_timeout(now);
//! assert!(matches!(receiver.poll_action(now), Some(Action::Join(group)) if group.number == 0));
//! sender.handle_timeout(now);
//! while let Some(Action::Send(packet)) = sender.poll_action(now) {
//!     receiver.handle_packet(now, &packet);
//! }
//! assert_eq!(receiver.subscribed(), 1);
//! assert!(sender.poll_timeout() > Some(now));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod event;
pub mod flid;
pub mod hop;
mod membership;
mod message;
mod offer;
pub mod optimum;
pub mod relay;
pub mod repair;
pub mod rlc;
pub mod rlm;
pub mod sim;
pub mod unit;
mod wire;

pub use event::{Event, RateReason, Reason};
pub use membership::Membership;
pub use message::{Data, Experiment, Feedback, Message};
pub use offer::Offer;
pub use wire::{Encoded, HEADER_BYTES_MAX, WireError};

/// The maximum number of groups in a session: ranks have five bits.
pub const GROUPS_MAX: u8 = 32;
