//! A session whose packets a group key seals: forged and repeated packets reach neither rate
//! control nor files, and encrypted packets show neither names nor contents of files.

use crate::stage;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use manyflow_amt::wire::Message;
use manyflow_amt::{Flow, ip};
use manyflow_core::units::Rate;
use manyflow_files::session::GroupSealer;
use manyflow_net::group_key::GroupKey;
use stage::Stage;
use tokio::net::UdpSocket;

const SYMBOL: u16 = 1_024;
const NAME: &str = "distinctive-name.txt";
const LINE: &str = "a distinctive line of the file\n";

fn group_key() -> GroupKey {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("group.key");
    std::fs::write(&path, format!("{}=\n", "A".repeat(43))).unwrap();
    GroupKey::read(&path).unwrap()
}

/// Counts of the packets that an attacker on the path has read.
#[derive(Debug, Default)]
struct Seen {
    packets: u64,
    /// Packets with the file's name in them.
    names: u64,
    /// Packets with a line of the file in them.
    lines: u64,
}

impl Seen {
    fn note(&mut self, packet: &[u8]) {
        let has = |text: &str| {
            packet
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        };
        self.packets += 1;
        self.names += u64::from(has(NAME));
        self.lines += u64::from(has(LINE));
    }
}

/// Forwards messages between a gateway and its relay, and reads them. Forges a packet before each
/// packet of the session, and repeats each.
async fn attack(gateway_side: UdpSocket, relay: SocketAddr, seen: Arc<Mutex<Seen>>) {
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
                seen.lock().unwrap().note(message);
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

/// Transfers a file through an attacker, and returns what the attacker has read.
async fn transfer(seal: fn(&GroupKey) -> GroupSealer) -> Seen {
    let file = LINE.repeat(30_000);
    let files = vec![(NAME.to_owned(), file.into())];
    let rate = Rate::from_bits_per_s(10_000_000);
    let key = group_key();
    let sealer = seal(&key);
    let stage = Stage::start_in_group(rate, SYMBOL, files, Some((key, sealer)));
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let via = socket.local_addr().unwrap();
    let seen = Arc::<Mutex<Seen>>::default();
    let attack = tokio::spawn(attack(socket, stage.relay, Arc::clone(&seen)));
    let (folder, received) = stage.receive(via).finish("group").await;
    attack.abort();
    stage.assert_intact(folder.path(), "group");

    let (packets, objects) = (received.progress.packets, received.progress.objects);
    assert!(objects.useful_symbols > 850, "{objects:?}");
    // One forged and one repeated packet for each true one; the last ones may be on their way.
    assert!(packets.unauthenticated > packets.received, "{packets:?}");
    assert_eq!(objects.duplicate_symbols, 0, "{objects:?}");
    assert_eq!(objects.refused, Default::default());
    std::mem::take(&mut *seen.lock().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_and_repeated_packets_reach_neither_rate_control_nor_files() {
    let seen = transfer(GroupSealer::authenticating).await;
    // A MAC hides nothing. How many of the file's own symbols pass depends on the losses of a busy
    // host, which others repair.
    assert!(seen.names > 0 && seen.lines > 0, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encrypted_packets_show_neither_names_nor_contents() {
    let seen = transfer(GroupSealer::encrypting).await;
    assert!(seen.packets > 850, "{seen:?}");
    assert_eq!((seen.names, seen.lines), (0, 0), "{seen:?}");
}
