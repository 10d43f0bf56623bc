//! The overlay: group messages among many, over daemons and the links between them.
//!
//! Sources: Amir, Awerbuch, Danilov and Stanton, "Global Flow Control for Wide Area Overlay Networks: A Cost-Benefit Approach" (its
//! section III is the overlay, section IV the first controller), and Anker, Dolev, Shnayderman and Sukhov, "TCP-Friendly Many-to-Many
//! End-to-End Congestion Control" (section 2 is its overlay, section 4 the second controller). `docs/overlay.md` tells it as a whole,
//! `docs/controllers.md` compares the two.
//!
//! ```text
//!   client --- daemon ======= daemon ======= daemon --- client
//!   (not read     |   queue per link, tree per origin     \--- client
//!    from while   |
//!    it waits)  controller: may this message enter now?
//! ```
//!
//! Four layers, each of which knows the one below by a trait or a few calls:
//!
//! | layer | where | what it promises |
//! |---|---|---|
//! | links | [`hop`]: streams, datagrams | each message once to the neighbour, in order or not |
//! | routing and delivery | `daemon/`, [`topology`], [`groups`], `flow.rs` | each message to all members, each origin's in order, nothing dropped |
//! | flow control | [`controller`]: [`cost_benefit`], [`tfrc`] | when a client's message may enter |
//! | clients | `client.rs`, [`ClientFrame`] | one message at a time, a window of unread ones |
//!
//! `message.rs` has what they say, `wire/` its bytes, `endpoint.rs` puts a daemon into the simulator. Agreed order and views that survive
//! failures would stand between delivery and clients: messages carry their origin's number for it, and the wire has four bits of flags.
//!
//! What the papers leave open, and what was chosen for the overlay itself (the controllers tell of their own):
//!
//! - **From where on a new member gets everything.** Paths are the same both ways, and each sender's daemon tells a new member's with a
//!   [`Welcome`] (`daemon/membership.rs`).
//! - **Slow members** hold up their own groups by a message to all daemons, not by closed links, which would hold up every group
//!   (`daemon/delivery.rs`).
//! - **Xpand's overlay** repairs end to end; here each link of datagrams is repaired by its neighbour, and repaired copies say so. Losses
//!   are still seen end to end, since what follows a loss goes on at once (`hop/datagram.rs`).
//! - **Daemons and links are fixed** while an overlay runs. Trees are made from them when first needed, and depend on nothing else.

mod client;
mod config;
pub mod controller;
pub mod cost_benefit;
mod daemon;
mod endpoint;
pub mod groups;
pub mod hop;
mod message;
mod resequencer;
mod sequence;
pub mod tfrc;
pub mod topology;
mod wire;

pub use client::{Application, ClientEndpoint, Source};
pub use config::{LinkKind, OverlayConfig, SlowPolicy, Verdict};
pub use daemon::{Daemon, Transmit};
pub use endpoint::{Addresses, DaemonEndpoint};
pub use message::{
    Ack, Body, CLIENT_WINDOW, ClientFrame, ClientId, Control, CostUpdate, DATAGRAM_BYTES, DaemonId,
    Data, Feedback, Frame, GroupId, LENGTH_BYTES, LinkId, LinkState, Membership, Message,
    PAYLOAD_BYTES_MAX, Pause, Report, RoundTrip, Welcome,
};
pub use sequence::{ChangeSeq, LinkSeq, OriginSeq};
pub use topology::Topology;
pub use wire::{Encoded, WireError};
