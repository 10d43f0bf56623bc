//! A world of one sender, and branches with receivers. Joins, leaves and packets of receivers
//! travel up with their branch's delay. Packets of joined channels come down through its [`Link`].
//! This world is small enough to read at a glance; the simulator is for larger ones.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use manyflow_core::link::{Link, LinkConfig};
use manyflow_core::{Action, Channel, Destination, Endpoint, Packet, Time};

pub(crate) struct World<S, R: Endpoint> {
    pub(crate) now: Time,
    sender: S,
    pub(crate) branches: Vec<Branch<R>>,
}

/// A link, and the receivers behind it.
pub(crate) struct Branch<R: Endpoint> {
    pub(crate) link: Link<Packet<R::Rx>>,
    pub(crate) members: Vec<Member<R>>,
    /// Decides which joins are lost on their way.
    pub(crate) loses_join: Box<dyn Fn(Channel) -> bool>,
    /// Sees each packet as it arrives.
    pub(crate) tamper: fn(&mut Packet<R::Rx>),
}

/// A receiver, with its joined channels and its events.
pub(crate) struct Member<R: Endpoint> {
    pub(crate) receiver: R,
    pub(crate) joined: BTreeSet<Channel>,
    /// Actions on their way up, with the times at which they take effect.
    upstream: VecDeque<(Time, Action<R::Tx>)>,
    pub(crate) events: Vec<(Time, R::Event)>,
    /// Bytes of the packets that arrived, headers included.
    pub(crate) received_bytes: u64,
}

impl<S: Endpoint<Rx = R::Tx, Tx = R::Rx>, R: Endpoint> World<S, R> {
    pub(crate) fn new(sender: S) -> World<S, R> {
        World {
            now: Time::ZERO,
            sender,
            branches: Vec::new(),
        }
    }

    /// Adds a link, whose random choices come from `seed`, with receivers behind it.
    pub(crate) fn branch(
        &mut self,
        link: LinkConfig,
        seed: u64,
        receivers: impl IntoIterator<Item = R>,
    ) {
        let member = |receiver| Member {
            receiver,
            joined: BTreeSet::new(),
            upstream: VecDeque::new(),
            events: Vec::new(),
            received_bytes: 0,
        };
        self.branches.push(Branch {
            link: Link::new(link, seed),
            members: receivers.into_iter().map(member).collect(),
            loses_join: Box::new(|_| false),
            tamper: |_| {},
        });
    }

    /// Runs until `end`, a time after the start.
    pub(crate) fn run_until(&mut self, end: Duration) {
        let end = Time::ZERO + end;
        while let Some(next) = self.next_time().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.step();
        }
        self.now = end;
    }

    fn next_time(&self) -> Option<Time> {
        let branches = self.branches.iter().filter_map(Branch::next_time).min();
        [self.sender.poll_timeout(), branches]
            .into_iter()
            .flatten()
            .min()
    }

    fn step(&mut self) {
        let now = self.now;
        for branch in &mut self.branches {
            for member in &mut branch.members {
                member.arrive_upstream(now, &branch.loses_join, &mut self.sender);
            }
        }
        self.sender.handle_timeout(now);
        while let Some(Action::Send(packet)) = self.sender.poll_action(now) {
            for branch in &mut self.branches {
                if branch.members.iter().any(|member| member.wants(&packet)) {
                    let _ = branch.link.push(now, &packet, packet.wire_bytes());
                }
            }
        }
        for branch in &mut self.branches {
            branch.step(now);
        }
    }
}

impl<R: Endpoint> Branch<R> {
    fn next_time(&self) -> Option<Time> {
        let of_member = |member: &Member<R>| {
            let upstream = member.upstream.front().map(|(time, _)| *time);
            upstream
                .into_iter()
                .chain(member.receiver.poll_timeout())
                .min()
        };
        let members = self.members.iter().filter_map(of_member).min();
        members.into_iter().chain(self.link.next_time()).min()
    }

    fn step(&mut self, now: Time) {
        let delay = self.link.config().delay;
        while let Some(mut packet) = self.link.pop_ready(now) {
            (self.tamper)(&mut packet);
            for member in self.members.iter_mut().filter(|m| m.wants(&packet)) {
                member.received_bytes += u64::from(packet.wire_bytes());
                member.receiver.handle_packet(now, &packet);
                member.drain(now, delay);
            }
        }
        for member in &mut self.members {
            member.receiver.handle_timeout(now);
            member.drain(now, delay);
        }
    }
}

impl<R: Endpoint> Member<R> {
    fn wants(&self, packet: &Packet<R::Rx>) -> bool {
        matches!(packet.destination, Destination::Channel(channel) if self.joined.contains(&channel))
    }

    fn arrive_upstream(
        &mut self,
        now: Time,
        loses_join: &dyn Fn(Channel) -> bool,
        sender: &mut impl Endpoint<Rx = R::Tx>,
    ) {
        while self.upstream.front().is_some_and(|(time, _)| *time <= now) {
            match self.upstream.pop_front().expect("there is a front").1 {
                Action::Join(channel) if loses_join(channel) => {}
                Action::Join(channel) => {
                    self.joined.insert(channel);
                }
                Action::Leave(channel) => {
                    self.joined.remove(&channel);
                }
                Action::Send(packet) => sender.handle_packet(now, &packet),
            }
        }
    }

    fn drain(&mut self, now: Time, delay: Duration) {
        while let Some(action) = self.receiver.poll_action(now) {
            self.upstream.push_back((now + delay, action));
        }
        while let Some(event) = self.receiver.poll_event() {
            self.events.push((now, event));
        }
    }
}
