//! Clients that name the members of a store, and so need no switch.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::lab::{Lab, event};
use super::start_with_metrics;
use crate::common::{Ended, LIMIT, Manyflow, get, manyflow, run, text};

/// Runs a command with these options as well.
fn run_with(words: &[&str], options: &[String]) -> Ended {
    let options = options.iter().map(String::as_str);
    run(&words.iter().copied().chain(options).collect::<Vec<_>>())
}

#[test]
fn all_clients_agree_on_the_member_that_decides() {
    let lab = Lab::start_with_switch(3);
    let named = lab.named_members();
    // In another order, and called by their addresses.
    let unnamed = named.iter().rev().map(|option| {
        let (_, address) = option.rsplit_once('=').unwrap();
        format!("--member={address}")
    });
    let unnamed: Vec<_> = unnamed.collect();
    let file = lab.file("file", 1000, 1);
    let put = |name: &str, expected: &str, options: &[String]| {
        let words = ["put", text(&file), "--json", "--replicas", "1"];
        let words = [&words[..], &["--name", name, "--if-version", expected]].concat();
        let put = run_with(&words, options).succeeded("put");
        event(&put, "stored")["version"].to_string()
    };
    // Clients that disagree on the first member would ask one that lacks the version.
    for number in 0..6 {
        let name = format!("file-{number}");
        let version = put(&name, "0", &named);
        let version = put(&name, &version, &unnamed);
        let switch = lab.put(&[
            text(&file),
            "--replicas",
            "1",
            "--name",
            &name,
            "--if-version",
            &version,
        ]);
        switch.succeeded("put through the switch");
    }
}

#[test]
fn members_that_cannot_be_used_are_named() {
    let assert_failed = |options: &[&str], code: i32, reason: &str| {
        let ended = run(&[&["store", "usage"], options].concat());
        assert_eq!(ended.code(), code, "{ended:?}");
        assert!(ended.stderr.contains(reason), "{reason}: {ended:?}");
    };
    let (a, b) = ("--member=a=127.0.0.1:7001", "--member=b=127.0.0.1:7001");
    assert_failed(&[a, b], 2, "a and b have the same address, 127.0.0.1:7001");
    assert_failed(&[a, a], 2, "--member a: given twice");
    let both = [a, "--at=127.0.0.1:7000"];
    assert_failed(&both, 2, "cannot be used with");
    assert_failed(&["--member=a=127.0.0.1"], 2, "127.0.0.1");
    let silent = [(); 2].map(|()| std::net::UdpSocket::bind("127.0.0.1:0").unwrap());
    let [a, b] = silent.map(|socket| socket.local_addr().unwrap());
    let (named, unnamed) = (format!("--member=a={a}"), format!("--member={b}"));
    let both = [&named, &unnamed, "--patience=1s"];
    assert_failed(&both, 3, &format!("nothing comes from a at {a} or {b}"));
}

#[test]
fn a_member_that_is_down_at_the_start_is_done_without() {
    let mut lab = Lab::start(3);
    lab.kill_member(0);
    let file = lab.file("file", 200_000, 1);
    // So is one whose name is not found, as that of a container that has ended.
    let nameless = "--member=gone=no-such-host.invalid:7001";
    let put = lab.put(&[text(&file), "--chunk", "64kB", nameless]);
    let put = put.succeeded("put");
    let reason = "no-such-host.invalid";
    assert!(put.stderr.contains(reason), "{put:?}");
    assert!(put.stderr.contains("the others are used"), "{put:?}");
    let members = event(&put, "stored")["members"].clone();
    assert_eq!(members.as_object().unwrap().len(), 2, "{members}");
    lab.start_member(0);
    lab.get(&["file", "-o", "out"]).succeeded("get");
    lab.assert_same("file", "out");
}

#[test]
fn members_learn_of_the_end_of_a_client() {
    let folder = tempfile::tempdir().unwrap();
    let (member, url, listen) = start_with_metrics(folder.path(), &["-vv"]);
    let wait_for_connections = |connections: u8| {
        let deadline = Instant::now() + LIMIT;
        let line = format!("manyflow_store_connections {connections}\n");
        while !get(&url).1.contains(&line) {
            assert!(Instant::now() < deadline, "no {line}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let put = ["put", text(&pipe), "--name", "file", "--member", &listen];
    let put = Manyflow::start(manyflow(&put));
    // The put waits for bytes.
    let writer = std::fs::File::options().write(true).open(&pipe).unwrap();
    wait_for_connections(1);
    put.signal(Signal::SIGINT);
    assert_eq!(put.finish().code(), 130);
    wait_for_connections(0);
    drop(writer);
    member.signal(Signal::SIGTERM);
    let ended = member.finish().succeeded("store");
    assert!(ended.stderr.contains("it was aborted"), "{ended:?}");
}
