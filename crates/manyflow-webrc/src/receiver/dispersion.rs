//! The capacity of the path, which the dispersion of packet trains shows (`trains.rs`).
//!
//! A bottleneck spreads a train to the time in which it can carry the train (Keshav 1991; Dovrolis,
//! Ramanathan and Moore 2001). Packets of others between those of the train spread it further, so a
//! train shows the capacity or less. Two things make it show more:
//!
//! - A link with a token bucket carries the first packets at the rate of its line. So the rate is
//!   that of the whole train or that of its second half, whichever is lower. A bucket that holds
//!   a whole train hides the link's rate.
//! - A host that takes packets from its network in batches sees those of a batch at one time. So no
//!   time below 0.1 ms counts.

use crate::Session;
use manyflow_core::time::Time;

/// The shortest time that hosts are believed to resolve, in seconds.
pub(super) const RESOLUTION_S: f64 = 1e-4;

/// The trains of the base channel that have arrived.
#[derive(Debug, Default)]
pub(super) struct Dispersion {
    /// The lowest rate that a train has shown, in packets per second; `None` before the first.
    lowest: Option<f64>,
    arriving: Option<Arriving>,
}

/// A train of which all packets so far have arrived in order.
#[derive(Copy, Clone, Debug)]
struct Arriving {
    /// The number of the packet that comes next.
    next: u32,
    /// Arrival time of the first packet.
    since: Time,
    /// Arrival time of the packet in the middle.
    middle: Time,
}

impl Dispersion {
    /// Returns the lowest rate that a train has shown, in packets per second; `None` before the
    /// first complete train.
    pub(super) fn lowest(&self) -> Option<f64> {
        self.lowest
    }

    /// Registers packet `psn` of the base channel. Returns the rate that its train shows, in
    /// packets per second, if the train is now complete.
    pub(super) fn on_packet(&mut self, now: Time, psn: u32, session: &Session) -> Option<f64> {
        let index = u64::from(psn % session.base_packets_per_slot());
        let train = session.train(index);
        if train.end - train.start == 1 {
            return None;
        }
        let arriving = self.arriving.take().filter(|train| train.next == psn);
        let mut arriving = match arriving {
            _ if index == train.start => Arriving {
                next: psn,
                since: now,
                middle: now,
            },
            Some(arriving) => arriving,
            // A train without some of its packets shows nothing.
            None => return None,
        };
        let middle = (train.start + train.end - 1) / 2;
        if index == middle {
            arriving.middle = now;
        }
        let last = train.end - 1;
        if index < last {
            arriving.next += 1;
            self.arriving = Some(arriving);
            return None;
        }
        let rate =
            |gaps: u64, since: Time| gaps as f64 / (now - since).as_secs_f64().max(RESOLUTION_S);
        let whole = rate(last - train.start, arriving.since);
        let shown = whole.min(rate(last - middle, arriving.middle));
        self.lowest = Some(self.lowest.map_or(shown, |lowest| lowest.min(shown)));
        Some(shown)
    }
}
