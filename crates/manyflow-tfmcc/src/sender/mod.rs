//! The sending end of a session (RFC 4654 section 3).
//!
//! | file | what it owns | RFC 4654 |
//! |---|---|---|
//! | `rate.rs` | X, the current limiting receiver, slowstart | 3.3, 3.6 |
//! | `round.rs` | feedback rounds, X_supp, R_max | 3.2, 3.4 |
//! | `echo.rs` | the reports that wait for an echo | 3.5 |
//! | `mod.rs` | packet times, and the order of the steps | 3.7 |

mod echo;
mod rate;
mod round;
#[cfg(test)]
mod tests;

use core::time::Duration;
use std::collections::VecDeque;

use manyflow_core::time::seconds;
use manyflow_core::{
    Action, Channel, ConfigError, Destination, Ecn, Endpoint, Header, Packet, Rate, Time,
};

use crate::config::{RTT_LIMIT, RTT_MIN, SPACING_MAX, SenderConfig};
use crate::event::Event;
use crate::header::{Data, Feedback, Message, ReceiverId};
use crate::number::{RttCode, Stamp};
use echo::Echoes;
use rate::{RateControl, Report, TimeScale};
use round::Round;

/// The sending end of a session.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    channel: Channel,
    start: Time,
    stop: Option<Time>,
    rate: RateControl,
    round: Round,
    echoes: Echoes,
    /// i of the next packet.
    sequence: u32,
    /// The packet times (section 3.7).
    pacing: Pacing,
    events: VecDeque<Event>,
}

/// The nominal packet times (section 3.7).
#[derive(Copy, Clone, Debug)]
struct Pacing {
    /// t_(i-1): the nominal time of the last packet; before the first packet, the start.
    last: Time,
    /// ts_ipi: the time to the next packet.
    interval: Duration,
}

impl Pacing {
    fn due(&self) -> Time {
        self.last + self.interval
    }
}

impl Sender {
    /// A sender of the session with the number `session`, which sends from `start` until `stop`.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        config: SenderConfig,
        session: u32,
        start: Time,
        stop: Option<Time>,
    ) -> Result<Sender, ConfigError> {
        config.check()?;
        let packet_bits = f64::from(config.packet_bytes) * 8.0;
        let rtt_max = config.initial_rtt_max;
        let mut sender = Sender {
            rate: RateControl::new(packet_bits, rtt_max, config.maximum_rate),
            round: Round::new(start, rtt_max),
            echoes: Echoes::new(),
            channel: crate::channel(session),
            start,
            stop,
            sequence: 0,
            pacing: Pacing {
                last: start,
                interval: Duration::ZERO,
            },
            events: VecDeque::new(),
            config,
        };
        sender.cover_spacing(start);
        Ok(sender)
    }

    /// X: the sending rate at `now`, including all headers.
    pub fn rate(&self, now: Time) -> Rate {
        Rate::from_bits_per_s((self.rate.at(now) + 0.5) as u64)
    }

    /// The current limiting receiver (CLR), if there is one.
    pub fn limiting_receiver(&self) -> Option<ReceiverId> {
        self.rate.clr()
    }

    /// R_max: the maximum round-trip time of the session.
    pub fn rtt_max(&self) -> Duration {
        self.round.rtt_max()
    }

    /// Whether the sender is in slowstart: no loss event has been reported yet.
    pub fn is_in_slowstart(&self) -> bool {
        self.rate.is_in_slowstart()
    }

    fn is_active(&self, now: Time) -> bool {
        self.start <= now && self.stop.is_none_or(|stop| now < stop)
    }

    fn time_scale(&self) -> TimeScale {
        TimeScale {
            rtt_max: self.round.rtt_max(),
            round: self.round.span(),
        }
    }

    /// `ts_ipi = 8s / X` (section 3.7). X can move during slowstart: the interval's middle counts.
    fn interval(&self, now: Time) -> Duration {
        let bits = f64::from(self.config.packet_bytes) * 8.0;
        let at_this_rate = seconds(bits / self.rate.at(now));
        seconds(bits / self.rate.at(now + at_this_rate / 2))
    }

    /// `R_max = max(R_max, 8s/X + ts_gran)` (section 3.2)
    fn cover_spacing(&mut self, now: Time) {
        let bits = f64::from(self.config.packet_bytes) * 8.0;
        let spacing = seconds(bits / self.rate.at(now));
        self.round
            .cover_spacing(spacing + self.config.timer_granularity);
    }

    /// Reads a feedback packet. Returns `None` if it echoes a time or a round that has not been.
    fn read(&self, now: Time, feedback: &Feedback) -> Option<Report> {
        let rtt = Stamp::at(now).since(feedback.echo)?;
        // Timestamps are truncated to microseconds, so their difference can be one too large.
        let is_of_session = rtt <= now - self.start + Duration::from_micros(1);
        let is_of_past = self.round.number().wrapping_sub(feedback.round) < 128;
        let rtt = rtt.clamp(RTT_MIN, RTT_LIMIT);
        (is_of_session && is_of_past).then(|| Report {
            receiver: feedback.receiver,
            rate_bps: feedback.rate.bits_per_s() * self.correction(feedback, rtt),
            rtt,
            have_loss: feedback.have_loss,
            leaving: feedback.leaving,
        })
    }

    /// The correction for a receiver that calculated X_r with R_max (section 3.3):
    ///
    /// `X_r' = X_r * R_max / R_r`
    fn correction(&self, feedback: &Feedback, rtt: Duration) -> f64 {
        if feedback.have_rtt || !feedback.have_loss {
            return 1.0;
        }
        let rtt_max = RttCode::covering(self.round.rtt_max()).duration();
        rtt_max.as_secs_f64() / rtt.as_secs_f64()
    }

    fn on_report(&mut self, now: Time, feedback: &Feedback, report: &Report) {
        let was_clr = self.rate.clr() == Some(feedback.receiver);
        let g = self.config.suppression_margin;
        self.round.on_report(feedback, report.rtt, was_clr, g);
        self.events.push_back(Event::FeedbackReceived {
            receiver: report.receiver,
            rate: Rate::from_bits_per_s((report.rate_bps + 0.5) as u64),
            rtt: report.rtt,
        });
        let scale = self.time_scale();
        self.rate.on_report(now, report, scale, &mut self.events);
        let clr = self.rate.clr();
        self.echoes
            .on_report(now, feedback, clr, self.round.number());
    }

    /// Ends the round and handles silence, if it is time.
    fn on_time(&mut self, now: Time) {
        if self.round.deadline() <= now {
            let event = self.round.end(now);
            self.events.push_back(event);
            self.echoes.on_round();
        }
        self.rate
            .on_timeout(now, self.round.rtt_max(), &mut self.events);
        if self.rate.clr().is_none() {
            self.echoes.forget_clr();
        }
        self.cover_spacing(now);
    }

    /// Applies the present rate to the interval that has begun.
    fn repace(&mut self, now: Time) {
        if self.sequence > 0 {
            self.pacing.interval = self.interval(now);
        }
    }

    fn send(&mut self, now: Time) -> Packet<Message> {
        debug_assert!(self.pacing.due() <= now, "packets are not early");
        let is_late = self.round.is_half_over(now);
        let header = Message::Data(Data {
            sequence: self.sequence,
            sent: Stamp::at(now),
            round: self.round.number(),
            rtt_max: RttCode::covering(self.round.rtt_max()),
            suppression: self.round.suppression(),
            echo: self.echoes.next(now, self.round.number(), is_late),
        });
        self.sequence = self.sequence.wrapping_add(1);
        // The sender catches up after a late timer, but not after a suspension of the machine.
        let earliest =
            Time::ZERO + (now - Time::ZERO).saturating_sub(self.config.timer_granularity);
        self.pacing = Pacing {
            last: self.pacing.due().max(earliest),
            interval: self.interval(now),
        };
        debug_assert!(self.pacing.interval <= SPACING_MAX + Duration::from_nanos(1));
        let payload = self.config.packet_bytes - header.wire_bytes();
        let ecn = if self.config.ecn {
            Ecn::Capable
        } else {
            Ecn::NotCapable
        };
        Packet::new(Destination::Channel(self.channel), header, payload).with_ecn(ecn)
    }
}

impl Endpoint for Sender {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Message>) {
        let Message::Feedback(feedback) = &packet.header else {
            return;
        };
        if !self.is_active(now) {
            return;
        }
        if let Some(report) = self.read(now, feedback) {
            self.on_report(now, feedback, &report);
            self.on_time(now);
            self.repace(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.is_active(now) && self.deadline() <= now {
            self.on_time(now);
            self.repace(now);
        }
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Message>> {
        let is_due = self.is_active(now) && self.pacing.due() <= now;
        is_due.then(|| Action::Send(self.send(now)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let next = self.pacing.due().min(self.deadline());
        self.stop.is_none_or(|stop| next < stop).then_some(next)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

impl Sender {
    /// The time at which a round ends or silence must be handled.
    fn deadline(&self) -> Time {
        let silence = self.rate.deadline(self.round.rtt_max());
        let round = self.round.deadline();
        silence.map_or(round, |silence| silence.min(round))
    }
}
