//! Tests of soft flow control with an ideal sender, a delay, and an application that works on each
//! frame for a while.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use super::*;

const FRAME: u32 = 1024;
const BUFFER: u32 = 200 * FRAME;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Arrival { cwnd: u32, feedback: i32 },
    Ack { feedback: i32 },
    Lost,
    Ready,
}

/// The time that the application spends on a frame that it reads at a given time; `None` if it
/// reads nothing.
type Service = fn(Time) -> Option<Duration>;

struct World {
    flow: SoftFlow,
    rtt: Duration,
    buffer: u32,
    service: Service,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    numbered: u64,
    wire_bytes: u32,
    // The sender's state.
    cwnd: f64,
    pipe: u32,
    halved: Time,
    link_free: Time,
    frame_time: Duration,
    // The receiver's state.
    occupied: u32,
    is_working: bool,
    drops: u32,
    reads: Vec<Time>,
}

impl World {
    fn new(
        config: SoftConfig,
        mbit_per_s: u32,
        rtt_ms: u64,
        buffer: u32,
        service: Service,
    ) -> World {
        let wire_bytes = FRAME + frame_header_bytes();
        let mut world = World {
            flow: SoftFlow::new(config, buffer, FRAME),
            rtt: Duration::from_millis(rtt_ms),
            buffer,
            service,
            now: Time::ZERO,
            events: BinaryHeap::new(),
            numbered: 0,
            wire_bytes,
            cwnd: 2.0 * f64::from(wire_bytes),
            pipe: 0,
            halved: Time::ZERO,
            link_free: Time::ZERO,
            frame_time: Duration::from_nanos(u64::from(wire_bytes) * 8_000 / u64::from(mbit_per_s)),
            occupied: 0,
            is_working: false,
            drops: 0,
            reads: Vec::new(),
        };
        world.fill();
        world
    }

    fn schedule(&mut self, after: Duration, what: Happening) {
        self.numbered += 1;
        self.events
            .push(Reverse((self.now + after, self.numbered, what)));
    }

    fn run_until(&mut self, end: Time) {
        while let Some(&Reverse((time, _, what))) = self.events.peek()
            && time <= end
        {
            self.events.pop();
            self.now = time;
            match what {
                Happening::Arrival { cwnd, feedback } => self.arrive(cwnd, feedback),
                Happening::Ack { feedback } => {
                    self.cwnd += WindowChange(feedback).bytes();
                    self.cwnd = self
                        .cwnd
                        .max(self.wire_bytes.into())
                        .min(self.largest_window());
                    self.pipe -= self.wire_bytes;
                    self.fill();
                }
                Happening::Lost => {
                    self.pipe -= self.wire_bytes;
                    if self.now >= self.halved + self.rtt {
                        self.halved = self.now;
                        self.cwnd = (0.5 * self.cwnd).max(self.wire_bytes.into());
                    }
                    self.fill();
                }
                Happening::Ready => {
                    self.is_working = false;
                    self.read();
                }
            }
        }
        self.now = end;
    }

    /// Returns the largest window: the frames of the send buffer, in bytes on the wire.
    fn largest_window(&self) -> f64 {
        f64::from(BUFFER / FRAME) * f64::from(self.wire_bytes)
    }

    fn fill(&mut self) {
        while f64::from(self.pipe + self.wire_bytes) <= self.cwnd {
            self.pipe += self.wire_bytes;
            let wanted =
                (self.largest_window() - self.cwnd) / (self.cwnd / f64::from(self.wire_bytes));
            let arrival = Happening::Arrival {
                cwnd: self.cwnd as u32,
                feedback: WindowChange::from_bytes(wanted).0,
            };
            let wait = self.link_free - self.now;
            let sent = wait + self.frame_time;
            self.link_free = self.now + sent;
            self.schedule(sent + self.rtt / 2, arrival);
        }
    }

    fn arrive(&mut self, cwnd: u32, feedback: i32) {
        let mut congestion = Congestion {
            cwnd,
            rtt_us: self.rtt.as_micros() as u32,
            feedback: WindowChange(feedback),
            answered: false,
        };
        if self.occupied + FRAME > self.buffer {
            self.drops += 1;
            self.flow.on_overflow(self.now);
            self.schedule(self.rtt / 2, Happening::Lost);
            return;
        }
        self.flow.on_arrival(
            self.now,
            &mut congestion,
            self.wire_bytes,
            self.occupied,
            true,
        );
        self.occupied += FRAME;
        let feedback = congestion.feedback.0;
        self.schedule(self.rtt / 2, Happening::Ack { feedback });
        self.read();
    }

    fn read(&mut self) {
        if self.is_working || self.occupied == 0 {
            return;
        }
        let Some(service) = (self.service)(self.now) else {
            self.is_working = true;
            self.schedule(Duration::from_millis(1), Happening::Ready);
            return;
        };
        self.occupied -= FRAME;
        self.reads.push(self.now);
        self.flow.on_read(self.now, FRAME, self.occupied);
        self.is_working = true;
        self.schedule(service, Happening::Ready);
    }

    /// Returns the frames per second that the application read.
    fn rate(&self, from: Time, to: Time) -> f64 {
        let within = self.reads.iter().filter(|time| (from..to).contains(time));
        within.count() as f64 / (to - from).as_secs_f64()
    }
}

fn at_ms(ms: u64) -> Time {
    Time::ZERO + Duration::from_millis(ms)
}

fn us(us: u64) -> Option<Duration> {
    Some(Duration::from_micros(us))
}

const SERVICES: [(f64, Service); 6] = [
    (50.0, |_| us(50)),
    (100.0, |_| us(100)),
    (200.0, |_| us(200)),
    (400.0, |_| us(400)),
    (700.0, |_| us(700)),
    (1000.0, |_| us(1000)),
];

const FOLLOWING: SoftConfig = SoftConfig {
    increase_below: 1.0 / 3.0,
    decrease_above: 0.5,
    decrease: 0.1,
    step_frames: 2,
    follow_drain: true,
};

const PROBING: SoftConfig = SoftConfig {
    follow_drain: false,
    ..FOLLOWING
};

/// Returns the frames per second that a credit of the whole buffer would deliver.
fn by_credit(service_us: f64, buffer: u32, rtt_ms: u64) -> f64 {
    let frames = f64::from(buffer / FRAME);
    (1e6 / service_us).min(frames * 1e3 / rtt_ms as f64)
}

#[test]
fn following_delivers_the_rate_of_credit_for_every_service_time() {
    for (mbit_per_s, rtt_ms) in [(1000, 10), (1000, 100), (200, 10), (200, 100)] {
        for (service_us, service) in SERVICES {
            let mut world = World::new(FOLLOWING, mbit_per_s, rtt_ms, BUFFER, service);
            world.run_until(at_ms(20_000));
            let share =
                world.rate(Time::ZERO, at_ms(20_000)) / by_credit(service_us, BUFFER, rtt_ms);
            let case = format!("{mbit_per_s} Mbit/s, {rtt_ms} ms, {service_us} us");
            assert!(share >= 0.95, "{case}: {share}");
            assert!(world.drops <= 5, "{case}: {} drops", world.drops);
        }
    }
}

#[test]
fn following_delivers_the_rate_of_credit_for_every_buffer() {
    for (rtt_ms, frames) in [10, 100]
        .into_iter()
        .flat_map(|rtt| [10, 25, 50, 100, 200].map(|n| (rtt, n)))
    {
        let buffer = frames * FRAME;
        let mut world = World::new(FOLLOWING, 1000, rtt_ms, buffer, |_| us(200));
        world.run_until(at_ms(20_000));
        let share = world.rate(Time::ZERO, at_ms(20_000)) / by_credit(200.0, buffer, rtt_ms);
        assert!(share >= 0.95, "{rtt_ms} ms, {frames} frames: {share}");
        assert_eq!(world.drops, 0);
    }
}

/// Alternates between 100 us and 750 us, two seconds each.
fn square(now: Time) -> Option<Duration> {
    us(if (now.as_nanos() / 2_000_000_000).is_multiple_of(2) {
        100
    } else {
        750
    })
}

/// Returns the lowest rate of any round trip after a step, as a share of the rate under credit. The
/// first `skipped` round trips after the step do not count.
fn lowest_after_step(world: &World, rtt_ms: u64, step_s: u64, skipped: u64) -> f64 {
    let service_us = if (step_s / 2).is_multiple_of(2) {
        100.0
    } else {
        750.0
    };
    let rate = |trip: u64| {
        let from = step_s * 1000 + trip * rtt_ms;
        world.rate(at_ms(from), at_ms(from + rtt_ms)) / by_credit(service_us, BUFFER, rtt_ms)
    };
    (skipped..2000 / rtt_ms)
        .map(rate)
        .fold(f64::INFINITY, f64::min)
}

#[test]
fn following_tracks_a_square_wave_within_two_round_trips() {
    for mbit_per_s in [1000, 200] {
        let mut world = World::new(FOLLOWING, mbit_per_s, 10, BUFFER, square);
        world.run_until(at_ms(12_000));
        for step_s in [2, 4, 6, 8, 10] {
            let lowest = lowest_after_step(&world, 10, step_s, 2);
            let case = format!("{mbit_per_s} Mbit/s, step at {step_s} s");
            assert!(lowest >= 0.9, "{case}: {lowest}");
        }
    }
}

/// The frames of a window arrive in a burst. On a fast link, the whole burst passes before the
/// application is found to be slower. It overflows the buffer one round trip later, and the loss
/// costs part of another.
#[test]
fn with_a_buffer_below_two_bandwidth_delay_products_the_rate_dips_only_on_fast_links() {
    for (mbit_per_s, least) in [(1000, 0.7), (200, 0.9), (100, 0.9)] {
        let mut world = World::new(FOLLOWING, mbit_per_s, 100, BUFFER, square);
        world.run_until(at_ms(12_000));
        for step_s in [2, 4, 6, 8, 10] {
            let lowest = lowest_after_step(&world, 100, step_s, 2);
            let service_us = if (step_s / 2).is_multiple_of(2) {
                100.0
            } else {
                750.0
            };
            let rate = world.rate(at_ms(step_s * 1000 + 200), at_ms(step_s * 1000 + 2000));
            let mean = rate / by_credit(service_us, BUFFER, 100);
            let case = format!("{mbit_per_s} Mbit/s, step at {step_s} s");
            assert!(lowest >= least && mean >= 0.95, "{case}: {lowest}, {mean}");
        }
        assert!(mbit_per_s > 100 || world.drops == 0, "{}", world.drops);
    }
}

#[test]
fn probing_needs_tens_of_round_trips_for_a_faster_application() {
    let mut world = World::new(PROBING, 200, 10, BUFFER, square);
    world.run_until(at_ms(12_000));
    let soon = lowest_after_step(&world, 10, 4, 2);
    let late = world.rate(at_ms(5500), at_ms(6000)) / 10_000.0;
    assert!(soon < 0.5 && late > 0.9, "{soon}, {late}");
}

#[test]
fn probing_settles_near_the_drain_rate_without_a_drop() {
    let mut world = World::new(PROBING, 200, 10, BUFFER, |_| us(400));
    world.run_until(at_ms(20_000));
    let share = world.rate(at_ms(5_000), at_ms(20_000)) / 2500.0;
    assert!(share >= 0.9, "{share}");
    assert_eq!(world.drops, 0);
}

#[test]
fn a_stopped_application_loses_a_frame_per_round_trip_and_resumes_at_once() {
    let pause: Service = |now| match (at_ms(2000)..at_ms(3000)).contains(&now) {
        true => None,
        false => us(200),
    };
    for rtt_ms in [10, 100] {
        let mut world = World::new(FOLLOWING, 200, rtt_ms, BUFFER, pause);
        world.run_until(at_ms(4000));
        let after = world.rate(at_ms(3000 + 2 * rtt_ms), at_ms(4000));
        assert!(after >= 0.9 * by_credit(200.0, BUFFER, rtt_ms), "{after}");
        let probes = 1000 / rtt_ms as u32;
        assert!(world.drops <= probes + 20, "{}", world.drops);
    }
}

#[test]
fn service_times_that_vary_are_averaged() {
    // Service times from 0 to 400 us, by a hash of the time.
    let varying: Service = |now| us(now.as_nanos().wrapping_mul(0x9E37_79B9_7F4A_7C15) % 401);
    let mut world = World::new(FOLLOWING, 200, 10, BUFFER, varying);
    world.run_until(at_ms(20_000));
    let rate = world.rate(Time::ZERO, at_ms(20_000));
    assert!((4750.0..5250.0).contains(&rate), "{rate}");
    assert!(world.drops <= 20, "{}", world.drops);
}

#[test]
fn a_header_without_a_round_trip_time_gets_no_feedback() {
    for config in [FOLLOWING, PROBING] {
        let mut congestion = Congestion {
            cwnd: 2048,
            rtt_us: 0,
            feedback: WindowChange::MAX,
            answered: false,
        };
        let mut flow = SoftFlow::new(config, BUFFER, FRAME);
        flow.on_arrival(at_ms(1), &mut congestion, FRAME, 0, true);
        assert_eq!(congestion.feedback, WindowChange(0));
    }
}
