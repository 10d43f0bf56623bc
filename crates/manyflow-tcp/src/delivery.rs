//! The record of each segment in flight, and samples of the delivery rate (draft-ietf-ccwg-bbr
//! section 4.1.2).
//!
//! A sample covers the time from the transmission of the newest delivered segment to the present
//! acknowledgement. Its length is the longer of two intervals: that in which the segments were
//! sent, and that in which they were acknowledged. So neither a burst of segments nor a burst of
//! acknowledgements can make it faster than the path.

use std::collections::VecDeque;

use manyflow_core::time::Time;

use super::control::{Delivery, Lost};

/// A segment in flight (section 4.1.2.1.2).
#[derive(Copy, Clone, Debug)]
pub(super) struct Record {
    /// P.send_time, of the last transmission.
    pub(super) sent: Time,
    /// The number of transmissions before that one: several have the same time.
    pub(super) order: u64,
    /// P.first_send_time: the transmission of the segment that was newest delivered by then.
    first_sent: Time,
    /// P.delivered_time and P.delivered: the last delivery before the transmission, and the number
    /// of deliveries.
    delivered_at: Time,
    delivered: u64,
    /// P.lost
    lost: u64,
    /// P.tx_in_flight, with the segment itself.
    in_flight: u32,
    /// P.is_app_limited
    is_app_limited: bool,
    /// Whether it was sent more than once.
    pub(super) is_retransmission: bool,
}

/// The records of the segments in flight, in the order of their numbers, and what is known of the
/// connection's deliveries (section 4.1.2.1.1).
#[derive(Debug)]
pub(super) struct Deliveries {
    records: VecDeque<Record>,
    /// The number of transmissions.
    transmissions: u64,
    /// C.delivered and C.delivered_time
    delivered: u64,
    delivered_at: Time,
    /// C.first_send_time
    first_sent: Time,
    /// C.lost
    lost: u64,
    /// C.app_limited: the number of deliveries until the application's pause has left the network;
    /// 0 if there is none.
    app_limited: u64,
    /// C.min_rtt in seconds.
    minimum_rtt_s: f64,
    acknowledgement: Acknowledgement,
    /// Segments that were marked as lost and not yet reported.
    newly_lost: VecDeque<Lost>,
}

/// The segments that the present acknowledgement has delivered.
#[derive(Debug)]
struct Acknowledgement {
    now: Time,
    /// The newest segment.
    newest: Option<Record>,
    segments: u32,
    lost: u64,
}

impl Default for Deliveries {
    fn default() -> Deliveries {
        Deliveries {
            records: VecDeque::new(),
            transmissions: 0,
            delivered: 0,
            delivered_at: Time::ZERO,
            first_sent: Time::ZERO,
            lost: 0,
            app_limited: 0,
            minimum_rtt_s: f64::INFINITY,
            acknowledgement: Acknowledgement {
                now: Time::ZERO,
                newest: None,
                segments: 0,
                lost: 0,
            },
            newly_lost: VecDeque::new(),
        }
    }
}

impl Deliveries {
    /// Returns the record of the segment at `place` in the flight.
    pub(super) fn record(&self, place: u32) -> &Record {
        &self.records[place as usize]
    }

    /// Notes a transmission of the segment at `place` in the flight: a new one if `place` is the
    /// flight's length. `others` segments are in the network (section 4.1.2.2, OnPacketSent).
    pub(super) fn note_transmission(&mut self, now: Time, place: u32, others: u32) {
        if others == 0 {
            self.first_sent = now;
            self.delivered_at = now;
        }
        let is_retransmission = (place as usize) < self.records.len();
        let record = Record {
            sent: now,
            order: self.transmissions,
            first_sent: self.first_sent,
            delivered_at: self.delivered_at,
            delivered: self.delivered,
            lost: self.lost,
            in_flight: others + 1,
            is_app_limited: self.app_limited > 0,
            is_retransmission,
        };
        self.transmissions += 1;
        if is_retransmission {
            self.records[place as usize] = record;
        } else {
            debug_assert_eq!(
                place as usize,
                self.records.len(),
                "segments are new in order"
            );
            self.records.push_back(record);
        }
    }

    /// Begins an acknowledgement (section 4.1.2.3, InitRateSample).
    pub(super) fn begin(&mut self, now: Time) {
        self.acknowledgement = Acknowledgement {
            now,
            newest: None,
            segments: 0,
            lost: self.lost,
        };
    }

    /// Notes the delivery of the segment at `place` in the flight, once (section 4.1.2.3,
    /// UpdateRateSample). Returns its record.
    pub(super) fn note_delivery(&mut self, place: u32) -> Record {
        let record = self.records[place as usize];
        let ack = &mut self.acknowledgement;
        self.delivered += 1;
        self.delivered_at = ack.now;
        ack.segments += 1;
        if ack.newest.is_none_or(|newest| record.order > newest.order) {
            ack.newest = Some(record);
            self.first_sent = record.sent;
        }
        record
    }

    /// Returns the time of the present acknowledgement.
    pub(super) fn now(&self) -> Time {
        self.acknowledgement.now
    }

    /// Removes the records of the first `count` segments, which are acknowledged.
    pub(super) fn forget(&mut self, count: u32) {
        self.records.drain(..count as usize);
    }

    /// Notes that the segment at `place` in the flight is marked as lost.
    pub(super) fn note_loss(&mut self, place: u32) {
        let record = self.records[place as usize];
        self.lost += 1;
        self.newly_lost.push_back(Lost {
            in_flight_at_send: record.in_flight,
            lost_since_send: self.lost - record.lost,
            total: self.delivered,
            is_app_limited: record.is_app_limited,
        });
    }

    /// Returns the next segment that was marked as lost.
    pub(super) fn pop_lost(&mut self) -> Option<Lost> {
        self.newly_lost.pop_front()
    }

    /// Notes that the application has nothing to send although the window has room, with
    /// `in_flight` segments in the network (section 4.1.2.4).
    pub(super) fn mark_app_limited(&mut self, in_flight: u32) {
        self.app_limited = (self.delivered + u64::from(in_flight)).max(1);
    }

    /// Returns whether the application has paused, and the pause is still in the network.
    pub(super) fn is_app_limited(&self) -> bool {
        self.app_limited > 0
    }

    /// Returns the smallest round-trip time so far, in seconds.
    pub(super) fn minimum_rtt_s(&self) -> f64 {
        self.minimum_rtt_s
    }

    /// Ends the acknowledgement (section 4.1.2.3, GenerateRateSample). Returns what it has
    /// delivered, if anything. The caller fills in what only it knows.
    pub(super) fn finish(&mut self) -> Option<Delivery> {
        if self.app_limited > 0 && self.delivered > self.app_limited {
            self.app_limited = 0;
        }
        let ack = &self.acknowledgement;
        let newest = ack.newest?;
        let rtt_s = match newest.is_retransmission {
            true => 0.0,
            false => (ack.now - newest.sent).as_secs_f64(),
        };
        if rtt_s > 0.0 {
            self.minimum_rtt_s = self.minimum_rtt_s.min(rtt_s);
        }
        let send_elapsed = newest.sent - newest.first_sent;
        let interval_s = send_elapsed
            .max(ack.now - newest.delivered_at)
            .as_secs_f64();
        let delivered = self.delivered - newest.delivered;
        let is_reliable = interval_s > 0.0 && interval_s >= self.minimum_rtt_s;
        Some(Delivery {
            segments: ack.segments,
            total: self.delivered,
            total_at_send: newest.delivered,
            segments_per_s: match is_reliable {
                true => delivered as f64 / interval_s,
                false => 0.0,
            },
            is_app_limited: newest.is_app_limited,
            rtt_s,
            in_flight_at_send: newest.in_flight,
            lost_since_send: self.lost - newest.lost,
            newly_lost: (self.lost - ack.lost) as u32,
            newly_marked: 0,
            in_flight_before: 0,
            window_was_full: false,
            is_recovery: false,
        })
    }
}

/// Counts round trips by deliveries (section 5.5.1): one ends when a segment is delivered that was
/// sent after its beginning.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    /// BBR.next_round_delivered
    next: u64,
    /// BBR.round_count
    pub(super) count: u32,
    /// BBR.round_start: whether the last delivery has begun a round trip.
    pub(super) has_begun: bool,
    /// Whether the window was full in this round trip, and in the last one.
    was_window_full: [bool; 2],
}

impl Rounds {
    /// Handles a delivery.
    pub(super) fn update(&mut self, delivery: &Delivery) {
        self.has_begun = delivery.total_at_send >= self.next;
        if self.has_begun {
            self.begin(delivery.total);
            self.count += 1;
            self.was_window_full = [false, self.was_window_full[0]];
        }
        self.was_window_full[0] |= delivery.window_was_full;
    }

    /// Begins a round trip when `total` segments are delivered.
    pub(super) fn begin(&mut self, total: u64) {
        self.next = total;
    }

    /// Returns C.is_cwnd_limited: whether the window was full at any time in the last round trip.
    pub(super) fn is_window_limited(&self) -> bool {
        self.was_window_full.contains(&true)
    }
}

/// Deliveries for the tests of controls: one for each round trip.
#[cfg(test)]
pub(super) mod rounds {
    use super::{Delivery, Time};
    use crate::control::{Control, Moment};

    /// A connection with one acknowledgement in each round trip, whose time falls by a little, so
    /// that minima stay young.
    #[derive(Default)]
    pub(crate) struct Path {
        pub(crate) now_s: f64,
        pub(crate) total: u64,
        pub(crate) rtt_s: f64,
        pub(crate) in_flight: u32,
        pub(crate) newly_lost: u32,
        pub(crate) lost_since_send: u64,
        pub(crate) newly_marked: u32,
    }

    impl Path {
        /// Reports the end of a round trip with this delivery rate.
        pub(crate) fn round(&mut self, control: &mut dyn Control, segments_per_s: f64) {
            let segments = (segments_per_s * self.rtt_s).max(1.0) as u32;
            self.now_s += self.rtt_s;
            let before = self.total;
            self.total += u64::from(segments);
            let delivery = Delivery {
                segments,
                total: self.total,
                total_at_send: before,
                segments_per_s,
                is_app_limited: false,
                rtt_s: self.rtt_s,
                in_flight_at_send: self.in_flight,
                lost_since_send: self.lost_since_send,
                newly_lost: self.newly_lost,
                newly_marked: self.newly_marked,
                in_flight_before: self.in_flight,
                window_was_full: true,
                is_recovery: self.newly_lost > 0,
            };
            control.on_delivery(&self.moment(), &delivery);
            self.rtt_s -= 1e-7;
        }

        pub(crate) fn moment(&self) -> Moment {
            Moment {
                now: Time::from_secs_f64(self.now_s),
                acknowledged: 0,
                segment_bytes: 1000,
                in_flight: self.in_flight,
                rtt_s: self.rtt_s,
                rtt_sample_s: self.rtt_s,
                is_mark: false,
            }
        }
    }
}
