//! Messages of a stream of this site, on their way to others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::{self, AckKind, stream};
use futures_util::StreamExt as _;
use manyflow_messages::{Client, ClientError, Message, Messages};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::BridgeError;
use crate::message::{is_bridged, to_overlay};
use crate::names::{self, FLOOR, PLACE, SITE, SUBJECT};
use crate::outbox::Outbox;
use crate::places::Place;
use crate::state::Shared;

/// The name of the durable consumer at the stream.
const CONSUMER: &str = "manyflow-bridge";
/// The number of messages that the consumer delivers ahead. Their time for an acknowledgement runs.
const BATCH: usize = 16;
/// The shortest time for acknowledgements that the bridge keeps to.
const ACK_WAIT_MIN: Duration = Duration::from_millis(300);
/// The time between two questions for the messages that the consumer has acknowledged.
const FLOOR_INTERVAL: Duration = Duration::from_secs(10);

/// A stream that leaves this site, over one connection.
pub(crate) struct Sender {
    shared: Arc<Shared>,
    /// The place of the stream in the configuration.
    place: usize,
    created_ns: i64,
    /// The sequence number below which all messages are acknowledged.
    floor: AtomicU64,
    /// Notified when there may be room in the outbox.
    has_room: Notify,
    overlay: Client,
}

impl Sender {
    /// Opens the stream and its consumer, which is made if it does not exist.
    pub(crate) async fn open(
        shared: &Arc<Shared>,
        place: usize,
        context: &jetstream::Context,
        overlay: &Client,
    ) -> Result<(Arc<Sender>, PullConsumer, Messages), BridgeError> {
        let name = &shared.config.streams[place].name;
        let failed = |cause: String| shared.stream_error(name, cause);
        let stream = context.get_stream(name).await;
        let stream = stream.map_err(|error| {
            failed(format!("{error}; does it exist, and is JetStream enabled?"))
        })?;
        let info = stream.cached_info();
        shared.check_subjects(name, &info.config.subjects)?;
        let created_ns = created_ns(info);
        let consumer = stream.get_or_create_consumer(CONSUMER, config()).await;
        let consumer = consumer.map_err(|error| failed(format!("consumer {CONSUMER}: {error}")))?;
        if consumer.cached_info().config.ack_policy != AckPolicy::Explicit {
            return Err(failed(format!(
                "its consumer {CONSUMER} must have the acknowledgement policy explicit: delete it, \
                 or change it"
            )));
        }
        let floor = consumer.cached_info().ack_floor.stream_sequence + 1;
        let stored = names::stored(&shared.config.site, name);
        let reports = overlay.join(&stored).await?;
        let sender = Sender {
            shared: Arc::clone(shared),
            place,
            created_ns,
            floor: floor.into(),
            has_room: Notify::new(),
            overlay: overlay.clone(),
        };
        // Messages of an earlier connection are delivered again.
        sender.with_outbox(|outbox| outbox.clear());
        Ok((Arc::new(sender), consumer, reports))
    }

    fn with_outbox<T>(&self, act: impl FnOnce(&mut Outbox<Arc<Acker>>) -> T) -> T {
        self.shared.with_outbox(self.place, act)
    }

    fn name(&self) -> &str {
        &self.shared.config.streams[self.place].name
    }

    /// Publishes the messages of the consumer in the overlay, as far as there is room for them.
    pub(crate) async fn send(self: Arc<Sender>, consumer: PullConsumer) -> BridgeError {
        let builder = consumer.stream().max_messages_per_batch(BATCH);
        let mut messages = match builder.messages().await {
            Ok(messages) => messages,
            Err(error) => return self.error(error),
        };
        loop {
            while !self.with_outbox(|outbox| outbox.has_room()) {
                self.has_room.notified().await;
            }
            let message = match messages.next().await {
                Some(Ok(message)) => message,
                Some(Err(error)) => return self.error(error),
                None => return self.shared.nats_lost(),
            };
            if let Err(error) = self.forward(message).await {
                return error;
            }
        }
    }

    /// Sends a message. One that has come over a bridge goes no further.
    async fn forward(&self, message: jetstream::Message) -> Result<(), BridgeError> {
        let sequence = match message.info() {
            Ok(info) => info.stream_sequence,
            Err(error) => return Err(self.error(error)),
        };
        if is_bridged(&message.message) {
            return message.ack().await.map_err(|error| self.error(error));
        }
        let (message, acker) = message.split();
        let bytes = message.length;
        let to_send = match self.for_overlay(&message, sequence) {
            Ok(to_send) => to_send,
            Err(error) => {
                self.keep(sequence, &error);
                return Ok(());
            }
        };
        let acker = Arc::new(acker);
        if !self.with_outbox(|outbox| outbox.push(sequence, bytes, acker)) {
            // JetStream delivers it again; the site may be back then.
            return Ok(());
        }
        match self.overlay.publish_message(&to_send).await {
            Ok(()) => {
                self.shared.counters.left.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error @ ClientError::TooLong { .. }) => {
                self.with_outbox(|outbox| outbox.remove(sequence));
                self.keep(sequence, &error);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn for_overlay(
        &self,
        message: &async_nats::Message,
        sequence: u64,
    ) -> Result<Message, ClientError> {
        let site = &self.shared.config.site;
        let place = Place {
            created_ns: self.created_ns,
            sequence,
        };
        let floor = self.floor.load(Ordering::Relaxed).min(sequence);
        to_overlay(&names::stream(site, self.name()), message, &self.shared)?
            .with_header(SUBJECT, &message.subject)?
            .with_header(PLACE, &place.to_string())?
            .with_header(FLOOR, &floor.to_string())
    }

    /// Reports a message that cannot leave. It is not acknowledged, so nothing is lost.
    fn keep(&self, sequence: u64, error: &ClientError) {
        let name = self.name();
        tracing::warn!(
            "message {sequence} of the stream {name} cannot leave, and remains: {error}"
        );
    }

    /// Acknowledges the messages that all sites have stored.
    pub(crate) async fn acknowledge(self: Arc<Sender>, mut reports: Messages) -> BridgeError {
        loop {
            let report = match reports.next().await {
                Some(Ok(report)) => report,
                Some(Err(error)) => return error.into(),
                None => return self.shared.daemon_lost(),
            };
            let Some(site) = report.header(SITE) else {
                continue;
            };
            let lines = std::str::from_utf8(report.payload()).unwrap_or_default();
            for place in lines.lines().flat_map(str::parse::<Place>) {
                let done = (place.created_ns == self.created_ns)
                    .then(|| self.with_outbox(|outbox| outbox.handle_stored(site, place.sequence)));
                if let Some(acker) = done.flatten()
                    && let Err(error) = acker.ack().await
                {
                    return self.error(error);
                }
            }
            for acker in self.with_outbox(Outbox::missed) {
                if let Err(error) = acker.ack_with(AckKind::Nak(None)).await {
                    return self.error(error);
                }
            }
            self.has_room.notify_one();
        }
    }

    /// Gives messages that are under way more time: three times in the time after which JetStream
    /// delivers a message again.
    pub(crate) async fn give_time(self: Arc<Sender>, consumer: PullConsumer) -> BridgeError {
        let limit = consumer.cached_info().config.ack_wait;
        loop {
            sleep(limit.max(ACK_WAIT_MIN) / 3).await;
            for acker in self.with_outbox(Outbox::under_way) {
                if let Err(error) = acker.ack_with(AckKind::Progress).await {
                    return self.error(error);
                }
            }
            // There is room again for those that are lost.
            self.has_room.notify_one();
        }
    }

    /// Asks which messages are acknowledged, so that other sites can forget them.
    pub(crate) async fn raise_floor(self: Arc<Sender>, mut consumer: PullConsumer) -> BridgeError {
        loop {
            sleep(FLOOR_INTERVAL).await;
            match consumer.info().await {
                Ok(info) => {
                    let floor = info.ack_floor.stream_sequence + 1;
                    self.floor.store(floor, Ordering::Relaxed);
                }
                Err(error) => return self.error(error),
            }
        }
    }

    fn error(&self, cause: impl ToString) -> BridgeError {
        self.shared.stream_error(self.name(), cause.to_string())
    }
}

/// Returns the configuration of the consumer if it does not exist. JetStream delivers a message
/// again after its default of 30 s.
fn config() -> pull::Config {
    pull::Config {
        durable_name: Some(CONSUMER.to_owned()),
        description: Some("the bridge to other sites".to_owned()),
        ack_policy: AckPolicy::Explicit,
        ..pull::Config::default()
    }
}

/// Returns the time at which a stream was made.
fn created_ns(info: &stream::Info) -> i64 {
    info.created.unix_timestamp_nanos() as i64
}
