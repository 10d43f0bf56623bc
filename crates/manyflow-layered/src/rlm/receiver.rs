//! RLM's receiver, with the state machine that the module's page describes.

use core::time::Duration;
use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::layer::{Detection, Layer};
use super::{ConfigError, ReceiverConfig};
use crate::Event;
use crate::{Experiment, Membership, Message, Reason};
use manyflow_core::time::Time;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Channel, Destination, EndpointId, Packet};

/// The number of means at which T_J's exponential share is cut off.
const JOIN_TIMER_CUT: f64 = 4.0;

/// The receiving end of a session.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    session: u32,
    sender: EndpointId,
    stop: Option<Time>,
    state: State,
    /// The number of joined groups: those of rank 0 to `level - 1`.
    level: usize,
    /// All groups of the session.
    layers: Vec<Layer>,
    detection: Detection,
    /// T_J: when the next group is added; [`Time::MAX`] if there is none.
    join_timer: Time,
    /// T_D: when the state ends, or the top group's join-timer is relaxed.
    detection_timer: Time,
    random: Pcg64Mcg,
    actions: VecDeque<Action<Message>>,
    events: VecDeque<Event>,
}

/// The state of a receiver.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum State {
    /// Before the start: the receiver joins group 0 at this time.
    Waiting(Time),
    /// S, steady: there is no loss.
    Steady,
    /// H, hysteresis: losses may end without any action.
    Hysteresis,
    /// M, measurement: the share of lost packets is measured.
    Measurement(Count),
    /// D, drop: a group was dropped. Present losses are from before the drop took effect.
    Drop,
    /// The receiver has left.
    Ended,
}

/// The packets since a measurement began.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Count {
    received: u32,
    lost: u32,
}

impl Receiver {
    /// Creates a receiver, which announces its experiments to `sender`, and draws its random times
    /// from `seed`.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        config: ReceiverConfig,
        membership: Membership,
        sender: EndpointId,
        seed: u64,
    ) -> Result<Receiver, ConfigError> {
        let Membership {
            session,
            groups,
            start,
            stop,
        } = membership;
        config.check(groups)?;
        Ok(Receiver {
            session,
            sender,
            stop,
            state: State::Waiting(start),
            level: 0,
            layers: vec![Layer::new(&config); groups.into()],
            detection: Detection::new(&config),
            join_timer: Time::MAX,
            detection_timer: Time::MAX,
            random: Pcg64Mcg::seed_from_u64(seed),
            actions: VecDeque::new(),
            events: VecDeque::new(),
            config,
        })
    }

    /// Returns the number of joined groups.
    pub fn level(&self) -> u8 {
        self.level as u8
    }

    fn channel(&self, rank: usize) -> Channel {
        Channel {
            session: self.session,
            number: rank as u16,
        }
    }

    fn detection_time(&self) -> Duration {
        self.detection.time(&self.config)
    }

    /// Returns whether an experiment that began at this time can still cause present losses.
    fn is_recent(&self, began: Option<Time>, now: Time) -> bool {
        began.is_some_and(|began| now < began + self.detection_time())
    }

    fn enter(&mut self, now: Time, state: State) {
        self.state = state;
        self.detection_timer = now + self.detection_time();
    }

    /// Draws T_J for the group above the top one, if there is one.
    fn set_join_timer(&mut self, now: Time) {
        let Some(next) = self.layers.get(self.level) else {
            self.join_timer = Time::MAX;
            return;
        };
        let interval = next.join_interval;
        let below_one: f64 = self.random.random();
        let exponential = -libm::log1p(below_one * libm::expm1(-JOIN_TIMER_CUT));
        self.join_timer = now + interval.mul_f64(0.5 + exponential);
    }

    /// Joins the group above the top one.
    fn add(&mut self, now: Time, reason: Reason) {
        let channel = self.channel(self.level);
        self.layers[self.level].on_join();
        self.level += 1;
        debug_assert!(self.level <= self.layers.len(), "there is no such group");
        self.actions.push_back(Action::Join(channel));
        self.events.push_back(Event::Joined(channel));
        self.report_change(reason);
        self.set_join_timer(now);
    }

    /// Leaves the top group.
    fn leave_top(&mut self, reason: Reason) {
        debug_assert!(self.level > 0, "no group is joined");
        self.level -= 1;
        let channel = self.channel(self.level);
        self.actions.push_back(Action::Leave(channel));
        self.events.push_back(Event::Left(channel));
        self.report_change(reason);
    }

    fn report_change(&mut self, reason: Reason) {
        let groups = self.level as u8;
        self.events.push_back(Event::Changed { groups, reason });
    }

    /// Leaves the top group, which is tried again after T_J at the earliest, and waits until the
    /// drop takes effect.
    fn drop_top(&mut self, now: Time) {
        self.leave_top(Reason::Lost);
        self.set_join_timer(now);
        self.enter(now, State::Drop);
    }

    /// Backs off from the group of `rank`. The path does not carry the groups above it either, so
    /// none of them is tried sooner.
    fn back_off(&mut self, rank: usize) {
        self.layers[rank].back_off(&self.config);
        let least = self.layers[rank].join_interval;
        for layer in &mut self.layers[rank + 1..] {
            layer.join_interval = layer.join_interval.max(least);
        }
    }

    /// Returns the group of the latest experiment that can explain a loss here: an own experiment,
    /// or another receiver's above the present level.
    fn latest_experiment(&self, now: Time) -> Option<usize> {
        let explains = |&rank: &usize| {
            let layer = &self.layers[rank];
            let concerns_us = rank >= self.level || self.is_recent(layer.added, now);
            concerns_us && self.is_recent(layer.announced, now)
        };
        (0..self.layers.len())
            .filter(explains)
            .max_by_key(|&rank| self.layers[rank].announced)
    }

    fn on_loss(&mut self, now: Time) {
        match self.state {
            State::Steady => self.on_loss_in_steady_state(now),
            State::Measurement(count) if self.is_too_much(count) => {
                self.back_off(self.level - 1);
                self.drop_top(now);
            }
            _ => {}
        }
    }

    fn is_too_much(&self, Count { received, lost }: Count) -> bool {
        let share = f64::from(lost) / (f64::from(lost) + f64::from(received));
        received >= self.config.measured_packets && share > self.config.loss_threshold
    }

    fn on_loss_in_steady_state(&mut self, now: Time) {
        self.events.push_back(Event::LossEvent);
        let top = self.level - 1;
        let experiment = self.latest_experiment(now);
        if let Some(rank) = experiment {
            self.back_off(rank);
        }
        if let Some(added) = self.layers[top].added
            && experiment == Some(top)
        {
            self.detection.on_failure(now - added, &self.config);
            self.drop_top(now);
            return;
        }
        if experiment == Some(self.level) {
            // Another receiver's experiment failed: wait for the longer interval, as if it were our
            // own.
            self.set_join_timer(now);
        }
        if self.is_recent(self.layers[top].added, now) {
            self.enter(now, State::Measurement(Count::default()));
        } else {
            self.enter(now, State::Hysteresis);
        }
    }

    fn on_detection_timer(&mut self, now: Time) {
        let next = match self.state {
            State::Hysteresis => State::Measurement(Count::default()),
            _ => State::Steady,
        };
        if let (State::Steady, Some(top)) = (self.state, self.level.checked_sub(1)) {
            self.layers[top].relax(&self.config);
        }
        self.enter(now, next);
    }

    fn on_join_timer(&mut self, now: Time) {
        let lower = &self.layers[..self.level];
        let lower_is_tried = lower
            .iter()
            .any(|layer| self.is_recent(layer.announced, now));
        let top_arrives = lower.last().is_none_or(Layer::arrives);
        if self.state == State::Steady && top_arrives && !lower_is_tried {
            self.start_experiment(now);
        } else {
            self.set_join_timer(now);
        }
    }

    fn start_experiment(&mut self, now: Time) {
        let layer = &mut self.layers[self.level];
        (layer.added, layer.announced) = (Some(now), Some(now));
        let experiment = Experiment {
            session: self.session,
            group: self.level as u8,
        };
        self.actions.push_back(Action::Send(Packet::new(
            Destination::Endpoint(self.sender),
            Message::Experiment(experiment),
            0,
        )));
        self.add(now, Reason::Trial);
        // The running T_D belongs to the previous level, so it starts again.
        self.enter(now, State::Steady);
    }

    /// Handles an announcement. Ignores the announcement of an own experiment, which the sender
    /// returns.
    fn on_announcement(&mut self, now: Time, rank: usize) {
        if rank < self.layers.len() && !self.is_recent(self.layers[rank].added, now) {
            self.layers[rank].announced = Some(now);
        }
    }

    fn on_data(&mut self, now: Time, rank: usize, sequence: u32) {
        let Some(layer) = self.layers[..self.level].get_mut(rank) else {
            // The packet was sent before the leave took effect.
            return;
        };
        let Some(missing) = layer.on_packet(sequence) else {
            return;
        };
        if let State::Measurement(count) = &mut self.state {
            count.received = count.received.saturating_add(1);
            count.lost = count.lost.saturating_add(missing);
        }
        if missing > 0 {
            self.events.push_back(Event::Lost(missing));
            self.on_loss(now);
        }
    }

    fn end(&mut self) {
        while self.level > 0 {
            self.leave_top(Reason::Stopped);
        }
        self.state = State::Ended;
    }
}

impl Endpoint for Receiver {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Message>) {
        let of_session = matches!(packet.destination, Destination::Channel(channel) if channel.session == self.session);
        if !of_session || matches!(self.state, State::Waiting(_) | State::Ended) {
            return;
        }
        match packet.header {
            Message::Data(data) => {
                self.on_data(now, data.group.into(), data.sequence);
            }
            Message::Experiment(experiment) => {
                self.on_announcement(now, experiment.group.into());
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self.state {
            State::Ended => return,
            _ if self.stop.is_some_and(|stop| stop <= now) => return self.end(),
            State::Waiting(start) if start <= now => {
                self.enter(now, State::Steady);
                self.add(now, Reason::Entered);
            }
            State::Waiting(_) => return,
            _ => {}
        }
        if self.detection_timer <= now {
            self.on_detection_timer(now);
        }
        if self.join_timer <= now {
            self.on_join_timer(now);
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Message>> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        let next = match self.state {
            State::Waiting(start) => start,
            State::Ended => return None,
            _ => self.join_timer.min(self.detection_timer),
        };
        Some(self.stop.map_or(next, |stop| stop.min(next)))
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
}
