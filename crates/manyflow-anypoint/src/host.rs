//! A host with one end of a connection and an application that is a model: what scenarios let send and read.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::Length;
use super::application::Application;
use super::config::{AcpConfig, ConfigError};
use super::connection::Connection;
use crate::{Event, Segment};
use manyflow_core::interval::Interval;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Destination, EndpointId, Packet};

/// When a paced application has its next frame ready.
#[derive(Debug)]
struct Pace {
    interval: Interval,
    due: Time,
}

impl Pace {
    /// [`Interval`] knows bits and their rate: a frame is 10^9 bits here, for a rate with nine digits behind the point.
    fn new(frames_per_s: f64) -> Pace {
        let rate = Rate::from_bits_per_s((frames_per_s * 1e9 + 0.5) as u64);
        Pace {
            interval: Interval::new(1_000_000_000 / 8, rate),
            due: Time::ZERO,
        }
    }

    /// A frame goes at `now`. One that waited for room moves those after it.
    fn advance(&mut self, now: Time) {
        self.due = self.due.max(now) + self.interval.advance();
    }
}

/// One end of a connection, and its application.
#[derive(Debug)]
pub struct Host {
    remote: EndpointId,
    application: Application,
    /// `None` before the start, and after a crash.
    connection: Option<Connection<Length>>,
    /// What is to be opened, and when.
    opening: Option<(AcpConfig, u32, Time)>,
    /// The span of [`Application::sends`] that is on or comes next.
    span: usize,
    pace: Option<Pace>,
    random: Pcg64Mcg,
    handed_over: u32,
    /// When the application has done with the frame that it read last.
    free_at: Time,
    events: VecDeque<Event>,
}

impl Host {
    /// The end that opens connection number `connection` at `start`, to `remote`: the other end, or a switch.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn initiator(
        config: AcpConfig,
        application: Application,
        remote: EndpointId,
        connection: u32,
        start: Time,
        seed: u64,
    ) -> Result<Host, ConfigError> {
        config.check()?;
        application.check(config.frame_bytes_max)?;
        let mut host = Host::new(application, remote, seed);
        host.opening = Some((config, connection, start));
        Ok(host)
    }

    /// The end that takes one connection, from `remote`: the other end, or a switch.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn acceptor(
        config: AcpConfig,
        application: Application,
        remote: EndpointId,
        seed: u64,
    ) -> Result<Host, ConfigError> {
        application.check(config.frame_bytes_max)?;
        let mut host = Host::new(application, remote, seed);
        host.connection = Some(Connection::listen(config)?);
        Ok(host)
    }

    fn new(application: Application, remote: EndpointId, seed: u64) -> Host {
        Host {
            remote,
            connection: None,
            opening: None,
            span: 0,
            pace: application.frames_per_s.map(Pace::new),
            random: Pcg64Mcg::seed_from_u64(seed),
            handed_over: 0,
            free_at: Time::ZERO,
            events: VecDeque::new(),
            application,
        }
    }

    /// Closes the connection's direction from here: what was handed over is still delivered.
    pub fn close(&mut self) {
        self.application.frames = Some(self.handed_over);
        self.close_after_last();
    }

    fn close_after_last(&mut self) {
        if let Some(connection) = &mut self.connection
            && self.application.frames == Some(self.handed_over)
        {
            connection.close();
        }
    }

    /// The host dies: from now on it neither sends nor hears anything.
    pub fn crash(&mut self) {
        (self.connection, self.opening) = (None, None);
        self.events.clear();
    }

    /// Opens the connection when its time has come.
    fn start(&mut self, now: Time) {
        if let Some((config, number, _)) = self.opening.take_if(|(_, _, start)| now >= *start) {
            let connection = Connection::connect(config, number, now);
            self.connection = Some(connection.expect("the configuration was checked in new"));
        }
    }

    /// The application does what it can: hands frames over, closes, reads.
    fn run_application(&mut self, now: Time) {
        while self.next_frame_at().is_some_and(|at| at <= now) && self.hand_over(now) {}
        self.close_after_last();
        let Some(connection) = &mut self.connection else {
            return;
        };
        while self.free_at <= now
            && let Some(frame) = connection.receive(now)
        {
            self.free_at = now + self.application.service.time(now);
            let bytes = frame.payload.0;
            self.events.push_back(Event::Delivered { bytes });
        }
    }

    /// When the application has its next frame ready, if the connection takes it.
    fn next_frame_at(&self) -> Option<Time> {
        let has_more = self.application.frames.is_none_or(|n| self.handed_over < n);
        let room = self.connection.as_ref()?.room();
        if !has_more || room < self.application.frame_bytes {
            return None;
        }
        let due = self.pace.as_ref().map_or(Time::ZERO, |pace| pace.due);
        let spans = self.application.sends.get(self.span..)?;
        let span = spans.iter().find(|span| span.to > due)?;
        Some(due.max(span.from))
    }

    /// Hands a frame over at `now`; false where this ends a span, or nothing is to be sent any more.
    fn hand_over(&mut self, now: Time) -> bool {
        let spans = &self.application.sends;
        while spans.get(self.span).is_some_and(|span| span.to <= now) {
            self.span += 1;
        }
        if spans.get(self.span).is_none_or(|span| now < span.from) {
            return false;
        }
        let Some(connection) = &mut self.connection else {
            return false;
        };
        let key = match self.application.keys {
            0 => self.handed_over,
            keys => self.random.random_range(0..keys),
        };
        let sent = connection.send(key, Length(self.application.frame_bytes));
        if sent.is_err() {
            // There was room, so the connection is over.
            self.span = self.application.sends.len();
            return false;
        }
        self.handed_over += 1;
        if let Some(pace) = &mut self.pace {
            pace.advance(now);
        }
        true
    }
}

impl Endpoint for Host {
    type Rx = Segment;
    type Tx = Segment;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Segment>) {
        if let Some(connection) = &mut self.connection
            && packet.source == self.remote
        {
            let payload = Length(packet.payload_bytes());
            connection.handle_segment(now, &packet.header, payload);
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
        Some(Action::Send(Packet::new(
            Destination::Endpoint(self.remote),
            segment,
            payload.map_or(0, |Length(bytes)| bytes),
        )))
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
