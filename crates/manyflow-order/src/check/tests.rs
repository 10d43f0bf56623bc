//! A good trace, and for each property a bad one.

use std::sync::Arc;

use super::{End, Property, Sent, Trace, TraceEvent, Viewed, check};
use crate::names::{GroupViewId, Service, ViewId};

fn view(counter: u32, members: &[&str], stayed: &[&str]) -> TraceEvent {
    let names = |names: &[&str]| -> Arc<[Arc<str>]> { names.iter().map(|n| (*n).into()).collect() };
    TraceEvent::View(Viewed {
        group: "g".into(),
        id: GroupViewId {
            view: ViewId { counter, hash: 7 },
            stage: GroupViewId::BEGUN,
            change: 0,
        },
        members: names(members),
        by_network: true,
        stayed: names(stayed),
    })
}

fn sent(message: u64, service: Service) -> TraceEvent {
    TraceEvent::Sent(Sent {
        message,
        service,
        groups: vec!["g".into()],
        self_discard: false,
    })
}

fn got(message: u64) -> TraceEvent {
    TraceEvent::Delivered(message)
}

fn signal() -> TraceEvent {
    TraceEvent::Transitional("g".into())
}

fn trace(member: &str, events: &[TraceEvent]) -> Trace {
    Trace {
        member: member.into(),
        events: events.to_vec(),
        end: End::Quiet,
    }
}

/// Returns the properties that these traces violate.
fn violated(traces: &[Trace]) -> Vec<Property> {
    let mut found: Vec<Property> = check(traces).iter().map(|v| v.property).collect();
    found.sort();
    found.dedup();
    found
}

const BOTH: &[&str] = &["p", "q"];

#[test]
fn a_partition_that_heals_is_as_promised() {
    let p = [
        view(1, BOTH, &["p"]),
        sent(1, Service::Agreed),
        got(1),
        signal(),
        got(2),
        view(2, &["p"], &["p"]),
        sent(3, Service::Safe),
        got(3),
        signal(),
        view(4, BOTH, &["p"]),
    ];
    let q = [
        view(1, BOTH, &["q"]),
        sent(2, Service::Safe),
        got(1),
        got(2),
        signal(),
        view(3, &["q"], &["q"]),
        signal(),
        view(4, BOTH, &["q"]),
    ];
    assert_eq!(check(&[trace("p", &p), trace("q", &q)]), []);
}

#[test]
fn messages_that_nobody_sent_or_that_come_twice_or_to_strangers_are_found() {
    let invented = [trace("p", &[view(1, &["p"], &[]), got(9)])];
    assert_eq!(violated(&invented), [Property::Integrity]);
    let own = [
        view(1, &["p"], &[]),
        sent(1, Service::Agreed),
        got(1),
        got(1),
    ];
    assert!(violated(&[trace("p", &own)]).contains(&Property::Integrity));
    let stranger = [sent(1, Service::Fifo), got(1)];
    assert_eq!(violated(&[trace("p", &stranger)]), [Property::Integrity]);
    let left = TraceEvent::Left("g".into());
    let after = [view(1, &["p"], &[]), left, sent(1, Service::Fifo), got(1)];
    assert_eq!(violated(&[trace("p", &after)]), [Property::Integrity]);
}

#[test]
fn an_own_message_that_never_arrives_is_found() {
    let events = [view(1, &["p"], &[]), sent(1, Service::Agreed)];
    let mut traces = [trace("p", &events)];
    assert_eq!(violated(&traces), [Property::SelfDelivery]);
    traces[0].end = End::Gone;
    assert_eq!(
        check(&traces),
        [],
        "a member that is gone need not have got it"
    );
}

#[test]
fn messages_of_one_sender_in_another_order_are_found() {
    let (one, two) = (sent(1, Service::Fifo), sent(2, Service::Fifo));
    let p = [view(1, &["p"], &[]), one, two, got(2), got(1)];
    assert_eq!(violated(&[trace("p", &p)]), [Property::Fifo]);
}

#[test]
fn a_hole_in_the_messages_of_one_sender_is_found() {
    let (one, two) = (sent(1, Service::Agreed), sent(2, Service::Agreed));
    let p = [view(1, BOTH, &["p"]), one, two, got(1), got(2)];
    let q = [view(1, BOTH, &["q"]), got(2)];
    let mut traces = [trace("p", &p), trace("q", &q)];
    traces[1].end = End::Gone;
    assert_eq!(violated(&traces), [Property::Fifo]);
}

#[test]
fn two_orders_and_a_message_before_its_cause_are_found() {
    let one = [
        view(1, BOTH, &["p"]),
        sent(1, Service::Agreed),
        got(1),
        got(2),
    ];
    let two = [
        view(1, BOTH, &["q"]),
        sent(2, Service::Agreed),
        got(2),
        got(1),
    ];
    let traces = [trace("p", &one), trace("q", &two)];
    let found = check(&traces);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].property, Property::Order);
    assert_eq!(
        found[0].to_string(),
        "order: each of the messages 1, 2 comes before the next, and the last before the first; \
         p, event 2; p, event 3; q, event 2; q, event 3"
    );
    // The sender of 2 had delivered 1 before.
    let cause = [
        view(1, BOTH, &["p"]),
        sent(1, Service::Causal),
        got(1),
        got(2),
    ];
    let effect = [
        view(1, BOTH, &["q"]),
        got(1),
        sent(2, Service::Causal),
        got(2),
    ];
    let other = [got(2), got(1)];
    let mut traces = [trace("p", &cause), trace("q", &effect), trace("r", &other)];
    assert_eq!(violated(&traces), [Property::Integrity, Property::Order]);
    traces[2] = trace("r", &[]);
    assert_eq!(check(&traces), []);
}

#[test]
fn an_answer_without_its_question_is_found() {
    let all = &["p", "q", "r"];
    let (question, answer) = (sent(1, Service::Agreed), sent(2, Service::Agreed));
    let p = [view(1, all, &["p"]), question, got(1), got(2)];
    let q = [view(1, all, &["q"]), got(1), answer, got(2)];
    let r = [view(1, all, &["r"]), got(2)];
    let mut traces = [trace("p", &p), trace("q", &q), trace("r", &r)];
    traces[2].end = End::Gone;
    let found = check(&traces);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].property, Property::Causality);
    let events = [("q".to_owned(), 1), ("r".to_owned(), 1)];
    assert_eq!(found[0].events, events);
    // A message that was sent before its sender had delivered the other one does not depend on it.
    let early = [q[0].clone(), q[2].clone(), q[1].clone(), q[3].clone()];
    traces[1] = trace("q", &early);
    assert_eq!(check(&traces), []);
}

#[test]
fn a_message_in_two_views_is_found() {
    let p = [
        view(1, BOTH, &["p"]),
        sent(1, Service::Agreed),
        got(1),
        view(2, BOTH, &["p"]),
    ];
    let q = [view(1, BOTH, &["q"]), view(2, BOTH, &["q"]), got(1)];
    let traces = [trace("p", &p), trace("q", &q)];
    assert!(violated(&traces).contains(&Property::SameView));
}

#[test]
fn members_that_go_together_with_other_messages_are_found() {
    let p = [
        view(1, BOTH, &["p"]),
        sent(1, Service::Agreed),
        got(1),
        view(2, BOTH, BOTH),
    ];
    let q = [view(1, BOTH, &["q"]), view(2, BOTH, BOTH)];
    let traces = [trace("p", &p), trace("q", &q)];
    assert_eq!(violated(&traces), [Property::VirtualSynchrony]);
    // At the end of the run, too.
    let traces = [trace("p", &p[..3]), trace("q", &q[..1])];
    assert_eq!(violated(&traces), [Property::VirtualSynchrony]);
    // Without order, from one view by the network to the next.
    let mut p = p;
    p[1] = sent(1, Service::Reliable);
    let traces = [trace("p", &p), trace("q", &q)];
    assert_eq!(violated(&traces), [Property::VirtualSynchrony]);
}

#[test]
fn views_without_their_member_or_with_two_meanings_or_old_ones_are_found() {
    assert_eq!(
        violated(&[trace("p", &[view(1, &["q"], &[])])]),
        [Property::Views]
    );
    let traces = [
        trace("p", &[view(1, BOTH, &["p"])]),
        trace("q", &[view(1, &["q", "p"], &["q"])]),
    ];
    assert_eq!(violated(&traces), [Property::Views]);
    let back = [view(2, &["p"], &[]), view(1, &["p"], &["p"])];
    assert_eq!(violated(&[trace("p", &back)]), [Property::Views]);
}

#[test]
fn a_transitional_set_with_a_member_from_elsewhere_is_found() {
    let p = [view(1, &["p"], &[]), view(3, BOTH, BOTH)];
    let q = [view(2, &["q"], &[]), view(3, BOTH, &["q"])];
    let traces = [trace("p", &p), trace("q", &q)];
    assert_eq!(violated(&traces), [Property::TransitionalSet]);
}

#[test]
fn a_safe_message_that_a_member_lacks_is_found() {
    let p = [
        view(1, BOTH, &["p"]),
        sent(1, Service::Safe),
        got(1),
        signal(),
        view(2, &["p"], &["p"]),
    ];
    let q = [view(1, BOTH, &["q"]), signal(), view(3, &["q"], &["q"])];
    let mut traces = [trace("p", &p), trace("q", &q)];
    assert_eq!(violated(&traces), [Property::Safety]);
    traces[1].end = End::Gone;
    assert_eq!(check(&traces), []);
    // After the signal, only those who stay have to have it.
    let after = [p[0].clone(), p[1].clone(), signal(), got(1), p[4].clone()];
    let traces = [trace("p", &after), trace("q", &q)];
    assert_eq!(check(&traces), []);
}
