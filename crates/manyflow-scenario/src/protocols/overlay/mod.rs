//! Overlays in scenarios: their sessions, events and headers.

mod events;
mod session;
mod wire;

pub(crate) use session::{Overlays, add_daemons, slow_groups};
