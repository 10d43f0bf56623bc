//! Events of TFMCC's sender and receivers.

use core::time::Duration;

use manyflow_core::{Channel, Rate};

use crate::header::ReceiverId;

/// An event, for traces and measurements. The protocol does not depend on whether it is read.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The sender set its sending rate X (RFC 4654 section 3.3). During slowstart the rate moves to
    /// this value over a round-trip time.
    RateSet {
        /// The rate, including all headers.
        rate: Rate,
    },
    /// The sender chose another current limiting receiver, or dropped it (section 3.3).
    LimitingReceiverChanged {
        /// The receiver whose reports now set the rate; `None` until another one reports.
        receiver: Option<ReceiverId>,
    },
    /// The first loss event was reported to the sender, which ends slowstart (section 3.6).
    SlowstartEnded,
    /// A feedback round ended at the sender (section 3.4).
    RoundEnded {
        /// The round's number, modulo 256.
        round: u8,
        /// Feedback packets that arrived in the round from receivers other than the limiting one.
        /// Suppression keeps this number low.
        reports: u32,
        /// Feedback packets of the limiting receiver, which sends one per round-trip time.
        limiting_reports: u32,
        /// R_max after the round (section 3.2).
        rtt_max: Duration,
    },
    /// The sender accepted a feedback packet (section 3.3).
    FeedbackReceived {
        /// The receiver that sent it.
        receiver: ReceiverId,
        /// The desired rate X_r, corrected if the receiver has not measured its round-trip time.
        rate: Rate,
        /// R_r: the instantaneous round-trip time to the receiver (section 3.2).
        rtt: Duration,
    },
    /// A receiver joined its session's channel.
    Joined(Channel),
    /// A receiver left its session's channel.
    Left(Channel),
    /// A receiver sent a feedback packet (section 4.5).
    FeedbackSent {
        /// The desired rate X_r.
        rate: Rate,
        /// Whether the receiver knows itself as the current limiting receiver.
        is_clr: bool,
    },
    /// A receiver cancelled its feedback because the sender already knows a lower rate
    /// (section 4.5).
    FeedbackSuppressed,
    /// A receiver measured its round-trip time (section 4.3.2).
    Rtt {
        /// The sample, in seconds.
        sample_s: f64,
        /// The smoothed round-trip time after this sample, in seconds.
        average_s: f64,
    },
    /// A loss event began at a receiver (section 5.2).
    LossEvent {
        /// The loss event rate p after this event, in (0, 1].
        loss_event_rate: f64,
    },
}
