//! Checks each packet against the timeline, before it changes a running receiver.

use core::ops::ControlFlow;

use super::context::{Context, Refusals};
use super::running::Running;
use super::timeline::{NUMBERS_LATE, Place, lateness_max, numbers_ahead};
use crate::missing::FEW;
use crate::sequence::Sequence;
use crate::{Cci, EndReason, Event, Session};
use manyflow_core::time::{Time, seconds};

/// The time by which a packet that has waited may be ahead of the fastest before it, in seconds. A
/// sender acts once per millisecond, and its timers can be late.
const JITTER_S: f64 = 0.005;

/// The reason for which a packet is refused.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The time slot index is ahead of the clock.
    TimeSlot,
    /// The sequence number does not fit the time, or is from before the join.
    SequenceNumber,
}

impl Refusal {
    /// Returns the count of refusals for this reason.
    pub(super) fn count(self, refusals: &mut Refusals) -> &mut u64 {
        match self {
            Refusal::TimeSlot => &mut refusals.time_slot,
            Refusal::SequenceNumber => &mut refusals.sequence_number,
        }
    }
}

/// Returns the place of a packet of the base channel.
pub(super) fn place(session: &Session, cci: &Cci) -> Place {
    let per_slot = session.base_packets_per_slot();
    Place {
        ctsi: cci.ctsi.into(),
        slot: (cci.psn / per_slot).into(),
        phase: session.base_phase((cci.psn % per_slot).into()),
    }
}

impl Running {
    /// Returns the position of a packet in slots since the beginning of the current slot.
    ///
    /// # Errors
    /// If the sender cannot have sent the packet yet, or has sent it before its wave was joined.
    pub(super) fn check(&self, context: &Context, now: Time, cci: &Cci) -> Result<f64, Refusal> {
        let session = &context.session;
        let limit = self.timeline.limit(now, session);
        self.check_time_slot(session, limit, cci.ctsi.into())?;
        let (t, number) = (session.wave_channels(), u32::from(cci.channel));
        let position = if number == t {
            self.check_base(session, now, cci)?
        } else if let Some(wave) = self.wave(t, number) {
            self.check_wave(session, cci, wave)?
        } else {
            // Another receiver on this host has joined the channel.
            return Ok(0.0);
        };
        let is_far_ahead = || {
            self.is_far_ahead(session, now, cci, position)
                && !self.has_waited(session, now, cci, position)
        };
        if position > limit || is_far_ahead() {
            return Err(Refusal::SequenceNumber);
        }
        Ok(position)
    }

    /// Checks that the time slot has begun, or that its packet is late.
    fn check_time_slot(&self, session: &Session, limit: f64, ctsi: u32) -> Result<(), Refusal> {
        let t = session.wave_channels();
        let ahead = (ctsi + t - self.ctsi) % t;
        let is_late = (t - ahead - 1) * session.config().time_slot <= lateness_max(session);
        if ahead == 0 || f64::from(ahead) <= limit || is_late {
            return Ok(());
        }
        Err(Refusal::TimeSlot)
    }

    /// Returns the position of a packet of the base channel. Its sequence number gives its slot,
    /// which has to agree with the time slot index.
    fn check_base(&self, session: &Session, now: Time, cci: &Cci) -> Result<f64, Refusal> {
        let place = place(session, cci);
        let slots = place.slots_since(self.base_slot, session);
        let position = slots as f64 + place.phase;
        if position < self.timeline.floor(now, session) {
            return Err(Refusal::SequenceNumber);
        }
        if !place.index_follows(self.ctsi, slots, session) {
            return Err(Refusal::TimeSlot);
        }
        Ok(position)
    }

    /// Returns the position of a packet of a joined wave. Packets that the sender sent long before
    /// the first that came do not come: the wave was not joined then.
    fn check_wave(&self, session: &Session, cci: &Cci, wave: &Sequence) -> Result<f64, Refusal> {
        let psn = u64::from(cci.psn);
        let first = session.cci_format().sequence_numbers() - session.wave().packets();
        let unsent = || self.unsent(session, cci.channel.into());
        let begin = wave.begin().unwrap_or_else(unsent);
        if psn < first || psn + NUMBERS_LATE < begin {
            return Err(Refusal::SequenceNumber);
        }
        Ok(session.wave_position(psn) + self.wave_end(session, cci.channel))
    }

    /// Whether more numbers lie between the latest position and the packet than can remain pending.
    fn is_far_ahead(&self, session: &Session, now: Time, cci: &Cci, position: f64) -> bool {
        let reach = self.reach(session, now);
        if position <= reach {
            return false;
        }
        if u32::from(cci.channel) == session.wave_channels() {
            let ahead = self.base_number(session, position) + session.base_sequence_numbers()
                - self.base_number(session, reach);
            return ahead % session.base_sequence_numbers() > FEW;
        }
        let unsent = self.wave_unsent(session, cci.channel, reach);
        u64::from(cci.psn) > unsent + wave_numbers_ahead(session, cci.psn.into())
    }

    /// Whether the packet has probably waited at the sender, on the path or at this host, together
    /// with those before it.
    fn has_waited(&self, session: &Session, now: Time, cci: &Cci, position: f64) -> bool {
        let (t, number) = (session.wave_channels(), u32::from(cci.channel));
        let psn = cci.psn.into();
        let limit = self.timeline.fastest(now, session) + JITTER_S / session.time_slot_s();
        if position > limit {
            return false;
        }
        if number == t {
            return self.base.follows(psn, FEW);
        }
        let ahead = wave_numbers_ahead(session, psn);
        let follows = |wave: &Sequence| wave.follows(psn, ahead);
        self.wave(t, number).is_some_and(follows)
    }

    /// Returns the position to which a packet can bring the timeline at `now`.
    pub(super) fn reach(&self, session: &Session, now: Time) -> f64 {
        self.timeline.reach(now, self.rates.arr, session)
    }

    /// Counts a refused packet of the base channel. Starts over in its time slot if packets like it
    /// outnumber those of this timeline.
    pub(super) fn doubt(
        &mut self,
        context: &mut Context,
        now: Time,
        cci: &Cci,
    ) -> ControlFlow<EndReason> {
        let session = &context.session;
        let Some(since) = self.timeline.doubt(now, place(session, cci), session) else {
            return ControlFlow::Continue(());
        };
        // A forged first packet says nothing about the round-trip time. A true one came within a
        // few spacings, but it may have been taken for a forged one, as those after it.
        let delay = if self.timeline.is_established() {
            seconds(self.rtt.average_s())
        } else {
            let spacings = seconds(3.0 * session.base_spacing_max_s());
            (self.first_packet - self.base_joined) + (since - self.first_packet).min(spacings)
        };
        self.leave_waves(context);
        context.events.push_back(Event::StartedOver);
        *self = Running::new(context, now, delay, cci);
        self.on_packet(context, now, cci)
    }

    /// Returns the lowest number of a joined channel, the base or a wave, that is not due at the
    /// latest position.
    pub(super) fn unsent(&self, session: &Session, channel: u32) -> u64 {
        let latest = self.timeline.latest();
        if channel == session.wave_channels() {
            self.base_number(session, latest)
        } else {
            self.wave_unsent(session, channel as u16, latest)
        }
    }

    /// Returns the lowest number of the base channel that is not due at `position`.
    fn base_number(&self, session: &Session, position: f64) -> u64 {
        let per_slot = u64::from(session.base_packets_per_slot());
        let slot = libm::floor(position);
        let slots = session.base_slots();
        let number = (self.base_slot + (slot as i64).rem_euclid(slots as i64) as u64) % slots;
        let sent = session.base_packets_until(position - slot);
        (number * per_slot + sent) % session.base_sequence_numbers()
    }

    fn wave_unsent(&self, session: &Session, channel: u16, position: f64) -> u64 {
        session.wave_unsent(position - self.wave_end(session, channel))
    }

    /// Returns the position at which a joined wave ends, or has ended.
    fn wave_end(&self, session: &Session, channel: u16) -> f64 {
        let t = session.wave_channels();
        let slots = (u32::from(channel) + t + 1 - self.ctsi) % t;
        f64::from(slots)
    }
}

/// Returns the number of sequence numbers by which packet `psn` of a wave may be ahead of the
/// latest position.
pub(super) fn wave_numbers_ahead(session: &Session, psn: u64) -> u64 {
    let remaining = session.cci_format().sequence_numbers() - psn;
    numbers_ahead(session.wave_rate(remaining))
}
