//! The connections of one socket, shared by the driver and the applications' tasks.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use manyflow_anypoint::{Body, ConfigError, Reason, Segment};
use manyflow_core::time::Time;
use manyflow_net::clock::Clock;
use manyflow_net::trains::Trains;
use manyflow_net::udp::Arrival;
use rand::RngExt as _;
use rand::rngs::StdRng;
use slab::Slab;

use super::answers::Answers;
use super::arena::Arena;
use super::cookies::Cookies;
use super::end::End;
use super::envelope::{self, Cookie, Datagram, PATH_HEADER_BYTES, Part};
use super::fragment::Fragment;
use super::options::Options;
use super::timers::Timers;
use super::way::{Parts, Path};
use super::wire::Wire;
use super::{Number, rng, segment};

/// Accepted connections that the application has not taken. Further peers repeat their Opens.
const BACKLOG: usize = 4096;
/// The time that the other end has to close its direction after the application dropped a
/// connection that it had closed.
const ABANDONED: Duration = Duration::from_secs(30);

/// A socket's connections, behind a lock that nobody holds across an await.
#[derive(Debug)]
pub(super) struct Shared(Mutex<EndCore>);

impl Shared {
    pub(super) fn new(core: EndCore) -> Arc<Shared> {
        Arc::new(Shared(Mutex::new(core)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, EndCore> {
        self.0
            .lock()
            .expect("no task panics while it holds the lock")
    }
}

/// The connections of a socket.
#[derive(Debug)]
pub(super) struct EndCore {
    pub(super) wire: Wire,
    pub(super) clock: Clock,
    options: Options,
    /// Whether connections of others are accepted.
    is_listening: bool,
    ends: Slab<End>,
    places: HashMap<(SocketAddr, Number), usize>,
    timers: Timers,
    /// The connections that may have something to send.
    dirty: Vec<usize>,
    trains: Trains,
    pub(super) arena: Arena,
    parts: Parts,
    cookies: Cookies,
    answers: Answers,
    rng: StdRng,
    /// Accepted connections that the application has not taken.
    accepted: VecDeque<usize>,
    pub(super) acceptors: Vec<Waker>,
    pub(super) driver: Option<Waker>,
    /// The number of endpoints and connections in the hands of applications.
    pub(super) handles: usize,
}

impl EndCore {
    pub(super) fn new(wire: Wire, options: Options, is_listening: bool) -> EndCore {
        EndCore {
            wire,
            clock: Clock::start(),
            options,
            is_listening,
            ends: Slab::new(),
            places: HashMap::new(),
            timers: Timers::default(),
            dirty: Vec::new(),
            trains: Trains::default(),
            arena: Arena::default(),
            parts: Parts::default(),
            cookies: Cookies::new(),
            answers: Answers::new(),
            rng: rng(),
            accepted: VecDeque::new(),
            acceptors: Vec::new(),
            driver: None,
            handles: 0,
        }
    }

    /// Returns whether no application uses the socket, and nothing is left to do.
    pub(super) fn is_over(&self) -> bool {
        self.handles == 0 && self.ends.is_empty()
    }

    /// Returns a connection that an application holds.
    pub(super) fn end(&mut self, slot: usize) -> &mut End {
        &mut self.ends[slot]
    }

    /// Opens a connection, and returns its slot.
    pub(super) fn connect(&mut self, remote: SocketAddr) -> Result<usize, ConfigError> {
        let mut number: Number = self.rng.random();
        while self.places.contains_key(&(remote, number)) {
            number = self.rng.random();
        }
        let path = Path {
            remote,
            local: None,
        };
        let slot = self.add(path, number, true)?;
        self.handles += 1;
        self.touch(slot);
        Ok(slot)
    }

    fn add(
        &mut self,
        path: Path,
        number: Number,
        is_initiator: bool,
    ) -> Result<usize, ConfigError> {
        let now = self.clock.now();
        let end = End::new(&self.options, path, number, is_initiator, now)?;
        let slot = self.ends.insert(end);
        self.places.insert((path.remote, number), slot);
        Ok(slot)
    }

    /// Takes a connection that another end has opened.
    pub(super) fn accept(&mut self) -> Option<usize> {
        let slot = self.accepted.pop_front()?;
        self.handles += 1;
        Some(slot)
    }

    /// Makes the driver look at a connection. It is woken once for all messages until it does.
    pub(super) fn touch(&mut self, slot: usize) {
        if self.mark(slot)
            && let Some(driver) = &self.driver
        {
            driver.wake_by_ref();
        }
    }

    /// Returns whether nothing has marked the connection since the driver last looked at it.
    fn mark(&mut self, slot: usize) -> bool {
        let is_new = !std::mem::replace(&mut self.ends[slot].is_dirty, true);
        if is_new {
            self.dirty.push(slot);
        }
        is_new
    }

    /// Gives up the application's hold of a connection: ends it unless both directions are closed.
    pub(super) fn release(&mut self, slot: usize) {
        let now = self.clock.now();
        let end = &mut self.ends[slot];
        end.abandoned_until = Some(now + ABANDONED);
        if !end.is_done() && !end.is_finished() {
            end.abort();
        }
        self.handles -= 1;
        self.touch(slot);
        // The runtime may end before the driver runs again.
        self.transmit(now);
    }

    /// Handles a datagram, whose bytes are `bytes`.
    pub(super) fn handle_datagram(&mut self, now: Time, arrival: &Arrival, bytes: &[u8]) {
        let path = Path {
            remote: arrival.source,
            local: arrival.destination,
        };
        match envelope::decode(bytes) {
            Ok(Datagram::Open(open, cookie)) => self.handle_open(now, path, &open, &cookie),
            Ok(Datagram::Segment(segment, header)) => {
                self.handle_segment(now, path, &segment, &bytes[header..]);
            }
            Ok(Datagram::Challenge(number, cookie)) => {
                if let Some(slot) = self.places.get(&(path.remote, number)).copied() {
                    self.handle_challenge(slot, cookie);
                }
            }
            Ok(Datagram::PathProbe(number, id, size)) => {
                if self.places.contains_key(&(path.remote, number)) {
                    let answer = envelope::encode_path_answer(number, id, size);
                    let (trains, wire) = (&mut self.trains, &self.wire);
                    trains.push(wire, path.local, path.remote, answer.as_bytes(), &[]);
                }
            }
            Ok(Datagram::PathAnswer(number, id, size)) => {
                if let Some(slot) = self.places.get(&(path.remote, number)) {
                    self.ends[*slot].handle_path_answer(now, id, size);
                }
            }
            Ok(Datagram::Part(part)) => {
                self.handle_part(now, path, &part, &bytes[PATH_HEADER_BYTES..]);
            }
            Ok(Datagram::Admission(number, prefix, credit)) => {
                if let Some(slot) = self.places.get(&(path.remote, number)) {
                    self.ends[*slot].handle_prefix(prefix);
                }
                let accept = segment(number, Body::Accept { credit });
                self.handle_segment(now, path, &accept, &[]);
            }
            Err(_) => {}
        }
    }

    fn handle_segment(&mut self, now: Time, path: Path, segment: &Segment, frame: &[u8]) {
        match self.places.get(&(path.remote, segment.connection)) {
            Some(slot) => {
                let slot = *slot;
                let payload = match segment.body {
                    Body::Data(_) => Fragment::copy(&mut self.arena, frame),
                    _ => Fragment::default(),
                };
                self.ends[slot].handle_segment(now, segment, payload);
                self.mark(slot);
            }
            None if matches!(segment.body, Body::Reset(_)) => {}
            None => self.refuse(now, path, segment.connection, Reason::Unknown),
        }
    }

    /// Handles a part of a segment. Other datagrams are too short to be divided.
    fn handle_part(&mut self, now: Time, path: Path, part: &Part, bytes: &[u8]) {
        if !self.places.contains_key(&(path.remote, part.connection)) {
            return self.refuse(now, path, part.connection, Reason::Unknown);
        }
        if let Some(whole) = self.parts.join(path.remote, part, bytes) {
            if let Ok(Datagram::Segment(segment, header)) = envelope::decode(&whole) {
                self.handle_segment(now, path, &segment, &whole[header..]);
            }
            self.parts.recycle(whole);
        }
    }

    fn handle_challenge(&mut self, slot: usize, cookie: Cookie) {
        let end = &mut self.ends[slot];
        if let Some(open) = end.handle_challenge(cookie) {
            let Path { remote, local } = end.path;
            let header = envelope::encode(&open, &cookie);
            let (trains, wire) = (&mut self.trains, &self.wire);
            trains.push(wire, local, remote, header.as_bytes(), &[]);
        }
    }

    fn handle_open(&mut self, now: Time, path: Path, open: &Segment, cookie: &Cookie) {
        let number = open.connection;
        let known = self.places.get(&(path.remote, number)).copied();
        let slot = match known {
            Some(slot) => slot,
            None if !self.is_listening => return self.refuse(now, path, number, Reason::Refused),
            None if !self.cookies.is_valid(now, path.remote, cookie) => {
                return self.challenge(now, path, number);
            }
            None if self.ends.len() >= self.options.connections_max => {
                return self.refuse(now, path, number, Reason::Refused);
            }
            None if self.accepted.len() >= BACKLOG => return,
            None => match self.add(path, number, false) {
                Ok(slot) => {
                    self.accepted.push_back(slot);
                    self.acceptors.drain(..).for_each(Waker::wake);
                    slot
                }
                Err(_) => return,
            },
        };
        self.ends[slot].handle_segment(now, open, Fragment::default());
        self.mark(slot);
    }

    fn challenge(&mut self, now: Time, path: Path, number: Number) {
        if self.answers.may_challenge(now) {
            let cookie = self.cookies.cookie(now, path.remote);
            let header = envelope::encode_challenge(number, cookie);
            let (trains, wire) = (&mut self.trains, &self.wire);
            trains.push(wire, path.local, path.remote, header.as_bytes(), &[]);
        }
    }

    /// Answers a segment of no connection with a Reset, at a limited rate.
    fn refuse(&mut self, now: Time, path: Path, number: Number, reason: Reason) {
        if let Some(reset) = self.answers.reset(now, path.remote.ip(), number, reason) {
            let (trains, wire) = (&mut self.trains, &self.wire);
            trains.push(wire, path.local, path.remote, reset.as_bytes(), &[]);
        }
    }

    /// Handles the timers that are due.
    pub(super) fn handle_timeouts(&mut self, now: Time) {
        while let Some((due, slot)) = self.timers.take_due(now) {
            let end = self.ends.get_mut(slot);
            if end.is_some_and(|end| {
                let is_current = end.timer.expire(due);
                if is_current {
                    end.handle_timeout(now);
                }
                is_current
            }) {
                self.mark(slot);
            }
        }
    }

    /// Sends everything that is due.
    pub(super) fn transmit(&mut self, now: Time) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for slot in dirty.drain(..) {
            let end = &mut self.ends[slot];
            end.is_dirty = false;
            end.transmit(now, &self.wire, &mut self.trains);
            let due = end.poll_timeout();
            if end.is_over() && end.abandoned_until.is_some() {
                let end = self.ends.remove(slot);
                self.places.remove(&(end.path.remote, end.number));
            } else {
                self.timers.set(&mut end.timer, slot, due);
            }
        }
        self.dirty = dirty;
        self.trains.flush(&self.wire);
        while let Some((remote, length)) = self.trains.take_too_long() {
            for (_, end) in &mut self.ends {
                if end.path.remote == remote {
                    end.handle_too_long(now, length);
                }
            }
        }
    }

    /// Returns the number of datagrams that were longer than the MTU of the interface.
    pub(super) fn too_long(&self) -> u64 {
        self.trains.unsent().too_long
    }

    /// Returns when the next timer is due.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        self.timers.next()
    }

    /// Ends all connections that no application has taken.
    pub(super) fn stop_listening(&mut self) {
        self.is_listening = false;
        while let Some(slot) = self.accepted.pop_front() {
            self.handles += 1;
            self.release(slot);
        }
    }
}
