//! Clients of a cluster that share one connection to the store, behind a switch of their own.

use std::time::Instant;

use super::lab::{Lab, event};
use crate::common::{LIMIT, listing, text};

/// Waits until the members have written this number of chunks.
fn wait_for_chunks(lab: &Lab, members: usize, chunks: usize) {
    let deadline = Instant::now() + LIMIT;
    let written = || {
        let folders = (0..members).map(|member| lab.folder(member).join("chunks"));
        folders.map(|folder| listing(&folder).len()).sum::<usize>()
    };
    while written() < chunks {
        assert!(Instant::now() < deadline, "{} chunks", written());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn clients_put_and_get_at_once_while_one_of_them_is_killed() {
    let mut lab = Lab::start(3);
    lab.start_initiators();
    let files = ["a", "b", "c"].map(|name| lab.file(name, 2_000_000, name.len() as u64));
    let large = lab.file("large", 30_000_000, 9);
    let put = |path: &std::path::Path| lab.start_put(&[text(path), "--chunk", "64kB"]);
    let mut killed = put(&large);
    let puts = [put(&files[0]), put(&files[1])];
    wait_for_chunks(&lab, 3, 20);
    killed.kill();
    for put in puts {
        event(&put.finish().succeeded("put"), "done");
    }
    let gets = ["a", "b"].map(|name| lab.start_get(&[name, "-o", &format!("{name}-out")]));
    let third = put(&files[2]);
    for get in gets {
        get.finish().succeeded("get");
    }
    third.finish().succeeded("put during gets");
    lab.assert_same("a", "a-out");
    lab.assert_same("b", "b-out");
    assert_eq!(lab.get(&["large"]).code(), 1, "its put was killed");
    lab.put(&[text(&large)]).succeeded("put after the death");
    lab.get(&["large", "-o", "large-out"]).succeeded("get");
    lab.assert_same("large", "large-out");
}

#[test]
fn clients_of_a_cluster_keep_the_store_and_survive_a_member() {
    let mut lab = Lab::with_options(3, |home| {
        let key = home.join("key");
        let made = crate::common::run(&["keygen", "--shared-key", text(&key)]);
        made.succeeded("keygen");
        vec!["--key".to_owned(), text(&key).to_owned()]
    });
    lab.start_initiators();
    let file = lab.file("file", 1_000_000, 1);
    lab.put(&[text(&file), "--chunk", "64kB"]).succeeded("put");
    lab.task("verify", &[]).succeeded("verify");
    lab.kill_member(1);
    lab.get(&["file", "-o", "out"]).succeeded("get");
    lab.assert_same("file", "out");
    assert!(lab.start_files("ls", &[]).finish().stdout.contains("file"));
}
