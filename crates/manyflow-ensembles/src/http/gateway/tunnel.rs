//! Streams of TCP clients, each passed to one member for its life.

mod ports;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use manyflow_net::inbound::Inbound;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, sleep_until};

use super::super::wire::{Failure, Open, PART_BYTES_MAX, Part, ToMember};
use super::Shared;
use super::attempts::{Kind, Problem, note_failure};
use super::exchange::Event;
use super::link::Ticket;
use super::request::window_for;
use super::roster::Outcome;

/// Bytes of a client in one message. Longer ones would make other streams wait.
const PART_BYTES: usize = 64 << 10;
const _: () = assert!(PART_BYTES <= PART_BYTES_MAX);
/// The time between two looks at whether the member of a stream is silent.
const WATCH_TICK: Duration = Duration::from_millis(25);

/// The way in which a TCP client names the server of its stream.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum TunnelPort {
    /// The client names none: each connection goes to the first server of a member.
    Plain,
    /// By SOCKS5 (RFC 1928): the command CONNECT, without authentication.
    Socks5,
    /// By the method CONNECT of HTTP (RFC 9110 section 9.3.6).
    Connect,
}

/// The client of a stream, as servers see it that read the PROXY protocol.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    client: SocketAddr,
    local: SocketAddr,
}

/// Serves a TCP client.
pub(super) async fn serve_client(
    stream: Inbound,
    client: SocketAddr,
    shared: &Arc<Shared>,
    port: TunnelPort,
) {
    if let Err(error) = ports::serve(stream, client, shared, port).await {
        tracing::debug!(%error, "the stream of {client} ended");
    }
}

/// A stream that a server has accepted.
struct Accepted {
    ticket: Ticket,
    window: u32,
}

/// Opens a stream at a member whose server accepts it.
async fn open(shared: &Shared, ends: Ends, server: &str) -> Result<Accepted, Problem> {
    shared.counters.streams.add_one();
    let opened = try_members(shared, ends, server).await;
    if let Err(problem) = &opened {
        tracing::debug!("a stream of {}: {}", ends.client, problem.reason);
        match problem.kind {
            Kind::Unavailable => shared.counters.unavailable.add_one(),
            _ => shared.counters.failed.add_one(),
        }
    }
    opened
}

/// Tries each member once. The client has sent nothing so far, so each may be tried.
async fn try_members(shared: &Shared, ends: Ends, server: &str) -> Result<Accepted, Problem> {
    let mut tried = Vec::new();
    let mut last: Option<Problem> = None;
    let deadline = Instant::now() + shared.options.timeout;
    loop {
        let link = shared.link();
        let link = link.map_err(|reason| Problem::new(Kind::Unavailable, reason))?;
        link.find_members().await;
        let choice = link.roster().choose(Instant::now(), &tried, true);
        let is_late = Instant::now() >= deadline;
        // Without a known member, the switch chooses: once.
        if let Some(problem) = last.take_if(|_| choice.is_none() || is_late) {
            return Err(problem);
        }
        tried.extend(choice.map(|choice| choice.member));
        let window = window_for(link.in_progress(), shared.options.window);
        let Some(ticket) = link.open_stream(choice, window) else {
            return Err(Problem::new(
                Kind::Unavailable,
                "too many streams are in progress",
            ));
        };
        match try_member(shared, ticket, ends, server, window).await {
            Ok(accepted) => return Ok(accepted),
            Err(problem) => last = Some(problem),
        }
        shared.counters.refused.add_one();
    }
}

async fn try_member(
    shared: &Shared,
    ticket: Ticket,
    ends: Ends,
    server: &str,
    window: u32,
) -> Result<Accepted, Problem> {
    let failed = |reason: &str| Problem::new(Kind::Failed, reason);
    let open = ToMember::Open(Box::new(Open {
        id: ticket.id(),
        window,
        alive_ms: shared.alive_ms(),
        to: ticket.member(),
        client: ends.client,
        local: ends.local,
        server: server.to_owned(),
    }));
    let sent = ticket.send(open.encode()).await;
    sent.map_err(|reason| failed(&reason))?;
    let patience = shared.options.timeout;
    let event = tokio::select! {
        event = ticket.next_event(patience) => event,
        () = until_suspected(&ticket) => return Err(failed("the member is silent")),
    };
    match event {
        Some(Event::Response(_)) => {
            ticket.note(Outcome::Answered);
            Ok(Accepted { ticket, window })
        }
        Some(Event::Failed(failure)) => {
            note_failure(&ticket, failure.kind);
            Err(Problem::of(failure))
        }
        Some(Event::Lost(reason)) => Err(failed(&reason)),
        Some(Event::Part(_)) => Err(failed("the stream has no beginning")),
        None => Err(failed("the member shows no sign of life")),
    }
}

/// Waits until the member of a stream is silent while others answer.
async fn until_suspected(ticket: &Ticket) {
    while !ticket.is_suspected() || ticket.member() == 0 {
        sleep(WATCH_TICK).await;
    }
}

/// The reason why a stream ends before both sides have closed it.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("the client ended the stream: {0}")]
    Client(#[from] io::Error),
    #[error("{0}")]
    Member(String),
}

/// Passes the bytes of a stream until both sides have closed it. `early` are bytes of the client
/// that were read before. A stream that fails is reset.
async fn pass(
    shared: &Shared,
    client: Inbound,
    early: Bytes,
    accepted: Accepted,
) -> Result<(), StreamError> {
    socket2::SockRef::from(client.as_ref()).set_linger(Some(Duration::ZERO))?;
    let Accepted { ticket, window } = accepted;
    let passed = tokio::select! {
        passed = async {
            tokio::try_join!(
                pass_to_member(&ticket, client.as_ref(), early),
                pass_to_client(&ticket, client.clone(), window.into()),
            )
        } => passed,
        // Nobody reads behind the client's end, or while the member takes no bytes.
        () = client.reset() => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        () = until_silent(&ticket, shared.options.timeout) => {
            shared.counters.silent.add_one();
            Err(StreamError::Member("the member shows no sign of life".to_owned()))
        }
    };
    match passed {
        Ok(_) => {
            // Both sides have closed: nothing is left that a reset could discard.
            socket2::SockRef::from(client.as_ref()).set_linger(None)?;
            shared.counters.answered.add_one();
            Ok(())
        }
        Err(error) => {
            match error {
                StreamError::Client(_) => shared.counters.cancelled.add_one(),
                StreamError::Member(_) => shared.counters.streams_reset.add_one(),
            }
            Err(error)
        }
    }
}

/// Waits until the member has given no sign of life for `patience`.
async fn until_silent(ticket: &Ticket, patience: Duration) {
    loop {
        let due = ticket.exchange.last_sign() + patience;
        if due <= Instant::now() {
            return;
        }
        sleep_until(due).await;
    }
}

async fn pass_to_member(
    ticket: &Ticket,
    reading: &TcpStream,
    mut early: Bytes,
) -> Result<(), StreamError> {
    let mut sent = 0;
    loop {
        let room = std::future::poll_fn(|context| ticket.exchange.poll_upload(context, sent));
        let room = room.await.min(PART_BYTES as u64) as usize;
        let bytes = match early.is_empty() {
            true => read(reading, room).await?,
            false => early.split_to(room.min(early.len())),
        };
        let part = Part {
            offset: sent,
            is_last: bytes.is_empty(),
            bytes,
        };
        sent += part.bytes.len() as u64;
        let is_last = part.is_last;
        let part = ToMember::Part(ticket.id(), part);
        ticket
            .send(part.encode())
            .await
            .map_err(StreamError::Member)?;
        if is_last {
            ticket.exchange.note_sent();
            return Ok(());
        }
    }
}

/// Waits for at most `most` bytes; none at the end. A stream that waits has no buffer.
async fn read(reading: &TcpStream, most: usize) -> io::Result<Bytes> {
    loop {
        reading.readable().await?;
        let mut buffer = BytesMut::with_capacity(most).limit(most);
        match reading.try_read_buf(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(buffer.into_inner().freeze()),
        }
    }
}

async fn pass_to_client(
    ticket: &Ticket,
    mut writing: Inbound,
    window: u64,
) -> Result<(), StreamError> {
    let (mut taken, mut granted) = (0, window);
    loop {
        let event = std::future::poll_fn(|context| ticket.exchange.poll_event(context)).await;
        let part = match event {
            Event::Part(part) => part,
            Event::Failed(Failure { reason, .. }) | Event::Lost(reason) => {
                return Err(StreamError::Member(reason));
            }
            Event::Response(_) => {
                return Err(StreamError::Member("the stream began twice".to_owned()));
            }
        };
        writing.write_all(&part.bytes).await?;
        if part.is_last {
            writing.shutdown().await?;
            return Ok(());
        }
        taken += part.bytes.len() as u64;
        // Credit for each part would be a message for each part.
        if granted - taken <= window / 2 {
            granted = taken + window;
            ticket.grant(granted);
        }
    }
}
