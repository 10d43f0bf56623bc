//! Tests of the changes of links.

use std::sync::Arc;
use std::time::Duration;

use manyflow_core::Time;
use manyflow_core::time::seconds;
use manyflow_netsim::LinkId;
use manyflow_scenario::Network;
use manyflow_scenario::Scenario;
use manyflow_scenario::Topology;
use manyflow_scenario::schedule::Schedule;

fn network(at: &str) -> (Network, Schedule, LinkId) {
    let text = format!(
        "title = \"t\"\nrun.duration = \"10 s\"\nnodes.names = [\"a\", \"b\"]\n\
         [[links]]\nname = \"l\"\nbetween = [\"a\", \"b\"]\nrate = \"9 Mbit/s\"\ndelay = \"1 ms\"\n{at}"
    );
    let schema = Scenario::parse("t.toml", &text, false).unwrap();
    let schema = schema.cell(0).unwrap().schema;
    let topology = Topology::new(&schema).unwrap();
    let mut network = Network::new(1);
    let [a, b] = ["a", "b"].map(|name| network.add_node(name));
    let (link, _) = network.add_duplex(a, b, Arc::clone(&topology.links[0].config));
    let schedule = Schedule::new(&schema, &topology).unwrap();
    (network, schedule, link)
}

/// Returns the rate in Mbit/s at the end of each second.
fn rates(at: &str) -> Vec<f64> {
    let (mut network, mut schedule, link) = network(at);
    let rate = |second: u32| {
        let now = Time::ZERO + seconds(f64::from(second));
        schedule.apply_until(&mut network, now);
        network.run_until(now, &mut ()).unwrap();
        let rate = network.link_config(link).rate.unwrap();
        assert_eq!(network.link_config(link).delay, Duration::from_millis(1));
        rate.bits_per_s() as f64 / 1e6
    };
    (1..=8).map(rate).collect()
}

#[test]
fn then_alternates_with_set() {
    let alternating = "[[at]]\nlink = \"l\"\ntime = \"1 s\"\nevery = \"2 s\"\nuntil = \"6 s\"\n\
                       set.rate = \"1 Mbit/s\"\nthen.set.rate = \"3 Mbit/s\"\n";
    assert_eq!(rates(alternating), [1.0, 1.0, 3.0, 3.0, 1.0, 1.0, 1.0, 1.0]);
}

#[test]
fn the_later_entry_wins_at_equal_times() {
    let both = "[[at]]\nlink = \"l\"\ntime = \"2 s\"\nset.rate = \"1 Mbit/s\"\n\
                [[at]]\nlink = \"a-b\"\ntime = \"1 s\"\nevery = \"1 s\"\nuntil = \"2 s\"\n\
                set.rate = \"4 Mbit/s\"\nthen.set.rate = \"5 Mbit/s\"\n";
    assert_eq!(rates(both)[..3], [4.0, 5.0, 5.0]);
}

#[test]
fn changes_are_expanded_only_until_the_requested_time() {
    let (mut network, mut schedule, _) = network(
        "[[at]]\nlink = \"l\"\ntime = \"0 s\"\nevery = \"1 ms\"\nset.rate = \"1 Mbit/s\"\n",
    );
    for ms in 1..=1000 {
        let now = Time::ZERO + Duration::from_millis(ms);
        schedule.apply_until(&mut network, now);
        network.run_until(now, &mut ()).unwrap();
    }
    // At 0 ms and at each millisecond.
    assert_eq!(schedule.changes_made(), 1001);
    assert_eq!(
        schedule.next_time(),
        Some(Time::ZERO + Duration::from_millis(1001))
    );
}
