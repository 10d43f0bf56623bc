//! Access to endpoints between the steps of a run.

use core::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manyflow_core::{Action, Endpoint, EndpointId, Packet, Time};

use crate::engine::{Holds, Network, NodeId};

/// Hands a packet that arrived to the endpoint.
type OnPacket<X> = Box<dyn FnMut(&mut X, Time, &Packet<<X as Endpoint>::Rx>) + Send>;
/// Changes an action of the endpoint. Returns whether the network takes the action.
type OnAction<X> = Box<dyn FnMut(Time, &mut Action<<X as Endpoint>::Tx>) -> bool + Send>;

/// An endpoint in a network, which tests can read and change between the steps of a run. A probe
/// records the endpoint's events, and can intercept its packets and actions.
///
/// For example, a TCP sender whose first segment is lost:
///
/// ```
/// use manyflow_core::link::LinkConfig;
/// use manyflow_core::time::seconds;
/// use manyflow_core::{EndpointId, Time};
/// use manyflow_netsim::{Network, Probe};
/// use manyflow_tcp::{Event, Receiver, Segment, Sender, TcpConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut network = Network::<Segment, Event>::new(1);
/// let [a, b] = ["A", "B"].map(|name| network.add_node(name));
/// network.add_duplex(a, b, LinkConfig { delay: seconds(0.02), ..LinkConfig::default() });
/// let config = TcpConfig { transfer: Some(100), ..TcpConfig::default() };
/// let sender = Sender::new(config.clone(), EndpointId(1), 7)?;
/// let sender = Probe::add(&mut network, a, sender);
/// network.add(b, Receiver::new(config, sender.id())?);
/// let mut sent = 0;
/// sender.filter_packets(move |_, _| {
///     sent += 1;
///     sent > 1
/// });
/// network.run_until(Time::from_secs_f64(10.0), &mut ())?;
/// assert_eq!(sender.get().counters().retransmitted, 1);
/// assert!(sender.events().iter().any(|(_, event)| *event == Event::Finished));
/// # Ok(())
/// # }
/// ```
pub struct Probe<X: Endpoint> {
    id: EndpointId,
    shared: Shared<X>,
}

/// The part of a probe that the network runs, and its owner reads.
struct Shared<X: Endpoint>(Arc<Mutex<State<X>>>);

struct State<X: Endpoint> {
    endpoint: X,
    on_packet: OnPacket<X>,
    on_action: OnAction<X>,
    events: Vec<(Time, X::Event)>,
    /// The time of the last call, for the records of events.
    now: Time,
    is_stopped: bool,
}

/// The endpoint of a [`Probe`]. It is locked until this value is dropped.
pub struct Probed<'a, X: Endpoint>(MutexGuard<'a, State<X>>);

impl<X: Endpoint> Deref for Probed<'_, X> {
    type Target = X;

    fn deref(&self) -> &X {
        &self.0.endpoint
    }
}

impl<X: Endpoint> DerefMut for Probed<'_, X> {
    fn deref_mut(&mut self) -> &mut X {
        &mut self.0.endpoint
    }
}

impl<X: Endpoint> Shared<X> {
    #[inline]
    fn lock(&self) -> MutexGuard<'_, State<X>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<X: Endpoint> Probe<X> {
    /// Adds an endpoint at a node, as [`Network::add`] does, and returns access to it.
    pub fn add<H, E>(network: &mut Network<H, E>, node: NodeId, endpoint: X) -> Probe<X>
    where
        X: Endpoint<Event: Clone + Send> + 'static,
        H: Holds<X::Rx> + From<X::Tx> + 'static,
        E: From<X::Event> + 'static,
    {
        let state = State {
            endpoint,
            on_packet: Box::new(|endpoint: &mut X, now, packet: &Packet<X::Rx>| {
                endpoint.handle_packet(now, packet);
            }),
            on_action: Box::new(|_, _| true),
            events: Vec::new(),
            now: network.now(),
            is_stopped: false,
        };
        let shared = Arc::new(Mutex::new(state));
        let id = network.add(node, Shared(Arc::clone(&shared)));
        let shared = Shared(shared);
        Probe { id, shared }
    }

    /// Returns the endpoint's number.
    pub fn id(&self) -> EndpointId {
        self.id
    }

    /// Returns the endpoint. The caller drops it before the network runs, and calls
    /// [`Network::wake`] after a change.
    pub fn get(&self) -> Probed<'_, X> {
        Probed(self.shared.lock())
    }

    /// Returns the events so far, with their times.
    pub fn events(&self) -> Vec<(Time, X::Event)>
    where
        X::Event: Clone,
    {
        self.shared.lock().events.clone()
    }

    /// Forgets the events so far.
    pub fn clear_events(&self) {
        self.shared.lock().events.clear();
    }

    /// Returns how many events so far are equal to `event`.
    pub fn count(&self, event: &X::Event) -> usize
    where
        X::Event: PartialEq,
    {
        let state = self.shared.lock();
        state.events.iter().filter(|(_, e)| e == event).count()
    }

    /// Hands each packet that arrives to `handle` instead of
    /// [`handle_packet`](Endpoint::handle_packet). `handle` may change the packet, ignore it, or
    /// check the endpoint afterwards.
    pub fn on_packet(&self, handle: impl FnMut(&mut X, Time, &Packet<X::Rx>) + Send + 'static) {
        self.shared.lock().on_packet = Box::new(handle);
    }

    /// Passes each action of the endpoint to `keep`, which may change it. The network never sees
    /// the actions for which `keep` returns false.
    pub fn filter(&self, keep: impl FnMut(Time, &mut Action<X::Tx>) -> bool + Send + 'static) {
        self.shared.lock().on_action = Box::new(keep);
    }

    /// Filters the packets that the endpoint sends, as [`filter`](Probe::filter) does, and keeps
    /// its joins and leaves.
    pub fn filter_packets(
        &self,
        mut keep: impl FnMut(Time, &mut Packet<X::Tx>) -> bool + Send + 'static,
    ) {
        self.filter(move |now, action| match action {
            Action::Send(packet) => keep(now, packet),
            Action::Join(_) | Action::Leave(_) => true,
        });
    }

    /// Stops the endpoint: it handles nothing and does nothing from now on.
    pub fn stop(&self) {
        self.shared.lock().is_stopped = true;
    }
}

impl<X: Endpoint<Event: Clone + Send>> Endpoint for Shared<X> {
    type Rx = X::Rx;
    type Tx = X::Tx;
    type Event = X::Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<X::Rx>) {
        let state = &mut *self.lock();
        if !state.is_stopped {
            (state.on_packet)(&mut state.endpoint, now, packet);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        let mut state = self.lock();
        if !state.is_stopped {
            state.endpoint.handle_timeout(now);
        }
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<X::Tx>> {
        let state = &mut *self.lock();
        state.now = now;
        if state.is_stopped {
            return None;
        }
        loop {
            let mut action = state.endpoint.poll_action(now)?;
            if (state.on_action)(now, &mut action) {
                return Some(action);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let state = self.lock();
        let timeout = (!state.is_stopped).then(|| state.endpoint.poll_timeout());
        timeout.flatten()
    }

    fn poll_event(&mut self) -> Option<X::Event> {
        let state = &mut *self.lock();
        let event = state.endpoint.poll_event()?;
        state.events.push((state.now, event.clone()));
        Some(event)
    }
}
