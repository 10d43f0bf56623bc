//! Tests of a link.

use super::*;
use crate::time::seconds;
use crate::units::Rate;
use proptest::prelude::*;

impl Carried for u32 {}

fn ms(value: u64) -> Time {
    Time::ZERO + Duration::from_millis(value)
}

/// Runs until the link is empty. Returns the packets and the times of their arrival.
fn drain(link: &mut Link<u32>) -> Vec<(Time, u32)> {
    let mut arrived = Vec::new();
    while let Some(now) = link.next_time() {
        arrived.extend(core::iter::from_fn(|| link.pop_ready(now)).map(|item| (now, item)));
    }
    arrived
}

#[test]
fn a_packet_takes_its_transmission_time_and_the_delay() {
    let rate = Some(Rate::from_bits_per_s(8_000_000));
    let config = LinkConfig {
        rate,
        delay: Duration::from_millis(50),
        ..LinkConfig::default()
    };
    let mut link = Link::<u32>::new(config, 1);
    link.push(Time::ZERO, 7, 1000).unwrap();
    link.push(Time::ZERO, 8, 1000).unwrap();
    assert_eq!(drain(&mut link), [(ms(51), 7), (ms(52), 8)]);
}

#[test]
fn a_full_queue_drops_the_newcomer() {
    let rate = Some(Rate::from_bits_per_s(8_000));
    let mut link = Link::<u32>::new(
        LinkConfig {
            rate,
            queue: QueueLimit::Packets(2),
            ..LinkConfig::default()
        },
        1,
    );
    let pushed: Vec<bool> = (0..5)
        .map(|i| link.push(Time::ZERO, i, 100).is_ok())
        .collect();
    assert_eq!(pushed, [true, true, true, false, false]);
    assert_eq!(drain(&mut link).len(), 3);
    link.reconfigure(
        ms(0),
        LinkConfig {
            queue: QueueLimit::Bytes(150),
            ..link.config().clone()
        },
    );
    let pushed: Vec<_> = (0..3).map(|i| link.push(ms(1000), i, 100)).collect();
    assert_eq!(pushed, [Ok(1), Ok(1), Err(Dropped::Full)]);
}

#[test]
fn a_million_packets_do_not_drift() {
    // 8000 bits at 3.3 Gbit/s take 2424.24... ns.
    let rate = Some(Rate::from_bits_per_s(3_300_000_000));
    let mut link = Link::<u32>::new(
        LinkConfig {
            rate,
            ..LinkConfig::default()
        },
        1,
    );
    (0..1_000_000).for_each(|i| {
        link.push(Time::ZERO, i, 1000).unwrap();
    });
    let (last, _) = *drain(&mut link).last().unwrap();
    assert_eq!(last.as_nanos(), 8_000_000_000_000 / 3_300);
}

#[test]
fn ten_million_packets_at_an_odd_rate_do_not_drift() {
    // 8320 bits at 9.7 Gbit/s take 857.73... ns. Without the carry the last packet would be 7 ms
    // early.
    let rate = Some(Rate::from_bits_per_s(9_700_000_000));
    let mut link = Link::<u32>::new(
        LinkConfig {
            rate,
            ..LinkConfig::default()
        },
        1,
    );
    let mut now = Time::ZERO;
    link.push(now, 0, 1040).unwrap();
    for i in 1..10_000_000 {
        link.push(now, i, 1040).unwrap();
        now = link.next_time().unwrap();
        link.pop_ready(now).unwrap();
    }
    assert_eq!(
        link.next_time().unwrap().as_nanos(),
        10_000_000 * 83_200 / 97
    );
}

#[test]
fn a_cut_link_loses_carried_and_new_packets() {
    let rate = Some(Rate::from_bits_per_s(8_000));
    let mut link = Link::<u32>::new(
        LinkConfig {
            rate,
            ..LinkConfig::default()
        },
        1,
    );
    (0..3).for_each(|i| {
        link.push(Time::ZERO, i, 100).unwrap();
    });
    link.set_cut(ms(150), true);
    assert_eq!(link.push(ms(160), 4, 100), Err(Dropped::Cut));
    link.set_cut(ms(170), false);
    link.push(ms(180), 5, 100).unwrap();
    assert_eq!(drain(&mut link), [(ms(280), 5)]);
    assert_eq!(link.counters().lost, 4);
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for(
        seed: u64, loss in 0.0..0.5, duplication in 0.0..0.5, jitter_s in 0.0..0.1,
        gaps in prop::collection::vec(0u64..30, 1..200),
    ) {
        let config = LinkConfig {
            rate: Some(Rate::from_bits_per_s(1_000_000)),
            queue: QueueLimit::Bytes(20_000),
            loss: LossModel::Bernoulli(loss), duplication, jitter: seconds(jitter_s),
            ..LinkConfig::default()
        };
        let mut link = Link::<u32>::new(config, seed);
        let mut now = Time::ZERO;
        for (i, gap) in gaps.iter().enumerate() {
            now += Duration::from_millis(*gap);
            let _ = link.push(now, i as u32, 1500);
            if i % 3 == 0 { link.pop_ready(now); }
        }
        let balance = |link: &Link<u32>| {
            let c = link.counters();
            (c.pushed + c.duplicated, c.delivered + c.dropped + c.lost + link.carried())
        };
        let (sent, accounted) = balance(&link);
        prop_assert_eq!(sent, accounted);
        drain(&mut link);
        let (sent, accounted) = balance(&link);
        prop_assert_eq!(sent, accounted);
        prop_assert_eq!(link.carried(), 0);
    }
}

#[test]
fn a_change_of_rate_applies_to_waiting_packets() {
    let config = LinkConfig {
        rate: Some(Rate::from_bits_per_s(8_000)),
        ..LinkConfig::default()
    };
    let mut link = Link::<u32>::new(config.clone(), 1);
    (0..3).for_each(|i| {
        link.push(Time::ZERO, i, 100).unwrap();
    });
    // The first packet continues to take 100 ms; the others take 10 ms each from then on.
    link.reconfigure(
        ms(50),
        LinkConfig {
            rate: Some(Rate::from_bits_per_s(80_000)),
            ..config
        },
    );
    assert_eq!(drain(&mut link), [(ms(100), 0), (ms(110), 1), (ms(120), 2)]);
}

#[test]
fn jitter_without_reordering_keeps_the_order() {
    let config = LinkConfig {
        jitter: seconds(0.01),
        reorder: false,
        ..LinkConfig::default()
    };
    let mut link = Link::<u32>::new(config, 1);
    (0..100).for_each(|i| {
        link.push(ms(u64::from(i)), i, 100).unwrap();
    });
    assert!(drain(&mut link).iter().map(|(_, item)| *item).eq(0..100));
}

#[test]
fn jitter_with_reordering_delivers_each_packet_at_a_time_of_its_own() {
    let config = LinkConfig {
        delay: Duration::from_millis(5),
        jitter: Duration::from_millis(10),
        ..LinkConfig::default()
    };
    let mut link = Link::<u32>::new(config, 1);
    (0..1000).for_each(|i| {
        link.push(ms(u64::from(i)), i, 100).unwrap();
    });
    let arrived = drain(&mut link);
    let late = |&(time, item): &(Time, u32)| (time - ms(u64::from(item))).as_secs_f64();
    assert!(arrived.iter().all(|a| (0.005..0.015).contains(&late(a))));
    let mean_s = arrived.iter().map(late).sum::<f64>() / 1000.0;
    assert!((mean_s - 0.01).abs() < 0.0005, "{mean_s}");
    assert!(arrived.is_sorted_by_key(|(time, _)| *time));
    let overtaken = arrived.windows(2).filter(|w| w[0].1 > w[1].1).count();
    assert!(overtaken > 100, "{overtaken}");
    let mut items: Vec<u32> = arrived.iter().map(|(_, item)| *item).collect();
    items.sort_unstable();
    assert!(items.into_iter().eq(0..1000));
}

#[test]
fn bernoulli_loses_its_share_of_packets() {
    for share in [0.001, 0.02, 0.3] {
        let mut link = Link::<u32>::new(
            LinkConfig {
                loss: LossModel::Bernoulli(share),
                ..LinkConfig::default()
            },
            2,
        );
        (0..1_000_000).for_each(|i| {
            link.push(Time::ZERO, i, 100).unwrap();
        });
        let lost = link.counters().lost as f64;
        // Four standard deviations of a binomial distribution.
        let deviation = (1e6 * share * (1.0 - share)).sqrt();
        assert!((lost - 1e6 * share).abs() < 4.0 * deviation, "{lost}");
    }
}

#[test]
fn gilbert_elliott_losses_come_in_bursts() {
    let bursts = LossModel::GilbertElliott {
        to_bad: 0.01,
        to_good: 0.2,
        loss_good: 0.0,
        loss_bad: 0.5,
    };
    let run = |loss| {
        let mut link = Link::<u32>::new(
            LinkConfig {
                loss,
                ..LinkConfig::default()
            },
            7,
        );
        (0..100_000).for_each(|i| {
            link.push(Time::ZERO, i, 100).unwrap();
        });
        let arrived: Vec<u32> = drain(&mut link).iter().map(|(_, item)| *item).collect();
        let gaps = arrived
            .windows(2)
            .filter(|pair| pair[1] > pair[0] + 1)
            .count();
        (100_000 - arrived.len(), gaps)
    };
    let (lost, gaps) = run(bursts);
    let share = lost as f64 / 100_000.0;
    // The chain is in the bad state for 1/21 of the time, and half of the packets are lost then.
    assert!((share - 0.5 / 21.0).abs() < 0.004, "{share}");
    let (alone, separate) = run(LossModel::Bernoulli(share));
    assert!(lost as f64 / gaps as f64 > 1.2 * alone as f64 / separate as f64);
}

/// A packet that supports ECN, and whether it is marked.
#[derive(Clone)]
struct Ect(bool);

impl Carried for Ect {
    fn is_ecn_capable(&self) -> bool {
        true
    }

    fn mark(&mut self) {
        self.0 = true;
    }
}

/// Returns the counters of a link with RED whose source keeps ten packets queued. The average
/// settles between the thresholds.
fn counters_of_ten_queued<T: Carried + Clone>(red: RedConfig, packet: T) -> Counters {
    let config = LinkConfig {
        rate: Some(Rate::from_bits_per_s(8_000_000)),
        queue: QueueLimit::Packets(100),
        red: Some(red),
        ..LinkConfig::default()
    };
    let mut link = Link::<T>::new(config, 3);
    for i in 0..20_000_u64 {
        let now = Time::from_nanos(i * 1_000_000);
        while link.queue_packets(now) < 10 {
            let _ = link.push(now, packet.clone(), 1000);
        }
        while link.pop_ready(now).is_some() {}
    }
    link.counters()
}

#[test]
fn red_marks_packets_that_support_ecn_and_drops_the_rest() {
    let marking = RedConfig {
        variant: RedVariant::Paper,
        ..RedConfig::default()
    };
    let dropping = RedConfig {
        ecn: false,
        ..marking
    };
    let share = |count: u64, of: Counters| count as f64 / of.pushed as f64;
    // Halfway between the thresholds p is 0.05; even spacing makes hits about twice as likely.
    let expected = 0.03..0.15;
    let marked = counters_of_ten_queued(marking, Ect(false));
    assert!(expected.contains(&share(marked.marked, marked)));
    assert_eq!(marked.dropped, 0);
    for dropped in [
        counters_of_ten_queued(marking, 0_u32),
        counters_of_ten_queued(dropping, 0_u32),
        counters_of_ten_queued(dropping, Ect(false)),
    ] {
        assert!(expected.contains(&share(dropped.dropped, dropped)));
        assert_eq!(dropped.marked, 0);
    }
}

/// Data of a layered session that supports ECN.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Layer {
    rank: u8,
    is_marked: bool,
}

impl Carried for Layer {
    fn is_ecn_capable(&self) -> bool {
        true
    }

    fn mark(&mut self) {
        self.is_marked = true;
    }

    fn group(&self) -> Option<(u32, u8)> {
        Some((7, self.rank))
    }
}

/// Returns the marks of groups 0, 1 and 2 while `queued` of their packets are kept waiting on a
/// link whose average is the present queue.
fn marks_by_rank(red: RedConfig, queued: usize, prepare: fn(&mut Link<Layer>)) -> [usize; 3] {
    let config = LinkConfig {
        rate: Some(Rate::from_bits_per_s(8_000_000)),
        red: Some(RedConfig { weight: 1.0, ..red }),
        ..LinkConfig::default()
    };
    let mut link = Link::<Layer>::new(config, 3);
    prepare(&mut link);
    let mut marks = [0; 3];
    for i in 0..3000_u64 {
        let now = ms(i);
        while let Some(layer) = link.pop_ready(now) {
            marks[usize::from(layer.rank)] += usize::from(layer.is_marked);
        }
        while link.queue_packets(now) < queued {
            let layer = Layer {
                rank: (i % 3) as u8,
                is_marked: false,
            };
            // A packet that RED drops does not fill the queue; the next millisecond brings another.
            if link.push(now, layer, 1000).is_err() {
                break;
            }
        }
    }
    marks
}

const BY_GROUP: RedConfig = RedConfig {
    minimum_packets: 5.0,
    maximum_packets: 15.0,
    maximum_probability: 0.5,
    weight: 1.0,
    ecn: true,
    mean_packet_bytes: 1000,
    marking: Marking::TopGroup,
    overload: Overload::Mark,
    variant: RedVariant::Paper,
};

#[test]
fn only_the_top_subscribed_group_is_marked() {
    let two = |link: &mut Link<Layer>| (0..2).for_each(|rank| link.subscribe(7, rank));
    let [none, some, above] = marks_by_rank(BY_GROUP, 10, two);
    assert_eq!((none, above), (0, 0));
    assert!((200..700).contains(&some), "{some}");
    let all = RedConfig {
        marking: Marking::All,
        ..BY_GROUP
    };
    assert!(
        marks_by_rank(all, 10, two)
            .into_iter()
            .all(|marks| marks > 200)
    );
    let of_another = |link: &mut Link<Layer>| link.subscribe(8, 0);
    assert_eq!(marks_by_rank(BY_GROUP, 10, of_another), [0, 0, 0]);
}

#[test]
fn the_top_group_falls_when_groups_are_left() {
    let marked = |prepare| marks_by_rank(BY_GROUP, 10, prepare).map(|marks| marks > 0);
    fn three(link: &mut Link<Layer>) {
        (0..3).for_each(|rank| link.subscribe(7, rank));
    }
    assert_eq!(marked(three), [false, false, true]);
    assert_eq!(
        marked(|link| {
            three(link);
            link.unsubscribe(7, 2);
        }),
        [false, true, false]
    );
    // After all groups are left, in any order, no rank remains that would hide a later
    // subscription.
    for leave in [
        |link: &mut Link<Layer>| (0..3).for_each(|rank| link.unsubscribe(7, rank)),
        |link: &mut Link<Layer>| (0..3).rev().for_each(|rank| link.unsubscribe(7, rank)),
    ] {
        let mut link = Link::<Layer>::new(
            LinkConfig {
                red: Some(BY_GROUP),
                ..LinkConfig::default()
            },
            1,
        );
        three(&mut link);
        leave(&mut link);
        assert!(link.extras.is_some_and(|extras| extras.tops.is_empty()));
    }
}

#[test]
fn above_the_maximum_every_packet_is_marked_or_nearly_every_one_dropped() {
    let one = |link: &mut Link<Layer>| link.subscribe(7, 0);
    let [marked, spared, _] = marks_by_rank(BY_GROUP, 40, one);
    // A packet leaves each millisecond, and every third has rank 0. The first of the forty packets
    // that fill the queue are not marked.
    assert!((990..=1040).contains(&marked), "{marked}");
    assert_eq!(spared, 0);
    let dropping = RedConfig {
        overload: Overload::Drop,
        ..BY_GROUP
    };
    // At twice the maximum every packet is dropped: the queue never grows beyond it, and one packet
    // is in transmission.
    let mut link = Link::<Ect>::new(
        LinkConfig {
            rate: Some(Rate::from_bits_per_s(8_000)),
            red: Some(dropping),
            ..LinkConfig::default()
        },
        3,
    );
    let pushed = (0..1000).map(|_| link.push(Time::ZERO, Ect(false), 1000));
    assert!(pushed.filter(Result::is_ok).count() <= 31);
}

#[test]
fn a_link_that_does_not_mark_by_group_keeps_no_groups() {
    let mut link: Link<Layer> = Link::new(LinkConfig::default(), 1);
    link.subscribe(7, 0);
    assert!(link.extras.is_none());
}

#[test]
fn the_queue_time_grows_by_each_waiting_packet_until_its_transmission_begins() {
    let half = Time::from_secs_f64(0.0005);
    let config = |mbit_s: u64| LinkConfig {
        rate: Some(Rate::from_bits_per_s(mbit_s * 1_000_000)),
        ..LinkConfig::default()
    };
    // Three packets of 1 ms each wait for 0, 1 and 2 ms.
    let pushed = || {
        let mut link = Link::<u32>::new(config(8), 1);
        for _ in 0..3 {
            link.push(Time::ZERO, 7, 1000).unwrap();
        }
        link
    };
    let waited = |link: &mut Link<u32>, at| link.queue_time(at).as_micros();
    let mut link = pushed();
    assert_eq!(waited(&mut link, half), 1000);
    assert_eq!(waited(&mut link, ms(9)), 3000);
    // At half the rate the third packet waits until 3 ms.
    let mut slower = pushed();
    slower.reconfigure(half, config(4));
    assert_eq!(waited(&mut slower, half), 1000);
    assert_eq!(waited(&mut slower, ms(9)), 4000);
    let mut cut = pushed();
    cut.set_cut(half, true);
    assert_eq!(waited(&mut cut, ms(9)), 1000);
}
