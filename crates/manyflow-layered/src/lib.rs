//! Layered multicast: a session of cumulative groups, of which each receiver takes the lowest few.
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
//! | [`sim`] | SIM: routers mark, the sender follows feedback that routers aggregate, receivers choose groups (`sim.txt`) |
//! | [`rlm`] | RLM: groups of fixed rates, receivers try and back off (McCanne, Jacobson and Vetterli, SIGCOMM 1996) |
//! | `message.rs`, `wire.rs` | the packets of both, and their bytes |
//!
//! Groups follow SIM's naming convention (section III-A2): a group is a
//! [`Channel`](manyflow_core::Channel) whose number is its rank, so that a router keeps one small
//! number for each session and link, the top rank that is subscribed there.
#![forbid(unsafe_code)]

mod event;
mod message;
pub mod rlm;
pub mod sim;
mod wire;

pub use event::Event;
pub use message::{Data, Experiment, Feedback, Message};
pub use wire::{Encoded, HEADER_BYTES_MAX, WireError};

/// The most groups that a session can have: ranks are five bits.
pub const GROUPS_MAX: u8 = 32;
