//! live
pub mod multicast;
