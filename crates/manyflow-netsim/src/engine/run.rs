//! The main loop, and the path of a packet.

use core::time::Duration;

use manyflow_core::link::{Counters, Dropped, Fate, LinkConfig};
use manyflow_core::{Action, Destination, EndpointId, Header, Time};

use super::events::Due;
use super::packets::{PacketId, Packets, Parcel};
use super::{Change, Halt, Incident, LinkEntry, LinkId, Network, NodeId, Observer, Received};

impl<H: Header, E> Network<H, E> {
    /// Handles all events that are due by `end`, which becomes the current time.
    ///
    /// # Errors
    /// Returns the reason if time does not advance, or if the links carry [too many
    /// packets](Network::set_carried_max). The run cannot be continued then.
    pub fn run_until(&mut self, end: Time, observer: &mut dyn Observer<H, E>) -> Result<(), Halt> {
        if let Some(drive) = self.drive {
            return (drive.run)(self, end, observer);
        }
        self.pairs = None;
        self.allow_steps();
        while let Some((time, due)) = self.events.pop_until(end) {
            debug_assert!(time >= self.now, "time never goes back");
            if time > self.now {
                self.now = time;
                self.limits.steps = 0;
            }
            self.handle(due, observer);
            if !self.limits.hold() {
                return Err(self.halt(observer));
            }
        }
        if end > self.now {
            self.now = end;
            self.limits.steps = 0;
        }
        Ok(())
    }

    /// Returns the time of the next event, up to which a driver in real time can sleep. Nothing may
    /// be due then, because timers are cancelled lazily.
    pub fn next_time(&mut self) -> Option<Time> {
        match &mut self.parallel {
            None => self.events.next_time(),
            Some(parallel) => {
                let (own, parts) = (self.events.next_time(), parallel.next_time());
                [own, parts].into_iter().flatten().min()
            }
        }
    }

    /// Handles the time-outs, actions and events of an endpoint now. A caller that has changed an
    /// endpoint from outside, for example by a [`Probe`](crate::Probe), calls this afterwards.
    pub fn wake(&mut self, endpoint: EndpointId, observer: &mut dyn Observer<H, E>) {
        if let Some(drive) = self.drive.filter(|_| self.parallel.is_some()) {
            return (drive.wake)(self, endpoint, observer);
        }
        let entry = &mut self.endpoints[endpoint.0 as usize];
        entry.endpoint.handle_timeout(self.now);
        self.drain(endpoint.0, observer);
    }

    // The way of a packet from one link to the next is inlined into the main loop, and all other
    // events are not.
    #[inline(always)]
    pub(super) fn handle(&mut self, due: Due, observer: &mut dyn Observer<H, E>) {
        self.limits.steps += 1;
        match due {
            Due::Link(link) => self.on_link(link, observer),
            Due::Timer(endpoint) => self.on_timer(endpoint, observer),
            Due::Message(message) => self.on_message(message, observer),
            Due::Change(change) => self.on_change(change, observer),
        }
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the packets and bytes that an endpoint has received so far.
    pub fn received(&self, endpoint: EndpointId) -> Received {
        match &self.parallel {
            None => self.endpoints[endpoint.0 as usize].received,
            Some(parallel) => parallel.received(endpoint),
        }
    }

    /// Returns the counters of a link's packets.
    pub fn link_counters(&self, link: LinkId) -> Counters {
        match &self.parallel {
            None => self.link_entry(link).link.counters(),
            Some(parallel) => parallel.link_counters(link),
        }
    }

    /// Returns the current configuration of a link.
    pub fn link_config(&self, link: LinkId) -> &LinkConfig {
        self.link_entry(link).link.config()
    }

    /// Returns the number of packets that wait in a link's queue.
    pub fn queue_packets(&mut self, link: LinkId) -> usize {
        let now = self.now;
        self.link_entry_mut(link).link.queue_packets(now)
    }

    /// Returns the integral over time of the number of packets that wait in a link's queue.
    pub fn queue_time(&mut self, link: LinkId) -> Duration {
        let now = self.now;
        self.link_entry_mut(link).link.queue_time(now)
    }

    /// Returns the bytes that full packets could have taken so far of the opportunities of a link
    /// whose rate varies; `None` if the link has none.
    pub fn offered_bytes(&mut self, link: LinkId) -> Option<u64> {
        self.links[link.0 as usize].link.offered_bytes(self.now)
    }

    /// Returns the number of packets that all links have delivered so far, which measures the work
    /// of a simulation.
    pub fn transmissions(&self) -> u64 {
        match &self.parallel {
            None => self.delivered().iter().sum(),
            Some(parallel) => parallel.transmissions(),
        }
    }

    #[inline(always)]
    fn on_link(&mut self, index: u32, observer: &mut dyn Observer<H, E>) {
        let Some(entry) = self.links.get_mut(index as usize) else {
            return self.on_arrivals(index, observer);
        };
        if entry.pending != self.now {
            // The link was cut, and the packets of this event were lost.
            return;
        }
        let (to, tapped) = (entry.to, entry.tapped);
        loop {
            let link = &mut self.links[index as usize].link;
            link.advance(self.now);
            self.learn_fates(index, observer);
            let Some(id) = self.links[index as usize].link.pop_ready(self.now) else {
                break;
            };
            if tapped {
                observer.on_tapped(self.now, LinkId(index), &self.packets[id]);
            }
            self.limits.carried -= 1;
            if let Some(endpoint) = self.arrive(to, id, observer) {
                self.drain(endpoint, observer);
            }
            // Nearly always, the next packet arrives later.
            let next = self.links[index as usize].link.next_time();
            if next.is_none_or(|next| next > self.now) {
                break;
            }
        }
        self.rearm_link(index);
    }

    /// Keeps one event pending for each link that carries packets.
    #[inline(always)]
    fn rearm_link(&mut self, index: u32) {
        let entry = &mut self.links[index as usize];
        let next = entry.link.next_time().unwrap_or(Time::MAX);
        if next != entry.pending && next != Time::MAX {
            self.events.push(next, Due::Link(index));
        }
        entry.pending = next;
    }

    /// Hands a packet to its endpoints at `node`, or forwards it. Returns the endpoint that has
    /// received a unicast packet: the caller has to [drain](Network::drain) it.
    #[inline(always)]
    pub(super) fn arrive(
        &mut self,
        node: NodeId,
        id: PacketId,
        observer: &mut dyn Observer<H, E>,
    ) -> Option<u32> {
        match self.packets[id].destination {
            Destination::Endpoint(endpoint) => {
                let to = self.packets.node(id);
                if to == node {
                    let index = self.place_of(endpoint);
                    self.hand_over(index, id);
                    return Some(index);
                } else if let Some(link) = self.next_hop(node, to) {
                    self.transmit(link, id, observer);
                } else {
                    self.unroutable += 1;
                    self.packets.release(id);
                }
            }
            Destination::Channel(channel) => self.fan_out(node, channel, id, observer),
        }
        None
    }

    #[inline(always)]
    pub(super) fn transmit(
        &mut self,
        link: LinkId,
        mut id: PacketId,
        observer: &mut dyn Observer<H, E>,
    ) {
        let entry = &mut self.links[link.0 as usize];
        if entry.link.changes_packets() {
            id = self.packets.separate(id);
        }
        if self.traced {
            return self.transmit_traced(link, id, observer);
        }
        // The link counts the packets that it drops.
        let pushed = entry.push(self.now, &mut self.packets, id);
        self.carry(link, id, pushed.unwrap_or(0));
        self.learn_fates(link.0, observer);
    }

    /// Accounts for the packets that a managed queue has dropped or marked, and for those that its
    /// wire is going to lose or duplicate.
    #[inline(always)]
    fn learn_fates(&mut self, index: u32, observer: &mut dyn Observer<H, E>) {
        if self.links[index as usize].link.has_fates() {
            self.learn_all_fates(index, observer);
        }
    }

    #[inline(never)]
    fn learn_all_fates(&mut self, index: u32, observer: &mut dyn Observer<H, E>) {
        while let Some(fate) = self.links[index as usize].link.pop_fate() {
            self.learn_fate(LinkId(index), fate, observer);
        }
    }

    fn learn_fate(
        &mut self,
        link: LinkId,
        fate: Fate<PacketId>,
        observer: &mut dyn Observer<H, E>,
    ) {
        match fate {
            Fate::Dropped(id, why) => {
                self.report(&Incident::Dropped(link, why, &self.packets[id]), observer);
                self.limits.carried -= 1;
                self.packets.release(id);
            }
            Fate::Lost(id) => {
                self.report(&Incident::Lost(link, &self.packets[id]), observer);
                self.limits.carried -= 1;
                self.packets.release(id);
            }
            Fate::Doubled(id) => {
                self.limits.carried += 1;
                self.packets.retain(id);
            }
            Fate::Marked(id) => {
                self.packets.mark(id);
                self.report(&Incident::Marked(link, &self.packets[id]), observer);
            }
        }
    }

    /// Transmits a packet for [`transmit`](Network::transmit), and reports its fate.
    #[cold]
    fn transmit_traced(&mut self, link: LinkId, id: PacketId, observer: &mut dyn Observer<H, E>) {
        let now = self.now;
        let entry = &mut self.links[link.0 as usize];
        // A managed queue marks packets later.
        let is_managed = entry.link.config().aqm.is_some();
        let marked = entry.link.counters().marked;
        let pushed = entry.push(now, &mut self.packets, id);
        let packet = &self.packets[id];
        if !is_managed && entry.link.counters().marked > marked {
            observer.on_incident(now, &Incident::Marked(link, packet));
        }
        match pushed {
            Err(why) => observer.on_incident(now, &Incident::Dropped(link, why, packet)),
            Ok(0) => observer.on_incident(now, &Incident::Lost(link, packet)),
            Ok(_) => {}
        }
        self.carry(link, id, pushed.unwrap_or(0));
        self.learn_fates(link.0, observer);
    }

    /// Accounts for a packet that was handed to a link, of which this many copies will arrive.
    #[inline(always)]
    fn carry(&mut self, link: LinkId, id: PacketId, copies: u32) {
        self.limits.carried += u64::from(copies);
        match copies {
            0 => return self.packets.release(id),
            1 => {}
            _ => self.packets.retain(id),
        }
        if link.0 >= self.exits_from {
            return self.export(link, id, copies);
        }
        if let Some(next) = self.links[link.0 as usize].earlier_event() {
            self.events.push(next, Due::Link(link.0));
        }
    }

    /// Reports an incident to the observer of a traced network.
    #[inline]
    pub(super) fn report(&self, incident: &Incident<H>, observer: &mut dyn Observer<H, E>) {
        if self.traced {
            observer.on_incident(self.now, incident);
        }
    }

    /// Hands a packet to an endpoint, which has to be drained afterwards.
    #[inline]
    pub(super) fn hand_over(&mut self, index: u32, id: PacketId) {
        let entry = &mut self.endpoints[index as usize];
        entry.received.packets += 1;
        entry.received.bytes += u64::from(self.packets.wire_bytes(id));
        entry.endpoint.handle_packet(self.now, &self.packets[id]);
        self.packets.release(id);
    }

    #[inline(never)]
    fn on_timer(&mut self, index: u32, observer: &mut dyn Observer<H, E>) {
        let entry = &mut self.endpoints[index as usize];
        if entry.armed != self.now {
            // The timer was since set to an earlier time, whose event has been handled already.
            return;
        }
        entry.armed = Time::MAX;
        if entry
            .endpoint
            .poll_timeout()
            .is_some_and(|due| due <= self.now)
        {
            entry.endpoint.handle_timeout(self.now);
            self.drain(index, observer);
        } else {
            self.rearm_endpoint(index);
        }
    }

    /// Handles the actions and events of an endpoint after a call.
    ///
    /// If a packet reaches an endpoint at the same node, that endpoint is drained before the
    /// sender's next action. This needs no nested calls, so such exchanges can have any length.
    #[inline]
    pub(super) fn drain(&mut self, endpoint: u32, observer: &mut dyn Observer<H, E>) {
        self.limits.nest();
        match self.act(endpoint, observer) {
            Some(receiver) => self.drain_in_turn(endpoint, receiver, observer),
            None => self.settle(endpoint, observer),
        }
        self.limits.unnest();
    }

    /// Drains an endpoint at the same node that has received a packet, and then its sender.
    #[inline(never)]
    fn drain_in_turn(&mut self, sender: u32, receiver: u32, observer: &mut dyn Observer<H, E>) {
        let others = self.waiting.len();
        self.waiting.push(sender);
        let mut current = receiver;
        loop {
            if let Some(next) = self.act(current, observer) {
                self.waiting.push(current);
                current = next;
                continue;
            }
            self.settle(current, observer);
            if self.waiting.len() == others {
                return;
            }
            current = self.waiting.pop().expect("an endpoint waits");
        }
    }

    /// Handles the events of an endpoint that has no more actions, and its timer.
    #[inline]
    fn settle(&mut self, index: u32, observer: &mut dyn Observer<H, E>) {
        while let Some(event) = self.endpoints[index as usize].endpoint.poll_event() {
            if !self.endpoints[index as usize].muted {
                observer.on_event(self.now, self.id_of(index), &event);
            }
        }
        self.rearm_endpoint(index);
    }

    /// Performs the actions of an endpoint. Stops early when another endpoint at the same node has
    /// received a packet, and returns that endpoint.
    // Inlined, so that the packet is moved directly from the endpoint to its slot.
    #[inline(always)]
    fn act(&mut self, index: u32, observer: &mut dyn Observer<H, E>) -> Option<u32> {
        let node = self.endpoints[index as usize].node;
        loop {
            let entry = &mut self.endpoints[index as usize];
            match entry.endpoint.poll_action(self.now)? {
                _ if !self.limits.allow(index) => return None,
                Action::Send(packet) => {
                    let to = match packet.destination {
                        Destination::Endpoint(endpoint) => self.node_of(endpoint),
                        Destination::Channel(_) => node,
                    };
                    let source = self.id_of(index);
                    let id = self.packets.add(packet, source, node, to);
                    if let Some(receiver) = self.arrive(node, id, observer) {
                        return Some(receiver);
                    }
                }
                Action::Join(channel) => self.join(node, index, channel),
                Action::Leave(channel) => self.leave(node, index, channel),
            }
        }
    }

    /// Keeps an event pending for an endpoint's timer. A timer that has moved to a later time keeps
    /// its earlier event, which then finds nothing due and is set again. This is cheaper than an
    /// event for each packet that postpones a time-out.
    fn rearm_endpoint(&mut self, index: u32) {
        let entry = &mut self.endpoints[index as usize];
        let Some(due) = entry.endpoint.poll_timeout() else {
            return;
        };
        let due = due.max(self.now);
        if due < entry.armed {
            entry.armed = due;
            self.events.push(due, Due::Timer(index));
        }
    }

    #[inline(never)]
    fn on_change(&mut self, index: u32, observer: &mut dyn Observer<H, E>) {
        let change = self.changes[index as usize].clone();
        self.free_changes.push(index);
        self.report(&Incident::Changed(&change), observer);
        self.apply(change, observer);
    }

    /// Makes a change of a link.
    pub(super) fn apply(&mut self, change: Change, observer: &mut dyn Observer<H, E>) {
        let link = match change {
            Change::Configure(link, config) => {
                let carrier = &mut self.links[link.0 as usize].link;
                let knows_groups = carrier.config().marks_by_group();
                carrier.reconfigure(self.now, config);
                if !knows_groups && carrier.config().marks_by_group() {
                    self.subscribe_to_all(link);
                }
                link
            }
            Change::Cut(link, cut) => {
                let carrier = &mut self.links[link.0 as usize].link;
                for id in carrier.set_cut(self.now, cut) {
                    self.limits.carried -= 1;
                    self.report(&Incident::Lost(link, &self.packets[id]), observer);
                    self.packets.release(id);
                }
                link
            }
        };
        self.learn_fates(link.0, observer);
        self.rearm_link(link.0);
    }
}

impl LinkEntry {
    /// Hands a packet to the link, which takes over the reference if one copy will arrive.
    #[inline(always)]
    fn push<H: Header>(
        &mut self,
        now: Time,
        packets: &mut Packets<H>,
        id: PacketId,
    ) -> Result<u32, Dropped> {
        let bytes = packets.wire_bytes(id);
        self.link.push(now, Parcel { packets, id }, bytes)
    }
}
