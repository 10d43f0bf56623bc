//! Rates that vary, and jitter, from scenario files.

use std::fs;

use manyflow_core::link::RateTrace;
use manyflow_scenario::{Form, Run, Scenario};
use proptest::prelude::*;

/// Returns a scenario in which a source of 20 Mbit/s sends over a link for 20 s.
fn text(link: &str, rest: &str) -> String {
    format!(
        r#"title = "One link"
[run]
duration = "20 s"
[nodes]
names = ["S", "R"]
[[links]]
name = "link"
between = ["S", "R"]
queue = "100 packets"
{link}
[[sessions]]
name = "flow"
protocol = "cbr"
sender = "S"
receivers = ["R"]
cbr = {{ rate = "20 Mbit/s", packet = "1500 B" }}
[[measure]]
name = "rate"
what = "link-rate"
of = "S-R"
[[measure]]
name = "capacity"
what = "capacity"
of = "S-R"
[[measure]]
name = "early"
what = "link-rate"
of = "S-R"
from = "0 s"
to = "2 s"
[[measure]]
name = "late"
what = "link-rate"
of = "S-R"
from = "15 s"
{rest}
"#
    )
}

fn run(scenario: &Scenario, job: usize) -> Run {
    scenario.run_one(scenario.jobs().unwrap()[job]).unwrap()
}

fn measured(link: &str, rest: &str) -> Vec<f64> {
    let scenario = Scenario::parse("one.toml", &text(link, rest), false).unwrap();
    run(&scenario, 0).measures
}

fn error_of(file: &str, link: &str) -> String {
    let scenario = Scenario::parse(file, &text(link, ""), false);
    scenario.unwrap_err().to_string()
}

#[test]
fn a_trace_comes_from_the_folder_of_the_scenario_and_travels_with_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("traces")).unwrap();
    let path = folder.path().join("traces/slow.trace");
    // Three packets each 6 ms: 6 Mbit/s.
    fs::write(&path, "2\n2\n6\n").unwrap();
    let file = folder.path().join("one.toml").display().to_string();
    let text = text("rate = { trace = \"traces/slow.trace\" }", "");
    let scenario = Scenario::parse(&file, &text, false).unwrap();
    let here = run(&scenario, 0);
    for rate in [here.measures[0], here.measures[1]] {
        assert!((rate / 6e6 - 1.0).abs() < 1e-3, "{:?}", here.measures);
    }
    let fingerprint = scenario.fingerprint();
    fs::write(&path, "2\n2\n5\n").unwrap();
    let other = Scenario::parse(&file, &text, false).unwrap();
    assert_ne!(other.fingerprint(), fingerprint);
    // The source has the trace, so the file may be elsewhere.
    fs::remove_file(&path).unwrap();
    let away = Scenario::from_source(scenario.source()).unwrap();
    assert_eq!(away.fingerprint(), fingerprint);
    assert_eq!(run(&away, 0).measures, here.measures);
}

proptest! {
    #[test]
    fn any_text_is_a_trace_that_is_written_again_or_refused(text in "([0-9]{0,3}[ \\t\r]?\n){0,30}|\\PC{0,60}") {
        if let Ok(trace) = text.parse::<RateTrace>() {
            prop_assert!(trace.duration_ms() > 0 && trace.opportunities() > 0);
            prop_assert_eq!(trace.to_string().parse(), Ok(trace));
        }
    }
}

#[test]
fn a_wrong_trace_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.toml").display().to_string();
    let error = |content: Option<&str>| {
        if let Some(content) = content {
            fs::write(folder.path().join("a.trace"), content).unwrap();
        }
        error_of(&file, "rate = { trace = \"a.trace\" }")
    };
    assert!(error(None).contains("a.trace: No such file"));
    for (content, message) in [
        ("1\n2\nx\n", "a.trace:3: a line is one time"),
        ("5\n4\n", "a.trace:2: the time is before"),
        ("", "a.trace: the trace has no line"),
        ("0\n", "a.trace: the trace takes no time"),
    ] {
        let error = error(Some(content));
        let place = "one.toml:10: `links.link.rate.trace`: ";
        assert!(error.contains(place) && error.contains(message), "{error}");
    }
    let folder = error_of(&file, "rate = { trace = \".\" }");
    assert!(folder.contains("a trace is a file of at most"), "{folder}");
}

#[test]
fn wrong_tables_of_rates_and_jitter_are_refused() {
    for (link, message) in [
        ("rate = { }", "one of `trace`, `shape` and `sustained`"),
        ("rate = { shape = \"lte\" }", "average rate, `mean`"),
        (
            "rate = { shape = \"lte\", mean = \"1 kbit/s\" }",
            "at least `10 kbit/s`",
        ),
        (
            "rate = { shape = \"4g\", mean = \"1 Mbit/s\" }",
            "no choice `4g`",
        ),
        (
            "rate = { shape = \"lte\", mean = \"1 Mbit/s\", outage = \"11 s\" }",
            "at most `10 s`",
        ),
        (
            "rate = { shape = \"wifi\", mean = \"1 Mbit/s\", outage = \"1 s\" }",
            "no outages",
        ),
        (
            "rate = { shape = \"lte\", mean = \"1 Mbit/s\", peak = \"2 Mbit/s\" }",
            "`sustained`",
        ),
        (
            "rate = { trace = \"a\", mean = \"1 Mbit/s\" }",
            "its own rate",
        ),
        ("rate = { sustained = \"1 Mbit/s\" }", "size of a `burst`"),
        (
            "rate = { sustained = \"0 bit/s\", burst = \"1 B\" }",
            "above `0 bit/s`",
        ),
        (
            "rate = { sustained = \"2 Mbit/s\", burst = \"1 MB\", peak = \"1 Mbit/s\" }",
            "below",
        ),
        (
            "rate = { sustaind = \"2 Mbit/s\" }",
            "did you mean `sustained`?",
        ),
        ("rate = \"1 ms\"", "a rate such as"),
        ("rate = [1]", "a quantity is a number or a text"),
        (
            "jitter = { distribution = \"normal\", mean = \"1 ms\" }",
            "takes its `deviation`",
        ),
        (
            "jitter = { distribution = \"pareto\", mean = \"1 ms\", index = 1 }",
            "above 1",
        ),
        (
            "jitter = { distribution = \"pareto\" }",
            "`mean` is missing",
        ),
        ("jitter = { mean = \"1 ms\" }", "`distribution` is missing"),
    ] {
        let error = error_of("one.toml", link);
        assert!(
            error.starts_with("one.toml:10: ") && error.contains(message),
            "{link}: {error}"
        );
    }
}

#[test]
fn a_formula_is_a_rate_and_a_jitter() {
    let link = "rate = \"2 * 3 Mbit/s\"\njitter = \"10 ms / 5\"";
    let measures = measured(link, "");
    assert!((measures[0] / 6e6 - 1.0).abs() < 1e-3, "{measures:?}");
    assert_eq!(measures[1], 6e6, "the capacity of a fixed rate");
}

#[test]
fn a_shape_is_another_for_each_seed_and_link_and_the_same_again() {
    for shape in ["lte", "5g", "wifi", "starlink"] {
        let link = format!("rate = {{ shape = \"{shape}\", mean = \"8 Mbit/s\" }}");
        let text = text(&link, "").replacen("[run]", "[run]\nseeds = 2", 1);
        let scenario = Scenario::parse("one.toml", &text, false).unwrap();
        let [first, second] = [0, 1].map(|job| run(&scenario, job).measures);
        assert_eq!(first, run(&scenario, 0).measures);
        assert_ne!(first, second);
        // The queue is never empty where the source is twice as fast.
        for [rate, capacity] in [&first, &second].map(|all| [all[0], all[1]]) {
            assert!(
                rate <= capacity * 1.001 && rate > 0.85 * capacity.min(2e7),
                "{shape}"
            );
        }
    }
}

#[test]
fn a_token_bucket_begins_with_a_burst() {
    // 20 Mbit/s leave 10 Mbit/s of the bucket's 80 Mbit, so that it lasts 8 s.
    let link = "rate = { sustained = \"10 Mbit/s\", burst = \"10 MB\", peak = \"40 Mbit/s\" }";
    let measures = measured(link, "");
    let [early, late] = [measures[2], measures[3]].map(|rate| rate / 1e6);
    assert!((early / 20.0 - 1.0).abs() < 0.01, "{early}");
    assert!((late / 10.0 - 1.0).abs() < 0.01, "{late}");
}

#[test]
fn the_rate_of_a_link_changes_its_kind_during_a_run() {
    let change = |time: &str, rate: &str| {
        format!("[[at]]\ntime = \"{time}\"\nlink = \"S-R\"\nset.rate = {rate}\n")
    };
    let bucket = "{ sustained = \"5 Mbit/s\", burst = \"2 kB\" }";
    let changes = change("2 s", bucket) + &change("15 s", "\"4 Mbit/s\"");
    let measures = measured("rate = { shape = \"5g\", mean = \"40 Mbit/s\" }", &changes);
    let [middle, early, late] = [measures[0], measures[2], measures[3]].map(|rate| rate / 1e6);
    assert!(early > 15.0, "{early}");
    // Half of the time from 10 s on has the bucket, the other half the fixed rate.
    assert!((middle / 4.5 - 1.0).abs() < 0.01, "{middle}");
    assert!((late / 4.0 - 1.0).abs() < 0.01, "{late}");
}

#[test]
fn a_setting_replaces_a_key_of_a_rate() {
    let form = Form {
        settings: vec!["links.link.rate.mean=4 Mbit/s".to_owned()],
        ..Form::default()
    };
    let text = text("rate = { shape = \"starlink\", mean = \"8 Mbit/s\" }", "");
    let scenario = Scenario::parse_form("one.toml", &text, form).unwrap();
    let link = &scenario.cell(0).unwrap().schema.links[0];
    let rate = link.rate.as_ref().and_then(|rate| rate.average()).unwrap();
    assert_eq!(rate.bits_per_s(), 4_000_000);
}

#[test]
fn settings_make_a_table_of_a_value() {
    let read = |settings: &[&str]| {
        let settings = settings.iter().map(|&text| text.to_owned()).collect();
        let form = Form {
            settings,
            ..Form::default()
        };
        Scenario::parse_form("one.toml", &text("rate = \"1 Mbit/s\"", ""), form)
    };
    let settings = ["links.rate.shape=lte", "links.rate.mean=4 Mbit/s"];
    let link = read(&settings).unwrap().cell(0).unwrap().schema.links[0].clone();
    let rate = link.rate.as_ref().and_then(|rate| rate.average()).unwrap();
    assert_eq!(rate.bits_per_s(), 4_000_000);
    let error = read(&["links.queue.shape=lte"]).unwrap_err().to_string();
    assert!(
        error.contains("--set:1: `links.link.queue`: a quantity is"),
        "{error}"
    );
}
