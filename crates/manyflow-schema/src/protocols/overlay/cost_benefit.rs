//! The parameters of Cost-Benefit.

use manyflow_overlay::cost_benefit::{CostBenefitConfig, Law};
use serde::Deserialize;

use super::set;
use manyflow_model::quantity::{Number, Seconds};

/// `overlays.cost-benefit`
#[derive(Copy, Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct CostBenefitTable {
    /// The salary that a client receives at a time, in dollars.
    ///
    /// Default: 10.
    pub salary: Option<Number>,
    /// The maximum savings of a client, and the price of a link at its soft limit.
    ///
    /// Default: 20. Name: S.
    pub savings: Option<Number>,
    /// The soft limit of a link's queue, in messages.
    ///
    /// Default: 100. Name: M.
    pub soft_limit: Option<Number>,
    /// The cost of each message in addition to that of its links.
    ///
    /// Default: 1. Name: p.
    pub fee: Option<Number>,
    /// A client that is short of money is paid more often if its most expensive recent message cost
    /// less than this, and less often otherwise.
    ///
    /// Default: 2. Name: H.
    pub threshold: Option<Number>,
    /// The time between a daemon's cost updates while one of its links is congested.
    ///
    /// Default: `50 ms`. Name: Tmin.
    pub update_min: Option<Seconds>,
    /// The time between a daemon's cost updates otherwise.
    ///
    /// Default: `2.5 s`. Name: Tmax.
    pub update_max: Option<Seconds>,
    /// The minimum time between payments to a client.
    ///
    /// Default: `0.1 ms`.
    pub salary_period_min: Option<Seconds>,
    /// The maximum time between payments to a client, which is also the initial time.
    ///
    /// Default: `300 ms`.
    pub salary_period_max: Option<Seconds>,
    /// The average time until a client asks again, for each dollar that its message costs.
    ///
    /// Default: `4 ms`.
    pub retry_per_dollar: Option<Seconds>,
    /// Whether a client that can pay the cost C buys with probability 1/C; otherwise all clients of
    /// a daemon are first paid together, and ask at the same moments.
    ///
    /// Default: true.
    pub randomise: Option<bool>,
    /// Whether a daemon knows the queues of its own links at any time; otherwise it uses its own
    /// last update.
    ///
    /// Default: true.
    pub own_queues_at_once: Option<bool>,
    /// The form of prices and salaries: `paper`, with its absolute numbers, or `live`, the law of
    /// `manyflow daemon`, which is the same at every speed and has no parameters.
    ///
    /// Default: `paper`.
    pub law: Option<LawName>,
}

/// The form in which Cost-Benefit is stated.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LawName {
    /// The paper's, with its absolute numbers.
    Paper,
    /// The law of `manyflow daemon`, the same at every speed.
    Live,
}

impl CostBenefitTable {
    /// Returns the law, or the one named `default` if none is given.
    ///
    /// # Errors
    /// Returns a message if parameters of the paper's law are given for the live law.
    pub fn law(self, default: LawName) -> Result<Law, String> {
        let config = self.config();
        match self.law.unwrap_or(default) {
            LawName::Paper => Ok(Law::Paper(config)),
            LawName::Live if config == CostBenefitConfig::default() => Ok(Law::Live),
            LawName::Live => Err(
                "the law \"live\" has no parameters: remove the other keys of `cost-benefit`, or \
                 add `law = \"paper\"`"
                    .to_owned(),
            ),
        }
    }

    /// Returns the parameters of the paper's law.
    fn config(self) -> CostBenefitConfig {
        let mut config = CostBenefitConfig::default();
        let numbers = [
            (&mut config.salary_dollars, self.salary),
            (&mut config.savings_dollars, self.savings),
            (&mut config.queue_messages, self.soft_limit),
            (&mut config.fee_dollars, self.fee),
            (&mut config.threshold_dollars, self.threshold),
        ];
        for (number, given) in numbers {
            set(number, given.map(|number| number.0));
        }
        let (shortest, longest) = &mut config.salary_period;
        let times = [
            (&mut config.update_min, self.update_min),
            (&mut config.update_max, self.update_max),
            (shortest, self.salary_period_min),
            (longest, self.salary_period_max),
            (&mut config.retry_per_dollar, self.retry_per_dollar),
        ];
        for (time, given) in times {
            set(time, given.map(Seconds::duration));
        }
        set(&mut config.randomise, self.randomise);
        set(&mut config.own_queues_at_once, self.own_queues_at_once);
        config
    }
}
