//! Sockets and the clock: what every role on the network needs.

pub mod address;
pub mod amt;
pub(crate) mod background;
pub mod child;
pub(crate) mod client;
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
pub(crate) mod trains;
pub(crate) mod udp;
