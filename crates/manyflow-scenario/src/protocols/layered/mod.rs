//! SIM, RLM, RLC and FLID-DL in scenarios: their sessions, events and headers.

mod events;
mod session;
mod wire;

pub(crate) use session::{Flid, Rlc, Rlm, Sim};
