//! Permissions of clients, and attempts of attackers.

use manyflow_live::overlay::{Access, Credentials, User, start};

use crate::overlay::stage::{Nats, config};

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
    let daemon = start(manyflow_live::overlay::DaemonConfig {
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
    let daemon = start(manyflow_live::overlay::DaemonConfig {
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

#[tokio::test]
async fn a_client_that_says_nothing_is_disconnected() {
    let daemon = start(config("a")).await.unwrap();
    let mut client = Nats::open(&daemon).await;
    assert_eq!(client.line().await, "-ERR 'Authentication Timeout'");
    client.closed().await;
}

#[tokio::test]
async fn connections_beyond_the_maximum_are_refused() {
    let daemon = start(manyflow_live::overlay::DaemonConfig {
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
