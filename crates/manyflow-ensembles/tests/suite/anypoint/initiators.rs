//! Clients that share one connection to a service, behind a switch of their own.

use std::net::SocketAddr;
use std::sync::Arc;

use manyflow_ensembles::anypoint::switch::{
    PolicyName, SwitchHandle, SwitchOptions, start_initiators,
};
use manyflow_ensembles::anypoint::{Connection, Options, Prefix, connect, serve};
use manyflow_testing::LIMIT;

use super::stage::{ANY, EchoMember, Stage, payload, wait_for, within};

fn initiators(service: SocketAddr) -> SwitchHandle {
    start_initiators(ANY, service, SwitchOptions::default()).unwrap()
}

async fn open(switch: &SwitchHandle) -> Arc<Connection> {
    let connection = connect(switch.local_address(), Options::default());
    Arc::new(within("open", connection).await.unwrap())
}

/// Sends messages `first..first + count` with the prefix of the connection, and checks that each is
/// answered once, and no message of another client.
async fn exchange(connection: &Arc<Connection>, first: u32, count: u32, length: usize) {
    let prefix = connection.prefix();
    assert_ne!(prefix, Prefix::NONE);
    let sender = tokio::spawn({
        let connection = Arc::clone(connection);
        async move {
            for number in first..first + count {
                let sent = connection.send_frame(prefix.key(number), payload(number, length));
                sent.await.unwrap();
            }
        }
    });
    let mut missing: Vec<bool> = vec![true; count as usize];
    for _ in 0..count {
        let message = within("an answer", connection.recv_frame()).await;
        let message = message.unwrap().unwrap();
        let number = Prefix::NONE.key(message.key);
        assert_eq!(Prefix::of_key(message.key), prefix);
        assert_eq!(message.payload, payload(number, length));
        let was_missing = &mut missing[(number - first) as usize];
        assert!(std::mem::take(was_missing), "message {number} came twice");
    }
    sender.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_share_a_connection_and_each_gets_its_answers() {
    let stage = Stage::start(3, PolicyName::LeastOutstanding, &Options::default());
    let switch = initiators(stage.address());
    let first = open(&switch).await;
    exchange(&first, 0, 50, 300).await;
    let clients = [first, open(&switch).await, open(&switch).await];
    let mut prefixes = clients.each_ref().map(|client| client.prefix());
    prefixes.sort();
    assert!(prefixes.is_sorted_by(|a, b| a < b), "{prefixes:?}");
    // The same numbers at all clients, and messages of several fragments.
    let exchanges = clients.each_ref().map(|client| {
        let client = Arc::clone(client);
        tokio::spawn(async move { exchange(&client, 1000, 200, 5000).await })
    });
    for exchange in exchanges {
        exchange.await.unwrap();
    }
    wait_for(&switch, "three clients", |status| status.connections == 3).await;
    stage
        .wait_for("one connection", |status| status.connections == 1)
        .await;
    assert!(stage.members.iter().all(|member| member.messages() > 0));
    // The connection closes with its last client.
    for client in &clients {
        within("the close", client.close()).await.unwrap();
    }
    for client in &clients {
        let end = within("the other close", client.recv_frame()).await;
        assert_eq!(end.unwrap(), None);
    }
    drop(clients);
    exchange(&open(&switch).await, 7, 20, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_or_comes_does_not_stop_the_others() {
    let stage = Stage::start(2, PolicyName::RoundRobin, &Options::default());
    let switch = initiators(stage.address());
    let staying = open(&switch).await;
    exchange(&staying, 0, 20, 100).await;
    for round in 1..=5 {
        let going = open(&switch).await;
        for number in 0..300 {
            let sent = going.send_frame(going.prefix().key(number), payload(number, 2000));
            within("sent", sent).await.unwrap();
        }
        within("an answer", going.recv_frame()).await.unwrap();
        // It is gone with hundreds of answers under way.
        drop(going);
        exchange(&staying, round * 100, 100, 2000).await;
    }
    wait_for(&switch, "one client", |status| status.connections == 1).await;
    stage
        .wait_for("one connection for all", |status| {
            status.counters.opened == 1
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_killed_does_not_stop_the_others() {
    let member = EchoMember::start(ANY, Options::default());
    let switch = initiators(member.address);
    let staying = open(&switch).await;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = switch.local_address();
    let sent = runtime.spawn(async move {
        let killed = connect(address, Options::default()).await.unwrap();
        for number in 0..300 {
            let sent = killed.send_frame(killed.prefix().key(number), payload(number, 2000));
            sent.await.unwrap();
        }
        killed
    });
    let killed = within("the messages", sent).await.unwrap();
    // Nothing of the client runs from now on, and nobody hears of that.
    std::mem::forget(killed);
    runtime.shutdown_background();
    exchange(&staying, 0, 300, 2000).await;
    wait_for(&switch, "one client", |status| status.connections == 1).await;
    exchange(&open(&switch).await, 0, 20, 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_name_no_client_are_dropped_and_counted() {
    let mut member = serve(ANY, Options::default()).unwrap();
    let switch = initiators(member.local_address());
    let service = tokio::spawn(async move {
        let connection = member.accept().await.unwrap();
        while let Ok(Some(message)) = connection.recv_frame().await {
            let keys = [
                Prefix::NONE.key(3),
                Prefix::new(1023).unwrap().key(3),
                message.key,
            ];
            for key in keys {
                let sent = connection.send_frame(key, message.payload.clone());
                sent.await.unwrap();
            }
        }
    });
    let (one, two) = (open(&switch).await, open(&switch).await);
    exchange(&one, 0, 20, 100).await;
    exchange(&two, 0, 20, 100).await;
    wait_for(&switch, "the count", |status| status.counters.dropped == 80).await;
    drop((one, two));
    within("the end", service).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_of_initiators_before_another_one_refuses_its_clients() {
    let member = EchoMember::start(ANY, Options::default());
    let inner = initiators(member.address);
    let outer = initiators(inner.local_address());
    let refused = connect(outer.local_address(), Options::default());
    let refused = within("a refusal", refused).await.unwrap_err().to_string();
    assert!(refused.contains("refused"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_of_initiators_that_drains_finishes_and_refuses_others() {
    let member = EchoMember::start(ANY, Options::default());
    let switch = initiators(member.address);
    let (address, status) = (switch.local_address(), switch.status());
    let client = open(&switch).await;
    let drained = tokio::spawn(switch.drain(LIMIT));
    let draining = async {
        status
            .clone()
            .wait_for(|status| status.is_draining)
            .await
            .map(drop)
    };
    within("draining", draining).await.unwrap();
    let refused = within("a refusal", connect(address, Options::default())).await;
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("refused"), "{message}");
    exchange(&client, 0, 100, 100).await;
    within("the close", client.close()).await.unwrap();
    within("the end of the switch", drained).await.unwrap();
}
