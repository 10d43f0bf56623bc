//! ACP in scenarios: its sessions, events and headers.

mod events;
mod models;
mod session;
mod wire;

pub(crate) use models::check_lie;
pub(crate) use session::Acp;
