//! Tests of links whose rate varies by itself.

use proptest::prelude::*;

use super::tests_aqm_random::{any_aqm, any_limit};
use super::*;
use crate::units::Rate;

fn ms(value: u64) -> Time {
    Time::ZERO + Duration::from_millis(value)
}

fn mbit(value: u64) -> Rate {
    Rate::from_bits_per_s(value * 1_000_000)
}

fn paced(pace: Pace) -> LinkConfig {
    let mut config = LinkConfig::default();
    config.set_pace(pace);
    config
}

fn trace(times: impl IntoIterator<Item = u32>) -> Pace {
    Pace::Trace(Arc::new(RateTrace::new(times).unwrap()))
}

/// Runs until the link is empty. Returns the packets and the times of their arrival.
fn drain(link: &mut Link<u32>) -> Vec<(Time, u32)> {
    let mut arrived = Vec::new();
    while let Some(now) = link.next_time() {
        arrived.extend(core::iter::from_fn(|| link.pop_ready(now)).map(|item| (now, item)));
    }
    arrived
}

/// `LinkQueue` of Mahimahi's `src/frontend/link_queue.cc`, line by line, with its drop-tail queue.
/// Times are whole milliseconds.
struct LinkQueue {
    schedule: Vec<u64>,
    next_delivery: usize,
    base_timestamp: u64,
    packet_queue: VecDeque<(u32, u64)>,
    packets_max: Option<usize>,
    packet_in_transit: u32,
    packet_in_transit_bytes_left: u64,
    output: Vec<(Time, u32)>,
}

impl LinkQueue {
    const PACKET_SIZE: u64 = 1504;

    fn new(schedule: Vec<u64>, packets_max: Option<usize>) -> LinkQueue {
        LinkQueue {
            schedule,
            next_delivery: 0,
            base_timestamp: 0,
            packet_queue: VecDeque::new(),
            packets_max,
            packet_in_transit: 0,
            packet_in_transit_bytes_left: 0,
            output: Vec::new(),
        }
    }

    fn next_delivery_time(&self) -> u64 {
        self.schedule[self.next_delivery] + self.base_timestamp
    }

    fn use_a_delivery_opportunity(&mut self) {
        self.next_delivery = (self.next_delivery + 1) % self.schedule.len();
        if self.next_delivery == 0 {
            self.base_timestamp += self.schedule.last().unwrap();
        }
    }

    fn rationalize(&mut self, now: u64) {
        while self.next_delivery_time() <= now {
            let this_delivery_time = self.next_delivery_time();
            let mut bytes_left_in_this_delivery = Self::PACKET_SIZE;
            self.use_a_delivery_opportunity();
            while bytes_left_in_this_delivery > 0 {
                if self.packet_in_transit_bytes_left == 0 {
                    let Some((packet, bytes)) = self.packet_queue.pop_front() else {
                        break;
                    };
                    (self.packet_in_transit, self.packet_in_transit_bytes_left) = (packet, bytes);
                }
                let amount = bytes_left_in_this_delivery.min(self.packet_in_transit_bytes_left);
                self.packet_in_transit_bytes_left -= amount;
                bytes_left_in_this_delivery -= amount;
                if self.packet_in_transit_bytes_left == 0 {
                    self.output
                        .push((ms(this_delivery_time), self.packet_in_transit));
                }
            }
        }
    }

    /// Takes an IP packet, before which TUN has put 4 bytes. Returns whether the queue has room.
    fn read_packet(&mut self, now: u64, packet: u32, bytes: u32) -> bool {
        self.rationalize(now);
        let has_room = self
            .packets_max
            .is_none_or(|most| self.packet_queue.len() < most);
        if has_room {
            self.packet_queue.push_back((packet, u64::from(bytes) + 4));
        }
        has_room
    }
}

/// The times of a trace that takes some time.
fn any_times() -> impl Strategy<Value = Vec<u32>> {
    let gaps = prop::collection::vec(
        prop_oneof![3 => Just(0u32), 3 => 1u32..4, 1 => 0u32..60],
        1..40,
    );
    gaps.prop_map(|gaps| {
        let mut ms = 0;
        let mut times: Vec<u32> = gaps
            .into_iter()
            .map(|gap| {
                ms += gap;
                ms
            })
            .collect();
        if ms == 0 {
            times.push(1);
        }
        times
    })
}

proptest! {
    #[test]
    fn a_trace_sends_each_packet_when_mm_link_does(
        times in any_times(),
        queue in prop::option::of(1u32..20),
        arrivals in prop::collection::vec((prop_oneof![3 => Just(0u64), 2 => 0u64..20, 1 => 0u64..500], 1u32..1500), 1..200),
    ) {
        let config = LinkConfig {
            queue: queue.map_or(QueueLimit::Unlimited, QueueLimit::Packets),
            ..paced(trace(times.iter().copied()))
        };
        let mut link = Link::<u32>::new(config, 1);
        let schedule = times.iter().copied().map(u64::from).collect();
        let mut mahimahi = LinkQueue::new(schedule, queue.map(|most| most as usize));
        let (mut now, mut arrived) = (0, Vec::new());
        for (number, (gap, bytes)) in arrivals.into_iter().enumerate() {
            now += gap;
            while let Some(time) = link.next_time().filter(|time| *time <= ms(now)) {
                arrived.extend(core::iter::from_fn(|| link.pop_ready(time)).map(|item| (time, item)));
            }
            let number = number as u32;
            let taken = link.push(ms(now), number, bytes).is_ok();
            prop_assert_eq!(taken, mahimahi.read_packet(now, number, bytes), "packet {}", number);
        }
        arrived.extend(drain(&mut link));
        mahimahi.rationalize(now + 1_000_000);
        prop_assert_eq!(arrived, mahimahi.output);
    }

    #[test]
    fn no_more_leaves_than_there_are_opportunities(
        times in any_times(),
        aqm in any_aqm(), limit in any_limit(),
        arrivals in prop::collection::vec((0u64..5000, 1u32..3000), 1..200),
    ) {
        let config = LinkConfig { aqm, queue: limit, ..paced(trace(times)) };
        let mut link = Link::<u32>::new(config, 1);
        let (mut now, mut packets, mut bytes, mut offered_before) = (Time::ZERO, 0, 0, 0);
        for (gap, length) in arrivals {
            now += Duration::from_micros(gap);
            let _ = link.push(now, length, length);
            while let Some(length) = link.pop_ready(now) {
                packets += 1;
                bytes += u64::from(length);
            }
            let offered = link.offered_bytes(now).unwrap();
            prop_assert!(offered_before <= offered);
            offered_before = offered;
            // Each packet has 4 bytes before it, and so has each opportunity more than full
            // packets count.
            let opportunities = offered / 1500;
            prop_assert!(bytes + 4 * packets <= opportunities * 1504, "{bytes} of {offered}");
        }
    }

    #[test]
    fn a_bucket_lets_no_more_through_than_its_tokens(
        sustained in 100_000u64..10_000_000, burst in 1500u64..100_000, peak in prop::option::of(10_000_000u64..100_000_000),
        arrivals in prop::collection::vec((0u64..5000, 1u32..1500), 1..200),
    ) {
        let bucket = TokenBucket {
            sustained: Rate::from_bits_per_s(sustained),
            burst_bytes: burst,
            peak: peak.map(Rate::from_bits_per_s),
        };
        let mut link = Link::<u32>::new(paced(Pace::Bucket(bucket)), 1);
        let mut now = Time::ZERO;
        for (gap, length) in &arrivals {
            now += Duration::from_micros(*gap);
            link.push(now, *length, *length).unwrap();
        }
        // Only those that are still carried: `pop_ready` has not been called.
        let mut left = Vec::new();
        while let Some(time) = link.next_time() {
            left.extend(core::iter::from_fn(|| link.pop_ready(time)).map(|length| (time, u64::from(length))));
        }
        prop_assert_eq!(left.len(), arrivals.len());
        for first in 0..left.len().min(20) {
            let mut bytes = 0;
            for (time, length) in &left[first..] {
                bytes += length;
                // The first packet began before it left, by its time at the peak rate.
                let span_s = (*time - left[first].0).as_secs_f64() + peak.map_or(0.0, |peak| 12_000.0 / peak as f64);
                let most = burst as f64 + span_s * sustained as f64 / 8.0;
                prop_assert!(bytes as f64 <= most + 1.0, "{bytes} bytes, at most {most}");
            }
        }
    }
}

#[test]
fn full_packets_use_one_opportunity_each() {
    let mut link = Link::<u32>::new(paced(trace([10, 10, 30])), 1);
    (0..4).for_each(|i| {
        link.push(ms(1), i, 1500).unwrap();
    });
    assert_eq!(
        drain(&mut link),
        [(ms(10), 0), (ms(10), 1), (ms(30), 2), (ms(40), 3)]
    );
    assert_eq!(link.offered_bytes(ms(40)), Some(5 * 1500));
    assert_eq!(link.config().rate, Some(Rate::from_bits_per_s(1_200_000)));
}

#[test]
fn a_packet_that_comes_at_an_opportunity_takes_the_next() {
    let mut link = Link::<u32>::new(paced(trace([10])), 1);
    link.push(ms(0), 0, 100).unwrap();
    assert_eq!(drain(&mut link), [(ms(10), 0)]);
    link.push(ms(20), 1, 100).unwrap();
    assert_eq!(drain(&mut link), [(ms(30), 1)]);
    // Hours later, too.
    link.push(ms(36_000_005), 2, 100).unwrap();
    assert_eq!(drain(&mut link), [(ms(36_000_010), 2)]);
}

#[test]
fn waiting_packets_follow_a_change_of_the_pace() {
    let mut link = Link::<u32>::new(paced(trace([10])), 1);
    (0..4).for_each(|i| {
        link.push(ms(0), i, 1500).unwrap();
    });
    assert_eq!(link.pop_ready(ms(10)), Some(0));
    // The trace begins at the change.
    link.reconfigure(ms(15), paced(trace([7])));
    assert_eq!(link.next_time(), Some(ms(22)));
    assert_eq!(link.pop_ready(ms(22)), Some(1));
    // 1500 bytes take 1 ms. The transmitter is idle until the change.
    let fixed = LinkConfig {
        rate: Some(mbit(12)),
        ..LinkConfig::default()
    };
    link.reconfigure(ms(25), fixed.clone());
    link.push(ms(25), 4, 1500).unwrap();
    assert_eq!(drain(&mut link), [(ms(26), 2), (ms(27), 3), (ms(28), 4)]);
    // A packet in transmission leaves as it began, those behind it by the trace.
    (5..8).for_each(|i| {
        link.push(ms(30), i, 1500).unwrap();
    });
    link.reconfigure(ms(30), paced(trace([10])));
    assert_eq!(drain(&mut link), [(ms(31), 5), (ms(40), 6), (ms(50), 7)]);
}

#[test]
fn another_delay_loses_no_opportunity() {
    let mut link = Link::<u32>::new(paced(trace([10])), 1);
    (0..3).for_each(|i| {
        link.push(ms(0), i, 1500).unwrap();
    });
    let delayed = LinkConfig {
        delay: Duration::from_millis(5),
        ..link.config().clone()
    };
    link.reconfigure(ms(5), delayed);
    assert_eq!(drain(&mut link), [(ms(15), 0), (ms(25), 1), (ms(35), 2)]);
}

#[test]
fn red_judges_the_queue_of_a_trace() {
    let red = RedConfig {
        minimum_packets: 2.0,
        maximum_packets: 4.0,
        weight: 1.0,
        ..RedConfig::default()
    };
    let config = LinkConfig {
        red: Some(red),
        queue: QueueLimit::Packets(50),
        ..paced(trace([10]))
    };
    let mut link = Link::<u32>::new(config, 1);
    let taken = (0..100)
        .filter(|&i| link.push(ms(1), i, 1500).is_ok())
        .count();
    assert!((4..12).contains(&taken), "{taken} of 100 packets queued");
    assert_eq!(drain(&mut link).len(), taken);
    assert_eq!(link.counters().dropped, 100 - taken as u64);
}

const KINDS: [ShapeKind; 4] = [
    ShapeKind::Lte,
    ShapeKind::MmWave,
    ShapeKind::Wifi,
    ShapeKind::Starlink,
];

#[test]
fn a_shape_has_its_average_rate() {
    for kind in KINDS {
        for (megabits, seed) in [(2, 1), (20, 2)] {
            let shape = Shape::new(kind, mbit(megabits));
            let trace = shape.trace(seed, 4_000_000).unwrap();
            let share = trace.rate().bits_per_s() as f64 / (megabits * 1_000_000) as f64;
            println!("{kind:?} {megabits} Mbit/s: {share:.3}");
            assert!((share - 1.0).abs() < 0.08, "{kind:?} {megabits}: {share}");
        }
    }
}

#[test]
fn a_seed_selects_the_course_of_a_shape() {
    for kind in KINDS {
        let trace = |seed| Shape::new(kind, mbit(5)).trace(seed, 20_000).unwrap();
        assert_eq!(trace(1), trace(1));
        assert_ne!(trace(1), trace(2));
    }
}

#[test]
fn the_trace_of_a_shape_sends_as_the_shape() {
    for kind in KINDS {
        let shape = Shape::new(kind, mbit(5));
        let mut generator = shape::Generator::new(shape, 7);
        let recorded = shape.trace(7, 30_000).unwrap();
        let mut cursor = rate_trace::Cursor::new(Arc::new(recorded.clone()));
        while generator.ms() <= recorded.duration_ms().into() {
            let drawn = (generator.ms(), generator.count(), generator.before());
            assert_eq!(drawn, (cursor.ms(), cursor.count(), cursor.before()));
            generator.advance();
            cursor.advance();
        }
        assert_eq!(generator.before(), recorded.opportunities().into());
    }
}

/// Returns, for each second, the opportunities of a shape of 12 Mbit/s, which are 1,000 on average.
fn per_second(kind: ShapeKind, seconds: usize) -> Vec<u32> {
    let trace = Shape::new(kind, mbit(12))
        .trace(5, seconds as u32 * 1000)
        .unwrap();
    let mut counts = vec![0; seconds + 1];
    for line in trace.to_string().lines() {
        counts[line.parse::<usize>().unwrap() / 1000] += 1;
    }
    counts
}

#[test]
fn lte_moves_in_small_steps_between_outages() {
    let counts = per_second(ShapeKind::Lte, 2000);
    let steps = counts.windows(2).map(|pair| pair[0].abs_diff(pair[1]));
    let mut steps: Vec<u32> = steps.collect();
    steps.sort_unstable();
    // The deviation of a step is 400 packets/s after a second, two thirds of it for averages over
    // seconds; the median of a normal distribution's magnitude is 0.67 deviations.
    let median = steps[steps.len() / 2];
    assert!((120..320).contains(&median), "{median}");
    let lowest = counts.iter().filter(|count| **count < 100).count() as f64 / counts.len() as f64;
    assert!((0.01..0.2).contains(&lowest), "{lowest}");
}

#[test]
fn starlink_changes_every_fifteen_seconds() {
    let counts = per_second(ShapeKind::Starlink, 600);
    let changed: Vec<usize> = (1..600)
        .filter(|&second| counts[second].abs_diff(counts[second - 1]) > 100)
        .map(|second| second % 15)
        .collect();
    // A change within a second is seen in two steps.
    let mut phases = changed.clone();
    phases.sort_unstable();
    phases.dedup();
    assert!(phases.len() <= 2 && changed.len() > 20, "{changed:?}");
}

#[test]
fn a_satellite_adds_a_delay_of_its_own() {
    let shape = Shape::new(ShapeKind::Starlink, mbit(12));
    let mut link = Link::<u32>::new(paced(Pace::Shape(shape)), 3);
    let mut extra = Vec::new();
    for second in 0..120 {
        let begin = ms(second * 1000 + 500);
        link.push(begin, 0, 1500).unwrap();
        let [(arrived, _)] = drain(&mut link)[..] else {
            panic!("one packet");
        };
        extra.push((arrived - begin).as_micros() / 1000);
    }
    extra.sort_unstable();
    // An opportunity comes each millisecond or two.
    assert!(
        extra[5] < 4 && extra[110] > 5 && extra[119] < 60,
        "{extra:?}"
    );
}

#[test]
fn jitter_has_its_distribution() {
    let delays = |distribution| {
        let config = LinkConfig {
            jitter: Duration::from_millis(10),
            jitter_distribution: distribution,
            ..LinkConfig::default()
        };
        let mut link = Link::<u32>::new(config, 1);
        (0..20_000).for_each(|i| {
            link.push(ms(0), i, 100).unwrap();
        });
        let mut delays: Vec<f64> = drain(&mut link)
            .iter()
            .map(|(time, _)| time.as_secs_f64() * 1e3)
            .collect();
        delays.sort_by(f64::total_cmp);
        let mean = delays.iter().sum::<f64>() / 20_000.0;
        (mean, delays[10_000], delays[19_800])
    };
    let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.04;
    let (mean, median, high) = delays(JitterDistribution::Uniform);
    assert!(near(mean, 5.0) && near(median, 5.0) && near(high, 9.9));
    let deviation = Duration::from_millis(2);
    let (mean, median, high) = delays(JitterDistribution::Normal { deviation });
    assert!(near(mean, 10.0) && near(median, 10.0) && near(high, 10.0 + 2.0 * 2.326));
    // Pareto II with the index 3 has the scale 20 ms: its median is 20 (2^(1/3) - 1).
    let (mean, median, high) = delays(JitterDistribution::Pareto { index: 3.0 });
    assert!(near(mean, 10.0) && near(median, 5.198), "{mean} {median}");
    assert!(near(high, 20.0 * (100f64.cbrt() - 1.0)), "{high}");
}
