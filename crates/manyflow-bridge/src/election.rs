//! The choice of the active bridge of a site. Other bridges of the site wait until it is gone.
//!
//! The bridges find each other by requests through the site's nats-server, which knows at once when
//! a bridge's connection has ended. There is nothing to store. If the servers of a cluster are
//! separated, each part can have an active bridge: core messages may then come twice, but in no
//! loop, and messages of JetStream come once. The bridges find out when the cluster is whole again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::client::{Request, RequestErrorKind};
use futures_util::StreamExt as _;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// The time between two questions of a bridge that waits.
const WAIT: Duration = Duration::from_millis(500);
/// The time between two questions of the active bridge.
const WATCH: Duration = Duration::from_secs(5);
/// The time for an answer.
const ANSWER: Duration = Duration::from_secs(1);

/// The other bridge's answer: its number, and whether it is active.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Rival {
    id: u128,
    is_active: bool,
}

impl Rival {
    fn parse(text: &[u8]) -> Option<Rival> {
        let text = std::str::from_utf8(text).ok()?;
        let (id, state) = text.split_once(' ')?;
        Some(Rival {
            id: u128::from_str_radix(id, 16).ok()?,
            is_active: state == "active",
        })
    }

    fn format(self) -> String {
        let state = if self.is_active { "active" } else { "claims" };
        format!("{:032x} {state}", self.id)
    }
}

/// A bridge that wants to be the active one of its site.
#[derive(Debug)]
pub(crate) struct Candidate {
    nats: async_nats::Client,
    subject: String,
    id: u128,
    is_active: Arc<AtomicBool>,
}

/// The task that answers other bridges. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat(AbortHandle);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Candidate {
    pub(crate) fn new(nats: async_nats::Client, subject: String) -> Candidate {
        Candidate {
            nats,
            subject,
            id: rand::random(),
            is_active: Arc::default(),
        }
    }

    /// Returns when this bridge is the active one. Calls `wait` when another one is.
    pub(crate) async fn take_seat(&self, wait: impl Fn()) -> Result<Seat, async_nats::Error> {
        loop {
            if self.ask().await?.is_none() {
                let seat = self.claim().await?;
                // Another bridge may have claimed the seat at the same time.
                let rival = self.ask().await?;
                if rival.is_none_or(|rival| !rival.is_active && rival.id > self.id) {
                    self.is_active.store(true, Ordering::Relaxed);
                    return Ok(seat);
                }
            }
            wait();
            sleep(WAIT).await;
        }
    }

    /// Returns when another bridge is active, too, and this one has to go.
    pub(crate) async fn lose_seat(&self) -> Result<(), async_nats::Error> {
        loop {
            sleep(WATCH).await;
            let rival = self.ask().await?;
            if rival.is_some_and(|rival| rival.is_active && rival.id < self.id) {
                return Ok(());
            }
        }
    }

    /// Answers the questions of other bridges from now on.
    async fn claim(&self) -> Result<Seat, async_nats::Error> {
        let mut questions = self.nats.subscribe(self.subject.clone()).await?;
        self.nats.flush().await?;
        let (nats, id) = (self.nats.clone(), self.id);
        let is_active = Arc::clone(&self.is_active);
        let answering = tokio::spawn(async move {
            while let Some(question) = questions.next().await {
                let own = Rival {
                    id,
                    is_active: is_active.load(Ordering::Relaxed),
                };
                if let Some(reply) = question.reply {
                    // Without a connection, the bridge ends elsewhere.
                    let _ = nats.publish(reply, own.format().into()).await;
                }
            }
        });
        Ok(Seat(answering.abort_handle()))
    }

    /// Asks for another bridge. The connection does not get its own messages.
    async fn ask(&self) -> Result<Option<Rival>, async_nats::Error> {
        let request = Request::new().timeout(Some(ANSWER));
        let answer = self.nats.send_request(self.subject.clone(), request).await;
        match answer {
            Ok(answer) => Ok(Rival::parse(&answer.payload)),
            Err(error) => match error.kind() {
                RequestErrorKind::NoResponders | RequestErrorKind::TimedOut => Ok(None),
                _ => Err(error.into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        for is_active in [false, true] {
            let rival = Rival { id: 17, is_active };
            assert_eq!(Rival::parse(rival.format().as_bytes()), Some(rival));
        }
        assert_eq!(Rival::parse(b"x active"), None);
    }
}
