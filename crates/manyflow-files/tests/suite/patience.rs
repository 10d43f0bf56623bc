//! A receiver to which packets come of which none can be used gives up, and says why.

use crate::stage;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use manyflow_amt::wire::Message;
use manyflow_amt::{Flow, ip};
use manyflow_core::units::Rate;
use manyflow_files::session::{self, ProgressSinks, ReceiveConfig, ReceiveError};
use manyflow_net::inlet::Route;
use manyflow_object::alc;
use stage::{Stage, random_file};
use tokio::net::UdpSocket;

const SYMBOL: u16 = 1_024;
const RATE: Rate = Rate::from_bits_per_s(10_000_000);
/// In seconds since 1900.
const YEAR_2000: u32 = 3_155_673_600;
const PATIENCE: Duration = Duration::from_secs(3);

/// Forwards messages between a gateway and its relay, without the packets that `is_dropped` wants.
async fn filter(
    gateway_side: UdpSocket,
    relay: SocketAddr,
    is_dropped: fn(&alc::Packet<'_>) -> bool,
) {
    let relay_side = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    relay_side.connect(relay).await.unwrap();
    let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
    let mut gateway = None;
    loop {
        tokio::select! {
            received = gateway_side.recv_from(&mut up) => {
                let Ok((length, from)) = received else { continue };
                gateway = Some(from);
                let _ = relay_side.send(&up[..length]).await;
            }
            received = relay_side.recv(&mut down) => {
                let (Ok(length), Some(gateway)) = (received, gateway) else { continue };
                if !has_packet(&down[..length], is_dropped) {
                    let _ = gateway_side.send_to(&down[..length], gateway).await;
                }
            }
        }
    }
}

fn has_packet(message: &[u8], is_wanted: fn(&alc::Packet<'_>) -> bool) -> bool {
    let Ok(Message::MulticastData { datagram }) = Message::decode(message) else {
        return false;
    };
    let (_, payload): (Flow, &[u8]) = ip::decode_udp(datagram).unwrap();
    is_wanted(&alc::Packet::decode(payload).unwrap())
}

/// Receives from `stage`, without the packets that `is_dropped` wants, until the receiver gives up.
async fn give_up(stage: &Stage, is_dropped: fn(&alc::Packet<'_>) -> bool) -> String {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let via = socket.local_addr().unwrap();
    let filter = tokio::spawn(filter(socket, stage.relay, is_dropped));
    let receiving = stage.receive_within(vec![via.to_string()], PATIENCE);
    let error = receiving.give_up().await;
    filter.abort();
    assert!(matches!(error, ReceiveError::Useless { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_gives_up_a_session_whose_table_of_files_has_expired() {
    let files = vec![random_file("file", 1_000_000, 1)];
    let mut stage = Stage::start_until(RATE, SYMBOL, files, YEAR_2000);
    stage.description.table_sha256 = None;
    let error = give_up(&stage, |_| false).await;
    assert!(error.contains("expired by this machine's clock"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receiver_gives_up_a_session_whose_table_of_files_never_comes() {
    let files = vec![random_file("file", 1_000_000, 1)];
    let stage = Stage::start(RATE, SYMBOL, files);
    let is_table = |packet: &alc::Packet<'_>| packet.symbol.is_some_and(|symbol| symbol.toi == 0);
    let error = give_up(&stage, is_table).await;
    assert!(error.contains("no table announces"), "{error}");
}

/// The relay does not answer, so the receivers wait for their inlet when they are stopped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_that_are_stopped_as_they_start_leave_their_folder_to_the_next() {
    let stage = Stage::start(RATE, SYMBOL, vec![random_file("file", 10_000, 1)]);
    let silent = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let relay = silent.local_addr().unwrap().to_string();
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..50 {
        let route = Route::Relays(vec![relay.clone()]);
        let output = folder.path().to_owned();
        let config = ReceiveConfig::new(stage.description.clone(), route, output);
        let (sinks, _progress, _files) = ProgressSinks::channels();
        let ended = session::receive(config, sinks, tokio::task::yield_now()).await;
        assert!(matches!(ended, Err(ReceiveError::Stopped)), "{ended:?}");
    }
}
