//! The overlay: group messages among many, over daemons and the links between them.
//!
//! Sources: Amir, Awerbuch, Danilov and Stanton, "Global Flow Control for Wide Area Overlay Networks: A Cost-Benefit Approach" (its
//! section III is the overlay, section IV the first controller), and Anker, Dolev, Shnayderman and Sukhov, "TCP-Friendly Many-to-Many
//! End-to-End Congestion Control" (section 2 is its overlay, section 4 the second controller).
//!
//! ```text
//!   client --- daemon ======= daemon ======= daemon --- client
//!   (not read     |   queue per link, tree per origin     \--- client
//!    from while   |
//!    it waits)  controller: may this message enter now?
//! ```

mod client;
mod config;
pub mod controller;
pub mod cost_benefit;
mod daemon;
mod endpoint;
mod flow;
pub mod groups;
pub mod hop;
mod message;
pub mod tfrc;
pub mod topology;
mod wire;

pub use client::{Application, ClientEndpoint, Source};
pub use config::{LinkKind, OverlayConfig, SlowPolicy, Verdict};
pub use daemon::{Daemon, Output};
pub use endpoint::{Addresses, DaemonEndpoint};
pub use message::{
    Ack, Body, CLIENT_WINDOW, ClientFrame, ClientId, Control, CostUpdate, DATAGRAM_BYTES, DaemonId,
    Data, Feedback, Frame, GroupId, LENGTH_BYTES, LinkId, LinkState, Membership, Message,
    PAYLOAD_BYTES_MAX, Pause, Report, RoundTrip, Welcome,
};
pub use topology::Topology;
pub use wire::{Encoded, WireError};
