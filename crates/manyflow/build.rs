//! Records the commit, if git knows it, and the compiler of this build, for the results of
//! simulations. Packs the files of the page of `manyflow lab` in a third of their size.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::DeflateEncoder;

/// The files of the page, below `web`.
const FILES: &[&str] = &[
    "index.html",
    "style.css",
    "app.js",
    "chart.js",
    "editor.js",
    "expectations.js",
    "format.js",
    "gallery.js",
    "link.js",
    "live.js",
    "order.js",
    "page.js",
    "run.js",
    "schema.js",
    "server.js",
    "sweep.js",
    "topology.js",
    "icon.svg",
    "vendor/codemirror/codemirror.min.js",
    "vendor/codemirror/LICENSE",
    "vendor/uplot/uPlot.iife.min.js",
    "vendor/uplot/uPlot.min.css",
    "vendor/uplot/LICENSE",
];

fn main() {
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
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("Cargo sets OUT_DIR"));
    let entries: String = FILES.iter().map(|path| pack(&out, path)).collect();
    std::fs::write(out.join("web.rs"), format!("&[{entries}]")).expect("OUT_DIR takes files");
}

/// Packs a file. Returns its path, its length and the packed file as Rust code.
fn pack(out: &Path, path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("web").join(path);
    println!("cargo:rerun-if-changed={}", file.display());
    let text = std::fs::read(&file).expect("the page has the file");
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&text).expect("memory takes all");
    let packed = packed.finish().expect("memory takes all");
    let name = format!("{}.deflate", path.replace('/', "-"));
    std::fs::write(out.join(&name), packed).expect("OUT_DIR takes files");
    let length = text.len();
    format!(
        "({path:?}, {length}, include_bytes!(concat!(env!(\"OUT_DIR\"), {:?}))),\n",
        format!("/{name}")
    )
}

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
