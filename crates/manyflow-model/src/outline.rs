//! A scenario as its results show it: names, the sweep, and for each cell the tables of measures,
//! plots and expectations.

use std::collections::BTreeMap;

use crate::expression::Environment;
use crate::quantity::Seconds;
use crate::tables::{ExpectTable, MeasureTable, PlotTable};

/// The file of a scenario, and the form in which it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file as the caller named it.
    pub file: String,
    /// The text of the file.
    pub text: String,
    /// Whether it is the shortened form.
    pub fast: bool,
    /// The settings that replace values of the file, each as `KEY=VALUE`.
    pub settings: Vec<String>,
    /// The texts of the rate traces that the file names, by their paths in it.
    pub traces: BTreeMap<String, String>,
}

/// A scenario with all its cells.
#[derive(Clone, Debug)]
pub struct Outline {
    /// The name of the file, without folder and extension.
    pub id: String,
    /// The file.
    pub source: Source,
    /// The SHA-256 hash of the file's text, in hexadecimal.
    pub hash: String,
    /// The title.
    pub title: String,
    /// The origin of the scenario, such as a paper's figure.
    pub origin: Option<String>,
    /// Background for the reader.
    pub about: Option<String>,
    /// The axes of the sweep.
    pub axes: Vec<OutlineAxis>,
    /// The cells, in order of their numbers.
    pub cells: Vec<CellOutline>,
}

/// An axis of the sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineAxis {
    /// The name of the parameter, or the dotted key.
    pub key: String,
    /// The number of the axis's group. The axes of a group vary together.
    pub group: usize,
}

/// One combination of values of all axes.
#[derive(Clone, Debug)]
pub struct CellOutline {
    /// The number of the cell.
    pub index: usize,
    /// The value of each axis, as written in the file.
    pub labels: Vec<String>,
    /// The values of the parameters.
    pub parameters: Environment,
    /// The duration of a run.
    pub duration: Seconds,
    /// The numbers to take from each run.
    pub measure: Vec<MeasureTable>,
    /// The figures to draw.
    pub plots: Vec<PlotTable>,
    /// The bounds that the results have to meet.
    pub expect: Vec<ExpectTable>,
}

impl Outline {
    /// Returns whether two axes vary together. Each axis varies together with itself.
    pub fn vary_together(&self, first: &str, second: &str) -> bool {
        let group = |key: &str| {
            let mut axes = self.axes.iter();
            axes.find(|axis| axis.key == key).map(|axis| axis.group)
        };
        group(first).is_some_and(|known| group(second) == Some(known))
    }
}

impl CellOutline {
    /// Returns the values of the sweep's axes with their names: `rtt = 100 ms, loss = 1 %`.
    pub fn describe(&self, axes: &[OutlineAxis]) -> String {
        let named = axes.iter().zip(&self.labels);
        let named: Vec<String> = named
            .map(|(axis, label)| format!("{} = {label}", axis.key))
            .collect();
        named.join(", ")
    }
}
