//! The connection of a TCP client, which may close its sending side before it has its answer.
//!
//! The end of a client's bytes does not mean that the client has gone (RFC 9112 section 9.6):
//! `nc -N` and some programs of HTTP/1.0 end their direction behind the request, and read the
//! answer. A client that has gone resets its connection at the latest when bytes reach it.

use std::io;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The silence after which the system asks whether a client is still there, and between two of its
/// questions. A client that has closed its connection no longer answers them after a minute.
const ASK_AFTER: Duration = Duration::from_secs(30);
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// The time in which a client reads an answer that ends its connection before it has sent its whole
/// request, and the longest silence in it: those of nginx.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(30);
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);
/// The bytes of a client that are discarded at once.
const DISCARD_BYTES: usize = 16 << 10;

/// The connection of a client. Clones stand for the same connection.
#[derive(Clone, Debug)]
pub struct Inbound(Arc<TcpStream>);

impl Inbound {
    /// Takes an accepted connection.
    ///
    /// # Errors
    /// If the client has gone.
    pub fn new(stream: TcpStream) -> io::Result<Inbound> {
        let socket = SockRef::from(&stream);
        socket.set_tcp_nodelay(true)?;
        let keep_alive = TcpKeepalive::new();
        let keep_alive = keep_alive
            .with_time(ASK_AFTER)
            .with_interval(ASK_AGAIN_AFTER);
        socket.set_tcp_keepalive(&keep_alive)?;
        Ok(Inbound(Arc::new(stream)))
    }

    /// Waits until the client has reset the connection, as [`until_reset`] does.
    pub async fn reset(&self) {
        until_reset(&self.0).await;
    }

    /// Ends the connection behind an answer: discards the bytes that the client still sends, so
    /// that they do not reset the connection before the client has read the answer (RFC 9112
    /// section 9.6). Waits at most 30 s for the client's end, and at most 5 s without a byte.
    pub async fn close(self) {
        let _ = timeout(DISCARD_TIMEOUT, self.discard()).await;
    }

    /// Discards bytes until the client ends its direction or fails; afterwards, nobody is left who
    /// could hear of an error.
    async fn discard(&self) {
        if SockRef::from(&*self.0).shutdown(Shutdown::Write).is_err() {
            return;
        }
        let mut discarded = vec![0; DISCARD_BYTES];
        while let Ok(Ok(())) = timeout(SILENCE_TIMEOUT, self.0.readable()).await {
            match self.0.try_read(&mut discarded) {
                Ok(0) => return,
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
                _ => {}
            }
        }
    }

    /// Repeats an attempt to write until the socket has room.
    fn poll_write_with(
        &self,
        context: &mut Context<'_>,
        attempt: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match attempt(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

/// Waits until the other end has reset the connection, or no longer answers. Notices that also
/// while nobody reads or writes.
pub async fn until_reset(stream: &TcpStream) {
    // An error of `ready` means that the runtime ends.
    while let Ok(ready) = stream.ready(Interest::ERROR).await {
        if ready.is_error() {
            return;
        }
    }
}

/// The socket of the connection.
impl AsRef<TcpStream> for Inbound {
    fn as_ref(&self) -> &TcpStream {
        &self.0
    }
}

impl AsyncRead for Inbound {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read_buf(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read.map(drop)),
            }
        }
    }
}

impl AsyncWrite for Inbound {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.0).shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    async fn connected() -> (TcpStream, Inbound) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let client = TcpStream::connect(at).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        (client, Inbound::new(stream).unwrap())
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_after_the_client_has_ended_its_own() {
        let (mut client, mut inbound) = connected().await;
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut read = String::new();
        inbound.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "question");
        inbound.write_all(b"answer").await.unwrap();
        inbound.shutdown().await.unwrap();
        read.clear();
        client.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "answer");
        inbound.close().await;
    }

    #[tokio::test]
    async fn a_reset_is_noticed_without_a_reader_also_behind_the_end() {
        for has_ended in [false, true] {
            let (mut client, inbound) = connected().await;
            client.write_all(b"unread").await.unwrap();
            if has_ended {
                client.shutdown().await.unwrap();
            }
            let mut reset = std::pin::pin!(inbound.reset());
            let mut context = Context::from_waker(std::task::Waker::noop());
            inbound.as_ref().readable().await.unwrap();
            assert!(reset.as_mut().poll(&mut context).is_pending());
            SockRef::from(&client)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
            drop(client);
            reset.await;
        }
    }

    #[tokio::test]
    async fn a_client_that_has_closed_is_noticed_by_what_is_written() {
        let (client, mut inbound) = connected().await;
        drop(client);
        assert!(SockRef::from(inbound.as_ref()).keepalive().unwrap());
        inbound.write_all(b"answer").await.unwrap();
        inbound.reset().await;
    }

    #[tokio::test]
    async fn an_answer_arrives_at_a_client_that_still_sends() {
        let (mut client, mut inbound) = connected().await;
        inbound.write_all(b"too long").await.unwrap();
        let closing = tokio::spawn(inbound.close());
        let long = vec![0; 4 << 20];
        client.write_all(&long).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "too long");
        drop(client);
        closing.await.unwrap();
    }
}
