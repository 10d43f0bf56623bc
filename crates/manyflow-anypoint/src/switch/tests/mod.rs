//! Tests of the switch with hand-made segments, and with models of its ends.

mod bound;
mod fallback;
mod hostile;
mod identity;
mod membership;
mod model;
mod stalled;
mod suspicion;
mod translation;

use core::time::Duration;

use super::{Leg, MemberId, RoundRobin, Switch, SwitchConfig};
use crate::{Ack, Body, Data, Length, NO_GAPS, Segment, UNLIMITED};
use manyflow_core::time::Time;
use manyflow_core::xcp::{Congestion, Feedback, WindowChange};

const CONNECTION: u32 = 7;
const PEER: Leg = Leg::Peer;

fn member(number: u16) -> Leg {
    Leg::Member(MemberId(number))
}

fn at(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

fn data(sequence: u32) -> Body {
    let congestion = Congestion {
        cwnd: 10_240,
        rtt_us: 20_000,
        feedback: WindowChange::from_bytes(100.0),
        answered: false,
    };
    Body::Data(Data {
        sequence,
        key: sequence,
        congestion,
    })
}

fn ack(cumulative: u32, of: u32) -> Body {
    Body::Ack(Ack {
        cumulative,
        of,
        credit: UNLIMITED,
        feedback: Feedback {
            change: WindowChange::from_bytes(10.0),
            ..Feedback::default()
        },
        missing: NO_GAPS,
    })
}

fn switch(config: SwitchConfig, members: usize) -> Switch<Length> {
    let policy: Box<dyn crate::switch::Policy<Length>> = Box::<RoundRobin>::default();
    Switch::new(config, policy, members).expect("a switch")
}

/// Returns a switch whose connection all members have accepted, without any output.
fn opened(config: SwitchConfig, members: usize, credit: u32) -> Switch<Length> {
    let mut switch = switch(config, members);
    hear(&mut switch, 0.0, PEER, Body::Open { credit });
    for number in 0..members {
        hear(
            &mut switch,
            0.0,
            member(number as u16),
            Body::Accept { credit },
        );
    }
    sent(&mut switch);
    switch
}

fn hear(switch: &mut Switch<Length>, seconds: f64, from: Leg, body: Body) {
    let connection = CONNECTION;
    let length = if matches!(body, Body::Data(_)) {
        1000
    } else {
        0
    };
    let segment = Segment { connection, body };
    switch.handle_segment(at(seconds), from, &segment, Length(length));
}

/// Drains the output of the switch.
fn sent(switch: &mut Switch<Length>) -> Vec<(Leg, Body)> {
    let next = || switch.poll_transmit();
    core::iter::from_fn(next)
        .map(|(to, segment, _)| (to, segment.body))
        .collect()
}

/// Drains the output of the switch, and returns the part for this leg.
fn sent_to(switch: &mut Switch<Length>, leg: Leg) -> Vec<Body> {
    let all = sent(switch).into_iter();
    all.filter(|(to, _)| *to == leg)
        .map(|(_, body)| body)
        .collect()
}

/// Returns the acknowledgements among these.
fn acks(bodies: &[Body]) -> Vec<Ack> {
    let of = |body: &Body| match body {
        Body::Ack(ack) => Some(*ack),
        _ => None,
    };
    bodies.iter().filter_map(of).collect()
}

/// Advances the time, and handles every timer on the way.
fn wait(switch: &mut Switch<Length>, from_s: f64, to_s: f64) {
    let mut now = at(from_s);
    while let Some(due) = switch.poll_timeout().filter(|due| *due <= at(to_s)) {
        now = now.max(due);
        switch.handle_timeout(now);
        now += Duration::from_nanos(1);
    }
}

#[test]
fn a_switch_can_move_between_threads_if_its_payloads_can() {
    fn is_send<T: Send>() {}
    fn for_any<P: Send>() {
        is_send::<Switch<P>>();
        is_send::<crate::Connection<P>>();
    }
    for_any::<Length>();
    for_any::<Vec<u8>>();
}
