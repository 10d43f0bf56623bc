//! The body of a request on its way to the server.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::super::wire::{MemberEvent, RequestId, UPLOAD_WINDOW};
use super::control::Control;
use super::flow::{Broken, Flow};

/// The body of a request.
#[derive(Debug)]
pub(super) struct RequestBody {
    /// Bytes that the server has not taken.
    next: Bytes,
    is_last: bool,
    rest: Option<Uptake>,
}

/// The bytes that a server takes from a gateway, and the credit that follows from them.
#[derive(Debug)]
pub(super) struct Uptake {
    id: RequestId,
    flow: Arc<Flow>,
    control: Control,
    taken: u64,
    granted: u64,
}

impl RequestBody {
    /// Creates the body of a request that has come whole.
    pub(super) fn whole(bytes: Bytes) -> RequestBody {
        RequestBody {
            next: bytes,
            is_last: true,
            rest: None,
        }
    }

    /// Creates a body whose parts after the first come from `flow`. Credit goes to `control`.
    pub(super) fn streamed(
        id: RequestId,
        first: Bytes,
        flow: Arc<Flow>,
        control: Control,
    ) -> RequestBody {
        let uptake = Uptake::new(id, flow, control, first.len() as u64);
        RequestBody {
            next: first,
            is_last: false,
            rest: Some(uptake),
        }
    }

    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            if !self.next.is_empty() {
                let bytes = std::mem::take(&mut self.next);
                if let Some(rest) = &mut self.rest {
                    rest.take(bytes.len() as u64);
                }
                return Poll::Ready(Some(Ok(bytes)));
            }
            let Some(rest) = self.rest.as_ref().filter(|_| !self.is_last) else {
                return Poll::Ready(None);
            };
            match ready!(rest.flow.poll_part(context)) {
                Ok(part) => {
                    self.next = part.bytes;
                    self.is_last = part.is_last;
                }
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

impl Uptake {
    /// Begins at the start of the bytes. `first` is the length of those in the first message.
    pub(super) fn new(id: RequestId, flow: Arc<Flow>, control: Control, first: u64) -> Uptake {
        Uptake {
            id,
            flow,
            control,
            taken: 0,
            granted: first + UPLOAD_WINDOW,
        }
    }

    /// Notes that the server takes bytes, and grants credit for as many.
    pub(super) fn take(&mut self, bytes: u64) {
        self.taken += bytes;
        self.flow.note_taken();
        if self.granted - self.taken <= UPLOAD_WINDOW / 2 {
            self.granted = self.taken + UPLOAD_WINDOW;
            self.flow.grant(self.granted);
            self.control
                .push(MemberEvent::Credit(self.id, self.granted));
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        self.get_mut().poll_bytes(context).map_ok(Frame::data)
    }

    fn is_end_stream(&self) -> bool {
        self.is_last && self.next.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        match self.is_last {
            true => SizeHint::with_exact(self.next.len() as u64),
            false => SizeHint::default(),
        }
    }
}
