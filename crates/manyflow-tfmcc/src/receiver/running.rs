//! The state of a receiver from its first packet on.

use core::time::Duration;
use std::collections::VecDeque;

use manyflow_core::{Ecn, Packet, Rate, Time};
use rand_pcg::Pcg64Mcg;

use super::Status;
use super::conditions::{Arrival, Conditions, Observed};
use super::reporting::{Estimate, Reporting, Verdict};
use super::timer;
use crate::config::ReceiverConfig;
use crate::event::Event;
use crate::header::{Data, Feedback, Message, ReceiverId};
use crate::number::{RateCode, Stamp};

/// How long a receiver may stay while its calculated rate is too low (section 4.4).
const TOO_SLOW: Duration = Duration::from_secs(120);

/// The parts of a receiver that last from its construction to its end.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) config: ReceiverConfig,
    pub(super) id: ReceiverId,
    pub(super) random: Pcg64Mcg,
    pub(super) events: VecDeque<Event>,
}

/// A receiver that gets packets.
#[derive(Debug)]
pub(super) struct Running {
    conditions: Conditions,
    reporting: Reporting,
    leave: Leave,
    /// The time since which the calculated rate is too low (section 4.4).
    too_slow_since: Option<Time>,
}

/// Whether and how the receiver is leaving.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Leave {
    /// The receiver stays.
    No,
    /// The receiver reports that it leaves: once, or as the limiting receiver until this time.
    Announcing { until: Time, is_said: bool },
    /// The receiver leaves now.
    Over,
}

/// Describes a data packet for the measurements.
pub(super) fn arrival<'a>(now: Time, packet: &Packet<Message>, data: &'a Data) -> Arrival<'a> {
    Arrival {
        now,
        data,
        bits: f64::from(packet.wire_bytes()) * 8.0,
        is_marked: packet.ecn == Ecn::Marked,
    }
}

impl Running {
    /// Starts with the first packet (section 4.1).
    pub(super) fn new(arrival: Arrival, context: &mut Context) -> Running {
        let mut running = Running {
            conditions: Conditions::new(arrival, &context.config),
            reporting: Reporting::new(arrival.now, arrival.data),
            leave: Leave::No,
            too_slow_since: None,
        };
        running.begin_round(arrival.now, running.reporting.round_span(), context);
        running
    }

    pub(super) fn on_packet(&mut self, arrival: Arrival, context: &mut Context) {
        let Arrival { now, data, .. } = arrival;
        let config = &context.config;
        let weight = if self.reporting.is_clr() {
            config.clr_rtt_weight
        } else {
            config.rtt_weight
        };
        let echo = data.echo.filter(|echo| echo.receiver == context.id);
        let echo = echo.map(|echo| (echo.sent, weight));
        let observed = self.conditions.on_packet(arrival, echo, config);
        self.push_events(observed, context);
        let conditions = &self.conditions;
        let estimate = || Estimate {
            rate_bps: conditions.calculated_bps(),
            rtt: conditions.measured_rtt(),
        };
        match self.reporting.on_packet(now, data, context.id, estimate) {
            Verdict::Continue => {}
            Verdict::RoundBegan(span) => self.begin_round(now, span, context),
            Verdict::Suppressed => context.events.push_back(Event::FeedbackSuppressed),
        }
    }

    fn push_events(&self, observed: Observed, context: &mut Context) {
        if let Some(sample) = observed.rtt_sample {
            context.events.push_back(Event::Rtt {
                sample_s: sample.as_secs_f64(),
                average_s: self.conditions.smoothed_rtt_s(),
            });
        }
        for _ in 0..observed.loss_events {
            let p = self.conditions.loss_event_rate();
            context.events.push_back(Event::LossEvent {
                loss_event_rate: p.unwrap_or(1.0),
            });
        }
    }

    fn begin_round(&mut self, now: Time, span: Duration, context: &mut Context) {
        if self.leave == Leave::No {
            let t = timer::draw(span, context.config.receivers_max, &mut context.random);
            self.reporting.start_timer(now, t);
        }
        if context.config.leaves_when_too_slow {
            self.check_too_slow(now);
        }
    }

    /// Leaves if, for more than 120 s, the calculated rate is below the lowest rate that is
    /// reported and the sending rate is above the calculated rate (section 4.4). The receive rate
    /// is a lower bound of the sending rate.
    fn check_too_slow(&mut self, now: Time) {
        let calculated = self.conditions.calculated_bps();
        let received = self.conditions.received_bps();
        let is_too_slow = calculated
            .zip(received)
            .is_some_and(|(calculated, received)| {
                calculated < self.conditions.floor_bps() && received > calculated
            });
        let since = *self.too_slow_since.get_or_insert(now);
        if !is_too_slow {
            self.too_slow_since = None;
        } else if now - since > TOO_SLOW {
            self.announce_leave(now);
        }
    }

    /// Begins to leave. The limiting receiver, and one that reported in the last round, announce it
    /// (section 4.2).
    pub(super) fn announce_leave(&mut self, now: Time) {
        if self.leave != Leave::No {
            return;
        }
        let is_known = self.reporting.is_clr() || self.reporting.has_reported_lately(now);
        self.reporting.cancel_timer();
        self.leave = if is_known {
            Leave::Announcing {
                until: now + self.reporting.round_span(),
                is_said: false,
            }
        } else {
            Leave::Over
        };
    }

    /// Whether the receiver is to leave its channel now.
    pub(super) fn is_over(&self, now: Time) -> bool {
        match self.leave {
            Leave::No => false,
            Leave::Announcing { until, is_said } => {
                until <= now || (is_said && !self.reporting.is_clr())
            }
            Leave::Over => true,
        }
    }

    /// Returns the report that is due now, if any.
    pub(super) fn take_report(&mut self, now: Time, context: &mut Context) -> Option<Feedback> {
        if self.report_due().is_none_or(|due| now < due) {
            return None;
        }
        let feedback = self.feedback(now, context.id);
        self.reporting.on_report(now, feedback.is_some());
        if let Leave::Announcing { is_said, .. } = &mut self.leave {
            *is_said = true;
        }
        if let Some(feedback) = feedback {
            context.events.push_back(Event::FeedbackSent {
                rate: feedback.rate.rate(),
                is_clr: self.reporting.is_clr(),
            });
        }
        feedback
    }

    /// `None` if the rate is unknown. A guess could become the session's rate.
    fn feedback(&self, now: Time, id: ReceiverId) -> Option<Feedback> {
        let rate = self.conditions.calculated_bps()?;
        let (round, echo) = self.reporting.echo(now);
        Some(Feedback {
            receiver: id,
            sent: Stamp::at(now),
            echo,
            round,
            rate: RateCode::nearest(rate.max(self.conditions.floor_bps())),
            have_rtt: self.conditions.measured_rtt().is_some(),
            have_loss: self.conditions.has_loss(),
            leaving: self.leave != Leave::No,
        })
    }

    fn report_due(&self) -> Option<Time> {
        match self.leave {
            Leave::Announcing { is_said: false, .. } => Some(Time::ZERO),
            _ => self.reporting.due(self.conditions.rtt()),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let leave = match self.leave {
            Leave::Announcing { until, .. } => Some(until),
            _ => None,
        };
        self.report_due().into_iter().chain(leave).min()
    }

    pub(super) fn status(&self) -> Status {
        let rate = |bits: f64| Rate::from_bits_per_s((bits + 0.5) as u64);
        Status {
            desired: self.conditions.calculated_bps().map(rate),
            received: self.conditions.received_bps().map(rate),
            rtt: self.conditions.measured_rtt(),
            loss_event_rate: self.conditions.loss_event_rate(),
            is_clr: self.reporting.is_clr(),
        }
    }
}
