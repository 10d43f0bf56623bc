//! The clients that wait until they may ask again, under both laws.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::message::ClientId;
use manyflow_core::time::Time;

/// The clients that could not buy, and the times at which they ask again.
#[derive(Debug, Default)]
pub(super) struct Retries {
    /// The time at which each waiting client may ask again.
    waiting: BTreeMap<ClientId, Time>,
    /// The clients whose time has not come, in the order of their times.
    later: BTreeSet<(Time, ClientId)>,
    /// The clients whose time has come.
    ready: VecDeque<ClientId>,
}

impl Retries {
    /// Returns the number of clients whose time has not come.
    pub(super) fn len(&self) -> usize {
        self.later.len()
    }

    /// Returns whether a client may ask now.
    pub(super) fn may_ask(&self, now: Time, client: ClientId) -> bool {
        self.waiting.get(&client).is_none_or(|at| *at <= now)
    }

    /// Handles a client that asks: it no longer waits.
    pub(super) fn asks(&mut self, client: ClientId) {
        if let Some(at) = self.waiting.remove(&client) {
            self.later.remove(&(at, client));
        }
    }

    /// Lets a client, which does not wait, ask again at `at`.
    pub(super) fn schedule(&mut self, client: ClientId, at: Time) {
        let before = self.waiting.insert(client, at);
        debug_assert_eq!(before, None, "{client:?} has two retries scheduled");
        self.later.insert((at, client));
    }

    /// Forgets a client.
    pub(super) fn remove(&mut self, client: ClientId) {
        self.asks(client);
        self.ready.retain(|ready| *ready != client);
    }

    /// Lets all waiting clients ask at once.
    pub(super) fn ask_again(&mut self, now: Time) {
        for (_, client) in core::mem::take(&mut self.later) {
            self.waiting.insert(client, now);
            self.ready.push_back(client);
        }
    }

    /// Makes the clients ready whose time has come.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(&(at, client)) = self.later.first()
            && at <= now
        {
            self.later.pop_first();
            self.ready.push_back(client);
        }
    }

    /// Returns when [`handle_timeout`](Retries::handle_timeout) is wanted next, if at all.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.later.first().map(|(at, _)| *at)
    }

    pub(super) fn pop_ready(&mut self) -> Option<ClientId> {
        self.ready.pop_front()
    }
}
