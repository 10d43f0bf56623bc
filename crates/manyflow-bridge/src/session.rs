//! A bridge while it has both connections, and the loop that renews them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream;
use async_nats::{ConnectError, ConnectErrorKind, ConnectOptions, Event};
use manyflow_messages::Client;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

use crate::BridgeError;
use crate::config::{NatsOptions, Way};
use crate::election::{Candidate, Seat};
use crate::names;
use crate::replies::REPLIES;
use crate::state::Shared;
use crate::status::BridgeState;
use crate::streams::{Receiver, Sender};
use crate::subjects::{arrive, arrive_answers, leave, leave_answers};

/// The pauses between two attempts to connect, in milliseconds. The last one is repeated.
const PAUSES_MS: [u64; 5] = [200, 500, 1000, 2000, 5000];
/// The number of core messages that wait for a subscription while the overlay is full.
const SUBSCRIPTION_MESSAGES: usize = 1024;
/// The time between two reports of the status.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);

/// Carries messages until this is dropped. Connects again after each failure.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut failures = 0;
    loop {
        let (mut was_active, mut end) = (false, None);
        let Err(error) = serve(&shared, &mut was_active, &mut end).await;
        failures = if was_active { 0 } else { failures + 1 };
        shared.set_state(match error {
            BridgeError::Superseded { .. } => BridgeState::Standby,
            error => BridgeState::Failing(error.to_string()),
        });
        let pause = PAUSES_MS[failures.min(PAUSES_MS.len() - 1)];
        sleep(Duration::from_millis(pause)).await;
        // The library connects once more for messages that it has accepted. They must not be stored
        // when the next connection has already asked the stream for its messages.
        if let Some(mut end) = end {
            let _ = end.changed().await;
        }
    }
}

/// The connection to nats-server, and the notification of its end.
struct Nats {
    client: async_nats::Client,
    lost: Arc<Notify>,
    /// Closed when the connection sends nothing any longer.
    end: watch::Receiver<()>,
}

/// Carries messages until a connection fails.
async fn serve(
    shared: &Arc<Shared>,
    was_active: &mut bool,
    end: &mut Option<watch::Receiver<()>>,
) -> Result<Infallible, BridgeError> {
    let nats = connect(shared).await?;
    *end = Some(nats.end);
    let carrying = async {
        let (candidate, _seat) = take_seat(shared, &nats.client).await?;
        let config = &shared.config;
        let overlay = Client::connect(&config.daemon, &config.daemon_options).await?;
        let mut tasks = JoinSet::new();
        begin_subjects(shared, &nats.client, &overlay, &mut tasks).await?;
        begin_streams(shared, &nats.client, &overlay, &mut tasks).await?;
        nats.client
            .flush()
            .await
            .map_err(|error| shared.nats_error(error))?;
        shared.set_state(BridgeState::Active);
        *was_active = true;
        let mut tick = interval(STATUS_INTERVAL);
        let superseded = candidate.lose_seat();
        tokio::pin!(superseded);
        loop {
            tokio::select! {
                Some(ended) = tasks.join_next() => match ended {
                    Ok(error) => return Err(error),
                    Err(panic) => std::panic::resume_unwind(panic.into_panic()),
                },
                lost = &mut superseded => return Err(match lost {
                    Ok(()) => BridgeError::Superseded { site: config.site.clone() },
                    Err(_) => shared.nats_lost(),
                }),
                _ = tick.tick() => shared.report(),
            }
        }
    };
    tokio::select! {
        error = carrying => error,
        () = nats.lost.notified() => Err(shared.nats_lost()),
    }
}

/// Waits until this bridge is the active one of its site.
async fn take_seat(
    shared: &Shared,
    nats: &async_nats::Client,
) -> Result<(Candidate, Seat), BridgeError> {
    let candidate = Candidate::new(nats.clone(), names::bridge(&shared.config.site));
    let seat = candidate.take_seat(|| shared.set_state(BridgeState::Standby));
    let seat = seat.await.map_err(|error| shared.nats_error(error))?;
    Ok((candidate, seat))
}

async fn connect(shared: &Arc<Shared>) -> Result<Nats, BridgeError> {
    let lost = Arc::new(Notify::new());
    let (notify, of_event) = (Arc::clone(&lost), Arc::clone(shared));
    // The library drops its callback when the connection has ended.
    let (open, end) = watch::channel(());
    let options = options(&shared.config.nats_options).await;
    let options = options
        .map_err(|cause| shared.nats_error(cause))?
        .name(format!("manyflow bridge of {}", shared.config.site))
        // Its own messages would only be recognised and ignored.
        .no_echo()
        // Subscriptions, groups and the seat are renewed together, by `run`.
        .max_reconnects(1)
        .subscription_capacity(SUBSCRIPTION_MESSAGES)
        .event_callback(move |event| {
            let _ = &open;
            let (notify, shared) = (Arc::clone(&notify), Arc::clone(&of_event));
            async move { handle_event(&event, &notify, &shared) }
        });
    let client = options.connect(shared.config.nats.as_str()).await;
    let client = client.map_err(|error| shared.nats_error(explain(&error)))?;
    Ok(Nats { client, lost, end })
}

/// Returns the reason why there is no connection, and advice.
fn explain(error: &ConnectError) -> String {
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication => {
            "it refuses the user; check the password, token, key or credentials".to_owned()
        }
        ConnectErrorKind::Tls => format!("{error}; check its certificate and `ca`"),
        _ => format!("{error}; is it running there?"),
    }
}

fn handle_event(event: &Event, lost: &Notify, shared: &Shared) {
    match event {
        Event::Disconnected | Event::Closed => lost.notify_one(),
        Event::SlowConsumer(_) => shared.count_overflow(),
        Event::ServerError(error) => tracing::warn!("nats-server reports: {error}"),
        _ => {}
    }
}

async fn options(options: &NatsOptions) -> Result<ConnectOptions, String> {
    let mut to = ConnectOptions::new().require_tls(options.tls || options.ca.is_some());
    if let Some((user, password)) = &options.user {
        to = to.user_and_password(user.clone(), password.clone());
    }
    if let Some(token) = &options.token {
        to = to.token(token.clone());
    }
    if let Some(seed) = &options.nkey {
        to = to.nkey(seed.clone());
    }
    if let Some(path) = &options.ca {
        to = to.add_root_certificates(path.clone());
    }
    let Some(path) = &options.credentials else {
        return Ok(to);
    };
    let to = to.credentials_file(path).await;
    to.map_err(|error| format!("the credentials in {}: {error}", path.display()))
}

/// Subscribes to the core messages of both sides, and begins to carry them.
async fn begin_subjects(
    shared: &Arc<Shared>,
    nats: &async_nats::Client,
    overlay: &Client,
    tasks: &mut JoinSet<BridgeError>,
) -> Result<(), BridgeError> {
    let failed = |error: async_nats::SubscribeError| shared.nats_error(error);
    for subject in &shared.config.subjects {
        let joined = overlay.join(subject).await?;
        tasks.spawn(arrive(Arc::clone(shared), joined, nats.clone()));
        let subscribed = nats.subscribe(subject.clone()).await.map_err(failed)?;
        tasks.spawn(leave(Arc::clone(shared), subscribed, overlay.clone()));
    }
    if !shared.config.subjects.is_empty() {
        let answers = overlay.join(&shared.replies.pattern()).await?;
        tasks.spawn(arrive_answers(Arc::clone(shared), answers, nats.clone()));
        let answers = nats.subscribe(REPLIES).await.map_err(failed)?;
        tasks.spawn(leave_answers(Arc::clone(shared), answers, overlay.clone()));
    }
    Ok(())
}

/// Opens the streams of both directions, and begins to carry their messages.
async fn begin_streams(
    shared: &Arc<Shared>,
    nats: &async_nats::Client,
    overlay: &Client,
    tasks: &mut JoinSet<BridgeError>,
) -> Result<(), BridgeError> {
    let context = jetstream::new(nats.clone());
    for (place, stream) in shared.config.streams.iter().enumerate() {
        match &stream.way {
            Way::To(_) => {
                let opened = Sender::open(shared, place, &context, overlay).await?;
                let (sender, consumer, reports) = opened;
                tasks.spawn(Arc::clone(&sender).acknowledge(reports));
                tasks.spawn(Arc::clone(&sender).raise_floor(consumer.clone()));
                tasks.spawn(Arc::clone(&sender).give_time(consumer.clone()));
                tasks.spawn(sender.send(consumer));
            }
            Way::From { site, stream } => {
                let opened = Receiver::open(shared, place, (site, stream), &context, overlay);
                let (receiver, messages) = opened.await?;
                tasks.spawn(Arc::clone(&receiver).send_reports());
                tasks.spawn(receiver.store(messages));
            }
        }
    }
    Ok(())
}
