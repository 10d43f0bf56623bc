//! Modes and times of files, which `--archive` sends, on loopback.

use crate::common;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use common::{assert_same, listing, run, send, text, write_random};
use tempfile::TempDir;

/// A folder with a large file and 150 small ones, which are sent in a bundle, each with a mode and
/// a time of its own.
fn files() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..151_u64 {
        let path = folder.path().join(format!("tree/{number}"));
        let bytes = if number == 150 { 200_000 } else { 50 };
        write_random(&path, bytes, number);
        let modified = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + number);
        File::open(&path).unwrap().set_modified(modified).unwrap();
        let modes = [0o600, 0o640, 0o755, 0o444, 0o6755, 0o1777, 0o666];
        let mode = modes[number as usize % modes.len()];
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    folder
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn modified(path: &Path) -> i64 {
    fs::metadata(path).unwrap().mtime()
}

/// Receives the files that a sender with these arguments sends.
fn transfer(files: &TempDir, arguments: &[&str]) -> TempDir {
    let (_sender, url) = send(files.path(), arguments);
    let output = tempfile::tempdir().unwrap();
    run(&["recv", &url, "--output", text(output.path())]).succeeded("receiver");
    assert_same(files.path(), output.path(), "archive");
    output
}

#[test]
fn an_archive_keeps_permissions_and_times_of_all_files() {
    let files = files();
    let output = transfer(&files, &["--archive"]);
    for name in listing(files.path()) {
        let (sent, received) = (files.path().join(&name), output.path().join(&name));
        assert_eq!(mode(&received), mode(&sent) & 0o777, "{name}");
        assert_eq!(modified(&received), modified(&sent), "{name}");
    }
}

#[test]
fn without_archive_files_are_new() {
    let files = files();
    let output = transfer(&files, &[]);
    let reference = output.path().join("reference");
    fs::write(&reference, "").unwrap();
    for name in listing(files.path()) {
        let received = output.path().join(&name);
        assert_eq!(mode(&received), mode(&reference), "{name}");
        assert!(modified(&received) > 1_600_000_000, "{name}");
    }
}
