//! The keys of ACP do what `docs/scenarios.md` says: point to point, and through switches, by what is measured.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use manyflow_netsim::results::{Provenance, Results};
use manyflow_netsim::scenario::Scenario;

/// A peer, two switches and four servers, 10 Mbit/s and 10 ms a link: 40 ms there and back over one switch, 60 ms over two.
const NETWORK: &str = r#"title = "A peer and four servers"
[run]
duration = "40 s"
steady-from = "0 s"
[nodes]
names = ["P", "W", "V"]
groups = { S = 4 }
[[links]]
between = ["P", "W"]
rate = "10 Mbit/s"
delay = "10 ms"
queue = "100 packets"
xcp = {}
[[links]]
between = ["W", "S"]
rate = "10 Mbit/s"
delay = "10 ms"
queue = "100 packets"
xcp = {}
[[links]]
between = ["W", "V"]
rate = "10 Mbit/s"
delay = "10 ms"
queue = "100 packets"
xcp = {}
[[links]]
between = ["V", "S"]
rate = "10 Mbit/s"
delay = "10 ms"
queue = "100 packets"
xcp = {}
[[sessions]]
name = "any"
protocol = "acp"
sender = "P"
"#;

/// What is measured: observable, of what, and more keys.
type Measure<'a> = (&'a str, &'a str, &'a str);

/// The numbers of these measures, and with them the session's lines.
fn measured<const N: usize>(session: &str, measures: [Measure<'_>; N]) -> [f64; N] {
    let mut text = format!("{NETWORK}{session}\n");
    for (index, (what, of, more)) in measures.iter().enumerate() {
        text += &format!(
            "[[measure]]\nname = \"m{index}\"\nwhat = \"{what}\"\nof = \"{of}\"\n{more}\n"
        );
    }
    let scenario = Scenario::parse("acp.toml", &text, false);
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let jobs = scenario.jobs().unwrap();
    let outcomes = scenario.run(&jobs, 1, &mut |_, _| {});
    let results = Results::new(&scenario, &jobs, &outcomes, Provenance::default()).unwrap();
    assert!(results.failures().is_empty(), "{:?}", results.failures());
    let environment = &results.cells()[0].environment;
    std::array::from_fn(|index| environment[&format!("m{index}")].values[0])
}

fn one(session: &str, measure: Measure<'_>) -> f64 {
    measured(session, [measure])[0]
}

#[track_caller]
fn assert_between(found: f64, low: f64, high: f64) {
    assert!(
        (low..=high).contains(&found),
        "{found}, not {low} to {high}"
    );
}

const FRAMES: Measure<'_> = ("delivered-frames", "any", "");
const GOODPUT: Measure<'_> = ("goodput", "any", "from = \"10 s\"");
const ONE: &str = "receivers = [\"S-0\"]";

#[test]
fn a_direct_connection_fills_its_path_in_the_direction_that_sends() {
    // A frame of 1024 bytes takes 1080 on a link.
    let most = 10e6 * 1024.0 / 1080.0;
    let [there, back] = measured(ONE, [GOODPUT, ("goodput", "any/P", "")]);
    assert_between(there, 0.97 * most, most);
    assert_eq!(back, 0.0);
    let outbound = format!("{ONE}\nacp.direction = \"outbound\"");
    let [there, back] = measured(
        &outbound,
        [GOODPUT, ("goodput", "any/P", "from = \"10 s\"")],
    );
    assert_between(back, 0.97 * most, most);
    assert_eq!(there, 0.0);
    let both = format!("{ONE}\nacp.direction = \"both\"");
    let [there, back] = measured(&both, [GOODPUT, ("goodput", "any/P", "from = \"10 s\"")]);
    assert_between(there.min(back), 0.7 * most, most);
}

#[test]
fn reno_fills_the_path_too_and_meets_losses() {
    let reno = format!("{ONE}\nacp.control = \"reno\"");
    let measures = [GOODPUT, ("drops", "P-W", ""), ("loss-events", "any/P", "")];
    let [goodput, drops, losses] = measured(&reno, measures);
    assert_between(goodput, 8e6, 10e6);
    assert!(drops >= losses && losses >= 1.0, "{drops} {losses}");
}

#[test]
fn an_application_sends_so_much_at_such_a_pace() {
    let limited = |keys: &str| one(&format!("{ONE}\n{keys}"), FRAMES);
    assert_eq!(limited("acp.frames = 500"), 500.0);
    assert_between(
        limited("acp.frame-rate = \"100 packets/s\""),
        3990.0,
        4000.0,
    );
    let spans = "receivers = [{ node = \"S-0\", sends = [{ from = \"5 s\", to = \"10 s\" }, { from = \"30 s\" }] }]\n\
                 acp = { direction = \"outbound\", frame-rate = \"100 packets/s\" }";
    let [first, pause, last] =
        [("0 s", "11 s"), ("11 s", "30 s"), ("30 s", "40 s")].map(|(from, to)| {
            let window = format!("from = \"{from}\"\nto = \"{to}\"");
            one(spans, ("delivered-frames", "any/P", &window))
        });
    assert_eq!((first, pause), (500.0, 0.0));
    assert_between(last, 990.0, 1000.0);
}

#[test]
fn buffers_and_slow_readers_limit_the_rate() {
    let rate = |session: &str| one(session, GOODPUT);
    let own =
        "receivers = [{ node = \"S-0\", receive-buffer = \"10 KiB\" }]\nacp.flow = \"credit\"";
    for limited in [
        // Ten frames in 40 ms and what the links take.
        &format!("{ONE}\nacp.send-buffer = \"10 KiB\""),
        &format!("{ONE}\nacp = {{ flow = \"credit\", receive-buffer = \"10 KiB\" }}"),
        own,
    ] {
        assert_between(rate(limited), 1.8e6, 2.05e6);
    }
    let service = format!("{ONE}\nacp = {{ flow = \"credit\", service = \"2 ms\" }}");
    assert_between(rate(&service), 0.99 * 4.096e6, 4.096e6);
    let own = "receivers = [{ node = \"S-0\", service = \"4 ms\" }]\nacp = { flow = \"credit\", service = \"2 ms\" }";
    assert_between(rate(own), 0.99 * 2.048e6, 2.048e6);
    let square = "acp.square = { low = \"2 ms\", high = \"8 ms\", period = \"2 s\" }";
    let square = format!("{ONE}\nacp.flow = \"credit\"\n{square}");
    assert_between(rate(&square), 0.95 * 2.56e6, 2.6e6);
}

#[test]
fn who_stops_sends_no_more_and_who_dies_is_missed() {
    let stops = format!("{ONE}\nstop = \"10 s\"\nacp.frame-rate = \"100 packets/s\"");
    assert_eq!(one(&stops, FRAMES), 1000.0);
    let comes_again = "receivers = [{ node = \"S-0\", start = \"1 s\", stop = \"3 s\", every = \"20 s\" }]\n\
                       acp.frame-rate = \"100 packets/s\"";
    assert_between(one(comes_again, FRAMES), 398.0, 400.0);
    let dies = "receivers = [{ node = \"S-0\", crash = \"10 s\" }]\nacp.attempts = 3";
    let measures = [
        ("delivered-frames", "any", "from = \"10 s\""),
        ("failures", "any/P", ""),
    ];
    assert_eq!(measured(dies, measures), [0.0, 1.0]);
}
