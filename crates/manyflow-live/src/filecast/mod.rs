//! Files from one sender to many receivers, over a WEBRC session.

pub mod completion;
pub mod files;
pub mod load;
pub mod sdp;
pub mod sending;
pub mod session;
