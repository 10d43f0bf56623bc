//! Reads back which messages of another site a stream of this site has.

use std::time::Duration;

use async_nats::header::{NATS_EXPECTED_LAST_SEQUENCE, NATS_MESSAGE_ID};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, pull};
use async_nats::jetstream::context::PublishErrorKind;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::RetentionPolicy;
use async_nats::jetstream::{self, Context};
use futures_util::StreamExt as _;

use crate::names::{HIGHEST, SITE};
use crate::places::Place;
use crate::read_back::{Bridged, ReadBack};

/// The number of messages that are requested at once. A subscription keeps more.
const BATCH: usize = 1000;
/// The time after which nats-server removes the consumer of a bridge that has ended.
const INACTIVE: Duration = Duration::from_secs(10);
/// A sequence number that no stream reaches.
const NEVER: u64 = 1 << 62;

/// The messages of the other site from a place on, and the highest place.
type Known = (Vec<Place>, Option<Place>);

/// Reads the stream `name`, which stores messages to `subject`, back to the message of the other
/// site from `from` on. `site` is that site, and the beginning of its messages' identifiers.
///
/// A stream that removes what is consumed does not show what it has stored: JetStream's window for
/// duplicates has to suffice.
///
/// # Errors
/// If JetStream does not answer.
pub(super) async fn read(
    context: &Context,
    (name, subject): (&str, &str),
    site: (&str, &str),
    from: Place,
) -> Result<Known, String> {
    wait_for_earlier(context, name, subject).await?;
    let stream = context.get_stream(name).await.map_err(text)?;
    let info = stream.cached_info();
    if info.config.retention != RetentionPolicy::Limits {
        return Ok((Vec::new(), None));
    }
    let mut read = ReadBack::new(from, info.state.first_sequence, info.state.last_sequence);
    while let Some(part) = read.part() {
        let consumer = stream.create_consumer(consumer_from(part.start)).await;
        let consumer = consumer.map_err(text)?;
        let ended = match consumer.cached_info().num_pending {
            0 => Ok(()),
            _ => read_part(&consumer, part.end, site, &mut read).await,
        };
        // Otherwise nats-server removes it later.
        let _ = stream.delete_consumer(&consumer.cached_info().name).await;
        ended?;
        read.handle_end();
    }
    Ok(read.finish())
}

/// Returns when the stream has stored all messages that this connection and earlier ones have sent:
/// a stream handles messages one after the other, and refuses this one in its turn.
async fn wait_for_earlier(context: &Context, name: &str, subject: &str) -> Result<(), String> {
    // Without an identifier: JetStream might take the message that follows for a repetition.
    let refused = PublishMessage::build()
        .expected_stream(name)
        .expected_last_sequence(NEVER);
    let sent = context.send_publish(subject.to_owned(), refused).await;
    let ended = match sent {
        Ok(sent) => sent.await.map(|_| ()),
        Err(error) => Err(error),
    };
    match ended {
        Ok(()) => Err(format!("nats-server ignores {NATS_EXPECTED_LAST_SEQUENCE}")),
        Err(error) => match error.kind() {
            PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe => Err(error.to_string()),
            // Any answer is as good.
            _ => Ok(()),
        },
    }
}

/// Returns the configuration of a consumer that reads headers from a sequence number on.
fn consumer_from(start_sequence: u64) -> pull::Config {
    pull::Config {
        description: Some("a bridge looks which messages are stored".to_owned()),
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence },
        ack_policy: AckPolicy::None,
        headers_only: true,
        memory_storage: true,
        inactive_threshold: INACTIVE,
        ..pull::Config::default()
    }
}

/// Reads the messages of a part that ends before the sequence number `end`. The stream has messages
/// from the beginning of the part on.
async fn read_part(
    consumer: &PullConsumer,
    end: u64,
    site: (&str, &str),
    read: &mut ReadBack,
) -> Result<(), String> {
    let mut count = 0;
    loop {
        let batch = consumer.fetch().max_messages(BATCH).messages().await;
        let mut batch = batch.map_err(text)?;
        let before = count;
        while let Some(message) = batch.next().await {
            let message = message.map_err(text)?;
            let info = message.info().map_err(text)?;
            count += 1;
            if info.consumer_sequence != count {
                return Err("a message of the stream was lost on its way to the bridge".to_owned());
            }
            if info.stream_sequence >= end {
                return Ok(());
            }
            let is_last = info.pending == 0 || info.stream_sequence + 1 == end;
            if let Some(bridged) = bridged(&message, site) {
                read.handle(bridged);
            }
            if is_last {
                return Ok(());
            }
        }
        if count == before {
            return Err("its messages do not come".to_owned());
        }
    }
}

/// Reads a message that a bridge has stored for the other site. Other messages are nothing to it.
fn bridged(message: &jetstream::Message, (site, identifiers): (&str, &str)) -> Option<Bridged> {
    let headers = message.headers.as_ref()?;
    if headers.get(SITE)?.as_str() != site {
        return None;
    }
    let identifier = headers.get(NATS_MESSAGE_ID)?.as_str();
    let place = identifier.strip_prefix(identifiers)?.parse().ok()?;
    let highest = headers
        .get(HIGHEST)
        .and_then(|highest| highest.as_str().parse().ok());
    Some(Bridged { place, highest })
}

fn text(error: impl ToString) -> String {
    error.to_string()
}
