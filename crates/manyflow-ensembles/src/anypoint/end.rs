//! One connection of a socket.

use std::task::Waker;

use bytes::Bytes;
use manyflow_anypoint::switch::Prefix;
use manyflow_anypoint::{self as acp, Body, DATA_HEADER_BYTES, Event, Reason, Segment};
use manyflow_core::time::Time;
use manyflow_net::trains::Trains;

use super::arena::Arena;
use super::envelope::{self, Cookie, NO_COOKIE};
use super::fragment::{Divided, Fragment};
use super::options::{FRAME_BYTES_MAX, Options};
use super::reassembly::{Message, Reassembly};
use super::seal::{Role, SegmentOpener, SegmentSealer};
use super::timers::Timer;
use super::way::{Path, Way};
use super::wire::Wire;
use super::{Number, rng};
use rand::RngExt as _;

/// A connection, and the tasks that wait for it.
#[derive(Debug)]
pub(super) struct End {
    pub(super) path: Path,
    pub(super) number: Number,
    acp: acp::Connection<Fragment>,
    way: Way,
    /// The number of frames that were sent at least once.
    sent: u32,
    cookie: Cookie,
    /// The last Open, until it is accepted.
    open: Option<Segment>,
    prefix: Prefix,
    pub(super) timer: Timer,
    /// Whether the end is in the list of those that have something to send.
    pub(super) is_dirty: bool,
    /// No task uses the connection. Frames are discarded, and it ends at this time.
    pub(super) abandoned_until: Option<Time>,
    pub(super) readers: Vec<Waker>,
    pub(super) writers: Vec<Waker>,
    /// Tasks that wait until the connection is accepted or closed.
    pub(super) watchers: Vec<Waker>,
    failure: Option<Reason>,
    is_finished: bool,
    next_message: u64,
    sealer: Option<SegmentSealer>,
    reassembly: Reassembly,
    send_buffer: u32,
    pub(super) retransmissions: u64,
}

impl End {
    /// Creates the end of a new connection. `is_initiator`: this end has opened it.
    pub(super) fn new(
        options: &Options,
        path: Path,
        number: Number,
        is_initiator: bool,
        now: Time,
    ) -> Result<End, acp::ConfigError> {
        let config = options.acp();
        let (acp, role) = match is_initiator {
            true => (acp::Connection::connect(config, number, now)?, Role::Peer),
            false => (acp::Connection::listen(config)?, Role::Member),
        };
        let key = options.key.as_ref();
        let opener = key.map(|key| SegmentOpener::new(key.clone(), role.other()));
        Ok(End {
            path,
            number,
            acp,
            way: Way::default(),
            sent: 0,
            cookie: NO_COOKIE,
            open: None,
            prefix: Prefix::NONE,
            timer: Timer::default(),
            is_dirty: false,
            abandoned_until: None,
            readers: Vec::new(),
            writers: Vec::new(),
            watchers: Vec::new(),
            failure: None,
            is_finished: false,
            next_message: rng().random(),
            sealer: key.map(|key| SegmentSealer::new(key, role)),
            reassembly: Reassembly::new(opener),
            send_buffer: options.send_buffer,
            retransmissions: 0,
        })
    }

    /// Returns the congestion window in frames.
    pub(super) fn window_frames(&self) -> f64 {
        self.acp.window_frames()
    }

    /// Returns the state of the connection: whether frames pass, or the reason of its failure.
    pub(super) fn is_established(&self) -> Result<bool, Reason> {
        match self.failure {
            Some(reason) => Err(reason),
            None => Ok(self.acp.is_established()),
        }
    }

    /// Returns whether the other end has closed its direction and everything was read.
    pub(super) fn is_at_end(&self) -> bool {
        self.acp.is_remote_closed() && !self.acp.is_readable()
    }

    /// Returns whether both directions are closed.
    pub(super) fn is_done(&self) -> bool {
        self.is_finished && self.acp.is_remote_closed()
    }

    /// Returns whether this direction is closed and everything is acknowledged.
    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    pub(super) fn is_over(&self) -> bool {
        self.acp.is_over()
    }

    /// Returns the number of fragments that could not become a message.
    pub(super) fn discarded(&self) -> u64 {
        self.reassembly.discarded()
    }

    pub(super) fn handle_segment(&mut self, now: Time, segment: &Segment, payload: Fragment) {
        self.acp.handle_segment(now, segment, payload);
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        self.acp.handle_timeout(now);
        if self.abandoned_until.is_some_and(|until| now >= until) {
            self.acp.abort();
        }
    }

    /// Handles a Challenge. Returns the Open to repeat, unless the connection is accepted.
    pub(super) fn handle_challenge(&mut self, cookie: Cookie) -> Option<Segment> {
        self.open.inspect(|_| self.cookie = cookie)
    }

    /// Handles the prefix that a switch of initiators gives this end while it waits for its Accept.
    pub(super) fn handle_prefix(&mut self, prefix: Prefix) {
        if self.open.is_some() {
            self.prefix = prefix;
        }
    }

    /// Returns the prefix of this end among the initiators of its connection.
    pub(super) fn prefix(&self) -> Prefix {
        self.prefix
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let due = [self.acp.poll_timeout(), self.abandoned_until];
        due.into_iter().flatten().min()
    }

    /// Begins a message: divides it into fragments.
    pub(super) fn begin_message(&mut self, key: u32, payload: Bytes) -> Divided {
        let message = self.next_message;
        self.next_message = message.wrapping_add(1);
        Divided::new(message, key, payload)
    }

    /// Queues fragments as long as there is room. Returns whether the message is complete.
    ///
    /// `pending` is the fragment that had no room the last time.
    pub(super) fn send(
        &mut self,
        arena: &mut Arena,
        key: u32,
        message: &mut Divided,
        pending: &mut Option<Fragment>,
    ) -> Result<bool, ()> {
        let frame_bytes_max =
            (self.way.limit() - usize::from(DATA_HEADER_BYTES)).min(FRAME_BYTES_MAX as usize);
        loop {
            let next = || message.next(arena, self.sealer.as_ref(), frame_bytes_max);
            let Some(frame) = pending.take().or_else(next) else {
                return Ok(true);
            };
            match self.acp.send(key, frame) {
                Ok(()) => {}
                Err(acp::SendError::Full(frame)) => {
                    *pending = Some(frame);
                    return Ok(false);
                }
                Err(_) => return Err(()),
            }
        }
    }

    /// Reads the next message.
    pub(super) fn receive(&mut self, now: Time) -> Option<Message> {
        while let Some(frame) = self.acp.receive(now) {
            let message = self.reassembly.handle_frame(frame);
            if message.is_some() {
                return message;
            }
        }
        None
    }

    /// Returns the length in bytes of the longest datagram that the path is known to carry.
    pub(super) fn path_bytes(&self) -> usize {
        self.way.limit()
    }

    /// Handles the answer to a probe of the path.
    pub(super) fn handle_path_answer(&mut self, now: Time, id: u32, bytes: u16) {
        self.way.handle_answer(now, id, bytes);
    }

    /// Handles that the kernel refused a datagram of this length.
    pub(super) fn handle_too_long(&mut self, now: Time, length: usize) {
        self.way.handle_too_long(now, self.path.remote, length);
    }

    pub(super) fn close(&mut self) {
        self.acp.close();
    }

    pub(super) fn abort(&mut self) {
        self.acp.abort();
    }

    /// Sends what is due, and wakes the tasks whose condition holds now.
    pub(super) fn transmit(&mut self, now: Time, wire: &Wire, trains: &mut Trains) {
        if self.abandoned_until.is_some() {
            while self.acp.receive(now).is_some() {}
        }
        while let Some((segment, payload)) = self.acp.poll_transmit(now) {
            if matches!(segment.body, Body::Open { .. }) {
                self.open = Some(segment);
            }
            let mut header = envelope::encode(&segment, &self.cookie);
            let fragment = payload.unwrap_or_default();
            if let Some(of_fragment) = fragment.header {
                header.append(&of_fragment.encode());
            }
            let mut is_repeated = false;
            if let Body::Data(data) = segment.body {
                is_repeated = data.sequence < self.sent;
                self.sent = self.sent.max(data.sequence.saturating_add(1));
            }
            let to = (self.path, self.number);
            let datagram = (&header, &fragment.part[..]);
            self.way
                .send(now, (wire, trains), to, datagram, is_repeated);
        }
        while let Some(event) = self.acp.poll_event() {
            self.handle_event(event);
        }
        if self.acp.is_established() {
            self.open = None;
        }
        self.wake();
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Failed(reason) => self.failure = Some(reason),
            Event::Finished => self.is_finished = true,
            Event::Retransmission => self.retransmissions += 1,
            _ => {}
        }
    }

    fn wake(&mut self) {
        let is_over = self.acp.is_over();
        let is_readable = is_over || self.acp.is_readable() || self.acp.is_remote_closed();
        if is_readable && !self.readers.is_empty() {
            self.readers.drain(..).for_each(Waker::wake);
        }
        // A writer that is woken for each acknowledgement would send one frame at a time.
        let has_room = self.acp.room() >= self.send_buffer / 4;
        if (is_over || has_room) && !self.writers.is_empty() {
            self.writers.drain(..).for_each(Waker::wake);
        }
        let is_notable = is_over || self.is_finished || self.open.is_none();
        if is_notable && !self.watchers.is_empty() {
            self.watchers.drain(..).for_each(Waker::wake);
        }
    }
}
