//! Soft flow control as in the paper: the drain rate is found by probing.
//!
//! The buffer is the queue of an XCP router whose capacity is a target. The target changes once in
//! each epoch, the average round-trip time of the headers, by one of five cases:
//!
//! | case | when | the target |
//! |---|---|---|
//! | 1, idle | the application has read nothing | becomes one segment per epoch |
//! | 2 | frames were dropped | is halved |
//! | 3 | Q > decrease_above | falls by `decrease` |
//! | 4 | the input is below half of the target | does not change |
//! | 5 | Q < increase_below, and the application reads faster than frames arrive | grows by `step_frames` per epoch |
//!
//! Q is the mean of the present queue and its maximum in the epoch. The target never exceeds one
//! buffer per round-trip time, so that the frames in flight fit the buffer. There is one flow, so
//! no traffic is moved between flows (XCP's gamma is 0).
//!
//! In a steady state, the application reads exactly as fast as frames arrive, so requiring it to be
//! faster would stop the growth. It counts as faster while it keeps up.

use super::Buffer;
use crate::config::SoftConfig;

use manyflow_core::time::Time;
use manyflow_core::xcp::{Congestion, Controller, XcpConfig};

#[derive(Debug)]
pub(crate) struct Probe {
    config: SoftConfig,
    buffer: Buffer,
    frame_bytes: f64,
    /// lambda_target, in bytes of packets per second.
    target: f64,
    router: Controller,
    epoch: Epoch,
}

/// Totals of the current epoch, in bytes of frames.
#[derive(Debug, Default)]
struct Epoch {
    arrived: f64,
    read: f64,
    queue_max: f64,
    has_dropped: bool,
}

impl Probe {
    pub(super) fn new(config: SoftConfig, buffer: Buffer, frame_bytes: u32) -> Probe {
        Probe {
            config,
            buffer,
            frame_bytes: frame_bytes.into(),
            target: 0.0,
            router: Controller::new(XcpConfig {
                gamma: 0.0,
                ..XcpConfig::default()
            }),
            epoch: Epoch::default(),
        }
    }

    pub(super) fn on_arrival(
        &mut self,
        now: Time,
        congestion: &mut Congestion,
        wire_bytes: u32,
        occupied: u32,
    ) {
        let factor = self.buffer.wire_factor(wire_bytes);
        let occupied = f64::from(occupied);
        if self.router.is_due(now) {
            self.target = self.next_target(now, occupied, factor);
            self.epoch = Epoch::default();
        }
        let queue = factor * occupied;
        let header = Some(&*congestion);
        self.router
            .on_arrival(now, self.target, queue, wire_bytes, header);
        self.router.on_departure(wire_bytes, congestion);
        self.epoch.arrived += f64::from(wire_bytes) / factor;
        self.epoch.queue_max = self.epoch.queue_max.max(occupied);
    }

    pub(super) fn on_overflow(&mut self) {
        self.epoch.has_dropped = true;
    }

    pub(super) fn on_read(&mut self, bytes: u32) {
        self.epoch.read += f64::from(bytes);
    }

    /// Returns the target of the next epoch, by the five cases.
    fn next_target(&self, now: Time, occupied: f64, factor: f64) -> f64 {
        let (epoch, config) = (&self.epoch, &self.config);
        let rtt_s = self.router.average_rtt_s();
        let segment = factor * self.frame_bytes / rtt_s;
        let queue = 0.5 * (occupied + epoch.queue_max);
        let input = factor * epoch.arrived / self.router.lasts_s(now);
        let target = match () {
            _ if epoch.read == 0.0 => segment,
            _ if epoch.has_dropped => 0.5 * self.target,
            _ if queue > self.buffer.decrease_above => (1.0 - config.decrease) * self.target,
            _ if input < 0.5 * self.target => self.target,
            _ if queue < self.buffer.increase_below && epoch.read >= epoch.arrived => {
                self.target + f64::from(config.step_frames) * segment
            }
            _ => self.target,
        };
        let limit = factor * self.buffer.bytes / rtt_s;
        target.max(segment).min(limit)
    }
}
