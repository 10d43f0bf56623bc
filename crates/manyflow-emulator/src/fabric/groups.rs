//! The groups of sessions whose ends are programs: their channels, and the endpoints that join
//! them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::Sender;

use manyflow_core::{Action, Channel, EndpointId, Time};
use manyflow_netsim::NodeId;
use manyflow_scenario::protocols::IpPacket;

/// The groups of a session: consecutive addresses, one for each channel from 0.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// The node of the sender.
    pub source: NodeId,
    /// The number of the multicast session in the network.
    pub session: u32,
    /// The group of channel 0.
    pub first: Ipv4Addr,
    /// The number of channels.
    pub channels: u16,
}

/// An endpoint that stands for a program at a node, and joins the channels of a session for it.
#[derive(Clone, Debug)]
pub struct Joiner {
    /// The node.
    pub node: NodeId,
    /// The number of the multicast session in the network.
    pub session: u32,
    /// The time from which joins are this program's, until that of the next program at this node.
    pub start: Time,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The way into the endpoint.
    pub inlet: Sender<Action<IpPacket>>,
}

/// The groups and joiners of all such sessions.
#[derive(Default)]
pub(super) struct GroupsOfSessions {
    channels: BTreeMap<(NodeId, IpAddr), Channel>,
    joiners: Vec<Joiner>,
    /// For each channel that a node has joined, the index of its joiner.
    holders: BTreeMap<(NodeId, Channel), usize>,
}

impl GroupsOfSessions {
    pub(super) fn claim(&mut self, groups: &Groups) {
        for number in 0..groups.channels {
            let group = Ipv4Addr::from_bits(groups.first.to_bits() + u32::from(number));
            let session = groups.session;
            let channel = Channel { session, number };
            self.channels.insert((groups.source, group.into()), channel);
        }
    }

    pub(super) fn add_joiner(&mut self, joiner: Joiner) {
        self.joiners.push(joiner);
    }

    /// Returns the channel of a source's group, if the group is a session's.
    pub(super) fn channel(&self, source: NodeId, group: IpAddr) -> Option<Channel> {
        self.channels.get(&(source, group)).copied()
    }

    /// Lets the endpoint that stands for a node's program join or leave a channel. The caller wakes
    /// the endpoint that this returns; `None` if no endpoint stands for the program.
    pub(super) fn join_or_leave(
        &mut self,
        node: NodeId,
        channel: Channel,
        is_join: bool,
        now: Time,
    ) -> Option<EndpointId> {
        let (index, action) = match is_join {
            true => (
                self.find(node, channel.session, now)?,
                Action::Join(channel),
            ),
            false => {
                let index = self.holders.remove(&(node, channel))?;
                (index, Action::Leave(channel))
            }
        };
        if is_join {
            self.holders.insert((node, channel), index);
        }
        let joiner = &self.joiners[index];
        joiner
            .inlet
            .send(action)
            .expect("the network holds the endpoint");
        Some(joiner.endpoint)
    }

    /// Returns the index of the joiner that has started last.
    fn find(&self, node: NodeId, session: u32, now: Time) -> Option<usize> {
        let known = self.joiners.iter().enumerate();
        let here = known.filter(|(_, joiner)| {
            joiner.node == node && joiner.session == session && joiner.start <= now
        });
        here.max_by_key(|(_, joiner)| joiner.start)
            .map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_leave_belongs_to_the_program_that_has_joined() {
        let (node, channel_3) = (
            NodeId(4),
            Channel {
                session: 2,
                number: 3,
            },
        );
        let mut sessions = GroupsOfSessions::default();
        let (inlet, actions) = channel();
        for (start_s, endpoint) in [(0.0, EndpointId(7)), (5.0, EndpointId(8))] {
            sessions.add_joiner(Joiner {
                node,
                session: 2,
                start: Time::from_secs_f64(start_s),
                endpoint,
                inlet: inlet.clone(),
            });
        }
        let mut change = |is_join, now_s| {
            sessions.join_or_leave(node, channel_3, is_join, Time::from_secs_f64(now_s))
        };
        assert_eq!(change(true, 4.9), Some(EndpointId(7)));
        assert_eq!(change(false, 5.1), Some(EndpointId(7)));
        assert_eq!(change(false, 5.2), None);
        assert_eq!(change(true, 5.3), Some(EndpointId(8)));
        assert_eq!(actions.try_iter().count(), 3);
    }

    #[test]
    fn channels_are_consecutive_groups_of_their_source() {
        let mut sessions = GroupsOfSessions::default();
        sessions.claim(&Groups {
            source: NodeId(1),
            session: 6,
            first: Ipv4Addr::new(232, 1, 0, 0),
            channels: 3,
        });
        let group = |last| Ipv4Addr::new(232, 1, 0, last).into();
        let channel = |number| Some(Channel { session: 6, number });
        assert_eq!(sessions.channel(NodeId(1), group(2)), channel(2));
        assert_eq!(sessions.channel(NodeId(1), group(3)), None);
        assert_eq!(sessions.channel(NodeId(2), group(2)), None);
    }
}
