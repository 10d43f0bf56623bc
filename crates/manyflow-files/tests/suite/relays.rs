//! A receiver with several relays uses the first one that accepts it.

use crate::stage;

use std::net::{Ipv4Addr, UdpSocket};

use manyflow_amt::RelayConfig;
use manyflow_core::units::Rate;
use manyflow_files::session;
use manyflow_net::amt::RelayServer;
use stage::{Stage, random_file};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_and_a_full_relay_are_passed_over() {
    let files = vec![random_file("file", 100_000, 1)];
    let stage = Stage::start(Rate::from_bits_per_s(20_000_000), 1_000, files);
    let any = (Ipv4Addr::LOCALHOST, 0);
    let silent = UdpSocket::bind(any).unwrap();
    let closed = RelayConfig {
        gateways_max: 0,
        ..RelayConfig::default()
    };
    let full = RelayServer::bind(any.into(), closed, session::flows(&stage.description)).unwrap();
    let relays = [silent.local_addr().unwrap(), full.local_addr(), stage.relay];
    let relays = relays.map(|relay| relay.to_string()).to_vec();
    let (folder, _) = stage.receive_through(relays).finish("relays").await;
    stage.assert_intact(folder.path(), "relays");
}

/// A name with addresses of both families: the sender's relay listens at only one of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_addresses_of_a_name_are_tried() {
    let files = vec![random_file("file", 100_000, 2)];
    let stage = Stage::start(Rate::from_bits_per_s(20_000_000), 1_000, files);
    let name = format!("localhost:{}", stage.relay.port());
    let (folder, _) = stage.receive_through(vec![name]).finish("names").await;
    stage.assert_intact(folder.path(), "names");
}
