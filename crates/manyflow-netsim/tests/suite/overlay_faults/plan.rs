//! The plan of a run, drawn from its seed.

use core::ops::RangeInclusive;
use core::time::Duration;
use std::collections::BTreeMap;

use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::{Rate, Time};
use manyflow_overlay::{GroupId, LinkKind, OverlayConfig, SlowPolicy};
use manyflow_tcp::TcpConfig;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The time by which all daemons know of the members that joined at once, despite losses.
const SETTLED_S: f64 = 60.0;

/// The plan of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) config: OverlayConfig,
    pub(crate) link_kind: LinkKind,
    pub(crate) control: Control,
    pub(crate) daemons: u16,
    /// The time before which no sender sends and no link is cut.
    pub(crate) from: Time,
    pub(crate) links: Vec<OverlayLink>,
    pub(crate) senders: Vec<Sender>,
    pub(crate) members: Vec<Member>,
}

/// A link between two daemons.
#[derive(Debug)]
pub(crate) struct OverlayLink {
    pub(crate) ends: (u16, u16),
    pub(crate) config: LinkConfig,
    /// The times at which the link is cut and restored, in turn.
    pub(crate) cuts: Vec<(Time, Time)>,
}

/// The controller of the daemons.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Open,
    CostBenefit,
    Tfrc,
}

#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) at: u16,
    pub(crate) groups: Vec<GroupId>,
    pub(crate) start: Time,
    pub(crate) messages: u32,
    /// The time for which the sender waits before each message.
    pub(crate) pause: Duration,
    /// The time at which the sender crashes.
    pub(crate) crash: Option<Time>,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) at: u16,
    pub(crate) groups: Vec<GroupId>,
    pub(crate) start: Time,
    pub(crate) ends: Option<Ends>,
    /// The time for which the member works on a message.
    pub(crate) service: Duration,
    /// The interval in which the member reads nothing.
    pub(crate) sleeps: Option<(Time, Time)>,
}

/// The end of a membership.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Ends {
    Leaves(Time),
    Crashes(Time),
}

impl Plan {
    /// Draws the plan of a seed.
    pub(crate) fn of(seed: u64) -> Plan {
        let random = &mut Pcg64Mcg::seed_from_u64(seed);
        let daemons = random.random_range(2..=6);
        let control = match random.random_range(0..4) {
            0 => Control::Open,
            1 => Control::CostBenefit,
            _ => Control::Tfrc,
        };
        let from_s = [0.0, SETTLED_S][random.random_range(0..2)];
        let datagrams = control == Control::Tfrc || (control == Control::Open && random.random());
        Plan {
            seed,
            link_kind: link_kind(datagrams, random),
            config: config(random),
            control,
            daemons,
            from: Time::from_secs_f64(from_s),
            links: links(daemons, datagrams, from_s, random),
            senders: (0..random.random_range(1..=8))
                .map(|_| sender(daemons, from_s, random))
                .collect(),
            members: (0..random.random_range(1..=12))
                .map(|_| member(daemons, from_s, random))
                .collect(),
        }
    }
}

fn at(from_s: f64, to_s: f64, random: &mut Pcg64Mcg) -> Time {
    Time::from_secs_f64(random.random_range(from_s..to_s))
}

/// Draws one group, or returns all groups.
fn groups(random: &mut Pcg64Mcg) -> Vec<GroupId> {
    match random.random_bool(0.3) {
        true => vec![GroupId(1), GroupId(2), GroupId(3)],
        false => vec![GroupId(random.random_range(1..=3))],
    }
}

fn link_kind(datagrams: bool, random: &mut Pcg64Mcg) -> LinkKind {
    let tcp = TcpConfig {
        send_jitter: Duration::from_micros(500),
        maximum_window: [2, 4, 16, 64, 256, 10_000][random.random_range(0..6)],
        ..TcpConfig::default()
    };
    match datagrams {
        true => LinkKind::Datagrams,
        false => LinkKind::Streams(tcp),
    }
}

fn config(random: &mut Pcg64Mcg) -> OverlayConfig {
    OverlayConfig {
        queue_messages: few_or(20..=1000, random),
        client_messages: few_or(10..=300, random),
        slow: policy(random),
        slow_groups: match random.random_bool(0.3) {
            true => BTreeMap::from([(GroupId(1), policy(random))]),
            false => BTreeMap::new(),
        },
        ..OverlayConfig::default()
    }
}

/// Draws a number below 8 or a number in `many`, with equal probability.
fn few_or(many: RangeInclusive<usize>, random: &mut Pcg64Mcg) -> usize {
    match random.random() {
        true => random.random_range(1..8),
        false => random.random_range(many),
    }
}

fn policy(random: &mut Pcg64Mcg) -> SlowPolicy {
    match random.random_range(0..4) {
        0 => SlowPolicy::Drop,
        1 => SlowPolicy::Evict(Duration::from_millis(random.random_range(50..5_000))),
        _ => SlowPolicy::Block,
    }
}

/// Draws a tree, so that full queues cannot wait for each other in a circle. Adds some links if a
/// controller keeps queues short.
fn links(daemons: u16, datagrams: bool, from_s: f64, random: &mut Pcg64Mcg) -> Vec<OverlayLink> {
    let mut ends: Vec<_> = (1..daemons)
        .map(|daemon| (random.random_range(0..daemon), daemon))
        .collect();
    if datagrams && daemons > 2 {
        let (a, b) = (0, daemons - 1);
        if !ends.contains(&(a, b)) {
            ends.push((a, b));
        }
    }
    let way = |ends| OverlayLink {
        ends,
        config: link(random),
        cuts: cuts(from_s, random),
    };
    ends.into_iter().map(way).collect()
}

fn link(random: &mut Pcg64Mcg) -> LinkConfig {
    let loss = match random.random_range(0..3) {
        0 => LossModel::None,
        1 => LossModel::Bernoulli(random.random_range(0.0..0.02)),
        _ => LossModel::Bernoulli(random.random_range(0.0..0.1)),
    };
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(
            random.random_range(500_000..10_000_000),
        )),
        delay: Duration::from_micros(random.random_range(100..50_000)),
        queue: QueueLimit::Packets(random.random_range(5..100)),
        loss,
        duplication: [0.0, 0.02][random.random_range(0..2)],
        jitter: Duration::from_micros(random.random_range(0..5_000)),
        reorder: random.random(),
        ..LinkConfig::default()
    }
}

/// Draws up to four cuts, one after the other.
fn cuts(from_s: f64, random: &mut Pcg64Mcg) -> Vec<(Time, Time)> {
    let times = match random.random_bool(0.4) {
        true => random.random_range(1..=4),
        false => 0,
    };
    let mut end = Time::from_secs_f64(from_s);
    let cuts = (0..times).map(|_| {
        let begin = end + Duration::from_millis(random.random_range(100..6_000));
        end = begin + Duration::from_millis(random.random_range(50..8_000));
        (begin, end)
    });
    cuts.collect()
}

fn sender(daemons: u16, from_s: f64, random: &mut Pcg64Mcg) -> Sender {
    Sender {
        at: random.random_range(0..daemons),
        groups: groups(random),
        start: at(from_s, from_s + 8.0, random),
        messages: random.random_range(1..=300),
        pause: match random.random_bool(0.5) {
            true => Duration::from_millis(random.random_range(1..700)),
            false => Duration::ZERO,
        },
        crash: random
            .random_bool(0.25)
            .then(|| at(from_s, from_s + 60.0, random)),
    }
}

fn member(daemons: u16, from_s: f64, random: &mut Pcg64Mcg) -> Member {
    let start = match random.random_bool(0.6) {
        true => Time::ZERO,
        false => at(from_s, from_s + 12.0, random),
    };
    let later = start.max(Time::from_secs_f64(from_s))
        + Duration::from_millis(random.random_range(10..10_000));
    let ends = match random.random_range(0..6) {
        0 => Some(Ends::Leaves(later)),
        1 => Some(Ends::Crashes(later)),
        _ => None,
    };
    Member {
        at: random.random_range(0..daemons),
        groups: groups(random),
        start,
        ends,
        service: match random.random_bool(0.3) {
            true => Duration::from_millis(random.random_range(5..30)),
            false => Duration::from_micros(10),
        },
        sleeps: random.random_bool(0.25).then(|| {
            let from = at(from_s, from_s + 10.0, random);
            (
                from,
                from + Duration::from_millis(random.random_range(100..20_000)),
            )
        }),
    }
}
