//! live
pub mod multicast;
pub mod sdp;
