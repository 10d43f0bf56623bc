//! The network under live roles: sockets, the clock, tunnels, descriptions, keys and small servers.
//!
//! | module | what it holds |
//! |---|---|
//! | [`clock`], [`background`], [`child`], [`process`] | time, a runtime of its own, programs of the user, this process |
//! | [`address`], [`interfaces`], [`reserved`], [`mtu`] | addresses as users write them, those of this host, and what its interfaces carry |
//! | [`unix_socket`] | Unix sockets for programs on this machine |
//! | [`udp`], [`train`], [`trains`], [`multicast`] | datagrams, several for each system call, and multicast |
//! | [`amt`], [`inlet`], [`outlets`], [`forwarder`] | AMT tunnels; flows from and to multicast or tunnels, and a relay between them |
//! | [`way`], [`dns`] | the choice between multicast and relays; those that the DNS names (RFC 8777), and the hosts of services |
//! | [`reach`], [`client`], [`inbound`] | warnings of counterparts that cannot be reached; who a client is, and its connection |
//! | [`accepting`], [`seldom`] | accepts that fail; lines of the log about frequent events |
//! | [`last_mile`], [`thin_link`] | slow links in user space, for demonstrations and tests |
//! | [`keys`], [`group_key`], [`tls`] | signatures, shared keys and certificates |
//! | [`description`], [`publish`], [`metrics`] | descriptions of sessions, and the servers of descriptions and metrics |
//! | [`sap`] | announcements of sessions by multicast (RFC 2974) |
//! | [`disk`], [`text`] | questions about the user's files; the beginning of a text |
//!
//! The feature `sessions` has multicast, tunnels and descriptions, `pages` the servers of metrics,
//! `dns` questions to nameservers, and `slow-links` the slow links. Other modules are always there.
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
// The table names modules of all features; a build without some of them has no pages to link to.
#![cfg_attr(
    not(all(feature = "sessions", feature = "slow-links")),
    allow(rustdoc::broken_intra_doc_links)
)]

pub mod accepting;
pub mod address;
#[cfg(feature = "sessions")]
pub mod amt;
pub mod background;
pub mod child;
pub mod client;
pub mod clock;
#[cfg(feature = "sessions")]
pub mod description;
pub mod disk;
#[cfg(feature = "dns")]
pub mod dns;
#[cfg(feature = "sessions")]
pub mod forwarder;
pub mod group_key;
#[cfg(feature = "pages")]
mod http;
pub mod inbound;
#[cfg(feature = "sessions")]
pub mod inlet;
pub mod interfaces;
pub mod keys;
#[cfg(feature = "slow-links")]
pub mod last_mile;
#[cfg(feature = "pages")]
pub mod metrics;
#[cfg(feature = "sessions")]
pub mod mtu;
#[cfg(feature = "sessions")]
pub mod multicast;
#[cfg(feature = "sessions")]
pub mod outlets;
pub mod process;
#[cfg(feature = "sessions")]
pub mod publish;
pub mod reach;
pub mod reserved;
#[cfg(feature = "sessions")]
pub mod sap;
pub mod seldom;
pub mod text;
#[cfg(feature = "slow-links")]
pub mod thin_link;
pub mod tls;
pub mod train;
pub mod trains;
pub mod udp;
pub mod unix_socket;
#[cfg(feature = "sessions")]
pub mod way;
