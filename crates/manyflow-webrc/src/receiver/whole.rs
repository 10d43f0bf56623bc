//! Receivers of the whole session join the next wave before its first time slot. This is not in
//! RFC 3738, and part of the delay check.
//!
//! If all channels together have a constant rate, a receiver that has joined all active waves gets
//! every packet, and the session's rate is never too much for it. By the RFC's rules, it notices a
//! new time slot by a packet of this slot, and joins the wave that begins with it at the end of an
//! epoch. So it misses the wave's first packets. They are few, but each leaves a block of a file
//! without one of its source symbols.

use super::check::wave_numbers_ahead;
use super::context::Context;
use super::running::Running;
use crate::Session;
use crate::sequence::Sequence;
use manyflow_core::time::Time;

/// The time before the beginning of a slot at which its wave is joined, in epochs. Each slot has an
/// epoch's end in the last of them.
const EARLY_EPOCHS: f64 = 1.5;

/// The part of the session's rate from which on a receiver counts as one of the whole session.
const RECEIVES_ALL: f64 = 0.95;

impl Running {
    /// Whether the session's rate arrived in the last epoch, apart from the last waves' beginnings.
    pub(super) fn receives_all(&self, session: &Session) -> bool {
        session.config().constant_aggregate
            && self.rates.rr >= RECEIVES_ALL * session.session_rate()
    }

    /// Joins the highest active wave, if all others are joined and `target`, in packets per second,
    /// is the session's rate. Returns whether it did. This wave has few packets in its first slot,
    /// so that waiting for the first could withdraw the join, and the wait would say nothing about
    /// the round-trip time.
    pub(super) fn join_highest(&mut self, context: &mut Context, target: f64) -> bool {
        let session = &context.session;
        let is_next = self.waves.len() as u32 + 1 == session.active_slots();
        if !is_next || !wants_whole_session(context, target) {
            return false;
        }
        let wave = self.begin_wave(context);
        self.waves.push_back(wave);
        true
    }

    /// Joins the wave of the next slot shortly before the slot begins, if all active waves are
    /// joined and `target`, in packets per second, is the session's rate.
    pub(super) fn join_early(&mut self, context: &mut Context, now: Time, target: f64) {
        let session = &context.session;
        let epoch_s = context.config.epoch(session).as_secs_f64();
        let begin = 1.0 - EARLY_EPOCHS * epoch_s / session.time_slot_s();
        let has_all = self.waves.len() as u32 == session.active_slots();
        if self.early.is_some()
            || !has_all
            || !wants_whole_session(context, target)
            || self.timeline.position(now, session) < begin
        {
            return;
        }
        self.early = Some(self.begin_wave(context));
    }

    /// Joins the wave above the joined ones, and returns its sequence numbers.
    pub(super) fn begin_wave(&self, context: &mut Context) -> Sequence {
        let session = &context.session;
        let number = (self.ctsi + self.waves.len() as u32) % session.wave_channels();
        let numbers = session.cci_format().sequence_numbers();
        // The wave's rate falls from now on, and with it the numbers that may be pending.
        let next = self.unsent(session, number).min(numbers - 1);
        let wave = Sequence::wave(number, numbers, wave_numbers_ahead(session, next));
        context.join(number);
        wave
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

/// Whether a receiver with this target rate, in packets per second, takes all of the session.
fn wants_whole_session(context: &Context, target: f64) -> bool {
    let session = &context.session;
    context.config.delay_check
        && session.config().constant_aggregate
        && target >= session.session_rate()
}
