//! The client as an endpoint. It opens another connection when one is lost.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use manyflow_anypoint::{Connection, Event, Segment};
use manyflow_core::{Action, Contents, Destination, Endpoint, EndpointId, Packet, Time};
use manyflow_store::Answer;

use crate::store_faults::plan::{Plan, Step};
use crate::store_faults::task::{Acknowledged, End, Task};

/// The time from the loss of a connection to the next one.
const RECONNECT_AFTER: Duration = Duration::from_secs(1);

/// A record of the client's transfers for the checks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub(crate) acknowledged: Vec<Acknowledged>,
    /// The transfers that have ended, in order.
    pub(crate) ended: Vec<(Step, End)>,
    /// When each connection began to open, and when it was open or had failed.
    pub(crate) openings: Vec<(Time, Time)>,
    /// The number of connections.
    pub(crate) connections: u32,
}

pub(crate) struct ClientEnd {
    plan: Arc<Plan>,
    switch: EndpointId,
    connection: Option<Connection<Contents>>,
    /// When to open the next connection, if the present one is over.
    connect_at: Option<Time>,
    /// When the connection began to open, until it is open.
    opening_since: Option<Time>,
    task: Option<Task>,
    steps: VecDeque<(Time, Step)>,
    log: Arc<Mutex<Log>>,
}

impl ClientEnd {
    pub(crate) fn new(plan: &Arc<Plan>, switch: EndpointId, log: &Arc<Mutex<Log>>) -> ClientEnd {
        ClientEnd {
            plan: Arc::clone(plan),
            switch,
            connection: None,
            connect_at: Some(Time::ZERO),
            opening_since: None,
            task: None,
            steps: plan.steps.clone().into(),
            log: Arc::clone(log),
        }
    }

    /// Does everything that can be done at `now`.
    fn run(&mut self, now: Time) {
        self.note_opening(now);
        self.keep_connected(now);
        self.read_answers(now);
        self.advance(now);
        self.send_requests(now);
    }

    /// Logs the time that a connection has taken to open.
    fn note_opening(&mut self, now: Time) {
        let connection = self.connection.as_ref();
        let is_settled = connection.is_some_and(|c| c.is_established() || c.is_over());
        if is_settled && let Some(since) = self.opening_since.take() {
            self.log.lock().unwrap().openings.push((since, now));
        }
    }

    fn keep_connected(&mut self, now: Time) {
        if self
            .connection
            .take_if(|connection| connection.is_over())
            .is_some()
        {
            self.connect_at.get_or_insert(now + RECONNECT_AFTER);
            if let Some(task) = &mut self.task {
                task.handle_reconnect();
            }
        }
        let is_due = self.connect_at.is_some_and(|at| now >= at);
        if self.connection.is_none() && is_due {
            self.connect_at = None;
            let mut log = self.log.lock().unwrap();
            log.connections += 1;
            let connection = Connection::connect(self.plan.config.clone(), log.connections, now);
            self.connection = Some(connection.unwrap());
            self.opening_since = Some(now);
        }
    }

    fn read_answers(&mut self, now: Time) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        while let Some(frame) = connection.receive(now) {
            let bytes = Bytes::copy_from_slice(frame.payload.bytes().unwrap());
            let answer = Answer::decode(&bytes).unwrap();
            if let Some(task) = &mut self.task {
                task.handle_answer(now, &answer);
            }
        }
    }

    /// Begins transfers whose time has come, and ends those that are done. An answer to an earlier
    /// transfer must not reach a later one, so each begins with a connection of its own.
    fn advance(&mut self, now: Time) {
        if self.task.is_none() && self.steps.front().is_some_and(|(at, _)| *at <= now) {
            let (_, step) = &self.steps[0];
            self.task = Some(Task::new(&self.plan, step.clone(), now));
        }
        let Some(task) = &mut self.task else {
            return;
        };
        let mut log = self.log.lock().unwrap();
        let end = task.advance(&self.plan, now, &mut log.acknowledged);
        let mut is_unwanted = task.poll_reconnect();
        if let Some(end) = end
            && let Some((_, step)) = self.steps.pop_front()
        {
            log.ended.push((step, end));
            self.task = None;
            is_unwanted = true;
        }
        if let Some(connection) = &mut self.connection
            && is_unwanted
        {
            connection.abort();
            self.connect_at.get_or_insert(now + RECONNECT_AFTER);
        }
    }

    fn send_requests(&mut self, now: Time) {
        let (Some(task), Some(connection)) = (&mut self.task, &mut self.connection) else {
            return;
        };
        while !connection.is_over()
            && connection.room() >= self.plan.config.frame_bytes_max
            && let Some((key, request)) = task.poll_transmit(now)
        {
            let payload = Contents::from(&request.encode()[..]);
            connection.send(key, payload).unwrap();
        }
    }
}

impl Endpoint for ClientEnd {
    type Rx = Segment;
    type Tx = Segment;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Segment>) {
        if let Some(connection) = &mut self.connection {
            connection.handle_segment(now, &packet.header, packet.payload());
        }
        self.run(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
        }
        if let Some(task) = &mut self.task {
            task.handle_timeout(now);
        }
        self.run(now);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Segment>> {
        let (segment, payload) = self.connection.as_mut()?.poll_transmit(now)?;
        let destination = Destination::Endpoint(self.switch);
        let packet = Packet::new(destination, segment, payload.unwrap_or_default());
        Some(Action::Send(packet))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let connection = self.connection.as_ref().and_then(Connection::poll_timeout);
        let task = match &self.task {
            None => self.steps.front().map(|(at, _)| *at),
            Some(task) => task.poll_timeout(),
        };
        [self.connect_at, connection, task]
            .into_iter()
            .flatten()
            .min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.connection.as_mut()?.poll_event()
    }
}
