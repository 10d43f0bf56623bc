//! One request in progress: the messages about it that the connection's reader has received.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use tokio::time::Instant;

use super::super::wire::{Failure, MemberEvent, Part, RequestId, Response, UPLOAD_WINDOW};
use super::roster::Choice;

/// A message for the task that waits for the response.
#[derive(Debug)]
pub(super) enum Event {
    Response(Box<Response>),
    Part(Part),
    Failed(Failure),
    /// The connection to the switch ended, for this reason.
    Lost(String),
}

/// The reason why a message of a member is not used.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Unused {
    /// Another member has begun the response.
    Foreign,
    /// The member breaks the rules of the format.
    Malformed,
}

/// A request in progress.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) id: RequestId,
    /// The key of the messages to the member.
    pub(super) key: u32,
    /// The member that the request is for; 0 for any.
    pub(super) to: u64,
    state: Mutex<ExchangeState>,
}

#[derive(Debug)]
struct ExchangeState {
    events: VecDeque<Event>,
    reader: Option<Waker>,
    /// When a member last showed that it works on the request.
    last_sign: Instant,
    /// The member that sent the beginning of the response.
    member: Option<u64>,
    /// The bytes of the response's body that have arrived, and those that the member may send.
    received: u64,
    granted: u64,
    is_complete: bool,
    /// Whether both directions of this exchange end for themselves, as those of a stream do.
    is_stream: bool,
    /// Whether the client's direction of a stream has ended.
    is_sent: bool,
    is_failed: bool,
    /// The bytes of the request's body that the member takes.
    upload_until: u64,
    /// Whether the member has granted credit: its server takes the body.
    is_continued: bool,
    uploader: Option<Waker>,
}

impl Exchange {
    /// Creates an exchange with a member. `window` is the credit that the request grants, and
    /// `sent` is the number of bytes of its body in the first message.
    pub(super) fn new(id: RequestId, to: Option<Choice>, window: u32, sent: u64) -> Exchange {
        Exchange {
            id,
            key: to.map_or(id.key(), |choice| choice.key),
            to: to.map_or(0, |choice| choice.member),
            state: Mutex::new(ExchangeState {
                events: VecDeque::new(),
                reader: None,
                last_sign: Instant::now(),
                member: None,
                received: 0,
                granted: window.into(),
                is_complete: false,
                is_stream: false,
                is_sent: false,
                is_failed: false,
                upload_until: sent + UPLOAD_WINDOW,
                is_continued: false,
                uploader: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ExchangeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a message of a member about this request.
    pub(super) fn handle_event(&self, member: u64, event: MemberEvent) -> Result<(), Unused> {
        self.lock().handle_event(member, event)
    }

    /// Notes a sign of life.
    pub(super) fn handle_sign(&self) {
        self.lock().last_sign = Instant::now();
    }

    /// Ends the exchange because the connection has ended.
    pub(super) fn lose(&self, reason: &str) {
        let mut state = self.lock();
        state.push(Event::Lost(reason.to_owned()));
        if let Some(waker) = state.uploader.take() {
            waker.wake();
        }
    }

    /// Returns the next message.
    pub(super) fn poll_event(&self, context: &mut Context<'_>) -> Poll<Event> {
        let mut state = self.lock();
        if let Some(event) = state.events.pop_front() {
            return Poll::Ready(event);
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns the number of bytes that may be sent of a request's body after the first `sent`.
    pub(super) fn poll_upload(&self, context: &mut Context<'_>, sent: u64) -> Poll<u64> {
        let mut state = self.lock();
        if state.upload_until > sent {
            return Poll::Ready(state.upload_until - sent);
        }
        state.uploader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Completes when the server takes the body of a request with `Expect: 100-continue`.
    pub(super) fn poll_continued(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if state.is_continued {
            return Poll::Ready(());
        }
        state.uploader = Some(context.waker().clone());
        Poll::Pending
    }

    pub(super) fn last_sign(&self) -> Instant {
        self.lock().last_sign
    }

    /// Makes the exchange that of a stream.
    pub(super) fn into_stream(self) -> Exchange {
        self.lock().is_stream = true;
        self
    }

    /// Notes that the client's direction of a stream has ended in order.
    pub(super) fn note_sent(&self) {
        self.lock().is_sent = true;
    }

    /// Returns whether the whole response has arrived, or the member has given up. A stream is
    /// complete when both directions are.
    pub(super) fn is_complete(&self) -> bool {
        let state = self.lock();
        state.is_failed || (state.is_complete && (state.is_sent || !state.is_stream))
    }

    /// Grants credit up to `until` bytes of the response's body.
    pub(super) fn grant(&self, until: u64) {
        let mut state = self.lock();
        state.granted = state.granted.max(until);
    }

    /// Returns the credit to repeat, if the response has begun and is not complete.
    pub(super) fn standing_credit(&self) -> Option<u64> {
        let state = self.lock();
        (state.member.is_some() && !state.is_complete).then_some(state.granted)
    }
}

impl ExchangeState {
    fn handle_event(&mut self, member: u64, event: MemberEvent) -> Result<(), Unused> {
        let is_over = self.is_failed || (self.is_complete && !self.is_stream);
        if is_over || self.member.is_some_and(|known| known != member) {
            // A message of the request has reached a member that does not know it, so it is lost.
            if let (MemberEvent::Failed(_, failure), false) = (event, is_over) {
                self.fail(failure);
                return Ok(());
            }
            return Err(Unused::Foreign);
        }
        match event {
            MemberEvent::Response(_, response) => self.handle_response(member, response)?,
            MemberEvent::Part(_, part) => self.handle_part(part)?,
            MemberEvent::Credit(_, until) => {
                self.upload_until = self.upload_until.max(until);
                self.is_continued = true;
                if let Some(waker) = self.uploader.take() {
                    waker.wake();
                }
            }
            MemberEvent::Failed(_, failure) => self.fail(failure),
            MemberEvent::Alive(_) | MemberEvent::Pulse(..) => {}
        }
        self.last_sign = Instant::now();
        Ok(())
    }

    fn fail(&mut self, failure: Failure) {
        self.is_failed = true;
        self.push(Event::Failed(failure));
    }

    fn handle_response(&mut self, member: u64, response: Box<Response>) -> Result<(), Unused> {
        if self.member.is_some() || response.body.len() as u64 > self.granted {
            return Err(Unused::Malformed);
        }
        self.member = Some(member);
        self.received = response.body.len() as u64;
        self.is_complete = response.is_last;
        self.push(Event::Response(response));
        Ok(())
    }

    fn handle_part(&mut self, part: Part) -> Result<(), Unused> {
        let end = part.offset + part.bytes.len() as u64;
        let is_next = self.member.is_some() && part.offset == self.received && !self.is_complete;
        if !is_next || end > self.granted {
            return Err(Unused::Malformed);
        }
        self.received = end;
        self.is_complete = part.is_last;
        self.push(Event::Part(part));
        debug_assert!(self.received <= self.granted);
        Ok(())
    }

    fn push(&mut self, event: Event) {
        self.events.push_back(event);
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::FailureKind;
    use super::*;
    use bytes::Bytes;
    use hyper::{HeaderMap, StatusCode};

    const ID: RequestId = RequestId(7);

    fn response(body: &'static str) -> MemberEvent {
        let response = Response {
            status: StatusCode::OK,
            headers: HeaderMap::new(),
            body: Bytes::from_static(body.as_bytes()),
            is_last: false,
        };
        MemberEvent::Response(ID, Box::new(response))
    }

    fn part(offset: u64, body: &'static str, is_last: bool) -> MemberEvent {
        let bytes = Bytes::from_static(body.as_bytes());
        let part = Part {
            offset,
            bytes,
            is_last,
        };
        MemberEvent::Part(ID, part)
    }

    fn begun() -> Exchange {
        let exchange = Exchange::new(ID, None, 10, 0);
        exchange.handle_event(1, response("abc")).unwrap();
        exchange
    }

    #[test]
    fn a_response_is_taken_from_one_member_only() {
        let exchange = begun();
        for event in [response("xyz"), part(3, "xyz", false)] {
            assert_eq!(exchange.handle_event(2, event), Err(Unused::Foreign));
        }
        assert_eq!(exchange.handle_event(1, part(3, "def", true)), Ok(()));
        assert!(exchange.is_complete());
    }

    #[test]
    fn gaps_repetitions_and_bytes_beyond_the_credit_are_refused() {
        for event in [
            part(4, "def", false),
            part(0, "abc", false),
            part(3, "12345678", false),
            response("abc"),
        ] {
            assert_eq!(begun().handle_event(1, event), Err(Unused::Malformed));
        }
        let early = Exchange::new(ID, None, 10, 0);
        let refused = early.handle_event(1, part(0, "abc", false));
        assert_eq!(refused, Err(Unused::Malformed), "no response has begun");
    }

    #[test]
    fn each_direction_of_a_stream_ends_for_itself() {
        let stream = Exchange::new(ID, None, 10, 0).into_stream();
        stream.handle_event(1, response("")).unwrap();
        stream.handle_event(1, part(0, "abc", true)).unwrap();
        assert!(!stream.is_complete(), "the client still sends");
        assert_eq!(stream.handle_event(1, MemberEvent::Credit(ID, 999)), Ok(()));
        let late = stream.handle_event(1, part(3, "d", false));
        assert_eq!(late, Err(Unused::Malformed));
        stream.note_sent();
        assert!(stream.is_complete());

        let reset = Exchange::new(ID, None, 10, 0).into_stream();
        reset.handle_event(1, response("")).unwrap();
        reset.handle_event(1, part(0, "abc", true)).unwrap();
        let failure = Failure::new(FailureKind::Origin, "reset");
        let failed = MemberEvent::Failed(ID, failure);
        assert_eq!(reset.handle_event(1, failed), Ok(()));
        assert!(reset.is_complete());
    }

    #[test]
    fn a_member_that_does_not_know_the_request_ends_it() {
        let exchange = begun();
        let failure = Failure::new(FailureKind::Unknown, "not known");
        let failed = MemberEvent::Failed(ID, failure);
        assert_eq!(exchange.handle_event(2, failed), Ok(()));
        assert!(exchange.is_complete());
    }
}
