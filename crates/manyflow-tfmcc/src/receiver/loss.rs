//! The loss event rate (RFC 4654 sections 5.2, 5.3 and 5.6).
//!
//! ```text
//!   . . . . x . x . . | . . . . . . . . . . . x . . . . .        x = lost or marked
//!           |<-- R -->|                       |
//!           a loss event begins               the next one; the interval is S_B - S_A packets
//! ```

use core::time::Duration;

use manyflow_core::Time;
use manyflow_core::estimate::tcp_equation::ResponseFunction;

use super::intervals::Intervals;
use super::order::{Arrived, Gap, Order};

/// The most loss events that one gap begins: one more than there are intervals.
const EVENTS_MAX: u32 = 9;

/// The loss history of a receiver.
#[derive(Debug)]
pub(super) struct LossHistory {
    order: Order,
    intervals: Intervals,
    /// The lost packet that began the last loss event, with its nominal arrival time.
    event: Option<Arrived>,
    /// The round-trip time from which l_0 was calculated (section 5.6).
    seed_rtt: Duration,
}

/// The conditions under which a packet arrived.
#[derive(Copy, Clone, Debug)]
pub(super) struct Path {
    pub(super) response: ResponseFunction,
    /// R: losses less than R after the beginning of an event belong to it (section 5.2).
    pub(super) rtt: Duration,
    /// X_recv in packets per second, if known (section 5.6).
    pub(super) received_per_s: Option<f64>,
}

impl LossHistory {
    /// A history that begins with this packet.
    pub(super) fn new(first: Arrived, discounts: bool) -> LossHistory {
        LossHistory {
            order: Order::new(first),
            intervals: Intervals::new(discounts),
            event: None,
            seed_rtt: Duration::ZERO,
        }
    }

    /// Handles a packet; returns the number of loss events that it reveals.
    pub(super) fn on_packet(&mut self, arrived: Arrived, is_marked: bool, path: Path) -> u32 {
        let before = self.order.highest();
        let gap = self.order.on_packet(arrived);
        let mut events = gap.map_or(0, |gap| self.on_gap(gap, path));
        let is_new = self.order.highest() != before;
        if is_marked && is_new && self.begins_event(arrived.at, path.rtt) {
            self.begin_event(arrived, path);
            events += 1;
        }
        events
    }

    /// p in (0, 1]; `None` before the first loss event.
    pub(super) fn loss_event_rate(&self) -> Option<f64> {
        let event = self.event?;
        // I_0 counts the packet that began the event (RFC 5348 section 5.3).
        let open = self.order.highest().wrapping_sub(event.sequence) as i32;
        self.intervals.loss_event_rate(f64::from(open.max(0)) + 1.0)
    }

    /// Corrects l_0 when the round-trip time is measured for the first time (section 5.6):
    ///
    /// `l_0 = l_0 * (R / R_max)^2`
    pub(super) fn on_first_rtt(&mut self, rtt: Duration) {
        if self.event.is_some() {
            let factor = rtt.as_secs_f64() / self.seed_rtt.as_secs_f64();
            self.intervals.rescale_seed(factor * factor);
        }
    }

    /// Handles lost packets, whose nominal arrival times are interpolated (section 5.2):
    ///
    /// `T_loss = T_before + (T_after - T_before) * (S_loss - S_before) / (S_after - S_before)`
    fn on_gap(&mut self, gap: Gap, path: Path) -> u32 {
        let (span, distance) = (gap.after.at - gap.before.at, u128::from(gap.distance()));
        let mut events = 0;
        while events < EVENTS_MAX {
            let Some(place) = self.first_outside(gap, span, path.rtt) else {
                break;
            };
            debug_assert!(place < distance, "both neighbours have arrived");
            let after = span.as_nanos() * place / distance;
            let lost = Arrived {
                sequence: gap.before.sequence.wrapping_add(place as u32),
                at: gap.before.at + Duration::from_nanos(after as u64),
            };
            self.begin_event(lost, path);
            events += 1;
        }
        events
    }

    /// The first lost packet of the gap that begins a new loss event, counted from the packet
    /// before the gap.
    fn first_outside(&self, gap: Gap, span: Duration, rtt: Duration) -> Option<u128> {
        let distance = u128::from(gap.distance());
        let Some(event) = self.event else {
            return (distance > 1).then_some(1);
        };
        // T_old + R >= T_new: the packet is part of the event.
        let covered = (event.at + rtt - gap.before.at).as_nanos();
        let is_over = event.at + rtt < gap.before.at;
        let place = match (covered * distance).checked_div(span.as_nanos()) {
            _ if is_over => 1,
            Some(place) => place + 1,
            None => return None,
        };
        // With reordering, an event can begin above the gap.
        let sequence = gap.before.sequence.wrapping_add(place as u32);
        let is_later = sequence.wrapping_sub(event.sequence) as i32 > 0;
        (place < distance && is_later).then_some(place)
    }

    fn begins_event(&self, at: Time, rtt: Duration) -> bool {
        self.event.is_none_or(|event| event.at + rtt < at)
    }

    fn begin_event(&mut self, lost: Arrived, path: Path) {
        match self.event {
            Some(event) => {
                // Section 5.3: S_B - S_A.
                let packets = lost.sequence.wrapping_sub(event.sequence);
                self.intervals.close(f64::from(packets));
            }
            None => {
                self.intervals.seed(first_interval(path));
                self.seed_rtt = path.rtt;
            }
        }
        self.event = Some(lost);
    }
}

/// l_0: the loss interval for which the simplified TCP equation gives X_recv (section 5.6). At
/// least 1. If X_recv is unknown, it is taken as one packet per round-trip time.
///
/// `l_0 = (X_recv * R / (sqrt(3/2) * 8s))^2` with Reno
fn first_interval(path: Path) -> f64 {
    let rtt_s = path.rtt.as_secs_f64();
    let window = path.received_per_s.map_or(1.0, |rate| rate * rtt_s);
    path.response.packets_between_losses(rtt_s, window).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: Path = Path {
        response: ResponseFunction::Reno,
        rtt: Duration::from_millis(100),
        received_per_s: Some(122.474_487),
    };

    fn packet(sequence: u32) -> Arrived {
        Arrived {
            sequence,
            at: Time::from_secs_f64(f64::from(sequence) / 100.0),
        }
    }

    /// Sends packets 10 ms apart, except the lost ones; returns the packets that revealed events.
    fn run(history: &mut LossHistory, numbers: core::ops::Range<u32>, lost: &[u32]) -> Vec<u32> {
        let arrive = numbers.filter(|number| !lost.contains(number));
        let seen = arrive.flat_map(|number| {
            let events = history.on_packet(packet(number), false, PATH);
            vec![number; events as usize]
        });
        seen.collect()
    }

    fn history() -> LossHistory {
        LossHistory::new(packet(0), false)
    }

    fn mean(history: &LossHistory) -> f64 {
        1.0 / history.loss_event_rate().unwrap()
    }

    #[test]
    fn without_loss_there_is_no_rate() {
        let mut history = history();
        assert!(run(&mut history, 1..1000, &[]).is_empty());
        assert_eq!(history.loss_event_rate(), None);
    }

    #[test]
    fn losses_within_a_round_trip_of_an_events_beginning_belong_to_it() {
        let mut history = history();
        // 100 begins an event, 110 is exactly R later, 111 begins the next event. Each is revealed
        // three packets later.
        let seen = run(&mut history, 1..200, &[100, 103, 110, 111]);
        assert_eq!(seen, [104, 114]);
    }

    #[test]
    fn the_first_interval_is_that_of_the_rate_received() {
        let mut history = history();
        run(&mut history, 1..20, &[10]);
        // 12.25 packets per round trip: the square is 150.
        assert!((mean(&history) - 100.0).abs() < 1e-3, "{}", mean(&history));
        history.on_first_rtt(Duration::from_millis(50));
        assert!((mean(&history) - 25.0).abs() < 1e-3, "{}", mean(&history));
    }

    #[test]
    fn an_interval_counts_from_one_lost_packet_to_the_next() {
        let mut history = history();
        run(&mut history, 1..400, &[100, 150, 350]);
        // 100, 50 and 200; the open interval of 50 is too short to count.
        assert!(
            (mean(&history) - 350.0 / 3.0).abs() < 1e-3,
            "{}",
            mean(&history)
        );
    }

    #[test]
    fn a_marked_packet_begins_an_event_at_once() {
        let mut history = history();
        run(&mut history, 1..50, &[]);
        assert_eq!(history.on_packet(packet(50), true, PATH), 1);
        assert_eq!(history.on_packet(packet(51), true, PATH), 0);
        assert_eq!(history.on_packet(packet(51), true, PATH), 0);
        assert_eq!(run(&mut history, 52..60, &[53]), []);
        assert_eq!(history.on_packet(packet(61), true, PATH), 1);
    }

    #[test]
    fn a_long_gap_begins_an_event_in_each_round_trip() {
        let mut history = history();
        // The next packet comes half a second later: 11, 22, 33 and 44 begin events.
        let seen = run(&mut history, 1..60, &(1..50).collect::<Vec<_>>());
        assert_eq!(seen, [52; 5]);
        let sixty = f64::from(1 + 4 * 11);
        assert_eq!(
            history.event.map(|event| f64::from(event.sequence)),
            Some(sixty)
        );
    }

    #[test]
    fn the_longest_gap_ends_at_a_rate_of_at_most_one() {
        let mut history = history();
        run(&mut history, 1..101, &[50]);
        for ahead in 0..3 {
            let far = Arrived {
                sequence: u32::MAX / 2 + ahead,
                at: Time::from_secs_f64(1e6),
            };
            assert!(history.on_packet(far, false, PATH) <= EVENTS_MAX);
        }
        let p = history.loss_event_rate().unwrap();
        assert!(p > 0.0 && p <= 1.0, "{p}");
    }
}
