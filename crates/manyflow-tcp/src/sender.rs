//! The sending end: the effects of acknowledgements and of the retransmission timer, and the choice
//! of the next segment.

use core::time::Duration;
use std::collections::VecDeque;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::Segment;
use super::config::{ConfigError, TcpConfig, Variant};
use super::control::{Control, Moment};
use super::counters::Counters;
use super::flight::{DUPLICATE_THRESHOLD, Flight};
use super::persist::Persist;
use super::window::Window;
use crate::Event;
use manyflow_core::estimate::rtt::RttEstimator;
use manyflow_core::time::Time;
use manyflow_core::{Action, Endpoint};
use manyflow_core::{Destination, Ecn, EndpointId, Packet};

/// The sending end of a connection. It begins with data, without a handshake, like ns-2's one-way
/// TCP.
#[derive(Debug)]
pub struct Sender {
    config: TcpConfig,
    peer: EndpointId,
    random: Pcg64Mcg,
    flight: Flight,
    window: Window,
    rtt: RttEstimator,
    /// The latest sample of the round-trip time in seconds; 0 before the first.
    rtt_sample_s: f64,
    phase: Phase,
    /// The next new number when fast recovery or a time-out last began (RFC 6582 `recover` + 1, RFC
    /// 6675 RecoveryPoint).
    recover: Option<u32>,
    /// The next new number when the window was last reduced: it is reduced once per window of data.
    reduced_at: u32,
    /// Whether the first lost segment is sent at once, without regard to the window.
    retransmit_now: bool,
    /// Whether the next new segment carries CWR.
    announce_reduction: bool,
    /// The number of the first segment that is not to be sent, at present or at all.
    end: u32,
    /// Whether an application offers segments as it has them; otherwise all segments exist from the
    /// beginning.
    is_stream: bool,
    /// The end of the receiver's window: the receiver has no room from this number on, as far as it
    /// has announced.
    edge: u32,
    persist: Option<Persist>,
    /// The time at which a segment was last sent.
    last_sent: Option<Time>,
    /// The segment of the present round trip that is timed, and the time at which it was sent.
    timed: Option<(u32, Time)>,
    /// The first unacknowledged segment when the retransmission timer last ran out.
    timed_out: Option<u32>,
    /// The time at which the retransmission timer expires.
    timer: Option<Time>,
    /// The time at which sending begins or continues, while there is a segment that may be sent.
    release: Option<Time>,
    finished: bool,
    counters: Counters,
    events: VecDeque<Event>,
    /// The last window that was reported, in whole segments.
    told_window: u32,
}

/// How acknowledgements are interpreted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Slow start and congestion avoidance.
    Open,
    /// Losses are being repaired, up to `recover`. `partial` is whether a partial acknowledgement
    /// has come.
    FastRecovery { partial: bool },
    /// The timer has expired: slow start until `recover`, without counting duplicates.
    AfterTimeout,
}

impl Sender {
    /// Creates a sender to `peer`, whose jitter comes from `seed`.
    ///
    /// # Errors
    /// Names the first parameter that is outside its range.
    pub fn new(config: TcpConfig, peer: EndpointId, seed: u64) -> Result<Sender, ConfigError> {
        config.check()?;
        let mut sender = Sender {
            peer,
            random: Pcg64Mcg::seed_from_u64(seed),
            flight: Flight::default(),
            window: Window::new(&config),
            rtt: RttEstimator::new(config.minimum_rto),
            rtt_sample_s: 0.0,
            phase: Phase::Open,
            recover: None,
            reduced_at: 0,
            retransmit_now: false,
            announce_reduction: false,
            end: config.transfer.unwrap_or(u32::MAX),
            is_stream: false,
            edge: config.maximum_window,
            persist: None,
            last_sent: None,
            timed: None,
            timed_out: None,
            timer: None,
            release: None,
            finished: false,
            counters: Counters::default(),
            events: VecDeque::new(),
            told_window: 0,
            config,
        };
        sender.release = Some(sender.config.start + sender.jitter());
        Ok(sender)
    }

    /// Creates a sender to `peer` whose speed `control` decides. It detects losses by selective
    /// acknowledgements: the variant of `config` is ignored.
    ///
    /// # Errors
    /// Names the first parameter that is outside its range.
    pub fn with_control(
        config: TcpConfig,
        control: Box<dyn Control>,
        peer: EndpointId,
        seed: u64,
    ) -> Result<Sender, ConfigError> {
        let config = TcpConfig {
            variant: Variant::Sack,
            ..config
        };
        let mut sender = Sender::new(config, peer, seed)?;
        sender.window.set_control(control);
        Ok(sender)
    }

    /// Creates the sender of a stream to `peer`. It has nothing to send until it is
    /// [offered](Sender::offer) segments, and never finishes. `start`, `stop` and `transfer` of its
    /// configuration are ignored.
    ///
    /// # Errors
    /// Names the first parameter that is outside its range.
    pub fn of_stream(
        config: TcpConfig,
        peer: EndpointId,
        seed: u64,
    ) -> Result<Sender, ConfigError> {
        let config = TcpConfig {
            stop: None,
            transfer: None,
            ..config
        };
        let sender = Sender::new(config, peer, seed)?;
        Ok(Sender {
            end: 0,
            is_stream: true,
            release: None,
            ..sender
        })
    }

    /// Adds `segments` to those that the application of a stream has to send. They wait for their
    /// jitter unless they follow a segment that is sent just now. Segments beyond 2^32 - 1 in total
    /// are never sent.
    pub fn offer(&mut self, now: Time, segments: u32) {
        self.end = self.end.saturating_add(segments);
        if self.last_sent == Some(now) && self.may_send() {
            self.release.get_or_insert(now);
        }
        self.settle(now);
    }

    /// Returns the number of segments that were offered and have not been sent.
    pub fn unsent_segments(&self) -> u32 {
        self.end - self.flight.next()
    }

    /// Returns the counters.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the number of acknowledged segments.
    pub fn acknowledged_segments(&self) -> u32 {
        self.flight.first()
    }

    /// Returns cwnd in segments.
    pub fn congestion_window(&self) -> f64 {
        self.window.segments()
    }

    /// Returns the present RTO, which may be backed off (RFC 6298).
    pub fn retransmission_timeout(&self) -> Duration {
        self.rtt.timeout()
    }

    /// Returns whether all data was sent and acknowledged.
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Handles an acknowledgement.
    pub fn handle_segment(&mut self, now: Time, ack: &Segment) {
        let next = self.flight.next();
        if self.persist.as_ref().is_some_and(Persist::has_probed)
            && ack.acknowledgement.checked_sub(1) == Some(next)
        {
            // The probe found room, so it counts as sent from now on.
            self.flight.send_new();
        }
        let sent = self.flight.first()..=self.flight.next();
        if sent.contains(&ack.acknowledgement) {
            self.on_ack(now, ack);
            self.settle(now);
        }
    }

    /// Returns the next segment to send, and whether routers may mark it.
    pub fn poll_transmit(&mut self, now: Time) -> Option<(Segment, Ecn)> {
        if let Some(persist) = self.persist.as_mut().filter(|persist| now >= persist.at()) {
            persist.probe(now);
            self.counters.probes += 1;
            return Some((Segment::data(self.flight.next()), Ecn::NotCapable));
        }
        self.release.filter(|release| now >= *release)?;
        if !self.may_send() {
            self.release = None;
            return None;
        }
        let segment = self.next_segment(now);
        if let Some(gap) = self.window.gap() {
            self.release = Some(now + gap);
        }
        Some(segment)
    }

    /// Returns the state of the connection for a control of the caller.
    fn moment(&self, now: Time, acknowledged: u32) -> Moment {
        Moment {
            now,
            acknowledged,
            segment_bytes: self.config.segment_bytes,
            in_flight: self.flight.pipe(),
            rtt_s: if self.rtt_sample_s > 0.0 {
                self.rtt.average_s()
            } else {
                0.0
            },
            rtt_sample_s: self.rtt_sample_s,
            is_mark: false,
        }
    }

    fn on_ack(&mut self, now: Time, ack: &Segment) {
        let was_limit = self.window_is_limit();
        let used = (!was_limit).then(|| self.flight.len());
        let edge = ack.acknowledgement.saturating_add(ack.window.into());
        self.edge = match ack.window {
            Segment::UNLIMITED => u32::MAX,
            _ => self.edge.max(edge),
        };
        let acknowledged = self.flight.acknowledge(ack.acknowledgement);
        if self.config.variant.uses_sack() {
            self.flight.sack(&ack.sack);
        }
        if acknowledged > 0 {
            let may_grow = was_limit && !(ack.ecn_echo && self.config.ecn);
            self.on_advance(now, acknowledged, may_grow);
        } else if self.flight.len() > 0 {
            self.on_duplicate();
        }
        if self.phase == Phase::Open {
            if self.finds_loss() {
                self.begin_recovery(now);
            } else if ack.ecn_echo && self.config.ecn {
                self.heed_mark(now, used);
            }
        }
    }

    fn on_advance(&mut self, now: Time, acknowledged: u32, may_grow: bool) {
        if let Some((number, sent)) = self.timed
            && number < self.flight.first()
        {
            self.timed = None;
            self.take_rtt_sample((now - sent).as_secs_f64());
        }
        let moment = self.moment(now, acknowledged);
        self.window.ask_control(|control| control.on_ack(&moment));
        self.retransmit_now = false;
        let recovered = self.recover.is_none_or(|r| self.flight.first() >= r);
        match self.phase {
            Phase::FastRecovery { .. } if recovered => self.end_recovery(now),
            Phase::FastRecovery { partial } => self.on_partial_ack(now, acknowledged, partial),
            Phase::Open | Phase::AfterTimeout => {
                self.flight.forget_duplicates();
                if may_grow {
                    let rtt_s = self.rtt.average_s();
                    self.window.on_ack(now, acknowledged, rtt_s);
                } else if self.is_stream {
                    self.window.stand();
                }
                if recovered {
                    self.phase = Phase::Open;
                }
                self.restart_timer(now);
            }
        }
    }

    /// Returns whether the congestion window is the limit, so that acknowledgements may let it grow
    /// (RFC 7661 section 4). For a greedy sender it always is.
    fn window_is_limit(&self) -> bool {
        !self.is_stream || !self.window.has_room(self.flight.pipe()) || self.may_send()
    }

    fn take_rtt_sample(&mut self, sample_s: f64) {
        self.rtt.sample(sample_s);
        self.rtt_sample_s = sample_s;
        let average_s = self.rtt.average_s();
        self.events.push_back(Event::Rtt {
            sample_s,
            average_s,
        });
    }

    /// Counts a duplicate acknowledgement for NewReno. A SACK sender knows which segment it stands
    /// for.
    fn on_duplicate(&mut self) {
        let counts = match self.phase {
            Phase::FastRecovery { .. } => true,
            Phase::Open => self.may_recover() && self.flight.duplicates() < DUPLICATE_THRESHOLD,
            Phase::AfterTimeout => false,
        };
        if counts && !self.config.variant.uses_sack() {
            self.flight.count_duplicate();
        }
    }

    /// Returns whether duplicates can mean a new loss, rather than segments sent twice after a
    /// time-out (RFC 6582 section 3.2, step 2).
    fn may_recover(&self) -> bool {
        self.recover.is_none_or(|r| self.flight.first() > r)
    }

    /// Returns whether a loss is known. A segment that was sent during a recovery and lost is
    /// retransmitted in it, but counts as a loss of the next window (RFC 6675 section 5, step 2).
    fn finds_loss(&self) -> bool {
        if self.config.variant.uses_sack() {
            self.flight.first_was_lost()
        } else {
            self.flight.duplicates() >= DUPLICATE_THRESHOLD
        }
    }

    /// Begins fast recovery (RFC 6582 section 3.2, step 2; RFC 6675 section 5, step 4).
    fn begin_recovery(&mut self, now: Time) {
        self.phase = Phase::FastRecovery { partial: false };
        self.recover = Some(self.flight.next());
        if !self.config.variant.uses_sack() {
            self.flight.lose_first();
        }
        self.retransmit_now = true;
        if self.flight.first() >= self.reduced_at {
            self.reduce_window(now);
        }
        self.counters.fast_recoveries += 1;
        self.events.push_back(Event::LossEvent);
        self.restart_timer(now);
    }

    /// Handles a partial acknowledgement (RFC 6582 section 3.2, step 3). With SACK the scoreboard
    /// has all that is needed (RFC 6675 section 5).
    fn on_partial_ack(&mut self, now: Time, acknowledged: u32, partial: bool) {
        if self.config.variant.uses_sack() {
            self.restart_timer(now);
            return;
        }
        self.flight.deflate(acknowledged);
        self.flight.lose_first();
        self.retransmit_now = true;
        if !partial {
            self.phase = Phase::FastRecovery { partial: true };
            self.restart_timer(now);
        }
    }

    fn end_recovery(&mut self, now: Time) {
        self.phase = Phase::Open;
        self.flight.forget_duplicates();
        if !self.config.variant.uses_sack() {
            self.window.limit_to_flight(self.flight.len());
        }
        self.restart_timer(now);
    }

    /// Handles the echo of a mark. It counts like a loss, once per window of data (RFC 3168 section
    /// 6.1.2). `used` is the flight before the acknowledgement with the echo, if the flight did not
    /// fill the window.
    fn heed_mark(&mut self, now: Time, used: Option<u32>) {
        if self.flight.first() > self.reduced_at {
            let moment = Moment {
                is_mark: true,
                ..self.moment(now, 0)
            };
            if !self.window.report_loss(&moment) {
                self.window.on_mark(used);
            }
            self.note_reduction();
            self.counters.marks_heeded += 1;
            self.events.push_back(Event::LossEvent);
        }
    }

    fn reduce_window(&mut self, now: Time) {
        let moment = self.moment(now, 0);
        if !self.window.report_loss(&moment) {
            self.window.on_congestion(self.flight.len());
        }
        self.note_reduction();
    }

    fn note_reduction(&mut self) {
        self.reduced_at = self.flight.next();
        self.announce_reduction = self.config.ecn;
    }

    /// Handles the expiry of the retransmission timer: backs off, and begins again with one segment
    /// (RFC 6298 section 5, 5.4 to 5.6; RFC 5681 section 3.1).
    fn on_timer(&mut self, now: Time) {
        let again = self.timed_out == Some(self.flight.first());
        self.timed_out = Some(self.flight.first());
        let moment = self.moment(now, 0);
        if !self
            .window
            .ask_control(|control| control.on_timeout(&moment))
        {
            self.window.on_timeout(self.flight.len(), again);
        }
        self.rtt.back_off();
        self.flight.lose_all();
        self.phase = Phase::AfterTimeout;
        self.recover = Some(self.flight.next());
        self.retransmit_now = false;
        self.note_reduction();
        self.timer = None;
        self.counters.timeouts += 1;
        self.counters.timeout_series += u64::from(!again);
        self.events.push_back(Event::RetransmissionTimeout);
    }

    /// Restarts the retransmission timer, or stops it if nothing is in flight (RFC 6298 section 5,
    /// 5.2 and 5.3).
    fn restart_timer(&mut self, now: Time) {
        self.timer = (self.flight.len() > 0).then(|| now + self.rtt.timeout());
    }

    fn jitter(&mut self) -> Duration {
        match self.config.send_jitter {
            Duration::ZERO => Duration::ZERO,
            jitter => jitter.mul_f64(self.random.random()),
        }
    }

    /// Updates the state after each input: finishes the transfer, watches for a closed window, and
    /// schedules the next segments.
    fn settle(&mut self, now: Time) {
        if self.config.stop.is_some_and(|stop| now >= stop) {
            self.end = self.end.min(self.flight.next());
        }
        if !self.is_stream && !self.finished && self.flight.first() == self.end {
            self.finished = true;
            self.events.push_back(Event::Finished);
        }
        self.restart_if_idle(now);
        if self.is_shut_out() {
            let timeout = self.rtt.timeout();
            self.persist
                .get_or_insert_with(|| Persist::new(now, timeout));
        } else {
            self.persist = None;
        }
        if self.release.is_none() && self.may_send() {
            let spaced = self.last_sent.zip(self.window.gap());
            let spaced = spaced.map_or(now, |(sent, gap)| sent + gap);
            self.release = Some(spaced.max(now) + self.jitter());
        }
    }

    /// Reduces the window of a stream that has sent nothing for a time-out to the restart window,
    /// to avoid a burst (RFC 5681 section 4.1).
    fn restart_if_idle(&mut self, now: Time) {
        let timeout = self.rtt.timeout();
        let is_idle = self.last_sent.is_some_and(|sent| now > sent + timeout);
        if self.is_stream && self.flight.len() == 0 && is_idle {
            self.window.restart(self.config.initial_window);
        }
    }

    /// Returns whether only the receiver's window prevents sending, and no acknowledgement can come
    /// that opens it.
    fn is_shut_out(&self) -> bool {
        let next = self.flight.next();
        self.flight.len() == 0 && next < self.end && next >= self.edge
    }

    fn may_send(&self) -> bool {
        let lost = self.flight.has_lost();
        (self.retransmit_now && lost)
            || (self.window.has_room(self.flight.pipe()) && (lost || self.may_send_new()))
    }

    fn may_send_new(&self) -> bool {
        self.flight.next() < self.end.min(self.edge)
            && self.flight.len() < self.config.maximum_window
    }

    /// Returns the next segment: a lost one if there is any, otherwise a new one (RFC 6675 section
    /// 4, NextSeg, rules 1 and 2).
    fn next_segment(&mut self, now: Time) -> (Segment, Ecn) {
        self.retransmit_now = false;
        self.last_sent = Some(now);
        self.counters.sent += 1;
        if self.timer.is_none() {
            self.timer = Some(now + self.rtt.timeout());
        }
        if let Some(number) = self.flight.retransmit() {
            // Karn's rule: the acknowledgement of later segments may wait for the retransmission.
            self.timed = None;
            self.counters.retransmitted += 1;
            self.events.push_back(Event::Retransmission);
            return (Segment::data(number), Ecn::NotCapable);
        }
        let number = self.flight.send_new();
        self.timed.get_or_insert((number, now));
        let ecn = if self.config.ecn {
            Ecn::Capable
        } else {
            Ecn::NotCapable
        };
        let segment = Segment {
            window_reduced: core::mem::take(&mut self.announce_reduction),
            ..Segment::data(number)
        };
        (segment, ecn)
    }
}

impl Endpoint for Sender {
    type Rx = Segment;
    type Tx = Segment;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Segment>) {
        self.handle_segment(now, &packet.header);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.timer.is_some_and(|timer| now >= timer) {
            self.on_timer(now);
        }
        self.settle(now);
    }

    fn poll_action(&mut self, now: Time) -> Option<Action<Segment>> {
        let (segment, ecn) = self.poll_transmit(now)?;
        Some(Action::Send(
            Packet::new(
                Destination::Endpoint(self.peer),
                segment,
                self.config.segment_bytes,
            )
            .with_ecn(ecn),
        ))
    }

    fn poll_timeout(&self) -> Option<Time> {
        let probe = self.persist.as_ref().map(Persist::at);
        [self.release, self.timer, probe]
            .into_iter()
            .flatten()
            .min()
    }

    fn poll_event(&mut self) -> Option<Event> {
        let packets = self.window.segments();
        if self.told_window != packets as u32 {
            self.told_window = packets as u32;
            return Some(Event::CongestionWindow { packets });
        }
        self.events.pop_front()
    }
}
