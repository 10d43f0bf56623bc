//! Rights and kernel features that the emulator, relays and XCP links need.

use std::fs;
use std::thread;

use manyflow_emulator::kernel::tcp::CongestionControl;
use manyflow_emulator::netns::Namespace;
use manyflow_emulator::ports::tun::Tun;
use nix::sched::{CloneFlags, unshare};
use socket2::{Domain, Protocol, Socket, Type};

use super::{Check, Status};

/// The bits of capabilities in `/proc/self/status` (linux/capability.h).
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![capabilities(), namespaces(), named_namespaces(), tun()];
    checks.extend(
        [
            CongestionControl::Reno,
            CongestionControl::Cubic,
            CongestionControl::Bbr,
        ]
        .map(congestion_control),
    );
    checks
}

fn capabilities() -> Check {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    judge_capabilities(effective(&status))
}

/// Returns the effective capabilities in the text of `/proc/self/status`; none if the line is
/// missing.
fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

fn judge_capabilities(effective: u64) -> Check {
    let wanted = [
        ("CAP_NET_ADMIN", CAP_NET_ADMIN),
        ("CAP_NET_RAW", CAP_NET_RAW),
    ];
    let missing = wanted.iter().filter(|(_, bit)| effective & (1 << bit) == 0);
    let missing: Vec<_> = missing.map(|(name, _)| *name).collect();
    match missing.is_empty() {
        true => Check::ok("capabilities", "CAP_NET_ADMIN and CAP_NET_RAW"),
        false => Check::unmet(
            "capabilities",
            Status::Missing,
            format!("without {}", missing.join(" and ")),
            "relay --multicast-interface does not work; all else that sends and receives does",
        )
        .fix("sudo setcap cap_net_admin,cap_net_raw+ep \"$(command -v manyflow)\""),
    }
}

/// Makes a network namespace for one thread; it ends with the thread.
fn namespaces() -> Check {
    let made = thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET)).join();
    let error = match made {
        Ok(Ok(())) => return Check::ok("namespaces", "network namespaces can be made"),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the probe failed".to_owned(),
    };
    Check::unmet(
        "namespaces",
        Status::Missing,
        format!("no network namespace: {error}"),
        "emulate, and the benchmarks and tests between hosts, need root",
    )
    .fix("sudo manyflow doctor")
}

fn named_namespaces() -> Check {
    match Namespace::create() {
        Ok(_) => Check::ok("ip-netns", "`ip netns` makes and removes namespaces"),
        Err(error) => Check::unmet(
            "ip-netns",
            Status::Missing,
            error.to_string(),
            "emulate does not work",
        )
        .fix(as_root("sudo apt-get install iproute2")),
    }
}

/// Returns `command` for root, and for others the command that becomes root.
fn as_root(command: &'static str) -> &'static str {
    match manyflow_emulator::check_rights() {
        Ok(()) => command,
        Err(_) => "sudo manyflow doctor",
    }
}

/// Makes a TUN device in a namespace of its own, so that no other program sees it.
fn tun() -> Check {
    let made = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET)?;
        Tun::create("doctor").map(drop)
    });
    let error = match made.join() {
        Ok(Ok(())) => return Check::ok("tun", "TUN devices can be made"),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "the probe failed".to_owned(),
    };
    Check::unmet(
        "tun",
        Status::Missing,
        format!("no TUN device: {error}"),
        "emulate does not work",
    )
    .fix(as_root("sudo modprobe tun"))
}

/// Sets the congestion control of a socket that is never connected. Only those that the kernel has
/// loaded are tried, because trying another one as root would load its module.
fn congestion_control(algorithm: CongestionControl) -> Check {
    let (name, algorithm) = match algorithm {
        CongestionControl::Reno => ("tcp-reno", "reno"),
        CongestionControl::Cubic => ("tcp-cubic", "cubic"),
        CongestionControl::Bbr => ("tcp-bbr", "bbr"),
    };
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let available = available.unwrap_or_default();
    let is_loaded = available.split_whitespace().any(|one| one == algorithm);
    let set = || -> std::io::Result<()> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_tcp_congestion(algorithm.as_bytes())
    };
    let error = match is_loaded.then(set) {
        Some(Ok(())) => return Check::ok(name, format!("sockets can use {algorithm}")),
        Some(Err(error)) => format!("sockets cannot use {algorithm}: {error}"),
        None => format!("not among those of the kernel: {}", available.trim()),
    };
    let command = match is_loaded {
        true => format!(
            "sudo sysctl -w net.ipv4.tcp_allowed_congestion_control='{}'",
            available.trim()
        ),
        false => format!("sudo modprobe tcp_{algorithm}"),
    };
    let effect = format!("emulated scenarios with {algorithm} do not work");
    Check::unmet(name, Status::Missing, error, effect).fix(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_from_the_kernels_mask() {
        let all = "CapPrm:\t000001fffeffffff\nCapEff:\t000001fffeffffff\n";
        assert_eq!(judge_capabilities(effective(all)).status, Status::Ok);
        // Bit 12 alone.
        let check = judge_capabilities(effective("CapEff:\t0000000000001000\n"));
        assert_eq!(check.status, Status::Missing);
        assert_eq!(check.found, "without CAP_NET_RAW");
        assert_eq!(effective(""), 0);
    }
}
