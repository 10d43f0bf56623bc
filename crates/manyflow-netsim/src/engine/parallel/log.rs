//! The log of a part in a window: the events that it handles, and the calls of observers.

use manyflow_core::link::Dropped;
use manyflow_core::{Channel, EndpointId, Packet, Time};

use super::border::Border;
use crate::engine::{Incident, LinkId, Observer};

/// The events and calls of a window, in order.
pub(super) struct Log<H, E> {
    pub(super) handled: Vec<Handled>,
    pub(super) calls: Vec<Call<H, E>>,
    /// The number of events that were handled, with those that left no trace.
    pub(super) events: u64,
}

/// An event that took numbers or called observers.
#[derive(Copy, Clone)]
pub(super) struct Handled {
    pub(super) time: Time,
    /// Its own number.
    pub(super) number: u32,
    /// The last number that it, or an event before it, has taken.
    pub(super) taken: u32,
    /// The number of calls by the end of this event.
    pub(super) calls: u32,
}

/// A call of an observer. Links have their index in the part.
pub(super) enum Call<H, E> {
    Event(EndpointId, E),
    Tapped(LinkId, Packet<H>),
    Dropped(LinkId, Dropped, Packet<H>),
    Lost(LinkId, Packet<H>),
    Marked(LinkId, Packet<H>),
    Grafted(LinkId, Channel),
    Pruned(LinkId, Channel),
}

impl<H, E> Default for Log<H, E> {
    fn default() -> Log<H, E> {
        Log {
            handled: Vec::new(),
            calls: Vec::new(),
            events: 0,
        }
    }
}

impl<H: Clone, E: Clone> Observer<H, E> for Log<H, E> {
    fn on_event(&mut self, _now: Time, endpoint: EndpointId, event: &E) {
        self.calls.push(Call::Event(endpoint, event.clone()));
    }

    fn on_tapped(&mut self, _now: Time, link: LinkId, packet: &Packet<H>) {
        self.calls.push(Call::Tapped(link, packet.clone()));
    }

    fn on_incident(&mut self, _now: Time, incident: &Incident<H>) {
        self.calls.push(match *incident {
            Incident::Dropped(link, why, packet) => Call::Dropped(link, why, packet.clone()),
            Incident::Lost(link, packet) => Call::Lost(link, packet.clone()),
            Incident::Marked(link, packet) => Call::Marked(link, packet.clone()),
            Incident::Grafted(link, channel) => Call::Grafted(link, channel),
            Incident::Pruned(link, channel) => Call::Pruned(link, channel),
            Incident::Changed(_) => unreachable!("no part runs while a change is made"),
        });
    }
}

impl<H, E> Call<H, E> {
    /// Makes the call.
    pub(super) fn make(&self, now: Time, border: &Border<H>, observer: &mut dyn Observer<H, E>) {
        let incident = match self {
            Call::Event(endpoint, event) => return observer.on_event(now, *endpoint, event),
            Call::Tapped(link, packet) => {
                return observer.on_tapped(now, border.link(*link), packet);
            }
            Call::Dropped(link, why, packet) => Incident::Dropped(border.link(*link), *why, packet),
            Call::Lost(link, packet) => Incident::Lost(border.link(*link), packet),
            Call::Marked(link, packet) => Incident::Marked(border.link(*link), packet),
            Call::Grafted(link, channel) => Incident::Grafted(border.link(*link), *channel),
            Call::Pruned(link, channel) => Incident::Pruned(border.link(*link), *channel),
        };
        observer.on_incident(now, &incident);
    }
}
