//! Tests of the whole control loop: a sending and several receiving daemons, joined by paths.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;
use crate::message::{Body, CopyFlags};
use crate::sequence::{ChangeSeq, OriginSeq};
use crate::topology::Topology;
use manyflow_core::estimate::tcp_equation::TcpEquation;

const GROUP: GroupId = GroupId(7);
const CLIENT: ClientId = ClientId(3);
const BYTES: u32 = 1400;
const SENDER: usize = 0;

/// A message in transit to a daemon.
enum Item {
    Data { data: Data, repaired: bool },
    Control { from: DaemonId, control: Control },
}

/// Returns a message of daemon 0.
fn message(data: &Data, repaired: bool) -> Message {
    Message {
        origin: DaemonId(0),
        copy: match repaired {
            true => CopyFlags::REPAIRED,
            false => CopyFlags::default(),
        },
        body: Body::Data(*data),
    }
}

/// The path from the sending daemon to a receiving daemon.
struct Path {
    delay: Duration,
    loss: f64,
    cut: bool,
    /// The rate of the bottleneck in bytes per second, and when it will have sent its queue. The
    /// queue takes at most [`QUEUE`] to send.
    rate: f64,
    free_at: Time,
}

/// The maximum time that the queue of a bottleneck takes to send.
const QUEUE: Duration = Duration::from_millis(100);

impl Path {
    /// Returns the delay of a message that is sent now; `None` if the queue has no room.
    fn carry(&mut self, now: Time) -> Option<Duration> {
        let begins = self.free_at.max(now);
        if begins - now > QUEUE {
            return None;
        }
        self.free_at = begins + manyflow_core::time::seconds(f64::from(BYTES) / self.rate);
        Some(self.free_at - now + self.delay)
    }
}

/// Daemon 0, with a client that sends as fast as it may, and receiving daemons, each at the end of
/// its own path.
struct World {
    now: Time,
    sites: Vec<Site>,
    daemons: Vec<Tfrc>,
    paths: Vec<Path>,
    /// Messages in transit: arrival time, daemon, and message.
    wire: Vec<(Time, usize, Item)>,
    random: Pcg64Mcg,
    waiting: bool,
    sequence: u64,
    /// Counts since [`World::reset`]: the messages sent, and the loss events at each daemon in
    /// `events`.
    sent: u32,
    /// Messages that found no room at a bottleneck.
    dropped: u32,
    events: Vec<u32>,
}

impl World {
    /// Returns a world with one receiving daemon for each path, given by its delay in ms each way
    /// and its loss rate. All are members.
    fn new(paths: &[(u64, f64)]) -> World {
        let count = paths.len() + 1;
        let links: Vec<_> = (1..count as u16)
            .map(|end| (DaemonId(0), DaemonId(end), 1))
            .collect();
        let topology =
            std::sync::Arc::new(Topology::new((0..count as u16).map(DaemonId), &links).unwrap());
        let site = |here| Site::new(DaemonId(here), topology.clone());
        let tfrc = |here| Tfrc::new(TfrcConfig::default(), DaemonId(here)).unwrap();
        let paths = [(0, 0.0)].iter().chain(paths);
        let mut world = World {
            now: Time::ZERO,
            sites: (0..count as u16).map(site).collect(),
            daemons: (0..count as u16).map(tfrc).collect(),
            paths: paths
                .map(|&(delay_ms, loss)| Path {
                    delay: Duration::from_millis(delay_ms),
                    loss,
                    cut: false,
                    rate: f64::INFINITY,
                    free_at: Time::ZERO,
                })
                .collect(),
            wire: Vec::new(),
            random: Pcg64Mcg::seed_from_u64(11),
            waiting: false,
            sequence: 0,
            sent: 0,
            dropped: 0,
            events: vec![0; count],
        };
        (1..count).for_each(|daemon| world.change(daemon, true));
        world
    }

    /// Lets a daemon's only member join or leave.
    fn change(&mut self, daemon: usize, joins: bool) {
        let who = DaemonId(daemon as u16);
        for place in 0..self.sites.len() {
            let groups = &mut self.sites[place].groups;
            groups.set(GROUP, who, joins.into(), ChangeSeq(1));
            self.daemons[place].on_membership(self.now, GROUP, &self.sites[place]);
        }
    }

    fn reset(&mut self) {
        self.sent = 0;
        self.events.fill(0);
    }

    /// Offers messages of the client until one has to wait.
    fn offer(&mut self) {
        let request = Request {
            client: CLIENT,
            groups: GROUP.into(),
            bytes: BYTES,
            purse: None,
        };
        self.waiting = false;
        for _ in 0..1000 {
            if !self.daemons[SENDER].try_admit(self.now, &request, &self.sites[SENDER]) {
                self.waiting = true;
                return;
            }
            self.send();
        }
        panic!("1000 messages were admitted at {}", self.now);
    }

    fn send(&mut self) {
        self.sequence += 1;
        self.sent += 1;
        let data = Data {
            group: GROUP,
            version: 0,
            sequence: OriginSeq::new(self.sequence),
            sender: CLIENT,
            sent_us: 0,
        };
        self.daemons[SENDER].on_sent(self.now, &data, BYTES, &self.sites[SENDER]);
        for end in 1..self.paths.len() {
            let path = &mut self.paths[end];
            let is_member = self.sites[SENDER]
                .groups
                .has_member_at(GROUP, DaemonId(end as u16));
            if path.cut || !is_member {
                continue;
            }
            // A lost message is repaired a round-trip time later.
            let carried = path.carry(self.now);
            let repaired = carried.is_none() || self.random.random_bool(path.loss);
            let again = if repaired {
                2 * path.delay
            } else {
                Duration::ZERO
            };
            let delay = carried.unwrap_or(QUEUE + path.delay) + again;
            self.dropped += u32::from(carried.is_none());
            let item = Item::Data { data, repaired };
            self.wire.push((self.now + delay, end, item));
        }
    }

    fn drain(&mut self) {
        for place in 0..self.daemons.len() {
            while let Some((audience, control)) = self.daemons[place].poll_control() {
                let Audience::One(to) = audience else {
                    panic!("TFRC sent a message to {audience:?}");
                };
                let (from, to) = (DaemonId(place as u16), usize::from(to.0));
                let path = &self.paths[place.max(to)];
                if !path.cut {
                    let item = Item::Control { from, control };
                    self.wire.push((self.now + path.delay, to, item));
                }
            }
            while let Some(event) = self.daemons[place].poll_event() {
                self.events[place] += u32::from(event == Event::LossEvent);
            }
        }
        while let Some(client) = self.daemons[SENDER].poll_ready() {
            assert!(self.waiting, "{client:?} was woken without waiting");
            self.offer();
        }
    }

    fn arrive(&mut self, place: usize, item: &Item) {
        let (daemon, site) = (&mut self.daemons[place], &self.sites[place]);
        match item {
            // Daemons without members do not handle data.
            Item::Data { .. } if !site.groups.has_member_at(GROUP, site.here) => {}
            Item::Data { data, repaired } => {
                daemon.on_arrival(self.now, &message(data, *repaired), data, BYTES);
            }
            Item::Control { from, control } => daemon.on_control(self.now, *from, control, site),
        }
    }

    fn run(&mut self, span_s: f64) {
        let end = self.now + manyflow_core::time::seconds(span_s);
        if !self.waiting {
            self.offer();
        }
        loop {
            self.drain();
            let arrivals = self.wire.iter().map(|(at, ..)| *at);
            let timers = self.daemons.iter().filter_map(Controller::poll_timeout);
            let Some(next) = arrivals.chain(timers).min().filter(|next| *next <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(next);
            // The message that was sent first among those that are due.
            let due = self.wire.iter().position(|(at, ..)| *at <= self.now);
            if let Some(due) = due {
                let (_, place, item) = self.wire.remove(due);
                self.arrive(place, &item);
            }
            for (daemon, site) in self.daemons.iter_mut().zip(&self.sites) {
                daemon.handle_timeout(self.now, site);
            }
        }
    }

    /// Runs for `span_s` seconds. Returns the rate in packets per second, and p at daemon 1.
    fn measure(&mut self, span_s: f64) -> (f64, f64) {
        self.reset();
        self.run(span_s);
        let p = f64::from(self.events[1]) / f64::from(self.sent);
        (f64::from(self.sent) / span_s, p)
    }
}

#[test]
fn the_rate_is_near_the_equation_at_the_measured_loss_event_rate() {
    for (delay_ms, loss) in [(50, 0.01), (50, 0.03), (20, 0.01), (100, 0.003)] {
        let mut world = World::new(&[(delay_ms, loss)]);
        world.run(30.0);
        let (rate, p) = world.measure(300.0);
        let equation = TcpEquation::RENO.full_rate_packets_per_s(2.0 * delay_ms as f64 / 1000.0, p);
        let ratio = rate / equation;
        println!(
            "{delay_ms} ms, {loss}: {rate:.1} packets/s, p {p:.4}, equation {equation:.1}, ratio {ratio:.2}"
        );
        assert!(
            (1.0 / 1.5..1.5).contains(&ratio),
            "{delay_ms} ms, {loss}: {rate} packets/s, {equation} at p = {p}: {ratio}"
        );
    }
}

#[test]
fn the_rate_falls_within_a_second_when_the_loss_grows() {
    let mut world = World::new(&[(50, 0.002)]);
    world.run(60.0);
    let (before, _) = world.measure(10.0);
    world.paths[1].loss = 0.1;
    world.run(1.0);
    let (after, _) = world.measure(10.0);
    assert!(after < before / 3.0, "{before}, then {after} packets/s");
    world.paths[1].loss = 0.002;
    world.run(60.0);
    let (again, _) = world.measure(30.0);
    assert!(again > before / 3.0, "{before}, then {again} packets/s");
}

#[test]
fn the_rate_grows_within_seconds_until_the_first_loss() {
    let mut world = World::new(&[(50, 0.0)]);
    let (first, _) = world.measure(0.1);
    assert!(first <= 30.0, "{first} packets/s in the first round trip");
    world.run(1.62);
    let (before, _) = world.measure(0.03);
    assert!(before > 10.0 * first, "{first}, then {before} packets/s");
    world.paths[1].loss = 1.0;
    world.run(0.005);
    world.paths[1].loss = 0.0;
    // The sender learns of the loss a round-trip time later.
    world.run(0.11);
    let (after, _) = world.measure(0.5);
    assert!(
        (0.3..1.0).contains(&(after / before)),
        "{before}, then {after} packets/s"
    );
}

#[test]
fn the_slowest_daemon_sets_the_rate_while_it_is_a_member() {
    let mut world = World::new(&[(20, 0.005), (60, 0.05)]);
    world.run(30.0);
    let (both, _) = world.measure(60.0);
    world.change(2, false);
    world.run(10.0);
    let (one, _) = world.measure(60.0);
    world.change(2, true);
    world.run(10.0);
    let (again, _) = world.measure(60.0);
    assert!(one > 4.0 * both, "{both}, then {one} packets/s");
    assert!((0.5..2.0).contains(&(again / both)), "{both}, then {again}");
}

#[test]
fn the_rate_falls_on_a_cut_path_and_recovers() {
    let mut world = World::new(&[(50, 0.01)]);
    world.run(30.0);
    let (before, _) = world.measure(30.0);
    world.paths[1].cut = true;
    world.run(5.0);
    let (during, _) = world.measure(10.0);
    world.paths[1].cut = false;
    world.run(60.0);
    let (after, _) = world.measure(60.0);
    assert!(during < before / 10.0, "{before}, then {during} packets/s");
    assert!(
        (0.5..2.0).contains(&(after / before)),
        "{before}, then {after}"
    );
}

/// A daemon that dies sends no reports, and its members count for the hold time.
#[test]
fn a_daemon_that_cannot_be_reached_limits_nobody() {
    let mut world = World::new(&[(50, 0.01), (50, 0.0)]);
    world.run(30.0);
    let (before, _) = world.measure(30.0);
    world.paths[2].cut = true;
    world.run(0.2);
    let mut alone = Topology::unlinked(9, &[(DaemonId(0), 1), (DaemonId(1), 1)]);
    alone.add_link(DaemonId(0), DaemonId(1), 1);
    world.sites[SENDER].topology = std::sync::Arc::new(alone);
    let (now, site) = (world.now, &world.sites[SENDER]);
    world.daemons[SENDER].on_topology(now, site);
    let (after, _) = world.measure(30.0);
    assert!(after > before / 2.0, "{before}, then {after} packets/s");
}

#[test]
fn messages_to_local_members_only_are_not_delayed() {
    let mut world = World::new(&[(50, 0.01)]);
    world.run(5.0);
    world.change(1, false);
    world.change(SENDER, true);
    let request = Request {
        client: CLIENT,
        groups: GROUP.into(),
        bytes: BYTES,
        purse: None,
    };
    let (now, site) = (world.now, &world.sites[SENDER]);
    let tfrc = &mut world.daemons[SENDER];
    assert_eq!(
        tfrc.poll_ready(),
        Some(CLIENT),
        "the waiting client is not woken"
    );
    assert!((0..10_000).all(|_| tfrc.try_admit(now, &request, site)));
    assert_eq!(tfrc.poll_timeout(), None);
}

#[test]
fn arbitrary_messages_of_other_daemons_cause_no_panic() {
    let mut world = World::new(&[(50, 0.01)]);
    world.run(5.0);
    let mut random = Pcg64Mcg::seed_from_u64(5);
    for _ in 0..20_000 {
        let mut any = || match random.random_range(0..4) {
            0 => 0,
            1 => u32::MAX,
            2 => random.random_range(0..200),
            _ => random.random(),
        };
        let report = Report {
            group: GROUP,
            rate_bytes_per_s: any(),
            repaired: any() as u16,
            acknowledged: OriginSeq::new(u64::from(any()) << 16),
            received_bytes: any(),
            held_us: any(),
        };
        let round_trip = RoundTrip { rtt_us: any() };
        let data = Data {
            group: GROUP,
            version: 0,
            sequence: OriginSeq::new(u64::from(any()) << 16),
            sender: CLIENT,
            sent_us: 0,
        };
        let (repaired, wait_ms) = (any() % 2 == 0, any() % 100);
        world.now += Duration::from_millis(u64::from(wait_ms));
        let (now, site) = (world.now, &world.sites);
        world.daemons[0].on_control(now, DaemonId(1), &Control::Report(report), &site[0]);
        world.daemons[1].on_control(now, DaemonId(0), &Control::RoundTrip(round_trip), &site[1]);
        world.daemons[1].on_arrival(now, &message(&data, repaired), &data, BYTES);
        for (daemon, site) in world.daemons.iter_mut().zip(&world.sites) {
            daemon.handle_timeout(now, site);
            while daemon.poll_control().is_some() {}
            while daemon.poll_event().is_some() {}
        }
    }
    let origins = &world.daemons[1].origins;
    assert_eq!(origins.values().map(Origin::flows).sum::<usize>(), 1);
}

#[test]
fn losses_of_several_percent_leave_a_rate_near_the_equations() {
    for (delay_ms, loss) in [(140, 0.076), (60, 0.05), (60, 0.03), (15, 0.076)] {
        let rates = (0..6).map(|seed| {
            let mut world = World::new(&[(delay_ms, loss)]);
            world.random = Pcg64Mcg::seed_from_u64(seed);
            world.run(5.0);
            world.measure(60.0).0
        });
        let mean = rates.sum::<f64>() / 6.0;
        let ratio =
            mean / TcpEquation::RENO.full_rate_packets_per_s(2.0 * delay_ms as f64 / 1000.0, loss);
        println!("{delay_ms} ms, {loss}: {mean:.1} packets/s, ratio {ratio:.2}");
        assert!(
            (1.0 / 1.6..1.25).contains(&ratio),
            "{delay_ms} ms, {loss}: {ratio}"
        );
    }
}

#[test]
fn a_bottleneck_is_used_and_loses_little() {
    for (rate, delay_ms) in [(50_000.0, 50), (250_000.0, 20), (1_250_000.0, 50)] {
        let mut world = World::new(&[(delay_ms, 0.0)]);
        world.paths[1].rate = rate;
        world.run(60.0);
        world.dropped = 0;
        let packets = world.measure(120.0).0;
        let sent = packets * f64::from(BYTES) / rate;
        let lost = f64::from(world.dropped) / f64::from(world.sent);
        println!("{rate} bytes/s: {sent:.2} of it sent, {lost:.4} lost");
        assert!(
            sent > 0.75 && lost < 0.05,
            "{rate} bytes/s: {sent:.2}, {lost:.4}"
        );
    }
}
