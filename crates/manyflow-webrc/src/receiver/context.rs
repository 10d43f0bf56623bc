//! A receiver's surroundings, which outlive its phases: parameters, and queues of actions and
//! events.

use core::convert::Infallible;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use super::ReceiverConfig;
use super::marks::Marks;
use crate::{Cci, Event, Session};
use manyflow_core::Action;
use manyflow_core::Channel;
use manyflow_core::Ecn;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;

/// The parts of a receiver that do not depend on its phase.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) session: Arc<Session>,
    pub(super) config: Arc<ReceiverConfig>,
    /// The session's number in [`Channel`]s.
    pub(super) id: u32,
    pub(super) actions: VecDeque<Action<Infallible>>,
    pub(super) events: VecDeque<Event>,
    pub(super) totals: Totals,
    /// The time at which the packet that is being handled has arrived.
    pub(super) arrived: Time,
    /// The ECN field of the packet that is being handled.
    pub(super) ecn: Ecn,
    /// The marks; `None` until a packet comes that routers may mark.
    pub(super) marks: Option<Box<Marks>>,
}

/// Packets counted over the whole session.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) received: u64,
    pub(super) lost: u64,
    pub(super) refused: Refusals,
}

/// Counts of packets that a receiver refused. They did not change its state.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Packets whose header cannot be of the session.
    pub header: u64,
    /// Packets whose header names another channel than the one by which they came.
    pub channel: u64,
    /// Packets whose time slot index is ahead of the clock.
    pub time_slot: u64,
    /// Packets whose sequence number does not fit the time.
    pub sequence_number: u64,
}

impl Refusals {
    /// Returns the number of refused packets of all kinds.
    pub fn total(&self) -> u64 {
        self.header + self.channel + self.time_slot + self.sequence_number
    }
}

impl core::ops::AddAssign for Refusals {
    fn add_assign(&mut self, other: Refusals) {
        self.header += other.header;
        self.channel += other.channel;
        self.time_slot += other.time_slot;
        self.sequence_number += other.sequence_number;
    }
}

impl Context {
    /// Returns the channel of this session with this number.
    fn channel(&self, number: u32) -> Channel {
        Channel {
            session: self.id,
            number: number as u16,
        }
    }

    /// Joins a channel, and reports it.
    pub(super) fn join(&mut self, number: u32) {
        let channel = self.channel(number);
        self.actions.push_back(Action::Join(channel));
        self.events.push_back(Event::Joined(channel));
    }

    /// Leaves a channel, and reports it.
    pub(super) fn leave(&mut self, number: u32) {
        let channel = self.channel(number);
        self.actions.push_back(Action::Leave(channel));
        self.events.push_back(Event::Left(channel));
    }

    /// Leaves a channel that was joined in vain, and reports that.
    pub(super) fn withdraw_join(&mut self, number: u32) {
        let channel = self.channel(number);
        self.actions.push_back(Action::Leave(channel));
        self.events.push_back(Event::JoinTimedOut(channel));
    }

    /// Reports the rate that a packet train has shown.
    pub(super) fn report_train(&mut self, packets_per_s: f64) {
        let packet_bytes = self.session.config().packet_bytes;
        let shown = Rate::from_packets_per_s(packets_per_s, packet_bytes);
        self.events.push_back(Event::Train { shown });
    }

    /// Returns the duration of silence that ends the session (section 3.2.3.8).
    pub(super) fn silence_timeout(&self) -> Duration {
        let recommended = self.session.config().time_slot.max(Duration::from_secs(10));
        self.config.silence_timeout.unwrap_or(recommended)
    }

    /// Returns the time without a new time slot index that ends the session (section 3.2.3.8).
    pub(super) fn slot_timeout(&self) -> Duration {
        let recommended = (2 * self.session.config().time_slot).max(Duration::from_secs(20));
        self.config.slot_timeout.unwrap_or(recommended)
    }

    /// Returns the number of packets so far, received and lost.
    pub(super) fn packets(&self) -> u64 {
        self.totals.received + self.totals.lost
    }

    /// Returns MRR_P in packets per second; infinity if the receiver sets no maximum.
    pub(super) fn maximum_rate(&self) -> f64 {
        let packet_bytes = self.session.config().packet_bytes;
        self.config
            .maximum_rate
            .map_or(f64::INFINITY, |rate| rate.packets_per_s(packet_bytes))
    }

    /// Whether the header's numbers can be of this session.
    pub(super) fn fits(&self, cci: &Cci) -> bool {
        let t = self.session.wave_channels();
        let numbers = if u32::from(cci.channel) == t {
            self.session.base_sequence_numbers()
        } else {
            self.session.cci_format().sequence_numbers()
        };
        u32::from(cci.ctsi) < t && u32::from(cci.channel) <= t && u64::from(cci.psn) < numbers
    }
}
