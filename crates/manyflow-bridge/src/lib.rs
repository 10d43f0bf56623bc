//! A bridge carries chosen subjects and JetStream streams of a site's nats-server to other sites,
//! over an overlay.
//!
//! ```text
//!   nats-server of a -- bridge of a -- daemon a == overlay == daemon b -- bridge of b -- nats-server of b
//! ```
//!
//! One bridge runs at each site. It is a client of the site's nats-server and of a daemon.
//!
//! - **Core messages** pass in both directions. A header names the site at which a message entered
//!   the overlay; bridges carry no message with this header further, so there are no loops.
//! - **Requests** cross, too: the reply subject names the site that the answer is for.
//! - **Streams of JetStream** are read by a durable consumer. A message is acknowledged when
//!   JetStream at all destinations has stored it, so a bridge may be killed at any time. Other
//!   sites store each message with its place in its stream. A bridge that has just started reads
//!   the end of the stream at its site, and does not store a message there a second time.
//!
//! | file | contents |
//! |---|---|
//! | `config.rs`, `status.rs`, `error.rs` | what a bridge carries, how it is, and why it carries nothing |
//! | `session.rs`, `state.rs` | the connections, and the state that outlives them |
//! | `election.rs` | the choice of the active bridge of a site |
//! | `names.rs`, `message.rs`, `replies.rs` | subjects, headers, messages of both sides, and the way back of answers |
//! | `subjects.rs` | core messages |
//! | `streams/` | messages of JetStream |
//! | `outbox.rs`, `arrivals.rs`, `read_back.rs` | state machines: messages on the way, those that have arrived, and those that a stream has |
//! | `places.rs` | the places of messages in a stream |
//!
//! # Example
//!
//! ```no_run
//! use manyflow_bridge::{BridgeConfig, BridgeState, start};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = BridgeConfig::new("berlin", "127.0.0.1:4333", "127.0.0.1:4222");
//! config.subjects = vec!["orders.>".to_owned()];
//! let bridge = start(config)?;
//! let mut status = bridge.status();
//! status.wait_for(|status| status.state == BridgeState::Active).await?;
//! # Ok(())
//! # }
//! ```

pub mod arrivals;
mod config;
mod election;
mod error;
mod message;
mod names;
pub mod outbox;
pub mod places;
pub mod read_back;
mod replies;
mod session;
mod state;
mod status;
mod streams;
mod subjects;

use std::sync::Arc;

use manyflow_core::ConfigError;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use config::{BridgeConfig, NatsOptions, StreamConfig, Way};
pub use error::BridgeError;
pub use status::{BridgeState, BridgeStatus, Counters, StreamStatus};

/// A running bridge. It stops when this is dropped.
#[derive(Debug)]
pub struct BridgeHandle {
    status: watch::Receiver<BridgeStatus>,
    task: JoinHandle<()>,
}

impl BridgeHandle {
    /// Returns the bridge's status, which changes twice a second at most, and at once when the
    /// bridge connects or loses a connection.
    pub fn status(&self) -> watch::Receiver<BridgeStatus> {
        self.status.clone()
    }
}

impl Drop for BridgeHandle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a bridge on this tokio runtime. It connects until it succeeds, and again after each
/// failure.
///
/// # Errors
/// If the configuration is invalid.
pub fn start(config: BridgeConfig) -> Result<BridgeHandle, ConfigError> {
    config.check()?;
    let (sender, status) = watch::channel(BridgeStatus::default());
    let shared = Arc::new(state::Shared::new(config, sender));
    let task = tokio::spawn(session::run(shared));
    Ok(BridgeHandle { status, task })
}
