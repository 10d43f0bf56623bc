//! Tests that the manual and the parser have the same keys, and that every shipped scenario is
//! valid.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;
use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{IntoDeserializer, Visitor};

use manyflow_scenario::*;

const MANUAL: &str = include_str!("../../../../docs/scenarios.md");

/// A deserializer that collects the keys or choices of a type, and then fails.
struct Lister<'a>(&'a mut Vec<&'static str>);

impl<'de> serde::Deserializer<'de> for Lister<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("the type has no keys"))
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

/// A deserializer that has a value for each key of a type except this one.
struct AllBut(&'static str);

impl<'de> serde::Deserializer<'de> for AllBut {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _visitor: V) -> Result<V::Value, Error> {
        Err(serde::de::Error::custom("the type has no keys"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let given = fields.iter().filter(|field| **field != self.0);
        let given = given.map(|field| (*field, Anything));
        visitor.visit_map(MapDeserializer::new(given))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct seq tuple tuple_struct map enum identifier ignored_any option newtype_struct
    }
}

/// A deserializer with a value of any type.
#[derive(Copy, Clone)]
struct Anything;

impl IntoDeserializer<'_, Error> for Anything {
    type Deserializer = Anything;

    fn into_deserializer(self) -> Anything {
        self
    }
}

impl<'de> serde::Deserializer<'de> for Anything {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str("1")
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(false)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_f64(1.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_none()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_tuple(0, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new(std::iter::repeat_n(Anything, len)))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(MapDeserializer::new(std::iter::empty::<(&str, Anything)>()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        AllBut("").deserialize_struct(name, fields, visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        choices: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(choices[0].into_deserializer())
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 char str string bytes byte_buf
        unit unit_struct tuple_struct identifier ignored_any
    }
}

/// Returns the keys that a table requires.
fn required<'de, T: Deserialize<'de>>() -> BTreeSet<&'static str> {
    let mut required = known::<T>();
    required.retain(|key| match T::deserialize(AllBut(key)) {
        Ok(_) => false,
        Err(error) => {
            assert_eq!(error.to_string(), format!("missing field `{key}`"));
            true
        }
    });
    required
}

/// Returns the keys that the manual calls required, by heading. Checks that each key has a default
/// or is required.
fn documented_as_required() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut documented: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let (mut heading, mut column) = ("", None);
    for line in MANUAL.lines() {
        let cells = || line.trim_matches('|').split('|').map(str::trim);
        if let Some(text) = line.strip_prefix("### ") {
            (heading, column) = (text.trim_matches('`'), None);
        } else if line.starts_with("| key |") {
            column = cells().position(|cell| cell == "default");
            assert!(column.is_some(), "{heading} has no column of defaults");
        } else if let (true, Some(column)) = (line.starts_with("| `"), column) {
            let default = cells().nth(column).unwrap();
            assert!(!default.is_empty(), "{heading}: {line}");
            if default == "required" {
                let words = line[2..].split(" |").next().unwrap().split(' ');
                let keys = words.map(|word| word.trim_matches('`'));
                documented.entry(heading).or_default().extend(keys);
            }
        }
    }
    documented
}

fn known<'de, T: Deserialize<'de>>() -> BTreeSet<&'static str> {
    let mut known = Vec::new();
    assert!(T::deserialize(Lister(&mut known)).is_err());
    known.into_iter().collect()
}

/// Returns the code words in the first column of the manual's tables, by heading.
fn documented() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut documented: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut heading = "";
    for line in MANUAL.lines() {
        if let Some(text) = line.strip_prefix("### ") {
            heading = text.trim_matches('`');
        } else if let Some(row) = line.strip_prefix("| `") {
            let column = row.split('|').next().unwrap_or_default();
            let words = column.split([' ', '`']).filter(|word| !word.is_empty());
            documented.entry(heading).or_default().extend(words);
        }
    }
    documented
}

/// Applies a function to the types of all tables in the manual.
macro_rules! tables {
    ($list:ident) => {
        [
            ("scenario", $list::<schema::Schema>()),
            ("run", $list::<schema::RunTable>()),
            ("nodes", $list::<schema::NodesTable>()),
            ("nodes.trees", $list::<schema::TreeTable>()),
            ("nodes.dumbbells", $list::<schema::DumbbellTable>()),
            ("nodes.random", $list::<schema::RandomTable>()),
            ("links.properties", $list::<schema::links::LinkProperties>()),
            ("links.rate", $list::<schema::rates::RateTable>()),
            ("links.jitter", $list::<schema::rates::JitterTable>()),
            ("links.bursts", $list::<schema::links::BurstTable>()),
            ("links.red", $list::<schema::links::RedTable>()),
            ("links.codel", $list::<schema::queues::CoDelTable>()),
            ("links.fq-codel", $list::<schema::queues::FqCoDelTable>()),
            ("links.cake", $list::<schema::queues::CakeTable>()),
            ("links.pie", $list::<schema::queues::PieTable>()),
            ("links.dualpi2", $list::<schema::queues::DualPi2Table>()),
            ("links.xcp", $list::<schema::links::XcpTable>()),
            ("overlays", $list::<protocols::OverlayTable>()),
            ("overlays.links", $list::<protocols::OverlayLinkTable>()),
            (
                "overlays.cost-benefit",
                $list::<protocols::CostBenefitTable>(),
            ),
            ("benefit", $list::<protocols::BenefitTable>()),
            ("benefit.layers", $list::<protocols::LayerTable>()),
            ("overlays.tfrc", $list::<protocols::TfrcTable>()),
            (
                "sessions.overlay",
                $list::<protocols::OverlaySessionTable>(),
            ),
            (
                "sessions.overlay.layers",
                $list::<protocols::UnitLayerTable>(),
            ),
            ("sessions", $list::<schema::SessionTable>()),
            ("sessions.receivers", $list::<schema::ReceiverTable>()),
            ("sessions.webrc", $list::<protocols::WebrcTable>()),
            ("sessions.webrc.weights", $list::<protocols::WeightsTable>()),
            ("sessions.sim", $list::<protocols::SimTable>()),
            ("sessions.sim.outage", $list::<protocols::OutageTable>()),
            ("sessions.rlm", $list::<protocols::RlmTable>()),
            ("sessions.rlc", $list::<protocols::RlcTable>()),
            ("sessions.flid", $list::<protocols::FlidTable>()),
            ("sessions.tfmcc", $list::<protocols::TfmccTable>()),
            ("sessions.command", $list::<protocols::CommandTable>()),
            ("sessions.receivers.sends", $list::<schema::SpanTable>()),
            ("sessions.acp", $list::<protocols::AcpTable>()),
            ("sessions.acp.soft", $list::<protocols::SoftTable>()),
            ("sessions.acp.square", $list::<protocols::SquareTable>()),
            ("sessions.acp.switches", $list::<protocols::SwitchTable>()),
            (
                "sessions.acp.switches.rules",
                $list::<protocols::RuleTable>(),
            ),
            ("sessions.tcp", $list::<protocols::TcpTable>()),
            ("sessions.cbr", $list::<protocols::CbrTable>()),
            ("at", $list::<schema::ChangeTable>()),
            ("at.then", $list::<schema::TurnTable>()),
            ("measure", $list::<schema::MeasureTable>()),
            ("measure.against", $list::<schema::AgainstTable>()),
            ("plots", $list::<schema::PlotTable>()),
            ("plots.series", $list::<schema::SeriesTable>()),
            ("plots.curves", $list::<schema::CurveTable>()),
            ("expect", $list::<schema::ExpectTable>()),
            ("expect.fast", $list::<schema::BoundsTable>()),
        ]
    };
}

#[test]
fn the_manual_lists_exactly_the_keys_of_the_parser() {
    let choices = [
        ("Observables", known::<Observable>()),
        ("Statistics", known::<Statistic>()),
        ("Combinations", known::<Combination>()),
        ("Across cells", known::<schema::Across>()),
        ("Events", super::inspect::EVENTS.into()),
        (
            "Functions",
            FUNCTIONS.iter().map(|function| function.name).collect(),
        ),
    ];
    let mut documented = documented();
    for (heading, known) in tables!(known).into_iter().chain(choices) {
        assert_eq!(
            documented.remove(heading).unwrap_or_default(),
            known,
            "{heading}"
        );
    }
    let own = documented.remove("links").unwrap();
    let mut all = known::<schema::links::LinkTable>();
    all.retain(|key| !known::<schema::links::LinkProperties>().contains(key));
    assert_eq!(own, all, "links");
    assert!(
        documented.is_empty(),
        "no table of the parser: {documented:?}"
    );
}

#[test]
fn the_manual_names_the_required_keys() {
    let mut documented = documented_as_required();
    for (heading, required) in tables!(required) {
        let listed = documented.remove(heading).unwrap_or_default();
        assert_eq!(listed, required, "{heading}");
    }
    assert!(documented.is_empty(), "{documented:?}");
    assert!(required::<schema::links::LinkTable>().is_empty());
}

#[test]
fn the_manual_lists_the_kind_of_each_observable() {
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
fn the_manuals_examples_are_valid() {
    let examples = MANUAL.split("```toml\n").skip(1);
    let examples: Vec<&str> = examples
        .filter_map(|rest| rest.split("```").next())
        .collect();
    for (example, [whole, fast]) in examples.iter().zip([[3, 1], [4, 4]]) {
        for (is_fast, cells) in [(false, whole), (true, fast)] {
            let scenario = Scenario::parse("example.toml", example, is_fast);
            let scenario = scenario.unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(scenario.cells(), cells);
        }
    }
    assert_eq!(examples.len(), 2);
}

#[test]
fn the_manuals_example_of_repetition_expands_as_described() {
    let example = MANUAL.split("```toml\n").nth(2).unwrap();
    let example = example.split("```").next().unwrap();
    let scenario = Scenario::parse("example.toml", example, false).unwrap();
    let cell = scenario.cell(3).unwrap();
    assert_eq!(cell.labels, ["cubic", "8 Mbit/s", "40 packets"]);
    let names = cell
        .schema
        .measure
        .iter()
        .map(|measure| measure.name.as_str());
    assert_eq!(names.collect::<Vec<_>>(), ["use_0", "use_1", "use_2"]);
    let ends = cell
        .schema
        .links
        .iter()
        .map(|link| link.between.clone().unwrap());
    let ends: Vec<_> = ends.map(|ends| ends.join(" ")).collect();
    assert_eq!(ends, ["r-0 r-1", "r-1 r-2", "r-2 r-3"]);
    assert!(cell.schema.expect[0].what.starts_with("cubic fills"));
    let wrong = example.replace("of = \"hop-{i}\"", "of = \"hip-{i}\"");
    let error = Scenario::parse("example.toml", &wrong, false).unwrap_err();
    let line = 1 + wrong
        .lines()
        .position(|line| line.starts_with("of = \"hip"))
        .unwrap();
    assert!(
        error
            .to_string()
            .starts_with(&format!("example.toml:{line}: `measure.use_0.of`: ")),
        "{error}"
    );
}

#[test]
fn every_shipped_scenario_is_valid_in_both_forms() {
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
