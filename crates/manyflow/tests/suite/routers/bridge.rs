//! A bridge of the kernel as the switch between sender and receiver: it snoops IGMP, and queries.

use super::{MULTICAST, ThreeHosts, wait_until};
use crate::hosts::ip;

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

/// Returns the packets that the bridge has sent to the receiver.
fn sent_downstream(hosts: &ThreeHosts) -> u64 {
    let shown = ip(&format!(
        "-netns {} -json -stats link show downstream",
        hosts.router
    ));
    let links: serde_json::Value = serde_json::from_str(&shown).unwrap();
    links[0]["stats64"]["tx"]["packets"].as_u64().unwrap()
}

#[test]
fn a_receiver_joins_and_leaves_through_a_bridge_that_queries() {
    let Some(hosts) = ThreeHosts::new() else {
        return;
    };
    bridge(&hosts);
    let _sender = hosts.send(MULTICAST);
    // A bridge floods multicast packets until it has heard a querier, itself included.
    wait_until("the bridge holds the session back", || {
        let before = sent_downstream(&hosts);
        std::thread::sleep(std::time::Duration::from_millis(100));
        sent_downstream(&hosts) - before < 10
    });
    assert_eq!(groups(&hosts), 0);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| hosts.receive(&["--interface", "wire"]));
        wait_until("the bridge forwards", || {
            groups(&hosts) > 0 || receiver.is_finished()
        });
    });
    wait_until("the bridge forwards nothing", || groups(&hosts) == 0);
}
