//! A receiver's reception rates, in packets per second (RFC 3738 section 3.2.2.5).

use super::Weights;

/// RR, IRR, TRR and ARR, with the RFC's names.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    /// RR_P: the rate of received packets in the last epoch.
    pub(super) rr: f64,
    /// IRR_P: the rate of received and lost packets in the last epoch.
    pub(super) irr: f64,
    /// The maximum of RR since the last join.
    pub(super) rr_max: f64,
    /// TRR_P: the average true reception rate.
    pub(super) trr: f64,
    /// ARR_P: the anticipated rate of the joined channels, lost packets included.
    pub(super) arr: f64,
    received: u64,
    lost: u64,
}

impl Rates {
    /// Starts at `rate`, the base channel's rate at its first packet.
    pub(super) fn new(rate: f64) -> Rates {
        Rates {
            trr: rate,
            arr: rate,
            ..Rates::default()
        }
    }

    pub(super) fn on_received(&mut self) {
        self.received += 1;
    }

    pub(super) fn on_lost(&mut self, packets: u64) {
        self.lost += packets;
    }

    /// Ends an epoch of `epoch_s` seconds, in which the joined channels' rate fell by the factor
    /// `decay`, P^(EL/TSD).
    pub(super) fn on_epoch(&mut self, epoch_s: f64, decay: f64, weights: Weights, arr_max: f64) {
        self.rr = self.received as f64 / epoch_s;
        self.irr = (self.received + self.lost) as f64 / epoch_s;
        (self.received, self.lost) = (0, 0);
        self.rr_max = self.rr_max.max(self.rr);
        self.trr += weights.zeta * (self.rr - self.trr);
        self.arr = (decay * (1.0 - weights.beta) * self.arr + weights.beta * self.irr).min(arr_max);
    }

    pub(super) fn on_join(&mut self, factor: f64) {
        self.arr *= factor;
        self.rr_max = 0.0;
    }
}
