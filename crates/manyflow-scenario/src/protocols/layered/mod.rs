//! SIM and RLM in scenarios: their sessions, events and headers.

mod events;
mod session;
mod wire;

pub(crate) use session::{Rlm, Sim};
