//! A publisher under more slow connections than it has places for, on loopback.
//!
//! The runtime's time stands still, so that no connection is closed by a time limit: a place that
//! becomes free was taken from a connection.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::mpsc;
use std::time::Instant;

use manyflow_net::description::load::fetch;
use manyflow_net::publish::{DESCRIPTION_PATH, Publisher};
use manyflow_net::tls::Identity;
use manyflow_testing::{LIMIT, many_files};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::task::yield_now;

const DESCRIPTION: &str = "v=0\r\n";
/// The publisher's number of places.
const PLACES: usize = 512;
const ATTACKERS: usize = 1_000;
/// The first byte of a request.
const GET: u8 = b'G';
/// The first byte of a TLS handshake (RFC 8446 section 5.1).
const HANDSHAKE: u8 = 22;

/// Runs a test while the runtime's time stands still.
async fn with_frozen_time(test: impl Future<Output = ()>) {
    let _files = many_files().await;
    tokio::time::pause();
    // The time of a runtime does not advance while one of its blocking tasks runs. When this one
    // gives up, the time-outs of the code under test end the test.
    let (done, is_done) = mpsc::channel::<()>();
    let hold = tokio::task::spawn_blocking(move || {
        let _ = is_done.recv_timeout(LIMIT);
    });
    test.await;
    drop(done);
    hold.await.unwrap();
}

async fn serve(identity: Option<Identity>) -> Publisher {
    let descriptions = [(DESCRIPTION_PATH.to_owned(), DESCRIPTION.to_owned())];
    Publisher::serve("127.0.0.1:0", descriptions.into(), identity)
        .await
        .unwrap()
}

/// Opens a connection from `client` that sends one byte and then nothing.
async fn attack(client: Ipv4Addr, server: SocketAddr, byte: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((client, 0).into()).unwrap();
    let mut stream = socket.connect(server).await.unwrap();
    // The server may have closed the connection.
    let _ = stream.write_all(&[byte]).await;
    stream
}

async fn attack_from_one_address(server: SocketAddr, byte: u8) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..ATTACKERS {
        streams.push(attack(Ipv4Addr::LOCALHOST, server, byte).await);
    }
    streams
}

fn is_open(stream: &TcpStream) -> bool {
    let read = stream.try_read(&mut [0; 64]);
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

fn open_count(streams: &[TcpStream]) -> usize {
    streams.iter().filter(|stream| is_open(stream)).count()
}

/// Waits until at most `count` of the connections are open.
async fn wait_for_open(streams: &[TcpStream], count: usize) {
    let deadline = Instant::now() + LIMIT;
    while open_count(streams) > count {
        assert!(
            Instant::now() < deadline,
            "{} are open",
            open_count(streams)
        );
        yield_now().await;
    }
}

/// Loads the description while `ATTACKERS` connections are held open, and checks what they cost.
async fn load_during_attack(publisher: Publisher, byte: u8, url: &str, ca: Option<&Path>) {
    let attackers = attack_from_one_address(publisher.local_address(), byte).await;
    for _ in 0..20 {
        assert_eq!(fetch(url, ca).await.unwrap(), DESCRIPTION);
    }
    wait_for_open(&attackers, PLACES).await;
    // Besides the connections, there is the task that accepts them.
    assert!(Handle::current().metrics().num_alive_tasks() <= PLACES + 1);
    assert!(
        open_count(&attackers) > PLACES / 2,
        "places are left unused"
    );
}

#[tokio::test]
async fn a_description_is_loaded_beside_a_thousand_slow_connections() {
    with_frozen_time(async {
        let publisher = serve(None).await;
        let url = format!("http://{}", publisher.local_address());
        load_during_attack(publisher, GET, &url, None).await;
    })
    .await;
}

#[tokio::test]
async fn a_description_is_loaded_over_https_beside_a_thousand_slow_connections() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("crt"), folder.path().join("key"));
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let identity = Identity::read(&certificate, &key).unwrap();
    with_frozen_time(async {
        let publisher = serve(Some(identity)).await;
        let url = format!("https://{}", publisher.local_address());
        load_during_attack(publisher, HANDSHAKE, &url, Some(&certificate)).await;
    })
    .await;
}

#[tokio::test]
async fn slow_clients_that_return_do_not_keep_others_out() {
    with_frozen_time(async {
        let publisher = serve(None).await;
        let server = publisher.local_address();
        let mut attackers = attack_from_one_address(server, GET).await;
        let url = format!("http://{server}");
        for _ in 0..20 {
            let attack = async {
                for attacker in &mut attackers {
                    if !is_open(attacker) {
                        *attacker = attack(Ipv4Addr::LOCALHOST, server, GET).await;
                    }
                }
            };
            let (text, ()) = tokio::join!(fetch(&url, None), attack);
            assert_eq!(text.unwrap(), DESCRIPTION);
        }
    })
    .await;
}

#[tokio::test]
async fn slow_clients_of_many_addresses_do_not_keep_others_out() {
    with_frozen_time(async {
        let publisher = serve(None).await;
        let server = publisher.local_address();
        let mut attackers = Vec::new();
        for number in 0..ATTACKERS as u32 {
            let client = Ipv4Addr::from_bits(Ipv4Addr::new(127, 1, 0, 0).to_bits() + number);
            attackers.push(attack(client, server, GET).await);
        }
        let text = fetch(&format!("http://{server}"), None).await;
        assert_eq!(text.unwrap(), DESCRIPTION);
        wait_for_open(&attackers, PLACES).await;
        let (old, new) = attackers.split_at(ATTACKERS - PLACES);
        assert!(
            open_count(new) > 0 && open_count(old) == 0,
            "the oldest give way"
        );
    })
    .await;
}

#[tokio::test]
async fn a_crowd_of_one_address_takes_no_place_of_others() {
    with_frozen_time(async {
        let publisher = serve(None).await;
        let server = publisher.local_address();
        let mut slow = attack(Ipv4Addr::new(127, 1, 0, 1), server, GET).await;
        let crowd = attack_from_one_address(server, GET).await;
        wait_for_open(&crowd, PLACES).await;
        // The oldest connection of all is the only one of its client, and is answered at last.
        let rest = b"ET /session.sdp HTTP/1.1\r\nHost: a\r\n\r\n";
        slow.write_all(rest).await.unwrap();
        let mut response = String::new();
        slow.read_to_string(&mut response).await.unwrap();
        assert!(response.ends_with(DESCRIPTION), "{response}");
    })
    .await;
}

#[tokio::test]
async fn a_request_that_is_too_long_is_refused() {
    with_frozen_time(async {
        let publisher = serve(None).await;
        let mut stream = TcpStream::connect(publisher.local_address()).await.unwrap();
        let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(16 << 10));
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 431"), "{response}");
    })
    .await;
}

#[tokio::test]
async fn a_client_that_ends_its_direction_behind_its_request_is_answered() {
    with_frozen_time(async {
        let publisher = serve(None).await;
        let mut stream = TcpStream::connect(publisher.local_address()).await.unwrap();
        let request = b"GET /session.sdp HTTP/1.0\r\n\r\n";
        stream.write_all(request).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.ends_with(DESCRIPTION), "{response}");
    })
    .await;
}

/// Time runs here: without work, the paused time jumps to the next time-out.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_finish_its_request_is_disconnected() {
    let publisher = serve(None).await;
    let mut slow = attack(Ipv4Addr::LOCALHOST, publisher.local_address(), GET).await;
    let mut response = Vec::new();
    let _ = slow.read_to_end(&mut response).await;
    assert_eq!(response, b"");
}
