//! The state of a receiver that has found its place in the time slots, and how packets change it.

use core::ops::ControlFlow;
use core::time::Duration;
use std::collections::VecDeque;

use super::context::Context;
use super::delay::Delays;
use super::dispersion::Dispersion;
use super::lossy::EarlyLosses;
use super::pairs::Pairs;
use super::rates::Rates;
use super::resume::Resumption;
use super::timeline::Timeline;
use super::{ReceiverConfig, Status, check};
use crate::loss::LossEstimator;
use crate::rtt::{AverageRtt, RttRule};
use crate::sequence::{Arrival, Sequence};
use crate::{Cci, Session};
use crate::{EndReason, Event, SlowStartEnd};
use manyflow_core::Ecn;
use manyflow_core::time::{Time, seconds};
use manyflow_core::units::Rate;

/// Consecutive slots that lose most of the base channel, although few waves are joined, after which
/// the session is given up (section 3.2.1).
const BASE_LOSS_SLOTS: u32 = 6;

/// The most waves that count as few: the slow start minimum allows as many, so no loss keeps a
/// receiver from joining them.
const BASE_LOSS_WAVES: usize = 3;

/// The state of a receiver that has found its place in the time slots.
#[derive(Debug)]
pub(super) struct Running {
    /// CTSI: the current time slot index.
    pub(super) ctsi: u32,
    pub(super) slot_since: Time,
    pub(super) last_packet: Time,
    pub(super) base: Sequence,
    /// The joined waves, the lowest layer first: NWC is their number.
    pub(super) waves: VecDeque<Sequence>,
    /// The wave that was left last, while its packets may still be on their way.
    pub(super) left: Option<Sequence>,
    /// The wave that is joined before its first slot.
    pub(super) early: Option<Sequence>,
    pub(super) joining: Option<Joining>,
    /// Time from the join of the last wave to its first packet, in seconds.
    pub(super) last_delay_s: Option<f64>,
    /// Epochs that ended since the first packet of the last wave.
    pub(super) epochs_since_first: u32,
    /// The conditions under which pending gaps count as loss; `None` without gaps.
    pub(super) reorder: Option<Reorder>,
    pub(super) loss_event_until: Time,
    pub(super) rates: Rates,
    pub(super) rtt: AverageRtt,
    pub(super) loss: LossEstimator,
    /// SSR_P: infinite in start-up.
    pub(super) slow_start_rate: f64,
    pub(super) early_losses: EarlyLosses,
    pub(super) resumption: Resumption,
    /// The bottleneck's capacity in packets per second, measured when a wave filled it; infinite
    /// before that.
    pub(super) capacity: f64,
    pub(super) capacity_since: Time,
    pub(super) epoch_since: Time,
    pub(super) next_epoch: Time,
    pub(super) timeline: Timeline,
    pub(super) delays: Delays,
    pub(super) dispersion: Dispersion,
    /// Pairs of packets, with the capacity check.
    pub(super) pairs: Option<Box<Pairs>>,
    /// Whether the last join was a jump, whose rate has not been judged yet.
    pub(super) jump_is_open: bool,
    /// Whether a jump made a queue grow, so that no other follows.
    pub(super) jumps_are_over: bool,
    /// The number of the current slot, as the base channel's sequence numbers give it.
    pub(super) base_slot: u64,
    base_received_in_slot: u32,
    base_loss_slots: u32,
    /// The time of the base channel's join, as its first packet showed it.
    pub(super) base_joined: Time,
    pub(super) first_packet: Time,
}

/// A join whose first packet has not come.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) since: Time,
    pub(super) deadline: Time,
}

/// A gap that waits for late packets.
#[derive(Copy, Clone, Debug)]
pub(super) struct Reorder {
    pub(super) packets_left: u32,
    pub(super) epoch_passed: bool,
}

impl Running {
    /// Starts with the first packet of the base channel, which came `delay` after the join. The
    /// packet gives the time slot and the position in it (section 3.2.2.5).
    pub(super) fn new(context: &mut Context, now: Time, delay: Duration, cci: &Cci) -> Running {
        let (session, config) = (&context.session, &context.config);
        let place = check::place(session, cci);
        let index = u64::from(cci.psn % session.base_packets_per_slot());
        let first = session.train(index).start;
        let rate = session.base_rate()
            + first as f64 * libm::log(session.decrease()) / session.time_slot_s();
        let delay_s = delay.as_secs_f64();
        let epoch = config.epoch(session);
        context.events.push_back(Event::Rtt {
            sample_s: delay_s,
            average_s: delay_s,
        });
        Running {
            ctsi: cci.ctsi.into(),
            slot_since: now,
            last_packet: now,
            base: Sequence::base(session.wave_channels(), session.base_sequence_numbers()),
            waves: VecDeque::new(),
            left: None,
            early: None,
            joining: None,
            last_delay_s: None,
            epochs_since_first: 0,
            reorder: None,
            loss_event_until: Time::ZERO,
            rates: Rates::new(rate),
            // A round trip of zero would make the equation infinite.
            rtt: AverageRtt::new(config.alpha(), session.decrease(), delay_s.max(1e-6)),
            loss: LossEstimator::new(),
            slow_start_rate: f64::INFINITY,
            early_losses: EarlyLosses::default(),
            resumption: Resumption::NotEnded,
            capacity: f64::INFINITY,
            capacity_since: Time::ZERO,
            epoch_since: now,
            next_epoch: now + epoch,
            timeline: Timeline::new(place.phase, now),
            delays: Delays::new(epoch, now),
            dispersion: Dispersion::default(),
            pairs: config.capacity_check.then(|| Box::new(Pairs::new())),
            jump_is_open: false,
            jumps_are_over: false,
            base_slot: place.slot,
            base_received_in_slot: 0,
            base_loss_slots: 0,
            base_joined: Time::ZERO + (now - Time::ZERO).saturating_sub(delay),
            first_packet: now,
        }
    }

    /// Handles a packet of the session. Breaks when the session is over for this receiver.
    pub(super) fn on_packet(
        &mut self,
        context: &mut Context,
        now: Time,
        cci: &Cci,
    ) -> ControlFlow<EndReason> {
        let is_base = u32::from(cci.channel) == context.session.wave_channels();
        let position = match self.check(context, now, cci) {
            Ok(position) => position,
            Err(refusal) => {
                *refusal.count(&mut context.totals.refused) += 1;
                return match is_base {
                    true => self.doubt(context, now, cci),
                    false => ControlFlow::Continue(()),
                };
            }
        };
        if is_base {
            self.on_train_packet(context, cci.psn);
        }
        self.last_packet = now;
        let slots = self.on_time_slot(context, now, cci.ctsi.into())?;
        self.on_sequence(context, now, cci, position - f64::from(slots));
        ControlFlow::Continue(())
    }

    /// Does what is due at `now`. Breaks when the session is over for this receiver.
    pub(super) fn on_timeout(
        &mut self,
        context: &mut Context,
        now: Time,
    ) -> ControlFlow<EndReason> {
        let (silence, slot) = (context.silence_timeout(), context.slot_timeout());
        if self.last_packet + silence <= now {
            return ControlFlow::Break(EndReason::NoPackets(silence));
        }
        if self.slot_since + slot <= now {
            return ControlFlow::Break(EndReason::NoTimeSlotChange(slot));
        }
        let join_is_late = |joining: &Joining| joining.deadline <= now;
        if self.joining.as_ref().is_some_and(join_is_late) {
            self.on_join_timeout(context);
        }
        if self.next_epoch <= now {
            self.on_epoch(context, now);
        }
        ControlFlow::Continue(())
    }

    /// When [`on_timeout`](Running::on_timeout) is wanted next.
    pub(super) fn next_timeout(&self, context: &Context) -> Time {
        let silence = self.last_packet + context.silence_timeout();
        let slot = self.slot_since + context.slot_timeout();
        let join = self
            .joining
            .as_ref()
            .map_or(Time::MAX, |joining| joining.deadline);
        self.next_epoch.min(join).min(silence).min(slot)
    }

    /// Leaves all joined waves, the lowest layer first.
    pub(super) fn leave_waves(&self, context: &mut Context) {
        for wave in self.waves.iter().chain(&self.early) {
            context.leave(wave.channel());
        }
    }

    pub(super) fn status(&self, context: &Context) -> Status {
        let packet_bytes = context.session.config().packet_bytes;
        let rate = |packets| Rate::from_packets_per_s(packets, packet_bytes);
        let config = &context.config;
        let factor = config.equation_factor(&context.session);
        let equation = || rate(factor * self.fair_rate(context));
        Status {
            waves: self.waves.len() as u32,
            received: rate(self.rates.trr),
            equation: (!self.in_start_up()).then(equation),
            rtt_s: self.rtt.average_s(),
            loss_probability: self.loss.probability(),
            packets_received: context.totals.received,
            packets_lost: context.totals.lost,
            packets_marked: context.marks.as_ref().map_or(0, |marks| marks.total()),
            refused: context.totals.refused,
        }
    }

    pub(super) fn in_start_up(&self) -> bool {
        self.slow_start_rate == f64::INFINITY
    }

    /// Follows the time slot index (section 3.2.3.3), and returns how many slots have begun. Breaks
    /// when too much of the base channel is lost.
    fn on_time_slot(
        &mut self,
        context: &mut Context,
        now: Time,
        ctsi: u32,
    ) -> ControlFlow<EndReason, u32> {
        let session = &context.session;
        let t = session.wave_channels();
        let ahead = (ctsi + t - self.ctsi) % t;
        let is_late = ahead > t - session.quiescent_slots() / 2;
        if ahead == 0 || is_late || f64::from(ahead) > self.reach(session, now) {
            return ControlFlow::Continue(0);
        }
        self.slot_since = now;
        self.count_lost_base(session, ahead);
        for _ in 0..ahead {
            self.on_next_slot(context, now);
        }
        if self.base_loss_slots >= BASE_LOSS_SLOTS {
            return ControlFlow::Break(EndReason::BaseChannelLoss);
        }
        ControlFlow::Continue(ahead)
    }

    /// Ends the current time slot: the lowest wave has ended with it, and its channel is left.
    fn on_next_slot(&mut self, context: &mut Context, now: Time) {
        let session = &context.session;
        let (p, base_rate) = (session.decrease(), session.base_rate());
        let ended = self.ctsi;
        self.assert_invariants(session);
        self.ctsi = (self.ctsi + 1) % session.wave_channels();
        self.base_slot = (self.base_slot + 1) % session.base_slots();
        self.timeline.begin_next_slot();
        self.delays.begin_next_slot();
        self.rates.arr += (1.0 - p) * base_rate;
        let ended_wave = self.waves.pop_front();
        self.begin_early_wave(context);
        let Some(mut wave) = ended_wave else {
            return;
        };
        self.rates.arr = (self.rates.arr - base_rate).max(p * base_rate);
        if self.waves.is_empty() {
            // The join that is still open, if any, was that of this wave.
            self.joining = None;
        }
        debug_assert_eq!(
            wave.channel(),
            ended,
            "a wave's channel is left in the slot after its last"
        );
        let lost = wave.on_end_of_wave();
        self.left = Some(wave);
        self.expect_late_packets(&context.config);
        self.on_lost(context, now, lost);
        context.leave(ended);
    }

    /// Judges the base channel over the slot that ended. Slots without any packet do not count:
    /// the silence time-out covers them.
    fn count_lost_base(&mut self, session: &Session, slots: u32) {
        let received = core::mem::take(&mut self.base_received_in_slot);
        if slots > 1 {
            return;
        }
        // A queue that is shorter than a train loses most of it.
        let most_is_lost = received * 2 < session.base_times_per_slot();
        let few_are_joined = self.waves.len() <= BASE_LOSS_WAVES;
        self.base_loss_slots = if most_is_lost && few_are_joined {
            self.base_loss_slots + 1
        } else {
            0
        };
    }

    /// Registers a packet of a joined channel, which has this position (sections 3.2.3.1, 3.2.3.2,
    /// 3.2.3.4).
    fn on_sequence(&mut self, context: &mut Context, now: Time, cci: &Cci, position: f64) {
        let session = &context.session;
        let (t, number) = (session.wave_channels(), u32::from(cci.channel));
        let (is_base, reach) = (number == t, self.reach(session, now));
        let Some(sequence) = self.sequence_of(t, number) else {
            return;
        };
        let arrival = sequence.on_packet(cci.psn.into());
        match arrival {
            Arrival::InOrder | Arrival::Gap { .. } => {
                let position = position.min(reach);
                self.timeline.advance(now, position, session);
                let sent_s = self.delays.on_packet(now, position, session);
                if let Some(pairs) = &mut self.pairs {
                    pairs.on_packet(context.arrived, sent_s);
                }
            }
            Arrival::First if !is_base => self.skip_numbers_before_join(session, number),
            _ => {}
        }
        if arrival == Arrival::Duplicate {
            return;
        }
        context.totals.received += 1;
        self.rates.on_received();
        self.loss.on_packets(1);
        if is_base {
            self.base_received_in_slot += 1;
            self.timeline.support();
        } else {
            self.timeline.support_by_wave();
        }
        match arrival {
            Arrival::First if self.is_highest(number) => {
                self.on_first_packet(context, now, cci.psn);
            }
            Arrival::Gap { lost } => {
                self.expect_late_packets(&context.config);
                match is_base && context.session.has_trains() {
                    true => self.count_lost(context, lost),
                    false => self.on_lost(context, now, lost),
                }
            }
            _ => {}
        }
        let is_train = is_base && context.session.has_trains();
        if context.ecn != Ecn::NotCapable && !is_train {
            self.on_ecn_field(context, now);
        }
        self.count_down_to_loss(context, now);
    }

    /// The sequence numbers of a channel among `t` waves and the base; `None` if it is not joined.
    fn sequence_of(&mut self, t: u32, number: u32) -> Option<&mut Sequence> {
        if number == t {
            Some(&mut self.base)
        } else if (number + 1) % t == self.ctsi {
            self.left.as_mut().filter(|left| left.channel() == number)
        } else {
            let layer = (number + t - self.ctsi) % t;
            self.waves.get_mut(layer as usize)
        }
    }

    /// Moves a wave that has just begun on to the present. A sender's packets from before the join
    /// do not come, so a forged one must not make those in between count as lost.
    fn skip_numbers_before_join(&mut self, session: &Session, number: u32) {
        let unsent = self.unsent(session, number);
        if let Some(wave) = self.sequence_of(session.wave_channels(), number) {
            wave.skip_to(unsent);
        }
    }

    /// The sequence numbers of a wave of `t` that is joined, or was until the last slot ended.
    pub(super) fn wave(&self, t: u32, number: u32) -> Option<&Sequence> {
        let layer = (number + t - self.ctsi) % t;
        let is_left = |left: &&Sequence| left.channel() == number;
        self.waves
            .get(layer as usize)
            .or_else(|| self.left.as_ref().filter(is_left))
    }

    /// Whether this channel is that of the highest joined wave.
    fn is_highest(&self, number: u32) -> bool {
        let highest = self.waves.back();
        highest.is_some_and(|wave| wave.channel() == number)
    }

    /// Measures the multicast round-trip time with the first packet after a join
    /// (section 3.2.2.2).
    fn on_first_packet(&mut self, context: &mut Context, now: Time, psn: u32) {
        let Some(joining) = self.joining.take() else {
            return;
        };
        let elapsed = now - joining.since;
        let delay_s = elapsed
            .saturating_sub(context.config.join_delay)
            .as_secs_f64();
        let longest_s = elapsed.as_secs_f64().max(1e-6);
        let sample_s = self.average_delay(context, delay_s, longest_s, psn);
        self.epochs_since_first = 0;
        context.events.push_back(Event::Rtt {
            sample_s,
            average_s: self.rtt.average_s(),
        });

        let (session, p) = (&context.session, context.session.decrease());
        let waves = self.waves.len() as f64;
        let threshold_s = (session.power(waves + 1.0) - 1.0) / (p * libm::log(p)) / self.rates.arr;
        let rise_s = self
            .last_delay_s
            .replace(delay_s)
            .map_or(0.0, |last_s| delay_s - last_s);
        let has_risen = rise_s > context.config.rtt_increase_factor * threshold_s;
        if self.in_start_up()
            && !self.jump_is_open
            && has_risen
            && self.confirms_rtt_increase(context, rise_s)
        {
            self.end_start_up(context, SlowStartEnd::RttIncrease);
        }
    }

    /// Averages in the time from a join to its first packet, which has number `psn`: `delay_s`, or
    /// `longest_s` with the host's own delay. Returns the corrected measurement.
    fn average_delay(&mut self, context: &Context, delay_s: f64, longest_s: f64, psn: u32) -> f64 {
        let session = &context.session;
        match context.config.rtt_rule {
            RttRule::Rfc => {
                let (p, waves) = (session.decrease(), self.waves.len() as f64);
                let half_spacing_s =
                    -libm::log(p) / 2.0 / (1.0 - p) / session.base_rate() * session.power(waves);
                self.rtt.on_sample(delay_s - half_spacing_s);
                delay_s - half_spacing_s
            }
            RttRule::Spacing => {
                let remaining = session.cci_format().sequence_numbers() - u64::from(psn);
                let spacing_s = 1.0 / session.wave_rate(remaining);
                let loss = self.loss.probability();
                self.rtt.on_delay(delay_s, spacing_s, loss, longest_s)
            }
        }
    }

    fn expect_late_packets(&mut self, config: &ReceiverConfig) {
        self.reorder.get_or_insert(Reorder {
            packets_left: config.reorder_packets,
            epoch_passed: false,
        });
    }

    /// Counts a packet after a gap. After enough of them, missing packets count as lost.
    fn count_down_to_loss(&mut self, context: &mut Context, now: Time) {
        let Some(reorder) = &mut self.reorder else {
            return;
        };
        match reorder.packets_left.checked_sub(1) {
            Some(left) => reorder.packets_left = left,
            None => self.give_gaps_up(context, now),
        }
    }

    /// Counts the missing packets that are due as losses.
    pub(super) fn give_gaps_up(&mut self, context: &mut Context, now: Time) {
        self.reorder = None;
        let session = &context.session;
        let left = self.left.take();
        let mut lost = left.map_or(0, |mut wave| wave.give_all_up());
        let mut lost_of_trains = 0;
        let mut has_gap = false;
        for place in 0..=self.waves.len() {
            let is_train = place == self.waves.len() && session.has_trains();
            let sequence = self.waves.get(place).unwrap_or(&self.base);
            if sequence.has_gap() {
                let unsent = self.unsent(session, sequence.channel());
                let sequence = self.waves.get_mut(place).unwrap_or(&mut self.base);
                let given_up = sequence.give_up(unsent);
                *if is_train {
                    &mut lost_of_trains
                } else {
                    &mut lost
                } += given_up;
                has_gap |= sequence.has_gap();
            }
        }
        if has_gap {
            self.expect_late_packets(&context.config);
        }
        self.count_lost(context, lost_of_trains);
        self.on_lost(context, now, lost);
    }

    /// Counts lost packets without a loss event, as for packets of a train: their loss shows that
    /// the train does not fit into a queue, not that the rate is too high.
    fn count_lost(&mut self, context: &mut Context, packets: u64) {
        if packets == 0 {
            return;
        }
        context.totals.lost += packets;
        context.events.push_back(Event::Lost(packets));
        self.rates.on_lost(packets);
        self.loss.on_packets(packets);
    }

    /// Counts lost packets.
    fn on_lost(&mut self, context: &mut Context, now: Time, packets: u64) {
        if packets > 0 {
            self.count_lost(context, packets);
            self.begin_loss_event(context, now, SlowStartEnd::Loss);
        }
    }

    /// Begins a loss event for a loss or a mark. Those within ARTT of a loss event's beginning, or
    /// another number of round-trip times, belong to it (section 3.2.3.4).
    pub(super) fn begin_loss_event(&mut self, context: &mut Context, now: Time, why: SlowStartEnd) {
        if now < self.loss_event_until {
            return;
        }
        let duration_s = context.config.loss_event_rtts * self.rtt.average_s();
        self.loss_event_until = now + seconds(duration_s);
        self.loss.on_loss_event();
        context.events.push_back(Event::LossEvent);
        if self.in_start_up() {
            // A mark is the sign of a queue.
            match why == SlowStartEnd::Loss && self.loses_without_queue(context) {
                true => self.count_early_loss_event(context),
                false => self.end_start_up(context, why),
            }
        } else {
            self.heed_first_loss(context);
            self.lower_slow_start_rate(context);
        }
    }

    /// Sets SSR as a loss event does (section 3.2.3.4).
    pub(super) fn lower_slow_start_rate(&mut self, context: &Context) {
        let minimum = context.config.slow_start_minimum(&context.session);
        self.slow_start_rate = minimum.max(context.session.decrease() * self.rates.trr);
    }

    /// Asserts what the queue of waves stands for.
    pub(super) fn assert_invariants(&self, session: &Session) {
        let t = session.wave_channels();
        debug_assert!(
            (self.ctsi..)
                .zip(&self.waves)
                .all(|(number, wave)| wave.channel() == number % t),
            "the joined waves are consecutive and start at the lowest layer"
        );
        debug_assert!(
            self.waves.len() <= session.active_slots() as usize,
            "only active waves are joined"
        );
        debug_assert!(
            self.joining.is_none() || self.waves.back().is_some_and(|wave| !wave.has_begun()),
            "a join is open until the first packet of the highest wave"
        );
    }
}
