//! A server of the demo: it has a copy of the file, and answers requests for its chunks.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use manyflow_core::link::{Counters, LinkConfig, QueueLimit};
use manyflow_core::units::Rate;
use manyflow_core::xcp::XcpConfig;
use manyflow_ensembles::anypoint::{Connection, Member, serve};
use manyflow_net::last_mile::LastMile;
use tokio::task::JoinHandle;

use super::options;

/// The length of a chunk in bytes; the last one of a file may be shorter.
pub(super) const CHUNK_BYTES: usize = 16 * 1024;
/// The longest queue before a link.
const QUEUE: Duration = Duration::from_millis(100);

/// A server, and the link before it.
#[derive(Debug)]
pub(super) struct Server {
    link: LastMile,
    /// The latest connection.
    connection: Arc<Mutex<Option<Arc<Connection>>>>,
    task: JoinHandle<()>,
    is_killed: bool,
}

impl Server {
    /// Starts a server behind a link of `rate`.
    pub(super) async fn start(
        number: usize,
        file: &Bytes,
        rate: Rate,
        delay: Duration,
    ) -> io::Result<Server> {
        let member = serve("127.0.0.1:0".parse().expect("an address"), options())?;
        let address = member.local_address();
        let config = link(rate, delay);
        let link = LastMile::start(address, config.clone(), config, number as u64).await?;
        let connection = Arc::default();
        let task = accept(member, number, file.clone(), Arc::clone(&connection));
        Ok(Server {
            link,
            connection,
            task: tokio::spawn(task),
            is_killed: false,
        })
    }

    /// Returns the address of the server as the switch sees it.
    pub(super) fn address(&self) -> SocketAddr {
        self.link.address()
    }

    /// Ends the server without a word: nothing arrives from it any longer.
    pub(super) fn kill(&mut self) {
        self.link.set_cut(true);
        self.task.abort();
        self.is_killed = true;
    }

    pub(super) fn is_killed(&self) -> bool {
        self.is_killed
    }

    /// Returns the counts of the link towards the switch.
    pub(super) fn link(&self) -> Counters {
        self.link.downstream()
    }

    /// Returns the congestion window of the latest connection, 0 before the first.
    pub(super) fn window_frames(&self) -> f64 {
        let connection = self
            .connection
            .lock()
            .expect("the lock is only held to copy");
        match &*connection {
            Some(connection) if !self.is_killed => connection.window_frames(),
            _ => 0.0,
        }
    }
}

/// Returns a link with an XCP router.
pub(super) fn link(rate: Rate, delay: Duration) -> LinkConfig {
    let queue = rate.bits_per_s() as f64 / 8.0 * QUEUE.as_secs_f64();
    LinkConfig {
        rate: Some(rate),
        delay,
        queue: QueueLimit::Bytes(queue as u64),
        xcp: Some(XcpConfig::default()),
        ..LinkConfig::default()
    }
}

async fn accept(
    mut member: Member,
    number: usize,
    file: Bytes,
    latest: Arc<Mutex<Option<Arc<Connection>>>>,
) {
    let mut tasks = tokio::task::JoinSet::new();
    while let Ok(connection) = member.accept().await {
        let connection = Arc::new(connection);
        *latest.lock().expect("the lock is only held to copy") = Some(Arc::clone(&connection));
        tasks.spawn(answer(connection, number, file.clone()));
    }
}

/// Answers requests until the connection ends.
async fn answer(connection: Arc<Connection>, number: usize, file: Bytes) {
    while let Ok(Some(request)) = connection.recv_frame().await {
        let Some(answer) = chunk(&request.payload, number, &file) else {
            continue;
        };
        if connection.send_frame(request.key, answer).await.is_err() {
            return;
        }
    }
    let _ = connection.close().await;
}

/// Returns the answer to a request, which is the number of a chunk: the same number, that of the
/// server, and the chunk.
fn chunk(request: &[u8], number: usize, file: &Bytes) -> Option<Bytes> {
    let chunk = u32::from_be_bytes(request.try_into().ok()?);
    let first = (chunk as usize).checked_mul(CHUNK_BYTES)?;
    let content = file.get(first..file.len().min(first.checked_add(CHUNK_BYTES)?))?;
    let mut answer = BytesMut::with_capacity(5 + content.len());
    answer.put_u32(chunk);
    answer.put_u8(number as u8);
    answer.put_slice(content);
    Some(answer.freeze())
}
