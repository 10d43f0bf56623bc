//! The program that is measured and tried.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

/// Returns the path of `manyflow`, in the folder of this program, so that both are of one build.
///
/// # Errors
/// If it is not there.
pub(crate) fn manyflow() -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this program")?;
    let path = own.with_file_name("manyflow");
    ensure!(
        path.is_file(),
        "there is no {}, which this command runs: build it with `cargo build -p manyflow` in the same profile",
        path.display()
    );
    Ok(path)
}
