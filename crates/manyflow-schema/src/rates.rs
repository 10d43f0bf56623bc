//! `rate` and `jitter` of `[[links]]`, which are values or tables.

use std::fmt;
use std::sync::Arc;

use manyflow_core::Rate;
use manyflow_core::link::{
    JitterDistribution, LinkConfig, Pace, RateTrace, Shape, ShapeKind, TokenBucket,
};
use manyflow_model::quantity::{Bits, BitsPerSecond, Number, Seconds};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::Schema;

/// The longest average of an outage.
const OUTAGE_MAX_S: f64 = 10.0;
/// The lowest average rate of a shape: lower ones take long to draw.
const MEAN_MIN_BITS_PER_S: f64 = 10_000.0;

/// The rate of a link.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkRate {
    /// The same at all times.
    Fixed(Rate),
    /// A rate trace in a file.
    Trace(TraceFile),
    /// A model of a wireless link, or a token bucket.
    Pace(Pace),
}

/// A rate trace in a file.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceFile {
    /// The path as in the scenario, which begins in the scenario's folder.
    pub path: String,
    /// The trace, once it has been read.
    pub trace: Option<Arc<RateTrace>>,
}

/// `links.rate`: a rate that varies by itself.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RateTable {
    /// The path of a trace in Mahimahi's format, from the folder of the scenario.
    ///
    /// Default: one of `trace`, `shape` and `sustained`.
    pub trace: Option<String>,
    /// The kind of wireless link: `lte`, `5g`, `wifi` or `starlink`, see docs/paths.md#shapes.
    ///
    /// Default: one of `trace`, `shape` and `sustained`.
    pub shape: Option<ShapeName>,
    /// With `shape`, the average rate of full packets, at least `10 kbit/s`.
    ///
    /// Default: required with `shape`.
    pub mean: Option<BitsPerSecond>,
    /// With `shape`, the average time of an outage, at most `10 s`. With `5g`, of a blockage.
    ///
    /// Default: `200 ms` with `lte`, `300 ms` with `5g`, `40 ms` with `starlink`; none with `wifi`.
    pub outage: Option<Seconds>,
    /// The rate of a token bucket: what remains after a burst.
    ///
    /// Default: one of `trace`, `shape` and `sustained`.
    pub sustained: Option<BitsPerSecond>,
    /// With `sustained`, the size of the bucket.
    ///
    /// Default: required with `sustained`.
    pub burst: Option<Bits>,
    /// With `sustained`, the rate of a burst.
    ///
    /// Default: no limit.
    pub peak: Option<BitsPerSecond>,
}

/// The kind of wireless link.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShapeName {
    /// LTE, as in Sprout's model.
    Lte,
    /// 5G at millimetre waves.
    #[serde(rename = "5g")]
    MmWave,
    /// Wi-Fi with other stations.
    Wifi,
    /// Starlink.
    Starlink,
}

impl LinkRate {
    /// Returns the rate, or the average of a rate that varies. `None` if the trace has not been
    /// read.
    pub fn average(&self) -> Option<Rate> {
        match self {
            LinkRate::Fixed(rate) => Some(*rate),
            LinkRate::Trace(file) => file.trace.as_ref().map(|trace| trace.rate()),
            LinkRate::Pace(pace) => Some(pace.rate()),
        }
    }

    /// Sets the rate of a link.
    ///
    /// # Panics
    /// Panics if the trace has not been read: a scenario reads all traces before it is used.
    pub(super) fn apply(&self, config: &mut LinkConfig) {
        match self {
            LinkRate::Fixed(rate) => (config.rate, config.pace) = (Some(*rate), None),
            LinkRate::Trace(file) => {
                let trace = file.trace.as_ref().expect("a scenario reads its traces");
                config.set_pace(Pace::Trace(Arc::clone(trace)));
            }
            LinkRate::Pace(pace) => config.set_pace(pace.clone()),
        }
    }
}

impl RateTable {
    fn rate(self) -> Result<LinkRate, &'static str> {
        match (self.trace.clone(), self.shape, self.sustained) {
            (Some(path), None, None) => self.trace_file(path),
            (None, Some(shape), None) => self.shape(shape).map(LinkRate::Pace),
            (None, None, Some(sustained)) => self.bucket(sustained).map(LinkRate::Pace),
            _ => Err("a rate takes one of `trace`, `shape` and `sustained`"),
        }
    }

    fn trace_file(self, path: String) -> Result<LinkRate, &'static str> {
        let others = [self.mean.is_some(), self.outage.is_some(), self.is_bucket()];
        if others.contains(&true) {
            return Err("a `trace` has its own rate: leave out the other keys");
        }
        Ok(LinkRate::Trace(TraceFile { path, trace: None }))
    }

    fn is_bucket(&self) -> bool {
        self.burst.is_some() || self.peak.is_some()
    }

    fn shape(self, name: ShapeName) -> Result<Pace, &'static str> {
        let kind = match name {
            ShapeName::Lte => ShapeKind::Lte,
            ShapeName::MmWave => ShapeKind::MmWave,
            ShapeName::Wifi => ShapeKind::Wifi,
            ShapeName::Starlink => ShapeKind::Starlink,
        };
        if self.is_bucket() {
            return Err("`burst` and `peak` belong to `sustained`, not to `shape`");
        }
        if kind == ShapeKind::Wifi && self.outage.is_some() {
            return Err("the shape `wifi` has no outages: leave out `outage`");
        }
        if self.outage.is_some_and(|outage| outage.0 > OUTAGE_MAX_S) {
            return Err("`outage` is at most `10 s`");
        }
        let Some(mean) = self.mean.filter(|mean| mean.0 >= MEAN_MIN_BITS_PER_S) else {
            return Err("a `shape` needs its average rate, `mean`, of at least `10 kbit/s`");
        };
        Ok(Pace::Shape(Shape {
            kind,
            mean: mean.rate(),
            outage: self.outage.map_or(kind.outage(), Seconds::duration),
        }))
    }

    fn bucket(self, sustained: BitsPerSecond) -> Result<Pace, &'static str> {
        if self.mean.is_some() || self.outage.is_some() {
            return Err("`mean` and `outage` belong to `shape`, not to `sustained`");
        }
        let Some(burst) = self.burst.filter(|burst| burst.bytes() > 0) else {
            return Err("a rate with `sustained` needs the size of a `burst`, above `0 B`");
        };
        if sustained.rate().bits_per_s() == 0 {
            return Err("`sustained` is above `0 bit/s`");
        }
        if self.peak.is_some_and(|peak| peak.rate() < sustained.rate()) {
            return Err("`peak` is below `sustained`");
        }
        Ok(Pace::Bucket(TokenBucket {
            sustained: sustained.rate(),
            burst_bytes: burst.bytes(),
            peak: self.peak.map(BitsPerSecond::rate),
        }))
    }
}

/// The further delay of each packet.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct LinkJitter {
    scale: Seconds,
    distribution: JitterDistribution,
}

/// `links.jitter`: a distribution other than the uniform one.
#[derive(Copy, Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct JitterTable {
    /// `normal`, without values below 0; or `pareto`, Pareto's second kind (Lomax), whose large
    /// values are frequent.
    pub distribution: DistributionName,
    /// The average of the further delay.
    pub mean: Seconds,
    /// With `normal`, the standard deviation.
    ///
    /// Default: required with `normal`.
    pub deviation: Option<Seconds>,
    /// With `pareto`, Pareto's index, above 1. The lower it is, the more frequent are large values.
    ///
    /// Default: 3.
    pub index: Option<Number>,
}

/// A distribution of jitter.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DistributionName {
    /// The normal distribution.
    Normal,
    /// Pareto's second kind.
    Pareto,
}

impl LinkJitter {
    /// Sets the jitter of a link.
    pub(super) fn apply(self, config: &mut LinkConfig) {
        config.jitter = self.scale.duration();
        config.jitter_distribution = self.distribution;
    }
}

impl JitterTable {
    fn jitter(self) -> Result<LinkJitter, &'static str> {
        let distribution = match (self.distribution, self.deviation, self.index) {
            (DistributionName::Normal, Some(deviation), None) => JitterDistribution::Normal {
                deviation: deviation.duration(),
            },
            (DistributionName::Normal, ..) => {
                return Err("`normal` takes its `deviation`, and no `index`");
            }
            (DistributionName::Pareto, None, index) => {
                let index = index.map_or(3.0, |index| index.0);
                if index.is_nan() || index <= 1.0 {
                    return Err("`index` is above 1: otherwise there is no average");
                }
                JitterDistribution::Pareto { index }
            }
            (DistributionName::Pareto, ..) => return Err("`pareto` has no `deviation`"),
        };
        Ok(LinkJitter {
            scale: self.mean,
            distribution,
        })
    }
}

/// Reads a quantity or a table. The reader evaluates formulas of types whose serde name says that a
/// table is possible, too.
macro_rules! quantity_or_table {
    ($type:ident, $name:literal, $expected:literal, $table:ident, $of_table:ident, |$number:ident| $of_number:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                struct Entry;
                impl<'de> Visitor<'de> for Entry {
                    type Value = $type;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_newtype_struct<D: Deserializer<'de>>(
                        self,
                        deserializer: D,
                    ) -> Result<$type, D::Error> {
                        let $number = f64::deserialize(deserializer)?;
                        Ok($of_number)
                    }

                    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<$type, A::Error> {
                        let table = $table::deserialize(MapAccessDeserializer::new(map))?;
                        table.$of_table().map_err(A::Error::custom)
                    }
                }
                deserializer.deserialize_newtype_struct($name, Entry)
            }
        }
    };
}

quantity_or_table!(
    LinkRate,
    "table or quantity: rate",
    "a rate, or a table such as { trace = \"lte.trace\" }",
    RateTable,
    rate,
    |bits_per_s| LinkRate::Fixed(BitsPerSecond(bits_per_s).rate())
);
quantity_or_table!(
    LinkJitter,
    "table or quantity: time",
    "a time, or a table such as { distribution = \"normal\", mean = \"4 ms\", deviation = \"1 ms\" }",
    JitterTable,
    jitter,
    |maximum_s| LinkJitter {
        scale: Seconds(maximum_s),
        distribution: JitterDistribution::Uniform,
    }
);

impl Schema {
    /// Returns the trace files of all links and of their changes, each with the path of the key
    /// that names it.
    pub fn trace_files(&mut self) -> impl Iterator<Item = (Vec<String>, &mut TraceFile)> {
        let links = self.links.iter_mut().enumerate().flat_map(|(index, link)| {
            let key = link.name.clone().unwrap_or(index.to_string());
            let there = (vec!["links".to_owned(), key.clone()], &mut link.rate);
            let back = ["links".to_owned(), key, "back".to_owned()].to_vec();
            [there, (back, &mut link.back.rate)]
        });
        let changes = self.at.iter_mut().enumerate().flat_map(|(index, change)| {
            let path = |turn: &[&str]| {
                let keys = ["at", &index.to_string()].map(str::to_owned).into_iter();
                keys.chain(turn.iter().map(|&key| key.to_owned())).collect()
            };
            let first = (path(&["set"]), &mut change.set.rate);
            let then = change.then.as_mut();
            let then = then.map(|turn| (path(&["then", "set"]), &mut turn.set.rate));
            [Some(first), then].into_iter().flatten()
        });
        links.chain(changes).filter_map(|(mut path, rate)| {
            let Some(LinkRate::Trace(file)) = rate else {
                return None;
            };
            path.extend(["rate", "trace"].map(str::to_owned));
            Some((path, file))
        })
    }
}
