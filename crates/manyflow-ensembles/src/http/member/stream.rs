//! A stream between a client of the gateway and a TCP server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use hyper::{HeaderMap, StatusCode};
use manyflow_net::address::Address;
use manyflow_net::inbound::until_reset;
use proxy_header::{ProxiedAddress, ProxyHeader};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::super::wire::{Failure, FailureKind, MemberEvent, Open, Part, Response};
use super::answer::{End, PART_BYTES, conclude};
use super::body::Uptake;
use super::flow::Flow;
use super::peer::Guard;
use super::{CONNECT_TIMEOUT, Shared};

/// Passes the bytes of a stream in both directions until both sides have closed, or one fails.
pub(super) async fn run(guard: Guard, flow: Arc<Flow>, open: Open) {
    let passed = pass(&guard, &flow, &open).await;
    conclude(guard, passed).await;
}

async fn pass(guard: &Guard, flow: &Arc<Flow>, open: &Open) -> Result<(), End> {
    let server = find(&guard.peer.shared, open).map_err(End::Failed)?;
    let mut stream = connect(guard, open, server).await.map_err(End::Failed)?;
    let accepted = Response {
        status: StatusCode::OK,
        headers: HeaderMap::new(),
        body: Bytes::new(),
        is_last: false,
    };
    let accepted = MemberEvent::Response(guard.id, Box::new(accepted));
    let sent = guard.peer.send(accepted).await;
    sent.map_err(|_| End::Unwanted)?;
    let (reading, writing) = stream.split();
    let failed = |error: io::Error| {
        let reason = format!("the server {server} ended the stream: {error}");
        End::Failed(Failure::new(FailureKind::Origin, &reason))
    };
    let pass = async {
        tokio::try_join!(
            pass_to_server(guard, flow, writing, failed),
            pass_to_gateway(guard, flow, &reading, failed),
        )
    };
    tokio::select! {
        passed = pass => passed.map(drop)?,
        // Nobody reads behind the server's end, or without credit.
        () = until_reset(reading.as_ref()) => {
            return Err(failed(io::ErrorKind::ConnectionReset.into()));
        }
    }
    // Both sides have closed: nothing is left that a reset could discard.
    let _ = socket2::SockRef::from(&stream).set_linger(None);
    Ok(())
}

/// Finds the server that the stream is for.
fn find<'a>(shared: &'a Shared, open: &Open) -> Result<&'a Address, Failure> {
    let mut servers = shared.options.tcp_servers.iter();
    let found = match open.server.as_str() {
        "" => servers.next(),
        name => servers.find(|server| server.to_string() == name),
    };
    found.ok_or_else(|| {
        let reason = match open.server.as_str() {
            "" => "the member has no TCP server: start it with --tcp".to_owned(),
            name => format!("the member has no TCP server {name}: start it with --tcp {name}"),
        };
        Failure::new(FailureKind::Refused, &reason)
    })
}

async fn connect(guard: &Guard, open: &Open, server: &Address) -> Result<TcpStream, Failure> {
    let shared = &guard.peer.shared;
    let connected = timeout(CONNECT_TIMEOUT, connect_to(shared, open, server)).await;
    let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    connected.map_err(|error| {
        shared.health.note_unreachable();
        let reason = format!("the server {server} cannot be reached: {error}");
        Failure::new(FailureKind::Unreachable, &reason)
    })
}

async fn connect_to(shared: &Shared, open: &Open, server: &Address) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(&server.resolve().await?[..]).await?;
    stream.set_nodelay(true)?;
    // A stream that ends early is reset, so that the server does not take it for complete.
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO))?;
    if shared.options.proxy_protocol {
        let address = ProxiedAddress::stream(open.client, open.local);
        let mut header = Vec::new();
        let encoded = ProxyHeader::with_address(address).encode_v2(&mut header);
        encoded.map_err(io::Error::other)?;
        stream.write_all(&header).await?;
    }
    Ok(stream)
}

async fn pass_to_server(
    guard: &Guard,
    flow: &Arc<Flow>,
    mut writing: WriteHalf<'_>,
    failed: impl Fn(io::Error) -> End,
) -> Result<(), End> {
    let mut uptake = Uptake::new(guard.id, Arc::clone(flow), guard.peer.control.clone(), 0);
    loop {
        let part = std::future::poll_fn(|context| flow.poll_part(context)).await;
        let part = part.map_err(|broken| {
            End::Failed(Failure::new(FailureKind::Unknown, &broken.to_string()))
        })?;
        writing.write_all(&part.bytes).await.map_err(&failed)?;
        if part.is_last {
            return writing.shutdown().await.map_err(failed);
        }
        uptake.take(part.bytes.len() as u64);
    }
}

async fn pass_to_gateway(
    guard: &Guard,
    flow: &Flow,
    reading: &ReadHalf<'_>,
    failed: impl Fn(io::Error) -> End,
) -> Result<(), End> {
    let mut sent = 0;
    loop {
        let credit = flow.credit(sent).await.ok_or(End::Unwanted)?;
        let bytes = read(reading, credit).await.map_err(&failed)?;
        let part = Part {
            offset: sent,
            is_last: bytes.is_empty(),
            bytes,
        };
        sent += part.bytes.len() as u64;
        let is_last = part.is_last;
        let sending = guard.peer.send(MemberEvent::Part(guard.id, part));
        sending.await.map_err(|_| End::Unwanted)?;
        if is_last {
            return Ok(());
        }
    }
}

/// Waits for at most `most` bytes; none at the end. A stream that waits has no buffer.
async fn read(reading: &ReadHalf<'_>, most: u64) -> io::Result<Bytes> {
    loop {
        reading.readable().await?;
        let length = most.min(PART_BYTES as u64) as usize;
        let mut buffer = BytesMut::with_capacity(length).limit(length);
        match reading.try_read_buf(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(buffer.into_inner().freeze()),
        }
    }
}
