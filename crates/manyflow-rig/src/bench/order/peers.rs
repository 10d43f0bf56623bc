//! The other programs: how they are found, compiled, configured and started.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use manyflow_rig::overlay_lab::Process;
use tempfile::TempDir;

use crate::bench::group::servers::Service;
use crate::bench::lan::{self, BROADCAST, Lan};

const MEMBER_H: &str = include_str!("peers/member.h");
const CPG_C: &str = include_str!("peers/cpg.c");
const SPREAD_C: &str = include_str!("peers/spread.c");
const JGROUPS_JAVA: &str = include_str!("peers/JGroups.java");

/// The messages of a member of Spread that may be under way: its daemon disconnects a client with
/// 1,000 messages that wait for it.
const SPREAD_WINDOW: u32 = 250;

/// A program that orders messages.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// Corosync's closed process groups: a token ring (Totem), with agreed messages.
    Corosync,
    /// Spread's daemons: a token ring.
    Spread(Service),
    /// JGroups with its stack `sequencer.xml`: the coordinator orders all messages.
    Sequencer,
    /// JGroups with its default stack, `udp.xml`: reliable messages in the order of each sender.
    Udp,
}

/// A compiled member, and the files of its daemons.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) folder: TempDir,
    /// The archive of JGroups.
    archive: PathBuf,
}

/// The daemons of a run, which are killed on drop.
pub(super) struct Daemons(pub(super) Vec<Process>);

impl Peer {
    pub(super) fn name(self) -> &'static str {
        match self {
            Peer::Corosync => "Corosync CPG, agreed",
            Peer::Spread(Service::Agreed) => "Spread, agreed",
            Peer::Spread(Service::Safe) => "Spread, safe",
            Peer::Sequencer => "JGroups, SEQUENCER",
            Peer::Udp => "JGroups, UDP, no one order",
        }
    }

    /// Compiles the member.
    ///
    /// # Errors
    /// If the program is not installed, with a hint how to install it, or if it cannot be compiled.
    pub(super) fn build(self) -> Result<Built> {
        let folder = tempfile::tempdir()?;
        let path = |name| folder.path().join(name);
        let mut archive = PathBuf::new();
        fs::write(path("member.h"), MEMBER_H)?;
        let compiled = match self {
            Peer::Corosync => {
                ensure!(
                    is_program("corosync", "-v"),
                    "Corosync is not installed (Debian: apt-get install corosync libcpg-dev)"
                );
                fs::write(path("member.c"), CPG_C)?;
                compile(&folder, &["-lcpg", "-lpthread"])
            }
            Peer::Spread(_) => {
                ensure!(
                    is_program("spread", "-h"),
                    "Spread's daemon `spread` and its library `tspread-core` are not installed"
                );
                fs::write(path("member.c"), SPREAD_C)?;
                compile(&folder, &["-ltspread-core", "-lm", "-ldl", "-lpthread"])
            }
            Peer::Sequencer | Peer::Udp => {
                archive = find_jgroups().context(
                    "JGroups is not installed (mvn dependency:get -Dartifact=org.jgroups:jgroups:5.3.13.Final)",
                )?;
                fs::write(path("JGroups.java"), JGROUPS_JAVA)?;
                let mut javac = Command::new("javac");
                javac.arg("-cp").arg(&archive).arg("-d").arg(folder.path());
                output_of(javac.arg(path("JGroups.java")))
            }
        };
        compiled.context("its member cannot be compiled")?;
        Ok(Built { folder, archive })
    }

    /// Starts a daemon on each host. JGroups has none: its members are the daemons.
    ///
    /// # Errors
    /// If a process cannot be started.
    pub(super) fn start(self, built: &Built, lan: &Lan) -> Result<Daemons> {
        let folder = built.folder.path();
        let config = folder.join("daemons.conf");
        match self {
            Peer::Corosync => fs::write(&config, corosync_conf(lan))?,
            Peer::Spread(_) => fs::write(&config, spread_conf(lan, folder))?,
            Peer::Sequencer | Peer::Udp => return Ok(Daemons(Vec::new())),
        }
        let hosts = lan.hosts().enumerate();
        let start = |(number, host)| {
            let command = match self {
                // Its fixed folders are replaced in the mount namespace of `ip netns exec`.
                Peer::Corosync => {
                    let mut command = lan::in_namespace(host, Path::new("sh"));
                    let script = "mount -t tmpfs none /run && mount -t tmpfs none /var/lib/corosync && exec corosync -f -c \"$0\"";
                    command.args(["-c", script]).arg(&config);
                    command
                }
                _ => {
                    let mut command = lan::in_namespace(host, Path::new("spread"));
                    command
                        .arg("-c")
                        .arg(&config)
                        .args(["-n", &format!("n{number}")]);
                    command
                }
            };
            Process::start(command, &folder.join(format!("{number}.log")))
        };
        Ok(Daemons(hosts.map(start).collect::<Result<_>>()?))
    }

    /// Returns the command of the member on a host, for messages of this size at a rate of all
    /// members together, or as many as possible.
    pub(super) fn member(
        self,
        built: &Built,
        lan: &Lan,
        number: usize,
        (size, rate): (usize, Option<u32>),
    ) -> Result<Command> {
        let members = lan.hosts().count();
        let rate = f64::from(rate.unwrap_or(0)) / members as f64;
        let numbers = [
            number.to_string(),
            members.to_string(),
            size.to_string(),
            rate.to_string(),
        ];
        let host = lan
            .hosts()
            .nth(number)
            .context("the network has too few hosts")?;
        let program = built.folder.path().join("member");
        Ok(match self {
            Peer::Corosync => {
                let mut command = lan::in_namespace(host, &program);
                command.args(numbers).arg("0");
                command
            }
            Peer::Spread(service) => {
                let mut command = lan::in_namespace(host, &program);
                let service = if service == Service::Safe {
                    "safe"
                } else {
                    "agreed"
                };
                command
                    .args(numbers)
                    .args([&SPREAD_WINDOW.to_string(), service]);
                command
            }
            Peer::Sequencer | Peer::Udp => {
                let mut command = lan::in_namespace(host, Path::new("java"));
                let stack = if self == Peer::Udp {
                    "udp.xml"
                } else {
                    "sequencer.xml"
                };
                let classes = format!(
                    "{}:{}",
                    built.archive.display(),
                    built.folder.path().display()
                );
                command.arg(format!("-Djgroups.bind_addr={}", lan::address(number)));
                command.args([
                    "-Djava.net.preferIPv4Stack=true",
                    "-cp",
                    &classes,
                    "JGroups",
                ]);
                command.args(numbers).arg(stack);
                command
            }
        })
    }
}

fn is_program(name: &str, argument: &str) -> bool {
    Command::new(name).arg(argument).output().is_ok()
}

fn compile(folder: &TempDir, libraries: &[&str]) -> Result<()> {
    let path = |name| folder.path().join(name);
    let mut gcc = Command::new("gcc");
    gcc.arg("-O2")
        .arg(path("member.c"))
        .arg("-o")
        .arg(path("member"));
    output_of(gcc.args(libraries))
}

fn output_of(command: &mut Command) -> Result<()> {
    let output = command.output();
    let output =
        output.with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Returns the newest archive of JGroups in Maven's local repository.
fn find_jgroups() -> Option<PathBuf> {
    let home = std::env::var_os("HOME")?;
    let folder = Path::new(&home).join(".m2/repository/org/jgroups/jgroups");
    let versions = fs::read_dir(folder).ok()?.flatten();
    let archives = versions.filter_map(|version| {
        let name = format!("jgroups-{}.jar", version.file_name().to_str()?);
        Some(version.path().join(name))
    });
    archives.filter(|archive| archive.is_file()).max()
}

/// Corosync's defaults, without encryption.
fn corosync_conf(lan: &Lan) -> String {
    let mut text = "totem {\n  version: 2\n  cluster_name: bench\n  transport: knet\n  crypto_cipher: none\n  \
                    crypto_hash: none\n}\nlogging {\n  to_stderr: yes\n  to_syslog: no\n}\nnodelist {\n"
        .to_owned();
    for number in 0..lan.hosts().count() {
        let address = lan::address(number);
        let id = number + 1;
        let _ = writeln!(
            text,
            "  node {{\n    ring0_addr: {address}\n    nodeid: {id}\n    name: n{id}\n  }}"
        );
    }
    text + "}\n"
}

/// Spread's defaults, for daemons on one network.
fn spread_conf(lan: &Lan, folder: &Path) -> String {
    let mut text = format!("Spread_Segment {BROADCAST}:4803 {{\n");
    for number in 0..lan.hosts().count() {
        let _ = writeln!(text, "  n{number} {}", lan::address(number));
    }
    let folder = folder.display();
    text + &format!(
        "}}\nDaemonUser = root\nDaemonGroup = root\nDebugFlags = {{ EXIT }}\nSocketPortReuse = ON\nRuntimeDir = {folder}\n"
    )
}
