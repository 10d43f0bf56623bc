//! Tests that the keys of sessions and links have the effects in `docs/scenarios.md`. Each key is
//! measured in a scenario of two hosts.

use manyflow_results::{Provenance, Results};
use manyflow_scenario::Scenario;

/// Returns a measure over 100 s between hosts S and R, whose round-trip time is 100 ms.
fn measured(link: &str, session: &str, measure: &str) -> f64 {
    let text = format!(
        r#"title = "Two hosts"
[run]
duration = "100 s"
steady-from = "0 s"
[nodes]
names = ["S", "R"]
[[links]]
name = "link"
between = ["S", "R"]
delay = "50 ms"
{link}
[[sessions]]
name = "flow"
sender = "S"
receivers = ["R"]
{session}
[[measure]]
name = "it"
{measure}
"#
    );
    let scenario = Scenario::parse("two.toml", &text, false);
    let scenario = scenario.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let jobs = scenario.jobs().unwrap();
    let outcomes = scenario.run(&jobs, 1, &mut |_| {});
    let results = Results::new(
        scenario.outline().unwrap(),
        &jobs,
        &outcomes,
        Provenance::default(),
    );
    results.cells()[0].environment["it"].values[0]
}

const RATE: &str = "what = \"received-rate\"\nof = \"flow\"";
const PACKETS: &str = "what = \"received-packets\"\nof = \"flow\"";
const DROPS: &str = "what = \"drops\"\nof = \"S-R\"";
const MARKS: &str = "what = \"marks\"\nof = \"S-R\"";
const ACKS: &str = "what = \"delivered-packets\"\nof = \"R-S\"";
const TIMEOUTS: &str = "what = \"timeouts\"\nof = \"flow\"";
const SILENCE: &str = "what = \"received-rate\"\nof = \"flow\"\nstatistic = \"longest-silence\"";

/// A source of 1 Mbit/s: 125 packets/s.
const CBR: &str = "protocol = \"cbr\"\ncbr.rate = \"1 Mbit/s\"";
const TCP: &str = "protocol = \"tcp\"";

/// A cut of both directions, and changes of one direction.
const CUT: &str = r#"
[[at]]
time = "50 s"
link = "link"
cut = true
[[at]]
time = "57 s"
link = "link"
cut = false"#;
const FASTER: &str = "[[at]]\ntime = \"50 s\"\nlink = \"S-R\"\nset.rate = \"2 Mbit/s\"";
const BROKEN: &str = "[[at]]\ntime = \"50 s\"\nlink = \"S-R\"\nset.loss = 1";

/// The lines of a link, the lines of a session, a measure, and its lower and upper bound.
type Case<'a> = (&'a str, &'a str, &'a str, f64, f64);

fn check(session: &str, cases: &[Case<'_>]) {
    let mut wrong = Vec::new();
    for (link, own, measure, low, high) in cases {
        let value = measured(link, &format!("{session}\n{own}"), measure);
        if !(*low..=*high).contains(&value) {
            wrong.push(format!(
                "{link}\n{own}\n{measure}: {value}, not {low} to {high}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn sources_send_at_their_rate_and_in_their_pattern() {
    let on_off = "cbr.pattern = \"on-off\"\ncbr.on = \"500 ms\"\ncbr.off = \"1.5 s\"";
    let random = "cbr.pattern = \"on-off\"\ncbr.on = \"50 ms\"\ncbr.off = \"150 ms\"\ncbr.random-periods = true";
    let limited = "start = \"20 s\"\nstop = \"50 s\"";
    check(
        CBR,
        &[
            ("", "", RATE, 0.999e6, 1e6),
            ("", "cbr.packet = \"125 B\"", PACKETS, 99_900.0, 100_000.0),
            ("", "cbr.pattern = \"poisson\"", RATE, 0.97e6, 1.03e6),
            ("", on_off, RATE, 0.247e6, 0.253e6),
            ("", random, RATE, 0.22e6, 0.28e6),
            ("", limited, PACKETS, 3750.0, 3750.0),
        ],
    );
}

#[test]
fn a_level_is_weighted_by_time_and_holds_until_it_changes_or_ends() {
    let limited = "tcp.maximum-window = 10";
    let mut more = vec![
        // The window reaches ten within a second and is not reported again.
        (
            "",
            limited,
            "what = \"cwnd\"\nof = \"flow\"\nfrom = \"50 s\"",
            10.0,
            10.0,
        ),
        ("", limited, "what = \"cwnd\"\nof = \"flow\"", 9.8, 10.0),
        (
            "",
            limited,
            "what = \"cwnd\"\nof = \"flow\"\nstatistic = \"median\"",
            10.0,
            10.0,
        ),
    ];
    // A level has no value after its end. Before, values are weighted by time.
    let stopped = "tcp.maximum-window = 10\nstop = \"20 s\"";
    more.push((
        "",
        stopped,
        "what = \"cwnd\"\nof = \"flow\"\nfrom = \"10 s\"",
        10.0,
        10.0,
    ));
    check(TCP, &more);
    let gone = measured(
        "",
        &format!("{TCP}\n{stopped}"),
        "what = \"cwnd\"\nof = \"flow\"\nfrom = \"50 s\"",
    );
    assert!(gone.is_nan(), "{gone}");
}

#[test]
fn the_keys_of_links_have_their_effects() {
    let bursts = "bursts = { to-bad = 0.01, to-good = 0.09 }";
    let [by_packets, by_bytes, unlimited] = ["10 packets", "1 MB", "100 MB"]
        .map(|queue| format!("rate = \"500 kbit/s\"\nqueue = \"{queue}\""));
    let red = format!("{unlimited}\nred = {{ minimum = 5, maximum = 15 }}");
    check(
        CBR,
        &[
            ("loss = \"10 %\"", "", PACKETS, 11_100.0, 11_400.0),
            (bursts, "", PACKETS, 10_900.0, 11_600.0),
            ("duplication = \"10 %\"", "", PACKETS, 13_600.0, 13_900.0),
            // Half of the packets fit, plus those that wait at the end: ten, a thousand, or all.
            (&by_packets, "", DROPS, 6235.0, 6245.0),
            (&by_bytes, "", DROPS, 5240.0, 5255.0),
            (&unlimited, "", DROPS, 0.0, 0.0),
            (&red, "", DROPS, 6200.0, 6300.0),
            (&red, "", MARKS, 0.0, 0.0),
            (&unlimited, FASTER, RATE, 0.999e6, 1e6),
            ("", BROKEN, PACKETS, 6240.0, 6250.0),
            ("", CUT, SILENCE, 6.0, 8.0),
        ],
    );
}

#[test]
fn the_keys_of_queues_have_their_effects() {
    const QUEUE: &str = "what = \"mean-queue\"\nof = \"S-R\"\nfrom = \"50 s\"";
    // A packet of 1000 bytes takes 16 ms, and half of the packets have no room.
    let of = |aqm: &str| format!("rate = \"500 kbit/s\"\n{aqm}");
    let cbr = |aqm: &str| measured(&of(aqm), CBR, QUEUE);
    let near = |value: f64, expected: f64, what: &str| {
        let is_near = (value - expected).abs() <= 0.3 * expected;
        assert!(is_near, "{what}: {value} instead of {expected}");
    };
    near(cbr("pie.target = \"160 ms\""), 10.0, "pie");
    // DualPI2 drops packets when they leave: twice as many wait for as long.
    near(cbr("dualpi2.target = \"160 ms\""), 20.0, "dualpi2");
    // In an interval of 100 ms, the queue grows by six packets before the first drop.
    let short = cbr("codel = {}");
    assert!(short < 10.0, "codel: {short}");
    let long = cbr("codel.target = \"320 ms\"");
    assert!(long > 15.0, "codel.target: {long}");
    for fair in ["fq-codel.flows = 1", "cake.isolation = \"flows\""] {
        assert_eq!(cbr(fair), short, "{fair}: a flow alone has CoDel");
    }
    let ecn = "protocol = \"tcp\"\ntcp.ecn = true";
    for aqm in ["codel", "fq-codel", "cake", "pie", "dualpi2"] {
        let of = |table: &str| format!("rate = \"2 Mbit/s\"\n{aqm} = {table}");
        let marking = of("{}");
        assert!(measured(&marking, ecn, MARKS) > 20.0, "{aqm}");
        assert_eq!(measured(&marking, TCP, MARKS), 0.0, "{aqm}");
        assert!(measured(&marking, TCP, DROPS) > 20.0, "{aqm}");
        if aqm != "dualpi2" {
            let dropping = of("{ ecn = false }");
            assert_eq!(measured(&dropping, ecn, MARKS), 0.0, "{aqm}");
        }
    }
}

#[test]
fn the_keys_of_tcp_have_their_effects() {
    let window = |more: &str| format!("tcp.maximum-window = 10\n{more}");
    let transfer = |more: &str| format!("tcp.transfer = \"1 MB\"\n{more}");
    let red = |more: &str| {
        format!(
            "rate = \"2 Mbit/s\"\nqueue = \"1000 packets\"\n\
             red = {{ minimum = 5, maximum = 100{more} }}"
        )
    };
    let (marking, dropping) = (&red(""), &red(", ecn = false"));
    let ecn = "tcp.ecn = true";
    check(
        TCP,
        &[
            // Ten segments of 1040 bytes in each round-trip time.
            ("", &window(""), RATE, 0.82e6, 0.832e6),
            (
                "",
                &window("start = \"20 s\"\nstop = \"50 s\""),
                RATE,
                0.247e6,
                0.251e6,
            ),
            ("", &transfer(""), PACKETS, 1000.0, 1000.0),
            (
                "",
                &transfer("tcp.segment = \"500 B\""),
                PACKETS,
                2000.0,
                2000.0,
            ),
            ("", &transfer(""), ACKS, 1000.0, 1000.0),
            ("", &transfer("tcp.delayed-acks = true"), ACKS, 500.0, 510.0),
            (marking, ecn, DROPS, 0.0, 0.0),
            (marking, ecn, MARKS, 10.0, 1000.0),
            (marking, "", DROPS, 10.0, 1000.0),
            (marking, "", MARKS, 0.0, 0.0),
            (dropping, ecn, DROPS, 10.0, 1000.0),
            (dropping, ecn, MARKS, 0.0, 0.0),
            // The time-out doubles. From 0.2 s there are five time-outs in 7 s, from 4 s one. The
            // next retransmission finds the path restored.
            ("", &window(CUT), TIMEOUTS, 6.0, 6.0),
            (
                "",
                &window(&format!("tcp.minimum-rto = \"4 s\"\n{CUT}")),
                TIMEOUTS,
                2.0,
                2.0,
            ),
        ],
    );
}
