//! Programs that use IPv6 over emulated links, and the kernel's answers to queries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use manyflow_amt::Family;
use manyflow_amt::membership::{GeneralQuery, RecordType, Report};
use manyflow_emulator::fabric::Addresses;
use manyflow_emulator::netns::Namespace;
use manyflow_netsim::NodeId;
use manyflow_testing::may_make_namespaces;

use crate::common::{LIMIT, run};
use crate::emulate::programs::printed;
use crate::emulate::scenario::{count_frames, has_tshark, scenario_file};

/// A scenario whose commands use IPv6 over two routers.
const COMMANDS: &str = r#"
title = "IPv6 over two routers"
run.duration = "20 s"
run.steady-from = "0 s"
nodes.names = ["A", "r-1", "r-2", "B"]
[[links]]
chain = ["A", "r-1", "r-2", "B"]
delay = "5 ms"
rate = "8 Mbit/s"
[[sessions]]
name = "server"
protocol = "command"
sender = "B"
command.run = '''
python3 -c '
import socket
with socket.create_server(("::", 50000), family=socket.AF_INET6) as server:
    client, address = server.accept()
    print(address[0], sum(iter(lambda: len(client.recv(65536)), 0)), flush=True)
'
'''
[[sessions]]
name = "client"
protocol = "command"
sender = "A"
command.run = '''
echo $MANYFLOW_ADDRESS6 $MANYFLOW_NODE6_r_1
python3 -c '
import os, socket, time
while True:
    try:
        server = socket.create_connection((os.environ["MANYFLOW_NODE6_B"], 50000))
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
server.sendall(bytes(300_000))
'
'''
[[sessions]]
name = "ping"
protocol = "command"
sender = "A"
command.run = '''
ping -6 -c 1 -w 10 $MANYFLOW_NODE6_B
ping -6 -c 1 -w 10 $MANYFLOW_NODE6_r_2
ping -6 -c 1 -w 10 -t 1 $MANYFLOW_NODE6_B
ping -6 -c 1 -w 10 fd00:6d66::99
true
'''
[[measure]]
name = "carried"
what = "link-rate"
of = "r-1-r-2"
[[expect]]
what = "packets are counted at the link"
value = "mean(carried)"
at-least = "0.1 Mbit/s"
source = "test"
"#;

#[test]
fn commands_of_a_scenario_use_ipv6() {
    if !may_make_namespaces() {
        return;
    }
    let (folder, file) = scenario_file(COMMANDS);
    let (out, capture) = (folder.path().join("results"), folder.path().join("pcap"));
    let [file, results, pcap] = [&file, &out, &capture].map(|path| path.to_str().unwrap());
    let ended = run(&[
        "emulate",
        file,
        "--out",
        results,
        "--pcap",
        pcap,
        "--pcap-link",
        "r-1-r-2",
    ]);
    let client = "fd00:6d66::1 fd00:6d66::2\n";
    assert_eq!(printed(&folder, "client"), client, "{ended:?}");
    assert_eq!(printed(&folder, "server"), "fd00:6d66::1 300000\n");
    if has_tshark() {
        assert!(count_frames(&capture, "ipv6 && tcp") > 100);
        assert_eq!(count_frames(&capture, "_ws.malformed"), 0);
        // Queries and reports, and router solicitations, cross no link.
        let local = "igmp || icmpv6.type == 133 || icmpv6.type == 130 || icmpv6.type == 143";
        assert_eq!(count_frames(&capture, local), 0);
    }
    if Command::new("ping").arg("-V").output().is_ok() {
        assert_pings(&printed(&folder, "ping"));
    }
}

/// Checks the answers of a host and of routers.
fn assert_pings(printed: &str) {
    let answer = |from: &str| {
        let mut lines = printed.lines();
        let line = lines.find(|line| line.contains("rom ") && line.contains(from));
        line.unwrap_or_else(|| panic!("no answer from {from}: {printed}"))
    };
    for (from, hop_limit, delay_ms) in [
        ("64 bytes from fd00:6d66::4: ", "ttl=62 ", 30.0),
        ("64 bytes from fd00:6d66::3: ", "ttl=63 ", 20.0),
    ] {
        let line = answer(from);
        assert!(line.contains(hop_limit), "{line}");
        let (_, time) = line.split_once("time=").unwrap();
        let time: f64 = time.trim_end_matches(" ms").parse().unwrap();
        assert!(time >= delay_ms, "{line}");
    }
    assert!(answer("From fd00:6d66::2 ").contains("Time exceeded: Hop limit"));
    assert!(answer("From fd00:6d66::1 ").contains("Address unreachable"));
}

#[test]
fn the_kernel_of_a_host_answers_queries_with_its_memberships() {
    if !may_make_namespaces() {
        return;
    }
    let namespace = Namespace::create().unwrap();
    let addresses = Addresses::of_scenario().of(NodeId(0));
    let tun = namespace.add_device(addresses).unwrap();
    let groups = (
        Ipv4Addr::new(239, 1, 2, 3),
        Ipv6Addr::new(0xff1e, 0, 0, 0, 0, 0, 0x8000, 1),
    );
    let _members = namespace
        .enter(|| {
            let v4 = UdpSocket::bind("0.0.0.0:0")?;
            v4.join_multicast_v4(&groups.0, &addresses.v4)?;
            let v6 = UdpSocket::bind("[::]:0")?;
            v6.join_multicast_v6(&groups.1, 0)?;
            Ok::<_, std::io::Error>((v4, v6))
        })
        .unwrap()
        .unwrap();
    let deadline = Instant::now() + LIMIT;
    let mut packet = [0; 1500];
    for group in [IpAddr::from(groups.0), groups.1.into()] {
        let mut query = Vec::new();
        GeneralQuery {
            family: Family::of(group),
            robustness: 2,
            query_interval: Duration::from_secs(125),
        }
        .encode(&mut query);
        tun.write(&query).unwrap();
        // Only answers have this type; the kernel reports the join itself as a change.
        let answers = |report: &Report| {
            let mut records = report.records.iter();
            records.any(|record| record.group == group && record.kind == RecordType::IsExclude)
        };
        loop {
            assert!(Instant::now() < deadline, "no answer for {group}");
            match tun.read(&mut packet).unwrap() {
                Some(length)
                    if Report::decode(&packet[..length]).is_ok_and(|one| answers(&one)) =>
                {
                    break;
                }
                Some(_) => {}
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
    }
}
