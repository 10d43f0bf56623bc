//! The number of reports in a round of many receivers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use crate::world::{receiver, sender};
use manyflow_core::{Action, Endpoint, Packet, Rate, Time};
use manyflow_tfmcc::{Event, Message, Receiver, Sender, SenderConfig};

const DELAY: Duration = Duration::from_millis(50);
/// N, and the number of receivers.
const RECEIVERS: u32 = 10_000;
/// The sending rate, in packets per second.
const PACKETS_PER_S: u32 = 20;

/// Packets on their way, with the times of their arrival.
type Way = VecDeque<(Time, Packet<Message>)>;

fn pop_due(way: &mut Way, now: Time) -> Option<Packet<Message>> {
    let is_due = way.front().is_some_and(|(arrives, _)| *arrives <= now);
    let first = if is_due { way.pop_front() } else { None };
    first.map(|(_, packet)| packet)
}

/// Receivers that get the same packets at the same times, so that their states are the same.
struct Crowd {
    now: Time,
    sender: Sender,
    receivers: Vec<Receiver>,
    /// Timeouts of receivers, including cancelled ones.
    timers: BinaryHeap<Reverse<(Time, usize)>>,
    down: Way,
    up: Way,
    events: Vec<(Time, Event)>,
    suppressed: u64,
}

impl Crowd {
    fn new(sender: Sender) -> Crowd {
        let receivers = (0..RECEIVERS).map(|number| receiver(number, Duration::ZERO, None));
        let mut crowd = Crowd {
            now: Time::ZERO,
            sender,
            receivers: receivers.collect(),
            timers: BinaryHeap::new(),
            down: VecDeque::new(),
            up: VecDeque::new(),
            events: Vec::new(),
            suppressed: 0,
        };
        (0..crowd.receivers.len()).for_each(|place| crowd.serve(place, None));
        crowd
    }

    fn run_until(&mut self, end: Time) {
        loop {
            self.drain_sender();
            let times = [
                self.sender.poll_timeout(),
                self.timers.peek().map(|Reverse((due, _))| *due),
                self.down.front().map(|(arrives, _)| *arrives),
                self.up.front().map(|(arrives, _)| *arrives),
            ];
            match times.into_iter().flatten().min() {
                Some(next) if next <= end => self.now = self.now.max(next),
                _ => return,
            }
            self.step();
        }
    }

    fn step(&mut self) {
        let now = self.now;
        while let Some(packet) = pop_due(&mut self.down, now) {
            (0..self.receivers.len()).for_each(|place| self.serve(place, Some(&packet)));
        }
        while let Some(&Reverse((due, place))) = self.timers.peek()
            && due <= now
        {
            self.timers.pop();
            self.serve(place, None);
        }
        while let Some(packet) = pop_due(&mut self.up, now) {
            self.sender.handle_packet(now, &packet);
        }
        self.sender.handle_timeout(now);
    }

    fn serve(&mut self, place: usize, packet: Option<&Packet<Message>>) {
        let (now, receiver) = (self.now, &mut self.receivers[place]);
        let before = receiver.poll_timeout();
        match packet {
            Some(packet) => receiver.handle_packet(now, packet),
            None => receiver.handle_timeout(now),
        }
        while let Some(action) = receiver.poll_action(now) {
            if let Action::Send(packet) = action {
                self.up.push_back((now + DELAY, packet));
            }
        }
        while let Some(event) = receiver.poll_event() {
            self.suppressed += u64::from(event == Event::FeedbackSuppressed);
        }
        let after = receiver.poll_timeout();
        if let Some(due) = after.filter(|_| after != before || packet.is_none()) {
            self.timers.push(Reverse((due, place)));
        }
    }

    fn drain_sender(&mut self) {
        while let Some(Action::Send(packet)) = self.sender.poll_action(self.now) {
            self.down.push_back((self.now + DELAY, packet));
        }
        while let Some(event) = self.sender.poll_event() {
            self.events.push((self.now, event));
        }
    }

    /// The reports of each round that ended after `since`, without those of the limiting receiver.
    fn reports(&self, since: Time) -> Vec<u32> {
        let late = self.events.iter().filter(|(at, _)| *at > since);
        let reports = late.filter_map(|(_, event)| match event {
            Event::RoundEnded { reports, .. } => Some(*reports),
            _ => None,
        });
        reports.collect()
    }
}

/// The expected number of reports in a round of n = N receivers with the same state. A timer
/// expires by t with probability F(t) = N^(t/T - 1), and suppresses the others a time `tau` later.
/// So a receiver reports at t if no timer has expired before t - tau:
///
/// `E = n F(tau) + n * integral from tau to T of (1 - F(t - tau))^(n-1) dF(t)`
///
/// `  = n N^(tau/T - 1) + N^(tau/T) ((1 - 1/N)^n - (1 - N^(-tau/T))^n)`
///
/// The timers are those of Widmer and Fuhrmann, "Extremum Feedback for Very Large Multicast Groups"
/// (NGC 2001).
fn expected_reports(tau: Duration, round: Duration) -> f64 {
    let n = f64::from(RECEIVERS);
    let factor = libm::pow(n, tau.as_secs_f64() / round.as_secs_f64());
    let none = |share: f64| libm::pow(1.0 - share, n);
    factor + factor * (none(1.0 / n) - none(1.0 / factor))
}

#[test]
fn of_ten_thousand_receivers_in_the_same_state_a_handful_reports_in_a_round() {
    let rate = Rate::from_packets_per_s(f64::from(PACKETS_PER_S), 1000);
    let mut config = SenderConfig::default();
    config.maximum_rate = Some(rate);
    config.initial_rtt_max = 2 * DELAY;
    let mut crowd = Crowd::new(sender(config));
    crowd.run_until(Time::from_secs_f64(30.0));
    let reports = crowd.reports(Time::from_secs_f64(5.0));
    let mean = f64::from(reports.iter().sum::<u32>()) / reports.len() as f64;
    let most = reports.iter().copied().max().unwrap_or(0);
    // A report is answered after its way, half a packet spacing on average, and the way back.
    let tau = 2 * DELAY + Duration::from_secs(1) / (2 * PACKETS_PER_S);
    let expected = expected_reports(tau, 6 * Duration::from_millis(104));
    println!(
        "{} rounds: {mean:.1} reports on average, {most} at most, {expected:.1} expected; {} suppressed",
        reports.len(),
        crowd.suppressed
    );
    assert!(reports.len() >= 35);
    assert!(
        (0.6..1.6).contains(&(mean / expected)),
        "{mean}, {expected}"
    );
    assert!(f64::from(most) < 5.0 * expected, "{most}, {expected}");
    assert!(reports.iter().all(|reports| *reports > 0), "{reports:?}");
    let all = crowd.reports(Time::ZERO);
    assert!(all.iter().all(|reports| *reports < 100), "{all:?}");
}
