//! `manyflow ls`, `rm` and the tasks of `manyflow store`, as processes on loopback.

use crate::common::{listing, text};
use crate::store::lab::{Lab, event};

#[test]
fn a_lost_member_is_reported_and_repaired() {
    let mut lab = Lab::start(4);
    let file = lab.file("file", 3_000_000, 1);
    lab.put(&[text(&file), "--chunk", "64kB"]).succeeded("put");
    lab.task("verify", &[]).succeeded("verify a whole store");
    lab.lose_member(2);
    let broken = lab.task("verify", &["--read"]);
    assert_eq!(broken.code(), 1, "{broken:?}");
    assert!(
        broken.stderr.contains("lack copies; repair the store"),
        "{broken:?}"
    );
    let done = event(&broken, "done");
    assert_eq!(done["members"].as_array().unwrap().len(), 3);
    assert!(done["short"]["1"].as_u64().unwrap() > 0, "{done}");
    assert_eq!(
        (&done["copied"], &done["sound"]),
        (&0.into(), &false.into())
    );
    let repaired = lab
        .task("repair", &["--rate", "1Gbit/s"])
        .succeeded("repair");
    let repaired = event(&repaired, "done");
    assert_eq!(repaired["copied"], done["short"]["1"]);
    lab.task("verify", &["--read"])
        .succeeded("verify the repaired store");
    lab.lose_member(0);
    lab.get(&["file", "-o", "out"]).succeeded("get");
    lab.assert_same("file", "out");
}

#[test]
fn a_member_that_joins_gets_its_share() {
    let mut lab = Lab::start_with_switch(4);
    lab.kill_member(3);
    lab.wait_for_members(3);
    let file = lab.file("file", 3_000_000, 1);
    lab.put(&[text(&file), "--chunk", "64kB"]).succeeded("put");
    assert_eq!(listing(&lab.folder(3).join("chunks")).len(), 0);
    lab.start_member(3);
    lab.wait_for_members(4);
    let moved = lab.task("rebalance", &[]).succeeded("rebalance");
    assert!(event(&moved, "done")["moved"].as_u64().unwrap() > 0);
    let chunks = (0..4).map(|member| listing(&lab.folder(member).join("chunks")).len());
    assert_eq!(chunks.sum::<usize>(), 2 * 47);
    assert!(listing(&lab.folder(3).join("chunks")).len() > 5);
    lab.task("verify", &[]).succeeded("verify");
}

#[test]
fn files_are_listed_and_removed_and_their_bytes_collected() {
    let lab = Lab::start_with_switch(3);
    for (name, bytes) in [("a", 100_000), ("b", 200_000), ("c", 300_000)] {
        let file = lab.file(name, bytes, bytes as u64);
        let stored = format!("dir/{name}");
        lab.put(&[text(&file), "--name", &stored]).succeeded("put");
    }
    let names = |arguments: &[&str]| {
        let listed = lab.start_files("ls", arguments).finish().succeeded("ls");
        let objects = listed.stdout.lines().map(|line| {
            let object: serde_json::Value = serde_json::from_str(line).unwrap();
            object
        });
        let files = objects.filter(|object| object["event"] == "file");
        files
            .map(|file| file["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(&[]), ["dir/a", "dir/b", "dir/c"]);
    assert_eq!(names(&["dir/b"]), ["dir/b"]);
    let removed = lab.start_files("rm", &["dir/b"]).finish().succeeded("rm");
    assert_eq!(event(&removed, "removed")["bytes"], 200_000);
    let again = lab.start_files("rm", &["dir/b"]).finish();
    assert_eq!(again.code(), 1, "{again:?}");
    assert!(
        again.stderr.contains("was found on none of the 3 members"),
        "{again:?}"
    );
    assert_eq!(names(&[]), ["dir/a", "dir/c"]);

    let dry = lab
        .task("gc", &["--age", "0s", "--dry-run"])
        .succeeded("gc --dry-run");
    assert_eq!(event(&dry, "done")["garbage_bytes"], 2 * 200_000);
    let young = lab.task("gc", &[]).succeeded("gc");
    assert_eq!(event(&young, "done")["garbage_bytes"], 0);
    lab.task("gc", &["--age", "0s"]).succeeded("gc --age 0s");
    let usage = lab.task("usage", &[]).succeeded("usage");
    let total = event(&usage, "done")["bytes"].as_u64().unwrap();
    assert!(
        (800_000..810_000).contains(&total),
        "two copies of two files: {total}"
    );
    assert_eq!(usage.stdout.matches("\"member\"").count(), 3);
    lab.get(&["dir/c", "-o", "out"]).succeeded("get");
    lab.assert_same("c", "out");
}

#[test]
fn earlier_versions_are_listed_and_read() {
    let lab = Lab::start(3);
    let mut versions = Vec::new();
    for (bytes, seed) in [(50_000, 1), (60_000, 2)] {
        lab.file("file", bytes, seed);
        let file = lab.file(&format!("v{seed}"), bytes, seed);
        std::fs::copy(file, lab.path("file")).unwrap();
        let put = lab
            .put(&[text(&lab.path("file")), "--keep", "3"])
            .succeeded("put");
        versions.push(event(&put, "stored")["version"].to_string());
    }
    let listed = lab
        .start_files("ls", &["--versions"])
        .finish()
        .succeeded("ls");
    let earlier = event(&listed, "earlier");
    assert_eq!(earlier["version"].to_string(), versions[0]);
    let get = ["file", "-o", "out", "--version", &versions[0]];
    lab.get(&get).succeeded("get --version");
    lab.assert_same("v1", "out");
    let unknown = lab.get(&["file", "-o", "no", "--version", "5"]);
    assert_eq!(unknown.code(), 1, "{unknown:?}");
    assert!(unknown.stderr.contains("has no version 5"), "{unknown:?}");

    let file = lab.file("file", 10, 3);
    let stale = lab.put(&[text(&file), "--if-version", &versions[0]]);
    assert_eq!(stale.code(), 1, "{stale:?}");
    let reason = format!("the present version is {}", versions[1]);
    assert!(stale.stderr.contains(&reason), "{stale:?}");
    let put = lab.put(&[text(&file), "--if-version", &versions[1]]);
    put.succeeded("put --if-version");
}

#[test]
fn a_folder_of_small_files_shares_chunks() {
    let lab = Lab::start(3);
    for number in 0..200 {
        let folder = lab.path(&format!("tree/d{}", number % 7));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join(format!("f{number}")),
            vec![number as u8; number * 50],
        )
        .unwrap();
    }
    let put = lab
        .put(&["-r", text(&lab.path("tree"))])
        .succeeded("put -r");
    assert_eq!(event(&put, "done")["files"], 200);
    assert_eq!(put.stdout.matches("\"stored\"").count(), 200);
    let chunks: usize = (0..3)
        .map(|member| listing(&lab.folder(member).join("chunks")).len())
        .sum();
    assert_eq!(chunks, 2, "a million bytes fit one chunk");
    for number in [0, 1, 77, 199] {
        let name = format!("d{}/f{number}", number % 7);
        lab.get(&[&format!("tree/{name}"), "-o", "out", "--overwrite"])
            .succeeded("get");
        lab.assert_same(&format!("tree/{name}"), "out");
    }
}

#[test]
fn a_task_without_members_says_what_to_write() {
    let missing = crate::common::run(&["store", "verify"]);
    assert_eq!(missing.code(), 2, "{missing:?}");
    assert!(missing.stderr.contains("--member"), "{missing:?}");
    let nothing = crate::common::run(&["store"]);
    assert_eq!(nothing.code(), 2, "{nothing:?}");
    assert!(nothing.stderr.contains("--dir"), "{nothing:?}");
}
