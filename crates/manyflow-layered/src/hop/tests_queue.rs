//! Tests of the queue of a hop.

use core::time::Duration;

use manyflow_core::link::{Carried, Dropped, RedConfig};
use manyflow_core::{Rate, Time};

use super::*;

/// A packet of a layered session, or of a session without groups.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layer {
    session: u32,
    rank: Option<u8>,
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
        self.rank.map(|rank| (self.session, rank))
    }
}

fn layer(session: u32, rank: Option<u8>) -> Layer {
    Layer {
        session,
        rank,
        is_marked: false,
    }
}

fn hop(bits_per_s: u64) -> Hop<Layer> {
    let config = HopConfig {
        rate: HopRate::Given(Rate::from_bits_per_s(bits_per_s)),
        ..HopConfig::default()
    };
    Hop::new(config, 1, 1, Time::ZERO).unwrap()
}

#[test]
fn a_hop_in_startup_marks_nothing_until_its_child_is_silent() {
    let mut hop = Hop::new(HopConfig::default(), 1, 1, Time::ZERO).unwrap();
    hop.set_top(7, Some(0));
    let mut now = Time::ZERO;
    let mut fill = |hop: &mut Hop<Layer>, until_s: f64| {
        while now < Time::from_secs_f64(until_s) {
            let _ = hop.push(now, layer(7, Some(0)), 1000);
            hop.handle_timeout(now);
            while hop.poll_transmit(now).is_some() {}
            now += Duration::from_millis(10);
        }
        hop.counters().marked
    };
    assert_eq!(
        fill(&mut hop, 0.4),
        0,
        "a rate that is below that of the path"
    );
    assert!(hop.counters().dropped > 0, "a full queue drops");
    assert!(fill(&mut hop, 2.0) > 0, "nobody answers");
}

/// Returns the packets that leave until `end`, with the times at which they leave.
fn drain(hop: &mut Hop<Layer>, from: Time, end: Time) -> Vec<(Time, Layer)> {
    let (mut now, mut left) = (from, Vec::new());
    while now <= end {
        match hop.poll_transmit(now) {
            Some(Transmit::Item(item, _)) => left.push((now, item)),
            Some(Transmit::Sounding(_)) => {}
            None => match hop.poll_timeout() {
                Some(next) if next > now => now = next,
                _ => break,
            },
        }
    }
    left
}

#[test]
fn a_full_queue_drops_from_the_top() {
    // 15 packets at any rate, since 100 ms carry one packet.
    let mut hop = hop(80_000);
    hop.set_top(7, Some(2));
    for place in 0..15_u8 {
        let pushed = hop.push(Time::ZERO, layer(7, Some(place % 3)), 1000);
        assert_eq!(pushed, Ok(false));
    }
    // The lowest group takes the places of the highest, and then those of the next.
    for _ in 0..10 {
        assert_eq!(hop.push(Time::ZERO, layer(7, Some(0)), 1000), Ok(false));
    }
    assert_eq!(hop.counters().displaced, 10);
    for rank in [0, 1] {
        let pushed = hop.push(Time::ZERO, layer(7, Some(rank)), 1000);
        assert_eq!(pushed, Err(Dropped::Full), "{rank}");
    }
    // A session without groups displaces no other.
    let pushed = hop.push(Time::ZERO, layer(8, None), 1000);
    assert_eq!(pushed, Err(Dropped::Full));
    let left = drain(&mut hop, Time::ZERO, Time::from_secs_f64(3.0));
    assert_eq!(left.len(), 15);
    assert!(left.iter().all(|(_, item)| item.rank == Some(0)));
}

#[test]
fn a_fast_hop_queues_a_tenth_of_a_second() {
    let mut hop = hop(80_000_000);
    let pushed = (0..2000).filter(|_| hop.push(Time::ZERO, layer(8, None), 1000).is_ok());
    assert_eq!(pushed.count(), 1000);
}

#[test]
fn only_the_top_group_of_a_session_is_marked() {
    let mut hop = hop(8_000_000);
    hop.set_top(7, Some(1));
    hop.set_top(9, Some(0));
    let mut now = Time::ZERO;
    let mut marked = [0; 5];
    for round in 0..4000 {
        let place = round % 5;
        let (session, rank) = [
            (7, Some(0)),
            (7, Some(1)),
            (7, Some(2)),
            (9, Some(0)),
            (8, None),
        ][place];
        let _ = hop.push(now, layer(session, rank), 1000);
        // 25 packets wait on average.
        if round >= 25 {
            let end = now + Duration::from_millis(1);
            for (_, item) in drain(&mut hop, now, end) {
                let places = [
                    (7, Some(0)),
                    (7, Some(1)),
                    (7, Some(2)),
                    (9, Some(0)),
                    (8, None),
                ];
                let place = places
                    .iter()
                    .position(|of| *of == (item.session, item.rank));
                marked[place.unwrap()] += u32::from(item.is_marked);
            }
            now = end;
        }
    }
    assert!(marked[1] > 500 && marked[3] > 500, "{marked:?}");
    assert_eq!([marked[0], marked[2], marked[4]], [0, 0, 0]);
}

#[test]
fn a_hop_sends_all_the_time_at_its_rate() {
    let mut hop = hop(800_000);
    for _ in 0..15 {
        hop.push(Time::ZERO, layer(8, None), 1000).unwrap();
    }
    let left = drain(&mut hop, Time::ZERO, Time::from_secs_f64(1.0));
    // Each packet takes 10 ms, and a sounding each 50 ms takes 0.76 ms.
    let (last, _) = left[14];
    let expected = Time::from_secs_f64(0.140);
    assert!(
        last >= expected && last < expected + Duration::from_millis(4),
        "{last}"
    );
}

#[test]
fn parameters_outside_their_range_are_refused() {
    let refused = |config| {
        Hop::<Layer>::new(config, 1, 1, Time::ZERO)
            .unwrap_err()
            .to_string()
    };
    let slow = HopConfig {
        rate: HopRate::Given(Rate::from_bits_per_s(999)),
        ..HopConfig::default()
    };
    assert!(refused(slow).contains("the rate of a hop"));
    let none = HopConfig {
        queue_packets: 0,
        ..HopConfig::default()
    };
    assert!(refused(none).contains("the queue of a hop"));
}

#[test]
fn a_burst_on_a_fast_hop_is_not_marked_if_it_is_short_in_time() {
    let marked = |red_slot| {
        let config = HopConfig {
            rate: HopRate::Given(Rate::from_bits_per_s(100_000_000)),
            red: RedConfig {
                minimum_packets: 1.0,
                maximum_packets: 3.0,
                weight: 1.0,
                ..HopConfig::default().red
            },
            red_slot,
            ..HopConfig::default()
        };
        let mut hop = Hop::new(config, 1, 1, Time::ZERO).unwrap();
        hop.set_top(7, Some(0));
        for _ in 0..12 {
            hop.push(Time::ZERO, layer(7, Some(0)), 1000).unwrap();
        }
        hop.counters().marked
    };
    // 12 packets take 0.96 ms.
    assert_eq!(marked(Duration::from_millis(4)), 0);
    assert!(marked(Duration::ZERO) > 0);
}
