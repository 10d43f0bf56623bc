//! Files from one sender to many receivers, over a WEBRC session.

pub mod files;
pub mod keys;
pub mod load;
pub mod publish;
pub mod sdp;
pub mod session;
pub mod tls;
