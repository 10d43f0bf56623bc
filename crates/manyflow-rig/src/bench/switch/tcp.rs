//! Clients and servers of TCP, for HAProxy.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::load::{Flow, Latency, MEMBERS, PEERS, REQUESTS_PER_MS};
use super::process::Proxy;
use super::{LONG, SHORT};

/// Frames that one write carries at full speed, about as many as fit a packet train of ours.
const FRAMES_PER_WRITE: usize = 46;

/// Servers that count bytes, and return requests. The first byte of a connection says which.
pub(super) struct Servers {
    pub(super) addresses: Vec<SocketAddr>,
    received: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Servers {
    pub(super) async fn start() -> Result<Servers> {
        let mut servers = Servers {
            addresses: Vec::new(),
            received: Arc::default(),
            tasks: Vec::new(),
        };
        for _ in 0..MEMBERS {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            servers.addresses.push(listener.local_addr()?);
            let received = Arc::clone(&servers.received);
            servers.tasks.push(tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(serve(stream, Arc::clone(&received)));
                }
            }));
        }
        Ok(servers)
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn serve(mut stream: TcpStream, received: Arc<AtomicU64>) {
    let _ = stream.set_nodelay(true);
    let mut buffer = vec![0; 64 << 10];
    let Ok(returns) = stream.read_u8().await else {
        return;
    };
    while let Ok(length @ 1..) = stream.read(&mut buffer).await {
        received.fetch_add(length as u64, Ordering::Relaxed);
        if returns == 1 && stream.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

async fn open(address: SocketAddr, returns: bool) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    stream.write_u8(u8::from(returns)).await?;
    Ok(stream)
}

/// Sends as fast as possible.
pub(super) async fn measure_throughput(
    proxy: &Proxy,
    servers: &Servers,
    duration: Duration,
) -> Result<Flow> {
    let mut senders = JoinSet::new();
    for _ in 0..PEERS {
        let mut stream = open(proxy.address, false).await?;
        senders.spawn(async move {
            let frames = vec![7; LONG * FRAMES_PER_WRITE];
            while stream.write_all(&frames).await.is_ok() {}
        });
    }
    Flow::measure(&servers.received, proxy, duration).await
}

/// Sends requests at a fixed rate on one connection, and measures the time to each answer.
pub(super) async fn measure_latency(address: SocketAddr, duration: Duration) -> Result<Latency> {
    let (mut reader, writer) = open(address, true).await?.into_split();
    let started = Instant::now();
    let sender = tokio::spawn(send_requests(writer, started, duration));
    let mut times = Vec::new();
    let total = duration.as_millis() as usize * REQUESTS_PER_MS as usize;
    let mut answer = [0; SHORT];
    while times.len() < total {
        reader.read_exact(&mut answer).await?;
        let sent = answer.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let sent = Duration::from_nanos(sent.unwrap_or_default());
        times.push(started.elapsed().saturating_sub(sent));
    }
    sender.await??;
    Ok(Latency::of(times.split_off(total / 10)))
}

async fn send_requests(
    mut writer: OwnedWriteHalf,
    started: Instant,
    duration: Duration,
) -> Result<()> {
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for _ in 0..duration.as_millis() {
        ticks.tick().await;
        for _ in 0..REQUESTS_PER_MS {
            let mut request = [0; SHORT];
            let now = started.elapsed().as_nanos() as u64;
            request[..8].copy_from_slice(&now.to_be_bytes());
            writer.write_all(&request).await?;
        }
    }
    Ok(())
}
