//! Two networks with IP multicast and a router between them: `manyflow relay`, FRR, or a bridge of
//! the kernel. They are network namespaces, which need root; the tests are skipped without it.

mod bridge;
use crate::common;
mod frr;
mod relay;

use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Manyflow, assert_same, folder_with_file, manyflow, text, wait_until};
use manyflow_testing::{enter, ip, make_namespace, may_make_namespaces};
use tempfile::TempDir;

/// The options of a sender on the first network.
const MULTICAST: &[&str] = &["--multicast", "232.1.2.0/24", "--interface", "wire"];

/// A sender, a router and a receiver, each in a namespace: the router is on two networks. Nothing
/// else forwards packets between them.
struct ThreeHosts {
    sender: String,
    router: String,
    receiver: String,
    folder: TempDir,
}

impl ThreeHosts {
    fn new() -> Option<ThreeHosts> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !may_make_namespaces() {
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |role| format!("manyflow-{}-{number}-{role}", id());
        let hosts = ThreeHosts {
            sender: name("sender"),
            router: name("router"),
            receiver: name("receiver"),
            folder: folder_with_file(1_500_000),
        };
        let (sender, router, receiver) = (&hosts.sender, &hosts.router, &hosts.receiver);
        for namespace in [sender, router, receiver] {
            make_namespace(namespace);
            ip(&format!("-netns {namespace} link set lo up"));
        }
        for (host, near, far, network) in [
            (sender, "wire", "upstream", 77),
            (receiver, "wire", "downstream", 78),
        ] {
            ip(&format!(
                "link add {near} netns {host} type veth peer name {far} netns {router}"
            ));
            for (namespace, interface, last) in [(host, near, 2), (router, far, 1)] {
                ip(&format!(
                    "-netns {namespace} address add 10.{network}.0.{last}/24 dev {interface}"
                ));
                ip(&format!("-netns {namespace} link set {interface} up"));
            }
            // Reverse path filtering expects the source behind this interface.
            ip(&format!(
                "-netns {host} route add default via 10.{network}.0.1"
            ));
        }
        Some(hosts)
    }

    /// Starts a sender, which writes its description.
    fn send(&self, arguments: &[&str]) -> Manyflow {
        let description = self.description();
        let mut command = manyflow(&["send", "file"]);
        if !arguments.contains(&"--rate") {
            command.args(["--rate", "20Mbit/s"]);
        }
        command.args(["--session", &description]);
        command.args(arguments).current_dir(self.folder.path());
        let sender = enter(&self.sender, || Manyflow::start(command));
        common::wait_for_file(description.as_ref());
        sender
    }

    fn description(&self) -> String {
        format!("{}.sdp", text(self.folder.path()))
    }

    /// Receives the file and compares it.
    fn receive(&self, arguments: &[&str]) {
        let output = tempfile::tempdir().unwrap();
        let mut command = manyflow(&["recv", &self.description()]);
        command.args(["--output", text(output.path())]);
        command.args(arguments);
        let receiver = enter(&self.receiver, || Manyflow::start(command));
        receiver.finish().succeeded("receiver");
        assert_same(self.folder.path(), output.path(), "receiver");
    }
}

/// A second router between the first one and the receiver, removed on drop.
struct SecondRouter {
    namespace: String,
}

impl SecondRouter {
    fn insert(hosts: &ThreeHosts) -> SecondRouter {
        let (first, receiver) = (&hosts.router, &hosts.receiver);
        let namespace = format!("{first}-2");
        let second = &namespace;
        make_namespace(second);
        ip(&format!("-netns {second} link set lo up"));
        ip(&format!("-netns {first} link delete downstream"));
        for (host, near, far, network) in [
            (first, "downstream", "upstream", 79),
            (receiver, "wire", "downstream", 78),
        ] {
            ip(&format!(
                "link add {near} netns {host} type veth peer name {far} netns {second}"
            ));
            let lasts = if host == first { (1, 2) } else { (2, 1) };
            for (namespace, interface, last) in [(host, near, lasts.0), (second, far, lasts.1)] {
                ip(&format!(
                    "-netns {namespace} address add 10.{network}.0.{last}/24 dev {interface}"
                ));
                ip(&format!("-netns {namespace} link set {interface} up"));
            }
        }
        ip(&format!(
            "-netns {receiver} route add default via 10.78.0.1"
        ));
        // pimd does not look sources up by a default route.
        ip(&format!(
            "-netns {second} route add 10.77.0.0/24 via 10.79.0.1"
        ));
        ip(&format!(
            "-netns {first} route add 10.78.0.0/24 via 10.79.0.2"
        ));
        SecondRouter { namespace }
    }
}

impl Drop for SecondRouter {
    fn drop(&mut self) {
        // It may not exist.
        let _ = Command::new("ip")
            .args(["netns", "delete", &self.namespace])
            .output();
    }
}

#[test]
fn both_ends_say_that_a_ttl_of_1_passes_no_router() {
    let Some(hosts) = ThreeHosts::new() else {
        return;
    };
    let mut sender = hosts.send(MULTICAST);
    sender.wait_for(|line| {
        line.contains("TTL 1, which no router forwards")
            .then_some(())
    });
    let output = tempfile::tempdir().unwrap();
    let mut command = manyflow(&["recv", &hosts.description(), "--patience", "1s"]);
    command.args(["--output", text(output.path())]);
    let receiver = enter(&hosts.receiver, || Manyflow::start(command));
    let ended = receiver.finish();
    assert_eq!(ended.code(), 3, "{ended:?}");
    let said = "states a TTL of 1, which no router forwards, and the source 10.77.0.2 is not on";
    assert!(ended.stderr.contains(said), "{ended:?}");
}

impl Drop for ThreeHosts {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.description());
        for namespace in [&self.sender, &self.router, &self.receiver] {
            // A namespace that was never created is not a failure.
            let _ = Command::new("ip")
                .args(["netns", "delete", namespace])
                .output();
        }
    }
}
