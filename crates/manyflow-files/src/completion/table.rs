//! The sender's table of receivers.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use manyflow_core::Time;
use manyflow_net::keys::PublicKey;
use manyflow_object::needs::Needs;

use super::identity::ReceiverName;
use super::status::{Failure, ReceiverStatus, Transfer};

/// Windows without a report after which a receiver counts as silent: two reports may be lost.
const SILENT_WINDOWS: u32 = 3;

/// The state of a receiver, as the sender sees it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum ReceiverState {
    /// No report has come. Only of receivers that are expected.
    NeverHeard,
    /// The receiver reports that it receives.
    Receiving,
    /// The receiver has not reported for three windows: it is stopped, cut off, or was killed.
    Silent,
    /// The receiver has reported that it has all files. Later reports change nothing.
    Done,
    /// The receiver has reported that it has ended without all files.
    Failed(Failure),
    /// The receiver was stopped by its user.
    Left,
}

impl ReceiverState {
    /// The names of all states, as [`name`](Self::name) returns them.
    pub const NAMES: [&str; 6] = [
        "never-heard",
        "receiving",
        "silent",
        "done",
        "failed",
        "left",
    ];

    /// Returns the name of the state for programs.
    pub fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }

    fn index(self) -> usize {
        match self {
            ReceiverState::NeverHeard => 0,
            ReceiverState::Receiving => 1,
            ReceiverState::Silent => 2,
            ReceiverState::Done => 3,
            ReceiverState::Failed(_) => 4,
            ReceiverState::Left => 5,
        }
    }
}

/// A receiver in the sender's table.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// The name in the list, or else the one that the receiver gives itself.
    pub name: ReceiverName,
    /// The key in the list, which has signed all reports that changed this entry.
    pub key: Option<PublicKey>,
    /// Whether the receiver is in the list.
    pub is_expected: bool,
    /// Whether the receiver uses a name that the list has with a key, without that key.
    pub lacks_key: bool,
    /// The state.
    pub state: ReceiverState,
    /// How far the receiver was when it reported last.
    pub transfer: Transfer,
    /// The address from which the last report came.
    pub address: Option<SocketAddr>,
    /// The time of the last report.
    pub heard_at: Option<Time>,
    /// The time of the first report that all files are there.
    pub done_at: Option<Time>,
    /// The symbols that the receiver needed when it reported last, if it said so.
    pub(super) needs: Option<Needs>,
    /// The number of reports that were taken. The next one needs a cookie for it.
    pub(super) turn: u64,
}

impl Receiver {
    pub(super) fn new(name: ReceiverName, key: Option<PublicKey>, is_expected: bool) -> Receiver {
        Receiver {
            name,
            key,
            is_expected,
            lacks_key: false,
            state: ReceiverState::NeverHeard,
            transfer: Transfer::default(),
            address: None,
            heard_at: None,
            done_at: None,
            needs: None,
            turn: 0,
        }
    }
}

/// Numbers of receivers by state: of those expected, if the sender has a list, or else of all.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounts {
    by_state: [u32; ReceiverState::NAMES.len()],
    /// Receivers that have reported and are not in the list.
    pub unexpected: u32,
}

impl ReceiverCounts {
    /// Returns the number of receivers that have all files.
    pub fn done(&self) -> u32 {
        self.by_state[ReceiverState::Done.index()]
    }

    /// Returns the number of receivers in each state, by its name.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u32)> + use<> {
        ReceiverState::NAMES.into_iter().zip(self.by_state)
    }
}

/// The receivers of a session.
#[derive(Clone, Debug)]
pub struct ReceiverTable {
    /// Those expected, in the order of the list, and then the others in the order of their first
    /// reports.
    rows: Vec<Receiver>,
    counts: ReceiverCounts,
    /// Whether the sender has a list, so that other receivers are unexpected.
    has_list: bool,
    /// The time since which no time has passed for the table.
    now: Time,
    /// The system's time at [`Time::ZERO`].
    started: SystemTime,
}

impl ReceiverTable {
    pub(super) fn new(expected: Vec<Receiver>) -> ReceiverTable {
        let mut table = ReceiverTable {
            counts: ReceiverCounts::default(),
            has_list: !expected.is_empty(),
            rows: expected,
            now: Time::ZERO,
            started: SystemTime::now(),
        };
        table.counts.by_state[0] = table.rows.len() as u32;
        table
    }

    /// Returns the receivers: those expected, in the order of the list, then the others.
    pub fn receivers(&self) -> &[Receiver] {
        &self.rows
    }

    /// Returns the expected receivers that have not reported that they have all files.
    pub fn missing(&self) -> impl Iterator<Item = &Receiver> {
        let expected = self.rows.iter().filter(|receiver| receiver.is_expected);
        expected.filter(|receiver| receiver.state != ReceiverState::Done)
    }

    /// Returns the numbers of receivers by state.
    pub fn counts(&self) -> ReceiverCounts {
        self.counts
    }

    /// Returns the system's time at `time`.
    pub fn system_time(&self, time: Time) -> SystemTime {
        self.started + (time - Time::ZERO)
    }

    /// Returns the time since the receiver's last report; `None` before the first.
    pub fn silence(&self, receiver: &Receiver) -> Option<Duration> {
        Some(self.now.max(receiver.heard_at?) - receiver.heard_at?)
    }

    /// Sets the system's time at [`Time::ZERO`].
    pub(super) fn start(&mut self, now: SystemTime) {
        self.started = now;
    }

    pub(super) fn row(&self, index: usize) -> &Receiver {
        &self.rows[index]
    }

    /// Adds a receiver that has reported for the first time, and is not expected.
    pub(super) fn add(&mut self, name: ReceiverName, lacks_key: bool) -> usize {
        let mut receiver = Receiver::new(name, None, false);
        receiver.lacks_key = lacks_key;
        self.rows.push(receiver);
        match self.has_list {
            true => self.counts.unexpected += 1,
            false => self.counts.by_state[0] += 1,
        }
        self.rows.len() - 1
    }

    /// Takes a report.
    pub(super) fn update(
        &mut self,
        index: usize,
        now: Time,
        from: SocketAddr,
        (status, transfer, needs): (ReceiverStatus, Transfer, Option<Needs>),
    ) {
        self.now = now;
        let receiver = &mut self.rows[index];
        receiver.turn += 1;
        receiver.heard_at = Some(now);
        receiver.address = Some(from);
        if receiver.state == ReceiverState::Done {
            return;
        }
        receiver.transfer = transfer;
        receiver.needs = needs;
        let state = match status {
            ReceiverStatus::Receiving => ReceiverState::Receiving,
            ReceiverStatus::Done => {
                receiver.done_at = Some(now);
                ReceiverState::Done
            }
            ReceiverStatus::Failed(failure) => ReceiverState::Failed(failure),
            ReceiverStatus::Left => ReceiverState::Left,
        };
        self.set_state(index, state);
    }

    /// Notices receivers that have become silent.
    pub(super) fn advance(&mut self, now: Time, window: Duration) {
        self.now = now;
        let limit = window * SILENT_WINDOWS;
        for index in 0..self.rows.len() {
            let receiver = &self.rows[index];
            let is_silent = self
                .silence(receiver)
                .is_some_and(|silence| silence > limit);
            if is_silent && receiver.state == ReceiverState::Receiving {
                self.set_state(index, ReceiverState::Silent);
            }
        }
    }

    fn set_state(&mut self, index: usize, state: ReceiverState) {
        let receiver = &mut self.rows[index];
        let before = std::mem::replace(&mut receiver.state, state);
        if receiver.is_expected || !self.has_list {
            self.counts.by_state[before.index()] -= 1;
            self.counts.by_state[state.index()] += 1;
        }
        let counted: u32 = self.counts.by_state.iter().sum();
        debug_assert_eq!((counted + self.counts.unexpected) as usize, self.rows.len());
    }
}
