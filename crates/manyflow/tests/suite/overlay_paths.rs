//! Daemons on hosts between which a router carries shorter packets than the hosts: network
//! namespaces, which need root. The tests are skipped without it.

use std::process::id;
use std::sync::atomic::{AtomicU32, Ordering};

use manyflow_testing::{enter, ip, make_namespace, may_make_namespaces};

use crate::common::{Manyflow, manyflow, wait_until};

/// Two hosts `a` and `b` at a router. The interfaces between `b` and the router have another MTU.
/// All are removed on drop.
struct Path {
    prefix: String,
}

impl Path {
    fn new() -> Option<Path> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !may_make_namespaces() {
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = Path {
            prefix: format!("manyflow-path-{}-{number}", id()),
        };
        let router = path.namespace("router");
        make_namespace(&router);
        for (host, net) in [("a", 1), ("b", 2)] {
            let own = path.namespace(host);
            make_namespace(&own);
            ip(&format!(
                "link add to-{host} netns {router} type veth peer name wire netns {own}"
            ));
            ip(&format!(
                "-netns {router} address add 10.79.{net}.1/24 dev to-{host}"
            ));
            ip(&format!(
                "-netns {own} address add 10.79.{net}.2/24 dev wire"
            ));
            ip(&format!("-netns {router} link set to-{host} up"));
            ip(&format!("-netns {own} link set wire up"));
            ip(&format!("-netns {own} link set lo up"));
            ip(&format!("-netns {own} route add default via 10.79.{net}.1"));
        }
        enter(&router, || {
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        });
        Some(path)
    }

    fn namespace(&self, role: &str) -> String {
        format!("{}-{role}", self.prefix)
    }

    fn set_mtu(&self, mtu: u32) {
        for (role, device) in [("router", "to-b"), ("b", "wire")] {
            let namespace = self.namespace(role);
            ip(&format!("-netns {namespace} link set {device} mtu {mtu}"));
        }
    }

    fn start(&self, host: &str, arguments: &[&str]) -> Manyflow {
        let command = manyflow(arguments);
        enter(&self.namespace(host), || Manyflow::start(command))
    }

    /// Starts a daemon on a host, whose clients are on the same host.
    fn daemon(&self, name: &str, arguments: &[&str]) -> Manyflow {
        let own = ["daemon", "--insecure", "--name", name, "-v"];
        let clients = ["--clients", "127.0.0.1:4222"];
        self.start(name, &[&own[..], &clients, arguments].concat())
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        for role in ["router", "a", "b"] {
            // A namespace that was never created is not a failure.
            let _ = std::process::Command::new("ip")
                .args(["netns", "delete", &self.namespace(role)])
                .output();
        }
    }
}

const SERVER: [&str; 2] = ["--server", "127.0.0.1:4222"];

/// Starts a member of a group on a host, which ends after `count` messages.
fn member(path: &Path, host: &str, subject: &str, count: &str) -> Manyflow {
    let arguments = ["sub", subject, "--json", "--count", count];
    let mut member = path.start(host, &[&arguments[..], &SERVER].concat());
    member.wait_for(|line| line.contains("joined").then_some(()));
    member
}

fn publish(path: &Path, host: &str, arguments: &[&str]) -> Manyflow {
    path.start(host, &[&["pub"][..], arguments, &SERVER].concat())
}

/// Sends messages from each host to the other. `mid_transfer` is called while the first are on
/// their way.
fn exchange(path: &Path, size: &str, mid_transfer: impl Fn()) {
    for (from, to) in [("a", "b"), ("b", "a")] {
        let data = member(path, to, "data", "40");
        let probed = member(path, to, "probe", "1");
        // Joins arrive in their order, so the first is known when the second is.
        wait_until("the join has arrived", || {
            publish(path, from, &["probe", "x"])
                .finish()
                .succeeded("pub");
            probed.lines().iter().any(|line| line.contains("message"))
        });
        let arguments = ["data", "--size", size, "--count", "20"];
        let first = publish(path, from, &arguments);
        mid_transfer();
        first.finish().succeeded("pub");
        publish(path, from, &arguments).finish().succeeded("pub");
        data.finish().succeeded("sub");
    }
}

fn messages_pass_under(controller: &str) {
    let Some(path) = Path::new() else { return };
    path.set_mtu(1492);
    let flow = ["--controller", controller];
    let listen = ["--listen", "10.79.1.2:4747"];
    let _a = path.daemon("a", &[&flow[..], &listen].concat());
    let link = ["--link", "a=10.79.1.2:4747", "--listen", "10.79.2.2:4747"];
    let mut b = path.daemon("b", &[&flow[..], &link].concat());
    b.wait_for_message("a link is up");
    for mtu in [1460, 1420, 1280] {
        exchange(&path, "10B", || ());
        exchange(&path, "100KB", || path.set_mtu(mtu));
    }
    exchange(&path, "1MB", || ());
}

#[test]
fn messages_of_any_size_pass_a_path_whose_mtu_falls_under_tfrc() {
    messages_pass_under("tfrc");
}

#[test]
fn messages_of_any_size_pass_a_path_whose_mtu_falls_under_cost_benefit() {
    messages_pass_under("cost-benefit");
}
