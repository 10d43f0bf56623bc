//! `manyflow sim`, `figure` and `evaluate`: run scenario files and check their expectations.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use manyflow_figures::Figure;
use manyflow_results::{Conclusion, Verdicts};
use manyflow_scenario::evaluation::{Subject, scenarios};
use manyflow_scenario::{Form, Inspection, Job, Outcome, Scenario};
use serde_json::json;

use crate::cli::{EvaluateArgs, FigureArgs, RunArgs, SimArgs, threads};
use crate::figures;
use crate::inspect::{self, Outputs};
use crate::progress::RunsProgress;
use crate::{runs, shard};
use manyflow_terminal::display::{Display, OutputError};
use manyflow_terminal::usage;

/// The maximum number of paths that are printed before the runs of a scenario.
const PATHS_SHOWN: usize = 4;

pub(crate) fn sim(args: &SimArgs, display: &Display) -> Result<()> {
    if let Some(path) = &args.schema {
        return write_new(path, &manyflow_figures::SCHEMA, display);
    }
    // The command line demands a scenario without `--schema`.
    let name = args.scenario.as_deref().unwrap_or_default();
    if let Some(template) = args.new.as_deref().and_then(manyflow_figures::template) {
        write_new(name.as_ref(), template.text, display)?;
        return Ok(display.print_line(&format!("run it: manyflow sim {name}"))?);
    }
    let form = Form {
        fast: args.run.fast,
        cell: args.cell,
        settings: args.set.clone(),
    };
    let scenario = figures::read(name, None, form)?;
    if let Some(shard) = args.shard {
        return shard::run(&scenario, shard, &args.run, display);
    }
    let mut jobs = scenario.jobs()?;
    runs::select(&mut jobs, args.cell, args.seed)?;
    let display = &inspect::display_beside(&args.inspect, display)?;
    let outputs = Outputs::open(&args.inspect, &scenario, jobs[0])?;
    runs::demand(&[run(&scenario, &jobs, outputs, &args.run, display)?])
}

/// Writes a file that does not exist yet.
fn write_new(path: &Path, text: &str, display: &Display) -> Result<()> {
    let mut file = File::create_new(path).with_context(|| {
        format!(
            "cannot write {}: choose a new name in a folder that exists",
            path.display()
        )
    })?;
    file.write_all(text.as_bytes())
        // A part of a template would be taken for the user's own file.
        .inspect_err(|_| drop(std::fs::remove_file(path)))
        .with_context(|| format!("cannot write {}: make room there", path.display()))?;
    display.print_line(&format!("wrote {}", path.display()))?;
    display.print_json(&json!({"event": "written", "file": path}))?;
    Ok(())
}

pub(crate) fn figure(args: &FigureArgs, display: &Display) -> Result<()> {
    let all = figures::found(manyflow_figures::list(args.scenarios.as_deref()))?;
    if args.list {
        for figure in &all {
            // The title needs one cell. To check all of them takes seconds: the formulas of
            // `cb-theory` try thousands of sequences in each.
            let form = Form {
                cell: Some(0),
                ..Form::default()
            };
            let scenario = figures::read_figure(figure, form)?;
            let title = scenario.cell(0)?.schema.title;
            display.print_line(&format!("{:<12} {title}", scenario.id()))?;
            display.print_json(&json!({"event": "figure", "id": scenario.id(), "title": title}))?;
        }
        return Ok(());
    }
    let named = args.ids.iter();
    let named = named.map(|id| figures::found(manyflow_figures::find(&all, id)));
    let wanted: Vec<&Figure> = match args.all {
        true => all.iter().collect(),
        false => named.collect::<Result<_>>()?,
    };
    let mut conclusions = Vec::new();
    for figure in wanted {
        let form = Form {
            fast: args.run.fast,
            ..Form::default()
        };
        let scenario = figures::read_figure(figure, form)?;
        let jobs = scenario.jobs()?;
        let outputs = Outputs::default();
        conclusions.push(run(&scenario, &jobs, outputs, &args.run, display)?);
    }
    runs::demand(&conclusions)
}

pub(crate) fn evaluate(args: &EvaluateArgs, display: &Display) -> Result<()> {
    if args.protocol.ends_with(".py") {
        // The package has the same command, for controllers in Python.
        let mut python = Command::new("python3");
        let options = std::env::args_os().skip(1);
        python.args(["-m", "manyflow"]).args(options);
        return Err(python.exec()).context("a controller in Python needs `python3`");
    }
    let subject = Subject::named(&args.protocol).map_err(|why| usage(why.to_string()))?;
    let mut verdicts = Verdicts::new(&subject.title(), subject.left_out(), runs::provenance());
    let mut args = args.run.clone();
    args.out.push(format!("evaluate-{}", subject.name()));
    for scenario in scenarios(&subject, args.fast)? {
        let jobs = scenario.jobs()?;
        verdicts.add(run(&scenario, &jobs, Outputs::default(), &args, display)?);
    }
    verdicts.write(&args.out)?;
    let page = args.out.join("index.html");
    display.print_line(&format!("{}\n  -> {}", verdicts.table(), page.display()))?;
    runs::demand(verdicts.conclusions())
}

/// Executes the runs, writes the results, and prints and returns the verdicts.
fn run(
    scenario: &Scenario,
    jobs: &[Job],
    outputs: Outputs,
    args: &RunArgs,
    display: &Display,
) -> Result<Conclusion> {
    print_paths(scenario, jobs[0].cell, display)?;
    let outcomes = simulate(scenario, jobs, outputs, threads(args.threads), display)?;
    runs::conclude(scenario, jobs, &outcomes, &args.out, display)
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
