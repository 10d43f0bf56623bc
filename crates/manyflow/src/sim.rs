//! `manyflow sim` and `manyflow figure`: run scenario files and check their expectations.

use std::path::Path;

use anyhow::{Context, Result, bail};
use manyflow_results::{Checked, Provenance, Results, Verdict};
use manyflow_scenario::{Form, Inspection, Job, Outcome, Outline, Scenario};
use serde_json::json;

use crate::cli::{FigureArgs, RunArgs, SimArgs};
use crate::cost::Cost;
use crate::figures::{self, Figure};
use crate::inspect::{self, Outputs};
use crate::progress::RunsProgress;
use crate::shard;
use manyflow_terminal::display::{Display, OutputError};
use manyflow_terminal::usage;

/// The maximum number of paths that are printed before the runs of a scenario.
const PATHS_SHOWN: usize = 4;

pub(crate) fn sim(args: &SimArgs, display: &Display) -> Result<()> {
    let form = Form {
        fast: args.run.fast,
        cell: args.cell,
        settings: args.set.clone(),
    };
    let scenario = read(&args.file, form)?;
    if let Some(shard) = args.shard {
        return shard::run(&scenario, shard, &args.run, display);
    }
    let mut jobs = scenario.jobs()?;
    select(&mut jobs, args.cell, args.seed)?;
    let display = &inspect::display_beside(&args.inspect, display)?;
    let outputs = Outputs::open(&args.inspect, &scenario, jobs[0])?;
    match run(&scenario, &jobs, outputs, &args.run, display)? {
        true => Ok(()),
        false => bail!(
            "{}: not all expectations are met; see MISSED above",
            scenario.id()
        ),
    }
}

/// Keeps the runs that the user has selected.
pub(crate) fn select(jobs: &mut Vec<Job>, cell: Option<usize>, seed: Option<u64>) -> Result<()> {
    jobs.retain(|job| {
        cell.is_none_or(|cell| job.cell == cell) && seed.is_none_or(|seed| job.seed == seed)
    });
    match jobs.is_empty() {
        true => Err(usage(
            "the scenario has no such cell or seed: check --cell and --seed",
        )),
        false => Ok(()),
    }
}

pub(crate) fn figure(args: &FigureArgs, display: &Display) -> Result<()> {
    let all = figures::list(args.scenarios.as_deref())?;
    if args.list {
        for figure in &all {
            let scenario = figure.read(Form::default())?;
            let title = scenario.cell(0)?.schema.title;
            display.print_line(&format!("{:<12} {title}", scenario.id()))?;
            display.print_json(&json!({"event": "figure", "id": scenario.id(), "title": title}))?;
        }
        return Ok(());
    }
    let wanted: Vec<&Figure> = if args.all {
        all.iter().collect()
    } else {
        args.ids
            .iter()
            .map(|id| figures::find(&all, id))
            .collect::<Result<_>>()?
    };
    if wanted.is_empty() {
        return Err(usage(
            "no figure given: name one, or use --all; --list lists them",
        ));
    }
    let mut missed = Vec::new();
    for figure in wanted {
        let form = Form {
            fast: args.run.fast,
            ..Form::default()
        };
        let scenario = figure.read(form)?;
        let jobs = scenario.jobs()?;
        if !run(&scenario, &jobs, Outputs::default(), &args.run, display)? {
            missed.push(scenario.id().to_owned());
        }
    }
    if missed.is_empty() {
        Ok(())
    } else {
        bail!("not all expectations are met: {}", missed.join(", "))
    }
}

/// Executes the runs, writes the results, prints the verdicts; returns whether all expectations are
/// met.
fn run(
    scenario: &Scenario,
    jobs: &[Job],
    outputs: Outputs,
    args: &RunArgs,
    display: &Display,
) -> Result<bool> {
    print_paths(scenario, jobs[0].cell, display)?;
    let outcomes = simulate(scenario, jobs, outputs, threads(args), display)?;
    conclude(scenario, jobs, &outcomes, &args.out, display)
}

/// Prints which paths packets take, if the network of a cell has several.
fn print_paths(scenario: &Scenario, cell: usize, display: &Display) -> Result<()> {
    let (paths, others) = scenario.chosen_paths(cell, PATHS_SHOWN)?;
    if paths.is_empty() {
        return Ok(());
    }
    display.print_line(&format!(
        "{}: packets take the path of the least delay, then of the fewest links, also while a link is cut:",
        scenario.id()
    ))?;
    for path in paths {
        display.print_line(&format!("  {}: {}", path.session, path.nodes.join(" - ")))?;
        display.print_json(&json!({
            "event": "path",
            "id": scenario.id(),
            "session": path.session,
            "nodes": path.nodes,
        }))?;
    }
    if others > 0 {
        display.print_line(&format!("  and {others} more"))?;
    }
    Ok(())
}

/// Returns the number of threads for runs: by default the number of cores.
pub(crate) fn threads(args: &RunArgs) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    args.threads.unwrap_or_else(cores)
}

/// Returns the commit and the compiler of this program.
pub(crate) fn provenance() -> Provenance {
    Provenance {
        commit: option_env!("MANYFLOW_COMMIT").map(str::to_owned),
        toolchain: option_env!("MANYFLOW_TOOLCHAIN").map(str::to_owned),
    }
}

/// Writes the results of runs of this program, as [`conclude_by`] does.
pub(crate) fn conclude(
    scenario: &Scenario,
    jobs: &[Job],
    outcomes: &[Outcome],
    out: &Path,
    display: &Display,
) -> Result<bool> {
    conclude_by(
        scenario.outline()?,
        jobs,
        outcomes,
        provenance(),
        out,
        display,
    )
}

/// Writes the results of runs that the program `provenance` made, and prints the verdicts; returns
/// whether all expectations are met.
pub(crate) fn conclude_by(
    outline: Outline,
    jobs: &[Job],
    outcomes: &[Outcome],
    provenance: Provenance,
    out: &Path,
    display: &Display,
) -> Result<bool> {
    let id = outline.id.clone();
    let results = Results::new(outline, jobs, outcomes, provenance);
    let folder = out.join(&id);
    results
        .write(&folder)
        .with_context(|| format!("cannot write to {}", folder.display()))?;

    display.print_line(&format!("{id}: {}", results.title()))?;
    for checked in results.expectations() {
        print_expectation(display, &id, checked)?;
    }
    let cost = Cost::of(outcomes)?;
    display.print_line(&format!("  {cost}"))?;
    display.print_line(&format!("  -> {}\n", folder.join("index.html").display()))?;
    display.print_json(&json!({
        "event": "done",
        "id": id,
        "receivers": cost.receivers,
        "transmissions": cost.transmissions,
        "cpu_seconds": cost.cpu.as_secs_f64(),
        "memory_bytes": cost.memory.0,
        "passed": results.passed(),
        "failed_runs": results.failures().len(),
        "folder": folder.display().to_string(),
    }))?;
    Ok(results.passed())
}

/// Executes the runs. If one of them is recorded, the first run is executed alone, and its failure
/// ends the command.
fn simulate(
    scenario: &Scenario,
    jobs: &[Job],
    mut outputs: Outputs,
    threads: usize,
    display: &Display,
) -> Result<Vec<Outcome>> {
    let mut progress = RunsProgress::new(display, scenario, jobs)?;
    let (inspected, rest) = jobs.split_at(usize::from(!outputs.is_empty()));
    let mut outcomes = Vec::with_capacity(jobs.len());
    for job in inspected {
        let inspection = Inspection {
            progress: Some(&mut |passed| progress.advance(passed)),
            ..outputs.inspection()
        };
        let outcome = scenario.run_inspected(*job, inspection);
        if outputs.is_closed() {
            return Err(OutputError::closed().into());
        }
        let outcome = Ok(outcome?);
        progress.end_run(&outcome);
        outcomes.push(outcome);
    }
    outcomes.extend(scenario.run(rest, threads, &mut |news| progress.hear(&news)));
    progress.finish();
    Ok(outcomes)
}

fn print_expectation(display: &Display, id: &str, checked: &Checked) -> Result<(), OutputError> {
    let paper = checked
        .paper
        .as_ref()
        .map(|paper| format!("; paper: {paper}"))
        .unwrap_or_default();
    let line = match checked.verdict {
        Verdict::Met => format!(
            "met    {}: {} ({}{paper})",
            checked.what,
            checked.shown(),
            checked.bounds()
        ),
        Verdict::Missed => format!(
            "MISSED {}: {} ({}{paper})",
            checked.what,
            checked.shown(),
            checked.bounds()
        ),
        Verdict::NoValue => format!("MISSED {}: no value; {}", checked.what, checked.note),
        Verdict::NotJudged => format!("not judged {}: {}", checked.what, checked.note),
    };
    display.print_line(&format!("  {line}"))?;
    display.print_json(&json!({
        "event": "expectation",
        "id": id,
        "what": checked.what,
        "value": checked.value.as_ref().map(|value| value.value),
        "verdict": checked.verdict.word(),
        "paper": checked.paper,
    }))
}

/// Reads a scenario file.
pub(crate) fn read(path: &Path, form: Form) -> Result<Scenario> {
    let name = path.display().to_string();
    parse(
        &name,
        &manyflow_terminal::failure::read_description(path)?,
        form,
    )
}

/// Parses the text of the scenario `name`, which is a path or an id.
pub(crate) fn parse(name: &str, text: &str, form: Form) -> Result<Scenario> {
    let scenario = Scenario::parse_form(name, text, form);
    scenario.map_err(|error| usage(error.to_string()))
}
