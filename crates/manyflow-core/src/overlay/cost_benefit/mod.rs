//! Cost-Benefit: prices of links, and budgets of clients.

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
use crate::config_error::ConfigError;
use crate::endpoint::Event;
use crate::time::{Time, seconds};

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
            self.asks.retain(|(_, waiting)| *waiting != client);
            self.ready.retain(|waiting| *waiting != client);
        }
    }

    fn admit(&mut self, now: Time, request: &Request, site: &Site) -> bool {
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
