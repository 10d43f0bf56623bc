//! Cost-Benefit: links have prices, clients have budgets, and a message enters when its sender pays
//! for all links on its paths.
//!
//! Source: Amir, Awerbuch, Danilov and Stanton, "Global Flow Control for Wide Area Overlay
//! Networks: A Cost-Benefit Approach", sections IV (prices, salaries) and V (cost updates).
//!
//! ```text
//!   a daemon's own queue --> average --> price C(x) = S (e^(x/M) - 1) / (e - 1)
//!                               |                     |
//!            cost update: every Tmin while congested, |     salary, each T; T shrinks by Eq. (3)
//!            Tmax while not; to all daemons           |     or doubles by Eq. (4)
//!                               |                     v              v
//!   at another daemon:  last reported prices --> cost of a message   savings of its sender, at most S
//!                                                     |              |
//!                                      can it pay? ---+--------------+
//!                                      no: blocked    yes: it buys with probability 1/C
//!                                         \              / no        \ yes: the message enters, the next may ask
//!                                          asks again after a random time
//! ```
//!
//! | file | what it holds |
//! |---|---|
//! | `price.rs` | the prices that a daemon knows, and the cost of a message |
//! | `updates.rs` | a daemon's reports about its own links |
//! | `salary.rs` | the savings of clients, and their salaries |
//! | `retries.rs` | the clients that wait until they may ask again, under both laws |
//! | `benefit.rs` | the benefit of messages, which scales salaries |
//!
//! A daemon keeps state for each link that has a price and for each of its own clients, and none
//! for flows, senders or groups.
//!
//! # What the paper leaves open
//!
//! - **Retries.** A client that could not pay, or lost the draw, waits for a random time before it
//!   asks again. The mean is 4 ms for each dollar of the cost. Then n clients with sufficient money
//!   buy n / (4 ms * C (C - 1)) messages a second. If money does not limit them, the price grows
//!   with the square root of their number, up to S, at which no client can buy. At that limit, 800
//!   clients hold a link of 2 Mbit/s: the more rarely they ask, the fewer messages enter until the
//!   next update reports the queue. Salaries do not wake clients, because they would wake all at
//!   once.
//! - **Bounds on the salary period.** T stays between 0.1 ms (the need of one client for 800
//!   Mbit/s) and 300 ms. A step of Eq. (3) is large: it leads from T = 2.5 s to 49 ms. If many
//!   clients share a link, an unbounded T swings between the two, and clients that are paid often
//!   compete with clients that are paid rarely. With the bound, T of all clients at a congested
//!   link is 300 ms most of the time, and their shares are even. A flow over many links, whose cost
//!   exceeds H while the cost of others does not, keeps $33 a second, which buys one or two percent
//!   of a link at a cost of about $5.
//! - **Frequency of Eqs. (3) and (4).** They apply at most once in 2 Tmin, and only to a client
//!   that was paid before. The paper derives them from TCP, which reacts once per round-trip time;
//!   here it takes an update and its path until prices show the effect of a purchase.
//! - **Definition of blocked.** A client is blocked if it could not pay; a lost draw does not block
//!   it. A client that has bought nothing since its last payday is judged by the cost that it could
//!   not pay.
//! - **Start.** A client starts without savings and with T at its upper bound. Its first payday is
//!   at a random time within the first Tmax. The price is zero until the first update, so that
//!   clients which start together would otherwise fill the queue together. A client therefore waits
//!   up to 2.5 s before its first message.
//! - **The average of a queue** is exponential with a time constant of 20 ms. Below half a message,
//!   it counts as zero. A longer time constant would delay the price; with a shorter one, a single
//!   burst would have a price.
//! - **Own links.** A daemon knows their queues at once. This favours messages that enter near the
//!   congestion. If it knew them by updates only, a flow over many links would get less, because
//!   the daemons on its path learn of prices at different times.
//! - **Silence.** A daemon that has never had a price to report sends no updates, not even one per
//!   Tmax: other daemons assume that its links are idle. Otherwise 1600 of 1602 daemons would fill
//!   a tenth of a 2 Mbit/s link with such updates.
//! - **Priorities and benefits** scale the frequency of salaries and of retries, not the salary
//!   itself, because savings are capped.
//!
//! The table shows alternatives in a model of links without TCP. It has three parts: 40 clients at
//! a 2 Mbit/s link, which should have equal shares; the chain of five links, 10 Mbit/s in all, with
//! one client over all of them; and 800 clients at as many daemons. The first row has the defaults,
//! 4 ms a dollar and T from 0.1 to 300 ms; the other rows differ by the choice that they name.
//! `cargo test -p manyflow-overlay --test suite overlay_cost_benefit::alternatives -- --ignored
//! --nocapture` prints the table.
//!
//! | choice | clients off | longest queue | busy | chain | long one | longest queue of 800 |
//! |---|---|---|---|---|---|---|
//! | the defaults | 3 % | 123 | 100 % | 9.78 | 0.053 | 135 |
//! | neither draw nor random times | 15 % | 79 | 100 % | 9.78 | 0.048 | 885 |
//! | own queues by updates only | 3 % | 103 | 100 % | 9.82 | 0.013 | 137 |
//! | asks again after 1 ms a dollar | 12 % | 87 | 100 % | 9.73 | 0.053 | 208 |
//! | after 10 ms a dollar | 8 % | 134 | 100 % | 9.26 | 0.063 | 110 |
//! | after 50 ms a dollar | 32 % | 127 | 94.0 % | 5.60 | 0.076 | 178 |
//! | T from 5 to 50 ms | 8 % | 106 | 100 % | 9.62 | 0.093 | 137 |
//! | T from 5 to 500 ms | 11 % | 106 | 100 % | 9.85 | 0.035 | 132 |
//! | T from 5 ms to 2.5 s | 71 % | 124 | 99.8 % | 9.96 | 0.007 | 101 |
//! | T from 1 ms to 60 s | 392 % | 128 | 79.4 % | 8.90 | 0.091 | 159 |
//!
//! Before 4 ms and 300 ms became the defaults, they were 3 ms and 200 ms. In the scenarios of the
//! paper's figures, whose links use TCP, the longest queue of 800 clients in one run was 173 with
//! 3 ms and 200 ms, 144 with 4 ms and 200 ms, and 155 with 300 ms, whether with 3 or with 4 ms. The
//! chain carried 9.57, 9.55, 9.63 and 9.61 Mbit/s.
//!
//! The soft limit M should be worth more than the time until senders know a price, about Tmin and
//! twice the way. 100 messages are 0.4 s at 2 Mbit/s, but 85 ms at 10 Mbit/s, where twenty clients
//! over 20 ms make the queue swing between nothing and several times M.

mod benefit;
mod config;
pub mod live;
mod price;
mod retries;
mod salary;
#[cfg(test)]
mod tests;
mod updates;

use core::time::Duration;
use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub(crate) use benefit::rate_in_layers;
pub use benefit::{Benefit, Benefits, Layer};
pub use config::CostBenefitConfig;
pub use price::price;
pub use salary::Ledger;

use self::live::LiveCostBenefit;
use self::price::{RemoteQueues, uses_link};
use self::retries::Retries;
use self::salary::Account;
use self::updates::Updates;
use super::controller::{Audience, Controller, Request, Site};
use super::message::{ClientId, Control, DaemonId, GroupSet, LinkId};
use crate::Event;
use manyflow_core::ConfigError;
use manyflow_core::time::{Time, seconds};

/// The form in which Cost-Benefit is stated. All daemons of an overlay use the same one.
#[derive(Clone, Debug, PartialEq)]
pub enum Law {
    /// The paper's, with its absolute numbers.
    Paper(CostBenefitConfig),
    /// The same at every speed, [without parameters](live).
    Live,
}

impl Law {
    /// Returns the controller of the daemon `here` under this law, which pays clients by the
    /// benefit of their messages. `seed` and the daemon's number determine its random choices.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn controller(
        &self,
        here: DaemonId,
        seed: u64,
        benefits: Benefits,
    ) -> Result<Box<dyn Controller>, ConfigError> {
        Ok(match self {
            Law::Paper(config) => {
                let controller = CostBenefit::new(config.clone(), here, seed)?;
                Box::new(controller.with_benefits(benefits)?)
            }
            Law::Live => Box::new(LiveCostBenefit::new(benefits)?),
        })
    }
}

/// The Cost-Benefit controller of one daemon, under the paper's law.
#[derive(Debug)]
pub struct CostBenefit {
    config: CostBenefitConfig,
    benefits: Benefits,
    remote_queues: RemoteQueues,
    updates: Updates,
    clients: BTreeMap<ClientId, Account>,
    retries: Retries,
    ledger: Ledger,
    random: Pcg64Mcg,
}

impl CostBenefit {
    /// Returns the controller of the daemon `here`. `seed` and the daemon's number determine its
    /// random choices.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn new(
        config: CostBenefitConfig,
        here: DaemonId,
        seed: u64,
    ) -> Result<CostBenefit, ConfigError> {
        config.check()?;
        Ok(CostBenefit {
            updates: Updates::new(&config),
            remote_queues: RemoteQueues::new(&config),
            config,
            benefits: Benefits::default(),
            clients: BTreeMap::new(),
            retries: Retries::default(),
            ledger: Ledger::default(),
            random: Pcg64Mcg::seed_from_u64(seed.rotate_left(16) ^ u64::from(here.0)),
        })
    }

    /// Pays clients by these benefits instead of [`Benefit::PerMessage`].
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn with_benefits(mut self, benefits: Benefits) -> Result<CostBenefit, ConfigError> {
        benefits.check()?;
        self.benefits = benefits;
        Ok(self)
    }

    /// Returns the sources and uses of the money of this daemon's clients.
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// Returns the savings of all clients of this daemon, in millionths of a dollar.
    pub fn savings(&self) -> u64 {
        self.clients.values().map(Account::savings).sum()
    }

    /// Eq. (2): returns the sum of the fee and the prices of all links on a message's paths, in
    /// dollars.
    fn cost(&self, now: Time, groups: &GroupSet, site: &Site) -> f64 {
        let waiting = self
            .updates
            .waiting(now)
            .chain(self.remote_queues.waiting(now));
        let links = waiting
            .filter(|(link, _)| uses_link(*link, groups, site))
            .map(|(_, waiting)| price(waiting, &self.config));
        self.config.fee_dollars + links.sum::<f64>()
    }

    /// Asserts that money is conserved: given = spent + capped + taken + savings. Looks at all
    /// clients, so it is called with each update of prices and not with each retry of a client;
    /// money that is lost remains lost.
    fn check_ledger(&self) {
        let Ledger {
            given,
            spent,
            capped,
            taken,
        } = self.ledger;
        let gone = spent + capped + taken;
        debug_assert_eq!(given, gone + self.savings(), "{:?}", self.ledger);
    }

    /// Schedules the next attempt of a client whose message costs `cost` dollars.
    fn schedule_retry(&mut self, now: Time, client: ClientId, cost: f64) {
        let Some(account) = self.clients.get(&client) else {
            return;
        };
        let at = if self.config.randomise {
            // Above S, no client can buy, so a higher price must not delay the retry further.
            let mean = self.config.retry_per_dollar.as_secs_f64()
                * cost.min(self.config.savings_dollars)
                / account.weight();
            now + seconds(-mean * libm::log(1.0 - self.random.random::<f64>()))
        } else {
            account.payday()
        };
        self.retries.schedule(client, at);
    }

    /// Handles new prices: without randomisation, all waiting clients ask again at once.
    fn on_prices(&mut self, now: Time) {
        if !self.config.randomise {
            self.retries.ask_again(now);
        }
    }
}

/// Returns the time since the last multiple of `period`.
fn time_in_period(now: Time, period: Duration) -> Duration {
    Duration::from_nanos(now.as_nanos() % period.as_nanos() as u64)
}

impl Controller for CostBenefit {
    fn add_client(&mut self, now: Time, client: ClientId, priority: f64) {
        // With randomisation, clients that connect together are not paid together. Without it, all
        // clients are paid at the same moments, whenever they connect.
        let latest = self.config.update_max;
        let wait = match self.config.randomise {
            true => latest.mul_f64(self.random.random::<f64>()),
            false => latest - time_in_period(now, latest),
        };
        let payday = now + wait;
        let account = Account::new(priority.clamp(1e-3, 1e3), payday, &self.config);
        self.clients.insert(client, account);
    }

    fn remove_client(&mut self, now: Time, client: ClientId) {
        if let Some(mut account) = self.clients.remove(&client) {
            account.pay_due_salaries(now, &self.config, &mut self.ledger);
            self.ledger.taken += account.savings();
            self.check_ledger();
            self.retries.remove(client);
        }
    }

    fn try_admit(&mut self, now: Time, request: &Request, site: &Site) -> bool {
        let cost = self.cost(now, &request.groups, site);
        let Some(account) = self.clients.get_mut(&request.client) else {
            return false;
        };
        if !self.retries.may_ask(now, request.client) {
            return false;
        }
        account.pay_due_salaries(now, &self.config, &mut self.ledger);
        let members = || site.members_of(&request.groups);
        let benefit = self.benefits.of(request.groups.first());
        let worth = benefit.worth(account.messages_per_s(now), members);
        account.set_worth(now, worth);
        let buys = account.can_pay(cost, &self.config)
            && (!self.config.randomise || self.random.random::<f64>() * cost < 1.0);
        self.retries.asks(request.client);
        if buys {
            account.buy(now, cost, &mut self.ledger);
        } else {
            self.schedule_retry(now, request.client, cost);
        }
        buys
    }

    fn on_queue(&mut self, now: Time, link: LinkId, messages: usize) {
        self.updates.on_queue(now, link, messages);
    }

    fn on_control(&mut self, now: Time, from: DaemonId, control: &Control, site: &Site) {
        if let Control::Cost(update) = control {
            self.remote_queues.handle_update(now, from, update, site);
            self.on_prices(now);
        }
    }

    fn on_topology(&mut self, now: Time, site: &Site) {
        self.remote_queues.handle_topology(site);
        self.updates.handle_topology(site);
        // Clients may wait for the price of a link that no longer exists.
        self.retries.ask_again(now);
    }

    fn handle_timeout(&mut self, now: Time, _site: &Site) {
        if self.updates.handle_timeout(now) {
            self.on_prices(now);
            self.check_ledger();
        }
        self.retries.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let times = [self.retries.poll_timeout(), self.updates.poll_timeout()];
        times.into_iter().flatten().min()
    }

    fn poll_ready(&mut self) -> Option<ClientId> {
        self.retries.pop_ready()
    }

    fn poll_control(&mut self) -> Option<(Audience, Control)> {
        let update = self.updates.pop_update()?;
        Some((Audience::Everyone, Control::Cost(update)))
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
