//! Clients' budgets: salaries, savings and purchases, and the frequency of salaries (sections
//! IV-B.2 and B.3).

use core::time::Duration;

use super::config::CostBenefitConfig;
use manyflow_core::time::Time;

/// The time over which a client's rate of purchases is averaged.
const RATE_AVERAGE: Duration = Duration::from_secs(10);

/// Returns an amount in millionths of a dollar. Integers keep sums exact.
pub(super) fn micros(dollars: f64) -> u64 {
    (dollars * 1e6 + 0.5) as u64
}

/// The sources and uses of the money of a daemon's clients, in millionths of a dollar. At all
/// times, `given` equals `spent + capped + taken` plus the savings of all clients.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Money paid to clients as salaries.
    pub given: u64,
    /// Money that clients paid for messages.
    pub spent: u64,
    /// Money lost because a client's savings had reached the cap.
    pub capped: u64,
    /// Money taken from clients that disconnected.
    pub taken: u64,
}

/// A client's budget.
#[derive(Debug)]
pub(super) struct Account {
    /// The factor by which salaries come more often than at weight 1: the client's priority times
    /// the benefit of its messages.
    weight: f64,
    /// The client's priority, which is the part of the weight without benefits.
    priority: f64,
    /// Savings, in millionths of a dollar.
    savings: u64,
    /// T: the time between salaries at weight 1.
    period: Duration,
    payday: Time,
    /// The time at which T was last changed, or the first payday.
    adapted: Time,
    /// Whether the client could not pay at its last attempt.
    short: bool,
    /// Whether the client could not pay at some attempt since its last payday, or is still short.
    blocked: bool,
    /// The highest cost in dollars of a message bought since the last payday; 0 if there is none.
    highest_cost: f64,
    /// The cost in dollars of the last message that the client could not pay.
    refused: f64,
    /// The number of messages bought, as an exponentially weighted sum up to the last purchase.
    recent: f64,
    /// The time of the last purchase.
    bought: Time,
}

impl Account {
    /// Returns an account without savings that is first paid at `payday`.
    pub(super) fn new(priority: f64, payday: Time, config: &CostBenefitConfig) -> Account {
        Account {
            weight: priority,
            priority,
            savings: 0,
            period: config.salary_period.1,
            payday,
            adapted: payday,
            short: false,
            blocked: false,
            highest_cost: 0.0,
            refused: 0.0,
            recent: 0.0,
            bought: payday,
        }
    }

    pub(super) fn savings(&self) -> u64 {
        self.savings
    }

    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    /// Sets what one more message of the client is worth. The next payday comes sooner or later in
    /// proportion: a client whose messages were worth little would otherwise wait for long.
    pub(super) fn set_worth(&mut self, now: Time, worth: f64) {
        let weight = self.priority * worth;
        if weight != self.weight {
            let wait = self.payday - now;
            self.payday = now + wait.mul_f64(self.weight / weight);
            self.weight = weight;
        }
    }

    pub(super) fn payday(&self) -> Time {
        self.payday
    }

    #[cfg(test)]
    pub(super) fn period(&self) -> Duration {
        self.period
    }

    /// Returns the recent rate of purchases, in messages per second.
    pub(super) fn messages_per_s(&self, now: Time) -> f64 {
        let age = (now - self.bought).as_secs_f64() / RATE_AVERAGE.as_secs_f64();
        self.recent * libm::exp(-age) / RATE_AVERAGE.as_secs_f64()
    }

    /// Pays the salaries that are due.
    pub(super) fn pay_due_salaries(
        &mut self,
        now: Time,
        config: &CostBenefitConfig,
        ledger: &mut Ledger,
    ) {
        while self.payday <= now {
            if self.blocked {
                self.adapt_period(config);
            }
            self.blocked = self.short;
            self.highest_cost = 0.0;
            self.pay(1, config, ledger);
            let step = self.salary_interval();
            self.payday += step;
            // With full savings, salaries change nothing until now or, if the client is blocked,
            // until T may change. They are paid in one sum.
            let after = now + Duration::from_nanos(1);
            let end = match self.blocked {
                true => after.min(self.adapted + 2 * config.update_min),
                false => after,
            };
            if self.savings >= micros(config.savings_dollars) && self.payday < end {
                let missed = (end - self.payday).as_nanos().div_ceil(step.as_nanos());
                let missed = u32::try_from(missed).unwrap_or(u32::MAX);
                self.pay(missed.into(), config, ledger);
                self.payday += step.saturating_mul(missed);
            }
        }
    }

    /// Returns the time between salaries at the present weight, at least a microsecond.
    fn salary_interval(&self) -> Duration {
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

    /// Applies Eq. (3) or (4) to a client that was blocked, at most once in 2 Tmin. Both equations
    /// react to a price, and it takes an update or two until prices show the effect. TCP likewise
    /// changes its window once per round-trip time.
    fn adapt_period(&mut self, config: &CostBenefitConfig) {
        let update = config.update_min;
        if self.payday < self.adapted + 2 * update {
            return;
        }
        self.adapted = self.payday;
        // A client that bought nothing is judged by the message that it could not pay.
        let cost = if self.highest_cost > 0.0 {
            self.highest_cost
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

    /// Returns whether the client can pay `cost` dollars. If not, the client is blocked. At a cost
    /// above S, no client buys.
    pub(super) fn can_pay(&mut self, cost: f64, config: &CostBenefitConfig) -> bool {
        self.short = self.savings < micros(cost) || cost > config.savings_dollars;
        if self.short {
            self.blocked = true;
            self.refused = cost;
        }
        !self.short
    }

    /// Pays for a message that the client can pay.
    pub(super) fn buy(&mut self, now: Time, cost: f64, ledger: &mut Ledger) {
        debug_assert!(
            self.savings >= micros(cost),
            "a message costs {cost} dollars, but {} millionths are saved",
            self.savings
        );
        self.savings -= micros(cost);
        ledger.spent += micros(cost);
        self.highest_cost = self.highest_cost.max(cost);
        self.recent = self.messages_per_s(now) * RATE_AVERAGE.as_secs_f64() + 1.0;
        self.bought = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client of weight 1000 cannot pay a price above its savings. Salaries are paid once, or
    /// every tenth of a millisecond.
    #[test]
    fn salaries_that_change_nothing_are_paid_together() {
        let config = CostBenefitConfig::default();
        let settled = |steps: u64| {
            let mut account = Account::new(1000.0, Time::ZERO, &config);
            let mut ledger = Ledger::default();
            account.pay_due_salaries(Time::ZERO, &config, &mut ledger);
            assert!(!account.can_pay(30.0, &config));
            for step in 1..=steps {
                let now = Time::from_nanos(2_000_000_000 * step / steps);
                account.pay_due_salaries(now, &config, &mut ledger);
            }
            (account.savings, account.period, account.payday, ledger)
        };
        assert_eq!(settled(1), settled(20_000));
    }
}
