//! The loss event rate of all messages of one sending daemon, at their receiving daemon (section
//! 4.2).
//!
//! ```text
//!    x = lost, in its interpolated place          I_sample counts                       I_sample counts
//!    . . . . x . x . . | . . . . . . . . . . . . . . . . . . . . . . . x . . . . x | . . . . . . . .
//!            |<- RTT ->|                                               |<-- RTT -->|
//!            event: what arrives or is lost here is ignored            the next event
//! ```

use core::time::Duration;

use super::config::{LossAverage, TfrcConfig};
use crate::message::CopyFlags;
use crate::sequence::OriginSeq;
use manyflow_core::estimate::loss_intervals::{LossIntervals, TFRC_DISCOUNT_MIN};
use manyflow_core::time::Time;

/// The maximum number of events that one gap may begin. Each event halves the average interval, so
/// that more events make no difference.
const EVENTS_MAX: usize = 32;

/// The newest message of a group that has arrived from a sending daemon. Messages are numbered for
/// each group, so gaps are those of a group.
#[derive(Debug, Default)]
pub(super) struct FlowEnd(Option<(OriginSeq, Time)>);

/// Packets that did not arrive between two that did.
#[derive(Copy, Clone, Debug)]
pub(super) struct Gap {
    /// The arrival of the packet before the gap.
    before: Time,
    /// The distance to the packet after the gap, in numbers.
    ahead: u64,
    /// The number of lost packets, which follow the one before the gap.
    lost: u64,
    /// The time between the arrivals before and after the gap.
    span: Duration,
}

impl FlowEnd {
    /// Handles the arrival of a packet. Returns the gap before the packet, which may have no lost
    /// packet. Returns `None` for a packet below the highest number, which was counted as lost
    /// already. It is either a repaired copy or late; the paper, too, counts a late packet as lost.
    pub(super) fn advance(
        &mut self,
        now: Time,
        sequence: OriginSeq,
        repaired: bool,
    ) -> Option<Gap> {
        let (highest, before) = self.0.unwrap_or((sequence.previous(), now));
        let ahead = u64::try_from(sequence.distance_from(highest)).ok()?;
        (ahead > 0).then(|| {
            self.0 = Some((sequence, now));
            Gap {
                before,
                ahead,
                // A repaired copy with the highest number was itself lost.
                lost: ahead - u64::from(!repaired),
                span: now - before,
            }
        })
    }
}

/// The loss events of all messages of one sending daemon, and the packets between the events.
#[derive(Debug)]
pub(super) struct LossHistory {
    /// The initial value of I_sample: 1 if the lost packet that begins an event counts, else 0.
    first: f64,
    /// Whether I_sample includes the packets in the round-trip time of a loss event.
    whole: bool,
    /// The number of packets that the sending daemon has sent, as far as their groups' numbers
    /// show.
    passed: u64,
    /// The lost packet that began the last loss event.
    event: Option<LossEvent>,
    /// I_sample: the number of packets since the last loss event ended, or began if `whole`.
    sample: f64,
    average: Average,
}

/// The lost packet that began a loss event.
#[derive(Copy, Clone, Debug, PartialEq)]
struct LossEvent {
    /// The interpolated time of arrival.
    at: Time,
    /// The packet's place among all packets of the sending daemon, counted from 1.
    place: u64,
}

/// The average of the intervals between loss events, in packets.
#[derive(Debug)]
enum Average {
    /// Eq. (2): `I_mean = history I_past + (1 - history) I_sample`.
    Exponential {
        history: f64,
        /// I_past; `None` before the first loss event.
        past: Option<f64>,
    },
    /// The average of RFC 5348 section 5.4.
    Intervals(LossIntervals),
}

impl Average {
    fn new(config: LossAverage) -> Average {
        match config {
            LossAverage::Exponential { history } => Average::Exponential {
                history,
                past: None,
            },
            LossAverage::Intervals { discounts } => {
                Average::Intervals(LossIntervals::new(match discounts {
                    true => TFRC_DISCOUNT_MIN,
                    false => 1.0,
                }))
            }
        }
    }

    /// Adds the interval before a loss event that begins. The first one is the seed.
    fn close(&mut self, interval: f64) {
        match self {
            Average::Exponential { history, past } => {
                let mean = past.map_or(interval, |past| weighted(*history, past, interval));
                // p is at most 1.
                *past = Some(mean.max(1.0));
            }
            Average::Intervals(intervals) => intervals.close(interval),
        }
    }

    /// Returns p = 1 / I_mean, in (0, 1], if the interval since the last loss event has `open`
    /// packets. An open interval counts only if it lowers p. Returns `None` before the first loss.
    fn loss_event_rate(&self, open: f64) -> Option<f64> {
        match self {
            Average::Exponential { history, past } => {
                past.map(|past| 1.0 / weighted(*history, past, open.max(past)))
            }
            Average::Intervals(intervals) => intervals.loss_event_rate(open),
        }
    }
}

/// Returns the weighted mean of Eq. (2); the paper's weights are both one half.
fn weighted(history: f64, past: f64, sample: f64) -> f64 {
    history * past + (1.0 - history) * sample
}

impl LossHistory {
    /// Returns the history of a sending daemon from which no packet has arrived yet.
    pub(super) fn new(config: &TfrcConfig) -> LossHistory {
        LossHistory {
            first: f64::from(u8::from(config.count_losses)),
            whole: config.whole_intervals,
            passed: 0,
            event: None,
            sample: 0.0,
            average: Average::new(config.loss_average),
        }
    }

    /// Handles the arrival of a packet, and the gap before it in its group. Returns whether losses
    /// in the gap, or the packet's mark, began a new loss event. After the first loss event, the
    /// caller must [`seed`](LossHistory::seed) the average.
    pub(super) fn on_packet(
        &mut self,
        now: Time,
        gap: Option<Gap>,
        copy: CopyFlags,
        rtt: Duration,
    ) -> bool {
        let mut began = gap.is_some_and(|gap| self.record_losses(gap, rtt));
        self.passed = self.passed.saturating_add(gap.map_or(0, |gap| gap.ahead));
        let is_marked = copy.has(CopyFlags::MARKED);
        if is_marked && self.event.is_none_or(|event| event.at + rtt < now) {
            let place = self.passed;
            self.begin_event(LossEvent { at: now, place });
            began = true;
        }
        if !copy.has(CopyFlags::REPAIRED) {
            self.count_packet(now, rtt);
        }
        began
    }

    /// Handles the losses of a gap. The times of the lost packets are interpolated (RFC 5348
    /// section 5.2). A loss that was noticed late, in a group with few messages, can be earlier
    /// than the last event; it counts as part of that event.
    fn record_losses(&mut self, gap: Gap, rtt: Duration) -> bool {
        let (span, ahead) = (gap.span.as_nanos(), u128::from(gap.ahead));
        let before = gap.before;
        let mut began = false;
        for _ in 0..EVENTS_MAX {
            let ends = self.event.map(|event| event.at + rtt);
            let ignored = ends.map_or(0, |ends| (ends - before).as_nanos());
            // The first number whose interpolated time is later than the end of the last event.
            let place = match (ignored * ahead).checked_div(span) {
                Some(place) => place + 1,
                None if ignored == 0 => 1,
                None => break,
            };
            if place > u128::from(gap.lost) {
                break;
            }
            self.begin_event(LossEvent {
                at: before + Duration::from_nanos((span * place / ahead) as u64),
                place: self.passed.saturating_add(place as u64),
            });
            began = true;
        }
        began
    }

    fn begin_event(&mut self, event: LossEvent) {
        if let Some(last) = self.event {
            if self.whole {
                self.sample = (event.place - last.place).max(1) as f64;
            }
            // Several events of one gap may begin before the first interval is seeded.
            if !self.wants_seed() {
                self.average.close(self.sample);
            }
        }
        self.sample = self.first;
        self.event = Some(event);
    }

    /// Counts a packet for I_sample, unless the last loss event has not ended.
    fn count_packet(&mut self, now: Time, rtt: Duration) {
        match self.event {
            Some(event) if self.whole => {
                self.sample = (self.passed - event.place) as f64 + self.first;
            }
            Some(event) if now < event.at + rtt => {}
            _ => self.sample += 1.0,
        }
    }

    /// Returns whether the first loss event has begun, and the interval before it must be
    /// [seeded](LossHistory::seed).
    pub(super) fn wants_seed(&self) -> bool {
        self.event.is_some() && self.loss_event_rate().is_none()
    }

    /// Sets the interval before the first loss event, in packets.
    pub(super) fn seed(&mut self, interval: f64) {
        self.average.close(interval);
    }

    /// Returns p = 1 / I_mean, in (0, 1]; `None` before the first loss.
    pub(super) fn loss_event_rate(&self) -> Option<f64> {
        let p = self.average.loss_event_rate(self.sample);
        debug_assert!(p.is_none_or(|p| p > 0.0 && p <= 1.0), "p is {p:?}");
        p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);
    const SPACING_S: f64 = 0.01;

    /// The history of a sending daemon, and its only group.
    struct History {
        losses: LossHistory,
        flow: FlowEnd,
    }

    impl History {
        fn new(config: &TfrcConfig) -> History {
            History {
                losses: LossHistory::new(config),
                flow: FlowEnd::default(),
            }
        }

        fn on_packet(&mut self, seconds: f64, number: u64, repaired: bool) -> bool {
            let copy = match repaired {
                true => CopyFlags::REPAIRED,
                false => CopyFlags::default(),
            };
            self.on_copy(seconds, number, copy)
        }

        fn on_copy(&mut self, seconds: f64, number: u64, copy: CopyFlags) -> bool {
            let (now, number) = (Time::from_secs_f64(seconds), OriginSeq::new(number));
            let repaired = copy.has(CopyFlags::REPAIRED);
            let gap = self.flow.advance(now, number, repaired);
            self.losses.on_packet(now, gap, copy, RTT)
        }
    }

    /// Returns a history that counts as section 4.2 says literally.
    fn literal() -> History {
        History::new(&TfrcConfig {
            count_losses: false,
            ..TfrcConfig::default()
        })
    }

    /// Hands over packets a hundredth of a second apart, except lost ones. Returns the packets
    /// whose arrival began loss events.
    fn run(history: &mut History, numbers: core::ops::Range<u64>, lost: &[u64]) -> Vec<u64> {
        let arrive = numbers.filter(|number| !lost.contains(number));
        let began = arrive.filter(|&number| {
            let began = history.on_packet(number as f64 * SPACING_S, number, false);
            if history.losses.wants_seed() {
                history.losses.seed(50.0);
            }
            began
        });
        began.collect()
    }

    fn event_at(history: &History) -> Time {
        history.losses.event.unwrap().at
    }

    fn mean(history: &History) -> f64 {
        1.0 / history.losses.loss_event_rate().unwrap()
    }

    #[test]
    fn without_loss_there_is_no_rate() {
        let mut history = literal();
        assert!(run(&mut history, 1..1000, &[]).is_empty());
        assert_eq!(history.losses.loss_event_rate(), None);
    }

    #[test]
    fn losses_within_a_round_trip_belong_to_one_event() {
        let mut history = literal();
        // 100 begins an event. 110 is exactly a round-trip time later, 111 is beyond it.
        let began = run(&mut history, 1..200, &[100, 103, 110, 111]);
        assert_eq!(began, [101, 112]);
    }

    #[test]
    fn the_time_of_a_lost_packet_is_interpolated() {
        let mut history = literal();
        run(&mut history, 1..101, &[]);
        // 100 arrived at 1 s, 103 arrives at 1.3 s. 101 was due at 1.1 s, and 102 a round-trip time
        // later, in the same event.
        assert!(history.on_packet(1.3, 103, false));
        assert_eq!(event_at(&history), Time::from_secs_f64(1.1));
        // 104 was due at 1.4 s and begins an event, 105 belongs to it, and 106 begins one at 1.6 s.
        assert!(history.on_packet(1.7, 107, false));
        assert_eq!(event_at(&history), Time::from_secs_f64(1.6));
    }

    #[test]
    fn packets_within_an_event_do_not_count_for_the_interval() {
        let mut history = literal();
        // The event begins at 1 s and ends at 1.1 s. The 91 packets from 110 to 200 arrive before
        // the next event.
        run(&mut history, 1..201, &[100]);
        assert_eq!(history.losses.sample, 91.0);
        run(&mut history, 201..203, &[201]);
        assert_eq!(mean(&history), (50.0 + 91.0) / 2.0);
    }

    #[test]
    fn the_mean_is_constant_until_the_sample_reaches_the_past() {
        let mut history = literal();
        run(&mut history, 1..159, &[100]);
        assert_eq!((history.losses.sample, mean(&history)), (49.0, 50.0));
        run(&mut history, 159..161, &[]);
        assert_eq!((history.losses.sample, mean(&history)), (51.0, 50.5));
        run(&mut history, 161..210, &[]);
        assert_eq!(mean(&history), (50.0 + 100.0) / 2.0);
    }

    #[test]
    fn a_mark_begins_a_loss_event_unless_one_lasts() {
        let mut history = literal();
        run(&mut history, 1..50, &[]);
        let marked = CopyFlags::MARKED;
        assert!(history.on_copy(0.5, 50, marked));
        history.losses.seed(50.0);
        assert_eq!(history.losses.loss_event_rate(), Some(1.0 / 50.0));
        // The events of a mark and of a loss last for the same time.
        assert!(!history.on_copy(0.55, 51, marked));
        assert!(!history.on_packet(0.58, 53, false));
        assert!(history.on_copy(0.61, 54, marked));
    }

    #[test]
    fn a_repaired_copy_counts_as_lost_once_and_never_as_received() {
        let mut history = literal();
        run(&mut history, 1..151, &[100]);
        let sample = history.losses.sample;
        assert!(
            !history.on_packet(1.6, 100, true),
            "the loss was noticed before"
        );
        assert!(
            history.on_packet(1.6, 151, true),
            "the loss of the newest packet is new"
        );
        assert_eq!(mean(&history), (50.0 + sample) / 2.0);
    }

    #[test]
    fn an_interval_counts_its_first_loss_by_default() {
        let mut history = History::new(&TfrcConfig::default());
        run(&mut history, 1..203, &[100, 201]);
        assert_eq!(mean(&history), (50.0 + 92.0) / 2.0);
    }

    #[test]
    fn whole_intervals_count_from_one_lost_packet_to_the_next() {
        let mut history = History::new(&TfrcConfig {
            whole_intervals: true,
            ..TfrcConfig::default()
        });
        // 105 belongs to the event that 100 began.
        run(&mut history, 1..203, &[100, 105, 201]);
        assert_eq!(mean(&history), (50.0 + 101.0) / 2.0);
    }

    #[test]
    fn eight_intervals_have_the_weights_of_rfc_5348() {
        let mut history = History::new(&TfrcConfig {
            whole_intervals: true,
            loss_average: LossAverage::Intervals { discounts: false },
            ..TfrcConfig::default()
        });
        run(&mut history, 1..141, &[100, 140]);
        assert_eq!(mean(&history), 50.0, "an open interval of 40 is too short");
        run(&mut history, 141..142, &[]);
        assert_eq!(mean(&history), (50.0 + 40.0) / 2.0);
    }

    #[test]
    fn a_long_gap_ends_at_a_loss_event_rate_of_one() {
        let mut history = literal();
        run(&mut history, 1..101, &[50]);
        assert!(history.on_packet(1e6, u64::from(u32::MAX), false));
        assert_eq!(history.losses.loss_event_rate(), Some(1.0));
    }
}
