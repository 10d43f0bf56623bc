//! Soundings that wait for their echo, and the measurements that follow from echoes.

use core::time::Duration;
use std::collections::VecDeque;

use manyflow_core::Time;

use super::wire::{Echo, SOUNDING_WIRE_BYTES, Sounding};

/// The maximum number of soundings that wait for an echo. Older ones are forgotten.
const RECORDS_MAX: usize = 64;
/// The maximum number of echoes over which the delivered rate is measured.
const ARRIVALS_MAX: usize = 32;
/// The minimum number of bytes over which the delivered rate is measured, unless they take longer
/// than the time.
const DELIVERED_BYTES: u64 = 8000;
const DELIVERED_MAX: Duration = Duration::from_secs(1);
/// The number of missing packets that count as lost at once. Fewer may have been overtaken, and
/// count only if they are still missing at the next echo.
const OVERTAKEN_MAX: i64 = 2;
/// The maximum number of packets that may be missing because the path reorders packets.
const REORDERED_MAX: i64 = 32;
/// The number of echoes after which one packet less may be missing.
const REORDERING_ECHOES: u64 = 256;
/// The weight of one packet in the average share of packets that are lost.
const LOSS_WEIGHT: f64 = 1.0 / 256.0;
/// The weight of the earlier loss events that remains after another one.
const EVENT_KEPT: f64 = 0.875;
/// The time after which half of the memory of the minimum RTT is forgotten.
const MINIMUM_LIFETIME: Duration = Duration::from_secs(15);

/// A sounding that was sent.
#[derive(Copy, Clone, Debug)]
struct Record {
    number: u32,
    at: Time,
    packets: u64,
    /// Whether the hop had packets to send all the time since the sounding before.
    is_busy: bool,
}

/// An echo that has arrived.
#[derive(Copy, Clone, Debug)]
struct Arrived {
    at: Time,
    number: u32,
    bytes: u64,
}

/// The measurements of one echo.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) struct Observation {
    /// The number of the sounding.
    pub(super) number: u32,
    /// The time since the echo before, at most one second.
    pub(super) span: Duration,
    /// The RTT of this sounding.
    pub(super) rtt: Duration,
    /// The shorter of the last two RTTs: the RTT without the noise of single packets.
    pub(super) standing: Duration,
    /// The minimum RTT of the path.
    pub(super) minimum: Duration,
    /// The packets that were sent between the sounding that was answered before and this one.
    pub(super) sent: u64,
    /// The packets that were lost.
    pub(super) lost: u64,
    /// The share of packets that are lost, averaged over some hundred packets.
    pub(super) loss_share: f64,
    /// The share of packets that begin a loss event, over some eight events; 0 before the first.
    pub(super) event_share: f64,
    /// The rate at which packets arrived over the last round-trip times, in bytes per second.
    pub(super) delivered: Option<f64>,
    /// Whether the hop had packets to send all the time before the sounding.
    pub(super) is_busy: bool,
}

/// The packets of the last loss events. Losses that one echo shows are one event.
#[derive(Copy, Clone, Debug, Default)]
struct LossEvents {
    events: f64,
    packets: f64,
}

impl LossEvents {
    fn count(&mut self, packets: f64, is_event: bool) {
        self.packets += packets;
        if is_event {
            self.events = EVENT_KEPT * self.events + 1.0;
            self.packets *= EVENT_KEPT;
        }
        debug_assert!(self.events < 1.0 / (1.0 - EVENT_KEPT));
    }

    fn share(&self) -> f64 {
        if self.events == 0.0 {
            return 0.0;
        }
        (self.events / self.packets).min(1.0)
    }
}

/// The soundings of a hop.
#[derive(Debug)]
pub(super) struct Soundings {
    nonce: u64,
    number: u32,
    records: VecDeque<Record>,
    arrived: VecDeque<Arrived>,
    packets: u64,
    bytes: u64,
    /// The packets that were sent before the last sounding.
    sounded: u64,
    /// The number of the last sounding that was answered.
    answered: u32,
    child: Option<u32>,
    /// The packets missing at the child that are accounted for, and those missing at the last echo.
    missing: Option<(i64, i64)>,
    srtt: Option<Duration>,
    last_rtt: Option<Duration>,
    /// The minimum RTT of the present period and of the one before, and when the period began.
    minimum: (Duration, Duration),
    minimum_since: Time,
    pub(super) lost: u64,
    pub(super) echoes: u64,
    loss_share: f64,
    events: LossEvents,
    /// The number of packets that may be missing because the path reorders packets.
    reordered: i64,
    /// The packets that were sent before the last sounding that was answered.
    confirmed: u64,
}

impl Soundings {
    pub(super) fn new(nonce: u64, now: Time) -> Soundings {
        Soundings {
            nonce,
            number: 0,
            records: VecDeque::new(),
            arrived: VecDeque::new(),
            packets: 0,
            bytes: 0,
            sounded: 0,
            answered: 0,
            child: None,
            missing: None,
            srtt: None,
            last_rtt: None,
            minimum: (Duration::MAX, Duration::MAX),
            minimum_since: now,
            lost: 0,
            echoes: 0,
            loss_share: 0.0,
            events: LossEvents::default(),
            reordered: 0,
            confirmed: 0,
        }
    }

    pub(super) fn count(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }

    pub(super) fn sent(&self) -> (u64, u64) {
        (self.packets, self.bytes)
    }

    pub(super) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Returns the number of the last sounding.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    pub(super) fn minimum_rtt(&self) -> Option<Duration> {
        let minimum = self.minimum.0.min(self.minimum.1);
        (minimum != Duration::MAX).then_some(minimum)
    }

    /// Returns when the oldest sounding that waits for an echo was sent.
    pub(super) fn waiting_since(&self) -> Option<Time> {
        self.records.front().map(|record| record.at)
    }

    /// Returns whether packets were sent since the last sounding.
    pub(super) fn is_behind(&self) -> bool {
        self.packets != self.sounded
    }

    pub(super) fn sound(&mut self, now: Time, is_busy: bool) -> Sounding {
        self.number = self.number.saturating_add(1);
        self.sounded = self.packets;
        if self.records.len() == RECORDS_MAX {
            self.records.pop_front();
        }
        self.records.push_back(Record {
            number: self.number,
            at: now,
            packets: self.packets,
            is_busy,
        });
        Sounding {
            nonce: self.nonce,
            number: self.number,
            packets: self.packets,
            bytes: self.bytes,
        }
    }

    /// Handles an echo. Returns its measurements; `None` for an echo that is old or answers nothing
    /// that was sent, and for the first echo of a child.
    pub(super) fn answer(
        &mut self,
        now: Time,
        echo: &Echo,
        keep_minimum: bool,
    ) -> Option<Observation> {
        if echo.nonce != self.nonce || echo.number <= self.answered {
            return None;
        }
        let place = self
            .records
            .iter()
            .position(|record| record.number == echo.number)?;
        let record = self.records[place];
        let skipped_idle = self
            .records
            .iter()
            .take(place)
            .any(|record| !record.is_busy);
        self.records.drain(..=place);
        self.answered = echo.number;
        self.echoes += 1;
        debug_assert!(self.answered <= self.number);
        let rtt = now - record.at;
        let standing = self.measure_rtt(now, rtt, keep_minimum);
        let lost = self.count_losses(record.packets, echo)?;
        let sent = record.packets.saturating_sub(self.confirmed).max(1) as f64;
        self.confirmed = record.packets;
        let weight = (LOSS_WEIGHT * sent).min(1.0);
        self.loss_share += weight * ((lost as f64 / sent).min(1.0) - self.loss_share);
        self.events.count(sent, lost > 0);
        let span = self.arrived.back().map_or(rtt, |last| now - last.at);
        let arrived = Arrived {
            at: now,
            number: echo.number,
            bytes: echo.bytes,
        };
        let delivered = self.measure_delivered(arrived);
        Some(Observation {
            number: echo.number,
            span: span.min(Duration::from_secs(1)),
            rtt,
            standing,
            minimum: self.minimum_rtt().unwrap_or(rtt),
            sent: sent as u64,
            lost,
            loss_share: self.loss_share,
            event_share: self.events.share(),
            delivered,
            is_busy: record.is_busy && !skipped_idle,
        })
    }

    /// Takes an RTT into the averages. Returns the shorter of the last two.
    fn measure_rtt(&mut self, now: Time, rtt: Duration, keep_minimum: bool) -> Duration {
        if now - self.minimum_since >= MINIMUM_LIFETIME && !keep_minimum {
            self.minimum = (Duration::MAX, self.minimum.0);
            self.minimum_since = now;
        }
        self.minimum.0 = self.minimum.0.min(rtt);
        self.srtt = Some(self.srtt.map_or(rtt, |srtt| (3 * srtt + rtt) / 4));
        // Rare soundings are not averaged: the queue would be full at the second one.
        let is_rare = self
            .arrived
            .back()
            .is_some_and(|last| now - last.at > rtt * 3 / 2);
        let last = self.last_rtt.replace(rtt).filter(|_| !is_rare);
        last.map_or(rtt, |last| last.min(rtt))
    }

    /// Returns the packets that were lost, by the difference between the counts of both ends. The
    /// difference at the first echo of a child is taken as that of its start.
    fn count_losses(&mut self, sent: u64, echo: &Echo) -> Option<u64> {
        let missing = sent as i64 - i64::try_from(echo.packets).unwrap_or(i64::MAX);
        let (known, last) = match self.missing.filter(|_| self.child == Some(echo.child)) {
            Some(missing) => missing,
            None => {
                self.child = Some(echo.child);
                self.missing = Some((missing, missing));
                self.arrived.clear();
                return None;
            }
        };
        self.learn_reordering(known.saturating_sub(missing));
        let added = missing.saturating_sub(known);
        let sure = if added > OVERTAKEN_MAX + self.reordered {
            added - self.reordered
        } else {
            (missing.min(last).saturating_sub(known) - self.reordered).max(0)
        };
        let known = known.saturating_add(sure).min(missing);
        self.missing = Some((known, missing));
        let lost = sure.unsigned_abs();
        self.lost = self.lost.saturating_add(lost);
        Some(lost)
    }

    /// Handles the arrival of `late` packets that were taken for lost. As many can be missing from
    /// now on before any is taken for lost.
    fn learn_reordering(&mut self, late: i64) {
        if late > 0 {
            self.lost = self.lost.saturating_sub(late.unsigned_abs());
            self.reordered = self.reordered.max(late).min(REORDERED_MAX);
        } else if self.echoes.is_multiple_of(REORDERING_ECHOES) {
            self.reordered = (self.reordered - 1).max(0);
        }
    }

    /// Measures the rate at which packets arrived, over at least one RTT and some packets.
    fn measure_delivered(&mut self, arrived: Arrived) -> Option<f64> {
        let since = self.srtt.unwrap_or_default().max(Duration::from_millis(40));
        if self.arrived.len() == ARRIVALS_MAX {
            self.arrived.pop_front();
        }
        let is_long_ago = |next: &Arrived| {
            let age = arrived.at - next.at;
            let bytes = arrived.bytes.saturating_sub(next.bytes);
            age >= since && (bytes >= DELIVERED_BYTES || age >= DELIVERED_MAX)
        };
        while self.arrived.get(1).is_some_and(is_long_ago) {
            self.arrived.pop_front();
        }
        self.arrived.push_back(arrived);
        let first = self.arrived.front()?;
        let span_s = (arrived.at - first.at).as_secs_f64();
        let soundings = f64::from(arrived.number - first.number) * f64::from(SOUNDING_WIRE_BYTES);
        let bytes = arrived.bytes.saturating_sub(first.bytes) as f64 + soundings;
        (span_s > 0.0).then(|| bytes / span_s)
    }
}
