//! Streams of JetStream between sites.
//!
//! ```text
//!   site a                                                  site b
//!   stream -- consumer -> send.rs  -- message -> overlay -> receive.rs -- publish -> stream
//!                 ^          |                                  |  ^                   |
//!                 +-- ack ---+  <--- stored --- overlay <-------+  +------- ack -------+
//! ```

mod read_back;
mod receive;
mod send;

pub(crate) use receive::Receiver;
pub(crate) use send::Sender;
