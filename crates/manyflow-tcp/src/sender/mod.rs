//! The sending end: `acknowledgement.rs` has the effects of acknowledgements, `transmission.rs`
//! timers and the choice of the next segment.

mod acknowledgement;
mod transmission;

use core::time::Duration;
use std::collections::VecDeque;

use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::Segment;
use super::bbr::Bbr;
use super::bbr3::Bbr3;
use super::config::{ConfigError, LossDetection, TcpConfig, Variant};
use super::control::{Control, Moment};
use super::counters::Counters;
use super::dctcp::Dctcp;
use super::flight::Flight;
use super::persist::Persist;
use super::prague::Prague;
use super::rack::TailProbe;
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
    /// The time at which a segment that was overtaken counts as lost (RFC 8985 section 6.2).
    reordering_timer: Option<Time>,
    /// Probes the flight's tail, if losses are detected by RACK-TLP.
    tail: Option<TailProbe>,
    /// The number of marked packets that the receiver has reported, modulo 256.
    marks: u8,
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
            reordering_timer: None,
            tail: None,
            marks: 0,
            release: None,
            finished: false,
            counters: Counters::default(),
            events: VecDeque::new(),
            told_window: 0,
            config,
        };
        if let Some(control) = built_in_control(&sender.config, seed) {
            sender.window.set_control(control);
        }
        sender.measure_deliveries();
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
        sender.measure_deliveries();
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
        self.note_pause();
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
            let number = self.flight.send_new();
            self.flight.note_transmission(now, number);
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

    /// Keeps records of the segments in flight, if the control, HyStart++ or RACK needs them.
    fn measure_deliveries(&mut self) {
        let has_rack = self.config.loss_detection == LossDetection::RackTlp;
        if has_rack || self.window.measures_deliveries() {
            self.flight.measure(has_rack);
        }
        self.tail = has_rack.then(TailProbe::default);
    }

    /// Returns the state of the connection for a control.
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
}

impl Endpoint for Sender {
    type Rx = Segment;
    type Tx = Segment;
    type Event = Event;

    fn handle_packet(&mut self, now: Time, packet: &Packet<Segment>) {
        self.handle_segment(now, &packet.header);
    }

    fn handle_timeout(&mut self, now: Time) {
        self.watch_tail(now);
        if self.timer.is_some_and(|timer| now >= timer) {
            self.on_timer(now);
        }
        if self.reordering_timer.is_some_and(|timer| now >= timer) {
            self.on_reordering_timer(now);
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
        let tail = self.tail.as_ref().and_then(|tail| tail.due);
        let or_never = |timer: Option<Time>| timer.unwrap_or(Time::MAX);
        let first = or_never(self.release)
            .min(or_never(self.timer))
            .min(or_never(self.reordering_timer))
            .min(or_never(probe))
            .min(or_never(tail));
        (first != Time::MAX).then_some(first)
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

/// Returns the control of a variant whose window is not that of RFC 5681 or CUBIC.
fn built_in_control(config: &TcpConfig, seed: u64) -> Option<Box<dyn Control>> {
    let initial = config.initial_window.into();
    match config.variant {
        Variant::NewReno | Variant::Sack | Variant::Cubic => None,
        Variant::Bbr => Some(Box::new(Bbr::new(initial, seed))),
        Variant::Bbr3 => Some(Box::new(Bbr3::new(initial, seed))),
        Variant::Dctcp => Some(Box::new(Dctcp::new(initial))),
        Variant::Prague => Some(Box::new(Prague::new(initial))),
    }
}
