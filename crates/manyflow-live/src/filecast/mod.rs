//! Files from one sender to many receivers, over a WEBRC session.

pub mod completion;
pub mod files;
mod http;
pub mod keys;
pub mod load;
pub mod metrics;
pub mod publish;
pub mod sdp;
pub mod sending;
pub mod session;
