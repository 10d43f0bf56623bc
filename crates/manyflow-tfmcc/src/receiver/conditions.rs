//! The network conditions that a receiver measures, and its desired rate (RFC 4654 sections 4.3 and
//! 4.4).

use core::time::Duration;

use manyflow_core::Time;
use manyflow_core::estimate::tcp_equation::TcpEquation;

use super::loss::{LossHistory, Path};
use super::meter::Meter;
use super::order::Arrived;
use super::rtt::RttEstimate;
use crate::config::{ReceiverConfig, SPACING_MAX};
use crate::header::Data;
use crate::number::Stamp;

/// The round-trip times without data after which have_loss is cleared (section 4.3.1).
const IDLE_RTTS: u32 = 10;
/// The weight of a packet in the average packet size.
const SIZE_WEIGHT: f64 = 1.0 / 16.0;

/// A data packet that arrived.
#[derive(Copy, Clone, Debug)]
pub(super) struct Arrival<'a> {
    pub(super) now: Time,
    pub(super) data: &'a Data,
    /// The size in bits, including all headers.
    pub(super) bits: f64,
    pub(super) is_marked: bool,
}

/// The findings of one packet.
#[derive(Copy, Clone, Debug, Default, PartialEq)]
pub(super) struct Observed {
    pub(super) rtt_sample: Option<Duration>,
    pub(super) loss_events: u32,
}

/// The network conditions of a receiver.
#[derive(Debug)]
pub(super) struct Conditions {
    rtt: RttEstimate,
    losses: LossHistory,
    equation: TcpEquation,
    meter: Meter,
    /// 8s: the average packet size in bits.
    packet_bits: f64,
    /// have_loss: whether there was a loss event since the last long silence.
    has_loss: bool,
    last_arrival: Time,
}

impl Conditions {
    /// Initializes the measurements from the first packet (section 4.1).
    pub(super) fn new(arrival: Arrival, config: &ReceiverConfig) -> Conditions {
        let Arrival { now, data, .. } = arrival;
        let first = Arrived {
            sequence: data.sequence,
            at: now,
        };
        Conditions {
            rtt: RttEstimate::new(data.rtt_max.duration()),
            losses: LossHistory::new(first, config.history_discounting),
            equation: config.equation,
            meter: Meter::new(now),
            packet_bits: arrival.bits,
            has_loss: false,
            last_arrival: now,
        }
    }

    /// Handles a packet. `echo` is the packet's echo for this receiver, with the filter weight q.
    pub(super) fn on_packet(
        &mut self,
        arrival: Arrival,
        echo: Option<(Stamp, f64)>,
        config: &ReceiverConfig,
    ) -> Observed {
        let Arrival { now, data, .. } = arrival;
        let is_resumed = self.end_silence(now, data.rtt_max.duration());
        self.packet_bits += SIZE_WEIGHT * (arrival.bits - self.packet_bits);
        self.rtt.on_rtt_max(data.rtt_max.duration());
        let rtt_sample = self.on_timestamps(now, data, echo, config);
        if is_resumed {
            self.meter = Meter::new(now);
        } else {
            let span = config.receive_rate_rtts * self.rtt.get();
            self.meter.on_packet(now, arrival.bits, span);
        }
        let arrived = Arrived {
            sequence: data.sequence,
            at: now,
        };
        let path = Path {
            response: self.equation.response,
            rtt: self.rtt.get(),
            received_per_s: self.meter.bits_per_s().map(|bits| bits / self.packet_bits),
        };
        let loss_events = self.losses.on_packet(arrived, arrival.is_marked, path);
        self.has_loss |= loss_events > 0;
        Observed {
            rtt_sample,
            loss_events,
        }
    }

    /// Clears have_loss after ten round-trip times without data, so that the sender can slowstart
    /// (section 4.3.1). Returns whether there was such a silence.
    ///
    /// R_max counts too, because it bounds the packet spacing at low rates.
    fn end_silence(&mut self, now: Time, rtt_max: Duration) -> bool {
        let silence = now - core::mem::replace(&mut self.last_arrival, now);
        let is_idle = silence > IDLE_RTTS * self.rtt.get().max(rtt_max);
        self.has_loss &= !is_idle;
        is_idle
    }

    fn on_timestamps(
        &mut self,
        now: Time,
        data: &Data,
        echo: Option<(Stamp, f64)>,
        config: &ReceiverConfig,
    ) -> Option<Duration> {
        let here = Stamp::at(now);
        let was_measured = self.rtt.is_measured();
        let answered =
            echo.and_then(|(echo, weight)| self.rtt.on_echo(here, echo, data.sent, weight));
        match answered {
            Some(_) if !was_measured => self.losses.on_first_rtt(self.rtt.get()),
            None if config.delay_adjustments => self.rtt.on_packet(here, data.sent),
            _ => {}
        }
        answered
    }

    /// R, or R_max before the first measurement.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt.get()
    }

    /// R, if it was measured.
    pub(super) fn measured_rtt(&self) -> Option<Duration> {
        self.rtt.is_measured().then(|| self.rtt.get())
    }

    /// R in seconds, without adjustments by the one-way delay.
    pub(super) fn smoothed_rtt_s(&self) -> f64 {
        self.rtt.smoothed_s()
    }

    /// have_loss.
    pub(super) fn has_loss(&self) -> bool {
        self.has_loss
    }

    /// p in (0, 1]; `None` before the first loss event.
    pub(super) fn loss_event_rate(&self) -> Option<f64> {
        self.losses.loss_event_rate()
    }

    /// X_recv in bits per second; `None` before the second packet.
    pub(super) fn received_bps(&self) -> Option<f64> {
        self.meter.bits_per_s()
    }

    /// X_r in bits per second: Eq. (1) after a loss event, twice the receive rate before (section
    /// 4.4). `None` before the second packet.
    pub(super) fn calculated_bps(&self) -> Option<f64> {
        let p = self.loss_event_rate().filter(|_| self.has_loss);
        let rtt_s = self.rtt.get().as_secs_f64();
        match p {
            Some(p) => Some(self.packet_bits * self.equation.rate_packets_per_s(rtt_s, p)),
            None => self.received_bps().map(|received| 2.0 * received),
        }
    }

    /// The lowest rate that is reported: one packet in 8 s (section 4.4).
    pub(super) fn floor_bps(&self) -> f64 {
        self.packet_bits / SPACING_MAX.as_secs_f64()
    }
}
