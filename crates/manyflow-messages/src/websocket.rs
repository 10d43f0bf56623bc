//! The connection of a NATS client over WebSocket (RFC 6455), for browsers.
//!
//! Binary frames carry the bytes of the ordinary NATS protocol, cut anywhere. The handshake and the
//! frames are those of the crate `tokio-websockets`; this is the byte stream above them. A client
//! that has not sent CONNECT has small limits, because anybody can be such a client.

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures_core::Stream;
use futures_sink::Sink;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;
use tokio_websockets::server::Builder;
use tokio_websockets::{CloseCode, Limits, Message, WebSocketStream};

use super::client_names::names_shown_in;
use super::client_stream::ClientStream;
use super::nats::parse::CONNECT_BYTES_MAX;
use super::nats::serve::Front;
use super::nats::session::Peer;
use super::origins::may_connect;
use super::server::TLS_TIMEOUT;

/// The number of connections that may be between their first byte and CONNECT at once. Others wait.
pub(super) const STRANGERS_MAX: usize = 256;
/// The maximum number of bytes before CONNECT, besides those that one read brings: the request of
/// HTTP, and the options of CONNECT.
const STRANGER_BYTES_MAX: usize = 8 * 1024 + CONNECT_BYTES_MAX;
/// The number of bytes by which a frame may be longer than a message: libraries put operations of
/// up to 32 KiB before it.
const FRAME_BYTES_MORE: usize = 256 * 1024;
/// The maximum number of bytes of a frame for a client.
const SENT_FRAME_BYTES_MAX: usize = 64 * 1024;
/// The answer to a connection for which there is no room.
const BUSY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Serves a client, or refuses it if it is not welcome.
pub(super) async fn serve(
    mut socket: impl ClientStream,
    peer: Peer,
    front: &Front,
    is_welcome: bool,
) {
    if socket.prepare().is_err() {
        return;
    }
    match &front.tls {
        None if !is_welcome => {
            // The client may have gone.
            let _ = socket.write_all(BUSY).await;
        }
        Some(_) if !is_welcome => {}
        None => greet_and_serve(async { Ok((socket, Vec::new())) }, peer, front).await,
        Some(tls) => {
            let accept = async {
                let stream = tls.acceptor().accept(socket).await?;
                let names = names_shown_in(&stream);
                Ok((stream, names))
            };
            greet_and_serve(accept, peer, front).await;
        }
    }
}

/// Serves a client. `socket` returns its socket, with TLS or without, and the names in its
/// certificate.
async fn greet_and_serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    socket: impl Future<Output = io::Result<(S, Vec<String>)>>,
    peer: Peer,
    front: &Front,
) {
    let is_known = Rc::new(Cell::new(false));
    let greet = async {
        let permit = front
            .arrivals
            .strangers
            .acquire()
            .await
            .map_err(io::Error::other)?;
        let bytes_max = front.limits.payload_bytes_max;
        let (socket, names) = socket.await?;
        let (page, mut stream) = accept(socket, bytes_max, Rc::clone(&is_known)).await?;
        if let Some(page) = page.filter(|page| !page.may_connect(&front.origins)) {
            let from = peer.address.ip();
            front.core.borrow_mut().refuse_origin(from, &page.origin);
            stream.close_for_policy().await?;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        stream.write_all(front.info(peer).as_bytes()).await?;
        stream.flush().await?;
        Ok::<_, io::Error>((permit, names, stream))
    };
    match timeout(TLS_TIMEOUT, greet).await {
        Ok(Ok((permit, names, stream))) => {
            let (reader, writer) = tokio::io::split(stream);
            let greeted = || {
                is_known.set(true);
                drop(permit);
            };
            front.serve(peer, names, reader, writer, greeted).await;
        }
        Ok(Err(error)) => tracing::debug!(peer = %peer.address, %error, "no WebSocket"),
        Err(_) => tracing::debug!(peer = %peer.address, "the handshake took too long"),
    }
}

/// The headers of a request by a page in a browser.
struct Page {
    origin: String,
    host: Option<String>,
}

impl Page {
    fn may_connect(&self, others: &[String]) -> bool {
        may_connect(&self.origin, self.host.as_deref(), others)
    }
}

/// Completes the handshake of a client whose messages have at most `payload_bytes_max` bytes.
/// `is_known` becomes true when the client has sent CONNECT.
///
/// # Errors
/// Returns an error if the client asks for something else than a WebSocket, or sends too much.
async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
    socket: S,
    payload_bytes_max: usize,
    is_known: Rc<Cell<bool>>,
) -> io::Result<(Option<Page>, WebSocket<S>)> {
    let limits = Limits::default().max_payload_len(Some(CONNECT_BYTES_MAX));
    let socket = Metered {
        socket,
        left: STRANGER_BYTES_MAX,
    };
    let accepted = Builder::new().limits(limits).accept(socket).await;
    let (request, stream) = accepted.map_err(io::Error::other)?;
    // A header that is no text is no origin that may connect.
    let header = |name: &str| {
        let value = request.headers().get(name)?;
        Some(String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let page = header("origin").map(|origin| Page {
        origin,
        host: header("host"),
    });
    let socket = WebSocket {
        stream,
        frame_bytes_max: payload_bytes_max + FRAME_BYTES_MORE,
        is_known,
        has_limits_of_stranger: true,
        unread: Bytes::new(),
        must_flush: false,
        reader: None,
        writer: None,
        frame: BytesMut::new(),
    };
    Ok((page, socket))
}

/// The bytes of a client's frames, and frames of the bytes for it.
struct WebSocket<S> {
    stream: WebSocketStream<Metered<S>>,
    frame_bytes_max: usize,
    is_known: Rc<Cell<bool>>,
    has_limits_of_stranger: bool,
    /// The rest of a frame.
    unread: Bytes,
    /// Whether the answer to a ping waits. A client that does not take it is not read.
    must_flush: bool,
    /// The task that reads, while it waits until the answer to a ping has been written.
    reader: Option<Waker>,
    /// The task that writes, while it waits.
    writer: Option<Waker>,
    /// The memory of frames.
    frame: BytesMut,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// Gives a client that has sent CONNECT the limits of clients.
    fn update_limits(&mut self) {
        if self.has_limits_of_stranger && self.is_known.get() {
            self.has_limits_of_stranger = false;
            let limits = self.stream.limits_mut();
            limits.set_max_payload_len(Some(self.frame_bytes_max));
            self.stream.get_mut().left = usize::MAX;
        }
    }

    /// Ends the connection, and reports that the client may not have one.
    async fn close_for_policy(&mut self) -> io::Result<()> {
        let code = CloseCode::POLICY_VIOLATION;
        let mut message = Some(Message::close(Some(code), "this page may not connect"));
        poll_fn(|context| {
            let mut stream = Pin::new(&mut self.stream);
            ready!(stream.as_mut().poll_ready(context))?;
            if let Some(message) = message.take() {
                stream.as_mut().start_send(message)?;
            }
            stream.poll_flush(context)
        })
        .await
        .map_err(io::Error::other)
    }

    /// Writes the answers to pings. Both tasks can flush the stream, which wakes only the last one.
    fn poll_answers(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.must_flush {
            let Poll::Ready(flushed) = Pin::new(&mut self.stream).poll_flush(context) else {
                self.reader = Some(context.waker().clone());
                return Poll::Pending;
            };
            flushed.map_err(io::Error::other)?;
            self.must_flush = false;
            wake(&mut self.writer);
        }
        Poll::Ready(Ok(()))
    }

    /// Notes the task that writes if it has to wait; otherwise wakes the one that reads.
    fn written<T>(
        &mut self,
        context: &Context<'_>,
        result: Poll<Result<T, tokio_websockets::Error>>,
    ) -> Poll<io::Result<T>> {
        match result {
            Poll::Pending => {
                self.writer = Some(context.waker().clone());
                Poll::Pending
            }
            Poll::Ready(result) => {
                wake(&mut self.reader);
                Poll::Ready(result.map_err(io::Error::other))
            }
        }
    }
}

fn wake(task: &mut Option<Waker>) {
    if let Some(waker) = task.take() {
        waker.wake();
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for WebSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.update_limits();
        while self.unread.is_empty() {
            ready!(self.poll_answers(context))?;
            match ready!(Pin::new(&mut self.stream).poll_next(context)) {
                Some(Ok(message)) if message.is_binary() || message.is_text() => {
                    self.unread = message.into_payload().into();
                }
                Some(Ok(message)) => self.must_flush |= message.is_ping(),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let bytes = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..bytes]);
        self.unread.advance(bytes);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WebSocket<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let is_ready = Pin::new(&mut self.stream).poll_ready(context);
        ready!(self.written(context, is_ready))?;
        for slice in slices {
            let room = SENT_FRAME_BYTES_MAX - self.frame.len();
            let part = &slice[..slice.len().min(room)];
            self.frame.extend_from_slice(part);
        }
        let frame = self.frame.split().freeze();
        let bytes = frame.len();
        let sent = Pin::new(&mut self.stream).start_send(Message::binary(frame));
        sent.map_err(io::Error::other)?;
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.written(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_close(context);
        self.written(context, closed)
    }
}

/// A socket from which only so much can be read.
struct Metered<S> {
    socket: S,
    /// The number of bytes that may still come.
    left: usize,
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(context, buffer))?;
        if self.left < usize::MAX {
            self.left = self.left.saturating_sub(buffer.filled().len() - before);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
