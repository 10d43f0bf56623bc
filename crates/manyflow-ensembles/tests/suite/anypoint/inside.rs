//! Switches inside of the process that opens connections.

use std::net::SocketAddr;
use std::sync::Arc;

use manyflow_anypoint::JUMBO_BYTES;
use manyflow_ensembles::anypoint::Options;
use manyflow_ensembles::anypoint::switch::{InsideSwitch, PolicyName};

use super::stage::{ANY, EchoMember, exchange, finish, service, within};

fn start(members: &[SocketAddr]) -> InsideSwitch {
    let service = service(members, PolicyName::RoundRobin);
    InsideSwitch::start(service.members, service.policy, Options::default()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_share_the_frames_and_change_while_a_connection_is_open() {
    let members = [(); 3].map(|()| EchoMember::start(ANY, Options::default()));
    let addresses = members.each_ref().map(|member| member.address);
    let switch = start(&addresses[..2]);
    let opened = within("open", switch.connect()).await;
    let connection = Arc::new(opened.unwrap());
    exchange(Arc::clone(&connection), 1000, 100).await;
    // A member whose acknowledgements are late has no turn, so the shares differ on a busy machine.
    let [one, two, three] = members.each_ref().map(EchoMember::messages);
    assert_eq!((one + two, three), (1000, 0));
    assert!(one > 0 && two > 0, "{one}, {two}");

    let others = service(&addresses[1..], PolicyName::RoundRobin);
    switch.set_members(others.members).unwrap();
    let mut status = switch.status();
    let joined = status.wait_for(|status| {
        let third = status
            .members
            .iter()
            .find(|member| member.is_present && member.address == addresses[2].to_string());
        third.is_some_and(|third| third.connections == 1)
    });
    within("the third member joins", joined).await.unwrap();
    exchange(Arc::clone(&connection), 100, 100).await;
    let now = members.each_ref().map(EchoMember::messages);
    assert_eq!((now[0], now[1] + now[2]), (one, two + 100));
    assert!(now[1] > two && now[2] > 0, "{now:?}");
    let other = within("another one", switch.connect()).await.unwrap();
    finish(connection).await;
    within("the end of the switch", switch.end()).await;
    let ended = within("the end", other.recv_frame()).await;
    assert!(ended.unwrap_err().to_string().contains("it was aborted"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_frames_pass_when_the_ways_to_the_members_carry_them() {
    let member = EchoMember::start(ANY, Options::default());
    let switch = start(&[member.address]);
    let opened = within("open", switch.connect()).await;
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
    let switch = start(&[]);
    let refused = within("refusal", switch.connect()).await;
    assert!(refused.unwrap_err().to_string().contains("it was refused"));

    let one = service(&[member.address], PolicyName::RoundRobin);
    switch.set_members(one.members).unwrap();
    let opened = within("open", switch.connect()).await;
    let connection = opened.unwrap();
    drop(switch);
    let ended = within("the end", connection.recv_frame()).await;
    assert!(ended.unwrap_err().to_string().contains("it was aborted"));
}
