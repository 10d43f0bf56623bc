//! The live law of Cost-Benefit: the same prices, budgets and draws at every speed.
//!
//! The paper's law is stated in absolute numbers: M = 100 messages, a salary of $10, a fee of $1,
//! half or twice the time between salaries. They suit a link of 2 Mbit/s. This law states each part
//! per unit of time or of rate, so that a network whose links and clients are all ten times as fast
//! behaves as before, with ten times as many messages.
//!
//! | the paper's law | the live law |
//! |---|---|
//! | the price rises with the number of messages that wait for the link, x/M | it rises with the time that the link takes to send them, the *delay* of its queue |
//! | C(x) = S (e^(x/M) - 1) / (e - 1), with a constant S | P = s e^(K d / 2); the link adapts s until its delay is the target |
//! | salaries adapt to the link: T shrinks by Eq. (3), doubles by Eq. (4) | salaries are the same everywhere, $1 a second; the scale s of prices adapts instead |
//! | an idle link is free, but each message has a fee of $1 | an idle link is free, and there is no fee |
//! | at most S = $20 between two updates limits bursts into idle links | an allowance for each daemon, which doubles with each update while it is what limits clients |
//! | a client that can pay C buys with probability 1/C, then waits | a client buys 1/C messages for each dollar, divided by C for the draw, in one purchase for each millisecond |
//!
//! # The law
//!
//! A message costs C, the sum of the prices of the links on its paths. A client may send
//!
//! ```text
//!   x = w / C^2   messages a second
//! ```
//!
//! with w its priority times the worth of one more message at this rate
//! ([`Benefit::rate`](super::Benefit::rate)): a salary of $1 a second buys 1/C messages, and each
//! purchase succeeds with probability 1/C. The law applies this average itself. A lost draw would
//! cost time without money being short, and the law needs no draw to keep clients apart: they buy
//! at different times, because each waits until it has earned its next message.
//!
//! The daemon at the head of a link sets the link's price. With d the delay of the link, D its
//! target, and the integral taken at each update:
//!
//! ```text
//!   ln 1/x = I + K d,    dI/dt = G (d - D),    P = e^((I + K d) / 2)
//! ```
//!
//! The delay has two parts: d = q + h. The daemon's own queue takes q to drain. Messages that it
//! has handed to TCP wait for h, in TCP's buffers and in the queues of routers, which TCP fills as
//! far as its congestion control lets it. The hop measures h (`hop/delay.rs`). So TCP gets what a
//! link carries and hardly more, and its queues stay as short as the daemon's own.
//!
//! Clients of this daemon know q at once, without a loop to speak of. Their price has a larger
//! proportional part for it, which is the same at the target:
//!
//! ```text
//!   ln 1/x = I + K (h + r) + L (q - r) / D        with L = 0.5, and r = max(D - h, 0)
//! ```
//!
//! The first form is a controller with a proportional and an integral part for the logarithm of the
//! rate. With K = 2.5/s and G = 3.75/s^2 it is stable for a loop of up to 200 ms: the time between
//! updates, the average over it, and the way of the update. Neither constant contains a rate: if
//! all rates are multiplied by k, I shifts by ln k, and all delays stay the same.
//! `the_law_is_the_same_at_every_speed` in `tests.rs` tests this.
//!
//! A link without a queue lets its price fall, by twice as much with each update in a row, so that
//! rates grow multiplicatively while the link has room. A price at which each client may send eight
//! times what the link carries limits nobody, and is dropped. A link gets a price when its delay
//! has been above twice the target for [`ONSET`]; shorter bursts are free. The first price allows
//! each client what the link carries, or less by the factor by which arrivals exceed it. From then
//! on, while the delay is above twice the target, the integral part follows an estimate instead:
//! the arrivals of an update and the price that they were bought at show how many clients there
//! are, and divide what the link carries. A transport that pauses for some hundred milliseconds
//! gives no estimate. So the price of a link with many clients is found in some updates, and does
//! not continue to rise while a long queue drains.
//!
//! All clients learn of the same price, whichever daemon they are at, so that their shares of a
//! link are equal. Over several links, C^2 is more than the sum of the squares: on a chain of five
//! links, the client that crosses all of them has 1/25 of the share of the others. The paper's draw
//! has the same effect.
//!
//! # Layered messages
//!
//! A layered message enters when its client has earned its purse, whatever the prices of links.
//! Each link then sells as many of its bytes as the same law allows at this link alone: with b =
//! 1/P^2, the messages that a client of priority 1 may send in a second, the stream is a client
//! with a benefit in layers ([`Layers::bytes_for`]). A daemon knows the price of its own link at
//! once, so that a message is cut at the price of the moment at which it leaves the queue.
//!
//! # Without a price
//!
//! Over links without a price, all daemons together may let [`BURST_BYTES`] enter at once, in equal
//! shares. A burst into an idle network does not wait, and one from all daemons fills a thin link
//! for a few seconds only. After that, each daemon has an allowance: a rate that begins at its
//! share of the burst for each update. It doubles after an update in which clients needed more and
//! the daemon's own links had no queue, and halves in each second in which nobody needs it. When a
//! price appears, it becomes twice the rate at which clients buy.
//!
//! A link that goes down keeps its price for half a minute: most links are back soon, with the same
//! clients, whose bursts would fill it for seconds.
//!
//! # Limits
//!
//! A target of 20 ms is less than ten messages on a link below 4 Mbit/s. The target is ten messages
//! there, because one message more or less is no congestion. On a fast link, the queue can be half
//! full (`queue_messages`) before its delay reaches twice the target. There the back-pressure of
//! full queues limits the clients of a daemon, in turn, and no price appears. A daemon that is
//! short of processor time limits its clients in the same way: it reads their sockets less often.
//! Messages from other daemons then wait to be read, which is a delay of their links.
//!
//! **Other traffic.** Queues that other connections keep full do not drain when the price rises. A
//! price that followed them would leave the link to the others. If h remains above twice the target
//! for some seconds, while the daemon's own queue is empty, it does not count for 20 s
//! (`below.rs`). TCP then takes its share, and the price is that of the daemon's own queue.
//!
//! The simulator's hops do not measure h: there, the price is that of the daemon's own queue.
//!
//! | file | what it holds |
//! |---|---|
//! | `link.rs` | the price of a daemon's own link |
//! | `prices.rs` | all prices that a daemon knows, and its updates |
//! | `below.rs` | the delay below a daemon's own queue |
//! | `rates.rs` | what a link carries |
//! | `account.rs` | what a client has earned, and the allowance of links without a price |

mod account;
mod below;
mod link;
mod prices;
mod rates;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::BTreeMap;

use self::account::{Account, Allowance};
use self::prices::Prices;
use super::benefit::Benefits;
use super::retries::Retries;
use crate::Event;
use crate::controller::{Audience, Controller, Request, Site};
use crate::layers::Layers;
use crate::message::{ClientId, Control, DaemonId, LinkId};
use crate::sequence::OriginSeq;
use manyflow_core::ConfigError;
use manyflow_core::time::{Time, seconds};

pub use link::ONSET;

/// The time between a daemon's updates while one of its links has a price.
const UPDATE: Duration = Duration::from_millis(50);
/// The time between updates of a daemon whose links have had a price and have none.
const UPDATE_IDLE: Duration = Duration::from_millis(2500);
/// The bytes that all daemons together may let enter at once over links without a price, headers
/// included. Each daemon has an equal share, and may let as much enter for each update afterwards.
pub const BURST_BYTES: u32 = 1024 * 1024;
/// The minimum time for which a client waits: it buys what it earns in this time at once.
const PURCHASE: Duration = Duration::from_millis(1);
/// The maximum time for which a client waits before it looks at prices again.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// The Cost-Benefit controller of one daemon, under the live law. It has no parameters.
#[derive(Debug, Default)]
pub struct LiveCostBenefit {
    prices: Prices,
    benefits: Benefits,
    clients: BTreeMap<ClientId, Account>,
    allowance: Allowance,
    /// The number of daemons that share the burst.
    daemons: usize,
    retries: Retries,
}

impl LiveCostBenefit {
    /// Returns the controller of a daemon that pays clients by the benefit of their messages.
    ///
    /// # Errors
    /// Returns an error if a parameter of the benefits is outside its range.
    pub fn new(benefits: Benefits) -> Result<LiveCostBenefit, ConfigError> {
        benefits.check()?;
        Ok(LiveCostBenefit {
            benefits,
            ..LiveCostBenefit::default()
        })
    }

    /// Returns the price P of one of this daemon's links in dollars; 0 if it has none. A client of
    /// priority 1 that crosses no other link with a price may send 1/P^2 messages a second.
    pub fn price(&self, link: LinkId) -> f64 {
        self.prices.own_price(link).unwrap_or(0.0)
    }

    /// Lets a client that can not pay ask again after `wait`. Returns that it may not send.
    fn retry(&mut self, now: Time, client: ClientId, wait: Duration) -> bool {
        let at = now + wait.clamp(PURCHASE, WAIT_MAX);
        self.retries.schedule(client, at);
        false
    }
}

impl Controller for LiveCostBenefit {
    fn add_client(&mut self, now: Time, client: ClientId, priority: f64) {
        let account = Account::new(now, priority.clamp(1e-3, 1e3));
        self.clients.insert(client, account);
    }

    fn remove_client(&mut self, _now: Time, client: ClientId) {
        self.clients.remove(&client);
        self.retries.remove(client);
    }

    fn try_admit(&mut self, now: Time, request: &Request, site: &Site) -> bool {
        let cost = self.prices.cost(now, &request.groups, site);
        let Some(account) = self.clients.get_mut(&request.client) else {
            return false;
        };
        if !self.retries.may_ask(now, request.client) {
            return false;
        }
        self.retries.asks(request.client);
        if self.daemons != site.topology.daemons().len() {
            self.daemons = site.topology.daemons().len();
            self.allowance.share_among(self.daemons);
        }
        if let Some(purse) = request.purse {
            let bought = account.buy_purse(now, purse);
            return bought.is_none_or(|wait| self.retry(now, request.client, wait));
        }
        let wait = match cost > 0.0 {
            true => {
                let members = || site.members_of(&request.groups);
                let benefit = self.benefits.of(request.groups.first());
                let rate = benefit.rate(account.rate_at(cost), members);
                account.buy(now, rate)
            }
            false => {
                let has_room = !self.prices.have_queue();
                let waiting = self.retries.len();
                self.allowance.take(now, request.bytes, waiting, has_room)
            }
        };
        match wait {
            None => {
                if cost > 0.0 {
                    self.prices.note_bought(&request.groups, site);
                    self.allowance.note_priced(now, request.bytes);
                }
                true
            }
            Some(wait) => self.retry(now, request.client, wait),
        }
    }

    fn sell(&mut self, link: LinkId, layers: &Layers, sequence: OriginSeq) -> u32 {
        self.prices.sell(link, layers, sequence)
    }

    fn on_queue(&mut self, now: Time, link: LinkId, messages: usize) {
        self.prices.on_queue(now, link, messages);
    }

    fn on_delay(&mut self, now: Time, link: LinkId, delay: Duration) {
        self.prices.on_delay(now, link, delay);
    }

    fn on_control(&mut self, now: Time, from: DaemonId, control: &Control, site: &Site) {
        if let Control::Cost(update) = control {
            self.prices.handle_update(now, from, update, site);
        }
    }

    fn on_topology(&mut self, now: Time, site: &Site) {
        self.prices.handle_topology(now, site);
        // Clients may wait for the price of a link that no longer exists.
        self.retries.ask_again(now);
    }

    fn handle_timeout(&mut self, now: Time, _site: &Site) {
        self.prices.handle_timeout(now, &self.benefits);
        self.retries.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Time> {
        let times = [self.retries.poll_timeout(), self.prices.poll_timeout()];
        times.into_iter().flatten().min()
    }

    fn poll_ready(&mut self) -> Option<ClientId> {
        self.retries.pop_ready()
    }

    fn poll_control(&mut self) -> Option<(Audience, Control)> {
        let update = self.prices.pop_update()?;
        Some((Audience::Everyone, Control::Cost(update)))
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

/// Returns a time of this many seconds, at most an hour.
fn wait_of(wait_s: f64) -> Duration {
    seconds(wait_s.clamp(0.0, 3600.0))
}
