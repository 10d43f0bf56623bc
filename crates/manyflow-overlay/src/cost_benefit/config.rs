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
    /// random time before it asks again. Otherwise all clients of a daemon ask again as soon as
    /// they are paid or learn of prices, as in the paper's Figure 2.
    pub randomise: bool,
    /// Whether a daemon knows the queues of its own links at all times. Otherwise it knows them
    /// only as it last reported them.
    pub own_queues_at_once: bool,
    /// The rules for clients of fast links; `None` for the paper's rules alone.
    pub fast: Option<FastClients>,
}

/// Rules for clients that send thousands of messages a second. The paper's clients start at a few
/// dozen, gain 20 a second in each second, and hold at most $20, which a fast client spends in less
/// than the resolution of a timer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct FastClients {
    /// T of a client that connects, at least the minimum of
    /// [`salary_period`](CostBenefitConfig::salary_period). Its first salary comes at once.
    pub start_period: Duration,
    /// The time for which a client's savings last at least, at its income; positive. A client may
    /// save more than S for this, but never buys at a price above S.
    pub granularity: Duration,
    /// The soft limit of a fast link's queue: the messages that the link carries in this time, if
    /// they are more than M. A hundred messages are less than a millisecond at 1 Gbit/s.
    pub soft_limit: Duration,
}

impl Default for FastClients {
    fn default() -> FastClients {
        FastClients {
            start_period: Duration::from_millis(10),
            granularity: Duration::from_millis(5),
            soft_limit: Duration::from_millis(20),
        }
    }
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
            fast: None,
        }
    }
}

impl CostBenefitConfig {
    /// Returns parameters that suit links of 1 to 1000 Mbit/s.
    pub fn live() -> CostBenefitConfig {
        CostBenefitConfig {
            salary_period: (Duration::from_micros(20), Duration::from_millis(300)),
            fast: Some(FastClients::default()),
            ..CostBenefitConfig::default()
        }
    }

    /// Returns whether links that cost this much are idle, for the rules of fast clients. A message
    /// that waits now and then gives a link a price of a few cents.
    pub(super) fn is_idle(&self, cost: f64) -> bool {
        self.fast.is_some() && cost <= 1.1 * self.fee_dollars
    }

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
                "a fast client's start period and granularity",
                "positive, and the period not below its minimum",
                self.fast.is_none_or(|fast| {
                    !fast.granularity.is_zero() && fast.start_period >= shortest
                }),
            ),
            (
                "the time until a client asks again",
                "at least 1 us for each dollar",
                self.retry_per_dollar >= Duration::from_micros(1),
            ),
        ])
    }
}
