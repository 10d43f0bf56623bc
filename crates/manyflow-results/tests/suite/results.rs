//! Tests that results are reproducible and that expectations are judged correctly.

use std::path::Path;
use std::time::Duration;

use manyflow_results::{Provenance, Results, Verdict};
use manyflow_scenario::{Dimension, Job, Progress, Scenario};

pub(crate) const SMALL: &str = r#"title = "Small <one>"
about = "One & only."
[run]
duration = "20 s"
seeds = 3
[parameters]
loss = "1 %"
[nodes]
names = ["S", "R"]
[[links]]
name = "lossy"
between = ["S", "R"]
delay = "20 ms"
loss = "loss"
[[sessions]]
name = "webrc"
protocol = "webrc"
sender = "S"
receivers = [{ node = "R", start = "uniform 0 s to 2 s" }]
webrc.session-rate = "1 Mbit/s"
[sweep]
loss = ["1 %", "5 %"]
[[measure]]
name = "rate"
what = "received-rate"
of = "webrc"
[[measure]]
name = "twice"
value = "2 * rate"
[[measure]]
name = "late"
what = "received-rate"
of = "webrc"
statistic = "time-to-rise"
level = "1 Gbit/s"
[[plots]]
name = "over-time"
title = "Over time"
series = [{ what = "received-rate", of = "webrc" }, { what = "reported-rate", of = "webrc", label = "its own view" }]
seeds = 2
[[plots]]
name = "over-loss"
title = "Over loss"
x = "loss"
points = ["rate"]
[[expect]]
what = "met"
value = "twice / rate"
at-least = 2
at-most = 2
source = "arithmetic"
[[expect]]
what = "missed"
value = "rate"
at-least = "1 Gbit/s"
source = "nothing can"
[[expect]]
what = "no value"
value = "late"
at-least = "0 s"
source = "it never rises so far"
[[expect]]
what = "no cell"
value = "rate"
where = "loss > 50 %"
at-least = "0 bit/s"
source = "there is none"
"#;

fn files(folder: &Path) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<(String, String)> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn written(threads: usize) -> Vec<(String, String)> {
    let scenario = Scenario::parse("small.toml", SMALL, false).unwrap();
    let jobs = scenario.jobs().unwrap();
    let mut runs_left = Vec::new();
    let mut simulated = Duration::ZERO;
    let outcomes = scenario.run(&jobs, threads, &mut |progress| match progress {
        Progress::Simulated(passed) => simulated += passed,
        Progress::Threads(_) => {}
        Progress::Ended(_, left) => runs_left.push(left),
    });
    assert_eq!(runs_left, [5, 4, 3, 2, 1, 0]);
    let duration = scenario.cell(0).unwrap().schema.run.duration;
    assert_eq!(simulated, 6 * duration.duration());
    let results = Results::new(
        scenario.outline().unwrap(),
        &jobs,
        &outcomes,
        Provenance::default(),
    );
    let folder = tempfile::tempdir().unwrap();
    results.write(folder.path()).unwrap();
    files(folder.path())
}

#[test]
fn the_number_of_threads_does_not_change_the_files() {
    let files = written(1);
    assert_eq!(files, written(2));
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "index.html",
            "measures.csv",
            "over-loss.svg",
            "over-time-0.svg",
            "over-time-1.svg",
            "over-time.csv",
            "summary.json"
        ]
    );
    let page = &files[0].1;
    assert!(page.contains("Small &lt;one&gt;") && page.contains("One &amp; only."));
    assert_eq!(page.matches("<svg").count(), 3);
    assert_eq!(files[1].1.lines().count(), 7);
}

#[test]
fn a_plot_of_many_cells_gives_the_number_that_it_shows() {
    let losses: Vec<String> = (1..=14).map(|loss| format!("\"{loss} %\"")).collect();
    let many = SMALL
        .replace("[\"1 %\", \"5 %\"]", &format!("[{}]", losses.join(", ")))
        .replace("seeds = 3", "seeds = 1")
        .replace("duration = \"20 s\"", "duration = \"2 s\"");
    let scenario = Scenario::parse("small.toml", &many, false).unwrap();
    let jobs = scenario.jobs().unwrap();
    let outcomes = scenario.run(&jobs, 2, &mut |_| {});
    let results = Results::new(
        scenario.outline().unwrap(),
        &jobs,
        &outcomes,
        Provenance::default(),
    );
    let of = |name: &str| {
        let named = results
            .figures()
            .iter()
            .filter(|f| f.name.starts_with(name));
        named.collect::<Vec<_>>()
    };
    let over_time = of("over-time");
    assert_eq!(over_time.len(), 12);
    let says = "12 of 14 cells shown";
    assert!(over_time.iter().all(|figure| figure.svg.contains(says)));
    assert!(over_time[11].note.as_ref().unwrap().contains(says));
    assert_eq!(results.html().matches("<figcaption").count(), 1);
    assert!(of("over-loss").iter().all(|figure| figure.note.is_none()));
    let rows = &results.series_csv().unwrap()[0].1;
    assert!(
        rows.lines().any(|row| row.starts_with("14 %")),
        "the table has all cells"
    );
}

#[test]
fn each_expectation_has_a_verdict() {
    let scenario = Scenario::parse("small.toml", SMALL, false).unwrap();
    let jobs = scenario.jobs().unwrap();
    let outcomes = scenario.run(&jobs, 2, &mut |_| {});
    let results = Results::new(
        scenario.outline().unwrap(),
        &jobs,
        &outcomes,
        Provenance::default(),
    );
    let verdicts: Vec<Verdict> = results.expectations().iter().map(|c| c.verdict).collect();
    assert_eq!(
        verdicts,
        [
            Verdict::Met,
            Verdict::Missed,
            Verdict::NoValue,
            Verdict::NoValue
        ]
    );
    assert!(!results.passed());
    let missed = &results.expectations()[1];
    assert_eq!(missed.note, "loss = 5 %", "the worst cell is named");
    let line = missed.line();
    assert!(line.starts_with("MISSED "), "{line}");
    assert!(line.ends_with("; in cell 1: loss = 5 %"), "{line}");
    let met = results.expectations()[0].line();
    assert!(met.starts_with("met ") && !met.contains("in cell"), "{met}");
    let summary: serde_json::Value = serde_json::from_str(&results.summary_json()).unwrap();
    assert_eq!(summary["expectations"][1]["verdict"], "missed");
    assert_eq!(
        summary["cells"][1]["measures"]["late"]["samples"][0],
        serde_json::Value::Null
    );
}

/// Calls `check` with the results of the small scenario, extended by `more`, in which `rates` are
/// the rates of the three seeds in Mbit/s.
fn with_rates(more: &str, rates: [f64; 3], check: impl FnOnce(&Results<'_>)) {
    let text = format!("{}\n{more}", SMALL.replace("\"20 s\"", "\"3 s\""));
    let scenario = Scenario::parse("small.toml", &text, false).unwrap();
    let jobs = scenario.jobs().unwrap();
    let mut outcomes = scenario.run(&jobs, 2, &mut |_| {});
    for (outcome, rate) in outcomes.iter_mut().zip(rates.into_iter().cycle()) {
        outcome.as_mut().unwrap().measures[0] = rate * 1e6;
    }
    check(&Results::new(
        scenario.outline().unwrap(),
        &jobs,
        &outcomes,
        Provenance::default(),
    ));
}

#[test]
fn seeds_without_a_value_are_named() {
    with_rates("", [1.0, f64::NAN, 2.0], |results| {
        let checked = &results.expectations()[0];
        assert_eq!(checked.verdict, Verdict::NoValue);
        assert_eq!(
            checked.note,
            "`rate` has no value in seed 2: nothing was observed, in cell 0: loss = 1 %"
        );
        let summary: serde_json::Value = serde_json::from_str(&results.summary_json()).unwrap();
        let rate = &summary["cells"][1]["measures"]["rate"];
        assert_eq!(rate["seeds_without_value"], serde_json::json!([2]));
        assert!(results.html().contains("none in seed 2"));
    });
}

#[test]
fn a_share_of_the_seeds_has_to_meet_the_bounds() {
    let expecting = |share: &str, more: &str| {
        format!(
            "[[expect]]\nwhat = \"mostly\"\nvalue = \"twice / 2\"\nat-least = \"1.5 Mbit/s\"\n\
             at-most = \"5 Mbit/s\"\nshare-of-seeds = \"{share}\"\nsource = \"a test\"\n{more}"
        )
    };
    for (share, rates, verdict, shown) in [
        ("2 / 3", [1.0, 2.0, 3.0], Verdict::Met, "66.67 %"),
        ("3 / 4", [1.0, 2.0, 3.0], Verdict::Missed, "66.67 %"),
        ("30 %", [6.0, 2.0, f64::NAN], Verdict::Met, "33.33 %"),
        ("100 %", [2.0, 2.0, 2.0], Verdict::Met, "100 %"),
    ] {
        with_rates(&expecting(share, ""), rates, |results| {
            let checked = results.expectations().last().unwrap();
            assert_eq!(
                (checked.verdict, checked.shown().as_str()),
                (verdict, shown)
            );
        });
    }
    with_rates(&expecting("3 / 4", ""), [1.0, 2.0, 9.0], |results| {
        let checked = results.expectations().last().unwrap();
        assert_eq!(checked.note, "loss = 1 %; not seeds 1, 3");
        assert_eq!(checked.bounds(), "at least 75 %");
    });
    let mixed = format!("{SMALL}\n{}", expecting("1 / 2", "across = \"mean\"\n"));
    let error = Scenario::parse("small.toml", &mixed, false).unwrap_err();
    assert!(error.to_string().contains("leave out `across`"), "{error}");
}

#[test]
fn axes_that_vary_together_form_one_row_of_points() {
    let text = SMALL
        .replace("[sweep]", "[sweep]\nlinks.lossy.delay = [\"20 ms\", \"30 ms\"]\ntogether = [[\"loss\", \"links.lossy.delay\"]]")
        .replace("\"20 s\"", "\"3 s\"");
    let scenario = Scenario::parse("small.toml", &text, false).unwrap();
    assert_eq!(scenario.cells(), 2);
    let jobs = scenario.jobs().unwrap();
    let outcomes = scenario.run(&jobs, 2, &mut |_| {});
    let results = Results::new(
        scenario.outline().unwrap(),
        &jobs,
        &outcomes,
        Provenance::default(),
    );
    assert_eq!(
        results.cells()[1].describe(&scenario.outline().unwrap().axes),
        "links.lossy.delay = 30 ms, loss = 5 %"
    );
    let figure = results.figures().last().unwrap();
    assert!(!figure.svg.contains("links.lossy.delay"), "{}", figure.svg);
}

#[test]
fn the_ratio_across_cells_is_a_bare_number() {
    let expecting = |bound: &str| {
        let text = format!(
            "{SMALL}\n[[expect]]\nwhat = \"alike\"\nvalue = \"mean(rate)\"\nacross = \"ratio\"\n\
             at-most = {bound}\nsource = \"a test\"\n"
        );
        Scenario::parse("small.toml", &text, false)
    };
    let scenario = expecting("100").unwrap();
    let jobs = scenario.jobs().unwrap();
    let outcomes = scenario.run(&jobs, 2, &mut |_| {});
    let results = Results::new(
        scenario.outline().unwrap(),
        &jobs,
        &outcomes,
        Provenance::default(),
    );
    let means = results.cells().iter().map(|cell| {
        let samples = &cell.environment["rate"].values;
        samples.iter().sum::<f64>() / samples.len() as f64
    });
    let means: Vec<f64> = means.collect();
    let expected = means.iter().copied().fold(0.0, f64::max)
        / means.iter().copied().fold(f64::INFINITY, f64::min);
    let found = results.expectations().last().unwrap().value.unwrap();
    assert!(expected > 1.0 && (found.value / expected - 1.0).abs() < 1e-9);
    assert_eq!(found.dimension, Dimension::NUMBER);
    let error = expecting("\"1 Mbit/s\"").unwrap_err().to_string();
    assert!(error.contains("where a bare number is expected"), "{error}");
}

#[test]
fn a_failed_run_is_listed_with_the_command_that_repeats_it() {
    let scenario = Scenario::parse("small.toml", SMALL, false).unwrap();
    let jobs = scenario.jobs().unwrap();
    let mut outcomes = scenario.run(&jobs[..3], 1, &mut |_| {});
    let nowhere = Job {
        cell: 1,
        seed: 9,
        place: 0,
    };
    outcomes.push(Err(scenario.failed(nowhere, "it broke".to_owned())));
    let results = Results::new(
        scenario.outline().unwrap(),
        &jobs,
        &outcomes,
        Provenance::default(),
    );
    assert!(!results.passed());
    assert_eq!(results.expectations()[0].verdict, Verdict::NoValue);
    let page = results.html();
    assert!(
        page.contains("it broke") && page.contains("manyflow sim small.toml --cell 1 --seed 9")
    );
    assert!(
        results.cells()[0].environment["rate"]
            .values
            .iter()
            .all(|rate| *rate > 0.0)
    );
}
