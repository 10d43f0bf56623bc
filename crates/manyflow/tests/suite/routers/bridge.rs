//! A bridge of the kernel as the switch between sender and receiver: it snoops IGMP, and queries.

use manyflow_testing::ip;

use super::{MULTICAST, ThreeHosts, wait_until};

/// Makes a bridge of the router's two interfaces.
fn bridge(hosts: &ThreeHosts) {
    let router = |command: &str| ip(&format!("-netns {} {command}", hosts.router));
    router(
        "link add bridge type bridge mcast_snooping 1 mcast_querier 1 mcast_igmp_version 3 \
         mcast_query_interval 200 mcast_startup_query_interval 50",
    );
    for port in ["upstream", "downstream"] {
        router(&format!("address flush dev {port}"));
        router(&format!("link set {port} master bridge"));
    }
    router("link set bridge up");
}

/// Returns the groups that the bridge forwards to the receiver.
fn groups(hosts: &ThreeHosts) -> usize {
    let program = std::process::Command::new("bridge")
        .args(["-netns", &hosts.router, "mdb", "show", "dev", "bridge"])
        .output()
        .unwrap();
    let shown = String::from_utf8(program.stdout).unwrap();
    let is_ours = |line: &&str| line.contains("port downstream") && line.contains("grp 232.1.2.");
    shown.lines().filter(is_ours).count()
}

/// Returns the packets that have crossed a port of the bridge: `rx` from the host, or `tx` to it.
fn packets(hosts: &ThreeHosts, port: &str, direction: &str) -> u64 {
    let shown = ip(&format!(
        "-netns {} -json -stats link show {port}",
        hosts.router
    ));
    let links: serde_json::Value = serde_json::from_str(&shown).unwrap();
    links[0]["stats64"][direction]["packets"].as_u64().unwrap()
}

/// Whether the bridge holds back most of the sender's next packets.
fn holds_back(hosts: &ThreeHosts) -> bool {
    let (came, went) = (
        packets(hosts, "upstream", "rx"),
        packets(hosts, "downstream", "tx"),
    );
    wait_until("the sender sends", || {
        packets(hosts, "upstream", "rx") > came + 100
    });
    packets(hosts, "downstream", "tx") < went + 10
}

#[test]
fn a_receiver_joins_and_leaves_through_a_bridge_that_queries() {
    let Some(hosts) = ThreeHosts::new() else {
        return;
    };
    bridge(&hosts);
    let _sender = hosts.send(MULTICAST);
    // A bridge floods multicast packets until it has heard a querier, itself included.
    wait_until("the bridge holds the session back", || holds_back(&hosts));
    assert_eq!(groups(&hosts), 0);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| hosts.receive(&["--interface", "wire"]));
        wait_until("the bridge forwards", || {
            groups(&hosts) > 0 || receiver.is_finished()
        });
    });
    wait_until("the bridge forwards nothing", || groups(&hosts) == 0);
}
