//! The loss event rate of one flow at its receiving daemon (section 4.2).
//!
//! ```text
//!    x = lost, in its interpolated place          I_sample counts                       I_sample counts
//!    . . . . x . x . . | . . . . . . . . . . . . . . . . . . . . . . . x . . . . x | . . . . . . . .
//!            |<- RTT ->|                                               |<-- RTT -->|
//!            event: what arrives or is lost here is ignored            the next event
//! ```

use core::time::Duration;

use super::config::TfrcConfig;
use crate::sequence::OriginSeq;
use manyflow_core::time::Time;

/// The maximum number of events that one gap may begin. Each event halves the average interval, so
/// that more events make no difference.
const EVENTS_MAX: usize = 32;

/// The loss events of a flow and the packets between them.
#[derive(Debug)]
pub(super) struct LossHistory {
    /// The initial value of I_sample: 1 if the lost packet that begins an event counts, else 0.
    first: f64,
    /// The weight of I_past in Eq. (2).
    history: f64,
    /// The highest sequence number that has arrived, and the time of its arrival.
    highest: Option<(OriginSeq, Time)>,
    /// The time at which the last loss event began.
    event_at: Option<Time>,
    /// I_sample: the number of packets since the last loss event ended.
    sample: f64,
    /// I_past and I_mean; `None` before the first loss event.
    average: Option<Average>,
}

#[derive(Copy, Clone, Debug)]
struct Average {
    past: f64,
    mean: f64,
}

impl LossHistory {
    /// Returns the history of a flow from which no packet has arrived yet.
    pub(super) fn new(config: &TfrcConfig) -> LossHistory {
        LossHistory {
            first: f64::from(u8::from(config.count_losses)),
            history: config.loss_history,
            highest: None,
            event_at: None,
            sample: 0.0,
            average: None,
        }
    }

    /// Handles the arrival of a packet. Returns whether losses before the packet began a new loss
    /// event. After the first loss event, the caller must [`seed`](LossHistory::seed) the average.
    pub(super) fn on_packet(
        &mut self,
        now: Time,
        sequence: OriginSeq,
        repaired: bool,
        rtt: Duration,
    ) -> bool {
        let (highest, at) = self.highest.unwrap_or((sequence.previous(), now));
        let ahead = sequence.distance_from(highest);
        // A packet below the highest number was counted as lost already. It is either a repaired
        // copy or late; the paper, too, counts a late packet as lost.
        let is_ahead = ahead as i32 > 0;
        let mut began = false;
        if is_ahead {
            self.highest = Some((sequence, now));
            // A repaired copy with the highest number was itself lost.
            let lost = ahead - u32::from(!repaired);
            began = self.record_losses(at, now - at, ahead, lost, rtt);
        }
        if !repaired {
            self.count_packet(now, rtt);
        }
        began
    }

    /// Handles the loss of the `lost` numbers after a packet that arrived at `before`. Packet
    /// number `ahead` after that one arrived `span` later. The times of the lost packets are
    /// interpolated (RFC 5348 section 5.2).
    fn record_losses(
        &mut self,
        before: Time,
        span: Duration,
        ahead: u32,
        lost: u32,
        rtt: Duration,
    ) -> bool {
        let span = span.as_nanos();
        let mut began = false;
        for _ in 0..EVENTS_MAX {
            let ignored = self.event_at.map_or(0, |at| (at + rtt - before).as_nanos());
            // The first number whose interpolated time is later than the end of the last event.
            let place = match (ignored * u128::from(ahead)).checked_div(span) {
                Some(place) => place + 1,
                None if ignored == 0 => 1,
                None => break,
            };
            if place > u128::from(lost) {
                break;
            }
            let after = span * place / u128::from(ahead);
            self.begin_event(before + Duration::from_nanos(after as u64));
            began = true;
        }
        began
    }

    fn begin_event(&mut self, at: Time) {
        let mean = self.mean();
        if let Some(average) = &mut self.average {
            // p is at most 1.
            average.past = mean.max(1.0);
            average.mean = average.past;
        }
        self.sample = self.first;
        self.event_at = Some(at);
    }

    /// Counts a packet for I_sample, unless the last loss event has not ended.
    fn count_packet(&mut self, now: Time, rtt: Duration) {
        if self.event_at.is_some_and(|at| now < at + rtt) {
            return;
        }
        self.sample += 1.0;
        let mean = self.mean();
        if let Some(average) = &mut self.average
            && self.sample >= average.past
        {
            average.mean = mean;
        }
    }

    /// Returns the weighted mean of Eq. (2); the paper's weights are both one half.
    fn mean(&self) -> f64 {
        let past = self.average.map_or(0.0, |average| average.past);
        self.history * past + (1.0 - self.history) * self.sample
    }

    /// Returns whether the first loss event has begun, and the interval before it must be
    /// [seeded](LossHistory::seed).
    pub(super) fn wants_seed(&self) -> bool {
        self.event_at.is_some() && self.average.is_none()
    }

    /// Sets the interval before the first loss event, in packets.
    pub(super) fn seed(&mut self, interval: f64) {
        let past = interval.max(1.0);
        self.average = Some(Average { past, mean: past });
    }

    /// Returns p = 1 / I_mean, in (0, 1]; `None` before the first loss.
    pub(super) fn loss_event_rate(&self) -> Option<f64> {
        let average = self.average?;
        debug_assert!(
            average.mean >= 1.0,
            "I_mean is {}, so that p exceeds 1",
            average.mean
        );
        Some(1.0 / average.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: Duration = Duration::from_millis(100);
    const SPACING_S: f64 = 0.01;

    /// Returns a history that counts as section 4.2 says literally.
    fn literal() -> LossHistory {
        LossHistory::new(&TfrcConfig {
            count_losses: false,
            ..TfrcConfig::default()
        })
    }

    /// Hands over packets a hundredth of a second apart, except lost ones. Returns the packets
    /// whose arrival began loss events.
    fn run(history: &mut LossHistory, numbers: core::ops::Range<u32>, lost: &[u32]) -> Vec<u32> {
        let arrive = numbers.filter(|number| !lost.contains(number));
        let began = arrive.filter(|&number| {
            let now = Time::from_secs_f64(f64::from(number) * SPACING_S);
            let began = history.on_packet(now, OriginSeq(number), false, RTT);
            if history.wants_seed() {
                history.seed(50.0);
            }
            began
        });
        began.collect()
    }

    fn mean(history: &LossHistory) -> f64 {
        1.0 / history.loss_event_rate().unwrap()
    }

    #[test]
    fn without_loss_there_is_no_rate() {
        let mut history = literal();
        assert!(run(&mut history, 1..1000, &[]).is_empty());
        assert_eq!(history.loss_event_rate(), None);
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
        assert!(history.on_packet(Time::from_secs_f64(1.3), OriginSeq(103), false, RTT));
        assert_eq!(history.event_at, Some(Time::from_secs_f64(1.1)));
        // 104 was due at 1.4 s and begins an event, 105 belongs to it, and 106 begins one at 1.6 s.
        assert!(history.on_packet(Time::from_secs_f64(1.7), OriginSeq(107), false, RTT));
        assert_eq!(history.event_at, Some(Time::from_secs_f64(1.6)));
    }

    #[test]
    fn packets_within_an_event_do_not_count_for_the_interval() {
        let mut history = literal();
        // The event begins at 1 s and ends at 1.1 s. The 91 packets from 110 to 200 arrive before
        // the next event.
        run(&mut history, 1..201, &[100]);
        assert_eq!(history.sample, 91.0);
        run(&mut history, 201..203, &[201]);
        assert_eq!(mean(&history), (50.0 + 91.0) / 2.0);
    }

    #[test]
    fn the_mean_is_constant_until_the_sample_reaches_the_past() {
        let mut history = literal();
        run(&mut history, 1..159, &[100]);
        assert_eq!((history.sample, mean(&history)), (49.0, 50.0));
        run(&mut history, 159..161, &[]);
        assert_eq!((history.sample, mean(&history)), (51.0, 50.5));
        run(&mut history, 161..210, &[]);
        assert_eq!(mean(&history), (50.0 + 100.0) / 2.0);
    }

    #[test]
    fn a_repaired_copy_counts_as_lost_once_and_never_as_received() {
        let mut history = literal();
        run(&mut history, 1..151, &[100]);
        let sample = history.sample;
        let now = Time::from_secs_f64(1.6);
        assert!(
            !history.on_packet(now, OriginSeq(100), true, RTT),
            "the loss was noticed before"
        );
        assert!(
            history.on_packet(now, OriginSeq(151), true, RTT),
            "the loss of the newest packet is new"
        );
        assert_eq!(mean(&history), (50.0 + sample) / 2.0);
    }

    #[test]
    fn an_interval_counts_its_first_loss_by_default() {
        let mut history = LossHistory::new(&TfrcConfig::default());
        run(&mut history, 1..203, &[100, 201]);
        assert_eq!(mean(&history), (50.0 + 92.0) / 2.0);
    }

    #[test]
    fn a_long_gap_ends_at_a_loss_event_rate_of_one() {
        let mut history = literal();
        run(&mut history, 1..101, &[50]);
        assert!(history.on_packet(
            Time::from_secs_f64(1e6),
            OriginSeq(u32::MAX / 2),
            false,
            RTT
        ));
        assert_eq!(history.loss_event_rate(), Some(1.0));
    }
}
