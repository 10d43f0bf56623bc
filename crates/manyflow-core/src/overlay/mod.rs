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

mod config;
pub mod controller;
pub mod groups;
pub mod hop;
mod message;
pub mod tfrc;
pub mod topology;

pub use config::{LinkKind, OverlayConfig, SlowPolicy, Verdict};
pub use message::{
    Ack, Body, ClientFrame, ClientId, Control, CostUpdate, DATAGRAM_BYTES, DaemonId, Data,
    Feedback, Frame, GroupId, LinkId, LinkState, Membership, Message, Pause, Report, RoundTrip,
    Welcome,
};
pub use topology::Topology;
