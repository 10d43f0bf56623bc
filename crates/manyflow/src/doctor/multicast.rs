//! IP multicast: datagrams over loopback, routes, and the versions of IGMP and MLD.

use std::fs;
use std::io;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

use manyflow_net::multicast::{
    Interface, MulticastReceiver, MulticastSender, ReceiverConfig, SenderConfig,
};
use manyflow_net::train::Train;
use tokio::time::timeout;

use super::{Check, Status};

/// A way to receive multicast, with a group that does not leave this host.
struct Probe {
    name: &'static str,
    group: &'static str,
    source: &'static str,
    effect: &'static str,
}

const PROBES: [Probe; 4] = [
    Probe {
        name: "multicast",
        group: "239.255.77.70",
        source: "127.0.0.1",
        effect: "sessions with --multicast 239.x.y.z do not work on this host",
    },
    Probe {
        name: "source-specific",
        group: "232.255.77.70",
        source: "127.0.0.1",
        effect: "sessions with --multicast 232.x.y.z do not work on this host",
    },
    Probe {
        name: "multicast-ipv6",
        group: "ff11::4d46",
        source: "::1",
        effect: "sessions with --multicast ff1x:: do not work",
    },
    Probe {
        name: "source-specific-ipv6",
        group: "ff31::8000:4d46",
        source: "::1",
        effect: "sessions with --multicast ff3x:: do not work",
    },
];

pub(super) async fn checks() -> Vec<Check> {
    let mut checks = Vec::new();
    for probe in &PROBES {
        checks.push(probe.check().await);
    }
    checks.push(route("multicast-route", "232.1.2.3", "232.0.0.0/8"));
    checks.push(route("multicast-route-ipv6", "ff3e::8000:1", "ff00::/8"));
    checks.push(igmp());
    checks.extend(mld());
    checks
}

impl Probe {
    async fn check(&self) -> Check {
        match timeout(Duration::from_secs(1), self.exchange()).await {
            Ok(Ok(())) => Check::ok(self.name, self.success()),
            Ok(Err(error)) => self.unmet(error.to_string()),
            Err(_) => self.unmet(format!(
                "no datagram to {} arrives over loopback",
                self.group
            )),
        }
    }

    fn is_ipv6(&self) -> bool {
        self.group.contains(':')
    }

    fn success(&self) -> String {
        match self.is_ipv6() {
            true => format!("a socket joins {}", self.group),
            false => format!("a datagram to {} arrives over loopback", self.group),
        }
    }

    fn unmet(&self, found: String) -> Check {
        Check::unmet(self.name, Status::Missing, found, self.effect).fix(
            match self.source.contains(':') {
                true => "sudo ip -6 route add multicast ff00::/8 dev lo table local",
                false => "sudo ip link set lo up",
            },
        )
    }

    /// Joins the group on the loopback interface, and sends one datagram to it. Linux does not
    /// carry IPv6 multicast over loopback, so there the join alone is tried.
    async fn exchange(&self) -> anyhow::Result<()> {
        let (group, source): (IpAddr, IpAddr) = (self.group.parse()?, self.source.parse()?);
        let port = UdpSocket::bind((source, 0))?.local_addr()?.port();
        let interface = Some(Interface::Address(source));
        let mut receiver = MulticastReceiver::open(ReceiverConfig {
            source,
            port,
            interface: interface.clone(),
        })?;
        receiver.join(group)?;
        if self.is_ipv6() {
            return Ok(());
        }
        let sender = MulticastSender::open(&SenderConfig {
            interface,
            hop_limit: 0,
            ..SenderConfig::new(group, port)
        })?;
        let _ = sender.send(group, &Train::of(b"doctor"));
        receiver.recv().await?;
        Ok(())
    }
}

/// Asks the routing table for the interface to a group. `connect` on UDP sends nothing.
fn route(name: &'static str, group: &str, range: &str) -> Check {
    let family = if group.contains(':') { "-6 " } else { "" };
    match source_towards(group) {
        Ok(source) => Check::ok(name, format!("packets to {group} leave from {source}")),
        Err(error) => Check::unmet(
            name,
            Status::Limited,
            format!("no route to {group}: {error}"),
            "send and recv need --interface for multicast",
        )
        .fix(format!(
            "sudo ip {family}route add multicast {range} dev INTERFACE"
        )),
    }
}

fn source_towards(group: &str) -> io::Result<IpAddr> {
    let any = if group.contains(':') { "::" } else { "0.0.0.0" };
    let socket = UdpSocket::bind((any, 0))?;
    let group: IpAddr = group.parse().map_err(io::Error::other)?;
    socket.connect((group, 9))?;
    Ok(socket.local_addr()?.ip())
}

/// The version of IGMP on each interface, which the kernel lowers when it hears an older querier.
fn igmp() -> Check {
    const FILE: &str = "/proc/net/igmp";
    let text = match fs::read_to_string(FILE) {
        Ok(text) => text,
        Err(error) => {
            return Check::unmet(
                "igmp",
                Status::Missing,
                format!("{FILE}: {error}"),
                "the kernel has no IP multicast (CONFIG_IP_MULTICAST)",
            );
        }
    };
    judge_igmp(&igmp_versions(&text))
}

fn judge_igmp(versions: &[(String, String)]) -> Check {
    let shown = versions
        .iter()
        .map(|(interface, version)| format!("{interface} IGMP{}", version.to_lowercase()));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let old = versions.iter().find(|(_, version)| version != "V3");
    match old {
        None => Check::ok("igmp", shown),
        Some((interface, version)) => Check::unmet(
            "igmp",
            Status::Limited,
            shown,
            format!(
                "source-specific sessions (232.0.0.0/8) do not pass {interface}: it speaks IGMP{}, because \
                 net.ipv4.conf.{interface}.force_igmp_version or a querier asks for that",
                version.to_lowercase()
            ),
        )
        .fix(format!("sudo sysctl -w net.ipv4.conf.{interface}.force_igmp_version=3")),
    }
}

/// Returns the interfaces of `/proc/net/igmp` with their versions, such as `V3`.
fn igmp_versions(text: &str) -> Vec<(String, String)> {
    // Interfaces have lines such as `4 eth0 : 1 V3`; the groups of an interface are indented below.
    let interfaces = text.lines().skip(1).filter(|line| !line.starts_with('\t'));
    let parsed = interfaces.filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let name = words.next()?.trim_end_matches(':');
        Some((name.to_owned(), words.last()?.to_owned()))
    });
    parsed.collect()
}

/// The interfaces on which an administrator has forced MLDv1; `None` without IPv6.
fn mld() -> Option<Check> {
    let folder = fs::read_dir("/proc/sys/net/ipv6/conf").ok()?;
    let forced = folder.flatten().filter(|interface| {
        let version = fs::read_to_string(interface.path().join("force_mld_version"));
        version.is_ok_and(|version| version.trim() == "1")
    });
    let forced: Vec<_> = forced
        .map(|interface| interface.file_name().to_string_lossy().into_owned())
        .collect();
    Some(match forced.first() {
        None => Check::ok("mld", "no interface is held at MLDv1"),
        Some(interface) => Check::unmet(
            "mld",
            Status::Limited,
            format!("MLDv1 is forced on {}", forced.join(", ")),
            "source-specific sessions (ff3x::/32) do not pass these interfaces",
        )
        .fix(format!(
            "sudo sysctl -w net.ipv6.conf.{interface}.force_mld_version=0"
        )),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const IGMP: &str = "\
Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter
1\tlo        :     1      V3
\t\t\t\t010000E0     1 0:00000000\t\t0
4\teth0      :     2      V2
\t\t\t\t010000E0     1 0:00000000\t\t0
";

    #[test]
    fn an_interface_with_an_older_igmp_is_named() {
        let versions = igmp_versions(IGMP);
        let expected = [("lo", "V3"), ("eth0", "V2")];
        assert_eq!(
            versions,
            expected.map(|(a, b)| (a.to_owned(), b.to_owned()))
        );
        let check = judge_igmp(&versions);
        assert_eq!(check.status, Status::Limited);
        assert!(check.command.unwrap().contains("eth0.force_igmp_version=3"));
        assert_eq!(judge_igmp(&versions[..1]).status, Status::Ok);
    }

    #[tokio::test]
    async fn a_group_without_datagrams_is_missing() {
        let probe = Probe {
            group: "192.0.2.1",
            ..PROBES[0]
        };
        assert_eq!(probe.check().await.status, Status::Missing);
    }
}
