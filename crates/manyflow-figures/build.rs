//! Lists the scenarios of the repository, so that programs have them everywhere.

use std::io;
use std::path::{Path, PathBuf};

/// The folder of the scenarios: in the repository a link to the one at its root, in a package a
/// folder.
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");

fn main() {
    println!("cargo:rerun-if-changed={SCENARIOS}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    let entries = entries(Path::new(SCENARIOS)).expect("the crate has a folder of scenarios");
    let list = format!("&[{}]", entries.concat());
    std::fs::write(out.join("scenarios.rs"), list).expect("OUT_DIR can be written to");
}

/// Returns the id and the text of each scenario in the order of the ids, as Rust code.
fn entries(folder: &Path) -> io::Result<Vec<String>> {
    let mut entries = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        if let (Some(stem), Some("toml")) = (
            path.file_stem().and_then(|stem| stem.to_str()),
            path.extension().and_then(|ending| ending.to_str()),
        ) {
            let path = path.canonicalize()?;
            entries.push((stem.to_owned(), path));
        }
    }
    entries.sort_unstable();
    let lines = entries
        .iter()
        .map(|(id, path)| format!("({id:?}, include_str!({path:?})),\n"));
    Ok(lines.collect())
}
