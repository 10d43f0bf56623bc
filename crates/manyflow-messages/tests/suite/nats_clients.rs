//! NATS clients and daemons: our own client, and the one that the NATS project wrote.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use manyflow_messages::{
    Access, Client, ClientError, ClientOptions, ControllerConfig, Credentials, DaemonConfig,
    DaemonHandle, LinkConfig, LinkSecurity, Message, Messages, SlowVerdict, User, start,
};
use manyflow_net::tls::{Authorities, Identity};
use manyflow_overlay::OverlayConfig;
use manyflow_testing::LIMIT;
use tokio::time::timeout;

const NAMES: [&str; 3] = ["a", "b", "c"];

fn config(name: &str, neighbour: Option<(&str, String)>, access: Access) -> DaemonConfig {
    let link = |(name, address): (&str, String)| LinkConfig {
        name: name.to_owned(),
        id: None,
        address,
        weight: 1,
    };
    DaemonConfig {
        overlay_name: "test".to_owned(),
        listen: Some("127.0.0.1:0".to_owned()),
        clients: Some("127.0.0.1:0".to_owned()),
        links: neighbour.map(link).into_iter().collect(),
        access,
        connections_max: 100,
        overlay: OverlayConfig::default(),
        controller: ControllerConfig::Open,
        ..DaemonConfig::new(name, LinkSecurity::Insecure)
    }
}

/// Makes an authority with a certificate for localhost. Returns the authority's file, and the
/// identity of a daemon.
pub(crate) fn make_identity(folder: &Path) -> (PathBuf, Identity) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let issuer = rcgen::Issuer::from_params(&authority, &authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap();
    let authority = authority.self_signed(&authority_key).unwrap();
    let files = ["ca.crt", "server.crt", "server.key"].map(|name| folder.join(name));
    let texts = [authority.pem(), certificate.pem(), key.serialize_pem()];
    for (path, text) in files.iter().zip(texts) {
        std::fs::write(path, text).unwrap();
    }
    let [ca, certificate, key] = files;
    let identity = Identity::read(&certificate, &key).unwrap();
    (ca, identity)
}

async fn start_one(access: Access) -> DaemonHandle {
    start(config("a", None, access)).await.unwrap()
}

/// Starts three daemons in a line.
async fn start_line() -> Vec<DaemonHandle> {
    let mut daemons: Vec<DaemonHandle> = Vec::new();
    for (number, name) in NAMES.into_iter().enumerate() {
        let before = daemons.last();
        let neighbour = before.map(|before| {
            let address = before.addresses().daemons.unwrap().to_string();
            (NAMES[number - 1], address)
        });
        let config = config(name, neighbour, Access::Open);
        daemons.push(start(config).await.unwrap());
    }
    daemons
}

fn address(daemon: &DaemonHandle) -> String {
    daemon.addresses().clients.unwrap().to_string()
}

async fn connect(daemon: &DaemonHandle) -> Client {
    let options = ClientOptions {
        connect_timeout: LIMIT,
        request_timeout: LIMIT,
        ..ClientOptions::default()
    };
    Client::connect(&address(daemon), &options).await.unwrap()
}

async fn connect_stranger(daemon: &DaemonHandle) -> async_nats::Client {
    let options = async_nats::ConnectOptions::new()
        .connection_timeout(LIMIT)
        .request_timeout(Some(LIMIT));
    options.connect(address(daemon)).await.unwrap()
}

async fn next(messages: &mut Messages) -> Message {
    let message = timeout(LIMIT, messages.next()).await.unwrap();
    message.expect("the stream goes on").unwrap()
}

/// Returns the next message of any stream.
async fn next_of<S: Stream + Unpin>(stream: &mut S) -> S::Item {
    let next = std::future::poll_fn(|context| std::pin::Pin::new(&mut *stream).poll_next(context));
    timeout(LIMIT, next)
        .await
        .unwrap()
        .expect("the stream goes on")
}

/// Waits until messages of `sender` reach `member`, and so all subscriptions made before.
async fn settle(sender: &Client, member: &Client) {
    let mut probes = member.join("probe").await.unwrap();
    let probe = async {
        loop {
            sender.publish("probe", "").await.unwrap();
            if timeout(Duration::from_millis(50), probes.next())
                .await
                .is_ok()
            {
                return;
            }
        }
    };
    timeout(LIMIT, probe).await.unwrap();
}

#[tokio::test]
async fn messages_cross_three_daemons_once_and_in_order() {
    let daemons = start_line().await;
    let (sender, member) = (connect(&daemons[0]).await, connect(&daemons[2]).await);
    let mut messages = member.join("order.*").await.unwrap();
    settle(&sender, &member).await;
    let count = 5_000_u32;
    let publishing = async {
        for number in 0..count {
            let number = Bytes::copy_from_slice(&number.to_be_bytes());
            sender.publish("order.x", number).await.unwrap();
        }
    };
    let receiving = async {
        for number in 0..count {
            assert_eq!(
                next(&mut messages).await.payload()[..],
                number.to_be_bytes()
            );
        }
    };
    tokio::join!(publishing, receiving);
}

#[tokio::test]
async fn a_slow_member_holds_the_sender_back_and_misses_nothing() {
    let daemon = start_one(Access::Open).await;
    let (sender, member) = (connect(&daemon).await, connect(&daemon).await);
    let mut messages = member.join("slow").await.unwrap();
    // More than all buffers between the two hold.
    let (count, payload) = (3_000_u32, Bytes::from(vec![7; 16 << 10]));
    let publishing = tokio::spawn(async move {
        for _ in 0..count {
            sender.publish("slow", payload.clone()).await.unwrap();
        }
        sender.flush().await.unwrap();
    });
    // The member does not read until the daemon no longer reads from the sender.
    let mut status = daemon.status();
    let is_blocked = status.wait_for(|status| {
        let mut members = status.first_slow_members.iter();
        members.any(|member| member.verdict == SlowVerdict::Blocks)
    });
    timeout(LIMIT, is_blocked).await.unwrap().unwrap();
    assert!(!publishing.is_finished());
    for _ in 0..count {
        next(&mut messages).await;
    }
    timeout(LIMIT, publishing).await.unwrap().unwrap();
}

#[tokio::test]
async fn headers_and_replies_reach_members() {
    let daemons = start_line().await;
    let (sender, member) = (connect(&daemons[0]).await, connect(&daemons[1]).await);
    let mut messages = member.join("h").await.unwrap();
    settle(&sender, &member).await;
    let message = Message::new("h", &b"\r\n\0"[..]).unwrap();
    let message = message.with_header("Colour", "red").unwrap();
    let message = message.with_reply("answers.7").unwrap();
    sender.publish_message(&message).await.unwrap();
    assert_eq!(next(&mut messages).await, message);
}

#[tokio::test]
async fn requests_are_answered_or_fail_without_responders() {
    let daemons = start_line().await;
    let (client, responder) = (connect(&daemons[0]).await, connect(&daemons[2]).await);
    let mut requests = responder.join("double").await.unwrap();
    settle(&client, &responder).await;
    let answering = tokio::spawn(async move {
        loop {
            let request = next(&mut requests).await;
            let answer = [request.payload().as_ref(), request.payload()].concat();
            responder
                .publish(request.reply().unwrap(), answer)
                .await
                .unwrap();
        }
    });
    for text in ["a", "bc"] {
        let answer = client.request("double", text).await.unwrap();
        assert_eq!(answer.payload(), text.repeat(2).as_bytes());
    }
    let error = client.request("nobody", "").await.unwrap_err();
    assert!(
        matches!(&error, ClientError::NoResponders { .. }),
        "{error}"
    );
    assert!(error.to_string().contains(&address(&daemons[0])), "{error}");
    answering.abort();
}

#[tokio::test]
async fn workers_of_a_queue_share_messages() {
    let daemons = start_line().await;
    let clients = [connect(&daemons[0]).await, connect(&daemons[2]).await];
    let mut workers = Vec::new();
    for client in &clients {
        workers.push(client.join_queue("work", "workers").await.unwrap());
    }
    settle(&clients[0], &clients[1]).await;
    for number in 0..200_u8 {
        clients[0].publish("work", vec![number]).await.unwrap();
    }
    let mut counts: BTreeMap<u8, u32> = BTreeMap::new();
    let [first, second] = workers.as_mut_slice() else {
        unreachable!("there are two workers");
    };
    while counts.len() < 200 {
        let message = tokio::select! {
            message = next(first) => message,
            message = next(second) => message,
        };
        *counts.entry(message.payload()[0]).or_default() += 1;
    }
    assert!(counts.values().all(|&count| count == 1), "{counts:?}");
}

#[tokio::test]
async fn a_client_learns_the_members_of_a_group() {
    let daemons = start_line().await;
    let (client, member) = (connect(&daemons[0]).await, connect(&daemons[2]).await);
    let first = member.join("news.*").await.unwrap();
    let second = member.join("news.*").await.unwrap();
    let known = |wanted: &'static [(&str, u64)]| {
        let client = client.clone();
        let wanted = wanted.iter().map(|&(name, count)| (name.to_owned(), count));
        let wanted: BTreeMap<String, u64> = wanted.collect();
        async move { while client.members("news.*").await.unwrap().by_daemon != wanted {} }
    };
    timeout(LIMIT, known(&[("c", 1)])).await.unwrap();
    second.leave().await.unwrap();
    drop(first);
    timeout(LIMIT, known(&[])).await.unwrap();
}

#[tokio::test]
async fn members_that_left_get_nothing_more() {
    let daemon = start_one(Access::Open).await;
    let client = connect(&daemon).await;
    let mut remaining = client.join("news").await.unwrap();
    let leaving = client.join("news").await.unwrap();
    leaving.leave().await.unwrap();
    client.publish("news", "1").await.unwrap();
    assert_eq!(next(&mut remaining).await.payload(), "1".as_bytes());
}

#[tokio::test]
async fn drained_streams_yield_what_has_arrived_and_end() {
    let daemon = start_one(Access::Open).await;
    let client = connect(&daemon).await;
    let mut messages = client.join("d").await.unwrap();
    for number in 0..100_u8 {
        client.publish("d", vec![number]).await.unwrap();
    }
    client.flush().await.unwrap();
    timeout(LIMIT, client.drain()).await.unwrap().unwrap();
    for number in 0..100_u8 {
        assert_eq!(next(&mut messages).await.payload()[..], [number]);
    }
    assert!(messages.next().await.is_none());
    let error = client.publish("d", "").await.unwrap_err();
    assert!(matches!(error, ClientError::Drained { .. }), "{error}");
}

#[tokio::test]
async fn a_lost_connection_is_an_error_of_every_stream() {
    let daemon = start_one(Access::Open).await;
    let client = connect(&daemon).await;
    let mut messages = client.join("d").await.unwrap();
    let address = address(&daemon);
    daemon.stop().await;
    let error = timeout(LIMIT, messages.next())
        .await
        .unwrap()
        .unwrap()
        .unwrap_err();
    assert!(matches!(&error, ClientError::Lost { .. }), "{error}");
    assert!(error.to_string().contains(&address), "{error}");
    assert!(messages.next().await.is_none());
}

#[tokio::test]
async fn clients_need_the_credentials_and_permissions_of_a_user() {
    let token = User::new(Credentials::Token("secret".to_owned()));
    let user = User {
        subscribe: Some(vec!["open.>".to_owned(), "_INBOX.>".to_owned()]),
        ..token
    };
    let daemon = start_one(Access::Users(vec![user])).await;
    let connect = |credentials| {
        let options = ClientOptions {
            credentials,
            ..ClientOptions::default()
        };
        let address = address(&daemon);
        async move { Client::connect(&address, &options).await }
    };
    for wrong in [None, Some(Credentials::Token("wrong".to_owned()))] {
        let error = connect(wrong).await.unwrap_err();
        assert!(matches!(&error, ClientError::Refused { .. }), "{error}");
    }
    let right = Some(Credentials::Token("secret".to_owned()));
    let client = connect(right).await.unwrap();
    client.join("open.a").await.unwrap();
    let error = client.join("closed").await.unwrap_err();
    assert!(matches!(&error, ClientError::Refused { .. }), "{error}");
}

#[tokio::test]
async fn invalid_subjects_and_long_messages_are_refused_by_the_client() {
    let daemon = start_one(Access::Open).await;
    let client = connect(&daemon).await;
    for subject in ["", "a b", "a.*", "a\r\nPING"] {
        let error = client.publish(subject, "").await.unwrap_err();
        assert!(
            matches!(error, ClientError::InvalidSubject { .. }),
            "{error}"
        );
    }
    let error = client.join("a..b").await.unwrap_err();
    assert!(
        matches!(error, ClientError::InvalidSubject { .. }),
        "{error}"
    );
    let error = client
        .publish("a", vec![0; (1 << 20) + 1])
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::TooLong { .. }), "{error}");
}

#[tokio::test]
async fn authorities_need_a_daemon_with_tls() {
    let daemon = start_one(Access::Open).await;
    let folder = tempfile::tempdir().unwrap();
    let (ca, _) = make_identity(folder.path());
    let options = ClientOptions {
        tls: Some(Authorities::read(Some(&ca)).unwrap()),
        ..ClientOptions::default()
    };
    let error = Client::connect(&address(&daemon), &options)
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::NoTls { .. }), "{error}");
}

#[tokio::test]
async fn a_daemon_with_a_certificate_serves_clients_over_tls_only() {
    let folder = tempfile::tempdir().unwrap();
    let (ca, identity) = make_identity(folder.path());
    let mut config = config("a", None, Access::Open);
    config.client_tls = Some(identity);
    let daemon = start(config).await.unwrap();
    let port = daemon.addresses().clients.unwrap().port();
    let address = format!("localhost:{port}");
    let secure = ClientOptions {
        tls: Some(Authorities::read(Some(&ca)).unwrap()),
        ..ClientOptions::default()
    };
    let client = Client::connect(&address, &secure).await.unwrap();
    let mut messages = client.join("secret").await.unwrap();
    client.publish("secret", "hush").await.unwrap();
    assert_eq!(next(&mut messages).await.payload(), "hush".as_bytes());
    let open = ClientOptions::default();
    let error = Client::connect(&address, &open).await.unwrap_err();
    assert!(matches!(error, ClientError::TlsRequired { .. }), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let (other, _) = make_identity(folder.path());
    let wrong = ClientOptions {
        tls: Some(Authorities::read(Some(&other)).unwrap()),
        ..ClientOptions::default()
    };
    let error = Client::connect(&address, &wrong).await.unwrap_err();
    assert!(matches!(error, ClientError::Connect { .. }), "{error}");
}

#[tokio::test]
async fn async_nats_publishes_and_subscribes_over_three_daemons() {
    let daemons = start_line().await;
    let publisher = connect_stranger(&daemons[0]).await;
    let subscriber = connect_stranger(&daemons[2]).await;
    let mut messages = subscriber.subscribe("s.>").await.unwrap();
    subscriber.flush().await.unwrap();
    settle(&connect(&daemons[0]).await, &connect(&daemons[2]).await).await;
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Colour", "red");
    for number in 0..1_000_u32 {
        let payload = Bytes::from(number.to_string());
        let subject = format!("s.{number}.x");
        let publishing = publisher.publish_with_headers(subject, headers.clone(), payload);
        publishing.await.unwrap();
    }
    for number in 0..1_000_u32 {
        let message = next_of(&mut messages).await;
        assert_eq!(message.subject.as_str(), format!("s.{number}.x"));
        assert_eq!(message.payload, number.to_string().as_bytes());
        let colour = message
            .headers
            .as_ref()
            .and_then(|headers| headers.get("Colour"));
        assert_eq!(colour.map(ToString::to_string), Some("red".to_owned()));
    }
}

#[tokio::test]
async fn async_nats_requests_and_drains_over_three_daemons() {
    let daemons = start_line().await;
    let client = connect_stranger(&daemons[0]).await;
    let responder = connect_stranger(&daemons[2]).await;
    let mut requests = responder
        .queue_subscribe("echo", "workers".to_owned())
        .await
        .unwrap();
    responder.flush().await.unwrap();
    settle(&connect(&daemons[0]).await, &connect(&daemons[2]).await).await;
    let answering = tokio::spawn(async move {
        let request = next_of(&mut requests).await;
        let reply = request.reply.unwrap();
        responder.publish(reply, request.payload).await.unwrap();
        responder.drain().await.unwrap();
        // Dropped before it is drained, the client would not write the answer.
        responder
    });
    let answer = timeout(LIMIT, client.request("echo", "hello".into()))
        .await
        .unwrap();
    assert_eq!(answer.unwrap().payload, "hello");
    answering.await.unwrap();
    let nobody = timeout(LIMIT, client.request("nobody", "".into()))
        .await
        .unwrap();
    let error = nobody.unwrap_err();
    assert_eq!(error.kind(), async_nats::RequestErrorKind::NoResponders);
}

#[tokio::test]
async fn async_nats_goes_on_after_a_refused_subscription_and_a_refused_message() {
    let daemon = start_one(Access::Open).await;
    let (events, mut errors) = tokio::sync::mpsc::unbounded_channel();
    let options = async_nats::ConnectOptions::new()
        .connection_timeout(LIMIT)
        .event_callback(move |event| {
            let _ = events.send(event.to_string());
            async {}
        });
    let client = options.connect(address(&daemon)).await.unwrap();
    let mut news = client.subscribe("news").await.unwrap();
    // Only the daemon refuses these names.
    let _refused = client.subscribe("$MF.x").await.unwrap();
    client.publish("$MF.x", "".into()).await.unwrap();
    let mut reports = Vec::new();
    while reports.len() < 2 {
        let event = timeout(LIMIT, errors.recv()).await.unwrap().unwrap();
        reports.extend(event.contains("$MF.x").then_some(event));
    }
    assert!(reports[0].contains("Subscription to"), "{reports:?}");
    assert!(reports[1].contains("Publish to"), "{reports:?}");
    client.publish("news", "data".into()).await.unwrap();
    assert_eq!(next_of(&mut news).await.payload, "data".as_bytes());
    assert_eq!(
        client
            .statistics()
            .connects
            .load(std::sync::atomic::Ordering::Relaxed),
        1
    );
}

#[tokio::test]
async fn a_daemon_takes_messages_of_the_length_of_its_file_and_asks_clients_whether_they_live() {
    let config = DaemonConfig {
        payload_bytes_max: 3 << 20,
        ping_interval: Duration::from_millis(100),
        ..config("a", None, Access::Open)
    };
    let daemon = start(config).await.unwrap();
    let client = connect(&daemon).await;
    let mut messages = client.join("long").await.unwrap();
    client.publish("long", vec![7; 3 << 20]).await.unwrap();
    assert_eq!(next(&mut messages).await.payload().len(), 3 << 20);
    let error = client.publish("long", vec![7; (3 << 20) + 1]).await;
    assert!(
        matches!(error, Err(ClientError::TooLong { .. })),
        "{error:?}"
    );
    // A client that answers no PING is disconnected.
    let mut silent = tokio::net::TcpStream::connect(address(&daemon))
        .await
        .unwrap();
    let (mut read, connect) = (Vec::new(), b"CONNECT {}\r\n");
    tokio::io::AsyncWriteExt::write_all(&mut silent, connect)
        .await
        .unwrap();
    let end = tokio::io::AsyncReadExt::read_to_end(&mut silent, &mut read);
    timeout(LIMIT, end).await.unwrap().unwrap();
    assert!(read.ends_with(b"PING\r\nPING\r\n-ERR 'Stale Connection'\r\n"));
}

#[tokio::test]
async fn values_outside_their_ranges_are_refused_by_the_names_of_their_keys() {
    let own = || config("a", None, Access::Open);
    let short = Duration::from_millis(99);
    for (config, key) in [
        (
            DaemonConfig {
                overlay: OverlayConfig {
                    hold: short,
                    ..OverlayConfig::default()
                },
                ..own()
            },
            "hold",
        ),
        (
            DaemonConfig {
                ping_interval: short,
                ..own()
            },
            "ping-interval",
        ),
        (
            DaemonConfig {
                payload_bytes_max: (32 << 20) + 1,
                ..own()
            },
            "max-payload",
        ),
    ] {
        let error = start(config).await.unwrap_err().to_string();
        assert!(error.starts_with(&format!("{key} must be ")), "{error}");
    }
}
