//! One transfer of a file, by our own programs, UFTP or udpcast.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::UsageWho;

use super::process::{LIMIT, Running, wait_for_all};
use crate::bench::cpu;
use crate::bench::lan::{INTERFACE, Lan, RelayHost, UPSTREAM, in_namespace};
use crate::bench::profile;
use crate::cli::SendOptions;

/// The bytes of a packet of UFTP by default.
const UFTP_BLOCK: u64 = 1_300;

/// The bytes of a packet of udpcast by default.
const UDPCAST_BLOCK: u64 = 1_456;

/// A program that transfers files.
#[derive(Copy, Clone, Debug, PartialEq)]
pub(super) enum Program {
    /// `manyflow send` and `recv`, with these options.
    Ours(SendOptions),
    /// UFTP without congestion control, as fast as it can.
    UftpUnlimited,
    /// UFTP with TFMCC.
    UftpTfmcc,
    /// UFTP at 800 Mbit/s.
    UftpFixed,
    /// udpcast in a switched network, which waits for its receivers.
    Udpcast,
}

/// The measurements of one transfer.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    /// The time of each receiver, from the start to the complete file.
    pub(super) seconds: Vec<f64>,
    /// The bytes that the link to each receiver carried until that receiver was done.
    pub(super) carried: Vec<u64>,
    /// The bytes that the sender's link carried until all were done; 0 if that link has no limit.
    pub(super) sent: u64,
    /// Processor time for each packet, in microseconds; of the receivers, for each of them.
    pub(super) sender_us: f64,
    pub(super) receiver_us: f64,
}

impl Measured {
    pub(super) fn slowest_s(&self) -> f64 {
        self.seconds.iter().copied().fold(0.0, f64::max)
    }

    /// The bytes on the receivers' link that carried the most.
    pub(super) fn most_carried(&self) -> u64 {
        self.carried.iter().copied().max().unwrap_or(0)
    }
}

impl SendOptions {
    /// Returns the options of `manyflow send` on the sender of `lan`.
    fn arguments(self, lan: &Lan) -> Vec<String> {
        let mut arguments = Vec::new();
        if let Some(rate) = self.rate {
            arguments.push(format!("--rate={}bit/s", rate.bits_per_s()));
        }
        if self.multicast {
            arguments.push("--multicast=232.1.2.0/24".to_owned());
            arguments.push(format!("--interface={INTERFACE}"));
            arguments.push(format!("--publish={}:0", lan.sender_address));
        }
        arguments
    }

    fn name(self) -> String {
        let way = if self.multicast {
            "multicast"
        } else {
            "send FILE"
        };
        let rate = self.rate.map(|rate| format!(", {rate}"));
        format!("manyflow, {way}{}", rate.unwrap_or_default())
    }
}

impl Program {
    pub(super) fn name(self) -> String {
        match self {
            Program::Ours(options) => options.name(),
            Program::UftpUnlimited => "uftp, no rate control".to_owned(),
            Program::UftpTfmcc => "uftp, TFMCC".to_owned(),
            Program::UftpFixed => "uftp, 800 Mbit/s".to_owned(),
            Program::Udpcast => "udpcast".to_owned(),
        }
    }

    /// Whether it is the program whose rate ours is compared with.
    pub(super) fn is_reference(self) -> bool {
        matches!(self, Program::UftpUnlimited | Program::UftpFixed)
    }

    pub(super) fn is_installed(self) -> bool {
        let program = match self {
            Program::Ours(..) => return true,
            Program::UftpUnlimited | Program::UftpTfmcc | Program::UftpFixed => "uftp",
            Program::Udpcast => "udp-sender",
        };
        let mut command = Command::new(program);
        command
            .arg("--license")
            .stdin(Stdio::null())
            .output()
            .is_ok()
    }
}

/// Transfers `file` from the sender to all receivers of `lan`, to new folders in `folder`, over the
/// relays of `lan`. Our own programs leave profiles in the folder `profiles`, if there is one.
pub(super) fn transfer(
    lan: &Lan,
    program: Program,
    file: &Path,
    folder: &Path,
    profiles: Option<&Path>,
) -> Result<Measured> {
    into_folders(
        lan,
        &program.name(),
        file,
        folder,
        |outputs| match program {
            Program::Ours(options) => {
                let ours = Ours {
                    lan,
                    relays: &lan.relays,
                    arguments: options.arguments(lan),
                    profiles,
                };
                ours.transfer(file, outputs)
            }
            Program::UftpUnlimited => uftp(lan, &["-R", "-1"], file, outputs),
            Program::UftpTfmcc => uftp(lan, &["-R", "1000000", "-C", "tfmcc"], file, outputs),
            Program::UftpFixed => uftp(lan, &["-R", "800000"], file, outputs),
            Program::Udpcast => udpcast(lan, file, outputs),
        },
    )
}

/// Makes a folder for each receiver, calls `transfer` with them, and checks that `file` has arrived
/// in each.
pub(super) fn into_folders(
    lan: &Lan,
    name: &str,
    file: &Path,
    folder: &Path,
    transfer: impl FnOnce(&[PathBuf]) -> Result<Measured>,
) -> Result<Measured> {
    let outputs: Vec<PathBuf> = (0..lan.receivers.len())
        .map(|number| folder.join(format!("out{number}")))
        .collect();
    for output in &outputs {
        fs::create_dir_all(output)?;
    }
    let measured = transfer(&outputs)?;
    let expected = fs::metadata(file)?.len();
    for output in &outputs {
        let file = file.file_name().context("the file has a name")?;
        let found = fs::metadata(output.join(file)).map_or(0, |found| found.len());
        ensure!(
            found == expected,
            "{name}: {found} of {expected} bytes arrived"
        );
        fs::remove_dir_all(output)?;
    }
    Ok(measured)
}

/// The bytes that the links carry during a transfer.
pub(super) struct LinkCounts<'a> {
    lan: &'a Lan,
    before: Vec<u64>,
    sent_before: u64,
    pub(super) carried: Vec<u64>,
    /// The bytes on the sender's link, until the last receiver whose count was read.
    pub(super) sent: u64,
}

impl<'a> LinkCounts<'a> {
    /// Starts to count on all links of `lan`.
    pub(super) fn new(lan: &'a Lan) -> Result<LinkCounts<'a>> {
        let receivers = 0..lan.receivers.len();
        let before: Result<Vec<_>> = receivers.map(|number| lan.carried_bytes(number)).collect();
        Ok(LinkCounts {
            lan,
            before: before?,
            sent_before: lan.sent_bytes()?,
            carried: vec![0; lan.receivers.len()],
            sent: 0,
        })
    }

    /// Reads the counts of one receiver's link, and of the sender's.
    pub(super) fn read(&mut self, receiver: usize) -> Result<()> {
        self.carried[receiver] = self.lan.carried_bytes(receiver)? - self.before[receiver];
        self.sent = self.lan.sent_bytes()? - self.sent_before;
        Ok(())
    }
}

/// A transfer by `manyflow send` and `recv`.
pub(super) struct Ours<'a> {
    pub(super) lan: &'a Lan,
    /// The relays to use, from the sender towards the receivers.
    pub(super) relays: &'a [RelayHost],
    /// Options of `manyflow send`.
    pub(super) arguments: Vec<String>,
    /// The folder for profiles of the sender and of the first receiver, if they are wanted.
    pub(super) profiles: Option<&'a Path>,
}

/// The files of profiles.
pub(super) const PROFILES: [&str; 2] = ["sender", "receiver"];

impl Ours<'_> {
    pub(super) fn transfer(&self, file: &Path, outputs: &[PathBuf]) -> Result<Measured> {
        let program = crate::program::manyflow()?;
        let mut command = in_namespace(&self.lan.sender, &program);
        command.args(["send", "--json"]).arg(file);
        command.args(&self.arguments);
        let mut links = LinkCounts::new(self.lan)?;
        let before = cpu(UsageWho::RUSAGE_CHILDREN)?;
        let start = Instant::now();
        let mut sender = Running::start(self.recorded(command, PROFILES[0]))?;
        let published = sender.event("published")?;
        let url = published["url"].as_str();
        let url = url.context("the sender gives its URL")?.to_owned();
        // They end when they are dropped, after the measurement.
        let _relays = self.start_relays(&url)?;
        let mut receivers = Vec::new();
        for (namespace, output) in self.lan.receivers.iter().zip(outputs) {
            let mut command = in_namespace(namespace, &program);
            command.args(["recv", "--json", &url, "--output"]);
            command.arg(output);
            if let Some(relay) = self.relays.last() {
                command.arg(format!("--relay={}", relay.address));
            }
            if receivers.is_empty() {
                command = self.recorded(command, PROFILES[1]);
            }
            receivers.push(Running::start(command)?);
        }
        let seconds = wait_for_all(&mut receivers, start, |number| links.read(number))?;
        let received_cpu = cpu(UsageWho::RUSAGE_CHILDREN)? - before;
        let mut packets = 0;
        for receiver in &mut receivers {
            let last = receiver.last_event("progress")?;
            packets += last["packets_received"].as_u64().unwrap_or(0);
        }
        match self.profiles {
            Some(_) => sender.interrupt_child()?,
            None => sender.interrupt()?,
        }
        let done = sender.event("done")?;
        sender.wait()?;
        let sent_cpu = cpu(UsageWho::RUSAGE_CHILDREN)? - before - received_cpu;
        let sent = done["packets"].as_u64().unwrap_or(0);
        Ok(Measured {
            seconds,
            carried: links.carried,
            sent: links.sent,
            sender_us: per_packet(sent_cpu, sent),
            receiver_us: per_packet(received_cpu, packets),
        })
    }

    /// Starts all relays, each below the one before, and waits until they serve.
    fn start_relays(&self, url: &str) -> Result<Vec<Running>> {
        let mut running: Vec<Running> = Vec::new();
        let mut upstream = None;
        for relay in self.relays {
            let mut command = in_namespace(&relay.namespace, &crate::program::manyflow()?);
            command.args(["relay", "--json", "--session", url]);
            command.args(["--listen", "0.0.0.0:2268"]);
            command.args(upstream.map(|address| format!("--relay={address}")));
            let mut process = Running::start(command)?;
            process.event("started")?;
            running.push(process);
            upstream = Some(relay.address);
        }
        Ok(running)
    }

    /// Returns the command, under `perf` if profiles are wanted.
    fn recorded(&self, command: Command, name: &str) -> Command {
        match self.profiles {
            Some(folder) => profile::recorded(&command, &folder.join(name)),
            None => command,
        }
    }
}

/// Starts UFTP's proxies on the hosts of relays: that of the sender, which forwards its multicast
/// to the one of the receivers. Nothing shows when they are ready; the sender announces its session
/// several times.
fn start_proxies(relays: &[RelayHost]) -> Result<Vec<Running>> {
    let [first, last] = relays else {
        ensure!(relays.is_empty(), "UFTP has two proxies in a chain");
        return Ok(Vec::new());
    };
    let start = |relay: &RelayHost, options: &[&str]| {
        let mut command = in_namespace(&relay.namespace, Path::new("uftpproxyd"));
        command.args(["-d", "-x", "0", "-B", "4194304"]);
        command.args(options);
        Running::start(command)
    };
    let downstream = last.upstream.to_string();
    Ok(vec![
        start(last, &["-c", "-I", INTERFACE, "-O", INTERFACE])?,
        start(first, &["-s", &downstream, "-I", UPSTREAM])?,
    ])
}

fn uftp(lan: &Lan, options: &[&str], file: &Path, outputs: &[PathBuf]) -> Result<Measured> {
    let mut links = LinkCounts::new(lan)?;
    let _proxies = start_proxies(&lan.relays)?;
    let before = cpu(UsageWho::RUSAGE_CHILDREN)?;
    let mut receivers = Vec::new();
    for (namespace, output) in lan.receivers.iter().zip(outputs) {
        let mut command = in_namespace(namespace, Path::new("uftpd"));
        command
            .args(["-d", "-x", "0", "-B", "4194304", "-I", INTERFACE, "-D"])
            .arg(output);
        receivers.push(Running::start(command)?);
    }
    let mut command = in_namespace(&lan.sender, Path::new("uftp"));
    command
        .args(["-x", "0", "-B", "4194304", "-I", INTERFACE])
        .args(options)
        .arg(file);
    let start = Instant::now();
    let mut sender = Running::start(command)?;
    let expected = fs::metadata(file)?.len();
    ensure!(sender.wait_within(LIMIT)?, "uftp failed");
    // UFTP's session ends for all receivers at the same time.
    let seconds = vec![start.elapsed().as_secs_f64(); outputs.len()];
    let sent_cpu = cpu(UsageWho::RUSAGE_CHILDREN)? - before;
    (0..outputs.len()).try_for_each(|number| links.read(number))?;
    for receiver in &mut receivers {
        receiver.interrupt()?;
    }
    for receiver in &mut receivers {
        let _ = receiver.child.wait()?;
    }
    let received_cpu = cpu(UsageWho::RUSAGE_CHILDREN)? - before - sent_cpu;
    let packets = expected / UFTP_BLOCK;
    Ok(Measured {
        seconds,
        carried: links.carried,
        sent: links.sent,
        sender_us: per_packet(sent_cpu, packets),
        receiver_us: per_packet(received_cpu, packets * outputs.len() as u64),
    })
}

fn udpcast(lan: &Lan, file: &Path, outputs: &[PathBuf]) -> Result<Measured> {
    let mut links = LinkCounts::new(lan)?;
    let before = cpu(UsageWho::RUSAGE_CHILDREN)?;
    let name = file.file_name().context("the file has a name")?;
    let mut receivers = Vec::new();
    for (namespace, output) in lan.receivers.iter().zip(outputs) {
        let mut command = in_namespace(namespace, Path::new("udp-receiver"));
        command.args(["--nokbd", "--interface", INTERFACE, "--file"]);
        command.arg(output.join(name));
        receivers.push(Running::start(command)?);
    }
    let mut command = in_namespace(&lan.sender, Path::new("udp-sender"));
    command.args(["--nokbd", "--full-duplex", "--interface", INTERFACE]);
    command.args(["--min-receivers", &outputs.len().to_string(), "--file"]);
    command.arg(file);
    let start = Instant::now();
    let mut sender = Running::start(command)?;
    ensure!(sender.wait_within(LIMIT)?, "udp-sender failed");
    let sent_cpu = cpu(UsageWho::RUSAGE_CHILDREN)? - before;
    let seconds = wait_for_all(&mut receivers, start, |number| links.read(number))?;
    let received_cpu = cpu(UsageWho::RUSAGE_CHILDREN)? - before - sent_cpu;
    let packets = fs::metadata(file)?.len() / UDPCAST_BLOCK;
    Ok(Measured {
        seconds,
        carried: links.carried,
        sent: links.sent,
        sender_us: per_packet(sent_cpu, packets),
        receiver_us: per_packet(received_cpu, packets * outputs.len() as u64),
    })
}

fn per_packet(cpu: Duration, packets: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / packets.max(1) as f64
}
