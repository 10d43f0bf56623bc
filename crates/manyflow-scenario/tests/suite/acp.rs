//! Tests that the keys of ACP have the effects in `docs/scenarios.md`, point to point and through
//! switches.

use manyflow_results::{Provenance, Results};
use manyflow_scenario::Scenario;

/// A peer, two switches and four servers. Links have 10 Mbit/s and 10 ms. The round-trip time is 40
/// ms over one switch and 60 ms over two.
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

/// An observable, its subject, and more keys of a measure.
type Measure<'a> = (&'a str, &'a str, &'a str);

/// Returns these measures of a session.
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
    let outcomes = scenario.run(&jobs, 1, &mut |_| {});
    let results = Results::new(
        scenario.outline().unwrap(),
        &jobs,
        &outcomes,
        Provenance::default(),
    );
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
    // A frame of 1024 bytes takes 1080 bytes on a link.
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
    let both = format!("{ONE}\nacp.direction = \"both\"\nacp.frames = 1000");
    assert_eq!(
        measured(&both, [FRAMES, ("delivered-frames", "any/P", "")]),
        [1000.0; 2]
    );
}

#[test]
fn reno_fills_the_path_and_causes_losses() {
    let reno = format!("{ONE}\nacp.control = \"reno\"");
    let measures = [GOODPUT, ("drops", "P-W", ""), ("loss-events", "any/P", "")];
    let [goodput, drops, losses] = measured(&reno, measures);
    assert_between(goodput, 8e6, 10e6);
    assert!(drops >= losses && losses >= 1.0, "{drops} {losses}");
}

#[test]
fn applications_limit_their_frames_and_their_rate() {
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
        // Ten frames in 40 ms, plus the transmission times.
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
fn a_stopped_sender_is_silent_and_a_crashed_receiver_is_missed() {
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

/// Frames without limit, and a window that gives every member some in each round-trip time.
const WIDE: &str = "acp.frames = 4000\nacp.initial-window = 20";

/// Returns a session through the switch at W with the four servers, and more keys of the switch.
fn ensemble(session: &str, switch: &str) -> String {
    format!(
        "receivers = [\"S\"]\n{session}\n\
         [[sessions.acp.switches]]\nnode = \"W\"\nmembers = [\"S\"]\n{switch}"
    )
}

/// Returns the number of frames that each server gets of 4000.
fn shares(session: &str, switch: &str) -> [f64; 4] {
    let limited = format!("acp.frames = 4000\n{session}");
    let servers = ["any/S-0", "any/S-1", "any/S-2", "any/S-3"];
    let measures = servers.map(|of| ("delivered-frames", of, ""));
    measured(&ensemble(&limited, switch), measures)
}

#[test]
fn policies_distribute_the_frames() {
    assert_eq!(shares("", "policy = \"round-robin\""), [1000.0; 4]);
    assert_eq!(shares("", ""), shares("", "policy = \"rate-aware\""));
    let weighted = "policy = \"weighted\"\nweights = { S-3 = 1 }";
    assert_eq!(shares("", weighted), [0.0, 0.0, 0.0, 4000.0]);
    let weighted = "policy = \"weighted\"\nweights = { S-0 = 2, S-1 = 1, S-2 = 1 }";
    assert_eq!(shares("", weighted), [2000.0, 1000.0, 1000.0, 0.0]);
    let rules = "policy = \"rule\"\n\
                 rules = [{ from = 0, to = 999, member = \"S-2\" }, { from = 1000, to = 3999, member = \"S-1\" }]";
    assert_eq!(shares("", rules), [0.0, 3000.0, 1000.0, 0.0]);
    let by_hash = shares("acp.keys = 4", "policy = \"hash\"");
    assert_eq!(by_hash.iter().sum::<f64>(), 4000.0);
    assert!(
        by_hash.iter().any(|&share| share == 0.0 || share > 1500.0),
        "{by_hash:?}"
    );
}

#[test]
fn the_least_outstanding_policy_prefers_near_servers() {
    let share = |policy: &str| {
        let session = ensemble(WIDE, &format!("policy = \"{policy}\""));
        let far = "[[links]]\nbetween = [\"W\", \"S-3\"]\ndelay = \"100 ms\"";
        one(
            &format!("{session}\n{far}"),
            ("delivered-frames", "any/S-3", ""),
        ) / 4000.0
    };
    assert_eq!(share("round-robin"), 0.25);
    assert_between(share("least-outstanding"), 0.01, 0.2);
}

#[test]
fn outbound_frames_of_all_servers_arrive_at_the_peer_once() {
    let session = ensemble("acp.direction = \"outbound\"\nacp.frames = 1000", "");
    let measures = [("delivered-frames", "any/P", ""), ("failures", "any", "")];
    assert_eq!(measured(&session, measures), [4000.0, 0.0]);
}

#[test]
fn members_join_and_leave() {
    let receivers = "receivers = [\"S-0\", { node = \"S-1\", stop = \"10 s\" }, { node = \"S-2\", start = \"20 s\" }]\n\
                     acp.frame-rate = \"100 packets/s\"\n\
                     [[sessions.acp.switches]]\nnode = \"W\"\nmembers = [\"S-0\", \"S-1\", \"S-2\"]\npolicy = \"round-robin\"";
    let from =
        |of: &'static str, window: &'static str| one(receivers, ("delivered-frames", of, window));
    let (first, second, third) = (
        "to = \"9 s\"",
        "from = \"11 s\"\nto = \"19 s\"",
        "from = \"21 s\"\nto = \"40 s\"",
    );
    assert_between(from("any/S-1", first), 445.0, 455.0);
    assert_between(from("any/S-0", second), 795.0, 805.0);
    assert_eq!(from("any/S-1", second), 0.0);
    assert_between(from("any/S-2", third), 945.0, 955.0);
    let [all] = measured(
        receivers,
        [("delivered-frames", "any", "combine = \"sum\"")],
    );
    assert_between(all, 3990.0, 4000.0);
}

#[test]
fn the_frames_of_a_failed_member_go_to_others() {
    let session = "receivers = [\"S-0\", { node = \"S-1\", crash = \"10 s\" }]\n\
                   acp.frames = 3000\nacp.frame-rate = \"100 packets/s\"\n\
                   [[sessions.acp.switches]]\nnode = \"W\"\nmembers = [\"S-0\", \"S-1\"]\nfailure-timeout = \"1 s\"";
    let measures = [
        ("delivered-frames", "any", "combine = \"sum\""),
        ("member-failures", "any", "to = \"12 s\""),
        ("failures", "any/P", ""),
    ];
    let [delivered, failed, connections] = measured(session, measures);
    assert_eq!((failed, connections), (1.0, 0.0));
    // Frames that the failed member did not acknowledge are delivered again.
    assert_between(delivered, 3000.0, 3010.0);
}

#[test]
fn a_cascade_of_switches_delivers_all_frames() {
    let switches = "[[sessions.acp.switches]]\nnode = \"W\"\nmembers = [\"S-0\", \"V\"]\npolicy = \"round-robin\"\n\
                    [[sessions.acp.switches]]\nnode = \"V\"\nmembers = [\"S-1\", \"S-2\", \"S-3\"]\npolicy = \"round-robin\"";
    let cascade = format!("receivers = [\"S\"]\n{WIDE}\n{switches}");
    let servers = ["any/S-0", "any/S-1", "any/S-2", "any/S-3"];
    let [first, others @ ..] = measured(&cascade, servers.map(|of| ("delivered-frames", of, "")));
    assert_eq!(first, 2000.0);
    let bounds = 666.0..=667.0;
    assert!(
        others.iter().all(|share| bounds.contains(share)),
        "{others:?}"
    );
}

/// Two initiators at S-2 and S-3, whose switch is at P, and the members S-0 and S-1 of the switch
/// at W.
const CLUSTERS: &str = r#"
receivers = ["S-0", "S-1"]
acp.initiators = ["S-2", "S-3"]
acp.switches = [{ node = "W", members = ["S-0", "S-1"], policy = "hash" }]
[[links]]
between = ["P", "S-2"]
rate = "10 Mbit/s"
delay = "1 ms"
queue = "100 packets"
xcp = {}
[[links]]
between = ["P", "S-3"]
rate = "10 Mbit/s"
delay = "1 ms"
queue = "100 packets"
xcp = {}
"#;

#[test]
fn initiators_share_one_connection_over_two_switches() {
    let more = "from = \"10 s\"\ncombine = \"sum\"";
    let [goodput, failures, pairs, least] = measured(
        CLUSTERS,
        [
            ("goodput", "any", more),
            ("failures", "any", ""),
            ("goodput", "any/S/S", more),
            ("goodput", "any/S/S", "from = \"10 s\"\ncombine = \"min\""),
        ],
    );
    // The transit link from P to W has 10 Mbit/s; a frame of 1024 bytes takes 1080 bytes on it.
    assert_between(goodput, 0.9 * 10e6 * 1024.0 / 1080.0, 10e6);
    assert_eq!(failures, 0.0);
    assert!((pairs - goodput).abs() < 1.0, "{pairs} of {goodput} bit/s");
    assert_between(least, 0.8 * goodput / 4.0, goodput / 4.0);
}

/// The keys cannot be divided by three without a rest.
#[test]
fn a_receiver_counts_the_frames_of_each_initiator() {
    let few = CLUSTERS.replace("\"S-3\"]\nacp", "\"S-3\", \"S-1\"]\nacp.frames = 300\nacp");
    let names = [
        "any/S-2/S",
        "any/S-3/S",
        "any/S-1/S",
        "any/S/S-0",
        "any/S/S-1",
    ];
    let sum = "combine = \"sum\"";
    let [first, second, third, at_first, at_second] =
        measured(&few, names.map(|of| ("delivered-frames", of, sum)));
    assert_eq!([first, second, third], [300.0; 3]);
    assert_eq!(at_first + at_second, 900.0);
    assert_between(at_first, 375.0, 525.0);
}

#[test]
fn pairs_and_initiators_that_cannot_be_are_refused() {
    let refused = |session: &str, of: &str, what: &str| {
        let text = format!(
            "{NETWORK}{session}\n[[measure]]\nname = \"m\"\nwhat = \"{what}\"\nof = \"{of}\"\n"
        );
        let scenario = Scenario::parse("acp.toml", &text, false);
        scenario.expect_err("it is refused").to_string()
    };
    let error = refused(CLUSTERS, "any/S-0/S-1", "goodput");
    assert!(error.contains("no initiator at `S-0`"), "{error}");
    let error = refused(CLUSTERS, "any/S-2/S-1", "cwnd");
    assert!(error.contains("does not report `cwnd`"), "{error}");
    let keys = CLUSTERS.replace("acp.initiators", "acp.keys = 9\nacp.initiators");
    let error = refused(&keys, "any/S-2/S-1", "goodput");
    assert!(error.contains("the same keys"), "{error}");
    let outbound = CLUSTERS.replace(
        "acp.initiators",
        "acp.direction = \"outbound\"\nacp.initiators",
    );
    let error = refused(&outbound, "any/S-2/S-1", "goodput");
    assert!(error.contains("receivers send"), "{error}");
    let twice = CLUSTERS.replace("\"S-2\", \"S-3\"]", "\"S-2\", \"S-2\"]");
    let error = refused(&twice, "any", "goodput");
    assert!(error.contains("`S-2` appears twice"), "{error}");
    let alone = "receivers = [\"S-0\"]\nacp.initiators = [\"S-2\"]";
    let error = refused(alone, "any", "goodput");
    assert!(error.contains("initiators need `switches`"), "{error}");
}
