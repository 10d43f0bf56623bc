//! `manyflow emulate`: commands behind an emulated link, and scenarios. Network namespaces need
//! root; the tests are skipped without it.

use crate::common;
mod ipv6;
mod programs;
mod scenario;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{Ended, LIMIT, Manyflow, assert_same, manyflow, run, write_random};
use manyflow_core::link::LinkConfig;
use manyflow_core::{Rate, Time};
use manyflow_emulator::bell::Bell;
use manyflow_emulator::drive::Ended as DriveEnded;
use manyflow_emulator::stage::Stage;
use manyflow_netsim::NodeId;
use manyflow_scenario::Network;
use manyflow_testing::may_make_namespaces;
use nix::sys::signal::Signal;

/// Runs a shell command behind a link.
fn emulate(link: &[&str], command: &str) -> Ended {
    run(&[&["emulate", "--json"], link, &["--", "bash", "-c", command]].concat())
}

/// The namespaces that an emulator with this process number has.
fn namespaces_of(pid: u32) -> Vec<PathBuf> {
    let prefix = format!("manyflow-emulate-{pid}-");
    let Ok(entries) = std::fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with(&prefix)
        })
        .collect()
}

fn number(output: &Ended, path: &[&str]) -> f64 {
    let line = output.stdout.lines().last().unwrap();
    let mut value: &serde_json::Value = &serde_json::from_str(line).unwrap();
    for key in path {
        value = &value[key];
    }
    value.as_f64().unwrap()
}

#[test]
fn the_exit_code_of_the_command_is_passed_on() {
    if !may_make_namespaces() {
        return;
    }
    assert_eq!(emulate(&[], "exit 7").code(), 7);
    assert_eq!(emulate(&[], "kill -TERM $$").code(), 128 + 15);
    assert_eq!(run(&["emulate", "--", "no-such-program"]).code(), 127);
    assert_eq!(emulate(&["--loss", "2"], "true").code(), 2);
}

/// Transfers data over TCP from a server of the calling host to a client behind the link. The
/// variables with addresses end with `suffix`.
fn transfer_by_tcp(listen: &str, suffix: &str) {
    if !may_make_namespaces() {
        return;
    }
    let server = TcpListener::bind(listen).unwrap();
    let port = server.local_addr().unwrap().port();
    let served = thread::spawn(move || {
        let (mut client, from) = server.accept().unwrap();
        client.write_all(&[b'x'; 100_000]).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).unwrap();
        (from.ip().to_string(), said)
    });
    let script = format!(
        "exec 3<>/dev/tcp/$MANYFLOW_GATEWAY{suffix}/{port}; wc -c <&3 >&2; echo $MANYFLOW_ADDRESS{suffix} >&3"
    );
    let begin = Instant::now();
    let ended = emulate(&["--rate", "8Mbit/s", "--delay", "30ms"], &script);
    // A handshake and the data take at least two round-trip times and 100 ms.
    assert!(begin.elapsed() > Duration::from_millis(2 * 60 + 100));
    assert_eq!(ended.stderr.trim(), "100000", "{ended:?}");
    let (from, said) = served.join().unwrap();
    assert_eq!(from, said.trim());
    assert!(number(&ended, &["down", "bytes_out"]) > 100_000.0);
    for direction in ["up", "down"] {
        let count = |key| number(&ended, &[direction, key]);
        let gone = count("packets_out") + count("dropped") + count("lost") + count("on_the_way");
        assert_eq!(count("packets_in"), gone);
    }
}

#[test]
fn a_client_behind_the_link_reaches_a_server_of_the_calling_host() {
    transfer_by_tcp("0.0.0.0:0", "");
}

#[test]
fn a_client_behind_the_link_reaches_a_server_of_the_calling_host_over_ipv6() {
    transfer_by_tcp("[::]:0", "6");
}

#[test]
fn nothing_remains_of_a_killed_emulator_after_the_next_run() {
    if !may_make_namespaces() {
        return;
    }
    let mut killed = Manyflow::start(manyflow(&[
        "emulate",
        "--",
        "sh",
        "-c",
        "echo begun; exec sleep 1000",
    ]));
    killed.wait_for(|line| line.contains("begun").then_some(()));
    let pid = killed.id();
    assert_eq!(namespaces_of(pid).len(), 1);
    let mut pids = pids_in(&namespaces_of(pid)[0]);
    killed.kill();
    emulate(&[], "true").succeeded("the next run");
    assert_eq!(namespaces_of(pid), Vec::<PathBuf>::new());
    let deadline = Instant::now() + LIMIT;
    pids.retain(|pid| PathBuf::from(format!("/proc/{pid}")).exists());
    while !pids.is_empty() {
        assert!(Instant::now() < deadline, "the command still runs");
        thread::sleep(Duration::from_millis(10));
        pids.retain(|pid| PathBuf::from(format!("/proc/{pid}")).exists());
    }
}

fn pids_in(namespace: &Path) -> Vec<String> {
    let mut command = Command::new("ip");
    command.args(["netns", "pids"]);
    let output = command.arg(namespace.file_name().unwrap()).output();
    let listed = String::from_utf8(output.unwrap().stdout).unwrap();
    listed.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn an_interrupted_emulator_ends_its_command_and_removes_everything() {
    if !may_make_namespaces() {
        return;
    }
    let script = "trap 'exit 9' TERM; echo begun; while true; do sleep 0.05; done";
    let mut running = Manyflow::start(manyflow(&["emulate", "--", "sh", "-c", script]));
    running.wait_for(|line| line.contains("begun").then_some(()));
    let pid = running.id();
    running.signal(Signal::SIGINT);
    assert_eq!(running.finish().code(), 9);
    assert_eq!(namespaces_of(pid), Vec::<PathBuf>::new());
}

/// A sender and a receiver behind two routers.
fn two_hosts() -> Stage {
    let mut network = Network::new(1);
    let nodes = ["S", "r1", "r2", "R"].map(|name| network.add_node(name));
    for pair in nodes.windows(2) {
        let link = LinkConfig {
            rate: Some(Rate::from_bits_per_s(20_000_000)),
            delay: Duration::from_millis(5),
            ..LinkConfig::default()
        };
        network.add_duplex(pair[0], pair[1], link);
    }
    network.set_leave_latency(Duration::from_millis(100));
    Stage::new(network, 4, &[nodes[0], nodes[3]]).unwrap()
}

/// Sends a folder by multicast, with the ordinary commands.
fn transfer_by_multicast(groups: &str, publish: &str) {
    if !may_make_namespaces() {
        return;
    }
    let mut stage = two_hosts();
    let mut bell = Bell::new().unwrap();
    let mut ringer = bell.ringer().unwrap();
    let (source, output) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_random(&source.path().join("image.bin"), 300_000, 1);
    let mut send = manyflow(&["send", "image.bin", "--multicast", groups]);
    send.args(["--ttl", "3", "--interface", "emulated"]);
    send.args(["--publish", publish]);
    send.current_dir(source.path());
    let mut sender = stage
        .namespace(NodeId(0))
        .enter(|| Manyflow::start(send))
        .unwrap();
    let url = sender.url();
    let to = output.path().to_str().unwrap();
    let mut receive = manyflow(&["recv", &url, "--output", to]);
    receive.args(["--interface", "emulated"]);
    let receiver = stage
        .namespace(NodeId(3))
        .enter(|| Manyflow::start(receive))
        .unwrap();
    let received = thread::spawn(move || {
        let ended = receiver.finish();
        ringer.ring();
        ended
    });
    let ended = stage.drive.run_until(Time::MAX, &mut bell, &mut ());
    assert_eq!(ended.unwrap(), DriveEnded::Rung);
    received.join().unwrap().succeeded("receiver");
    assert_same(source.path(), output.path(), groups);
    stage.drive.fabric().network().check_accounting().unwrap();
}

#[test]
fn files_arrive_by_source_specific_multicast_over_emulated_links() {
    transfer_by_multicast("232.1.2.0/24", "10.0.0.1:0");
}

#[test]
fn files_arrive_by_any_source_multicast_over_emulated_links() {
    transfer_by_multicast("239.1.2.0/24", "10.0.0.1:0");
}

#[test]
fn files_arrive_by_source_specific_ipv6_multicast_over_emulated_links() {
    transfer_by_multicast("ff3e::8000:0/120", "[fd00:6d66::1]:0");
}

#[test]
fn files_arrive_by_any_source_ipv6_multicast_over_emulated_links() {
    transfer_by_multicast("ff1e::8000:0/120", "[fd00:6d66::1]:0");
}
