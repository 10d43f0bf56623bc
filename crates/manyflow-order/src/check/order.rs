//! The one order of ordered messages.
//!
//! The order in which each member delivers them, and the rule that a message follows those that its
//! sender had delivered before, together are a relation between messages. There is one order if and
//! only if this relation has no cycle.

use std::collections::VecDeque;

use super::index::{Index, MessageNumber};
use super::trace::TraceEvent;
use super::{Property, Violation, report};

/// A reason why a message comes before another: a member, and the places of two of its events.
#[derive(Copy, Clone, Debug)]
struct Edge {
    to: MessageNumber,
    member: usize,
    events: (usize, usize),
}

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Violation>) {
    let edges = edges(index);
    let rest = unsorted(&edges);
    if let Some(first) = rest.iter().position(|is_rest| *is_rest) {
        let cycle = cycle(&edges, &rest, first);
        let mut numbers = Vec::new();
        let mut events = Vec::new();
        for (message, edge) in &cycle {
            numbers.push(index.messages[*message].sent.message.to_string());
            events.push((edge.member, edge.events.0));
            events.push((edge.member, edge.events.1));
        }
        let reason = format!(
            "each of the messages {} comes before the next, and the last before the first",
            numbers.join(", ")
        );
        report(found, index, Property::Order, &events, reason);
    }
}

fn edges(index: &Index<'_>) -> Vec<Vec<Edge>> {
    let mut edges: Vec<Vec<Edge>> = vec![Vec::new(); index.messages.len()];
    let mut next_message = 0;
    for (member, trace) in index.traces.iter().enumerate() {
        let mut deliveries = index.deliveries[member].iter().peekable();
        let mut last: Option<(MessageNumber, usize)> = None;
        for (at, event) in trace.events.iter().enumerate() {
            let message = match event {
                TraceEvent::Sent(_) => {
                    next_message += 1;
                    next_message - 1
                }
                TraceEvent::Delivered(_) => match deliveries.next_if(|next| next.at == at) {
                    Some(delivery) => delivery.message,
                    None => continue,
                },
                _ => continue,
            };
            if !index.messages[message].sent.service.is_ordered() {
                continue;
            }
            if let Some((before, event)) = last
                && before != message
            {
                let events = (event, at);
                edges[before].push(Edge {
                    to: message,
                    member,
                    events,
                });
            }
            if matches!(event, TraceEvent::Delivered(_)) {
                last = Some((message, at));
            }
        }
    }
    edges
}

/// Returns which messages remain when those are taken away, again and again, that come after none.
fn unsorted(edges: &[Vec<Edge>]) -> Vec<bool> {
    let mut before = vec![0_u32; edges.len()];
    for edge in edges.iter().flatten() {
        before[edge.to] += 1;
    }
    let mut free: VecDeque<MessageNumber> = (0..edges.len())
        .filter(|message| before[*message] == 0)
        .collect();
    let mut rest = vec![true; edges.len()];
    while let Some(message) = free.pop_front() {
        rest[message] = false;
        for edge in &edges[message] {
            before[edge.to] -= 1;
            if before[edge.to] == 0 {
                free.push_back(edge.to);
            }
        }
    }
    rest
}

/// Returns a shortest cycle through a message that is in one, or follows one.
fn cycle(edges: &[Vec<Edge>], rest: &[bool], first: MessageNumber) -> Vec<(MessageNumber, Edge)> {
    let starts = (first..edges.len()).filter(|message| rest[*message]);
    let mut shortest: Vec<(MessageNumber, Edge)> = Vec::new();
    for start in starts.take(1000) {
        let mut came_by: Vec<Option<(MessageNumber, Edge)>> = vec![None; edges.len()];
        let mut queue = VecDeque::from([start]);
        while let Some(message) = queue.pop_front() {
            for edge in edges[message].iter().filter(|edge| rest[edge.to]) {
                if came_by[edge.to].is_none() {
                    came_by[edge.to] = Some((message, *edge));
                    queue.push_back(edge.to);
                }
            }
        }
        let mut steps = Vec::new();
        let mut message = start;
        while let Some((before, edge)) = came_by[message] {
            steps.push((before, edge));
            message = before;
            if message == start {
                break;
            }
        }
        if message == start
            && !steps.is_empty()
            && (shortest.is_empty() || steps.len() < shortest.len())
        {
            steps.reverse();
            shortest = steps;
        }
        if shortest.len() == 2 {
            break;
        }
    }
    shortest
}
