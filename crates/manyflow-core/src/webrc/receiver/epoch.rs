//! What a receiver decides as time passes: at the end of each epoch it updates its rates and joins a wave or does not
//! (RFC 3738 sections 3.2.3.5 to 3.2.3.7).

use std::sync::Arc;

use super::{Joining, Phase, Receiver, Running, TargetRule};
use crate::endpoint::Action;
use crate::estimate::tcp_equation;
use crate::packet::Channel;
use crate::time::{Time, seconds};
use crate::units::Rate;
use crate::webrc::Session;
use crate::webrc::sequence::Sequence;
use crate::webrc::{Event, SlowStartEnd};

impl Receiver {
    pub(super) fn on_timers(&mut self, now: Time) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        if running
            .joining
            .as_ref()
            .is_some_and(|joining| joining.deadline <= now)
        {
            self.on_join_timeout();
        }
        let Phase::Running(running) = &self.phase else {
            return;
        };
        if running.next_epoch <= now {
            self.on_epoch(now);
        }
    }

    /// Nothing came of the join: it is withdrawn (section 3.2.3.7).
    fn on_join_timeout(&mut self) {
        let channel = self.leave_highest_wave();
        self.events.push_back(Event::JoinTimedOut(channel));
    }

    /// Leaves the wave that was joined last, and takes it out of ARR.
    fn leave_highest_wave(&mut self) -> Channel {
        let session = Arc::clone(&self.session);
        let Phase::Running(running) = &mut self.phase else {
            unreachable!("only a running receiver has waves")
        };
        running.joining = None;
        running.rates.arr /= growth(&session, running.waves.len() as u32 - 1);
        running.waves.pop_back();
        let number = (running.ctsi + running.waves.len() as u32) % session.wave_channels();
        let channel = self.channel(number);
        self.actions.push_back(Action::Leave(channel));
        channel
    }

    fn on_epoch(&mut self, now: Time) {
        self.give_old_gaps_up(now);
        let session = Arc::clone(&self.session);
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let epoch = self.config.epoch(&session);
        let epoch_s = (now - running.epoch_since).as_secs_f64();
        let on_time = running.next_epoch + epoch > now;
        running.next_epoch = if on_time {
            running.next_epoch + epoch
        } else {
            now + epoch
        };
        running.epoch_since = now;

        let p = session.decrease();
        let weights = if running.in_start_up() {
            self.config.start_up_weights(p)
        } else {
            self.config.normal_weights(&session)
        };
        let arr_max = session.subscribed_rate(running.waves.len() as u32, 0.0);
        running.rates.on_epoch(
            epoch_s,
            session.power(epoch_s / session.time_slot_s()),
            weights,
            arr_max,
        );
        running.loss.on_epoch();
        running.epochs_since_first = running.epochs_since_first.saturating_add(1);
        if self.config.capacity_check {
            running.measure_capacity(now, epoch_s, &session);
        }
        self.leave_start_up_if_due();
        self.join_if_allowed(now);
        self.report_rates();
    }

    /// A gap that was there at the end of the last epoch has waited long enough.
    fn give_old_gaps_up(&mut self, now: Time) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        match &mut running.reorder {
            Some(reorder) if !reorder.epoch_passed => reorder.epoch_passed = true,
            Some(_) => self.give_gaps_up(now),
            None => {}
        }
    }

    fn report_rates(&mut self) {
        let target = self.target_rate();
        let Phase::Running(running) = &self.phase else {
            return;
        };
        let rate = |packets| Rate::from_packets_per_s(packets, self.session.config().packet_bytes);
        self.events.push_back(Event::Rates {
            target: rate(target),
            received: rate(running.rates.rr),
            loss_probability: running.loss.probability(),
        });
    }

    /// The two ways out of start-up that are checked at epochs (section 3.2.2.6).
    fn leave_start_up_if_due(&mut self) {
        let Phase::Running(running) = &self.phase else {
            return;
        };
        if !running.in_start_up() {
            return;
        }
        let after_join = growth(&self.session, running.waves.len() as u32) * running.rates.arr;
        if after_join > self.maximum_rate().min(self.session.session_rate()) {
            self.end_start_up(SlowStartEnd::MaximumRate);
        } else if self.config.shortfall_check
            && running.epochs_since_first == 2
            && self.falls_short()
        {
            self.end_start_up(SlowStartEnd::RateShortfall);
        }
    }

    /// Whether TRR is "greatly below" ARR a full epoch after the first packet of a wave (section 3.2.2.6).
    fn falls_short(&self) -> bool {
        let Phase::Running(running) = &self.phase else {
            return false;
        };
        if running.waves.is_empty() || running.joining.is_some() {
            return false;
        }
        let (session, p) = (&self.session, self.session.decrease());
        let zeta = self.config.start_up_weights(p).zeta;
        let epoch_s = self.config.epoch(session).as_secs_f64();
        let decay = session.power(-epoch_s / session.time_slot_s());
        let last_growth = growth(session, running.waves.len() as u32 - 1);
        let c =
            zeta + (1.0 - zeta) * decay * (zeta + (1.0 - zeta) * p.sqrt() * decay) / last_growth;
        running.rates.trr < c * running.rates.arr - 2.0 / epoch_s
    }

    /// SSR becomes finite, and LOSSP such that REQN equals TRR (section 3.2.2.6).
    pub(super) fn end_start_up(&mut self, why: SlowStartEnd) {
        let minimum = self.config.slow_start_minimum(&self.session);
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let backs_off = matches!(why, SlowStartEnd::Loss | SlowStartEnd::RttIncrease);
        let factor = if backs_off {
            self.session.decrease()
        } else {
            1.0
        };
        running.slow_start_rate = minimum.max(factor * running.rates.trr);
        running.expect_rate(running.rates.trr / self.config.equation_factor);
        if self.config.capacity_check {
            self.leave_overshoot(why);
        }
        self.events.push_back(Event::SlowStartEnded(why));
    }

    /// Leaves what start-up joined too much: the last wave where the rate did not follow it; where its first packet was
    /// late, the queue was already filling, so the one before it as well.
    fn leave_overshoot(&mut self, why: SlowStartEnd) {
        let waves = match why {
            SlowStartEnd::RttIncrease => 2,
            SlowStartEnd::RateShortfall => 1,
            SlowStartEnd::Loss | SlowStartEnd::MaximumRate => 0,
        };
        for _ in 0..waves {
            let Phase::Running(running) = &self.phase else {
                return;
            };
            if running.waves.is_empty() {
                return;
            }
            let channel = self.leave_highest_wave();
            self.events.push_back(Event::Left(channel));
        }
    }

    /// MRR_P, in packets per second.
    fn maximum_rate(&self) -> f64 {
        let packet_bytes = self.session.config().packet_bytes;
        self.config
            .maximum_rate
            .map_or(f64::INFINITY, |rate| rate.packets_per_s(packet_bytes))
    }

    /// TRATE in packets per second (section 3.2.2.7, or the paper's Eq. (5)).
    fn target_rate(&self) -> f64 {
        let Phase::Running(running) = &self.phase else {
            return 0.0;
        };
        let trr = running.rates.trr;
        let equation = self.config.equation_factor * running.equation_rate();
        let gamma = growth(&self.session, running.waves.len() as u32);
        let target = match (self.config.target_rule, running.in_start_up()) {
            (TargetRule::Rfc, true) => 4.0 * trr,
            (TargetRule::Rfc, false) => running.slow_start_rate.max(equation),
            (TargetRule::Paper, true) => gamma * gamma * gamma * trr,
            (TargetRule::Paper, false) => running
                .slow_start_rate
                .max(equation)
                .min(gamma * gamma.sqrt() * trr),
        };
        target
            .min(self.maximum_rate())
            .min(running.capacity * self.config.peak_over_mean(&self.session))
    }

    /// The rules of section 3.2.3.6, in its order.
    fn join_if_allowed(&mut self, now: Time) {
        let (target, sr) = (self.target_rate(), self.session.session_rate());
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let waves = running.waves.len() as u32;
        let waits_for_epoch =
            running.in_start_up() && self.config.shortfall_check && running.epochs_since_first < 2;
        if now < running.loss_event_until
            || running.joining.is_some()
            || waves == self.session.active_slots()
            || (waits_for_epoch && waves > 0)
        {
            return;
        }
        let after_join = growth(&self.session, waves) * running.rates.arr;
        let whole_session = self.session.config().constant_aggregate && target >= sr;
        if target < after_join && !whole_session {
            return;
        }
        if self.config.falling_rate_check && !running.in_start_up() && !whole_session {
            let epoch_s = self.config.epoch(&self.session).as_secs_f64();
            let peak = running.rates.rr_max;
            if running.rates.rr > (peak - 2.0 / epoch_s).max(self.session.decrease() * peak) {
                running.expect_rate(after_join / self.config.equation_factor);
                return;
            }
        }
        self.join(now);
    }

    fn join(&mut self, now: Time) {
        let session = Arc::clone(&self.session);
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let layer = running.waves.len() as u32;
        running
            .waves
            .push_back(Sequence::new(session.cci_format().sequence_numbers()));
        running.rates.on_join(growth(&session, layer));
        let spacings_s = 3.0 / session.layer_rate(layer, 1.0);
        let patience_s = (2.0 * running.rtt.spread_s())
            .max(10.0 * running.rtt.average_s())
            .max(spacings_s);
        let timeout = self.config.join_timeout.unwrap_or(seconds(patience_s));
        running.joining = Some(Joining {
            since: now,
            deadline: now + timeout,
        });
        let number = (running.ctsi + layer) % session.wave_channels();
        let channel = self.channel(number);
        self.actions.push_back(Action::Join(channel));
        self.events.push_back(Event::Joined(channel));
    }
}

impl Running {
    /// A full epoch after the first packet of a wave: where less comes than is joined, lost packets included, a queue is
    /// filling, and what comes is what the bottleneck carries. That is good for a slot and a half: alone on its bottleneck, a
    /// receiver measures it once a slot.
    fn measure_capacity(&mut self, now: Time, epoch_s: f64, session: &Session) {
        if now >= self.capacity_since + session.config().time_slot.mul_f64(1.5) {
            self.capacity = f64::INFINITY;
        }
        if self.epochs_since_first != 2 || self.joining.is_some() {
            return;
        }
        let margin = 2.0 / epoch_s;
        let falls_short = self.rates.irr < self.rates.arr - margin;
        // With so few packets an epoch, nothing can be told from their number.
        if falls_short && self.rates.irr > margin {
            (self.capacity, self.capacity_since) = (self.rates.rr, now);
        } else if self.rates.irr > self.capacity + margin {
            self.capacity = f64::INFINITY;
        }
    }

    /// REQN in packets per second (section 3.2.2.3).
    pub(super) fn equation_rate(&self) -> f64 {
        tcp_equation::rate_packets_per_s(self.rtt.average_s(), self.loss.probability())
    }

    /// Resets LOSSP to the value at which REQN is `rate`.
    fn expect_rate(&mut self, rate: f64) {
        self.loss
            .reset(tcp_equation::loss_probability(self.rtt.average_s(), rate));
    }
}

/// Gamma: the factor by which joining one more than `waves` raises the rate (the paper's Eq. (4)).
fn growth(session: &Session, waves: u32) -> f64 {
    let joined = f64::from(waves);
    (session.power(-joined - 2.0) - 1.0) / (session.power(-joined - 1.0) - 1.0)
}
