//! The kernel's own TCP, as a protocol of sessions.

pub mod tcp;
