//! Timers, and the choice of the next segment.

use core::time::Duration;

use manyflow_core::Ecn;
use manyflow_core::time::Time;
use rand::RngExt;

use super::{Phase, Sender};
use crate::config::Variant;
use crate::persist::Persist;
use crate::{Event, Segment};

impl Sender {
    /// Handles the expiry of the retransmission timer: backs off, and begins again with one segment
    /// (RFC 6298 section 5, 5.4 to 5.6; RFC 5681 section 3.1).
    pub(super) fn on_timer(&mut self, now: Time) {
        let again = self.timed_out == Some(self.flight.first());
        self.timed_out = Some(self.flight.first());
        let moment = self.moment(now, 0);
        if !self
            .window
            .ask_control(|control| control.on_timeout(&moment))
        {
            self.window.on_timeout(self.flight.len(), again);
        }
        self.window.end_recovery();
        self.rtt.back_off();
        self.flight.lose_all();
        self.report_losses(now);
        self.reordering_timer = None;
        if let Some(tail) = &mut self.tail {
            tail.forget();
        }
        self.phase = Phase::AfterTimeout;
        self.recover = Some(self.flight.next());
        self.retransmit_now = false;
        self.note_reduction();
        self.timer = None;
        self.counters.timeouts += 1;
        self.counters.timeout_series += u64::from(!again);
        self.events.push_back(Event::RetransmissionTimeout);
    }

    /// Handles the expiry of RACK's timer: segments that were overtaken are lost (RFC 8985 section
    /// 6.2).
    pub(super) fn on_reordering_timer(&mut self, now: Time) {
        self.detect_losses(now);
        if self.phase == Phase::Open && self.flight.has_lost() {
            self.begin_recovery(now);
        }
        self.report_losses(now);
    }

    /// Restarts the retransmission timer, or stops it if nothing is in flight (RFC 6298 section 5,
    /// 5.2 and 5.3).
    pub(super) fn restart_timer(&mut self, now: Time) {
        self.timer = (self.flight.len() > 0).then(|| now + self.rtt.timeout());
    }

    pub(super) fn jitter(&mut self) -> Duration {
        match self.config.send_jitter {
            Duration::ZERO => Duration::ZERO,
            jitter => jitter.mul_f64(self.random.random()),
        }
    }

    /// Updates the state after each input: finishes the transfer, watches for a closed window, and
    /// schedules the next segments.
    pub(super) fn settle(&mut self, now: Time) {
        if self.config.stop.is_some_and(|stop| now >= stop) {
            self.end = self.end.min(self.flight.next());
        }
        if !self.is_stream && !self.finished && self.flight.first() == self.end {
            self.finished = true;
            self.events.push_back(Event::Finished);
        }
        self.restart_if_idle(now);
        if self.is_shut_out() {
            let timeout = self.rtt.timeout();
            self.persist
                .get_or_insert_with(|| Persist::new(now, timeout));
        } else {
            self.persist = None;
        }
        if self.release.is_none() && self.may_send() {
            let spaced = self.last_sent.zip(self.window.gap());
            let spaced = spaced.map_or(now, |(sent, gap)| sent + gap);
            self.release = Some(spaced.max(now) + self.jitter());
        }
    }

    /// Lets the probe of the tail be sent if its timer has expired, and stops that timer while
    /// losses are being repaired (RFC 8985 sections 7.2 and 7.3). The probe precedes a
    /// retransmission timer that expires at the same time.
    pub(super) fn watch_tail(&mut self, now: Time) {
        let is_repairing = self.phase != Phase::Open || self.flight.has_sacked();
        let is_empty = self.flight.len() == 0;
        let Some(tail) = &mut self.tail else {
            return;
        };
        if is_repairing || is_empty {
            tail.stop();
        } else if tail.expires(now) {
            // The probe is sent at once, and the retransmission timer waits for its answer.
            self.release = Some(now);
            self.restart_timer(now);
        }
    }

    /// Starts the timer of the tail's probe: new data was sent or acknowledged.
    pub(super) fn schedule_tail(&mut self, now: Time) {
        let (in_flight, average_s) = (self.flight.len(), self.rtt.average_s());
        if let Some(tail) = &mut self.tail {
            tail.schedule(now, average_s, in_flight, self.timer);
        }
    }

    /// Reduces the window of a stream that has sent nothing for a time-out to the restart window,
    /// to avoid a burst (RFC 5681 section 4.1).
    fn restart_if_idle(&mut self, now: Time) {
        if !self.is_stream || self.flight.len() > 0 {
            return;
        }
        let timeout = self.rtt.timeout();
        if self.last_sent.is_some_and(|sent| now > sent + timeout) {
            self.window.restart(self.config.initial_window);
        }
    }

    /// Returns whether only the receiver's window prevents sending, and no acknowledgement can come
    /// that opens it.
    fn is_shut_out(&self) -> bool {
        let next = self.flight.next();
        self.flight.len() == 0 && next < self.end && next >= self.edge
    }

    pub(super) fn may_send(&self) -> bool {
        let lost = self.flight.has_lost();
        let is_probe = self.tail.as_ref().is_some_and(|tail| tail.is_due);
        is_probe
            || (self.retransmit_now && lost)
            || (self.window.has_room(self.flight.pipe()) && (lost || self.may_send_new()))
    }

    fn may_send_new(&self) -> bool {
        self.flight.next() < self.end.min(self.edge)
            && self.flight.len() < self.config.maximum_window
    }

    /// Returns the next segment: a lost one if there is any, otherwise a new one (RFC 6675 section
    /// 4, NextSeg, rules 1 and 2).
    pub(super) fn next_segment(&mut self, now: Time) -> (Segment, Ecn) {
        self.note_restart(now);
        self.retransmit_now = false;
        self.last_sent = Some(now);
        self.counters.sent += 1;
        if self.timer.is_none() {
            self.timer = Some(now + self.rtt.timeout());
        }
        self.window.note_transmission();
        let is_probe = self.tail.as_ref().is_some_and(|tail| tail.is_due);
        let again = match is_probe && !self.flight.has_lost() && !self.may_send_new() {
            true => self.flight.retransmit_last(),
            false => self.flight.retransmit(),
        };
        let number = again.unwrap_or_else(|| self.flight.send_new());
        self.flight.note_transmission(now, number);
        if is_probe && let Some(tail) = &mut self.tail {
            tail.note_sent(self.flight.next(), again.is_some());
        }
        if again.is_some() {
            return self.retransmission(number);
        }
        self.schedule_tail(now);
        self.timed.get_or_insert((number, now));
        let segment = Segment {
            window_reduced: core::mem::take(&mut self.announce_reduction),
            ..Segment::data(number)
        };
        (segment, self.ecn_field(false))
    }

    fn retransmission(&mut self, number: u32) -> (Segment, Ecn) {
        // Karn's rule: the acknowledgement of later segments may wait for the retransmission.
        self.timed = None;
        self.counters.retransmitted += 1;
        self.events.push_back(Event::Retransmission);
        (Segment::data(number), self.ecn_field(true))
    }

    /// Returns the ECN field of a segment. Prague's retransmissions are in the L4S queue with all
    /// others (RFC 9331 section 4.1); those of RFC 3168 (section 6.1.5) cannot be marked.
    fn ecn_field(&self, is_retransmission: bool) -> Ecn {
        match self.config.variant {
            Variant::Prague => Ecn::L4s,
            _ if self.config.is_ecn_capable() && !is_retransmission => Ecn::Capable,
            _ => Ecn::NotCapable,
        }
    }

    /// Reports to the control that sending begins again after a pause of the application.
    fn note_restart(&mut self, now: Time) {
        let is_empty = self.flight.len() == 0;
        let deliveries = self.flight.deliveries();
        if is_empty && deliveries.is_some_and(|all| all.is_app_limited()) {
            let moment = self.moment(now, 0);
            self.window
                .ask_control(|control| control.on_restart(&moment));
        }
    }
}
