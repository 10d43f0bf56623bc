//! The traces with numbers in place of names, and each delivery with the view that it was made in.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::trace::{End, Sent, Trace, TraceEvent, Viewed};
use crate::names::GroupViewId;

/// A member, by the place of its trace.
pub(super) type MemberNumber = usize;
/// A message, by its place among all.
pub(super) type MessageNumber = usize;
/// A group, by its place among all.
pub(super) type GroupNumber = usize;

/// A message of any trace.
#[derive(Debug)]
pub(super) struct Message<'a> {
    pub(super) sent: &'a Sent,
    pub(super) sender: MemberNumber,
    /// The place of the event in the sender's trace.
    pub(super) at: usize,
    pub(super) groups: Vec<GroupNumber>,
}

/// A time during which a member has one view of a group.
#[derive(Debug)]
pub(super) struct Span<'a> {
    pub(super) member: MemberNumber,
    pub(super) group: GroupNumber,
    pub(super) view: &'a Viewed,
    /// The view of the group before, unless the member has just joined.
    pub(super) before: Option<GroupViewId>,
    /// The place of the view's event in the trace.
    pub(super) at: usize,
    /// The place from which on the transitional signal holds, if it does.
    pub(super) signal: Option<usize>,
    /// How it ended.
    pub(super) end: SpanEnd,
    /// The place of the event that ended it; `usize::MAX` for the end of the trace.
    pub(super) until: usize,
    /// Messages to the group, in the order of their delivery, with the places of the events.
    pub(super) delivered: Vec<(MessageNumber, usize)>,
}

/// How a span ended.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum SpanEnd {
    /// With another view, whose span has this number.
    View(usize),
    /// The member left the group.
    Left,
    /// With the trace.
    Trace(End),
}

/// A delivery.
#[derive(Copy, Clone, Debug)]
pub(super) struct Delivery {
    pub(super) member: MemberNumber,
    pub(super) message: MessageNumber,
    pub(super) at: usize,
}

/// All traces.
#[derive(Debug)]
pub(super) struct Index<'a> {
    pub(super) traces: &'a [Trace],
    members: BTreeMap<&'a str, MemberNumber>,
    groups: BTreeMap<&'a str, GroupNumber>,
    pub(super) group_names: Vec<&'a Arc<str>>,
    pub(super) messages: Vec<Message<'a>>,
    pub(super) spans: Vec<Span<'a>>,
    /// The deliveries of each member, in order.
    pub(super) deliveries: Vec<Vec<Delivery>>,
    /// Deliveries of messages that nobody has sent: member, place, number.
    pub(super) unknown: Vec<(MemberNumber, usize, u64)>,
    /// Deliveries to clients that were not members of any of the message's groups.
    pub(super) strangers: Vec<Delivery>,
}

impl<'a> Index<'a> {
    pub(super) fn new(traces: &'a [Trace]) -> Index<'a> {
        let members = traces.iter().enumerate();
        let mut index = Index {
            traces,
            members: members
                .map(|(number, trace)| (&*trace.member, number))
                .collect(),
            groups: BTreeMap::new(),
            group_names: Vec::new(),
            messages: Vec::new(),
            spans: Vec::new(),
            deliveries: Vec::new(),
            unknown: Vec::new(),
            strangers: Vec::new(),
        };
        let numbers = index.add_messages();
        for member in 0..traces.len() {
            index.add_trace(member, &numbers);
        }
        index
    }

    pub(super) fn member(&self, name: &str) -> Option<MemberNumber> {
        self.members.get(name).copied()
    }

    fn group(&mut self, name: &'a Arc<str>) -> GroupNumber {
        let next = self.groups.len();
        let number = *self.groups.entry(name).or_insert(next);
        if number == next {
            self.group_names.push(name);
        }
        number
    }

    /// Returns the places of messages by their numbers.
    fn add_messages(&mut self) -> BTreeMap<u64, MessageNumber> {
        let mut numbers = BTreeMap::new();
        for (sender, trace) in self.traces.iter().enumerate() {
            for (at, event) in trace.events.iter().enumerate() {
                let TraceEvent::Sent(sent) = event else {
                    continue;
                };
                let groups = sent.groups.iter().map(|group| self.group(group));
                let mut groups: Vec<GroupNumber> = groups.collect();
                groups.sort_unstable();
                groups.dedup();
                numbers.insert(sent.message, self.messages.len());
                self.messages.push(Message {
                    sent,
                    sender,
                    at,
                    groups,
                });
            }
        }
        numbers
    }

    fn add_trace(&mut self, member: MemberNumber, numbers: &BTreeMap<u64, MessageNumber>) {
        let trace = &self.traces[member];
        // The present span of each group.
        let mut present: BTreeMap<GroupNumber, usize> = BTreeMap::new();
        let mut deliveries = Vec::new();
        for (at, event) in trace.events.iter().enumerate() {
            match event {
                TraceEvent::Sent(_) => {}
                TraceEvent::Delivered(number) => {
                    let Some(message) = numbers.get(number).copied() else {
                        self.unknown.push((member, at, *number));
                        continue;
                    };
                    let delivery = Delivery {
                        member,
                        message,
                        at,
                    };
                    deliveries.push(delivery);
                    self.add_delivery(&present, delivery);
                }
                TraceEvent::View(view) => {
                    let group = self.group(&view.group);
                    let span = self.spans.len();
                    let last = present.insert(group, span);
                    let before = last.map(|last| self.spans[last].view.id);
                    let mut signal = None;
                    if let Some(last) = last {
                        self.spans[last].end = SpanEnd::View(span);
                        self.spans[last].until = at;
                        // Until the next view by the network, the signal holds.
                        let has_signal = self.spans[last].signal.is_some();
                        signal = (has_signal && !view.by_network).then_some(at);
                    }
                    self.spans.push(Span {
                        member,
                        group,
                        view,
                        before,
                        at,
                        signal,
                        end: SpanEnd::Trace(trace.end),
                        until: usize::MAX,
                        delivered: Vec::new(),
                    });
                }
                TraceEvent::Transitional(group) => {
                    let group = self.group(group);
                    if let Some(span) = present.get(&group) {
                        self.spans[*span].signal.get_or_insert(at);
                    }
                }
                TraceEvent::Left(group) => {
                    let group = self.group(group);
                    if let Some(span) = present.remove(&group) {
                        self.spans[span].end = SpanEnd::Left;
                        self.spans[span].until = at;
                    }
                }
            }
        }
        self.deliveries.push(deliveries);
    }

    /// Returns all deliveries of a member in a view of one of its groups, of any group.
    pub(super) fn deliveries_in(&self, span: &Span<'a>) -> impl Iterator<Item = Delivery> {
        let deliveries = &self.deliveries[span.member];
        let first = deliveries.partition_point(|delivery| delivery.at < span.at);
        let until = span.until;
        let rest = deliveries[first..].iter().copied();
        rest.take_while(move |delivery| delivery.at < until)
    }

    /// Returns the next view by the network after a span.
    pub(super) fn next_by_network(&self, span: &Span<'a>) -> Option<&'a Viewed> {
        let mut end = span.end;
        while let SpanEnd::View(next) = end {
            let next = &self.spans[next];
            if next.view.by_network {
                return Some(next.view);
            }
            end = next.end;
        }
        None
    }

    fn add_delivery(&mut self, present: &BTreeMap<GroupNumber, usize>, delivery: Delivery) {
        let message = &self.messages[delivery.message];
        let mut any = false;
        for group in &message.groups {
            if let Some(span) = present.get(group) {
                any = true;
                let delivered = &mut self.spans[*span].delivered;
                delivered.push((delivery.message, delivery.at));
            }
        }
        let name = &self.traces[delivery.member].member;
        if !any && !message.sent.groups.contains(name) {
            self.strangers.push(delivery);
        }
    }
}
