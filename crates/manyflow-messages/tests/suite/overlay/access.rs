//! Permissions of clients, and attempts of attackers.

use std::net::SocketAddr;

use manyflow_messages::{Access, Credentials, DaemonConfig, User, start};
use manyflow_overlay::OverlayConfig;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpSocket;

use crate::overlay::stage::{Nats, config, wait_until, within};

fn users() -> Access {
    let password = Credentials::Password {
        name: "ann".to_owned(),
        password: "secret".to_owned(),
    };
    Access::Users(vec![User {
        publish: Some(vec!["a.*".to_owned()]),
        subscribe: Some(vec!["a.>".to_owned()]),
        ..User::new(password)
    }])
}

#[tokio::test]
async fn clients_with_wrong_credentials_are_refused() {
    let daemon = start(manyflow_messages::DaemonConfig {
        access: users(),
        ..config("a")
    });
    let daemon = daemon.await.unwrap();
    for options in [
        "{}",
        r#"{"user":"ann","pass":"wrong"}"#,
        r#"{"auth_token":"secret"}"#,
    ] {
        let mut client = Nats::open(&daemon).await;
        client.send(&format!("CONNECT {options}\r\n")).await;
        assert_eq!(client.line().await, "-ERR 'Authorization Violation'");
        client.closed().await;
    }
    let mut client = Nats::open(&daemon).await;
    client.send("SUB a.b 1\r\n").await;
    assert_eq!(client.line().await, "-ERR 'Authorization Violation'");
}

#[tokio::test]
async fn clients_publish_and_subscribe_only_where_they_may() {
    let daemon = start(manyflow_messages::DaemonConfig {
        access: users(),
        ..config("a")
    });
    let daemon = daemon.await.unwrap();
    let options = r#"{"verbose":false,"user":"ann","pass":"secret"}"#;
    let mut client = Nats::connect_with(&daemon, options).await;
    client.send("PUB b 1\r\nx\r\n").await;
    let error = "-ERR 'Permissions Violation for Publish to \"b\"'";
    assert_eq!(client.line().await, error);
    client.send("SUB > 1\r\n").await;
    let error = "-ERR 'Permissions Violation for Subscription to \">\"'";
    assert_eq!(client.line().await, error);
    client.send("SUB a.> 2\r\nPUB a.b 2\r\nok\r\n").await;
    assert_eq!(client.message().await.1, b"ok");
}

#[tokio::test]
async fn bytes_that_are_no_operations_end_the_connection() {
    let daemon = start(config("a")).await.unwrap();
    for (bytes, error) in [
        (
            "GET / HTTP/1.1\r\n\r\n",
            "-ERR 'Unknown Protocol Operation'",
        ),
        ("PUB a 99999999\r\n", "-ERR 'Maximum Payload Violation'"),
    ] {
        let mut client = Nats::connect(&daemon).await;
        client.send(bytes).await;
        assert_eq!(client.line().await, error);
        client.closed().await;
    }
    let mut client = Nats::connect(&daemon).await;
    client.send(&"S".repeat(5000)).await;
    assert_eq!(client.line().await, "-ERR 'Maximum Control Line Exceeded'");
}

/// Publishers that count characters or forge messages are disconnected. A subscriber sees none of
/// these bytes, and gets the next message.
#[tokio::test]
async fn bytes_behind_a_payload_reach_no_subscriber() {
    let daemon = start(config("a")).await.unwrap();
    let mut subscriber = Nats::connect(&daemon).await;
    subscriber.send_and_wait("SUB a.> 1\r\n").await;
    for bytes in [
        "PUB a.low 3\r\nf\u{fc}r\r\n",
        "PUB a.low 2\r\nhiMSG orders.buy 1 1\r\nx\r\n",
        "HPUB a.low 12 14\r\nNATS/1.0\r\n\r\nhi\n\n",
        "HPUB a.low 10 12\r\nno headershi\r\n",
    ] {
        let mut publisher = Nats::connect(&daemon).await;
        publisher.send(bytes).await;
        let error = "-ERR 'Unknown Protocol Operation'";
        assert_eq!(publisher.line().await, error, "{bytes:?}");
        publisher.closed().await;
    }
    let mut publisher = Nats::connect(&daemon).await;
    publisher.send_and_wait("PUB a.good 5\r\nafter\r\n").await;
    let (line, payload) = subscriber.message().await;
    assert_eq!(
        (line.as_str(), &payload[..]),
        ("MSG a.good 1 5", &b"after"[..])
    );
}

#[tokio::test]
async fn names_that_other_clients_would_misread_or_daemons_not_announce_are_refused() {
    let daemon = start(config("a")).await.unwrap();
    let mut client = Nats::connect(&daemon).await;
    let long = "a".repeat(1_025);
    for (operation, error) in [
        (
            "PUB a\x0bb 1\r\nx\r\n",
            r#"Publish to "a\x0bb": invalid subject"#,
        ),
        (
            "PUB a a\x0cb 1\r\nx\r\n",
            r#"Publish to "a": invalid reply subject"#,
        ),
        (
            "SUB a\0b 1\r\n",
            r#"Subscription to "a\x00b": invalid subject"#,
        ),
        (
            "SUB a q\x0b 1\r\n",
            r#"Subscription to "a" using queue "q\x0b": invalid subject"#,
        ),
        (&format!("SUB {long} 1\r\n"), "Subscription to \"aaa"),
        (
            &format!("SUB a {long} 1\r\n"),
            "Subscription to \"a\" using queue \"aaa",
        ),
    ] {
        client.send(operation).await;
        let line = client.line().await;
        let begin = format!("-ERR 'Permissions Violation for {error}");
        assert!(line.starts_with(&begin), "{operation:?}: {line}");
    }
    client.send("CONNECT {broken\r\n").await;
    assert_eq!(client.line().await, "-ERR 'Invalid CONNECT options'");
    client.closed().await;
}

#[tokio::test]
async fn options_of_connect_are_read_as_nats_server_does() {
    let daemon = start(config("a")).await.unwrap();
    for options in [
        r#"{"verbose":null,"pedantic":null,"user":null,"protocol":null,"echo":null}"#,
        r#"{"verbose":true,"verbose":false}"#,
        r#"{"Verbose":false,"Protocol":1}"#,
        r#"  { "name" : "a" , "tls_required" : false , "later" : [{}] }"#,
    ] {
        let mut client = Nats::open(&daemon).await;
        client
            .send(&format!("CONNECT {options}\r\nSUB a 1\r\nPUB a 1\r\nx\r\n"))
            .await;
        assert_eq!(client.message().await.1, b"x", "{options}");
    }
    let mut client = Nats::open(&daemon).await;
    client.send("CONNECT {\"Verbose\":true}\r\n").await;
    assert_eq!(client.line().await, "+OK");
    for options in [
        "[]",
        "null",
        r#"{"verbose":"x"}"#,
        r#"{"protocol":"1"}"#,
        "{} {}",
    ] {
        let mut client = Nats::open(&daemon).await;
        client.send(&format!("CONNECT {options}\r\n")).await;
        assert_eq!(client.line().await, "-ERR 'Invalid CONNECT options'");
    }
}

#[tokio::test]
async fn only_clients_that_may_subscribe_learn_the_members_of_a_group() {
    let daemon = start(manyflow_messages::DaemonConfig {
        access: users(),
        ..config("a")
    });
    let daemon = daemon.await.unwrap();
    let options = r#"{"verbose":false,"user":"ann","pass":"secret"}"#;
    let mut client = Nats::connect_with(&daemon, options).await;
    client
        .send("SUB a.inbox 1\r\nPUB $MF.members.b a.inbox 0\r\n\r\n")
        .await;
    let error = "-ERR 'Permissions Violation for Subscription to \"b\"'";
    assert_eq!(client.line().await, error);
    client.send("PUB $MF.members.a.b a.inbox 0\r\n\r\n").await;
    let (line, _) = client.message().await;
    assert!(line.starts_with("MSG a.inbox 1 "), "{line}");
}

#[tokio::test]
async fn a_client_that_says_nothing_is_disconnected() {
    let daemon = start(config("a")).await.unwrap();
    let mut client = Nats::open(&daemon).await;
    assert_eq!(client.line().await, "-ERR 'Authentication Timeout'");
    client.closed().await;
}

#[tokio::test]
async fn connections_beyond_the_maximum_are_refused() {
    let daemon = start(manyflow_messages::DaemonConfig {
        connections_max: 1,
        ..config("a")
    });
    let daemon = daemon.await.unwrap();
    let _first = Nats::connect(&daemon).await;
    let address = daemon.addresses().clients.unwrap();
    let mut second = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut text = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut second, &mut text)
        .await
        .unwrap();
    assert_eq!(text, "-ERR 'maximum connections exceeded'\r\n");
}

/// Tries a password from an address of this machine's loopback network. Returns the answer.
async fn guess(to: SocketAddr, last: u8, pass: &str) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    let from = SocketAddr::from(([127, 0, 0, last], 0));
    socket.bind(from).unwrap();
    let mut socket = socket.connect(to).await.unwrap();
    let connect = format!("CONNECT {{\"user\":\"ann\",\"pass\":\"{pass}\"}}\r\nPING\r\n");
    socket.write_all(connect.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(socket).lines();
    let info = within(lines.next_line()).await.unwrap();
    assert!(info.unwrap().starts_with("INFO"));
    within(lines.next_line()).await.unwrap().unwrap()
}

#[tokio::test]
async fn an_address_that_guesses_passwords_has_few_guesses_and_keeps_no_other_address_out() {
    let config = DaemonConfig {
        access: users(),
        ..config("a")
    };
    let daemon = start(config).await.unwrap();
    let to = daemon.addresses().clients.unwrap();
    assert_eq!(guess(to, 78, "secret").await, "PONG");
    for number in 0..200 {
        let answer = guess(to, 78, &format!("guess{number}")).await;
        assert_eq!(answer, "-ERR 'Authorization Violation'");
    }
    // Four guesses a second are checked, so that this one may be.
    let mut refused = 0;
    for _ in 0..20 {
        refused += u32::from(guess(to, 78, "secret").await != "PONG");
    }
    println!("{refused} of 20 right passwords from the guesser's address were refused");
    assert_eq!(guess(to, 79, "secret").await, "PONG");
    wait_until(&daemon, |status| {
        status.counters.refused_credentials == 200 + u64::from(refused)
    })
    .await;
}

#[tokio::test]
async fn the_subscriptions_of_one_user_leave_room_for_those_of_others() {
    let user = |name: &str, subscribe: &str| User {
        subscribe: Some(vec![subscribe.to_owned()]),
        ..User::new(Credentials::Password {
            name: name.to_owned(),
            password: "secret".to_owned(),
        })
    };
    let config = DaemonConfig {
        access: Access::Users(vec![user("greedy", "news.*"), user("ann", ">")]),
        overlay: OverlayConfig {
            state_bytes: 4_000_000,
            ..OverlayConfig::default()
        },
        ..config("a")
    };
    let daemon = start(config).await.unwrap();
    let options = |name: &str| format!("{{\"user\":\"{name}\",\"pass\":\"secret\"}}");
    let mut ann = Nats::connect_with(&daemon, &options("ann")).await;
    ann.send_and_wait("SUB before 1\r\n").await;
    // Each takes as much as it can, and keeps that.
    let mut greedy = Vec::new();
    for client in 0..3 {
        let mut own = Nats::connect_with(&daemon, &options("greedy")).await;
        let mut taken = 0;
        loop {
            let name = format!("news.{client}-{taken}");
            own.send(&format!("SUB {name} {taken}\r\nPING\r\n")).await;
            let line = own.line().await;
            if line != "PONG" {
                let error = format!("Subscription to \"{name}\": maximum subscriptions exceeded'");
                assert!(line.ends_with(&error), "{line}");
                assert_eq!(own.line().await, "PONG");
                break;
            }
            taken += 1;
        }
        greedy.push((own, taken));
    }
    let taken: Vec<_> = greedy.iter().map(|(_, taken)| *taken).collect();
    assert!(taken[0] > taken[1] && taken[2] > 5, "{taken:?}");
    let mut other = Nats::connect_with(&daemon, &options("ann")).await;
    other.send_and_wait("SUB after 1\r\n").await;
    ann.send("PUB after 2\r\nok\r\nPUB before 2\r\nok\r\n")
        .await;
    assert_eq!(other.message().await.1, b"ok");
    assert_eq!(ann.message().await.1, b"ok");
    wait_until(&daemon, |status| status.counters.refused_subscriptions == 3).await;
}
