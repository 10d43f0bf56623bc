//! The share that a client gets of a link, beside another client with one connection.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use manyflow_core::units::Rate;
use manyflow_live::anypoint::switch::{SwitchOptions, start};
use manyflow_live::anypoint::{Connection, Member, connect, serve};
use manyflow_live::net::last_mile::LastMile;
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

/// Measures the share of a client that uses this many connections to the four servers of a
/// service: with one connection it uses all servers, with four one by each.
pub(super) async fn measure(connections: usize) -> Result<f64> {
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
    let other = open(&shared, &[0]).await?;
    let begin = tokio::time::Instant::now();
    let (from, to) = (begin + SETTLING, begin + SETTLING + MEASURED);
    let other = tokio::spawn(count(other, from, to));
    let mut ours_bytes = 0;
    let ours: Vec<_> = ours
        .into_iter()
        .map(|connection| tokio::spawn(count(connection, from, to)))
        .collect();
    for connection in ours {
        ours_bytes += connection.await??;
    }
    let other_bytes = other.await??;
    let sum = ours_bytes + other_bytes;
    anyhow::ensure!(sum > 0, "nothing arrived over the shared link");
    Ok(ours_bytes as f64 / sum as f64)
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
