//! The division of a group's rate among local clients (section 4.3): a demand for each client,
//! max-min shares, and a token bucket for each client.
//!
//! A client has one message at a time at its daemon. This slot is the client's window. The slot is
//! full while a message waits for tokens.
//!
//! | the slot in the last interval | the client's demand |
//! |---|---|
//! | mostly empty | follows the client's sending rate; the present has more weight than the past |
//! | mostly full, its last demand was met | doubles, because the client is held back and cannot show how much it would send |
//! | mostly full, its last demand was not met | stays the same: a higher demand would not get a higher share |

use core::time::Duration;
use std::collections::BTreeMap;

use super::config::TfrcConfig;
use super::earliest;
use crate::message::ClientId;
use manyflow_core::estimate::max_min::max_min;
use manyflow_core::estimate::token_bucket::TokenBucket;
use manyflow_core::time::Time;

/// A slot counts as full if it was full for this share of an interval on average.
const FULL: f64 = 0.5;
/// A bucket holds two messages, or the tokens of this time if that is more. Late timers must not
/// cost rate, and bursts should stay below a round-trip time's worth of messages (RFC 5348 section
/// 4.6).
const BURST: Duration = Duration::from_millis(10);
/// An idle client is forgotten when its demand falls below this share of the initial rate.
const FORGOTTEN: f64 = 0.01;

/// The local clients that send to a group, and their shares of its rate.
#[derive(Debug)]
pub(super) struct Allocation {
    /// The group's rate in bytes per second, of which the clients have shares.
    rate: f64,
    /// The sum of the clients' demands, in bytes per second.
    demand: f64,
    clients: BTreeMap<ClientId, Sender>,
    /// The time at which demands are updated next.
    update_at: Option<Time>,
    /// The earliest timer, or an earlier time.
    due: Option<Time>,
}

/// A local client that sends to the group. All rates are in bytes per second.
#[derive(Debug)]
struct Sender {
    demand: f64,
    share: f64,
    bucket: TokenBucket,
    /// The message in the slot, which waits for tokens.
    waiting: Option<Waiting>,
    /// The size of the client's largest message, in bytes.
    message_bytes: f64,
    /// The averaged share of time for which the slot is full, from 0 to 1.
    occupancy: f64,
    interval: Interval,
}

/// A client's activity since the last update of its demand.
#[derive(Copy, Clone, Debug)]
struct Interval {
    began: Time,
    bytes: f64,
    /// The time for which the slot was full, the current wait not included.
    full: Duration,
}

/// A message that waits for tokens.
#[derive(Copy, Clone, Debug)]
struct Waiting {
    bytes: f64,
    since: Time,
    /// The time at which the bucket will have enough tokens; `None` once the client has been woken.
    wake_at: Option<Time>,
}

impl Sender {
    fn new(now: Time, demand: f64, message_bytes: f64) -> Sender {
        Sender {
            demand,
            share: 0.0,
            // A new client may send one message at once.
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

    /// Returns when the message in the slot will have enough tokens, if the client must be woken.
    fn wake_at(&self) -> Option<Time> {
        self.waiting?.wake_at
    }

    /// Updates the demand from the client's activity since the last update.
    fn update_demand(&mut self, now: Time, history: f64) {
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
    /// Returns an allocation of `rate` bytes per second, without clients.
    pub(super) fn new(rate: f64) -> Allocation {
        Allocation {
            rate,
            demand: 0.0,
            clients: BTreeMap::new(),
            update_at: None,
            due: None,
        }
    }

    /// Returns the group's rate in bytes per second.
    pub(super) fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the sum of the clients' demands in bytes per second.
    pub(super) fn demand(&self) -> f64 {
        self.demand
    }

    /// Returns the size of the clients' longest message in bytes; 0 without clients.
    pub(super) fn longest(&self) -> f64 {
        let clients = self.clients.values();
        clients.fold(0.0, |longest, sender| sender.message_bytes.max(longest))
    }

    /// Returns whether there are clients.
    pub(super) fn is_used(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Changes the group's rate.
    pub(super) fn set_rate(&mut self, now: Time, rate: f64) {
        self.rate = rate;
        self.divide_rate(now);
    }

    /// Admits a client's message and takes its tokens, if there are enough. If the client must wait
    /// although its demand was met, its demand doubles.
    pub(super) fn try_admit(
        &mut self,
        now: Time,
        client: ClientId,
        bytes: f64,
        config: &TfrcConfig,
    ) -> bool {
        let known = self.clients.get(&client);
        if known.is_none_or(|sender| sender.message_bytes < bytes) {
            let demand = config.initial_bytes_per_s();
            let sender = self.clients.entry(client);
            let sender = sender.or_insert_with(|| Sender::new(now, demand, bytes));
            sender.message_bytes = bytes;
            let next = now + config.demand_interval;
            self.update_at.get_or_insert(next);
            self.divide_rate(now);
        }
        let Some(sender) = self.clients.get_mut(&client) else {
            return false;
        };
        let admitted = sender.try_admit(now, bytes);
        self.due = earliest(self.due, sender.wake_at());
        if !admitted && sender.share >= sender.demand {
            sender.demand *= 2.0;
            self.divide_rate(now);
        }
        admitted
    }

    /// Gives each client its max-min share plus an equal part of the rate that no client demands. A
    /// client whose demand grows is therefore not held back until the next update.
    fn divide_rate(&mut self, now: Time) {
        let demands: Vec<f64> = self.clients.values().map(|sender| sender.demand).collect();
        self.demand = demands.iter().sum();
        let shares = max_min(self.rate, &demands);
        let left_over = (self.rate - shares.iter().sum::<f64>()).max(0.0);
        let extra = left_over / demands.len().max(1) as f64;
        for (sender, share) in self.clients.values_mut().zip(shares) {
            sender.set_share(now, share + extra);
        }
        self.check_shares();
        self.due = self.earliest_timer();
    }

    /// Asserts that the shares add up to the rate of the group.
    fn check_shares(&self) {
        let (rate, sum) = (self.rate, self.clients.values().map(|sender| sender.share));
        let sum: f64 = sum.sum();
        debug_assert!(
            self.clients.is_empty() || (sum - rate).abs() <= 1e-6 * rate.max(1.0),
            "the shares add up to {sum} bytes/s, but the group may send {rate}"
        );
    }

    /// Forgets a client. Returns whether it was known.
    pub(super) fn remove(&mut self, now: Time, client: ClientId) -> bool {
        let is_known = self.clients.remove(&client).is_some();
        if is_known {
            self.divide_rate(now);
        }
        is_known
    }

    /// Forgets all clients, because no message needs to wait any longer. Returns those that waited.
    pub(super) fn release(&mut self) -> impl Iterator<Item = ClientId> {
        (self.update_at, self.due, self.demand) = (None, None, 0.0);
        let clients = core::mem::take(&mut self.clients).into_iter();
        clients.filter_map(|(client, sender)| sender.waiting.map(|_| client))
    }

    /// Updates the demands if it is time. Returns whether it was.
    pub(super) fn update_demands(&mut self, now: Time, config: &TfrcConfig) -> bool {
        if self.update_at.is_none_or(|update_at| now < update_at) {
            return false;
        }
        let least = FORGOTTEN * config.initial_bytes_per_s();
        self.clients.retain(|_, sender| {
            sender.update_demand(now, config.demand_history);
            sender.waiting.is_some() || sender.demand >= least
        });
        self.update_at = self.is_used().then(|| now + config.demand_interval);
        self.divide_rate(now);
        true
    }

    /// Calls `ready` for each client whose tokens have become sufficient.
    pub(super) fn wake(&mut self, now: Time, mut ready: impl FnMut(ClientId)) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        for (client, sender) in &mut self.clients {
            if let Some(waiting) = &mut sender.waiting
                && waiting.wake_at.is_some_and(|wake_at| wake_at <= now)
            {
                waiting.wake_at = None;
                ready(*client);
            }
        }
        self.due = self.earliest_timer();
    }

    fn earliest_timer(&self) -> Option<Time> {
        let wakes = self.clients.values().filter_map(Sender::wake_at);
        wakes.chain(self.update_at).min()
    }

    /// Returns the time of the earliest timer, or an earlier time.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_core::time::seconds;

    const BYTES: f64 = 1000.0;

    /// Local clients that produce messages at given rates (bytes per second), and the bytes that
    /// they sent.
    struct Lan {
        now: Time,
        allocation: Allocation,
        config: TfrcConfig,
        /// For each client: its rate, when its next message is ready, and the bytes that it has
        /// sent.
        clients: Vec<(f64, Time, f64)>,
    }

    impl Lan {
        fn new(allowed: f64, rates: &[f64]) -> Lan {
            let clients = rates.iter().map(|rate| (*rate, Time::ZERO, 0.0));
            Lan {
                now: Time::ZERO,
                allocation: Allocation::new(allowed),
                config: TfrcConfig::default(),
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
                    .try_admit(self.now, client, BYTES, &self.config)
            {
                *sent += BYTES;
                *next += seconds(BYTES / *rate);
            }
        }

        /// Runs for `span_s` seconds. Returns each client's rate in that time.
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
                self.allocation.update_demands(self.now, &self.config);
                self.allocation.wake(self.now, |c| ready.push(c));
                ready.into_iter().for_each(|c| self.offer(c.0 as usize));
            }
            let rates = self.clients.iter().map(|client| client.2 / span_s);
            rates.collect()
        }
    }

    /// A rate that is never reached.
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
    fn a_small_demand_is_met_and_the_others_share_the_rest() {
        let mut lan = Lan::new(100_000.0, &[GREEDY, 7_000.0, GREEDY]);
        lan.run(10.0);
        let rates = lan.run(60.0);
        assert!((rates[1] / 7_000.0 - 1.0).abs() < 0.02, "{rates:?}");
        let total: f64 = rates.iter().sum();
        assert!(total > 97_000.0 && total < 100_500.0, "{rates:?}");
        assert!((rates[0] / rates[2] - 1.0).abs() < 0.02, "{rates:?}");
    }

    #[test]
    fn a_single_client_follows_the_allowed_rate() {
        let mut lan = Lan::new(10_000.0, &[GREEDY]);
        for allowed in [10_000.0, 1_000_000.0, 5_000.0] {
            lan.allocation.set_rate(lan.now, allowed);
            let rate = lan.run(30.0)[0];
            assert!((rate / allowed - 1.0).abs() < 0.01, "{rate} of {allowed}");
        }
    }

    #[test]
    fn the_share_of_a_removed_client_goes_to_the_others() {
        let mut lan = Lan::new(100_000.0, &[GREEDY, GREEDY]);
        lan.run(10.0);
        lan.clients[0].0 = 0.0;
        lan.allocation.remove(lan.now, ClientId(0));
        let rates = lan.run(10.0);
        assert!((rates[1] / 100_000.0 - 1.0).abs() < 0.02, "{rates:?}");
    }

    /// The first client has all of the rate, and a demand for more. The second begins with the
    /// initial rate, an eighth of the rate, and has half of it before any demand is updated.
    #[test]
    fn a_client_that_waits_gets_its_share_before_the_next_update_of_demands() {
        let mut lan = Lan::new(100_000.0, &[GREEDY, 0.0]);
        lan.run(5.1);
        lan.clients[1] = (GREEDY, lan.now, 0.0);
        lan.run(0.2);
        let rates = lan.run(0.15);
        assert!((rates[1] / 50_000.0 - 1.0).abs() < 0.1, "{rates:?}");
    }

    #[test]
    fn an_idle_client_is_forgotten() {
        let mut lan = Lan::new(100_000.0, &[5_000.0]);
        lan.run(5.0);
        lan.clients[0].0 = 0.0;
        lan.run(10.0);
        assert!(lan.allocation.clients.is_empty());
        assert_eq!(lan.allocation.poll_timeout(), None);
    }
}
