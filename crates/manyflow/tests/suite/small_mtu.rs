//! Ensembles, files and streams on paths with an MTU below 1500 or of 9000: namespaces on a bridge.
//! They need root; the tests are skipped without it.
//!
//! The MTU of the hosts is what their kernels refuse; that of the bridge's ports is a black hole,
//! because a bridge drops longer packets without a message.

use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};

use manyflow_testing::{enter, ip, make_namespace, may_make_namespaces};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{
    Ended, Manyflow, PATIENT, assert_same, folder_with_file, manyflow, text, write_random,
};
use crate::http_stage::{
    Client, Server, listen_address, pattern, start, start_gateway, start_member,
};

/// Hosts with the addresses 10.77.0.1 and up, on a bridge in a namespace of its own.
struct Bridge {
    bridge: String,
    hosts: Vec<String>,
}

impl Bridge {
    fn new(hosts: usize) -> Option<Bridge> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !may_make_namespaces() {
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |role: &str| format!("manyflow-{}-mtu{number}-{role}", id());
        let made = Bridge {
            bridge: name("bridge"),
            hosts: (1..=hosts).map(|host| name(&host.to_string())).collect(),
        };
        let bridge = &made.bridge;
        make_namespace(bridge);
        ip(&format!("-netns {bridge} link add bridge type bridge"));
        ip(&format!("-netns {bridge} link set bridge up"));
        for (host, namespace) in (1..).zip(&made.hosts) {
            make_namespace(namespace);
            ip(&format!("-netns {namespace} link set lo up"));
            ip(&format!(
                "link add wire netns {namespace} type veth peer name port{host} netns {bridge}"
            ));
            ip(&format!(
                "-netns {bridge} link set port{host} master bridge up"
            ));
            ip(&format!(
                "-netns {namespace} address add 10.77.0.{host}/24 dev wire"
            ));
            // A bridge lets datagrams pass that the kernel carries together, whatever their length.
            ip(&format!(
                "-netns {namespace} link set wire gso_max_segs 1 up"
            ));
        }
        Some(made)
    }

    /// Sets the MTU of the hosts' interfaces.
    fn set_hosts_mtu(&self, mtu: u32) {
        for host in &self.hosts {
            ip(&format!("-netns {host} link set wire mtu {mtu}"));
        }
    }

    /// Sets the MTU of the bridge's ports.
    fn set_bridge_mtu(&self, mtu: u32) {
        for host in 1..=self.hosts.len() {
            let bridge = &self.bridge;
            ip(&format!("-netns {bridge} link set port{host} mtu {mtu}"));
        }
    }

    /// Runs `work` on the host with this number, from 1.
    fn on<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
        enter(&self.hosts[host - 1], work)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        for namespace in self.hosts.iter().chain([&self.bridge]) {
            // A namespace that was never created is not a failure.
            let _ = Command::new("ip")
                .args(["netns", "delete", namespace])
                .output();
        }
    }
}

/// Puts files of one byte and of 2 MB on two members, and gets them.
fn put_and_get(bridge: &Bridge, what: &str) {
    let home = tempfile::tempdir().unwrap();
    let members: Vec<Manyflow> = [2, 3]
        .map(|host| {
            let folder = home.path().join(format!("m{host}"));
            let listen = format!("10.77.0.{host}:7001");
            let member = ["store", "--dir", text(&folder), "--listen", &listen];
            bridge.on(host, || start(&member)).0
        })
        .into();
    let switch = [
        "switch",
        "--listen",
        "10.77.0.1:7000",
        "--policy",
        "replicas",
        "--member",
        "a=10.77.0.2:7001",
        "--member",
        "b=10.77.0.3:7001",
    ];
    let _switch = bridge.on(1, || start(&switch)).0;
    let (sent, got) = (home.path().join("sent"), home.path().join("got"));
    write_random(&sent.join("large"), 2_000_000, 1);
    write_random(&sent.join("small"), 1, 2);
    std::fs::create_dir(&got).unwrap();
    let run = |arguments: &[&str], folder| -> Ended {
        let mut command = manyflow(arguments);
        command.current_dir(folder);
        bridge.on(3, || Manyflow::start(command)).finish()
    };
    let to = ["--to", "10.77.0.1:7000"];
    run(&[&["put", "large", "small"][..], &to].concat(), &sent).succeeded(what);
    for name in ["large", "small"] {
        let get = ["get", name, "--from", "10.77.0.1:7000"];
        run(&get, &got).succeeded(what);
    }
    assert_same(&sent, &got, what);
    drop(members);
}

#[test]
fn files_are_stored_and_read_on_interfaces_with_a_small_mtu() {
    let Some(bridge) = Bridge::new(3) else { return };
    for mtu in [1492, 1460, 1450, 1420, 1280, 1000] {
        bridge.set_hosts_mtu(mtu);
        put_and_get(&bridge, &format!("MTU {mtu}"));
    }
}

#[test]
fn files_are_stored_and_read_through_a_bridge_that_drops_long_packets() {
    let Some(bridge) = Bridge::new(3) else { return };
    for mtu in [1450, 1280] {
        bridge.set_bridge_mtu(mtu);
        put_and_get(&bridge, &format!("MTU {mtu} of the bridge"));
    }
}

#[test]
fn files_are_stored_and_read_with_jumbo_frames_also_if_one_member_has_none() {
    let Some(bridge) = Bridge::new(3) else { return };
    bridge.set_bridge_mtu(9_000);
    bridge.set_hosts_mtu(9_000);
    put_and_get(&bridge, "MTU 9000");
    ip(&format!(
        "-netns {} link set wire mtu 1500",
        bridge.hosts[1]
    ));
    put_and_get(&bridge, "MTU 9000, of one member 1500");
}

#[test]
fn requests_go_on_after_the_mtu_has_become_smaller() {
    let Some(bridge) = Bridge::new(3) else { return };
    let held = std::sync::Arc::default();
    let server = bridge.on(2, || Server::start("a", &held));
    let listen = "10.77.0.2:7001";
    let _member = bridge.on(2, || start_member(server.address, listen));
    let switch = [
        "switch",
        "--listen",
        "10.77.0.1:7000",
        "--policy",
        "affinity",
        "--member",
        "a=10.77.0.2:7001",
    ];
    let (_switch, started) = bridge.on(1, || start(&switch));
    let at = listen_address(&started);
    let (mut gateway, address, _) = bridge.on(3, || start_gateway(at, &[]));
    let long = pattern(1_500_000);
    let mut client = bridge.on(3, || Client::connect(address));
    let mut ask = |when: &str| {
        // The body goes there and back.
        let answer = client.post("/echo", &long);
        assert_eq!(answer.status(), 200, "{when}: {answer:?}");
        assert!(answer.body.as_ref() == Some(&long), "{when}");
    };
    ask("with 1500");
    bridge.set_hosts_mtu(1400);
    ask("with a smaller interface");
    gateway.wait_for_message("its MTU has become smaller");
    bridge.set_bridge_mtu(1300);
    ask("with a black hole behind the interface");
    bridge.set_hosts_mtu(1230);
    ask("with an interface that is smaller still");
    bridge.set_bridge_mtu(1500);
    bridge.set_hosts_mtu(1500);
    ask("with 1500 again");
}

/// Starts a sender of files or of a stream on the first host, which chooses its addresses: the
/// usual ports, or any others if those are taken. Returns it with the URL of its description.
fn start_sender(bridge: &Bridge, arguments: &[&str]) -> (Manyflow, String) {
    let command = manyflow(arguments);
    let mut sender = bridge.on(1, || Manyflow::start(command));
    let url = sender.wait_for(|line| {
        let command = line.strip_prefix("receivers type: ")?;
        Some(command.rsplit(' ').next()?.to_owned())
    });
    (sender, url)
}

/// Starts a receiver on the second host, and waits until it has this number of bytes or units.
fn receive(bridge: &Bridge, arguments: &[&str], key: &str, least: u64) -> Manyflow {
    let mut command = manyflow(arguments);
    command.arg("--json").args(PATIENT);
    let mut receiver = bridge.on(2, || Manyflow::start(command));
    receiver.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        (event[key].as_u64()? >= least).then_some(())
    });
    receiver
}

/// Sends a file and a stream through a tunnel from the first host to the second. The sender of the
/// stream finds the usual ports taken by that of the file.
fn pass_tunnels(bridge: &Bridge, what: &str) {
    let sent = folder_with_file(300_000);
    let (_sender, url) = start_sender(bridge, &["send", text(&sent.path().join("file"))]);
    let received = tempfile::tempdir().unwrap();
    let arguments = ["recv", &url, "--output", text(received.path())];
    let receiver = receive(bridge, &arguments, "bytes", 1);
    receiver.finish().succeeded(what);
    assert_same(sent.path(), received.path(), what);

    let (_sender, url) = start_sender(bridge, &["stream", "send", "--pattern"]);
    let receiver = receive(bridge, &["stream", "recv", &url], "units", 5);
    receiver.signal(Signal::SIGINT);
    receiver.finish().succeeded(&format!("a stream, {what}"));
}

#[test]
fn files_and_streams_pass_tunnels_on_interfaces_with_a_small_mtu() {
    let Some(bridge) = Bridge::new(2) else { return };
    for mtu in [1492, 1460, 1450, 1420, 1280, 1000] {
        bridge.set_hosts_mtu(mtu);
        pass_tunnels(&bridge, &format!("MTU {mtu}"));
    }
}

#[test]
fn files_and_streams_pass_tunnels_through_a_bridge_that_drops_long_packets() {
    let Some(bridge) = Bridge::new(2) else { return };
    for mtu in [1420, 1280] {
        bridge.set_bridge_mtu(mtu);
        pass_tunnels(&bridge, &format!("MTU {mtu} of the bridge"));
    }
}

/// The length of packets is that of the session, so the kernel divides them from then on.
#[test]
fn a_transfer_goes_on_after_the_mtu_has_become_smaller() {
    let Some(bridge) = Bridge::new(2) else { return };
    let sent = folder_with_file(3_000_000);
    let file = sent.path().join("file");
    let (_sender, url) = start_sender(&bridge, &["send", text(&file), "--rate", "5Mbit/s"]);
    let received = tempfile::tempdir().unwrap();
    let arguments = ["recv", &url, "--output", text(received.path())];
    let receiver = receive(&bridge, &arguments, "bytes", 100_000);
    bridge.set_hosts_mtu(1000);
    receiver.finish().succeeded("the transfer");
    assert_same(sent.path(), received.path(), "the transfer");
}
