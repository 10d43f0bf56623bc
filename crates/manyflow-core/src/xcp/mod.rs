//! XCP, the eXplicit Control Protocol: routers write into packets by
//! how much senders may change their windows.
//!
//! A sender writes its window, its round-trip time and the change that it wants into each packet's
//! [`Congestion`] header. Each router on the path may lower the change. The receiver returns the
//! remaining change.
//!
//! | file | what it holds |
//! |---|---|
//! | `header.rs` | [`Congestion`], the header that routers read and change, and [`Feedback`], the answer to it |
//! | `router.rs` | [`Controller`], the router's state for one output |
//! | `config.rs` | [`XcpConfig`], the router's constants |
//!
//! Sources: Katabi, Handley and Rohrs, "Congestion Control for High Bandwidth-Delay Product
//! Networks", 2002; draft-falk-xcp-spec. A [link](crate::link) is an XCP router if its
//! configuration says so.

mod config;
mod header;
mod router;

pub use config::XcpConfig;
pub use header::{Congestion, Feedback, WindowChange};
pub use router::Controller;
