//! Files and checks for the people who install manyflow: completions, man pages and `doctor`.

use crate::common;

use std::process::{Command, Stdio};

use common::{manyflow, run};
use serde_json::Value;

/// Writes the script of a shell into a folder, and returns its path.
fn script(shell: &str, folder: &std::path::Path) -> std::path::PathBuf {
    let ended = run(&["completions", shell]).succeeded("completions");
    let path = folder.join(format!("manyflow.{shell}"));
    std::fs::write(&path, ended.stdout).unwrap();
    path
}

/// Runs the program in `folder`, and returns its standard output.
fn run_in(folder: &std::path::Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_manyflow"))
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn figures_are_found_in_any_folder() {
    let folder = tempfile::tempdir().unwrap();
    let listed = run_in(folder.path(), &["figure", "--list"]);
    let repository = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    assert_eq!(listed, run_in(repository, &["figure", "--list"]));
    assert!(listed.contains("webrc-9"), "{listed}");
    run_in(folder.path(), &["figure", "webrc-6", "--fast"]);
    assert!(folder.path().join("results/webrc-6/index.html").exists());

    // A folder of the user's own comes first.
    std::fs::create_dir(folder.path().join("scenarios")).unwrap();
    let ended = Command::new(env!("CARGO_BIN_EXE_manyflow"))
        .args(["figure", "--list"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let error = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{error}");
    assert!(error.contains("no scenario in scenarios"), "{error}");
}

#[test]
fn shells_accept_their_scripts() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let path = script(shell, folder.path());
        let checked = Command::new(shell).arg("-n").arg(&path).output();
        let Ok(checked) = checked else {
            println!("skipped: {shell} is not installed");
            continue;
        };
        let errors = String::from_utf8(checked.stderr).unwrap();
        assert!(checked.status.success(), "{shell}: {errors}");
    }
}

#[test]
fn bash_completes_commands_and_options() {
    let folder = tempfile::tempdir().unwrap();
    let path = script("bash", folder.path());
    for (words, expected) in [
        ("manyflow se", "send serve"),
        ("manyflow doct", "doctor"),
        ("manyflow send --until", "--until-done"),
        ("manyflow demo ens", "ensemble"),
        ("manyflow completions f", "fish"),
        ("manyflow figure webrc-9", "webrc-9"),
        ("manyflow sim --new bottle", "bottleneck"),
    ] {
        let program = format!(
            "source {}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _clap_complete_manyflow manyflow \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"; \
             printf '%s\\n' \"${{COMPREPLY[*]}}\"",
            path.display()
        );
        // The script asks the program, which the shell finds in its path.
        let folder = std::path::Path::new(env!("CARGO_BIN_EXE_manyflow"))
            .parent()
            .unwrap();
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        let completed = Command::new("bash")
            .args(["-c", &program])
            .env("PATH", path)
            .output()
            .unwrap();
        let reply = String::from_utf8(completed.stdout).unwrap();
        assert_eq!(reply.trim(), expected, "{words}");
    }
}

#[test]
fn doctor_judges_this_machine_in_json_and_in_a_table() {
    let ended = run(&["doctor", "--json"]).succeeded("doctor");
    let objects: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (done, checks) = objects.split_last().unwrap();
    assert_eq!(done["event"], "done");
    assert_eq!(done["failed"], 0);
    let counted = ["ok", "limited", "missing", "failed"]
        .iter()
        .map(|status| done[status].as_u64().unwrap());
    assert_eq!(counted.sum::<u64>(), checks.len() as u64);
    for check in checks {
        // Every unmet check names its effect.
        assert_eq!(
            check["status"] == "ok",
            check["effect"].is_null(),
            "{check}"
        );
    }
    let table = run(&["doctor"]).succeeded("doctor").stdout;
    for check in checks {
        assert!(
            table.contains(check["name"].as_str().unwrap()),
            "{check}\n{table}"
        );
    }
}

#[test]
fn doctor_fails_where_nothing_can_be_transferred() {
    // A network namespace whose loopback interface is down needs root.
    let mut command = Command::new("unshare");
    command.args(["--net", env!("CARGO_BIN_EXE_manyflow"), "doctor"]);
    let ended = command.stdin(Stdio::null()).output().unwrap();
    let errors = String::from_utf8(ended.stderr).unwrap();
    if errors.contains("unshare failed") {
        println!("skipped: needs root");
        return;
    }
    assert_eq!(ended.status.code(), Some(1), "{errors}");
    let table = String::from_utf8(ended.stdout).unwrap();
    assert!(errors.contains("udp, tcp failed"), "{errors}");
    assert!(table.contains("change: sudo ip link set lo up"), "{table}");
}

#[test]
fn man_pages_are_written_to_a_new_folder() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("share/man1");
    let mut command = manyflow(&["man", "--out"]);
    let ended = command.arg(&pages).output().unwrap();
    assert!(ended.status.success());
    let page = std::fs::read_to_string(pages.join("manyflow-send.1")).unwrap();
    for part in [".TH MANYFLOW-SEND 1", "manyflow send", "Examples:"] {
        assert!(page.contains(part), "no {part} in {page}");
    }
}
