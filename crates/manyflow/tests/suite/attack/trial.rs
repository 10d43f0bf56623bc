//! A transfer under attack, and the conditions that every transfer has to meet.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use manyflow_files::sdp::SessionDescription;
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::attack::attacker::{Attack, Attacker, Way};
use crate::attack::world::{Host, INTERFACE, SENDER, World};
use crate::common::{
    Ended, LIMIT, Manyflow, PATIENT, assert_same, listing, manyflow, write_random,
};

/// The receiver's `--memory`.
const MEMORY: &str = "64MiB";
/// Maximum of the receiver's resident memory: `--memory`, and as much again for the program, for
/// datagrams that wait and for a block that is being decoded.
const PEAK_MAX_KIB: u64 = 128 << 10;
/// A file in the receiver's folder before the transfer, and its content.
const BYSTANDER: (&str, &str) = ("bystander", "not of the session");
/// Maximum number of transfers until a receiver notices an attack.
const TRANSFERS_MAX: u32 = 10;
/// The name of the image.
const IMAGE: &str = "image.bin";
/// The name of the session description's file.
const DESCRIPTION: &str = "session.sdp";

/// A sender in its own network.
pub(crate) struct Trial {
    // Processes end before their namespaces are removed.
    sender: Option<Manyflow>,
    pub(crate) description: SessionDescription,
    sources: TempDir,
    /// The folder of the session description.
    shared: TempDir,
    world: World,
}

/// A running receiver.
pub(crate) struct Receiver {
    pub(crate) running: Manyflow,
    output: TempDir,
}

/// The end of a receiver.
pub(crate) struct Report {
    pub(crate) ended: Ended,
    /// The last counts that the receiver reported.
    counts: Value,
    /// The number of times that the attacker forged something.
    pub(crate) repetitions: u64,
    output: TempDir,
}

impl Trial {
    /// Starts `send` with these arguments, by multicast and through a relay at once, with files
    /// that `write` makes. Returns `None` without the right to make namespaces.
    pub(crate) fn start(write: impl Fn(&Path), arguments: &[&str]) -> Option<Trial> {
        let world = World::new()?;
        let (sources, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(sources.path());
        let (sender, description) = send(&world, sources.path(), "0", arguments, None);
        let trial = Trial {
            sender: Some(sender),
            description,
            sources,
            shared,
            world,
        };
        trial.share(&trial.description);
        Some(trial)
    }

    /// Starts `send -` as [`Trial::start`] starts `send`, with an image of two megabytes.
    pub(crate) fn start_image() -> Option<Trial> {
        let world = World::new()?;
        let (sources, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let image = sources.path().join(IMAGE);
        write_random(&image, 2_000_000, 1);
        let input = File::open(image).unwrap();
        let arguments = ["--name", IMAGE];
        let (sender, description) = send(&world, sources.path(), "0", &arguments, Some(input));
        let trial = Trial {
            sender: Some(sender),
            description,
            sources,
            shared,
            world,
        };
        trial.share(&trial.description);
        Some(trial)
    }

    /// Ends the sender, and starts one with other files in the same session.
    pub(crate) fn restart(&mut self, write: impl Fn(&Path), arguments: &[&str]) {
        drop(self.sender.take());
        write(self.sources.path());
        let port = self.description.amt_relay.as_ref().unwrap().port;
        let (sender, description) = send(
            &self.world,
            self.sources.path(),
            &port.to_string(),
            arguments,
            None,
        );
        assert_ne!(description.table_sha256, self.description.table_sha256);
        self.sender = Some(sender);
    }

    /// Writes the description that receivers get.
    pub(crate) fn share(&self, description: &SessionDescription) {
        let text = description.to_sdp().unwrap();
        std::fs::write(self.shared.path().join(DESCRIPTION), text).unwrap();
    }

    /// Starts a receiver with these arguments. Without `--interface`, it uses the relay. Without
    /// `--patience`, it gives up later than the test does.
    pub(crate) fn receive(&self, arguments: &[&str]) -> Receiver {
        let output = tempfile::tempdir().unwrap();
        std::fs::write(output.path().join(BYSTANDER.0), BYSTANDER.1).unwrap();
        let mut command = manyflow(&["recv", "--json", "--memory", MEMORY, "--output"]);
        command.arg(output.path()).args(arguments);
        if !arguments.contains(&PATIENT[0]) {
            command.args(PATIENT);
        }
        command.arg(self.shared.path().join(DESCRIPTION));
        let running = self.world.on(Host::Receiver, || Manyflow::start(command));
        Receiver { running, output }
    }

    pub(crate) fn receive_by_multicast(&self) -> Receiver {
        self.receive(&["--interface", INTERFACE])
    }

    pub(crate) fn attacker(&self, way: Way) -> Attacker {
        Attacker::new(&self.world, self.description.clone(), way)
    }

    /// Waits until the receiver has all files, and ends the attack.
    pub(crate) fn finish(&self, receiver: Receiver, attack: Attack) -> Report {
        let mut report = receiver.finish(LIMIT);
        report.repetitions = attack.stop();
        assert!(report.repetitions > 0, "nothing was forged");
        self.assert_intact(&report);
        report
    }

    /// Asserts that the receiver got the session's files and nothing else, within the bound of
    /// memory.
    fn assert_intact(&self, report: &Report) {
        let ended = &report.ended;
        assert_eq!(ended.code(), 0, "{ended:?}");
        report.assert_bounded();
        let bystander = report.output.path().join(BYSTANDER.0);
        std::fs::remove_file(bystander).unwrap();
        assert_same(self.sources.path(), report.output.path(), "under attack");
    }
}

/// Starts `send` with everything in `sources`, or with the input of an image, and returns the
/// description that it announces.
fn send(
    world: &World,
    sources: &Path,
    port: &str,
    arguments: &[&str],
    image: Option<File>,
) -> (Manyflow, SessionDescription) {
    let mut command = manyflow(&["send", "--json", "--tsi", "7"]);
    if !arguments.contains(&"--rate") {
        command.args(["--rate", "20Mbit/s"]);
    }
    command.args(["--multicast", "232.1.2.0/24", "--interface", INTERFACE]);
    command.args(["--listen", &format!("{SENDER}:{port}")]);
    command.args(arguments).current_dir(sources);
    if let Some(image) = image {
        command.arg("-").stdin(image);
    } else {
        let entries = std::fs::read_dir(sources).unwrap();
        command.args(entries.map(|entry| entry.unwrap().file_name()));
    }
    let mut sender = world.on(Host::Sender, || Manyflow::start(command));
    let description = sender.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        let text = event["session"].as_str()?;
        Some(SessionDescription::parse(text).unwrap())
    });
    (sender, description)
}

impl Receiver {
    /// Waits until the receiver has used a packet.
    pub(crate) fn wait_for_packets(&mut self) {
        self.running.wait_for(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            (event["packets_received"].as_u64()? > 0).then_some(())
        });
    }

    /// Waits until tables of files have announced this number of files.
    pub(crate) fn wait_for_files(&mut self, files: u64) {
        self.running.wait_for(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            (event["total_files"].as_u64()? >= files).then_some(())
        });
    }

    /// Ends the receiver as a user would.
    pub(crate) fn interrupt(self) -> Report {
        self.running.signal(Signal::SIGINT);
        self.finish(LIMIT)
    }

    /// Waits for the receiver's tunnel, and returns its UDP port.
    pub(crate) fn tunnel_port(&self, attacked: &Trial) -> u16 {
        let relay = attacked.description.amt_relay.as_ref().unwrap().port;
        tunnel_port(&self.running, relay)
    }

    /// Waits for the end of the receiver.
    pub(crate) fn finish(self, limit: Duration) -> Report {
        let ended = self.running.finish_within(limit);
        let ended = ended.unwrap_or_else(|running| {
            panic!("the transfer does not end: {:?}", running.lines().last())
        });
        let events = ended.stdout.lines().rev();
        let mut events = events.map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut counts = events
            .find(|event| event["refused"].is_object())
            .unwrap_or_default();
        // The list of files would make messages of failures long.
        counts["files"].take();
        let report = Report {
            ended,
            counts,
            repetitions: 0,
            output: self.output,
        };
        report.print();
        report
    }
}

/// Waits for a receiver's tunnel to a port of the sender's host, and returns its own UDP port.
pub(crate) fn tunnel_port(receiver: &Manyflow, relay: u16) -> u16 {
    let deadline = Instant::now() + LIMIT;
    let relay = format!("{:08X}:{relay:04X}", u32::from_le_bytes(SENDER.octets()));
    loop {
        let table = std::fs::read_to_string(format!("/proc/{}/net/udp", receiver.id())).unwrap();
        if let Some(port) = table.lines().find_map(|line| port_of(line, &relay)) {
            return port;
        }
        assert!(Instant::now() < deadline, "the receiver opens no tunnel");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The local port of a line of /proc/net/udp (proc(5)) whose remote address is `remote`.
fn port_of(line: &str, remote: &str) -> Option<u16> {
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next()?;
    if fields.next()? != remote {
        return None;
    }
    u16::from_str_radix(local.split_once(':')?.1, 16).ok()
}

impl Report {
    /// Packets and symbols that the receiver refused for this reason.
    pub(crate) fn refused(&self, reason: &str) -> u64 {
        let count = &self.counts["refused"][reason];
        count
            .as_u64()
            .unwrap_or_else(|| panic!("no count of {reason}: {}", self.counts))
    }

    /// Datagrams that the receiver did not take for packets of the session.
    pub(crate) fn packets_refused(&self) -> u64 {
        self.counts["packets_refused"].as_u64().unwrap()
    }

    fn print(&self) {
        let thread = std::thread::current();
        let (name, peak) = (
            thread.name().unwrap_or_default(),
            self.ended.peak_memory_kib,
        );
        eprintln!("{name}: {} peak {peak} KiB", self.counts);
    }

    /// Asserts that the receiver used little memory, and did not change the file that was there
    /// before.
    pub(crate) fn assert_bounded(&self) {
        let peak = self.ended.peak_memory_kib;
        assert!(
            peak > 0 && peak <= PEAK_MAX_KIB,
            "the receiver took {peak} KiB"
        );
        let bystander = std::fs::read_to_string(self.output.path().join(BYSTANDER.0));
        assert_eq!(bystander.unwrap(), BYSTANDER.1);
    }

    /// The names of the files in the receiver's folder, besides the one that was there before.
    pub(crate) fn names(&self) -> Vec<String> {
        let names = listing(self.output.path()).into_iter();
        names.filter(|name| name != BYSTANDER.0).collect()
    }
}

/// Transfers files by multicast while `forge` is called up to `per_s` times a second, from before
/// the receiver starts. The files have to arrive.
pub(crate) fn withstand(
    trial: &Trial,
    per_s: u32,
    forge: impl FnMut(&mut Attacker, u64) + Send + 'static,
) -> Report {
    let attack = trial.attacker(Way::Multicast).start(per_s, forge);
    trial.finish(trial.receive_by_multicast(), attack)
}

/// As [`withstand`], through an AMT tunnel whose port the attacker knows.
pub(crate) fn withstand_in_tunnel(
    trial: &Trial,
    per_s: u32,
    forge: impl FnMut(&mut Attacker, u64) + Send + 'static,
) -> Report {
    let receiver = trial.receive(&[]);
    let way = Way::Tunnel(receiver.tunnel_port(trial));
    let attack = trial.attacker(way).start(per_s, forge);
    trial.finish(receiver, attack)
}

/// Repeats a transfer under attack until its receiver has noticed the attack. On a busy computer, a
/// transfer may end before anything forged has arrived. The files have to arrive each time.
pub(crate) fn until_noticed(transfer: impl Fn() -> Report, is_noticed: impl Fn(&Report) -> bool) {
    for number in 1..=TRANSFERS_MAX {
        if is_noticed(&transfer()) {
            return;
        }
        println!("transfer {number}: nothing was noticed");
    }
    panic!("no receiver has noticed the attack");
}

/// Two megabytes: a large file, which is two RaptorQ blocks, and some small ones.
pub(crate) fn some_files(folder: &Path) {
    write_random(&folder.join("image.bin"), 2_000_000, 1);
    write_random(&folder.join("docs/one byte"), 1, 2);
    write_random(&folder.join("docs/deep/Ünïcode.txt"), 5_000, 3);
    write_random(&folder.join("docs/empty"), 0, 4);
}

/// Eight megabytes: enough for some seconds at the session's full rate.
pub(crate) fn large_file(folder: &Path) {
    write_random(&folder.join("large.bin"), 8_000_000, 1);
}

/// Files whose table takes more than a hundred packets if each is sent alone.
pub(crate) fn many_files(folder: &Path) {
    for number in 0..1_000 {
        write_random(&folder.join(format!("many/{number}")), 10, number);
    }
}
