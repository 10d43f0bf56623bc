//! The parameters of Cost-Benefit.

use core::time::Duration;

use manyflow_core::ConfigError;

/// The parameters of Cost-Benefit, identical at all daemons. The defaults are the paper's values
/// or, if the paper gives none, our own.
#[derive(Clone, Debug, PartialEq)]
pub struct CostBenefitConfig {
    /// The amount of a salary in dollars; positive.
    pub salary_dollars: f64,
    /// S: the maximum savings of a client, and the price at which no client can buy, in dollars. At
    /// least a salary, and more than the fee.
    pub savings_dollars: f64,
    /// M: the soft limit of a link's queue, in messages; positive.
    pub queue_messages: f64,
    /// The processing fee of each message, in dollars; positive.
    pub fee_dollars: f64,
    /// H: the threshold for the salary period in dollars, above the fee. A blocked client is paid
    /// more often if its messages cost less than H, and more rarely if they cost more.
    pub threshold_dollars: f64,
    /// Tmin: the time between a daemon's cost updates while one of its links is congested;
    /// positive.
    pub update_min: Duration,
    /// Tmax: the time between a daemon's cost updates otherwise; at least Tmin.
    pub update_max: Duration,
    /// The minimum and the maximum of T, the time between a client's salaries. The minimum is at
    /// least 10 us. T starts at the maximum.
    pub salary_period: (Duration, Duration),
    /// The average time for which a client waits until it asks again, for each dollar of its
    /// message's cost; at least 1 us.
    pub retry_per_dollar: Duration,
    /// Whether a client that could pay the cost C buys only with probability 1/C, and waits for a
    /// random time before it asks again. Otherwise all clients are first paid at the same moment,
    /// and ask again as soon as they are paid or learn of prices, as in the paper's Figure 2.
    pub randomise: bool,
    /// Whether a daemon knows the queues of its own links at all times. Otherwise it knows them
    /// only as it last reported them.
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
    /// Checks the parameters' ranges.
    ///
    /// # Errors
    /// Returns an error if a parameter is outside its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        // Limits on amounts keep sums of money within 64 bits even for a client that is away for a
        // year.
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
