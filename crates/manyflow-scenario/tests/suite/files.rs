//! Tests that read and check scenarios, and the scenario that they begin with.

use manyflow_scenario::{Form, Scenario, ScenarioError};

pub(crate) const SOUND: &str = r#"title = "Two receivers"
[run]
duration = "100 s"
seeds = 2
[parameters]
rtt = "100 ms"
p = "1 %"
[nodes]
names = ["S", "r"]
groups = { R = 2 }
[[links]]
name = "bottleneck"
between = ["S", "r"]
rate = "1 Mbit/s"
delay = "rtt / 2"
queue = "10 packets"
loss = "p"
[[links]]
between = ["r", "R"]
[[sessions]]
name = "webrc"
protocol = "webrc"
sender = "S"
receivers = ["R"]
webrc.session-rate = "2 Mbit/s"
[[at]]
time = "50 s"
link = "bottleneck"
set.rate = "500 kbit/s"
[sweep]
p = ["1 %", "2 %", "3 %"]
links.bottleneck.rate = ["1 Mbit/s", "2 Mbit/s"]
[[measure]]
name = "rate"
what = "received-rate"
of = "webrc"
[[plots]]
name = "rate"
title = "Rate"
x = "p"
points = ["rate"]
only = { p = "1 %" }
[[expect]]
what = "it receives"
value = "mean(rate)"
at-least = "100 kbit/s"
source = "a test"
fast.at-least = "50 kbit/s"
[fast]
run.seeds = 1
sweep.p = ["1 %"]
"#;

pub(crate) fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("scenarios/two.toml", text, false)
}

/// Returns the error of the valid scenario with one line replaced.
pub(crate) fn error_of(line: &str, other: &str) -> String {
    assert!(SOUND.contains(line), "the scenario has no line {line}");
    let text = SOUND.replacen(line, other, 1);
    match parse(&text) {
        Ok(_) => panic!("accepted {other}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_valid_scenario_is_read() {
    let scenario = parse(SOUND).unwrap();
    assert_eq!((scenario.id(), scenario.cells()), ("two", 6));
    let keys: Vec<&str> = scenario
        .axes()
        .iter()
        .map(|axis| axis.key.as_str())
        .collect();
    assert_eq!(keys, ["p", "links.bottleneck.rate"]);
    let cell = scenario.cell(5).unwrap();
    assert_eq!(cell.labels, ["3 %", "2 Mbit/s"]);
    let link = cell.schema.links[0].properties();
    assert_eq!(link.loss.unwrap().0, 0.03);
    assert_eq!(link.delay.unwrap().0, 0.05);
    assert_eq!(
        link.rate.unwrap().average().unwrap().bits_per_s(),
        2_000_000
    );
}

#[test]
fn settings_replace_values_of_the_file() {
    let form = |settings: &[&str]| Form {
        settings: settings.iter().map(|&text| text.to_owned()).collect(),
        ..Form::default()
    };
    let read = |settings: &[&str]| Scenario::parse_form("two.toml", SOUND, form(settings));
    let scenario = read(&["run.seeds=7", "sweep.p=[\"1 %\"]", "links.0.delay=3 ms"]).unwrap();
    assert_eq!(scenario.cells(), 2);
    let schema = scenario.cell(0).unwrap().schema;
    assert_eq!(schema.run.seeds.get(), 7);
    assert_eq!(schema.links[0].properties().delay.unwrap().0, 0.003);
    for micro in ['u', 'µ', 'μ'] {
        let scenario = read(&[&format!("links.0.delay=3000 {micro}s")]).unwrap();
        let delay = scenario.cell(0).unwrap().schema.links[0].properties().delay;
        assert_eq!(delay.unwrap().0, 0.003, "{micro}");
    }
    for (settings, message) in [
        (["run.seeds=7", "q=1"], "--set:2: `q`: there is no key"),
        (
            ["run.seeds=7", "p=2 %"],
            "--set:2: `p`: this is a key of [sweep]: set `sweep.p`",
        ),
        (
            ["rtt=1 s", "p=2 %"],
            "--set:1: `rtt`: this is a key of [parameters]: set `parameters.rtt`",
        ),
        (["run.seeds=7", "links.0.delay=3 m"], "--set:2: `links"),
        (["run.seeds=7", "links.x.delay=3 ms"], "--set:2: `links"),
        (
            ["run.seeds", "p=1"],
            "--set:1: `run.seeds` is not KEY=VALUE",
        ),
        (["run.seeds=7", "=x"], "--set:2: `=x` is not KEY=VALUE"),
        (["a b=x", "p=1"], "--set:1: `a b=x` is not KEY=VALUE"),
        (["run.seeds=7", "links.0.rate=1 Mbit/s"], "set `sweep.links"),
    ] {
        let error = read(&settings).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
    // Neither key stands in the file, nor does the table that they share.
    let swept = SOUND.replacen(
        "[sweep]",
        "[sweep]\nlinks.bottleneck.red.maximum = [10, 15]",
        1,
    );
    let read = |setting| Scenario::parse_form("two.toml", &swept, form(&[setting]));
    let scenario = read("links.bottleneck.red.minimum=4").unwrap();
    assert_eq!(scenario.cells(), 12);
    let error = read("links.bottleneck.red.maximum=12").unwrap_err();
    assert!(error.to_string().contains("the scenario sweeps"), "{error}");
}

#[test]
fn the_fast_form_overrides_keys() {
    let scenario = Scenario::parse("two.toml", SOUND, true).unwrap();
    assert_eq!(scenario.cells(), 2);
    assert_eq!(scenario.cell(0).unwrap().schema.run.seeds.get(), 1);
    let wrong = SOUND.replace("run.seeds = 1", "run.seedz = 1");
    let error = Scenario::parse("two.toml", &wrong, true)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("two.toml:50: `run.seedz`: there is no key `seedz`"),
        "{error}"
    );
}
