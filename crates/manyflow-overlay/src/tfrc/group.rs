//! A group to which a sending daemon's clients send.

use super::Outbox;
use super::allocation::Allocation;
use super::config::TfrcConfig;
use super::rtt::SentLog;
use crate::message::{DaemonId, GroupId};
use manyflow_core::time::Time;

/// The allowed rate is reported when it has changed by this share.
const NOTICEABLE: f64 = 0.01;
/// The paper's delta: the rates are divided again at once when a group's demand has changed by this
/// share (section 4.3.1).
const DELTA: f64 = 0.1;

/// A group to which local clients send.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) log: SentLog,
    /// The remote daemons with members, in ascending order.
    pub(super) members: Vec<DaemonId>,
    pub(super) allocation: Allocation,
    /// The demand of all clients at the last division.
    pub(super) divided_demand: f64,
    /// The allowed rate that was last reported as an event.
    announced: f64,
}

impl Group {
    pub(super) fn new(config: &TfrcConfig) -> Group {
        Group {
            log: SentLog::default(),
            members: Vec::new(),
            allocation: Allocation::new(config.initial_bytes_per_s()),
            divided_demand: 0.0,
            announced: 0.0,
        }
    }

    /// Returns whether the demand has changed by more than delta since the last division.
    pub(super) fn has_other_demand(&self) -> bool {
        let change = (self.allocation.demand() - self.divided_demand).abs();
        change > DELTA * self.divided_demand
    }

    /// Sets the allowed rate, and reports it if it has changed noticeably.
    pub(super) fn set_rate(&mut self, now: Time, id: GroupId, rate: f64, outbox: &mut Outbox) {
        debug_assert!(
            rate > 0.0 || !self.allocation.is_used(),
            "a group with clients may send at {rate} bytes/s"
        );
        if rate != self.allocation.rate() {
            self.allocation.set_rate(now, rate);
        }
        if (rate - self.announced).abs() > NOTICEABLE * self.announced {
            self.announced = rate;
            outbox.report_allowed(id, rate);
        }
    }
}
