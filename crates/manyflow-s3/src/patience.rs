//! A limit for bodies of requests of which nothing comes.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// The time in which a client has to send each further piece of a body; the gateway of HTTP has the
/// same.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reason why a body is not read to its end.
#[derive(Debug)]
pub(crate) enum Broken {
    /// Nothing has come for too long.
    Stopped,
    /// The connection has failed.
    Failed(hyper::Error),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Stopped => write!(
                f,
                "no byte of the request's body has come for {} s",
                PATIENCE.as_secs()
            ),
            Broken::Failed(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Broken {}

impl Broken {
    /// Returns whether `error` says that a client has stopped in the middle of a body.
    pub(crate) fn is_stopped(error: &(dyn std::error::Error + 'static)) -> bool {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(Broken::Stopped) = error.downcast_ref() {
                return true;
            }
            next = error.source();
        }
        false
    }
}

/// A body of a request, with the limit.
pub(crate) struct Patient<B> {
    body: B,
    sleep: Pin<Box<Sleep>>,
    /// Whether `poll_frame` waits, and `sleep` is set.
    is_waiting: bool,
}

impl<B> Patient<B> {
    pub(crate) fn new(body: B) -> Patient<B> {
        Patient {
            body,
            sleep: Box::pin(tokio::time::sleep(PATIENCE)),
            is_waiting: false,
        }
    }
}

impl<B: Body<Data = Bytes, Error = hyper::Error> + Unpin> Body for Patient<B> {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.is_waiting = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(Broken::Failed)));
        }
        if !std::mem::replace(&mut this.is_waiting, true) {
            this.sleep.as_mut().reset(Instant::now() + PATIENCE);
        }
        let stopped = this.sleep.as_mut().poll(context);
        stopped.map(|()| Some(Err(Broken::Stopped)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt as _;
    use futures_util::stream;
    use http_body_util::{BodyExt as _, StreamBody};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_may_take_its_time_and_may_not_stop() {
        let pieces = stream::iter(0..3).then(|_| async {
            tokio::time::sleep(PATIENCE * 9 / 10).await;
            Ok(Frame::data(Bytes::from_static(b"abc")))
        });
        let pieces = pieces.chain(stream::pending());
        let mut body = Patient::new(StreamBody::new(Box::pin(pieces)));
        for _ in 0..3 {
            let piece = body.frame().await.unwrap().unwrap();
            assert_eq!(piece.into_data().unwrap(), "abc");
        }
        let began = Instant::now();
        let stopped = body.frame().await.unwrap().unwrap_err();
        assert_eq!(began.elapsed().as_secs(), PATIENCE.as_secs());
        assert!(Broken::is_stopped(&stopped), "{stopped}");
    }
}
