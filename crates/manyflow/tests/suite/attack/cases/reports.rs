//! Reports of receivers to a sender with a list: an attacker that has the session description
//! forges, repeats and floods them, and takes the names of others. All on loopback.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use manyflow_core::Time;
use manyflow_files::completion::{CompletionKey, Failure, Identity, ReceiverStatus, Reporter};
use manyflow_files::sdp::SessionDescription;
use manyflow_net::keys::SigningKey;
use manyflow_testing::programs::{Manyflow, get, manyflow, text, wait_until, write_random};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// Datagrams of a flood.
const FLOOD: usize = 20_000;
/// The maximum memory of a sender under attack, in KiB: that of one at peace, and some.
const MEMORY_MAX_KIB: u64 = 96 << 10;

/// The reports of a receiver whose last one was taken, and its socket.
type Taken = (UdpSocket, Vec<Vec<u8>>);

/// A sender that expects `a`, whose key it has, and `b` and `c`.
struct Target {
    sender: Manyflow,
    folder: TempDir,
    url: String,
    status: String,
    key: CompletionKey,
    reports: SocketAddr,
}

impl Target {
    fn start() -> Target {
        let folder = tempfile::tempdir().unwrap();
        write_random(&folder.path().join("sent/file"), 20_000, 1);
        SigningKey::generate(&folder.path().join("a.key")).unwrap();
        fs::write(folder.path().join("hosts.txt"), "a a.key.pub\nb\nc\n").unwrap();
        let mut command = manyflow(&["send", "sent", "--json", "--listen", "127.0.0.1:0"]);
        command.args(["--publish", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        command.args(["--expect", "hosts.txt", "--reports", "127.0.0.1:0"]);
        command.current_dir(folder.path());
        let mut sender = Manyflow::start(command);
        let event = |kind: &'static str, key: &'static str| {
            move |line: &str| {
                let event: Value = serde_json::from_str(line).unwrap();
                let value = event[key].as_str().filter(|_| event["event"] == kind);
                value.map(str::to_owned)
            }
        };
        let url = sender.wait_for(event("published", "url"));
        let status = sender
            .wait_for(event("metrics", "url"))
            .replace("/metrics", "/status.json");
        let session = sender.wait_for(event("started", "session"));
        let description = SessionDescription::parse(&session).unwrap();
        let port = description.completion.as_ref().unwrap().server.port;
        Target {
            sender,
            folder,
            url,
            status,
            key: CompletionKey::new(&description, None).unwrap(),
            reports: ([127, 0, 0, 1], port).into(),
        }
    }

    fn rows(&self) -> Vec<Value> {
        let status: Value = serde_json::from_str(&get(&self.status).1).unwrap();
        status["sessions"][0]["receivers"]
            .as_array()
            .unwrap()
            .clone()
    }

    /// Whether the listed receivers have these states, in the order of the list.
    fn has_states(&self, expected: [&str; 3]) -> bool {
        self.rows()
            .iter()
            .zip(expected)
            .all(|(row, state)| row["state"] == state)
    }

    /// Repeats these reports from their own addresses and from another one, and sends changed ones.
    fn attack(&self, recorded: &[Taken]) {
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        for (socket, reports) in recorded {
            for report in reports {
                socket.send(report).unwrap();
                stranger.send_to(report, self.reports).unwrap();
            }
        }
        for number in 0..FLOOD {
            let mut report = recorded[0].1[0].clone();
            let at = number % (report.len() * 8);
            report[at / 8] ^= 1 << (at % 8);
            stranger.send_to(&report, self.reports).unwrap();
        }
    }

    /// Reports as anyone can that has the description. Returns the datagrams sent, if the sender
    /// has taken the last.
    fn report(&self, identity: Identity, status: ReceiverStatus) -> Option<Taken> {
        let window = Duration::from_secs(1);
        let key = self.key.clone();
        let mut reporter = Reporter::new(key, identity, window, true, Time::ZERO, rand::random());
        reporter.end(Time::ZERO, status);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(self.reports).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        let mut sent = Vec::new();
        // The time is the attacker's own, so that no window takes time.
        while let Some(due) = reporter.poll_timeout() {
            reporter.handle_timeout(due);
            while let Some(report) = reporter.poll_transmit() {
                socket.send(&report).unwrap();
                sent.push(report);
                let mut answer = [0; 100];
                if let Ok(length) = socket.recv(&mut answer) {
                    reporter.handle(&answer[..length]);
                }
            }
        }
        reporter.is_taken().then_some((socket, sent))
    }
}

#[test]
fn forged_and_repeated_reports_count_for_nobody_and_a_key_keeps_its_name() {
    let target = Target::start();
    let name = |name: &str| name.parse().unwrap();
    let key = |file: &str| SigningKey::read(&target.folder.path().join(file)).unwrap();
    SigningKey::generate(&target.folder.path().join("thief.key")).unwrap();

    // The name with a key: without the key, and with another one. Each thief is a row of its own.
    for thief in [
        Identity::named(name("a")),
        Identity::keyed(name("a"), key("thief.key")),
    ] {
        target
            .report(thief, ReceiverStatus::Done)
            .expect("an answer");
    }
    assert!(target.has_states(["never-heard"; 3]), "{:?}", target.rows());
    let others = target.rows().split_off(3);
    assert_eq!(others.len(), 2);
    assert!(
        others
            .iter()
            .all(|row| row["lacks_key"] == true && row["expected"] == false)
    );

    // Two receivers fail, and are started again. Somebody repeats the first reports.
    let full = ReceiverStatus::Failed(Failure::DiskFull);
    let owner = target
        .report(Identity::keyed(name("a"), key("a.key")), full)
        .unwrap();
    assert!(target.has_states(["failed", "never-heard", "never-heard"]));
    let first = target.report(Identity::named(name("b")), full).unwrap();
    target
        .report(Identity::named(name("b")), ReceiverStatus::Left)
        .unwrap();
    target
        .report(
            Identity::keyed(name("a"), key("a.key")),
            ReceiverStatus::Left,
        )
        .unwrap();
    let states = ["left", "left", "never-heard"];
    assert!(target.has_states(states), "{:?}", target.rows());
    target.attack(&[owner, first]);
    // An honest receiver is counted meanwhile, by a sender whose memory is bounded.
    let output = target.folder.path().join("out");
    let recv = [
        "recv",
        &target.url,
        "--name",
        "c",
        "--output",
        text(&output),
    ];
    Manyflow::start(manyflow(&recv)).finish().succeeded("c");
    wait_until("c is done", || target.has_states(["left", "left", "done"]));
    let rows = target.rows();
    assert_eq!(rows.len(), 5, "{rows:?}");
    target.sender.signal(Signal::SIGTERM);
    let ended = target.sender.finish();
    assert_eq!(ended.code(), 1, "{ended:?}");
    let peak = ended.peak_memory_kib;
    assert!(peak < MEMORY_MAX_KIB, "{peak} KiB");
}
