//! One connection of a client: it joins a group, sends to it, and checks what it reads.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::ledger::{Ledger, Life, Seat};
use super::payload::{self, PAYLOAD_BYTES};
use super::wire::{Operation, Stamp, parse};

/// The number of messages that the daemon has not confirmed. A PING follows each message, and the
/// daemon answers it when the message has entered the overlay.
const WINDOW: usize = 4;
/// The receive buffer of a client's socket, which a client that reads slowly fills soon.
const SOCKET_BYTES: u32 = 32 * 1024;
const SEGMENT_BYTES: u32 = 1448;
const READ_BYTES: usize = 8 * 1024;
/// The time for a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// How fast a client sends and reads. Others may change it while the client runs.
#[derive(Debug, Default)]
pub struct Pace {
    /// The time between two messages in microseconds; 0: as fast as the daemon accepts them.
    pub send_us: AtomicU64,
    /// The time between two reads of up to 8 KB in microseconds.
    pub read_us: AtomicU64,
}

impl Pace {
    fn duration(value: &AtomicU64) -> Duration {
        Duration::from_micros(value.load(Ordering::Relaxed))
    }
}

/// Connects a client, and runs it until its connection ends. Marks the end in its log, also if the
/// returned future is dropped.
///
/// # Errors
/// If there is no connection, or if it ends. A message that is wrong fails the ledger, too.
pub async fn run_life(ledger: &Ledger, seat: Seat, address: SocketAddr, pace: &Pace) -> Result<()> {
    let mut stream = timeout(CONNECT_LIMIT, connect(address)).await??;
    let life = &*ledger.begin(seat);
    let _end = End { ledger, life };
    let (reader, mut writer) = stream.split();
    let hello = format!(
        "CONNECT {{\"verbose\":false}}\r\nSUB {} 1\r\nPING\r\n",
        life.seat.subject()
    );
    writer.write_all(hello.as_bytes()).await?;
    let client = Client {
        ledger,
        life,
        pace,
        window: Semaphore::new(0),
        pings: AtomicU32::new(0),
    };
    tokio::select! {
        ended = client.read(reader) => ended,
        ended = client.write(writer) => ended,
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(SOCKET_BYTES)?;
    // A segment on loopback can be longer than a small buffer, which stalls TCP.
    SockRef::from(&socket).set_tcp_mss(SEGMENT_BYTES)?;
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Marks the end of a connection when it is dropped.
struct End<'a> {
    ledger: &'a Ledger,
    life: &'a Life,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.life.log().ended = Some(self.ledger.now());
    }
}

struct Client<'a> {
    ledger: &'a Ledger,
    life: &'a Life,
    pace: &'a Pace,
    /// The number of messages that may be sent.
    window: Semaphore,
    /// PINGs of the daemon without a PONG.
    pings: AtomicU32,
}

impl Client<'_> {
    /// Reads until the connection ends.
    async fn read(&self, mut reader: ReadHalf<'_>) -> Result<()> {
        let (mut input, mut filled) = (vec![0; 4 * READ_BYTES], 0);
        loop {
            let end = (filled + READ_BYTES).min(input.len());
            match reader.read(&mut input[filled..end]).await? {
                0 => bail!("the daemon has closed the connection"),
                length => filled += length,
            }
            let mut rest = &input[..filled];
            while let Some(operation) = parse(&mut rest)? {
                self.handle(&operation)?;
            }
            let left = rest.len();
            input.copy_within(filled - left..filled, 0);
            filled = left;
            let pause = Pace::duration(&self.pace.read_us);
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
    }

    fn handle(&self, operation: &Operation<'_>) -> Result<()> {
        match operation {
            Operation::Message { payload, .. } => {
                let read = self.ledger.read(self.life, payload);
                if let Err(wrong) = &read {
                    let (client, life) = (self.life.seat.client, self.life.number);
                    self.ledger
                        .fail(format!("client {client}, connection {life}: {wrong}"));
                }
                read?;
            }
            Operation::Ping => drop(self.pings.fetch_add(1, Ordering::Relaxed)),
            Operation::Pong => self.confirm(),
            Operation::Error(error) => {
                bail!("the daemon reports {}", String::from_utf8_lossy(error))
            }
            Operation::Other => {}
        }
        Ok(())
    }

    /// Handles the answer to the join, or to the oldest message.
    fn confirm(&self) {
        let now = self.ledger.now();
        let mut log = self.life.log();
        if log.joined.is_none() {
            log.joined = Some(now);
            self.window.add_permits(WINDOW);
        } else {
            log.accepted_ms.push(now.as_millis() as u32);
            self.window.add_permits(1);
        }
    }

    /// Writes messages whenever the daemon has room for them. Ends only with an error.
    async fn write(&self, mut writer: WriteHalf<'_>) -> Result<()> {
        let subject = self.life.seat.subject();
        let mut sending = self.ledger.sending.subscribe();
        for number in 0.. {
            self.window.acquire().await?.forget();
            let is_sending = sending.wait_for(|sending| *sending).await;
            is_sending.context("the clients have ended")?;
            let stamp = Stamp {
                sender: self.life.number,
                number,
                sent_ns: self.ledger.now().as_nanos() as u64,
            };
            let mut bytes = Vec::with_capacity(PAYLOAD_BYTES + 64);
            for _ in 0..self.pings.swap(0, Ordering::Relaxed) {
                bytes.extend_from_slice(b"PONG\r\n");
            }
            bytes.extend_from_slice(format!("PUB {subject} {PAYLOAD_BYTES}\r\n").as_bytes());
            bytes.extend_from_slice(&payload::write(stamp));
            bytes.extend_from_slice(b"\r\nPING\r\n");
            self.life.log().written += 1;
            writer.write_all(&bytes).await?;
            let pause = Pace::duration(&self.pace.send_us);
            if !pause.is_zero() {
                sleep(pause).await;
            }
        }
        Ok(())
    }
}
