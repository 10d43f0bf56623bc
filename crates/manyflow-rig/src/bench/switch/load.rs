//! Peers and members of a switch, all in this process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use manyflow_ensembles::anypoint::{Connection, Endpoint, Member, Options, connect, serve};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::process::Proxy;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// The number of members, and of peers that send at full speed.
pub(super) const MEMBERS: usize = 4;
pub(super) const PEERS: usize = 4;
/// Requests that are sent together each millisecond: 10,000 each second.
pub(super) const REQUESTS_PER_MS: u32 = 10;
/// The key of frames that members answer. They only count the others.
const REQUEST: u32 = 1;

/// Bytes that arrived, the time, and the processor time that a proxy took.
#[derive(Copy, Clone, Debug)]
pub(super) struct Flow {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) cpu_s: f64,
}

impl Flow {
    /// Counts the bytes that arrive in `duration`, after a moment in which windows open.
    pub(super) async fn measure(
        received: &AtomicU64,
        proxy: &Proxy,
        duration: Duration,
    ) -> Result<Flow> {
        sleep(Duration::from_secs(1)).await;
        let (before, cpu_before) = (received.load(Ordering::Relaxed), proxy.cpu_s()?);
        let started = Instant::now();
        sleep(duration).await;
        let seconds = started.elapsed().as_secs_f64();
        Ok(Flow {
            bytes: received.load(Ordering::Relaxed) - before,
            seconds,
            cpu_s: proxy.cpu_s()? - cpu_before,
        })
    }
}

/// Times from requests to answers in seconds.
#[derive(Copy, Clone, Debug)]
pub(super) struct Latency {
    pub(super) p50: f64,
    pub(super) p99: f64,
}

impl Latency {
    pub(super) fn of(mut times: Vec<Duration>) -> Latency {
        times.sort();
        let at = |share: f64| times[(times.len() as f64 * share) as usize].as_secs_f64();
        Latency {
            p50: at(0.5),
            p99: at(0.99),
        }
    }

    /// Returns the latency above another one.
    pub(super) fn less(&self, other: &Latency) -> Latency {
        Latency {
            p50: self.p50 - other.p50,
            p99: self.p99 - other.p99,
        }
    }
}

/// Members that count frames, and answer requests.
pub(super) struct Members {
    pub(super) addresses: Vec<SocketAddr>,
    received: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<()>>,
}

impl Members {
    pub(super) fn start() -> Result<Members> {
        let mut members = Members {
            addresses: Vec::new(),
            received: Arc::default(),
            tasks: Vec::new(),
        };
        for _ in 0..MEMBERS {
            let member = serve(ANY, Options::default())?;
            members.addresses.push(member.local_address());
            let task = accept(member, Arc::clone(&members.received));
            members.tasks.push(tokio::spawn(task));
        }
        Ok(members)
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn accept(mut member: Member, received: Arc<AtomicU64>) {
    while let Ok(connection) = member.accept().await {
        let received = Arc::clone(&received);
        tokio::spawn(async move {
            while let Ok(Some(message)) = connection.recv_frame().await {
                received.fetch_add(message.payload.len() as u64, Ordering::Relaxed);
                if message.key == REQUEST {
                    let answer = connection.send_frame(REQUEST, message.payload);
                    if answer.await.is_err() {
                        return;
                    }
                }
            }
        });
    }
}

/// Sends frames of this length as fast as possible.
pub(super) async fn measure_throughput(
    switch: &Proxy,
    members: &Members,
    bytes: usize,
    duration: Duration,
) -> Result<Flow> {
    let mut senders = JoinSet::new();
    for _ in 0..PEERS {
        let connection = connect(switch.address, Options::default()).await?;
        let payload = Bytes::from(vec![7; bytes]);
        senders
            .spawn(async move { while connection.send_frame(0, payload.clone()).await.is_ok() {} });
    }
    Flow::measure(&members.received, switch, duration).await
}

/// Sends requests at a fixed rate, and measures the time to each answer.
pub(super) async fn measure_latency(address: SocketAddr, duration: Duration) -> Result<Latency> {
    let connection = Arc::new(connect(address, Options::default()).await?);
    let started = Instant::now();
    let sender = tokio::spawn(send_requests(Arc::clone(&connection), started, duration));
    let mut times = Vec::new();
    let total = duration.as_millis() as usize * REQUESTS_PER_MS as usize;
    while times.len() < total {
        let Some(answer) = connection.recv_frame().await? else {
            break;
        };
        let sent = answer
            .payload
            .first_chunk()
            .map(|bytes| u64::from_be_bytes(*bytes));
        let sent = Duration::from_nanos(sent.unwrap_or_default());
        times.push(started.elapsed().saturating_sub(sent));
    }
    sender.await??;
    // Connections and caches are warm after a tenth of the time.
    Ok(Latency::of(times.split_off(total / 10)))
}

async fn send_requests(
    connection: Arc<Connection>,
    started: Instant,
    duration: Duration,
) -> Result<()> {
    let mut ticks = interval(Duration::from_millis(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for _ in 0..duration.as_millis() {
        ticks.tick().await;
        for _ in 0..REQUESTS_PER_MS {
            let mut request = [0; 64];
            let now = started.elapsed().as_nanos() as u64;
            request[..8].copy_from_slice(&now.to_be_bytes());
            let request = Bytes::copy_from_slice(&request);
            connection.send_frame(REQUEST, request).await?;
        }
    }
    Ok(())
}

/// Opens connections from one socket.
pub(super) async fn open_many(address: SocketAddr, count: u32) -> Result<Vec<Connection>> {
    let endpoint = Endpoint::bind(ANY, Options::default())?;
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(endpoint.connect(address).await?);
    }
    Ok(connections)
}
