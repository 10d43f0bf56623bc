//! The body of a response on its way to the client.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::attempts::note_failure;
use super::counters::Counters;
use super::exchange::Event;
use super::link::Ticket;
use super::roster::Outcome;

/// The reason why a response is aborted.
#[derive(Debug, thiserror::Error)]
#[error("the response is aborted: {0}")]
pub(super) struct Aborted(String);

/// The body of a response.
#[derive(Debug)]
pub(super) enum GatewayBody {
    /// The whole body.
    Full(Bytes),
    /// A body that is still arriving.
    Streamed(Box<Streamed>),
}

/// A body that is still arriving.
#[derive(Debug)]
pub(super) struct Streamed {
    ticket: Ticket,
    counters: Arc<Counters>,
    /// Bytes that the client has not taken.
    next: Bytes,
    is_over: bool,
    /// The bytes that the client has taken, and the credit that the member has.
    taken: u64,
    granted: u64,
    /// The length that the response states.
    length: Option<u64>,
    window: u64,
    /// The outcome for the health of the server if the body is complete.
    outcome: Outcome,
    patience: Duration,
    sleep: Pin<Box<Sleep>>,
    /// Whether `poll_frame` waits, and `sleep` is set.
    is_waiting: bool,
}

impl Streamed {
    pub(super) fn new(
        ticket: Ticket,
        counters: Arc<Counters>,
        first: Bytes,
        length: Option<u64>,
        window: u32,
        outcome: Outcome,
        patience: Duration,
    ) -> Streamed {
        Streamed {
            ticket,
            counters,
            next: first,
            is_over: false,
            taken: 0,
            granted: window.into(),
            length,
            window: window.into(),
            outcome,
            patience,
            sleep: Box::pin(tokio::time::sleep(patience)),
            is_waiting: false,
        }
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Aborted>>> {
        loop {
            if !self.next.is_empty() {
                return Poll::Ready(Some(Ok(self.take_next())));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            let Poll::Ready(event) = self.ticket.exchange.poll_event(context) else {
                std::task::ready!(self.poll_silence(context));
                self.counters.silent.add_one();
                self.ticket.link().doubt(self.patience * 2);
                return self.abort(format!(
                    "no sign of life for {} s",
                    self.patience.as_secs_f64()
                ));
            };
            self.is_waiting = false;
            match event {
                Event::Part(part) => {
                    self.next = part.bytes;
                    self.is_over = part.is_last;
                    let here = self.taken + self.next.len() as u64;
                    let is_right = |length| here == length || (here < length && !self.is_over);
                    if !self.length.is_none_or(is_right) {
                        self.next = Bytes::new();
                        return self.abort("its length is not its Content-Length".into());
                    }
                    if self.is_over {
                        self.counters.answered.add_one();
                        self.ticket.note(self.outcome);
                    }
                }
                Event::Failed(failure) => {
                    note_failure(&self.ticket, failure.kind);
                    return self.abort(failure.reason);
                }
                Event::Lost(reason) => return self.abort(reason),
                Event::Response(_) => return self.abort("the response began twice".into()),
            }
        }
    }

    /// Gives the client the next bytes, and the member credit for as many.
    fn take_next(&mut self) -> Bytes {
        let bytes = std::mem::take(&mut self.next);
        self.taken += bytes.len() as u64;
        // Credit for each part would be a message for each part.
        if !self.is_over && self.granted - self.taken <= self.window / 2 {
            self.granted = self.taken + self.window;
            self.ticket.grant(self.granted);
        }
        bytes
    }

    /// Completes if no sign of life has come while the client waited for bytes.
    fn poll_silence(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if !std::mem::replace(&mut self.is_waiting, true) {
            self.sleep.as_mut().reset(Instant::now() + self.patience);
        }
        loop {
            std::task::ready!(self.sleep.as_mut().poll(context));
            let due = self.ticket.exchange.last_sign() + self.patience;
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(due);
        }
    }

    fn abort(&mut self, reason: String) -> Poll<Option<Result<Bytes, Aborted>>> {
        tracing::debug!("a response is aborted: {reason}");
        self.is_over = true;
        self.counters.aborted.add_one();
        Poll::Ready(Some(Err(Aborted(reason))))
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        if !self.is_over {
            self.counters.cancelled.add_one();
        }
    }
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        let bytes = match self.get_mut() {
            GatewayBody::Full(bytes) if bytes.is_empty() => Poll::Ready(None),
            GatewayBody::Full(bytes) => Poll::Ready(Some(Ok(std::mem::take(bytes)))),
            GatewayBody::Streamed(body) => body.poll_bytes(context),
        };
        bytes.map_ok(Frame::data)
    }

    fn is_end_stream(&self) -> bool {
        match self {
            GatewayBody::Full(bytes) => bytes.is_empty(),
            GatewayBody::Streamed(body) => body.is_over && body.next.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            GatewayBody::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            GatewayBody::Streamed(_) => SizeHint::default(),
        }
    }
}
