//! The receiver's side: reports until the sender has taken the last report.

use std::time::Duration;

use manyflow_core::Time;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::identity::Identity;
use super::message::{self, Answer, AnswerKind};
use super::status::{ReceiverStatus, Transfer};
use super::{CompletionKey, WINDOW_MAX};

/// Number of windows in which a receiver tries to make its last report.
const ATTEMPTS_MAX: u32 = 3;
/// Maximum time for the answer to the last report.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The window of a receiver that has failed or leaves, whose user waits for its end.
const FAREWELL_WINDOW: Duration = Duration::from_millis(500);
/// Maximum number of challenges that are answered in one attempt: one, and some for a sender that
/// was started again, or another receiver with the same name.
const CHALLENGES_MAX: u32 = 4;

/// A receiver that reports, without clock or socket.
#[derive(Debug)]
pub struct Reporter {
    key: CompletionKey,
    identity: Identity,
    random: StdRng,
    /// Whether the sender asks for progress, too, and not only for the report that all is here.
    reports_progress: bool,
    window: Duration,
    /// The end of the present window.
    window_end: Time,
    /// Attempts to make the last report.
    attempts: u32,
    next_attempt: Option<Time>,
    /// Time at which to give up, once all attempts are made.
    give_up_at: Option<Time>,
    status: ReceiverStatus,
    transfer: Transfer,
    /// The symbols that the receiver needs, encoded; `None` if it does not say.
    needs: Option<Vec<u8>>,
    /// The cookie for the next report; 0 for none.
    cookie: u64,
    /// The report that has no answer yet.
    pending: Option<Pending>,
    outgoing: Option<Vec<u8>>,
    state: ReporterState,
}

/// A report that waits for its answer.
#[derive(Copy, Clone, Debug)]
struct Pending {
    cookie: u64,
    is_final: bool,
    /// Challenges that were answered since the attempt began.
    challenges: u32,
}

/// The state of a reporter.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum ReporterState {
    /// There is more to report, or the sender has not answered yet.
    Reporting,
    /// The sender has taken the last report.
    Taken,
    /// The sender did not answer the last report.
    Unanswered,
    /// The sender does not ask how this receiver has ended.
    NotAsked,
}

impl Reporter {
    /// Makes a reporter that reports once in each window from `now` on. If the sender does not ask
    /// for progress, it reports nothing before all files are here.
    pub fn new(
        key: CompletionKey,
        identity: Identity,
        window: Duration,
        reports_progress: bool,
        now: Time,
        seed: [u8; 32],
    ) -> Self {
        let mut reporter = Reporter {
            key,
            identity,
            random: StdRng::from_seed(seed),
            reports_progress,
            window,
            window_end: now,
            attempts: 0,
            next_attempt: None,
            give_up_at: None,
            status: ReceiverStatus::Receiving,
            transfer: Transfer::default(),
            needs: None,
            cookie: 0,
            pending: None,
            outgoing: None,
            state: ReporterState::Reporting,
        };
        if reports_progress {
            reporter.plan_attempt();
        }
        reporter
    }

    /// Takes note of how far the receiver is, for the next report.
    pub fn set_transfer(&mut self, transfer: Transfer) {
        self.transfer = transfer;
    }

    /// Takes note of the symbols that the receiver needs, for the next report. The first time, the
    /// sender shall know soon: until then it sends everything.
    pub fn set_needs(&mut self, now: Time, needs: Option<Vec<u8>>) {
        let is_news = needs.is_some() && self.needs.is_none();
        self.needs = needs;
        if is_news && self.reports_progress && !self.status.is_final() {
            let soon = now + self.window.mul_f64(self.random.random::<f64>() / 8.0);
            self.next_attempt = self.next_attempt.map(|at| at.min(soon));
        }
    }

    /// Whether the receiver has said which symbols it needs.
    pub(super) fn has_needs(&self) -> bool {
        self.needs.is_some()
    }

    /// Begins to make the last report: the receiver has ended with this state.
    pub fn end(&mut self, now: Time, status: ReceiverStatus) {
        debug_assert!(status.is_final());
        self.status = status;
        if status != ReceiverStatus::Done {
            self.window = self.window.min(FAREWELL_WINDOW);
            if !self.reports_progress {
                self.state = ReporterState::NotAsked;
            }
        }
        self.window_end = now;
        self.plan_attempt();
    }

    /// Chooses a time in the next window.
    fn plan_attempt(&mut self) {
        if self.status.is_final() {
            if self.attempts == ATTEMPTS_MAX {
                self.next_attempt = None;
                return;
            }
            self.attempts += 1;
        }
        let at = self.window.mul_f64(self.random.random());
        self.next_attempt = Some(self.window_end + at);
        self.window_end += self.window;
    }

    pub(super) fn state(&self) -> ReporterState {
        self.state
    }

    /// Whether the sender has taken the last report.
    pub fn is_taken(&self) -> bool {
        self.state == ReporterState::Taken
    }

    /// Whether the receiver has ended, and makes its last report.
    pub(super) fn is_ending(&self) -> bool {
        self.status.is_final()
    }

    /// Returns the time at which [`handle_timeout`](Self::handle_timeout) has to be called; `None`
    /// when there is nothing to report, now or ever.
    pub fn poll_timeout(&self) -> Option<Time> {
        match self.state {
            ReporterState::Reporting => self.next_attempt.or(self.give_up_at),
            _ => None,
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
        self.send(0);
        // A machine that was suspended does not catch up on its reports.
        self.window_end = self.window_end.max(now);
        self.plan_attempt();
        let timeout = match self.status {
            ReceiverStatus::Receiving | ReceiverStatus::Done => ANSWER_TIMEOUT,
            ReceiverStatus::Failed(_) | ReceiverStatus::Left => FAREWELL_WINDOW,
        };
        self.give_up_at = Some(now + timeout);
    }

    fn send(&mut self, challenges: u32) {
        self.pending = Some(Pending {
            cookie: self.cookie,
            is_final: self.status.is_final(),
            challenges,
        });
        self.outgoing = Some(message::encode_report(
            &self.key,
            &self.identity,
            self.cookie,
            self.status,
            &self.transfer,
            self.needs.as_deref(),
        ));
    }

    /// Returns the next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.outgoing.take()
    }

    /// Handles a datagram of the sender. Ignores all but the answer to the last report, so that old
    /// and repeated answers change nothing.
    pub fn handle(&mut self, datagram: &[u8]) {
        let answer = Answer::decode(datagram, &self.key);
        let (Some(answer), Some(pending)) = (answer, self.pending) else {
            return;
        };
        if (answer.number, answer.answered_cookie) != (self.identity.number, pending.cookie) {
            return;
        }
        self.cookie = answer.next_cookie;
        self.pending = None;
        match answer.kind {
            AnswerKind::Challenge if pending.challenges < CHALLENGES_MAX => {
                self.send(pending.challenges + 1);
            }
            AnswerKind::Challenge => {}
            AnswerKind::Accepted if pending.is_final => self.state = ReporterState::Taken,
            AnswerKind::Accepted => self.take_window(answer.window),
        }
    }

    /// Takes the window that the sender asks for, from the next one on.
    fn take_window(&mut self, window: Duration) {
        if !self.status.is_final() && (Duration::from_secs(1)..=WINDOW_MAX).contains(&window) {
            self.window = window;
        }
    }
}
