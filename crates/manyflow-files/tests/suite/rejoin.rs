//! A receiver that has symbols enough leaves its channels while it decodes them. If the decoded
//! block turns out to be false, it joins again and finishes.

use crate::stage;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use manyflow_amt::ip;
use manyflow_amt::membership::{RecordType, Report};
use manyflow_amt::wire::Message;
use manyflow_core::units::Rate;
use manyflow_object::alc;
use stage::{Stage, random_file};
use tokio::net::UdpSocket;

/// The length of a symbol. The file has one block of 60 symbols.
const SYMBOL: u16 = 1_000;
const BYTES: usize = 60_000;
/// A tenth of the symbols is false, so that a decoder that leaves few of them out finds no block.
const FALSE_EVERY: u32 = 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_that_left_with_false_symbols_joins_again_and_finishes() {
    let files = vec![random_file("file", BYTES, 1)];
    let stage = Stage::start(Rate::from_bits_per_s(5_000_000), SYMBOL, files);
    let channels = Arc::new(Mutex::new(Channels::default()));
    let any = (Ipv4Addr::LOCALHOST, 0);
    let gateway_side = UdpSocket::bind(any).await.unwrap();
    let relay_side = UdpSocket::bind(any).await.unwrap();
    relay_side.connect(stage.relay).await.unwrap();
    let via = gateway_side.local_addr().unwrap();
    let middle = tokio::spawn(forward(gateway_side, relay_side, Arc::clone(&channels)));
    let (folder, received) = stage.receive(via).finish("rejoin").await;
    middle.abort();
    stage.assert_intact(folder.path(), "rejoin");
    let channels = channels.lock().unwrap();
    assert!(
        channels.spoiled > 0 && channels.joins >= 2,
        "{channels:?} {received:?}"
    );
}

/// The channels of the receiver, as a man in the middle of its tunnel sees them.
#[derive(Debug, Default)]
struct Channels {
    joined: BTreeSet<IpAddr>,
    /// How often the receiver joined its first channel.
    joins: u32,
    /// Packets with symbols of the file so far.
    symbols: u32,
    /// How many of them were changed.
    spoiled: u32,
}

impl Channels {
    /// Takes a message to the relay.
    fn take_request(&mut self, message: &[u8]) {
        let Ok(Message::MembershipUpdate { report, .. }) = Message::decode(message) else {
            return;
        };
        let was_empty = self.joined.is_empty();
        for record in Report::decode(report).unwrap().records {
            let has_sources = !record.sources.is_empty();
            match record.kind {
                RecordType::Block => self.joined.remove(&record.group),
                RecordType::ToInclude | RecordType::IsInclude if !has_sources => {
                    self.joined.remove(&record.group)
                }
                _ => self.joined.insert(record.group),
            };
        }
        self.joins += u32::from(was_empty && !self.joined.is_empty());
    }

    /// Changes a message of the relay, if it carries a symbol and its turn has come. Symbols are
    /// true from the moment at which the receiver has joined again.
    fn spoil(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let Ok(Message::MulticastData { datagram }) = Message::decode(message) else {
            return None;
        };
        let (flow, payload) = ip::decode_udp(datagram).unwrap();
        let packet = alc::Packet::decode(payload).unwrap();
        if self.joins > 1 || packet.symbol.is_none_or(|symbol| symbol.toi == 0) {
            return None;
        }
        self.symbols += 1;
        if !self.symbols.is_multiple_of(FALSE_EVERY) {
            return None;
        }
        self.spoiled += 1;
        let mut payload = payload.to_vec();
        *payload.last_mut()? ^= 1;
        let (mut datagram, mut message) = (Vec::new(), Vec::new());
        ip::encode_udp(&flow, &payload, &mut datagram).unwrap();
        let datagram = &datagram;
        Message::MulticastData { datagram }.encode(&mut message);
        Some(message)
    }
}

/// Forwards messages between a gateway and its relay.
async fn forward(gateway_side: UdpSocket, relay_side: UdpSocket, channels: Arc<Mutex<Channels>>) {
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let mut gateway: Option<SocketAddr> = None;
    loop {
        tokio::select! {
            received = gateway_side.recv_from(&mut up) => {
                let Ok((length, from)) = received else { continue };
                gateway = Some(from);
                channels.lock().unwrap().take_request(&up[..length]);
                let _ = relay_side.send(&up[..length]).await;
            }
            received = relay_side.recv(&mut down) => {
                let (Ok(length), Some(gateway)) = (received, gateway) else { continue };
                let changed = channels.lock().unwrap().spoil(&down[..length]);
                let message = changed.as_deref().unwrap_or(&down[..length]);
                let _ = gateway_side.send_to(message, gateway).await;
            }
        }
    }
}
