//! FRR's `zebra` and `pimd` as the router: PIM and IGMPv3 on both networks.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::{MULTICAST, ThreeHosts, wait_until};
use crate::common::text;
use crate::hosts::{enter, ip};

/// Where Debian installs the daemons.
const DAEMONS: &str = "/usr/lib/frr";
/// Both networks have PIM; IGMP is that of the receivers' network.
const PIMD: &str = "interface upstream\n ip pim\ninterface downstream\n ip pim\n ip igmp\n";

/// The two daemons, which end on drop.
struct Frr {
    daemons: Vec<Child>,
    folder: TempDir,
}

impl Frr {
    /// Starts the daemons in the router's namespace. Prints a message and returns `None` if FRR is
    /// not installed.
    fn start(hosts: &ThreeHosts) -> Option<Frr> {
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
        };
        enter(&hosts.router, || {
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            frr.start_daemon("zebra", "");
            wait_until("zebra listens", || frr.folder.path().join("zserv").exists());
            frr.start_daemon("pimd", PIMD);
        });
        Some(frr)
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
    let Some(_frr) = Frr::start(&hosts) else {
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
