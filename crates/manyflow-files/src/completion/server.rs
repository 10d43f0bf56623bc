//! The socket on which a sender takes reports.

use std::io;
use std::net::SocketAddr;

use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::message::MESSAGE_BYTES;
use super::{CompletionKey, Tally};

/// A socket for reports, which nobody answers before [`run`](Self::run).
#[derive(Debug)]
pub struct CompletionServer {
    socket: UdpSocket,
    local_address: SocketAddr,
    count: watch::Sender<u32>,
}

impl CompletionServer {
    /// Opens the socket.
    ///
    /// # Errors
    /// If the address is in use, or none of this host.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address).await?;
        Ok(CompletionServer {
            local_address: socket.local_addr()?,
            socket,
            count: watch::Sender::new(0),
        })
    }

    /// Returns the address of the socket, with the port that the system chose if it was asked for
    /// port 0.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Returns a channel with the number of receivers that have all files.
    pub fn count(&self) -> watch::Receiver<u32> {
        self.count.subscribe()
    }

    /// Answers reports, until the future is dropped.
    pub async fn run(self, key: CompletionKey, expected: u32) {
        let secret = rand::make_rng::<StdRng>().random();
        let mut tally = Tally::new(key, expected, secret);
        let mut buffer = [0; MESSAGE_BYTES + 1];
        loop {
            let (length, from) = match self.socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                // An error of an earlier answer, such as a closed port.
                Err(error) => {
                    tracing::debug!(%error, "cannot read a report");
                    continue;
                }
            };
            let Some(answer) = tally.handle(from, &buffer[..length]) else {
                continue;
            };
            // A receiver without an answer reports again.
            if let Err(error) = self.socket.send_to(&answer, from).await {
                tracing::debug!(%error, %from, "cannot answer a report");
            }
            let count = tally.count();
            self.count.send_if_modified(|last| {
                let is_new = *last != count;
                *last = count;
                is_new
            });
        }
    }
}
