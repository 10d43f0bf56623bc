//! The end of slow start before packets are lost: HyStart++ of RFC 9406, or HyStart as in Linux.

mod original;
mod plus_plus;

use manyflow_core::time::Time;

use self::original::Original;
use self::plus_plus::PlusPlus;
use super::config::SlowStart;

/// Watches the acknowledgements of slow start.
#[derive(Debug)]
pub(super) enum HyStart {
    Original(Original),
    PlusPlus(PlusPlus),
}

/// An acknowledgement in slow start.
#[derive(Copy, Clone, Debug)]
pub(super) struct Ack {
    pub now: Time,
    /// The first number that is not acknowledged, and the next new one.
    pub first: u32,
    pub next: u32,
    /// A sample of the round-trip time in seconds, or 0.
    pub rtt_s: f64,
}

impl HyStart {
    /// Returns `None` for [`SlowStart::Standard`].
    pub(super) fn new(slow_start: SlowStart) -> Option<HyStart> {
        match slow_start {
            SlowStart::Standard => None,
            SlowStart::HyStart => Some(HyStart::Original(Original::default())),
            SlowStart::HyStartPlusPlus => Some(HyStart::PlusPlus(PlusPlus::default())),
        }
    }

    /// Handles an acknowledgement while cwnd has `segments`. Returns whether slow start ends.
    pub(super) fn on_ack(&mut self, ack: &Ack, segments: f64) -> bool {
        match self {
            HyStart::Original(state) => state.on_ack(ack, segments),
            HyStart::PlusPlus(state) => state.on_ack(ack.first, ack.next, ack.rtt_s),
        }
    }

    /// Returns the growth of the window in segments for an acknowledgement of `acknowledged`.
    pub(super) fn growth(&self, acknowledged: u32) -> f64 {
        match self {
            HyStart::Original(_) => acknowledged.into(),
            HyStart::PlusPlus(state) => state.growth(acknowledged),
        }
    }

    /// Returns whether later slow starts, after a time-out, are watched, too.
    pub(super) fn watches_all(&self) -> bool {
        matches!(self, HyStart::Original(_))
    }
}
