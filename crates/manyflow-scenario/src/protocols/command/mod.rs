//! Commands in scenarios: their sessions.

mod session;

pub(crate) use session::Commands;
