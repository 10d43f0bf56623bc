//! Group messages among many: a live daemon of the overlay, and the clients that it serves.
//!
//! ```text
//!   NATS client ---TCP--- nats/serve.rs \                    / link.rs ---TCP--- another daemon
//!   NATS client ---TCP--- nats/serve.rs -- core.rs: Daemon --- link.rs ---TCP--- another daemon
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `core.rs` | the [`Daemon`](manyflow_overlay::Daemon) with all its connections |
//! | `link.rs`, `link_traffic.rs`, `hello.rs`, `handshakes.rs` | connections between daemons |
//! | `refusals.rs` | connections that were refused, by address |
//! | `security.rs`, `certificates.rs` | their protection |
//! | `signatures.rs` | the signatures of daemons' states |
//! | `accept.rs`, `client_stream.rs` | connections of clients: TCP and Unix sockets |
//! | `nats/` | the protocol of NATS clients |
//! | `spread/` | the protocol of Spread's clients, who take part in ordered groups |
//! | `websocket.rs` | their connections over WebSocket |
//! | `fragment.rs` | messages longer than those of the overlay |
//! | `datagram/` | links of datagrams |
//! | `outgoing.rs` | bytes that wait for a socket |
//! | [`client`] | a client that publishes messages and joins groups |
//! | `access.rs`, `nkey.rs`, `client_names.rs` | what clients may do; the keys of users, and names in certificates |
//! | `status.rs`, `fetch.rs` | what a daemon reports, and, with the feature `status`, how a program reads it |
//! | `monitor/` | the pages of nats-server's monitoring |
//!
//! # Example
//!
//! ```
//! use manyflow_messages::{Client, ClientOptions, DaemonConfig, LinkSecurity, start};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut config = DaemonConfig::new("north", LinkSecurity::Insecure);
//! config.clients = Some("127.0.0.1:0".to_owned());
//! let daemon = start(config).await?;
//! let address = daemon.addresses().clients.expect("it serves clients");
//!
//! let client = Client::connect(&address.to_string(), &ClientOptions::default()).await?;
//! let mut news = client.join("news.*").await?;
//! client.publish("news.sport", "3:1").await?;
//! let message = news.next().await.expect("the group goes on")?;
//! assert_eq!((message.subject(), &message.payload()[..]), ("news.sport", &b"3:1"[..]));
//!
//! client.drain().await?;
//! daemon.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! A daemon is one thread. Its tasks share `DaemonCore` without locks; no payload is copied
//! between sockets, except short ones and those of fragments.

mod accept;
mod access;
pub mod certificates;
pub mod client;
mod client_names;
mod client_stream;
mod config;
mod core;
mod datagram;
#[cfg(feature = "status")]
mod fetch;
mod fragment;
mod handshakes;
mod hello;
mod incarnation;
mod jwt;
mod link;
mod link_traffic;
mod monitor;
pub mod nats;
mod nkey;
mod origins;
mod outgoing;
mod refusals;
mod security;
mod server;
mod signatures;
// Public for fuzz targets only.
#[doc(hidden)]
pub mod spread;
mod status;
mod stopping;
mod websocket;

pub use access::{Access, Credentials, Proof, User};
pub use client::{
    CLIENT_PORT, Client, ClientError, ClientOptions, Member, MemberEvent, Members, Message,
    Messages, OrderedMessage, View,
};
pub use config::{ControllerConfig, DaemonConfig, EVICT_AFTER, LinkConfig};
#[cfg(feature = "status")]
pub use fetch::{FetchError, STATUS_PATH, StatusUrl, StatusUrlError, fetch_page, fetch_status};
pub use hello::{Hello, HelloError, Resume};
pub use jwt::{Account, JwtError};
pub use monitor::{MONITOR_PATHS, Monitor, MonitorPage};
pub use nkey::{Nkey, NkeyError};
pub use security::{IdentityError, LinkSecurity, LinkTls};
pub use server::{
    Addresses, CLIENT_SPREAD_PORT, CLIENT_WS_PORT, DAEMON_PORT, DaemonError, DaemonHandle, start,
};
pub use status::{Counters, DaemonStatus, GroupStatus, LinkStatus, SlowMemberStatus, SlowVerdict};

pub use manyflow_order::{Cause, GroupViewId, NameError, Service};
pub use manyflow_overlay::LayerSize;
use manyflow_overlay::{DaemonId, GroupId};

use bytes::Bytes;
use nats::interest::GroupName;
use sha2::{Digest, Sha256};

/// Returns the number of the daemon with this name: the first two bytes of its SHA-256.
pub fn daemon_id(name: &str) -> DaemonId {
    let hash = Sha256::digest(name);
    DaemonId(u16::from_be_bytes([hash[0], hash[1]]))
}

/// Returns the number of the group of subscriptions to this pattern.
pub fn group_number(pattern: &str) -> GroupId {
    let pattern = Bytes::copy_from_slice(pattern.as_bytes());
    let name = GroupName {
        pattern,
        queue: None,
    };
    name.number()
}
