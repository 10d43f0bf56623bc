//! One end of a connection in a simulated world, with an application above it.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use manyflow_core::{Action, Contents, Destination, Endpoint, EndpointId, Packet, Time};

use super::Application;
use manyflow_anypoint::{AcpConfig, ConfigError, Connection, Event, Frame, Segment};

/// One end of a connection, and its application.
#[derive(Debug)]
pub struct ModelledEnd<A> {
    remote: EndpointId,
    application: A,
    /// `None` before the start, and after a crash.
    connection: Option<Connection<Contents>>,
    /// The parameters and number of the connection to open, and when to open it.
    opening: Option<(AcpConfig, u32, Time)>,
    /// When the application has finished the frame that it read last.
    free_at: Time,
    events: VecDeque<Event>,
}

impl<A: Application> ModelledEnd<A> {
    /// Creates the end that opens connection number `connection` at `start` to `remote`, which is
    /// the other end or a switch.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn initiator(
        config: AcpConfig,
        application: A,
        remote: EndpointId,
        connection: u32,
        start: Time,
    ) -> Result<ModelledEnd<A>, ConfigError> {
        config.check()?;
        let mut end = ModelledEnd::new(application, remote);
        end.opening = Some((config, connection, start));
        Ok(end)
    }

    /// Creates the end that accepts one connection from `remote`, which is the other end or a
    /// switch.
    ///
    /// # Errors
    /// If a parameter is outside its range.
    pub fn acceptor(
        config: AcpConfig,
        application: A,
        remote: EndpointId,
    ) -> Result<ModelledEnd<A>, ConfigError> {
        let mut end = ModelledEnd::new(application, remote);
        end.connection = Some(Connection::listen(config)?);
        Ok(end)
    }

    fn new(application: A, remote: EndpointId) -> ModelledEnd<A> {
        ModelledEnd {
            remote,
            connection: None,
            opening: None,
            free_at: Time::ZERO,
            events: VecDeque::new(),
            application,
        }
    }

    /// Returns the application.
    pub fn application(&mut self) -> &mut A {
        &mut self.application
    }

    /// Returns the connection; `None` before the start, and after a crash.
    pub fn connection(&mut self) -> Option<&mut Connection<Contents>> {
        self.connection.as_mut()
    }

    /// Stops the application's sending, and closes its direction. Frames that were handed over are
    /// still delivered.
    pub fn close(&mut self) {
        self.application.stop_sending();
        self.close_after_last();
    }

    /// Crashes the end: from now on it neither sends nor receives.
    pub fn crash(&mut self) {
        (self.connection, self.opening) = (None, None);
        self.events.clear();
    }

    /// Returns whether the connection has ended, for any reason. Returns false before it begins.
    pub fn is_over(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_over)
    }

    fn close_after_last(&mut self) {
        if let Some(connection) = &mut self.connection
            && self.application.has_sent_all()
        {
            connection.close();
        }
    }

    /// Opens the connection if its time has come.
    fn start(&mut self, now: Time) {
        if let Some((config, number, _)) = self.opening.take_if(|(_, _, start)| now >= *start) {
            let connection = Connection::connect(config, number, now);
            self.connection = Some(connection.expect("the configuration was checked in new"));
        }
    }

    /// Runs the application: hands frames over, closes, and reads, as far as possible at `now`.
    fn run_application(&mut self, now: Time) {
        while self.next_frame_at().is_some_and(|at| at <= now) && self.hand_over(now) {}
        self.close_after_last();
        let Some(connection) = &mut self.connection else {
            return;
        };
        while self.free_at <= now
            && let Some(frame) = connection.receive(now)
        {
            let (bytes, key) = (frame.payload.length(), frame.key);
            self.free_at = now + self.application.read_frame(now, frame);
            self.events.push_back(Event::Delivered { bytes, key });
        }
    }

    /// Returns when the application has its next frame ready, if the connection takes it.
    fn next_frame_at(&self) -> Option<Time> {
        let connection = self.connection.as_ref()?;
        let has_room = connection.room() >= self.application.next_frame_bytes();
        let is_taken = has_room && !connection.is_over();
        is_taken.then(|| self.application.next_frame_at()).flatten()
    }

    /// Hands a frame over at `now`. Returns false if there is no frame, or the connection refuses
    /// it.
    fn hand_over(&mut self, now: Time) -> bool {
        let Some(connection) = &mut self.connection else {
            return false;
        };
        let Some(Frame { key, payload }) = self.application.take_frame(now) else {
            return false;
        };
        connection.send(key, payload).is_ok()
    }
}

impl<A: Application> Endpoint for ModelledEnd<A> {
    type Rx = Segment;
    type Tx = Segment;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Segment>) {
        if let Some(connection) = &mut self.connection
            && packet.source == self.remote
        {
            connection.handle_segment(now, &packet.header, packet.payload());
            self.run_application(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.start(now);
        if let Some(connection) = &mut self.connection {
            connection.handle_timeout(now);
            self.run_application(now);
        }
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Segment>> {
        let (segment, payload) = self.connection.as_mut()?.poll_transmit(now)?;
        let destination = Destination::Endpoint(self.remote);
        let packet = Packet::new(destination, segment, payload.unwrap_or_default());
        Some(Action::Send(packet))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let start = self.opening.as_ref().map(|(_, _, start)| *start);
        let connection = self.connection.as_ref();
        let reads = connection
            .filter(|connection| connection.is_readable())
            .map(|_| self.free_at);
        let timer = connection.and_then(Connection::poll_timeout);
        let wanted = [start, reads, timer, self.next_frame_at()];
        wanted.into_iter().flatten().min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        let connection = self.connection.as_mut()?;
        self.events.pop_front().or_else(|| connection.poll_event())
    }
}
