//! The units in contrib/systemd: systemd understands them, and the program has their options.

use crate::common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::run;

const PROGRAM: &str = "/usr/local/bin/manyflow";

/// The units, by the command that they run. That of standing receivers has another name.
fn units() -> [(&'static str, PathBuf); 11] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd");
    let commands = [
        "send", "recv", "follow", "relay", "daemon", "bridge", "switch", "store", "member",
        "gateway", "router",
    ];
    commands.map(|command| {
        let name = format!("manyflow-{command}@.service");
        let command = if command == "follow" { "recv" } else { command };
        (command, folder.join(name))
    })
}

#[test]
fn systemd_accepts_the_units() {
    let home = tempfile::tempdir().unwrap();
    for (_, unit) in units() {
        // systemd also checks that the program exists.
        let text = std::fs::read_to_string(&unit).unwrap();
        let text = text.replace(PROGRAM, env!("CARGO_BIN_EXE_manyflow"));
        let copy = home.path().join(unit.file_name().unwrap());
        std::fs::write(&copy, text).unwrap();
        let verified = Command::new("systemd-analyze")
            .arg("verify")
            .arg(&copy)
            .output();
        let Ok(verified) = verified else {
            println!("skipped: systemd-analyze is not installed");
            return;
        };
        // Unknown keys are only warnings.
        let findings = String::from_utf8(verified.stderr).unwrap();
        assert!(
            verified.status.success() && findings.is_empty(),
            "{unit:?}: {findings}"
        );
    }
}

#[test]
fn the_units_are_hardened() {
    for (_, unit) in units() {
        let rated = Command::new("systemd-analyze")
            .args(["security", "--offline=true"])
            .arg(&unit)
            .output();
        let Ok(rated) = rated else {
            println!("skipped: systemd-analyze is not installed");
            return;
        };
        let text = String::from_utf8(rated.stdout).unwrap();
        let Some((_, level)) = text.split_once("exposure level for ") else {
            // systemd before 250 cannot rate files.
            println!("skipped: {}", String::from_utf8_lossy(&rated.stderr));
            return;
        };
        let level: f64 = level.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(level < 2.0, "{unit:?} is rated {level}");
    }
}

#[test]
fn the_program_has_the_options_of_its_units() {
    for (command, unit) in units() {
        let text = std::fs::read_to_string(&unit).unwrap();
        let start = format!("{PROGRAM} {command} ");
        let (_, arguments) = text.split_once(&start).unwrap();
        let line = arguments.lines().next().unwrap();
        // The comment at the top has examples of options, too.
        let examples = text.lines().take_while(|line| line.starts_with('#'));
        let words = examples
            .flat_map(str::split_whitespace)
            .chain(line.split(' '));
        let words = words.map(|word| word.trim_start_matches("MANYFLOW_OPTIONS="));
        let options: Vec<_> = words.filter(|word| word.starts_with("--")).collect();
        let help = run(&[command, "--help"]).succeeded(command).stdout;
        assert!(options.len() > 1, "{options:?}");
        for option in options.into_iter().filter(|option| *option != "--now") {
            assert!(help.contains(&format!("{option} ")), "{unit:?}: {option}");
        }
    }
}
