//! A receiving daemon's measurements of all messages of one sending daemon, and its reports
//! (sections 3.1 and 4.2).

use core::time::Duration;
use std::collections::BTreeMap;

use super::config::TfrcConfig;
use super::loss::{FlowEnd, LossHistory};
use super::rate;
use crate::Event;
use crate::message::{CopyFlags, Data, GroupId, Message, Report};
use crate::sequence::OriginSeq;
use manyflow_core::estimate::tcp_equation::TcpEquation;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;

/// The weight of the past in the average message size and the share of repaired copies.
const HISTORY: f64 = 0.9;

/// A sending daemon, as a receiving daemon sees it.
#[derive(Debug)]
pub(super) struct Origin {
    /// The groups of whose messages some have arrived.
    flows: BTreeMap<GroupId, FlowEnd>,
    /// The round-trip time that the sending daemon has reported, or the initial one until then.
    rtt: Duration,
    rtt_is_known: bool,
    losses: LossHistory,
    equation: TcpEquation,
    meter: Meter,
    /// s: the average size of a message in bytes.
    message_bytes: f64,
    /// The averaged share of repaired copies.
    repaired: f64,
    /// The bytes of all messages that have arrived, without repaired copies, modulo 2^32.
    bytes: u32,
    /// The messages that arrived since the last report.
    since: Arrived,
    reported_at: Option<Time>,
    due: Option<Time>,
}

/// Counts of messages since a report.
#[derive(Copy, Clone, Debug, Default)]
struct Arrived {
    messages: u32,
    repaired: u32,
    /// The newest message that was not repaired. The next report acknowledges it.
    newest: Option<Newest>,
}

/// A message that has just arrived.
#[derive(Copy, Clone, Debug)]
struct Newest {
    group: GroupId,
    sequence: OriginSeq,
    at: Time,
}

/// Measures the rate of arrivals in messages per second, once per round-trip time.
#[derive(Debug)]
struct Meter {
    began: Time,
    messages: u32,
    last_per_s: f64,
    /// The highest measured rate: the maximum of X_recv (RFC 5348 section 6.3.1).
    highest_per_s: f64,
}

impl Meter {
    fn on_message(&mut self, now: Time, rtt: Duration) {
        self.messages += 1;
        let span = now - self.began;
        if span >= rtt {
            self.last_per_s = f64::from(self.messages) / span.as_secs_f64();
            self.highest_per_s = self.highest_per_s.max(self.last_per_s);
            (self.began, self.messages) = (now, 0);
        }
    }
}

/// A report, and the event for traces that belongs to it.
pub(super) struct Reported {
    pub(super) report: Report,
    pub(super) rates: Option<Event>,
}

impl Origin {
    pub(super) fn new(now: Time, config: &TfrcConfig) -> Origin {
        Origin {
            flows: BTreeMap::new(),
            rtt: config.initial_rtt,
            rtt_is_known: false,
            losses: LossHistory::new(config),
            equation: config.equation,
            meter: Meter {
                began: now,
                messages: 0,
                last_per_s: 0.0,
                highest_per_s: 0.0,
            },
            message_bytes: 0.0,
            repaired: 0.0,
            bytes: 0,
            since: Arrived::default(),
            reported_at: None,
            due: None,
        }
    }

    /// Handles the round-trip time that the sending daemon has measured.
    pub(super) fn on_round_trip(&mut self, rtt: Duration) {
        if !rtt.is_zero() {
            (self.rtt, self.rtt_is_known) = (rtt, true);
        }
    }

    /// Returns the number of groups of whose messages some have arrived.
    pub(super) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Forgets a group without members. Returns whether the sending daemon has another group here.
    pub(super) fn remove_flow(&mut self, group: GroupId) -> bool {
        self.flows.remove(&group);
        !self.flows.is_empty()
    }

    /// Handles the arrival of a message. Returns whether a loss event began. A new loss event is
    /// reported at once.
    pub(super) fn on_arrival(
        &mut self,
        now: Time,
        message: &Message,
        data: &Data,
        bytes: u32,
    ) -> bool {
        let repaired = message.copy.has(CopyFlags::REPAIRED);
        let (group, sequence) = (data.group, data.sequence);
        if self.message_bytes == 0.0 {
            self.message_bytes = f64::from(bytes);
        }
        self.message_bytes += (1.0 - HISTORY) * (f64::from(bytes) - self.message_bytes);
        self.since.messages += 1;
        if repaired {
            self.since.repaired += 1;
        } else {
            self.bytes = self.bytes.wrapping_add(bytes);
            self.since.newest = Some(Newest {
                group,
                sequence,
                at: now,
            });
        }
        self.meter.on_message(now, self.rtt);
        let flow = self.flows.entry(group).or_default();
        let gap = flow.advance(now, sequence, repaired);
        let began = self.losses.on_packet(now, gap, message.copy, self.rtt);
        if self.losses.wants_seed() {
            let interval = rate::first_interval(self.equation, self.rtt, self.meter.highest_per_s);
            self.losses.seed(interval);
        }
        self.schedule(now, began);
        began
    }

    /// Schedules the next report. While the round-trip time is unknown, each message is reported,
    /// so that the sending daemon can measure it soon (RFC 5348 section 6.3).
    fn schedule(&mut self, now: Time, at_once: bool) {
        let next = match self.reported_at {
            Some(reported_at) if self.rtt_is_known && !at_once => (reported_at + self.rtt).max(now),
            _ => now,
        };
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    /// Returns the report that is due now, if there is one.
    pub(super) fn poll_report(&mut self, now: Time) -> Option<Reported> {
        if self.due.is_none_or(|due| now < due) {
            return None;
        }
        let since = core::mem::take(&mut self.since);
        let share = f64::from(since.repaired) / f64::from(since.messages.max(1));
        self.repaired += (1.0 - HISTORY) * (share - self.repaired);
        (self.reported_at, self.due) = (Some(now), None);
        let p = self.losses.loss_event_rate();
        let (bytes, rtt) = (self.message_bytes, self.rtt);
        let acceptable = p.map(|p| rate::acceptable_bytes_per_s(self.equation, bytes, rtt, p));
        let newest = since.newest.unwrap_or(Newest {
            group: GroupId(0),
            sequence: Report::NONE,
            at: now,
        });
        let held = now - newest.at;
        let report = Report {
            group: newest.group,
            rate_bytes_per_s: acceptable.map_or(Report::UNLIMITED, |rate| {
                // Saturates below `UNLIMITED`: a finite rate must never read as "no limit".
                (rate as u32).min(Report::UNLIMITED - 1)
            }),
            repaired: in_65536ths(self.repaired),
            acknowledged: newest.sequence,
            received_bytes: self.bytes,
            held_us: u32::try_from(held.as_micros()).unwrap_or(u32::MAX),
        };
        let rates = p.zip(acceptable).map(|(p, acceptable)| Event::Rates {
            target: Rate::from_bits_per_s((acceptable * 8.0) as u64),
            received: Rate::from_packets_per_s(self.meter.last_per_s, self.message_bytes as u32),
            loss_probability: p,
        });
        Some(Reported { report, rates })
    }
}

/// Returns a share in units of 2^-16, at most 65,535 of them.
fn in_65536ths(share: f64) -> u16 {
    (share * 65536.0 + 0.5).min(65535.0) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Body, ClientId, DaemonId};

    const RTT: Duration = Duration::from_millis(100);

    const GROUP: GroupId = GroupId(1);

    fn origin() -> Origin {
        Origin::new(Time::ZERO, &TfrcConfig::default())
    }

    fn at(seconds: f64) -> Time {
        Time::from_secs_f64(seconds)
    }

    /// Hands over a message of 1000 bytes.
    fn arrive(origin: &mut Origin, now: Time, number: u64, repaired: bool) {
        let data = Data {
            group: GROUP,
            version: 0,
            sequence: OriginSeq::new(number),
            sender: ClientId(0),
            sent_us: 0,
        };
        let message = Message {
            origin: DaemonId(0),
            copy: match repaired {
                true => CopyFlags::REPAIRED,
                false => CopyFlags::default(),
            },
            body: Body::Data(data),
        };
        origin.on_arrival(now, &message, &data, 1000);
    }

    /// Hands over messages a hundredth of a second apart. Returns the reports and their times.
    fn run(
        origin: &mut Origin,
        numbers: core::ops::Range<u64>,
        lost: &[u64],
    ) -> Vec<(Time, Report)> {
        let mut reports = Vec::new();
        for number in numbers {
            let now = at(number as f64 / 100.0);
            if !lost.contains(&number) {
                arrive(origin, now, number, false);
            }
            reports.extend(
                origin
                    .poll_report(now)
                    .map(|reported| (now, reported.report)),
            );
        }
        reports
    }

    #[test]
    fn reports_follow_each_message_and_later_each_round_trip_time() {
        let mut origin = origin();
        assert_eq!(run(&mut origin, 1..10, &[]).len(), 9);
        origin.on_round_trip(RTT);
        let reports = run(&mut origin, 10..110, &[]);
        assert_eq!(reports.len(), 10);
        assert!(
            reports
                .iter()
                .all(|(_, report)| report.rate_bytes_per_s == Report::UNLIMITED)
        );
    }

    #[test]
    fn a_new_loss_event_is_reported_at_once_with_the_received_rate() {
        let mut origin = origin();
        origin.on_round_trip(RTT);
        run(&mut origin, 1..101, &[]);
        let reports = run(&mut origin, 101..105, &[102]);
        let (when, report) = reports.last().unwrap();
        assert_eq!(
            (*when, report.acknowledged),
            (at(1.03), OriginSeq::new(103))
        );
        let asked = f64::from(report.rate_bytes_per_s) / 100_000.0;
        assert!(
            (0.9..1.1).contains(&asked),
            "{asked} times the received rate"
        );
    }

    #[test]
    fn a_report_has_its_holding_time_and_acknowledges_no_repaired_copy() {
        let mut origin = origin();
        origin.on_round_trip(RTT);
        arrive(&mut origin, at(0.0), 1, false);
        assert!(origin.poll_report(at(0.0)).is_some());
        arrive(&mut origin, at(0.03), 2, false);
        arrive(&mut origin, at(0.05), 1, true);
        assert!(origin.poll_report(at(0.05)).is_none());
        assert_eq!(origin.poll_timeout(), Some(at(0.1)));
        let report = origin.poll_report(at(0.1)).unwrap().report;
        assert_eq!(
            (report.acknowledged, report.held_us),
            (OriginSeq::new(2), 70_000)
        );
        assert!(report.repaired > 0);
        arrive(&mut origin, at(0.3), 1, true);
        let report = origin.poll_report(at(0.3)).unwrap().report;
        assert_eq!((report.acknowledged, report.held_us), (Report::NONE, 0));
        assert_eq!(
            origin.poll_timeout(),
            None,
            "a report is due without arrivals"
        );
    }
}
