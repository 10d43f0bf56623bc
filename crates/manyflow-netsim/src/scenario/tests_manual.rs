//! The manual and the parser know the same keys, and every shipped scenario is read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde::de::Visitor;
use serde::de::value::Error;

use super::*;

const MANUAL: &str = include_str!("../../../../docs/scenarios.md");

/// Asks a type for its keys or choices, and gives it nothing.
struct Lister<'a>(&'a mut Vec<&'static str>);

impl<'de> serde::Deserializer<'de> for Lister<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("it has no keys"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.extend_from_slice(fields);
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        choices: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.extend_from_slice(choices);
        self.deserialize_any(visitor)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier ignored_any option newtype_struct
    }
}

fn known<'de, T: Deserialize<'de>>() -> BTreeSet<&'static str> {
    let mut known = Vec::new();
    assert!(T::deserialize(Lister(&mut known)).is_err());
    known.into_iter().collect()
}

/// The words in code in the first column of the tables under each heading.
fn documented() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut documented: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut heading = "";
    for line in MANUAL.lines() {
        if let Some(text) = line.strip_prefix("### ") {
            heading = text.trim_matches('`');
            documented.entry(heading).or_default();
        } else if let Some(row) = line.strip_prefix("| `") {
            let column = row.split('|').next().unwrap_or_default();
            let words = column.split([' ', '`']).filter(|word| !word.is_empty());
            documented.entry(heading).or_default().extend(words);
        }
    }
    documented
}

#[test]
fn the_manual_has_the_keys_of_the_parser_and_no_others() {
    let tables = [
        ("scenario", known::<schema::Schema>()),
        ("run", known::<schema::RunTable>()),
        ("nodes", known::<schema::NodesTable>()),
        ("nodes.trees", known::<schema::TreeTable>()),
        ("nodes.dumbbells", known::<schema::DumbbellTable>()),
        ("nodes.random", known::<schema::RandomTable>()),
        ("links.properties", known::<links::LinkProperties>()),
        ("links.bursts", known::<links::BurstTable>()),
        ("links.red", known::<links::RedTable>()),
        ("links.xcp", known::<links::XcpTable>()),
        ("overlays", known::<protocols::OverlayTable>()),
        ("overlays.links", known::<protocols::OverlayLinkTable>()),
        (
            "overlays.cost-benefit",
            known::<protocols::CostBenefitTable>(),
        ),
        ("overlays.tfrc", known::<protocols::TfrcTable>()),
        (
            "sessions.overlay",
            known::<protocols::OverlaySessionTable>(),
        ),
        ("sessions", known::<schema::SessionTable>()),
        ("sessions.receivers", known::<schema::ReceiverTable>()),
        ("sessions.webrc", known::<protocols::WebrcTable>()),
        ("sessions.webrc.weights", known::<protocols::WeightsTable>()),
        ("sessions.sim", known::<protocols::SimTable>()),
        ("sessions.sim.outage", known::<protocols::OutageTable>()),
        ("sessions.rlm", known::<protocols::RlmTable>()),
        ("sessions.receivers.sends", known::<schema::SpanTable>()),
        ("sessions.acp", known::<protocols::AcpTable>()),
        ("sessions.acp.soft", known::<protocols::SoftTable>()),
        ("sessions.acp.square", known::<protocols::SquareTable>()),
        ("sessions.acp.switches", known::<protocols::SwitchTable>()),
        (
            "sessions.acp.switches.rules",
            known::<protocols::RuleTable>(),
        ),
        ("sessions.tcp", known::<protocols::TcpTable>()),
        ("sessions.cbr", known::<protocols::CbrTable>()),
        ("at", known::<schema::ChangeTable>()),
        ("at.then", known::<schema::TurnTable>()),
        ("measure", known::<schema::MeasureTable>()),
        ("measure.against", known::<schema::AgainstTable>()),
        ("plots", known::<schema::PlotTable>()),
        ("plots.series", known::<schema::SeriesTable>()),
        ("plots.curves", known::<schema::CurveTable>()),
        ("expect", known::<schema::ExpectTable>()),
        ("expect.fast", known::<schema::BoundsTable>()),
        ("Observables", known::<Observable>()),
        ("Statistics", known::<Statistic>()),
        ("Combinations", known::<Combination>()),
        ("Across cells", known::<schema::Across>()),
        ("Events", super::tests_inspect::EVENTS.into()),
        (
            "Functions",
            FUNCTIONS.iter().map(|function| function.name).collect(),
        ),
    ];
    let mut documented = documented();
    for (heading, known) in tables {
        assert_eq!(
            documented.remove(heading).unwrap_or_default(),
            known,
            "{heading}"
        );
    }
    let own = documented.remove("links").unwrap();
    let mut all = known::<links::LinkTable>();
    all.retain(|key| !known::<links::LinkProperties>().contains(key));
    assert_eq!(own, all, "links");
    assert!(
        documented.is_empty(),
        "no table of the parser: {documented:?}"
    );
}

#[test]
fn the_manual_has_the_name_and_the_kind_of_each_observable() {
    for name in known::<Observable>() {
        let deserializer: serde::de::value::StrDeserializer<'_, Error> =
            serde::de::IntoDeserializer::into_deserializer(name);
        let observable = Observable::deserialize(deserializer).unwrap();
        assert_eq!(observable.name(), name);
        let kind = match observable {
            _ if observable.is_count() => "count",
            _ if observable.is_level() => "level",
            _ if observable.is_event() => "sample",
            _ => "interval",
        };
        let (_, table) = MANUAL.split_once("### Observables").unwrap();
        let row = table
            .lines()
            .find_map(|line| line.strip_prefix(&format!("| `{name}` | ")));
        let documented = row.and_then(|row| row.split(" | ").nth(1));
        assert_eq!(documented, Some(kind), "{name}");
    }
}

#[test]
fn the_manuals_example_is_a_scenario() {
    let (_, rest) = MANUAL.split_once("```toml\n").unwrap();
    let (example, _) = rest.split_once("```").unwrap();
    for fast in [false, true] {
        let scenario = Scenario::parse("example.toml", example, fast).unwrap();
        assert_eq!(scenario.cells(), if fast { 1 } else { 3 });
    }
}

#[test]
fn every_shipped_scenario_is_read_in_both_forms() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        for fast in [false, true] {
            let scenario = Scenario::parse(&path.display().to_string(), &text, fast);
            let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
            let expectations = scenario.cell(0).unwrap().schema.expect;
            assert!(!expectations.is_empty(), "{}", scenario.id());
        }
        count += 1;
    }
    assert!(count >= 14, "{count}");
}
