//! `manyflow store`, `put` and `get` as processes on loopback.

use crate::common;
mod cluster;
mod faults;
mod lab;
mod maintenance;
mod members;
mod repair_faults;

use std::path::Path;
use std::time::{Duration, Instant};

use common::{LIMIT, get, listing, manyflow, run, text};
use lab::{Lab, event};
use nix::sys::signal::Signal;
use sha2::{Digest as _, Sha256};

#[test]
fn a_file_is_stored_on_several_members_and_read_back() {
    let lab = Lab::start(4);
    let file = lab.file("file", 3_000_001, 1);
    let put = lab.put(&[text(&file), "--replicas", "2", "--chunk", "64kB"]);
    let put = put.succeeded("put");
    let stored = event(&put, "stored");
    let digest = Sha256::digest(std::fs::read(&file).unwrap());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(stored["name"], "file");
    assert_eq!(stored["bytes"], 3_000_001);
    assert_eq!(stored["chunks"], 47);
    assert_eq!(stored["replaced"], false);
    assert_eq!(stored["sha256"], digest);
    let members = stored["members"].as_object().unwrap();
    let copies: u64 = members
        .values()
        .map(|chunks| chunks.as_u64().unwrap())
        .sum();
    assert_eq!((members.len(), copies), (4, 2 * 47));
    let on_disk = (0..4).map(|member| listing(&lab.folder(member).join("chunks")).len());
    assert_eq!(on_disk.sum::<usize>(), 2 * 47);

    let read = lab.get(&["file", "-o", "out"]).succeeded("get");
    lab.assert_same("file", "out");
    let done = event(&read, "done");
    assert_eq!(done["sha256"], digest);
    assert_eq!(done["members"].as_object().unwrap().len(), 4);
}

#[test]
fn a_newer_put_replaces_the_older_one() {
    let lab = Lab::start(3);
    lab.file("one/file", 500_000, 1);
    lab.file("two/file", 400_000, 2);
    for (folder, replaced) in [("one", false), ("two", true)] {
        let put = lab.put(&[text(&lab.path(folder).join("file"))]);
        let put = put.succeeded(folder);
        assert_eq!(event(&put, "stored")["replaced"], replaced);
    }
    lab.get(&["file"]).succeeded("get");
    lab.assert_same("two/file", "file");
}

#[test]
fn several_files_empty_ones_and_odd_names_survive() {
    let lab = Lab::start(2);
    let odd = "odd \"name\" — ünï %2F\\ *";
    let (odd_file, empty) = (lab.file(odd, 70_000, 1), lab.file("empty", 0, 2));
    let put = lab.put(&[text(&odd_file), text(&empty)]).succeeded("put");
    assert_eq!(event(&put, "done")["files"], 2);
    assert_eq!(put.stdout.matches("\"stored\"").count(), 2);
    std::fs::create_dir(lab.path("out")).unwrap();
    for name in [odd, "empty"] {
        lab.get(&[name, "-o", "out"]).succeeded(name);
        lab.assert_same(name, &format!("out/{name}"));
    }
    // A path as the name: its last part names the file.
    let named = lab.put(&[text(&odd_file), "--name", "releases/1.2/file"]);
    named.succeeded("put with a name");
    lab.get(&["releases/1.2/file"]).succeeded("get by the name");
    lab.assert_same(odd, "file");
    assert_eq!(listing(&lab.path("out")).len(), 2, "no hidden file is left");
}

#[test]
fn an_existing_file_is_kept_unless_the_user_says_otherwise() {
    let lab = Lab::start(2);
    let file = lab.file("file", 100_000, 1);
    lab.put(&[text(&file)]).succeeded("put");
    lab.file("out", 5, 2);
    let refused = lab.get(&["file", "-o", "out"]);
    assert_eq!(refused.code(), 1);
    assert!(
        refused.stderr.contains("out: exists already"),
        "{refused:?}"
    );
    assert_eq!(std::fs::read(lab.path("out")).unwrap().len(), 5);
    let get = lab.get(&["file", "-o", "out", "--overwrite"]);
    get.succeeded("overwrite");
    lab.assert_same("file", "out");
}

#[test]
fn a_pipe_a_socket_and_a_device_are_kept_although_the_user_says_otherwise() {
    let lab = Lab::start(2);
    let file = lab.file("file", 100_000, 1);
    lab.put(&[text(&file)]).succeeded("put");
    let folder = tempfile::tempdir().unwrap();
    let special = common::special_files(folder.path());
    for output in &special {
        let refused = lab.get(&["file", "-o", text(output), "--overwrite"]);
        assert_eq!(refused.code(), 1, "{refused:?}");
        let reason = format!("{}: is not a regular file", output.display());
        assert!(refused.stderr.contains(&reason), "{refused:?}");
    }
    common::assert_special(&special);
}

#[test]
fn a_folder_is_put_without_its_pipes_and_links_that_lead_nowhere() {
    let lab = Lab::start(2);
    lab.file("tree/file", 1000, 1);
    let tree = lab.path("tree");
    nix::unistd::mkfifo(&tree.join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::os::unix::fs::symlink("nowhere", tree.join("link")).unwrap();
    let put = lab.put(&["-r", text(&tree)]).succeeded("put");
    assert_eq!(event(&put, "done")["files"], 1);
    for name in ["pipe", "link"] {
        let left_out = format!("tree/{name}: neither a file nor a folder");
        assert!(put.stderr.contains(&left_out), "{put:?}");
    }
    // A single name may be chosen, but not one of a file in a folder.
    std::fs::write(tree.join("two\nlines"), "x").unwrap();
    let refused = lab.put(&["-r", text(&tree)]);
    assert_eq!(refused.code(), 2, "{refused:?}");
    assert!(refused.stderr.contains("rename it"), "{refused:?}");
}

#[test]
fn a_member_whose_disk_fails_says_so_in_its_log() {
    let mut lab = Lab::start(3);
    let file = lab.file("file", 100_000, 1);
    std::fs::remove_dir(lab.folder(0).join("chunks")).unwrap();
    // The chunk goes to the two other members.
    for (number, chunk) in ["64kB", "32kB", "16kB"].into_iter().enumerate() {
        let name = format!("file-{number}");
        let put = lab.put(&[text(&file), "--name", &name, "--chunk", chunk]);
        put.succeeded("put");
    }
    let ended = lab.end_member(0);
    let failed = "a request failed: cannot write to the disk";
    assert_eq!(ended.stderr.matches(failed).count(), 1, "{ended:?}");
}

#[test]
fn errors_name_what_is_wrong() {
    let lab = Lab::start(2);
    let file = lab.file("file", 100, 1);
    let assert_failed = |ended: common::Ended, code: i32, reason: &str| {
        assert_eq!(ended.code(), code, "{ended:?}");
        assert!(ended.stderr.contains(reason), "{reason}: {ended:?}");
        let failed = event(&ended, "failed");
        assert_eq!(failed["exit_code"], code, "{ended:?}");
    };
    let missing = lab.path("missing");
    let cannot = format!("{}: cannot be read", missing.display());
    assert_failed(lab.put(&[text(&missing)]), 1, &cannot);
    assert_failed(lab.put(&[text(lab.home.path())]), 1, "cannot be read");
    assert_failed(
        lab.get(&["nothing"]),
        1,
        "\"nothing\" was found on none of the 2 members that answer (m0, m1)",
    );
    let three = lab.put(&[text(&file), "--replicas", "3"]);
    assert_failed(three, 1, "chunk 0 has 2 of 3 copies (m");
    let name = lab.put(&[text(&file), "--name", "a\nb"]);
    assert_failed(name, 2, "without control characters");
    let two = lab.put(&[text(&file), text(&file)]);
    assert_failed(two, 2, "have the same name");
    let chunk = lab.put(&[text(&file), "--chunk", "2MB"]);
    assert_failed(chunk, 2, "a chunk has 1 to 1048448 bytes");
    let nowhere = lab.get(&["file", "-o", "no/such/folder/file"]);
    assert_failed(nowhere, 1, "\"file\" was found on none");
    let key = lab.put(&[text(&file), "--key", text(&missing)]);
    assert_failed(key, 2, "--key");
    // Two processes cannot use one folder.
    let folder = lab.folder(0);
    let busy = [
        "store",
        "--json",
        "--listen",
        "127.0.0.1:0",
        "--dir",
        text(&folder),
    ];
    assert_failed(run(&busy), 1, "another process stores chunks here");
}

#[test]
fn a_service_that_does_not_answer_is_reported_with_its_own_exit_code() {
    let folder = common::folder_with_file(100);
    let file = folder.path().join("file");
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap().to_string();
    for arguments in [
        ["put", text(&file), "--to", &silent, "--patience", "1s"],
        ["get", "file", "--from", &silent, "--patience", "1s"],
    ] {
        let ended = run(&arguments);
        assert_eq!(ended.code(), 3, "{ended:?}");
        assert!(
            ended.stderr.contains("cannot reach the service"),
            "{ended:?}"
        );
    }
}

#[test]
fn an_interrupted_put_says_so() {
    let folder = common::folder_with_file(100);
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_read_timeout(Some(LIMIT)).unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let file = folder.path().join("file");
    let put = common::Manyflow::start(manyflow(&["put", text(&file), "--to", &address]));
    silent.recv_from(&mut [0; 100]).unwrap();
    put.signal(Signal::SIGINT);
    let ended = put.finish();
    assert_eq!(ended.code(), 130, "{ended:?}");
    assert!(ended.stderr.contains("interrupted"), "{ended:?}");
}

#[test]
fn a_member_that_is_killed_in_the_middle_of_a_get_is_replaced() {
    let mut lab = Lab::start_with_switch(4);
    let file = lab.file("file", 30_000_000, 1);
    let put = lab.put(&[text(&file), "--replicas", "2", "--chunk", "64kB"]);
    put.succeeded("put");
    // A get that ends before it can be stopped is repeated.
    for attempt in 0..20 {
        let get = lab.start_get(&["file", "-o", "out", "--overwrite"]);
        let deadline = Instant::now() + LIMIT;
        let is_begun = || {
            listing(lab.home.path())
                .iter()
                .any(|name| name.ends_with(".partial"))
        };
        while !is_begun() && !lab.path("out").exists() {
            assert!(Instant::now() < deadline, "the get has not begun");
            std::thread::sleep(Duration::from_millis(1));
        }
        get.signal(Signal::SIGSTOP);
        let is_under_way = !lab.path("out").exists();
        if is_under_way {
            lab.kill_member(1);
        }
        get.signal(Signal::SIGCONT);
        get.finish().succeeded("get");
        lab.assert_same("file", "out");
        if is_under_way {
            return;
        }
        println!("attempt {attempt}: the get was faster");
        std::fs::remove_file(lab.path("out")).unwrap();
    }
    panic!("no get could be stopped in time");
}

#[test]
fn a_chunk_without_a_copy_fails_the_get_and_leaves_no_file() {
    let mut lab = Lab::start_with_switch(3);
    let file = lab.file("file", 2_000_000, 1);
    let put = lab.put(&[text(&file), "--replicas", "1", "--chunk", "64kB"]);
    put.succeeded("put");
    // The manifest has one copy, too, and its holder remains.
    let has_manifest = |member: &usize| !listing(&lab.folder(*member).join("names")).is_empty();
    let holder = (0..3).find(has_manifest).unwrap();
    let victim = (holder + 1) % 3;
    assert!(!listing(&lab.folder(victim).join("chunks")).is_empty());
    lab.kill_member(victim);
    let failed = lab.get(&["file", "-o", "out"]);
    assert_eq!(failed.code(), 1, "{failed:?}");
    let named = format!("it was stored on m{victim}");
    for part in ["error: chunk ", "has no copy left", &named] {
        assert!(failed.stderr.contains(part), "{part}: {failed:?}");
    }
    assert!(!lab.path("out").exists());
    // With the member, the same command reads the rest.
    lab.start_member(victim);
    let get = lab.get(&["file", "-o", "out"]).succeeded("get");
    lab.assert_same("file", "out");
    assert!(event(&get, "done")["resumed_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn members_and_clients_with_the_same_key_understand_each_other_and_others_do_not() {
    let mut lab = Lab::with_options(2, |home| {
        let key = home.join("service.key");
        run(&["keygen", "--shared-key", text(&key)]).succeeded("keygen");
        vec!["--key".to_owned(), text(&key).to_owned()]
    });
    let file = lab.file("file", 200_000, 1);
    lab.put(&[text(&file)]).succeeded("put");
    lab.get(&["file", "-o", "out"]).succeeded("get");
    lab.assert_same("file", "out");
    let members = lab.named_members();
    let members = members.iter().map(String::as_str);
    let words = ["get", "file", "--patience", "10s"].into_iter();
    let stranger = run(&words.chain(members).collect::<Vec<_>>());
    assert_eq!(stranger.code(), 3, "{stranger:?}");
    assert!(
        stranger.stderr.contains("no member answered for 10 s"),
        "{stranger:?}"
    );
    // A member ends at once.
    lab.member(0).signal(Signal::SIGTERM);
    lab.take_member(0)
        .finish()
        .succeeded("a member after SIGTERM");
}

/// Starts a member whose chunks are in a folder of this one. Returns the URL of its metrics and its
/// address, too.
fn start_with_metrics(folder: &Path, options: &[&str]) -> (common::Manyflow, String, String) {
    let mut command = manyflow(&["store", "--json", "--listen", "127.0.0.1:0"]);
    command.args(["--metrics", "127.0.0.1:0", "--dir"]);
    command.arg(folder.join("chunks")).args(options);
    let mut member = common::Manyflow::start(command);
    let find = |key: &'static str| {
        move |line: &str| {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            object[key].as_str().map(str::to_owned)
        }
    };
    let url = member.wait_for(find("url"));
    let listen = member.wait_for(find("listen"));
    (member, url, listen)
}

#[test]
fn the_metrics_of_a_member_count_its_requests() {
    let folder = tempfile::tempdir().unwrap();
    let (_member, url, listen) = start_with_metrics(folder.path(), &[]);
    let file = folder.path().join("file");
    common::write_random(&file, 100_000, 1);
    // One member needs no switch.
    let put = ["put", text(&file), "--to", &listen, "--replicas", "1"];
    run(&put).succeeded("put");
    let deadline = Instant::now() + LIMIT;
    loop {
        let (_, metrics) = get(&url);
        // A chunk and the manifest.
        if metrics.contains("manyflow_store_puts_total 2") {
            assert!(metrics.contains("manyflow_store_free_bytes "), "{metrics}");
            break;
        }
        assert!(Instant::now() < deadline, "{metrics}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_get_whose_switch_is_silent_says_so_before_it_gives_up() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let ended = run(&["get", "file", "--from", &at, "--patience", "6s"]);
    assert_eq!(ended.code(), 3, "{ended:?}");
    let warning = format!("the store behind the switch at {at} has not been reachable for");
    assert!(ended.stderr.contains(&warning), "{ended:?}");
}

#[test]
fn a_put_of_a_pipe_that_nobody_writes_ends_at_a_signal() {
    let lab = Lab::start(2);
    let pipe = lab.path("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let put = lab.start_put(&[text(&pipe)]);
    // Before there is a handler, the signal ends the process by itself.
    let deadline = Instant::now() + LIMIT;
    while !handles_sigterm(put.id()) {
        assert!(Instant::now() < deadline, "put handles no signal");
        std::thread::sleep(Duration::from_millis(10));
    }
    put.signal(Signal::SIGTERM);
    assert_eq!(put.finish().code(), 130);
}

fn handles_sigterm(id: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
    mask >> (Signal::SIGTERM as u32 - 1) & 1 == 1
}
