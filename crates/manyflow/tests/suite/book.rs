//! The documents: links, and the shell blocks that are marked as runnable.

use std::path::Path;
use std::process::{Command, Output};

fn book(arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(root.join("scripts/book"));
    command.args(arguments).output().unwrap()
}

fn shown(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{out}{err}")
}

#[test]
fn every_link_leads_somewhere_and_the_book_has_every_document() {
    let checked = book(&["check"]);
    assert!(checked.status.success(), "{}", shown(&checked));
}

#[test]
fn the_blocks_of_the_tutorial_run() {
    let ran = book(&["run", env!("CARGO_BIN_EXE_manyflow")]);
    let shown = shown(&ran);
    assert!(ran.status.success(), "{shown}");
    let tutorial = shown
        .lines()
        .filter(|line| line.contains("tutorial.md") && line.ends_with(": ran"));
    assert!(tutorial.count() >= 6, "{shown}");
}
