//! Clients' budgets: salaries, savings, purchases, and how often salaries come (section IV-B.2 and
//! B.3).

use core::time::Duration;

use super::RATE_AVERAGE;
use super::config::CostBenefitConfig;
use manyflow_core::time::Time;

/// Money, in millionths of a dollar: integers, so that sums are exact.
pub(super) fn micros(dollars: f64) -> u64 {
    (dollars * 1e6 + 0.5) as u64
}

/// Where the money of a daemon's clients came from and went, in millionths of a dollar: at any
/// time, what was given is what was spent, lost to the savings cap, or taken from clients that
/// left, and what they hold.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Paid as salaries.
    pub given: u64,
    /// Paid for messages.
    pub spent: u64,
    /// Above what a client can save.
    pub capped: u64,
    /// Taken from clients that left.
    pub taken: u64,
}

/// A client's budget.
#[derive(Debug)]
pub(super) struct Account {
    /// Salaries come so many times as often as to others: the client's priority times the benefit
    /// of what it sends.
    pub(super) weight: f64,
    /// What the priority alone makes of it.
    pub(super) priority: f64,
    /// When it may ask again; `None` while it does not wait.
    pub(super) ask_at: Option<Time>,
    /// Savings, in millionths of a dollar.
    savings: u64,
    /// T: the time between salaries at weight 1.
    period: Duration,
    payday: Time,
    /// When T was last changed.
    adapted: Time,
    /// It waits for money; and it has done so since its last payday.
    short: bool,
    blocked: bool,
    /// The dearest message that it has bought since its last payday, in dollars; 0 where there is
    /// none.
    dearest: f64,
    /// The cost of the message that it could not afford.
    refused: f64,
    /// Messages sent, each forgotten exponentially, at the last purchase.
    recent: f64,
    bought: Time,
}

impl Account {
    /// An empty one, first paid at `payday`.
    pub(super) fn new(priority: f64, payday: Time, config: &CostBenefitConfig) -> Account {
        Account {
            weight: priority,
            priority,
            ask_at: None,
            savings: 0,
            period: config.salary_period.1,
            payday,
            adapted: payday,
            short: false,
            blocked: false,
            dearest: 0.0,
            refused: 0.0,
            recent: 0.0,
            bought: payday,
        }
    }

    pub(super) fn savings(&self) -> u64 {
        self.savings
    }

    pub(super) fn payday(&self) -> Time {
        self.payday
    }

    #[cfg(test)]
    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// Messages bought per second, lately.
    pub(super) fn messages_per_s(&self, now: Time) -> f64 {
        let age = (now - self.bought).as_secs_f64() / RATE_AVERAGE.as_secs_f64();
        self.recent * libm::exp(-age) / RATE_AVERAGE.as_secs_f64()
    }

    /// Pays the salaries that are due.
    pub(super) fn settle(&mut self, now: Time, config: &CostBenefitConfig, ledger: &mut Ledger) {
        while self.payday <= now {
            if self.blocked {
                self.adapt(config);
            }
            self.blocked = self.short;
            self.dearest = 0.0;
            self.pay(1, config, ledger);
            let step = self.step();
            self.payday += step;
            // Nothing changes until it wants something, or, where it does, until T is.
            let after = now + Duration::from_nanos(1);
            let end = match self.blocked {
                true => after.min(self.adapted + 2 * config.update_min),
                false => after,
            };
            if self.savings == micros(config.savings_dollars) && self.payday < end {
                let missed = (end - self.payday).as_nanos().div_ceil(step.as_nanos());
                let missed = u32::try_from(missed).unwrap_or(u32::MAX);
                self.pay(missed.into(), config, ledger);
                self.payday += step.saturating_mul(missed);
            }
        }
    }

    /// The time between salaries as it is, at least a microsecond.
    fn step(&self) -> Duration {
        let step = self.period.div_f64(self.weight);
        step.max(Duration::from_micros(1))
    }

    fn pay(&mut self, salaries: u64, config: &CostBenefitConfig, ledger: &mut Ledger) {
        let sum = salaries * micros(config.salary_dollars);
        let room = micros(config.savings_dollars) - self.savings;
        self.savings += sum.min(room);
        ledger.given += sum;
        ledger.capped += sum.saturating_sub(room);
    }

    /// Eqs. (3) and (4), for a client that was blocked. Both answer a price, and it takes an update
    /// or two until prices show the answer: as TCP opens its window by one in a round trip, and
    /// closes it once, they apply once in that time.
    fn adapt(&mut self, config: &CostBenefitConfig) {
        let update = config.update_min;
        if self.payday < self.adapted + 2 * update {
            return;
        }
        self.adapted = self.payday;
        // Who bought nothing at all is judged by what it wanted.
        let cost = if self.dearest > 0.0 {
            self.dearest
        } else {
            self.refused
        };
        let period = if cost < config.threshold_dollars {
            let shares = update.as_secs_f64() / (self.period + update).as_secs_f64();
            self.period.mul_f64(shares)
        } else {
            2 * self.period
        };
        let (shortest, longest) = config.salary_period;
        self.period = period.clamp(shortest, longest);
    }

    /// Whether it can pay so many dollars; if not, it is blocked.
    pub(super) fn can_pay(&mut self, cost: f64) -> bool {
        self.short = self.savings < micros(cost);
        if self.short {
            self.blocked = true;
            self.refused = cost;
        }
        !self.short
    }

    /// Pays what it can pay.
    pub(super) fn buy(&mut self, now: Time, cost: f64, ledger: &mut Ledger) {
        debug_assert!(
            self.savings >= micros(cost),
            "a message of {cost} dollars is too dear"
        );
        self.savings -= micros(cost);
        ledger.spent += micros(cost);
        self.dearest = self.dearest.max(cost);
        self.recent = self.messages_per_s(now) * RATE_AVERAGE.as_secs_f64() + 1.0;
        self.bought = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client of weight 1000 that cannot pay a price above its savings; settled at once, and each
    /// tenth of a millisecond.
    #[test]
    fn salaries_that_change_nothing_are_paid_together() {
        let config = CostBenefitConfig::default();
        let settled = |steps: u64| {
            let mut account = Account::new(1000.0, Time::ZERO, &config);
            let mut ledger = Ledger::default();
            account.settle(Time::ZERO, &config, &mut ledger);
            assert!(!account.can_pay(30.0));
            for step in 1..=steps {
                let now = Time::from_nanos(2_000_000_000 * step / steps);
                account.settle(now, &config, &mut ledger);
            }
            (account.savings, account.period, account.payday, ledger)
        };
        assert_eq!(settled(1), settled(20_000));
    }
}
