//! The round-trip time of links in user space. Their timers and processes add to the delay that
//! they were given, so it is measured by datagrams that an echo behind a link sends back.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use manyflow_core::link::LinkConfig;
use manyflow_net::last_mile::LastMile;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::bench::median;

/// Time between two datagrams.
const INTERVAL: Duration = Duration::from_millis(20);
/// Time after which a datagram counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(1);
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A measurement under way, which ends when it is dropped.
pub(super) struct RoundTrips {
    seconds: mpsc::Receiver<f64>,
    tasks: [JoinHandle<()>; 2],
    _links: LastMile,
}

impl RoundTrips {
    /// Starts to measure a link with these parameters in each direction.
    pub(super) async fn start(link: LinkConfig) -> Result<RoundTrips> {
        let echo = UdpSocket::bind(LOOPBACK).await?;
        let links = LastMile::start(echo.local_addr()?, link.clone(), link, 0).await?;
        let socket = UdpSocket::bind(LOOPBACK).await?;
        socket.connect(links.address()).await?;
        let (measured, seconds) = mpsc::channel();
        Ok(RoundTrips {
            seconds,
            tasks: [
                tokio::spawn(send_back(echo)),
                tokio::spawn(measure(socket, measured)),
            ],
            _links: links,
        })
    }

    /// Ends the measurement, and returns the median in seconds.
    ///
    /// # Errors
    /// If no datagram has come back.
    pub(super) fn median_s(self) -> Result<f64> {
        let seconds: Vec<f64> = self.seconds.try_iter().collect();
        let some = (!seconds.is_empty()).then(|| median(seconds.into_iter()));
        some.context("no datagram has come back over a link")
    }
}

impl Drop for RoundTrips {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn send_back(echo: UdpSocket) {
    let mut buffer = [0; 8];
    while let Ok((length, from)) = echo.recv_from(&mut buffer).await {
        let _ = echo.send_to(&buffer[..length], from).await;
    }
}

/// Sends one numbered datagram after another. An answer that is late is not that of the next.
async fn measure(socket: UdpSocket, measured: mpsc::Sender<f64>) {
    // From 1, since an empty buffer reads as 0.
    for number in 1_u64.. {
        let sent_at = Instant::now();
        let answer = async {
            let (expected, mut buffer) = (number.to_be_bytes(), [0; 8]);
            socket.send(&expected).await?;
            loop {
                socket.recv(&mut buffer).await?;
                if buffer == expected {
                    return std::io::Result::Ok(());
                }
            }
        };
        if let Ok(Ok(())) = timeout(LOST_AFTER, answer).await
            && measured.send(sent_at.elapsed().as_secs_f64()).is_err()
        {
            return;
        }
        sleep(INTERVAL).await;
    }
}
