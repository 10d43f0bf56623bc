//! `manyflow-rig bench heterogeneity`: three receivers with fast links, and one with a slow link.

use anyhow::Result;
use manyflow_core::units::Bytes;
use serde_json::json;

use super::transfer::{Measured, Program};
use super::{end, in_turn, median, programs};
use crate::bench::lan::{Lan, Layout};
use crate::bench::write_random;
use crate::cli::HeterogeneityArgs;
use manyflow_terminal::Display;

/// Receivers with fast links. One more has a slow link.
const FAST: usize = 3;
/// Maximum time of a fast receiver, in seconds.
const FAST_BOUND_S: f64 = 5.0;
/// Maximum time of the slow receiver, in seconds.
const SLOW_BOUND_S: f64 = 44.5;
/// Maximum number of bytes on a fast link until its receiver is done, as a multiple of the file.
const CARRIED_BOUND: f64 = 1.15;

/// Compares the times of receivers, of which the last has a slow link.
pub(crate) fn run(args: &HeterogeneityArgs, display: &Display) -> Result<()> {
    let lan = Lan::new(FAST + 1, Layout::Flat)?;
    lan.slow_down_last(args.slow)?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    write_random(&file, args.size.0)?;
    let (size, slow) = (args.size, args.slow);
    display.print_line(&format!("{size} to three receivers, and one behind {slow}"))?;
    display.print_line(&row("program", "fast, s", "slow, s", "fast link, x file"))?;
    let programs = programs(&[Program::Ours(args.options), Program::UftpTfmcc]);
    let results = in_turn(&lan, &programs, args.runs, &file, folder.path())?;
    let mut missed = Vec::new();
    for (program, runs) in programs.iter().zip(&results) {
        let summary = Summary::of(runs, args.size);
        display.print_line(&summary.row(&program.name()))?;
        display.print_json(&json!({
            "event": "program", "program": program.name(), "fast_seconds": summary.fast_s,
            "slow_seconds": summary.slow_s, "fast_link_files": summary.fast_carried,
        }))?;
        if matches!(program, Program::Ours(..)) {
            missed = summary.missed();
        }
    }
    end(display, &missed)
}

/// The medians of a program's transfers.
#[derive(Clone, Debug, PartialEq)]
struct Summary {
    /// Time of the last of the fast receivers, in seconds.
    fast_s: f64,
    /// Time of the slow receiver, in seconds.
    slow_s: f64,
    /// Bytes on the busiest fast link until its receiver was done, as a multiple of the file.
    fast_carried: f64,
}

impl Summary {
    fn of(runs: &[Measured], size: Bytes) -> Summary {
        let fast_s = |run: &Measured| run.seconds[..FAST].iter().copied().fold(0.0, f64::max);
        let busiest = |run: &Measured| run.carried[..FAST].iter().copied().max();
        let carried = |run: &Measured| busiest(run).unwrap_or(0) as f64 / size.0 as f64;
        Summary {
            fast_s: median(runs.iter().map(fast_s)),
            slow_s: median(runs.iter().map(|run| run.seconds[FAST])),
            fast_carried: median(runs.iter().map(carried)),
        }
    }

    fn row(&self, program: &str) -> String {
        row(
            program,
            &format!("{:.1}", self.fast_s),
            &format!("{:.1}", self.slow_s),
            &format!("{:.3}", self.fast_carried),
        )
    }

    /// Returns a message for each bound that is missed.
    fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        if self.fast_s > FAST_BOUND_S {
            missed.push(format!("a fast receiver takes more than {FAST_BOUND_S} s"));
        }
        if self.slow_s > SLOW_BOUND_S {
            missed.push(format!(
                "the slow receiver takes more than {SLOW_BOUND_S} s"
            ));
        }
        if self.fast_carried > CARRIED_BOUND {
            missed.push(format!(
                "a fast link carries more than {CARRIED_BOUND} times the file"
            ));
        }
        missed
    }
}

fn row(program: &str, fast: &str, slow: &str, carried: &str) -> String {
    format!("{program:<28} {fast:>10} {slow:>10} {carried:>18}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    fn measured(seconds: [f64; 4], carried_mb: [u64; 4]) -> Measured {
        Measured {
            seconds: seconds.to_vec(),
            carried: carried_mb.map(|mb| mb * MB).to_vec(),
            sent: 0,
            sender_us: 0.0,
            receiver_us: 0.0,
        }
    }

    #[test]
    fn a_run_counts_with_its_last_fast_receiver_and_its_busiest_fast_link() {
        let runs = [
            measured([5.0, 6.0, 5.5, 40.0], [105, 106, 111, 300]),
            measured([9.0, 5.0, 5.0, 44.0], [130, 105, 105, 300]),
            measured([4.0, 4.0, 4.0, 41.0], [104, 104, 104, 300]),
        ];
        let summary = Summary::of(&runs, Bytes(100 * MB));
        let expected = Summary {
            fast_s: 6.0,
            slow_s: 41.0,
            fast_carried: 1.11,
        };
        assert_eq!(summary, expected);
        let row = summary.row("ours");
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells, ["ours", "6.0", "41.0", "1.110"]);
    }

    #[test]
    fn each_missed_bound_is_named() {
        let summary = Summary {
            fast_s: 5.1,
            slow_s: 44.6,
            fast_carried: 1.16,
        };
        let missed = summary.missed().join("; ");
        for part in ["more than 5 s", "more than 44.5 s", "more than 1.15 times"] {
            assert!(missed.contains(part), "{missed}");
        }
    }
}
