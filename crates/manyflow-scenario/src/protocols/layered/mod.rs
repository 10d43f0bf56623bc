//! SIM, RLM and RLC in scenarios: their sessions, events and headers.

mod events;
mod session;
mod wire;

pub(crate) use session::{Rlc, Rlm, Sim};
