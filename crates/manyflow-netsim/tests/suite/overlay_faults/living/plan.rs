//! The plan of a run, drawn from its seed.

use core::time::Duration;

use manyflow_core::link::{LinkConfig, LossModel, QueueLimit};
use manyflow_core::{Rate, Time};
use manyflow_overlay::{DaemonId, GroupId, LinkKind, OverlayConfig};
use manyflow_tcp::TcpConfig;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::overlay_faults::plan::Control;

/// All faults are over at this time.
pub(crate) const FAULTS_END: Time = Time::from_nanos(60_000_000_000);
/// Each sender sends a last message to each of its groups from this time on.
pub(crate) const LAST: Time = Time::from_nanos(100_000_000_000);
/// The members of a daemon that can not be reached for this long no longer count. Faults are either
/// much shorter or much longer.
const HOLD: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) config: OverlayConfig,
    pub(crate) link_kind: LinkKind,
    pub(crate) control: Control,
    pub(crate) daemons: Vec<DaemonPlan>,
    pub(crate) links: Vec<LinkPlan>,
    pub(crate) senders: Vec<Sender>,
    pub(crate) members: Vec<Member>,
}

/// A daemon and the times of its lives.
#[derive(Debug)]
pub(crate) struct DaemonPlan {
    pub(crate) id: DaemonId,
    /// Start and crash of each life. The last one does not end.
    pub(crate) lives: Vec<(Time, Option<Time>)>,
}

/// A link between two daemons, by their places.
#[derive(Debug)]
pub(crate) struct LinkPlan {
    pub(crate) ends: [usize; 2],
    pub(crate) weight: u32,
    pub(crate) config: LinkConfig,
    /// Cuts that the daemons do not notice.
    pub(crate) cuts: Vec<(Time, Time)>,
    /// Times at which the link is down and both ends know.
    pub(crate) outages: Vec<(Time, Time)>,
    /// The times at which the daemons are connected.
    pub(crate) connections: Vec<Connection>,
}

/// A connection of two daemons: when each end learns that it is up and that it is down.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) up: [Time; 2],
    pub(crate) down: Option<[Time; 2]>,
}

#[derive(Clone, Debug)]
pub(crate) struct Sender {
    pub(crate) at: usize,
    pub(crate) groups: Vec<GroupId>,
    pub(crate) start: Time,
    /// The time for which the sender waits before each message.
    pub(crate) pause: Duration,
    /// The number of messages of each life before the last ones.
    pub(crate) messages: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) at: usize,
    pub(crate) groups: Vec<GroupId>,
    pub(crate) start: Time,
    /// The time for which the member works on a message.
    pub(crate) service: Duration,
}

impl Plan {
    /// Draws the plan of a seed.
    pub(crate) fn of(seed: u64) -> Plan {
        let random = &mut Pcg64Mcg::seed_from_u64(seed);
        let count = random.random_range(2..=6);
        let control = match random.random_range(0..4) {
            0 | 1 => Control::Open,
            2 => Control::CostBenefit,
            _ => Control::Tfrc,
        };
        let datagrams = control == Control::Tfrc || (control == Control::Open && random.random());
        let daemons: Vec<_> = (0..count).map(|place| daemon(place, random)).collect();
        let mut links = links(count, random);
        partition(count, &mut links, random);
        for link in &mut links {
            link.connections = connections(link, &daemons, random);
        }
        let senders = (0..random.random_range(1..=5)).map(|_| sender(count, random));
        let senders = senders.collect();
        Plan {
            seed,
            config: config(random),
            link_kind: link_kind(datagrams),
            control,
            daemons,
            links,
            senders,
            members: (0..random.random_range(1..=8))
                .map(|_| member(count, random))
                .collect(),
        }
    }
}

impl Plan {
    /// Returns the plan without its senders and members.
    pub(crate) fn without_clients(mut self) -> Plan {
        self.senders.clear();
        self.members.clear();
        self
    }

    /// Returns whether daemons begin their life with this number with a stale incarnation, because
    /// their clocks were set back.
    pub(crate) fn is_stale(&self, life: usize) -> bool {
        self.seed.is_multiple_of(4) && life == 1
    }
}

fn millis(millis: u64) -> Time {
    Time::ZERO + Duration::from_millis(millis)
}

fn config(random: &mut Pcg64Mcg) -> OverlayConfig {
    OverlayConfig {
        hold: HOLD,
        client_messages: [10, 256][random.random_range(0..2)],
        retain_bytes: [50_000, 64_000_000][random.random_range(0..2)],
        ..OverlayConfig::default()
    }
}

fn link_kind(datagrams: bool) -> LinkKind {
    match datagrams {
        true => LinkKind::Datagrams,
        false => LinkKind::Streams(TcpConfig {
            send_jitter: Duration::from_micros(500),
            ..TcpConfig::default()
        }),
    }
}

/// Draws the lives of a daemon. The first daemons begin at once.
fn daemon(place: usize, random: &mut Pcg64Mcg) -> DaemonPlan {
    let start = match place > 1 && random.random_bool(0.3) {
        true => random.random_range(1_000..30_000),
        false => 0,
    };
    let mut lives = vec![(millis(start), None)];
    let mut now = start;
    while random.random_bool(0.3) {
        let crash = now + random.random_range(3_000..30_000);
        let restart = crash + random.random_range(200..15_000);
        if restart > 55_000 {
            break;
        }
        if let Some(life) = lives.last_mut() {
            life.1 = Some(millis(crash));
        }
        lives.push((millis(restart), None));
        now = restart;
    }
    let id = DaemonId(sparse(place, random.random()));
    DaemonPlan { id, lives }
}

/// Returns a sparse number, in no order, that no other of the first six places has.
fn sparse(place: usize, chance: u16) -> u16 {
    chance % 8_192 * 8 + (place as u16 * 5) % 8
}

/// Draws a connected graph.
fn links(daemons: usize, random: &mut Pcg64Mcg) -> Vec<LinkPlan> {
    let mut ends: Vec<_> = (1..daemons)
        .map(|daemon| [random.random_range(0..daemon), daemon])
        .collect();
    for _ in 0..random.random_range(0..=daemons) {
        let (a, b) = (
            random.random_range(0..daemons),
            random.random_range(0..daemons),
        );
        let both = [a.min(b), a.max(b)];
        if a != b && !ends.contains(&both) {
            ends.push(both);
        }
    }
    let link = |ends| LinkPlan {
        ends,
        weight: random.random_range(1..4),
        config: link_config(random),
        cuts: intervals(0.3, 50..600, random),
        outages: outages(random),
        connections: Vec::new(),
    };
    ends.into_iter().map(link).collect()
}

fn link_config(random: &mut Pcg64Mcg) -> LinkConfig {
    let loss = match random.random_range(0..2) {
        0 => LossModel::None,
        _ => LossModel::Bernoulli(random.random_range(0.0..0.03)),
    };
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(
            random.random_range(2_000_000..20_000_000),
        )),
        // The way over a link is shorter than all others, so that its packets take no other way.
        delay: Duration::from_micros(random.random_range(10_000..20_000)),
        queue: QueueLimit::Packets(random.random_range(20..100)),
        loss,
        duplication: [0.0, 0.02][random.random_range(0..2)],
        jitter: Duration::from_micros(random.random_range(0..3_000)),
        reorder: random.random(),
        ..LinkConfig::default()
    }
}

/// Draws intervals that last `span` milliseconds, one after the other.
fn intervals(share: f64, span: core::ops::Range<u64>, random: &mut Pcg64Mcg) -> Vec<(Time, Time)> {
    let mut intervals = Vec::new();
    let mut now = 0;
    while random.random_bool(share) {
        let begin = now + random.random_range(500..20_000);
        let end = begin + random.random_range(span.clone());
        if end > 58_000 {
            break;
        }
        intervals.push((millis(begin), millis(end)));
        now = end;
    }
    intervals
}

/// Draws short and long outages.
fn outages(random: &mut Pcg64Mcg) -> Vec<(Time, Time)> {
    match random.random_bool(0.8) {
        true => intervals(0.5, 1..2_000, random),
        false => intervals(0.5, 16_000..25_000, random),
    }
}

/// Draws a partition: the links between two sets of daemons go down together.
fn partition(daemons: usize, links: &mut [LinkPlan], random: &mut Pcg64Mcg) {
    let span = match random.random_range(0..3) {
        0 => random.random_range(500..2_500),
        1 => random.random_range(16_000..25_000),
        _ => return,
    };
    let begin = random.random_range(5_000..30_000);
    let side: Vec<bool> = (0..daemons).map(|_| random.random()).collect();
    for link in links {
        if side[link.ends[0]] != side[link.ends[1]] {
            link.outages = vec![(millis(begin), millis(begin + span))];
        }
    }
}

/// Returns the connections of a link: both daemons live, and there is no outage.
fn connections(link: &LinkPlan, daemons: &[DaemonPlan], random: &mut Pcg64Mcg) -> Vec<Connection> {
    let [a, b] = link.ends.map(|end| &daemons[end].lives);
    let mut connections: Vec<Connection> = Vec::new();
    let mut lag = || Duration::from_millis(random.random_range(1..300));
    for (start_a, end_a) in a {
        for (start_b, end_b) in b {
            let mut begin = *start_a.max(start_b);
            let end = [*end_a, *end_b].into_iter().flatten().min();
            let is_within = |time: &Time| end.is_none_or(|end| *time < end);
            for (down, up) in &link.outages {
                if *up <= begin || !is_within(down) {
                    continue;
                }
                if *down > begin {
                    let down = Some([*down + lag(), *down + lag()]);
                    connections.push(Connection {
                        up: [begin + lag(), begin + lag()],
                        down,
                    });
                }
                begin = begin.max(*up);
            }
            if is_within(&begin) {
                let down = end.map(|end| [end + lag(), end + lag()]);
                connections.push(Connection {
                    up: [begin + lag(), begin + lag()],
                    down,
                });
            }
        }
    }
    // An end must learn that a connection is down before the next is up.
    connections.sort_by_key(|connection| connection.up);
    for place in 1..connections.len() {
        if let Some(down) = connections[place - 1].down {
            let after = down[0].max(down[1]) + Duration::from_millis(1);
            let up = connections[place].up.map(|up| up.max(after));
            connections[place].up = up;
        }
    }
    connections.retain(|connection| {
        let [a, b] = connection.up;
        connection
            .down
            .is_none_or(|down| a < down[0] && b < down[1])
    });
    connections
}

fn groups(random: &mut Pcg64Mcg) -> Vec<GroupId> {
    match random.random_bool(0.3) {
        true => vec![GroupId(1), GroupId(2)],
        false => vec![GroupId(random.random_range(1..=2))],
    }
}

fn sender(daemons: usize, random: &mut Pcg64Mcg) -> Sender {
    Sender {
        at: random.random_range(0..daemons),
        groups: groups(random),
        start: millis(random.random_range(0..20_000)),
        pause: match random.random_bool(0.7) {
            true => Duration::from_millis(random.random_range(10..400)),
            false => Duration::ZERO,
        },
        messages: random.random_range(1..600),
    }
}

fn member(daemons: usize, random: &mut Pcg64Mcg) -> Member {
    Member {
        at: random.random_range(0..daemons),
        groups: groups(random),
        start: match random.random_bool(0.6) {
            true => Time::ZERO,
            false => millis(random.random_range(0..50_000)),
        },
        service: match random.random_bool(0.2) {
            true => Duration::from_millis(random.random_range(5..30)),
            false => Duration::from_micros(10),
        },
    }
}
