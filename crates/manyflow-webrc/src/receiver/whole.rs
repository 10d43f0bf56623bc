//! Receivers of the whole session join the next wave before its first time slot. This is not in
//! RFC 3738, and part of the delay check.
//!
//! If all channels together have a constant rate, a receiver that has joined all active waves gets
//! every packet, and the session's rate is never too much for it. By the RFC's rules, it notices a
//! new time slot by a packet of this slot, and joins the wave that begins with it at the end of an
//! epoch. So it misses the wave's first packets. They are few, but each leaves a block of a file
//! without one of its source symbols.

use super::context::Context;
use super::running::Running;
use crate::Session;
use crate::sequence::Sequence;
use manyflow_core::time::Time;

/// The time before the beginning of a slot at which its wave is joined, in epochs. Each slot has an
/// epoch's end in the last of them.
const EARLY_EPOCHS: f64 = 1.5;

impl Running {
    /// Whether all active waves are joined, and bring every packet of the session.
    pub(super) fn has_whole_session(&self, session: &Session) -> bool {
        session.config().constant_aggregate && self.waves.len() as u32 == session.active_slots()
    }

    /// Joins the wave of the next slot shortly before the slot begins, if this receiver has the
    /// whole session and `target`, in packets per second, allows it.
    pub(super) fn join_early(&mut self, context: &mut Context, now: Time, target: f64) {
        let (session, config) = (&context.session, &context.config);
        let early = EARLY_EPOCHS * config.epoch(session).as_secs_f64() / session.time_slot_s();
        if !config.delay_check
            || self.early.is_some()
            || !self.has_whole_session(session)
            || target < session.session_rate()
            || self.timeline.position(now, session) < 1.0 - early
        {
            return;
        }
        let number = (self.ctsi + session.active_slots()) % session.wave_channels();
        let numbers = session.cci_format().sequence_numbers();
        self.early = Some(Sequence::wave(number, numbers));
        context.join(number);
    }

    /// Takes the wave that was joined early among the others, as its first slot begins. It is left
    /// if waves below it are not joined. Its first packets say nothing about the round-trip time.
    pub(super) fn begin_early_wave(&mut self, context: &mut Context) {
        let Some(wave) = self.early.take() else {
            return;
        };
        if self.waves.len() as u32 + 1 == context.session.active_slots() {
            self.waves.push_back(wave);
        } else {
            context.leave(wave.channel());
        }
    }
}
