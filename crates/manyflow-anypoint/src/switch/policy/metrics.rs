//! The knowledge about a member that all connections of a switch share.
//!
//! TCP's stacks share what a connection has learnt about a path with later ones (RFC 9040; Linux
//! keeps it as `tcp_metrics`). It is soft state: a switch that has lost it learns it again.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

/// The range of weights: they are relative, and need not grow or shrink without a limit.
const WEIGHTS: core::ops::RangeInclusive<f64> = 1e-6..=1e6;

/// The knowledge about a member: its weight among the members, and the frames that it has.
///
/// All connections of a switch to the member hold the same metrics, by [`Arc`]. They read and write
/// them without a lock. If several threads do so at once, a change may get lost, which the next
/// answers make up for.
#[derive(Debug, Default)]
pub struct MemberMetrics {
    /// The bits of the weight; those of 0 if nothing is known.
    weight: AtomicU64,
    /// The frames of all connections that the member has not acknowledged.
    outstanding: AtomicU32,
}

impl MemberMetrics {
    /// Returns the rate of frames that the member takes, relative to those of other members;
    /// `None` before anything is known.
    pub fn weight(&self) -> Option<f64> {
        let weight = f64::from_bits(self.weight.load(Ordering::Relaxed));
        (weight > 0.0).then_some(weight)
    }

    /// Returns the number of frames of all connections that the member has not acknowledged.
    pub fn outstanding(&self) -> u32 {
        self.outstanding.load(Ordering::Relaxed)
    }

    pub(super) fn set_weight(&self, weight: f64) {
        let weight = weight.clamp(*WEIGHTS.start(), *WEIGHTS.end());
        self.weight.store(weight.to_bits(), Ordering::Relaxed);
    }
}

/// The unacknowledged frames of one connection, which count among those of the member until this is
/// dropped.
#[derive(Debug, Default)]
pub(super) struct Load {
    metrics: Arc<MemberMetrics>,
    frames: u32,
}

impl Load {
    /// Counts frames of a connection with these metrics, none so far.
    pub(super) fn new(metrics: Arc<MemberMetrics>) -> Load {
        Load { metrics, frames: 0 }
    }

    pub(super) fn metrics(&self) -> &MemberMetrics {
        &self.metrics
    }

    /// Sets the number of the connection's frames that the member has not acknowledged.
    pub(super) fn set(&mut self, frames: u32) {
        let before = core::mem::replace(&mut self.frames, frames);
        if frames == before {
            return;
        }
        let total = &self.metrics.outstanding;
        match frames > before {
            true => total.fetch_add(frames - before, Ordering::Relaxed),
            false => total.fetch_sub(before - frames, Ordering::Relaxed),
        };
    }

    /// Counts one more frame.
    pub(super) fn add(&mut self) {
        self.set(self.frames + 1);
    }

    /// Counts a frame that the member has acknowledged.
    pub(super) fn acknowledge(&mut self) {
        self.set(self.frames.saturating_sub(1));
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frames_of_connections_add_up_and_go_with_them() {
        let metrics = Arc::<MemberMetrics>::default();
        let mut first = Load::new(Arc::clone(&metrics));
        let mut second = Load::new(Arc::clone(&metrics));
        first.set(7);
        second.add();
        first.acknowledge();
        assert_eq!(metrics.outstanding(), 7);
        second.acknowledge();
        second.acknowledge();
        assert_eq!(
            metrics.outstanding(),
            6,
            "more acknowledgements than frames"
        );
        drop(first);
        assert_eq!(metrics.outstanding(), 0);
    }

    #[test]
    fn weights_are_unknown_at_first_and_bounded_later() {
        let metrics = MemberMetrics::default();
        assert_eq!(metrics.weight(), None);
        metrics.set_weight(0.0);
        assert_eq!(metrics.weight(), Some(1e-6));
        metrics.set_weight(f64::INFINITY);
        assert_eq!(metrics.weight(), Some(1e6));
    }
}
