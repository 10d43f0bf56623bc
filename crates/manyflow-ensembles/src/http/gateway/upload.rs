//! The body of a client's request: it goes to a member as it arrives, and its beginning is kept for
//! another attempt.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use super::super::wire::{PART_BYTES_MAX, Part, ToMember};
use super::CLIENT_TIMEOUT;
use super::exchange::Exchange;
use super::link::Link;

/// The time in which the bytes of a body go with the head, in one message.
const TOGETHER: Duration = Duration::from_millis(10);
/// The time in which a server answers `Expect: 100-continue`. Many do not, and some clients wait
/// forever; curl waits as long.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why a client has not sent a whole body.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unread {
    #[error("the body of the request is not valid: {0}")]
    Invalid(#[from] hyper::Error),
    #[error("no byte of the request's body has come for {} s", CLIENT_TIMEOUT.as_secs())]
    Late,
}

impl Unread {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Unread::Invalid(_) => StatusCode::BAD_REQUEST,
            Unread::Late => StatusCode::REQUEST_TIMEOUT,
        }
    }
}

/// The rest of a body on its way to a member.
pub(super) type Rest = Pin<Box<dyn Future<Output = Result<(), Unread>> + Send>>;

/// The body of a request. Clones stand for the same body; one of them reads at a time.
#[derive(Clone, Debug)]
pub(super) struct Upload(Arc<Mutex<Source>>);

#[derive(Debug)]
struct Source {
    body: Incoming,
    /// The beginning, as long as it is the whole body so far: at most [`PART_BYTES_MAX`] bytes.
    kept: BytesMut,
    /// Bytes behind those that were kept, which have been read and not sent.
    next: Bytes,
    /// Whether bytes have been read that are not kept.
    is_long: bool,
    is_over: bool,
    /// Whether the client waits for a sign to send the body.
    is_awaited: bool,
}

impl Source {
    /// Reads further bytes. Trailers are dropped (RFC 9110 section 6.5.1).
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        debug_assert!(self.next.is_empty() && !self.is_over);
        // This makes the server send 100.
        self.is_awaited = false;
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()?;
        self.is_over = frame.is_none() || self.body.is_end_stream();
        let bytes = frame.and_then(|frame| frame.into_data().ok());
        let bytes = bytes.unwrap_or_default();
        if !self.is_long && self.kept.len() + bytes.len() <= PART_BYTES_MAX {
            self.kept.extend_from_slice(&bytes);
        } else {
            self.is_long = true;
            self.next = bytes;
        }
        Poll::Ready(Ok(()))
    }

    /// Returns at most `most` bytes behind the first `sent`, and whether they are the last.
    fn poll_bytes(
        &mut self,
        context: &mut Context<'_>,
        sent: u64,
        most: usize,
    ) -> Poll<Result<(Bytes, bool), hyper::Error>> {
        loop {
            let kept = self.kept.get(sent as usize..).unwrap_or_default();
            let bytes = match kept.is_empty() {
                false => Bytes::copy_from_slice(&kept[..kept.len().min(most)]),
                true => self.next.split_to(self.next.len().min(most)),
            };
            let is_rest = kept.len() <= bytes.len() && self.next.is_empty();
            let is_last = self.is_over && is_rest;
            if is_last || !bytes.is_empty() {
                return Poll::Ready(Ok((bytes, is_last)));
            }
            if self.is_long {
                // The bytes cannot be sent again.
                self.kept = BytesMut::new();
            }
            ready!(self.poll_read(context))?;
        }
    }
}

impl Upload {
    /// Takes the body of a request. `is_awaited` if the client waits for 100 before it sends it.
    pub(super) fn new(body: Incoming, is_awaited: bool) -> Upload {
        let is_over = body.is_end_stream();
        Upload(Arc::new(Mutex::new(Source {
            body,
            kept: BytesMut::new(),
            next: Bytes::new(),
            is_long: false,
            is_over,
            is_awaited: is_awaited && !is_over,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Source> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether all bytes so far can be sent again.
    pub(super) fn is_kept(&self) -> bool {
        !self.lock().is_long
    }

    /// Returns whether the whole body has arrived and can be sent again.
    pub(super) fn is_whole(&self) -> bool {
        let source = self.lock();
        source.is_over && !source.is_long
    }

    /// Returns whether the client has sent the whole body.
    pub(super) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Returns whether the client still waits for a sign to send the body.
    pub(super) fn is_awaited(&self) -> bool {
        self.lock().is_awaited
    }

    /// Returns the bytes that are kept.
    pub(super) fn beginning(&self) -> Bytes {
        Bytes::copy_from_slice(&self.lock().kept)
    }

    /// Reads the part of the body that comes together with the head.
    pub(super) async fn read_beginning(&self) -> Result<(), Unread> {
        if self.is_awaited() {
            return Ok(());
        }
        match timeout(TOGETHER, self.read_message()).await {
            Ok(read) => read,
            Err(_) => Ok(()),
        }
    }

    /// Reads until a message is full, or the body has ended.
    pub(super) async fn read_message(&self) -> Result<(), Unread> {
        let is_open = |source: &Source| !source.is_over && !source.is_long;
        while is_open(&self.lock()) {
            let read = poll_fn(|context| self.lock().poll_read(context));
            timeout(CLIENT_TIMEOUT, read)
                .await
                .map_err(|_| Unread::Late)??;
        }
        Ok(())
    }

    /// Sends the bytes behind the first `sent` as the member grants credit.
    pub(super) async fn send_rest(
        self,
        link: Arc<Link>,
        exchange: Arc<Exchange>,
        mut sent: u64,
    ) -> Result<(), Unread> {
        if self.is_awaited() {
            let continued = poll_fn(|context| exchange.poll_continued(context));
            // Afterwards the client may send, whether the server has said so or not.
            let _ = timeout(CONTINUE_TIMEOUT, continued).await;
        }
        loop {
            let room = poll_fn(|context| exchange.poll_upload(context, sent)).await;
            let most = room.min(PART_BYTES_MAX as u64) as usize;
            let read = poll_fn(|context| self.lock().poll_bytes(context, sent, most));
            let read = timeout(CLIENT_TIMEOUT, read)
                .await
                .map_err(|_| Unread::Late)?;
            let (bytes, is_last) = read?;
            let part = Part {
                offset: sent,
                bytes,
                is_last,
            };
            sent += part.bytes.len() as u64;
            let part = ToMember::Part(exchange.id, part).encode();
            // If the connection has ended, the waiting request knows.
            if link.send(exchange.key, part).await.is_err() || is_last {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use hyper::{Request, Response};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Reads the first message of a request's body; answers with its length, or with the failure.
    async fn answer(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
        let upload = Upload::new(request.into_body(), false);
        let mut response = Response::new(String::new());
        if let Err(unread) = upload.read_message().await {
            *response.status_mut() = unread.status();
        }
        *response.body_mut() = upload.beginning().len().to_string();
        Ok(response)
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_which_nothing_comes_is_late() {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let server =
            http1::Builder::new().serve_connection(TokioIo::new(server), service_fn(answer));
        let server = tokio::spawn(server);
        let head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhello";
        client.write_all(head).await.unwrap();
        let mut read = String::new();
        client.read_to_string(&mut read).await.unwrap();
        assert!(read.starts_with("HTTP/1.1 408 "), "{read}");
        assert!(read.ends_with("\r\n5"), "{read}");
        let _ = server.await;
    }
}
