//! FLID-DL's sender: sends each layer at its own rate, on the channel that carries it in the
//! present slot, and draws the signal of each slot.

use core::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::config::HEADER_BYTES;
use super::{ConfigError, SenderConfig, channel_of, slot_field};
use crate::{Data, Event, GROUPS_MAX, Message};
use manyflow_core::interval::Interval;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;
use manyflow_core::{Action, Channel, Destination, Endpoint, Packet};

/// The sending end of a session.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    session: u32,
    start: Time,
    stop: Option<Time>,
    /// The base and the layers above it.
    layers: Vec<Layer>,
    /// The number of the next packet on each channel.
    sequences: [u32; GROUPS_MAX as usize],
    /// The number of the slot of the last packet, and its signal.
    slot: u64,
    signal: u8,
    random: Pcg64Mcg,
}

/// The next packet of a layer.
#[derive(Debug)]
struct Layer {
    /// When the packet leaves.
    due: Time,
    /// When the even interval of the following packet begins.
    next_interval: Time,
    interval: Interval,
}

impl Sender {
    /// Creates the sender of `session`, which sends from `start` until `stop`. The session's number
    /// is the seed of the random times and signals.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        config: SenderConfig,
        session: u32,
        start: Time,
        stop: Option<Time>,
    ) -> Result<Sender, ConfigError> {
        config.check()?;
        let own = |layer: u8| {
            let below = layer.checked_sub(1);
            let below = below.map_or(0.0, |below| config.level_bits_per_s(below));
            let bits_per_s = config.level_bits_per_s(layer) - below;
            Rate::from_bits_per_s((bits_per_s as u64).max(1))
        };
        let layer = |layer| Layer {
            due: start,
            next_interval: start,
            interval: Interval::new(config.packet_bytes, own(layer)),
        };
        let mut sender = Sender {
            layers: (0..=config.layers).map(layer).collect(),
            sequences: [0; GROUPS_MAX as usize],
            session,
            start,
            stop,
            slot: 0,
            signal: 0,
            random: Pcg64Mcg::seed_from_u64(session.into()),
            config,
        };
        sender.signal = sender.draw_signal();
        (0..=sender.config.layers).for_each(|layer| sender.schedule(layer));
        Ok(sender)
    }

    /// Draws the time of a layer's next packet.
    fn schedule(&mut self, layer: u8) {
        let below_one: f64 = self.random.random();
        let next = &mut self.layers[usize::from(layer)];
        let interval: Duration = next.interval.advance();
        next.due = next.next_interval + interval.mul_f64(below_one);
        next.next_interval += interval;
    }

    /// Draws the signal of a slot: the number of levels, from the lowest, whose receivers rise.
    fn draw_signal(&mut self) -> u8 {
        let drawn: f64 = self.random.random();
        let levels = 0..self.config.layers;
        let rising = levels.take_while(|level| drawn < self.config.signal_probability(*level));
        rising.count() as u8
    }

    /// Returns the layer whose packet is due first, unless that is after the end.
    fn next(&self) -> Option<u8> {
        let due = |layer: &u8| self.layers[usize::from(*layer)].due;
        let first = (0..=self.config.layers).min_by_key(due)?;
        let stopped = self.stop.is_some_and(|stop| due(&first) >= stop);
        (!stopped).then_some(first)
    }

    /// Returns the next packet of a layer, and schedules the one after it.
    fn take(&mut self, layer: u8) -> Packet<Message> {
        let since = self.layers[usize::from(layer)].due - self.start;
        let slot = (since.as_nanos() / self.config.slot.as_nanos()) as u64;
        debug_assert!(slot >= self.slot, "packets are taken in their order");
        while self.slot < slot {
            self.slot += 1;
            self.signal = self.draw_signal();
        }
        let dynamic = self.config.dynamic();
        let index = (slot % u64::from(dynamic.max(1))) as u8;
        let channel = match layer {
            0 => 0,
            layer => channel_of(layer, index, dynamic),
        };
        let sequence = &mut self.sequences[usize::from(channel)];
        let cumulative = self.config.level_bits_per_s(layer) / 8.0;
        let data = Data {
            group: channel,
            sequence: *sequence,
            request: slot_field(index, self.signal),
            is_for_group: false,
            rate: cumulative.min(u32::MAX.into()) as u32,
            rtt_us: 0,
            next_rate: 0,
            is_pair: false,
        };
        *sequence = sequence.wrapping_add(1);
        self.schedule(layer);
        let channel = Channel {
            session: self.session,
            number: channel.into(),
        };
        let payload_bytes = self.config.packet_bytes - HEADER_BYTES;
        Packet::new(
            Destination::Channel(channel),
            Message::Data(data),
            payload_bytes,
        )
    }
}

impl Endpoint for Sender {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    fn handle_packet(&mut self, _now: Time, _packet: &Packet<Message>) {}

    fn handle_timeout(&mut self, _now: Time) {}

    fn poll_action(&mut self, now: Time) -> Option<Action<Message>> {
        let layer = self.next()?;
        let is_due = self.layers[usize::from(layer)].due <= now;
        is_due.then(|| Action::Send(self.take(layer)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.next().map(|layer| self.layers[usize::from(layer)].due)
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::read_slot_field;
    use super::*;

    const SLOT_S: f64 = 0.5;

    /// Returns the packets of 200 s, with the number of the slot of each.
    fn sent(config: &SenderConfig) -> Vec<(usize, Data)> {
        let stop = Some(Time::from_secs_f64(200.0));
        let mut sender = Sender::new(config.clone(), 7, Time::ZERO, stop).unwrap();
        let mut sent = Vec::new();
        while let Some(now) = sender.poll_timeout() {
            let Some(Action::Send(packet)) = sender.poll_action(now) else {
                panic!("a sender that is due sends");
            };
            assert_eq!(packet.wire_bytes(), 1000);
            let Message::Data(data) = packet.header else {
                panic!("{packet:?}");
            };
            sent.push(((now.as_secs_f64() / SLOT_S) as usize, data));
        }
        sent
    }

    fn config() -> SenderConfig {
        SenderConfig {
            layers: 3,
            rate: Rate::from_bits_per_s(800_000),
            quiet_slots: 2,
            ..SenderConfig::default()
        }
    }

    #[test]
    fn a_channel_carries_each_layer_in_turn_and_is_then_quiet() {
        let sent = sent(&config());
        // Three layers and two quiet slots on five channels.
        let count = |channel: u8, slot: usize| {
            let of = |(at, data): &&(usize, Data)| data.group == channel && at % 5 == slot;
            sent.iter().filter(of).count() as f64 / 80.0
        };
        let own = |layer: f64| 50.0 * (libm::pow(1.3, layer) - libm::pow(1.3, layer - 1.0));
        let expected = [
            (3, own(3.0)),
            (4, own(2.0)),
            (0, own(1.0)),
            (1, 0.0),
            (2, 0.0),
        ];
        for (slot, packets) in expected {
            // Channel 1 carries layer 1 in slot 0.
            let found = count(1, slot);
            assert!(
                (found - packets).abs() < 0.6,
                "slot {slot}: {found}, not {packets}"
            );
        }
        let base = sent.iter().filter(|(_, data)| data.group == 0).count();
        assert!(base.abs_diff(20_000) < 20, "{base}");
    }

    #[test]
    fn the_rate_of_a_level_is_the_same_in_each_slot() {
        let config = config();
        let sent = sent(&config);
        for (slot, expected) in (10..20).zip([50.0 * libm::pow(1.3, 3.0); 10]) {
            let found = sent.iter().filter(|(at, _)| *at == slot).count() as f64;
            assert!((found - expected).abs() < 6.0, "slot {slot}: {found}");
        }
    }

    #[test]
    fn all_packets_of_a_slot_carry_its_index_and_its_signal() {
        let config = config();
        let sent = sent(&config);
        let mut signals = vec![None; 400];
        for (slot, data) in &sent {
            let (index, signal) = read_slot_field(data.request);
            assert_eq!(usize::from(index), slot % 5);
            let known = signals[*slot].get_or_insert(signal);
            assert_eq!(*known, signal, "slot {slot}");
        }
        for level in 0..3 {
            let rising = signals.iter().flatten().filter(|signal| **signal > level);
            let share = rising.count() as f64 / 400.0;
            let expected = config.signal_probability(level).min(1.0);
            assert!(
                (share - expected).abs() < 0.07,
                "{level}: {share}, not {expected}"
            );
        }
    }
}
