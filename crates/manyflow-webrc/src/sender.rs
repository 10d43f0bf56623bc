//! WEBRC's sender, which sends each packet of the base channel and the waves at its time (RFC 3738
//! section 3.1).
//!
//! The sender gets no feedback and keeps no state about receivers, so its cost does not depend on
//! their number.

use core::cmp::Reverse;
use core::convert::Infallible;
use core::time::Duration;
use std::collections::BinaryHeap;

use super::{Cci, Session};
use crate::Event;
use manyflow_core::time::Time;
use manyflow_core::units::Rate;
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
    /// Due time and place of each cursor, the earliest first. A scan of all cursors for each packet
    /// would take most of a sender's time.
    order: BinaryHeap<Reverse<(i64, usize)>>,
    /// The number of time slots at the beginning of each new wave in which it is silent.
    silent_slots: u32,
    skipped: u64,
}

/// The next packet of a channel.
#[derive(Clone, Copy, Debug)]
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
            order: BinaryHeap::new(),
            silent_slots: 0,
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
        let due = sender.cursors.iter().map(|cursor| cursor.due_ns);
        sender.order = due.zip(0..).map(Reverse).collect();
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

    /// Lowers the top of the session: waves that begin from the next time slot on are silent in one
    /// more slot of their descent, or at first in their shaped slots. The rate of all channels
    /// together falls by about a quarter in each step, and is then no longer constant. Receivers of
    /// lower rates notice nothing. Those of the highest rates join waves that are silent, and
    /// withdraw these joins ([RFC 3738 section 3.2.3.7]) until the waves have packets.
    ///
    /// RFC 3738 section 3.1.2 permits that: each wave falls by P per slot while it has packets, and
    /// may begin later than its first slot. N, T and the sequence numbers remain as announced.
    ///
    /// Returns the highest rate of all channels together from then on; `None` if the two lowest
    /// waves are all that is left, which are always sent.
    ///
    /// [RFC 3738 section 3.2.3.7]: https://www.rfc-editor.org/rfc/rfc3738#section-3.2.3.7
    pub fn lower_top(&mut self) -> Option<Rate> {
        let silent = (self.silent_slots + 1).max(self.shaped_slots());
        let waves = self.session.active_slots().checked_sub(silent)?;
        if waves < 2 {
            return None;
        }
        self.silent_slots = silent;
        Some(self.top())
    }

    /// Raises the top by a step, after it was lowered: waves that begin from the next time slot on
    /// are silent in one slot less, or in none. Earlier waves remain as they are, so the rate rises
    /// by about a third within as many slots as the waves are silent in.
    ///
    /// RFC 3738 section 3.1.2 permits that as [`lower_top`](Self::lower_top).
    ///
    /// Returns the highest rate of all channels together from then on; `None` if the top is not
    /// lowered.
    pub fn raise_top(&mut self) -> Option<Rate> {
        let silent = self.silent_slots.checked_sub(1)?;
        self.silent_slots = match silent < self.shaped_slots() {
            true => 0,
            false => silent,
        };
        Some(self.top())
    }

    /// Returns the number of time slots at their beginning in which new waves are silent: 0 unless
    /// the top is lowered.
    pub fn silent_slots(&self) -> u32 {
        self.silent_slots
    }

    /// The number of slots at the beginning of a wave whose rate may be shaped, which are silent
    /// first.
    fn shaped_slots(&self) -> u32 {
        match self.session.config().constant_aggregate {
            true => 2,
            false => 1,
        }
    }

    /// Returns the highest rate of all channels together.
    fn top(&self) -> Rate {
        let config = self.session.config();
        if self.silent_slots == 0 && config.constant_aggregate {
            return config.session_rate;
        }
        let waves = self.session.active_slots() - self.silent_slots;
        let packets_per_s = self.session.subscribed_rate(waves, 0.0);
        Rate::from_packets_per_s(packets_per_s, config.packet_bytes)
    }

    /// Returns the number of packets of a wave that begins now.
    fn packets_of_new_wave(&self) -> u64 {
        let silent_s = f64::from(self.silent_slots) * self.session.time_slot_s();
        match self.silent_slots {
            0 => self.session.wave().packets(),
            _ => self.session.wave().remaining_at(silent_s),
        }
    }

    fn slot_ns(&self) -> i64 {
        self.session.config().time_slot.as_nanos() as i64
    }

    /// Returns the cursor of the wave that ends with `slot`, at the packet with `remaining` left.
    /// If none is left, it is the first packet of the next wave in the same place.
    fn wave_cursor(&self, slot: u64, remaining: u64) -> Cursor {
        if remaining == 0 {
            let next = slot + u64::from(self.session.active_slots());
            return self.wave_cursor(next, self.packets_of_new_wave());
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

    /// Returns the due time of the next packet.
    fn due(&self) -> Time {
        // There is always a cursor: that of the base channel.
        let due_ns = self.order.peek().map_or(0, |Reverse((due_ns, _))| *due_ns);
        self.start + Duration::from_nanos(due_ns.max(0) as u64)
    }

    /// Moves the cursor at a place, which is due first, to its next packet.
    fn advance(&mut self, place: usize) {
        let Cursor { slot, index, .. } = self.cursors[place];
        self.cursors[place] = match place {
            0 => self.base_cursor(slot, index + 1),
            _ => self.wave_cursor(slot, index - 1),
        };
        let next = Reverse((self.cursors[place].due_ns, place));
        if let Some(mut first) = self.order.peek_mut() {
            debug_assert_eq!(
                first.0.1, place,
                "packets are sent in the order of their times"
            );
            *first = next;
        }
    }

    /// Returns the packet that is due first, and moves its cursor to the next one.
    fn take(&mut self) -> Packet<Cci> {
        let place = self.order.peek().map_or(0, |Reverse((_, place))| *place);
        let Cursor {
            due_ns,
            slot,
            index,
        } = self.cursors[place];
        self.advance(place);
        let base = place == 0;
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
        .with_ecn(self.session.config().ecn)
    }
}

impl Endpoint for Sender {
    type Rx = Infallible;
    type Tx = Cci;
    type Event = Event;

    /// Does nothing, since a sender gets no packets.
    fn handle_packet(&mut self, _now: Time, _packet: &Packet<Infallible>) {}

    fn handle_timeout(&mut self, now: Time) {
        while self.due() + LATEST < now {
            self.take();
            self.skipped += 1;
        }
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Cci>> {
        (self.due() <= now).then(|| Action::Send(self.take()))
    }

    fn poll_timeout(&self) -> Option<Time> {
        Some(self.due())
    }

    fn poll_event(&mut self) -> Option<Event> {
        None
    }
}
