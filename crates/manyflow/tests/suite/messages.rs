//! `manyflow pub` and `manyflow sub`, with `manyflow daemon`.
use crate::common;

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Stdio;

use common::{Ended, Manyflow, manyflow, run};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

/// A daemon without neighbours, and the address for its clients.
fn start_daemon() -> (Manyflow, String) {
    let arguments = ["daemon", "--insecure", "--name", "a", "--json"];
    let mut command = manyflow(&arguments);
    command.args(["--clients", "127.0.0.1:0"]);
    let mut daemon = Manyflow::start(command);
    let started = daemon.wait_for_event("started");
    let address = started["clients"].as_str().unwrap().to_owned();
    (daemon, address)
}

/// Starts `manyflow sub` and waits until it has joined.
fn start_sub(address: &str, arguments: &[&str]) -> Manyflow {
    let mut command = manyflow(&["sub", "--json", "--server", address]);
    command.args(arguments);
    let mut sub = Manyflow::start(command);
    sub.wait_for_event("joined");
    sub
}

fn publish(address: &str, arguments: &[&str]) -> Ended {
    let mut command = manyflow(&["pub", "--server", address]);
    command.args(arguments);
    Manyflow::start(command).finish()
}

fn messages(ended: &Ended) -> Vec<Value> {
    events(ended, "message")
}

fn events(ended: &Ended, kind: &str) -> Vec<Value> {
    let events = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    events
        .filter(|event: &Value| event["event"] == kind)
        .collect()
}

#[test]
fn lines_of_standard_input_reach_members_in_order() {
    let (_daemon, address) = start_daemon();
    let sub = start_sub(&address, &["lines.*", "--count", "3"]);
    let mut command = manyflow(&["pub", "lines.a", "--server", &address]);
    command.stdin(Stdio::piped());
    let mut publisher = Manyflow::start(command);
    publisher.stdin().write_all(b"one\ntwo\n\n").unwrap();
    publisher.finish().succeeded("pub");
    let ended = sub.finish().succeeded("sub");
    let payloads: Vec<_> = messages(&ended)
        .iter()
        .map(|message| message["payload"].clone())
        .collect();
    assert_eq!(payloads, ["one", "two", ""]);
}

#[test]
fn headers_and_reply_subjects_are_printed() {
    let (_daemon, address) = start_daemon();
    let sub = start_sub(&address, &["a", "b.>", "--count", "1"]);
    let arguments = [
        "b.c.d", "hi", "--header", "K: v w", "--header", "K: x", "--reply", "r",
    ];
    publish(&address, &arguments).succeeded("pub");
    let ended = sub.finish().succeeded("sub");
    let wanted = json!({
        "event": "message", "subject": "b.c.d", "reply": "r", "payload": "hi",
        "headers": {"K": ["v w", "x"]},
    });
    assert_eq!(messages(&ended), [wanted]);
}

#[test]
fn a_number_of_messages_of_a_size_is_published() {
    let (_daemon, address) = start_daemon();
    let sub = start_sub(&address, &["load", "--count", "300"]);
    let arguments = [
        "load",
        "--size",
        "1kB",
        "--count",
        "300",
        "--rate",
        "100Mbit/s",
        "--json",
    ];
    let published = publish(&address, &arguments).succeeded("pub");
    let done: Value = serde_json::from_str(published.stdout.trim()).unwrap();
    assert_eq!(
        (&done["messages"], &done["bytes"]),
        (&json!(300), &json!(300_000))
    );
    let ended = sub.finish().succeeded("sub");
    let received = messages(&ended);
    assert!(
        received
            .iter()
            .all(|message| message["payload"].as_str().unwrap().len() == 1_000)
    );
}

#[test]
fn a_request_without_responders_exits_with_3() {
    let (_daemon, address) = start_daemon();
    let ended = publish(&address, &["nobody", "hi", "--request"]);
    assert_eq!(ended.code(), 3, "{ended:?}");
    assert!(ended.stderr.contains(&address), "{ended:?}");
}

#[test]
fn a_member_of_ordered_groups_prints_messages_and_views() {
    let (_daemon, address) = start_daemon();
    let mut member = start_sub(&address, &["orders", "stock", "--views", "--count", "2"]);
    for group in ["orders", "stock"] {
        member.wait_for(|line| {
            let event: Value = serde_json::from_str(line).ok()?;
            (event["event"] == "view" && event["group"] == group).then_some(())
        });
    }
    let both = [
        "orders",
        "17 chairs",
        "--service",
        "safe",
        "--also",
        "stock",
    ];
    publish(&address, &both).succeeded("pub");
    publish(&address, &["stock", "none", "--service", "fifo"]).succeeded("pub");
    let ended = member.finish().succeeded("sub");
    let [first, second] = &events(&ended, "delivered")[..] else {
        panic!("{ended:?}");
    };
    assert_eq!(first["groups"], json!(["orders", "stock"]));
    assert_eq!(
        (&first["service"], &first["payload"]),
        (&json!("safe"), &json!("17 chairs"))
    );
    assert_eq!(
        (&second["service"], &second["groups"]),
        (&json!("fifo"), &json!(["stock"]))
    );
    let views = events(&ended, "view");
    assert_eq!(views.len(), 2);
    assert_eq!(
        (&views[0]["cause"], &views[0]["who"]),
        (&json!("join"), &views[0]["self"])
    );

    let refused = publish(&address, &["orders", "hi", "--service", "best"]);
    assert_eq!(refused.code(), 2, "{refused:?}");
    assert!(refused.stderr.contains("agreed"), "{refused:?}");
    let refused = publish(&address, &["orders.*", "hi", "--service", "safe"]);
    assert_eq!(refused.code(), 2, "{refused:?}");
}

#[test]
fn invalid_subjects_and_headers_exit_with_2() {
    let (_daemon, address) = start_daemon();
    for arguments in [
        &["a b", "hi"][..],
        &["a.*", "hi"],
        &["a", "hi", "--header", "b c: d"],
    ] {
        let ended = publish(&address, arguments);
        assert_eq!(ended.code(), 2, "{ended:?}");
    }
}

#[test]
fn programs_on_the_same_machine_connect_by_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("unix:{}", folder.path().join("a.sock").display());
    let start = || {
        let arguments = [
            "daemon",
            "--insecure",
            "--name",
            "a",
            "--json",
            "--clients",
            &address,
        ];
        let mut daemon = Manyflow::start(manyflow(&arguments));
        assert_eq!(daemon.wait_for_event("started")["clients"], address);
        daemon
    };
    start().kill();
    // The file of the daemon that was killed is replaced.
    let daemon = start();
    let sub = start_sub(&address, &["local", "--count", "1"]);
    publish(&address, &["local", "hi"]).succeeded("pub");
    let ended = sub.finish().succeeded("sub");
    assert_eq!(messages(&ended)[0]["payload"], "hi");
    let second = run(&["daemon", "--insecure", "--name", "b", "--clients", &address]);
    assert_eq!(second.code(), 1, "{second:?}");
    assert!(second.stderr.contains(&address), "{second:?}");
    daemon.signal(Signal::SIGTERM);
    daemon.finish().succeeded("daemon");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn unix_sockets_that_cannot_be_are_refused_with_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let long = format!("unix:/{}", "x".repeat(200));
    let no_socket = format!("unix:{}", file.display());
    let no_folder = format!("unix:{}/a.sock", folder.path().join("no").display());
    for (address, code, problem) in [
        (&long[..], 2, "107 bytes"),
        ("unix:a.sock", 2, "absolute path"),
        (&no_socket, 1, "is no socket"),
        (&no_folder, 1, "has no folder"),
    ] {
        let ended = run(&["daemon", "--insecure", "--name", "a", "--clients", address]);
        assert_eq!(ended.code(), code, "{ended:?}");
        assert!(ended.stderr.contains(problem), "{ended:?}");
        if code == 1 {
            assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        }
        let ended = run(&["pub", "a", "hi", "--server", address]);
        assert_eq!(ended.code(), code, "{ended:?}");
    }
    assert!(file.exists());
}

#[test]
fn a_daemon_that_cannot_be_reached_is_named() {
    let ended = run(&["pub", "a", "hi", "--server", "127.0.0.1:1"]);
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("127.0.0.1:1"), "{ended:?}");
}

#[test]
fn an_interrupted_sub_succeeds_unless_messages_are_missing() {
    let (_daemon, address) = start_daemon();
    for (arguments, code) in [(&["a"][..], 0), (&["a", "--count", "1"], 130)] {
        let sub = start_sub(&address, arguments);
        sub.signal(Signal::SIGINT);
        let ended = sub.finish();
        assert_eq!(ended.code(), code, "{ended:?}");
    }
}

#[test]
fn sub_fails_when_its_daemon_stops() {
    let (mut daemon, address) = start_daemon();
    let sub = start_sub(&address, &["a"]);
    daemon.kill();
    let ended = sub.finish();
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("was lost"), "{ended:?}");
}

/// Without any option, a member that reads nothing holds its group up for a time only.
#[test]
fn a_member_that_reads_nothing_is_removed_and_the_others_go_on() {
    let (mut daemon, address) = start_daemon();
    let mut stopped = TcpStream::connect(&address).unwrap();
    let subscribe = b"CONNECT {\"verbose\":false,\"name\":\"laptop\"}\r\nSUB news 1\r\n";
    stopped.write_all(subscribe).unwrap();
    // More than the buffers of both sockets and of the daemon hold, some 12 MB.
    let sub = start_sub(&address, &["news", "--count", "5000"]);
    let arguments = ["news", "--size", "4KB", "--count", "5000"];
    publish(&address, &arguments).succeeded("pub");
    sub.finish().succeeded("sub");
    for message in ["a member reads too slowly", "it was removed from the group"] {
        daemon.wait_for_message(message);
    }
    daemon.wait_for_message("laptop");
}
