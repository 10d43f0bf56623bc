//! One end of a connection, whose application knows each frame; and the switch that may restart.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use manyflow_anypoint::switch::SwitchEndpoint;
use manyflow_anypoint::{self as anypoint, Body, Connection, Frame, Length, Reason, Segment};
use manyflow_core::{Action, Destination, Endpoint, EndpointId, Packet, Time};

use crate::plan::Plan;

/// An end's keys begin at its place among the ends times this: the peer's at 0.
pub(crate) const KEYS: u32 = 1 << 20;
const CONNECTION: u32 = 7;

/// What an end has done, for the judge.
#[derive(Debug, Default)]
pub(crate) struct Log {
    /// The keys of the frames that came in packets, by their numbers there.
    pub(crate) arrived: BTreeMap<u32, u32>,
    /// It has acknowledged all frames below this number.
    pub(crate) promised: u32,
    /// It was told that all frames below this number of its own have arrived.
    pub(crate) told: u32,
    /// The keys of the frames that it read, in order.
    pub(crate) read: Vec<u32>,
    /// How many frames it has handed over to its connection.
    pub(crate) sent: u32,
    /// A frame had another length than its key tells.
    pub(crate) garbled: bool,
    /// All that it sent is acknowledged, its closing too.
    pub(crate) finished: bool,
    pub(crate) failed: Option<Reason>,
    /// It has heard an Open, or sent one.
    pub(crate) opened: bool,
    /// When its connection ended, one way or another.
    pub(crate) over: Option<Time>,
    pub(crate) crashed: bool,
}

impl Log {
    /// Nothing more will come of it.
    pub(crate) fn is_through(&self) -> bool {
        self.over.is_some() || self.crashed || !self.opened
    }

    /// How it stands with the connection.
    pub(crate) fn state(&self) -> String {
        let Log {
            finished,
            failed,
            opened,
            over,
            crashed,
            ..
        } = self;
        let over = over.map_or("never".to_owned(), |at| {
            format!("at {:.1} s", at.as_secs_f64())
        });
        format!(
            "opened {opened}, finished {finished}, failed {failed:?}, over {over}, crashed {crashed}"
        )
    }
}

/// What an end is to do.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Task {
    /// The key of its first frame; the next ones count from there.
    pub(crate) first_key: u32,
    /// How many it sends.
    pub(crate) frames: u32,
    /// How long it works on a frame that it has read.
    pub(crate) service: Duration,
    /// When it dies.
    pub(crate) crash: Option<Time>,
}

/// An end and its application, which sends its frames as fast as they are taken, then closes.
pub(crate) struct End {
    connection: Connection<Length>,
    remote: EndpointId,
    task: Task,
    frame_bytes_max: u32,
    /// When the application has done with the frame that it works on, if it works on one.
    idle_at: Option<Time>,
    log: Arc<RwLock<Log>>,
}

impl End {
    pub(crate) fn initiator(
        plan: &Plan,
        task: Task,
        remote: EndpointId,
        log: Arc<RwLock<Log>>,
    ) -> End {
        let connection = Connection::connect(plan.config.clone(), CONNECTION, Time::ZERO);
        log.write().unwrap().opened = true;
        End::new(connection.unwrap(), plan, task, remote, log)
    }

    pub(crate) fn acceptor(
        plan: &Plan,
        task: Task,
        remote: EndpointId,
        log: Arc<RwLock<Log>>,
    ) -> End {
        let connection = Connection::listen(plan.config.clone());
        End::new(connection.unwrap(), plan, task, remote, log)
    }

    fn new(
        connection: Connection<Length>,
        plan: &Plan,
        task: Task,
        remote: EndpointId,
        log: Arc<RwLock<Log>>,
    ) -> End {
        End {
            connection,
            remote,
            task,
            frame_bytes_max: plan.config.frame_bytes_max,
            // At once: so the world drains what the connection begins with.
            idle_at: Some(Time::ZERO),
            log,
        }
    }

    /// A frame's length follows from its key, so that a mixed-up one is found.
    fn frame(&self, number: u32) -> (u32, Length) {
        let key = self.task.first_key + number;
        (key, length_of(key, self.frame_bytes_max))
    }

    fn work(&mut self, now: Time) {
        if self.task.crash.is_some_and(|crash| now >= crash) {
            self.log.write().unwrap().crashed = true;
            return;
        }
        self.read(now);
        let log = Arc::clone(&self.log);
        let mut log = log.write().unwrap();
        if self.connection.is_established() {
            while log.sent < self.task.frames {
                let (key, payload) = self.frame(log.sent);
                if self.connection.send(key, payload).is_err() {
                    break;
                }
                log.sent += 1;
            }
            if log.sent == self.task.frames {
                self.connection.close();
            }
        }
        if self.connection.is_over() {
            log.over.get_or_insert(now);
        }
    }

    fn read(&mut self, now: Time) {
        self.idle_at.take_if(|time| now >= *time);
        while self.idle_at.is_none()
            && let Some(Frame { key, payload }) = self.connection.receive(now)
        {
            let mut log = self.log.write().unwrap();
            log.read.push(key);
            log.garbled |= payload != length_of(key, self.frame_bytes_max);
            if !self.task.service.is_zero() {
                self.idle_at = Some(now + self.task.service);
            }
        }
    }

    fn note_arrival(&self, segment: &Segment) {
        let mut log = self.log.write().unwrap();
        match segment.body {
            Body::Open { .. } => log.opened = true,
            Body::Data(data) => {
                log.arrived.insert(data.sequence, data.key);
            }
            Body::Ack(ack) => log.told = log.told.max(ack.cumulative),
            _ => {}
        }
    }

    fn has_crashed(&self) -> bool {
        self.log.read().unwrap().crashed
    }
}

fn length_of(key: u32, frame_bytes_max: u32) -> Length {
    Length(1 + key.wrapping_mul(7919) % frame_bytes_max)
}

impl Endpoint for End {
    type Rx = Segment;
    type Tx = Segment;
    type Event = anypoint::Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Segment>) {
        self.work(now);
        let segment = &packet.header;
        if self.has_crashed() {
            return;
        }
        if !self.connection.is_over() {
            self.note_arrival(segment);
        }
        let payload = Length(packet.payload_bytes());
        self.connection.handle_segment(now, segment, payload);
        self.work(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.work(now);
        if !self.has_crashed() {
            self.connection.handle_timeout(now);
            self.work(now);
        }
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Segment>> {
        if self.has_crashed() {
            return None;
        }
        let (segment, payload) = self.connection.poll_transmit(now)?;
        if let Body::Ack(ack) = segment.body {
            let mut log = self.log.write().unwrap();
            log.promised = log.promised.max(ack.cumulative);
        }
        Some(Action::Send(Packet::new(
            Destination::Endpoint(self.remote),
            segment,
            payload.map_or(0, |Length(bytes)| bytes),
        )))
    }

    fn poll_timeout(&self) -> Option<Time> {
        if self.has_crashed() {
            return None;
        }
        let times = [
            self.connection.poll_timeout(),
            self.idle_at,
            self.task.crash,
        ];
        times.into_iter().flatten().min()
    }

    fn poll_event(&mut self) -> Option<anypoint::Event> {
        let event = self.connection.poll_event()?;
        let mut log = self.log.write().unwrap();
        match event {
            anypoint::Event::Finished => log.finished = true,
            anypoint::Event::Failed(reason) => log.failed = Some(reason),
            _ => {}
        }
        Some(event)
    }
}

/// A switch that may be replaced by one that knows nothing.
pub(crate) struct RestartingSwitch {
    switch: SwitchEndpoint,
    second: Option<(Time, SwitchEndpoint)>,
}

impl RestartingSwitch {
    pub(crate) fn new(
        switch: SwitchEndpoint,
        second: Option<(Time, SwitchEndpoint)>,
    ) -> RestartingSwitch {
        RestartingSwitch { switch, second }
    }

    fn restart_if_due(&mut self, now: Time) {
        if let Some((_, second)) = self.second.take_if(|(time, _)| now >= *time) {
            self.switch = second;
        }
    }
}

impl Endpoint for RestartingSwitch {
    type Rx = Segment;
    type Tx = Segment;
    type Event = anypoint::Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Segment>) {
        self.restart_if_due(now);
        self.switch.handle_packet(now, packet);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.restart_if_due(now);
        self.switch.handle_timeout(now);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Segment>> {
        self.switch.poll_action(now)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let restart = self.second.as_ref().map(|(time, _)| *time);
        let times = [self.switch.poll_timeout(), restart];
        times.into_iter().flatten().min()
    }

    fn poll_event(&mut self) -> Option<anypoint::Event> {
        self.switch.poll_event()
    }
}
