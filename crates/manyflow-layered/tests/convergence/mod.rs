//! Random starts of sessions of SIM, and the share of the best menu that each of them reaches.
//!
//! A run has one sender, and 16 receivers behind one to eight bottlenecks:
//!
//! ```text
//!   sender --- 5 ms --- core --- 15 ms, 1 to 6 Mbit/s, RED --- receivers
//! ```
//!
//! Capacities are uniform between 1 and 6 Mbit/s, the range of the paper's figures, and each
//! receiver has a random bottleneck. Packets, queues and thresholds are those of the paper's
//! figures in `scenarios/`. The state machines are those that ship, and every packet is simulated.

use std::sync::Arc;
use std::time::Duration;

use manyflow_core::link::{LinkConfig, Marking, Overload, QueueLimit, RedConfig, RedVariant};
use manyflow_core::{EndpointId, Packet, Rate, Time};
use manyflow_layered::optimum::best_menu;
use manyflow_layered::sim::{Edition, Receiver, ReceiverConfig, Sender, SenderConfig};
use manyflow_layered::{Event, Membership, Message};
use manyflow_netsim::{Change, LinkId, Network, Observer};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The number of receivers.
const RECEIVERS: usize = 16;
/// The largest number of bottlenecks.
const BOTTLENECKS_MAX: usize = 8;
/// The range of capacities, in bit/s.
const CAPACITIES: core::ops::Range<f64> = 1e6..6e6;
/// The simulated time from the random start to the end.
pub(crate) const SPAN_S: usize = 120;
/// The time at the end in which the session counts as ended.
const END_S: usize = 20;
/// The time whose mean efficiency shows that a session has converged.
const WINDOW_S: usize = 10;
/// The share of the best menu from which a session has converged.
pub(crate) const NEAR: f64 = 0.95;
/// The share of lost packets above which a receiver has more groups than its path carries.
pub(crate) const LOSS_MAX: f64 = 0.05;

/// The rules that sender and receivers follow.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// The defaults: the paper's rules, with this project's choices where it leaves something open.
    Paper,
    /// The paper's rules by the letter: additions alone, no deeper decrease, no back-off, averaged
    /// rates.
    Letter,
    /// The second edition, with its defaults.
    Second,
}

/// The state in which a run begins.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// A session that starts: equal rates, and all receivers in the lowest group.
    Cold,
    /// Random rates of the groups, and a random number of groups for each receiver.
    Random,
    /// Random rates of the groups, and a random number of groups for each bottleneck, not fewer for
    /// a faster one: all receivers behind it have the same.
    Ordered,
    /// A session whose capacities were others for 20 to 60 s.
    Changed,
}

/// All rules, with their names.
pub(crate) const RULES: [(&str, Rules); 3] = [
    ("letter", Rules::Letter),
    ("paper", Rules::Paper),
    ("second", Rules::Second),
];
/// All starts, with their names.
pub(crate) const STARTS: [(&str, Start); 4] = [
    ("cold", Start::Cold),
    ("random", Start::Random),
    ("ordered", Start::Ordered),
    ("changed", Start::Changed),
];

/// The result of a run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) seed: u64,
    /// The number of different capacities.
    pub(crate) capacities: usize,
    /// The efficiency of the best menu.
    pub(crate) best: f64,
    /// The efficiency in the last 20 s.
    pub(crate) efficiency: f64,
    /// The time from the start to the first 10 s at the best menu.
    pub(crate) reached_s: Option<usize>,
    /// The loss of the receiver that loses most in the last 20 s.
    pub(crate) worst_loss: f64,
    /// The rate of the lowest group at the end, over the highest capacity. All receivers get this
    /// group.
    pub(crate) lowest: f64,
    /// The receivers that lose more than 5 % in the last 20 s, and are in the top group of their
    /// bottleneck: routers mark its packets.
    pub(crate) marked: usize,
    /// Such receivers that have fewer groups than another one behind their bottleneck: no packet
    /// that they get is marked.
    pub(crate) unmarked: usize,
    /// The number of groups that are the top group of a receiver at the end.
    pub(crate) used: usize,
    /// The number of groups that the best menu uses.
    pub(crate) needed: usize,
    /// The changes of groups of all receivers in the last 20 s.
    pub(crate) changes: u32,
}

/// A way of not ending at the best menu.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The lowest group alone is more than any path carries.
    Grown,
    /// Receivers lose more than 5 %, although the lowest group fits the fastest path.
    Lossy,
    /// Receivers get too little, without loss.
    Low,
}

impl Run {
    /// Returns whether receivers end with rates within 5 % of those of the best menu on average,
    /// whatever they lose.
    pub(crate) fn is_near(&self) -> bool {
        self.efficiency >= NEAR * self.best
    }

    /// Returns the reason why the run does not end at the best menu.
    pub(crate) fn failure(&self) -> Option<Failure> {
        if self.is_at_best() {
            None
        } else if self.lowest > 1.25 {
            Some(Failure::Grown)
        } else if self.worst_loss > LOSS_MAX {
            Some(Failure::Lossy)
        } else {
            Some(Failure::Low)
        }
    }

    /// Returns whether the run ends at the best menu: near it, and no receiver loses more than 5 %.
    /// A receiver that loses more has a group that its path does not carry.
    pub(crate) fn is_at_best(&self) -> bool {
        self.is_near() && self.worst_loss <= LOSS_MAX
    }
}

/// The capacities, and the bottleneck of each receiver.
struct Paths {
    capacities: Vec<f64>,
    bottleneck: Vec<usize>,
}

impl Paths {
    fn draw(random: &mut Pcg64Mcg) -> Paths {
        let count = random.random_range(1..=BOTTLENECKS_MAX);
        // Each bottleneck has a receiver.
        let behind = |receiver| match receiver {
            first if first < count => first,
            _ => random.random_range(0..count),
        };
        let bottleneck = (0..RECEIVERS).map(behind).collect();
        let mut paths = Paths {
            capacities: vec![0.0; count],
            bottleneck,
        };
        paths.draw_capacities(random);
        paths
    }

    fn draw_capacities(&mut self, random: &mut Pcg64Mcg) {
        for capacity in &mut self.capacities {
            *capacity = random.random_range(CAPACITIES);
        }
    }

    /// Draws a number of groups for each bottleneck, not fewer for a faster one.
    fn ordered_groups(&self, groups: u8, seed: u64) -> Vec<u8> {
        let mut random = Pcg64Mcg::seed_from_u64(!seed);
        let mut drawn: Vec<u8> = self
            .capacities
            .iter()
            .map(|_| random.random_range(1..=groups))
            .collect();
        drawn.sort_unstable();
        let slower = |capacity: &f64| {
            self.capacities
                .iter()
                .filter(|other| *other < capacity)
                .count()
        };
        self.capacities
            .iter()
            .map(|capacity| drawn[slower(capacity)])
            .collect()
    }

    fn of_receivers(&self) -> Vec<f64> {
        let capacity = |place: &usize| self.capacities[*place];
        self.bottleneck.iter().map(capacity).collect()
    }
}

/// Returns a bottleneck, with the queue of the paper's figures in `scenarios/`.
fn bottleneck(capacity: f64) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(capacity as u64)),
        delay: Duration::from_millis(15),
        queue: QueueLimit::Packets(20),
        red: Some(RedConfig {
            minimum_packets: 5.0,
            maximum_packets: 15.0,
            weight: 0.1,
            ecn: true,
            marking: Marking::TopGroup,
            overload: Overload::Mark,
            variant: RedVariant::Paper,
            ..RedConfig::default()
        }),
        ..LinkConfig::default()
    }
}

fn delay(millis: u64) -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(millis),
        ..LinkConfig::default()
    }
}

fn configs(rules: Rules, groups: u8) -> (SenderConfig, ReceiverConfig) {
    let edition = match rules {
        Rules::Paper | Rules::Letter => Edition::Paper,
        Rules::Second => Edition::Second,
    };
    let sender = SenderConfig {
        groups,
        initial_rtt: Duration::from_millis(40),
        ..SenderConfig::of(edition)
    };
    let receiver = ReceiverConfig::of(edition);
    match rules {
        Rules::Paper | Rules::Second => (sender, receiver),
        Rules::Letter => (
            SenderConfig {
                start_factor: 1.0,
                step_max: 1000.0,
                decrease_min: 1.0,
                ..sender
            },
            ReceiverConfig {
                rate_weight: 0.25,
                backoffs: 0,
                ..receiver
            },
        ),
    }
}

/// The memberships and losses of the receivers so far.
struct Watch {
    /// The endpoint of the first receiver.
    first: u32,
    groups: Vec<usize>,
    lost: Vec<u64>,
    changes: u32,
    /// The rate of the lowest group, in bit/s.
    lowest: f64,
}

impl Observer<Message, Event> for Watch {
    fn on_event(&mut self, _now: Time, endpoint: EndpointId, event: &Event) {
        if let Event::GroupRate { group: 0, rate, .. } = event {
            self.lowest = rate.bits_per_s() as f64;
        }
        let Some(receiver) = endpoint.0.checked_sub(self.first) else {
            return;
        };
        let receiver = receiver as usize;
        match event {
            Event::Joined(_) => self.groups[receiver] += 1,
            Event::Left(_) => self.groups[receiver] -= 1,
            Event::Lost(packets) => self.lost[receiver] += u64::from(*packets),
            _ => return,
        }
        self.changes += u32::from(!matches!(event, Event::Lost(_)));
    }

    fn on_tapped(&mut self, _now: Time, _link: LinkId, _packet: &Packet<Message>) {}
}

/// One session in the simulator.
struct Session {
    network: Network<Message, Event>,
    links: Vec<LinkId>,
    watch: Watch,
    paths: Paths,
    /// The packets that each receiver had received and lost at the end of the last second.
    before: Vec<Counts>,
}

/// The bytes and packets that a receiver received, and the packets that it lost.
#[derive(Copy, Clone, Debug, Default)]
struct Counts {
    bytes: u64,
    received: u64,
    lost: u64,
}

/// One second of all receivers.
struct Second {
    efficiency: f64,
    counts: Vec<Counts>,
}

/// Returns the mean efficiency of some seconds.
fn efficiency(seconds: &[Second]) -> f64 {
    seconds.iter().map(|second| second.efficiency).sum::<f64>() / seconds.len() as f64
}

/// Returns the share of packets that each receiver lost in some seconds.
fn losses(seconds: &[Second]) -> Vec<f64> {
    let of = |receiver: usize| {
        let counts = seconds.iter().map(|second| second.counts[receiver]);
        let (lost, received) = counts.fold((0, 0), |sums, counts| {
            (sums.0 + counts.lost, sums.1 + counts.received)
        });
        lost as f64 / (lost + received).max(1) as f64
    };
    (0..RECEIVERS).map(of).collect()
}

impl Session {
    /// Creates a session, whose receivers start within the first round.
    fn new(rules: Rules, start: Start, groups: u8, seed: u64, random: &mut Pcg64Mcg) -> Session {
        let paths = Paths::draw(random);
        let (sending, receiving) = configs(rules, groups);
        let mut network = Network::new(seed);
        let [source, core] = ["source", "core"].map(|name| network.add_node(name));
        network.add_duplex(source, core, delay(5));
        let number = network.open_session(source);
        let mut sender = Sender::new(sending, number, Time::ZERO, None).expect("valid parameters");
        if matches!(start, Start::Random | Start::Ordered) {
            let draw = |_| Rate::from_bits_per_s(random.random_range(100_000..7_000_000));
            let mut rates: Vec<Rate> = (0..groups).map(draw).collect();
            rates.sort_unstable();
            sender.begin_with(&rates);
        }
        let parent = network.add(source, sender);
        let (mut links, mut ends) = (Vec::new(), Vec::new());
        for (place, capacity) in paths.capacities.iter().enumerate() {
            let end = network.add_node(&format!("end-{place}"));
            links.push(network.add_link(core, end, bottleneck(*capacity)));
            network.add_link(end, core, delay(15));
            ends.push(end);
        }
        let ordered = paths.ordered_groups(groups, seed);
        let first = network.next_endpoint();
        for place in &paths.bottleneck {
            let begin = Time::ZERO + Duration::from_micros(random.random_range(0..80_000));
            let id = network.next_endpoint().0;
            let config = receiving.clone();
            let membership = Membership {
                start: begin,
                ..Membership::new(number, groups)
            };
            let receiver = Receiver::new(config, membership, id, parent);
            let mut receiver = receiver.expect("valid parameters");
            match start {
                Start::Random => receiver.begin_with(random.random_range(1..=groups)),
                Start::Ordered => receiver.begin_with(ordered[*place]),
                Start::Cold | Start::Changed => {}
            }
            network.add(ends[*place], receiver);
        }
        let watch = Watch {
            first: first.0,
            groups: vec![0; RECEIVERS],
            lost: vec![0; RECEIVERS],
            changes: 0,
            lowest: 0.0,
        };
        Session {
            network,
            links,
            watch,
            paths,
            before: vec![Counts::default(); RECEIVERS],
        }
    }

    /// Runs for whole seconds from now on.
    fn run_for(&mut self, seconds: usize) -> Vec<Second> {
        (0..seconds).map(|_| self.run_second()).collect()
    }

    fn run_second(&mut self) -> Second {
        let end = self.network.now() + Duration::from_secs(1);
        self.network
            .run_until(end, &mut self.watch)
            .expect("time advances");
        let mut share = 0.0;
        let mut counts = Vec::with_capacity(RECEIVERS);
        for (receiver, capacity) in self.paths.of_receivers().into_iter().enumerate() {
            let id = EndpointId(self.watch.first + receiver as u32);
            let received = self.network.received(id);
            let now = Counts {
                bytes: received.bytes,
                received: received.packets,
                lost: self.watch.lost[receiver],
            };
            let before = core::mem::replace(&mut self.before[receiver], now);
            share += (now.bytes - before.bytes) as f64 * 8.0 / capacity;
            counts.push(Counts {
                bytes: now.bytes - before.bytes,
                received: now.received - before.received,
                lost: now.lost - before.lost,
            });
        }
        Second {
            efficiency: share / RECEIVERS as f64,
            counts,
        }
    }

    /// Gives each bottleneck another capacity.
    fn change(&mut self, random: &mut Pcg64Mcg) {
        self.paths.draw_capacities(random);
        for (link, capacity) in self.links.iter().zip(&self.paths.capacities) {
            let config = Arc::new(bottleneck(*capacity));
            self.network
                .at(self.network.now(), Change::Configure(*link, config));
        }
    }

    /// Returns whether each receiver has fewer groups than another one behind its bottleneck.
    fn are_below_others(&self) -> Vec<bool> {
        let place = |receiver: usize| self.paths.bottleneck[receiver];
        let groups = &self.watch.groups;
        let is_below = |receiver: usize| {
            let mut others = (0..RECEIVERS).filter(|other| place(*other) == place(receiver));
            others.any(|other| groups[other] > groups[receiver])
        };
        (0..RECEIVERS).map(is_below).collect()
    }
}

/// Returns the number of bottlenecks of a run.
pub(crate) fn bottlenecks(seed: u64) -> usize {
    Paths::draw(&mut Pcg64Mcg::seed_from_u64(seed))
        .capacities
        .len()
}

/// Runs one session from a random start.
pub(crate) fn run(rules: Rules, start: Start, groups: u8, seed: u64) -> Run {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut session = Session::new(rules, start, groups, seed, &mut random);
    if start == Start::Changed {
        session.run_for(random.random_range(20..=60));
        session.change(&mut random);
    }
    let mut seconds = session.run_for(SPAN_S - END_S);
    let changes = session.watch.changes;
    seconds.extend(session.run_for(END_S));
    let best = best_menu(&session.paths.of_receivers(), groups).expect("there are receivers");
    let mut windows = seconds.windows(WINDOW_S);
    let end = &seconds[SPAN_S - END_S..];
    let lossy = losses(end).into_iter().map(|loss| loss > LOSS_MAX);
    let lossy: Vec<(bool, bool)> = lossy.zip(session.are_below_others()).collect();
    let count = |kind| {
        lossy
            .iter()
            .filter(|receiver| **receiver == (true, kind))
            .count()
    };
    let highest = session.paths.capacities.iter().copied().fold(0.0, f64::max);
    let used = (1..=usize::from(groups)).filter(|top| session.watch.groups.contains(top));
    Run {
        seed,
        capacities: session.paths.capacities.len(),
        best: best.efficiency,
        efficiency: efficiency(end),
        reached_s: windows.position(|window| {
            let is_near = efficiency(window) >= NEAR * best.efficiency;
            is_near && losses(window).iter().all(|loss| *loss <= LOSS_MAX)
        }),
        worst_loss: losses(end).into_iter().fold(0.0, f64::max),
        lowest: session.watch.lowest / highest,
        marked: count(false),
        unmarked: count(true),
        used: used.count(),
        needed: best.rates.len(),
        changes: session.watch.changes - changes,
    }
}
