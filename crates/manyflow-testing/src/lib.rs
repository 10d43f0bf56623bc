//! Support of tests that use the network: their time limit, files for thousands of connections, and
//! two hosts on one link, which are network namespaces that a test creates.
//!
//! | module | contents |
//! |---|---|
//! | [`allocations`] | an allocator that counts |
//! | [`programs`] | the workspace's programs under test, files to send, and waiting for conditions |
//! | [`command_lines`] | the form of help and errors, for all commands of a program |
//! | [`nameserver`] | a nameserver with relays of sources |
//! | [`nats`] | a real nats-server |
//! | [`http_stage`] | a service of HTTP servers with members, a switch and a gateway |

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests fail by panicking, and print what they left out"
)]

pub mod allocations;
pub mod command_lines;
pub mod http_stage;
pub mod nameserver;
pub mod nats;
pub mod programs;

use std::fs::File;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::sync::{Mutex, MutexGuard};

/// Time after which a test fails instead of waiting for a condition: longer than a busy machine
/// takes. Tests have no other deadline.
pub const LIMIT: Duration = Duration::from_secs(90);

/// Files that suffice for the test with the most connections, and the tests beside it.
const FILES_WANTED: u64 = 40_000;

/// Raises the number of files that this process may open. The guard has that number. Tests with
/// thousands of connections hold it, so that they do not take each other's files.
pub async fn many_files() -> MutexGuard<'static, u64> {
    static FILES: Mutex<u64> = Mutex::const_new(0);
    let mut files = FILES.lock().await;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // Only root may raise the hard limit.
    let wanted = hard.max(FILES_WANTED);
    *files = match setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted) {
        Ok(()) => wanted,
        Err(_) => setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_or(soft, |()| hard),
    };
    files
}

/// A sender's and a receiver's namespace joined by a veth pair, removed on drop.
pub struct TwoHosts {
    sender: String,
    receiver: String,
}

impl TwoHosts {
    /// The sending host's address.
    pub const SENDER_V4: &str = "10.77.0.1";
    /// The sending host's address.
    pub const SENDER_V6: &str = "fd77::1";
    /// A second address of the sending host, which is not the session's.
    pub const FOREIGN_V4: &str = "10.77.0.3";
    /// A second address of the sending host, which is not the session's.
    pub const FOREIGN_V6: &str = "fd77::3";
    /// The interface's name in both namespaces.
    pub const INTERFACE: &str = "wire";

    /// Creates the namespaces. Prints a message and returns `None` without the right to do so.
    pub fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !may_make_namespaces() {
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |role| format!("manyflow-{}-{number}-{role}", id());
        let hosts = Self {
            sender: name("sender"),
            receiver: name("receiver"),
        };
        let (sender, receiver) = (&hosts.sender, &hosts.receiver);
        for namespace in [sender, receiver] {
            make_namespace(namespace);
            // Without duplicate address detection, an address works immediately.
            enter(namespace, || {
                std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0").unwrap();
            });
        }
        hosts.make_link();
        Some(hosts)
    }

    /// Joins the namespaces by a veth pair, with the addresses of both hosts.
    pub fn make_link(&self) {
        let (sender, receiver) = (&self.sender, &self.receiver);
        let wire = Self::INTERFACE;
        ip(&format!(
            "link add {wire} netns {sender} type veth peer name {wire} netns {receiver}"
        ));
        for (namespace, addresses) in [
            (
                sender,
                vec![
                    Self::SENDER_V4,
                    Self::FOREIGN_V4,
                    Self::SENDER_V6,
                    Self::FOREIGN_V6,
                ],
            ),
            (receiver, vec!["10.77.0.2", "fd77::2"]),
        ] {
            for address in addresses {
                let (length, flags) = if address.contains(':') {
                    (64, "nodad")
                } else {
                    (24, "")
                };
                ip(&format!(
                    "-netns {namespace} address add {address}/{length} dev {wire} {flags}"
                ));
            }
            ip(&format!("-netns {namespace} link set lo up"));
            ip(&format!("-netns {namespace} link set {wire} up"));
        }
        for namespace in [sender, receiver] {
            wait_for_ipv6_multicast(namespace);
        }
    }

    /// Removes the veth pair.
    pub fn remove_link(&self) {
        ip(&format!(
            "-netns {} link delete {}",
            self.receiver,
            Self::INTERFACE
        ));
    }

    /// Runs `work` on the sending host. The sockets that it returns remain there.
    pub fn on_sender<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        enter(&self.sender, work)
    }

    /// Runs `work` on the receiving host.
    pub fn on_receiver<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        enter(&self.receiver, work)
    }
}

/// Returns whether this process may make namespaces. Prints a message if it may not.
pub fn may_make_namespaces() -> bool {
    let status = File::open("/proc/self/status").unwrap();
    let is_root = status.metadata().unwrap().uid() == 0;
    if !is_root {
        println!("skipped: network namespaces need root");
    }
    is_root
}

/// Runs `work` in a namespace. A namespace belongs to a thread, so the work gets its own thread.
pub fn enter<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).unwrap();
    let in_namespace = || {
        setns(file, CloneFlags::CLONE_NEWNET).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(in_namespace).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

impl Drop for TwoHosts {
    fn drop(&mut self) {
        for namespace in [&self.sender, &self.receiver] {
            // Deleting the first namespace removes the veth pair. A namespace that was never
            // created is not a failure.
            let _ = Command::new("ip")
                .args(["netns", "delete", namespace])
                .output();
        }
    }
}

/// Waits for the route that the kernel adds some time after both ends of the link are up.
fn wait_for_ipv6_multicast(namespace: &str) {
    let deadline = Instant::now() + LIMIT;
    let routes = || {
        ip(&format!(
            "-netns {namespace} -6 route show table local type multicast"
        ))
    };
    while !routes().contains(TwoHosts::INTERFACE) {
        assert!(
            Instant::now() < deadline,
            "no IPv6 multicast in {namespace}: {}",
            routes()
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs iproute2's `ip` in the namespace of this thread.
pub fn ip_here(arguments: &str) {
    ip(arguments);
}

/// Makes a network namespace whose name has the number of this process. One that a killed process
/// with the same number has left is removed.
pub fn make_namespace(name: &str) {
    if Path::new("/run/netns").join(name).exists() {
        ip(&format!("netns delete {name}"));
    }
    ip(&format!("netns add {name}"));
}

/// Runs iproute2's `ip` with these arguments, and returns its output.
pub fn ip(arguments: &str) -> String {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "ip {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Shorthand for addresses in tests.
pub fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}
