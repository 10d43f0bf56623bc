//! Kills receivers and senders at random moments. Each transfer continues, ends intact, leaves
//! nothing behind, and takes hardly more packets than one without a crash.
//!
//! `make test` kills few processes, `make crash` a hundred: MANYFLOW_KILLS is the number of each
//! kind. A failure prints its seed, which MANYFLOW_SEED repeats.
use crate::common;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::{Manyflow, PATIENT, assert_same, manyflow, own_address, write_random};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

/// Length of the files in all.
const BYTES: u64 = 4_000_000;
/// Bytes that may be received twice: a twentieth, which arrives in 0.8 s. A receiver that is killed
/// on a busy computer has not yet handled its latest packets.
const TWICE_MAX: u64 = BYTES / 20;
/// The sender's rate.
const RATE: &str = "2Mbit/s";

fn kills() -> u32 {
    let kills = std::env::var("MANYFLOW_KILLS");
    kills.map_or(3, |kills| kills.parse().expect("a number of kills"))
}

fn random() -> (u64, Pcg64Mcg) {
    let seed = std::env::var("MANYFLOW_SEED");
    let seed = seed.map_or_else(|_| rand::random(), |seed| seed.parse().expect("a seed"));
    println!("repeat with MANYFLOW_SEED={seed}");
    (seed, Pcg64Mcg::seed_from_u64(seed))
}

/// Stands between receivers and the sender's relay, and counts the bytes that receivers get.
struct Meter {
    address: SocketAddr,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    /// Bytes of packets that were passed to a running receiver.
    bytes: AtomicU64,
    is_receiving: AtomicBool,
    is_over: AtomicBool,
}

impl Meter {
    fn start(relay: SocketAddr) -> Meter {
        let gateways = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        gateways.set_nonblocking(true).unwrap();
        let address = gateways.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let counted = Arc::clone(&counts);
        let thread = thread::spawn(move || forward(&gateways, relay, &counted));
        Meter {
            address,
            counts,
            thread: Some(thread),
        }
    }

    fn set_receiving(&self, is_receiving: bool) {
        self.counts
            .is_receiving
            .store(is_receiving, Ordering::SeqCst);
    }

    fn bytes(&self) -> u64 {
        self.counts.bytes.load(Ordering::SeqCst)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.counts.is_over.store(true, Ordering::SeqCst);
        let _ = self.thread.take().unwrap().join();
    }
}

fn forward(gateways: &UdpSocket, relay: SocketAddr, counts: &Counts) {
    let mut buffer = vec![0; 65_536];
    let mut tunnel: Option<(SocketAddr, UdpSocket)> = None;
    while !counts.is_over.load(Ordering::SeqCst) {
        let mut is_idle = true;
        if let Ok((length, from)) = gateways.recv_from(&mut buffer) {
            // Each receiver has its own port, as it would have without the meter: the relay still
            // sends to the tunnel of one that was killed.
            let (_, upstream) = match tunnel.take() {
                Some(same) if same.0 == from => tunnel.insert(same),
                _ => tunnel.insert((from, connect(relay))),
            };
            // A relay that was killed refuses datagrams.
            let _ = upstream.send(&buffer[..length]);
            is_idle = false;
        }
        if let Some((gateway, upstream)) = &tunnel
            && let Ok(length) = upstream.recv(&mut buffer)
        {
            // The others are AMT's own messages.
            if counts.is_receiving.load(Ordering::SeqCst) && length > 1_000 {
                counts.bytes.fetch_add(length as u64, Ordering::SeqCst);
            }
            let _ = gateways.send_to(&buffer[..length], gateway);
            is_idle = false;
        }
        if is_idle {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

fn connect(relay: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect(relay).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The files, their sender and the meter.
struct Session {
    home: tempfile::TempDir,
    sender: Manyflow,
    relay: SocketAddr,
    meter: Meter,
}

impl Session {
    fn start(seed: u64) -> Session {
        let home = tempfile::tempdir().unwrap();
        let files = home.path().join("files");
        write_random(&files.join("large"), BYTES as usize * 3 / 4, seed);
        write_random(
            &files.join("folder/small"),
            BYTES as usize / 4 - 100,
            seed + 1,
        );
        write_random(&files.join("tiny"), 100, seed + 2);
        let relay = own_address();
        Session {
            sender: send(home.path(), relay, "--session"),
            relay,
            meter: Meter::start(relay),
            home,
        }
    }

    fn receive(&self) -> Manyflow {
        let mut command = in_folder(self.home.path());
        command.args(["recv", "session.sdp", "--output", "out", "--json"]);
        command.args(["--relay", &self.meter.address.to_string()]);
        command.args(PATIENT);
        self.meter.set_receiving(true);
        Manyflow::start(command)
    }

    fn assert_intact(&self, label: &str) {
        let sent = self.home.path().join("files");
        assert_same(&sent, &self.home.path().join("out/files"), label);
        let left = common::listing(&self.home.path().join("out"));
        assert_eq!(left.len(), 3, "{label}: {left:?}");
    }
}

fn in_folder(folder: &Path) -> Command {
    let mut command = manyflow(&[]);
    command.current_dir(folder);
    command
}

/// Starts a sender, and waits until it has the description.
fn send(home: &Path, relay: SocketAddr, option: &str) -> Manyflow {
    let mut command = in_folder(home);
    let relay = relay.to_string();
    command.args(["send", "files", "--rate", RATE, "--json"]);
    command.args(["--listen", &relay, option, "session.sdp"]);
    let mut sender = Manyflow::start(command);
    sender.wait_for(|line| line.contains("\"started\"").then_some(()));
    sender
}

/// The packets that a receiver takes without a crash, in bytes.
fn undisturbed(seed: u64) -> u64 {
    let session = Session::start(seed);
    session.receive().finish().succeeded("undisturbed");
    session.assert_intact("undisturbed");
    session.meter.bytes()
}

#[test]
fn receivers_that_are_killed_continue() {
    let (seed, mut random) = random();
    let needed = undisturbed(seed);
    let mut killed = 0;
    while killed < kills() {
        let session = Session::start(seed);
        let mut runs = 0_u64;
        let ended = loop {
            let receiver = session.receive();
            runs += 1;
            let at = Duration::from_millis(random.random_range(50..1_500));
            match receiver.finish_within(at) {
                Ok(ended) => break ended,
                Err(mut receiver) => {
                    session.meter.set_receiving(false);
                    receiver.kill();
                    killed += 1;
                }
            }
            // The last one is left alone, so that the test ends.
            if killed >= kills() {
                break session.receive().finish();
            }
        };
        let label = format!("seed {seed}, {runs} runs");
        ended.succeeded(&label);
        session.assert_intact(&label);
        let twice = session.meter.bytes().saturating_sub(needed);
        println!("{label}: {twice} bytes more than {needed}");
        assert!(twice <= TWICE_MAX, "{label}: {twice}");
    }
}

#[test]
fn senders_that_are_killed_continue() {
    let (seed, mut random) = random();
    let needed = undisturbed(seed);
    let mut killed = 0;
    while killed < kills() {
        let mut session = Session::start(seed);
        let mut receiver = session.receive();
        let mut runs = 1;
        let ended = loop {
            let at = Duration::from_millis(random.random_range(50..2_500));
            receiver = match receiver.finish_within(at) {
                Ok(ended) => break ended,
                Err(receiver) => receiver,
            };
            if killed >= kills() {
                break receiver.finish();
            }
            session.sender.kill();
            killed += 1;
            runs += 1;
            let sender = send(session.home.path(), session.relay, "--resume");
            session.sender = sender;
        };
        let label = format!("seed {seed}, {runs} senders");
        ended.succeeded(&label);
        session.assert_intact(&label);
        let twice = session.meter.bytes().saturating_sub(needed);
        println!("{label}: {twice} bytes more than {needed}");
        assert!(twice <= TWICE_MAX, "{label}: {twice}");
    }
}

#[test]
fn a_session_is_continued_only_with_the_same_files_and_options() {
    let mut session = Session::start(1);
    session.sender.kill();
    let (home, relay) = (session.home.path(), session.relay.to_string());
    let resume = |arguments: &[&str]| {
        let mut command = in_folder(home);
        command.args([
            "send",
            "files",
            "--resume",
            "session.sdp",
            "--listen",
            &relay,
        ]);
        command.args(arguments);
        Manyflow::start(command).finish()
    };
    let assert_refused = |arguments: &[&str], reason: &str| {
        let ended = resume(arguments);
        assert_eq!(ended.code(), 2, "{ended:?}");
        assert!(ended.stderr.contains(reason), "{ended:?}");
    };
    assert_refused(&["--rate", "20Mbit/s"], "other rates");
    assert_refused(&["--rate", RATE, "--port", "99"], "other addresses");
    write_random(&home.join("files/tiny"), 101, 9);
    assert_refused(&["--rate", RATE], "other files");
}
