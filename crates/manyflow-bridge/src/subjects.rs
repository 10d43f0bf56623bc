//! Core messages, in both directions.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;
use manyflow_messages::{Client, ClientError, Message, Messages};
use tokio::task::JoinHandle;

use crate::BridgeError;
use crate::message::{ToNats, is_bridged, to_overlay};
use crate::names::SITE;
use crate::state::Shared;

/// The number of messages that enter the overlay between two questions whether they have.
const WINDOW_MESSAGES: u32 = 32;

/// Publishes messages in the overlay, of which only a few wait at the daemon. It would hold
/// megabytes, so that messages were old before nats-server noticed that the overlay is full.
struct Window {
    overlay: Client,
    published: u32,
    /// Ends when the messages before the last question have entered.
    entering: Option<JoinHandle<Result<(), ClientError>>>,
}

impl Window {
    fn new(overlay: Client) -> Window {
        Window {
            overlay,
            published: 0,
            entering: None,
        }
    }

    async fn publish(&mut self, message: &Message) -> Result<(), ClientError> {
        self.overlay.publish_message(message).await?;
        self.published += 1;
        if !self.published.is_multiple_of(WINDOW_MESSAGES) {
            return Ok(());
        }
        // Half of the window is on its way to the daemon while the other half enters.
        if let Some(entering) = self.entering.take()
            && let Ok(entered) = entering.await
        {
            entered?;
        }
        let overlay = self.overlay.clone();
        self.entering = Some(tokio::spawn(async move { overlay.flush().await }));
        Ok(())
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some(entering) = &self.entering {
            entering.abort();
        }
    }
}

/// Publishes the messages of nats-server in the overlay that have not come over a bridge. Waits
/// while the overlay is full; async-nats then drops what comes meanwhile, as NATS does with slow
/// subscribers.
pub(crate) async fn leave(
    shared: Arc<Shared>,
    mut messages: async_nats::Subscriber,
    overlay: Client,
) -> BridgeError {
    let mut window = Window::new(overlay);
    while let Some(message) = messages.next().await {
        // A status such as 503 is not a message: another site may answer.
        if message.status.is_some() || is_bridged(&message) {
            continue;
        }
        let sent = match to_overlay(&message.subject, &message, &shared) {
            Ok(message) => window.publish(&message).await,
            Err(error) => Err(error),
        };
        if let Err(error) = shared.count_left(&message.subject, sent) {
            return error.into();
        }
    }
    shared.nats_lost()
}

/// Publishes the answers for other sites in the overlay.
pub(crate) async fn leave_answers(
    shared: Arc<Shared>,
    mut messages: async_nats::Subscriber,
    overlay: Client,
) -> BridgeError {
    let mut window = Window::new(overlay);
    while let Some(message) = messages.next().await {
        // A service may have copied the request's headers, so they say nothing.
        let subject = shared.replies.answer_elsewhere(&message.subject);
        let Some(subject) = subject.filter(|_| message.status.is_none()) else {
            continue;
        };
        let sent = match to_overlay(subject, &message, &shared) {
            Ok(message) => window.publish(&message).await,
            Err(error) => Err(error),
        };
        if let Err(error) = shared.count_left(&message.subject, sent) {
            return error.into();
        }
    }
    shared.nats_lost()
}

/// Publishes messages of the overlay at nats-server that do not come from this site.
pub(crate) async fn arrive(
    shared: Arc<Shared>,
    mut messages: Messages,
    nats: async_nats::Client,
) -> BridgeError {
    let site = &shared.config.site;
    loop {
        let message = match messages.next().await {
            Some(Ok(message)) => message,
            Some(Err(error)) => return error.into(),
            None => return shared.daemon_lost(),
        };
        if message.status().is_some() || is_own(&message, site) {
            continue;
        }
        shared.publish(&message, message.subject(), &nats).await;
    }
}

/// Publishes answers from the overlay at nats-server, to the subjects that the requests had here.
pub(crate) async fn arrive_answers(
    shared: Arc<Shared>,
    mut answers: Messages,
    nats: async_nats::Client,
) -> BridgeError {
    loop {
        let answer = match answers.next().await {
            Some(Ok(answer)) => answer,
            Some(Err(error)) => return error.into(),
            None => return shared.daemon_lost(),
        };
        let subject = shared.replies.answer_here(answer.subject());
        // A status is about an answer of this bridge.
        if let Some(subject) = subject.filter(|_| answer.status().is_none()) {
            shared.publish(&answer, subject, &nats).await;
        }
    }
}

/// Returns whether a message has entered the overlay at this site.
fn is_own(message: &Message, site: &str) -> bool {
    message.header(SITE) == Some(site)
}

impl Shared {
    /// Publishes a message of the overlay at nats-server.
    async fn publish(&self, message: &Message, subject: &str, nats: &async_nats::Client) {
        let mut to = ToNats::new(message, self, |_| true);
        subject.clone_into(&mut to.subject);
        match to.publish(nats).await {
            Ok(()) => self.counters.arrived.fetch_add(1, Ordering::Relaxed),
            Err(error) => {
                tracing::warn!("dropped a message to {subject}: nats-server: {error}");
                self.counters.dropped.fetch_add(1, Ordering::Relaxed)
            }
        };
    }

    /// Counts a message that has left, or cannot. Returns errors that end the connection.
    fn count_left(&self, subject: &str, sent: Result<(), ClientError>) -> Result<(), ClientError> {
        match sent {
            Ok(()) => self.counters.left.fetch_add(1, Ordering::Relaxed),
            Err(
                error @ (ClientError::TooLong { .. }
                | ClientError::InvalidSubject { .. }
                | ClientError::InvalidHeader { .. }),
            ) => {
                tracing::warn!("dropped a message to {subject}: {error}");
                self.counters.dropped.fetch_add(1, Ordering::Relaxed)
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }
}
