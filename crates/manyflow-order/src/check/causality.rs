//! No message is delivered without those that it may be an answer to.

use std::collections::BTreeMap;

use super::index::{Index, MemberNumber, Span};
use super::{Property, Violation, report};
use crate::names::GroupViewId;

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Violation>) {
    let mut views: BTreeMap<(usize, GroupViewId), Vec<&Span<'_>>> = BTreeMap::new();
    for span in &index.spans {
        let view = views.entry((span.group, span.view.id)).or_default();
        view.push(span);
    }
    let mut has = vec![false; index.messages.len()];
    for spans in views.values().filter(|spans| spans.len() > 1) {
        for span in spans {
            let delivered = || span.delivered.iter().map(|(message, _)| *message);
            delivered().for_each(|message| has[message] = true);
            for sender in spans.iter().filter(|other| other.member != span.member) {
                compare(index, found, span, sender, &has);
            }
            delivered().for_each(|message| has[message] = false);
        }
    }
}

/// Checks the messages of one member that another one has delivered in a view: the latter has also
/// delivered those that the former had delivered in the view when it sent them. `has` are all that
/// the latter has delivered in the view.
fn compare(
    index: &Index<'_>,
    found: &mut Vec<Violation>,
    span: &Span<'_>,
    sender: &Span<'_>,
    has: &[bool],
) {
    let is_missing = |message: usize| {
        let sent = index.messages[message].sent;
        let is_wanted = !(sent.self_discard && index.messages[message].sender == span.member);
        sent.service.is_ordered() && is_wanted && !has[message]
    };
    let mut all = sender.delivered.iter();
    let Some((missing, known_at)) = all.find(|(message, _)| is_missing(*message)) else {
        return;
    };
    let Some((message, at)) = first_after(index, span, sender.member, *known_at) else {
        return;
    };
    let reason = format!(
        "message {} was delivered in the view {} of {}, but not message {}, which its sender had \
         delivered before",
        index.messages[message].sent.message,
        span.view.id,
        span.view.group,
        index.messages[*missing].sent.message,
    );
    let events = [(sender.member, *known_at), (span.member, at)];
    report(found, index, Property::Causality, &events, reason);
}

/// Returns the first ordered message that a member has delivered in a view, and where, of those
/// that `sender` sent after the event at this place.
fn first_after(
    index: &Index<'_>,
    span: &Span<'_>,
    sender: MemberNumber,
    known_at: usize,
) -> Option<(usize, usize)> {
    let mut delivered = index.deliveries_in(span);
    let delivery = delivered.find(|delivery| {
        let message = &index.messages[delivery.message];
        message.sender == sender && message.at > known_at && message.sent.service.is_ordered()
    })?;
    Some((delivery.message, delivery.at))
}
