//! WEBRC in scenarios: its sessions, events and headers.

mod events;
mod session;
mod wire;

pub(crate) use session::Webrc;
pub use wire::TOI;
