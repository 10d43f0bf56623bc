//! `manyflow evaluate`.

use std::process::{Command, Output};

fn evaluate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_manyflow"))
        .arg("evaluate")
        .args(arguments)
        .output()
        .unwrap()
}

#[test]
fn cubic_misses_what_is_known_of_it() {
    let results = tempfile::tempdir().unwrap();
    let out = results.path().to_str().unwrap();
    let output = evaluate(&["cubic", "--fast", "--threads", "1", "--out", out]);
    let error = String::from_utf8(output.stderr).unwrap();
    // It fills any queue, as the RFC says, and BBR version 1 leaves it little.
    let missed = "not all expectations are met: bufferbloat, beside; see MISSED above";
    assert!(error.contains(missed), "{error}");
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8(output.stdout).unwrap();
    let table = shown.split("cubic by the criteria of RFC 9743: ").nth(1);
    assert_eq!(table.unwrap().lines().count(), 21, "{shown}");
    let folder = results.path().join("evaluate-cubic");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert!(read("verdicts.csv").lines().count() > 40);
    assert!(read("verdicts.tex").contains(r"\bottomrule"));
    assert!(read("index.html").contains("RFC 9743, Multipath Transport"));
    assert!(read("collapse/index.html").contains("[[sessions]]"));
}

#[test]
fn an_unknown_protocol_is_refused_with_a_suggestion() {
    let output = evaluate(&["cubc"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("there is no protocol `cubc`; did you mean `cubic`?"),
        "{error}"
    );
}
