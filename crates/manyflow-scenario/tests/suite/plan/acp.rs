//! Tests that read and check sessions of ACP.

use super::{Refusal, assert_refused, hosts, placed, plan};
use manyflow_scenario::*;

/// Two switches in a row, with one member and two members.
const CASCADE: &str = r#"title = "A cascade"
[run]
duration = "10 s"
[nodes]
names = ["P", "V", "W", "far"]
groups = { S = 3 }
[[links]]
chain = ["P", "V", "W"]
[[links]]
between = ["V", "S"]
[[links]]
between = ["W", "S"]
[[sessions]]
name = "any"
protocol = "acp"
sender = "P"
receivers = ["S-0", { node = "S-1", start = "2 s", stop = "3 s", every = "5 s" }, "S-2"]
acp.control = "xcp"
[[sessions.acp.switches]]
node = "V"
members = ["S-0", "W"]
policy = "weighted"
weights = { W = 2, S-0 = 1 }
[[sessions.acp.switches]]
node = "W"
members = ["S-1", "S-2"]
policy = "rule"
rules = [{ from = 0, to = 9, member = "S-2" }]
[[measure]]
name = "goodput"
what = "goodput"
of = "any/P"
[[measure]]
name = "failed"
what = "member-failures"
of = "any"
"#;

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("cascade.toml", text, false)
}

/// Gives the links a delay. Without one, time would stand still in a run.
fn paced(text: &str) -> String {
    text.replace("[[links]]\n", "[[links]]\ndelay = \"1 ms\"\n")
}

#[test]
fn each_membership_interval_the_sender_and_each_switch_have_an_endpoint() {
    let plan = plan(&parse(&paced(CASCADE)).unwrap());
    assert_eq!(
        placed(&plan, hosts(&plan, 0)),
        [(0, "S-0"), (1, "S-1"), (2, "S-1"), (3, "S-2")]
    );
    assert_eq!(
        placed(&plan, &plan.sessions.0[0].staff),
        [(4, "P"), (5, "V"), (6, "W")]
    );
    assert_eq!(plan.endpoints, 7);
}

#[test]
fn without_switches_the_sender_has_an_end_for_each_membership_interval() {
    let (head, rest) = CASCADE.split_once("[[sessions.acp.switches]]").unwrap();
    let (_, measures) = rest.split_once("[[measure]]").unwrap();
    let plan = plan(&parse(&paced(&format!("{head}[[measure]]{measures}"))).unwrap());
    assert_eq!(hosts(&plan, 0).len(), 4);
    assert_eq!(plan.sessions.0[0].staff.len(), 4);
    assert_eq!(plan.endpoints, 8);
}

const ERRORS: &[Refusal] = &[
    (
        "acp.control = \"xcp\"",
        "acp.control = \"reno\"\nacp.flow = \"soft\"",
        "cascade.toml:19: `sessions.any.acp.flow`: soft flow control needs XCP's feedback: with `reno` take `credit`",
    ),
    (
        "acp.control = \"xcp\"",
        "acp.control = \"vegas\"",
        "cascade.toml:18: `sessions.any.acp.control`: there is no choice `vegas`; known are `xcp`, `reno`",
    ),
    (
        "acp.control = \"xcp\"",
        "acp.frame = \"70 kB\"",
        "`sessions.any.acp`: the longest frame must be 1 to 65,000 bytes",
    ),
    (
        "acp.control = \"xcp\"",
        "acp.frame-rate = \"0 packets/s\"",
        "cascade.toml:18: `sessions.any.acp.frame-rate`: a frame rate has to be above 0",
    ),
    (
        "acp.control = \"xcp\"",
        "acp.service = \"1 ms\"\nacp.square = { low = \"1 ms\", high = \"2 ms\", period = \"1 s\" }",
        "`sessions.any.acp`: give either `service` or `square`, not both",
    ),
    (
        "acp.control = \"xcp\"",
        "acp.control = \"reno\"\nacp.lie = \"tenfold-rtt\"",
        "`sessions.any.acp`: a lie must be told to XCP's routers, by a factor above 0",
    ),
    (
        "node = \"S-1\", ",
        "node = \"S-1\", receive-buffer = \"100 B\", ",
        "`sessions.any.acp`: the receive buffer must be at least one frame",
    ),
    (
        "node = \"S-1\", ",
        "node = \"S-1\", sends = [{ from = \"2 s\" }, { from = \"3 s\" }], ",
        "`sessions.any.acp`: the spans in `sends` have to be in order of time",
    ),
    (
        "node = \"V\"",
        "node = \"X\"",
        "cascade.toml:20: `sessions.any.acp.switches.0.node`: there is no node `X`",
    ),
    (
        "node = \"V\"",
        "node = \"S\"",
        "cascade.toml:20: `sessions.any.acp.switches.0.node`: `S` is a group: name a single node",
    ),
    (
        "node = \"V\"",
        "node = \"W\"",
        "cascade.toml:25: `sessions.any.acp.switches.1.node`: the session has another switch at this node",
    ),
    (
        "node = \"V\"",
        "node = \"far\"",
        "`sessions.any.acp`: no links lead from `P` to the switch at `far` and back",
    ),
    (
        "members = [\"S-0\", \"W\"]",
        "members = [\"S-0\", \"P\"]",
        "cascade.toml:21: `sessions.any.acp.switches.0.members`: at `P` there is no receiver and no later switch",
    ),
    (
        "members = [\"S-0\", \"W\"]",
        "members = [\"S-0\", \"S-0\"]",
        "cascade.toml:21: `sessions.any.acp.switches.0.members`: `S-0` appears twice",
    ),
    (
        "members = [\"S-1\", \"S-2\"]",
        "members = [\"S\"]",
        "cascade.toml:26: `sessions.any.acp.switches.1.members`: one of them is already a member of another switch",
    ),
    (
        "members = [\"S-1\", \"S-2\"]",
        "members = [\"S-2\"]",
        "`sessions.any.acp.switches`: the endpoint at `S-1` is not a member of any switch",
    ),
    (
        "members = [\"S-1\", \"S-2\"]",
        "members = []",
        "cascade.toml:26: `sessions.any.acp.switches.1.members`: a switch needs at least one member",
    ),
    (
        "weights = { W = 2, S-0 = 1 }",
        "weights = { S-2 = 1 }",
        "cascade.toml:23: `sessions.any.acp.switches.0.weights.S-2`: there is no member `S-2`; did you mean `S-0`?",
    ),
    (
        "weights = { W = 2, S-0 = 1 }",
        "weights = { W = -2 }",
        "cascade.toml:23: `sessions.any.acp.switches.0.weights`: weights must not be negative",
    ),
    (
        "weights = { W = 2, S-0 = 1 }",
        "",
        "cascade.toml:22: `sessions.any.acp.switches.0.policy`: this policy needs `weights`",
    ),
    (
        "to = 9, member = \"S-2\"",
        "to = 9, member = \"S-0\"",
        "cascade.toml:28: `sessions.any.acp.switches.1.rules.0.member`: there is no member `S-0`",
    ),
    (
        "node = \"V\"",
        "node = \"V\"\nhistogram = 0",
        "`sessions.any.acp.switches.0`: the histogram must be 1 to 65,536 frames",
    ),
    (
        "of = \"any/P\"",
        "of = \"any/far\"",
        "cascade.toml:32: `measure.goodput.of`: `any` has no receiver there",
    ),
];

#[test]
fn errors_in_acp_sessions_name_their_place() {
    assert_refused(parse, CASCADE, ERRORS);
}

/// Returns the same session with one switch, whose members have these weights.
fn with_weights(weights: &str) -> String {
    let (head, rest) = CASCADE.split_once("[[sessions.acp.switches]]").unwrap();
    let (_, measures) = rest.split_once("[[measure]]").unwrap();
    let switch = "acp.switches = [{ node = \"V\", members = [\"S\"], policy = \"weighted\"";
    format!("{head}{switch}, weights = {weights} }}]\n[[measure]]{measures}")
}

#[test]
fn a_member_has_one_weight() {
    assert!(parse(&with_weights("{ S-1 = 1, S-0 = 2 }")).is_ok());
    let error = parse(&with_weights("{ S = 1, S-0 = 2 }")).unwrap_err();
    let message = error.to_string();
    assert!(message.contains("`S-0` already has a weight"), "{message}");
}
