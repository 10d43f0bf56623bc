//! Kills receivers and senders at random moments. Each transfer continues, ends intact, and leaves
//! nothing behind. A receiver gets only the bytes that its predecessors had not saved, and a sender
//! that continues sends hardly a symbol again.
//!
//! None of this depends on the time that processes get: symbols are counted by their numbers, and
//! saved ones by the journal that a killed receiver has left. The bytes that pass to receivers
//! would be no measure: they include those that come while a receiver starts, ends or does not run.
//!
//! `make test` kills few processes, `make crash` a hundred: MANYFLOW_KILLS is the number of each
//! kind. A failure prints its seed, which MANYFLOW_SEED repeats.
use crate::common;

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::{Ended, Manyflow, PATIENT, assert_same, manyflow, own_address, write_random};
use manyflow_amt::ip::decode_udp;
use manyflow_amt::wire::Message;
use manyflow_object::alc::{PAYLOAD_ID_BYTES, Packet};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;

/// Length of the files in all.
const BYTES: u64 = 4_000_000;
/// Bytes of symbols that may be sent twice: a twentieth.
const TWICE_MAX: u64 = BYTES / 20;
/// Saved bytes that may be of no use to the next receiver: symbols beyond those that their blocks
/// needed, and the padding of blocks.
const UNUSED_MAX: u64 = BYTES / 50;
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

/// A symbol's object, and its block and number.
type SymbolId = (u128, [u8; PAYLOAD_ID_BYTES]);

/// Stands between a receiver and the relays of a sender and its successors, and counts the bytes of
/// symbols that have passed before.
struct Meter {
    address: SocketAddr,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    bytes_twice: AtomicU64,
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

    fn bytes_twice(&self) -> u64 {
        self.counts.bytes_twice.load(Ordering::SeqCst)
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
    let mut passed = HashSet::new();
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
            if let Some((id, bytes)) = symbol(&buffer[..length])
                && !passed.insert(id)
            {
                counts.bytes_twice.fetch_add(bytes, Ordering::SeqCst);
            }
            let _ = gateways.send_to(&buffer[..length], gateway);
            is_idle = false;
        }
        if is_idle {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Returns the symbol that an AMT message carries, and its length; `None` for AMT's own messages
/// and for the table of files, which is repeated all the time.
fn symbol(message: &[u8]) -> Option<(SymbolId, u64)> {
    let Ok(Message::MulticastData { datagram }) = Message::decode(message) else {
        return None;
    };
    let packet = Packet::decode(decode_udp(datagram).ok()?.1).ok()?;
    let symbol = packet.symbol.filter(|_| packet.fdt.is_none())?;
    Some(((symbol.toi, symbol.payload_id), symbol.data.len() as u64))
}

fn connect(relay: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket.connect(relay).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The files and their sender.
struct Session {
    home: tempfile::TempDir,
    sender: Manyflow,
    relay: SocketAddr,
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
            home,
        }
    }

    /// Starts a receiver behind this relay.
    fn receive_from(&self, relay: SocketAddr) -> Manyflow {
        let mut command = in_folder(self.home.path());
        command.args(["recv", "session.sdp", "--output", "out", "--json"]);
        command.args(["--relay", &relay.to_string()]);
        command.args(PATIENT);
        Manyflow::start(command)
    }

    fn receive(&self) -> Manyflow {
        self.receive_from(self.relay)
    }

    /// Receives until this number of bytes is saved, and kills the receiver then. Returns its end
    /// if the transfer was complete before.
    fn receive_until_saved(&self, bytes: u64) -> Option<Ended> {
        let mut receiver = self.receive();
        while self.saved_bytes() < bytes {
            match receiver.finish_within(Duration::from_millis(20)) {
                Ok(ended) => return Some(ended),
                Err(running) => receiver = running,
            }
        }
        receiver.kill();
        None
    }

    /// Returns the bytes of the symbols that receivers have saved: the journal of their spool names
    /// each, and the table the length of symbols.
    fn saved_bytes(&self) -> u64 {
        let entries = std::fs::read_dir(self.home.path().join("out"));
        let folders = entries.into_iter().flatten().flatten();
        let bytes = folders.map(|folder| {
            let read = |name| std::fs::read(folder.path().join(name)).unwrap_or_default();
            let table = String::from_utf8(read("table")).unwrap_or_default();
            let length = table.split_once("Encoding-Symbol-Length=\"");
            let length = length.and_then(|(_, rest)| rest.split('"').next()?.parse().ok());
            let journal = read("journal");
            // A number of another kind of record begins with another byte.
            let symbols = journal.as_chunks::<16>().0.iter();
            let symbols: HashSet<_> = symbols.filter(|record| record[4] == 0).collect();
            symbols.len() as u64 * length.unwrap_or(0)
        });
        bytes.sum()
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

/// Returns the bytes that a receiver has received itself, of those that it needed.
fn received_bytes(ended: &Ended) -> u64 {
    let events = ended.stdout.lines();
    let mut events = events.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let done = events.find(|event| event["event"] == "done").unwrap();
    done["received_bytes"].as_u64().unwrap()
}

#[test]
fn receivers_that_are_killed_continue() {
    let (seed, mut random) = random();
    let mut killed = 0;
    while killed < kills() {
        let session = Session::start(seed);
        let (mut runs, mut saved) = (1, 0);
        let ended = loop {
            let at = Duration::from_millis(random.random_range(50..1_500));
            match session.receive().finish_within(at) {
                Ok(ended) => break ended,
                Err(mut receiver) => receiver.kill(),
            }
            (killed, runs) = (killed + 1, runs + 1);
            // The last one is left alone, so that the test ends.
            if killed >= kills() {
                let ended = session.receive_until_saved(BYTES / 4);
                saved = session.saved_bytes().max(saved);
                break ended.unwrap_or_else(|| session.receive().finish());
            }
            assert!(session.saved_bytes() >= saved, "nothing saved gets lost");
            saved = session.saved_bytes();
        };
        let label = format!("seed {seed}, {runs} runs");
        let ended = ended.succeeded(&label);
        session.assert_intact(&label);
        let received = received_bytes(&ended);
        println!("{label}: {saved} bytes were saved, {received} received then");
        assert!(
            received + saved <= BYTES + UNUSED_MAX,
            "{label}: {received} after {saved}"
        );
    }
}

#[test]
fn senders_that_are_killed_continue() {
    let (seed, mut random) = random();
    let mut killed = 0;
    while killed < kills() {
        let mut session = Session::start(seed);
        let meter = Meter::start(session.relay);
        let mut receiver = session.receive_from(meter.address);
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
        let twice = meter.bytes_twice();
        println!("{label}: {twice} bytes of symbols were sent twice");
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
