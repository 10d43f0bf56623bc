//! Hosts that forge, repeat and flood.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use manyflow_anypoint::{Ack, Body, Data, NO_GAPS, Reason, Segment, UNLIMITED};
use manyflow_core::xcp::{Congestion, Feedback, WindowChange};
use manyflow_ensembles::anypoint::envelope::{self, Cookie, Datagram, NO_COOKIE};
use manyflow_ensembles::anypoint::fragment::Header;
use manyflow_ensembles::anypoint::switch::PolicyName;
use manyflow_ensembles::anypoint::{Connection, Number, Options, connect};
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::stage::{ANY, Stage, exchange, finish, within};

/// A socket that speaks ACP by hand.
struct Attacker {
    socket: UdpSocket,
    target: SocketAddr,
}

impl Attacker {
    async fn new(target: SocketAddr) -> Attacker {
        let socket = UdpSocket::bind(ANY).await.unwrap();
        Attacker { socket, target }
    }

    async fn send(&self, number: Number, body: Body, cookie: &Cookie, frame: &[u8]) {
        let segment = Segment {
            connection: number,
            body,
        };
        let header = envelope::encode(&segment, cookie);
        let datagram = [header.as_bytes(), frame].concat();
        self.socket.send_to(&datagram, self.target).await.unwrap();
    }

    async fn receive(&self) -> Datagram {
        let mut bytes = [0; 2000];
        let length = within("a datagram", self.socket.recv(&mut bytes))
            .await
            .unwrap();
        envelope::decode(&bytes[..length]).unwrap()
    }

    /// Counts and removes the datagrams that arrive until none comes for a moment.
    async fn drain(&self) -> usize {
        let (mut bytes, mut count) = ([0; 2000], 0);
        while timeout(Duration::from_millis(300), self.socket.recv(&mut bytes))
            .await
            .is_ok()
        {
            count += 1;
        }
        count
    }

    /// Opens a connection as an honest end does. Returns its cookie.
    async fn open(&self, number: Number) -> Cookie {
        self.open_with(number, UNLIMITED).await
    }

    /// Opens a connection, and grants this credit. Returns the cookie.
    async fn open_with(&self, number: Number, credit: u32) -> Cookie {
        let open = Body::Open { credit };
        self.send(number, open, &NO_COOKIE, &[]).await;
        let Datagram::Challenge(challenged, cookie) = self.receive().await else {
            panic!("an Open without a cookie was not challenged");
        };
        assert_eq!(challenged, number);
        self.send(number, open, &cookie, &[]).await;
        let accepted = self.receive().await;
        let Datagram::Segment(segment, _) = accepted else {
            panic!("{accepted:?} instead of an Accept");
        };
        assert!(matches!(segment.body, Body::Accept { .. }), "{segment:?}");
        cookie
    }
}

fn data(sequence: u32, cwnd: u32, rtt_us: u32, feedback: i32) -> Body {
    Body::Data(Data {
        sequence,
        key: 7,
        congestion: Congestion {
            cwnd,
            rtt_us,
            feedback: WindowChange(feedback),
            answered: false,
        },
    })
}

/// Returns a message of one fragment.
fn message(number: u64) -> Vec<u8> {
    let header = Header {
        is_last: true,
        is_sealed: false,
        index: 0,
        message: number,
    };
    [&header.encode()[..], b"attack"].concat()
}

async fn stage_and_connection() -> (Stage, Arc<Connection>) {
    let stage = Stage::start(2, PolicyName::RoundRobin, &Options::default());
    let connection = within("open", connect(stage.address(), Options::default())).await;
    (stage, Arc::new(connection.unwrap()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_opens_creates_no_state() {
    let (stage, honest) = stage_and_connection().await;
    let attacker = Attacker::new(stage.address()).await;
    for number in 0..20_000 {
        let cookie = if number % 2 == 0 { NO_COOKIE } else { [7; 16] };
        attacker
            .send(number, Body::Open { credit: 1 << 20 }, &cookie, &[])
            .await;
        if number % 1000 == 0 {
            tokio::task::yield_now().await;
        }
    }
    stage
        .wait_for("challenges", |status| status.counters.challenges > 100)
        .await;
    exchange(Arc::clone(&honest), 100, 100).await;
    stage
        .wait_for("the connections", |status| {
            status.connections == 1 && status.counters.opened == 1
        })
        .await;
    finish(honest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_challenges_too() {
    let stage = Stage::start(1, PolicyName::Hash, &Options::default());
    let attacker = Attacker::new(stage.members[0].address).await;
    attacker.open(5).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cookie_is_worth_nothing_at_another_address() {
    let (stage, honest) = stage_and_connection().await;
    let (one, two) = (
        Attacker::new(stage.address()).await,
        Attacker::new(stage.address()).await,
    );
    let cookie = one.open(5).await;
    two.send(5, Body::Open { credit: 1 << 20 }, &cookie, &[])
        .await;
    assert!(matches!(two.receive().await, Datagram::Challenge(5, _)));
    stage
        .wait_for("the connections", |status| status.counters.opened == 2)
        .await;
    finish(honest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_of_unknown_connections_get_few_resets() {
    let (stage, honest) = stage_and_connection().await;
    let attacker = Attacker::new(stage.address()).await;
    let (start, mut resets) = (Instant::now(), 0);
    for round in 0..10 {
        for number in 0..500 {
            attacker
                .send(
                    round * 500 + number,
                    data(0, 3000, 0, 0),
                    &NO_COOKIE,
                    &message(1),
                )
                .await;
        }
        resets += attacker.drain().await;
    }
    assert!(resets > 0, "strangers are never answered");
    // An address gets at most one every 10 ms, however long this takes.
    let most = 1 + start.elapsed().as_millis() / 10;
    assert!(resets as u128 <= most, "{resets} Resets, at most {most}");
    exchange(Arc::clone(&honest), 100, 100).await;
    finish(honest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_resets_and_members_segments_from_elsewhere_change_nothing() {
    let (stage, honest) = stage_and_connection().await;
    let attacker = Attacker::new(stage.address()).await;
    for number in 0..5000 {
        let reset = Body::Reset(Reason::Aborted);
        attacker.send(number, reset, &NO_COOKIE, &[]).await;
        attacker
            .send(number, Body::Accept { credit: UNLIMITED }, &NO_COOKIE, &[])
            .await;
    }
    exchange(Arc::clone(&honest), 100, 100).await;
    finish(honest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_frames_are_delivered_once() {
    let stage = Stage::start(1, PolicyName::Hash, &Options::default());
    let attacker = Attacker::new(stage.address()).await;
    let cookie = attacker.open(9).await;
    for _ in 0..50 {
        attacker
            .send(9, data(0, 3000, 0, 0), &cookie, &message(1))
            .await;
        attacker
            .send(9, Body::Open { credit: UNLIMITED }, &cookie, &[])
            .await;
    }
    attacker
        .send(9, data(1, 3000, 0, 0), &cookie, &message(2))
        .await;
    within("two messages", async {
        while stage.members[0].messages() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    attacker.drain().await;
    assert_eq!(stage.members[0].messages(), 2);
    stage
        .wait_for("one connection", |status| status.counters.opened == 1)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absurd_windows_numbers_and_acknowledgements_harm_only_their_sender() {
    let (stage, honest) = stage_and_connection().await;
    let attacker = Attacker::new(stage.address()).await;
    let cookie = attacker.open(9).await;
    let extremes = [0, 1, 1 << 16, u32::MAX - 1, u32::MAX];
    for sequence in extremes {
        for word in extremes {
            for feedback in [i32::MIN, 0, i32::MAX] {
                let body = data(sequence, word, word, feedback);
                attacker.send(9, body, &cookie, &message(1)).await;
                let ack = Body::Ack(Ack {
                    cumulative: sequence,
                    of: word,
                    credit: word,
                    feedback: Feedback {
                        change: WindowChange(feedback),
                        ..Feedback::default()
                    },
                    missing: NO_GAPS,
                });
                attacker.send(9, ack, &cookie, &[]).await;
            }
        }
        attacker
            .send(9, Body::Close { sequence }, &cookie, &[])
            .await;
    }
    exchange(Arc::clone(&honest), 200, 1000).await;
    finish(honest).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_grants_no_credit_or_acknowledges_nothing_stops_only_its_own_connection() {
    let (stage, honest) = stage_and_connection().await;
    for (number, credit) in [(9, 0), (10, UNLIMITED)] {
        let attacker = Attacker::new(stage.address()).await;
        let cookie = attacker.open_with(number, credit).await;
        let before: u64 = stage.members.iter().map(|member| member.messages()).sum();
        for sequence in 0..200 {
            let body = data(sequence, 300_000, 0, 0);
            let message = message(sequence.into());
            attacker.send(number, body, &cookie, &message).await;
        }
        within("requests at the members", async {
            while stage.members.iter().map(|m| m.messages()).sum::<u64>() == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        exchange(Arc::clone(&honest), 200, 1000).await;
    }
    finish(honest).await;
    let status = stage.switch.status().borrow().clone();
    assert_eq!(status.counters.failures, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_no_datagrams_are_counted() {
    let (stage, honest) = stage_and_connection().await;
    let attacker = Attacker::new(stage.address()).await;
    for length in 0..200 {
        let bytes = vec![length as u8; length];
        attacker
            .socket
            .send_to(&bytes, attacker.target)
            .await
            .unwrap();
    }
    stage
        .wait_for("the count", |status| status.counters.invalid > 100)
        .await;
    exchange(Arc::clone(&honest), 10, 10).await;
    finish(honest).await;
}
