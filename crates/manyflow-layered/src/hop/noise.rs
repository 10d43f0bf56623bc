//! Losses that the path has at any rate, which are no congestion.
//!
//! A loss is a sign of congestion if a queue has filled, which the soundings show as delay, or if
//! it depends on the rate. A radio link loses packets without a queue and at any rate. The share of
//! such losses is measured while the hop's own rate cannot be their cause.

use super::soundings::Observation;

/// The number of packets after which the memory is halved.
const MEMORY: f64 = 512.0;
/// The number of packets without a loss that are taken to have gone before, so that the first loss
/// does not look like many.
const PRIOR: f64 = 16.0;
/// Losses are random up to this number of standard deviations above the measured share. Both shares
/// are averages: together they vary as one over this number of packets.
const DEVIATIONS: f64 = 3.0;
const EVIDENCE: f64 = 200.0;
/// The share from which losses are an overload, whatever the queue, if there are at least
/// [`BURST_MIN`].
const SHARE_MAX: f64 = 1.0 / 6.0;
/// The minimum number and share of lost packets in one observation that are a burst: the queue of a
/// link that is too short to show as delay has overflowed. Of ten packets, random losses of 5 %
/// take so large a share once in some ten thousand observations.
const BURST_MIN: u64 = 4;
const BURST_SHARE: f64 = 0.5;

/// The random losses of a path.
#[derive(Copy, Clone, Debug, Default)]
pub(super) struct Noise {
    sent: f64,
    lost: f64,
}

impl Noise {
    /// Notes losses that the rate of the hop did not cause.
    pub(super) fn note(&mut self, seen: &Observation) {
        self.sent += seen.sent as f64;
        self.lost += seen.lost.min(seen.sent) as f64;
        if self.sent > MEMORY {
            (self.sent, self.lost) = (self.sent / 2.0, self.lost / 2.0);
        }
        debug_assert!(self.lost <= self.sent);
    }

    /// Returns the share of packets that the path loses at any rate, below 1.
    pub(super) fn share(&self) -> f64 {
        self.lost / (self.sent + PRIOR)
    }

    /// Returns whether the losses are those of the path. The queue must be short.
    pub(super) fn explains(&self, seen: &Observation) -> bool {
        let share = self.share();
        let limit = share + DEVIATIONS * libm::sqrt(share / EVIDENCE);
        !Noise::is_burst(seen) && seen.loss_share <= limit
    }

    /// Returns whether the losses are an overload in spite of a short queue.
    pub(super) fn is_too_much(&self) -> bool {
        self.lost >= BURST_MIN as f64 && self.share() > SHARE_MAX
    }

    /// Returns whether many packets of one observation are lost.
    pub(super) fn is_burst(seen: &Observation) -> bool {
        seen.lost >= BURST_MIN && seen.lost as f64 > BURST_SHARE * seen.sent as f64
    }
}
