//! A status page as another program reads it.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::fmt_http_date;
use manyflow_core::{Bytes, Rate};
use serde::{Deserialize, Serialize};

use super::{Cell, Unit};

/// The path of the data of a status page.
pub const PAGE_PATH: &str = "/page.json";

/// The present figures of a role, as another program reads them from [`PAGE_PATH`].
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Snapshot {
    /// The role, a command.
    pub role: String,
    /// The name of this instance of the role; empty if it has none.
    pub title: String,
    facts: Vec<(String, Cell)>,
    #[serde(skip_serializing)]
    series: Vec<Curve>,
}

/// The history of a number.
#[derive(Clone, Debug, Deserialize)]
struct Curve {
    name: String,
    unit: Unit,
    values: Vec<Option<f64>>,
}

impl Snapshot {
    /// Returns the key figures and, without those of the same names, the last values of the curves,
    /// each with its name and in its unit.
    pub fn figures(&self) -> Vec<(&str, String)> {
        let facts = self.facts.iter();
        let mut figures: Vec<_> = facts
            .map(|(name, cell)| (&name[..], cell.to_string()))
            .collect();
        for curve in &self.series {
            let is_known = self.facts.iter().any(|(name, _)| *name == curve.name);
            let last = curve.values.last().copied().flatten();
            if let Some(value) = last.filter(|_| !is_known) {
                figures.push((&curve.name, curve.unit.text(value)));
            }
        }
        figures
    }
}

impl Unit {
    fn text(self, value: f64) -> String {
        let cell = match self {
            Unit::PerS => return format!("{}/s", Cell::Count(value)),
            Unit::Count => Cell::Count(value),
            Unit::Bytes => Cell::Bytes(value),
            Unit::BitsPerS => Cell::BitsPerS(value),
            Unit::Seconds => Cell::Seconds(value),
            Unit::Share => Cell::Share(value),
            Unit::Dollars => Cell::Dollars(value),
        };
        cell.to_string()
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cell::Empty => Ok(()),
            Cell::Text(text) | Cell::Good(text) | Cell::Bad(text) | Cell::Dim(text) => {
                f.write_str(text)
            }
            Cell::Count(count) if count.fract() == 0.0 => write!(f, "{count}"),
            Cell::Count(count) => write!(f, "{count:.1}"),
            Cell::Bytes(bytes) => Bytes(*bytes as u64).fmt(f),
            Cell::BitsPerS(rate) => Rate::from_bits_per_s(*rate as u64).fmt(f),
            Cell::Seconds(seconds) if *seconds < 1.0 => write!(f, "{:.1} ms", seconds * 1e3),
            Cell::Seconds(seconds) => write!(f, "{seconds:.0} s"),
            Cell::Share(part) | Cell::Ratio(part) => write!(f, "{:.1} %", part * 100.0),
            Cell::Time(since_1970) => {
                let since_1970 = Duration::try_from_secs_f64(*since_1970).unwrap_or_default();
                f.write_str(&fmt_http_date(UNIX_EPOCH + since_1970))
            }
            Cell::Dollars(price) => write!(f, "${price:.2}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::History;
    use super::super::{Described, Series, Shown, View, render};
    use super::*;

    use std::sync::Mutex;

    struct Role;

    impl Described for Role {
        fn view(&self) -> View {
            View {
                facts: vec![
                    ("members up", Cell::state(false, "1 of 2", "1 of 2")),
                    ("sent", Cell::Bytes(2_500.0)),
                    ("nothing", Cell::Empty),
                ],
                ..View::default()
            }
        }

        fn series(&self) -> Vec<Series> {
            vec![
                Series::now("sent", Unit::Count, 7.0),
                Series::now("rate", Unit::BitsPerS, 1.5e6),
                Series::now("frames", Unit::PerS, 2.25),
                Series::growth("lost", Unit::PerS, 3),
            ]
        }
    }

    #[test]
    fn figures_are_facts_and_the_last_values_of_other_curves() {
        let mut history = History::default();
        history.sample(Duration::ZERO, Role.series());
        let history = Mutex::new(history);
        let shown = Shown {
            read: || Role,
            history,
        };
        let snapshot: Snapshot = serde_json::from_str(&render("switch", &shown)).unwrap();
        assert_eq!((&*snapshot.role, &*snapshot.title), ("switch", ""));
        let expected = [
            ("members up", "1 of 2"),
            ("sent", "2.5 kB"),
            ("nothing", ""),
            ("rate", "1.5 Mbit/s"),
            ("frames", "2.2/s"),
        ];
        let expected = expected.map(|(name, value)| (name, value.to_owned()));
        assert_eq!(snapshot.figures(), expected);
    }
}
