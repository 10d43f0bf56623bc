//! The store over live Anypoint connections.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use manyflow_net::address::lookup;
use tokio::time::timeout;

use super::{Connect, Frames};
use crate::anypoint::{Connection, Options, Prefix, connect};

/// The time that one attempt to connect may take. A switch that starts meanwhile answers the next
/// attempt at once, while the Opens of a long attempt come at longer and longer intervals.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);

impl Frames for Connection {
    async fn send(&self, key: u32, frame: Bytes) -> io::Result<()> {
        let sent = self.send_frame(key, frame).await;
        sent.map_err(io::Error::other)
    }

    fn prefix(&self) -> Prefix {
        Connection::prefix(self)
    }

    async fn recv(&self) -> io::Result<(u32, Bytes)> {
        match self.recv_frame().await {
            Ok(Some(message)) => Ok((message.key, message.payload)),
            Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}

/// A service behind a switch, whose policy must be
/// [`Replicas`](crate::anypoint::switch::PolicyName::Replicas).
#[derive(Clone, Debug)]
pub struct LiveService {
    switch: String,
    options: Options,
}

impl LiveService {
    /// Creates a client of the service whose switch is at `switch`: `HOST:PORT`. The name is looked
    /// up for each connection.
    pub fn new(switch: impl Into<String>, options: Options) -> LiveService {
        let switch = switch.into();
        LiveService { switch, options }
    }

    async fn address(&self) -> io::Result<SocketAddr> {
        Ok(lookup(&self.switch, None).await?[0])
    }
}

impl Connect for LiveService {
    type Frames = Connection;

    fn service(&self) -> String {
        format!("the store behind the switch at {}", self.switch)
    }

    async fn connect(&self) -> io::Result<Connection> {
        let address = self.address().await?;
        match timeout(ATTEMPT_MAX, connect(address, self.options.clone())).await {
            Ok(connection) => connection.map_err(io::Error::other),
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("no answer from {address}"),
            )),
        }
    }
}
