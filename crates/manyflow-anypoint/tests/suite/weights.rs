//! Inbound rates through a switch that learns what each member's path carries. All links have XCP
//! routers. `--nocapture` shows the rates.
use crate::world;

use std::sync::Arc;
use std::time::Duration;

use manyflow_anypoint::AcpConfig;
use manyflow_anypoint::switch::RateAware;
use manyflow_core::Time;
use manyflow_core::link::{LinkConfig, QueueLimit};
use manyflow_core::units::Rate;
use manyflow_core::xcp::XcpConfig;
use manyflow_netsim::{Change, LinkId};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use world::{World, frames};

/// Bits on the wire of a frame of 1024 bytes.
const PACKET_BITS: f64 = (1024.0 + 56.0) * 8.0;
/// A number of frames that lasts longer than any run.
const ENDLESS: u32 = 400_000;
/// The part of the links' rates that a connection has to use: 39 of 42 Mbit/s.
const USED: f64 = 39.0 / 42.0;
/// The time in which shares must have followed a change, in seconds.
const SETTLED: f64 = 2.0;
/// The largest standard deviation of a member's rate from second to second, relative to its mean.
const VARIATION: f64 = 0.1;

/// Returns a link of this rate in kbit/s, which holds 20 ms and has an XCP router.
fn link(rate: u32) -> Arc<LinkConfig> {
    Arc::new(LinkConfig {
        rate: Some(Rate::from_bits_per_s(u64::from(rate) * 1000)),
        delay: Duration::from_millis(5),
        queue: QueueLimit::Packets(23),
        xcp: Some(XcpConfig::default()),
        ..LinkConfig::default()
    })
}

/// A peer that sends to members behind a switch as fast as it can.
struct Service {
    world: World,
    /// The rate of each member's link in kbit/s.
    links: Vec<u32>,
}

impl Service {
    fn new(links: &[u32]) -> Service {
        let config = AcpConfig {
            send_buffer: 1 << 20,
            receive_buffer: 1 << 20,
            ..AcpConfig::default()
        };
        let mut world = World::new(1);
        world.initiator(config.clone(), 1);
        world.learning_switch(RateAware::default(), 0, 2..2 + links.len() as u32);
        let transit = LinkConfig {
            queue: QueueLimit::Packets(1000),
            ..LinkConfig::clone(&link(200_000))
        };
        world.connect(0, 1, &transit);
        for rate in links {
            let member = world.acceptor(config.clone(), 1);
            world.connect(1, member, &link(*rate));
        }
        world.give(0, frames(0..ENDLESS));
        let links = links.to_vec();
        Service { world, links }
    }

    /// Sets the rate of the link to a member, in kbit/s.
    fn set_rate(&mut self, member: usize, rate: u32) {
        self.links[member] = rate;
        // Each pair of nodes has two links; those of the peer are the first.
        let to_member = LinkId(2 + 2 * member as u32);
        let change = Change::Configure(to_member, link(rate));
        self.world.network.at(self.world.network.now(), change);
    }

    /// Runs for some seconds. Returns the rates of the members in Mbit/s on the wire meanwhile.
    fn rates_for(&mut self, seconds: f64) -> Vec<f64> {
        let members = 2..2 + self.links.len() as u32;
        let count = |world: &World| -> Vec<usize> {
            let members = members.clone();
            members.map(|member| world.read(member).len()).collect()
        };
        let before = count(&self.world);
        let now = self.world.network.now() - Time::ZERO;
        self.world.run_until(now + Duration::from_secs_f64(seconds));
        let after = count(&self.world);
        let frames = before
            .iter()
            .zip(&after)
            .map(|(before, after)| after - before);
        let rate = |frames: usize| frames as f64 * PACKET_BITS / seconds / 1e6;
        frames.map(rate).collect()
    }

    /// Checks that the members use their links for some seconds, and that the rate of none varies.
    fn check(&mut self, seconds: u32) -> Result<(), String> {
        let each: Vec<_> = (0..seconds).map(|_| self.rates_for(1.0)).collect();
        let seconds = f64::from(seconds);
        let mut sum = 0.0;
        for (member, link) in self.links.iter().enumerate() {
            let rates = || each.iter().map(|rates| rates[member]);
            let mean = rates().sum::<f64>() / seconds;
            let squares = rates().map(|rate| (rate - mean) * (rate - mean));
            let deviation = (squares.sum::<f64>() / seconds).sqrt() / mean;
            println!(
                "link of {link} kbit/s: {mean:.2} Mbit/s, deviation {:.1} %",
                100.0 * deviation
            );
            if deviation > VARIATION {
                return Err(format!("the rate of member {member} varies: {deviation}"));
            }
            sum += mean;
        }
        let used = sum * 1000.0 / f64::from(self.links.iter().sum::<u32>());
        println!("links {:?}: {:.1} %", self.links, 100.0 * used);
        match used < USED {
            true => Err(format!("links {:?}: {used} is used", self.links)),
            false => Ok(()),
        }
    }
}

#[test]
fn members_with_different_links_use_all_of_them_and_changes_are_followed_within_two_seconds() {
    let mut service = Service::new(&[2_000, 10_000, 10_000, 20_000]);
    service.rates_for(5.0);
    service.check(10).unwrap();
    service.set_rate(0, 20_000);
    service.set_rate(3, 2_000);
    service.rates_for(SETTLED);
    service.check(10).unwrap();
}

/// Runs members behind links whose rates change at random times, up or down by up to ten times.
fn follow_random_rates(seed: u64) -> Result<(), String> {
    let random = &mut Pcg64Mcg::seed_from_u64(seed);
    let mut draw = || random.random_range(2_000..20_000);
    let links: Vec<_> = (0..2 + seed % 4).map(|_| draw()).collect();
    let mut service = Service::new(&links);
    service.rates_for(5.0);
    service.check(5)?;
    for change in 0..3 {
        service.set_rate(change % links.len(), draw());
        service.rates_for(SETTLED);
        service.check(5)?;
    }
    Ok(())
}

/// `MANYFLOW_SEEDS` sets the number of seeds; 4 by default.
#[test]
fn shares_follow_random_changes_of_the_links_and_do_not_oscillate() {
    let seeds = std::env::var("MANYFLOW_SEEDS").ok();
    let seeds = seeds.map_or(4, |seeds| seeds.parse().expect("a number of seeds"));
    for seed in 0..seeds {
        if let Err(error) = follow_random_rates(seed) {
            panic!("seed {seed}: {error}");
        }
    }
}
