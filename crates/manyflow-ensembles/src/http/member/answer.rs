//! The answer to one request: the server's response in messages.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};
use hyper::header::{CONTENT_LENGTH, EXPECT};
use hyper::http::uri::{Parts, Scheme};
use hyper::{StatusCode, Uri};
use hyper_util::client::legacy::Error;
use tokio::time::Instant;

use super::super::headers::{is_chunked, remove_hop_by_hop};
use super::super::wire::{
    Failure, FailureKind, MemberEvent, PART_BYTES_MAX, Part, Request, Response, UPLOAD_WINDOW,
    check_headers,
};
use super::body::RequestBody;
use super::counters::add_one;
use super::flow::Flow;
use super::peer::Guard;
use super::{Origin, Shared};

/// Bytes of a body in one message, unless they come as one. Longer ones would make the responses of
/// other requests wait.
pub(super) const PART_BYTES: usize = 64 << 10;

/// The reason why a response or a stream ends early.
pub(super) enum End {
    Failed(Failure),
    /// The gateway no longer wants the response, or the connection has ended.
    Unwanted,
}

/// Answers a request.
pub(super) async fn run(guard: Guard, flow: Arc<Flow>, request: Request) {
    let answered = answer(&guard, &flow, request).await;
    conclude(guard, answered).await;
}

/// Counts how a request or stream has ended, and reports a failure to the gateway.
pub(super) async fn conclude(mut guard: Guard, answered: Result<(), End>) {
    let counters = &guard.peer.shared.counters;
    let failure = match answered {
        Ok(()) => {
            guard.is_counted = true;
            return add_one(&counters.answered);
        }
        Err(End::Unwanted) => return,
        Err(End::Failed(failure)) => failure,
    };
    guard.is_counted = true;
    add_one(match failure.kind {
        FailureKind::Refused | FailureKind::Unreachable => &counters.refused,
        _ => &counters.failed,
    });
    if failure.kind == FailureKind::Late {
        add_one(&counters.late);
    }
    // If the connection has ended, nobody waits for the answer.
    let _ = guard
        .peer
        .send(MemberEvent::Failed(guard.id, failure))
        .await;
}

async fn answer(guard: &Guard, flow: &Arc<Flow>, request: Request) -> Result<(), End> {
    let (peer, id) = (&guard.peer, guard.id);
    let window = u64::from(request.window);
    let response = ask(guard, flow, request).await.map_err(End::Failed)?;
    let (parts, mut body) = response.into_parts();
    let mut headers = parts.headers;
    let origin = |reason: &str| End::Failed(Failure::new(FailureKind::Origin, reason));
    if is_chunked(&headers).map_err(origin)? {
        // RFC 9112 section 6.3: the length that came with it is not that of the body.
        headers.remove(CONTENT_LENGTH);
    }
    remove_hop_by_hop(&mut headers);
    if parts.status.is_informational() {
        return Err(origin(
            "the server switched protocols, which no request asks for",
        ));
    }
    check_headers(&headers, 0).map_err(|error| origin(&format!("the response: {error}")))?;
    let mut ahead = Ahead::default();
    ahead.read(&mut body, window.min(PART_BYTES as u64) as usize);
    let first = ahead.take(window);
    let mut sent = first.len() as u64;
    let is_last = ahead.is_empty() && body.is_end_stream();
    let response = Response {
        status: parts.status,
        headers,
        body: first,
        is_last,
    };
    let response = MemberEvent::Response(id, Box::new(response));
    peer.send(response).await.map_err(|_| End::Unwanted)?;
    let mut is_over = is_last;
    while !is_over {
        if ahead.is_empty() && !body.is_end_stream() {
            let limit = peer.shared.options.answer_timeout;
            let waited = tokio::time::timeout(limit, ahead.wait(&mut body)).await;
            let waited = waited.map_err(|_| {
                let seconds = limit.as_secs_f64();
                let reason = format!("the server has paused in its response for {seconds} s");
                End::Failed(Failure::new(FailureKind::Late, &reason))
            })?;
            waited.map_err(|error| {
                let reason = format!("the server did not complete its response: {error}");
                origin(&reason)
            })?;
        }
        let mut bytes = Bytes::new();
        if !ahead.is_empty() {
            bytes = ahead.take(flow.credit(sent).await.ok_or(End::Unwanted)?);
        }
        is_over = ahead.is_empty() && (bytes.is_empty() || body.is_end_stream());
        let part = Part {
            offset: sent,
            bytes,
            is_last: is_over,
        };
        sent += part.bytes.len() as u64;
        let sending = peer.send(MemberEvent::Part(id, part));
        sending.await.map_err(|_| End::Unwanted)?;
    }
    Ok(())
}

/// Sends the request to the server, and waits for the head of its response.
async fn ask(
    guard: &Guard,
    flow: &Arc<Flow>,
    request: Request,
) -> Result<hyper::Response<Incoming>, Failure> {
    let shared = &guard.peer.shared;
    let refused = |reason: String| Failure::new(FailureKind::Refused, &reason);
    let Some(origin) = &shared.options.origin else {
        return Err(refused(
            "the member has no HTTP server: start it with --http".to_owned(),
        ));
    };
    let mut parts = Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(origin.0.clone());
    parts.path_and_query = Some(request.head.target);
    let uri = Uri::from_parts(parts).map_err(|error| refused(error.to_string()))?;
    let sent = request.body.len() as u64;
    let body = if request.is_last {
        RequestBody::whole(request.body)
    } else {
        let control = guard.peer.control.clone();
        RequestBody::streamed(guard.id, request.body, Arc::clone(flow), control)
    };
    let mut headers = request.head.headers;
    // The client of the server frames the body, whatever the gateway states.
    remove_hop_by_hop(&mut headers);
    if request.is_last {
        headers.remove(CONTENT_LENGTH);
    }
    let mut asked = hyper::Request::new(body);
    *asked.method_mut() = request.head.method;
    *asked.uri_mut() = uri;
    if headers.contains_key(EXPECT) {
        pass_continue(&mut asked, guard, sent);
    }
    *asked.headers_mut() = headers;
    let answered = in_time(shared, flow, shared.client.request(asked)).await;
    let answered = answered.map_err(|limit| {
        let (origin, seconds) = (&origin.0, limit.as_secs_f64());
        let reason = format!("the server at http://{origin} has not answered for {seconds} s");
        Failure::new(FailureKind::Late, &reason)
    })?;
    answered.map_err(|error| describe(shared, origin, &error))
}

/// Lets the server's 100 reach the gateway: as credit, which the gateway has already.
fn pass_continue(asked: &mut hyper::Request<RequestBody>, guard: &Guard, sent: u64) {
    let (control, id) = (guard.peer.control.clone(), guard.id);
    hyper::ext::on_informational(asked, move |response| {
        if response.status() == StatusCode::CONTINUE {
            control.push(MemberEvent::Credit(id, sent + UPLOAD_WINDOW));
        }
    });
}

/// Waits for the beginning of the response. Returns the limit if the server has got the request and
/// does nothing for that time.
async fn in_time<T>(
    shared: &Shared,
    flow: &Flow,
    answering: impl Future<Output = T>,
) -> Result<T, Duration> {
    let limit = shared.options.answer_timeout;
    let mut answering = std::pin::pin!(answering);
    loop {
        let since = flow.server_idle_since().unwrap_or_else(Instant::now);
        if let Ok(answered) = tokio::time::timeout_at(since + limit, &mut answering).await {
            return Ok(answered);
        }
        let idle = flow.server_idle_since().map(|since| since.elapsed());
        if idle.is_some_and(|idle| idle >= limit) {
            return Err(limit);
        }
    }
}

/// Returns the failure that an error of the client stands for.
fn describe(shared: &Shared, Origin(origin): &Origin, error: &Error) -> Failure {
    let mut reason = format!("the server at http://{origin}: {error}");
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        reason += &format!(": {cause}");
        source = cause.source();
    }
    let kind = match error.is_connect() {
        true => FailureKind::Unreachable,
        false => FailureKind::Origin,
    };
    if error.is_connect() {
        shared.health.note_unreachable();
    }
    Failure::new(kind, &reason)
}

/// Bytes of a body that have been read and not sent.
#[derive(Default)]
struct Ahead(Bytes);

impl Ahead {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes at most `most` bytes, and at most a message of them.
    fn take(&mut self, most: u64) -> Bytes {
        let length = self.0.len().min(PART_BYTES_MAX);
        self.0.split_to(most.min(length as u64) as usize)
    }

    /// Reads what is there without waiting, until there are at least `enough` bytes. An error is
    /// found again when the rest is awaited.
    fn read(&mut self, body: &mut Incoming, enough: usize) {
        let mut read = BytesMut::new();
        let mut context = Context::from_waker(Waker::noop());
        while self.0.len() + read.len() < enough && !body.is_end_stream() {
            let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut *body).poll_frame(&mut context) else {
                break;
            };
            match frame.into_data() {
                Ok(bytes) if self.0.is_empty() => self.0 = bytes,
                Ok(bytes) => read.extend_from_slice(&bytes),
                Err(_trailers) => {}
            }
        }
        if !read.is_empty() {
            self.0 = [&self.0[..], &read[..]].concat().into();
        }
    }

    /// Waits for bytes, or for the end of the body. Trailers are dropped (RFC 9110 section 6.5.1).
    async fn wait(&mut self, body: &mut Incoming) -> Result<(), hyper::Error> {
        while self.0.is_empty() {
            match body.frame().await {
                Some(frame) => self.0 = frame?.into_data().unwrap_or_default(),
                None => break,
            }
        }
        Ok(())
    }
}
