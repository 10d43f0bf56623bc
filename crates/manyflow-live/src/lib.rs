//! live
pub mod load;
pub mod multicast;
pub mod publish;
pub mod sdp;
