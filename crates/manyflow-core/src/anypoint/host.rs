//! A host with one end of a connection and an application that is a model: what scenarios let send and read.

use core::time::Duration;
use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::Length;
use super::config::{AcpConfig, ConfigError};
use super::connection::Connection;
use crate::endpoint::{Action, Endpoint, Event};
use crate::interval::Interval;
use crate::packet::{Destination, Ecn, EndpointId, Header, Packet};
use crate::time::Time;
use crate::units::Rate;

/// What an application does.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// When it has frames to send, as many as the connection takes; in order, apart from each other.
    pub sends: Vec<Span>,
    /// It closes its direction after so many frames; `None` never does.
    pub frames: Option<u32>,
    /// The length of its frames, 1 byte to the connection's longest.
    pub frame_bytes: u32,
    /// Frames per second that it sends at most; `None` is as fast as the connection takes them.
    pub frames_per_s: Option<f64>,
    /// The keys of its frames are drawn from 0 to this, excluded; 0 numbers them 0, 1, 2 and so on.
    pub keys: u32,
    /// How long it works on a frame that it has read, before it reads the next.
    pub service: Service,
}

/// From when until when.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The start.
    pub from: Time,
    /// The end, excluded.
    pub to: Time,
}

/// How long an application works on a frame.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// Always as long.
    Constant(Duration),
    /// `high` in the second half of each period, `low` in the first.
    Square {
        /// In the first half.
        low: Duration,
        /// In the second half.
        high: Duration,
        /// Both halves.
        period: Duration,
    },
}

impl Default for Application {
    /// Sends nothing and reads at once.
    fn default() -> Application {
        Application {
            sends: Vec::new(),
            frames: None,
            frame_bytes: 1024,
            frames_per_s: None,
            keys: 0,
            service: Service::Constant(Duration::ZERO),
        }
    }
}

impl Application {
    fn check(&self, frame_bytes_max: u32) -> Result<(), ConfigError> {
        let in_order = self.sends.is_sorted_by(|one, next| one.to <= next.from);
        let rates = 1e-6..=1e9;
        ConfigError::first_of([
            (
                "an application's frames",
                "1 byte to the connection's longest frame",
                (1..=frame_bytes_max).contains(&self.frame_bytes),
            ),
            (
                "the times to send",
                "in order and apart, each with its start before its end",
                in_order && self.sends.iter().all(|span| span.from < span.to),
            ),
            (
                "the frames per second",
                "a millionth to 10^9",
                self.frames_per_s.is_none_or(|rate| rates.contains(&rate)),
            ),
            (
                "the period of the service time",
                "more than 0",
                !matches!(self.service, Service::Square { period, .. } if period.is_zero()),
            ),
        ])
    }
}

impl Service {
    /// For a frame that is read at `now`.
    fn time(&self, now: Time) -> Duration {
        match *self {
            Service::Constant(time) => time,
            Service::Square { low, high, period } => {
                let period = period.as_nanos();
                let is_second_half = 2 * (u128::from(now.as_nanos()) % period) >= period;
                if is_second_half { high } else { low }
            }
        }
    }
}

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
        self.due = self.due.max(now) + self.interval.next();
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
        self.span = self.application.sends.len();
        if let Some(connection) = &mut self.connection {
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
        let Some(connection) = &mut self.connection else {
            return;
        };
        if self.application.frames == Some(self.handed_over) {
            connection.close();
        }
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
    fn handle_packet(&mut self, now: Time, packet: &Packet) {
        if let (Some(connection), Header::Anypoint(segment)) =
            (&mut self.connection, &packet.header)
            && packet.source == self.remote
        {
            connection.handle_segment(now, segment, Length(packet.payload_bytes));
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

    fn poll_action(&mut self, now: Time) -> Option<Action> {
        let (segment, payload) = self.connection.as_mut()?.poll_transmit(now)?;
        Some(Action::Send(Packet {
            source: EndpointId::UNSET,
            destination: Destination::Endpoint(self.remote),
            ecn: Ecn::NotCapable,
            header: Header::Anypoint(segment),
            payload_bytes: payload.map_or(0, |Length(bytes)| bytes),
        }))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anypoint::{Body, FlowControl};

    const PEER: EndpointId = EndpointId(0);
    const SERVER: EndpointId = EndpointId(1);
    const MS: Duration = Duration::from_millis(1);

    fn at_ms(ms: u32) -> Time {
        Time::ZERO + ms * MS
    }

    fn config() -> AcpConfig {
        AcpConfig {
            flow: FlowControl::Credit,
            ..AcpConfig::default()
        }
    }

    fn sends(spans: &[(u32, u32)]) -> Application {
        let span = |(from, to)| Span {
            from: at_ms(from),
            to: at_ms(to),
        };
        Application {
            sends: spans.iter().copied().map(span).collect(),
            ..Application::default()
        }
    }

    /// A peer that starts at 10 ms and a server, without any delay between them.
    struct Pair {
        hosts: [Host; 2],
        /// When a frame was sent by the peer, and its key.
        sent: Vec<(Time, u32)>,
        events: [Vec<(Time, Event)>; 2],
    }

    impl Pair {
        fn new(peer: Application, server: Application) -> Pair {
            let peer = Host::initiator(config(), peer, SERVER, 1, at_ms(10), 1).unwrap();
            let server = Host::acceptor(config(), server, PEER, 2).unwrap();
            Pair {
                hosts: [peer, server],
                sent: Vec::new(),
                events: Default::default(),
            }
        }

        fn run_until(&mut self, end: Time) {
            let next = |hosts: &[Host; 2]| hosts.iter().filter_map(Host::poll_timeout).min();
            let mut steps = 0;
            while let Some(now) = next(&self.hosts).filter(|next| *next <= end) {
                steps += 1;
                assert!(steps < 100_000, "the hosts' timers stand still at {now}");
                self.hosts
                    .iter_mut()
                    .for_each(|host| host.handle_timeout(now));
                while self.exchange(now) {}
                for (host, events) in self.hosts.iter_mut().zip(&mut self.events) {
                    let new = core::iter::from_fn(|| host.poll_event());
                    events.extend(new.map(|event| (now, event)));
                }
            }
        }

        fn exchange(&mut self, now: Time) -> bool {
            let mut moved = false;
            for (from, source) in [(0, PEER), (1, SERVER)] {
                while let Some(Action::Send(mut packet)) = self.hosts[from].poll_action(now) {
                    packet.source = source;
                    if let (0, Header::Anypoint(segment)) = (from, &packet.header)
                        && let Body::Data(data) = segment.body
                    {
                        self.sent.push((now, data.key));
                    }
                    self.hosts[1 - from].handle_packet(now, &packet);
                    moved = true;
                }
            }
            moved
        }

        fn delivered(&self, host: usize) -> Vec<Time> {
            let delivered = |(_, event): &&(Time, Event)| matches!(event, Event::Delivered { .. });
            let events = self.events[host].iter().filter(delivered);
            events.map(|(at, _)| *at).collect()
        }
    }

    #[test]
    fn a_paced_application_keeps_its_times_and_its_spans() {
        let peer = Application {
            frames_per_s: Some(3.0),
            ..sends(&[(0, 1_000), (2_000, 2_500)])
        };
        let mut pair = Pair::new(peer, Application::default());
        pair.run_until(at_ms(100_000));
        let times: Vec<u64> = pair
            .sent
            .iter()
            .map(|(at, _)| at.as_nanos() / 1_000_000)
            .collect();
        assert_eq!(times, [10, 343, 676, 2_000, 2_333]);
        let keys: Vec<u32> = pair.sent.iter().map(|(_, key)| *key).collect();
        assert_eq!(keys, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn an_application_closes_after_its_frames() {
        let peer = Application {
            frames: Some(1_000),
            ..sends(&[(0, 60_000)])
        };
        let mut pair = Pair::new(peer, Application::default());
        pair.run_until(at_ms(1_000));
        assert_eq!(pair.delivered(1).len(), 1_000);
        let finished = |(_, event): &(Time, Event)| *event == Event::Finished;
        assert!(pair.events[0].iter().any(finished));
        assert!(!pair.events[1].iter().any(finished));
        pair.hosts[1].close();
        pair.run_until(at_ms(60_000));
        assert!(pair.events[1].iter().any(finished));
    }

    #[test]
    fn a_reader_works_on_each_frame_before_the_next() {
        let server = Application {
            service: Service::Square {
                low: MS,
                high: 5 * MS,
                period: 100 * MS,
            },
            ..Application::default()
        };
        let mut pair = Pair::new(sends(&[(0, 60_000)]), server);
        pair.run_until(at_ms(209));
        let read = pair.delivered(1);
        let between = |from, to| {
            read.iter()
                .filter(|at| (at_ms(from)..at_ms(to)).contains(at))
                .count()
        };
        assert_eq!((between(10, 50), between(50, 100)), (40, 10));
        assert_eq!((between(100, 150), between(150, 200)), (50, 10));
    }

    #[test]
    fn keys_are_drawn_below_their_bound_and_by_the_seed() {
        let peer = Application {
            keys: 10,
            frames: Some(1_000),
            ..sends(&[(0, 60_000)])
        };
        let mut pair = Pair::new(peer.clone(), Application::default());
        pair.run_until(at_ms(1_000));
        let mut counts = [0; 10];
        pair.sent
            .iter()
            .for_each(|(_, key)| counts[*key as usize] += 1);
        assert!(counts.iter().all(|n| (60..140).contains(n)), "{counts:?}");
        let mut again = Pair::new(peer, Application::default());
        again.run_until(at_ms(1_000));
        assert_eq!(again.sent, pair.sent);
    }

    #[test]
    fn a_crashed_host_is_silent() {
        let peer = Application {
            frames_per_s: Some(100.0),
            ..sends(&[(0, 60_000)])
        };
        let mut pair = Pair::new(peer, Application::default());
        pair.run_until(at_ms(1_000));
        pair.hosts[1].crash();
        assert_eq!(pair.hosts[1].poll_timeout(), None);
        pair.run_until(at_ms(60_000));
        let (_, last) = pair.events[0].last().expect("events");
        assert_eq!(*last, Event::Failed(crate::anypoint::Reason::TimedOut));
        assert_eq!(pair.hosts[0].poll_timeout(), None);
    }

    #[test]
    fn an_application_outside_its_range_is_refused_by_name() {
        let refused = |application: Application| {
            let error = Host::acceptor(config(), application, PEER, 1).unwrap_err();
            error.to_string()
        };
        let none = Application::default;
        assert!(
            refused(Application {
                frame_bytes: 1025,
                ..none()
            })
            .contains("frames must be 1 byte")
        );
        assert!(refused(sends(&[(0, 20), (10, 30)])).contains("in order and apart"));
        assert!(
            refused(Application {
                frames_per_s: Some(0.0),
                ..none()
            })
            .contains("per second")
        );
    }
}
