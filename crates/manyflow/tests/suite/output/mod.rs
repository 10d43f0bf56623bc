//! The same output everywhere: one table of inputs for all commands, and the objects of `--json`
//! against docs/output.md. Everything runs on loopback.

use crate::common;
mod documented;
mod hidden;

use std::path::Path;
use std::process::{Command, Stdio};

use common::{Ended, Manyflow, manyflow, run, text};
use manyflow_net::reserved::ReservedAddress;
use manyflow_testing::command_lines::{check_all_commands, objects};
use nix::sys::signal::Signal;

#[test]
fn help_and_wrong_options_are_the_same_everywhere() {
    let commands = check_all_commands(run);
    assert!(commands > 30, "{commands} commands");
}

/// Wrong inputs: the words, the exit code, and parts of the only line that names and helps.
const WRONG: &[(&[&str], i32, &[&str])] = &[
    (
        &["send", "no/such", "--listen", "127.0.0.1:0"],
        1,
        &["no/such", "check the path"],
    ),
    (
        &["serve", "no/such.toml"],
        2,
        &["no/such.toml", "check the path"],
    ),
    (
        &["recv", "no/such.sdp"],
        2,
        &["no/such.sdp", "check the path"],
    ),
    (
        &["recv", "http://127.0.0.1:1/x"],
        1,
        &["127.0.0.1:1", "--publish"],
    ),
    (
        &[
            "relay",
            "--session",
            "no/such.sdp",
            "--listen",
            "127.0.0.1:0",
        ],
        2,
        &["no/such.sdp", "check the path"],
    ),
    (
        &[
            "stream",
            "send",
            "--folder",
            "no/such",
            "--listen",
            "127.0.0.1:0",
        ],
        1,
        &["no/such", "check the path"],
    ),
    (
        &["stream", "recv", "no/such.sdp"],
        2,
        &["no/such.sdp", "check the path"],
    ),
    (
        &["daemon", "no/such.toml"],
        2,
        &["no/such.toml", "check the path"],
    ),
    (
        &["top", "--once", "127.0.0.1:1"],
        1,
        &["check the addresses"],
    ),
    (
        &["switch", "--config", "no/such.toml"],
        2,
        &["no/such.toml", "check the path"],
    ),
    (
        &[
            "router",
            "--listen",
            "127.0.0.1:0",
            "--to",
            "no.invalid:1",
            "--rate",
            "1Mbit/s",
        ],
        1,
        &["no.invalid:1", "check the name"],
    ),
    (
        &["gateway", "--listen", "127.0.0.1:0", "--to", "no.invalid:1"],
        1,
        &["no.invalid:1", "check the name"],
    ),
    (
        &[
            "member",
            "--http",
            "http://127.0.0.1:1",
            "--listen",
            "192.0.2.1:1",
        ],
        1,
        &["192.0.2.1:1", "choose another"],
    ),
    (
        &["store", "--dir", "/dev/null/x", "--listen", "127.0.0.1:0"],
        1,
        &["/dev/null/x", "choose another"],
    ),
    (
        &["put", "no/such", "--to", "127.0.0.1:1"],
        1,
        &["no/such", "check the path"],
    ),
    (&["pub", "a b", "hello"], 2, &["a b"]),
    (
        &["sub", "news", "--server", "127.0.0.1:1"],
        1,
        &["127.0.0.1:1", "is `manyflow daemon` running"],
    ),
    (
        &["check-order", "no/such.jsonl"],
        2,
        &["no/such.jsonl", "check the path"],
    ),
    (
        &["keygen", "no/such/key"],
        1,
        &["no/such/key", "check the folder"],
    ),
    (
        &["sim", "no/such.toml"],
        2,
        &["no/such.toml", "check the path"],
    ),
    (&["figure", "no-such"], 2, &["no-such", "--list"]),
    (
        &["figure", "x", "--scenarios", "no/such"],
        1,
        &["no/such", "--scenarios"],
    ),
    (
        &["results", "merge", "no/such"],
        1,
        &["no/such", "check the folder"],
    ),
    (
        &["man", "--out", "/dev/null/x"],
        1,
        &["/dev/null/x", "--out"],
    ),
];

#[test]
fn errors_name_what_is_wrong_and_say_what_to_do() {
    // The scenarios are there.
    let run = |words: &[&str]| {
        let mut command = manyflow(words);
        command.current_dir(repository());
        Manyflow::start(command).finish()
    };
    for (words, code, parts) in WRONG {
        let ended = run(words);
        assert_eq!(ended.code(), *code, "{words:?}: {ended:?}");
        let errors: Vec<_> = ended
            .stderr
            .lines()
            .filter(|line| line.starts_with("error: "))
            .collect();
        assert_eq!(errors.len(), 1, "{words:?}: {ended:?}");
        for part in *parts {
            assert!(
                errors[0].contains(part),
                "{words:?}: no {part:?} in {ended:?}"
            );
        }
        // The same error for programs, in the last object.
        let ended = run(&[words, &["--json"][..]].concat());
        let objects = objects(&ended.stdout);
        let failed = objects
            .last()
            .unwrap_or_else(|| panic!("{words:?}: {ended:?}"));
        assert_eq!(
            (&failed["event"], &failed["exit_code"]),
            (&"failed".into(), &(*code).into()),
            "{words:?}"
        );
        assert_eq!(
            format!("error: {}", failed["error"].as_str().unwrap()),
            errors[0],
            "{words:?}"
        );
    }
}

#[test]
fn an_error_is_one_line_without_control_characters() {
    let ended = run(&["sim", "no\n\x1b[31msuch"]);
    assert_eq!(ended.code(), 2, "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(ended.stderr.contains(r"no\n\u{1b}[31msuch"), "{ended:?}");
}

#[test]
fn a_reader_that_has_gone_ends_every_kind_of_output() {
    for words in [
        &["doctor"][..],
        &["completions", "bash"],
        &["figure", "--list"],
        &["doctor", "--json"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = manyflow(words);
        command
            .current_dir(repository())
            .stdout(writer)
            .stderr(Stdio::piped());
        let ended = command.output().unwrap();
        assert_eq!(ended.status.code(), Some(141), "{words:?}");
        assert!(ended.stderr.is_empty(), "{words:?}: {ended:?}");
    }
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A scenario whose only expectation is met, and with which the log has something to say.
fn scenario(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("short.toml");
    let text = r#"title = "Short"
run.duration = "1 s"
nodes.names = ["S", "R"]
[[links]]
between = ["S", "R"]
delay = "20 ms"
[[sessions]]
name = "cbr"
protocol = "cbr"
sender = "S"
receivers = ["R"]
cbr.rate = "1 Mbit/s"
[[measure]]
name = "rate"
what = "received-rate"
of = "cbr"
[[expect]]
what = "Packets arrive"
value = "rate"
at-least = "1 kbit/s"
source = "the test"
"#;
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn quiet_leaves_results_and_errors() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (scenario(folder.path()), folder.path().join("out"));
    let sim = ["sim", text(&file), "--out", text(&out)];
    let ended = run(&[&sim[..], &["--quiet"]].concat()).succeeded("sim");
    assert!(
        ended.stdout.contains("met    Packets arrive") && ended.stderr.is_empty(),
        "{ended:?}"
    );
    let ended = run(&["sim", "no/such.toml", "-q"]);
    assert!(ended.stderr.starts_with("error: "), "{ended:?}");
    let both = run(&[&sim[..], &["--quiet", "-v"]].concat());
    assert_eq!(both.code(), 2, "{both:?}");
    // A note: the number of messages is not a result.
    let reserved = ReservedAddress::new().unwrap();
    let at = reserved.get().to_string();
    let mut daemon = daemon(&at);
    daemon.wait_for(|line| line.contains("started").then_some(()));
    let publish = ["pub", "news", "hello", "--count", "2", "--server", &at];
    let loud = run(&publish).succeeded("pub");
    assert!(loud.stderr.contains("2 messages published"), "{loud:?}");
    let ended = run(&[&publish[..], &["--quiet"]].concat()).succeeded("pub");
    assert!(ended.stderr.is_empty(), "{ended:?}");
    daemon.signal(Signal::SIGTERM);
    daemon.finish().succeeded("daemon");
}

fn daemon(clients: &str) -> Manyflow {
    Manyflow::start(manyflow(&[
        "daemon",
        "--name",
        "a",
        "--listen",
        "127.0.0.1:0",
        "--clients",
        clients,
        "--insecure",
        "--metrics",
        "127.0.0.1:0",
        "--grace",
        "0s",
        "--json",
    ]))
}

/// Runs `sim` with variables, and returns the end.
fn sim_with(words: &[&str], variables: &[(&str, &str)]) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (scenario(folder.path()), folder.path().join("out"));
    let mut command = manyflow(&[&["sim", text(&file), "--out", text(&out)][..], words].concat());
    command.env_remove("RUST_LOG").env_remove("MANYFLOW_LOG");
    command.envs(variables.iter().copied());
    Manyflow::start(command).finish()
}

#[test]
fn the_log_has_the_levels_that_the_user_asks_for() {
    let is_logged = |words: &[&str], variables: &[(&str, &str)]| {
        let ended = sim_with(words, variables).succeeded("sim");
        ended.stderr.contains("DEBUG")
    };
    assert!(!is_logged(&[], &[]));
    assert!(!is_logged(&["-v"], &[]));
    assert!(is_logged(&["-vv"], &[]));
    assert!(is_logged(&[], &[("MANYFLOW_LOG", "debug")]));
    assert!(is_logged(&[], &[("RUST_LOG", "debug")]));
    assert!(!is_logged(
        &[],
        &[("RUST_LOG", "debug"), ("MANYFLOW_LOG", "warn")]
    ));
    assert!(!is_logged(&["--quiet"], &[("MANYFLOW_LOG", "debug")]));
    assert!(is_logged(&["-vv"], &[("MANYFLOW_LOG", "warn")]));
    let ended = sim_with(&[], &[("MANYFLOW_LOG", "loud")]);
    assert_eq!(ended.code(), 2, "{ended:?}");
    for part in ["MANYFLOW_LOG", "loud", "debug"] {
        assert!(ended.stderr.contains(part), "{ended:?}");
    }
    let ended = sim_with(&["-vv", "--log-format", "json"], &[]).succeeded("sim");
    assert!(
        objects(&ended.stderr)
            .iter()
            .any(|line| line["level"] == "DEBUG"),
        "{ended:?}"
    );
}

#[test]
fn no_color_keeps_a_terminal_free_of_colours() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(folder.path());
    let line = format!(
        "{} sim {} -vv --out {}",
        env!("CARGO_BIN_EXE_manyflow"),
        text(&file),
        text(folder.path())
    );
    let on_terminal = |no_color: &str| {
        let mut command = Command::new("script");
        command
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::null());
        command
            .env("TERM", "xterm-256color")
            .env("NO_COLOR", no_color)
            .env_remove("CLICOLOR_FORCE");
        command
            .output()
            .ok()
            .map(|ended| String::from_utf8_lossy(&ended.stdout).into_owned())
    };
    let (Some(coloured), Some(plain)) = (on_terminal(""), on_terminal("1")) else {
        println!("skipped: script is not installed");
        return;
    };
    // Select graphic rendition: ESC [ numbers m.
    let has_colours = |text: &str| {
        let mut sequences = text.split("\x1b[").skip(1);
        sequences.any(|rest| {
            rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
                .starts_with('m')
        })
    };
    assert!(has_colours(&coloured), "{coloured:?}");
    assert!(plain.contains("DEBUG") && !has_colours(&plain), "{plain:?}");
}
