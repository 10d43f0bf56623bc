//! Tests of the observables of lost packets, retransmissions and queues, against the counters of
//! links and numbers that were computed by hand.

use manyflow_results::{Provenance, Results};
use manyflow_scenario::Scenario;

/// Returns a scenario of 100 s with hosts S and R, a link between them, and these sessions.
/// Measures are pairs of an observable and its subject, and are taken over the whole run.
fn scenario(link: &str, sessions: &str, measures: &[(&str, &str)]) -> String {
    let mut text = format!(
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
{sessions}
"#
    );
    for (index, (what, of)) in measures.iter().enumerate() {
        text += &format!("[[measure]]\nname = \"m{index}\"\nwhat = \"{what}\"\nof = \"{of}\"\n");
    }
    text
}

/// Returns a session from S to R.
fn session(name: &str, keys: &str) -> String {
    format!("[[sessions]]\nname = \"{name}\"\nsender = \"S\"\nreceivers = [\"R\"]\n{keys}\n")
}

fn measured<const N: usize>(link: &str, sessions: &str, measures: [(&str, &str); N]) -> [f64; N] {
    let text = scenario(link, sessions, &measures);
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
    assert!(results.failures().is_empty(), "{:?}", results.failures());
    let environment = &results.cells()[0].environment;
    std::array::from_fn(|index| environment[&format!("m{index}")].values[0])
}

const NARROW: &str = "rate = \"1 Mbit/s\"\nqueue = \"10 packets\"";
/// A source of 125 packets/s, and one of 250 packets/s.
const CBR: &str = "protocol = \"cbr\"\ncbr.rate = \"1 Mbit/s\"";
const FAST: &str = "protocol = \"cbr\"\ncbr.rate = \"2 Mbit/s\"";

#[track_caller]
fn assert_close(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
}

#[test]
fn the_drops_of_a_receiver_are_those_of_the_links_queue() {
    let measures = [
        ("drops", "flow"),
        ("drops", "S-R"),
        ("received-packets", "flow/R"),
        ("loss", "flow"),
    ];
    let [own, links, received, loss] = measured(NARROW, &session("flow", FAST), measures);
    assert_eq!(own, links);
    // The link carries half of the packets.
    assert!((12_400.0..=12_600.0).contains(&own), "{own}");
    assert_close(loss, own / (own + received));
}

#[test]
fn flows_that_share_a_queue_have_their_own_drops() {
    let poisson = "cbr.pattern = \"poisson\"";
    let both = session("one", &format!("{FAST}\n{poisson}"))
        + &session("two", &format!("start = \"50 s\"\n{CBR}\n{poisson}"));
    let measures = [
        ("drops", "one"),
        ("drops", "two"),
        ("drops", "S-R"),
        ("loss", "two"),
    ];
    let [one, two, all, loss] = measured(NARROW, &both, measures);
    assert_eq!(one + two, all);
    // While there are two flows, the link carries a third of the packets.
    assert!((0.6..0.72).contains(&loss), "{loss}");
    assert!((0.6..0.72).contains(&(two / 6250.0)), "{two}");
}

#[test]
fn losses_on_the_wire_and_by_a_cut_are_no_drops() {
    let measures = [
        ("drops", "flow"),
        ("losses", "S-R"),
        ("received-packets", "flow"),
        ("loss", "flow"),
    ];
    let [drops, lost, received, loss] =
        measured("loss = \"10 %\"", &session("flow", CBR), measures);
    assert_eq!(drops, 0.0);
    assert!((1100.0..1400.0).contains(&lost), "{lost}");
    assert_close(loss, lost / (lost + received));
    let cut = "[[at]]\ntime = \"20.001 s\"\nlink = \"link\"\ncut = true\n\
               [[at]]\ntime = \"28.001 s\"\nlink = \"link\"\ncut = false";
    let [drops, lost, received, loss] = measured("", &(session("flow", CBR) + cut), measures);
    // The link refuses 8 s of packets, after it has lost the 50 ms of packets that it carried.
    assert_eq!(drops, 0.0);
    assert!((1006.0..=1007.0).contains(&lost), "{lost}");
    assert_close(loss, lost / (lost + received));
}

#[test]
fn a_receiver_of_sim_reports_the_gaps_in_its_groups() {
    let sim = session(
        "flow",
        "protocol = \"sim\"\nsim.groups = 1\nsim.maximum-rate = \"1 Mbit/s\"",
    );
    let measures = [
        ("loss", "flow"),
        ("losses", "S-R"),
        ("received-packets", "flow"),
    ];
    let [loss, lost, received] = measured("loss = \"10 %\"", &sim, measures);
    assert!((0.09..0.11).contains(&loss), "{loss}");
    // The wire also loses feedback, and packets before the first that arrives.
    assert!(lost > 500.0, "{lost}");
    assert!(loss <= lost / (lost + received), "{loss}");
    let [none] = measured("", &sim, [("loss", "flow")]);
    assert_eq!(none, 0.0);
}

#[test]
fn an_interval_without_packets_has_no_loss_and_no_weight() {
    let source = "start = \"10 s\"\nstop = \"20 s\"";
    let short = session("flow", &format!("{source}\n{CBR}"));
    let [loss] = measured("loss = 1", &short, [("loss", "flow")]);
    assert_eq!(loss, 1.0);
    let none = session("flow", &format!("start = \"200 s\"\n{CBR}"));
    let [loss] = measured("", &none, [("loss", "flow")]);
    assert!(loss.is_nan());
}

#[test]
fn a_finished_tcp_transfer_has_sent_each_dropped_segment_again() {
    let transfer = session("flow", "protocol = \"tcp\"\ntcp.transfer = \"5 MB\"");
    let measures = [
        ("retransmissions", "flow"),
        ("drops", "flow"),
        ("received-packets", "flow"),
        ("loss", "flow"),
    ];
    let [again, drops, received, loss] = measured(NARROW, &transfer, measures);
    assert!(drops > 0.0);
    // 5000 segments, and the retransmissions, arrive or are dropped.
    assert_eq!(5000.0 + again, received + drops);
    assert_close(loss, drops / (received + drops));
    assert_eq!(measured("", &transfer, measures)[..2], [0.0, 0.0]);
}

#[test]
fn an_acp_sender_reports_its_retransmissions() {
    let reno = "protocol = \"acp\"\nacp = { control = \"reno\", frames = 5000 }";
    let measures = [
        ("retransmissions", "flow/S"),
        ("drops", "flow"),
        ("retransmissions", "flow"),
        ("delivered-frames", "flow"),
    ];
    let [again, drops, receivers, delivered] = measured(NARROW, &session("flow", reno), measures);
    assert_eq!(delivered, 5000.0);
    assert!(drops > 0.0 && again >= drops, "{again} {drops}");
    assert_eq!(receivers, 0.0);
}

#[test]
fn the_mean_queue_is_the_waiting_time_of_packets_over_time() {
    // In each period of 4 s, packet n of 250 arrives after 4 n ms and is sent after 8 n ms: all
    // wait for 124.5 s together.
    let burst = format!("{FAST}\ncbr.pattern = \"on-off\"\ncbr.on = \"1 s\"\ncbr.off = \"3 s\"");
    let flow = session("flow", &burst);
    let [mean] = measured("rate = \"1 Mbit/s\"", &flow, [("mean-queue", "S-R")]);
    assert_close(mean, 124.5 / 4.0);
    let [idle, sampled] = measured("", &flow, [("mean-queue", "S-R"), ("queue", "S-R")]);
    assert_eq!((idle, sampled), (0.0, 0.0));
}

#[test]
fn observables_of_losses_are_refused_where_nothing_reports_them() {
    let webrc = session(
        "flow",
        "protocol = \"webrc\"\nwebrc.session-rate = \"1 Mbit/s\"",
    );
    for (sessions, what, of, expected) in [
        (
            &webrc,
            "drops",
            "flow",
            "WEBRC (`flow`) does not report `drops`",
        ),
        (
            &session("flow", CBR),
            "retransmissions",
            "flow",
            "CBR (`flow`) does not report `retransmissions`",
        ),
        (
            &session("flow", CBR),
            "drops",
            "flaw",
            "there is no link `flaw`",
        ),
        (
            &session("flow", CBR),
            "mean-queue",
            "flow",
            "there is no link `flow`",
        ),
    ] {
        let text = scenario("", sessions, &[(what, of)]);
        let message = Scenario::parse("two.toml", &text, false)
            .unwrap_err()
            .to_string();
        assert!(message.contains(expected), "{message}");
    }
}
