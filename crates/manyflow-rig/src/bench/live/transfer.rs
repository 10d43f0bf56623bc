//! One transfer of a file, by our own programs, UFTP or udpcast.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::UsageWho;

use super::process::{LIMIT, Running, wait_for_all};
use crate::bench::cpu;
use crate::bench::lan::{INTERFACE, Lan, SENDER, in_namespace};
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
    /// Processor time for each packet, in microseconds; of the receivers, for each of them.
    pub(super) sender_us: f64,
    pub(super) receiver_us: f64,
}

impl Measured {
    pub(super) fn slowest_s(&self) -> f64 {
        self.seconds.iter().copied().fold(0.0, f64::max)
    }
}

impl SendOptions {
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
            Program::Udpcast => "udpcast".to_owned(),
        }
    }

    pub(super) fn is_installed(self) -> bool {
        let program = match self {
            Program::Ours(..) => return true,
            Program::UftpUnlimited | Program::UftpTfmcc => "uftp",
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

/// Transfers `file` from the sender to all receivers of `lan`, to new folders in `folder`.
pub(super) fn transfer(
    lan: &Lan,
    program: Program,
    file: &Path,
    folder: &Path,
) -> Result<Measured> {
    let outputs: Vec<PathBuf> = (0..lan.receivers.len())
        .map(|number| folder.join(format!("out{number}")))
        .collect();
    for output in &outputs {
        fs::create_dir_all(output)?;
    }
    let measured = match program {
        Program::Ours(options) => ours(lan, options, file, &outputs)?,
        Program::UftpUnlimited => uftp(lan, &["-R", "-1"], file, &outputs)?,
        Program::UftpTfmcc => uftp(lan, &["-R", "1000000", "-C", "tfmcc"], file, &outputs)?,
        Program::Udpcast => udpcast(lan, file, &outputs)?,
    };
    let expected = fs::metadata(file)?.len();
    for output in &outputs {
        let name = file.file_name().context("the file has a name")?;
        let found = fs::metadata(output.join(name)).map_or(0, |found| found.len());
        ensure!(
            found == expected,
            "{}: {found} of {expected} bytes arrived",
            program.name()
        );
        fs::remove_dir_all(output)?;
    }
    Ok(measured)
}

/// The bytes that each receiver's link carries during a transfer.
struct LinkCounts<'a> {
    lan: &'a Lan,
    before: Vec<u64>,
    carried: Vec<u64>,
}

impl<'a> LinkCounts<'a> {
    /// Starts to count on all links of `lan`.
    fn new(lan: &'a Lan) -> Result<LinkCounts<'a>> {
        let receivers = 0..lan.receivers.len();
        let before: Result<Vec<_>> = receivers.map(|number| lan.carried_bytes(number)).collect();
        Ok(LinkCounts {
            lan,
            before: before?,
            carried: vec![0; lan.receivers.len()],
        })
    }

    /// Reads the count of one receiver's link.
    fn read(&mut self, receiver: usize) -> Result<()> {
        self.carried[receiver] = self.lan.carried_bytes(receiver)? - self.before[receiver];
        Ok(())
    }
}

fn ours(lan: &Lan, options: SendOptions, file: &Path, outputs: &[PathBuf]) -> Result<Measured> {
    let program = crate::program::manyflow()?;
    let mut command = in_namespace(&lan.sender, &program);
    command.args(["send", "--json"]).arg(file);
    if let Some(rate) = options.rate {
        command.arg(format!("--rate={}bit/s", rate.bits_per_s()));
    }
    if options.multicast {
        command.args(["--multicast", "232.1.2.0/24", "--interface", INTERFACE]);
        command.args(["--publish", &format!("{SENDER}:0")]);
    }
    let mut links = LinkCounts::new(lan)?;
    let before = cpu(UsageWho::RUSAGE_CHILDREN)?;
    let start = Instant::now();
    let mut sender = Running::start(command)?;
    let published = sender.event("published")?;
    let url = published["url"]
        .as_str()
        .context("the sender gives its URL")?
        .to_owned();
    let mut receivers = Vec::new();
    for (namespace, output) in lan.receivers.iter().zip(outputs) {
        let mut command = in_namespace(namespace, &program);
        command
            .args(["recv", "--json", &url, "--output"])
            .arg(output);
        receivers.push(Running::start(command)?);
    }
    let seconds = wait_for_all(&mut receivers, start, |number| links.read(number))?;
    let received_cpu = cpu(UsageWho::RUSAGE_CHILDREN)? - before;
    let mut packets = 0;
    for receiver in &mut receivers {
        let last = receiver.last_event("progress")?;
        packets += last["packets_received"].as_u64().unwrap_or(0);
    }
    sender.interrupt()?;
    let done = sender.event("done")?;
    sender.wait()?;
    let sent_cpu = cpu(UsageWho::RUSAGE_CHILDREN)? - before - received_cpu;
    let sent = done["packets"].as_u64().unwrap_or(0);
    Ok(Measured {
        seconds,
        carried: links.carried,
        sender_us: per_packet(sent_cpu, sent),
        receiver_us: per_packet(received_cpu, packets),
    })
}

fn uftp(lan: &Lan, options: &[&str], file: &Path, outputs: &[PathBuf]) -> Result<Measured> {
    let mut links = LinkCounts::new(lan)?;
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
        sender_us: per_packet(sent_cpu, packets),
        receiver_us: per_packet(received_cpu, packets * outputs.len() as u64),
    })
}

fn per_packet(cpu: Duration, packets: u64) -> f64 {
    cpu.as_secs_f64() * 1e6 / packets.max(1) as f64
}
