//! How local clients share their group's rate (section 4.3): what each asks for, max-min among
//! them, a token bucket for each.
//!
//! A client has one message at a time at its daemon: that slot is its window. It is full while a
//! message waits for tokens.
//!
//! | the slot in the last interval | the client's demand |
//! |---|---|
//! | mostly empty | follows the rate at which it sends, the present weighted more than the past |
//! | mostly full, its last demand was met | twice as much, as the client is held up and cannot show what it would send |
//! | mostly full, its last demand was not met | as before: asking for more would not give it more |

use core::time::Duration;
use std::collections::BTreeMap;

use super::config::TfrcConfig;
use crate::message::ClientId;
use manyflow_core::estimate::max_min::max_min;
use manyflow_core::estimate::token_bucket::TokenBucket;
use manyflow_core::time::Time;

/// The share of an interval from which on a slot counts as full.
const FULL: f64 = 0.5;
/// A bucket holds two messages, or what comes in this time: late timers must not cost rate, and
/// bursts are to stay below a round-trip time's worth (RFC 5348 section 4.6).
const BURST: Duration = Duration::from_millis(10);
/// A client whose demand is less than this share of the initial rate, and that has nothing to send,
/// is forgotten.
const FORGOTTEN: f64 = 0.01;

/// The local clients that send to a group.
#[derive(Debug, Default)]
pub(super) struct Allocation {
    clients: BTreeMap<ClientId, Sender>,
    /// When their demands are looked at next.
    look_at: Option<Time>,
}

/// A client that sends to the group. Rates are in bytes per second.
#[derive(Debug)]
struct Sender {
    demand: f64,
    share: f64,
    bucket: TokenBucket,
    /// The message in the slot.
    waiting: Option<Waiting>,
    /// Its largest message, in bytes.
    message_bytes: f64,
    /// How full the slot is, averaged, from 0 to 1.
    occupancy: f64,
    interval: Interval,
}

/// What a client did since its demand was looked at.
#[derive(Copy, Clone, Debug)]
struct Interval {
    began: Time,
    bytes: f64,
    /// For how long the slot was full, up to the beginning of the present wait.
    full: Duration,
}

/// A message that waits for tokens.
#[derive(Copy, Clone, Debug)]
struct Waiting {
    bytes: f64,
    since: Time,
    /// When there are enough; `None` once its client was told to ask again.
    wake_at: Option<Time>,
}

impl Sender {
    fn new(now: Time, demand: f64, message_bytes: f64) -> Sender {
        Sender {
            demand,
            share: 0.0,
            // What begins to send may send one message at once.
            bucket: TokenBucket::new(now, 0.0, message_bytes),
            waiting: None,
            message_bytes,
            occupancy: 0.0,
            interval: Interval::new(now),
        }
    }

    fn set_share(&mut self, now: Time, share: f64) {
        self.share = share;
        let depth = (2.0 * self.message_bytes).max(share * BURST.as_secs_f64());
        self.bucket.set(now, share, depth);
        if let Some(waiting) = &mut self.waiting
            && waiting.wake_at.is_some()
        {
            waiting.wake_at = Some(self.bucket.ready_at(waiting.bytes));
        }
    }

    fn try_admit(&mut self, now: Time, bytes: f64) -> bool {
        if !self.bucket.take(now, bytes) {
            let since = self.waiting.map_or(now, |waiting| waiting.since);
            let wake_at = Some(self.bucket.ready_at(bytes));
            self.waiting = Some(Waiting {
                bytes,
                since,
                wake_at,
            });
            return false;
        }
        if let Some(waiting) = self.waiting.take() {
            self.interval.full += now - waiting.since.max(self.interval.began);
        }
        self.interval.bytes += bytes;
        true
    }

    /// Takes in what it did since the last look.
    fn look(&mut self, now: Time, history: f64) {
        let interval = core::mem::replace(&mut self.interval, Interval::new(now));
        let span_s = (now - interval.began).as_secs_f64();
        if span_s == 0.0 {
            return;
        }
        let present = self.waiting.map_or(Duration::ZERO, |waiting| {
            now - waiting.since.max(interval.began)
        });
        let full = (interval.full + present).as_secs_f64() / span_s;
        let rate = interval.bytes / span_s;
        self.occupancy = history * self.occupancy + (1.0 - history) * full;
        if self.occupancy < FULL {
            self.demand = history * self.demand + (1.0 - history) * rate;
        } else if self.share >= self.demand {
            self.demand = 2.0 * self.demand.max(rate);
        }
    }
}

impl Interval {
    fn new(began: Time) -> Interval {
        Interval {
            began,
            bytes: 0.0,
            full: Duration::ZERO,
        }
    }
}

impl Allocation {
    /// Admits a client's message and takes its tokens, if there are enough; the group may send at
    /// `allowed` bytes per second.
    pub(super) fn try_admit(
        &mut self,
        now: Time,
        client: ClientId,
        bytes: f64,
        allowed: f64,
        config: &TfrcConfig,
    ) -> bool {
        let known = self.clients.get(&client);
        if known.is_none_or(|sender| sender.message_bytes < bytes) {
            let demand = config.initial_bytes_per_s();
            let sender = self.clients.entry(client);
            let sender = sender.or_insert_with(|| Sender::new(now, demand, bytes));
            sender.message_bytes = bytes;
            self.divide(now, allowed);
            let next = now + config.demand_interval;
            self.look_at.get_or_insert(next);
        }
        let sender = self.clients.get_mut(&client);
        sender.is_some_and(|sender| sender.try_admit(now, bytes))
    }

    /// Gives each client its share: max-min, and an equal part of what none of them has asked for,
    /// so that one whose demand grows is not held up until the next look.
    pub(super) fn divide(&mut self, now: Time, allowed: f64) {
        let demands: Vec<f64> = self.clients.values().map(|sender| sender.demand).collect();
        let shares = max_min(allowed, &demands);
        let left_over = (allowed - shares.iter().sum::<f64>()).max(0.0);
        let extra = left_over / demands.len().max(1) as f64;
        for (sender, share) in self.clients.values_mut().zip(shares) {
            sender.set_share(now, share + extra);
        }
        self.check_shares(allowed);
    }

    /// Clients share all that the group may send, and no more.
    fn check_shares(&self, allowed: f64) {
        let sum: f64 = self.clients.values().map(|sender| sender.share).sum();
        debug_assert!(
            self.clients.is_empty() || (sum - allowed).abs() <= 1e-6 * allowed.max(1.0),
            "shares of {sum} bytes/s, of {allowed} that the group may send"
        );
    }

    pub(super) fn remove(&mut self, now: Time, client: ClientId, allowed: f64) {
        if self.clients.remove(&client).is_some() {
            self.divide(now, allowed);
        }
    }

    /// No message needs to wait any more: tells who waited.
    pub(super) fn release(&mut self) -> impl Iterator<Item = ClientId> {
        self.look_at = None;
        let clients = core::mem::take(&mut self.clients).into_iter();
        clients.filter_map(|(client, sender)| sender.waiting.map(|_| client))
    }

    /// Looks at demands if it is time; tells whose tokens have come.
    pub(super) fn handle_timeout(
        &mut self,
        now: Time,
        allowed: f64,
        config: &TfrcConfig,
        mut ready: impl FnMut(ClientId),
    ) {
        if self.look_at.is_some_and(|look_at| look_at <= now) {
            self.look(now, config);
            self.divide(now, allowed);
        }
        for (client, sender) in &mut self.clients {
            if let Some(waiting) = &mut sender.waiting
                && waiting.wake_at.is_some_and(|wake_at| wake_at <= now)
            {
                waiting.wake_at = None;
                ready(*client);
            }
        }
    }

    fn look(&mut self, now: Time, config: &TfrcConfig) {
        let least = FORGOTTEN * config.initial_bytes_per_s();
        self.clients.retain(|_, sender| {
            sender.look(now, config.demand_history);
            sender.waiting.is_some() || sender.demand >= least
        });
        self.look_at = (!self.clients.is_empty()).then(|| now + config.demand_interval);
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let waiting = self.clients.values().filter_map(|sender| sender.waiting);
        let wakes = waiting.filter_map(|waiting| waiting.wake_at);
        wakes.chain(self.look_at).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_core::time::seconds;

    const BYTES: f64 = 1000.0;

    /// Local clients that make messages at rates of their own (bytes per second), and what they got
    /// through.
    struct Lan {
        now: Time,
        allocation: Allocation,
        config: TfrcConfig,
        allowed: f64,
        /// Each client's rate, when its next message is there, and the bytes it sent.
        clients: Vec<(f64, Time, f64)>,
    }

    impl Lan {
        fn new(allowed: f64, rates: &[f64]) -> Lan {
            let clients = rates.iter().map(|rate| (*rate, Time::ZERO, 0.0));
            Lan {
                now: Time::ZERO,
                allocation: Allocation::default(),
                config: TfrcConfig::default(),
                allowed,
                clients: clients.collect(),
            }
        }

        fn offer(&mut self, index: usize) {
            let (rate, next, sent) = &mut self.clients[index];
            let client = ClientId(index as u32);
            while *rate > 0.0
                && *next <= self.now
                && self
                    .allocation
                    .try_admit(self.now, client, BYTES, self.allowed, &self.config)
            {
                *sent += BYTES;
                *next += seconds(BYTES / *rate);
            }
        }

        /// Lets so many seconds pass; returns each client's rate in them.
        fn run(&mut self, span_s: f64) -> Vec<f64> {
            let end = self.now + seconds(span_s);
            self.clients.iter_mut().for_each(|client| client.2 = 0.0);
            while self.now < end {
                for index in 0..self.clients.len() {
                    self.offer(index);
                }
                let made = self.clients.iter().map(|client| client.1);
                let made = made.filter(|next| *next > self.now);
                let due = made.chain(self.allocation.poll_timeout()).min();
                self.now = due.unwrap_or(end).max(self.now).min(end);
                let mut ready = Vec::new();
                self.allocation
                    .handle_timeout(self.now, self.allowed, &self.config, |c| ready.push(c));
                ready.into_iter().for_each(|c| self.offer(c.0 as usize));
            }
            let rates = self.clients.iter().map(|client| client.2 / span_s);
            rates.collect()
        }
    }

    /// As fast as it may.
    const GREEDY: f64 = 1e7;

    #[test]
    fn greedy_clients_get_equal_shares_and_all_of_the_rate() {
        let mut lan = Lan::new(100_000.0, &[GREEDY; 3]);
        lan.run(5.0);
        for rate in lan.run(20.0) {
            assert!((rate / 33_333.3 - 1.0).abs() < 0.01, "{rate}");
        }
    }

    #[test]
    fn a_small_demand_is_met_in_full_and_the_others_share_the_rest() {
        let mut lan = Lan::new(100_000.0, &[GREEDY, 7_000.0, GREEDY]);
        lan.run(10.0);
        let rates = lan.run(60.0);
        assert!((rates[1] / 7_000.0 - 1.0).abs() < 0.02, "{rates:?}");
        let total: f64 = rates.iter().sum();
        assert!(total > 97_000.0 && total < 100_500.0, "{rates:?}");
        assert!((rates[0] / rates[2] - 1.0).abs() < 0.02, "{rates:?}");
    }

    #[test]
    fn a_lone_client_gets_what_is_allowed_while_that_changes() {
        let mut lan = Lan::new(10_000.0, &[GREEDY]);
        for allowed in [10_000.0, 1_000_000.0, 5_000.0] {
            lan.allowed = allowed;
            lan.allocation.divide(lan.now, allowed);
            let rate = lan.run(30.0)[0];
            assert!((rate / allowed - 1.0).abs() < 0.01, "{rate} of {allowed}");
        }
    }

    #[test]
    fn what_a_client_leaves_goes_to_the_others() {
        let mut lan = Lan::new(100_000.0, &[GREEDY, GREEDY]);
        lan.run(10.0);
        lan.clients[0].0 = 0.0;
        lan.allocation.remove(lan.now, ClientId(0), 100_000.0);
        let rates = lan.run(10.0);
        assert!((rates[1] / 100_000.0 - 1.0).abs() < 0.02, "{rates:?}");
    }

    #[test]
    fn a_client_that_sends_no_more_is_forgotten() {
        let mut lan = Lan::new(100_000.0, &[5_000.0]);
        lan.run(5.0);
        lan.clients[0].0 = 0.0;
        lan.run(10.0);
        assert!(lan.allocation.clients.is_empty());
        assert_eq!(lan.allocation.poll_timeout(), None);
    }
}
