//! The checker: reads the traces of all members, and reports each promise that was broken, with the
//! events that show it.
//!
//! The definitions are those of Moser, Amir, Melliar-Smith and Agarwal, "Extended Virtual
//! Synchrony" (1994), and of Vitenberg, Keidar, Chockler and Dolev, "Group Communication
//! Specifications" (2001), in terms of the members of groups instead of processes. *Ordered*
//! messages are causal, agreed and safe ones.
//!
//! | property | every member |
//! |---|---|
//! | [integrity](Property::Integrity) | delivers only messages that were sent, to groups that it is a member of (or to itself), and none twice |
//! | [self delivery](Property::SelfDelivery) | delivers its own messages to groups in which it remains |
//! | [FIFO](Property::Fifo) | delivers messages of one sender, unless unreliable or reliable, in the order in which they were sent; and in a view, all that were sent to the group before the last of them that any member delivers |
//! | [order](Property::Order) | delivers ordered messages in one order, which holds for all members and groups, and in which a message follows those that its sender had delivered before |
//! | [causality](Property::Causality) | delivers, in a view, no ordered message without the ordered ones that its sender had delivered in this view when it sent it |
//! | [same view](Property::SameView) | delivers an ordered message in the same view of the group, unless after the transitional signal |
//! | [virtual synchrony](Property::VirtualSynchrony) | delivers, in a view, the same ordered messages as those in its transitional set of the next one; between two views by the network, the same messages of all services |
//! | [views](Property::Views) | is in its views; they have ascending numbers; a number stands for one list of members |
//! | [transitional set](Property::TransitionalSet) | has only those in its transitional set who enter its view from the same view as it, with the same messages |
//! | [safety](Property::Safety) | delivers a safe message that another member has delivered in a view of both, unless it is gone; after the transitional signal, this holds for the transitional set only |
//!
//! A member that is [gone](End::Gone) need not have delivered anything. One whose trace is
//! [quiet](End::Quiet) at its end has to have, as if the next view began there.

mod causality;
mod index;
mod messages;
mod order;
#[cfg(test)]
mod tests;
mod trace;
mod views;

use core::fmt;

pub use trace::{End, Sent, Trace, TraceEvent, Viewed};

/// A promise of ordered groups. The [page](self) defines them.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Property {
    /// Only what was sent, only to members, at most once.
    Integrity,
    /// A member delivers its own messages.
    SelfDelivery,
    /// The order of one sender, without holes.
    Fifo,
    /// The one order of ordered messages, and causality.
    Order,
    /// No message without those that its sender had delivered before.
    Causality,
    /// A message is delivered in one view.
    SameView,
    /// Those who go together deliver the same messages.
    VirtualSynchrony,
    /// The numbers and members of views.
    Views,
    /// Those who go together know it.
    TransitionalSet,
    /// Safe messages are delivered by all.
    Safety,
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Property::Integrity => "integrity",
            Property::SelfDelivery => "self delivery",
            Property::Fifo => "FIFO",
            Property::Order => "order",
            Property::Causality => "causality",
            Property::SameView => "same view",
            Property::VirtualSynchrony => "virtual synchrony",
            Property::Views => "views",
            Property::TransitionalSet => "transitional set",
            Property::Safety => "safety",
        })
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub property: Property,
    /// The members that show it, and the places of the events in their traces, from 0.
    pub events: Vec<(String, usize)>,
    /// The fault, in words.
    pub reason: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.property, self.reason)?;
        for (member, at) in &self.events {
            write!(f, "; {member}, event {at}")?;
        }
        Ok(())
    }
}

/// Returns all promises that these traces show to be broken. No two traces are of one member, and
/// no two messages have one number.
pub fn check(traces: &[Trace]) -> Vec<Violation> {
    let index = index::Index::new(traces);
    let mut found = Vec::new();
    messages::check(&index, &mut found);
    order::check(&index, &mut found);
    causality::check(&index, &mut found);
    views::check(&index, &mut found);
    found
}

/// Notes a violation.
fn report(
    found: &mut Vec<Violation>,
    index: &index::Index<'_>,
    property: Property,
    events: &[(usize, usize)],
    reason: String,
) {
    let name = |member: usize| index.traces[member].member.as_ref().to_owned();
    found.push(Violation {
        property,
        events: events
            .iter()
            .map(|(member, at)| (name(*member), *at))
            .collect(),
        reason,
    });
}
