//! Users who sign a nonce, and users by their certificates.

use manyflow_messages::{Access, DaemonConfig, DaemonHandle, Nkey, User, start};
use nkeys::KeyPair;
use serde_json::Value;

use crate::overlay::stage::{Nats, config, within};

/// Returns a user who may do what is below its subject only.
fn user_below(subject: &str, proof: Nkey) -> User {
    let all = Some(vec![format!("{subject}.>")]);
    User {
        publish: all.clone(),
        subscribe: all,
        ..User::new(proof)
    }
}

async fn start_for(users: Vec<User>) -> DaemonHandle {
    let config = DaemonConfig {
        access: Access::Users(users),
        ..config("a")
    };
    start(config).await.unwrap()
}

fn key_of(pair: &KeyPair) -> Nkey {
    pair.public_key().parse().unwrap()
}

#[tokio::test]
async fn async_nats_connects_with_a_seed_and_has_the_rights_of_its_user() {
    let [ann, bob, stranger] = [(); 3].map(|()| KeyPair::new_user());
    let users = [("a", &ann), ("b", &bob)];
    let users = users.map(|(subject, pair)| user_below(subject, key_of(pair)));
    let daemon = start_for(users.into()).await;
    let address = daemon.addresses().clients.unwrap().to_string();
    let connect = async |pair: &KeyPair| {
        let options = async_nats::ConnectOptions::with_nkey(pair.seed().unwrap());
        within(options.connect(&address)).await
    };
    let client = connect(&ann).await.unwrap();
    let mut own = client.subscribe("a.>").await.unwrap();
    client.publish("b.x", "no".into()).await.unwrap();
    client.publish("a.x", "yes".into()).await.unwrap();
    let next = std::future::poll_fn(|context| {
        futures_core::Stream::poll_next(std::pin::Pin::new(&mut own), context)
    });
    assert_eq!(within(next).await.unwrap().payload, "yes");
    let connz = daemon.monitor().page("/connz", "auth=1").await.json;
    assert!(connz.contains(&ann.public_key()), "{connz}");
    assert!(connect(&bob).await.is_ok());
    let error = connect(&stranger).await.unwrap_err();
    assert!(error.to_string().contains("authorization"), "{error}");
}

/// Reads INFO of a new connection.
async fn info(daemon: &DaemonHandle) -> Value {
    let address = daemon.addresses().clients.unwrap();
    let socket = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut line = String::new();
    let mut reader = tokio::io::BufReader::new(socket);
    let read = tokio::io::AsyncBufReadExt::read_line(&mut reader, &mut line);
    within(read).await.unwrap();
    serde_json::from_str(line.strip_prefix("INFO ").unwrap()).unwrap()
}

#[tokio::test]
async fn each_connection_has_a_nonce_if_there_are_users_with_keys() {
    let daemon = start_for(vec![User::new(key_of(&KeyPair::new_user()))]).await;
    let nonces = [info(&daemon).await, info(&daemon).await];
    let nonces = nonces.map(|info| info["nonce"].as_str().unwrap().to_owned());
    assert!(
        nonces[0] != nonces[1] && nonces[0].len() >= 15,
        "{nonces:?}"
    );
    let without = start(config("b")).await.unwrap();
    assert!(info(&without).await.get("nonce").is_none());
}

#[tokio::test]
async fn a_client_with_a_jwt_learns_why_it_is_refused() {
    let daemon = start_for(vec![User::new(key_of(&KeyPair::new_user()))]).await;
    let mut client = Nats::open(&daemon).await;
    let connect = r#"CONNECT {"jwt":"eyJ0eXAiOiJKV1QifQ.e30.AA","sig":"AA"}"#;
    client.send(&format!("{connect}\r\n")).await;
    let error = "-ERR 'Authorization Violation: a daemon reads no JWT, give its file the public nkey of the user'";
    assert_eq!(client.line().await, error);
    client.closed().await;
}
