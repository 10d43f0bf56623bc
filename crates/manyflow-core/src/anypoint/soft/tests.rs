//! Tests of soft flow control, by an ideal sender, a delay, and an application that works on each frame for a while.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BinaryHeap;

use super::*;

const FRAME: u32 = 1024;
const BUFFER: u32 = 200 * FRAME;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Arrival { cwnd: u32, feedback: i32 },
    Ack { feedback: i32 },
    Lost,
    Ready,
}

/// How long the application works on a frame that it reads at some time; `None`: it reads nothing.
type Service = fn(Time) -> Option<Duration>;

struct World {
    flow: SoftFlow,
    rtt: Duration,
    buffer: u32,
    service: Service,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, What)>>,
    numbered: u64,
    wire_bytes: u32,
    // The sender.
    cwnd: f64,
    pipe: u32,
    halved: Time,
    link_free: Time,
    frame_time: Duration,
    // The receiver.
    occupied: u32,
    is_working: bool,
    drops: u32,
    reads: Vec<Time>,
}

impl World {
    fn new(config: SoftConfig, rtt_ms: u64, buffer: u32, service: Service) -> World {
        let wire_bytes = FRAME + header_bytes();
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
            frame_time: Duration::from_nanos(std::env::var("FT").unwrap().parse().unwrap()),
            occupied: 0,
            is_working: false,
            drops: 0,
            reads: Vec::new(),
        };
        world.fill();
        world
    }

    fn schedule(&mut self, after: Duration, what: What) {
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
                What::Arrival { cwnd, feedback } => self.arrive(cwnd, feedback),
                What::Ack { feedback } => {
                    self.cwnd += Feedback(feedback).bytes();
                    self.cwnd = self.cwnd.max(self.wire_bytes.into()).min(self.most());
                    self.pipe -= self.wire_bytes;
                    self.fill();
                }
                What::Lost => {
                    self.pipe -= self.wire_bytes;
                    if self.now >= self.halved + self.rtt {
                        self.halved = self.now;
                        self.cwnd = (0.5 * self.cwnd).max(self.wire_bytes.into());
                    }
                    self.fill();
                }
                What::Ready => {
                    self.is_working = false;
                    self.read();
                }
            }
        }
        self.now = end;
    }

    /// The send buffer.
    fn most(&self) -> f64 {
        f64::from(BUFFER / FRAME) * f64::from(self.wire_bytes)
    }

    fn fill(&mut self) {
        while f64::from(self.pipe + self.wire_bytes) <= self.cwnd {
            self.pipe += self.wire_bytes;
            let wanted = (self.most() - self.cwnd) / (self.cwnd / f64::from(self.wire_bytes));
            let arrival = What::Arrival {
                cwnd: self.cwnd as u32,
                feedback: Feedback::from_bytes(wanted).0,
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
            feedback: Feedback(feedback),
        };
        if self.occupied + FRAME > self.buffer {
            self.drops += 1;
            if std::env::var("DROPS").is_ok() { println!("drop at {} occ {} cwnd {}", self.now, self.occupied/FRAME, cwnd/1080); }
            self.flow.on_overflow(self.now);
            self.schedule(self.rtt / 2, What::Lost);
            return;
        }
        self.flow
            .on_arrival(self.now, &mut congestion, self.wire_bytes, self.occupied);
        self.occupied += FRAME;
        let feedback = congestion.feedback.0;
        self.schedule(self.rtt / 2, What::Ack { feedback });
        self.read();
    }

    fn read(&mut self) {
        if self.is_working || self.occupied == 0 {
            return;
        }
        let Some(service) = (self.service)(self.now) else {
            self.is_working = true;
            self.schedule(Duration::from_millis(1), What::Ready);
            return;
        };
        self.occupied -= FRAME;
        self.reads.push(self.now);
        self.flow.on_read(self.now, FRAME, self.occupied);
        self.is_working = true;
        self.schedule(service, What::Ready);
    }

    /// Frames per second that the application read.
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

#[test]
fn explore() {
    for follow_drain in [false, true] {
        let config = SoftConfig {
            follow_drain,
            ..SoftConfig::default()
        };
        for rtt in [10, 100] {
            for (service, of) in SERVICES {
                let mut world = World::new(config, rtt, BUFFER, of);
                world.run_until(at_ms(20_000));
                let credit = (1e6 / service).min(200_000.0 / rtt as f64);
                let rate = world.rate(Time::ZERO, at_ms(20_000));
                println!("follow {follow_drain} rtt {rtt} service {service} share {:.3} drops {} q {}", rate / credit, world.drops, world.occupied / FRAME);
            }
        }
        for rtt in [10, 100] {
            for frames in [10_u32, 25, 50, 100, 200, 400] {
                let mut world = World::new(config, rtt, frames * FRAME, |_| us(200));
                world.run_until(at_ms(20_000));
                let credit = 5000_f64.min(f64::from(frames) * 1000.0 / rtt as f64);
                let rate = world.rate(Time::ZERO, at_ms(20_000));
                println!("follow {follow_drain} rtt {rtt} buffer {frames} share {:.3} drops {}", rate / credit, world.drops);
            }
        }
        for rtt in [10, 100] {
            let square: Service = |now| us(if now.as_nanos() / 2_000_000_000 % 2 == 0 { 100 } else { 750 });
            let mut world = World::new(config, rtt, BUFFER, square);
            world.run_until(at_ms(12_000));
            for start in [2000, 4000, 6000, 8000] {
                let rates: Vec<i64> = (0..12).map(|k| world.rate(at_ms(start + k * rtt), at_ms(start + (k + 1) * rtt)) as i64).collect();
                println!("follow {follow_drain} rtt {rtt} at {start}: {rates:?} drops {}", world.drops);
            }
        }
    }
}
