//! The documents: links, the shell blocks that are marked as runnable, and the numbers that they
//! quote.

use std::path::Path;
use std::process::{Command, Output};

fn script(name: &str, arguments: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts");
    let mut command = Command::new(root.join(name));
    command.args(arguments).output().unwrap()
}

fn book(arguments: &[&str]) -> Output {
    script("book", arguments)
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
fn the_documents_quote_the_numbers_of_their_files() {
    for argument in ["--self-test", "--check"] {
        let checked = script("numbers", &[argument]);
        assert!(checked.status.success(), "{}", shown(&checked));
    }
}

#[test]
fn the_tables_of_keys_are_those_of_the_declarations() {
    let checked = script("keys", &["--check"]);
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
