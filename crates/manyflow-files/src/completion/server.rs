//! The socket on which a sender takes reports.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use manyflow_net::clock::Clock;
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::net::UdpSocket;
use tokio::sync::watch;

use super::message::MESSAGE_BYTES_MAX;
use super::{Audience, CompletionKey, Tally};

/// Time between two looks for receivers that have become silent.
const TICK: Duration = Duration::from_secs(1);

/// A socket for reports, which nobody answers before [`ReportTaker::run`].
#[derive(Debug)]
pub struct CompletionServer {
    socket: UdpSocket,
    local_address: SocketAddr,
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
        })
    }

    /// Returns the address of the socket, with the port that the system chose if it was asked for
    /// port 0.
    pub fn local_address(&self) -> SocketAddr {
        self.local_address
    }

    /// Returns the taker of the reports of `audience`.
    pub fn taking(self, key: CompletionKey, audience: Audience) -> ReportTaker {
        let secret = rand::make_rng::<StdRng>().random();
        ReportTaker {
            socket: self.socket,
            tally: watch::Sender::new(Tally::new(key, audience, secret)),
        }
    }
}

/// A socket for reports, with the table that they change.
#[derive(Debug)]
pub struct ReportTaker {
    socket: UdpSocket,
    tally: watch::Sender<Tally>,
}

impl ReportTaker {
    /// Returns a channel with the receivers and their states.
    pub fn tally(&self) -> watch::Receiver<Tally> {
        self.tally.subscribe()
    }

    /// Answers reports, until the future is dropped.
    pub async fn run(self) {
        let clock = Clock::start();
        self.tally
            .send_modify(|tally| tally.start(SystemTime::now()));
        let mut tick = tokio::time::interval(TICK);
        let mut buffer = [0; MESSAGE_BYTES_MAX + 1];
        loop {
            let received = tokio::select! {
                received = self.socket.recv_from(&mut buffer) => received,
                _ = tick.tick() => {
                    self.tally.send_modify(|tally| tally.handle_timeout(clock.now()));
                    continue;
                }
            };
            match received {
                Ok((length, from)) => self.take(&clock, from, &buffer[..length]).await,
                // An error of an earlier answer, such as a closed port.
                Err(error) => tracing::debug!(%error, "cannot read a report"),
            }
        }
    }

    async fn take(&self, clock: &Clock, from: SocketAddr, datagram: &[u8]) {
        let mut answer = None;
        self.tally.send_if_modified(|tally| {
            answer = tally.handle(clock.now(), from, datagram);
            false
        });
        let Some(answer) = answer else { return };
        // A receiver without an answer reports again.
        if let Err(error) = self.socket.send_to(&answer, from).await {
            tracing::debug!(%error, %from, "cannot answer a report");
        }
        // Only now, since the last report ends the session and this future.
        self.tally.send_modify(|_| {});
    }
}
