//! Multicast routing. A join travels hop by hop along the shortest path to the source, until it
//! meets a router that already forwards the channel. A leave travels the same path when the last
//! branch is removed. State exists only where a channel is joined.
//!
//! A join takes a link's propagation delay for each hop. It takes no room in queues, because it is
//! a message of a few dozen bytes. A router still forwards to a host that has left until the leave
//! latency is over, as with IGMP. Between routers a leave takes effect when it arrives.

use manyflow_core::{Channel, Header, Time};

use super::events::Due;
use super::packets::PacketId;
use super::{Incident, LinkId, Network, NodeId, Observer};

/// The links and endpoints to which a node forwards the packets of a channel.
#[derive(Clone, Debug)]
enum Targets {
    One(Target),
    Many(Vec<Target>),
}

/// A link or an endpoint. The lowest bit distinguishes them.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Target(u32);

impl Target {
    fn link(link: LinkId) -> Target {
        Target(link.0 << 1)
    }

    fn endpoint(index: u32) -> Target {
        Target(index << 1 | 1)
    }
}

/// The channels that pass through a node, in the order of their keys.
#[derive(Clone, Debug, Default)]
pub(super) struct Groups(Vec<(u64, Targets)>);

impl Groups {
    /// Returns whether no channel passes through.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of channels.
    #[cfg(test)]
    pub(super) fn channels(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn find(&self, key: u64) -> Option<&Targets> {
        // Most nodes have few channels, for which a linear scan is faster than a binary search.
        let place = match self.0.len() {
            0..=8 => self.0.iter().position(|(other, _)| *other == key)?,
            _ => self.0.binary_search_by_key(&key, |(key, _)| *key).ok()?,
        };
        Some(&self.0[place].1)
    }

    /// Returns the channels that are forwarded to `target`.
    fn towards(&self, target: Target) -> Vec<Channel> {
        let is_towards = |targets: &Targets| match targets {
            Targets::One(one) => *one == target,
            Targets::Many(many) => many.contains(&target),
        };
        let channels = self.0.iter().filter(|(_, targets)| is_towards(targets));
        channels.map(|(key, _)| channel(*key)).collect()
    }

    /// Adds a target. Returns whether the channel is new at this node.
    fn add(&mut self, key: u64, target: Target) -> bool {
        match self.0.binary_search_by_key(&key, |(key, _)| *key) {
            Ok(place) => {
                let targets = &mut self.0[place].1;
                match targets {
                    Targets::One(one) if *one == target => {}
                    Targets::One(one) => *targets = Targets::Many(vec![*one, target]),
                    Targets::Many(many) if many.contains(&target) => {}
                    Targets::Many(many) => many.push(target),
                }
                false
            }
            Err(place) => {
                self.0.insert(place, (key, Targets::One(target)));
                true
            }
        }
    }

    /// Removes a target. Returns whether it was the channel's last one at this node.
    fn remove(&mut self, key: u64, target: Target) -> bool {
        let Ok(place) = self.0.binary_search_by_key(&key, |(key, _)| *key) else {
            return false;
        };
        let is_empty = match &mut self.0[place].1 {
            Targets::One(one) => *one == target,
            Targets::Many(many) => {
                many.retain(|other| *other != target);
                many.is_empty()
            }
        };
        if is_empty {
            self.0.remove(place);
        }
        is_empty
    }
}

/// A join or leave on its path, or a branch whose leave latency has begun.
#[derive(Copy, Clone, Debug)]
pub(super) struct Message {
    kind: Kind,
    /// The node at which the message arrives.
    pub(super) node: NodeId,
    channel: Channel,
    /// The branch that is added or removed.
    target: Target,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Kind {
    Join,
    /// A leave from a host. The router waits for the leave latency.
    LeaveHost,
    /// A leave from a router. It takes effect at once.
    LeaveRouter,
    /// The leave latency of a branch is over.
    Expire,
}

fn key(channel: Channel) -> u64 {
    u64::from(channel.session) << 16 | u64::from(channel.number)
}

fn channel(key: u64) -> Channel {
    Channel {
        session: (key >> 16) as u32,
        number: key as u16,
    }
}

impl<H: Header, E> Network<H, E> {
    /// Makes an endpoint join a channel.
    pub(super) fn join(&mut self, node: NodeId, endpoint: u32, channel: Channel) {
        self.add_branch(node, channel, Target::endpoint(endpoint));
    }

    /// Makes an endpoint leave a channel. From then on, it receives nothing from the channel.
    pub(super) fn leave(&mut self, node: NodeId, endpoint: u32, channel: Channel) {
        self.remove_branch(node, channel, Target::endpoint(endpoint), Kind::LeaveHost);
    }

    /// Forwards a packet to all branches of its channel at a node.
    #[inline]
    pub(super) fn fan_out(
        &mut self,
        node: NodeId,
        channel: Channel,
        id: PacketId,
        observer: &mut dyn Observer<H, E>,
    ) {
        match self.nodes[node.0 as usize].groups.find(key(channel)) {
            None => self.packets.release(id),
            Some(&Targets::One(target)) => self.deliver(target, id, observer),
            Some(Targets::Many(many)) => {
                // An endpoint that receives the packet may leave the channel, which changes the
                // list of targets.
                let mut place = 0;
                let mut next = many.first().copied();
                while let Some(target) = next {
                    self.packets.retain(id);
                    self.deliver(target, id, observer);
                    place += 1;
                    next = match self.nodes[node.0 as usize].groups.find(key(channel)) {
                        Some(Targets::Many(many)) => many.get(place).copied(),
                        _ => None,
                    };
                }
                self.packets.release(id);
            }
        }
    }

    #[inline]
    fn deliver(&mut self, target: Target, id: PacketId, observer: &mut dyn Observer<H, E>) {
        let index = target.0 >> 1;
        if target.0 & 1 == 1 {
            self.hand_over(index, id);
            self.drain(index, observer);
        } else {
            self.transmit(LinkId(index), id, observer);
        }
    }

    #[inline(never)]
    pub(super) fn on_message(&mut self, index: u32, observer: &mut dyn Observer<H, E>) {
        let Message {
            kind,
            node,
            channel,
            target,
        } = self.messages[index as usize];
        self.free_messages.push(index);
        let link = LinkId(target.0 >> 1);
        match kind {
            Kind::Join => {
                self.lingering.remove(&(node, key(channel), target.0));
                self.add_branch(node, channel, target);
                self.subscribe(link, channel);
                self.report(&Incident::Grafted(link, channel), observer);
            }
            Kind::LeaveRouter => {
                self.remove_branch(node, channel, target, Kind::LeaveRouter);
                self.unsubscribe(link, channel);
                self.report(&Incident::Pruned(link, channel), observer);
            }
            Kind::LeaveHost => self.linger(node, channel, target),
            Kind::Expire => {
                let place = (node, key(channel), target.0);
                if self.lingering.get(&place) == Some(&index) {
                    self.lingering.remove(&place);
                    self.remove_branch(node, channel, target, Kind::LeaveRouter);
                    self.unsubscribe(link, channel);
                    self.report(&Incident::Pruned(link, channel), observer);
                }
            }
        }
    }

    /// Informs a link that a group is forwarded onto it. Channels with numbers above 255 are not
    /// groups of a layered session.
    fn subscribe(&mut self, link: LinkId, channel: Channel) {
        if let Ok(rank) = u8::try_from(channel.number) {
            self.links[link.0 as usize]
                .link
                .subscribe(channel.session, rank);
        }
    }

    fn unsubscribe(&mut self, link: LinkId, channel: Channel) {
        if let Ok(rank) = u8::try_from(channel.number) {
            self.links[link.0 as usize]
                .link
                .unsubscribe(channel.session, rank);
        }
    }

    /// Informs a link that has begun to mark by groups about the groups that are already forwarded
    /// onto it.
    pub(super) fn subscribe_to_all(&mut self, link: LinkId) {
        let from = self.link_entry(link).from;
        let channels = self.nodes[from.0 as usize]
            .groups
            .towards(Target::link(link));
        for channel in channels {
            self.subscribe(link, channel);
        }
    }

    /// Returns the links over which a source's multicast packets reach a node, the last link first.
    /// Empty if there is no path.
    pub fn branch(&mut self, source: NodeId, node: NodeId) -> Vec<LinkId> {
        let mut links = Vec::new();
        let mut here = node;
        while here != source {
            let Some(up) = self.next_hop(here, source) else {
                return Vec::new();
            };
            here = self.link_entry(up).to;
            links.extend(self.reverse_of(up));
        }
        links
    }

    /// Adds a branch. The first branch at a node makes the node join as well.
    fn add_branch(&mut self, node: NodeId, channel: Channel, target: Target) {
        let is_new = self.nodes[node.0 as usize].groups.add(key(channel), target);
        if is_new {
            self.send_up(node, channel, Kind::Join);
        }
    }

    /// Removes a branch. When the last branch at a node has been removed, the node leaves as well.
    fn remove_branch(&mut self, node: NodeId, channel: Channel, target: Target, leave: Kind) {
        let is_last = self.nodes[node.0 as usize]
            .groups
            .remove(key(channel), target);
        if is_last {
            self.send_up(node, channel, leave);
        }
    }

    /// Sends a join or leave to the next node towards the channel's source.
    fn send_up(&mut self, node: NodeId, channel: Channel, kind: Kind) {
        let source = self.sources[channel.session as usize];
        if node == source {
            return;
        }
        let Some(up) = self.next_hop(node, source) else {
            return;
        };
        let entry = self.link_entry(up);
        let (parent, delay) = (entry.to, entry.link.config().delay);
        let Some(down) = entry.reverse else { return };
        let message = Message {
            kind,
            node: parent,
            channel,
            target: Target::link(down),
        };
        let time = self.now + delay;
        if !self.export_message(time, message) {
            self.send_message(time, message);
        }
    }

    fn linger(&mut self, node: NodeId, channel: Channel, target: Target) {
        let message = Message {
            kind: Kind::Expire,
            node,
            channel,
            target,
        };
        let index = self.send_message(self.now + self.leave_latency, message);
        self.lingering.insert((node, key(channel), target.0), index);
    }

    /// Sends a message. Returns its number, which is not reused before the message has arrived.
    fn send_message(&mut self, time: Time, message: Message) -> u32 {
        let index = self.store_message(message);
        self.events.push(time, Due::Message(index));
        index
    }

    /// Keeps a message until it arrives. Returns its number.
    pub(super) fn store_message(&mut self, message: Message) -> u32 {
        match self.free_messages.pop() {
            Some(index) => {
                self.messages[index as usize] = message;
                index
            }
            None => {
                self.messages.push(message);
                self.messages.len() as u32 - 1
            }
        }
    }
}
