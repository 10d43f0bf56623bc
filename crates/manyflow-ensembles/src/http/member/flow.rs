//! The parts of a request's body that have arrived, and the credit for its response.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::super::wire::{Part, UPLOAD_WINDOW};

/// The time without a message of the gateway after which a response that needs credit is given up:
/// several times the interval at which a gateway repeats the credit.
const UNWANTED_AFTER: Duration = Duration::from_secs(60);

/// The state of a request in progress that the connection's reader and the request's task share.
#[derive(Debug)]
pub(super) struct Flow(Mutex<FlowState>);

#[derive(Debug)]
struct FlowState {
    parts: VecDeque<Part>,
    body_reader: Option<Waker>,
    /// The bytes of the request's body that have arrived, and those that may come.
    received: u64,
    granted: u64,
    is_complete: bool,
    /// A part was missing, repeated or beyond the credit.
    is_broken: bool,
    /// The bytes of the response's body that the gateway takes.
    until: u64,
    writer: Option<Waker>,
    heard: Instant,
    /// When the server last took a part of the request's body.
    taken: Instant,
}

/// The request's body is not complete, because a part of it is missing.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a part of the request's body is missing: the switch may have divided the request among \
     members (use --policy affinity)"
)]
pub(super) struct Broken;

impl Flow {
    /// Creates the state. `window` is the credit for the response, and `received` is the length of
    /// the body in the first message.
    pub(super) fn new(window: u32, received: u64, is_complete: bool) -> Flow {
        Flow(Mutex::new(FlowState {
            parts: VecDeque::new(),
            body_reader: None,
            received,
            granted: received + UPLOAD_WINDOW,
            is_complete,
            is_broken: false,
            until: window.into(),
            writer: None,
            heard: Instant::now(),
            taken: Instant::now(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, FlowState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles a part of the request's body.
    pub(super) fn handle_part(&self, part: Part) {
        let mut state = self.lock();
        state.heard = Instant::now();
        let end = part.offset + part.bytes.len() as u64;
        let is_next = part.offset == state.received && !state.is_complete;
        if is_next && end <= state.granted {
            state.received = end;
            state.is_complete = part.is_last;
            state.parts.push_back(part);
        } else {
            state.is_broken = true;
        }
        debug_assert!(state.received <= state.granted);
        if let Some(waker) = state.body_reader.take() {
            waker.wake();
        }
    }

    /// Ends a body of which parts are missing, when the response has ended before it: otherwise its
    /// server would wait for them.
    pub(super) fn abandon(&self) {
        let mut state = self.lock();
        state.is_broken |= !state.is_complete;
        if let Some(waker) = state.body_reader.take() {
            waker.wake();
        }
    }

    /// Handles credit for the response.
    pub(super) fn handle_credit(&self, until: u64) {
        let mut state = self.lock();
        state.heard = Instant::now();
        state.until = state.until.max(until);
        if let Some(waker) = state.writer.take() {
            waker.wake();
        }
    }

    /// Returns the next part of the request's body.
    pub(super) fn poll_part(&self, context: &mut Context<'_>) -> Poll<Result<Part, Broken>> {
        let mut state = self.lock();
        if state.is_broken {
            return Poll::Ready(Err(Broken));
        }
        if let Some(part) = state.parts.pop_front() {
            return Poll::Ready(Ok(part));
        }
        state.body_reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// Notes that the server takes a part of the request's body.
    pub(super) fn note_taken(&self) {
        self.lock().taken = Instant::now();
    }

    /// Returns since when everybody has waited for the server: it has taken no further part of the
    /// request. Returns `None` while the server waits for the next part.
    pub(super) fn server_idle_since(&self) -> Option<Instant> {
        let state = self.lock();
        state.body_reader.is_none().then_some(state.taken)
    }

    /// Permits the gateway to send the request's body up to `until`.
    pub(super) fn grant(&self, until: u64) {
        let mut state = self.lock();
        state.granted = state.granted.max(until);
    }

    /// Waits for credit after the first `sent` bytes of the response, and returns its length.
    /// Returns `None` if the gateway no longer wants the response.
    pub(super) async fn credit(&self, sent: u64) -> Option<u64> {
        loop {
            let credit = std::future::poll_fn(|context| self.poll_credit(context, sent));
            if let Ok(credit) = tokio::time::timeout(UNWANTED_AFTER, credit).await {
                return Some(credit);
            }
            if self.lock().heard.elapsed() >= UNWANTED_AFTER {
                return None;
            }
        }
    }

    fn poll_credit(&self, context: &mut Context<'_>, sent: u64) -> Poll<u64> {
        let mut state = self.lock();
        if state.until > sent {
            return Poll::Ready(state.until - sent);
        }
        state.writer = Some(context.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn part(offset: u64, length: usize) -> Part {
        Part {
            offset,
            bytes: Bytes::from(vec![7; length]),
            is_last: false,
        }
    }

    fn poll(flow: &Flow) -> Poll<Result<Part, Broken>> {
        flow.poll_part(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn parts_are_read_in_order() {
        let flow = Flow::new(10, 5, false);
        assert_eq!(poll(&flow), Poll::Pending);
        flow.handle_part(part(5, 3));
        flow.handle_part(part(8, 1));
        assert_eq!(poll(&flow), Poll::Ready(Ok(part(5, 3))));
        assert_eq!(poll(&flow), Poll::Ready(Ok(part(8, 1))));
    }

    #[test]
    fn a_gap_or_a_part_beyond_the_credit_breaks_the_body() {
        let beyond = UPLOAD_WINDOW as usize + 1;
        for wrong in [part(6, 3), part(0, 5), part(5, beyond)] {
            let flow = Flow::new(10, 5, false);
            flow.handle_part(wrong);
            assert_eq!(poll(&flow), Poll::Ready(Err(Broken)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_waits_for_the_client_is_not_idle() {
        let flow = Flow::new(10, 5, false);
        let begun = Instant::now();
        assert_eq!(flow.server_idle_since(), Some(begun));
        assert_eq!(poll(&flow), Poll::Pending);
        assert_eq!(flow.server_idle_since(), None);
        tokio::time::advance(Duration::from_secs(7)).await;
        flow.handle_part(part(5, 3));
        flow.note_taken();
        assert_eq!(
            flow.server_idle_since(),
            Some(begun + Duration::from_secs(7))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_waits_for_credit_as_long_as_the_gateway_wants_it() {
        let flow = Flow::new(10, 0, true);
        assert_eq!(flow.credit(4).await, Some(6));
        let wanted = async {
            for _ in 0..20 {
                tokio::time::sleep(Duration::from_secs(30)).await;
                flow.handle_credit(10);
            }
            flow.handle_credit(12);
        };
        let (credit, ()) = tokio::join!(flow.credit(10), wanted);
        assert_eq!(credit, Some(2));
        assert_eq!(flow.credit(12).await, None);
    }
}
