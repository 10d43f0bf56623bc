//! Shares that a switch learns about members behind links of unequal rates.

use std::sync::Arc;
use std::time::Duration;

use manyflow_core::Rate;
use manyflow_core::link::{LinkConfig, QueueLimit};
use manyflow_ensembles::anypoint::switch::{PolicyName, SwitchOptions, start};
use manyflow_ensembles::anypoint::{Options, connect};
use manyflow_net::last_mile::LastMile;

use super::stage::{ANY, EchoMember, exchange, finish, service, within};

/// The frames of the connection that learns, and of the one that uses what was learned.
const MANY: u32 = 6000;
const FEW: u32 = 100;

fn link(mbit_per_s: u64) -> LinkConfig {
    LinkConfig {
        rate: Some(Rate::from_bits_per_s(mbit_per_s * 1_000_000)),
        delay: Duration::from_millis(5),
        queue: QueueLimit::Packets(50),
        ..LinkConfig::default()
    }
}

/// Sends single messages over a new connection, each after the answer to the last one. Returns the
/// number that each member got.
async fn send_singles(switch: std::net::SocketAddr, members: &[EchoMember; 2]) -> [u64; 2] {
    let before = members.each_ref().map(EchoMember::messages);
    let connection = within("open", connect(switch, Options::default())).await;
    let connection = Arc::new(connection.unwrap());
    for _ in 0..FEW {
        exchange(Arc::clone(&connection), 1, 100).await;
    }
    finish(connection).await;
    let after = members.each_ref().map(EchoMember::messages);
    [after[0] - before[0], after[1] - before[1]]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_uses_the_shares_that_an_earlier_one_has_learned() {
    let members = [(); 2].map(|()| EchoMember::start(ANY, Options::default()));
    let mut paths = Vec::new();
    for (member, rate) in members.iter().zip([2, 20]) {
        let path = LastMile::start(member.address, link(rate), link(rate), 1).await;
        paths.push(path.unwrap());
    }
    let addresses: Vec<_> = paths.iter().map(LastMile::address).collect();
    let service = service(&addresses, PolicyName::default());
    let switch = start(ANY, service, SwitchOptions::default()).unwrap();
    let unlearned = send_singles(switch.local_address(), &members).await;
    assert!(unlearned[0] > 30, "nothing is known: {unlearned:?}");

    let connection = within("open", connect(switch.local_address(), Options::default())).await;
    let connection = Arc::new(connection.unwrap());
    exchange(Arc::clone(&connection), MANY, 1000).await;
    finish(connection).await;
    let learned = send_singles(switch.local_address(), &members).await;
    assert_eq!(learned.iter().sum::<u64>(), u64::from(FEW));
    assert!(
        learned[0] < 25,
        "the slow member has 2 of 22 Mbit/s: {learned:?}"
    );
}
