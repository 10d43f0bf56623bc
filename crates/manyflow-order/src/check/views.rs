//! Properties of views: their numbers and members, same-view delivery, virtual synchrony, and
//! transitional sets.

use std::collections::{BTreeMap, BTreeSet};

use super::index::{GroupNumber, Index, MessageNumber, Span, SpanEnd};
use super::trace::End;
use super::{Property, Violation, report};
use crate::names::{GroupViewId, ViewId};

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Violation>) {
    numbers_and_members(index, found);
    same_view(index, found);
    let mut by_view: BTreeMap<(GroupNumber, GroupViewId), Vec<&Span<'_>>> = BTreeMap::new();
    for span in &index.spans {
        let key = (span.group, span.view.id);
        by_view.entry(key).or_default().push(span);
    }
    for spans in by_view.values() {
        let first = spans[0];
        for span in &spans[1..] {
            if span.view.members != first.view.members {
                let reason = format!(
                    "the view {} of {} has other members at another member",
                    span.view.id, span.view.group
                );
                let events = [(first.member, first.at), (span.member, span.at)];
                report(found, index, Property::Views, &events, reason);
            }
            synchrony(index, found, first, span);
        }
        transitional_sets(index, found, spans);
    }
    network_synchrony(index, found);
}

fn numbers_and_members(index: &Index<'_>, found: &mut Vec<Violation>) {
    for span in &index.spans {
        let name = &index.traces[span.member].member;
        let event = [(span.member, span.at)];
        if !span.view.members.contains(name) {
            let reason = format!("a view of {} lacks the member that got it", span.view.group);
            report(found, index, Property::Views, &event, reason);
        }
        if span.before.is_some_and(|before| before >= span.view.id) {
            let reason = format!(
                "the view {} of {} came after {:?}",
                span.view.id, span.view.group, span.before
            );
            report(found, index, Property::Views, &event, reason);
        }
    }
}

/// All deliver an ordered message in one view of a group.
fn same_view(index: &Index<'_>, found: &mut Vec<Violation>) {
    type First = (GroupViewId, usize, usize);
    let mut views: BTreeMap<(MessageNumber, GroupNumber), First> = BTreeMap::new();
    for span in &index.spans {
        for (message, at) in &span.delivered {
            let is_at_end = span.view.id.stage != GroupViewId::BEGUN;
            let is_after_signal = is_at_end || span.signal.is_some_and(|signal| signal < *at);
            if !index.messages[*message].sent.service.is_ordered() || is_after_signal {
                continue;
            }
            let own = (span.view.id, span.member, *at);
            let first = *views.entry((*message, span.group)).or_insert(own);
            if first.0 != span.view.id {
                let number = index.messages[*message].sent.message;
                let reason = format!("message {number} was delivered in two views of a group");
                let events = [(first.1, first.2), (span.member, *at)];
                report(found, index, Property::SameView, &events, reason);
            }
        }
    }
}

/// Returns the ordered messages of a span that both members want.
fn ordered_set(index: &Index<'_>, span: &Span<'_>, other: &Span<'_>) -> BTreeSet<MessageNumber> {
    let is_wanted = |message: &MessageNumber| {
        let message = &index.messages[*message];
        let by_one = message.sender == span.member || message.sender == other.member;
        message.sent.service.is_ordered() && !(message.sent.self_discard && by_one)
    };
    let messages = span.delivered.iter().map(|(message, _)| *message);
    messages.filter(is_wanted).collect()
}

/// Members that go from one view to the same next one have delivered the same in between.
fn synchrony(index: &Index<'_>, found: &mut Vec<Violation>, one: &Span<'_>, two: &Span<'_>) {
    let goes_together = match (one.end, two.end) {
        (SpanEnd::View(one_next), SpanEnd::View(two_next)) => {
            let (next, other) = (&index.spans[one_next], &index.spans[two_next]);
            let name = &index.traces[two.member].member;
            next.view.id == other.view.id && next.view.stayed.contains(name)
        }
        (SpanEnd::Trace(one), SpanEnd::Trace(two)) => one == End::Quiet && two == End::Quiet,
        _ => false,
    };
    if !goes_together {
        return;
    }
    let (first, second) = (ordered_set(index, one, two), ordered_set(index, two, one));
    if let Some(message) = first.symmetric_difference(&second).next() {
        let reason = format!(
            "of two members that went together, one has not delivered message {} in the view {:?} \
             of {}",
            index.messages[*message].sent.message, one.view.id, one.view.group
        );
        let events = [(one.member, one.at), (two.member, two.at)];
        report(found, index, Property::VirtualSynchrony, &events, reason);
    }
}

/// Those in a transitional set come from the same view.
fn transitional_sets(index: &Index<'_>, found: &mut Vec<Violation>, spans: &[&Span<'_>]) {
    for one in spans {
        let Some(before) = one.before else {
            continue;
        };
        for two in spans {
            if one.member == two.member {
                continue;
            }
            let stayed = one.view.stayed.contains(&index.traces[two.member].member);
            if stayed && two.before != Some(before) {
                let reason = format!(
                    "{} is in the transitional set of the view {} of {}, but comes from another \
                     view",
                    index.traces[two.member].member, one.view.id, one.view.group,
                );
                let events = [(one.member, one.at), (two.member, two.at)];
                report(found, index, Property::TransitionalSet, &events, reason);
            }
        }
    }
}

/// The messages of all services between two views of a group by the network, for those that were
/// members all the time, and went together.
fn network_synchrony(index: &Index<'_>, found: &mut Vec<Violation>) {
    type Between = BTreeMap<(GroupNumber, ViewId, ViewId), (usize, BTreeSet<MessageNumber>)>;
    let mut between = Between::new();
    for first in index.spans.iter().filter(|span| span.view.by_network) {
        let mut set = BTreeSet::new();
        let mut span = first;
        let next = loop {
            set.extend(span.delivered.iter().map(|(message, _)| *message));
            let SpanEnd::View(next) = span.end else {
                break None;
            };
            span = &index.spans[next];
            if span.view.by_network {
                break Some(span);
            }
        };
        let Some(next) = next else {
            continue;
        };
        set.retain(|message| !index.messages[*message].sent.self_discard);
        let key = (first.group, first.view.id.view, next.view.id.view);
        let (other, known) = between
            .entry(key)
            .or_insert_with(|| (first.member, set.clone()));
        let name = &index.traces[*other].member;
        if next.view.stayed.contains(name)
            && let Some(message) = known.symmetric_difference(&set).next()
        {
            let reason = format!(
                "of two members that went together, one has not delivered message {} between two \
                 views of {} by the network",
                index.messages[*message].sent.message, first.view.group
            );
            let events = [(first.member, first.at), (*other, 0)];
            report(found, index, Property::VirtualSynchrony, &events, reason);
        }
    }
}
