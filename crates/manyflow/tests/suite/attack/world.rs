//! Three hosts on one switch: network namespaces that a test creates.

use std::net::Ipv4Addr;
use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};

use manyflow_testing::{enter, ip, make_namespace, may_make_namespaces};

pub(crate) const SENDER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
pub(crate) const RECEIVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
pub(crate) const ATTACKER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 3);
/// The interface's name on each host.
pub(crate) const INTERFACE: &str = "wire";

/// Length of the longest IP packet. The attacker sends packets of this length without fragments.
const MTU: u32 = 65_535;

/// The sender's, the receiver's and the attacker's namespace, joined by a bridge in a fourth one.
/// They are removed on drop.
pub(crate) struct World {
    prefix: String,
}

impl World {
    /// Creates the namespaces. Prints a message and returns `None` without the right to do so.
    pub(crate) fn new() -> Option<World> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !may_make_namespaces() {
            return None;
        }
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let world = World {
            prefix: format!("manyflow-attack-{}-{number}", id()),
        };
        let switch = world.namespace("switch");
        make_namespace(&switch);
        // Without a querier, a bridge that snoops would forward all groups after a while only.
        ip(&format!(
            "-netns {switch} link add bridge mtu {MTU} type bridge mcast_snooping 0"
        ));
        ip(&format!("-netns {switch} link set bridge up"));
        for (host, address) in HOSTS {
            world.add_host(host, address);
        }
        Some(world)
    }

    fn add_host(&self, host: &str, address: Ipv4Addr) {
        let (namespace, switch) = (self.namespace(host), self.namespace("switch"));
        make_namespace(&namespace);
        ip(&format!(
            "link add {host} mtu {MTU} netns {switch} type veth peer name {INTERFACE} mtu {MTU} netns {namespace}"
        ));
        ip(&format!("-netns {switch} link set {host} master bridge up"));
        ip(&format!(
            "-netns {namespace} address add {address}/24 dev {INTERFACE}"
        ));
        ip(&format!("-netns {namespace} link set lo up"));
        ip(&format!("-netns {namespace} link set {INTERFACE} up"));
    }

    /// Runs `work` on a host. The sockets that it returns remain there.
    pub(crate) fn on<T: Send>(&self, host: Host, work: impl FnOnce() -> T + Send) -> T {
        enter(&self.namespace(HOSTS[host as usize].0), work)
    }

    fn namespace(&self, role: &str) -> String {
        format!("{}-{role}", self.prefix)
    }
}

#[derive(Clone, Copy)]
pub(crate) enum Host {
    Sender,
    Receiver,
    Attacker,
}

/// The hosts' names and addresses, in the order of [`Host`].
const HOSTS: [(&str, Ipv4Addr); 3] = [
    ("sender", SENDER),
    ("receiver", RECEIVER),
    ("attacker", ATTACKER),
];

impl Drop for World {
    fn drop(&mut self) {
        for host in ["switch", "sender", "receiver", "attacker"] {
            // A namespace that was never created is not a failure.
            let _ = Command::new("ip")
                .args(["netns", "delete", &self.namespace(host)])
                .output();
        }
    }
}
