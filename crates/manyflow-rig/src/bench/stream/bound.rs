//! Measured values beside their bounds.

use anyhow::Result;
use serde_json::json;

use manyflow_terminal::Display;

/// The bounds that were checked.
#[derive(Debug, Default)]
pub(crate) struct Bounds {
    missed: Vec<String>,
    /// Whether values are only printed, because they are there for comparison.
    pub(crate) are_off: bool,
}

impl Bounds {
    /// Prints the headings of the table.
    pub(crate) fn print_head(display: &Display, title: &str) -> Result<()> {
        Ok(display.print_line(&format!("{title:<58} {:>10} {:>12}", "measured", "bound"))?)
    }

    /// Prints a value that must be at least `bound`.
    pub(crate) fn at_least(
        &mut self,
        display: &Display,
        name: &str,
        value: f64,
        bound: f64,
    ) -> Result<()> {
        self.check(display, name, value, (">=", bound), value >= bound)
    }

    /// Prints a value that must be at most `bound`.
    pub(crate) fn at_most(
        &mut self,
        display: &Display,
        name: &str,
        value: f64,
        bound: f64,
    ) -> Result<()> {
        self.check(display, name, value, ("<=", bound), value <= bound)
    }

    /// Prints a value that must be below `bound`.
    pub(crate) fn below(
        &mut self,
        display: &Display,
        name: &str,
        value: f64,
        bound: f64,
    ) -> Result<()> {
        self.check(display, name, value, ("<", bound), value < bound)
    }

    /// Prints a value that must be above `bound`.
    pub(crate) fn above(
        &mut self,
        display: &Display,
        name: &str,
        value: f64,
        bound: f64,
    ) -> Result<()> {
        self.check(display, name, value, (">", bound), value > bound)
    }

    /// Prints a value without a bound.
    pub(crate) fn note(&self, display: &Display, name: &str, value: f64) -> Result<()> {
        display.print_line(&format!("{name:<58} {value:>10.2} {:>12}", "-"))?;
        Ok(display
            .print_json(&json!({ "event": "measured", "name": name, "value": number(value) }))?)
    }

    fn check(
        &mut self,
        display: &Display,
        name: &str,
        value: f64,
        (relation, bound): (&str, f64),
        holds: bool,
    ) -> Result<()> {
        if self.are_off {
            return self.note(display, name, value);
        }
        let limit = format!("{relation} {bound:.2}");
        let remark = if holds { "" } else { "  MISSED" };
        display.print_line(&format!("{name:<58} {value:>10.2} {limit:>12}{remark}"))?;
        display.print_json(&json!({
            "event": "measured", "name": name, "value": number(value), "relation": relation,
            "bound": bound, "holds": holds,
        }))?;
        if !holds {
            self.missed.push(format!("{name}: {value:.2}, not {limit}"));
        }
        Ok(())
    }

    /// Returns the names of the bounds that were missed, with both values.
    pub(crate) fn missed(&self) -> &[String] {
        &self.missed
    }
}

/// Returns a number for JSON, which has no infinity.
fn number(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}
