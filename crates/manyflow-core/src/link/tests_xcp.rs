//! Tests of XCP's router with ideal senders that share one link.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;
use crate::units::Rate;
use crate::xcp::{Congestion, WindowChange, XcpConfig};

const BYTES: u32 = 1000;

/// A packet of a flow, with XCP's header or without.
#[derive(Clone, Debug)]
struct Probe {
    flow: usize,
    sent: Time,
    congestion: Option<Congestion>,
}

impl Carried for Probe {
    fn congestion(&mut self) -> Option<&mut Congestion> {
        self.congestion.as_mut()
    }
}

/// A sender that always has packets to send, and learns of each packet's fate a round-trip time
/// after sending it.
#[derive(Clone, Debug)]
struct Flow {
    /// The round-trip time without queueing.
    rtt: Duration,
    cwnd: f64,
    in_flight: f64,
    srtt_s: f64,
    delivered: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Start,
    Ack { sent: Time, feedback: i32 },
    Constant,
}

/// Flows, the link that they share, and other traffic.
struct World {
    link: Link<Probe>,
    flows: Vec<Flow>,
    events: BinaryHeap<Reverse<(Time, u64, usize, What)>>,
    numbered: u64,
    /// The time between packets without XCP's header, if there are any.
    constant: Option<Duration>,
    constant_delivered: u64,
    queue_max: usize,
    now: Time,
}

fn mbit(rate: f64) -> Rate {
    Rate::from_bits_per_s((rate * 1e6) as u64)
}

fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}

fn at_s(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

impl World {
    /// Creates flows from their round-trip times in ms and their starts in seconds.
    fn new(mbit_per_s: f64, queue: QueueLimit, flows: &[(u64, f64)]) -> World {
        let config = LinkConfig {
            rate: Some(mbit(mbit_per_s)),
            queue,
            xcp: Some(XcpConfig::default()),
            ..LinkConfig::default()
        };
        let mut world = World {
            link: Link::new(config, 1),
            flows: Vec::new(),
            events: BinaryHeap::new(),
            numbered: 0,
            constant: None,
            constant_delivered: 0,
            queue_max: 0,
            now: Time::ZERO,
        };
        for (index, &(rtt, starts_s)) in flows.iter().enumerate() {
            let starts = at_s(starts_s);
            world.flows.push(Flow {
                rtt: ms(rtt),
                cwnd: 2.0 * f64::from(BYTES),
                in_flight: 0.0,
                srtt_s: ms(rtt).as_secs_f64(),
                delivered: 0,
            });
            world.schedule(starts, index, What::Start);
        }
        world
    }

    fn with_constant(mut self, mbit_per_s: f64) -> World {
        let packets_per_s = mbit(mbit_per_s).packets_per_s(BYTES);
        self.constant = Some(crate::time::seconds(1.0 / packets_per_s));
        self.schedule(Time::ZERO, 0, What::Constant);
        self
    }

    fn schedule(&mut self, time: Time, flow: usize, what: What) {
        self.numbered += 1;
        self.events.push(Reverse((time, self.numbered, flow, what)));
    }

    fn set_rate(&mut self, mbit_per_s: f64) {
        let config = LinkConfig {
            rate: Some(mbit(mbit_per_s)),
            ..self.link.config().clone()
        };
        self.link.reconfigure(self.now, config);
    }

    fn run_until(&mut self, end: Time) {
        loop {
            let event = self.events.peek().map(|Reverse((time, ..))| *time);
            let Some(now) = [event, self.link.next_time()].into_iter().flatten().min() else {
                break;
            };
            if now > end {
                break;
            }
            self.now = now;
            while let Some(probe) = self.link.pop_ready(now) {
                self.deliver(probe);
            }
            if event == Some(now)
                && let Some(Reverse((_, _, flow, what))) = self.events.pop()
            {
                self.handle(flow, what);
            }
        }
        self.now = end;
    }

    fn deliver(&mut self, probe: Probe) {
        let Some(congestion) = probe.congestion else {
            self.constant_delivered += 1;
            return;
        };
        let flow = &mut self.flows[probe.flow];
        flow.delivered += 1;
        let ack = What::Ack {
            sent: probe.sent,
            feedback: congestion.feedback.0,
        };
        let arrives = self.now + flow.rtt;
        self.schedule(arrives, probe.flow, ack);
    }

    fn handle(&mut self, index: usize, what: What) {
        match what {
            What::Start => {}
            What::Ack { sent, feedback } => {
                let flow = &mut self.flows[index];
                let changed = flow.cwnd + WindowChange(feedback).bytes();
                flow.cwnd = changed.max(BYTES.into());
                flow.in_flight -= f64::from(BYTES);
                flow.srtt_s += ((self.now - sent).as_secs_f64() - flow.srtt_s) / 8.0;
            }
            What::Constant => {
                self.push(Probe {
                    flow: 0,
                    sent: self.now,
                    congestion: None,
                });
                let next = self
                    .constant
                    .expect("scheduled only if there is an interval");
                self.schedule(self.now + next, 0, What::Constant);
                return;
            }
        }
        self.fill(index);
    }

    fn fill(&mut self, index: usize) {
        while self.flows[index].in_flight + f64::from(BYTES) <= self.flows[index].cwnd {
            let flow = &mut self.flows[index];
            flow.in_flight += f64::from(BYTES);
            let congestion = Congestion {
                cwnd: flow.cwnd as u32,
                rtt_us: (flow.srtt_s * 1e6) as u32,
                feedback: WindowChange::MAX,
                answered: false,
            };
            let sent = self.push(Probe {
                flow: index,
                sent: self.now,
                congestion: Some(congestion),
            });
            if !sent {
                self.flows[index].in_flight -= f64::from(BYTES);
                self.flows[index].cwnd = (self.flows[index].cwnd / 2.0).max(BYTES.into());
            }
        }
    }

    fn push(&mut self, probe: Probe) -> bool {
        let taken = self.link.push(self.now, probe, BYTES).is_ok();
        self.queue_max = self.queue_max.max(self.link.queue_packets(self.now));
        taken
    }

    /// Returns each flow's rate in Mbit/s from now until `end`.
    fn rates_until(&mut self, end: Time) -> Vec<f64> {
        let from = self.now;
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.delivered).collect();
        self.run_until(end);
        let span_s = (end - from).as_secs_f64();
        let bits = |(flow, before): (&Flow, u64)| (flow.delivered - before) as f64 * 8e-3;
        let flows = self.flows.iter().zip(before);
        flows.map(|of| bits(of) / span_s).collect()
    }
}

fn total(rates: &[f64]) -> f64 {
    rates.iter().sum()
}

/// Returns the largest distance from the mean, as a share of the mean.
fn unfairness(rates: &[f64]) -> f64 {
    let mean = total(rates) / rates.len() as f64;
    let off = rates.iter().map(|rate| (rate / mean - 1.0).abs());
    off.fold(0.0, f64::max)
}

const BDP_20_MBIT_80_MS: QueueLimit = QueueLimit::Bytes(200_000);

#[test]
fn one_flow_fills_the_link_and_leaves_the_queue_empty() {
    let mut world = World::new(20.0, BDP_20_MBIT_80_MS, &[(80, 0.0)]);
    world.run_until(at_s(2.0));
    let rates = world.rates_until(at_s(10.0));
    assert!(rates[0] >= 19.6, "{rates:?}");
    assert_eq!(world.link.counters().dropped, 0);
}

#[test]
fn flows_that_start_one_after_the_other_share_equally_without_a_drop() {
    let flows = [(80, 0.0), (80, 10.0), (80, 20.0)];
    let mut world = World::new(20.0, BDP_20_MBIT_80_MS, &flows);
    for sharing in 1..=3 {
        let end = 10.0 * sharing as f64;
        world.run_until(at_s(end - 4.0));
        world.queue_max = 0;
        let rates = &world.rates_until(at_s(end))[..sharing];
        assert!(total(rates) >= 19.6, "{rates:?}");
        assert!(unfairness(rates) <= 0.02, "{rates:?}");
    }
    assert_eq!(world.link.counters().dropped, 0);
}

#[test]
fn flows_of_unequal_round_trip_times_get_equal_rates() {
    let flows = [(20, 0.0), (40, 0.0), (80, 0.0), (160, 0.0)];
    // At this rate, whole packets fill the windows. A window of 12.5 packets would leave 4 %
    // unused.
    let mut world = World::new(100.0, QueueLimit::Unlimited, &flows);
    world.run_until(at_s(20.0));
    let rates = world.rates_until(at_s(40.0));
    assert!(total(&rates) >= 98.0, "{rates:?}");
    assert!(unfairness(&rates) <= 0.02, "{rates:?}");
}

#[test]
fn a_capacity_that_changes_each_second_never_makes_a_long_queue() {
    // The round-trip times differ by up to 1:50.
    let flows = [(4, 0.0), (200, 0.0), (30, 0.0), (100, 0.0)];
    let mut world = World::new(20.0, QueueLimit::Unlimited, &flows);
    for second in 1..30_u32 {
        world.queue_max = 0;
        world.run_until(at_s(f64::from(second)));
        // The limit is twice the packets that 10 Mbit/s carry in an average round-trip time.
        assert!(second <= 5 || world.queue_max <= 208, "{}", world.queue_max);
        world.set_rate(if second % 2 == 0 { 20.0 } else { 10.0 });
    }
}

#[test]
fn rates_follow_a_capacity_that_doubles_or_halves() {
    let mut world = World::new(20.0, BDP_20_MBIT_80_MS, &[(80, 0.0), (80, 0.0)]);
    world.run_until(at_s(10.0));
    world.set_rate(40.0);
    world.run_until(at_s(11.0));
    let doubled = total(&world.rates_until(at_s(12.0)));
    world.set_rate(20.0);
    world.run_until(at_s(13.0));
    world.queue_max = 0;
    let halved = total(&world.rates_until(at_s(14.0)));
    assert!(doubled >= 39.2, "{doubled}");
    assert!(halved >= 19.6, "{halved}");
    assert!(world.queue_max <= 20, "{}", world.queue_max);
}

#[test]
fn packets_without_the_header_count_as_load() {
    let flows = [(80, 0.0), (80, 0.0)];
    let mut world = World::new(20.0, BDP_20_MBIT_80_MS, &flows).with_constant(10.0);
    world.run_until(at_s(10.0));
    world.queue_max = 0;
    let before = world.constant_delivered;
    let rates = world.rates_until(at_s(20.0));
    assert_eq!(world.constant_delivered - before, 12_500);
    assert!((9.8..=10.0).contains(&total(&rates)), "{rates:?}");
    assert!(unfairness(&rates) <= 0.02, "{rates:?}");
    assert!(world.queue_max <= 20, "{}", world.queue_max);
}

/// Returns the window changes that a flow of 100 kB in 50 ms gets on a link that carried none of
/// its packets for `idle`.
fn feedback_after(idle: Duration, rtt_us: u32) -> Vec<f64> {
    let mut link = World::new(20.0, BDP_20_MBIT_80_MS, &[]).link;
    let probe = Probe {
        flow: 0,
        sent: Time::ZERO,
        congestion: Some(Congestion {
            cwnd: 100_000,
            rtt_us,
            feedback: WindowChange::MAX,
            answered: false,
        }),
    };
    let mut granted = Vec::new();
    for i in 0..200 {
        let now = Time::ZERO + ms(i) + if i < 100 { ms(0) } else { idle };
        link.push(now, probe.clone(), BYTES).unwrap();
        let arrived = link.next_time().and_then(|time| link.pop_ready(time));
        let congestion = arrived.unwrap().congestion.unwrap();
        granted.push(congestion.feedback.bytes());
    }
    granted
}

#[test]
fn a_link_grants_feedback_at_once_after_an_idle_time() {
    let ages = Duration::from_secs(500 * 365 * 24 * 3600);
    for idle in [ms(500), ages] {
        let granted = feedback_after(idle, 50_000);
        // The router grants nothing before it has seen traffic. After the idle time, it at once
        // grants the change that it computed before.
        assert_eq!(granted[0], 0.0);
        assert!(granted[100] > 100.0, "{granted:?}");
        assert!(granted[99] > 100.0 && granted[199] > 100.0, "{granted:?}");
    }
}

#[test]
fn a_header_without_a_round_trip_time_is_granted_nothing() {
    assert!(feedback_after(ms(0), 0).iter().all(|bytes| *bytes == 0.0));
}
