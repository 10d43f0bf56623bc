//! RLC's receiver: adds a group at a synchronisation point without losses before it, and drops one
//! when packets are lost.

use std::collections::VecDeque;

use super::{BURST, ConfigError, POINT, ReceiverConfig};
use crate::sim::Arrivals;
use crate::{Data, Event, Membership, Message};
use manyflow_core::time::Time;
use manyflow_core::{Action, Channel, Destination, Endpoint, Packet};

/// The receiving end of a session.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// The number of groups in the session.
    groups: u8,
    session: u32,
    /// When the receiver joins group 0; [`Time::MAX`] after it has left.
    start: Time,
    stop: Option<Time>,
    /// The joined groups, from the lowest.
    joined: Vec<Joined>,
    /// Losses have no consequence before this time.
    deaf_until: Time,
    /// Whether a packet was lost since the last synchronisation point of the top group. `None`
    /// before the first point after a join of that group, or after a deaf time: no whole burst
    /// has been seen.
    has_lost: Option<bool>,
    actions: VecDeque<Action<Message>>,
    events: VecDeque<Event>,
}

/// A joined group.
#[derive(Clone, Debug, Default)]
struct Joined {
    arrivals: Arrivals,
    /// Whether the last packet belonged to a burst.
    in_burst: bool,
}

impl Receiver {
    /// Creates a receiver.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(config: ReceiverConfig, membership: Membership) -> Result<Receiver, ConfigError> {
        let Membership {
            session,
            groups,
            start,
            stop,
        } = membership;
        config.check(groups)?;
        Ok(Receiver {
            config,
            groups,
            session,
            start,
            stop,
            joined: Vec::new(),
            deaf_until: start,
            has_lost: None,
            actions: VecDeque::new(),
            events: VecDeque::new(),
        })
    }

    /// Returns the number of joined groups.
    pub fn level(&self) -> u8 {
        self.joined.len() as u8
    }

    fn channel(&self, number: u8) -> Channel {
        Channel {
            session: self.session,
            number: number.into(),
        }
    }

    fn add(&mut self) {
        debug_assert!(self.level() < self.groups, "there is no such group");
        let channel = self.channel(self.level());
        self.joined.push(Joined::default());
        self.has_lost = None;
        self.actions.push_back(Action::Join(channel));
        self.events.push_back(Event::Joined(channel));
    }

    fn drop_top(&mut self) {
        debug_assert!(self.level() > 0, "no group is joined");
        self.joined.pop();
        self.has_lost = None;
        let channel = self.channel(self.level());
        self.actions.push_back(Action::Leave(channel));
        self.events.push_back(Event::Left(channel));
    }

    fn on_data(&mut self, now: Time, data: &Data) {
        let top = self.level().saturating_sub(1);
        let Some(joined) = self.joined.get_mut(usize::from(data.group)) else {
            // The packet was sent before the leave took effect.
            return;
        };
        joined.arrivals.on_packet(data.sequence);
        let missing = joined.arrivals.take_missing();
        let is_burst = data.request == BURST;
        let of_burst = core::mem::replace(&mut joined.in_burst, is_burst) || is_burst;
        if missing > 0 {
            self.events.push_back(Event::Lost(missing));
            self.on_loss(now, of_burst);
        }
        if data.request == POINT && data.group == top && self.level() == top + 1 {
            self.on_point(now);
        }
    }

    /// Handles a loss. That of a burst only prevents an addition.
    fn on_loss(&mut self, now: Time, of_burst: bool) {
        if now < self.deaf_until {
            return;
        }
        self.has_lost = self.has_lost.map(|_| true);
        if !of_burst {
            self.events.push_back(Event::LossEvent);
            if self.level() > 1 {
                self.drop_top();
                self.deaf_until = now + self.config.deaf_time;
            }
        }
    }

    /// Handles a synchronisation point of the top group.
    fn on_point(&mut self, now: Time) {
        if now < self.deaf_until {
            return;
        }
        let has_lost = self.has_lost.replace(false);
        if has_lost == Some(false) && self.level() < self.groups {
            self.add();
        }
    }
}

impl Endpoint for Receiver {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Message>) {
        let of_session = matches!(packet.destination, Destination::Channel(channel) if channel.session == self.session);
        if let Message::Data(data) = &packet.header
            && of_session
        {
            self.on_data(now, data);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.stop.is_some_and(|stop| stop <= now) {
            while self.level() > 0 {
                self.drop_top();
            }
            self.start = Time::MAX;
        } else if self.joined.is_empty() && self.start <= now {
            self.add();
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Message>> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self.joined.is_empty() {
            true => (self.start < self.stop.unwrap_or(Time::MAX)).then_some(self.start),
            false => self.stop,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    const GROUPS: u8 = 3;

    fn at(millis: u64) -> Time {
        Time::ZERO + Duration::from_millis(millis)
    }

    fn receiver() -> Receiver {
        let config = ReceiverConfig::default();
        let mut receiver = Receiver::new(config, Membership::new(7, GROUPS)).unwrap();
        receiver.handle_timeout(Time::ZERO);
        receiver
    }

    /// Delivers a packet of a group. Returns the level after it.
    fn deliver(receiver: &mut Receiver, now: u64, group: u8, sequence: u32, request: u16) -> u8 {
        let data = Data {
            group,
            sequence,
            request,
            is_for_group: false,
            rate: 0,
            rtt_us: 0,
            next_rate: 0,
            is_pair: false,
        };
        let channel = receiver.channel(group);
        let header = Message::Data(data);
        let packet = Packet::new(Destination::Channel(channel), header, 952);
        receiver.handle_packet(at(now), &packet);
        receiver.level()
    }

    #[test]
    fn a_group_is_added_at_the_second_point_without_a_loss() {
        let mut receiver = receiver();
        assert_eq!(deliver(&mut receiver, 0, 0, 0, POINT), 1);
        assert_eq!(deliver(&mut receiver, 500, 0, 1, POINT), 2);
        assert_eq!(
            deliver(&mut receiver, 1000, 0, 2, POINT),
            2,
            "not its top group"
        );
        assert_eq!(deliver(&mut receiver, 1000, 1, 0, POINT), 2);
        assert_eq!(deliver(&mut receiver, 2000, 1, 1, POINT), 3);
        assert_eq!(deliver(&mut receiver, 4000, 2, 0, POINT), 3);
        assert_eq!(
            deliver(&mut receiver, 8000, 2, 1, POINT),
            3,
            "there is no other group"
        );
    }

    #[test]
    fn a_loss_in_a_burst_prevents_an_addition_and_no_more() {
        let mut receiver = receiver();
        deliver(&mut receiver, 0, 0, 0, POINT);
        deliver(&mut receiver, 400, 0, 1, BURST);
        // The packet after the gap is the first after the relaxation.
        assert_eq!(deliver(&mut receiver, 500, 0, 3, POINT), 1);
        let events: Vec<_> = std::iter::from_fn(|| receiver.poll_event()).collect();
        assert!(events.contains(&Event::Lost(1)) && !events.contains(&Event::LossEvent));
        assert_eq!(deliver(&mut receiver, 1000, 0, 4, POINT), 2);
    }

    #[test]
    fn another_loss_drops_the_top_group_once_in_a_deaf_time() {
        let mut receiver = receiver();
        deliver(&mut receiver, 0, 0, 0, POINT);
        deliver(&mut receiver, 500, 0, 1, POINT);
        deliver(&mut receiver, 1000, 1, 0, POINT);
        assert_eq!(deliver(&mut receiver, 2000, 1, 1, POINT), 3);
        assert_eq!(deliver(&mut receiver, 2100, 0, 9, 0), 2);
        assert_eq!(deliver(&mut receiver, 2200, 0, 12, 0), 2, "deaf");
        assert_eq!(deliver(&mut receiver, 3200, 0, 15, 0), 1);
        assert_eq!(
            deliver(&mut receiver, 9000, 0, 20, 0),
            1,
            "the lowest group stays"
        );
    }
}
