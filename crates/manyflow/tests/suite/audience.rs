//! A sender with a list of receivers, as processes: its table is right while some of them are
//! killed, started again, slow, stopped by their users, or have a full disk.
//!
//! `make audience` runs it with 64 receivers.

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{LIMIT, Manyflow, get, manyflow, run, text, wait_until, write_random};
use manyflow_net::keys::SigningKey;
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// Receivers, without `MANYFLOW_RECEIVERS`.
const RECEIVERS: usize = 16;
/// The length of the file: the others have it while a slow receiver has a part.
const BYTES: usize = 400_000;
/// The rate of a slow receiver, which takes a minute.
const SLOW: [&str; 2] = ["--max-rate", "50kbit/s"];

/// The fate of a receiver.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
enum Fate {
    /// It receives all.
    Fine,
    /// It is killed, and not started again.
    Killed,
    /// It is killed, and started again in the same folder.
    Restarted,
    /// It is killed, and started again in another folder.
    Moved,
    Slow,
    /// Its user stops it.
    Stopped,
    FullDisk,
    /// It never starts. Another host takes its name, which the list has with a key.
    Absent,
}

const FATES: [Fate; 7] = [
    Fate::Killed,
    Fate::Restarted,
    Fate::Moved,
    Fate::Slow,
    Fate::Stopped,
    Fate::FullDisk,
    Fate::Absent,
];

/// A sender with a list, and what its receivers need.
struct Room {
    sender: Manyflow,
    folder: TempDir,
    url: String,
    status: String,
    fates: Vec<Fate>,
}

fn name(receiver: usize) -> String {
    format!("lab-{receiver:02}")
}

/// Whether the list has a key for this receiver.
fn has_key(receiver: usize, fate: Fate) -> bool {
    receiver.is_multiple_of(3) || fate == Fate::Absent
}

impl Room {
    fn open(receivers: usize) -> Room {
        let folder = tempfile::tempdir().unwrap();
        write_random(&folder.path().join("sent/file"), BYTES, 1);
        // A few receivers have a fate, as many of each kind.
        let each = receivers.div_ceil(40);
        let fates = FATES.into_iter().flat_map(|fate| vec![fate; each]);
        let mut fates: Vec<_> = fates.collect();
        fates.resize(receivers, Fate::Fine);
        let mut list = String::from("# the room\n");
        for (receiver, fate) in fates.iter().enumerate() {
            let name = name(receiver);
            list += &name;
            if has_key(receiver, *fate) {
                let key = folder.path().join(format!("{name}.key"));
                SigningKey::generate(&key).unwrap();
                list += &format!(" {name}.key.pub");
            }
            list.push('\n');
        }
        fs::write(folder.path().join("hosts.txt"), list).unwrap();
        let mut command = manyflow(&["send", "sent", "--json", "--rate", "2Mbit/s"]);
        command.args([
            "--listen",
            "127.0.0.1:0",
            "--relay-gateways-per-address",
            "200",
        ]);
        command.args(["--publish", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        command.args([
            "--expect",
            "hosts.txt",
            "--until-done",
            "--reports",
            "127.0.0.1:0",
        ]);
        command.current_dir(folder.path());
        let mut sender = Manyflow::start(command);
        let url = |kind: &'static str| {
            move |line: &str| {
                let event: Value = serde_json::from_str(line).unwrap();
                let url = event["url"].as_str().filter(|_| event["event"] == kind);
                url.map(str::to_owned)
            }
        };
        let metrics = sender.wait_for(url("metrics"));
        let status = metrics.replace("/metrics", "/status.json");
        let url = sender.wait_for(url("published"));
        Room {
            sender,
            folder,
            url,
            status,
            fates,
        }
    }

    fn output(&self, receiver: usize, folder: &str) -> PathBuf {
        let path = self.folder.path().join(folder).join(name(receiver));
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// The command of a receiver with its name and key.
    fn recv(&self, receiver: usize, output: &Path, options: &[&str]) -> Command {
        let name = name(receiver);
        let mut command = manyflow(&["recv", &self.url, "--name", &name, "--threads", "1"]);
        command.args(["--output", text(output)]).args(options);
        let key = self.folder.path().join(format!("{name}.key"));
        if has_key(receiver, self.fates[receiver]) && self.fates[receiver] != Fate::Absent {
            command.args(["--identity", text(&key)]);
        }
        command
    }

    fn start(&self, receiver: usize) -> Manyflow {
        let output = self.output(receiver, "out");
        let command = match self.fates[receiver] {
            Fate::Fine | Fate::Absent => self.recv(receiver, &output, &[]),
            Fate::FullDisk => on_small_disk(&self.recv(receiver, &output, &[]), &output),
            _ => self.recv(receiver, &output, &SLOW),
        };
        Manyflow::start(command)
    }

    /// The sender's table: the rows of listed receivers by name, and the others.
    fn table(&self) -> (BTreeMap<String, Value>, Vec<Value>) {
        let (_, body) = get(&self.status);
        let status: Value = serde_json::from_str(&body).unwrap();
        let rows = status["sessions"][0]["receivers"].as_array().unwrap();
        let (listed, others): (Vec<Value>, Vec<Value>) = rows
            .iter()
            .cloned()
            .partition(|row| row["expected"] == true);
        assert_eq!(listed.len(), self.fates.len());
        let named = listed
            .into_iter()
            .map(|row| (row["name"].as_str().unwrap().to_owned(), row));
        (named.collect(), others)
    }

    /// Waits until the table's row of this receiver is as expected.
    fn wait_for_row(&self, receiver: usize, is_expected: impl Fn(&Value) -> bool) {
        let name = name(receiver);
        let mut last = Value::Null;
        let deadline = std::time::Instant::now() + LIMIT;
        while std::time::Instant::now() < deadline {
            last = self.table().0[&name].clone();
            if is_expected(&last) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        panic!("{name}, {:?}: {last}", self.fates[receiver]);
    }

    fn receivers_of(&self, fates: &[Fate]) -> Vec<usize> {
        let all = 0..self.fates.len();
        all.filter(|receiver| fates.contains(&self.fates[*receiver]))
            .collect()
    }
}

/// Runs a receiver with a disk of its own that is too small for the file.
fn on_small_disk(recv: &Command, output: &Path) -> Command {
    // The shell runs in a mount namespace of its own, so the mount ends with the process.
    let script = r#"mount -t tmpfs -o size=128k tmpfs "$1" || exit 77; shift; exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", text(output)]);
    command
        .arg(recv.get_program())
        .args(recv.get_args())
        .stdin(Stdio::null());
    command
}

/// Whether the row of a receiver with this fate is right at the end.
fn is_right(fate: Fate, row: &Value) -> bool {
    let (bytes, total) = (
        row["bytes"].as_u64().unwrap(),
        row["total_bytes"].as_u64().unwrap(),
    );
    let state = match fate {
        Fate::Fine | Fate::Restarted | Fate::Moved => {
            return row["state"] == "done" && bytes == total && row["done_at"].is_u64();
        }
        Fate::Slow => return row["state"] == "receiving" && bytes > 0 && bytes < total,
        Fate::FullDisk => return row["state"] == "failed" && row["failure"] == "disk full",
        Fate::Killed => "silent",
        Fate::Stopped => "left",
        Fate::Absent => "never-heard",
    };
    row["state"] == state && row["done_at"].is_null()
}

/// Kills, starts again and stops the receivers with such fates, each once the sender knows that it
/// has some bytes. Returns those that were started again.
fn let_fates_happen(room: &Room, running: &mut [Manyflow]) -> Vec<Manyflow> {
    let is_under_way = |row: &Value| row["state"] == "receiving" && row["bytes"].as_u64() > Some(0);
    let mut again = Vec::new();
    for receiver in room.receivers_of(&[Fate::Killed, Fate::Restarted, Fate::Moved]) {
        room.wait_for_row(receiver, is_under_way);
        running[receiver].kill();
        let folder = match room.fates[receiver] {
            Fate::Killed => continue,
            Fate::Moved => "other",
            _ => "out",
        };
        let output = room.output(receiver, folder);
        again.push(Manyflow::start(room.recv(receiver, &output, &[])));
    }
    for receiver in room.receivers_of(&[Fate::Stopped]) {
        room.wait_for_row(receiver, is_under_way);
        running[receiver].signal(Signal::SIGINT);
    }
    again
}

#[test]
fn the_table_of_a_sender_is_right_while_receivers_are_killed_started_again_slow_or_full() {
    let receivers = std::env::var("MANYFLOW_RECEIVERS");
    let receivers = receivers.map_or(RECEIVERS, |text| text.parse().unwrap());
    let room = Room::open(receivers);
    let all = 0..receivers;
    let mut running: Vec<_> = all.map(|receiver| room.start(receiver)).collect();
    let mut others = let_fates_happen(&room, &mut running);
    let mut may_mount = true;
    for (process, fate) in running.into_iter().zip(&room.fates) {
        match fate {
            Fate::Fine | Fate::Absent => drop(process.finish().succeeded("receiver")),
            Fate::FullDisk => may_mount = process.finish().code() != 77,
            // Slow ones go on, and the others have ended or are about to.
            _ => others.push(process),
        }
    }
    if !may_mount {
        println!("skipped: mounting a small disk needs root");
    }
    let is_tested = |fate: Fate| fate != Fate::FullDisk || may_mount;
    for (receiver, fate) in room.fates.iter().enumerate() {
        if is_tested(*fate) {
            room.wait_for_row(receiver, |row| is_right(*fate, row));
        }
    }

    // All rows at the same time, and the hosts that took names of others are none of the list.
    let (rows, strangers) = room.table();
    for (receiver, fate) in room.fates.iter().enumerate() {
        let row = &rows[&name(receiver)];
        assert!(!is_tested(*fate) || is_right(*fate, row), "{fate:?}: {row}");
    }
    let names = strangers.iter().map(|row| row["name"].as_str().unwrap());
    let names: BTreeSet<_> = names.map(str::to_owned).collect();
    let absent = room.receivers_of(&[Fate::Absent]);
    assert_eq!(
        names,
        absent.iter().map(|receiver| name(*receiver)).collect()
    );
    assert_eq!(strangers.len(), absent.len());
    let are_known = |row: &Value| row["lacks_key"] == true && row["state"] == "done";
    assert!(strangers.iter().all(are_known), "{strangers:?}");
    check_page(&room);
    check_metrics(&room);
    check_end(room, &rows);
}

/// Stops the sender, which goes on because not all are done, and compares what it printed with the
/// last table.
fn check_end(room: Room, rows: &BTreeMap<String, Value>) {
    room.sender.signal(Signal::SIGTERM);
    let is_done = |fate: Fate| matches!(fate, Fate::Fine | Fate::Restarted | Fate::Moved);
    let all = (0..room.fates.len()).zip(&room.fates);
    let missing = all.filter(|(_, fate)| !is_done(**fate));
    let missing: Vec<_> = missing.map(|(receiver, _)| name(receiver)).collect();
    let ended = room.sender.finish();
    assert_eq!(ended.code(), 1, "{ended:?}");
    let lines = ended.stdout.lines();
    let events: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let find = |is_wanted: &dyn Fn(&Value) -> bool| {
        let mut latest = events.iter().rev();
        latest.find(|event| is_wanted(event)).cloned()
    };
    for (name, row) in rows {
        let event = find(&|event| {
            event["event"] == "receiver" && event["name"] == **name && event["expected"] == true
        });
        let state = event.map_or("never-heard".into(), |event| event["state"].clone());
        assert_eq!(state, row["state"], "{name}");
    }
    let done = room.fates.len() - missing.len();
    let end = find(&|event| event["event"] == "receivers").unwrap();
    assert_eq!(end["missing"], Value::from(missing.clone()));
    assert_eq!(end["done"], done);
    let failed = find(&|event| event["event"] == "failed").unwrap();
    let text = format!("{done} of {} expected receivers", rows.len());
    assert!(
        failed["error"].as_str().unwrap().starts_with(&text),
        "{failed}"
    );
    println!(
        "{} receivers, of which {} are missing: {missing:?}",
        rows.len(),
        missing.len()
    );
}

/// The page at / shows the line for receivers, and a row for each of them; it loads nothing from
/// elsewhere.
fn check_page(room: &Room) {
    let (head, _) = get(&room.status.replace("/status.json", "/"));
    assert!(head.contains("content-type: text/html"), "{head}");
    assert!(
        head.contains("content-security-policy: default-src 'none'"),
        "{head}"
    );
    let status: Value = serde_json::from_str(&get(&room.status).1).unwrap();
    let session = &status["sessions"][0];
    let line = format!("manyflow recv {}", room.url);
    assert_eq!(session["line"], line);
    assert!(session["qr_svg"].as_str().unwrap().contains("<svg"));
    let page: Value =
        serde_json::from_str(&get(&room.status.replace("/status.json", "/page.json")).1).unwrap();
    assert_eq!(page["lines"][0]["command"], line);
    assert_eq!(page["lines"][0]["qr_svg"], session["qr_svg"]);
    let tables = page["tables"].as_array().unwrap();
    let is_of_receivers = |table: &&Value| table["columns"][0] == "receiver";
    let table = tables.iter().find(is_of_receivers).unwrap();
    let rows = table["rows"].as_array().unwrap();
    let receivers = session["receivers"].as_array().unwrap();
    assert_eq!(rows.len(), receivers.len());
    for (row, receiver) in rows.iter().zip(receivers) {
        let shown = row[0]["text"].as_str().unwrap();
        assert!(
            shown.starts_with(receiver["name"].as_str().unwrap()),
            "{shown}"
        );
        let columns = table["columns"].as_array().unwrap();
        assert_eq!(row.as_array().unwrap().len(), columns.len());
    }
}

/// The metrics, which are some hundred milliseconds old, count the receivers by state as the table
/// does.
fn check_metrics(room: &Room) {
    const STATES: [&str; 6] = [
        "never-heard",
        "receiving",
        "silent",
        "done",
        "failed",
        "left",
    ];
    wait_until("the metrics agree with the table", || {
        let (_, body) = get(&room.status.replace("/status.json", "/metrics"));
        let (rows, strangers) = room.table();
        let sample = format!("manyflow_sender_receivers_unexpected {}\n", strangers.len());
        body.contains(&sample)
            && STATES.iter().all(|state| {
                let count = rows.values().filter(|row| row["state"] == *state).count();
                let labels = format!("{{state=\"{state}\"}}");
                body.contains(&format!("manyflow_sender_receivers{labels} {count}.0\n"))
            })
    });
}

/// Starts a sender that waits for the receivers of this list.
fn sender_for(list: &str, options: &[&str]) -> (Manyflow, String, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    write_random(&folder.path().join("sent/file"), 20_000, 1);
    let hosts = folder.path().join("hosts.txt");
    fs::write(&hosts, list).unwrap();
    let expect = ["--expect", text(&hosts), "--reports", "127.0.0.1:0"];
    let (sender, url) = common::send(&folder.path().join("sent"), &[&expect, options].concat());
    (sender, url, folder)
}

#[test]
fn a_sender_ends_when_all_that_it_expects_have_the_files() {
    let (sender, url, folder) = sender_for("a\nb\n", &["--until-done"]);
    for name in ["a", "stranger", "a", "b"] {
        let output = folder.path().join(format!("out-{name}"));
        let recv = ["recv", &url, "--name", name, "--output", text(&output)];
        run(&recv).succeeded(name);
    }
    let ended = sender.finish().succeeded("sender");
    assert!(
        ended.stdout.contains("2 of 2 expected receivers"),
        "{ended:?}"
    );
    for line in [
        "a: done at ",
        "b: done at ",
        "stranger (not in the list): done at ",
    ] {
        assert_eq!(ended.stdout.matches(line).count(), 1, "{line}: {ended:?}");
    }
    assert!(!ended.stdout.contains("missing"), "{ended:?}");
}

#[test]
fn a_sender_names_those_missing_when_its_time_is_over() {
    let (sender, url, folder) = sender_for("a\nb\nc\n", &["--until-done", "2", "--for", "8s"]);
    let output = folder.path().join("out");
    run(&["recv", &url, "--name", "b", "--output", text(&output)]).succeeded("b");
    let failing = ["recv", &url, "--name", "c", "--output", text(&output)];
    let failing = [&failing[..], &["--overwrite", "--post-receive", "false"]].concat();
    assert_eq!(run(&failing).code(), 1);
    let ended = sender.finish();
    assert_eq!(ended.code(), 1, "{ended:?}");
    for line in [
        "missing: a: never heard",
        "missing: c: failed: its command failed",
    ] {
        assert!(ended.stdout.contains(line), "{line}: {ended:?}");
    }
    assert!(
        ended.stderr.contains("1 of 3 expected receivers"),
        "{ended:?}"
    );
}

#[test]
fn lists_and_numbers_that_do_not_fit_are_refused_before_anything_is_sent() {
    let folder = tempfile::tempdir().unwrap();
    let (list, bad) = (
        folder.path().join("hosts.txt"),
        folder.path().join("bad.txt"),
    );
    write_random(&folder.path().join("file"), 100, 1);
    fs::write(&list, "a\nb\n").unwrap();
    fs::write(&bad, "a\n\na\n").unwrap();
    let file = folder.path().join("file");
    for (options, parts) in [
        (&["--until-done"][..], ["--until-done", "--expect"]),
        (
            &["--expect", text(&bad)],
            ["bad.txt:3: a is in an earlier line", "--expect"],
        ),
        (
            &["--expect", text(&list), "--until-done", "3"],
            ["lists 2 receivers", "--until-done 3"],
        ),
        (
            &["--expect", "nowhere.txt"],
            ["nowhere.txt: cannot be read", "--expect"],
        ),
        (&["--until-done", "some"], ["1 to 1000000", "all"]),
    ] {
        let send = ["send", text(&file), "--listen", "127.0.0.1:0"];
        let ended = run(&[&send[..], options].concat());
        assert_eq!(ended.code(), 2, "{options:?}: {ended:?}");
        for part in parts {
            assert!(ended.stderr.contains(part), "{options:?}: {ended:?}");
        }
    }
    let recv = ["recv", "x.sdp", "--name", "two words"];
    assert_eq!(run(&recv).code(), 2);
}
