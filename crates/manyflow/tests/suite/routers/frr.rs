//! FRR's `zebra` and `pimd` as the router: PIM and IGMPv3 on both networks.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use manyflow_testing::{enter, ip};
use tempfile::TempDir;

use super::{MULTICAST, SecondRouter, ThreeHosts, wait_until};
use crate::common::{Manyflow, PATIENT, assert_same, manyflow, text};

/// Where Debian installs the daemons.
const DAEMONS: &str = "/usr/lib/frr";
/// Both networks have PIM; IGMP is that of the receivers' network.
const PIMD: &str = "interface upstream\n ip pim\ninterface downstream\n ip pim\n ip igmp\n";

/// The two daemons, which end on drop.
struct Frr {
    daemons: Vec<Child>,
    folder: TempDir,
    namespace: String,
}

impl Frr {
    /// Starts the daemons in the router's namespace. Prints a message and returns `None` if FRR is
    /// not installed.
    fn start(namespace: &str) -> Option<Frr> {
        if !Path::new(DAEMONS).join("pimd").exists() {
            println!("skipped: there is no FRR (Debian: frr)");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // The daemons run as a user of their own.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let mut frr = Frr {
            daemons: Vec::new(),
            folder,
            namespace: namespace.to_owned(),
        };
        enter(namespace, || {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            frr.start_daemon("zebra", "");
            wait_until("zebra listens", || frr.folder.path().join("zserv").exists());
            frr.start_daemon("pimd", PIMD);
        });
        Some(frr)
    }

    /// Kills `pimd`, so that it forgets all joins, and starts it again.
    fn restart_pimd(&mut self) {
        let mut pimd = self.daemons.pop().unwrap();
        pimd.kill().unwrap();
        pimd.wait().unwrap();
        let namespace = self.namespace.clone();
        enter(&namespace, || self.start_daemon("pimd", PIMD));
    }

    fn start_daemon(&mut self, name: &str, configuration: &str) {
        let folder = self.folder.path();
        let file = |ending: &str| folder.join(format!("{name}.{ending}"));
        fs::write(file("conf"), configuration).unwrap();
        let mut command = Command::new(Path::new(DAEMONS).join(name));
        // No port for a terminal, and its sockets in our folder.
        command.args(["-P", "0", "--vty_socket", text(folder)]);
        command.args(["-z", text(&folder.join("zserv"))]);
        command.args(["-f", text(&file("conf")), "-i", text(&file("pid"))]);
        let log = fs::File::create(file("log")).unwrap();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.daemons.push(command.spawn().unwrap());
    }
}

impl Drop for Frr {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // It may have ended.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

#[test]
fn a_receiver_joins_and_leaves_through_pimd() {
    let Some(hosts) = ThreeHosts::new() else {
        return;
    };
    let Some(_frr) = Frr::start(&hosts.router) else {
        return;
    };
    let routes = || ip(&format!("-netns {} mroute show", hosts.router));
    let forwards = || routes().contains("Oifs: downstream");
    let _sender = hosts.send(&[MULTICAST, &["--ttl", "3"]].concat());
    // Before that, the router does not know where the source is.
    let source = Ipv4Addr::new(10, 77, 0, 2).to_string();
    wait_until("pimd sees the source", || routes().contains(&source));
    assert!(!forwards(), "{}", routes());
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| hosts.receive(&["--interface", "wire"]));
        wait_until("pimd forwards", || forwards() || receiver.is_finished());
    });
    wait_until("pimd forwards nothing", || !forwards());
}

/// The groups that a router forwards to its network `downstream`.
fn forwards(router: &str) -> bool {
    ip(&format!("-netns {router} mroute show")).contains("Oifs: downstream")
}

#[test]
fn a_transfer_goes_on_after_the_first_of_two_routers_was_restarted() {
    let Some(hosts) = ThreeHosts::new() else {
        return;
    };
    let second = SecondRouter::insert(&hosts);
    let (Some(mut first), Some(_second)) =
        (Frr::start(&hosts.router), Frr::start(&second.namespace))
    else {
        return;
    };
    let slow = ["--ttl", "4", "--rate", "4Mbit/s"];
    let _sender = hosts.send(&[MULTICAST, &slow].concat());
    let output = tempfile::tempdir().unwrap();
    let mut command = manyflow(&["recv", &hosts.description(), "--json", "--output"]);
    command.arg(output.path()).args(PATIENT);
    let mut receiver = enter(&hosts.receiver, || Manyflow::start(command));
    receiver.wait_for(|line| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        (event["bytes"].as_u64()? > 100_000).then_some(())
    });
    assert!(forwards(&hosts.router) && forwards(&second.namespace));
    first.restart_pimd();
    receiver.finish().succeeded("receiver");
    assert_same(hosts.folder.path(), output.path(), "receiver");
}
