//! Tests that the units of contrib/systemd start commands that this program has, with the
//! configurations of contrib/config.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;

use super::{Cli, Command};

/// The program in the units. The Debian package replaces its folder by /usr/bin.
const PROGRAM: &str = "/usr/local/bin/manyflow";

fn contrib(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib")
        .join(folder)
}

fn units() -> Vec<PathBuf> {
    let entries = fs::read_dir(contrib("systemd")).unwrap();
    let mut units: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    units.sort();
    units
}

/// The variables of a unit's EnvironmentFile for the instance `default`.
fn variables(unit: &str) -> BTreeMap<String, String> {
    let Some(file) = unit
        .lines()
        .find_map(|line| line.strip_prefix("EnvironmentFile="))
    else {
        return BTreeMap::new();
    };
    let name = file
        .strip_prefix("/etc/manyflow/")
        .unwrap()
        .replace("%i", "default");
    let text = fs::read_to_string(contrib("config").join(&name)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let variables = lines.map(|line| {
        let (name, value) = line.split_once('=').unwrap();
        (name.to_owned(), value.to_owned())
    });
    variables.collect()
}

/// Returns the words of the program's command line in ExecStart, with the values of variables.
fn command_line(unit: &str) -> Vec<String> {
    let line = unit
        .lines()
        .find(|line| line.starts_with("ExecStart="))
        .unwrap();
    let (_, arguments) = line.split_once(PROGRAM).unwrap();
    let mut text = arguments.replace("$$", "$").replace(['\'', '"'], "");
    // The shell of the sender's unit chooses between --session and --resume.
    text = text
        .replace("$how", "--session")
        .replace("$STATE_DIRECTORY", "/var/lib");
    text = text.replace("%i", "default").replace("%S", "/var/lib");
    for (name, value) in variables(unit) {
        text = text
            .replace(&format!("${{{name}}}"), &value)
            .replace(&format!("${name}"), &value);
    }
    assert!(!text.contains('$') && !text.contains('%'), "{text}");
    let words = text.split_whitespace().map(str::to_owned);
    std::iter::once("manyflow".to_owned())
        .chain(words)
        .collect()
}

#[test]
fn every_unit_starts_a_command_of_this_program() {
    let units = units();
    assert_eq!(units.len(), 12, "{units:?}");
    for path in units {
        let unit = fs::read_to_string(&path).unwrap();
        let words = command_line(&unit);
        let cli = Cli::try_parse_from(&words)
            .unwrap_or_else(|error| panic!("{}: {words:?}: {error}", path.display()));
        let is_role = matches!(
            cli.command,
            Command::Send(_)
                | Command::Serve(_)
                | Command::Recv(_)
                | Command::Relay(_)
                | Command::Daemon(_)
                | Command::Bridge(_)
        ) || matches!(
            cli.command,
            Command::Switch(_)
                | Command::Router(_)
                | Command::Store(_)
                | Command::Member(_)
                | Command::Gateway(_)
        );
        assert!(is_role, "{words:?}");
    }
}

#[test]
fn the_configurations_listen_on_loopback_alone() {
    let mut count = 0;
    for entry in fs::read_dir(contrib("config")).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for word in lines.flat_map(|line| line.split([' ', '"'])) {
            if word.parse::<std::net::SocketAddr>().is_ok() {
                assert!(word.starts_with("127.0.0.1:"), "{word}");
                count += 1;
            }
        }
    }
    assert!(count >= 10, "{count}");
}

#[test]
fn the_package_marks_every_configuration_as_such() {
    let manifest = include_str!("../../Cargo.toml");
    for entry in fs::read_dir(contrib("config")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_marked = manifest.contains(&format!("\"/etc/manyflow/{name}\""));
        assert_eq!(is_marked, name != "README", "{name}");
    }
}
