//! A session whose packets a group key seals: forged and repeated packets reach neither rate
//! control nor files.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

#[allow(dead_code, reason = "each test uses a part of it")]
#[path = "common/stage.rs"]
mod stage;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use manyflow_amt::wire::Message;
use manyflow_amt::{Flow, ip};
use manyflow_core::units::Rate;
use manyflow_live::filecast::session::GroupKey;
use stage::{Stage, random_file};
use tokio::net::UdpSocket;

const LIMIT: Duration = Duration::from_secs(100);
const SYMBOL: u16 = 1_024;

fn group_key() -> GroupKey {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("group.key");
    std::fs::write(&path, format!("{}=\n", "A".repeat(43))).unwrap();
    GroupKey::read(&path).unwrap()
}

/// Forwards messages between a gateway and its relay. Forges a packet before each packet of the
/// session, and repeats each.
async fn attack(gateway_side: UdpSocket, relay: SocketAddr) {
    let relay_side = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    relay_side.connect(relay).await.unwrap();
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let mut to = None;
    loop {
        tokio::select! {
            received = gateway_side.recv_from(&mut up) => {
                let Ok((length, from)) = received else { continue };
                to = Some(from);
                let _ = relay_side.send(&up[..length]).await;
            }
            received = relay_side.recv(&mut down) => {
                let (Ok(length), Some(to)) = (received, to) else { continue };
                let message = &down[..length];
                if let Some(forged) = forge(message) {
                    let _ = gateway_side.send_to(&forged, to).await;
                    let _ = gateway_side.send_to(message, to).await;
                }
                let _ = gateway_side.send_to(message, to).await;
            }
        }
    }
}

/// Returns a message with a packet like that of `message`, but with other congestion control
/// information and another symbol; `None` if `message` has no packet.
fn forge(message: &[u8]) -> Option<Vec<u8>> {
    let Ok(Message::MulticastData { datagram }) = Message::decode(message) else {
        return None;
    };
    let (flow, payload): (Flow, &[u8]) = ip::decode_udp(datagram).unwrap();
    let mut forged = payload.to_vec();
    forged[4] ^= 1;
    *forged.last_mut().unwrap() ^= 1;
    let (mut datagram, mut message) = (Vec::new(), Vec::new());
    ip::encode_udp(&flow, &forged, &mut datagram).unwrap();
    let datagram = &datagram;
    Message::MulticastData { datagram }.encode(&mut message);
    Some(message)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_and_repeated_packets_reach_neither_rate_control_nor_files() {
    let files = vec![random_file("file", 1_000_000, 1)];
    let rate = Rate::from_bits_per_s(10_000_000);
    let stage = Stage::start_in_group(rate, SYMBOL, files, Some(group_key()));
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let via = socket.local_addr().unwrap();
    let attack = tokio::spawn(attack(socket, stage.relay));
    let (folder, received) = stage.receive(via).finish(LIMIT, "group").await;
    attack.abort();
    stage.assert_intact(folder.path(), "group");

    let (packets, objects) = (received.progress.packets, received.progress.objects);
    assert!(objects.useful_symbols > 900, "{objects:?}");
    // One forged and one repeated packet for each true one; the last ones may be on their way.
    assert!(packets.unauthenticated > packets.received, "{packets:?}");
    assert_eq!(objects.duplicate_symbols, 0, "{objects:?}");
    assert_eq!(objects.refused, Default::default());
}
