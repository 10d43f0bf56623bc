//! A congestion control of one's own, in place of those of [`Variant`](crate::Variant).

use core::fmt::Debug;

use manyflow_core::Time;

/// The state of a connection when its control is called.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Moment {
    /// The present time.
    pub now: Time,
    /// The number of segments that the acknowledgement covers for the first time; 0 for losses and
    /// time-outs.
    pub acknowledged: u32,
    /// The payload of a segment in bytes.
    pub segment_bytes: u32,
    /// The number of segments that are assumed to be in the network.
    pub in_flight: u32,
    /// The smoothed round-trip time in seconds, 0 before the first sample (RFC 6298).
    pub rtt_s: f64,
    /// The latest sample of the round-trip time in seconds, 0 before the first. One segment per
    /// round trip is timed.
    pub rtt_sample_s: f64,
    /// Whether a router's mark stands for the loss (RFC 3168).
    pub is_mark: bool,
}

/// The segments that one acknowledgement has delivered, cumulatively or selectively, and a sample
/// of the delivery rate (draft-ietf-ccwg-bbr section 4.1). The *newest* segment is the one of them
/// that was sent last.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Delivery {
    /// The number of segments that are delivered for the first time (RS.newly_acked), at least 1.
    pub segments: u32,
    /// The number of all segments delivered so far (C.delivered).
    pub total: u64,
    /// `total` when the newest segment was sent (RS.prior_delivered).
    pub total_at_send: u64,
    /// The delivery rate in segments per second (RS.delivery_rate); 0 without a reliable sample.
    pub segments_per_s: f64,
    /// Whether the application had nothing to send for a part of the sample's time.
    pub is_app_limited: bool,
    /// The round-trip time of the newest segment in seconds; 0 if it was retransmitted, as the
    /// acknowledgement may be that of either (Karn's rule).
    pub rtt_s: f64,
    /// The number of segments in the network when the newest one was sent, itself included
    /// (RS.tx_in_flight).
    pub in_flight_at_send: u32,
    /// The number of segments marked as lost since the newest one was sent (RS.lost).
    pub lost_since_send: u64,
    /// The number of segments that this acknowledgement has marked as lost (RS.newly_lost).
    pub newly_lost: u32,
    /// The number of packets that arrived with a mark since the last acknowledgement, if the
    /// connection counts them (RFC 9768); otherwise 0.
    pub newly_marked: u32,
    /// The number of segments in the network before the acknowledgement.
    pub in_flight_before: u32,
    /// Whether the window left no room before the acknowledgement.
    pub window_was_full: bool,
    /// Whether losses are being repaired, after a time-out or without one.
    pub is_recovery: bool,
}

/// A segment that was marked as lost (draft-ietf-ccwg-bbr section 5.5.10.2, HandleLostPacket).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// The number of segments in the network when it was sent, itself included (P.tx_in_flight).
    pub in_flight_at_send: u32,
    /// The number of segments marked as lost since it was sent, itself included.
    pub lost_since_send: u64,
    /// The number of all segments delivered so far (C.delivered).
    pub total: u64,
    /// Whether the application had nothing to send when it was sent.
    pub is_app_limited: bool,
}

/// Decides how fast a [`Sender`](crate::Sender) sends. The sender detects losses by selective
/// acknowledgements, and retransmits lost segments, within the window and the rate that the control
/// gives.
pub trait Control: Debug + Send {
    /// Handles an acknowledgement of new segments.
    fn on_ack(&mut self, moment: &Moment);

    /// Handles losses or a mark: once for each window of data, however many segments are lost.
    fn on_loss(&mut self, moment: &Moment);

    /// Handles the expiry of the retransmission timer: all segments in flight count as lost.
    fn on_timeout(&mut self, moment: &Moment);

    /// Handles the delivery of segments, after all other calls for the same acknowledgement. Only a
    /// control that [measures deliveries](Control::measures_deliveries) is called.
    fn on_delivery(&mut self, _moment: &Moment, _delivery: &Delivery) {}

    /// Handles each segment that is marked as lost. Only a control that
    /// [measures deliveries](Control::measures_deliveries) is called.
    fn on_lost_segment(&mut self, _moment: &Moment, _lost: &Lost) {}

    /// Handles the end of a recovery: all losses of a window are repaired.
    fn on_recovered(&mut self, _moment: &Moment) {}

    /// Handles the first transmission after the application had nothing to send and nothing was in
    /// flight.
    fn on_restart(&mut self, _moment: &Moment) {}

    /// Returns whether the sender keeps a record of each segment in flight, which deliveries and
    /// their rates are measured by. It is asked once.
    fn measures_deliveries(&self) -> bool {
        false
    }

    /// Returns whether the control sends less than the path takes, on purpose. Samples of the
    /// delivery rate then count as limited by the application.
    fn holds_back(&self) -> bool {
        false
    }

    /// Returns the congestion window in segments. Values below 1, and those that are not numbers,
    /// count as 1, and the maximum is the receiver's window.
    fn window_segments(&self) -> f64;

    /// Returns the maximum rate in bits per second, headers included, which spaces segments evenly,
    /// or `None` if only the window limits the sender. Rates that are not positive numbers count as
    /// none.
    fn rate_bits_per_s(&self) -> Option<f64> {
        None
    }
}
