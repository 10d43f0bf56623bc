//! The receiver's side: reports until the sender has counted it.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use manyflow_core::Time;
use manyflow_net::address::lookup;
use manyflow_net::clock::Clock;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::net::UdpSocket;

use super::CompletionKey;
use super::message::{Kind, MESSAGE_BYTES, Message};

/// Number of windows in which a receiver tries to report.
const ATTEMPTS_MAX: u32 = 3;
/// Maximum time for the answer to the last report.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// A receiver that reports, without clock or socket.
#[derive(Debug)]
pub struct Reporter {
    key: CompletionKey,
    random: StdRng,
    /// The number of this receiver.
    receiver: u64,
    window: Duration,
    /// The end of the present window.
    window_end: Time,
    attempts: u32,
    next_attempt: Option<Time>,
    /// Time at which to give up, once all attempts are made.
    give_up_at: Option<Time>,
    outgoing: Option<[u8; MESSAGE_BYTES]>,
    state: ReporterState,
}

/// The state of a reporter.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum ReporterState {
    /// The sender has not answered yet.
    Reporting,
    /// The sender has counted this receiver.
    Counted,
    /// The sender did not answer.
    Unanswered,
}

impl Reporter {
    /// Makes a reporter that reports once in each window from `now` on.
    pub fn new(key: CompletionKey, window: Duration, now: Time, seed: [u8; 32]) -> Self {
        let mut random = StdRng::from_seed(seed);
        let mut reporter = Reporter {
            key,
            receiver: random.random(),
            random,
            window,
            window_end: now,
            attempts: 0,
            next_attempt: None,
            give_up_at: None,
            outgoing: None,
            state: ReporterState::Reporting,
        };
        reporter.plan_attempt();
        reporter
    }

    /// Chooses a time in the next window.
    fn plan_attempt(&mut self) {
        if self.attempts == ATTEMPTS_MAX {
            self.next_attempt = None;
            return;
        }
        self.attempts += 1;
        let at = self.window.mul_f64(self.random.random());
        self.next_attempt = Some(self.window_end + at);
        self.window_end += self.window;
    }

    pub(super) fn state(&self) -> ReporterState {
        self.state
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) has to be called; `None`
    /// when the reporter has ended.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.state {
            ReporterState::Reporting => self.next_attempt.or(self.give_up_at),
            ReporterState::Counted | ReporterState::Unanswered => None,
        }
    }

    /// Reports, or gives up, if it is time.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_none_or(|at| now < at) {
            return;
        }
        if self.next_attempt.is_none() {
            self.state = ReporterState::Unanswered;
            return;
        }
        // An earlier cookie belongs to an address that may have changed.
        self.send(0);
        self.plan_attempt();
        self.give_up_at = Some(now + ANSWER_TIMEOUT);
    }

    fn send(&mut self, cookie: u64) {
        let report = Message {
            kind: Kind::Report,
            receiver: self.receiver,
            cookie,
        };
        self.outgoing = Some(report.encode(&self.key));
    }

    /// Returns the next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<[u8; MESSAGE_BYTES]> {
        self.outgoing.take()
    }

    /// Handles a datagram of the sender.
    pub fn handle(&mut self, datagram: &[u8]) {
        let message = Message::decode(datagram, &self.key);
        let Some(message) = message.filter(|message| message.receiver == self.receiver) else {
            return;
        };
        match message.kind {
            Kind::Challenge => self.send(message.cookie),
            Kind::Counted => self.state = ReporterState::Counted,
            // Our own report, which came back.
            Kind::Report => {}
        }
    }
}

/// The reason why the sender may not know that this receiver has all files.
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

/// Reports to `server`, a `host:port`, until it answers, at random times in windows of this length.
///
/// # Errors
/// If there is no answer in three windows.
pub async fn report(key: CompletionKey, server: &str, window: Duration) -> Result<(), ReportError> {
    let unreachable = |cause| ReportError::Unreachable {
        server: server.to_owned(),
        cause,
    };
    let clock = Clock::start();
    let seed = rand::make_rng::<StdRng>().random();
    let mut reporter = Reporter::new(key, window, clock.now(), seed);
    let socket = connect(server).await.map_err(unreachable)?;
    let mut buffer = [0; MESSAGE_BYTES + 1];
    loop {
        reporter.handle_timeout(clock.now());
        if let Some(datagram) = reporter.poll_transmit() {
            // A lost datagram is repeated, so one that was not sent is, too.
            if let Err(error) = socket.send(&datagram).await {
                tracing::debug!(%error, server, "cannot report");
            }
        }
        match reporter.state() {
            ReporterState::Reporting => {}
            ReporterState::Counted => return Ok(()),
            ReporterState::Unanswered => return Err(ReportError::Unanswered(server.to_owned())),
        }
        tokio::select! {
            () = clock.sleep_until(reporter.poll_timeout()) => {}
            received = socket.recv(&mut buffer) => match received {
                Ok(length) => reporter.handle(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    return Err(ReportError::Ended(server.to_owned()));
                }
                Err(error) => tracing::debug!(%error, server, "cannot read an answer"),
            },
        }
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
