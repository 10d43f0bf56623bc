//! One connection of a client: a member of ordered groups, which sends to them and leaves them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use manyflow_order::Service;
use manyflow_rig::overlay_lab::wire::{Operation, parse};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::journal::{Journal, Life};

/// The groups, of which a client joins one or both.
pub(super) const GROUPS: [&str; 2] = ["soak.a", "soak.b"];

/// The number of messages that the daemon has not confirmed. A PING follows each message, and the
/// daemon answers it when the message has entered the overlay.
const WINDOW: u32 = 8;
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
const READ_BYTES: usize = 16 * 1024;
/// The length of a payload beyond the number of the message.
const FILL_BYTES_MAX: usize = 1_500;
/// The time between two messages.
const PAUSE_MS: std::ops::Range<u64> = 10..90;
/// The number of messages between two departures, on average.
const STAY_MESSAGES: u32 = 150;

/// The actions of clients.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// They send, leave their groups and come back with a new connection.
    Change,
    /// They send.
    Send,
    /// They only read.
    Read,
}

/// Connects a client, and runs it until its connection ends. Marks the end in its log, also if the
/// returned future is dropped.
///
/// # Errors
/// If there is no connection, if it ends, or if the daemon breaks the protocol.
pub(super) async fn run_life(
    journal: &Journal,
    client: usize,
    address: SocketAddr,
    stage: watch::Receiver<Stage>,
    seed: u64,
) -> Result<()> {
    let mut stream = timeout(CONNECT_LIMIT, TcpStream::connect(address)).await??;
    stream.set_nodelay(true)?;
    let end = End(journal.begin(client));
    let (reader, writer) = stream.split();
    let member = Member {
        journal,
        life: &end.0,
        groups: groups_of(client),
        unanswered: AtomicU32::new(0),
        answered: Notify::new(),
        pings: AtomicU32::new(0),
    };
    tokio::select! {
        ended = member.read(reader) => ended,
        ended = member.write(writer, stage, Pcg64Mcg::seed_from_u64(seed)) => ended,
    }
}

/// Returns the groups of a client.
pub(super) fn groups_of(client: usize) -> Vec<Arc<str>> {
    let groups = match client % 3 {
        0 => &GROUPS[..],
        1 => &GROUPS[..1],
        _ => &GROUPS[1..],
    };
    groups.iter().map(|group| Arc::from(*group)).collect()
}

/// Marks the end of a connection when it is dropped.
struct End(Arc<Life>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.log().is_gone = true;
    }
}

struct Member<'a> {
    journal: &'a Journal,
    life: &'a Life,
    groups: Vec<Arc<str>>,
    /// The PINGs without an answer.
    unanswered: AtomicU32,
    /// Notified of each answer.
    answered: Notify,
    /// PINGs of the daemon without a PONG.
    pings: AtomicU32,
}

impl Member<'_> {
    /// Reads until the connection ends.
    async fn read(&self, mut reader: ReadHalf<'_>) -> Result<()> {
        let mut input = Vec::new();
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match reader.read(&mut buffer).await? {
                0 => bail!("the daemon has closed the connection"),
                length => input.extend_from_slice(&buffer[..length]),
            }
            let mut rest = input.as_slice();
            while let Some(operation) = parse(&mut rest)? {
                self.handle(&operation)?;
            }
            let taken = input.len() - rest.len();
            input.drain(..taken);
        }
    }

    fn handle(&self, operation: &Operation<'_>) -> Result<()> {
        match operation {
            Operation::Message { subject, payload } => {
                let mut log = self.life.log();
                match subject.starts_with(b"$MF.views.") {
                    true => log.add_published(payload)?,
                    false => log.add_delivered(number_of(payload)?),
                }
            }
            Operation::Ping => drop(self.pings.fetch_add(1, Ordering::Relaxed)),
            Operation::Pong => {
                self.unanswered.fetch_sub(1, Ordering::Relaxed);
                self.answered.notify_one();
            }
            Operation::Error(error) => {
                bail!("the daemon reports {}", String::from_utf8_lossy(error))
            }
            Operation::Other => {}
        }
        Ok(())
    }

    /// Joins the groups, sends, and leaves. Ends only with an error.
    async fn write(
        &self,
        mut writer: WriteHalf<'_>,
        stage: watch::Receiver<Stage>,
        mut random: Pcg64Mcg,
    ) -> Result<()> {
        writer.write_all(b"CONNECT {\"verbose\":false}\r\n").await?;
        for (sid, group) in self.groups.iter().enumerate() {
            let join = format!("SUB $MF.order.{group} {sid}\r\n");
            writer.write_all(join.as_bytes()).await?;
        }
        loop {
            sleep(Duration::from_millis(random.random_range(PAUSE_MS))).await;
            for _ in 0..self.pings.swap(0, Ordering::Relaxed) {
                writer.write_all(b"PONG\r\n").await?;
            }
            let stage = *stage.borrow();
            // A client learns its name with its first view.
            if stage == Stage::Read || self.life.log().name.is_none() {
                continue;
            }
            if stage == Stage::Change && random.random_ratio(1, STAY_MESSAGES) {
                self.leave(&mut writer).await?;
            }
            let place = random.random_range(0..self.groups.len());
            if self.unanswered.load(Ordering::Relaxed) < WINDOW {
                let message = self.message(&self.groups[place], &mut random);
                self.unanswered.fetch_add(1, Ordering::Relaxed);
                writer.write_all(&message).await?;
            }
        }
    }

    /// Notes a message, and returns its bytes.
    fn message(&self, group: &Arc<str>, random: &mut Pcg64Mcg) -> Vec<u8> {
        let service = match random.random_range(0..20) {
            0 => Service::Unreliable,
            1 => Service::Reliable,
            2..4 => Service::Fifo,
            4..6 => Service::Causal,
            6..14 => Service::Agreed,
            _ => Service::Safe,
        };
        let length = 8 + random.random_range(0..FILL_BYTES_MAX);
        let mut bytes = format!("PUB $MF.{service}.{group} {length}\r\n").into_bytes();
        let number = self.journal.next_message();
        bytes.extend_from_slice(&number.to_be_bytes());
        bytes.resize(bytes.len() + length - 8, b'.');
        bytes.extend_from_slice(b"\r\nPING\r\n");
        // Noted before it can arrive anywhere.
        self.life.log().add_sent(number, service, group);
        bytes
    }

    /// Leaves all groups, and ends the connection when the daemon has answered.
    async fn leave(&self, writer: &mut WriteHalf<'_>) -> Result<()> {
        for sid in 0..self.groups.len() {
            writer
                .write_all(format!("UNSUB {sid}\r\n").as_bytes())
                .await?;
        }
        self.unanswered.fetch_add(1, Ordering::Relaxed);
        writer.write_all(b"PING\r\n").await?;
        while self.unanswered.load(Ordering::Relaxed) > 0 {
            self.answered.notified().await;
        }
        bail!("the client has left its groups")
    }
}

/// Returns the number of a message.
fn number_of(payload: &[u8]) -> Result<u64> {
    let bytes = payload
        .first_chunk()
        .context("a payload without a number")?;
    Ok(u64::from_be_bytes(*bytes))
}
