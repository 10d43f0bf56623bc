//! Random runs of links with active queue management.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::tests_aqm::{Sample, Support, limited};
use super::*;
use crate::units::Rate;

/// A packet whose world stores it elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Number(u32);

impl Item for Number {
    const IS_STORED: bool = true;

    fn set_mark(&mut self) {}
}

impl From<Sample> for Number {
    fn from(sample: Sample) -> Number {
        Number(sample.number)
    }
}

pub(super) fn any_aqm() -> impl Strategy<Value = Option<Aqm>> {
    let codel = (0u64..20_000, 1u64..200_000, any::<bool>()).prop_map(|(target, interval, ecn)| {
        CoDelConfig {
            target: Duration::from_micros(target),
            interval: Duration::from_micros(interval),
            ecn,
        }
    });
    let quantum = 1u32..3000;
    prop_oneof![
        Just(None),
        codel.clone().prop_map(|codel| Some(Aqm::CoDel(codel))),
        (codel.clone(), 1u32..40, quantum.clone()).prop_map(|(codel, flows, quantum_bytes)| {
            Some(Aqm::FqCoDel(FqCoDelConfig {
                codel,
                flows,
                quantum_bytes,
                ..FqCoDelConfig::default()
            }))
        }),
        (codel, quantum).prop_map(|(codel, quantum_bytes)| {
            Some(Aqm::Cake(CakeConfig {
                codel,
                quantum_bytes,
                ..CakeConfig::default()
            }))
        }),
        (0u64..50_000, 0u64..300_000, any::<bool>()).prop_map(|(target, burst, ecn)| {
            Some(Aqm::Pie(PieConfig {
                target: Duration::from_micros(target),
                burst: Duration::from_micros(burst),
                ecn,
            }))
        }),
        (1u64..50_000, 1u64..300_000, 0.1..10.0, 0u64..2000).prop_map(
            |(target, rtt, coupling, ramp)| {
                Some(Aqm::DualPi2(DualPi2Config {
                    target: Duration::from_micros(target),
                    rtt_max: Duration::from_micros(rtt),
                    coupling,
                    ramp: Duration::from_micros(ramp),
                    ..DualPi2Config::default()
                }))
            }
        ),
    ]
}

fn any_pace() -> impl Strategy<Value = Option<Pace>> {
    let gaps = prop::collection::vec(0u32..30, 1..20);
    let trace = gaps.prop_filter_map("a trace takes some time", |gaps| {
        let mut ms = 0;
        let times = gaps.into_iter().map(|gap| {
            ms += gap;
            ms
        });
        Some(Pace::Trace(Arc::new(RateTrace::new(times).ok()?)))
    });
    let kind = prop::sample::select(vec![
        ShapeKind::Lte,
        ShapeKind::MmWave,
        ShapeKind::Wifi,
        ShapeKind::Starlink,
    ]);
    let rate = (100_000u64..50_000_000).prop_map(Rate::from_bits_per_s);
    prop_oneof![
        2 => Just(None),
        2 => trace.prop_map(Some),
        1 => (kind, rate.clone()).prop_map(|(kind, mean)| Some(Pace::Shape(Shape::new(kind, mean)))),
        2 => (rate.clone(), 1u64..20_000, prop::option::of(rate)).prop_map(
            |(sustained, burst_bytes, peak)| {
                Some(Pace::Bucket(TokenBucket {
                    sustained,
                    burst_bytes,
                    peak,
                }))
            }
        ),
    ]
}

pub(super) fn any_limit() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        Just(QueueLimit::Unlimited),
        (0u32..60).prop_map(QueueLimit::Packets),
        (0u64..60_000).prop_map(QueueLimit::Bytes),
    ]
}

/// A step of a random run.
#[derive(Clone, Debug)]
enum Step {
    /// Waits for microseconds.
    Wait(u64),
    /// Pushes packets of a flow and of a length.
    Push(u32, u32, u8, u32),
    /// Changes the queue and the pace.
    Change(Option<Aqm>, QueueLimit, Option<Pace>),
    /// Cuts the link and restores it.
    Cut,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0u64..20_000).prop_map(Step::Wait),
        12 => (1u32..6, 40u32..1500, 0u8..3, 1u32..20)
            .prop_map(|(flow, bytes, ecn, count)| Step::Push(flow, bytes, ecn, count)),
        1 => (any_aqm(), any_limit(), any_pace())
            .prop_map(|(aqm, limit, pace)| Step::Change(aqm, limit, pace)),
        1 => Just(Step::Cut),
    ]
}

/// The packets of a run by their end.
#[derive(Debug, Default, PartialEq)]
struct Ends {
    arrived: Vec<(Time, Number)>,
    gone: Vec<Number>,
    doubled: Vec<Number>,
    marked: BTreeSet<Number>,
}

impl Ends {
    /// Handles the events of a link until `end`.
    fn pass(&mut self, link: &mut Link<Number>, end: Time) {
        while let Some(now) = link.next_time().filter(|time| *time <= end) {
            link.advance(now);
            self.note(link);
            while let Some(item) = link.pop_ready(now) {
                self.arrived.push((now, item));
            }
        }
    }

    fn note(&mut self, link: &mut Link<Number>) {
        while let Some(fate) = link.pop_fate() {
            match fate {
                Fate::Dropped(number, _) | Fate::Lost(number) => self.gone.push(number),
                Fate::Doubled(number) => self.doubled.push(number),
                Fate::Marked(number) => assert!(self.marked.insert(number), "marked twice"),
            }
        }
    }
}

fn play(
    first: Option<Aqm>,
    pace: Option<Pace>,
    limit: QueueLimit,
    faults: (f64, f64),
    steps: &[Step],
) -> (Ends, Counters, u32) {
    let config = LinkConfig {
        rate: Some(Rate::from_bits_per_s(8_000_000)),
        delay: Duration::from_millis(3),
        queue: limit,
        aqm: first,
        pace,
        loss: LossModel::Bernoulli(faults.0),
        duplication: faults.1,
        ..LinkConfig::default()
    };
    let mut link = Link::<Number>::new(config, 9);
    let (mut now, mut number, mut ends) = (Time::ZERO, 0, Ends::default());
    for step in steps {
        match step {
            Step::Wait(micros) => {
                now += Duration::from_micros(*micros);
                ends.pass(&mut link, now);
            }
            Step::Push(flow, bytes, ecn, count) => {
                for _ in 0..*count {
                    let ecn = [Support::None, Support::Classic, Support::L4s][usize::from(*ecn)];
                    let mut sample = Sample::of(*flow, ecn);
                    sample.number = number;
                    let pushed = link.push(now, sample, *bytes);
                    match pushed {
                        Ok(1) => {}
                        Ok(0) | Err(_) => ends.gone.push(Number(number)),
                        Ok(_) => ends.doubled.push(Number(number)),
                    }
                    number += 1;
                    ends.note(&mut link);
                }
            }
            Step::Change(aqm, queue, pace) => {
                let config = LinkConfig {
                    aqm: *aqm,
                    pace: pace.clone(),
                    queue: *queue,
                    ..link.config().clone()
                };
                link.reconfigure(now, config);
                ends.note(&mut link);
            }
            Step::Cut => {
                ends.gone.extend(link.set_cut(now, true));
                ends.note(&mut link);
                link.set_cut(now, false);
            }
        }
    }
    ends.pass(&mut link, Time::MAX);
    (ends, link.counters(), number)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_packet_of_a_managed_queue_ends_once(
        (aqm, pace, limit) in (any_aqm(), any_pace(), any_limit()),
        loss in 0.0..0.2, duplication in 0.0..0.2,
        steps in prop::collection::vec(any_step(), 1..60),
    ) {
        let (ends, counters, pushed) = play(aqm, pace.clone(), limit, (loss, duplication), &steps);
        let mut ended: Vec<Number> = ends.arrived.iter().map(|(_, number)| *number).collect();
        ended.extend(&ends.gone);
        ended.sort_unstable();
        let mut expected: Vec<Number> = (0..pushed).map(Number).collect();
        expected.extend(&ends.doubled);
        expected.sort_unstable();
        prop_assert_eq!(ended, expected);
        prop_assert_eq!(counters.delivered, ends.arrived.len() as u64);
        prop_assert_eq!(counters.dropped + counters.lost, ends.gone.len() as u64);
        let again = play(aqm, pace, limit, (loss, duplication), &steps);
        prop_assert_eq!(again, (ends, counters, pushed));
    }

    #[test]
    fn a_managed_queue_never_exceeds_its_limit(
        aqm in any_aqm(), limit in any_limit(),
        pushes in prop::collection::vec((0u64..3000, 1u32..6, 40u32..1500), 1..200),
    ) {
        let aqm = aqm.unwrap_or(Aqm::CoDel(CoDelConfig::default()));
        let mut link = limited(aqm, limit);
        let (mut now, mut lengths) = (Time::ZERO, Vec::new());
        for (gap, flow, bytes) in pushes {
            now += Duration::from_micros(gap);
            while link.pop_ready(now).is_some() {}
            let _ = link.push(now, Sample::of(flow, Support::None), bytes);
            lengths.push((link.queue_packets(now), link.queued().1));
        }
        for (packets, bytes) in lengths {
            match limit {
                QueueLimit::Unlimited => {}
                QueueLimit::Packets(most) => prop_assert!(packets <= most as usize),
                QueueLimit::Bytes(most) => prop_assert!(bytes <= most),
            }
        }
    }
}
