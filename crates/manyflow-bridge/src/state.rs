//! The state of a bridge that outlives its connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::message::Acker;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::arrivals::Arrivals;
use crate::config::{BridgeConfig, Way, overlap};
use crate::outbox::Outbox;
use crate::replies::Replies;
use crate::status::{BridgeState, BridgeStatus, StreamStatus};
use crate::{BridgeError, Counters};

/// The time between two log lines about core messages that come too fast.
const OVERFLOW_INTERVAL: Duration = Duration::from_secs(10);

/// The counters of a bridge.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) left: AtomicU64,
    pub(crate) arrived: AtomicU64,
    pub(crate) dropped: AtomicU64,
}

/// The part of a stream's state that outlives a connection.
enum StreamState {
    Leaves(Mutex<Outbox<Arc<Acker>>>),
    Arrives(Mutex<Arrivals>),
}

/// The parts that all tasks of a bridge share.
pub(crate) struct Shared {
    pub(crate) config: BridgeConfig,
    pub(crate) counters: Counts,
    pub(crate) replies: Replies,
    /// The time of the last log line about messages that came too fast.
    overflow_logged: Mutex<Option<Instant>>,
    streams: Vec<StreamState>,
    status: watch::Sender<BridgeStatus>,
}

impl Shared {
    pub(crate) fn new(config: BridgeConfig, status: watch::Sender<BridgeStatus>) -> Shared {
        let streams = config.streams.iter().map(|stream| match &stream.way {
            Way::To(sites) => StreamState::Leaves(Mutex::new(Outbox::new(sites.clone()))),
            Way::From { .. } => StreamState::Arrives(Mutex::default()),
        });
        Shared {
            streams: streams.collect(),
            counters: Counts::default(),
            overflow_logged: Mutex::default(),
            replies: Replies::new(&config.site, rand::random()),
            config,
            status,
        }
    }

    /// Changes the messages on the way of a stream that leaves.
    pub(crate) fn with_outbox<T>(
        &self,
        place: usize,
        act: impl FnOnce(&mut Outbox<Arc<Acker>>) -> T,
    ) -> T {
        match &self.streams[place] {
            StreamState::Leaves(outbox) => {
                act(&mut outbox.lock().unwrap_or_else(PoisonError::into_inner))
            }
            StreamState::Arrives(_) => unreachable!("the stream arrives"),
        }
    }

    /// Changes the known messages of a stream that arrives.
    pub(crate) fn with_arrivals<T>(&self, place: usize, act: impl FnOnce(&mut Arrivals) -> T) -> T {
        match &self.streams[place] {
            StreamState::Arrives(arrivals) => {
                act(&mut arrivals.lock().unwrap_or_else(PoisonError::into_inner))
            }
            StreamState::Leaves(_) => unreachable!("the stream leaves"),
        }
    }

    /// Checks that core messages do not carry the messages of a stream, too.
    pub(crate) fn check_subjects(
        &self,
        stream: &str,
        subjects: &[String],
    ) -> Result<(), BridgeError> {
        let own = &self.config.subjects;
        let pairs = own
            .iter()
            .flat_map(|own| subjects.iter().map(move |other| (own, other)));
        match pairs.into_iter().find(|(own, other)| overlap(own, other)) {
            None => Ok(()),
            Some((own, other)) => Err(self.stream_error(
                stream,
                format!(
                    "it has messages to {other}, which the bridge also carries as {own}, so they \
                     would arrive twice: remove {own} from the subjects"
                ),
            )),
        }
    }

    pub(crate) fn stream_error(&self, stream: &str, cause: String) -> BridgeError {
        BridgeError::Stream {
            stream: stream.to_owned(),
            address: self.config.nats.clone(),
            cause,
        }
    }

    pub(crate) fn nats_error(&self, cause: impl ToString) -> BridgeError {
        BridgeError::Nats {
            address: self.config.nats.clone(),
            cause: cause.to_string(),
        }
    }

    pub(crate) fn nats_lost(&self) -> BridgeError {
        BridgeError::NatsLost {
            address: self.config.nats.clone(),
        }
    }

    pub(crate) fn daemon_lost(&self) -> BridgeError {
        BridgeError::Daemon(manyflow_messages::ClientError::Lost {
            address: self.config.daemon.clone(),
            cause: "a group has ended".to_owned(),
        })
    }

    pub(crate) fn count_stored(&self) {
        self.counters.arrived.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a message that came while too many waited for the overlay. async-nats drops it, and
    /// may not report each one.
    pub(crate) fn count_overflow(&self) {
        let dropped = self.counters.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        let logged = self.overflow_logged.lock();
        let mut logged = logged.unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|logged| logged.elapsed() > OVERFLOW_INTERVAL) {
            *logged = Some(Instant::now());
            tracing::warn!(
                "core messages come faster than the overlay carries them: dropped {dropped} since the \
                 start"
            );
        }
    }

    /// Reports whether the bridge carries messages, and if not, why.
    pub(crate) fn set_state(&self, state: BridgeState) {
        self.status.send_if_modified(|status| {
            let has_changed = status.state != state;
            status.state = state;
            has_changed
        });
        self.report();
    }

    /// Reports the counters and the messages on the way.
    pub(crate) fn report(&self) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = Counters {
            left: count(&self.counters.left),
            arrived: count(&self.counters.arrived),
            dropped: count(&self.counters.dropped),
        };
        let streams = self.config.streams.iter().zip(&self.streams);
        let streams = streams.filter_map(|(config, state)| match state {
            StreamState::Leaves(outbox) => {
                let outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner);
                let waiting = outbox
                    .waiting()
                    .map(|(site, count)| (site.to_owned(), count));
                Some(StreamStatus {
                    name: config.name.clone(),
                    waiting: waiting.collect(),
                })
            }
            StreamState::Arrives(_) => None,
        });
        let streams = streams.collect();
        self.status.send_if_modified(|status| {
            let has_changed = (&status.counters, &status.streams) != (&counters, &streams);
            status.counters = counters;
            status.streams = streams;
            has_changed
        });
    }
}
