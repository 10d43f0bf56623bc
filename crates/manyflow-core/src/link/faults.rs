//! Losses on the wire.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use super::LossModel;

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
