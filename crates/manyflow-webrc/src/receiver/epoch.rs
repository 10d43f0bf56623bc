//! A running receiver's decisions as time passes. At the end of each epoch it updates its rates,
//! and joins a wave or does not (RFC 3738 sections 3.2.3.5 to 3.2.3.7).

use super::context::Context;
use super::delay::DELAY_NOISE_S;
use super::pairs::Pairs;
use super::running::{Joining, Running};
use super::{ReceiverConfig, TargetRule};
use crate::Session;
use crate::sequence::Sequence;
use crate::{Event, SlowStartEnd};
use manyflow_core::time::{Time, seconds};
use manyflow_core::units::Rate;

impl Running {
    /// Withdraws a join that brought no packet in time (section 3.2.3.7).
    pub(super) fn on_join_timeout(&mut self, context: &mut Context) {
        let has_not_begun = |wave: &Sequence| !wave.has_begun();
        while self.waves.back().is_some_and(has_not_begun)
            && let Some(number) = self.drop_highest_wave(&context.session)
        {
            context.withdraw_join(number);
        }
        if self.jump_is_open {
            self.epochs_since_first = 0;
        }
    }

    /// Removes the wave that was joined last, and takes its rate out of ARR. Returns its channel,
    /// which the caller leaves; `None` if no wave is joined.
    pub(super) fn drop_highest_wave(&mut self, session: &Session) -> Option<u32> {
        let wave = self.waves.pop_back()?;
        self.joining = None;
        self.rates.arr /= growth(session, self.waves.len() as u32);
        Some(wave.channel())
    }

    /// Ends an epoch: updates the rates, then joins a wave if that is allowed.
    pub(super) fn on_epoch(&mut self, context: &mut Context, now: Time) {
        self.assert_invariants(&context.session);
        self.give_old_gaps_up(context, now);
        let epoch_s = self.begin_next_epoch(context, now);
        self.update_rates(context, epoch_s);
        self.measure_jump();
        if context.config.capacity_check {
            self.measure_capacity(context, now, epoch_s);
        }
        self.resume_start_up_if_due(context, now);
        self.leave_start_up_if_due(context);
        self.join_if_allowed(context, now);
        self.report_rates(context);
    }

    /// Begins the next epoch at `now`. Returns how long the last one was, in seconds.
    fn begin_next_epoch(&mut self, context: &Context, now: Time) -> f64 {
        let epoch = context.config.epoch(&context.session);
        let epoch_s = (now - self.epoch_since).as_secs_f64();
        let on_time = self.next_epoch + epoch > now;
        self.next_epoch = if on_time {
            self.next_epoch + epoch
        } else {
            now + epoch
        };
        self.epoch_since = now;
        epoch_s
    }

    /// Averages the rates and the loss probability over an epoch of `epoch_s` seconds.
    fn update_rates(&mut self, context: &mut Context, epoch_s: f64) {
        let session = &context.session;
        let weights = if self.in_start_up() {
            context.config.start_up_weights(session.decrease())
        } else {
            context.config.normal_weights(session)
        };
        let arr_max = session.subscribed_rate(self.waves.len() as u32, 0.0);
        let decay = session.power(epoch_s / session.time_slot_s());
        self.rates.on_epoch(epoch_s, decay, weights, arr_max);
        let epoch_slots = context.config.epoch(session).as_secs_f64() / session.time_slot_s();
        self.loss.on_epoch(&context.config.loss, epoch_slots);
        if let Some(marks) = &mut context.marks {
            marks.on_epoch(epoch_s / session.time_slot_s());
        }
        self.epochs_since_first = self.epochs_since_first.saturating_add(1);
    }

    /// Gives up the gaps that were already there at the end of the last epoch.
    fn give_old_gaps_up(&mut self, context: &mut Context, now: Time) {
        match &mut self.reorder {
            Some(reorder) if !reorder.epoch_passed => reorder.epoch_passed = true,
            Some(_) => self.give_gaps_up(context, now),
            None => {}
        }
    }

    fn report_rates(&self, context: &mut Context) {
        let packet_bytes = context.session.config().packet_bytes;
        let rate = |packets| Rate::from_packets_per_s(packets, packet_bytes);
        context.events.push_back(Event::Rates {
            target: rate(self.target_rate(context)),
            received: rate(self.rates.rr),
            loss_probability: self.loss.probability(),
        });
    }

    /// The two ways out of start-up that are checked at epochs (section 3.2.2.6).
    fn leave_start_up_if_due(&mut self, context: &mut Context) {
        if !self.in_start_up() || self.waits_for_jump() {
            return;
        }
        let after_join = growth(&context.session, self.waves.len() as u32) * self.rates.arr;
        if self.reaches_maximum(context) {
            self.end_start_up(context, SlowStartEnd::MaximumRate);
        } else if self.early_losses_forbid(context, after_join) {
            self.end_start_up(context, SlowStartEnd::LossProbability);
        } else if context.config.shortfall_check
            && self.epochs_since_first == 2
            && self.falls_short(context)
            && self.confirms_shortfall(context)
        {
            self.end_start_up(context, SlowStartEnd::RateShortfall);
        }
        self.jump_is_open = false;
    }

    /// Whether the next join would exceed the maximum rate, that of the session, or the capacity
    /// that pairs of packets show. If all channels
    /// together have a constant rate, no join exceeds it. With the delay check, start-up then goes
    /// on until the session's rate arrives.
    fn reaches_maximum(&self, context: &Context) -> bool {
        let session = &context.session;
        let after_join = growth(session, self.waves.len() as u32) * self.rates.arr;
        let session_rate = session.session_rate();
        let maximum = context.maximum_rate().min(self.shown_capacity());
        if !context.config.delay_check || !session.config().constant_aggregate {
            return after_join > maximum.min(session_rate);
        }
        after_join.min(session_rate) > maximum || self.receives_all(session)
    }

    /// Returns the capacity that pairs of packets show; infinity if it is not known.
    fn shown_capacity(&self) -> f64 {
        let shown = self.pairs.as_deref().and_then(Pairs::capacity);
        shown.unwrap_or(f64::INFINITY)
    }

    /// Whether TRR is "greatly below" ARR a full epoch after the first packet of a wave
    /// (section 3.2.2.6).
    fn falls_short(&self, context: &Context) -> bool {
        if self.waves.is_empty() || self.joining.is_some() {
            return false;
        }
        let (session, p) = (&context.session, context.session.decrease());
        let zeta = context.config.start_up_weights(p).zeta;
        let epoch_s = context.config.epoch(session).as_secs_f64();
        if self.jump_is_open {
            return self.rates.rr < p.sqrt() * self.rates.arr - 2.0 / epoch_s;
        }
        let decay = session.power(-epoch_s / session.time_slot_s());
        let last_growth = growth(session, self.waves.len() as u32 - 1);
        let c =
            zeta + (1.0 - zeta) * decay * (zeta + (1.0 - zeta) * p.sqrt() * decay) / last_growth;
        self.rates.trr < c * self.rates.arr - 2.0 / epoch_s
    }

    /// Makes SSR finite, and sets LOSSP such that REQN equals TRR (section 3.2.2.6), or greater if
    /// LOSSP was the reason.
    pub(super) fn end_start_up(&mut self, context: &mut Context, why: SlowStartEnd) {
        let was_jump = self.jump_is_open;
        if was_jump {
            self.leave_jump(context, why);
        }
        let by_loss = matches!(why, SlowStartEnd::Loss | SlowStartEnd::LossProbability);
        self.allow_resumption(context, by_loss);
        let (session, config) = (&context.session, &context.config);
        let factor = match why {
            SlowStartEnd::MaximumRate | SlowStartEnd::RateShortfall => 1.0,
            SlowStartEnd::Loss
            | SlowStartEnd::RttIncrease
            | SlowStartEnd::LossProbability
            | SlowStartEnd::Mark => session.decrease(),
        };
        let minimum = config.slow_start_minimum(session);
        // TRR lags behind the joins.
        let rate = match why {
            SlowStartEnd::MaximumRate if config.delay_check && self.receives_all(session) => {
                session.session_rate()
            }
            _ => self.rates.trr,
        };
        self.slow_start_rate = minimum.max(factor * rate);
        let mut expected = rate / config.equation_factor(session);
        if why == SlowStartEnd::LossProbability {
            expected = expected.max(self.equation_rate(config));
        }
        let probability = self.probability_for(config, expected);
        match why {
            SlowStartEnd::MaximumRate => self.loss.reset(probability),
            _ => self.loss.reset_unmeasured(probability),
        }
        let leaves_overshoot = config.capacity_check && !was_jump;
        let (rtt_s, slot_s) = (self.rtt.average_s(), session.time_slot_s());
        if let Some(marks) = &mut context.marks {
            marks.end_start_up(why == SlowStartEnd::Mark, expected, rtt_s, slot_s);
        }
        if leaves_overshoot {
            self.leave_overshoot(context, why);
        }
        context.events.push_back(Event::SlowStartEnded(why));
    }

    /// Leaves the waves that start-up joined in excess: the last one if the rate did not follow it;
    /// also the one before if its first packet was late, since the queue was already filling.
    fn leave_overshoot(&mut self, context: &mut Context, why: SlowStartEnd) {
        let waves = match why {
            SlowStartEnd::RttIncrease => 2,
            SlowStartEnd::RateShortfall => 1,
            SlowStartEnd::Loss
            | SlowStartEnd::MaximumRate
            | SlowStartEnd::LossProbability
            | SlowStartEnd::Mark => 0,
        };
        for _ in 0..waves {
            if let Some(number) = self.drop_highest_wave(&context.session) {
                context.leave(number);
            }
        }
    }

    /// TRATE in packets per second (section 3.2.2.7, or the paper's Eq. (5)).
    fn target_rate(&self, context: &Context) -> f64 {
        let (session, config) = (&context.session, &context.config);
        let trr = self.rates.trr;
        let equation = config.equation_factor(session) * self.fair_rate(context);
        let reserved = config.capacity_share * self.dispersion.lowest().unwrap_or(0.0);
        let equation = equation.max(reserved);
        let gamma = growth(session, self.waves.len() as u32);
        let target = match (config.target_rule, self.in_start_up()) {
            (TargetRule::Rfc, true) => 4.0 * trr,
            (TargetRule::Rfc, false) => self.slow_start_rate.max(equation),
            (TargetRule::Paper, true) => gamma * gamma * gamma * trr,
            (TargetRule::Paper, false) => self
                .slow_start_rate
                .max(equation)
                .min(gamma * gamma.sqrt() * trr),
        };
        target
            .min(context.maximum_rate())
            .min(self.capacity.min(self.shown_capacity()) * config.late_peak_over_mean(session))
    }

    /// Joins the next wave unless a rule of section 3.2.3.6 forbids it. The rules stand in the
    /// section's order.
    fn join_if_allowed(&mut self, context: &mut Context, now: Time) {
        let target = self.target_rate(context);
        self.join_early(context, now, target);
        let waves = self.waves.len() as u32;
        let (session, config) = (&context.session, &context.config);
        let waits_for_epoch =
            self.in_start_up() && config.shortfall_check && self.epochs_since_first < 2;
        if now < self.loss_event_until
            || self.joining.is_some()
            || self.waits_for_jump()
            || waves == session.active_slots()
            || (waits_for_epoch && waves > 0)
        {
            return;
        }
        if let Some((waves, rate)) = self.jump_target(context, now) {
            self.jump(context, now, waves, rate);
            return;
        }
        if self.join_highest(context, target) {
            return;
        }
        let (session, config) = (&context.session, &context.config);
        let after_join = growth(session, waves) * self.rates.arr;
        let whole_session = session.config().constant_aggregate && target >= session.session_rate();
        if target < after_join && !whole_session {
            return;
        }
        if config.falling_rate_check
            && !self.in_start_up()
            && !whole_session
            && self.rate_is_near_its_peak(context)
        {
            if config.falling_rate_reset {
                self.expect_rate(config, after_join / config.equation_factor(session));
            }
            return;
        }
        self.join(context, now);
    }

    /// Whether the reception rate is still close to its highest value since the last join: then a
    /// queue may be feeding it (section 3.2.3.6).
    fn rate_is_near_its_peak(&self, context: &Context) -> bool {
        let session = &context.session;
        let epoch_s = context.config.epoch(session).as_secs_f64();
        let peak = self.rates.rr_max;
        self.rates.rr > (peak - 2.0 / epoch_s).max(session.decrease() * peak)
    }

    /// Joins the wave above the joined ones.
    pub(super) fn join(&mut self, context: &mut Context, now: Time) {
        let layer = self.waves.len() as u32;
        let wave = self.begin_wave(context);
        self.waves.push_back(wave);
        let session = &context.session;
        self.delays.on_join();
        self.rates.on_join(growth(session, layer));
        let timeout = context.config.join_timeout;
        self.joining = Some(Joining {
            since: now,
            deadline: now + timeout.unwrap_or(seconds(self.patience_s(session, layer))),
        });
    }

    /// How long to wait for the first packet of the wave at `layer`, in seconds
    /// (section 3.2.3.7).
    fn patience_s(&self, session: &Session, layer: u32) -> f64 {
        let spacings_s = 3.0 / session.layer_rate(layer, 1.0);
        (2.0 * self.rtt.spread_s())
            .max(10.0 * self.rtt.average_s())
            .max(spacings_s)
    }

    /// Measures the bottleneck a full epoch after the first packet of a wave: if less arrives than
    /// is joined, lost packets included, a queue is filling, and what arrives is the capacity. The
    /// measurement holds for a slot and a half, since a receiver that is alone on its bottleneck
    /// makes one per slot.
    fn measure_capacity(&mut self, context: &Context, now: Time, epoch_s: f64) {
        let time_slot = context.session.config().time_slot;
        if now >= self.capacity_since + time_slot.mul_f64(1.5) {
            self.capacity = f64::INFINITY;
        }
        if self.epochs_since_first != 2 || self.joining.is_some() {
            return;
        }
        let margin = 2.0 / epoch_s;
        let falls_short = self.rates.irr < self.rates.arr - margin;
        // Two packets an epoch or fewer say nothing about the capacity.
        if falls_short && self.rates.irr > margin && self.confirms_shortfall(context) {
            (self.capacity, self.capacity_since) = (self.rates.rr, now);
        } else if self.rates.irr > self.capacity + margin {
            self.capacity = f64::INFINITY;
        }
    }

    /// Whether a queue can be the reason why less arrived in the last epoch than is joined. A queue
    /// that takes this part of the packets grows by this part of the time; half of that, for half
    /// an epoch, is asked for.
    fn confirms_shortfall(&self, context: &Context) -> bool {
        if !context.config.delay_check {
            return true;
        }
        let epoch_s = context.config.epoch(&context.session).as_secs_f64();
        let missing = 1.0 - self.rates.irr / self.rates.arr;
        self.delays.rise_s() >= DELAY_NOISE_S.max(missing * epoch_s / 4.0)
    }

    /// Whether a queue can be the reason why the time from join to first packet has risen by
    /// `rise_s`. The queue grew until the join, so the delay had risen by then, too.
    pub(super) fn confirms_rtt_increase(&self, context: &Context, rise_s: f64) -> bool {
        let rise_before_s = self.delays.rise_between_joins_s();
        !context.config.delay_check || rise_before_s >= DELAY_NOISE_S.max(rise_s / 4.0)
    }

    /// REQN in packets per second (section 3.2.2.3).
    pub(super) fn equation_rate(&self, config: &ReceiverConfig) -> f64 {
        let (rtt_s, loss) = (self.rtt.average_s(), self.loss.probability());
        config.equation.rate_packets_per_s(rtt_s, loss)
    }

    /// Resets LOSSP to the value at which REQN is `rate`.
    pub(super) fn expect_rate(&mut self, config: &ReceiverConfig, rate: f64) {
        let probability = self.probability_for(config, rate);
        self.loss.reset(probability);
    }

    /// Returns the value of LOSSP at which REQN is `rate`.
    fn probability_for(&self, config: &ReceiverConfig, rate: f64) -> f64 {
        config.equation.loss_probability(self.rtt.average_s(), rate)
    }
}

/// Gamma: the factor by which joining one more than `waves` raises the rate (the paper's Eq. (4)).
fn growth(session: &Session, waves: u32) -> f64 {
    let joined = f64::from(waves);
    (session.power(-joined - 2.0) - 1.0) / (session.power(-joined - 1.0) - 1.0)
}
