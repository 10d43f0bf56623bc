//! Tests of reading and checking scenarios.

use std::sync::Arc;

use super::topology::Topology;
use super::*;

const SOUND: &str = r#"title = "Two receivers"
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

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("scenarios/two.toml", text, false)
}

/// The message where one line of the sound scenario is another one.
fn error_of(line: &str, other: &str) -> String {
    assert!(SOUND.contains(line), "the scenario has no line {line}");
    let text = SOUND.replacen(line, other, 1);
    match parse(&text) {
        Ok(_) => panic!("accepted {other}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_sound_scenario_is_read() {
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
    assert_eq!(link.rate.unwrap().0, 2e6);
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

/// A line of the sound scenario, another one in its place, and what the error has to say.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "time = \"50 s\"",
        "time = \"50 min\"",
        "two.toml:27: `at.0.time`: this is after the end of the run",
    ),
    (
        "of = \"webrc\"",
        "of = \"webrc\"\nto = \"200 s\"",
        "two.toml:37: `measure.rate.to`: the window ends after the run",
    ),
    (
        "of = \"webrc\"",
        "of = \"webrc\"\nfrom = \"200 s\"",
        "two.toml:37: `measure.rate.from`: the window begins after its end",
    ),
    (
        "of = \"webrc\"",
        "of = \"webrc\"\nto = \"20 s\"",
        "two.toml:37: `measure.rate.to`: the window ends before the steady state begins",
    ),
    (
        "only = { p = \"1 %\" }",
        "only = { p = \"4 %\" }",
        "two.toml:42: `plots.rate.only.p`: there is no value of this axis `4 %`; did you mean `1 %`?",
    ),
    (
        "only = { p = \"1 %\" }",
        "only = { q = \"4 %\" }",
        "two.toml:42: `plots.rate.only`: there is no axis of the sweep `q`",
    ),
    (
        "seeds = 2",
        "seed = 2",
        "two.toml:4: `run.seed`: there is no key `seed`; did you mean `seeds`?",
    ),
    (
        "delay = \"rtt / 2\"",
        "dely = \"1 ms\"",
        "two.toml:15: `links.bottleneck.dely`: there is no key `dely`; did you mean `delay`?",
    ),
    (
        "[[at]]",
        "[[att]]",
        "two.toml:26: `att`: there is no key `att`; did you mean `at`?",
    ),
    (
        "links.bottleneck.rate = [\"1 Mbit/s\", \"2 Mbit/s\"]",
        "links.bottleneck.rate = [\"1 Mbit/s\", \"1 ms\"]",
        "two.toml:32: `links.bottleneck.rate`: this is in s, where a rate such as `3.2 Mbit/s` is expected",
    ),
    (
        "delay = \"rtt / 2\"",
        "delay = \"3 Mbit/s\"",
        "two.toml:15: `links.bottleneck.delay`: this is in bit/s, where a time such as `50 ms` is expected",
    ),
    (
        "delay = \"rtt / 2\"",
        "delay = \"50\"",
        "two.toml:15: `links.bottleneck.delay`: this is a bare number, where a time such as `50 ms` is expected",
    ),
    (
        "delay = \"rtt / 2\"",
        "delay = \"-5 ms\"",
        "two.toml:15: `links.bottleneck.delay`: -0.005 is negative, where a time such as `50 ms` is expected",
    ),
    (
        "delay = \"rtt / 2\"",
        "delay = \"50 msec\"",
        "two.toml:15: `links.bottleneck.delay`: `50 msec` cannot be read: there is no unit `msec`",
    ),
    (
        "delay = \"rtt / 2\"",
        "delay = \"rt / 2\"",
        "two.toml:15: `links.bottleneck.delay`: there is no name `rt`; did you mean `rtt`?",
    ),
    (
        "queue = \"10 packets\"",
        "queue = \"10 ms\"",
        "two.toml:16: `links.bottleneck.queue`: this is in s, where a queue such as `40 packets`, `64 kB`",
    ),
    (
        "p = [\"1 %\", \"2 %\", \"3 %\"]",
        "p = [\"1 %\", \"200 %\"]",
        "two.toml:17: `links.bottleneck.loss`: 2 is out of range, where a probability such as `1 %` or 0.01 is expected",
    ),
    (
        "p = [\"1 %\", \"2 %\", \"3 %\"]",
        "q = [1]",
        "two.toml:31: `sweep.q`: there is no parameter `q`",
    ),
    (
        "p = [\"1 %\", \"2 %\", \"3 %\"]",
        "p = 3",
        "two.toml:31: `sweep.p`: a sweep takes a list of values",
    ),
    (
        "links.bottleneck.rate = [",
        "links.bottle.rate = [",
        "two.toml:32: `links`: there is no entry `bottle`",
    ),
    (
        "between = [\"S\", \"r\"]",
        "between = [\"S\", \"q\"]",
        "two.toml:13: `links.bottleneck.between`: there is no node `q`",
    ),
    (
        "between = [\"S\", \"r\"]",
        "",
        "two.toml:11: `links.bottleneck`: a link takes one of `between`, `chain` and `all-of`",
    ),
    (
        "between = [\"r\", \"R\"]",
        "between = [\"r\", \"R-0\"]",
        "two.toml:24: `sessions.webrc.receivers`: no links lead from `S` to `R-1` and back",
    ),
    (
        "sender = \"S\"",
        "sender = \"R\"",
        "two.toml:23: `sessions.webrc.sender`: `R` is a group: a session has one sender",
    ),
    (
        "receivers = [\"R\"]",
        "receivers = [\"Q\"]",
        "two.toml:24: `sessions.webrc.receivers`: there is no node `Q`",
    ),
    (
        "protocol = \"webrc\"",
        "protocol = \"wbrc\"",
        "two.toml:22: `sessions.webrc.protocol`: there is no choice `wbrc`; did you mean `webrc`?",
    ),
    (
        "webrc.session-rate = \"2 Mbit/s\"",
        "webrc.session-rate = \"2 kbit/s\"",
        "two.toml:25: `sessions.webrc.webrc`: a session of 2 kbit/s is too slow",
    ),
    (
        "webrc.session-rate = \"2 Mbit/s\"",
        "",
        "two.toml:20: `sessions.webrc`: the table `webrc` is missing",
    ),
    (
        "link = \"bottleneck\"",
        "link = \"neck\"",
        "two.toml:28: `at.0.link`: there is no link `neck`",
    ),
    (
        "time = \"50 s\"",
        "time = \"50 s\"\nevery = \"1 us\"",
        "two.toml:28: `at.0.every`: this makes more than 100000 changes",
    ),
    (
        "set.rate = \"500 kbit/s\"",
        "then.set.rate = \"500 kbit/s\"",
        "two.toml:29: `at.0.then`: `then` takes an `every`: the two take turns",
    ),
    (
        "set.rate = \"500 kbit/s\"",
        "every = \"1 s\"\nthen.rate = \"500 kbit/s\"",
        "two.toml:30: `at.0.then.rate`: there is no key `rate`",
    ),
    (
        "queue = \"10 packets\"",
        "red = { marking = \"top\" }",
        "two.toml:16: `links.bottleneck.red.marking`: there is no choice `top`; known are `all`, `top-group`",
    ),
    (
        "queue = \"10 packets\"",
        "red = {}\nxcp = {}",
        "`links`: `S-r`: a link has either `red` or `xcp`: both would steer the same queue",
    ),
    (
        "between = [\"r\", \"R\"]",
        "between = [\"r\", \"R\"]\nxcp = { alpha = 0.3 }",
        "`links`: `r-R-0`: an XCP router shares out a `rate`: give one",
    ),
    (
        "set.rate = \"500 kbit/s\"",
        "set.red = {}\nset.xcp = {}",
        "two.toml:29: `at.0.set`: a link has either `red` or `xcp`: both would steer the same queue",
    ),
    (
        "protocol = \"webrc\"",
        "protocol = \"sim\"\nsim.groups = 33",
        "two.toml:23: `sessions.webrc.sim`: the groups must be 1 to 32",
    ),
    (
        "protocol = \"webrc\"",
        "protocol = \"sim\"\nsim.aggregators = [\"r\", \"q\"]",
        "two.toml:23: `sessions.webrc.sim.aggregators`: there is no node `q`",
    ),
    (
        "protocol = \"webrc\"",
        "protocol = \"rlm\"",
        "two.toml:20: `sessions.webrc`: the table `rlm` is missing: its parameters",
    ),
    (
        "protocol = \"webrc\"",
        "protocol = \"rlm\"\nrlm.rates = []",
        "two.toml:23: `sessions.webrc.rlm`: ",
    ),
    (
        "what = \"received-rate\"\nof = \"webrc\"",
        "what = \"group-rate\"\nof = \"webrc/R\"",
        "two.toml:36: `measure.rate.of`: there is no session `webrc/R`",
    ),
    (
        "seeds = 2",
        "seeds = 0",
        "two.toml:4: `run.seeds`: no seeds, no runs: take at least 1",
    ),
    (
        "seeds = 2",
        "seeds = 50_000",
        "`sweep`: this makes 300000 runs; at most 100000 are possible",
    ),
    (
        "duration = \"100 s\"",
        "duration = \"0 s\"",
        "two.toml:3: `run.duration`: a run lasts longer than 0 s",
    ),
    (
        "duration = \"100 s\"",
        "",
        "two.toml:2: `run`: the key `duration` is missing",
    ),
    (
        "what = \"received-rate\"",
        "what = \"recieved-rate\"",
        "two.toml:35: `measure.rate.what`: there is no choice `recieved-rate`; did you mean `received-rate`?",
    ),
    (
        "of = \"webrc\"",
        "of = \"webrc/S\"",
        "two.toml:36: `measure.rate.of`: `webrc` has no receiver there",
    ),
    (
        "what = \"received-rate\"",
        "what = \"target-rate\"\nstatistic = \"total\"",
        "`measure.rate`: `total` adds up what is counted, but `target-rate` is a level",
    ),
    (
        "what = \"received-rate\"",
        "what = \"rtt-sample\"\nstatistic = \"longest-silence\"",
        "`measure.rate`: `longest-silence` counts intervals, but `rtt-sample` is reported at events",
    ),
    (
        "what = \"received-rate\"",
        "what = \"goodput\"",
        "two.toml:35: `measure.rate.what`: WEBRC (`webrc`) does not report `goodput`; it reports `received-rate`, `received-packets`, `joins`,",
    ),
    (
        "what = \"received-rate\"",
        "what = \"member-failures\"",
        "two.toml:35: `measure.rate.what`: WEBRC's sender (`webrc`) does not report `member-failures`",
    ),
    (
        "[[plots]]",
        "[[plots]]\nname = \"cwnd\"\ntitle = \"c\"\nseries = [{ what = \"cwnd\", of = \"webrc/R-1\" }]\n[[plots]]",
        "`plots.cwnd.series.0.what`: WEBRC (`webrc/R-1`) does not report `cwnd`",
    ),
    (
        "webrc.session-rate = \"2 Mbit/s\"",
        "webrc.session-rate = \"2 Mbit/s\"\n[[sessions]]\nname = \"tcp\"\nprotocol = \"tcp\"\nsender = \"S\"\nreceivers = [\"R\"]\n\
         [[measure]]\nname = \"instability\"\nwhat = \"instability\"\nof = \"tcp\"",
        "`measure.instability.what`: TCP (`tcp`) does not report `instability`",
    ),
    (
        "of = \"webrc\"",
        "of = \"tcp\"",
        "two.toml:36: `measure.rate.of`: there is no session `tcp`",
    ),
    (
        "points = [\"rate\"]",
        "points = [\"rat\"]",
        "two.toml:41: `plots.rate.points`: there is no measure `rat`; did you mean `rate`?",
    ),
    (
        "x = \"p\"",
        "x = \"rtt\"",
        "two.toml:40: `plots.rate.x`: there is no axis of the sweep `rtt`; known are `p`, `links.bottleneck.rate`",
    ),
    (
        "at-least = \"100 kbit/s\"",
        "at-least = \"100 ms\"",
        "two.toml:46: `expect.0.at-least`: this is in s, where a quantity in bit/s is expected",
    ),
    (
        "at-least = \"100 kbit/s\"",
        "",
        "two.toml:43: `expect.0`: an expectation takes `at-least`, `at-most` or both",
    ),
    (
        "value = \"mean(rate)\"",
        "value = \"mean(rate\"",
        "two.toml:45: `expect.0.value`: `mean(rate` cannot be read: a `)` is missing",
    ),
    (
        "value = \"mean(rate)\"",
        "value = \"rate + rtt\"",
        "two.toml:45: `expect.0.value`: cannot add",
    ),
    (
        "at-least = \"100 kbit/s\"",
        "at-least = \"100 kbit/s\"\nat-most = \"90 kbit/s\"",
        "two.toml:46: `expect.0.at-least`: 100 kbit/s is above `at-most`, 90 kbit/s: no value is within",
    ),
    (
        "fast.at-least = \"50 kbit/s\"",
        "fast = { at-least = \"50 kbit/s\", at-most = \"40 kbit/s\" }",
        "two.toml:48: `expect.0.fast.at-least`: 50 kbit/s is above",
    ),
    (
        "protocol = \"webrc\"",
        "protocol = \"webrc\"\ncount = 1_000_000_000",
        "two.toml:23: `sessions.webrc.count`: 1000000000 sessions: at most 100000 are possible",
    ),
    (
        "protocol = \"webrc\"",
        "protocol = \"webrc\"\ncount = 2",
        "two.toml:21: `sessions.webrc.name`: there are two sessions called `webrc`",
    ),
    (
        "queue = \"10 packets\"",
        "rate = \"2 Mbit/s\"",
        "two.toml:16: the key `rate` is there twice: keep one",
    ),
    (
        "duration = \"100 s\"",
        "duration = \"100 s\"\n[run]",
        "two.toml:4: the key `run` is there twice: keep one",
    ),
    ("title = ", "title ", "two.toml:1: "),
];

#[test]
fn errors_name_file_line_and_key() {
    let mut wrong = Vec::new();
    for (line, other, expected) in WRONG {
        let error = error_of(line, other);
        if !error.contains(expected) {
            wrong.push(format!("{other}\n  gave {error}\n  not  {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_same_name_is_noticed_among_thousands_of_sessions() {
    let sessions = "[[sessions]]\nname = \"s-{i mod 1500}\"\ncount = 1501\nprotocol = \"tcp\"\n\
                    sender = \"S\"\nreceivers = [\"r\"]\n[[at]]";
    let error = error_of("[[at]]", sessions);
    assert!(error.contains("two sessions called `s-0`"), "{error}");
}

#[test]
fn an_error_repeats_no_more_of_a_text_than_its_beginning() {
    let long = "x".repeat(200_000);
    for (line, other) in [
        ("delay = \"rtt / 2\"", format!("delay = \"1 + + {long}\"")),
        ("delay = \"rtt / 2\"", format!("delay = \"{long}\"")),
        ("delay = \"rtt / 2\"", format!("{long} = 1")),
        ("seeds = 2", format!("seeds = 2\nbin = [\"{long}\"]")),
        ("sender = \"S\"", format!("sender = \"{long}\"")),
        ("title = ", format!("{long} = 1\n{long} = 2\ntitle = ")),
    ] {
        let error = error_of(line, &other);
        assert!(
            error.len() < 1000,
            "{} bytes: {}",
            error.len(),
            &error[..200]
        );
    }
}

fn topology(nodes: &str, links: &str) -> Result<Topology, String> {
    let text = format!("title = \"t\"\n[run]\nduration = \"1 s\"\n[nodes]\n{nodes}\n{links}");
    let scenario = parse(&text).map_err(|error| error.to_string())?;
    Ok(Topology::new(&scenario.cell(0).unwrap().schema).unwrap())
}

#[test]
fn generators_make_what_they_say() {
    for (nodes, links, counts) in [
        (
            "names = [\"A\", \"B\", \"C\"]",
            "[[links]]\nchain = [\"A\", \"B\", \"C\"]",
            (3, 4),
        ),
        ("groups = { H = 6 }", "[[links]]\nchain = [\"H\"]", (6, 10)),
        (
            "names = [\"hub\"]\ngroups = { H = 9 }",
            "[[links]]\nbetween = [\"hub\", \"H\"]",
            (10, 18),
        ),
        (
            "names = [\"hub\"]\ngroups = { H = 9 }",
            "[[links]]\nbetween = [\"hub\", \"H\"]\none-way = true",
            (10, 9),
        ),
        (
            "trees.T = { depth = 4, children = 2 }",
            "[[links]]\nall-of = \"T\"",
            (31, 60),
        ),
        (
            "trees.T = { depth = 2, children = 10 }",
            "[[links]]\nall-of = \"T\"",
            (111, 220),
        ),
        (
            "random.G = { nodes = 20, links = 40 }",
            "[[links]]\nall-of = \"G\"",
            (20, 80),
        ),
        (
            "dumbbells.D = { left = 3, right = 4 }",
            "[[links]]\nall-of = \"D\"",
            (9, 16),
        ),
        (
            "names = [\"l\", \"r\"]\ngroups = { A = 3, B = 3 }",
            "[[links]]\nbetween = [\"A\", \"l\"]\n[[links]]\nbetween = [\"l\", \"r\"]\n[[links]]\nbetween = [\"r\", \"B\"]",
            (8, 14),
        ),
    ] {
        let made = topology(nodes, links).unwrap();
        assert_eq!((made.nodes.len(), made.links.len()), counts, "{nodes}");
    }
    for (nodes, why) in [
        (
            "trees.T = { depth = 60, children = 2 }",
            "nodes: from 1 to 5000000",
        ),
        (
            "random.G = { nodes = 20, links = 18 }",
            "20 nodes are joined by 19 to 190",
        ),
        (
            "dumbbells.D = { left = 0, right = 1 }",
            "`nodes.dumbbells.D.left`: 0 nodes: from 1 to 5000000",
        ),
        (
            "dumbbells.D = { left = 1 }",
            "`nodes.dumbbells.D`: the key `right` is missing",
        ),
        (
            "trees.D = { depth = 1, children = 2 }\ndumbbells.D = { left = 1, right = 1 }",
            "`nodes.dumbbells.D`: there is a node called `D`",
        ),
        ("names = [\"A\", \"A\"]", "two nodes called `A`"),
    ] {
        let error = topology(nodes, "").unwrap_err();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_trees_nodes_are_numbered_row_by_row() {
    let links = "[[links]]\nall-of = \"T\"\nrate = \"6 Mbit/s\"\ndelay = \"5 ms\"\n\
                 [[links]]\nbetween = [\"T-1\", \"T-3\"]\nrate = \"1 Mbit/s\"";
    let made = topology("trees.T = { depth = 4, children = 2 }", links).unwrap();
    let leaves = made.nodes_named("T-leaves").unwrap();
    let names: Vec<&str> = leaves.map(|n| made.nodes.get(n)).collect();
    assert_eq!((names[0], names[15]), ("T-15", "T-30"));
    // A later entry changes what it gives, and leaves the rest.
    let [changed] = made.links_named("T-1-T-3").unwrap()[..] else {
        panic!("there is one such link")
    };
    let config = &made.links[changed as usize].config;
    assert_eq!(config.rate.unwrap().bits_per_s(), 1_000_000);
    assert_eq!(config.delay.as_millis(), 5);
    assert_eq!(made.both_directions("T-3-T-1").unwrap().len(), 1);
}

#[test]
fn generated_nodes_and_their_links_are_found_by_name() {
    let nodes =
        "names = [\"S\", \"a-b\"]\ngroups = { H = 12 }\ntrees.T = { depth = 1, children = 3 }";
    let links = "[[links]]\nname = \"fan\"\nbetween = [\"a-b\", \"H\"]\n[[links]]\nall-of = \"T\"\n\
                 [[links]]\nbetween = [\"S\", \"a-b\"]";
    let made = topology(nodes, links).unwrap();
    assert_eq!(made.nodes_named("H-11"), Ok(13..14));
    assert_eq!(made.nodes_named("H"), Ok(2..14));
    assert_eq!(made.nodes_named("T-leaves"), Ok(15..18));
    for unknown in ["H-12", "H-007", "H-+1", "H-", "T-leaves-0", "a-b-0", "-1"] {
        assert!(made.nodes_named(unknown).is_err(), "{unknown}");
    }
    let ends = |name: &str| {
        let links = made.links_named(name).unwrap();
        let ends = |&link: &u32| (made.links[link as usize].from, made.links[link as usize].to);
        links.iter().map(ends).collect::<Vec<_>>()
    };
    assert_eq!(ends("S-a-b"), [(0, 1)]);
    assert_eq!(ends("H-11-a-b"), [(13, 1)]);
    assert_eq!(ends("T-0-T-3"), [(14, 17)]);
    assert_eq!(ends("fan").len(), 12);
    assert!(made.links_named("S-H-1").is_err());
    let error = topology("names = [\"H-3\"]\ngroups = { H = 4 }", "").unwrap_err();
    assert!(error.contains("two nodes called `H-3`"), "{error}");
    let error = topology("groups = { H = 4, H-3 = 2 }", "").unwrap_err();
    assert!(error.contains("there is a node called `H-3`"), "{error}");
}

#[test]
fn links_that_are_made_alike_share_what_they_are_like() {
    let links = "[[links]]\nall-of = \"T\"\ndelay = \"5 ms\"\n\
                 [[links]]\nbetween = [\"T-0\", \"T-1\"]\nback.delay = \"7 ms\"";
    let made = topology("trees.T = { depth = 2, children = 3 }", links).unwrap();
    let config = |name: &str| &made.links[made.links_named(name).unwrap()[0] as usize].config;
    assert!(Arc::ptr_eq(config("T-0-T-2"), config("T-3-T-12")));
    assert_eq!(config("T-1-T-0").delay.as_millis(), 7);
    assert_eq!(config("T-0-T-1").delay.as_millis(), 5);
}

#[test]
fn a_dumbbells_hosts_meet_at_two_routers() {
    let links = "[[links]]\nall-of = \"D\"\nrate = \"100 Mbit/s\"\ndelay = \"1 ms\"\n\
                 [[links]]\nname = \"bottleneck\"\nbetween = [\"D-router-0\", \"D-router-1\"]\nrate = \"3 Mbit/s\"";
    let made = topology("dumbbells.D = { left = 2, right = 1 }", links).unwrap();
    let named =
        |links: &[u32]| -> Vec<String> { links.iter().map(|link| made.link_name(*link)).collect() };
    assert_eq!(
        named(&(0..made.links.len() as u32).collect::<Vec<_>>()),
        [
            "D-router-0-D-router-1",
            "D-router-1-D-router-0",
            "D-router-0-D-left-0",
            "D-left-0-D-router-0",
            "D-router-0-D-left-1",
            "D-left-1-D-router-0",
            "D-router-1-D-right-0",
            "D-right-0-D-router-1",
        ]
    );
    let bottleneck = made.both_directions("bottleneck").unwrap();
    assert_eq!(bottleneck, [0, 1]);
    for (number, link) in made.links.iter().enumerate() {
        let rate = if number < 2 { 3_000_000 } else { 100_000_000 };
        assert_eq!(link.config.rate.unwrap().bits_per_s(), rate);
        assert_eq!(link.config.delay.as_millis(), 1);
    }
}

#[test]
fn a_random_graph_is_connected_and_the_same_again() {
    let make = || {
        let made = topology(
            "random.G = { nodes = 50, links = 60, seed = 3 }",
            "[[links]]\nall-of = \"G\"",
        );
        made.unwrap()
    };
    let made = make();
    let reached = topology::Reach::new(&made).both_ways(0);
    assert!(reached.iter().all(|&reached| reached));
    let ends = |topology: &Topology| -> Vec<(u32, u32)> {
        topology
            .links
            .iter()
            .map(|link| (link.from, link.to))
            .collect()
    };
    assert_eq!(ends(&made), ends(&make()));
}

#[test]
fn whatever_stands_in_a_file_is_an_error_and_no_panic() {
    use proptest::prelude::*;
    let lines: Vec<&str> = SOUND.lines().collect();
    let count = lines.len();
    proptest!(ProptestConfig::with_cases(300), |(drop in 0..count, from in 0..count, to in 0..count, cut in 0usize..40)| {
        let mut mixed = lines.clone();
        mixed.swap(from, to);
        let shortened: String = mixed[drop].chars().take(cut).collect();
        mixed[drop] = &shortened;
        let _ = parse(&mixed.join("\n"));
    });
}
