//! Addresses with host names.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::net::lookup_host;

/// Returns the address of `host:port`, one of IPv4 if there is one.
///
/// # Errors
/// If the name cannot be resolved, or has no address.
pub(crate) async fn resolve(address: &str) -> Result<SocketAddr> {
    let found = lookup_host(address).await;
    let found: Vec<_> = found
        .with_context(|| format!("cannot find {address}: check the name and the port"))?
        .collect();
    let ipv4 = found.iter().find(|address| address.is_ipv4());
    let first = ipv4.or(found.first());
    first.copied().with_context(|| {
        format!("{address} has no address: check the name, and the records of its zone")
    })
}
