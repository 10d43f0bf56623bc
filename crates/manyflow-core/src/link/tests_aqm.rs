//! Tests of links with active queue management.

use super::*;
use crate::units::Rate;

/// A packet of a flow between two hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sample {
    pub(super) number: u32,
    flow: Flow,
    sent: Time,
    ecn: Support,
    is_marked: bool,
}

/// The ECN field of a [`Sample`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Support {
    #[default]
    None,
    Classic,
    L4s,
}

impl Carried for Sample {
    fn is_ecn_capable(&self) -> bool {
        self.ecn != Support::None
    }

    fn is_l4s(&self) -> bool {
        self.ecn == Support::L4s
    }

    fn mark(&mut self) {
        assert!(!self.is_marked && self.is_ecn_capable(), "{self:?}");
        self.is_marked = true;
    }

    fn flow(&self) -> Flow {
        self.flow
    }
}

impl Sample {
    pub(super) fn of(flow: u32, ecn: Support) -> Sample {
        Sample {
            flow: Flow {
                key: flow.into(),
                source: flow,
                ..Flow::default()
            },
            ecn,
            ..Sample::default()
        }
    }
}

fn us(micros: u64) -> Time {
    Time::from_nanos(micros * 1000)
}

/// 8 Mbit/s: a packet of 1000 bytes takes a millisecond.
fn link(aqm: Aqm) -> Link<Sample> {
    limited(aqm, QueueLimit::Unlimited)
}

pub(super) fn limited(aqm: Aqm, queue: QueueLimit) -> Link<Sample> {
    let config = LinkConfig {
        rate: Some(Rate::from_bits_per_s(8_000_000)),
        queue,
        aqm: Some(aqm),
        ..LinkConfig::default()
    };
    Link::new(config, 5)
}

/// A source without congestion control.
struct Source {
    sample: Sample,
    every_us: u64,
    bytes: u32,
}

/// Runs sources over a link until `end`. Returns the packets that arrived, with the times of their
/// arrival.
fn run(link: &mut Link<Sample>, sources: &[Source], end: Time) -> Vec<(Time, Sample)> {
    let mut arrived = Vec::new();
    let mut next: Vec<Time> = (0..sources.len() as u64).map(us).collect();
    loop {
        let first = next.iter().copied().enumerate().min_by_key(|(_, at)| *at);
        let (source, at) = first.unwrap_or((0, Time::MAX));
        let now = link.next_time().map_or(at, |time| time.min(at));
        if now > end {
            return arrived;
        }
        while let Some(sample) = link.pop_ready(now) {
            arrived.push((now, sample));
        }
        if now == at {
            let Source {
                sample,
                every_us,
                bytes,
            } = sources[source];
            let _ = link.push(
                now,
                Sample {
                    sent: now,
                    ..sample
                },
                bytes,
            );
            next[source] = at + Duration::from_micros(every_us);
        }
    }
}

fn delays_ms(arrived: &[(Time, Sample)], flow: u64) -> Vec<f64> {
    let of_flow = arrived.iter().filter(|(_, sample)| sample.flow.key == flow);
    of_flow
        .map(|(now, sample)| (*now - sample.sent).as_secs_f64() * 1e3)
        .collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Two packets arrive in the time of one. A marked packet stays in the queue, so the marks show the
/// control law alone.
#[test]
fn codels_marks_follow_the_control_law() {
    let mut link = link(Aqm::CoDel(CoDelConfig::default()));
    let source = Source {
        sample: Sample::of(1, Support::Classic),
        every_us: 500,
        bytes: 1000,
    };
    let arrived = run(&mut link, &[source], us(3_000_000));
    let marks: Vec<f64> = arrived
        .iter()
        .filter(|(_, sample)| sample.is_marked)
        .map(|(now, _)| now.as_secs_f64() * 1e3)
        .collect();
    // The delay reaches 5 ms after 10 ms, and has been above it for an interval at 110 ms. The
    // packet arrives a millisecond after its departure.
    assert!((marks[0] - 111.0).abs() <= 2.0, "{}", marks[0]);
    let mut due = marks[0];
    for (count, mark) in (1..).zip(&marks[1..]) {
        due += 100.0 / f64::from(count).sqrt();
        assert!((-1.1..=1.1).contains(&(mark - due)), "{count}: {mark}");
    }
    assert!(marks.len() > 150, "{}", marks.len());
}

#[test]
fn codel_leaves_a_queue_below_the_target_alone() {
    let mut link = link(Aqm::CoDel(CoDelConfig::default()));
    // Five packets each 10 ms wait for at most 4 ms.
    let sources = [0, 1, 2, 3, 4].map(|_| Source {
        sample: Sample::of(1, Support::None),
        every_us: 10_000,
        bytes: 1000,
    });
    let arrived = run(&mut link, &sources, us(2_000_000));
    assert_eq!(link.counters().dropped, 0);
    assert!(arrived.len() >= 995, "{}", arrived.len());
}

/// A flood of packets that do not support ECN, and a sparse flow of one packet each 20 ms.
#[test]
fn a_sparse_flow_does_not_wait_behind_a_flood() {
    let sources = [(1, 400), (2, 20_000)].map(|(flow, every_us)| Source {
        sample: Sample::of(flow, Support::None),
        every_us,
        bytes: 1000,
    });
    for (aqm, most_ms) in [
        (Aqm::FqCoDel(FqCoDelConfig::default()), 2.001),
        (Aqm::Cake(CakeConfig::default()), 2.001),
    ] {
        let mut link = limited(aqm, QueueLimit::Packets(500));
        let arrived = run(&mut link, &sources, us(5_000_000));
        let sparse = delays_ms(&arrived, 2);
        // It waits for the packet in transmission at most, and takes a millisecond itself. When it
        // begins, the flood is new, too, and may finish its quantum.
        let worst = sparse[1..]
            .iter()
            .fold(0.0_f64, |worst, delay| worst.max(*delay));
        assert!(worst <= most_ms, "{aqm:?}: {worst}");
        assert_eq!(sparse.len(), 250, "none is lost");
    }
}

#[test]
fn flows_share_bytes_equally_whatever_their_packets() {
    let sources: Vec<Source> = [300, 700, 1000, 1500]
        .map(|bytes| Source {
            sample: Sample::of(bytes, Support::None),
            every_us: u64::from(bytes) / 2,
            bytes,
        })
        .into();
    let config = FqCoDelConfig::default();
    let mut link = limited(Aqm::FqCoDel(config), QueueLimit::Packets(1000));
    let arrived = run(&mut link, &sources, us(10_000_000));
    for bytes in [300, 700, 1000, 1500] {
        let packets = delays_ms(&arrived, bytes).len() as f64;
        let share = packets * bytes as f64 / 10e6;
        assert!((share - 0.25).abs() < 0.01, "{bytes} B: {share}");
    }
}

/// Returns the share of one flow beside a session with nine channels.
fn share_beside_a_session(multicast: Multicast) -> f64 {
    let sources: Vec<Source> = (0..10)
        .map(|channel| {
            let mut sample = Sample::of(if channel == 0 { 1 } else { 2 }, Support::None);
            sample.flow.channel = channel;
            Source {
                sample,
                every_us: 900,
                bytes: 1000,
            }
        })
        .collect();
    let config = FqCoDelConfig {
        multicast,
        ..FqCoDelConfig::default()
    };
    let mut link = limited(Aqm::FqCoDel(config), QueueLimit::Packets(1000));
    let arrived = run(&mut link, &sources, us(10_000_000));
    delays_ms(&arrived, 1).len() as f64 / arrived.len() as f64
}

#[test]
fn a_session_has_a_flow_for_each_channel_or_one_in_a_tunnel() {
    for (multicast, expected) in [(Multicast::Channels, 0.1), (Multicast::Session, 0.5)] {
        let share = share_beside_a_session(multicast);
        assert!((share - expected).abs() < 0.02, "{multicast:?}: {share}");
    }
}

/// Returns the share of host 1, which has one flow, beside host 2 with nine.
fn share_of_the_smaller_host(isolation: Isolation, by_destination: bool) -> f64 {
    let sources: Vec<Source> = (0..10)
        .map(|flow| {
            let host = if flow == 0 { 1 } else { 2 };
            let (source, destination) = if by_destination { (7, host) } else { (host, 7) };
            let mut sample = Sample::of(flow, Support::None);
            (sample.flow.source, sample.flow.destination) = (source, destination);
            Source {
                sample,
                every_us: 900,
                bytes: 1000,
            }
        })
        .collect();
    let config = CakeConfig {
        isolation,
        ..CakeConfig::default()
    };
    let mut link = limited(Aqm::Cake(config), QueueLimit::Packets(1000));
    let arrived = run(&mut link, &sources, us(10_000_000));
    delays_ms(&arrived, 0).len() as f64 / arrived.len() as f64
}

#[test]
fn cake_shares_by_hosts_before_flows() {
    let close = |share: f64, expected: f64| {
        assert!((share - expected).abs() < 0.02, "{share} for {expected}");
    };
    close(share_of_the_smaller_host(Isolation::Sources, false), 0.5);
    close(
        share_of_the_smaller_host(Isolation::Destinations, true),
        0.5,
    );
    // With one host on the other side, its ten flows weigh more than either host's here.
    close(
        share_of_the_smaller_host(Isolation::Destinations, false),
        0.1,
    );
    close(share_of_the_smaller_host(Isolation::Triple, false), 0.1);
    close(share_of_the_smaller_host(Isolation::Flows, false), 0.1);
}

/// A source of 1.2 times the rate, without congestion control.
fn overload() -> Source {
    Source {
        sample: Sample::of(1, Support::None),
        every_us: 833,
        bytes: 1000,
    }
}

#[test]
fn pie_keeps_the_delay_at_its_target() {
    let mut link = link(Aqm::Pie(PieConfig::default()));
    let arrived = run(&mut link, &[overload()], us(60_000_000));
    let late: Vec<_> = arrived
        .into_iter()
        .filter(|(now, _)| *now > us(30_000_000))
        .collect();
    let delay_ms = mean(&delays_ms(&late, 1)) - 1.0;
    assert!((13.0..=17.0).contains(&delay_ms), "{delay_ms}");
    // One packet in six has no room on the link.
    let counters = link.counters();
    let share = counters.dropped as f64 / counters.pushed as f64;
    assert!((share - 1.0 / 6.0).abs() < 0.02, "{share}");
}

#[test]
fn pie_lets_a_burst_of_150_ms_pass() {
    // A flood of four times the rate begins after an idle time.
    let flood = Source {
        sample: Sample::of(1, Support::None),
        every_us: 250,
        bytes: 1000,
    };
    let dropped_by = |end| {
        let mut link = link(Aqm::Pie(PieConfig::default()));
        run(&mut link, core::slice::from_ref(&flood), us(end));
        link.counters().dropped
    };
    assert_eq!(dropped_by(149_000), 0);
    assert!(dropped_by(400_000) > 0);
    let config = PieConfig {
        burst: Duration::ZERO,
        ..PieConfig::default()
    };
    let mut link = link(Aqm::Pie(config));
    run(&mut link, &[flood], us(149_000));
    assert!(link.counters().dropped > 0, "there is no allowance");
}

#[test]
fn pie_marks_up_to_a_probability_of_a_tenth() {
    let counters_at = |every_us| {
        let mut link = link(Aqm::Pie(PieConfig::default()));
        let source = Source {
            sample: Sample::of(1, Support::Classic),
            every_us,
            bytes: 1000,
        };
        run(&mut link, &[source], us(20_000_000));
        link.counters()
    };
    // Marks do not shorten the queue, so the probability grows until packets are dropped.
    let counters = counters_at(900);
    assert!(counters.marked > 10, "{counters:?}");
    assert!(counters.dropped > 500, "{counters:?}");
}

/// p' follows from the drops of a classic flood, and the marks of a light scalable flow are coupled
/// to it.
#[test]
fn dualpi2_couples_scalable_marks_to_classic_drops() {
    let mut link = link(Aqm::DualPi2(DualPi2Config::default()));
    // A twentieth of the rate is scalable; classic packets are 1.05 times the rest.
    let sources =
        [(1, Support::None, 1002), (2, Support::L4s, 20_011)].map(|(flow, ecn, every_us)| Source {
            sample: Sample::of(flow, ecn),
            every_us,
            bytes: 1000,
        });
    let arrived = run(&mut link, &sources, us(100_000_000));
    let late: Vec<_> = arrived
        .into_iter()
        .filter(|(now, _)| *now > us(20_000_000))
        .collect();
    let scalable = delays_ms(&late, 2);
    // A millisecond of its own, and the rest of the packet in transmission. One time in ten it is
    // the turn of the classic queue.
    let worst = scalable
        .iter()
        .fold(0.0_f64, |worst, delay| worst.max(*delay));
    assert!(worst <= 3.001, "{worst}");
    assert!(mean(&scalable) <= 1.65, "{}", mean(&scalable));
    let classic_ms = mean(&delays_ms(&late, 1)) - 1.0;
    assert!((13.0..=17.0).contains(&classic_ms), "{classic_ms}");
    let marked = late.iter().filter(|(_, s)| s.is_marked).count() as f64 / scalable.len() as f64;
    let pushed_classic = 80_000_000.0 / 1002.0;
    let dropped = 1.0 - delays_ms(&late, 1).len() as f64 / pushed_classic;
    let expected = 2.0 * dropped.sqrt();
    assert!((marked / expected - 1.0).abs() < 0.1, "{marked} {expected}");
}

#[test]
fn dualpi2_marks_a_scalable_queue_from_its_threshold_on() {
    let share = |ramp_us| {
        let mut link = link(Aqm::DualPi2(DualPi2Config {
            threshold: Duration::from_micros(8_000),
            ramp: Duration::from_micros(ramp_us),
            ..DualPi2Config::default()
        }));
        // Bursts of 17 packets wait for 0 to 16 ms.
        let sources = [1; 17].map(|flow| Source {
            sample: Sample::of(flow, Support::L4s),
            every_us: 30_000,
            bytes: 1000,
        });
        let arrived = run(&mut link, &sources, us(10_000_000));
        let marked = arrived.iter().filter(|(_, sample)| sample.is_marked);
        17.0 * marked.count() as f64 / arrived.len() as f64
    };
    // With a step, the packets that wait for 8 to 15 ms, less the time between the arrivals, and
    // not the last one, behind which no other waits.
    let step = share(0);
    assert!((step - 7.0).abs() < 0.2, "{step}");
    // On a ramp of 8 ms, half of them.
    let ramp = share(8_000);
    assert!((ramp - 3.5).abs() < 0.3, "{ramp}");
}

/// A sender with a window, which grows by one packet in each round trip.
struct Window {
    sample: Sample,
    packets: f64,
    in_flight: u32,
    /// The time until which a classic sender has answered its last mark.
    answered: Time,
}

impl Window {
    fn of(flow: u32, ecn: Support) -> Window {
        Window {
            sample: Sample::of(flow, ecn),
            packets: 10.0,
            in_flight: 0,
            answered: Time::ZERO,
        }
    }

    /// A classic sender halves its window at most once in a round trip. A scalable one gives up
    /// half a packet for each mark.
    fn handle_ack(&mut self, now: Time, is_marked: bool, rtt: Duration) {
        self.in_flight -= 1;
        self.packets += 1.0 / self.packets;
        if is_marked && self.sample.ecn == Support::L4s {
            self.packets -= 0.5;
        } else if is_marked && now >= self.answered {
            self.packets /= 2.0;
            self.answered = now + rtt;
        }
        self.packets = self.packets.max(1.0);
    }
}

/// Classic and scalable senders share a link of 40 Mbit/s for 60 s. Their round-trip time is 30 ms
/// and that of the queue. Returns the number of packets of each that arrived in the last 40 s, and
/// the mean time that they spent on the way.
fn shared(senders: &mut [Window]) -> Vec<(f64, f64)> {
    const RTT: Duration = Duration::from_millis(30);
    let config = LinkConfig {
        rate: Some(Rate::from_bits_per_s(40_000_000)),
        aqm: Some(Aqm::DualPi2(DualPi2Config::default())),
        ..LinkConfig::default()
    };
    let mut link = Link::<Sample>::new(config, 5);
    let (mut acks, mut now) = (VecDeque::<(Time, u32, bool)>::new(), Time::ZERO);
    let mut results = vec![(0.0, 0.0); senders.len()];
    while now < us(60_000_000) {
        for (number, sender) in (0..).zip(&mut *senders) {
            while f64::from(sender.in_flight) < sender.packets.floor() {
                let sample = Sample {
                    number,
                    sent: now,
                    ..sender.sample
                };
                link.push(now, sample, 1000).unwrap();
                sender.in_flight += 1;
            }
        }
        let ack = acks.front().map(|(time, ..)| *time);
        now = ack.into_iter().chain(link.next_time()).min().unwrap();
        while let Some(sample) = link.pop_ready(now) {
            acks.push_back((now + RTT, sample.number, sample.is_marked));
            if now > us(20_000_000) {
                let (packets, delay_s) = &mut results[sample.number as usize];
                *packets += 1.0;
                *delay_s += (now - sample.sent).as_secs_f64();
            }
        }
        while let Some((_, number, is_marked)) = acks.front().filter(|(time, ..)| *time <= now) {
            senders[*number as usize].handle_ack(now, *is_marked, RTT);
            acks.pop_front();
        }
    }
    let mean = |(packets, delay_s)| (packets, delay_s / packets * 1e3);
    results.into_iter().map(mean).collect()
}

#[test]
fn dualpi2_gives_scalable_and_classic_senders_like_rates_and_scalable_ones_no_delay() {
    let kinds = [
        Support::Classic,
        Support::Classic,
        Support::L4s,
        Support::L4s,
    ];
    let mut senders: Vec<Window> = (0..)
        .zip(kinds)
        .map(|(i, ecn)| Window::of(i, ecn))
        .collect();
    let results = shared(&mut senders);
    let total: f64 = results.iter().map(|(packets, _)| packets).sum();
    assert!(total > 0.97 * 40.0 * 5000.0, "{total}");
    for (kind, (packets, delay_ms)) in kinds.into_iter().zip(results) {
        // With p', a classic window is 1.22 / p' packets in 45 ms, and a scalable one 1 / p' in
        // 30 ms: rates of 0.9 to 1.1 times the mean.
        let share = packets / total;
        assert!((0.15..=0.35).contains(&share), "{kind:?}: {share}");
        match kind {
            Support::L4s => assert!(delay_ms < 1.2, "{delay_ms}: 1 ms, and 0.2 ms of its own"),
            _ => assert!((12.0..=18.0).contains(&delay_ms), "{delay_ms}"),
        }
    }
}

#[test]
fn dualpi2_does_not_starve_the_classic_queue() {
    let mut link = limited(
        Aqm::DualPi2(DualPi2Config::default()),
        QueueLimit::Packets(250),
    );
    let sources = [(1, Support::None), (2, Support::L4s)].map(|(flow, ecn)| Source {
        sample: Sample::of(flow, ecn),
        every_us: 700,
        bytes: 1000,
    });
    let arrived = run(&mut link, &sources, us(20_000_000));
    let classic = delays_ms(&arrived, 1).len() as f64 / arrived.len() as f64;
    assert!(classic >= 0.09, "{classic}");
}

#[test]
fn the_queue_time_of_a_managed_link_is_that_of_its_packets() {
    let mut link = link(Aqm::CoDel(CoDelConfig::default()));
    for _ in 0..3 {
        link.push(Time::ZERO, Sample::default(), 1000).unwrap();
    }
    // Three packets of 1 ms each wait for 0, 1 and 2 ms.
    assert_eq!(link.queue_time(us(500)), Duration::from_micros(1000));
    assert_eq!(link.queue_packets(us(500)), 2);
    assert_eq!(link.queue_time(us(9000)), Duration::from_millis(3));
}

#[test]
fn waiting_packets_survive_a_change_of_the_queue() {
    let mut link = link(Aqm::FqCoDel(FqCoDelConfig::default()));
    for flow in 0..10 {
        link.push(Time::ZERO, Sample::of(flow, Support::None), 1000)
            .unwrap();
    }
    let change = |link: &mut Link<Sample>, at, aqm| {
        let config = LinkConfig {
            aqm,
            ..link.config().clone()
        };
        link.reconfigure(us(at), config);
    };
    change(&mut link, 2_500, Some(Aqm::CoDel(CoDelConfig::default())));
    change(&mut link, 4_500, None);
    change(&mut link, 6_500, Some(Aqm::Pie(PieConfig::default())));
    link.push(us(7_000), Sample::of(11, Support::None), 1000)
        .unwrap();
    let arrived = run(&mut link, &[], us(20_000));
    let times: Vec<Time> = arrived.iter().map(|(now, _)| *now).collect();
    let expected: Vec<Time> = (1..=11).map(|ms| us(ms * 1000)).collect();
    assert_eq!(times, expected);
    assert_eq!(arrived[10].1.flow.key, 11);
}
