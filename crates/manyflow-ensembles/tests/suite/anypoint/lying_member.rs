//! A member that forges, and strangers that send datagrams about paths.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use manyflow_anypoint::{Ack, Body, Gap, NO_GAPS, Reason, Segment, UNLIMITED};
use manyflow_core::xcp::{Feedback, WindowChange};
use manyflow_ensembles::anypoint::envelope::{self, Datagram, NO_COOKIE, Part};
use manyflow_ensembles::anypoint::switch::{PolicyName, SwitchHandle, SwitchOptions, start};
use manyflow_ensembles::anypoint::{Options, connect};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::stage::{ANY, EchoMember, exchange, finish, service, wait_for, within};

/// Answers each datagram of the switch with lies about its connection.
async fn lie(socket: UdpSocket, lies: Arc<AtomicU64>, resets: Arc<AtomicBool>) {
    let mut bytes = [0; 2000];
    while let Ok((length, switch)) = socket.recv_from(&mut bytes).await {
        let connection = match envelope::decode(&bytes[..length]) {
            Ok(Datagram::Open(segment, _) | Datagram::Segment(segment, _)) => segment.connection,
            _ => continue,
        };
        for datagram in lies_about(connection, resets.load(Ordering::Relaxed)) {
            // The switch's socket may be full.
            let _ = socket.send_to(&datagram, switch).await;
            lies.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Answers each datagram of the switch with an Accept and an acknowledgement without credit, and
/// shows that it is alive.
async fn grant_nothing(socket: UdpSocket) {
    let mut bytes = [0; 2000];
    while let Ok((length, switch)) = socket.recv_from(&mut bytes).await {
        let connection = match envelope::decode(&bytes[..length]) {
            Ok(Datagram::Open(segment, _) | Datagram::Segment(segment, _)) => segment.connection,
            _ => continue,
        };
        let ack = Body::Ack(Ack {
            cumulative: 0,
            of: 0,
            credit: 0,
            feedback: Feedback::default(),
            missing: NO_GAPS,
        });
        for body in [Body::Accept { credit: 0 }, ack, Body::Alive] {
            let datagram = envelope::encode(&Segment { connection, body }, &NO_COOKIE);
            // The switch's socket may be full.
            let _ = socket.send_to(datagram.as_bytes(), switch).await;
        }
    }
}

fn lies_about(connection: u32, resets: bool) -> Vec<Vec<u8>> {
    let extremes = [0, 1, 1 << 16, u32::MAX - 1, u32::MAX];
    let mut bodies = vec![Body::Alive, Body::Probe];
    for word in extremes {
        let credit = UNLIMITED;
        bodies.push(Body::Accept { credit });
        bodies.push(Body::Close { sequence: word });
        for feedback in [i32::MIN, i32::MAX] {
            let mut missing = NO_GAPS;
            missing[0] = Gap {
                offset: 1,
                frames: u16::MAX,
            };
            bodies.push(Body::Ack(Ack {
                cumulative: word,
                of: !word,
                credit,
                feedback: Feedback {
                    change: WindowChange(feedback),
                    ..Feedback::default()
                },
                missing,
            }));
        }
    }
    if resets {
        bodies.push(Body::Reset(Reason::Aborted));
    }
    let encode = |body| envelope::encode(&Segment { connection, body }, &NO_COOKIE);
    let mut lies: Vec<Vec<u8>> = bodies
        .into_iter()
        .map(|body| encode(body).as_bytes().to_vec())
        .collect();
    // Opens of its own, answers to probes that nobody sent, and parts that are never completed.
    lies.push(encode(Body::Open { credit: UNLIMITED }).as_bytes().to_vec());
    lies.push(
        envelope::encode_challenge(connection, [7; 16])
            .as_bytes()
            .to_vec(),
    );
    for id in 0..3 {
        let answer = envelope::encode_path_answer(connection, id, u16::MAX);
        lies.push(answer.as_bytes().to_vec());
        lies.push(part(connection, id as u16));
    }
    lies.push(vec![0x81; 30]);
    lies
}

/// Returns the first of two parts.
fn part(connection: u32, datagram: u16) -> Vec<u8> {
    let part = Part {
        connection,
        index: 0,
        count: 2,
        datagram,
        total: 1441,
    };
    let header = envelope::encode_part(&part);
    [header.as_bytes(), &vec![1; part.range().len()]].concat()
}

/// Exchanges messages with an honest member while another one of the service lies.
async fn withstand(resets: bool) {
    let honest = EchoMember::start(ANY, Options::default());
    let liar = UdpSocket::bind(ANY).await.unwrap();
    let addresses = [honest.address, liar.local_addr().unwrap()];
    // Keys below 100 belong to the honest member.
    let service = service(&addresses, PolicyName::KeyRange);
    let switch = start(ANY, service, SwitchOptions::default()).unwrap();
    let lies = Arc::new(AtomicU64::new(0));
    let resets = Arc::new(AtomicBool::new(resets));
    let lying = tokio::spawn(lie(liar, Arc::clone(&lies), resets));
    for _ in 0..3 {
        let connection = connect(switch.local_address(), Options::default());
        let connection = Arc::new(within("open", connection).await.unwrap());
        exchange(Arc::clone(&connection), 100, 20_000).await;
        finish(connection).await;
    }
    assert!(lies.load(Ordering::Relaxed) > 100, "it was asked");
    wait_for(&switch, "the invalid datagrams", |status| {
        status.counters.invalid > 0
    })
    .await;
    lying.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_lies_harms_no_message_of_another_member() {
    withstand(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_resets_each_connection_harms_no_message_of_another_member() {
    withstand(true).await;
}

/// An honest member, a member that grants nothing, and a switch in front of both. Keys below 100
/// belong to the honest one.
fn start_without_credit() -> (EchoMember, SwitchHandle, JoinHandle<()>) {
    let honest = EchoMember::start(ANY, Options::default());
    let socket = std::net::UdpSocket::bind(ANY).unwrap();
    socket.set_nonblocking(true).unwrap();
    let socket = UdpSocket::from_std(socket).unwrap();
    let addresses = [honest.address, socket.local_addr().unwrap()];
    let service = service(&addresses, PolicyName::KeyRange);
    let switch = start(ANY, service, SwitchOptions::default()).unwrap();
    let greedy = tokio::spawn(grant_nothing(socket));
    (honest, switch, greedy)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_credit_that_is_removed_stops_no_open_connection() {
    let (honest, switch, greedy) = start_without_credit();
    let connection = connect(switch.local_address(), Options::default());
    let connection = Arc::new(within("open", connection).await.unwrap());
    let exchanged = tokio::spawn(exchange(Arc::clone(&connection), 100, 20_000));
    wait_for(&switch, "the two members", |status| {
        status.members.iter().all(|member| member.connections == 1)
    })
    .await;
    let rest = service(&[honest.address], PolicyName::KeyRange);
    switch.set_service(rest).unwrap();
    within("the answers", exchanged).await.unwrap();
    greedy.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_credit_is_left_out_and_gets_frames_no_longer() {
    let (_honest, switch, greedy) = start_without_credit();
    let connection = connect(switch.local_address(), Options::default());
    let connection = Arc::new(within("open", connection).await.unwrap());
    // Some keys are those of the member that grants nothing.
    exchange(Arc::clone(&connection), 150, 1000).await;
    wait_for(&switch, "the stalled member", |status| {
        status.members[1].stalled == 1
    })
    .await;
    let status = switch.status().borrow().clone();
    assert_eq!(status.members[1].frames_to, 0);
    assert_eq!(status.counters.failures, 0, "it keeps nothing");
    greedy.abort();
}

/// Sends datagrams about paths from an address that has no connection. Returns the answers.
async fn probe_as_a_stranger(target: SocketAddr) -> Vec<Datagram> {
    let socket = UdpSocket::bind(ANY).await.unwrap();
    for number in 0..1_000 {
        let mut probe = envelope::encode_path_probe(number, 1).as_bytes().to_vec();
        probe.resize(1440, 0);
        let answer = envelope::encode_path_answer(number, 1, 1440);
        let datagrams = [probe, part(number, 1), answer.as_bytes().to_vec()];
        for datagram in datagrams {
            socket.send_to(&datagram, target).await.unwrap();
        }
    }
    let (mut bytes, mut answers) = ([0; 2000], Vec::new());
    let patience = Duration::from_millis(300);
    while let Ok(Ok(length)) = timeout(patience, socket.recv(&mut bytes)).await {
        answers.push(envelope::decode(&bytes[..length]).unwrap());
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_get_no_answers_about_paths() {
    let member = EchoMember::start(ANY, Options::default());
    let service = service(&[member.address], PolicyName::Hash);
    let switch = start(ANY, service, SwitchOptions::default()).unwrap();
    let connection = connect(switch.local_address(), Options::default());
    let connection = Arc::new(within("open", connection).await.unwrap());
    for target in [switch.local_address(), member.address] {
        for answer in probe_as_a_stranger(target).await {
            let Datagram::Segment(segment, _) = answer else {
                panic!("{answer:?}");
            };
            assert_eq!(segment.body, Body::Reset(Reason::Unknown));
        }
    }
    exchange(Arc::clone(&connection), 50, 20_000).await;
    finish(connection).await;
}
