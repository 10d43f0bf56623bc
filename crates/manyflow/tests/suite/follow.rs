//! Standing receivers: `recv --follow` of a catalogue, of a folder and of announcements by SAP.
//! Those of SAP need root.

use crate::common;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::SystemTime;

use common::{Manyflow, PATIENT, assert_same, get, manyflow, run, text, wait_until, write_random};
use manyflow_files::follow::digest_of;
use manyflow_files::sdp::SessionDescription;
use manyflow_net::description::ntp_seconds;
use manyflow_testing::TwoHosts;
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// A folder with the keys `own.key` and `other.key`, and files to send in `one` and `two`.
struct Stage(TempDir);

impl Stage {
    fn new() -> Stage {
        let stage = Stage(tempfile::tempdir().unwrap());
        write_random(&stage.path("one/file"), 60_000, 1);
        write_random(&stage.path("two/deep/file"), 90_000, 2);
        for key in ["own.key", "other.key"] {
            run(&["keygen", text(&stage.path(key))]).succeeded("keygen");
        }
        fs::create_dir(stage.path("drop")).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Starts a sender of a folder on loopback, and writes its description to `drop`.
    fn send(&self, folder: &str, key: &str) -> Manyflow {
        self.send_with(folder, key, &[])
    }

    fn send_with(&self, folder: &str, key: &str, arguments: &[&str]) -> Manyflow {
        let description = self.path(&format!("drop/{folder}.sdp"));
        let _ = fs::remove_file(&description);
        let mut command = manyflow(&[
            "send",
            text(&self.path(folder)),
            "--listen",
            "127.0.0.1:0",
            "--session",
            text(&description),
            "--sign",
            text(&self.path(key)),
        ]);
        command.args(arguments);
        let sender = Manyflow::start(command);
        wait_until("the description", || description.exists());
        sender
    }

    /// Returns a follower that trusts the own key.
    fn follower(&self, source: &str, arguments: &[&str]) -> std::process::Command {
        let (output, key) = (self.path("output"), self.path("own.key.pub"));
        let mut command = manyflow(&["recv", "--follow", source, "--json"]);
        command.args(["--output", text(&output), "--trust", text(&key)]);
        command.args(arguments).args(PATIENT);
        command
    }

    /// Asserts that a folder is in the output folder under its session's name.
    #[track_caller]
    fn assert_received(&self, folder: &str) {
        let received = self.path("output").join(folder).join(folder);
        assert_same(&self.path(folder), &received, folder);
    }
}

/// Waits for an event of a session.
fn wait_for(follower: &mut Manyflow, kind: &str, session: &str) -> Value {
    follower.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        (event["event"] == kind && event["session_name"] == session).then_some(event)
    })
}

/// Ends a follower, and returns the events of a kind.
fn end(follower: Manyflow, kind: &str) -> Vec<Value> {
    follower.signal(Signal::SIGTERM);
    let ended = follower.finish().succeeded("follower");
    let events = ended.stdout.lines();
    let events = events.map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == kind).collect()
}

#[test]
fn the_sessions_of_a_catalogue_are_received_once() {
    let stage = Stage::new();
    let config = r#"
        publish = "127.0.0.1:0"
        [defaults]
        listen = "127.0.0.1:0"
        sign = "own.key"
        [session.first]
        paths = ["one"]
        [session.second]
        paths = ["two"]
        [session.strange]
        paths = ["one"]
        sign = "other.key"
    "#;
    fs::write(stage.path("sessions.toml"), config).unwrap();
    let file = stage.path("sessions.toml");
    let mut service = Manyflow::start(manyflow(&["serve", text(&file), "--json"]));
    let published = wait_for(&mut service, "published", "first");
    let url = published["url"].as_str().unwrap();
    let server = url.strip_suffix("/first.sdp").unwrap();

    let metrics = ["--metrics", "127.0.0.1:0"];
    let mut follower = Manyflow::start(stage.follower(server, &metrics));
    for name in ["one", "two"] {
        let received = wait_for(&mut follower, "received", name);
        assert!(received["bytes"].as_u64() >= Some(60_000), "{received}");
        stage.assert_received(name);
    }
    let url = follower.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        (event["event"] == "metrics").then(|| event["url"].as_str().unwrap().to_owned())
    });
    let (_, page) = get(&url);
    for name in ["one", "two"] {
        assert!(page.contains(&format!(r#"session="{name}""#)), "{page}");
    }
    let (_, page) = get(&url.replace("/metrics", "/page.json"));
    let page: Value = serde_json::from_str(&page).unwrap();
    let rows = page["tables"][0]["rows"].as_array().unwrap();
    let shown: Vec<_> = rows
        .iter()
        .map(|row| [&row[0]["text"], &row[1]["text"]])
        .collect();
    assert_eq!(shown, [["one", "1 of 1"], ["two", "1 of 1"]]);
    let log = follower.messages().join("\n");
    assert!(
        log.contains("not trusted"),
        "the third session was noticed: {log}"
    );
    assert_eq!(end(follower, "receiving").len(), 2);
    // A restart knows what was received.
    let mut follower = Manyflow::start(stage.follower(&format!("{server}/catalogue.json"), &[]));
    follower.wait_for_message("not trusted");
    assert!(end(follower, "receiving").is_empty());
}

#[test]
fn a_folder_of_descriptions_is_followed_by_rules() {
    let stage = Stage::new();
    let drop = stage.path("drop");
    let options = ["--only", "{one,two}", "--max-size", "80kB"];
    let mut follower = Manyflow::start(stage.follower(text(&drop), &options));
    let sender = stage.send("one", "own.key");
    wait_for(&mut follower, "received", "one");
    stage.assert_received("one");
    let _large = stage.send("two", "own.key");
    let refused = wait_for(&mut follower, "refused", "two");
    assert!(
        refused["reason"].as_str().unwrap().contains("90000 bytes"),
        "{refused}"
    );
    // A newer session of the name takes the place of the older one.
    sender.signal(Signal::SIGINT);
    sender.finish().succeeded("sender");
    write_random(&stage.path("one/file"), 50_000, 3);
    write_random(&stage.path("one/new"), 5_000, 4);
    let old = fs::read_to_string(stage.path("drop/one.sdp")).unwrap();
    let written = SessionDescription::parse(&old).unwrap().version;
    // Versions are in seconds.
    wait_until("the next second", || {
        ntp_seconds(SystemTime::now()) > written
    });
    let _sender = stage.send("one", "own.key");
    wait_until("the second session", || {
        let is_received = |line: &String| line.contains(r#""event":"received""#);
        follower.lines().into_iter().filter(is_received).count() == 2
    });
    stage.assert_received("one");
    // The older one is refused, although its signature is valid.
    fs::write(stage.path("drop/again.sdp"), &old).unwrap();
    // The same look at the folder finds a text without a signature.
    fs::write(stage.path("drop/probe.sdp"), "v=0\r\nnonsense").unwrap();
    follower.wait_for_message("not trusted");
    assert!(
        end(follower, "receiving").len() == 3,
        "one, two and the newer one"
    );
}

/// The sender stops because the standing receiver has reported that it is done.
#[test]
fn of_a_newer_session_only_what_changed_is_received_and_the_sender_hears_of_it() {
    let stage = Stage::new();
    let file = stage.path("one/file");
    write_random(&file, 2_000_000, 5);
    fs::write(stage.path("hosts.txt"), "lab-01\n").unwrap();
    let hosts = stage.path("hosts.txt");
    let reports = ["--expect", text(&hosts), "--until-done", "--reports"];
    let reports = [&reports[..], &["127.0.0.1:0", "--rate", "5Mbit/s"]].concat();
    let drop = stage.path("drop");
    let sender = stage.send_with("one", "own.key", &reports);
    let name = ["--name", "lab-01"];
    let mut follower = Manyflow::start(stage.follower(text(&drop), &name));
    let first = wait_for(&mut follower, "received", "one");
    assert_eq!(first["earlier_bytes"], 0, "{first}");
    sender.finish().succeeded("the first sender");
    let mut content = fs::read(&file).unwrap();
    content.splice(1_000_000..1_000_000, *b"inserted");
    fs::write(&file, content).unwrap();
    let old = fs::read_to_string(stage.path("drop/one.sdp")).unwrap();
    let written = SessionDescription::parse(&old).unwrap().version;
    wait_until("the next second", || {
        ntp_seconds(SystemTime::now()) > written
    });
    let sender = stage.send_with("one", "own.key", &reports);
    sender.finish().succeeded("the second sender");
    let is_second = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        let here = event["earlier_bytes"].as_u64()?;
        (event["event"] == "received" && here > 0).then_some(event)
    };
    let second = follower.wait_for(is_second);
    assert!(
        second["earlier_bytes"].as_u64() > Some(1_800_000),
        "{second}"
    );
    assert!(
        second["received_bytes"].as_u64() < Some(200_000),
        "{second}"
    );
    stage.assert_received("one");
}

/// The description of another signer is dropped into the folder, and one that was changed.
#[test]
fn a_session_that_no_trusted_key_has_signed_starts_nothing() {
    let stage = Stage::new();
    let drop = stage.path("drop");
    let _sender = stage.send("one", "other.key");
    let mut follower = Manyflow::start(stage.follower(text(&drop), &[]));
    follower.wait_for_message("not trusted");
    let _trusted = stage.send("two", "own.key");
    wait_for(&mut follower, "received", "two");
    let forged = fs::read_to_string(stage.path("drop/two.sdp")).unwrap();
    fs::write(
        stage.path("drop/forged.sdp"),
        forged.replace("\ns=two", "\ns=one"),
    )
    .unwrap();
    follower.wait_for_message("invalid");
    assert_eq!(end(follower, "receiving").len(), 1);
    let names: Vec<_> = fs::read_dir(stage.path("output")).unwrap().collect();
    assert_eq!(
        names.len(),
        2,
        "the folder of the session, and the state: {names:?}"
    );
}

#[test]
fn a_follower_that_was_killed_continues_without_another_announcement() {
    let stage = Stage::new();
    write_random(&stage.path("one/large"), 3_000_000, 5);
    let drop = stage.path("drop");
    let _sender = stage.send("one", "own.key");
    let slow = ["--max-rate", "1Mbit/s"];
    let mut follower = Manyflow::start(stage.follower(text(&drop), &slow));
    follower.wait_for(|line| {
        let event: Value = serde_json::from_str(line).unwrap();
        (event["bytes"].as_u64() > Some(100_000)).then_some(())
    });
    follower.kill();
    fs::remove_file(stage.path("drop/one.sdp")).unwrap();
    let mut follower = Manyflow::start(stage.follower(text(&drop), &[]));
    wait_for(&mut follower, "received", "one");
    stage.assert_received("one");
    end(follower, "receiving");
}

#[test]
fn a_second_follower_of_a_state_folder_and_wrong_options_are_refused() {
    let stage = Stage::new();
    let drop = stage.path("drop");
    let mut follower = Manyflow::start(stage.follower(text(&drop), &[]));
    wait_for_following(&mut follower);
    wait_until("the state folder", || {
        stage.path("output/.manyflow/lock").exists()
    });
    let second = Manyflow::start(stage.follower(text(&drop), &[])).finish();
    assert_fails(&second, 1, "another receiver follows");
    let drop = text(&drop);
    for (arguments, code, part) in [
        (&["--follow", drop][..], 2, "--trust"),
        (
            &["--follow", "/nowhere", "--allow-unverified"],
            2,
            "/nowhere: cannot be read",
        ),
        (
            &["--follow", drop, "--allow-unverified", "--only", "[z-"],
            2,
            "[z-",
        ),
        (
            &["--follow", "ftp://h/", "--allow-unverified"],
            2,
            "ftp://h/",
        ),
    ] {
        let output = stage.path("other");
        let ended = run(&[&["recv", "--output", text(&output)], arguments].concat());
        assert_fails(&ended, code, part);
    }
    end(follower, "receiving");
}

fn wait_for_following(follower: &mut Manyflow) {
    follower.wait_for(|line| line.contains("following").then_some(()));
}

#[track_caller]
fn assert_fails(ended: &common::Ended, code: i32, part: &str) {
    assert_eq!(ended.code(), code, "{ended:?}");
    assert!(ended.stderr.contains(part), "no {part:?} in {ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
}

/// Follows announcements by SAP between two hosts, for groups of an IP version.
fn follow_sap(groups: &str) {
    let Some(hosts) = TwoHosts::new() else { return };
    let stage = Stage::new();
    let mut command = stage.follower("sap", &[]);
    command.args(["--interface", TwoHosts::INTERFACE]);
    let mut follower = hosts.on_receiver(|| Manyflow::start(command));
    wait_for_following(&mut follower);
    wait_until("the state folder", || {
        stage.path("output/.manyflow/lock").exists()
    });
    let send = |folder: &str, key: &str| {
        let mut command = manyflow(&["send", text(&stage.path(folder))]);
        command.args(["--sign", text(&stage.path(key)), "--multicast", groups]);
        command.args(["--interface", TwoHosts::INTERFACE, "--session", "/dev/null"]);
        hosts.on_sender(|| Manyflow::start(command))
    };
    let _strange = send("two", "other.key");
    follower.wait_for_message("not trusted");
    let _sender = send("one", "own.key");
    wait_for(&mut follower, "received", "one");
    stage.assert_received("one");
    assert_eq!(end(follower, "receiving").len(), 1);
}

#[test]
fn sessions_announced_by_sap_are_received() {
    follow_sap("232.1.2.0/24");
}

#[test]
fn sessions_announced_by_sap_over_ipv6_are_received() {
    follow_sap("ff3e::8000:0/112");
}

/// Serves these pages by HTTP until the process ends, and returns its URL. Other paths are an
/// endless page.
fn serve(pages: Vec<(String, String)>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 1_024];
            let length = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]);
            let path = request.split(' ').nth(1).unwrap();
            let page = pages.iter().find(|(known, _)| known == path);
            // The client may close the connection before it has all.
            let _ = match page {
                Some((_, body)) => write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                ),
                None => write!(
                    stream,
                    "HTTP/1.1 200 OK\r\n\r\n{}",
                    "a=x\r\n".repeat(1 << 20)
                ),
            };
        }
    });
    url
}

/// A server that is not the signer's has one of its descriptions, and lists others.
#[test]
fn a_hostile_catalogue_starts_nothing_but_what_the_signer_has_signed() {
    let stage = Stage::new();
    let _genuine = stage.send("one", "own.key");
    let _strange = stage.send("two", "other.key");
    let read = |name: &str| fs::read_to_string(stage.path(name)).unwrap();
    let (genuine, strange) = (read("drop/one.sdp"), read("drop/two.sdp"));
    let pages = [
        ("/strange.sdp", strange),
        ("/changed.sdp", genuine.replace("\ns=one", "\ns=other")),
        (
            "/unsigned.sdp",
            genuine[..genuine.find("a=signature").unwrap()].to_owned(),
        ),
        ("/text.sdp", "no description".to_owned()),
        // The digest is that of another text.
        ("/other-digest.sdp", genuine.replace("\ns=one", "\ns=third")),
        ("/genuine.sdp", genuine.clone()),
        ("/twice.sdp", genuine),
    ];
    let entry = |path: &str, text: &str| {
        let digest = digest_of(text).map(|byte| format!("{byte:02x}")).concat();
        format!(r#"{{"url": "{path}", "sha256": "{digest}"}}"#)
    };
    let mut listed: Vec<_> = pages
        .iter()
        .map(|(path, text)| match *path {
            "/other-digest.sdp" => entry(path, "another"),
            path => entry(path, text),
        })
        .collect();
    listed.insert(0, entry("/endless.sdp", ""));
    listed.insert(1, entry("file:///etc/passwd", ""));
    let catalogue = format!(r#"{{"sessions": [{}]}}"#, listed.join(","));
    let mut pages: Vec<_> = pages.map(|(path, text)| (path.to_owned(), text)).to_vec();
    pages.push(("/catalogue.json".to_owned(), catalogue));
    let server = serve(pages);

    let mut follower = Manyflow::start(stage.follower(&server, &[]));
    wait_for(&mut follower, "received", "one");
    stage.assert_received("one");
    let log = follower.messages().join("\n");
    assert!(
        log.contains("longer than 64 KiB") && log.contains("not trusted"),
        "{log}"
    );
    let received = end(follower, "receiving");
    assert_eq!(received.len(), 1, "{received:?}");
    // A catalogue without an end is a wrong URL.
    let endless = format!("{server}/endless.json");
    let ended = Manyflow::start(stage.follower(&endless, &[])).finish();
    assert_fails(&ended, 2, "64 KiB");
}
