//! Loss detection by time: RACK, and probes of the tail of a flight: TLP (RFC 8985).
//!
//! A segment is lost if another one that was sent sufficiently later has been delivered. So RACK
//! needs no number of duplicates, also detects losses of retransmissions, and waits for segments
//! that are only reordered. If the last segments of a flight are lost, nothing is delivered after
//! them: then a probe, which is new data or the last segment again, causes an acknowledgement
//! before the retransmission timer expires.
//!
//! Deviations and choices:
//!
//! - Receivers send no D-SACK, so the reordering window stays `min_RTT / 4` and does not grow with
//!   spurious retransmissions (section 6.2, step 4).
//! - The timer is that of the first segment that may be lost. Section 6.2 (step 5) waits for the
//!   last of them.
//! - When the retransmission timer expires, all segments count as lost (RFC 6298); section 6.3
//!   would spare those that were sent less than a round-trip time ago.

use core::time::Duration;
use std::collections::VecDeque;

use manyflow_core::time::{Time, seconds};

use super::delivery::Record;

/// A transmission of a segment.
#[derive(Copy, Clone, Debug)]
pub(super) struct Transmission {
    /// Its place among all transmissions.
    pub(super) order: u64,
    pub(super) number: u32,
    sent: Time,
}

/// RACK's state (section 5.2).
#[derive(Debug, Default)]
pub(super) struct Rack {
    /// All transmissions in their order, with the numbers of the segments. Those that are
    /// delivered, lost or followed by another one of the same segment are removed when they come
    /// first.
    transmissions: VecDeque<Transmission>,
    /// The place of the newest delivered segment among all transmissions, in place of RACK.xmit_ts
    /// and RACK.end_seq.
    newest: Option<u64>,
    /// RACK.rtt: the time that its delivery took.
    rtt: Duration,
    /// RACK.fack: the number after the highest delivered one.
    after_highest: u32,
    /// RACK.reordering_seen
    is_reordering: bool,
}

impl Rack {
    /// Notes the transmission of segment `number`, which `record` describes.
    pub(super) fn note_transmission(&mut self, number: u32, record: &Record) {
        let (order, sent) = (record.order, record.sent);
        self.transmissions.push_back(Transmission {
            order,
            number,
            sent,
        });
    }

    /// Handles the delivery of a segment (section 6.2, steps 2 and 3).
    pub(super) fn note_delivery(
        &mut self,
        now: Time,
        number: u32,
        record: &Record,
        minimum_rtt_s: f64,
    ) {
        let rtt = now - record.sent;
        if record.is_retransmission && rtt.as_secs_f64() < minimum_rtt_s {
            // The acknowledgement is that of an earlier transmission.
            return;
        }
        if self.newest.is_none_or(|newest| record.order > newest) {
            self.newest = Some(record.order);
            self.rtt = rtt;
        }
        if number >= self.after_highest {
            self.after_highest = number + 1;
        } else if !record.is_retransmission {
            self.is_reordering = true;
        }
    }

    /// Returns the reordering window (section 6.2, step 4). `is_urgent` is whether losses are being
    /// repaired or three segments are SACKed.
    pub(super) fn reordering_window(
        &self,
        is_urgent: bool,
        average_rtt_s: f64,
        minimum_rtt_s: f64,
    ) -> Duration {
        if !self.is_reordering && is_urgent {
            return Duration::ZERO;
        }
        let window_s = (minimum_rtt_s / 4.0).min(average_rtt_s);
        match window_s.is_finite() {
            true => seconds(window_s),
            false => Duration::ZERO,
        }
    }

    /// Returns the number of the first segment that is older than the newest delivered one, and the
    /// time at which it counts as lost (section 6.2, step 5).
    pub(super) fn first_overtaken(&self, window: Duration) -> Option<(u32, Time)> {
        let first = self.transmissions.front()?;
        let is_overtaken = first.order < self.newest?;
        is_overtaken.then(|| (first.number, first.sent + self.rtt + window))
    }

    /// Returns the first transmission.
    pub(super) fn first(&self) -> Option<Transmission> {
        self.transmissions.front().copied()
    }

    /// Removes the first transmission: it is no longer of interest.
    pub(super) fn pop(&mut self) {
        self.transmissions.pop_front();
    }
}

/// The maximum delay of an acknowledgement: TLP.max_ack_delay (section 7.2).
const ACK_DELAY: Duration = Duration::from_millis(100);

/// Probes of a flight's tail (section 7).
#[derive(Debug, Default)]
pub(super) struct TailProbe {
    /// The time at which the probe timer expires.
    pub(super) due: Option<Time>,
    /// Whether a probe is to be sent now.
    pub(super) is_due: bool,
    /// TLP.end_seq and TLP.is_retrans: the next new number when a probe was sent, until it is
    /// acknowledged, and whether the probe was a retransmission.
    sent: Option<(u32, bool)>,
}

impl TailProbe {
    /// Starts the timer for a flight of `in_flight` segments (section 7.2, TLP_calc_PTO). It never
    /// expires after the retransmission timer.
    pub(super) fn schedule(
        &mut self,
        now: Time,
        average_rtt_s: f64,
        in_flight: u32,
        retransmission: Option<Time>,
    ) {
        self.due = None;
        if self.sent.is_some() || self.is_due || in_flight == 0 || average_rtt_s == 0.0 {
            return;
        }
        let delay = if in_flight == 1 {
            ACK_DELAY
        } else {
            Duration::ZERO
        };
        let due = now + seconds(2.0 * average_rtt_s) + delay;
        self.due = Some(retransmission.map_or(due, |timer| due.min(timer)));
    }

    /// Stops the timer: losses are being repaired, or nothing is in flight.
    pub(super) fn stop(&mut self) {
        self.due = None;
    }

    /// Forgets a probe in flight, after a time-out.
    pub(super) fn forget(&mut self) {
        *self = TailProbe::default();
    }

    /// Returns whether the timer expires. A probe is then due (section 7.3).
    pub(super) fn expires(&mut self, now: Time) -> bool {
        if self.due.is_none_or(|due| now < due) {
            return false;
        }
        self.due = None;
        self.is_due = true;
        true
    }

    /// Notes that the probe is sent; `next` is the next new number then.
    pub(super) fn note_sent(&mut self, next: u32, is_retransmission: bool) {
        self.is_due = false;
        self.sent = Some((next, is_retransmission));
    }

    /// Handles an acknowledgement of all segments below `acknowledgement` (section 7.4.2). Returns
    /// whether the probe has repaired a loss, so that the window has to be reduced.
    pub(super) fn handle_ack(&mut self, acknowledgement: u32, is_plain_duplicate: bool) -> bool {
        let Some((end, is_retransmission)) = self.sent.filter(|sent| acknowledgement >= sent.0)
        else {
            return false;
        };
        if is_retransmission && acknowledgement == end && !is_plain_duplicate {
            // Either transmission can have caused this acknowledgement.
            return false;
        }
        self.sent = None;
        is_retransmission && acknowledgement > end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_that_is_acknowledged_twice_was_spurious_and_one_that_is_passed_repaired_a_loss() {
        for (acks, repaired) in [
            ([(10, false), (10, true)], false),
            ([(10, false), (12, false)], true),
        ] {
            let mut probe = TailProbe::default();
            probe.schedule(Time::ZERO, 0.1, 3, None);
            assert_eq!(probe.due, Some(Time::ZERO + Duration::from_millis(200)));
            assert!(probe.expires(Time::ZERO + Duration::from_millis(200)));
            probe.note_sent(10, true);
            let found = acks.map(|(ack, duplicate)| probe.handle_ack(ack, duplicate));
            assert_eq!(found, [false, repaired]);
        }
    }

    #[test]
    fn the_probe_comes_before_the_retransmission_timer() {
        let mut probe = TailProbe::default();
        let timer = Time::ZERO + Duration::from_millis(150);
        probe.schedule(Time::ZERO, 0.1, 1, Some(timer));
        assert_eq!(probe.due, Some(timer));
    }
}
