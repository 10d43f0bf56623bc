//! The open connections of a server. Their number is bounded. If all places are taken, the
//! client with the most connections loses its oldest, so a client cannot keep others out.
//!
//! There is no fixed limit for a client, because a building full of receivers may share an address.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};

use tokio::task::{AbortHandle, JoinSet};

/// Maximum number of connections. Each takes a file descriptor and some ten kilobytes.
pub(super) const CONNECTIONS_MAX: usize = 512;

/// The open connections, each with a task that serves it.
#[derive(Default)]
pub(super) struct Connections {
    tasks: JoinSet<()>,
    /// The oldest first.
    open: Vec<Connection>,
}

struct Connection {
    client: IpAddr,
    task: AbortHandle,
}

impl Connections {
    /// Serves a connection from `address`. If there is no place left, the client that has the most
    /// connections loses its oldest. An honest request is answered after one round-trip time, so
    /// the oldest connections belong to slow clients.
    pub(super) async fn spawn(
        &mut self,
        address: IpAddr,
        serve: impl Future<Output = ()> + Send + 'static,
    ) {
        while self.tasks.try_join_next().is_some() {}
        self.open
            .retain(|connection| !connection.task.is_finished());
        while self.tasks.len() >= CONNECTIONS_MAX {
            if let Some(place) = self.most_crowded() {
                self.open.remove(place).task.abort();
            }
            // An aborted task ends when it next runs, and only then its socket is closed.
            self.tasks.join_next().await;
        }
        self.open.push(Connection {
            client: client(address),
            task: self.tasks.spawn(serve),
        });
        debug_assert!(self.open.len() <= CONNECTIONS_MAX);
    }

    /// Returns the place of the oldest connection of the client with the most connections; of the
    /// oldest connection of all, if several clients have the most.
    fn most_crowded(&self) -> Option<usize> {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for connection in &self.open {
            *counts.entry(connection.client).or_default() += 1;
        }
        let rank = |place: &usize| (counts.get(&self.open[*place].client), Reverse(*place));
        (0..self.open.len()).max_by_key(rank)
    }
}

/// Returns the client that an address belongs to: itself, or the first address of an IPv6 network
/// of 64 bits, in which one host can take any address.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_client() {
        let same =
            |one: &str, two: &str| client(one.parse().unwrap()) == client(two.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff"));
        assert!(same("192.0.2.1", "::ffff:192.0.2.1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }
}
