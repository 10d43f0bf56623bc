//! `manyflow sim --shard` and `manyflow results merge`, as a batch queue uses them.

use crate::common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::{Ended, run, text};
use tempfile::TempDir;

/// Five cells with two seeds: measures with many digits, a formula, and a plot with series.
const SCENARIO: &str = r#"title = "A sweep in parts"
[run]
duration = "3 s"
seeds = 2
[sweep]
links.bottleneck.rate = ["0.3 Mbit/s", "0.7 Mbit/s", "1.1 Mbit/s", "1.9 Mbit/s", "2.3 Mbit/s"]
[nodes]
names = ["S", "R"]
[[links]]
name = "bottleneck"
between = ["S", "R"]
delay = "13 ms"
rate = "1 Mbit/s"
queue = "20 packets"
loss = "3 %"
[[sessions]]
name = "tcp"
protocol = "tcp"
sender = "S"
receivers = ["R"]
[[measure]]
name = "rate"
what = "received-rate"
of = "tcp"
[[measure]]
name = "share"
value = "rate / 7 Mbit/s"
[[plots]]
name = "rates"
title = "Rates"
series = [{ what = "received-rate", of = "tcp" }]
[[plots]]
name = "windows"
title = "Windows"
series = [{ what = "cwnd", of = "tcp" }]
[[expect]]
what = "The rate is positive"
value = "rate"
at-least = "1 kbit/s"
source = "the test"
"#;

struct Stage(TempDir);

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("parts.toml"), SCENARIO).unwrap();
        Stage(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn shard(&self, shard: &str, out: &str) -> Ended {
        let (file, out) = (self.path("parts.toml"), self.path(out));
        run(&[
            "sim",
            text(&file),
            "--shard",
            shard,
            "--out",
            text(&out),
            "--json",
        ])
    }

    fn merge(&self, folders: &[&str], out: &str) -> Ended {
        let folders: Vec<_> = folders.iter().map(|folder| self.path(folder)).collect();
        let out = self.path(out);
        let mut arguments = vec!["results", "merge", "--out", text(&out)];
        arguments.extend(folders.iter().map(|folder| text(folder)));
        run(&arguments)
    }
}

/// The files of a folder with their bytes.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        (name, fs::read(entry.path()).unwrap())
    });
    files.collect()
}

fn assert_ok(ended: &Ended) {
    assert_eq!(ended.code(), 0, "{ended:?}");
}

#[test]
fn merged_shards_have_the_bytes_of_the_whole_run() {
    let stage = Stage::new();
    let (file, whole) = (stage.path("parts.toml"), stage.path("whole"));
    assert_ok(&run(&["sim", text(&file), "--out", text(&whole)]));
    for (shard, out) in [("1/3", "a"), ("2/3", "b"), ("3/3", "a")] {
        assert_ok(&stage.shard(shard, out));
    }
    assert_ok(&stage.merge(&["a", "b"], "merged"));
    let whole = contents(&whole.join("parts"));
    assert!(whole.contains_key("summary.json") && whole.contains_key("rates.csv"));
    assert_eq!(whole, contents(&stage.path("merged/parts")));
}

#[test]
fn cells_that_are_there_are_not_run_again() {
    let stage = Stage::new();
    let first = stage.shard("1/2", "part");
    assert!(first.stdout.contains(r#""cells":3"#), "{first:?}");
    assert!(first.stdout.contains(r#""known_cells":0"#), "{first:?}");
    let cells = contents(&stage.path("part/parts/cells"));
    let name = cells
        .keys()
        .find(|name| name.ends_with("-2.jsonl"))
        .unwrap();
    fs::remove_file(stage.path("part/parts/cells").join(name)).unwrap();
    let again = stage.shard("1/2", "part");
    assert!(again.stdout.contains(r#""known_cells":2"#), "{again:?}");
    assert_eq!(cells, contents(&stage.path("part/parts/cells")));
}

#[test]
fn cells_of_another_program_are_run_again() {
    let stage = Stage::new();
    assert_ok(&stage.shard("5/5", "part"));
    let folder = stage.path("part/parts/cells");
    let name = contents(&folder)
        .into_keys()
        .find(|name| name.starts_with("cell-"))
        .unwrap();
    let path = folder.join(name);
    let other = fs::read_to_string(&path)
        .unwrap()
        .replace(env!("CARGO_PKG_VERSION"), "0.0.9");
    fs::write(&path, other).unwrap();
    let again = stage.shard("5/5", "part");
    assert!(again.stdout.contains(r#""known_cells":0"#), "{again:?}");
}

#[test]
fn missing_and_doubled_cells_are_named() {
    let stage = Stage::new();
    assert_ok(&stage.shard("1/3", "a"));
    assert_ok(&stage.shard("3/3", "a"));
    let ended = stage.merge(&["a"], "merged");
    assert_eq!(ended.code(), 1, "{ended:?}");
    for part in ["cells 1, 4 are missing", "of 5 cells", "K mod N"] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    assert_ok(&stage.shard("2/3", "a"));
    assert_ok(&stage.shard("5/5", "b"));
    let ended = stage.merge(&["a", "b"], "merged");
    assert_eq!(ended.code(), 1, "{ended:?}");
    for part in ["cell 4 is in", "a/parts/cells", "b/parts/cells"] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    assert!(!stage.path("merged").exists());
}

#[test]
fn a_cut_file_is_named_with_its_line() {
    let stage = Stage::new();
    assert_ok(&stage.shard("1/1", "a"));
    let folder = stage.path("a/parts/cells");
    let name = contents(&folder)
        .into_keys()
        .find(|name| name.ends_with("-3.jsonl"))
        .unwrap();
    let path = folder.join(name);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
    let ended = stage.merge(&["a"], "merged");
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("-3.jsonl: line 3"), "{ended:?}");
}

#[test]
fn folders_without_cells_and_bad_shards_are_refused() {
    let stage = Stage::new();
    fs::create_dir(stage.path("empty")).unwrap();
    let ended = stage.merge(&["empty"], "merged");
    assert_eq!(ended.code(), 1, "{ended:?}");
    assert!(ended.stderr.contains("sim --shard"), "{ended:?}");
    let ended = stage.shard("4/3", "a");
    assert_eq!(ended.code(), 2, "{ended:?}");
    assert!(ended.stderr.contains("3/10"), "{ended:?}");
}
