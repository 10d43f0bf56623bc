//! The rates of clients that share a link: one of a service, and others with one connection each.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use manyflow_core::units::Rate;
use manyflow_ensembles::anypoint::switch::{SwitchOptions, start};
use manyflow_ensembles::anypoint::{Connection, Member, connect, serve};
use manyflow_net::last_mile::LastMile;
use tokio::task::JoinSet;

use super::fetch::KEYS_OF_MEMBER;
use super::server::link;
use super::{FIRST, member, options, service};

/// The link that both clients share.
const LINK: Rate = Rate::from_bits_per_s(20_000_000);
const DELAY: Duration = Duration::from_millis(10);
/// The time before shares are measured, and the time over which they are.
const SETTLING: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(2);
/// A message of a server.
const MESSAGE_BYTES: usize = 8 * 1024;

/// The bytes that clients have received over a shared link.
#[derive(Clone, Debug)]
pub(super) struct Rates {
    /// The client of the service.
    pub(super) service: u64,
    /// Each of the other clients.
    pub(super) others: Vec<u64>,
}

impl Rates {
    /// Returns the service's share of the sum, 0 to 1.
    pub(super) fn share(&self) -> f64 {
        let sum = self.service + self.others.iter().sum::<u64>();
        self.service as f64 / sum as f64
    }

    /// Returns Jain's index over all clients, 0 to 1: 1 if they received the same.
    pub(super) fn jain(&self) -> f64 {
        let all: Vec<f64> = self
            .others
            .iter()
            .chain([&self.service])
            .map(|bytes| *bytes as f64)
            .collect();
        let squares: f64 = all.iter().map(|bytes| bytes * bytes).sum();
        all.iter().sum::<f64>().powi(2) / (all.len() as f64 * squares)
    }
}

/// Measures a client of the four servers of a service beside `others` clients with one connection
/// to one server each. The client of the service has one connection, or one to each server.
pub(super) async fn measure(connections: usize, others: usize) -> Result<Rates> {
    let mut tasks = JoinSet::new();
    let mut members = Vec::new();
    for number in 0..FIRST {
        let server = serve("127.0.0.1:0".parse()?, options())?;
        members.push(member(number, server.local_address()));
        tasks.spawn(serve_endless(server));
    }
    let switch = start(
        "127.0.0.1:0".parse()?,
        service(members),
        SwitchOptions::default(),
    )?;
    let config = link(LINK, DELAY);
    let shared = LastMile::start(switch.local_address(), config.clone(), config, 1).await?;
    let server = |connection: usize| match connections {
        1 => (0..FIRST).collect(),
        _ => vec![connection],
    };
    let mut ours = Vec::new();
    for connection in 0..connections {
        ours.push(open(&shared, &server(connection)).await?);
    }
    let mut beside = Vec::new();
    for other in 0..others {
        beside.push(open(&shared, &[other % FIRST]).await?);
    }
    let begin = tokio::time::Instant::now();
    let (from, to) = (begin + SETTLING, begin + SETTLING + MEASURED);
    let counted = |connection| tokio::spawn(count(connection, from, to));
    let ours: Vec<_> = ours.into_iter().map(counted).collect();
    let beside: Vec<_> = beside.into_iter().map(counted).collect();
    let mut rates = Rates {
        service: 0,
        others: Vec::new(),
    };
    for counted in ours {
        rates.service += counted.await??;
    }
    for counted in beside {
        rates.others.push(counted.await??);
    }
    ensure!(
        rates.service > 0 && !rates.others.contains(&0),
        "a client received nothing over the shared link"
    );
    Ok(rates)
}

/// Opens a connection, and asks these servers to send.
async fn open(link: &LastMile, servers: &[usize]) -> Result<Connection> {
    let connection = connect(link.address(), options()).await?;
    for server in servers {
        let key = KEYS_OF_MEMBER * *server as u32;
        connection.send_frame(key, "send".into()).await?;
    }
    Ok(connection)
}

/// Counts the bytes that arrive between two times.
async fn count(
    connection: Connection,
    from: tokio::time::Instant,
    to: tokio::time::Instant,
) -> Result<u64> {
    let mut bytes = 0;
    while let Ok(message) = tokio::time::timeout_at(to, connection.recv_frame()).await {
        let message = message?.context("the switch has closed the connection")?;
        if tokio::time::Instant::now() >= from {
            bytes += message.payload.len() as u64;
        }
    }
    Ok(bytes)
}

/// Sends to each client that asks, until it goes away.
async fn serve_endless(mut server: Member) {
    let mut tasks = JoinSet::new();
    while let Ok(connection) = server.accept().await {
        tasks.spawn(async move {
            if let Ok(Some(_)) = connection.recv_frame().await {
                let message = Bytes::from_static(&[0; MESSAGE_BYTES]);
                while connection.send_frame(0, message.clone()).await.is_ok() {}
            }
        });
    }
}
