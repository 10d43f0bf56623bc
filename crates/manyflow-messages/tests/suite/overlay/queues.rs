//! The shares of a queue group's workers at three daemons. Turns are counted, so they are exact.

use std::time::Instant;

use manyflow_messages::DaemonHandle;
use manyflow_testing::LIMIT;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;

use crate::overlay::stage::{Nats, line, within};

/// Workers, and the numbers of those that got messages, in the order of arrival.
struct Workers {
    got: UnboundedSender<usize>,
    arrivals: UnboundedReceiver<usize>,
    tasks: Vec<JoinHandle<()>>,
}

impl Workers {
    fn new() -> Workers {
        let (got, arrivals) = unbounded_channel();
        Workers {
            got,
            arrivals,
            tasks: Vec::new(),
        }
    }

    /// Connects a worker. Its number is the number of workers before it.
    async fn add(&mut self, daemon: &DaemonHandle, subject: &str, queue: &str) {
        let mut worker = Nats::connect(daemon).await;
        worker
            .send_and_wait(&format!("SUB {subject} {queue} 1\r\n"))
            .await;
        let (number, got) = (self.tasks.len(), self.got.clone());
        self.tasks.push(tokio::spawn(async move {
            loop {
                worker.message().await;
                got.send(number).unwrap();
            }
        }));
    }

    /// Disconnects a worker.
    async fn remove(&mut self, number: usize) {
        self.tasks[number].abort();
        let _ = (&mut self.tasks[number]).await;
    }

    /// Waits for this many messages. Returns the number that each worker got.
    async fn shares(&mut self, messages: usize) -> Vec<usize> {
        let mut shares = vec![0; self.tasks.len()];
        for _ in 0..messages {
            shares[within(self.arrivals.recv()).await.unwrap()] += 1;
        }
        shares
    }
}

/// Waits until a client's daemon knows this many members of a group.
async fn wait_for_members(client: &mut Nats, pattern: &str, wanted: u64) {
    let start = Instant::now();
    client.send_and_wait("SUB census 77\r\n").await;
    loop {
        let request = format!("PUB $MF.members.{pattern} census 0\r\n\r\n");
        client.send(&request).await;
        let answer: serde_json::Value = serde_json::from_slice(&client.message().await.1).unwrap();
        let members = answer["members"].as_object().unwrap().values();
        if members.map(|count| count.as_u64().unwrap()).sum::<u64>() == wanted {
            break;
        }
        assert!(start.elapsed() < LIMIT, "{answer} instead of {wanted}");
    }
    client.send_and_wait("UNSUB 77\r\n").await;
}

async fn publish(client: &mut Nats, subject: &str, messages: usize) {
    let message = format!("PUB {subject} 1\r\nx\r\n");
    client.send(&message.repeat(messages)).await;
}

#[tokio::test]
async fn nine_workers_at_one_daemon_and_one_at_another_have_equal_shares() {
    let daemons = line(3).await;
    let mut workers = Workers::new();
    for _ in 0..9 {
        workers.add(&daemons[0], "work", "q").await;
    }
    workers.add(&daemons[2], "work", "q").await;
    for daemon in &daemons {
        let mut client = Nats::connect(daemon).await;
        wait_for_members(&mut client, "work", 10).await;
        publish(&mut client, "work", 10).await;
        assert_eq!(workers.shares(10).await, [1; 10], "10 messages");
        publish(&mut client, "work", 1000).await;
        assert_eq!(workers.shares(1000).await, [100; 10], "1000 messages");
    }
}

#[tokio::test]
async fn publishers_at_several_daemons_that_send_few_messages_spread_them() {
    let daemons = line(3).await;
    let mut workers = Workers::new();
    for daemon in [0, 0, 0, 0, 1, 1, 1, 2, 2, 2] {
        workers.add(&daemons[daemon], "work", "q").await;
    }
    for (daemon, messages) in daemons.iter().zip([4, 3, 3]) {
        let mut client = Nats::connect(daemon).await;
        wait_for_members(&mut client, "work", 10).await;
        publish(&mut client, "work", messages).await;
    }
    assert_eq!(workers.shares(10).await, [1; 10]);
}

#[tokio::test]
async fn a_client_that_calls_two_services_in_turn_reaches_all_workers_of_both() {
    let daemons = line(3).await;
    let mut workers = Workers::new();
    for daemon in &daemons {
        for service in ["one", "two.*"] {
            workers.add(daemon, service, "q").await;
        }
    }
    let mut client = Nats::connect(&daemons[1]).await;
    for service in ["one", "two.*"] {
        wait_for_members(&mut client, service, 3).await;
    }
    for number in 0..30 {
        publish(&mut client, "one", 1).await;
        publish(&mut client, &format!("two.{number}"), 1).await;
    }
    assert_eq!(workers.shares(60).await, [10; 6]);
}

#[tokio::test]
async fn two_queue_groups_on_one_subject_have_turns_of_their_own() {
    let daemons = line(3).await;
    let mut workers = Workers::new();
    for daemon in &daemons {
        for queue in ["first", "second"] {
            workers.add(daemon, "work", queue).await;
        }
    }
    let mut client = Nats::connect(&daemons[0]).await;
    wait_for_members(&mut client, "work", 6).await;
    publish(&mut client, "work", 30).await;
    assert_eq!(workers.shares(60).await, [10; 6]);
}

/// nats-server merges them by the name of the queue group, too.
#[tokio::test]
async fn patterns_with_one_name_of_a_queue_group_are_one_group_for_a_subject() {
    let daemons = line(2).await;
    let mut workers = Workers::new();
    workers.add(&daemons[0], "orders.*", "q").await;
    workers.add(&daemons[1], "orders.new", "q").await;
    let mut client = Nats::connect(&daemons[0]).await;
    for pattern in ["orders.*", "orders.new"] {
        wait_for_members(&mut client, pattern, 1).await;
    }
    publish(&mut client, "orders.new", 20).await;
    assert_eq!(workers.shares(20).await, [10; 2]);
    publish(&mut client, "orders.old", 10).await;
    assert_eq!(workers.shares(10).await, [10, 0]);
}

#[tokio::test]
async fn a_worker_that_leaves_leaves_its_share_to_all_others() {
    let daemons = line(2).await;
    let mut workers = Workers::new();
    for daemon in [0, 0, 0, 1, 1] {
        workers.add(&daemons[daemon], "work", "q").await;
    }
    let mut client = Nats::connect(&daemons[1]).await;
    wait_for_members(&mut client, "work", 5).await;
    publish(&mut client, "work", 7).await;
    workers.shares(7).await;
    workers.remove(0).await;
    wait_for_members(&mut client, "work", 4).await;
    // From any place in the circle on, each has its share but for one message.
    publish(&mut client, "work", 400).await;
    let shares = workers.shares(400).await;
    assert_eq!(shares[0], 0);
    let near = |share: &usize| (98..=102).contains(share);
    assert!(shares[1..].iter().all(near), "{shares:?}");
}
