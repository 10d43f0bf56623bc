//! The parameters of Cost-Benefit.

use core::time::Duration;

use manyflow_core::ConfigError;

/// The parameters of Cost-Benefit, the same at all daemons. The default has the paper's values, and
/// ours where it gives none.
#[derive(Clone, Debug, PartialEq)]
pub struct CostBenefitConfig {
    /// What a client is paid at a time, in dollars; positive.
    pub salary_dollars: f64,
    /// S: what a client can save, and the price at which nobody can buy, in dollars; at least a
    /// salary and more than the fee.
    pub savings_dollars: f64,
    /// M: the soft limit of a link's queue, in messages; positive.
    pub queue_messages: f64,
    /// The processing fee of each message, in dollars; positive.
    pub fee_dollars: f64,
    /// H: a client that is short of money is paid more often if what it bought cost less than this,
    /// and more rarely if more; in dollars, above the fee.
    pub threshold_dollars: f64,
    /// Tmin: the time between a daemon's cost updates while one of its links is congested;
    /// positive.
    pub update_min: Duration,
    /// Tmax: the time between its cost updates otherwise; at least Tmin.
    pub update_max: Duration,
    /// How rarely and how often a client can be paid: the least and the longest time between its
    /// salaries; positive, and the longest is what it begins with.
    pub salary_period: (Duration, Duration),
    /// How long a client waits, for each dollar of its message's cost, until it asks again, on
    /// average; positive.
    pub retry_per_dollar: Duration,
    /// Whether a client that could pay the cost C buys with probability 1/C only, and waits for a
    /// random time before it asks again. Without, all clients of a daemon ask again as soon as they
    /// are paid or hear of prices, as in the paper's Figure 2.
    pub randomise: bool,
    /// Whether a daemon knows the queues of its own links at any time; otherwise it knows what it
    /// last told others.
    pub own_queues_at_once: bool,
}

impl Default for CostBenefitConfig {
    fn default() -> CostBenefitConfig {
        CostBenefitConfig {
            salary_dollars: 10.0,
            savings_dollars: 20.0,
            queue_messages: 100.0,
            fee_dollars: 1.0,
            threshold_dollars: 2.0,
            update_min: Duration::from_millis(50),
            update_max: Duration::from_millis(2500),
            salary_period: (Duration::from_micros(100), Duration::from_millis(300)),
            retry_per_dollar: Duration::from_millis(4),
            randomise: true,
            own_queues_at_once: true,
        }
    }
}

impl CostBenefitConfig {
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        // Sums of money stay within 64 bits even where a client was away for a year.
        let positive = |value: f64| value > 0.0 && value <= 1e3;
        let (shortest, longest) = self.salary_period;
        ConfigError::first_of([
            (
                "the salary",
                "positive, at most 1000 dollars",
                positive(self.salary_dollars),
            ),
            (
                "the savings cap",
                "at least a salary and above the fee, at most 1000 dollars",
                positive(self.savings_dollars)
                    && self.savings_dollars >= self.salary_dollars
                    && self.savings_dollars > self.fee_dollars,
            ),
            (
                "a queue's soft limit",
                "positive, at most a million messages",
                self.queue_messages > 0.0 && self.queue_messages <= 1e6,
            ),
            (
                "the processing fee",
                "positive, at most 1000 dollars",
                positive(self.fee_dollars),
            ),
            (
                "the threshold of the salary period",
                "above the fee",
                self.threshold_dollars > self.fee_dollars,
            ),
            (
                "the time between cost updates",
                "positive, and longer on an idle link",
                !self.update_min.is_zero() && self.update_min <= self.update_max,
            ),
            (
                "the salary period",
                "at least 10 us, and its longest not below its shortest",
                shortest >= Duration::from_micros(10) && shortest <= longest,
            ),
            (
                "the time until a client asks again",
                "at least 1 us for each dollar",
                self.retry_per_dollar >= Duration::from_micros(1),
            ),
        ])
    }
}
