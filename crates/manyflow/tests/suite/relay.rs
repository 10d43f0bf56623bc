//! `manyflow relay` in chains over loopback.

use crate::common;

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use common::{
    LIMIT, Manyflow, PATIENT, assert_same, folder_with_file, get, manyflow, own_address, run, text,
};
use manyflow_amt::Family;
use manyflow_amt::ip::decode_udp;
use manyflow_amt::wire::Message;
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

const FILE_BYTES: usize = 1_500_000;
/// The options of a receiver that has the file after more than 12 s.
const SLOW: [&str; 2] = ["--max-rate", "1Mbit/s"];

/// A running `manyflow relay` on loopback.
struct Relay {
    running: Manyflow,
    address: String,
}

impl Relay {
    /// Starts a relay of the session at `url` on a free port.
    fn start(url: &str, arguments: &[&str]) -> Relay {
        Relay::start_on("127.0.0.1:0", url, arguments)
    }

    fn start_on(address: &str, url: &str, arguments: &[&str]) -> Relay {
        let mut command = manyflow(&["relay", "--json", "--session", url, "--listen", address]);
        command.args(arguments);
        let mut running = Manyflow::start(command);
        let address = running.wait_for(|line| {
            let event = parsed(line);
            (event["event"] == "started").then(|| event["listen"].as_str().unwrap().to_owned())
        });
        Relay { running, address }
    }

    /// Returns the relay's last report.
    fn status(&self) -> Value {
        self.running
            .lines()
            .last()
            .map_or(Value::Null, |line| parsed(line))
    }

    /// Waits until a report meets a condition.
    fn wait_until(&self, condition: impl Fn(&Value) -> bool) {
        wait_until(|| condition(&self.status()), || self.status().to_string());
    }

    /// Ends the relay with SIGTERM, and returns its last report.
    fn stop(self) -> Value {
        self.running.signal(Signal::SIGTERM);
        let ended = self.running.finish().succeeded("relay");
        parsed(ended.stdout.lines().last().unwrap())
    }
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

fn wait_until(condition: impl Fn() -> bool, state: impl Fn() -> String) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "not reached: {}", state());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A running `recv` through relays, with an output folder of its own.
struct Receiver {
    running: Manyflow,
    output: TempDir,
}

impl Receiver {
    fn start(url: &str, relays: &str, arguments: &[&str]) -> Receiver {
        let output = tempfile::tempdir().unwrap();
        let mut command = manyflow(&["recv", url, "--json", "--relay", relays]);
        command.args(["--output", text(output.path())]);
        command.args(PATIENT).args(arguments);
        Receiver {
            running: Manyflow::start(command),
            output,
        }
    }

    /// Waits until this number of bytes of files has arrived.
    fn wait_for_bytes(&mut self, bytes: u64) {
        self.running
            .wait_for(|line| (parsed(line)["bytes"].as_u64()? >= bytes).then_some(()));
    }

    /// Waits for the end, and asserts that all files are intact. Returns the last report.
    fn finish(self, sent: &Path) -> Value {
        let ended = self.running.finish().succeeded("receiver");
        assert_same(sent, self.output.path(), "receiver");
        parsed(ended.stdout.lines().last().unwrap())
    }
}

/// Starts a sender of one file; returns it with its folder and URL.
fn sender(arguments: &[&str]) -> (TempDir, Manyflow, String) {
    let folder = folder_with_file(FILE_BYTES);
    let (sender, url) = common::send(folder.path(), arguments);
    (folder, sender, url)
}

#[test]
fn a_file_arrives_through_two_relays_at_two_receivers() {
    let (folder, _sender, url) = sender(&["--rate", "20Mbit/s"]);
    let first = Relay::start(&url, &[]);
    let second = Relay::start(&url, &["--relay", &first.address]);
    let receivers = [(); 2].map(|()| Receiver::start(&url, &second.address, &[]));
    for receiver in receivers {
        receiver.finish(folder.path());
    }
    let (second, first) = (second.stop(), first.stop());
    for status in [&first, &second] {
        assert_eq!(status["packets_foreign"], 0, "{status}");
        assert_eq!(status["packets_undeliverable"], 0, "{status}");
    }
    let packets = |status: &Value| status["packets"].as_u64().unwrap();
    let forwarded = second["datagrams_forwarded"].as_u64().unwrap();
    assert!(
        forwarded > packets(&second),
        "two receivers share one stream: {second}"
    );
}

#[test]
fn a_relay_joins_only_what_is_asked_for_and_leaves_it_afterwards() {
    let (folder, mut sender, url) = sender(&["--rate", "20Mbit/s", "--metrics", "127.0.0.1:0"]);
    let metrics = sender.wait_for(|line| Some(line.strip_prefix("metrics are at ")?.to_owned()));
    let first = Relay::start(&url, &[]);
    let second = Relay::start(&url, &["--relay", &first.address]);
    second.wait_until(|status| status["event"] == "progress");
    for relay in [&first, &second] {
        assert_eq!(relay.status()["channels_joined"].as_u64().unwrap_or(0), 0);
    }
    // Slow enough to be under way for 20 s more.
    let slow = ["--max-rate", "500kbit/s"];
    let mut receiver = Receiver::start(&url, &second.address, &slow);
    receiver.wait_for_bytes(100_000);
    for relay in [&first, &second] {
        relay.wait_until(|status| status["channels_joined"].as_u64() > Some(0));
        let joined = relay.status()["channels_joined"].as_u64().unwrap();
        assert!(joined < 20, "a slow receiver joins few channels: {joined}");
    }
    // The receiver leaves, and its leaves travel up to the sender.
    receiver.running.signal(Signal::SIGTERM);
    assert_eq!(receiver.running.finish().code(), 130);
    for relay in [&second, &first] {
        relay.wait_until(|status| status["channels_joined"] == 0 && status["gateways"] == 0);
    }
    let quiet = first.status()["packets"].as_u64();
    let sender_metrics = || get(&metrics).1;
    let no_gateway = || sender_metrics().contains("manyflow_sender_relay_gateways 0\n");
    wait_until(no_gateway, sender_metrics);
    Receiver::start(&url, &second.address, &[]).finish(folder.path());
    assert!(first.stop()["packets"].as_u64() > quiet);
}

#[test]
fn a_file_arrives_although_the_middle_relay_is_killed_and_started_again() {
    let (folder, _sender, url) = sender(&["--rate", "20Mbit/s"]);
    let first = Relay::start(&url, &[]);
    let mut second = Relay::start(&url, &["--relay", &first.address]);
    let third = Relay::start(&url, &["--relay", &second.address]);
    let mut receiver = Receiver::start(&url, &third.address, &SLOW);
    receiver.wait_for_bytes(1);
    second.running.kill();
    let again = Relay::start_on(&second.address, &url, &["--relay", &first.address]);
    receiver.finish(folder.path());
    assert!(again.stop()["packets"].as_u64() > Some(100));
}

#[test]
fn receivers_and_relays_go_on_with_the_next_relay() {
    let (folder, _sender, url) = sender(&["--rate", "20Mbit/s"]);
    let mut first = Relay::start(&url, &[]);
    let second = Relay::start(&url, &[]);
    let both = format!("{},{}", first.address, second.address);
    let third = Relay::start(&url, &["--relay", &both]);
    let mut receivers = [&*both, &third.address].map(|relay| Receiver::start(&url, relay, &SLOW));
    for receiver in &mut receivers {
        receiver.wait_for_bytes(1);
    }
    // The second relay gets packets only for ends to which the first one did not answer in time.
    let ends = receivers.iter().map(|receiver| &receiver.running);
    let messages = ends.chain([&third.running]).flat_map(Manyflow::messages);
    let messages: Vec<_> = messages.collect();
    let is_missed = messages
        .iter()
        .any(|line| line.contains("trying the next one"));
    let is_used = second.status()["packets"].as_u64() > Some(0);
    assert!(!is_used || is_missed, "{}", second.status());
    first.running.kill();
    for receiver in receivers {
        receiver.finish(folder.path());
    }
    assert!(second.stop()["packets"].as_u64() > Some(100));
}

#[test]
fn a_relay_without_its_upstream_waits_for_it() {
    let (folder, _sender, url) = sender(&["--rate", "20Mbit/s"]);
    let address = own_address().to_string();
    let second = Relay::start(&url, &["--relay", &address]);
    let receiver = Receiver::start(&url, &second.address, &[]);
    second.wait_until(|status| status["gateways"] == 1);
    let _first = Relay::start_on(&address, &url, &[]);
    receiver.finish(folder.path());
}

#[test]
fn receivers_behind_a_link_share_its_rate() {
    let (folder, _sender, url) = sender(&["--rate", "20Mbit/s"]);
    // Receivers can notice a long queue before it is full, and then nothing is dropped.
    let relay = Relay::start(&url, &["--link", "127.0.0.0/8=4Mbit/s,queue=10kB"]);
    let started = Instant::now();
    let receivers = [(); 2].map(|()| Receiver::start(&url, &relay.address, &[]));
    for receiver in receivers {
        receiver.finish(folder.path());
    }
    // However slow this computer is, a link carries no more than its rate: two files take 6 s.
    let seconds = started.elapsed().as_secs_f64();
    let bits = 2.0 * 8.0 * (FILE_BYTES - 10_000) as f64;
    assert!(bits < 4e6 * seconds, "{seconds} s on a link of 4 Mbit/s");
    let status = relay.stop();
    assert!(status["datagrams_over_link"].as_u64() > Some(0), "{status}");
}

#[test]
fn a_gateway_that_speaks_igmpv2_gets_the_channel_of_its_group() {
    let (_folder, _sender, url) = sender(&["--rate", "20Mbit/s"]);
    let relay = Relay::start(&url, &[]);
    let gateway = Igmpv2Gateway::new(relay.address.parse().unwrap());
    let base_channel = [232, 1, 0, 0];
    gateway.report(0x16, base_channel);
    let data = gateway.data();
    let Ok(Message::MulticastData { datagram }) = Message::decode(&data) else {
        panic!("no data: {data:?}")
    };
    let (flow, _) = decode_udp(datagram).unwrap();
    assert_eq!(flow.group.ip(), std::net::IpAddr::from(base_channel));
    relay.wait_until(|status| status["channels_joined"] == 1);
    gateway.report(0x17, base_channel);
    relay.wait_until(|status| status["channels_joined"] == 0 && status["gateways"] == 0);
}

/// A gateway that reports in IGMPv2.
struct Igmpv2Gateway(UdpSocket);

impl Igmpv2Gateway {
    fn new(relay: SocketAddr) -> Igmpv2Gateway {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(relay).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Igmpv2Gateway(socket)
    }

    /// Sends an IGMPv2 message of this type about `group`, after a Request.
    fn report(&self, kind: u8, group: [u8; 4]) {
        let (nonce, mut bytes) = (7, Vec::new());
        let family = Family::V4;
        Message::Request { nonce, family }.encode(&mut bytes);
        self.0.send(&bytes).unwrap();
        loop {
            let answer = self.data();
            if let Ok(Message::MembershipQuery { mac, .. }) = Message::decode(&answer) {
                bytes.clear();
                let report = &igmpv2(kind, group);
                Message::MembershipUpdate { mac, nonce, report }.encode(&mut bytes);
                self.0.send(&bytes).unwrap();
                return;
            }
        }
    }

    fn data(&self) -> Vec<u8> {
        let mut buffer = [0; 2_000];
        let length = self.0.recv(&mut buffer).unwrap();
        buffer[..length].to_vec()
    }
}

/// The IP datagram with an IGMPv2 message: TTL 1 and Router Alert (RFC 2236, section 2).
fn igmpv2(kind: u8, group: [u8; 4]) -> Vec<u8> {
    let mut ip = vec![0x46, 0xc0, 0, 32, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0];
    ip.extend(group);
    ip.extend([0x94, 4, 0, 0]);
    let mut igmp = vec![kind, 0, 0, 0];
    igmp.extend(group);
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum);
    let sum = checksum(&igmp);
    igmp[2..4].copy_from_slice(&sum);
    [ip, igmp].concat()
}

/// The Internet checksum of bytes whose own checksum is still 0 (RFC 1071).
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2);
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
        .sum();
    (!(((sum & 0xffff) + (sum >> 16)) as u16)).to_be_bytes()
}

#[test]
fn metrics_show_gateways_and_channels() {
    let (_folder, _sender, url) = sender(&["--rate", "20Mbit/s"]);
    let mut relay = Relay::start(&url, &["--metrics", "127.0.0.1:0"]);
    let metrics = relay.running.wait_for(|line| {
        let event = parsed(line);
        (event["event"] == "metrics").then(|| event["url"].as_str().unwrap().to_owned())
    });
    let metrics = || get(&metrics).1;
    let has = |line: &str| metrics().lines().any(|other| other == line);
    assert!(has("manyflow_relay_gateways 0"), "{}", metrics());
    let gateway = Igmpv2Gateway::new(relay.address.parse().unwrap());
    gateway.report(0x16, [232, 1, 0, 0]);
    wait_until(|| has("manyflow_relay_gateways 1"), metrics);
    wait_until(|| has("manyflow_relay_channels_joined 1"), metrics);
}

#[test]
fn an_ipv6_session_cannot_be_sent_to_hosts() {
    let groups = ["--source", "2001:db8::1", "--groups", "ff3e::8000:0/120"];
    let ended = run(&[&["relay", "--multicast-interface", "lo"], &groups[..]].concat());
    assert_eq!(ended.code(), 2, "{ended:?}");
    assert!(ended.stderr.contains("ff3e::8000:0"), "{ended:?}");
}

#[test]
fn a_wrong_command_line_is_an_error_that_names_the_option() {
    let session = ["--session", "session.sdp"];
    let cases: [(&[&str], &str, i32); 4] = [
        (&["--listen", "127.0.0.1:0"], "--session", 2),
        (&session, "--listen", 2),
        (
            &[
                "--session",
                "none.sdp",
                "--listen",
                "127.0.0.1:0",
                "--link",
                "10.0.0.0=1Mbit/s",
            ],
            "10.0.0.0",
            2,
        ),
        (
            &["--session", "/nonexistent.sdp", "--listen", "127.0.0.1:0"],
            "/nonexistent.sdp",
            2,
        ),
    ];
    for (arguments, part, code) in cases {
        let ended = run(&[&["relay"], arguments].concat());
        assert!(ended.stderr.contains(part), "{arguments:?}: {ended:?}");
        assert_eq!(ended.code(), code, "{arguments:?}: {ended:?}");
    }
}
