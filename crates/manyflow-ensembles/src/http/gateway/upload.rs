//! The body of a client's request: the part for the first message, and the rest.

use std::future::poll_fn;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Incoming};

use super::super::wire::{PART_BYTES_MAX, Part, ToMember};
use super::exchange::Exchange;
use super::link::Link;

/// The body of a request.
#[derive(Debug)]
pub(super) struct Upload {
    /// The beginning: at most [`PART_BYTES_MAX`] bytes.
    pub(super) first: Bytes,
    /// The part that does not fit the first message.
    pub(super) rest: Option<UploadRest>,
}

/// The part of a body that does not fit the first message.
#[derive(Debug)]
pub(super) struct UploadRest {
    offset: u64,
    /// Bytes that have been read and not sent.
    next: Bytes,
    body: Incoming,
}

impl Upload {
    /// Reads the beginning of a body, or all of it.
    ///
    /// # Errors
    /// If the client ends the connection, or its body is not valid.
    pub(super) async fn read(mut body: Incoming) -> Result<Upload, hyper::Error> {
        if body.is_end_stream() {
            let first = Bytes::new();
            return Ok(Upload { first, rest: None });
        }
        let mut read = BytesMut::new();
        while read.len() <= PART_BYTES_MAX {
            match next_bytes(&mut body).await? {
                Some(bytes) => read.extend_from_slice(&bytes),
                None => {
                    let first = read.freeze();
                    return Ok(Upload { first, rest: None });
                }
            }
        }
        let mut first = read.freeze();
        let next = first.split_off(PART_BYTES_MAX);
        let offset = first.len() as u64;
        let rest = Some(UploadRest { offset, next, body });
        Ok(Upload { first, rest })
    }
}

/// Returns the next bytes of a body. Trailers are dropped (RFC 9110 section 6.5.1).
async fn next_bytes(body: &mut Incoming) -> Result<Option<Bytes>, hyper::Error> {
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) => return Ok(Some(bytes)),
            Err(_trailers) => {}
        }
    }
    Ok(None)
}

impl UploadRest {
    /// Sends the rest as the member grants credit. If the client ends its connection, the body has
    /// no last part, and the gateway cancels the request.
    pub(super) async fn run(mut self, link: &Link, exchange: &Exchange) {
        loop {
            if self.next.is_empty() {
                match next_bytes(&mut self.body).await {
                    Ok(Some(bytes)) => self.next = bytes,
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!("a client did not send its whole body: {error}");
                        return;
                    }
                }
            }
            let sent = self.offset;
            let room = poll_fn(|context| exchange.poll_upload(context, sent)).await;
            let room = room.min(PART_BYTES_MAX as u64) as usize;
            let bytes = self.next.split_to(room.min(self.next.len()));
            let part = ToMember::Part(exchange.id, self.part(bytes, false));
            if link.send(exchange.key, part.encode()).await.is_err() {
                return;
            }
        }
        let part = ToMember::Part(exchange.id, self.part(Bytes::new(), true));
        // If the connection has ended, the waiting request knows.
        let _ = link.send(exchange.key, part.encode()).await;
    }

    fn part(&mut self, bytes: Bytes, is_last: bool) -> Part {
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        Part {
            offset,
            bytes,
            is_last,
        }
    }
}
