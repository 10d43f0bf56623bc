//! Tests that rows keep runs as they are, and that folders of rows lose none.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_array::types::Float64Type;
use manyflow_results::Provenance;
use manyflow_results::rows::Columns;
use manyflow_results::shard::{CellStore, PartWriter, RowReader};
use manyflow_scenario::{FailedRun, Job, Outcome, Scenario};

use crate::results::SMALL;

/// The runs of one cell.
struct Cell {
    number: usize,
    jobs: Vec<Job>,
    outcomes: Vec<Outcome>,
}

fn cells(scenario: &Scenario) -> Vec<Cell> {
    let jobs = scenario.jobs().unwrap();
    let outcomes = scenario.run(&jobs, 2, &mut |_| {});
    let cell = |number| {
        let own = jobs.iter().zip(&outcomes);
        let own = own.filter(|(job, _)| job.cell == number);
        let (jobs, outcomes) = own.map(|(job, outcome)| (*job, outcome.clone())).unzip();
        Cell {
            number,
            jobs,
            outcomes,
        }
    };
    (0..scenario.cells()).map(cell).collect()
}

fn scenario() -> Scenario {
    Scenario::parse("small.toml", SMALL, false).unwrap()
}

fn store(folder: &Path) -> Arc<CellStore> {
    store_of(folder, Provenance::default())
}

fn store_of(folder: &Path, provenance: Provenance) -> Arc<CellStore> {
    let scenario = scenario();
    let outline = scenario.outline_of([0]).unwrap();
    let store = CellStore::create(folder, &outline, &scenario.fingerprint(), provenance);
    Arc::new(store.unwrap())
}

fn write(store: &Arc<CellStore>, cells: &[&Cell]) {
    let mut writer = PartWriter::new(Arc::clone(store));
    for cell in cells {
        let outline = scenario().cell(cell.number).unwrap().outline();
        writer.add(outline, &cell.jobs, &cell.outcomes).unwrap();
    }
    writer.flush().unwrap();
}

fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, fs::read(path).unwrap())
    });
    files.collect()
}

fn numbers(rows: &RecordBatch, name: &str) -> Vec<Option<f64>> {
    let column = rows.column_by_name(name).unwrap();
    column.as_primitive::<Float64Type>().iter().collect()
}

fn words<'a>(rows: &'a RecordBatch, name: &str) -> Vec<Option<&'a str>> {
    let column = rows.column_by_name(name).unwrap();
    column.as_string::<i32>().iter().collect()
}

#[test]
fn rows_keep_runs_and_failures_as_they_are() {
    let scenario = scenario();
    let columns = Columns::new(&scenario.outline_of([0]).unwrap());
    let mut cell = cells(&scenario).remove(1);
    cell.outcomes[1] = Err(FailedRun {
        cell: 1,
        seed: cell.jobs[1].seed,
        message: "on purpose".to_owned(),
        replay: "manyflow sim".to_owned(),
    });
    let outline = scenario.cell(1).unwrap().outline();
    let rows = columns.encode(outline, &cell.jobs, &cell.outcomes).unwrap();
    let (jobs, outcomes): (Vec<Job>, Vec<Outcome>) =
        columns.decode(&rows).unwrap().into_iter().unzip();
    assert_eq!(jobs, cell.jobs);
    // NaN differs from itself, and has the same text.
    assert_eq!(format!("{outcomes:?}"), format!("{:?}", cell.outcomes));
    let series = cell.outcomes[0].as_ref().unwrap();
    assert!(!series.series[0][0][0].points.is_empty());
    assert!(cell.outcomes[2].as_ref().unwrap().series[0].is_empty());
}

#[test]
fn rows_have_axes_formulas_and_verdicts() {
    let scenario = scenario();
    let columns = Columns::new(&scenario.outline_of([0]).unwrap());
    let cell = cells(&scenario).remove(1);
    let outline = scenario.cell(1).unwrap().outline();
    let rows = columns.encode(outline, &cell.jobs, &cell.outcomes).unwrap();
    assert_eq!(words(&rows, "loss"), [Some("5 %"); 3]);
    let rates = numbers(&rows, "rate");
    let twice = rates.iter().map(|rate| rate.map(|rate| 2.0 * rate));
    assert_eq!(numbers(&rows, "twice"), twice.collect::<Vec<_>>());
    assert_eq!(numbers(&rows, "late"), [None; 3]);
    assert_eq!(words(&rows, "verdict: met"), [Some("met"); 3]);
    assert_eq!(words(&rows, "verdict: missed"), [Some("missed"); 3]);
    assert_eq!(words(&rows, "verdict: no value"), [Some("no value"); 3]);
    assert_eq!(words(&rows, "verdict: no cell"), [None; 3]);
    let shown: Vec<&str> = columns.shown().collect();
    assert_eq!(shown[..4], ["cell", "loss", "seed", "rate"]);
    let field = columns.schema().field_with_name("rate").unwrap();
    assert_eq!(field.metadata().get("unit").unwrap(), "bit/s");
}

#[test]
fn compaction_depends_on_the_rows_only() {
    let all = cells(&scenario());
    let [one, two] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    write(&store(one.path()), &[&all[0], &all[1]]);
    write(&store(two.path()), &[&all[1]]);
    write(&store(two.path()), &[&all[0]]);
    // A second process has made the same cell.
    write(&store(two.path()), &[&all[1]]);
    let files = store(one.path()).compact().unwrap();
    assert_eq!(files, store(one.path()).compact().unwrap());
    store(two.path()).compact().unwrap();
    let (one, two) = (contents(one.path()), contents(two.path()));
    assert_eq!(one.len(), 2, "{:?}", one.keys());
    assert_eq!(one, two);
}

#[test]
fn a_compaction_that_was_killed_is_repeated_without_loss() {
    let all = cells(&scenario());
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    write(&store, &[&all[0]]);
    let first = store.compact().unwrap();
    let kept = fs::read(&first[0]).unwrap();
    write(&store, &[&all[1]]);
    store.compact().unwrap();
    let whole = contents(folder.path());
    // The new file has its name, and an old one is not removed yet.
    fs::write(&first[0], kept).unwrap();
    assert_eq!(store.known().unwrap().len(), 6);
    store.compact().unwrap();
    assert_eq!(contents(folder.path()), whole);
}

#[test]
fn rows_of_two_programs_stay_beside_each_other_and_are_named() {
    let all = cells(&scenario());
    let folder = tempfile::tempdir().unwrap();
    let of = |commit: &str| {
        let commit = Some(commit.to_owned());
        store_of(
            folder.path(),
            Provenance {
                commit,
                ..Provenance::default()
            },
        )
    };
    let (one, two) = (of("one"), of("two"));
    // As many rows, so that the files of both would have the same name.
    for (store, cell) in [(&one, &all[0]), (&two, &all[1])] {
        write(store, &[cell]);
        store.compact().unwrap();
    }
    for (store, cell, other) in [(&one, 0, "two"), (&two, 1, "one")] {
        let known = store.known().unwrap();
        assert_eq!(known.len(), 3);
        assert!(known.iter().all(|(number, _)| *number == cell));
        let [sentence] = &store.left_out().unwrap()[..] else {
            panic!("{:?}", store.left_out());
        };
        let version = env!("CARGO_PKG_VERSION");
        let part = format!("3 runs of manyflow {version} {other} are left out");
        assert!(sentence.contains(&part), "{sentence}");
    }
    // The program that has made all runs leaves none out, and removes those of the other.
    write(&two, &[&all[0]]);
    two.compact().unwrap();
    assert_eq!(two.left_out().unwrap(), Vec::<String>::new());
    assert!(one.known().unwrap().is_empty());
}

#[test]
fn a_reader_returns_the_rows_of_its_seeds() {
    let all = cells(&scenario());
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    write(&store, &[&all[0], &all[1]]);
    let files = store.compact().unwrap();
    let schema = store.columns().schema().project(&[3, 0]).unwrap();
    let seed = all[0].jobs[1].seed;
    let rows = RowReader::new(&files, Arc::new(schema), BTreeSet::from([seed]));
    let rows: Vec<RecordBatch> = rows.map(Result::unwrap).collect();
    let rates = numbers(&rows[0], "rate");
    let rate = |cell: &Cell| cell.outcomes[1].as_ref().unwrap().measures[0];
    assert_eq!(rates, [Some(rate(&all[0])), Some(rate(&all[1]))]);
    assert_eq!(rows[0].num_columns(), 2);
}
