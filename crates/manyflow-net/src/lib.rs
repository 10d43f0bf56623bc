//! The network under live roles: sockets, the clock, tunnels, descriptions, keys and small servers.
//!
//! | module | what it holds |
//! |---|---|
//! | [`clock`], [`background`], [`child`] | time, a runtime of its own, programs of the user |
//! | [`address`], [`interfaces`], [`reserved`], [`mtu`] | addresses as users write them, those of this host, and what its interfaces carry |
//! | [`udp`], [`train`], [`trains`], [`multicast`] | datagrams, several for each system call, and multicast |
//! | [`amt`], [`inlet`], [`outlets`], [`forwarder`] | AMT tunnels; flows from and to multicast or tunnels, and a relay between them |
//! | [`reach`], [`client`] | warnings of counterparts that cannot be reached; who a client is |
//! | [`last_mile`], [`thin_link`] | slow links in user space, for demonstrations and tests |
//! | [`keys`], [`group_key`], [`tls`] | signatures, shared keys and certificates |
//! | [`description`], [`publish`], [`metrics`] | descriptions of sessions, and the servers of descriptions and metrics |
//! | [`disk`] | questions about the user's files |
//!
//! # Example
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use manyflow_net::description::load::{Trust, load_text};
//! use manyflow_net::publish::{DESCRIPTION_PATH, Publisher};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let text = "v=0\r\ns=news\r\n".to_owned();
//! let pages = BTreeMap::from([(DESCRIPTION_PATH.to_owned(), text.clone())]);
//! let publisher = Publisher::serve("127.0.0.1:0", pages, None).await?;
//!
//! let url = publisher.url(publisher.local_address().ip(), DESCRIPTION_PATH);
//! let (found, signer) = load_text(&url, &Trust::default()).await?;
//! assert_eq!((found, signer), (text, None));
//! # Ok(())
//! # }
//! ```

pub mod address;
pub mod amt;
pub mod background;
pub mod child;
pub mod client;
pub mod clock;
pub mod description;
pub mod disk;
pub mod forwarder;
pub mod group_key;
mod http;
pub mod inlet;
pub mod interfaces;
pub mod keys;
pub mod last_mile;
pub mod metrics;
pub mod mtu;
pub mod multicast;
pub mod outlets;
pub mod publish;
pub mod reach;
pub mod reserved;
pub mod thin_link;
pub mod tls;
pub mod train;
pub mod trains;
pub mod udp;
