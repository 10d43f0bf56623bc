//! Records the commit and the compiler of this build for the results of runs.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=../../.git/HEAD");
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

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
