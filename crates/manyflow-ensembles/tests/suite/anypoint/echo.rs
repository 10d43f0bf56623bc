//! Frames through a switch and back.

use std::sync::Arc;

use manyflow_ensembles::anypoint::switch::{PolicyName, SwitchOptions, start};
use manyflow_ensembles::anypoint::{Control, Endpoint, Options, connect};
use manyflow_testing::LIMIT;

use super::stage::{ANY, EchoMember, Stage, exchange, finish, service, wait_for, within};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_without_a_switch_is_answered() {
    let member = EchoMember::start(ANY, Options::default());
    let connection = within("open", connect(member.address, Options::default())).await;
    let connection = Arc::new(connection.unwrap());
    exchange(Arc::clone(&connection), 1000, 100).await;
    finish(connection).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_members_answer_under_each_policy() {
    for policy in [
        PolicyName::Hash,
        PolicyName::RoundRobin,
        PolicyName::LeastOutstanding,
        PolicyName::RateAware,
        PolicyName::Weighted,
        PolicyName::KeyRange,
    ] {
        let stage = Stage::start(4, policy, &Options::default());
        let connection = within("open", connect(stage.address(), Options::default())).await;
        let connection = Arc::new(connection.unwrap());
        exchange(Arc::clone(&connection), 1000, 100).await;
        finish(connection).await;
        let shares: Vec<_> = stage.members.iter().map(EchoMember::messages).collect();
        assert_eq!(shares.iter().sum::<u64>(), 1000, "{policy:?}");
        match policy {
            PolicyName::RoundRobin => assert_eq!(shares, [250; 4]),
            PolicyName::Weighted => assert_eq!(shares, [100, 200, 300, 400]),
            // Keys 0 to 399 have a member; the others take turns.
            PolicyName::KeyRange => assert_eq!(shares, [250; 4]),
            // Members that the system does not run for a while get fewer.
            PolicyName::LeastOutstanding | PolicyName::RateAware => {
                assert!(!shares.contains(&0), "{shares:?}");
            }
            _ => assert!(
                shares.iter().all(|share| *share > 100),
                "{policy:?}: {shares:?}"
            ),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn xcp_with_soft_flow_control_works_without_xcp_routers() {
    let options = Options {
        control: Control::Xcp,
        ..Options::default()
    };
    let stage = Stage::start(2, PolicyName::RoundRobin, &options);
    let connection = within("open", connect(stage.address(), options)).await;
    let connection = Arc::new(connection.unwrap());
    exchange(Arc::clone(&connection), 300, 100).await;
    finish(connection).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_connections_of_one_socket_do_not_mix() {
    let stage = Stage::start(3, PolicyName::Hash, &Options::default());
    let endpoint = Arc::new(Endpoint::bind(ANY, Options::default()).unwrap());
    let tasks = (0..200).map(|_| {
        let (endpoint, address) = (Arc::clone(&endpoint), stage.address());
        tokio::spawn(async move {
            let connection = within("open", endpoint.connect(address)).await.unwrap();
            let connection = Arc::new(connection);
            exchange(Arc::clone(&connection), 20, 300).await;
            finish(connection).await;
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    stage
        .wait_for("the counters", |status| status.counters.opened == 200)
        .await;
    let total: u64 = stage.members.iter().map(EchoMember::messages).sum();
    assert_eq!(total, 4000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn switches_form_a_cascade() {
    let leaves =
        [2, 2].map(|members| Stage::start(members, PolicyName::RoundRobin, &Options::default()));
    let addresses = leaves.each_ref().map(Stage::address);
    let root = service(&addresses, PolicyName::RoundRobin);
    let root = start(ANY, root, SwitchOptions::default()).unwrap();
    let connection = within("open", connect(root.local_address(), Options::default())).await;
    let connection = Arc::new(connection.unwrap());
    exchange(Arc::clone(&connection), 1000, 1000).await;
    finish(connection).await;
    for member in leaves.iter().flat_map(|stage| &stage.members) {
        assert_eq!(member.messages(), 250);
    }
    wait_for(&root, "the counters", |status| {
        status.members[0].frames_to >= 500
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_switch_that_drains_finishes_connections_and_refuses_others() {
    let stage = Stage::start(2, PolicyName::RoundRobin, &Options::default());
    let address = stage.address();
    let connection = within("open", connect(address, Options::default())).await;
    let connection = Arc::new(connection.unwrap());
    let status = stage.switch.status();
    let drained = tokio::spawn(stage.switch.drain(LIMIT));
    within(
        "draining",
        status.clone().wait_for(|status| status.is_draining),
    )
    .await
    .unwrap();
    let refused = within("a refusal", connect(address, Options::default())).await;
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("refused"), "{message}");
    exchange(Arc::clone(&connection), 100, 100).await;
    finish(connection).await;
    within("the end of the switch", drained).await.unwrap();
}
