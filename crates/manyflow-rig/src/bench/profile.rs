//! Where processor time goes: processes under `perf record`, and the shares of the crates whose
//! functions took it.
//!
//! Each sample counts for the crate in the name of its symbol. The time of a function that the
//! compiler has inlined is therefore part of its caller's crate.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use manyflow_terminal::Display;
use serde_json::json;

/// Samples a second: a prime number, so that timers do not run in step with them.
const SAMPLES_PER_S: &str = "997";
/// Parts below this share are printed together.
const SHARE_MIN: f64 = 0.01;
/// The name of all parts that are too small.
const REST: &str = "the rest";

/// Returns a command that runs another one from its start under `perf`, which writes `file`. A
/// process that runs already could have made threads that `perf` does not find.
pub(super) fn recorded(command: &Command, file: &Path) -> Command {
    let mut recorded = Command::new("perf");
    recorded.args(["record", "-q", "-F", SAMPLES_PER_S, "-o"]);
    recorded.arg(file).arg("--").arg(command.get_program());
    recorded.args(command.get_args());
    recorded
}

/// Returns whether `perf` is installed, and prints how to install it if it is not.
///
/// # Errors
/// If nothing can be printed.
pub(super) fn is_installed(display: &Display) -> Result<bool> {
    let mut command = Command::new("perf");
    let output = command.arg("--version").stdin(Stdio::null()).output();
    let is_installed = output.is_ok_and(|output| output.status.success());
    if !is_installed {
        display.print_line(
            "perf is not installed (Debian: apt-get install linux-perf), so there is no profile.",
        )?;
    }
    Ok(is_installed)
}

/// Prints the shares of the parts in a recorded file, the largest first.
///
/// # Errors
/// If `perf` cannot read the file.
pub(super) fn print(display: &Display, process: &str, file: &Path) -> Result<()> {
    let mut command = Command::new("perf");
    command.args(["report", "--stdio", "-q", "--no-children", "-t", "\t"]);
    command.args(["-F", "overhead,dso,sym", "-i"]).arg(file);
    let output = command.stdin(Stdio::null()).output();
    let output = output.context("cannot run perf")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "perf report: {}", error.trim());
    let parts = parts(&String::from_utf8_lossy(&output.stdout));
    ensure!(!parts.is_empty(), "{}: no samples", file.display());
    for (part, share) in parts {
        display.print_line(&format!("{process:<12} {:>5.1} %  {part}", share * 100.0))?;
        display.print_json(&json!({
            "event": "profile", "process": process, "part": part, "share": share,
        }))?;
    }
    Ok(())
}

/// Returns the shares of all parts in a report of `perf`, the largest first, and the rest.
fn parts(report: &str) -> Vec<(String, f64)> {
    let mut parts: Vec<(String, f64)> = Vec::new();
    for line in report.lines() {
        let mut fields = line.split('\t').map(str::trim);
        let share = fields.next().and_then(|share| share.strip_suffix('%'));
        let share = share.and_then(|share| share.parse::<f64>().ok());
        let (Some(share), Some(object), Some(symbol)) = (share, fields.next(), fields.next())
        else {
            continue;
        };
        let (part, share) = (part_of(object, symbol), share / 100.0);
        match parts.iter_mut().find(|(known, _)| *known == part) {
            Some((_, sum)) => *sum += share,
            None => parts.push((part.to_owned(), share)),
        }
    }
    parts.sort_by(|(_, one), (_, two)| two.total_cmp(one));
    let (mut shown, small): (Vec<_>, Vec<_>) = parts
        .into_iter()
        .partition(|(part, share)| *share >= SHARE_MIN && part != REST);
    let rest: f64 = small.iter().map(|(_, share)| share).sum();
    shown.extend((rest > 0.0).then(|| (REST.to_owned(), rest)));
    shown
}

/// Returns the part of a symbol, which begins with `[k]` in the kernel and with `[.]` elsewhere, in
/// an object: the program, a library or the kernel.
fn part_of<'a>(object: &str, symbol: &'a str) -> &'a str {
    let name = symbol.get(3..).unwrap_or_default().trim();
    if symbol.starts_with("[k]") || object.starts_with("[kernel") {
        return "the kernel: sockets, copies, files";
    }
    if object.contains("libc.so") {
        return "libc: copies, memory";
    }
    // A method of a trait: `<manyflow_object::sender::Sender as core::fmt::Debug>::fmt`.
    let path = name.trim_start_matches(['<', '&', '*', '(', '[']);
    let path = path.strip_prefix("mut ").unwrap_or(path);
    let path = path.strip_prefix("dyn ").unwrap_or(path);
    let first = path.split("::").next().unwrap_or_default();
    match first {
        "raptorq" => "raptorq: FEC",
        "sha2" | "md5" | "blake3" => "digests",
        "ring" | "rustls" => "cryptography",
        "core" | "alloc" | "std" | "hashbrown" => "Rust's standard library",
        _ if first == path => part_of_c(path),
        crate_name => crate_name,
    }
}

/// Returns the part of a function of C or assembler.
fn part_of_c(name: &str) -> &'static str {
    let has = |parts: &[&str]| parts.iter().any(|part| name.contains(part));
    match name {
        _ if has(&["sha256", "blake3"]) => "digests",
        _ if has(&["ring_core"]) => "cryptography",
        _ => REST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
    30.00%\t[kernel.kallsyms]\t[k] copy_user_generic_string
     5.00%\tmanyflow\t[.] <manyflow_object::sender::ObjectSender<S> as core::fmt::Debug>::fmt
    20.00%\tmanyflow\t[.] manyflow_object::receiver::take
    10.00%\tmanyflow\t[.] raptorq::octets::add_assign
     7.00%\tmanyflow\t[.] ring_core_0_17_14__sha256_block_data_order_hw
     6.00%\tlibc.so.6\t[.] __memmove_avx_unaligned_erms
     0.50%\tmanyflow\t[.] mio::poll::Poll::poll
     0.25%\tmanyflow\t[.] 0x00000000000a1b2c

";

    #[test]
    fn the_shares_of_functions_are_those_of_their_crates() {
        let found = parts(REPORT);
        let names: Vec<_> = found.iter().map(|(part, _)| part.as_str()).collect();
        let expected = [
            "the kernel: sockets, copies, files",
            "manyflow_object",
            "raptorq: FEC",
            "digests",
            "libc: copies, memory",
            REST,
        ];
        assert_eq!(names, expected);
        let shares: Vec<_> = found.iter().map(|(_, share)| share * 100.0).collect();
        for (share, expected) in shares.into_iter().zip([30.0, 25.0, 10.0, 7.0, 6.0, 0.75]) {
            assert!((share - expected).abs() < 1e-9, "{share} {expected}");
        }
    }
}
