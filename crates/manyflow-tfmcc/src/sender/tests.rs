//! Tests of the sender against hand-made feedback.

use manyflow_core::EndpointId;
use proptest::prelude::*;

use super::*;
use crate::number::RateCode;

const SENDER: EndpointId = EndpointId(0);
const RTT: Duration = Duration::from_millis(100);
/// One packet of 1000 bytes, in bits.
const PACKET: f64 = 8000.0;

/// A sender and the time.
struct Bench {
    now: Time,
    sender: Sender,
    data: Vec<Data>,
    events: Vec<Event>,
}

impl Bench {
    fn new(config: SenderConfig) -> Bench {
        Bench {
            now: Time::ZERO,
            sender: Sender::new(config, 1, Time::ZERO, None).unwrap(),
            data: Vec::new(),
            events: Vec::new(),
        }
    }

    /// A sender that has settled on the tests' round-trip time.
    fn settled() -> Bench {
        Bench::new(SenderConfig {
            initial_rtt_max: RTT,
            ..SenderConfig::default()
        })
    }

    fn run(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            self.drain();
            let Some(next) = self.sender.poll_timeout().filter(|next| *next <= end) else {
                break;
            };
            self.now = self.now.max(next);
            self.sender.handle_timeout(self.now);
        }
        self.now = end;
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(Action::Send(packet)) = self.sender.poll_action(self.now) {
            if let Message::Data(data) = packet.header {
                self.data.push(data);
            }
        }
        while let Some(event) = self.sender.poll_event() {
            self.events.push(event);
        }
    }

    /// The report of a receiver at a distance of [`RTT`] with this desired rate.
    fn feedback(&self, receiver: u32, packets_per_s: f64) -> Feedback {
        Feedback {
            receiver: ReceiverId(receiver),
            sent: Stamp::at(self.now),
            echo: stamp_before(self.now, RTT),
            round: self.sender.round.number(),
            rate: RateCode::nearest(packets_per_s * PACKET),
            have_rtt: true,
            have_loss: true,
            leaving: false,
        }
    }

    fn hear(&mut self, feedback: Feedback) {
        let to = Destination::Endpoint(SENDER);
        let message = Message::Feedback(feedback);
        let packet = Packet::new(to, message, 0);
        self.sender.handle_packet(self.now, &packet);
        self.drain();
    }

    /// The receiver reports once per round-trip time.
    fn report(&mut self, receiver: u32, packets_per_s: f64, reports: u32) {
        for _ in 0..reports {
            self.run(RTT);
            self.hear(self.feedback(receiver, packets_per_s));
        }
    }

    /// X in packets per second.
    fn rate(&self) -> f64 {
        self.sender.rate.at(self.now) / PACKET
    }

    fn clr(&self) -> Option<u32> {
        self.sender.limiting_receiver().map(|receiver| receiver.0)
    }
}

fn stamp_before(now: Time, span: Duration) -> Stamp {
    Stamp::from_bits(Stamp::at(now).bits().wrapping_sub(span.as_micros() as u32))
}

fn is_near(left: f64, right: f64) -> bool {
    (left / right - 1.0).abs() < 0.006
}

#[test]
fn a_session_starts_with_one_packet_in_a_maximum_round_trip() {
    let mut bench = Bench::new(SenderConfig::default());
    bench.run(Duration::from_secs(10));
    assert_eq!(bench.data.len(), 21);
    assert_eq!(bench.rate(), 2.0);
    assert!(bench.data.iter().all(|data| data.echo.is_none()));
}

#[test]
fn slowstart_follows_the_reports_and_ends_with_the_first_loss() {
    let mut bench = Bench::settled();
    for _ in 0..7 {
        bench.run(RTT);
        bench.hear(Feedback {
            have_loss: false,
            ..bench.feedback(1, 2.0 * bench.rate())
        });
    }
    bench.run(RTT);
    assert!(bench.sender.is_in_slowstart());
    assert!(bench.rate() > 500.0, "{}", bench.rate());
    bench.report(1, 200.0, 1);
    assert!(!bench.sender.is_in_slowstart());
    assert!(bench.events.contains(&Event::SlowstartEnded));
    assert!(is_near(bench.rate(), 200.0), "{}", bench.rate());
}

#[test]
fn the_rate_falls_at_once_and_rises_by_a_packet_in_a_round_trip() {
    let mut bench = Bench::settled();
    bench.report(1, 50.0, 40);
    let before = bench.rate();
    bench.report(1, 20.0, 1);
    assert!(
        is_near(bench.rate(), 20.0),
        "{before}, then {}",
        bench.rate()
    );
    bench.report(1, 1000.0, 10);
    // 10 packets per second in each of ten round-trip times.
    assert!(is_near(bench.rate(), 120.0), "{}", bench.rate());
}

#[test]
fn a_slower_receiver_takes_over_and_a_faster_one_does_not() {
    let mut bench = Bench::settled();
    bench.report(1, 50.0, 20);
    bench.report(2, 80.0, 1);
    assert_eq!(bench.clr(), Some(1));
    bench.report(3, 30.0, 1);
    assert_eq!(bench.clr(), Some(3));
    assert!(is_near(bench.rate(), 30.0));
    let told = bench.data.len();
    bench.run(RTT);
    let echo = bench.data[told].echo.unwrap();
    assert!(echo.receiver == ReceiverId(3) && echo.is_clr);
}

#[test]
fn the_successor_of_one_that_leaves_is_held_for_a_round_and_the_slowest_wins() {
    let mut bench = Bench::settled();
    bench.report(1, 20.0, 20);
    let before = bench.rate();
    bench.run(RTT);
    bench.hear(Feedback {
        leaving: true,
        ..bench.feedback(1, 20.0)
    });
    assert_eq!(bench.clr(), None);
    bench.run(RTT);
    bench.hear(bench.feedback(2, 200.0));
    bench.hear(bench.feedback(3, 100.0));
    bench.hear(bench.feedback(4, 150.0));
    assert_eq!(bench.clr(), Some(3));
    let held = bench.sender.round.span();
    bench.report(3, 100.0, 5);
    assert_eq!(bench.rate(), before, "held for {held:?}");
    bench.report(3, 100.0, 5);
    assert!(bench.rate() > before + 20.0, "{}", bench.rate());
}

#[test]
fn a_leaving_receiver_is_never_chosen() {
    let mut bench = Bench::settled();
    bench.report(1, 50.0, 10);
    bench.run(RTT);
    bench.hear(Feedback {
        leaving: true,
        ..bench.feedback(2, 1.0)
    });
    assert_eq!(bench.clr(), Some(1));
    assert!(bench.rate() > 45.0);
}

#[test]
fn a_silent_limiting_receiver_halves_the_rate_and_is_given_up() {
    let mut bench = Bench::settled();
    bench.report(1, 64.0, 30);
    bench.run(RTT * 39 / 10);
    assert!(is_near(bench.rate(), 64.0));
    bench.run(RTT / 5);
    assert!(is_near(bench.rate(), 32.0), "{}", bench.rate());
    bench.run(RTT * 58 / 10);
    assert_eq!(bench.clr(), Some(1));
    bench.run(RTT / 5);
    assert_eq!(bench.clr(), None);
    assert!(is_near(bench.rate(), 16.0), "{}", bench.rate());
    bench.run(Duration::from_secs(3600));
    assert!(is_near(bench.rate(), 1.0 / 8.0), "{}", bench.rate());
    assert!(bench.sender.rtt_max() >= SPACING_MAX);
}

#[test]
fn the_maximum_round_trip_is_raised_at_once_and_falls_by_a_tenth_a_round() {
    let mut bench = Bench::new(SenderConfig::default());
    bench.report(1, 50.0, 30);
    let before = bench.sender.rtt_max();
    bench.run(2 * bench.sender.round.span());
    bench.hear(bench.feedback(1, 50.0));
    bench.run(2 * bench.sender.round.span());
    let after = bench.sender.rtt_max();
    assert!(
        after < before && after >= before.mul_f64(0.8),
        "{before:?}, {after:?}"
    );
    let slow = Feedback {
        echo: stamp_before(bench.now, Duration::from_millis(700)),
        ..bench.feedback(2, 100.0)
    };
    bench.hear(slow);
    assert_eq!(bench.sender.rtt_max(), Duration::from_millis(700));
}

#[test]
fn reports_lower_the_suppression_rate_but_not_those_of_the_limiting_receiver() {
    let mut bench = Bench::settled();
    bench.report(1, 50.0, 3);
    // When it first reported, it was not the limiting receiver.
    bench.run(3 * bench.sender.round.span());
    bench.report(1, 50.0, 1);
    assert_eq!(bench.data.last().unwrap().suppression, RateCode::HIGHEST);
    bench.hear(bench.feedback(2, 100.0));
    bench.hear(bench.feedback(3, 200.0));
    bench.run(RTT);
    let suppression = bench.data.last().unwrap().suppression.bits_per_s() / PACKET;
    assert!(is_near(suppression, 90.0), "{suppression}");
}

#[test]
fn an_unmeasured_round_trip_is_corrected_for() {
    let mut bench = Bench::new(SenderConfig::default());
    bench.run(Duration::from_secs(1));
    // The receiver calculated with 512 ms, the code that covers 510 ms, instead of 100 ms.
    let first = Feedback {
        have_rtt: false,
        ..bench.feedback(1, 1.0)
    };
    bench.hear(first);
    assert_eq!(bench.clr(), Some(1));
    assert!(
        is_near(bench.rate(), 2.0),
        "5.12 is wanted: {}",
        bench.rate()
    );
    let event = bench.events.iter().find_map(|event| match event {
        Event::FeedbackReceived { rate, .. } => Some(rate.bits_per_s() as f64 / PACKET),
        _ => None,
    });
    assert!(is_near(event.unwrap(), 5.12), "{event:?}");
}

#[test]
fn a_spurious_timeout_does_nothing() {
    let mut bench = Bench::settled();
    bench.report(1, 50.0, 20);
    let (before, sent) = (format!("{:?}", bench.sender), bench.data.len());
    let next = bench.sender.poll_timeout().unwrap();
    while bench.now + Duration::from_millis(1) < next {
        bench.now += Duration::from_millis(1);
        bench.sender.handle_timeout(bench.now);
        bench.drain();
    }
    assert_eq!(format!("{:?}", bench.sender), before);
    assert_eq!(bench.data.len(), sent);
}

#[test]
fn a_paused_machine_does_not_catch_up_with_a_burst() {
    let mut bench = Bench::settled();
    bench.report(1, 5000.0, 200);
    let (rate, sent) = (bench.rate(), bench.data.len());
    bench.now += Duration::from_millis(150);
    bench.drain();
    let burst = (bench.data.len() - sent) as f64;
    assert!(
        rate > 1500.0 && burst < rate * 0.011 + 2.0,
        "{burst} at {rate}"
    );
}

#[test]
fn feedback_that_cannot_be_true_changes_nothing() {
    let mut bench = Bench::settled();
    bench.report(1, 50.0, 20);
    let before = bench.rate();
    let lies = [
        Feedback {
            round: bench.sender.round.number().wrapping_add(1),
            ..bench.feedback(1, 1.0)
        },
        Feedback {
            echo: Stamp::at(bench.now).plus(Duration::from_millis(1)),
            ..bench.feedback(2, 1.0)
        },
        Feedback {
            echo: stamp_before(bench.now, Duration::from_secs(3)),
            ..bench.feedback(3, 1.0)
        },
    ];
    let events = bench.events.len();
    lies.into_iter().for_each(|lie| bench.hear(lie));
    assert_eq!((bench.rate(), bench.clr()), (before, Some(1)));
    assert_eq!(bench.events.len(), events);
}

#[test]
fn absurd_rates_raise_nothing_while_an_honest_receiver_limits() {
    let mut bench = Bench::settled();
    bench.report(1, 50.0, 20);
    let before = bench.rate();
    for _ in 0..1000 {
        bench.run(Duration::from_millis(1));
        let absurd = Feedback {
            rate: RateCode::HIGHEST,
            ..bench.feedback(2, 0.0)
        };
        bench.hear(absurd);
        bench.hear(Feedback {
            have_loss: false,
            have_rtt: false,
            ..absurd
        });
    }
    assert!(bench.rate() <= before);
}

#[test]
fn a_flood_of_absurd_reports_is_worth_no_more_than_one_in_a_round_trip() {
    let mut bench = Bench::settled();
    bench.report(1, 50.0, 20);
    let before = bench.rate();
    for _ in 0..1000 {
        bench.run(Duration::from_millis(1));
        bench.hear(Feedback {
            rate: RateCode::HIGHEST,
            ..bench.feedback(1, 0.0)
        });
    }
    // 10 packets per second at once, and in each of ten round-trip times.
    assert!(
        bench.rate() <= before + 111.0,
        "{before}, then {}",
        bench.rate()
    );
}

#[test]
fn a_lone_liar_raises_the_rate_by_no_more_than_e_in_a_round_trip_up_to_the_maximum() {
    let mut bench = Bench::new(SenderConfig {
        initial_rtt_max: RTT,
        maximum_rate: Some(Rate::from_bits_per_s(80_000_000)),
        ..SenderConfig::default()
    });
    bench.run(RTT);
    for millisecond in 1..=2000 {
        bench.run(Duration::from_millis(1));
        bench.hear(Feedback {
            rate: RateCode::HIGHEST,
            have_loss: false,
            ..bench.feedback(1, 0.0)
        });
        let round_trips = f64::from(millisecond) / 100.0;
        let bound = 10.0 * (2.0 + round_trips) * libm::exp(round_trips);
        assert!(
            bench.rate() <= bound.min(10_000.0),
            "{millisecond} ms: {}",
            bench.rate()
        );
    }
}

fn any_feedback() -> impl Strategy<Value = (u32, Feedback)> {
    let numbers = (0..200u32, 0..6u32, any::<u32>(), 0..5u8, 0..4096u16);
    let echo = prop_oneof![any::<u32>(), 0..3_000_000u32];
    let flags = any::<(bool, bool, bool)>();
    (numbers, echo, flags).prop_map(|(numbers, age_us, (have_rtt, have_loss, leaving))| {
        let (wait_ms, receiver, sent, rounds, rate) = numbers;
        let feedback = Feedback {
            receiver: ReceiverId(receiver),
            sent: Stamp::from_bits(sent),
            // The caller makes a time and a round out of these differences.
            echo: Stamp::from_bits(age_us),
            round: rounds,
            rate: RateCode::from_bits(rate),
            have_rtt,
            have_loss,
            leaving,
        };
        (wait_ms, feedback)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_is_heard_the_rate_and_the_maximum_round_trip_stay_within_their_bounds(
        steps in prop::collection::vec(any_feedback(), 1..200),
    ) {
        let mut bench = Bench::new(SenderConfig {
            maximum_rate: Some(Rate::from_bits_per_s(1_000_000)),
            ..SenderConfig::default()
        });
        for (wait_ms, feedback) in steps {
            bench.run(Duration::from_millis(wait_ms.into()));
            let now = Stamp::at(bench.now).bits();
            bench.hear(Feedback {
                echo: Stamp::from_bits(now.wrapping_sub(feedback.echo.bits())),
                round: bench.sender.round.number().wrapping_sub(feedback.round),
                ..feedback
            });
            prop_assert!((0.125..=125.0).contains(&bench.rate()), "{}", bench.rate());
            prop_assert!((RTT_MIN..=RTT_LIMIT).contains(&bench.sender.rtt_max()));
            prop_assert!(bench.sender.poll_timeout().is_some_and(|next| next > bench.now));
        }
    }
}
