//! The sending rate X and the current limiting receiver (RFC 4654 sections 3.3 and 3.6).
//!
//! ```text
//!   X                                        ______ CLR 2
//!   |        /\ first loss reported         /
//!   |       /  \_____ CLR 1 ______         /
//!   |    __/                      \_______/ CLR 1 leaves
//!   | __/ slowstart                 hold
//!   +---------------------------------------------------> t
//! ```
//!
//! In slowstart the rate moves towards twice the receive rate of the slowest receiver. Afterwards
//! it falls at once, and rises by one packet per round-trip time in each round-trip time. After the
//! CLR left, the rate does not rise in the first round of its successor.

use core::time::Duration;
use std::collections::VecDeque;

use manyflow_core::{Rate, Time};

use crate::config::SPACING_MAX;
use crate::event::Event;
use crate::header::ReceiverId;

/// The rate is halved when the CLR has been silent for this many round-trip times.
const CLR_HALVING_RTTS: u32 = 4;
/// The CLR is dropped when it has been silent for this many round-trip times, and the rate is
/// halved each time that all receivers have been.
const SILENCE_RTTS: u32 = 10;

/// The parts of a report on which the rate depends.
#[derive(Copy, Clone, Debug)]
pub(super) struct Report {
    pub(super) receiver: ReceiverId,
    /// X_r, or X_r' if the receiver has not measured its round-trip time, in bits per second.
    pub(super) rate_bps: f64,
    /// R_r.
    pub(super) rtt: Duration,
    pub(super) have_loss: bool,
    pub(super) leaving: bool,
}

/// The present time scale of the session.
#[derive(Copy, Clone, Debug)]
pub(super) struct TimeScale {
    /// R_max.
    pub(super) rtt_max: Duration,
    /// T.
    pub(super) round: Duration,
}

/// The current limiting receiver (CLR).
#[derive(Debug)]
struct Limiting {
    receiver: ReceiverId,
    since: Time,
    /// The time of its last report.
    heard: Time,
    rate_bps: f64,
    /// Whether its silence has halved the rate.
    is_halved: bool,
}

/// A rate that moves linearly from one value to another.
#[derive(Copy, Clone, Debug)]
struct Ramp {
    from_bps: f64,
    to_bps: f64,
    since: Time,
    span: Duration,
}

impl Ramp {
    fn constant(bps: f64) -> Ramp {
        Ramp {
            from_bps: bps,
            to_bps: bps,
            since: Time::ZERO,
            span: Duration::ZERO,
        }
    }

    fn at(&self, now: Time) -> f64 {
        let gone = now - self.since;
        if gone >= self.span {
            return self.to_bps;
        }
        let share = gone.as_secs_f64() / self.span.as_secs_f64();
        self.from_bps + (self.to_bps - self.from_bps) * share
    }
}

/// The sending rate and the receiver that limits it.
#[derive(Debug)]
pub(super) struct RateControl {
    /// 8s.
    packet_bits: f64,
    floor_bps: f64,
    ceiling_bps: f64,
    ramp: Ramp,
    is_in_slowstart: bool,
    limiting: Option<Limiting>,
    /// Whether the next CLR follows one that left or was dropped: its first round is held (case 3).
    is_successor_held: bool,
    /// The rate does not rise before this time.
    held_until: Time,
    raised_at: Time,
    /// The time of the last report, or of the last halving for silence; `None` before any report.
    silent_since: Option<Time>,
}

impl RateControl {
    /// Starts with one packet per maximum round-trip time (section 3.1).
    pub(super) fn new(packet_bits: f64, rtt_max: Duration, maximum: Option<Rate>) -> RateControl {
        let mut control = RateControl {
            packet_bits,
            floor_bps: packet_bits / SPACING_MAX.as_secs_f64(),
            ceiling_bps: maximum.map_or(f64::INFINITY, |rate| rate.bits_per_s() as f64),
            ramp: Ramp::constant(0.0),
            is_in_slowstart: true,
            limiting: None,
            is_successor_held: false,
            held_until: Time::ZERO,
            raised_at: Time::ZERO,
            silent_since: None,
        };
        let initial = control.bounded(packet_bits / rtt_max.as_secs_f64());
        control.ramp = Ramp::constant(initial);
        control
    }

    /// X in bits per second.
    pub(super) fn at(&self, now: Time) -> f64 {
        self.ramp.at(now)
    }

    /// The current limiting receiver.
    pub(super) fn clr(&self) -> Option<ReceiverId> {
        self.limiting.as_ref().map(|limiting| limiting.receiver)
    }

    /// Whether the session is in slowstart: no loss event has been reported yet.
    pub(super) fn is_in_slowstart(&self) -> bool {
        self.is_in_slowstart
    }

    /// Handles a report (section 3.3, cases 1 to 4).
    pub(super) fn on_report(
        &mut self,
        now: Time,
        report: &Report,
        scale: TimeScale,
        events: &mut VecDeque<Event>,
    ) {
        self.silent_since = Some(now);
        let is_clr = self.clr() == Some(report.receiver);
        if report.leaving {
            if is_clr {
                self.drop_clr(events);
            }
            return;
        }
        if report.have_loss && self.is_in_slowstart {
            self.is_in_slowstart = false;
            self.ramp = Ramp::constant(self.at(now));
            self.raised_at = now;
            events.push_back(Event::SlowstartEnded);
        }
        if is_clr {
            self.on_clr_report(now, report);
        } else if self.becomes_clr(now, report) {
            self.select(now, report, scale, events);
        } else {
            return;
        }
        self.follow_clr(now, report, scale.rtt_max, events);
    }

    /// Notes a report of the CLR.
    fn on_clr_report(&mut self, now: Time, report: &Report) {
        if let Some(limiting) = &mut self.limiting {
            (limiting.heard, limiting.rate_bps) = (now, report.rate_bps);
            limiting.is_halved = false;
        }
    }

    /// Whether the report makes its receiver the CLR: if there is none (case 1), or if its rate is
    /// below the sending rate (case 2). In slowstart the rate that the sender aims at counts. While
    /// the successor of a CLR is held, its own rate counts (case 3).
    fn becomes_clr(&self, now: Time, report: &Report) -> bool {
        let Some(limiting) = &self.limiting else {
            return true;
        };
        let threshold = if self.is_in_slowstart {
            self.ramp.to_bps
        } else if now < self.held_until {
            limiting.rate_bps.max(self.at(now))
        } else {
            self.at(now)
        };
        report.rate_bps < threshold
    }

    fn select(
        &mut self,
        now: Time,
        report: &Report,
        scale: TimeScale,
        events: &mut VecDeque<Event>,
    ) {
        self.limiting = Some(Limiting {
            receiver: report.receiver,
            since: now,
            heard: now,
            rate_bps: report.rate_bps,
            is_halved: false,
        });
        if core::mem::take(&mut self.is_successor_held) {
            self.held_until = now + scale.round;
        }
        events.push_back(Event::LimitingReceiverChanged {
            receiver: Some(report.receiver),
        });
    }

    fn drop_clr(&mut self, events: &mut VecDeque<Event>) {
        debug_assert!(self.limiting.is_some(), "there is one to drop");
        self.limiting = None;
        self.is_successor_held = true;
        events.push_back(Event::LimitingReceiverChanged { receiver: None });
    }

    /// Sets X according to the CLR's report.
    fn follow_clr(
        &mut self,
        now: Time,
        report: &Report,
        rtt_max: Duration,
        events: &mut VecDeque<Event>,
    ) {
        debug_assert_eq!(self.clr(), Some(report.receiver));
        let current = self.at(now);
        // 8s / R_max: one packet per maximum round-trip time.
        let step = self.packet_bits / rtt_max.as_secs_f64();
        if self.is_in_slowstart {
            let target = slowstart_target(current, report.rate_bps, step);
            self.ramp_to(now, target, report.rtt.min(rtt_max), events);
            return;
        }
        let highest = if now < self.held_until {
            current
        } else {
            current + step * self.credit(now, report.rtt)
        };
        let target = report.rate_bps.min(highest);
        if target > current {
            self.raised_at = now;
        }
        self.ramp_to(now, target, Duration::ZERO, events);
    }

    /// The fraction of a step that this report may raise the rate by. Case 4 allows a step for each
    /// report, and a CLR reports once per round-trip time: more reports must not allow more.
    fn credit(&self, now: Time, rtt: Duration) -> f64 {
        let gone = now - self.raised_at;
        (gone.as_secs_f64() / rtt.as_secs_f64()).min(1.0)
    }

    fn ramp_to(&mut self, now: Time, bps: f64, span: Duration, events: &mut VecDeque<Event>) {
        let to_bps = self.bounded(bps);
        if to_bps != self.ramp.to_bps {
            events.push_back(Event::RateSet {
                rate: Rate::from_bits_per_s((to_bps + 0.5) as u64),
            });
        }
        self.ramp = Ramp {
            from_bps: self.at(now),
            to_bps,
            since: now,
            span,
        };
        debug_assert!(self.floor_bps <= self.at(now) && self.at(now) <= self.ceiling_bps);
    }

    fn bounded(&self, bps: f64) -> f64 {
        debug_assert!(bps.is_finite(), "{bps}");
        bps.min(self.ceiling_bps).max(self.floor_bps)
    }

    fn halve(&mut self, now: Time, events: &mut VecDeque<Event>) {
        self.ramp_to(now, self.at(now) / 2.0, Duration::ZERO, events);
    }

    /// Handles silence (section 3.3). Does nothing before [`RateControl::deadline`].
    pub(super) fn on_timeout(
        &mut self,
        now: Time,
        rtt_max: Duration,
        events: &mut VecDeque<Event>,
    ) {
        if self.halving_due(rtt_max).is_some_and(|due| due <= now) {
            self.halve(now, events);
            if let Some(limiting) = &mut self.limiting {
                limiting.is_halved = true;
            }
        }
        if self.giving_up_due(rtt_max).is_some_and(|due| due <= now) {
            self.drop_clr(events);
        }
        if self.silence_due(rtt_max).is_some_and(|due| due <= now) {
            self.halve(now, events);
            self.silent_since = Some(now);
        }
    }

    /// The time at which [`RateControl::on_timeout`] is wanted next, if at all.
    pub(super) fn deadline(&self, rtt_max: Duration) -> Option<Time> {
        let dues = [
            self.halving_due(rtt_max),
            self.giving_up_due(rtt_max),
            self.silence_due(rtt_max),
        ];
        dues.into_iter().flatten().min()
    }

    /// The time at which a silent CLR halves the rate: once, and not within 10 RTTs of its choice.
    fn halving_due(&self, rtt_max: Duration) -> Option<Time> {
        let limiting = self.limiting.as_ref()?;
        let due = (limiting.heard + CLR_HALVING_RTTS * rtt_max)
            .max(limiting.since + SILENCE_RTTS * rtt_max);
        (!limiting.is_halved).then_some(due)
    }

    fn giving_up_due(&self, rtt_max: Duration) -> Option<Time> {
        let limiting = self.limiting.as_ref()?;
        Some(limiting.heard + SILENCE_RTTS * rtt_max)
    }

    fn silence_due(&self, rtt_max: Duration) -> Option<Time> {
        Some(self.silent_since? + SILENCE_RTTS * rtt_max)
    }
}

/// The rate that slowstart aims at (section 3.6): the reported rate. An increase is at least one
/// step; it is at most a doubling or one step, which no honest report exceeds.
fn slowstart_target(current: f64, reported: f64, step: f64) -> f64 {
    if reported <= current {
        return reported;
    }
    let by_step = current + step;
    reported.max(by_step).min(by_step.max(2.0 * current))
}
