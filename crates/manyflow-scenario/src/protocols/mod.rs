//! The protocols of sessions, below the plan: the observables that their events report, and their
//! packets in captures and traces; and above it, the endpoints of their sessions. Each protocol has
//! a folder. `list.rs` lists all protocols. Their tables are in [`schema`](crate::schema).

pub(crate) mod acp;
mod cbr;
mod command;
mod common;
mod ip;
mod layered;
mod list;
pub(crate) mod overlay;
mod report;
pub(crate) mod session;
mod tcp;
mod tfmcc;
mod webrc;

pub use crate::schema::protocols::*;
pub use ip::{HostEvent, IpArrived, IpPacket};
pub use list::{AnyEvent, AnyHeader, IntoBoxed, Network, Packet};
pub(crate) use report::{Observed, Reported, Topic, Wire};
pub use webrc::TOI;

use session::SessionProtocol;

/// Returns the endpoints and observables of a protocol's sessions.
pub(crate) fn kind(protocol: Protocol) -> &'static dyn SessionProtocol {
    match protocol {
        Protocol::Webrc => &webrc::Webrc,
        Protocol::Tcp => &tcp::Tcp,
        Protocol::Cbr => &cbr::Cbr,
        Protocol::Sim => &layered::Sim,
        Protocol::Rlm => &layered::Rlm,
        Protocol::Rlc => &layered::Rlc,
        Protocol::Flid => &layered::Flid,
        Protocol::Tfmcc => &tfmcc::Tfmcc,
        Protocol::Acp => &acp::Acp,
        Protocol::Overlay => &overlay::Overlays,
        Protocol::Command => &command::Commands,
    }
}
