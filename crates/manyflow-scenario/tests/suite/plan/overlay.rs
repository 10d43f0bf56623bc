//! Tests that read, check and build overlays and their sessions.

use super::{Refusal, assert_refused, hosts, placed, plan};
use manyflow_scenario::plan::Plan;
use manyflow_scenario::*;

/// A chain of three daemons with a router between two of them, and a node without links.
const CHAIN: &str = r#"title = "A chain of daemons"
[run]
duration = "10 s"
[nodes]
names = ["A", "B", "r", "C", "far"]
groups = { D = 2 }
[[links]]
chain = ["A", "B", "r", "C"]
rate = "2 Mbit/s"
delay = "10 ms"
[[links]]
between = ["C", "D"]
[[overlays]]
name = "spines"
daemons = ["A", "B", "C", "D"]
links = [["A", "B"], { between = ["B", "C"], weight = 3 }, ["C", "D"]]
controller = "none"
[[sessions]]
name = "one"
protocol = "overlay"
sender = "A"
start = "uniform 1 s to 2 s"
receivers = ["C", { node = "D-1", start = "2 s", stop = "3 s", every = "5 s" }]
overlay.clients = 2
[[sessions]]
name = "two"
protocol = "overlay"
sender = "B"
receivers = []
overlay.group = "one"
[[measure]]
name = "sent"
what = "sent-rate"
of = "one"
[[measure]]
name = "waiting"
what = "overlay-queue"
of = "B-C"
[[measure]]
name = "told"
what = "members"
of = "two/D-0"
"#;

fn parse(text: &str) -> Result<Scenario, ScenarioError> {
    Scenario::parse("chain.toml", text, false)
}

#[test]
fn daemons_precede_the_receivers_and_sending_clients_of_sessions() {
    let plan = plan(&parse(CHAIN).unwrap());
    let daemons = plan.overlays.0[0].endpoints.iter().map(|id| id.0);
    assert_eq!(daemons.collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(
        placed(&plan, hosts(&plan, 0)),
        [(5, "C"), (6, "D-1"), (7, "D-1")]
    );
    assert_eq!(
        placed(&plan, &plan.sessions.0[0].staff),
        [(8, "A"), (9, "A")]
    );
    assert_eq!(placed(&plan, &plan.sessions.0[1].staff), [(10, "B")]);
    assert_eq!(plan.endpoints, 11);
}

#[test]
fn sessions_that_name_the_same_group_share_it() {
    let groups = |text: &str| {
        let plan = plan(&parse(text).unwrap());
        [0, 1].map(|session| plan.sessions.0[session].affiliation.unwrap().group.0)
    };
    assert_eq!(groups(CHAIN), [0, 0]);
    assert_eq!(
        groups(&CHAIN.replace("overlay.group = \"one\"", "")),
        [0, 1]
    );
}

#[test]
fn without_links_each_network_link_between_daemons_is_used() {
    let given =
        "links = [[\"A\", \"B\"], { between = [\"B\", \"C\"], weight = 3 }, [\"C\", \"D\"]]\n";
    let error = parse(&CHAIN.replace(given, "")).unwrap_err().to_string();
    // The router has no daemon, so B and C are not neighbours.
    assert!(
        error.contains("`overlays.spines.links`: no links of the overlay lead from `A` to `C`"),
        "{error}"
    );
    let all = CHAIN
        .replace(given, "")
        .replace("\"B\", \"C\", \"D\"]\nc", "\"B\", \"r\", \"C\", \"D\"]\nc");
    let all = all.replace("of = \"B-C\"", "of = \"r-C\"");
    let plan = plan(&parse(&all).unwrap());
    assert_eq!(plan.overlays.0[0].topology.links().count(), 10);
}

#[test]
fn without_links_messages_take_the_routes_of_the_network() {
    let ring = r#"title = "A ring whose last link is slower than the way around"
[run]
duration = "1 s"
[nodes]
names = ["A", "B", "C", "D"]
[[links]]
chain = ["A", "B", "C", "D"]
delay = "10 ms"
[[links]]
between = ["D", "A"]
delay = "40 ms"
[[overlays]]
name = "spines"
daemons = ["A", "B", "C", "D"]
controller = "none"
[[sessions]]
name = "one"
protocol = "overlay"
sender = "A"
receivers = ["D"]
"#;
    let hops = |text: &str| {
        let plan = plan(&parse(text).unwrap());
        let daemon = manyflow_overlay::DaemonId;
        plan.overlays.0[0]
            .topology
            .path(daemon(0), daemon(3))
            .count()
    };
    assert_eq!(hops(ring), 3);
    // A link that is as short as the way around is better: it is one hop.
    assert_eq!(hops(&ring.replace("40 ms", "29 ms")), 1);
    assert_eq!(hops(&ring.replace("delay = ", "loss = 0 # ")), 1);
}

#[test]
fn the_name_of_an_entry_stands_for_all_its_sessions() {
    let many = CHAIN
        .replace("name = \"two\"", "name = \"two-{i}\"\ncount = 3")
        .replace("receivers = []", "receivers = [\"C\"]\noverlay.clients = 4")
        .replace("of = \"two/D-0\"", "of = \"two-1/D-0\"");
    let cell = parse(&many).unwrap().cell(0).unwrap();
    let sessions = Plan::new(cell.clone()).unwrap().sessions;
    let clients = |name: &str| sessions.clients_named(name).map_err(|_| ());
    assert_eq!(clients("two-{i}"), Ok(vec![(1, 4), (2, 4), (3, 4)]));
    assert_eq!(clients("two-1"), Ok(vec![(2, 4)]));
    assert_eq!(clients("two-3"), Err(()));
    let topology = Plan::new(cell).unwrap().topology;
    let receivers = |name: &str| sessions.receivers_named(name, &topology).map_err(|_| ());
    assert_eq!(receivers("two-{i}/C"), Ok(vec![(1, 0), (2, 0), (3, 0)]));
    assert_eq!(receivers("two-{i}/D"), Err(()));
}

const ERRORS: &[Refusal] = &[
    (
        "\"C\", \"D\"]\nlinks",
        "\"C\", \"E\"]\nlinks",
        "chain.toml:15: `overlays.spines.daemons`: there is no node `E`",
    ),
    (
        "\"C\", \"D\"]\nlinks",
        "\"C\", \"D\", \"C\"]\nlinks",
        "chain.toml:15: `overlays.spines.daemons`: `C` appears twice",
    ),
    (
        "\"C\", \"D\"]\nlinks",
        "\"C\", \"D\", \"far\"]\nlinks",
        "`overlays.spines.links`: no links of the overlay lead from `A` to `far`",
    ),
    (
        "\"C\", \"D\"]\nlinks = [",
        "\"C\", \"D\", \"far\"]\nlinks = [[\"A\", \"far\"], ",
        "chain.toml:15: `overlays.spines.daemons`: no links of the network lead from `A` to `far` and back",
    ),
    (
        "[\"A\", \"B\"], {",
        "[\"A\", \"r\"], {",
        "`overlays.spines.links.0`: there is no daemon at `r`",
    ),
    (
        "[\"A\", \"B\"], {",
        "[\"A\", \"B\"], [\"B\", \"A\"], {",
        "`overlays.spines.links`: `B-A` appears twice",
    ),
    (
        "weight = 3",
        "weight = 0",
        "`overlays.spines.links.1.weight`: a weight has to be at least 1",
    ),
    (
        "controller = \"none\"",
        "controller = \"cost-benefit\"\nkind = \"datagrams\"",
        "chain.toml:18: `overlays.spines.kind`: `cost-benefit` needs `streams`",
    ),
    (
        "controller = \"none\"",
        "controller = \"tfrc\"\nkind = \"streams\"",
        "chain.toml:18: `overlays.spines.kind`: `tfrc` needs `datagrams`",
    ),
    (
        "controller = \"none\"",
        "controller = \"reno\"",
        "there is no choice `reno`",
    ),
    (
        "controller = \"none\"",
        "controller = \"none\"\nslow = \"evict\"",
        "chain.toml:18: `overlays.spines.slow`: `evict` needs a `slow-deadline`",
    ),
    (
        "controller = \"none\"",
        "controller = \"none\"\nqueue = 0",
        "`overlays.spines`: a link's queue must be at least one message",
    ),
    (
        "controller = \"none\"",
        "controller = \"none\"\ntcp.transfer = \"1 MB\"",
        "`overlays.spines.tcp`: the streams of an overlay take no `transfer`",
    ),
    (
        "controller = \"none\"",
        "controller = \"none\"\ntcp.segment = \"1 kB\"",
        "`overlays.spines.tcp`: the streams of an overlay take no `segment`: each message is one segment",
    ),
    (
        "controller = \"none\"",
        "controller = \"none\"\ntcp.ecn = true",
        "`overlays.spines.tcp`: the streams of an overlay do not support `ecn`",
    ),
    (
        "sender = \"A\"",
        "sender = \"r\"",
        "chain.toml:21: `sessions.one.sender`: at `r` the overlay `spines` has no daemon",
    ),
    (
        "receivers = [\"C\",",
        "receivers = [\"r\",",
        "chain.toml:23: `sessions.one.receivers`: at `r` the overlay `spines` has no daemon",
    ),
    (
        "overlay.clients = 2",
        "overlay.overlay = \"mesh\"",
        "chain.toml:24: `sessions.one.overlay.overlay`: there is no overlay `mesh`; known are `spines`",
    ),
    (
        "overlay.clients = 2",
        "overlay.message = \"70 kB\"",
        "chain.toml:24: `sessions.one.overlay.message`: a message can have 1 to 65465 bytes",
    ),
    (
        "overlay.clients = 2",
        "overlay.priority = 0",
        "chain.toml:24: `sessions.one.overlay.priority`: a priority has to be from 1 % to 65,535 %",
    ),
    (
        "overlay.clients = 2",
        "stop = \"2 s\"",
        "chain.toml:24: `sessions.one.stop`: the sender stops before it has started",
    ),
    (
        "controller = \"none\"",
        "controller = \"cost-benefit\"\ncost-benefit.fee = 30",
        "`overlays.spines`: the savings cap must be at least a salary and above the fee",
    ),
    (
        "controller = \"none\"",
        "controller = \"tfrc\"\ntfrc.demand-history = 0.5",
        "`overlays.spines`: the demand's history must be at least 0 and below 0.5",
    ),
    (
        "overlay.clients = 2",
        "overlay.rate = \"0 bit/s\"",
        "chain.toml:24: `sessions.one.overlay.rate`: a rate has to be at least 1 bit/s",
    ),
    (
        "overlay.clients = 2",
        "overlay.service = \"safe\"",
        "chain.toml:24: `sessions.one.overlay.service`: only an overlay with an `order` has services",
    ),
    (
        "controller = \"none\"",
        "controller = \"cost-benefit\"\norder = \"ring\"",
        "chain.toml:17: `overlays.spines.controller`: a `ring` has flow control of its own: use `none`",
    ),
    (
        "of = \"B-C\"",
        "of = \"A-C\"",
        "`measure.waiting.of`: there is no link of an overlay `A-C`; did you mean `A-B`?",
    ),
    (
        "of = \"two/D-0\"",
        "of = \"two/r\"",
        "`measure.told.of`: at `r` there is no daemon",
    ),
    (
        "of = \"two/D-0\"",
        "of = \"two\"",
        "`measure.told.of`: write `SESSION/NODE` to name the daemon that reports it",
    ),
];

#[test]
fn errors_in_overlays_name_their_place() {
    assert_refused(parse, CHAIN, ERRORS);
}

/// The same with an order.
const ORDERED: &[Refusal] = &[
    (
        "overlay.clients = 2",
        "overlay.service = \"fifo\"",
        "chain.toml:25: `sessions.one.overlay.service`: only the order `marks` has services other than `agreed` and `safe`",
    ),
    (
        "start = \"2 s\", stop",
        "service = \"5 ms\", start = \"2 s\", stop",
        "`sessions.one.overlay.service`: the members of an overlay with an `order` read at once",
    ),
    (
        "overlay.group = \"one\"",
        "overlay = { group = \"one\", service = \"safe\" }",
        "`sessions.two.overlay.service`: another session of the group has the service `agreed`",
    ),
    (
        "overlay.group = \"one\"",
        "overlay.clients = 1",
        "`overlays.spines.order`: only the order `marks` has any number of groups, not 2",
    ),
];

#[test]
fn errors_in_orders_name_their_place() {
    let ordered = CHAIN.replace(
        "controller = \"none\"",
        "order = \"sequencer\"\ncontroller = \"none\"",
    );
    assert_refused(parse, &ordered, ORDERED);
}

#[test]
fn several_overlays_have_to_be_named() {
    let second = "[[overlays]]\nname = \"mesh\"\ndaemons = [\"A\", \"B\"]\ncontroller = \"none\"\n[[sessions]]";
    let both = CHAIN.replacen("[[sessions]]", second, 1);
    let message = parse(&both).unwrap_err().to_string();
    assert!(
        message.contains("`sessions.one.overlay.overlay`: there are several overlays: name one"),
        "{message}"
    );
    let named = both.replace(
        "protocol = \"overlay\"",
        "protocol = \"overlay\"\noverlay.overlay = \"spines\"",
    );
    assert!(parse(&named).is_ok());
    let unclear = parse(&named.replace("of = \"B-C\"", "of = \"A-B\""));
    let message = unclear.unwrap_err().to_string();
    assert!(
        message.contains("several overlays have a link `A-B`: write `OVERLAY/A-B`"),
        "{message}"
    );
    assert!(parse(&named.replace("of = \"B-C\"", "of = \"mesh/A-B\"")).is_ok());
}
