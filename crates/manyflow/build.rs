//! Records the commit, if git knows it, and the compiler of this build, for the results of
//! simulations. Lists the scenarios that the program holds.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the scenarios. A package of this crate alone lacks it, and holds none.
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");

fn main() {
    println!("cargo:rerun-if-changed={SCENARIOS}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    let list = scenarios(Path::new(SCENARIOS)).unwrap_or_default();
    let list = if list.is_empty() {
        "&[]".to_owned()
    } else {
        list
    };
    std::fs::write(out.join("scenarios.rs"), list).expect("OUT_DIR can be written to");
    println!("cargo:rerun-if-changed=../../.git/HEAD");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
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

/// Returns an array of the id and the text of each scenario, as Rust code.
fn scenarios(folder: &Path) -> io::Result<String> {
    let mut entries = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        if let (Some(stem), Some("toml")) = (
            path.file_stem().and_then(|stem| stem.to_str()),
            path.extension().and_then(|ending| ending.to_str()),
        ) {
            let path = path.canonicalize()?;
            entries.push(format!("({stem:?}, include_str!({path:?})),\n"));
        }
    }
    entries.sort_unstable();
    Ok(format!("&[{}]", entries.concat()))
}

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
