//! Tests that errors of scenario files name file, line and key.

use super::files::{SOUND, error_of, parse};
use manyflow_scenario::{Form, Scenario};

/// A line of the valid scenario, its replacement, and the expected message.
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
        "p = \"1 %\"\n[nodes]",
        "p = \"1 %\"\ntcp_rate = \"1 %\"\n[nodes]",
        "two.toml:8: `parameters`: `tcp_rate` has a meaning in formulas already: choose another name",
    ),
    (
        "p = \"1 %\"\n[nodes]",
        "p = \"1 %\"\nloss-rate = \"1 %\"\n[nodes]",
        "two.toml:8: `parameters`: `loss-rate` cannot be a name in formulas: use letters, digits and `_`, a letter first",
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
        "chain = [\"S\"]",
        "two.toml:13: `links.bottleneck.chain`: a chain joins two nodes or more",
    ),
    (
        "between = [\"S\", \"r\"]",
        "chain = []",
        "two.toml:13: `links.bottleneck.chain`: a chain joins two nodes or more",
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
        "two.toml:29: `at.0.then`: `then` needs an `every`: the two changes alternate",
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
        "`links`: `S-r`: a link takes either `red` or `xcp`: both control the same queue",
    ),
    (
        "queue = \"10 packets\"",
        "red = {}\ncodel = {}",
        "`links`: `S-r`: a link takes one of `red`, `codel`, `fq-codel`, `cake`, `pie` and `dualpi2`",
    ),
    (
        "queue = \"10 packets\"",
        "pie = {}\nxcp = {}",
        "`links`: `S-r`: a link takes either active queue management or `xcp`",
    ),
    (
        "queue = \"10 packets\"",
        "fq-codel = { flows = 0 }",
        "`links`: `S-r`: `fq-codel.flows` is from 1 to 65536",
    ),
    (
        "queue = \"10 packets\"",
        "codel = { tarket = \"5 ms\" }",
        "two.toml:16: `links.bottleneck.codel.tarket`: there is no key `tarket`; did you mean `target`?",
    ),
    (
        "set.rate = \"500 kbit/s\"",
        "set.codel = {}\nset.pie = {}",
        "two.toml:29: `at.0.set`: a link takes one of `red`, `codel`, `fq-codel`, `cake`, `pie` and `dualpi2`",
    ),
    (
        "between = [\"r\", \"R\"]",
        "between = [\"r\", \"R\"]\nxcp = { alpha = 0.3 }",
        "`links`: `r-R-0`: an XCP router allocates the `rate` of its link: give one",
    ),
    (
        "set.rate = \"500 kbit/s\"",
        "set.red = {}\nset.xcp = {}",
        "two.toml:29: `at.0.set`: a link takes either `red` or `xcp`: both control the same queue",
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
        "two.toml:20: `sessions.webrc`: the table `rlm` is missing: it holds the protocol's parameters",
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
        "two.toml:4: `run.seeds`: without seeds there are no runs: give at least 1",
    ),
    (
        "seeds = 2",
        "seeds = 50_000",
        "`sweep`: this makes 300000 runs; at most 100000 are possible",
    ),
    (
        "duration = \"100 s\"",
        "duration = \"0 s\"",
        "two.toml:3: `run.duration`: a run has to last longer than 0 s",
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
        "`measure.rate`: `total` adds up counts, but `target-rate` is a level",
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
        "two.toml:46: `expect.0.at-least`: 100 kbit/s is above `at-most`, 90 kbit/s: no value can meet both",
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
        "two.toml:16: the key `rate` appears twice: keep one",
    ),
    (
        "duration = \"100 s\"",
        "duration = \"100 s\"\n[run]",
        "two.toml:4: the key `run` appears twice: keep one",
    ),
    (
        "set.rate = \"500 kbit/s\"",
        "set.rate = \"0 bit/s\"",
        "two.toml:29: `at.0.set`: a link of 0 bit/s carries no packet: cut it with `[[at]]`",
    ),
    (
        "links.bottleneck.rate = [\"1 Mbit/s\", \"2 Mbit/s\"]",
        "links.bottleneck.rate = [\"1 Mbit/s\", \"0 Mbit/s\"]",
        "`links`: `S-r`: a link of 0 bit/s carries no packet",
    ),
    (
        "webrc.session-rate = \"2 Mbit/s\"",
        "webrc.session-rate = \"2 Mbit/s\"\ntcp.control = \"own\"",
        "two.toml:26: `sessions.webrc.tcp`: a session of webrc does not read this key: leave it out",
    ),
    (
        "receivers = [\"R\"]",
        "receivers = [{ node = \"R\", lie = \"always-congested\" }]",
        "two.toml:24: `sessions.webrc.receivers.0.lie`: a session of webrc does not read this key",
    ),
    (
        "receivers = [\"R\"]",
        "receivers = [\"R\", { node = \"R\", stop = \"9 s\", send-buffer = \"9 kB\" }]",
        "two.toml:24: `sessions.webrc.receivers.1.send-buffer`: a session of webrc does not read",
    ),
    (
        "p = [\"1 %\", \"2 %\", \"3 %\"]",
        "p = [\"1 %\"]\nsessions.webrc.overlay.clients = [1, 2]",
        "`sessions.webrc.overlay`: a session of webrc does not read this key",
    ),
    (
        "p = [\"1 %\", \"2 %\", \"3 %\"]",
        "p = [\"1 %\"]\nsessions.webrc.sim.groups = [4]\nsessions.webrc.protocol = [\"webrc\", \"tcp\"]",
        "`sessions.webrc.sim`: a session of webrc or tcp does not read this key",
    ),
    (
        "set.rate = \"500 kbit/s\"",
        "set = [\"500 kbit/s\"]",
        "two.toml:29: `at.0.set`: invalid type: sequence, expected struct LinkProperties",
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
fn duplicate_names_are_found_among_thousands_of_sessions() {
    let sessions = "[[sessions]]\nname = \"s-{i mod 1500}\"\ncount = 1501\nprotocol = \"tcp\"\n\
                    sender = \"S\"\nreceivers = [\"r\"]\n[[at]]";
    let error = error_of("[[at]]", sessions);
    assert!(error.contains("two sessions called `s-0`"), "{error}");
}

#[test]
fn errors_quote_only_the_beginning_of_a_long_text() {
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

#[test]
fn mixed_up_files_cause_no_panic() {
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

#[test]
fn a_session_whose_protocol_varies_has_the_keys_of_each() {
    let swept = "p = [\"1 %\"]\nsessions.webrc.protocol = [\"webrc\", \"sim\", \"tcp\"]\n\
                 sessions.webrc.sim.groups = [4]";
    let text = SOUND.replacen("p = [\"1 %\", \"2 %\", \"3 %\"]", swept, 1);
    let scenario = parse(&text).unwrap();
    assert_eq!(scenario.cells(), 6);
    // A cell of its own is read in the same way.
    let form = Form {
        cell: Some(5),
        ..Form::default()
    };
    Scenario::parse_form("two.toml", &text, form).unwrap();
}

/// A chain of two daemons, with a benefit of the overlay and one of a group.
const CHAIN: &str = r#"
title = "Chain"
[run]
duration = "10 s"
[nodes]
names = ["A", "B"]
[[links]]
between = ["A", "B"]
rate = "2 Mbit/s"
[[overlays]]
name = "chain"
daemons = ["A", "B"]
controller = "cost-benefit"
benefit = "per-receiver"
[[sessions]]
name = "ab"
protocol = "overlay"
sender = "A"
receivers = ["B"]
overlay.benefit = { half-at = 20 }
"#;

#[test]
fn benefits_without_meaning_are_refused_with_their_line() {
    parse(CHAIN).unwrap();
    for (line, other, expected) in [
        (
            "\"per-receiver\"",
            "\"per-packet\"",
            "two.toml:14: `overlays.chain.benefit`: invalid value: string \"per-packet\", expected a benefit such as",
        ),
        (
            "half-at = 20",
            "half-at = 0",
            "two.toml:20: `sessions.ab.overlay.benefit`: the rate at which a message is worth a half must be 1e-6",
        ),
        (
            "half-at = 20",
            "layers = [{ messages = 1, dollars = 1 }, { messages = 1, dollars = 2 }]",
            "two.toml:20: `sessions.ab.overlay.benefit`: the layers of a benefit must be in the order",
        ),
        (
            "half-at = 20",
            "",
            "`sessions.ab.overlay.benefit`: a benefit has `half-at` or `layers`",
        ),
        (
            "\"cost-benefit\"\nbenefit = \"per-receiver\"",
            "\"tfrc\"",
            "`sessions.ab.overlay.benefit`: only the controller `cost-benefit` pays clients",
        ),
    ] {
        let text = CHAIN.replacen(line, other, 1);
        let error = parse(&text).unwrap_err().to_string();
        assert!(
            error.contains(expected),
            "{other}\n  gave {error}\n  not  {expected}"
        );
    }
}
