//! Lists the scenarios of the repository, so that the package has them everywhere, and records the
//! commit and the compiler of this build for the results of runs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    println!("cargo:rerun-if-changed={}", folder.display());
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    let list = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("scenarios.rs");
    fs::write(list, table(&folder)).expect("the list of scenarios can be written");
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let facts = [
        (
            "MANYFLOW_COMMIT",
            first_line("git", &["rev-parse", "--short=12", "HEAD"]),
        ),
        ("MANYFLOW_TOOLCHAIN", first_line(&rustc, &["--version"])),
    ];
    for (name, value) in facts {
        if let Some(value) = value {
            println!("cargo:rustc-env={name}={value}");
        }
    }
}

/// Returns a table of the ids and texts of all scenarios, as Rust source, in the order of the ids.
fn table(folder: &Path) -> String {
    let entries = fs::read_dir(folder).expect("the repository has scenarios");
    let paths = entries.map(|entry| entry.expect("the folder can be read").path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "toml"))
        .collect();
    paths.sort();
    let mut table = String::from("&[\n");
    for path in paths {
        let id = path.file_stem().unwrap_or_default().to_string_lossy();
        let line = writeln!(
            table,
            "    ({id:?}, include_str!({:?})),",
            path.display().to_string()
        );
        line.expect("a text takes every line");
    }
    table + "]\n"
}

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
