//! Members that hang, restart, join and leave, and paths that lose and reorder.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use manyflow_core::link::{LinkConfig, LossModel};
use manyflow_ensembles::anypoint::switch::PolicyName;
use manyflow_ensembles::anypoint::{Connection, Options, connect};
use manyflow_net::last_mile::LastMile;
use manyflow_net::reserved::own_address;

use super::stage::{ANY, EchoMember, Stage, exchange, finish, payload, service, wait_for, within};

/// The numbers of requests, and the number of answers to each.
struct Answers {
    sent: u32,
    answers: HashMap<u32, u32>,
}

/// Requests that are sent after the event that a test waits for.
const AFTERWARDS: u32 = 1000;

/// Sends at least `count` requests with pauses, and [`AFTERWARDS`] more once `has_happened` is set.
/// Then closes. Checks the bytes of the answers.
async fn request_until(
    connection: Connection,
    count: u32,
    has_happened: Arc<AtomicBool>,
) -> Answers {
    let connection = Arc::new(connection);
    let sender = tokio::spawn({
        let connection = Arc::clone(&connection);
        async move {
            let (mut sent, mut rest) = (0, AFTERWARDS);
            while sent < count || rest > 0 {
                connection
                    .send_frame(sent, payload(sent, 200))
                    .await
                    .unwrap();
                sent += 1;
                rest = rest.saturating_sub(has_happened.load(Ordering::Relaxed).into());
                if sent % 100 == 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            within("the close", connection.close()).await.unwrap();
            sent
        }
    });
    let mut answers: HashMap<u32, u32> = HashMap::new();
    while let Some(message) = within("an answer", connection.recv_frame()).await.unwrap() {
        assert_eq!(message.payload, payload(message.key, 200));
        *answers.entry(message.key).or_default() += 1;
    }
    let sent = sender.await.unwrap();
    Answers { sent, answers }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_hangs_and_another_joins_while_frames_flow() {
    const COUNT: u32 = 20_000;
    let stage = Stage::start(3, PolicyName::RoundRobin, &Options::default());
    let joining = EchoMember::start(ANY, Options::default());
    let connection = within("open", connect(stage.address(), Options::default())).await;
    let has_joined = Arc::new(AtomicBool::new(false));
    let requests = request_until(connection.unwrap(), COUNT, Arc::clone(&has_joined));
    let requests = tokio::spawn(requests);
    let hung = &stage.members[1];
    within("some answers", async {
        while hung.messages() < 100 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    hung.hang();
    let addresses: Vec<_> = stage.members.iter().map(|member| member.address).collect();
    let all = [addresses, vec![joining.address]].concat();
    stage
        .switch
        .set_service(service(&all, PolicyName::RoundRobin))
        .unwrap();
    stage
        .wait_for("the failure", |status| status.counters.failures >= 1)
        .await;
    within("requests to the member that joined", async {
        while joining.messages() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    has_joined.store(true, Ordering::Relaxed);
    let Answers { sent, answers } = requests.await.unwrap();
    // Requests that the hung member had read, and did not answer, are the only ones without an
    // answer. The peer knows them: the connection ended without it.
    let missing = u64::from(sent) - answers.len() as u64;
    assert!(
        missing <= hung.messages(),
        "{missing} requests have no answer"
    );
    let repeated = answers.values().filter(|times| **times > 1).count() as u64;
    assert!(repeated <= hung.messages(), "{repeated} answers came twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_restarts_joins_open_connections_again() {
    // While the member is stopped, nobody else gets its address.
    let address = own_address().unwrap();
    let mut stage = Stage::start_at(&[address, ANY], PolicyName::RoundRobin, &Options::default());
    let connection = within("open", connect(stage.address(), Options::default())).await;
    let connection = Arc::new(connection.unwrap());
    exchange(Arc::clone(&connection), 100, 100).await;
    drop(stage.members.remove(0));
    stage
        .wait_for("the failure", |status| status.counters.failures >= 1)
        .await;
    exchange(Arc::clone(&connection), 100, 100).await;
    let restarted = within("the address", EchoMember::restart(address)).await;
    stage
        .wait_for("the return", |status| {
            status.members[0].is_up && status.members[0].connections == 1
        })
        .await;
    within("requests to the restarted member", async {
        while restarted.messages() == 0 {
            exchange(Arc::clone(&connection), 100, 100).await;
        }
    })
    .await;
    finish(connection).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_leaves_finishes_its_frames() {
    let stage = Stage::start(3, PolicyName::RoundRobin, &Options::default());
    let connection = within("open", connect(stage.address(), Options::default())).await;
    let has_left = Arc::new(AtomicBool::new(false));
    let requests = request_until(connection.unwrap(), 10_000, Arc::clone(&has_left));
    let requests = tokio::spawn(requests);
    within("some answers", async {
        while stage.members[2].messages() < 100 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let rest: Vec<_> = stage.members[..2]
        .iter()
        .map(|member| member.address)
        .collect();
    stage
        .switch
        .set_service(service(&rest, PolicyName::RoundRobin))
        .unwrap();
    stage
        .wait_for("the departure", |status| !status.members[2].is_present)
        .await;
    has_left.store(true, Ordering::Relaxed);
    let Answers { sent, answers } = requests.await.unwrap();
    assert_eq!(answers.len(), sent as usize);
    assert!(answers.values().all(|times| *times == 1));
    let shares: Vec<_> = stage.members.iter().map(EchoMember::messages).collect();
    assert!(shares[2] < shares[0], "{shares:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_without_members_in_reach_is_reported_and_recovers() {
    let stage = Stage::start(1, PolicyName::Hash, &Options::default());
    stage
        .switch
        .set_service(service(&[], PolicyName::Hash))
        .unwrap();
    let refused = within("a refusal", connect(stage.address(), Options::default())).await;
    assert!(refused.unwrap_err().to_string().contains("refused"));
    let addresses = [stage.members[0].address];
    stage
        .switch
        .set_service(service(&addresses, PolicyName::Hash))
        .unwrap();
    let connection = within("open", connect(stage.address(), Options::default())).await;
    exchange(Arc::new(connection.unwrap()), 10, 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_arrives_over_paths_that_lose_duplicate_and_reorder() {
    let path = LinkConfig {
        loss: LossModel::Bernoulli(0.02),
        duplication: 0.01,
        delay: Duration::from_millis(2),
        jitter: Duration::from_millis(2),
        reorder: true,
        ..LinkConfig::default()
    };
    let stage = Stage::start(3, PolicyName::LeastOutstanding, &Options::default());
    let outer = LastMile::start(stage.address(), path.clone(), path, 1)
        .await
        .unwrap();
    let connection = within("open", connect(outer.address(), Options::default())).await;
    let connection = Arc::new(connection.unwrap());
    exchange(Arc::clone(&connection), 30, 20_000).await;
    exchange(Arc::clone(&connection), 500, 100).await;
    assert!(
        connection.counters().retransmissions > 0,
        "the path lost nothing"
    );
    finish(connection).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_is_cut_for_a_moment_costs_nothing_but_time() {
    let stage = Stage::start(2, PolicyName::RoundRobin, &Options::default());
    let link = LinkConfig::default();
    let path = LastMile::start(stage.address(), link.clone(), link, 1)
        .await
        .unwrap();
    let connection = within("open", connect(path.address(), Options::default())).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let requests = request_until(connection.unwrap(), 3000, Arc::clone(&is_over));
    let requests = tokio::spawn(requests);
    wait_for(&stage.switch, "some frames", |status| {
        status.members[0].frames_to > 100
    })
    .await;
    path.set_cut(true);
    tokio::time::sleep(Duration::from_millis(300)).await;
    path.set_cut(false);
    is_over.store(true, Ordering::Relaxed);
    let Answers { sent, answers } = requests.await.unwrap();
    assert_eq!(answers.len(), sent as usize);
    assert!(answers.values().all(|times| *times == 1));
}
