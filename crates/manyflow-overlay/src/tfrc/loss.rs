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

/// Events that one gap may begin: each halves the average interval, so more make no difference.
const EVENTS_MAX: usize = 32;

/// Which packets of a flow arrived, as loss events and the packets between them.
#[derive(Debug)]
pub(super) struct LossHistory {
    /// What I_sample begins with: 1 where the lost packet counts.
    first: f64,
    /// The weight of I_past.
    history: f64,
    /// The highest sequence number that has arrived, and when.
    highest: Option<(OriginSeq, Time)>,
    /// When the last loss event began.
    event_at: Option<Time>,
    /// Packets since it ended: I_sample.
    sample: f64,
    /// I_past and I_mean, from the first event on.
    average: Option<Average>,
}

#[derive(Copy, Clone, Debug)]
struct Average {
    past: f64,
    mean: f64,
}

impl LossHistory {
    /// Nothing has arrived yet.
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

    /// A packet arrived; returns whether losses before it began a new loss event. After the first
    /// one, [`seed`](LossHistory::seed) the average.
    pub(super) fn on_packet(
        &mut self,
        now: Time,
        sequence: OriginSeq,
        repaired: bool,
        rtt: Duration,
    ) -> bool {
        let (highest, at) = self.highest.unwrap_or((sequence.previous(), now));
        let ahead = sequence.distance_from(highest);
        // A packet below the highest is either repaired, and was counted as lost, or it was only
        // late: then the paper, too, takes it for lost.
        let is_ahead = ahead as i32 > 0;
        let mut began = false;
        if is_ahead {
            self.highest = Some((sequence, now));
            // A repaired copy that nothing has overtaken was lost itself.
            let lost = ahead - u32::from(!repaired);
            began = self.lose(at, now - at, ahead, lost, rtt);
        }
        if !repaired {
            self.count(now, rtt);
        }
        began
    }

    /// The `lost` numbers after one that arrived at `before` are missing; number `ahead` came
    /// `span` later. Their times lie in between, in proportion (RFC 5348 section 5.2).
    fn lose(&mut self, before: Time, span: Duration, ahead: u32, lost: u32, rtt: Duration) -> bool {
        let span = span.as_nanos();
        let mut began = false;
        for _ in 0..EVENTS_MAX {
            let ignored = self.event_at.map_or(0, |at| (at + rtt - before).as_nanos());
            // The first number whose time is later than what is ignored.
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

    /// A packet that counts for I_sample, unless a loss event is still on.
    fn count(&mut self, now: Time, rtt: Duration) {
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

    /// Eq. (2), whose weights are both one half.
    fn mean(&self) -> f64 {
        let past = self.average.map_or(0.0, |average| average.past);
        self.history * past + (1.0 - self.history) * self.sample
    }

    /// Whether a loss event has begun, and the interval before it is to be
    /// [seeded](LossHistory::seed).
    pub(super) fn wants_seed(&self) -> bool {
        self.event_at.is_some() && self.average.is_none()
    }

    /// The interval before the first loss event is taken to be this, in packets.
    pub(super) fn seed(&mut self, interval: f64) {
        let past = interval.max(1.0);
        self.average = Some(Average { past, mean: past });
    }

    /// p = 1 / I_mean, in (0, 1]; `None` where nothing was ever lost.
    pub(super) fn loss_event_rate(&self) -> Option<f64> {
        let average = self.average?;
        debug_assert!(
            average.mean >= 1.0,
            "p is at most 1, but I_mean is {}",
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

    /// As section 4.2 has it.
    fn literal() -> LossHistory {
        LossHistory::new(&TfrcConfig {
            count_losses: false,
            ..TfrcConfig::default()
        })
    }

    /// Hands over packets that are a hundredth of a second apart, but for those that are lost;
    /// returns where loss events were seen to begin.
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
    fn losses_within_a_round_trip_of_an_events_beginning_belong_to_it() {
        let mut history = literal();
        // 100 begins an event; 110 is exactly a round trip later, 111 is beyond it.
        let began = run(&mut history, 1..200, &[100, 103, 110, 111]);
        assert_eq!(began, [101, 112]);
    }

    #[test]
    fn a_lost_packets_time_lies_in_proportion_between_its_neighbours() {
        let mut history = literal();
        run(&mut history, 1..101, &[]);
        // 100 came at 1 s, 103 comes at 1.3 s: 101 was due at 1.1 s, and 102 a round trip later, in
        // the same event.
        assert!(history.on_packet(Time::from_secs_f64(1.3), OriginSeq(103), false, RTT));
        assert_eq!(history.event_at, Some(Time::from_secs_f64(1.1)));
        // 104 was due at 1.4 s and begins an event, 105 belongs to it, 106 begins one at 1.6 s.
        assert!(history.on_packet(Time::from_secs_f64(1.7), OriginSeq(107), false, RTT));
        assert_eq!(history.event_at, Some(Time::from_secs_f64(1.6)));
    }

    #[test]
    fn packets_of_an_event_do_not_count_as_received_between_events() {
        let mut history = literal();
        // The event begins at 1 s and is over at 1.1 s: 110 to 200 arrive before the next, which
        // are 91.
        run(&mut history, 1..201, &[100]);
        assert_eq!(history.sample, 91.0);
        run(&mut history, 201..203, &[201]);
        assert_eq!(mean(&history), (50.0 + 91.0) / 2.0);
    }

    #[test]
    fn the_mean_is_held_until_the_sample_reaches_the_past() {
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
            "it was noticed"
        );
        assert!(
            history.on_packet(now, OriginSeq(151), true, RTT),
            "the last one was lost, and nothing has shown it before"
        );
        assert_eq!(mean(&history), (50.0 + sample) / 2.0);
    }

    #[test]
    fn an_interval_may_count_the_loss_that_begins_it() {
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
