//! WEBRC's receiver (RFC 3738 section 3.2): what it does with packets. What it decides at epochs is in `epoch.rs`.

mod config;
mod epoch;
mod rates;

use core::convert::Infallible;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

pub use config::{ReceiverConfig, ReceiverConfigError, TargetRule, Weights};
use rates::Rates;

use super::loss::LossEstimator;
use super::rtt::{AverageRtt, RttRule};
use super::sequence::{Arrival, Sequence};
use super::{Cci, Session};
use crate::endpoint::{Action, Endpoint};
use crate::packet::{Channel, Destination, Packet};
use crate::time::{Time, seconds};
use crate::units::Rate;
use crate::webrc::{EndReason, Event, SlowStartEnd};

/// Slots in which most of the base channel is lost although little more is joined, after which the session is given up
/// (section 3.2.1). Little is what the slow start minimum allows: below it, no loss keeps a receiver from joining.
const BASE_LOSS_SLOTS: u32 = 6;
const BASE_LOSS_WAVES: usize = 3;

/// The receiving end of a session.
#[derive(Debug)]
pub struct Receiver {
    session: Arc<Session>,
    config: Arc<ReceiverConfig>,
    id: u32,
    phase: Phase,
    actions: VecDeque<Action<Infallible>>,
    events: VecDeque<Event>,
    totals: Totals,
}

/// Where a receiver stands.
#[derive(Debug)]
enum Phase {
    /// The base channel is joined at this time.
    Waiting(Time),
    /// The base channel was joined at this time; its first packet has not come.
    JoiningBase(Time),
    /// Packets come.
    Running(Box<Running>),
    /// The session is over.
    Ended,
}

/// The state of a receiver that has found its place in the time slots.
#[derive(Debug)]
struct Running {
    /// The current time slot index.
    ctsi: u32,
    slot_since: Time,
    last_packet: Time,
    base: Sequence,
    /// The joined waves, the lowest layer first: NWC is their number.
    waves: VecDeque<Sequence>,
    /// The wave that was left last, while packets of it may still be under way.
    left: Option<Sequence>,
    joining: Option<Joining>,
    /// From the join of the last wave to its first packet.
    last_delay_s: Option<f64>,
    /// Epochs that ended since the first packet of the last wave.
    epochs_since_first: u32,
    /// When pending gaps count as loss.
    reorder: Option<Reorder>,
    loss_event_until: Time,
    rates: Rates,
    rtt: AverageRtt,
    loss: LossEstimator,
    /// SSR_P: infinite in start-up.
    slow_start_rate: f64,
    /// What the bottleneck carries, in packets per second, where a wave filled it; infinite where none has.
    capacity: f64,
    capacity_since: Time,
    epoch_since: Time,
    next_epoch: Time,
    base_received_in_slot: u32,
    base_loss_slots: u32,
}

/// A join whose first packet has not come.
#[derive(Debug)]
struct Joining {
    since: Time,
    deadline: Time,
}

/// A gap that waits for late packets.
#[derive(Copy, Clone, Debug)]
struct Reorder {
    packets_left: u32,
    epoch_passed: bool,
}

/// Counts over the whole session.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
struct Totals {
    received: u64,
    lost: u64,
    refused: u64,
}

/// What a receiver knows of itself, for displays and measurements.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Status {
    /// NWC: waves joined.
    pub waves: u32,
    /// TRR: the reception rate, averaged.
    pub received: Rate,
    /// The target rate's equation part, REQN; `None` in start-up.
    pub equation: Option<Rate>,
    /// ARTT in seconds.
    pub rtt_s: f64,
    /// LOSSP.
    pub loss_probability: f64,
    /// Packets received.
    pub packets_received: u64,
    /// Packets lost.
    pub packets_lost: u64,
    /// Packets whose header did not fit the session.
    pub packets_refused: u64,
}

impl Receiver {
    /// A receiver of `session`, which the world knows by `id`; it joins at `start`.
    ///
    /// # Errors
    /// Where a parameter is outside its range.
    pub fn new(
        session: Arc<Session>,
        config: Arc<ReceiverConfig>,
        id: u32,
        start: Time,
    ) -> Result<Receiver, ReceiverConfigError> {
        config.check(&session)?;
        let (actions, events) = (VecDeque::new(), VecDeque::new());
        Ok(Receiver {
            session,
            config,
            id,
            phase: Phase::Waiting(start),
            actions,
            events,
            totals: Totals::default(),
        })
    }

    /// Leaves all channels and ends.
    pub fn leave(&mut self) {
        let t = self.session.wave_channels();
        if let Phase::Running(running) = &self.phase {
            let waves = running.waves.len() as u32;
            let joined = (0..waves)
                .map(|layer| (running.ctsi + layer) % t)
                .collect::<Vec<_>>();
            joined.into_iter().for_each(|number| self.act_leave(number));
        }
        if !matches!(self.phase, Phase::Waiting(_) | Phase::Ended) {
            self.act_leave(t);
        }
        self.phase = Phase::Ended;
    }

    /// What the receiver knows of itself; `None` before the first packet and after the end.
    pub fn status(&self) -> Option<Status> {
        let Phase::Running(running) = &self.phase else {
            return None;
        };
        let rate = |packets| Rate::from_packets_per_s(packets, self.session.config().packet_bytes);
        Some(Status {
            waves: running.waves.len() as u32,
            received: rate(running.rates.trr),
            equation: (!running.in_start_up())
                .then(|| rate(self.config.equation_factor * running.equation_rate())),
            rtt_s: running.rtt.average_s(),
            loss_probability: running.loss.probability(),
            packets_received: self.totals.received,
            packets_lost: self.totals.lost,
            packets_refused: self.totals.refused,
        })
    }

    fn channel(&self, number: u32) -> Channel {
        Channel {
            session: self.id,
            number: number as u16,
        }
    }

    fn act_leave(&mut self, number: u32) {
        let channel = self.channel(number);
        self.actions.push_back(Action::Leave(channel));
        self.events.push_back(Event::Left(channel));
    }

    fn end(&mut self, reason: EndReason) {
        self.leave();
        self.events.push_back(Event::Ended(reason));
    }

    fn silence_timeout(&self) -> Duration {
        let recommended = self.session.config().time_slot.max(Duration::from_secs(10));
        self.config.silence_timeout.unwrap_or(recommended)
    }

    fn slot_timeout(&self) -> Duration {
        let recommended = (2 * self.session.config().time_slot).max(Duration::from_secs(20));
        self.config.slot_timeout.unwrap_or(recommended)
    }

    /// Whether the header's numbers can be of this session.
    fn fits(&self, cci: &Cci) -> bool {
        let t = self.session.wave_channels();
        let numbers = if u32::from(cci.channel) == t {
            self.session.base_sequence_numbers()
        } else {
            self.session.cci_format().sequence_numbers()
        };
        u32::from(cci.ctsi) < t && u32::from(cci.channel) <= t && u64::from(cci.psn) < numbers
    }

    /// The first packet of the base channel tells the time slot and where in it we are (section 3.2.2.5).
    fn on_first_base_packet(&mut self, now: Time, joined: Time, cci: &Cci) {
        let session = &self.session;
        let index = cci.psn % session.base_packets_per_slot();
        let rate = session.base_rate()
            + f64::from(index) * libm::log(session.decrease()) / session.time_slot_s();
        let delay_s = (now - joined).as_secs_f64();
        let epoch = self.config.epoch(session);
        self.phase = Phase::Running(Box::new(Running {
            ctsi: cci.ctsi.into(),
            slot_since: now,
            last_packet: now,
            base: Sequence::new(session.base_sequence_numbers()),
            waves: VecDeque::new(),
            left: None,
            joining: None,
            last_delay_s: None,
            epochs_since_first: 0,
            reorder: None,
            loss_event_until: Time::ZERO,
            rates: Rates::new(rate),
            // A round trip of zero would make the equation infinite.
            rtt: AverageRtt::new(self.config.alpha(), session.decrease(), delay_s.max(1e-6)),
            loss: LossEstimator::new(
                self.config.loss,
                epoch.as_secs_f64() / session.time_slot_s(),
            ),
            slow_start_rate: f64::INFINITY,
            capacity: f64::INFINITY,
            capacity_since: Time::ZERO,
            epoch_since: now,
            next_epoch: now + epoch,
            base_received_in_slot: 0,
            base_loss_slots: 0,
        }));
        self.events.push_back(Event::Rtt {
            sample_s: delay_s,
            average_s: delay_s,
        });
    }

    /// Follows the time slot index (section 3.2.3.3). Returns whether the session goes on.
    fn on_time_slot(&mut self, now: Time, ctsi: u32) -> bool {
        let session = Arc::clone(&self.session);
        let t = session.wave_channels();
        let Phase::Running(running) = &mut self.phase else {
            return false;
        };
        let ahead = (ctsi + t - running.ctsi) % t;
        let believable =
            (now - running.slot_since) + 2 * session.config().time_slot + Duration::from_secs(1);
        if ahead == 0
            || ahead > t - session.quiescent_slots() / 2
            || ahead * session.config().time_slot > believable
        {
            return true;
        }
        running.slot_since = now;
        running.count_lost_base(&session, ahead);
        for _ in 0..ahead {
            self.on_next_slot(now, &session);
        }
        let Phase::Running(running) = &self.phase else {
            return false;
        };
        if running.base_loss_slots >= BASE_LOSS_SLOTS {
            self.end(EndReason::BaseChannelLoss);
            return false;
        }
        true
    }

    fn on_next_slot(&mut self, now: Time, session: &Session) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let ended = running.ctsi;
        running.ctsi = (running.ctsi + 1) % session.wave_channels();
        running.rates.arr += (1.0 - session.decrease()) * session.base_rate();
        let Some(mut wave) = running.waves.pop_front() else {
            return;
        };
        running.rates.arr =
            (running.rates.arr - session.base_rate()).max(session.decrease() * session.base_rate());
        if running.waves.is_empty() {
            // The join that is still open, if any, was that of this wave.
            running.joining = None;
        }
        let lost = wave.on_end_of_wave();
        running.left = Some(wave);
        running.expect_late_packets(&self.config);
        self.on_lost(now, lost);
        self.act_leave(ended);
    }

    /// Registers a packet of a joined channel (sections 3.2.3.1, 3.2.3.2, 3.2.3.4).
    fn on_sequence(&mut self, now: Time, cci: &Cci) {
        let t = self.session.wave_channels();
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let number = u32::from(cci.channel);
        let layer = ((number + t - running.ctsi) % t) as usize;
        let sequence = if number == t {
            Some(&mut running.base)
        } else if (number + 1) % t == running.ctsi {
            running.left.as_mut()
        } else {
            running.waves.get_mut(layer)
        };
        let Some(arrival) = sequence.map(|sequence| sequence.on_packet(cci.psn.into())) else {
            return;
        };
        if arrival == Arrival::Duplicate {
            return;
        }
        self.totals.received += 1;
        running.rates.on_received();
        running.loss.on_packets(1);
        if number == t {
            running.base_received_in_slot += 1;
        }
        match arrival {
            Arrival::First if number != t => self.on_first_packet(now, cci.psn),
            Arrival::Gap { lost } => {
                running.expect_late_packets(&self.config);
                self.on_lost(now, lost);
            }
            _ => {}
        }
        self.count_down_to_loss(now);
    }

    /// The first packet after a join measures the multicast round-trip time (section 3.2.2.2).
    fn on_first_packet(&mut self, now: Time, psn: u32) {
        let session = Arc::clone(&self.session);
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let Some(joining) = running.joining.take() else {
            return;
        };
        let delay_s = (now - joining.since).as_secs_f64();
        let p = session.decrease();
        let waves = running.waves.len() as f64;
        let sample_s = match self.config.rtt_rule {
            RttRule::Rfc => {
                let half_spacing_s =
                    -libm::log(p) / 2.0 / (1.0 - p) / session.base_rate() * session.power(waves);
                running.rtt.on_sample(delay_s - half_spacing_s);
                delay_s - half_spacing_s
            }
            RttRule::Spacing => {
                let remaining = session.cci_format().sequence_numbers() - u64::from(psn);
                let spacing_s = 1.0 / session.wave_rate(remaining);
                let loss = running.loss.probability();
                running.rtt.on_delay(delay_s, spacing_s, loss)
            }
        };
        running.epochs_since_first = 0;
        self.events.push_back(Event::Rtt {
            sample_s,
            average_s: running.rtt.average_s(),
        });

        let threshold_s =
            (session.power(waves + 1.0) - 1.0) / (p * libm::log(p)) / running.rates.arr;
        let rise_s = running
            .last_delay_s
            .replace(delay_s)
            .map_or(0.0, |last_s| delay_s - last_s);
        if running.in_start_up() && rise_s > self.config.rtt_increase_factor * threshold_s {
            self.end_start_up(SlowStartEnd::RttIncrease);
        }
    }

    /// Gaps that no late packet has closed by now are losses.
    fn count_down_to_loss(&mut self, now: Time) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        let Some(reorder) = &mut running.reorder else {
            return;
        };
        match reorder.packets_left.checked_sub(1) {
            Some(left) => reorder.packets_left = left,
            None => self.give_gaps_up(now),
        }
    }

    fn give_gaps_up(&mut self, now: Time) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        running.reorder = None;
        let left = running.left.take();
        let lost = running.base.give_up()
            + running.waves.iter_mut().map(Sequence::give_up).sum::<u64>()
            + left.map_or(0, |mut wave| wave.give_up());
        self.on_lost(now, lost);
    }

    /// Losses within ARTT of a loss event's beginning belong to it (section 3.2.3.4).
    fn on_lost(&mut self, now: Time, packets: u64) {
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        if packets == 0 {
            return;
        }
        self.totals.lost += packets;
        running.rates.on_lost(packets);
        running.loss.on_packets(packets);
        if now < running.loss_event_until {
            return;
        }
        running.loss_event_until = now + seconds(running.rtt.average_s());
        running.loss.on_loss_event();
        self.events.push_back(Event::LossEvent);
        if running.in_start_up() {
            self.end_start_up(SlowStartEnd::Loss);
        } else {
            let minimum = self.config.slow_start_minimum(&self.session);
            running.slow_start_rate = minimum.max(self.session.decrease() * running.rates.trr);
        }
    }
}

impl Running {
    fn in_start_up(&self) -> bool {
        self.slow_start_rate == f64::INFINITY
    }

    /// Judges the base channel over the slot that ended; slots without any packet are a matter of silence.
    fn count_lost_base(&mut self, session: &Session, slots: u32) {
        let received = core::mem::take(&mut self.base_received_in_slot);
        if slots > 1 {
            return;
        }
        let most_is_lost = received * 2 < session.base_packets_per_slot();
        let little_is_joined = self.waves.len() <= BASE_LOSS_WAVES;
        self.base_loss_slots = if most_is_lost && little_is_joined {
            self.base_loss_slots + 1
        } else {
            0
        };
    }

    fn expect_late_packets(&mut self, config: &ReceiverConfig) {
        self.reorder.get_or_insert(Reorder {
            packets_left: config.reorder_packets,
            epoch_passed: false,
        });
    }
}

impl Endpoint for Receiver {
    type Rx = Cci;
    type Tx = Infallible;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Cci>) {
        let of_session = matches!(packet.destination, Destination::Channel(channel) if channel.session == self.id);
        let cci = packet.header;
        if !of_session || !self.fits(&cci) {
            self.totals.refused += 1;
            return;
        }
        if let Phase::JoiningBase(joined) = self.phase
            && u32::from(cci.channel) == self.session.wave_channels()
        {
            self.on_first_base_packet(now, joined, &cci);
        }
        let Phase::Running(running) = &mut self.phase else {
            return;
        };
        running.last_packet = now;
        if self.on_time_slot(now, cci.ctsi.into()) {
            self.on_sequence(now, &cci);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match &self.phase {
            Phase::Waiting(start) if *start <= now => {
                self.phase = Phase::JoiningBase(now);
                let base = self.channel(self.session.wave_channels());
                self.actions.push_back(Action::Join(base));
                self.events.push_back(Event::Joined(base));
            }
            Phase::JoiningBase(joined) if *joined + self.silence_timeout() <= now => {
                self.end(EndReason::NoPackets(self.silence_timeout()));
            }
            Phase::Running(running) if running.last_packet + self.silence_timeout() <= now => {
                self.end(EndReason::NoPackets(self.silence_timeout()));
            }
            Phase::Running(running) if running.slot_since + self.slot_timeout() <= now => {
                self.end(EndReason::NoTimeSlotChange(self.slot_timeout()));
            }
            Phase::Running(_) => self.on_timers(now),
            _ => {}
        }
    }

    fn poll_action(&mut self, _now: Time) -> Option<Action<Infallible>> {
        take_first(&mut self.actions)
    }

    fn poll_timeout(&self) -> Option<Time> {
        match &self.phase {
            Phase::Waiting(start) => Some(*start),
            Phase::JoiningBase(joined) => Some(*joined + self.silence_timeout()),
            Phase::Running(running) => {
                let join = running
                    .joining
                    .as_ref()
                    .map_or(Time::MAX, |joining| joining.deadline);
                let silence = running.last_packet + self.silence_timeout();
                let slot = running.slot_since + self.slot_timeout();
                Some(running.next_epoch.min(join).min(silence).min(slot))
            }
            Phase::Ended => None,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        take_first(&mut self.events)
    }
}

/// Takes the first; a queue that is drained gives its memory back, since a simulation has very many receivers.
#[inline]
fn take_first<T>(queue: &mut VecDeque<T>) -> Option<T> {
    let first = queue.pop_front();
    if first.is_none() && queue.capacity() > 0 {
        *queue = VecDeque::new();
    }
    first
}
