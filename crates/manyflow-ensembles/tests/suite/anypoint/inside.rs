//! Switches inside of the process that opens connections.

use std::sync::Arc;
use std::time::Duration;

use manyflow_anypoint::JUMBO_BYTES;
use manyflow_ensembles::anypoint::Options;
use manyflow_ensembles::anypoint::switch::{PolicyName, SwitchOptions, start_inside};

use super::stage::{ANY, EchoMember, exchange, finish, service, wait_for, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_share_the_frames_and_change_while_a_connection_is_open() {
    let members = [(); 3].map(|()| EchoMember::start(ANY, Options::default()));
    let addresses = members.each_ref().map(|member| member.address);
    let two = service(&addresses[..2], PolicyName::RoundRobin);
    let (switch, endpoint) =
        start_inside(two, SwitchOptions::default(), Options::default()).unwrap();
    let opened = within("open", endpoint.connect(switch.local_address())).await;
    let connection = Arc::new(opened.unwrap());
    exchange(Arc::clone(&connection), 1000, 100).await;
    let shares = members.each_ref().map(EchoMember::messages);
    assert_eq!(shares, [500, 500, 0]);

    let others = service(&addresses[1..], PolicyName::RoundRobin);
    switch.set_service(others).unwrap();
    wait_for(&switch, "the third member joins", |status| {
        let third = status
            .members
            .iter()
            .find(|member| member.is_present && member.address == addresses[2].to_string());
        third.is_some_and(|third| third.connections == 1)
    })
    .await;
    exchange(Arc::clone(&connection), 100, 100).await;
    let shares = members.each_ref().map(EchoMember::messages);
    assert_eq!(shares, [500, 550, 50]);
    finish(connection).await;
    switch.drain(Duration::ZERO).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_frames_pass_when_the_ways_to_the_members_carry_them() {
    let member = EchoMember::start(ANY, Options::default());
    let one = service(&[member.address], PolicyName::RoundRobin);
    let (switch, endpoint) =
        start_inside(one, SwitchOptions::default(), Options::default()).unwrap();
    let opened = within("open", endpoint.connect(switch.local_address())).await;
    let connection = Arc::new(opened.unwrap());
    within("long frames", async {
        while connection.counters().path_bytes < JUMBO_BYTES.into() {
            exchange(Arc::clone(&connection), 20, 60_000).await;
        }
    })
    .await;
    finish(connection).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_is_refused_without_members_and_ends_with_the_switch() {
    let member = EchoMember::start(ANY, Options::default());
    let none = service(&[], PolicyName::RoundRobin);
    let (switch, endpoint) =
        start_inside(none, SwitchOptions::default(), Options::default()).unwrap();
    let refused = within("refusal", endpoint.connect(switch.local_address())).await;
    assert!(refused.unwrap_err().to_string().contains("it was refused"));

    let one = service(&[member.address], PolicyName::RoundRobin);
    switch.set_service(one).unwrap();
    let opened = within("open", endpoint.connect(switch.local_address())).await;
    let connection = opened.unwrap();
    drop(switch);
    let ended = within("the end", connection.recv_frame()).await;
    assert!(ended.unwrap_err().to_string().contains("it was aborted"));
}
