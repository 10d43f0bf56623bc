//! The stages on which manyflow's roles are shown, measured and tried: whole networks of senders,
//! relays, daemons and receivers on one machine. The programs that measure and test are in
//! `manyflow-rig`, which is not installed; `manyflow demo` is built on this library.
//!
//! | module | contents |
//! |---|---|
//! | [`demo`] | the command `manyflow demo` |
//! | [`stream_lab`] | a stream of pictures behind links in user space |
//! | [`overlay_lab`] | daemons as processes, thin links, and clients that check what they read |
#![forbid(unsafe_code)]

pub mod demo;
pub mod overlay_lab;
pub mod stream_lab;
