//! Runs scenario files and writes their results: `cargo run --release --example scenario -- [--fast] [--threads N] FILE...`
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::path::Path;
use std::process::ExitCode;

use manyflow_netsim::results::{Provenance, Results};
use manyflow_netsim::scenario::Scenario;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut fast, mut threads, mut passed) = (false, 2, true);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--fast" => fast = true,
            "--threads" => threads = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1),
            file => match run(file, fast, threads) {
                Ok(met) => passed &= met,
                Err(error) => {
                    eprintln!("{error}");
                    passed = false;
                }
            },
        }
    }
    if passed {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run(file: &str, fast: bool, threads: usize) -> Result<bool, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let scenario = Scenario::parse(file, &text, fast)?;
    let jobs = scenario.jobs()?;
    let outcomes = scenario.run(&jobs, threads, &mut |_, left| {
        eprint!("\r{left} runs left  ")
    });
    eprintln!();
    let results = Results::new(&scenario, &jobs, &outcomes, Provenance::default())?;
    results.write(&Path::new("results").join(scenario.id()))?;
    println!("{}", results.title());
    for checked in results.expectations() {
        let paper = checked.paper.as_deref().unwrap_or("-");
        println!(
            "  {}: paper {paper}; ours {} ({}): {}",
            checked.what,
            checked.shown(),
            checked.bounds(),
            checked.verdict.word()
        );
        if !checked.note.is_empty() {
            println!("      {}", checked.note);
        }
    }
    results
        .failures()
        .iter()
        .for_each(|failure| println!("  failed: {failure}"));
    Ok(results.passed())
}
