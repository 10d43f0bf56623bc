//! The choice of the report that the next data packet echoes (RFC 4654 section 3.5).

use core::cmp::Ordering;

use manyflow_core::Time;

use crate::header::{Echo, Feedback, ReceiverId};
use crate::number::Stamp;

/// The most reports that wait for an echo. A round brings 10 to 20 (section 2.2.1).
const PENDING_MAX: usize = 16;

/// A report that can be echoed.
#[derive(Copy, Clone, Debug)]
struct Pending {
    receiver: ReceiverId,
    /// tr_r.
    sent: Stamp,
    arrived: Time,
    feedback: Feedback,
}

impl Pending {
    fn of(now: Time, feedback: &Feedback) -> Pending {
        Pending {
            receiver: feedback.receiver,
            sent: feedback.sent,
            arrived: now,
            feedback: *feedback,
        }
    }

    /// `tr_r' = tr_r + ts_d` (section 2.2.1)
    fn answer(&self, now: Time, is_clr: bool) -> Echo {
        Echo {
            receiver: self.receiver,
            sent: self.sent.plus(now - self.arrived),
            is_clr,
        }
    }

    /// Orders reports by urgency: receivers that have not measured their round-trip time first,
    /// then older rounds, then lower rates.
    fn urgency(&self, other: &Pending, round: u8) -> Ordering {
        let age = |pending: &Pending| round.wrapping_sub(pending.feedback.round);
        let (a, b) = (&self.feedback, &other.feedback);
        b.have_rtt
            .cmp(&a.have_rtt)
            .then_with(|| age(self).cmp(&age(other)))
            .then_with(|| b.rate.cmp(&a.rate))
    }
}

/// The reports that wait for an echo.
#[derive(Debug)]
pub(super) struct Echoes {
    pending: Vec<Pending>,
    /// The limiting receiver's last report.
    clr: Option<Pending>,
    /// Whether the limiting receiver is new or has not measured its round-trip time.
    is_clr_urgent: bool,
    /// Whether the limiting receiver got an echo in this round.
    is_clr_answered: bool,
}

impl Echoes {
    pub(super) fn new() -> Echoes {
        Echoes {
            pending: Vec::with_capacity(PENDING_MAX),
            clr: None,
            is_clr_urgent: false,
            is_clr_answered: false,
        }
    }

    /// Takes a report. `clr` is the limiting receiver after it was handled.
    pub(super) fn on_report(
        &mut self,
        now: Time,
        feedback: &Feedback,
        clr: Option<ReceiverId>,
        round: u8,
    ) {
        let place = self
            .pending
            .iter()
            .position(|pending| pending.receiver == feedback.receiver);
        if let Some(place) = place {
            self.pending.swap_remove(place);
        }
        let before = self.clr.map(|pending| pending.receiver);
        if clr == Some(feedback.receiver) {
            self.is_clr_urgent = before != clr || !feedback.have_rtt;
            self.clr = Some(Pending::of(now, feedback));
            return;
        }
        if before != clr {
            self.clr = None;
        }
        self.add(Pending::of(now, feedback), round);
    }

    fn add(&mut self, new: Pending, round: u8) {
        if self.pending.len() < PENDING_MAX {
            self.pending.push(new);
            return;
        }
        let worst = self.pending.iter_mut().min_by(|a, b| a.urgency(b, round));
        if let Some(worst) = worst
            && new.urgency(worst, round) == Ordering::Greater
        {
            *worst = new;
        }
        debug_assert!(self.pending.len() <= PENDING_MAX);
    }

    /// Forgets the limiting receiver, which was dropped.
    pub(super) fn forget_clr(&mut self) {
        self.clr = None;
    }

    /// Begins the next round.
    pub(super) fn on_round(&mut self) {
        self.is_clr_answered = false;
    }

    /// Chooses the echo of the next data packet. The limiting receiver comes first if it is urgent,
    /// else last, but gets at least one echo per round: first in the second half, when `is_late`.
    pub(super) fn next(&mut self, now: Time, round: u8, is_late: bool) -> Option<Echo> {
        let is_first = self.is_clr_urgent || (is_late && !self.is_clr_answered);
        let clr = self
            .clr
            .as_ref()
            .filter(|_| is_first || self.pending.is_empty());
        if let Some(clr) = clr {
            (self.is_clr_urgent, self.is_clr_answered) = (false, true);
            return Some(clr.answer(now, true));
        }
        let places = 0..self.pending.len();
        let best = places.max_by(|a, b| self.pending[*a].urgency(&self.pending[*b], round))?;
        Some(self.pending.swap_remove(best).answer(now, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::RateCode;

    const NOW: Time = Time::ZERO;

    fn report(receiver: u32, have_rtt: bool, round: u8, rate: u16) -> Feedback {
        Feedback {
            receiver: ReceiverId(receiver),
            sent: Stamp::from_bits(1_000),
            echo: Stamp::from_bits(0),
            round,
            rate: RateCode::from_bits(rate),
            have_rtt,
            have_loss: true,
            leaving: false,
        }
    }

    fn order(echoes: &mut Echoes, packets: usize) -> Vec<u32> {
        let next = |_| {
            echoes
                .next(NOW, 10, false)
                .map_or(0, |echo| echo.receiver.0)
        };
        (0..packets).map(next).collect()
    }

    #[test]
    fn receivers_are_answered_in_the_order_of_the_rfc() {
        let mut echoes = Echoes::new();
        let clr = Some(ReceiverId(9));
        echoes.on_report(NOW, &report(9, true, 10, 50), clr, 10);
        assert_eq!(order(&mut echoes, 2), [9, 9]);
        for feedback in [
            report(1, true, 10, 100),
            report(2, true, 9, 100),
            report(3, false, 10, 100),
            report(4, false, 8, 200),
            report(5, false, 8, 100),
        ] {
            echoes.on_report(NOW, &feedback, clr, 10);
        }
        assert_eq!(order(&mut echoes, 7), [5, 4, 3, 2, 1, 9, 9]);
    }

    #[test]
    fn a_new_limiting_receiver_comes_first() {
        let mut echoes = Echoes::new();
        let clr = Some(ReceiverId(9));
        echoes.on_report(NOW, &report(1, false, 8, 100), clr, 10);
        echoes.on_report(NOW, &report(9, true, 10, 50), clr, 10);
        assert_eq!(order(&mut echoes, 3), [9, 1, 9]);
    }

    #[test]
    fn the_limiting_receiver_is_answered_once_a_round_however_many_others_report() {
        let mut echoes = Echoes::new();
        let clr = Some(ReceiverId(9));
        echoes.on_report(NOW, &report(9, true, 10, 50), clr, 10);
        echoes.next(NOW, 10, false);
        echoes.on_round();
        for receiver in 0..8 {
            echoes.on_report(NOW, &report(receiver, true, 10, 100), clr, 10);
        }
        let next = echoes.next(NOW, 10, true).unwrap();
        assert!(next.receiver == ReceiverId(9) && next.is_clr);
        let next = echoes.next(NOW, 10, true).unwrap();
        assert!(next.receiver != ReceiverId(9) && !next.is_clr);
    }

    #[test]
    fn the_time_that_a_report_waits_is_added_to_its_timestamp() {
        let mut echoes = Echoes::new();
        echoes.on_report(NOW, &report(1, true, 10, 50), None, 10);
        let echo = echoes.next(Time::from_secs_f64(0.25), 10, false).unwrap();
        assert_eq!(echo.sent.bits(), 251_000);
    }

    #[test]
    fn of_too_many_reports_the_least_urgent_are_dropped() {
        let mut echoes = Echoes::new();
        for receiver in 0..100 {
            echoes.on_report(NOW, &report(receiver, receiver % 2 == 0, 10, 100), None, 10);
        }
        let answered = order(&mut echoes, PENDING_MAX + 1);
        assert!(
            answered[..PENDING_MAX]
                .iter()
                .all(|receiver| receiver % 2 == 1)
        );
        assert_eq!(answered[PENDING_MAX], 0);
    }
}
