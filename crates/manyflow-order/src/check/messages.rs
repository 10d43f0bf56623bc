//! Integrity, self delivery, FIFO and safety: properties of single messages and senders.

use std::collections::BTreeMap;

use super::index::{Index, MemberNumber, MessageNumber, Span, SpanEnd};
use super::trace::End;
use super::{Property, Violation, report};
use crate::names::{GroupViewId, Service};

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Violation>) {
    integrity(index, found);
    self_delivery(index, found);
    fifo(index, found);
    holes(index, found);
    safety(index, found);
}

fn integrity(index: &Index<'_>, found: &mut Vec<Violation>) {
    for (member, at, number) in &index.unknown {
        let reason = format!("message {number} was delivered, but nobody has sent it");
        report(found, index, Property::Integrity, &[(*member, *at)], reason);
    }
    for delivery in &index.strangers {
        let number = index.messages[delivery.message].sent.message;
        let reason = format!("message {number} was delivered to a client that is no member");
        let event = [(delivery.member, delivery.at)];
        report(found, index, Property::Integrity, &event, reason);
    }
    let mut first = vec![usize::MAX; index.messages.len()];
    for deliveries in &index.deliveries {
        for delivery in deliveries {
            let before = core::mem::replace(&mut first[delivery.message], delivery.at);
            let number = index.messages[delivery.message].sent.message;
            let events = [(delivery.member, before), (delivery.member, delivery.at)];
            if before != usize::MAX {
                let reason = format!("message {number} was delivered twice");
                report(found, index, Property::Integrity, &events, reason);
            }
        }
        for delivery in deliveries {
            first[delivery.message] = usize::MAX;
        }
    }
}

fn self_delivery(index: &Index<'_>, found: &mut Vec<Violation>) {
    // The last spans of members whose traces are quiet: the messages that they sent in them.
    let mut delivered = vec![false; index.messages.len()];
    for deliveries in &index.deliveries {
        for delivery in deliveries {
            delivered[delivery.message] |=
                index.messages[delivery.message].sender == delivery.member;
        }
    }
    // For each member and group: since when it has been a member without a break until the end.
    let mut since: BTreeMap<(MemberNumber, usize), usize> = BTreeMap::new();
    for span in &index.spans {
        let key = (span.member, span.group);
        if span.before.is_none() {
            since.insert(key, span.at);
        }
        if span.end == SpanEnd::Left {
            since.remove(&key);
        }
    }
    for (number, message) in index.messages.iter().enumerate() {
        let end = index.traces[message.sender].end;
        if end != End::Quiet || message.sent.self_discard || delivered[number] {
            continue;
        }
        let stays = |group: &usize| {
            let since = since.get(&(message.sender, *group));
            since.is_some_and(|since| *since < message.at)
        };
        if message.groups.iter().any(stays) {
            let reason = format!(
                "message {} was never delivered to its sender",
                message.sent.message
            );
            let event = [(message.sender, message.at)];
            report(found, index, Property::SelfDelivery, &event, reason);
        }
    }
}

/// Messages of one sender are delivered in the order in which they were sent.
fn fifo(index: &Index<'_>, found: &mut Vec<Violation>) {
    // By sender: the last message that this member has delivered.
    let mut last: Vec<Option<(MessageNumber, usize)>> = vec![None; index.traces.len()];
    for deliveries in &index.deliveries {
        for delivery in deliveries {
            let message = &index.messages[delivery.message];
            if message.sent.service < Service::Fifo {
                continue;
            }
            if let Some((before, at)) = last[message.sender]
                && index.messages[before].at > message.at
            {
                let reason = format!(
                    "message {} was delivered before message {}, which its sender had sent first",
                    index.messages[before].sent.message, message.sent.message
                );
                let events = [(delivery.member, at), (delivery.member, delivery.at)];
                report(found, index, Property::Fifo, &events, reason);
            }
            last[message.sender] = Some((delivery.message, delivery.at));
        }
        last.fill(None);
    }
}

/// In a view, a member has delivered all of a sender's messages to the group before the last of
/// them, as far as any member has delivered them in the view.
fn holes(index: &Index<'_>, found: &mut Vec<Violation>) {
    let mut views: BTreeMap<(usize, GroupViewId), Vec<&Span<'_>>> = BTreeMap::new();
    for span in &index.spans {
        let key = (span.group, span.view.id);
        views.entry(key).or_default().push(span);
    }
    for spans in views.values().filter(|spans| spans.len() > 1) {
        holes_of_view(index, found, spans);
    }
}

fn holes_of_view(index: &Index<'_>, found: &mut Vec<Violation>, spans: &[&Span<'_>]) {
    let is_ordered = |message: &MessageNumber| index.messages[*message].sent.service.is_ordered();
    // By sender: the messages that any member has delivered here.
    let mut all: BTreeMap<MemberNumber, Vec<MessageNumber>> = BTreeMap::new();
    for span in spans {
        for (message, _) in &span.delivered {
            if is_ordered(message) {
                let sender = index.messages[*message].sender;
                all.entry(sender).or_default().push(*message);
            }
        }
    }
    for sent in all.values_mut() {
        sent.sort_unstable();
        sent.dedup();
    }
    for span in spans {
        let mut counts: BTreeMap<MemberNumber, (usize, MessageNumber, usize)> = BTreeMap::new();
        for (message, at) in span
            .delivered
            .iter()
            .filter(|(message, _)| is_ordered(message))
        {
            let sender = index.messages[*message].sender;
            let count = counts.entry(sender).or_default();
            *count = (count.0 + 1, *message, *at);
        }
        for (sender, (count, last, at)) in counts {
            // A sender need not want its own messages.
            let wanted = all[&sender].iter().filter(|message| {
                let discards = index.messages[**message].sent.self_discard;
                **message <= last && !(discards && sender == span.member)
            });
            let missing = wanted.count().saturating_sub(count);
            if missing > 0 {
                let reason = format!(
                    "{missing} messages before message {} of the same sender are missing in the \
                     view {} of {}",
                    index.messages[last].sent.message, span.view.id, span.view.group
                );
                report(found, index, Property::Fifo, &[(span.member, at)], reason);
            }
        }
    }
}

/// A safe message that a member has delivered is delivered by all others that have to.
fn safety(index: &Index<'_>, found: &mut Vec<Violation>) {
    let mut delivered: Vec<Vec<MemberNumber>> = vec![Vec::new(); index.messages.len()];
    for delivery in index.deliveries.iter().flatten() {
        delivered[delivery.message].push(delivery.member);
    }
    for span in &index.spans {
        for (message, at) in &span.delivered {
            let sent = index.messages[*message].sent;
            if sent.service != Service::Safe {
                continue;
            }
            let has_signal = span.signal.is_some_and(|signal| signal < *at);
            let next = index.next_by_network(span);
            for name in span.view.members.iter() {
                // After the signal, only those who stay have to.
                let must = next.is_some_and(|next| next.stayed.contains(name));
                if has_signal && !must {
                    continue;
                }
                let Some(other) = index.member(name) else {
                    continue;
                };
                let is_sender = other == index.messages[*message].sender && sent.self_discard;
                let is_gone = index.traces[other].end == End::Gone;
                if is_sender || is_gone || delivered[*message].contains(&other) {
                    continue;
                }
                let reason = format!(
                    "message {} is safe, but {name} has not delivered it",
                    sent.message
                );
                report(
                    found,
                    index,
                    Property::Safety,
                    &[(span.member, *at)],
                    reason,
                );
            }
        }
    }
}
