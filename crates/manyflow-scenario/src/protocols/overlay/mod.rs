//! Overlays in scenarios: their sessions, events and headers.

mod events;
mod order;
mod session;
mod wire;

pub(crate) use session::{GroupOptions, Overlays, add_daemons};
