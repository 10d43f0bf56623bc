//! An overlay for group messages among many clients, over daemons and the links between them.
//!
//! Sources: Amir, Awerbuch, Danilov and Stanton, "Global Flow Control for Wide Area Overlay
//! Networks: A Cost-Benefit Approach" (section III describes this overlay, section IV the first
//! controller), and Anker, Dolev, Shnayderman and Sukhov, "TCP-Friendly Many-to-Many End-to-End
//! Congestion Control" (section 2 describes its own overlay, section 4 the second controller).
//! `docs/overlay.md` describes the overlay as a whole; `docs/controllers.md` compares the two
//! controllers.
//!
//! ```text
//!   client --- daemon ======= daemon ======= daemon --- client
//!                 |   queue per link, tree per origin     \--- client
//!                 |
//!             Controller: may this message enter now?
//! ```
//!
//! | what | where | what it promises |
//! |---|---|---|
//! | hops | [`hop`]: streams, datagrams | each message once to the neighbour, in order or not |
//! | daemons | `daemon/`, with [`topology`], [`groups`], `resequencer.rs` | each message to all members, each origin's in order, none dropped |
//! | flow control | [`controller`]: [`cost_benefit`], [`tfrc`] | when a client's message may enter |
//! | clients | [`Client`] in `client/` | one message at a time, a window of unread ones |
//!
//! A [`Daemon`] knows hops and controllers only by their traits. It consists of parts that do not
//! know each other (`daemon/mod.rs`). `message.rs` defines the messages and frames, `sequence.rs`
//! their numbers, and `wire/` their bytes. `endpoint.rs` puts daemons into the simulator, where
//! clients are models (`manyflow-netsim`).
//!
//! # The path of a message
//!
//! A client at one daemon sends a message over a second daemon to a member at a third:
//!
//! ```text
//!   the client             client/mod.rs: send, poll_transmit
//!
//!   the sender's daemon
//!     daemon/mod.rs       handle_client
//!     daemon/entry.rs       offer, try_admit        waits, until the Controller admits it
//!     daemon/mod.rs       enter
//!     daemon/membership.rs  number_message          its number among the origin's to this group
//!     daemon/mod.rs       forward
//!     daemon/links/         route, enqueue          a queue for each neighbour on the way to members
//!     daemon/mod.rs       serve_neighbour
//!     daemon/links/         fill_hop                while the hop has room
//!     hop/                    push, poll_transmit   a segment or a datagram
//!     daemon/outbox.rs      push_frame              until the world takes it: poll_transmit
//!
//!   a daemon between
//!     daemon/mod.rs       handle_frame
//!     daemon/links/         handle_frame
//!     hop/                    handle_frame
//!     daemon/mod.rs       serve_neighbour
//!     daemon/links/         poll_arrival            unless another link's queue is full
//!     hop/                    poll_arrival          in order or not, each once
//!     daemon/mod.rs       handle_message, forward   then as above, from route on
//!
//!   the member's daemon                             as the daemon between, and from handle_message on:
//!     daemon/mod.rs       handle_data               the Controller measures arrivals
//!     daemon/delivery/      insert, pop_in_order    resequencer.rs: each origin's messages in order
//!     daemon/mod.rs       deliver
//!     daemon/delivery/      deliver                 an inbox for each member, 64 unread messages at most
//!     daemon/outbox.rs      push_client_frame
//!
//!   the member             client/mod.rs: handle_frame, read
//! ```
//!
//! Agreed and safe delivery is a layer above: the crate `manyflow-order` is a client of each
//! daemon.
//!
//! # Choices
//!
//! The papers leave these points of the overlay open; the pages of the controllers list their own.
//!
//! - **The first message for a new member.** Paths are the same in both directions. Each sender's
//!   daemon announces the first message to the new member's daemon with a [`Welcome`]
//!   (`daemon/membership.rs`).
//! - **Slow members.** The senders of a group wait for its slow members. A message to all daemons
//!   announces this; closed links would instead delay all groups (`daemon/delivery/`).
//! - **Repairs.** Xpand's overlay repairs losses end to end. Here, the two ends of each link of
//!   datagrams repair them and flag repaired copies. Receivers still observe losses end to end,
//!   because messages behind a loss are forwarded at once (`hop/datagram.rs`).
//! - **A topology that changes.** [`Daemon::new`] is a daemon of a living overlay: its driver adds
//!   and removes links, and daemons flood the changes of their links, members and pauses
//!   (`daemon/database/`). A message follows a tree of its origin's topology, whose version it
//!   carries. Origins keep messages until they are acknowledged, and send lost ones again to the
//!   daemons that lack them (`daemon/retention.rs`). [`Daemon::fixed`] is a daemon of an overlay
//!   whose topology never changes; such an overlay needs none of these messages.
//! - **Daemons that lie.** With a [`Notary`], each daemon signs its state, and believes of others
//!   only what they have signed (`daemon/database/seal.rs`).
//!
//! # Example
//!
//! Two daemons, a client at the first that sends, and a client at the second that is a member. The
//! loop stands for a network: it carries the frames between the daemons.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use manyflow_core::{Ecn, Time};
//! use manyflow_overlay::controller::Open;
//! use manyflow_overlay::hop::DatagramHop;
//! use manyflow_overlay::{
//!     ClientFrame, Daemon, DaemonId, GroupId, OverlayConfig, Topology, Transmit,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ids = [DaemonId(0), DaemonId(1)];
//! let topology = Arc::new(Topology::new(ids, &[(ids[0], ids[1], 1)])?);
//! let mut daemons = Vec::new();
//! for here in ids {
//!     // One hop for each neighbour, and a controller that admits every message.
//!     let hops = vec![Box::new(DatagramHop::new()) as Box<_>];
//!     let (config, topology) = (OverlayConfig::default(), Arc::clone(&topology));
//!     daemons.push(Daemon::fixed(config, Box::new(Open), here, topology, hops)?);
//! }
//! let (mut now, group) = (Time::ZERO, GroupId(1));
//! let member = daemons[1].connect(now, 100);
//! daemons[1].handle_client(now, member, &ClientFrame::Join(group), Vec::new());
//! let writer = daemons[0].connect(now, 100);
//!
//! let mut read = Vec::new();
//! for step in 0..50 {
//!     if step == 10 {
//!         let send = ClientFrame::Send { groups: group.into(), sent_us: 0, layered: false };
//!         daemons[0].handle_client(now, writer, &send, b"hello, group".to_vec());
//!     }
//!     now += Duration::from_millis(1);
//!     for here in [0, 1] {
//!         daemons[here].handle_timeout(now);
//!         while let Some(transmit) = daemons[here].poll_transmit() {
//!             match transmit {
//!                 Transmit::Daemon(to, frame, payload) => {
//!                     let to = &mut daemons[usize::from(to.0)];
//!                     to.handle_frame(now, ids[here], &frame, Ecn::NotCapable, payload);
//!                 }
//!                 Transmit::Client(_, ClientFrame::Deliver { .. }, payload) => read.push(payload),
//!                 Transmit::Client(..) => {}
//!             }
//!         }
//!     }
//! }
//! assert_eq!(read, [b"hello, group"]);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod client;
mod config;
pub mod controller;
pub mod cost_benefit;
mod daemon;
mod endpoint;
mod event;
pub mod groups;
pub mod hop;
mod layers;
mod message;
mod notary;
mod resequencer;
mod sequence;
pub mod tfrc;
pub mod topology;
mod wire;

pub use client::{Client, ClientEvent, Delivered, ProtocolError, SendError};
pub use config::{OverlayConfig, SlowPolicy, Verdict};
pub use daemon::{Daemon, Interest, Transmit};
pub use endpoint::{Addresses, Agent, DaemonEndpoint, Direct, LinkKind};
pub use event::{Event, Misconduct};
pub use layers::{Cut, LayerSize, Layers, LayersError};
pub use message::{
    Ack, Acknowledge, Answer, Body, CLIENT_WINDOW, Change, ClientFrame, ClientId, Control,
    CopyFlags, CostUpdate, DATAGRAM_BYTES, DaemonId, Data, Delay, Feedback, Frame, GroupId,
    GroupSet, Item, LENGTH_BYTES, LinkId, LinkState, Message, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX,
    Part, Report, Resent, RoundTrip, Summary, Welcome,
};
pub use notary::{Claim, IDENTITY_BYTES_MAX, Notary, SIGNATURE_BYTES_MAX};
pub use sequence::{ChangeSeq, LinkSeq, OriginSeq};
pub use topology::Topology;
pub use wire::{Encoded, WireError};
