//! Messages of another site's stream, for a stream of this site.

use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream;
use async_nats::jetstream::context::PublishError;
use async_nats::jetstream::message::PublishMessage;
use manyflow_messages::{Client, Message, Messages};
use tokio::sync::{Mutex as AsyncMutex, Notify};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::read_back;
use crate::BridgeError;
use crate::arrivals::{Arrivals, Verdict};
use crate::config::overlap;
use crate::message::ToNats;
use crate::names::{self, FLOOR, HIGHEST, PLACE, SITE, SUBJECT};
use crate::places::Place;
use crate::state::Shared;

/// The maximum number of messages that are being stored.
const STORING_MAX: usize = 1024;
/// The time between two questions for the subjects of a stream that does not store a message.
const SUBJECTS_INTERVAL: Duration = Duration::from_secs(10);
/// The maximum number of messages in one report.
const REPORTED_MAX: usize = 1024;

/// A stream of another site that arrives, over one connection.
pub(crate) struct Receiver {
    shared: Arc<Shared>,
    /// The place of the stream in the configuration.
    place: usize,
    site: String,
    stream: String,
    context: jetstream::Context,
    overlay: Client,
    /// The messages to report.
    due: Mutex<Vec<Place>>,
    is_due: Notify,
    subjects: AsyncMutex<Subjects>,
}

/// The subjects of the stream at this site.
#[derive(Debug, Default)]
struct Subjects {
    patterns: Vec<String>,
    /// The time at which nats-server was asked for them.
    asked: Option<Instant>,
}

/// Returns whether a header of a message concerns the stream that it was published to. The stream
/// at the other site has already checked the conditions in such headers.
fn is_replaced(name: &str) -> bool {
    let begins_with = |start: &str| {
        let begin = name.get(..start.len());
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(start))
    };
    begins_with("Nats-Expected-") || name.eq_ignore_ascii_case(NATS_MESSAGE_ID.as_ref())
}

/// The end of storing a message.
type Stored = (Place, Result<(), PublishError>);

impl Receiver {
    /// Joins the group of the stream.
    pub(crate) async fn open(
        shared: &Arc<Shared>,
        place: usize,
        (site, stream): (&str, &str),
        context: &jetstream::Context,
        overlay: &Client,
    ) -> Result<(Arc<Receiver>, Messages), BridgeError> {
        shared.with_arrivals(place, Arrivals::handle_disconnect);
        let messages = overlay.join(&names::stream(site, stream)).await?;
        let receiver = Receiver {
            shared: Arc::clone(shared),
            place,
            site: site.to_owned(),
            stream: stream.to_owned(),
            context: context.clone(),
            overlay: overlay.clone(),
            due: Mutex::default(),
            is_due: Notify::new(),
            subjects: AsyncMutex::default(),
        };
        receiver
            .ask_subjects(&mut *receiver.subjects.lock().await)
            .await?;
        Ok((Arc::new(receiver), messages))
    }

    /// Stores the messages that arrive. Never waits for the overlay, so that its daemon does not
    /// hold other sites back.
    pub(crate) async fn store(self: Arc<Receiver>, mut messages: Messages) -> BridgeError {
        let mut storing: JoinSet<Stored> = JoinSet::new();
        let mut failure = String::new();
        loop {
            let has_room = storing.len() < STORING_MAX;
            tokio::select! {
                Some(stored) = storing.join_next() => {
                    // The task was cancelled if this one ends, too.
                    if let Ok(stored) = stored {
                        self.handle_stored(stored, &mut failure);
                    }
                }
                message = messages.next(), if has_room => match message {
                    Some(Ok(message)) => {
                        if let Err(error) = self.handle(&message, &mut storing).await {
                            return error;
                        }
                    }
                    Some(Err(error)) => return error.into(),
                    None => return self.shared.daemon_lost(),
                },
            }
        }
    }

    /// Begins to store a message, unless it is known.
    async fn handle(
        &self,
        message: &Message,
        storing: &mut JoinSet<Stored>,
    ) -> Result<(), BridgeError> {
        let place: Option<Place> = message.header(PLACE).and_then(|place| place.parse().ok());
        let floor = message.header(FLOOR).and_then(|floor| floor.parse().ok());
        let is_of_site = message.header(SITE) == Some(&self.site);
        let (Some(place), Some(subject), true) = (place, message.header(SUBJECT), is_of_site)
        else {
            return Ok(());
        };
        if !self.takes(subject).await? {
            return Ok(());
        }
        let floor = floor.unwrap_or(place.sequence);
        let highest = match self.verdict(subject, place, floor).await? {
            Verdict::Store { highest } => highest,
            Verdict::Report => {
                self.report(place);
                return Ok(());
            }
            Verdict::Wait | Verdict::ReadBack => return Ok(()),
        };
        let publish = self.for_nats(message, place, highest);
        let sent = self.context.send_publish(subject.to_owned(), publish).await;
        storing.spawn(async move {
            let stored = match sent {
                Ok(sent) => sent.into_future().await.map(|_| ()),
                Err(error) => Err(error),
            };
            (place, stored)
        });
        Ok(())
    }

    /// Returns the decision about a message. Reads the stream back to it, if it may be stored.
    async fn verdict(
        &self,
        subject: &str,
        place: Place,
        floor: u64,
    ) -> Result<Verdict, BridgeError> {
        let decide = || {
            let handle = |arrivals: &mut Arrivals| arrivals.handle(place, floor);
            self.shared.with_arrivals(self.place, handle)
        };
        let verdict = decide();
        if verdict != Verdict::ReadBack {
            return Ok(verdict);
        }
        let source = format!("{}.{}.", self.site, self.stream);
        let read = read_back::read(
            &self.context,
            (self.name(), subject),
            (&self.site, &source),
            place,
        );
        let (stored, highest) = read
            .await
            .map_err(|cause| self.shared.stream_error(self.name(), cause))?;
        let handle_read = |arrivals: &mut Arrivals| arrivals.handle_read(place, stored, highest);
        self.shared.with_arrivals(self.place, handle_read);
        Ok(decide())
    }

    /// Returns whether the stream at this site stores messages to a subject. Another site must not
    /// publish to subjects that have nothing to do with the stream, such as those of JetStream's
    /// administration.
    async fn takes(&self, subject: &str) -> Result<bool, BridgeError> {
        if subject
            .split('.')
            .any(|word| matches!(word, "" | "*" | ">"))
        {
            return Ok(false);
        }
        let mut subjects = self.subjects.lock().await;
        let takes = |subjects: &Subjects| {
            let mut patterns = subjects.patterns.iter();
            patterns.any(|pattern| overlap(pattern, subject))
        };
        if takes(&subjects) {
            return Ok(true);
        }
        if subjects
            .asked
            .is_some_and(|asked| asked.elapsed() < SUBJECTS_INTERVAL)
        {
            return Ok(false);
        }
        self.ask_subjects(&mut subjects).await?;
        let takes = takes(&subjects);
        if !takes {
            let (site, stream, name) = (&self.site, &self.stream, self.name());
            tracing::warn!(
                "the stream {name} does not store messages to {subject}, which the stream {stream} of \
                 {site} has: add the subject to {name}"
            );
        }
        Ok(takes)
    }

    /// Asks nats-server for the subjects of the stream at this site.
    async fn ask_subjects(&self, subjects: &mut Subjects) -> Result<(), BridgeError> {
        let (shared, name) = (&self.shared, self.name());
        let stream = self.context.get_stream(name).await;
        let stream = stream.map_err(|error| {
            let advice = "does it exist, and is JetStream enabled?";
            shared.stream_error(name, format!("{error}; {advice}"))
        })?;
        subjects.patterns = stream.cached_info().config.subjects.clone();
        subjects.asked = Some(Instant::now());
        shared.check_subjects(name, &subjects.patterns)
    }

    /// Returns the name of the stream at this site.
    fn name(&self) -> &str {
        &self.shared.config.streams[self.place].name
    }

    /// Returns a message for JetStream, which stores it once in its window for duplicates, and in
    /// no other stream.
    fn for_nats(&self, message: &Message, place: Place, highest: Place) -> PublishMessage {
        let ToNats {
            mut headers,
            payload,
            ..
        } = ToNats::new(message, &self.shared, |name| !is_replaced(name));
        headers.insert(HIGHEST, highest.to_string());
        let id = format!("{}.{}.{place}", self.site, self.stream);
        let publish = PublishMessage::build().headers(headers).payload(payload);
        publish.message_id(id).expected_stream(self.name())
    }

    fn handle_stored(&self, (place, result): Stored, failure: &mut String) {
        let is_stored = result.is_ok();
        let end = |arrivals: &mut Arrivals| arrivals.handle_end(place, is_stored);
        self.shared.with_arrivals(self.place, end);
        match result {
            Ok(()) => {
                self.shared.count_stored();
                failure.clear();
                self.report(place);
            }
            Err(error) => {
                let reason = error.to_string();
                let (stream, site) = (&self.stream, &self.site);
                // A server that refuses one message refuses many.
                if reason != *failure {
                    tracing::warn!(
                        "cannot store messages of the stream {stream} of {site}, which sends them \
                         again: {reason}"
                    );
                    *failure = reason;
                }
            }
        }
    }

    fn report(&self, place: Place) {
        let due = self.due.lock();
        due.unwrap_or_else(PoisonError::into_inner).push(place);
        self.is_due.notify_one();
    }

    /// Reports to the other site which messages are stored.
    pub(crate) async fn send_reports(self: Arc<Receiver>) -> BridgeError {
        let subject = names::stored(&self.site, &self.stream);
        let site = self.shared.config.site.clone();
        loop {
            let due = self.take_due();
            if due.is_empty() {
                self.is_due.notified().await;
                continue;
            }
            let lines: Vec<_> = due.iter().map(Place::to_string).collect();
            let report = Message::new(&subject, lines.join("\n"))
                .and_then(|message| message.with_header(SITE, &site));
            let sent = match report {
                Ok(report) => self.overlay.publish_message(&report).await,
                Err(error) => Err(error),
            };
            if let Err(error) = sent {
                return error.into();
            }
        }
    }

    fn take_due(&self) -> Vec<Place> {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let count = due.len().min(REPORTED_MAX);
        due.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_about_the_other_stream_are_left_out() {
        for name in ["nats-msg-id", "Nats-Expected-Last-Sequence"] {
            assert!(is_replaced(name), "{name}");
        }
        for name in ["Nats-Rollup", "Trace", "Nats"] {
            assert!(!is_replaced(name), "{name}");
        }
    }
}
