//! Losses and jitter on the wire.

use core::time::Duration;

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::shape::normal;
use super::{Item, JitterDistribution, Link, LossModel, extras};
use crate::time::{Time, seconds};

/// The state of a loss model: the state of its Markov chain.
#[derive(Clone, Debug, Default)]
pub(super) struct Losses {
    is_bad: bool,
}

impl Losses {
    /// Returns whether the next packet is lost.
    #[inline]
    pub(super) fn loses_next(&mut self, model: &LossModel, random: &mut Pcg64Mcg) -> bool {
        let mut happens =
            |probability: f64| probability > 0.0 && random.random::<f64>() < probability;
        match *model {
            LossModel::None => false,
            LossModel::Bernoulli(probability) => happens(probability),
            LossModel::GilbertElliott {
                to_bad,
                to_good,
                loss_good,
                loss_bad,
            } => {
                self.is_bad ^= happens(if self.is_bad { to_good } else { to_bad });
                happens(if self.is_bad { loss_bad } else { loss_good })
            }
        }
    }
}

impl JitterDistribution {
    /// Draws the further delay of a packet.
    #[inline]
    pub(super) fn draw(self, jitter: Duration, random: &mut Pcg64Mcg) -> Duration {
        match self {
            JitterDistribution::Uniform => jitter.mul_f64(random.random()),
            other => other.draw_transformed(jitter, random),
        }
    }

    // Apart from the uniform distribution, so that links with that one remain small.
    #[cold]
    fn draw_transformed(self, jitter: Duration, random: &mut Pcg64Mcg) -> Duration {
        match self {
            JitterDistribution::Uniform => jitter,
            JitterDistribution::Normal { deviation } => {
                seconds(jitter.as_secs_f64() + deviation.as_secs_f64() * normal(random))
            }
            JitterDistribution::Pareto { index } => {
                let share = 1.0 - random.random::<f64>();
                let scale_s = jitter.as_secs_f64() * (index - 1.0);
                seconds(scale_s * (libm::pow(share, -1.0 / index) - 1.0))
            }
        }
    }
}

impl<T: Item> Link<T> {
    /// Puts a packet on a wire that may lose or duplicate it. Returns how many copies of it will
    /// arrive.
    #[inline(never)]
    pub(super) fn put_on_faulty_wire(&mut self, sent: Time, item: T, bytes: u32) -> u32 {
        let config = &*self.config;
        let extras = extras(&mut self.extras, config, self.seed);
        if extras.loses_next(&config.loss) {
            return 0;
        }
        let is_doubled = extras.duplicates_next(config.duplication);
        if is_doubled {
            self.deliver_later(sent, item.clone(), bytes);
        }
        self.deliver_later(sent, item, bytes);
        1 + u32::from(is_doubled)
    }
}
