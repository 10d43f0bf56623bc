//! The open connections of a server. Their number is bounded. If all places are taken, the
//! client with the most connections loses its oldest, so a client cannot keep others out.
//!
//! There is no fixed limit for a client, because a building full of receivers may share an address.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

use tokio::task::{AbortHandle, JoinSet};

use crate::client::client_of;

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
            client: client_of(address),
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
