//! The effects of acknowledgements: phases, losses, and the reports to the window.

use manyflow_core::time::Time;

use super::{Phase, Sender};
use crate::control::{Delivery, Moment};
use crate::flight::DUPLICATE_THRESHOLD;
use crate::hystart::Ack;
use crate::{Event, Segment};

/// The state before an acknowledgement.
struct Before {
    in_flight: u32,
    window_was_full: bool,
}

impl Sender {
    /// Handles an acknowledgement.
    pub(super) fn on_ack(&mut self, now: Time, ack: &Segment) {
        self.note_pause();
        let before = Before {
            in_flight: self.flight.pipe(),
            window_was_full: !self.window.has_room(self.flight.pipe()),
        };
        let was_limit = self.window_is_limit();
        let used = (!was_limit).then(|| self.flight.len());
        let edge = ack.acknowledgement.saturating_add(ack.window.into());
        self.edge = match ack.window {
            Segment::UNLIMITED => u32::MAX,
            _ => self.edge.max(edge),
        };
        self.flight.begin_acknowledgement(now);
        let acknowledged = self.flight.acknowledge(ack.acknowledgement);
        if self.config.variant.uses_sack() {
            self.flight.sack(&ack.sack);
        }
        self.detect_losses(now);
        let delivery = self.flight.finish_acknowledgement();
        if let Some(delivery) = &delivery {
            self.window.watch_slow_start(&Ack {
                now,
                first: self.flight.first(),
                next: self.flight.next(),
                rtt_s: delivery.rtt_s,
            });
        }
        if acknowledged > 0 {
            let may_grow = was_limit && !self.is_marked(ack);
            self.on_advance(now, acknowledged, may_grow);
        } else if self.flight.len() > 0 {
            self.on_duplicate();
        }
        if self.phase == Phase::Open {
            if self.finds_loss() {
                self.begin_recovery(now);
            } else if self.is_marked(ack) {
                self.heed_mark(now, used);
            }
        }
        self.handle_tail_ack(now, ack, acknowledged);
        if acknowledged > 0 && self.phase == Phase::Open {
            self.schedule_tail(now);
        }
        if matches!(self.phase, Phase::FastRecovery { .. }) {
            let is_safe = acknowledged > 0 && !self.flight.has_lost();
            let delivered = self.flight.delivered();
            self.window
                .on_recovery_ack(delivered, self.flight.pipe(), is_safe);
        }
        self.report_losses(now);
        self.report_delivery(now, ack, delivery, &before);
    }

    /// Notes for samples of the delivery rate that the application has nothing to send, although
    /// the window has room (draft-ietf-ccwg-bbr section 4.1.2.4).
    pub(super) fn note_pause(&mut self) {
        let pipe = self.flight.pipe();
        let is_paused =
            self.flight.next() >= self.end && self.window.has_room(pipe) && !self.flight.has_lost();
        if is_paused && let Some(deliveries) = self.flight.deliveries() {
            deliveries.mark_app_limited(pipe);
        }
    }

    /// Marks segments as lost that were overtaken, if RACK detects losses, and sets its timer.
    pub(super) fn detect_losses(&mut self, now: Time) {
        let is_recovery = self.phase != Phase::Open;
        let average_s = self.rtt.average_s();
        self.reordering_timer = self.flight.detect_losses(now, is_recovery, average_s);
    }

    /// Handles an acknowledgement for the probe of the flight's tail, which may have repaired a
    /// loss (RFC 8985 section 7.4).
    fn handle_tail_ack(&mut self, now: Time, ack: &Segment, acknowledged: u32) {
        let Some(tail) = &mut self.tail else {
            return;
        };
        let is_plain_duplicate = acknowledged == 0 && ack.blocks().next().is_none();
        if tail.handle_ack(ack.acknowledgement, is_plain_duplicate) && self.phase == Phase::Open {
            self.reduce_window(now);
            self.events.push_back(Event::LossEvent);
        }
    }

    /// Reports segments that were marked as lost to the control.
    pub(super) fn report_losses(&mut self, now: Time) {
        while let Some(lost) = self.flight.pop_lost() {
            let moment = self.moment(now, 0);
            self.window
                .ask_control(|control| control.on_lost_segment(&moment, &lost));
        }
    }

    /// Returns whether an acknowledgement reports a mark that counts like a loss (RFC 3168).
    fn is_marked(&self, ack: &Segment) -> bool {
        let counts = self.config.variant.counts_marks();
        ack.ecn_echo != 0 && self.config.ecn && !counts
    }

    /// Returns the number of marks that an acknowledgement reports for the first time, on
    /// connections that count them. An acknowledgement that was overtaken reports fewer.
    fn count_marks(&mut self, ack: &Segment) -> u32 {
        if !self.config.variant.counts_marks() {
            return 0;
        }
        let more = ack.ecn_echo.wrapping_sub(self.marks).cast_signed().max(0);
        self.marks = self.marks.wrapping_add(more.cast_unsigned());
        more.cast_unsigned().into()
    }

    /// Reports what an acknowledgement has delivered to the control.
    fn report_delivery(
        &mut self,
        now: Time,
        ack: &Segment,
        delivery: Option<Delivery>,
        before: &Before,
    ) {
        let newly_marked = self.count_marks(ack);
        let Some(delivery) = delivery else {
            return;
        };
        let delivery = Delivery {
            newly_marked,
            in_flight_before: before.in_flight,
            window_was_full: before.window_was_full,
            is_recovery: self.phase != Phase::Open,
            ..delivery
        };
        let (moment, window) = (self.moment(now, 0), self.window.segments());
        self.window
            .ask_control(|control| control.on_delivery(&moment, &delivery));
        let pipe = self.flight.pipe();
        if self.window.holds_back()
            && let Some(deliveries) = self.flight.deliveries()
        {
            deliveries.mark_app_limited(pipe);
        }
        if newly_marked > 0 && self.window.segments() < window {
            self.counters.marks_heeded += 1;
            self.events.push_back(Event::LossEvent);
        }
    }

    fn on_advance(&mut self, now: Time, acknowledged: u32, may_grow: bool) {
        if let Some((number, sent)) = self.timed
            && number < self.flight.first()
        {
            self.timed = None;
            self.take_rtt_sample((now - sent).as_secs_f64());
        }
        let moment = self.moment(now, acknowledged);
        self.window.ask_control(|control| control.on_ack(&moment));
        self.retransmit_now = false;
        let recovered = self.recover.is_none_or(|r| self.flight.first() >= r);
        match self.phase {
            Phase::FastRecovery { .. } if recovered => self.end_recovery(now),
            Phase::FastRecovery { partial } => self.on_partial_ack(now, acknowledged, partial),
            Phase::Open | Phase::AfterTimeout => {
                self.flight.forget_duplicates();
                if may_grow {
                    let rtt_s = self.rtt.average_s();
                    self.window.on_ack(now, acknowledged, rtt_s);
                } else if self.is_stream {
                    self.window.stand();
                }
                if recovered && self.phase == Phase::AfterTimeout {
                    self.phase = Phase::Open;
                    self.report_recovered(now);
                }
                self.restart_timer(now);
            }
        }
    }

    fn report_recovered(&mut self, now: Time) {
        let moment = self.moment(now, 0);
        self.window
            .ask_control(|control| control.on_recovered(&moment));
    }

    /// Returns whether the congestion window is the limit, so that acknowledgements may let it grow
    /// (RFC 7661 section 4). For a greedy sender it always is.
    fn window_is_limit(&self) -> bool {
        !self.is_stream || !self.window.has_room(self.flight.pipe()) || self.may_send()
    }

    fn take_rtt_sample(&mut self, sample_s: f64) {
        self.rtt.sample(sample_s);
        self.rtt_sample_s = sample_s;
        let average_s = self.rtt.average_s();
        self.events.push_back(Event::Rtt {
            sample_s,
            average_s,
        });
    }

    /// Counts a duplicate acknowledgement for NewReno. A SACK sender knows which segment it stands
    /// for.
    fn on_duplicate(&mut self) {
        let counts = match self.phase {
            Phase::FastRecovery { .. } => true,
            Phase::Open => self.may_recover() && self.flight.duplicates() < DUPLICATE_THRESHOLD,
            Phase::AfterTimeout => false,
        };
        if counts && !self.config.variant.uses_sack() {
            self.flight.count_duplicate();
        }
    }

    /// Returns whether duplicates can mean a new loss, rather than segments sent twice after a
    /// time-out (RFC 6582 section 3.2, step 2).
    fn may_recover(&self) -> bool {
        self.recover.is_none_or(|r| self.flight.first() > r)
    }

    /// Returns whether a loss is known. A segment that was sent during a recovery and lost is
    /// retransmitted in it, but counts as a loss of the next window (RFC 6675 section 5, step 2).
    fn finds_loss(&self) -> bool {
        if self.tail.is_some() {
            // RACK; the first segment may have been sent again as a probe, without a loss.
            self.flight.has_lost()
        } else if self.config.variant.uses_sack() {
            self.flight.first_was_lost()
        } else {
            self.flight.duplicates() >= DUPLICATE_THRESHOLD
        }
    }

    /// Begins fast recovery (RFC 6582 section 3.2, step 2; RFC 6675 section 5, step 4).
    pub(super) fn begin_recovery(&mut self, now: Time) {
        self.phase = Phase::FastRecovery { partial: false };
        self.recover = Some(self.flight.next());
        if !self.config.variant.uses_sack() {
            self.flight.lose_first();
        }
        self.retransmit_now = true;
        if self.flight.first() >= self.reduced_at {
            self.reduce_window(now);
        }
        self.window.begin_recovery(self.flight.len());
        self.counters.fast_recoveries += 1;
        self.events.push_back(Event::LossEvent);
        self.restart_timer(now);
    }

    /// Handles a partial acknowledgement (RFC 6582 section 3.2, step 3). With SACK the scoreboard
    /// has all that is needed (RFC 6675 section 5).
    fn on_partial_ack(&mut self, now: Time, acknowledged: u32, partial: bool) {
        if self.config.variant.uses_sack() {
            self.restart_timer(now);
            return;
        }
        self.flight.deflate(acknowledged);
        self.flight.lose_first();
        self.retransmit_now = true;
        if !partial {
            self.phase = Phase::FastRecovery { partial: true };
            self.restart_timer(now);
        }
    }

    fn end_recovery(&mut self, now: Time) {
        self.phase = Phase::Open;
        self.window.end_recovery();
        self.report_recovered(now);
        self.flight.forget_duplicates();
        if !self.config.variant.uses_sack() {
            self.window.limit_to_flight(self.flight.len());
        }
        self.restart_timer(now);
    }

    /// Handles the echo of a mark. It counts like a loss, once per window of data (RFC 3168 section
    /// 6.1.2). `used` is the flight before the acknowledgement with the echo, if the flight did not
    /// fill the window.
    fn heed_mark(&mut self, now: Time, used: Option<u32>) {
        if self.flight.first() > self.reduced_at {
            let moment = Moment {
                is_mark: true,
                ..self.moment(now, 0)
            };
            if !self.window.report_loss(&moment) {
                self.window.on_mark(used);
            }
            self.note_reduction();
            self.counters.marks_heeded += 1;
            self.events.push_back(Event::LossEvent);
        }
    }

    fn reduce_window(&mut self, now: Time) {
        let moment = self.moment(now, 0);
        if !self.window.report_loss(&moment) {
            self.window.on_congestion(self.flight.len());
        }
        self.note_reduction();
    }

    pub(super) fn note_reduction(&mut self) {
        self.reduced_at = self.flight.next();
        self.announce_reduction = self.config.ecn;
    }
}
