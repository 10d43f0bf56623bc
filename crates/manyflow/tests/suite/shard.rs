//! `manyflow sim --shard` and `manyflow results merge`, as a batch queue uses them.

use crate::common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use common::{Ended, Manyflow, manyflow, run, text};
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

/// Returns the only file with this beginning.
fn file(folder: &Path, start: &str) -> PathBuf {
    let mut names = contents(folder).into_keys();
    folder.join(names.find(|name| name.starts_with(start)).unwrap())
}

#[test]
fn cells_that_are_there_are_not_run_again() {
    let stage = Stage::new();
    let first = stage.shard("1/2", "part");
    assert!(first.stdout.contains(r#""cells":3"#), "{first:?}");
    assert!(first.stdout.contains(r#""known_cells":0"#), "{first:?}");
    let cells = contents(&stage.path("part/parts/cells"));
    assert_eq!(cells.len(), 2, "{:?}", cells.keys());
    let again = stage.shard("1/2", "part");
    assert!(again.stdout.contains(r#""known_cells":3"#), "{again:?}");
    assert_eq!(cells, contents(&stage.path("part/parts/cells")));
    let whole = stage.shard("1/1", "part");
    assert!(whole.stdout.contains(r#""known_cells":3"#), "{whole:?}");
}

#[test]
fn the_last_shard_compacts_to_the_bytes_of_one_process() {
    let stage = Stage::new();
    assert_ok(&stage.shard("1/1", "one"));
    for shard in ["3/3", "1/3", "2/3"] {
        assert_ok(&stage.shard(shard, "several"));
    }
    let one = contents(&stage.path("one/parts/cells"));
    let names: Vec<_> = one.keys().collect();
    assert!(
        names.len() == 2 && names[0].ends_with("-10-00.parquet"),
        "{names:?}"
    );
    assert_eq!(one, contents(&stage.path("several/parts/cells")));
}

/// More cells than a part has, each cheap.
fn many_cells() -> String {
    let rates: Vec<String> = (0..5000)
        .map(|rate| format!("\"{} kbit/s\"", 1000 + rate))
        .collect();
    let sweep = format!("links.bottleneck.rate = [{}]", rates.join(", "));
    let lines = SCENARIO.lines().map(|line| match line {
        "duration = \"3 s\"" => "duration = \"0.02 s\"",
        "seeds = 2" => "",
        line if line.starts_with("links.bottleneck.rate") => sweep.as_str(),
        line => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_killed_process_loses_no_part_and_the_next_one_has_the_same_bytes() {
    let stage = Stage::new();
    fs::write(stage.path("parts.toml"), many_cells()).unwrap();
    let (scenario, out) = (stage.path("parts.toml"), stage.path("killed"));
    let mut killed = manyflow(&[
        "sim",
        text(&scenario),
        "--shard",
        "1/1",
        "--out",
        text(&out),
    ]);
    let mut killed = killed.spawn().unwrap();
    let folder = out.join("parts/cells");
    let is_part = |name: &String| name.starts_with("part-");
    while !folder.exists() || !contents(&folder).keys().any(is_part) {
        assert!(killed.try_wait().unwrap().is_none(), "it ended before");
        sleep(Duration::from_millis(5));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    let again = stage.shard("1/1", "killed");
    assert!(!again.stdout.contains(r#""known_cells":0"#), "{again:?}");
    assert_ok(&again);
    assert_ok(&stage.shard("1/1", "whole"));
    let mut resumed = contents(&folder);
    // The process may have been killed while it wrote a part, which has no name yet.
    resumed.retain(|name, _| !name.starts_with('.'));
    assert_eq!(resumed, contents(&stage.path("whole/parts/cells")));
}

#[test]
fn cells_of_another_program_are_run_again() {
    let stage = Stage::new();
    assert_ok(&stage.shard("5/5", "part"));
    let path = file(&stage.path("part/parts/cells"), "part-");
    let version = format!("version\u{18}\u{5}{}", env!("CARGO_PKG_VERSION"));
    let mut bytes = fs::read(&path).unwrap();
    let all = bytes.windows(version.len());
    let place = all.enumerate().find(|(_, own)| *own == version.as_bytes());
    let end = place.unwrap().0 + version.len();
    bytes[end - 1] ^= 1;
    fs::write(&path, bytes).unwrap();
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
fn a_cut_file_is_named() {
    let stage = Stage::new();
    assert_ok(&stage.shard("1/1", "a"));
    let path = file(&stage.path("a/parts/cells"), "rows-");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 20]).unwrap();
    let ended = stage.merge(&["a"], "merged");
    assert_eq!(ended.code(), 1, "{ended:?}");
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(ended.stderr.contains(name), "{ended:?}");
    assert!(ended.stderr.contains("remove the file"), "{ended:?}");
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

#[test]
fn addresses_are_no_folders() {
    let home = tempfile::tempdir().unwrap();
    for words in [
        &[
            "sim",
            "bottleneck.toml",
            "--shard",
            "1/2",
            "--out",
            "s3://bucket/part",
        ][..],
        &["figure", "xp-t3", "--out", "s3://bucket/part"],
        &["results", "merge", "s3://bucket/part"],
        &["emulate", "xp-t3", "--out", "s3://bucket/part"],
        &["recv", "session.sdp", "--output", "s3://bucket/part"],
    ] {
        let mut command = manyflow(words);
        command.current_dir(home.path());
        let ended = Manyflow::start(command).finish();
        assert_eq!(ended.status.code(), Some(2), "{words:?}");
        let is_said = ended.stderr.contains("s3://bucket/part")
            && ended.stderr.contains("a folder of this machine");
        assert!(is_said, "{words:?}: {}", ended.stderr);
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}
