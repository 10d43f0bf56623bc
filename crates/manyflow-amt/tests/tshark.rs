//! Wireshark's dissectors understand every message between relay and gateway. Skipped if `tshark`
//! is not installed.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests fail by panicking, and tshark reads a file"
)]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use manyflow_amt::ip::encode_udp;
use manyflow_amt::{Family, Flow, Gateway, GatewayConfig, Relay, RelayAddress, RelayConfig};
use manyflow_core::Time;

const RELAY: ([u8; 4], u16) = ([192, 0, 2, 1], 2268);
const GATEWAY: ([u8; 4], u16) = ([198, 51, 100, 7], 4001);

/// Returns the IP datagrams of a tunnel, from discovery to teardown.
fn conversation(family: Family) -> Vec<Vec<u8>> {
    let flow = match family {
        Family::V4 => ("192.0.2.1:40000", "232.1.1.1:40001"),
        Family::V6 => ("[2001:db8::1]:40000", "[ff3e::8000:1]:40001"),
    };
    let flow = Flow {
        source: flow.0.parse().unwrap(),
        group: flow.1.parse().unwrap(),
    };
    let mut relay = Relay::new(Time::ZERO, RelayConfig::default(), vec![flow], [1; 32]);
    let config = GatewayConfig::new(RelayAddress::Discovery(RELAY.into()), family);
    let mut gateway = Gateway::new(Time::ZERO, config, [2; 32]);
    gateway.join(Time::ZERO, flow.into()).unwrap();
    let mut datagrams = Vec::new();
    exchange(&mut relay, &mut gateway, &mut datagrams);
    let mut data = Vec::new();
    relay
        .forward(Time::ZERO, 0, [&b"data"[..]], |_, _, message, _| {
            data.push(message.to_vec())
        })
        .unwrap();
    datagrams.extend(
        data.iter()
            .map(|message| packet(RELAY.into(), GATEWAY.into(), message)),
    );
    gateway.leave(Time::ZERO, flow.into());
    gateway.close(Time::ZERO + Duration::from_millis(1));
    exchange(&mut relay, &mut gateway, &mut datagrams);
    datagrams
}

/// Passes messages between both ends until neither has one to send.
fn exchange(relay: &mut Relay, gateway: &mut Gateway, datagrams: &mut Vec<Vec<u8>>) {
    while let Some(message) = gateway.poll_transmit() {
        datagrams.push(packet(GATEWAY.into(), RELAY.into(), &message.contents));
        relay.handle_datagram(
            Time::ZERO,
            GATEWAY.into(),
            RELAY.0.into(),
            &message.contents,
        );
        if let Some(reply) = relay.poll_transmit() {
            datagrams.push(packet(RELAY.into(), GATEWAY.into(), &reply.contents));
            gateway.handle_datagram(Time::ZERO, RELAY.into(), &reply.contents);
        }
    }
}

fn packet(source: SocketAddr, destination: SocketAddr, message: &[u8]) -> Vec<u8> {
    let mut packet = Vec::new();
    encode_udp(
        &Flow {
            source,
            group: destination,
        },
        message,
        &mut packet,
    )
    .unwrap();
    packet
}

/// Returns a classic pcap file of raw IP datagrams (LINKTYPE_RAW).
fn pcap(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 101] {
        file.extend_from_slice(&word.to_le_bytes());
    }
    for (second, datagram) in datagrams.iter().enumerate() {
        let length = datagram.len() as u32;
        for word in [second as u32, 0, length, length] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(datagram);
    }
    file
}

/// Returns tshark's dissection of the datagrams, or `None` if tshark is not installed.
fn dissect(datagrams: &[Vec<u8>], path: &Path) -> Option<String> {
    std::fs::write(path, pcap(datagrams)).unwrap();
    let checks = ["ip.check_checksum:TRUE", "udp.check_checksum:TRUE"].map(|check| ["-o", check]);
    let output = Command::new("tshark")
        .arg("-r")
        .arg(path)
        .arg("-V")
        .args(checks.concat())
        .output();
    match output {
        Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
        Err(error) => {
            println!("skipped, tshark does not run: {error}");
            None
        }
    }
}

#[test]
fn wireshark_reads_every_message_of_a_tunnel() {
    let directory = tempfile::tempdir().unwrap();
    let igmp = [
        "Membership Query (0x11)",
        "Membership Report (0x22)",
        "Max Resp Time: 0.1 sec",
        "Record Type: Mode Is Include (1)",
        "Record Type: Block Old Sources (6)",
    ];
    let mld = [
        "Multicast Listener Query (130)",
        "Multicast Listener Report Message v2 (143)",
        "Record Type: Include (1)",
        "Record Type: Block old sources (6)",
    ];
    for (family, inner) in [(Family::V4, &igmp[..]), (Family::V6, &mld[..])] {
        let Some(text) = dissect(&conversation(family), &directory.path().join("tunnel.pcap"))
        else {
            return;
        };
        let messages = [
            "Type: Relay Discovery (1)",
            "Type: Relay Advertisement (2)",
            "Type: Request (3)",
            "Type: Membership Query (4)",
            "Type: Membership Update (5)",
            "Type: Multicast Data (6)",
            "Type: Teardown (7)",
        ];
        for expected in messages.iter().chain(inner) {
            assert!(text.contains(expected), "{expected} is missing in\n{text}");
        }
        for flaw in [
            "Malformed",
            "incorrect",
            "[Checksum Status: Bad]",
            "Expert Info (Error",
        ] {
            assert!(!text.contains(flaw), "{flaw} in\n{text}");
        }
    }
}
