//! Parameters of SIM. The defaults are the paper's values where it gives any.

use core::time::Duration;

use crate::GROUPS_MAX;
pub use manyflow_core::ConfigError;
use manyflow_core::units::Rate;

/// The maximum of [`ReceiverConfig::backoffs`].
pub(super) const BACKOFFS_MAX: u32 = 16;

/// The rules of a session. The sender and all receivers of a session need the same.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Edition {
    /// The paper's rules, with the choices of this module's page.
    #[default]
    Paper,
    /// The second edition's: receivers measure what their paths carry, and the menu moves to where
    /// receivers are.
    Second,
}

/// The parameters of a sender.
#[derive(Clone, Debug, PartialEq)]
pub struct SenderConfig {
    /// The rules of the session.
    pub edition: Edition,
    /// n_g: the number of groups in the session, 1 to [`GROUPS_MAX`].
    pub groups: u8,
    /// The length of a packet on a link in bytes, headers included: 64 to 65,535.
    pub packet_bytes: u32,
    /// The rate of each group by itself at the start; at least the minimum rate.
    pub initial_rate: Rate,
    /// The minimum rate of each group by itself; at least 1 kbit/s.
    pub minimum_rate: Rate,
    /// The maximum rate of all groups together; at most 34 Gbit/s.
    pub maximum_rate: Rate,
    /// The additive increase: packets per round-trip time, in each round-trip time; above 0.
    pub increase: f64,
    /// The largest additive increase of a round, as a share of the group's cumulative rate; above
    /// 0. A large value such as 1000 is the paper's rule, which has no such limit.
    pub step_max: f64,
    /// The factor by which the rate of a group grows in each round until the group is congested for
    /// the first time, 1 to 2. With 1, a rate only ever increases by addition, as in the paper.
    pub start_factor: f64,
    /// The same factor until any group of the session is congested for the first time, 1 to 4: the
    /// start of the whole session. It counts if it is above `start_factor`.
    pub first_factor: f64,
    /// Whether each group gets the rate of a TCP on the path of its receivers. Then `increase`
    /// applies to the round-trip time of these receivers, and the decrease follows from the
    /// increase and TCP's equation; in the paper, all groups have the session's longest round-trip
    /// time and the same decrease.
    pub tcp_fair: bool,
    /// The multiplicative decrease: the factor that remains of a rate, between 0 and 1. With
    /// `tcp_fair`, it holds for groups without reports, or with unknown round-trip times.
    pub decrease: f64,
    /// The smallest factor of a decrease, above 0 to 1. If receivers get less of a group's
    /// cumulative rate than `decrease`, the rate falls to the share that they get, but not below
    /// this factor. A value from `decrease` up is the paper's rule.
    pub decrease_min: f64,
    /// Whether each group has requests and rounds of its own, as long as the round-trip times of
    /// the receivers whose top group it is. Otherwise a round is as long as the slowest receiver of
    /// the session needs, as in the paper; always so with the second edition.
    pub group_rounds: bool,
    /// The longest round-trip time of the session until reports give it, 1 ms to 10 s.
    pub initial_rtt: Duration,
    /// The maximum factor by which the longest round-trip time grows in a round; above 1. One late
    /// report, such as that of a receiver that was stopped, then does not make the rounds of all
    /// long. A large value such as 1000 is the paper's rule, which has no such limit.
    pub rtt_growth_max: f64,
    /// The menu adaptation interval, in longest round-trip times (section III-D); at least 2.
    pub menu_rtts: u32,
}

impl SenderConfig {
    /// Returns the defaults of an edition.
    pub fn of(edition: Edition) -> SenderConfig {
        SenderConfig {
            edition,
            ..SenderConfig::default()
        }
    }
}

impl ReceiverConfig {
    /// Returns the defaults of an edition. With the second one, a receiver may lose 10 % of the
    /// packets of a window.
    pub fn of(edition: Edition) -> ReceiverConfig {
        let paper = ReceiverConfig::default();
        match edition {
            Edition::Paper => paper,
            Edition::Second => ReceiverConfig {
                edition,
                loss_max: 0.1,
                ..paper
            },
        }
    }
}

impl Default for SenderConfig {
    fn default() -> SenderConfig {
        SenderConfig {
            edition: Edition::Paper,
            groups: 5,
            packet_bytes: 1000,
            initial_rate: Rate::from_bits_per_s(100_000),
            minimum_rate: Rate::from_bits_per_s(32_000),
            maximum_rate: Rate::from_bits_per_s(10_000_000_000),
            increase: 1.0,
            step_max: 0.0625,
            start_factor: 1.25,
            first_factor: 1.0,
            tcp_fair: false,
            decrease: 0.9375,
            decrease_min: 0.25,
            group_rounds: false,
            initial_rtt: Duration::from_millis(100),
            rtt_growth_max: 1000.0,
            menu_rtts: 50,
        }
    }
}

/// The parameters of a receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceiverConfig {
    /// The rules of the session.
    pub edition: Edition,
    /// The selection interval, in longest round-trip times of the session (section III-C); at least
    /// 4.
    pub selection_rtts: u32,
    /// The weight of the received rate of one round in the average, above 0 to 1. With 1, each
    /// report states the rate of its round, so that rates follow a capacity that falls without a
    /// delay.
    pub rate_weight: f64,
    /// The share of congested rounds in a selection interval up to which a receiver counts as not
    /// congested, 0 to 0.9. With 0, the default, one congested round is enough to add no group.
    pub calm_share: f64,
    /// The share of lost packets in a round, 0 to 1, above which the round is lossy. After three
    /// lossy rounds in a row in which its rate did not fall, a receiver drops its top group. 1, the
    /// default, is the paper's rule, which knows no losses.
    pub loss_max: f64,
    /// Whether a relay repairs what the path loses. A packet then counts as lost only if it is
    /// still missing a round later. False, the default, is for routers.
    pub repaired: bool,
    /// The maximum number of failures after which the wait for another trial of a group doubles, 0
    /// to 16. With 0, as in the paper, there is no wait.
    pub backoffs: u32,
}

impl Default for ReceiverConfig {
    fn default() -> ReceiverConfig {
        ReceiverConfig {
            edition: Edition::Paper,
            selection_rtts: 20,
            rate_weight: 1.0,
            calm_share: 0.0,
            loss_max: 1.0,
            repaired: false,
            backoffs: 3,
        }
    }
}

impl SenderConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let fraction = |x: f64| x > 0.0 && x < 1.0;
        ConfigError::first_of([
            (
                "the groups",
                "1 to 32",
                (1..=GROUPS_MAX).contains(&self.groups),
            ),
            (
                "the packet size",
                "64 to 65,535 bytes",
                (64..=65_535).contains(&self.packet_bytes),
            ),
            (
                "the minimum rate",
                "at least 1 kbit/s",
                self.minimum_rate.bits_per_s() >= 1000,
            ),
            (
                "the initial rate",
                "at least the minimum rate",
                self.initial_rate >= self.minimum_rate,
            ),
            (
                "the maximum rate",
                "at least the initial rate of all groups, at most 34 Gbit/s",
                self.maximum_rate.bits_per_s()
                    >= self.initial_rate.bits_per_s() * u64::from(self.groups)
                    && self.maximum_rate.bits_per_s() <= 34_000_000_000,
            ),
            ("the increase", "above 0", self.increase > 0.0),
            ("the maximum step", "above 0", self.step_max > 0.0),
            (
                "the start factor",
                "1 to 2",
                (1.0..=2.0).contains(&self.start_factor),
            ),
            (
                "the first factor",
                "1 to 4",
                (1.0..=4.0).contains(&self.first_factor),
            ),
            ("the decrease", "between 0 and 1", fraction(self.decrease)),
            (
                "the minimum decrease",
                "above 0, at most 1",
                self.decrease_min > 0.0 && self.decrease_min <= 1.0,
            ),
            (
                "the initial RTT",
                "1 ms to 10 s",
                is_round_trip(self.initial_rtt),
            ),
            (
                "the growth of the RTT",
                "above 1",
                self.rtt_growth_max > 1.0,
            ),
            ("the menu interval", "at least 2 RTTs", self.menu_rtts >= 2),
            (
                "the rounds of each group",
                "off with the second edition",
                !(self.group_rounds && self.edition == Edition::Second),
            ),
        ])
    }
}

impl ReceiverConfig {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        ConfigError::first_of([
            (
                "the selection interval",
                "at least 4 RTTs",
                self.selection_rtts >= 4,
            ),
            (
                "the rate weight",
                "above 0, at most 1",
                self.rate_weight > 0.0 && self.rate_weight <= 1.0,
            ),
            (
                "the calm share",
                "0 to 0.9",
                (0.0..=0.9).contains(&self.calm_share),
            ),
            (
                "the maximum loss",
                "0 to 1",
                (0.0..=1.0).contains(&self.loss_max),
            ),
            ("the back-offs", "0 to 16", self.backoffs <= BACKOFFS_MAX),
        ])
    }
}

/// Returns whether `rtt` is in the range of longest round-trip times. The sender takes shorter ones
/// as 1 ms and longer ones as 10 s.
pub(super) fn is_round_trip(rtt: Duration) -> bool {
    (Duration::from_millis(1)..=Duration::from_secs(10)).contains(&rtt)
}
