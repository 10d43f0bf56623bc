//! The receiving end of a session (RFC 4654 section 4).
//!
//! ```text
//!   waiting --start--> joined --first packet--> running --leave()--> leaving --T or new CLR--> ended
//! ```

mod conditions;
mod intervals;
mod loss;
mod meter;
mod order;
mod reporting;
mod rtt;
mod running;
#[cfg(test)]
mod tests;
mod timer;

use core::time::Duration;
use std::collections::VecDeque;

use manyflow_core::{
    Action, Channel, ConfigError, Destination, Endpoint, EndpointId, Packet, Rate, Time,
};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::SeedableRng;

use crate::config::ReceiverConfig;
use crate::event::Event;
use crate::header::{Feedback, Message, ReceiverId};
use running::{Context, Running};

/// The receiving end of a session.
#[derive(Debug)]
pub struct Receiver {
    context: Context,
    sender: EndpointId,
    channel: Channel,
    start: Time,
    stop: Option<Time>,
    phase: Phase,
    actions: VecDeque<Action<Message>>,
}

/// The phases of a receiver.
#[derive(Debug)]
enum Phase {
    /// The receiver has not joined yet.
    Waiting,
    /// The channel is joined, and no packet has arrived.
    Joined,
    /// Packets arrive.
    Running(Box<Running>),
    /// The receiver has left the channel.
    Ended,
}

/// The state of a receiver, for displays and measurements.
#[derive(Copy, Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// X_r: the desired rate; `None` before the second packet.
    pub desired: Option<Rate>,
    /// X_recv: the receive rate; `None` before the second packet.
    pub received: Option<Rate>,
    /// R: the round-trip time; `None` before the first measurement.
    pub rtt: Option<Duration>,
    /// p: the loss event rate; `None` before the first loss event.
    pub loss_event_rate: Option<f64>,
    /// Whether the receiver knows itself as the current limiting receiver.
    pub is_clr: bool,
}

impl Receiver {
    /// A receiver of the session with the number `session`, which joins at `start` and leaves at
    /// `stop`. It sends feedback to the endpoint `sender`. `id` must be unique in the session, and
    /// `seed`, from which the feedback timers are drawn, must differ between receivers.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn new(
        config: ReceiverConfig,
        session: u32,
        id: ReceiverId,
        sender: EndpointId,
        seed: u64,
        start: Time,
        stop: Option<Time>,
    ) -> Result<Receiver, ConfigError> {
        config.check()?;
        Ok(Receiver {
            context: Context {
                config,
                id,
                random: Pcg64Mcg::seed_from_u64(seed),
                events: VecDeque::new(),
            },
            sender,
            channel: crate::channel(session),
            start,
            stop,
            phase: Phase::Waiting,
            actions: VecDeque::new(),
        })
    }

    /// The state of the receiver; `None` before the first packet and after the end.
    pub fn status(&self) -> Option<Status> {
        match &self.phase {
            Phase::Running(running) => Some(running.status()),
            _ => None,
        }
    }

    /// Leaves the session (section 4.2). The limiting receiver announces it, and stays until the
    /// sender names another one, at most for a feedback round. A receiver that reported in the last
    /// round announces it once. A second call does nothing.
    pub fn leave(&mut self, now: Time) {
        match &mut self.phase {
            Phase::Waiting => self.phase = Phase::Ended,
            Phase::Joined => self.depart(),
            Phase::Running(running) => {
                running.announce_leave(now);
                self.act(now);
            }
            Phase::Ended => {}
        }
    }

    fn join(&mut self) {
        self.phase = Phase::Joined;
        self.actions.push_back(Action::Join(self.channel));
        self.context.events.push_back(Event::Joined(self.channel));
    }

    fn depart(&mut self) {
        self.phase = Phase::Ended;
        self.actions.push_back(Action::Leave(self.channel));
        self.context.events.push_back(Event::Left(self.channel));
    }

    /// Sends the report that is due, and leaves if it is time.
    fn act(&mut self, now: Time) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let report = running.take_report(now, &mut self.context);
        let is_over = running.is_over(now);
        if let Some(feedback) = report {
            self.send(feedback);
        }
        if is_over {
            self.depart();
        }
    }

    fn send(&mut self, feedback: Feedback) {
        let to = Destination::Endpoint(self.sender);
        let packet = Packet::new(to, Message::Feedback(feedback), 0);
        self.actions.push_back(Action::Send(packet));
    }
}

impl Endpoint for Receiver {
    type Rx = Message;
    type Tx = Message;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Message>) {
        let Message::Data(data) = &packet.header else {
            return;
        };
        let arrival = running::arrival(now, packet, data);
        match &mut self.phase {
            Phase::Joined => {
                let running = Running::new(arrival, &mut self.context);
                self.phase = Phase::Running(Box::new(running));
            }
            Phase::Running(running) => running.on_packet(arrival, &mut self.context),
            Phase::Waiting | Phase::Ended => return,
        }
        self.act(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.stop.is_some_and(|stop| stop <= now) {
            self.stop = None;
            self.leave(now);
        }
        if matches!(self.phase, Phase::Waiting) && self.start <= now {
            self.join();
        }
        self.act(now);
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Message>> {
        self.actions.pop_front()
    }

    fn poll_timeout(&self) -> Option<Time> {
        let own = match &self.phase {
            Phase::Waiting => Some(self.start),
            Phase::Joined => None,
            Phase::Running(running) => running.poll_timeout(),
            Phase::Ended => return None,
        };
        own.into_iter().chain(self.stop).min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.context.events.pop_front()
    }
}
