//! Tests of the receiver against hand-made data.

use manyflow_core::{Ecn, Header};
use proptest::prelude::*;

use super::*;
use crate::header::{Data, Echo};
use crate::number::{RateCode, RttCode, Stamp};

const ME: ReceiverId = ReceiverId(7);
const OTHER: ReceiverId = ReceiverId(8);
const SENDER: EndpointId = EndpointId(0);
const RTT_MAX: Duration = Duration::from_millis(100);
const ROUND: Duration = Duration::from_millis(600);
/// The way from the sender.
const DELAY: Duration = Duration::from_millis(20);
const SPACING: Duration = Duration::from_millis(10);

/// A receiver that gets a packet of 1000 bytes each [`SPACING`].
struct Bench {
    now: Time,
    receiver: Receiver,
    data: Data,
    reports: Vec<(Time, Feedback)>,
    events: Vec<Event>,
    is_joined: bool,
}

impl Bench {
    fn new() -> Bench {
        let config = ReceiverConfig::default();
        let receiver = Receiver::new(config, 1, ME, SENDER, 5, Time::ZERO, None).unwrap();
        let mut bench = Bench {
            now: Time::from_secs_f64(1.0),
            receiver,
            data: Data {
                sequence: 0,
                sent: Stamp::at(Time::ZERO),
                round: 0,
                rtt_max: RttCode::covering(RTT_MAX),
                suppression: RateCode::HIGHEST,
                echo: None,
            },
            reports: Vec::new(),
            events: Vec::new(),
            is_joined: false,
        };
        bench.wait(Duration::ZERO);
        assert!(bench.is_joined);
        bench
    }

    /// A receiver that has measured 60 ms; whether it is the limiting one.
    fn measured(is_clr: bool) -> Bench {
        let mut bench = Bench::new();
        bench.packets(20);
        bench.answer(ME, is_clr);
        bench
    }

    /// Lets time pass without data.
    fn wait(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.drain();
            let next = self.receiver.poll_timeout().map(|next| next.max(self.now));
            let Some(next) = next.filter(|next| *next <= end) else {
                break;
            };
            self.now = next;
            self.receiver.handle_timeout(next);
        }
        self.now = end;
    }

    fn drain(&mut self) {
        while let Some(action) = self.receiver.poll_action(self.now) {
            match action {
                Action::Send(packet) => {
                    assert_eq!(packet.destination, Destination::Endpoint(SENDER));
                    let Message::Feedback(feedback) = packet.header else {
                        panic!("{packet:?}");
                    };
                    self.reports.push((self.now, feedback));
                }
                Action::Join(_) => self.is_joined = true,
                Action::Leave(_) => self.is_joined = false,
            }
        }
        while let Some(event) = self.receiver.poll_event() {
            self.events.push(event);
        }
    }

    /// Delivers the next packet.
    fn packet(&mut self, ecn: Ecn) {
        self.data.sequence = self.data.sequence.wrapping_add(1);
        let sent_nanos = self.now.as_nanos() - DELAY.as_nanos() as u64;
        self.data.sent = Stamp::at(Time::from_nanos(sent_nanos));
        self.deliver(self.data, ecn);
        self.data.echo = None;
    }

    fn deliver(&mut self, data: Data, ecn: Ecn) {
        let header = Message::Data(data);
        let to = Destination::Channel(crate::channel(1));
        let payload = 1000 - header.wire_bytes();
        let packet = Packet::new(to, header, payload).with_ecn(ecn);
        self.receiver.handle_packet(self.now, &packet);
        self.drain();
    }

    fn packets(&mut self, count: u32) {
        for _ in 0..count {
            self.wait(SPACING);
            self.packet(Ecn::NotCapable);
        }
    }

    /// Delivers a packet that echoes a report of 60 ms ago.
    fn answer(&mut self, receiver: ReceiverId, is_clr: bool) {
        self.wait(SPACING);
        self.data.echo = Some(Echo {
            receiver,
            sent: Stamp::at(Time::from_nanos(self.now.as_nanos() - 60_000_000)),
            is_clr,
        });
        self.packet(Ecn::NotCapable);
    }

    fn next_round(&mut self) {
        self.data.round = self.data.round.wrapping_add(1);
    }

    fn suppress_above(&mut self, packets_per_s: f64) {
        self.data.suppression = RateCode::nearest(packets_per_s * 8000.0);
    }

    /// Loses every `interval`th packet, `events` times.
    fn losses(&mut self, events: u32, interval: u32) {
        for _ in 0..events {
            self.data.sequence += 1;
            self.packets(interval - 1);
        }
        self.packets(3);
    }

    fn suppressed(&self) -> usize {
        let is_suppressed = |event: &&Event| **event == Event::FeedbackSuppressed;
        self.events.iter().filter(is_suppressed).count()
    }
}

#[test]
fn a_receiver_reports_once_within_a_round_what_it_has_measured() {
    let mut bench = Bench::new();
    bench.packets(61);
    assert_eq!(bench.reports.len(), 1);
    let (at, report) = bench.reports[0];
    assert!(at <= Time::from_secs_f64(1.01) + ROUND);
    assert!(!report.have_rtt && !report.have_loss && !report.leaving);
    let asked = report.rate.bits_per_s() / (2.0 * 800_000.0);
    assert!((asked - 1.0).abs() < 0.005, "{asked} of twice what arrives");
    // The way of the last packet; the time for which the report was held does not count.
    let echoed = Stamp::at(at).since(report.echo).unwrap();
    assert!(
        echoed >= DELAY && echoed <= DELAY + Duration::from_micros(2),
        "{echoed:?}"
    );
}

#[test]
fn nothing_is_reported_before_there_is_a_rate() {
    let mut bench = Bench::new();
    bench.packets(1);
    bench.wait(RTT_MAX);
    assert!(
        bench.reports.is_empty() && bench.receiver.status().is_some_and(|s| s.desired.is_none())
    );
}

#[test]
fn the_limiting_receiver_reports_once_in_a_round_trip_while_data_comes() {
    let mut bench = Bench::measured(true);
    bench.reports.clear();
    bench.packets(60);
    let spans: Vec<_> = bench
        .reports
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0)
        .collect();
    assert_eq!(bench.reports.len(), 10);
    assert!(
        spans.iter().all(|span| *span == Duration::from_millis(60)),
        "{spans:?}"
    );
    assert!(bench.reports.iter().all(|(_, report)| report.have_rtt));
    bench.wait(Duration::from_secs(100));
    assert!(bench.reports.len() <= 11, "it falls silent without data");
}

#[test]
fn a_receiver_stops_to_limit_when_the_sender_names_another() {
    let mut bench = Bench::measured(true);
    bench.answer(OTHER, false);
    assert!(bench.receiver.status().is_some_and(|status| status.is_clr));
    bench.answer(OTHER, true);
    bench.reports.clear();
    bench.packets(30);
    assert!(bench.reports.is_empty());
    bench.answer(ME, true);
    bench.answer(ME, false);
    assert!(bench.receiver.status().is_some_and(|status| !status.is_clr));
}

#[test]
fn a_known_lower_rate_suppresses_and_a_higher_one_does_not() {
    for (limit, reports) in [(199.0, 0), (202.0, 1)] {
        let mut bench = Bench::measured(false);
        bench.next_round();
        bench.packets(1);
        bench.reports.clear();
        bench.suppress_above(limit);
        bench.packets(70);
        assert_eq!(bench.reports.len(), reports, "200 against {limit}");
        assert_eq!(bench.suppressed(), 1 - reports);
    }
}

#[test]
fn a_round_trip_above_the_maximum_is_reported_whatever_the_rate() {
    let mut bench = Bench::measured(false);
    bench.data.rtt_max = RttCode::covering(Duration::from_millis(50));
    bench.next_round();
    bench.suppress_above(1.0);
    bench.reports.clear();
    bench.packets(40);
    assert_eq!((bench.reports.len(), bench.suppressed()), (1, 0));
}

#[test]
fn a_rate_that_falls_within_the_round_is_suppressed_by_what_it_was() {
    let mut bench = Bench::measured(false);
    bench.next_round();
    bench.packets(1);
    bench.reports.clear();
    bench.losses(1, 5);
    let desired = bench.receiver.status().and_then(|status| status.desired);
    let desired = desired.map_or(0.0, |rate| rate.packets_per_s(1000));
    assert!(desired < 150.0, "{desired}");
    bench.suppress_above(180.0);
    bench.packets(60);
    assert_eq!((bench.reports.len(), bench.suppressed()), (0, 1));
}

#[test]
fn a_new_round_cancels_the_report_of_the_old_one() {
    let mut bench = Bench::measured(false);
    for _ in 0..20 {
        bench.next_round();
        bench.reports.clear();
        // Half a round: 1 % of the timers have expired.
        bench.packets(30);
        assert!(bench.reports.len() <= 1);
        assert!(
            bench
                .reports
                .iter()
                .all(|(_, report)| report.round == bench.data.round)
        );
    }
    bench.packets(40);
    let rounds: Vec<u8> = bench
        .reports
        .iter()
        .map(|(_, report)| report.round)
        .collect();
    assert_eq!(rounds, [bench.data.round]);
}

#[test]
fn an_old_packet_does_not_begin_a_round() {
    let mut bench = Bench::measured(false);
    let old = bench.data;
    bench.next_round();
    bench.packets(70);
    let reports = bench.reports.len();
    bench.deliver(old, Ecn::NotCapable);
    bench.packets(70);
    assert_eq!(bench.reports.len(), reports);
}

#[test]
fn without_data_no_report_comes_and_the_timer_goes_on_afterwards() {
    let mut bench = Bench::measured(false);
    bench.next_round();
    bench.packets(1);
    bench.reports.clear();
    bench.wait(Duration::from_secs(60));
    assert!(bench.reports.is_empty());
    bench.packets(10);
    assert!(bench.reports.is_empty());
    bench.packets(60);
    assert_eq!(bench.reports.len(), 1);
}

#[test]
fn the_first_loss_asks_for_about_the_rate_received_and_is_told() {
    let mut bench = Bench::measured(true);
    bench.reports.clear();
    bench.losses(1, 20);
    let (_, report) = bench.reports.last().unwrap();
    assert!(report.have_loss);
    // l_0 follows from an equation without timeouts: the full equation gives less.
    let asked = report.rate.bits_per_s() / 800_000.0;
    assert!((0.5..1.0).contains(&asked), "{asked} of what arrives");
    let event = bench
        .events
        .iter()
        .find(|event| matches!(event, Event::LossEvent { .. }));
    assert!(event.is_some());
}

#[test]
fn a_marked_packet_counts_as_lost() {
    let mut bench = Bench::measured(true);
    bench.wait(SPACING);
    bench.packet(Ecn::Marked);
    let status = bench.receiver.status().unwrap();
    assert!(status.loss_event_rate.is_some());
}

#[test]
fn after_a_long_silence_the_receiver_asks_for_twice_what_it_gets() {
    let mut bench = Bench::measured(true);
    bench.losses(3, 10);
    bench.packets(10);
    assert!(bench.reports.last().unwrap().1.have_loss);
    bench.wait(Duration::from_millis(1100));
    bench.reports.clear();
    bench.packets(30);
    let (_, report) = bench.reports.last().unwrap();
    assert!(!report.have_loss);
    assert!((report.rate.bits_per_s() / 1_600_000.0 - 1.0).abs() < 0.005);
    bench.losses(1, 10);
    bench.packets(10);
    assert!(bench.reports.last().unwrap().1.have_loss);
}

#[test]
fn the_limiting_receiver_announces_its_leave_until_another_is_named() {
    let mut bench = Bench::measured(true);
    bench.packets(10);
    bench.reports.clear();
    bench.receiver.leave(bench.now);
    bench.drain();
    assert_eq!(bench.reports.len(), 1);
    bench.packets(20);
    assert!(bench.is_joined);
    assert!(bench.reports.len() >= 3 && bench.reports.iter().all(|(_, report)| report.leaving));
    bench.answer(ME, false);
    assert!(!bench.is_joined);
    assert_eq!(bench.receiver.poll_timeout(), None);
}

#[test]
fn the_limiting_receiver_leaves_after_a_round_in_any_case() {
    let mut bench = Bench::measured(true);
    bench.receiver.leave(bench.now);
    bench.wait(ROUND - Duration::from_millis(1));
    assert!(bench.is_joined);
    bench.wait(Duration::from_millis(1));
    assert!(!bench.is_joined);
}

#[test]
fn a_receiver_that_has_not_reported_leaves_at_once_and_silently() {
    let mut bench = Bench::new();
    bench.packets(5);
    bench.receiver.leave(bench.now);
    bench.drain();
    assert!(!bench.is_joined && bench.reports.is_empty());
    bench.receiver.leave(bench.now);
    bench.packets(5);
    bench.drain();
    assert!(bench.reports.is_empty());
}

#[test]
fn a_receiver_below_the_lowest_rate_leaves_after_two_minutes() {
    let mut bench = Bench::measured(true);
    bench.data.rtt_max = RttCode::covering(Duration::from_secs(3));
    // Every second packet is lost and the way takes 2.5 s: the equation gives a packet per minute.
    let began = bench.now;
    while bench.is_joined && bench.now - began < Duration::from_secs(300) {
        bench.wait(Duration::from_secs(4));
        bench.data.sequence += 2;
        if bench.data.sequence % 8 < 2 {
            bench.next_round();
        }
        let sent = Time::from_nanos(bench.now.as_nanos() - 2_500_000_000);
        bench.data.sent = Stamp::at(sent);
        bench.deliver(bench.data, Ecn::NotCapable);
    }
    let stayed = bench.now - began;
    assert!((120..200).contains(&stayed.as_secs()), "{stayed:?}");
    let (_, last) = bench.reports.last().unwrap();
    assert!(
        last.leaving && last.rate == RateCode::nearest(1000.0),
        "{last:?}"
    );
}

#[test]
fn a_spurious_timeout_does_nothing() {
    let mut bench = Bench::measured(false);
    bench.next_round();
    bench.packets(1);
    let before = format!("{:?}", bench.receiver);
    for _ in 0..5 {
        bench.now += Duration::from_millis(1);
        bench.receiver.handle_timeout(bench.now);
        bench.drain();
    }
    assert_eq!(format!("{:?}", bench.receiver), before);
}

#[test]
fn a_receiver_takes_little_memory() {
    let bytes = size_of::<Receiver>() + size_of::<Running>();
    println!("{bytes} bytes");
    assert!(bytes <= 1024, "{bytes}");
}

fn any_data() -> impl Strategy<Value = (u32, bool, Data)> {
    let step = prop_oneof![8 => 0..4u32, 1 => any::<u32>()];
    let stamp = prop_oneof![any::<u32>(), 0..200_000u32];
    let numbers = (0..300u32, any::<bool>(), any::<u8>(), 0..4u8, 0..4096u16);
    let echo = prop::option::of((6..9u32, 0..200_000u32, any::<bool>()));
    (step, stamp, numbers, echo).prop_map(|(step, sent, numbers, echo)| {
        let (wait_ms, is_marked, rtt_max, round, suppression) = numbers;
        let data = Data {
            // The caller makes times and numbers out of these differences.
            sequence: step,
            sent: Stamp::from_bits(sent),
            round,
            rtt_max: RttCode::from_bits(rtt_max),
            suppression: RateCode::from_bits(suppression),
            echo: echo.map(|(receiver, age, is_clr)| Echo {
                receiver: ReceiverId(receiver),
                sent: Stamp::from_bits(age),
                is_clr,
            }),
        };
        (wait_ms, is_marked, data)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_arrives_reports_are_rare_and_timers_lie_ahead(
        steps in prop::collection::vec(any_data(), 1..200),
    ) {
        let mut bench = Bench::new();
        let mut sequence = 0u32;
        for (wait_ms, is_marked, data) in steps {
            bench.wait(Duration::from_millis(wait_ms.into()));
            sequence = sequence.wrapping_add(data.sequence);
            let ago = |stamp: Stamp| {
                Stamp::from_bits(Stamp::at(bench.now).bits().wrapping_sub(stamp.bits()))
            };
            let data = Data {
                sequence,
                sent: ago(data.sent),
                echo: data.echo.map(|echo| Echo { sent: ago(echo.sent), ..echo }),
                ..data
            };
            let before = bench.reports.len();
            bench.deliver(data, if is_marked { Ecn::Marked } else { Ecn::Capable });
            prop_assert!(bench.reports.len() <= before + 1);
            prop_assert!(bench.receiver.poll_timeout().is_none_or(|next| next > bench.now));
            if let Some(status) = bench.receiver.status() {
                prop_assert!(status.loss_event_rate.is_none_or(|p| p > 0.0 && p <= 1.0));
                prop_assert!(status.rtt.is_none_or(|rtt| rtt >= Duration::from_millis(1)));
            }
        }
        // The limiting receiver reports at most once per millisecond, its shortest round-trip time.
        let close = bench.reports.windows(2).filter(|pair| pair[1].0 - pair[0].0 < Duration::from_millis(1));
        prop_assert!(close.count() <= bench.reports.len() / 2);
    }
}
