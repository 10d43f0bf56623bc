//! Packs the scenarios of the repository and the schema, so that programs have them everywhere, in
//! a sixth of their size.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// The folder of the scenarios: in the repository a link to the one at its root, in a package a
/// folder.
const SCENARIOS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
/// The schema, which comes after the scenarios.
const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/scenario.schema.json");

fn main() {
    println!("cargo:rerun-if-changed={SCENARIOS}");
    println!("cargo:rerun-if-changed={SCHEMA}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    let entries = entries(Path::new(SCENARIOS)).expect("the crate has a folder of scenarios");
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    let mut list = String::from("&[");
    for (id, path) in entries {
        let text = fs::read_to_string(path).expect("a scenario can be read");
        packed.write_all(text.as_bytes()).expect("memory takes all");
        list += &format!("({id:?}, {}),\n", text.len());
    }
    let schema = fs::read(SCHEMA).expect("the crate has a schema");
    packed.write_all(&schema).expect("memory takes all");
    let packed = packed.finish().expect("memory takes all");
    fs::write(out.join("texts.deflate"), packed).expect("OUT_DIR can be written to");
    fs::write(out.join("scenarios.rs"), list + "]").expect("OUT_DIR can be written to");
}

/// Returns the id and the file of each scenario in the order of the ids.
fn entries(folder: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut entries = Vec::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if let (Some(stem), Some("toml")) = (
            path.file_stem().and_then(|stem| stem.to_str()),
            path.extension().and_then(|ending| ending.to_str()),
        ) {
            println!("cargo:rerun-if-changed={}", path.display());
            entries.push((stem.to_owned(), path));
        }
    }
    entries.sort_unstable();
    Ok(entries)
}
