//! WEBRC's sender, which sends each packet of the base channel and the waves at its time (RFC 3738
//! section 3.1).
//!
//! The sender gets no feedback and keeps no state about receivers, so its cost does not depend on
//! their number.

use core::convert::Infallible;
use core::time::Duration;

use super::{Cci, Session};
use crate::Event;
use manyflow_core::time::Time;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Channel, Destination, Packet};

/// Packets that are later than this are skipped: after a pause, for example of a suspended machine,
/// a sender must not send a burst.
const LATEST: Duration = Duration::from_millis(500);

/// The sending end of a session.
#[derive(Debug)]
pub struct Sender {
    session: Session,
    id: u32,
    start: Time,
    /// The base channel first, then the active waves.
    cursors: Vec<Cursor>,
    skipped: u64,
}

/// The next packet of a channel.
#[derive(Clone, Debug)]
struct Cursor {
    /// Due time in nanoseconds since the start of the session, which may be negative.
    due_ns: i64,
    /// For the base: the slot of the packet. For a wave: the last slot in which it is active.
    slot: u64,
    /// For the base: the packet's index within its slot. For a wave: packets left, this one
    /// included.
    index: u64,
}

impl Sender {
    /// Makes a sender of `session`, which the world knows by `id`. Its first time slot begins at
    /// `start`.
    pub fn new(session: Session, id: u32, start: Time) -> Sender {
        let waves = u64::from(session.active_slots());
        let mut sender = Sender {
            session,
            id,
            start,
            cursors: Vec::new(),
            skipped: 0,
        };
        sender.cursors.push(Cursor {
            due_ns: 0,
            slot: 0,
            index: 0,
        });
        for slot in 0..waves {
            let elapsed_s = (waves - 1 - slot) as f64 * sender.session.time_slot_s();
            let cursor = sender.wave_cursor(slot, sender.session.wave().remaining_at(elapsed_s));
            sender.cursors.push(cursor);
        }
        sender
    }

    /// Returns the session's parameters.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the number of packets that were skipped because the sender was called too late.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    fn slot_ns(&self) -> i64 {
        self.session.config().time_slot.as_nanos() as i64
    }

    /// Returns the cursor of the wave that ends with `slot`, at the packet with `remaining` left.
    /// If none is left, it is the first packet of the next wave in the same place.
    fn wave_cursor(&self, slot: u64, remaining: u64) -> Cursor {
        if remaining == 0 {
            let next = slot + u64::from(self.session.active_slots());
            return self.wave_cursor(next, self.session.wave().packets());
        }
        let begin_slot = slot as i64 + 1 - i64::from(self.session.active_slots());
        let due_ns =
            begin_slot * self.slot_ns() + (self.session.wave().time_of(remaining) * 1e9) as i64;
        Cursor {
            due_ns,
            slot,
            index: remaining,
        }
    }

    /// Returns the cursor of packet `index` of a slot on the base channel.
    fn base_cursor(&self, slot: u64, index: u64) -> Cursor {
        if index == u64::from(self.session.base_packets_per_slot()) {
            return self.base_cursor(slot + 1, 0);
        }
        let phase_s = self.session.base_phase(index) * self.session.time_slot_s();
        Cursor {
            due_ns: slot as i64 * self.slot_ns() + (phase_s * 1e9) as i64,
            slot,
            index,
        }
    }

    /// Returns the place of the cursor that is due first.
    fn next(&self) -> usize {
        let first = |best: usize, i: usize| {
            if self.cursors[i].due_ns < self.cursors[best].due_ns {
                i
            } else {
                best
            }
        };
        (1..self.cursors.len()).fold(0, first)
    }

    fn due(&self, place: usize) -> Time {
        self.start + Duration::from_nanos(self.cursors[place].due_ns.max(0) as u64)
    }

    /// Returns the packet of a cursor, and moves the cursor to its next packet.
    fn take(&mut self, place: usize) -> Packet<Cci> {
        let Cursor {
            due_ns,
            slot,
            index,
        } = self.cursors[place].clone();
        let base = place == 0;
        self.cursors[place] = if base {
            self.base_cursor(slot, index + 1)
        } else {
            self.wave_cursor(slot, index - 1)
        };
        let wave_channels = u64::from(self.session.wave_channels());
        let format = self.session.cci_format();
        let (channel, psn) = if base {
            let count = slot * u64::from(self.session.base_packets_per_slot()) + index;
            (wave_channels, count % self.session.base_sequence_numbers())
        } else {
            (slot % wave_channels, format.sequence_numbers() - index)
        };
        let current_slot = (due_ns / self.slot_ns()) as u64;
        let cci = Cci {
            ctsi: (current_slot % wave_channels) as u16,
            channel: channel as u16,
            psn: psn as u32,
            format,
        };
        Packet::new(
            Destination::Channel(Channel {
                session: self.id,
                number: channel as u16,
            }),
            cci,
            self.session.config().packet_bytes - cci.wire_bytes(),
        )
    }
}

impl Endpoint for Sender {
    type Rx = Infallible;
    type Tx = Cci;
    type Event = Event;

    /// Does nothing, since a sender gets no packets.
    fn handle_packet(&mut self, _now: Time, _packet: &Packet<Infallible>) {}

    fn handle_timeout(&mut self, now: Time) {
        loop {
            let place = self.next();
            if self.due(place) + LATEST >= now {
                break;
            }
            self.take(place);
            self.skipped += 1;
        }
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Cci>> {
        let place = self.next();
        (self.due(place) <= now).then(|| Action::Send(self.take(place)))
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.due(self.next()))
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
