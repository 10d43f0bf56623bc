//! Cost-Benefit: links have prices, clients have budgets, and a message enters when its sender pays
//! for all links that it takes.
//!
//! Source: Amir, Awerbuch, Danilov and Stanton, "Global Flow Control for Wide Area Overlay
//! Networks: A Cost-Benefit Approach", sections IV (prices, salaries) and V (what is told).
//!
//! ```text
//!   a daemon's own queue --> average --> price C(x) = S (e^(x/M) - 1) / (e - 1)
//!                               |                     |
//!            cost update: every Tmin while congested, |     salary, each T; T shrinks by Eq. (3)
//!            Tmax while not; to all daemons           |     or doubles by Eq. (4)
//!                               |                     v              v
//!   at another daemon:  prices as last heard --> cost of a message   savings of its sender, at most S
//!                                                     |              |
//!                                      can it pay? ---+--------------+
//!                                      no: blocked    yes: it buys with probability 1/C
//!                                         \              / no        \ yes: the message enters, the next may ask
//!                                          asks again after a random time
//! ```
//!
//! | file | what it is |
//! |---|---|
//! | `price.rs` | the prices that a daemon has heard, and what a message costs |
//! | `updates.rs` | what it tells of its own links |
//! | `salary.rs` | a client's savings, and how often it is paid |
//! | `benefit.rs` | what messages are worth, which scales salaries |
//! | [`theory`] | the bound behind it, as a game |
//!
//! A daemon keeps something for each link that has a price and for each client of its own: nothing
//! for flows, senders or groups.
//!
//! # What the paper leaves open
//!
//! - **When a client asks again** that could not pay, or lost the draw. It waits for a random time
//!   whose mean is 4 ms for each dollar of the cost. Then n clients with money enough buy n / (4
//!   ms * C (C - 1)) messages a second: where it is not money that limits them, the price grows
//!   with the square root of their number, up to S, at which nobody can buy. There 800 clients hold
//!   a link of 2 Mbit/s: the more rarely they ask, the less comes in until the next update tells of
//!   it. Salaries wake nobody, as all would wake at once.
//! - **Bounds on the salary period.** T stays between 0.1 ms (what one client needs for 800 Mbit/s)
//!   and 300 ms. Eq. (3) is a long step: from T = 2.5 s it leads to 49 ms. Where many share a link,
//!   T without a bound swings between the two, and who is paid often meets who is paid rarely. With
//!   the bound, T of all who share a congested link is 300 ms most of the time, and shares are
//!   even; and a flow over many links, whose cost exceeds H where that of others does not, is left
//!   with $33 a second, a percent or two of a link for a cost of about $5.
//! - **How often Eqs. (3) and (4) apply.** At most once in 2 Tmin, to a client that was paid
//!   before: the paper takes them from TCP, which answers once in a round trip, and it takes an
//!   update and its way until prices show what was done.
//! - **What blocked means.** That the client could not pay; a lost draw is not that. A client that
//!   has bought nothing since its last payday is judged by the cost that it could not pay.
//! - **How it begins.** With nothing saved, T at its bound, and the first payday anywhere in the
//!   first Tmax: the price is zero until the first update, and clients that begin together do not
//!   fill the queue together. The price of this is that a client waits for up to 2.5 s before its
//!   first message.
//! - **The average of a queue** is exponential, over 20 ms, and below half a message it counts as
//!   empty. Longer, it would be late; a single burst must not have a price.
//! - **Own links.** A daemon knows them at once. This favours messages that begin where the
//!   congestion is; by updates only, a flow over many links gets less, for the daemons along it
//!   hear at different times.
//! - **Silence.** A daemon that has never had a price to tell sends no updates, not even each Tmax:
//!   links are idle until one is heard otherwise. Of 1602 daemons, 1600 would fill a tenth of a 2
//!   Mbit/s link with nothing but that.
//! - **Priorities and benefits** scale how often salaries come and how soon a client asks again,
//!   not the salary: savings are capped.
//!
//! What other choices give, in a model of links without TCP (`cargo test -p manyflow-core --test
//! overlay_cost_benefit alternatives -- --ignored --nocapture`): 40 clients at a 2 Mbit/s link,
//! which should have equal shares; the chain of five links, 10 Mbit/s in all, with one client over
//! all of them; and 800 clients at as many daemons. The first row, and each other where it says
//! nothing else, has 3 ms a dollar and T up to 200 ms. In the scenarios of the paper's figures,
//! whose links are TCP's, the longest queue of 800 clients was 173 with these in one run, 144 with
//! 4 ms, 155 with 300 ms and with both; the chain had 9.57, 9.55, 9.63 and 9.61 Mbit/s. Both are
//! the defaults.
//!
//! | choice | clients off | longest queue | busy | chain | long one | longest queue of 800 |
//! |---|---|---|---|---|---|---|
//! | 3 ms, 200 ms | 4 % | 78 | 100 % | 9.72 | 0.069 | 151 |
//! | neither draw nor random times | 5 % | 83 | 100 % | 9.66 | 0.074 | 885 |
//! | own queues by updates only | 4 % | 78 | 100 % | 9.87 | 0.022 | 151 |
//! | asks again after 1 ms a dollar | 1 % | 70 | 100 % | 9.62 | 0.079 | 219 |
//! | after 10 ms a dollar | 10 % | 139 | 100 % | 9.21 | 0.076 | 110 |
//! | after 50 ms a dollar | 32 % | 143 | 93.5 % | 5.60 | 0.086 | 409 |
//! | T up to 50 ms | 7 % | 114 | 100 % | 9.61 | 0.098 | 154 |
//! | T up to 500 ms | 7 % | 87 | 100 % | 9.87 | 0.031 | 143 |
//! | T up to 2.5 s | 62 % | 129 | 99.1 % | 9.97 | 0.006 | 102 |
//! | T from 1 ms to 60 s | 246 % | 133 | 79.1 % | 8.95 | 0.067 | 151 |
//!
//! The soft limit M should be worth more than the time until senders know a price, about Tmin and
//! twice the way. 100 messages are 0.4 s at 2 Mbit/s, but 85 ms at 10 Mbit/s, where twenty clients
//! over 20 ms make the queue swing between nothing and several times M.

mod benefit;
mod config;
mod price;
mod salary;
#[cfg(test)]
mod tests;
pub mod theory;
mod updates;

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

pub use benefit::{Benefit, Diminishing, PerMessage, PerReceiver, Sending};
pub use config::CostBenefitConfig;
pub use price::price;
pub use salary::Ledger;

use self::price::{Heard, takes};
use self::salary::Account;
use self::updates::Updates;
use super::controller::{Audience, Controller, Request, Site};
use super::message::{ClientId, Control, DaemonId, Data, GroupId, LinkId};
use crate::Event;
use manyflow_core::ConfigError;
use manyflow_core::time::{Time, seconds};

/// Over which time [`Sending::messages_per_s`] is averaged.
pub const RATE_AVERAGE: Duration = Duration::from_secs(10);

/// One daemon's part of Cost-Benefit.
#[derive(Debug)]
pub struct CostBenefit {
    config: CostBenefitConfig,
    benefit: Box<dyn Benefit>,
    heard: Heard,
    updates: Updates,
    clients: BTreeMap<ClientId, Account>,
    /// When waiting clients ask again.
    asks: BTreeSet<(Time, ClientId)>,
    ready: VecDeque<ClientId>,
    ledger: Ledger,
    random: Pcg64Mcg,
}

impl CostBenefit {
    /// A daemon's controller; `seed` and the daemon's number give its random choices.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn new(
        config: CostBenefitConfig,
        here: DaemonId,
        seed: u64,
    ) -> Result<CostBenefit, ConfigError> {
        config.check()?;
        Ok(CostBenefit {
            updates: Updates::new(&config),
            config,
            benefit: Box::new(PerMessage),
            heard: Heard::default(),
            clients: BTreeMap::new(),
            asks: BTreeSet::new(),
            ready: VecDeque::new(),
            ledger: Ledger::default(),
            random: Pcg64Mcg::seed_from_u64(seed.rotate_left(16) ^ u64::from(here.0)),
        })
    }

    /// Pays clients by another benefit than [`PerMessage`].
    #[must_use]
    pub fn with_benefit(mut self, benefit: Box<dyn Benefit>) -> CostBenefit {
        self.benefit = benefit;
        self
    }

    /// Where the money of this daemon's clients came from and went.
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// What its clients hold, in millionths of a dollar.
    pub fn savings(&self) -> u64 {
        self.clients.values().map(Account::savings).sum()
    }

    /// Eq. (2): the prices of the links that a message takes, and the fee; in dollars.
    fn cost(&self, now: Time, group: GroupId, site: &Site) -> f64 {
        let waiting = self.updates.waiting(now).chain(self.heard.waiting());
        let links = waiting
            .filter(|(link, _)| takes(*link, group, site))
            .map(|(_, waiting)| price(waiting, &self.config));
        self.config.fee_dollars + links.sum::<f64>()
    }

    /// Money is neither made nor lost: what was given is what was spent, capped, taken or is held.
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

    /// When a client whose message costs so much may ask again.
    fn ask_again(&mut self, now: Time, client: ClientId, cost: f64) {
        let Some(account) = self.clients.get_mut(&client) else {
            return;
        };
        let at = if self.config.randomise {
            // What nobody can buy is no reason to wait for longer.
            let mean = self.config.retry_per_dollar.as_secs_f64()
                * cost.min(self.config.savings_dollars)
                / account.weight;
            now + seconds(-mean * libm::log(1.0 - self.random.random::<f64>()))
        } else {
            account.payday()
        };
        debug_assert!(account.ask_at.is_none(), "{client:?} is to ask twice");
        account.ask_at = Some(at);
        self.asks.insert((at, client));
    }

    /// Without randomisation all who wait ask as soon as prices are heard.
    fn on_prices(&mut self, now: Time) {
        if self.config.randomise {
            return;
        }
        for (_, client) in core::mem::take(&mut self.asks) {
            if let Some(account) = self.clients.get_mut(&client) {
                account.ask_at = Some(now);
                self.ready.push_back(client);
            }
        }
    }
}

impl Controller for CostBenefit {
    fn add_client(&mut self, now: Time, client: ClientId, priority: f64) {
        // Clients that come at once are not paid at once.
        let share = self.random.random::<f64>();
        let payday = now + self.config.update_max.mul_f64(share);
        let account = Account::new(priority.clamp(1e-3, 1e3), payday, &self.config);
        self.clients.insert(client, account);
    }

    fn remove_client(&mut self, now: Time, client: ClientId) {
        if let Some(mut account) = self.clients.remove(&client) {
            account.settle(now, &self.config, &mut self.ledger);
            self.ledger.taken += account.savings();
            self.check_ledger();
            self.asks.retain(|(_, waiting)| *waiting != client);
            self.ready.retain(|waiting| *waiting != client);
        }
    }

    fn try_admit(&mut self, now: Time, request: &Request, site: &Site) -> bool {
        let cost = self.cost(now, request.group, site);
        let Some(account) = self.clients.get_mut(&request.client) else {
            return false;
        };
        if account.ask_at.is_some_and(|at| now < at) {
            return false;
        }
        account.settle(now, &self.config, &mut self.ledger);
        let benefit = self.benefit.of(Sending {
            receivers: site.groups.members(request.group),
            messages_per_s: account.messages_per_s(now),
        });
        account.weight = account.priority * benefit.clamp(1e-3, 1e3);
        let buys = account.can_pay(cost)
            && (!self.config.randomise || self.random.random::<f64>() * cost < 1.0);
        if let Some(at) = account.ask_at.take() {
            self.asks.remove(&(at, request.client));
        }
        if buys {
            account.buy(now, cost, &mut self.ledger);
        } else {
            self.ask_again(now, request.client, cost);
        }
        buys
    }

    fn on_sent(&mut self, _now: Time, _data: &Data, _bytes: u32, _site: &Site) {}

    fn on_queue(&mut self, now: Time, link: LinkId, messages: usize) {
        self.updates.on_queue(now, link, messages);
    }

    fn on_arrival(
        &mut self,
        _now: Time,
        _origin: DaemonId,
        _data: &Data,
        _repaired: bool,
        _bytes: u32,
    ) {
    }

    fn on_control(&mut self, now: Time, from: DaemonId, control: &Control, site: &Site) {
        if let Control::Cost(update) = control {
            self.heard.update(from, update, site);
            self.on_prices(now);
        }
    }

    fn on_membership(&mut self, _now: Time, _group: GroupId, _site: &Site) {}

    fn handle_timeout(&mut self, now: Time, _site: &Site) {
        if self.updates.look(now) {
            self.on_prices(now);
        }
        while let Some(&(at, client)) = self.asks.first()
            && at <= now
        {
            self.asks.pop_first();
            self.ready.push_back(client);
        }
        self.check_ledger();
    }

    fn poll_timeout(&self) -> Option<Time> {
        let ask = self.asks.first().map(|(at, _)| *at);
        [ask, self.updates.next()].into_iter().flatten().min()
    }

    fn poll_ready(&mut self) -> Option<ClientId> {
        self.ready.pop_front()
    }

    fn poll_control(&mut self) -> Option<(Audience, Control)> {
        let update = self.updates.poll()?;
        Some((Audience::Everyone, Control::Cost(update)))
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
