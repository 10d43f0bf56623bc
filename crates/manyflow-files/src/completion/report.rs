//! The receiver's reports on the network.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use manyflow_net::address::lookup;
use manyflow_net::clock::Clock;
use manyflow_net::description::HostPort;
use manyflow_net::description::load::reachable;
use manyflow_net::group_key::GroupKey;
use rand::RngExt as _;
use rand::rngs::StdRng;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::message::ANSWER_BYTES;
use super::reporter::ReporterState;
use super::{CompletionKey, Identity, ReceiverStatus, Reporter, Transfer};
use crate::sdp::SessionDescription;
use crate::session::{Progress, ProgressSinks};

/// The reason why the sender may not know how this receiver has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The name of the sender could not be resolved, or no socket could be opened.
    #[error("cannot reach {server} ({cause})")]
    Unreachable {
        /// The server's name.
        server: String,
        /// The system's reason.
        cause: io::Error,
    },
    /// Nobody listens there, so the session is over.
    #[error("{0} no longer takes reports")]
    Ended(String),
    /// No answer.
    #[error("{0} did not answer")]
    Unanswered(String),
}

/// Where, when and what to report.
#[derive(Clone, Debug)]
pub struct ReportPlan {
    key: CompletionKey,
    /// The sender's address for reports, as `host:port`.
    server: String,
    window: Duration,
    /// Whether the sender asks for progress, too.
    reports_progress: bool,
}

impl ReportPlan {
    /// Returns the plan of a receiver of the session that was loaded from `session`. `None` if the
    /// sender does not ask for reports.
    pub fn new(
        description: &SessionDescription,
        group: Option<&GroupKey>,
        session: &str,
    ) -> Option<ReportPlan> {
        let completion = description.completion.as_ref()?;
        let server = reachable(&completion.server, session).unwrap_or_else(|| {
            let host = description.source.to_string();
            let port = completion.server.port;
            HostPort { host, port }.authority()
        });
        Some(ReportPlan {
            key: CompletionKey::new(description, group)?,
            server,
            window: completion.window,
            reports_progress: completion.progress,
        })
    }
}

/// A task that reports for a receiver, until it is dropped.
#[derive(Debug)]
pub struct Reporting {
    window: Duration,
    ending: watch::Sender<ReceiverStatus>,
    task: JoinHandle<Result<(), ReportError>>,
}

impl Reporting {
    /// Starts to report the progress of a receiver, which it reports to `sinks`. Needs a tokio
    /// runtime.
    pub fn start(plan: ReportPlan, identity: Identity, sinks: &ProgressSinks) -> Reporting {
        let (ending, ended) = watch::channel(ReceiverStatus::Receiving);
        let window = plan.window;
        let task = tokio::spawn(report(plan, identity, Watched::of(sinks), ended));
        Reporting {
            window,
            ending,
            task,
        }
    }

    /// The window in which the receiver reports once, unless the sender has asked for another one.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Reports how the receiver has ended, in the window of the plan if it is done, and soon
    /// otherwise. Completes when the sender has taken the report, or at once if it does not ask for
    /// one.
    ///
    /// # Errors
    /// If there is no answer in three windows.
    pub async fn end(mut self, status: ReceiverStatus) -> Result<(), ReportError> {
        self.ending.send_replace(status);
        match (&mut self.task).await {
            Ok(result) => result,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}

impl Drop for Reporting {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The progress and the needs that a receiver reports.
struct Watched {
    progress: watch::Receiver<Progress>,
    needs: watch::Receiver<Option<Vec<u8>>>,
}

impl Watched {
    fn of(sinks: &ProgressSinks) -> Watched {
        Watched {
            progress: sinks.progress.subscribe(),
            needs: sinks.needs.subscribe(),
        }
    }
}

async fn report(
    plan: ReportPlan,
    identity: Identity,
    mut watched: Watched,
    mut ending: watch::Receiver<ReceiverStatus>,
) -> Result<(), ReportError> {
    let ReportPlan {
        key,
        server,
        window,
        reports_progress,
    } = plan;
    let clock = Clock::start();
    let seed = rand::make_rng::<StdRng>().random();
    let now = clock.now();
    let mut reporter = Reporter::new(key, identity, window, reports_progress, now, seed);
    let mut socket = None;
    let mut buffer = [0; ANSWER_BYTES + 1];
    loop {
        reporter.set_transfer(Transfer::from(&*watched.progress.borrow()));
        let needs = watched.needs.borrow_and_update().clone();
        reporter.set_needs(clock.now(), needs);
        reporter.handle_timeout(clock.now());
        if let Some(datagram) = reporter.poll_transmit() {
            let sent = send(&mut socket, &server, &datagram).await;
            if let Err(cause) = sent {
                // A report that was not sent is repeated, as a lost one is.
                tracing::debug!(error = %cause, server, "cannot report");
                if reporter.is_ending() && socket.is_none() {
                    return Err(ReportError::Unreachable { server, cause });
                }
            }
        }
        match reporter.state() {
            ReporterState::Reporting => {}
            ReporterState::Taken | ReporterState::NotAsked => return Ok(()),
            ReporterState::Unanswered => return Err(ReportError::Unanswered(server)),
        }
        tokio::select! {
            () = clock.sleep_until(reporter.poll_timeout()) => {}
            changed = ending.changed(), if !reporter.is_ending() => match changed {
                Ok(()) => reporter.end(clock.now(), *ending.borrow_and_update()),
                // The handle was dropped, which ends this task.
                Err(_) => return Ok(()),
            },
            Ok(()) = watched.needs.changed(), if !reporter.has_needs() => {}
            received = receive(socket.as_ref(), &mut buffer) => match received {
                Ok(length) => reporter.handle(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    if reporter.is_ending() {
                        return Err(ReportError::Ended(server));
                    }
                }
                Err(error) => tracing::debug!(%error, server, "cannot read an answer"),
            },
        }
    }
}

/// Sends a report, by a socket that is opened for the first one.
async fn send(socket: &mut Option<UdpSocket>, server: &str, datagram: &[u8]) -> io::Result<()> {
    let socket = match socket {
        Some(socket) => socket,
        None => socket.insert(connect(server).await?),
    };
    socket.send(datagram).await?;
    Ok(())
}

async fn receive(socket: Option<&UdpSocket>, buffer: &mut [u8]) -> io::Result<usize> {
    match socket {
        Some(socket) => socket.recv(buffer).await,
        None => std::future::pending().await,
    }
}

/// Opens a socket for the first address of `server` that has a route.
async fn connect(server: &str) -> io::Result<UdpSocket> {
    let mut failed = io::Error::from(io::ErrorKind::NotFound);
    for address in lookup(server, None).await? {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(any).await?;
        match socket.connect(address).await {
            Ok(()) => return Ok(socket),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
