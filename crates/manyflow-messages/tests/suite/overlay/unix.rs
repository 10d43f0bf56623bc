//! Clients that connect by a Unix socket.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use manyflow_messages::{Client, ClientOptions, DaemonConfig, DaemonError, start};
use manyflow_net::unix_socket::address_of;
use manyflow_testing::LIMIT;

use super::stage::{config, link, wait_for_daemons, within};

fn config_at(name: &str, path: &Path) -> DaemonConfig {
    DaemonConfig {
        clients: Some(address_of(path)),
        ..config(name)
    }
}

async fn connect(address: &str) -> Client {
    let options = ClientOptions {
        connect_timeout: LIMIT,
        ..ClientOptions::default()
    };
    Client::connect(address, &options).await.unwrap()
}

#[tokio::test]
async fn clients_of_a_unix_socket_and_of_tcp_are_members_of_one_group() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let a = start(config_at("a", &path)).await.unwrap();
    let addresses = a.addresses();
    assert_eq!(addresses.client_socket.as_deref(), Some(&*path));
    assert_eq!(addresses.clients, None);
    let mut own = config("b");
    own.links = vec![link("a", addresses.daemons.unwrap())];
    let b = start(own).await.unwrap();
    wait_for_daemons(&a, 2).await;

    let local = connect(&address_of(&path)).await;
    let remote = connect(&b.addresses().clients.unwrap().to_string()).await;
    let mut at_a = local.join("to.a").await.unwrap();
    let mut at_b = remote.join("to.b").await.unwrap();
    // Longer than what the kernel buffers for a Unix socket.
    let long = vec![b'x'; 1 << 19];
    for (sender, members, subject) in [(&remote, &mut at_a, "to.a"), (&local, &mut at_b, "to.b")] {
        let is_known =
            async { while sender.members(subject).await.unwrap().by_daemon.is_empty() {} };
        within(is_known).await;
        sender.publish(subject, long.clone()).await.unwrap();
        let message = within(members.next()).await.unwrap().unwrap();
        assert_eq!(message.payload(), &long[..], "{subject}");
    }
    local.publish("to.a", "own").await.unwrap();
    let message = within(at_a.next()).await.unwrap().unwrap();
    assert_eq!(&message.payload()[..], b"own");
    b.stop().await;
    a.stop().await;
    assert!(!path.exists(), "the file is removed");
}

#[tokio::test]
async fn a_socket_in_use_is_not_taken_and_one_left_behind_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let a = start(config_at("a", &path)).await.unwrap();
    let error = start(config_at("b", &path)).await.unwrap_err();
    assert!(
        matches!(error, DaemonError::Address { key: "clients", .. }),
        "{error}"
    );
    assert!(error.to_string().contains("use"), "{error}");
    connect(&address_of(&path)).await;
    a.stop().await;

    let missing = folder.path().join("no/a.sock");
    let error = start(config_at("a", &missing)).await.unwrap_err();
    assert!(error.to_string().contains("make"), "{error}");
}

#[tokio::test]
async fn what_belongs_to_tcp_is_refused_at_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let advertising = DaemonConfig {
        advertise: Some("192.0.2.1:4222".to_owned()),
        ..config_at("a", &path)
    };
    let error = start(advertising).await.unwrap_err();
    assert!(error.to_string().contains("clients"), "{error}");
    assert!(!path.exists());
}

#[tokio::test]
async fn a_user_without_permission_is_refused_by_the_kernel() {
    let own = std::fs::metadata("/proc/self").unwrap();
    if own.uid() == 0 {
        println!("skipped: root may connect to every socket");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.sock");
    let _a = start(config_at("a", &path)).await.unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o400)).unwrap();
    let refused = Client::connect(&address_of(&path), &ClientOptions::default()).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("owner and mode"), "{error}");
}
