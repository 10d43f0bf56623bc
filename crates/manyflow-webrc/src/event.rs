//! The events of WEBRC's receiver.

use core::time::Duration;

use manyflow_core::Channel;
use manyflow_core::units::Rate;

/// An event at a receiver.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The receiver joined a channel.
    Joined(Channel),
    /// The receiver left a channel.
    Left(Channel),
    /// A join brought no packet in time, so it was withdrawn.
    JoinTimedOut(Channel),
    /// A multicast round-trip time was measured (RFC 3738 section 3.2.2.2).
    Rtt {
        /// The sample in seconds; the correction for packet spacing can make it negative.
        sample_s: f64,
        /// The average after the sample, in seconds.
        average_s: f64,
    },
    /// A loss event began, by a loss (RFC 3738 section 3.2.3.4) or by a mark of ECN.
    LossEvent,
    /// This number of packets counts as lost.
    Lost(u64),
    /// The rates were updated, as at each epoch.
    Rates {
        /// The target rate.
        target: Rate,
        /// The average rate at which packets arrive.
        received: Rate,
        /// The loss event probability that goes into the TCP equation.
        loss_probability: f64,
    },
    /// A packet train of the base channel has arrived (not in the RFC).
    Train {
        /// The path's capacity, as the train's dispersion shows it.
        shown: Rate,
    },
    /// The start-up phase ended.
    SlowStartEnded(SlowStartEnd),
    /// The start-up phase resumed after an end by losses that were not those of a full queue (not
    /// in the RFC).
    SlowStartResumed,
    /// The receiver left its waves and found its place in the time slots again: the sender was
    /// restarted, or the packets that led to the old place were forged.
    StartedOver,
    /// The session ended.
    Ended(EndReason),
}

/// The four ways out of start-up (RFC 3738 section 3.2.2.6), and two that are not in the RFC.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum SlowStartEnd {
    /// A packet was lost.
    Loss,
    /// The time from a join to its first packet rose sharply: a queue is filling.
    RttIncrease,
    /// The highest rate of the receiver or of the session is reached.
    MaximumRate,
    /// The last join did not raise the reception rate as it should have.
    RateShortfall,
    /// The loss events so far forbid the next join, although no packet waited in a queue (not in
    /// RFC 3738).
    LossProbability,
    /// A router has marked a packet (not in RFC 3738).
    Mark,
}

/// The reason why a session ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// No packet arrived for this long (RFC 3738 section 3.2.3.8).
    NoPackets(Duration),
    /// Packets arrived, but the time slot index did not change for this long (RFC 3738 section
    /// 3.2.3.8).
    NoTimeSlotChange(Duration),
    /// Most packets of the base channel were lost although few waves were joined (RFC 3738 section
    /// 3.2.1).
    BaseChannelLoss,
}
