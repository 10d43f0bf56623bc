//! Tests that arbitrary segments at arbitrary times neither make a connection panic nor make it
//! hold more than its buffers.

use std::time::Duration;

use manyflow_anypoint::{
    Ack, AcpConfig, Body, Connection, Control, Data, FlowControl, Gap, Length, Payload, Reason,
    Segment,
};
use manyflow_core::Time;
use manyflow_core::xcp::{Congestion, Feedback, WindowChange};
use proptest::prelude::*;

const RECEIVE_BUFFER: u32 = 20_000;

/// Draws small numbers, which hit existing frames, and numbers near the limits.
fn any_number() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![
        4 => 0..40u32,
        1 => 65_500..65_600u32,
        1 => any::<u32>(),
        1 => u32::MAX - 3..=u32::MAX,
    ]
}

fn any_ack() -> impl Strategy<Value = Ack> {
    let gap = (any_number(), any_number()).prop_map(|(offset, frames)| Gap {
        offset: offset as u16,
        frames: frames as u16,
    });
    let missing = [gap.clone(), gap.clone(), gap];
    (
        any_number(),
        any_number(),
        any_number(),
        any::<(i32, bool, bool)>(),
        missing,
    )
        .prop_map(|(cumulative, of, credit, feedback, missing)| Ack {
            cumulative,
            of,
            credit,
            feedback: Feedback {
                change: WindowChange(feedback.0),
                answered: feedback.1,
                averaged: feedback.2,
            },
            missing,
        })
}

fn any_data() -> impl Strategy<Value = Data> {
    (any_number(), any::<[u32; 3]>(), any::<(i32, bool)>()).prop_map(
        |(sequence, [key, cwnd, rtt_us], (feedback, answered))| Data {
            sequence,
            key,
            congestion: Congestion {
                cwnd,
                rtt_us,
                feedback: WindowChange(feedback),
                answered,
            },
        },
    )
}

fn any_body() -> impl Strategy<Value = Body> {
    prop_oneof![
        1 => any_number().prop_map(|credit| Body::Open { credit }),
        1 => any_number().prop_map(|credit| Body::Accept { credit }),
        8 => any_data().prop_map(Body::Data),
        8 => any_ack().prop_map(Body::Ack),
        1 => any_number().prop_map(|sequence| Body::Close { sequence }),
        1 => prop_oneof![Just(Body::Probe), Just(Body::Alive)],
    ]
}

#[derive(Clone, Debug)]
enum Step {
    /// A segment, and the length of its payload.
    Arrives(Segment, u32),
    Passes(Duration),
    Sends(u32),
    Reads,
    Closes,
}

fn any_step() -> impl Strategy<Value = Step> {
    let other = prop_oneof![9 => Just(7), 1 => any::<u32>()];
    let length = prop_oneof![0..2_000u32, any::<u32>()];
    let arrives = (other, any_body(), length)
        .prop_map(|(connection, body, length)| Step::Arrives(Segment { connection, body }, length));
    prop_oneof![
        10 => arrives,
        3 => (0..3_000u64).prop_map(|ms| Step::Passes(Duration::from_millis(ms))),
        1 => any::<u64>().prop_map(|nanos| Step::Passes(Duration::from_nanos(nanos))),
        3 => (0..1_500u32).prop_map(Step::Sends),
        3 => Just(Step::Reads),
        1 => Just(Step::Closes),
    ]
}

fn any_config() -> impl Strategy<Value = AcpConfig> {
    (any::<bool>(), any::<bool>()).prop_map(|(is_soft, is_reno)| AcpConfig {
        control: if is_reno && !is_soft {
            Control::Reno
        } else {
            Control::Xcp
        },
        flow: if is_soft {
            AcpConfig::default().flow
        } else {
            FlowControl::Credit
        },
        send_buffer: 20_000,
        receive_buffer: RECEIVE_BUFFER,
        ..AcpConfig::default()
    })
}

/// Runs the steps. Returns how often a segment or a timer was handled.
fn run(mut connection: Connection<Length>, steps: &[Step]) -> Result<(), TestCaseError> {
    let mut now = Time::ZERO;
    let mut in_buffer = 0;
    for step in steps {
        match step {
            Step::Arrives(segment, length) => {
                connection.handle_segment(now, segment, Length(*length));
            }
            Step::Passes(span) => now += *span,
            Step::Sends(length) => drop(connection.send(0, Length(*length))),
            Step::Reads => drop(connection.receive(now)),
            Step::Closes => connection.close(),
        }
        connection.handle_timeout(now);
        let mut sent = 0;
        while connection.poll_transmit(now).is_some() {
            sent += 1;
        }
        prop_assert!(sent <= 20_000, "{sent} packets at once");
        while connection.poll_event().is_some() {}
        if let Some(wanted) = connection.poll_timeout() {
            prop_assert!(wanted > now || now == Time::MAX, "{wanted} at {now}");
        }
    }
    while let Some(frame) = connection.receive(now) {
        in_buffer += frame.payload.length();
    }
    prop_assert!(in_buffer <= RECEIVE_BUFFER, "{in_buffer} bytes");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn an_acceptor_survives_any_segments(config in any_config(), steps in prop::collection::vec(any_step(), 0..80)) {
        let mut connection = Connection::listen(config).unwrap();
        let open = Segment { connection: 7, body: Body::Open { credit: 50_000 } };
        connection.handle_segment(Time::ZERO, &open, Length(0));
        run(connection, &steps)?;
    }

    #[test]
    fn an_initiator_survives_any_segments(config in any_config(), steps in prop::collection::vec(any_step(), 0..80)) {
        let mut connection = Connection::connect(config, 7, Time::ZERO).unwrap();
        let accept = Segment { connection: 7, body: Body::Accept { credit: 50_000 } };
        connection.handle_segment(Time::ZERO, &accept, Length(0));
        run(connection, &steps)?;
    }

    #[test]
    fn segments_without_an_open_are_answered_only_by_resets(steps in prop::collection::vec(any_step(), 0..40)) {
        let mut connection = Connection::<Length>::listen(AcpConfig::default()).unwrap();
        for step in &steps {
            let Step::Arrives(segment, length) = step else { continue };
            if matches!(segment.body, Body::Open { .. }) { continue }
            connection.handle_segment(Time::ZERO, segment, Length(*length));
            let (answer, payload) = connection.poll_transmit(Time::ZERO).unwrap();
            prop_assert_eq!(answer.body, Body::Reset(Reason::Unknown));
            prop_assert_eq!((answer.connection, payload), (segment.connection, None));
            prop_assert!(connection.poll_transmit(Time::ZERO).is_none());
            prop_assert!(connection.receive(Time::ZERO).is_none());
        }
    }
}
