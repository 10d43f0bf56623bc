//! FLID-DL's receiver: at the end of each slot, it keeps its level, rises at a signal, or falls
//! after a loss.

use std::collections::VecDeque;

use super::{ConfigError, ReceiverConfig, channel_of, read_slot_field};
use crate::sim::Arrivals;
use crate::{Data, Event, GROUPS_MAX, Membership, Message};
use manyflow_core::time::Time;
use manyflow_core::{Action, Channel, Destination, Endpoint, Packet};

/// The receiving end of a session.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    session: u32,
    /// The number of channels besides that of the base.
    dynamic: u8,
    /// When the receiver joins the base; [`Time::MAX`] after it has left.
    start: Time,
    stop: Option<Time>,
    level: u8,
    /// The arrivals on each channel that is joined.
    joined: [Option<Arrivals>; GROUPS_MAX as usize],
    /// The index of the present slot; `None` before the first packet.
    index: Option<u8>,
    /// The highest signal in the present slot.
    signal: u8,
    has_lost: bool,
    /// Whether the present slot was seen from its beginning.
    is_whole: bool,
    actions: VecDeque<Action<Message>>,
    events: VecDeque<Event>,
}

impl Receiver {
    /// Creates a receiver. The groups of its membership are the session's channels.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(config: ReceiverConfig, membership: Membership) -> Result<Receiver, ConfigError> {
        config.check(membership.groups)?;
        Ok(Receiver {
            config,
            session: membership.session,
            dynamic: membership.groups - 1,
            start: membership.start,
            stop: membership.stop,
            level: 0,
            joined: [None; GROUPS_MAX as usize],
            index: None,
            signal: 0,
            has_lost: false,
            is_whole: false,
            actions: VecDeque::new(),
            events: VecDeque::new(),
        })
    }

    /// Returns the level: the number of layers above the base that the receiver gets.
    pub fn level(&self) -> u8 {
        self.level
    }

    fn is_joined(&self, channel: u8) -> bool {
        self.joined[usize::from(channel)].is_some()
    }

    fn channel(&self, number: u8) -> Channel {
        Channel {
            session: self.session,
            number: number.into(),
        }
    }

    fn join(&mut self, number: u8) {
        let channel = self.channel(number);
        self.joined[usize::from(number)] = Some(Arrivals::default());
        self.actions.push_back(Action::Join(channel));
        self.events.push_back(Event::Joined(channel));
    }

    fn leave(&mut self, number: u8) {
        let channel = self.channel(number);
        self.joined[usize::from(number)] = None;
        self.actions.push_back(Action::Leave(channel));
        self.events.push_back(Event::Left(channel));
    }

    fn on_data(&mut self, data: &Data) {
        if data.group > self.dynamic || !self.is_joined(data.group) {
            // The packet was sent before the leave took effect.
            return;
        }
        let (index, signal) = read_slot_field(data.request);
        self.note_slot(index);
        if self.index != Some(index) {
            // A late packet of a former slot.
            return;
        }
        self.signal = self.signal.max(signal);
        // The end of a slot may have left the channel.
        let Some(arrivals) = &mut self.joined[usize::from(data.group)] else {
            return;
        };
        arrivals.on_packet(data.sequence);
        let missing = arrivals.take_missing();
        if missing > 0 {
            self.has_lost = true;
            self.events.push_back(Event::Lost(missing));
        }
    }

    /// Notes the index of a packet's slot. A new one ends the present slot. Of all indices, the
    /// first half after the present one counts as new.
    fn note_slot(&mut self, index: u8) {
        if index >= self.dynamic.max(1) {
            return;
        }
        let Some(before) = self.index else {
            self.index = Some(index);
            return;
        };
        let passed = (index + self.dynamic.max(1) - before) % self.dynamic.max(1);
        if passed > 0 && passed <= self.dynamic / 2 {
            self.on_slots(index, passed);
        }
    }

    /// Ends the present slot, after which `passed` slots have begun, all but the last of which
    /// without a packet.
    fn on_slots(&mut self, index: u8, passed: u8) {
        debug_assert!(passed > 0, "the slot has changed");
        let is_signalled = self.is_whole && self.signal > self.level;
        let level = match (self.has_lost, is_signalled && passed == 1) {
            (true, _) => self.level.saturating_sub(1),
            (false, true) => (self.level + 1).min(self.config.layers),
            (false, false) => self.level,
        };
        if self.has_lost {
            self.events.push_back(Event::LossEvent);
        }
        self.level = level.saturating_sub(passed - 1);
        (self.index, self.signal) = (Some(index), 0);
        (self.has_lost, self.is_whole) = (false, true);
        self.change_channels(index);
    }

    /// Joins the channels that carry the layers of the level, and leaves the others.
    fn change_channels(&mut self, index: u8) {
        let layers = 1..=self.level;
        let wanted = layers.fold(1u64, |wanted, layer| {
            wanted | 1 << channel_of(layer, index, self.dynamic)
        });
        for channel in 0..=self.dynamic {
            match (self.is_joined(channel), (wanted >> channel) & 1 == 1) {
                (false, true) => self.join(channel),
                (true, false) => self.leave(channel),
                _ => {}
            }
        }
    }
}

impl Endpoint for Receiver {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    fn handle_packet(&mut self, _now: Time, packet: &Packet<Message>) {
        let of_session = matches!(packet.destination, Destination::Channel(channel) if channel.session == self.session);
        if let Message::Data(data) = &packet.header
            && of_session
        {
            self.on_data(data);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.stop.is_some_and(|stop| stop <= now) {
            for channel in 0..=self.dynamic {
                if self.is_joined(channel) {
                    self.leave(channel);
                }
            }
            self.start = Time::MAX;
        } else if !self.is_joined(0) && self.start <= now {
            self.join(0);
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Message>> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        match self.is_joined(0) {
            false => (self.start < self.stop.unwrap_or(Time::MAX)).then_some(self.start),
            true => self.stop,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::super::slot_field;
    use super::*;

    const DYNAMIC: u8 = 7;
    const LAYERS: u8 = 4;

    struct Stage {
        receiver: Receiver,
        sequences: [u32; GROUPS_MAX as usize],
        slot: u8,
    }

    impl Stage {
        fn new() -> Stage {
            let config = ReceiverConfig { layers: LAYERS };
            let membership = Membership::new(7, DYNAMIC + 1);
            let mut receiver = Receiver::new(config, membership).unwrap();
            receiver.handle_timeout(Time::ZERO);
            Stage {
                receiver,
                sequences: [0; GROUPS_MAX as usize],
                slot: 0,
            }
        }

        fn deliver(&mut self, channel: u8, signal: u8) {
            let sequence = &mut self.sequences[usize::from(channel)];
            let data = Data {
                group: channel,
                sequence: *sequence,
                request: slot_field(self.slot % DYNAMIC, signal),
                is_for_group: false,
                rate: 0,
                rtt_us: 0,
                next_rate: 0,
                is_pair: false,
            };
            *sequence += 1;
            let channel = self.receiver.channel(channel);
            let header = Message::Data(data);
            let packet = Packet::new(Destination::Channel(channel), header, 952);
            self.receiver.handle_packet(Time::ZERO, &packet);
        }

        /// Delivers two packets of each channel with a layer of a slot. Returns the level in it,
        /// and the channels that are joined.
        fn slot(&mut self, signal: u8, loses: bool) -> (u8, Vec<u8>) {
            self.deliver(0, signal);
            let level = self.receiver.level();
            for layer in 1..=LAYERS {
                let channel = channel_of(layer, self.slot % DYNAMIC, DYNAMIC);
                self.deliver(channel, signal);
                self.deliver(channel, signal);
            }
            self.sequences[0] += u32::from(loses);
            self.deliver(0, signal);
            self.slot += 1;
            let joined = (0..=DYNAMIC).filter(|channel| self.receiver.is_joined(*channel));
            (level, joined.collect())
        }
    }

    #[test]
    fn a_receiver_rises_at_the_end_of_slots_with_signals_for_its_level() {
        let mut stage = Stage::new();
        assert_eq!(stage.slot(4, false), (0, vec![0]), "a part of a slot");
        assert_eq!(stage.slot(1, false), (0, vec![0]));
        // Slot 2: channel 3 carries layer 1.
        assert_eq!(stage.slot(1, false), (1, vec![0, 3]));
        assert_eq!(
            stage.slot(2, false),
            (1, vec![0, 4]),
            "the signal was for level 0"
        );
        assert_eq!(stage.slot(0, false), (2, vec![0, 5, 6]));
        assert_eq!(stage.slot(0, false), (2, vec![0, 6, 7]), "it joins one");
        assert_eq!(stage.slot(0, false), (2, vec![0, 1, 7]));
        for _ in 0..10 {
            stage.slot(31, false);
        }
        assert_eq!(stage.slot(31, false).0, LAYERS, "there is no other layer");
    }

    #[test]
    fn a_loss_costs_one_level_without_a_leave_of_a_channel_that_sends() {
        let mut stage = Stage::new();
        for _ in 0..5 {
            stage.slot(31, false);
        }
        let (level, joined) = stage.slot(31, true);
        assert_eq!(level, 4);
        while stage.receiver.poll_action(Time::ZERO).is_some() {}
        let (level, kept) = stage.slot(0, false);
        assert_eq!(level, 3);
        let quiet: Vec<_> = joined.iter().filter(|it| !kept.contains(it)).collect();
        assert_eq!(
            quiet,
            [&channel_of(1, 5, DYNAMIC)],
            "its last layer was the lowest"
        );
        let mut actions = std::iter::from_fn(|| stage.receiver.poll_action(Time::ZERO));
        assert!(actions.all(|action| matches!(action, Action::Leave(_))));
        let events: Vec<_> = std::iter::from_fn(|| stage.receiver.poll_event()).collect();
        let losses = events.iter().filter(|event| **event == Event::LossEvent);
        assert_eq!(losses.count(), 1);
        assert!(events.contains(&Event::Lost(1)));
        assert_eq!(stage.slot(0, false).0, 3, "a loss counts once");
    }

    #[test]
    fn slots_without_a_packet_cost_a_level_each() {
        let mut stage = Stage::new();
        for _ in 0..6 {
            stage.slot(31, false);
        }
        stage.slot += 2;
        assert_eq!(stage.slot(0, false).0, 2);
    }

    #[test]
    fn a_receiver_leaves_all_channels_at_its_end() {
        let membership = Membership {
            stop: Some(Time::from_secs_f64(9.0)),
            ..Membership::new(7, DYNAMIC + 1)
        };
        let config = ReceiverConfig { layers: LAYERS };
        let mut stage = Stage {
            receiver: Receiver::new(config, membership).unwrap(),
            ..Stage::new()
        };
        stage.receiver.handle_timeout(Time::ZERO);
        for _ in 0..5 {
            stage.slot(31, false);
        }
        assert_eq!(stage.receiver.poll_timeout(), membership.stop);
        stage.receiver.handle_timeout(Time::from_secs_f64(9.0));
        assert!((0..=DYNAMIC).all(|channel| !stage.receiver.is_joined(channel)));
        assert_eq!(stage.receiver.poll_timeout(), None);
    }
}
