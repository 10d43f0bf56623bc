//! Checks expectations.

use std::collections::BTreeSet;

use super::cells::{Bounds, CellResult};
use super::seeds;
use manyflow_model::tables::{Across, ExpectTable};
use manyflow_model::{Expression, Fault, Job, OutlineAxis, Quantity, mean, quantile, short};

/// An expectation with its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    /// The expectation in words.
    pub what: String,
    /// The value. If every cell has to meet the bounds, the worst one.
    pub value: Option<Quantity>,
    /// The lower bound.
    pub at_least: Option<Quantity>,
    /// The upper bound.
    pub at_most: Option<Quantity>,
    /// The verdict.
    pub verdict: Verdict,
    /// The number of the cell that has the value; `None` if the value is one over several cells, or
    /// there is none.
    pub cell: Option<usize>,
    /// The cell that has the value, or the reason why there is none.
    pub note: String,
    /// The value in the paper, as text.
    pub paper: Option<String>,
    /// The source of the bound.
    pub source: String,
    /// Whether numbers are shown as percentages.
    pub percent: bool,
}

/// The result of an expectation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The value is within its bounds.
    Met,
    /// The value is outside its bounds.
    Missed,
    /// There is no value to compare with the bounds.
    NoValue,
    /// Some of the cells that the expectation concerns were not to be run.
    NotJudged,
}

impl Verdict {
    /// Returns the verdict in words.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::NoValue => "no value",
            Verdict::NotJudged => "not judged",
        }
    }
}

/// Returns every expectation with its verdict. An expectation that concerns a cell without a run in
/// `jobs` is not judged.
pub(super) fn expectations(
    axes: &[OutlineAxis],
    fast: bool,
    cells: &[CellResult],
    jobs: &[Job],
) -> Vec<Checked> {
    let Some(first) = cells.first() else {
        return Vec::new();
    };
    let wanted: BTreeSet<usize> = jobs.iter().map(|job| job.cell).collect();
    let checked = |expect: &ExpectTable| {
        let bounds = Bounds::of(expect, fast);
        let chosen = cells
            .iter()
            .enumerate()
            .filter(|(_, cell)| cell.is_chosen(axes, &expect.only, expect.condition.as_ref()));
        let (places, chosen): (Vec<usize>, Vec<&CellResult>) = chosen.unzip();
        if places.iter().any(|place| !wanted.contains(place)) {
            return Checked {
                verdict: Verdict::NotJudged,
                ..without_value(expect, "it concerns cells that were not run".to_owned())
            };
        }
        let outcome = judge(expect, &bounds, &chosen, axes);
        outcome.unwrap_or_else(|fault| without_value(expect, fault.to_string()))
    };
    first.cell.expect.iter().map(checked).collect()
}

/// Returns the verdict of one cell on each expectation, or `None` where it does not concern the
/// cell or is about several cells together.
pub(super) fn of_cell(axes: &[OutlineAxis], fast: bool, cell: &CellResult) -> Vec<Option<Verdict>> {
    let verdict = |expect: &ExpectTable| {
        let concerns = expect.across == Across::Every
            && cell.is_chosen(axes, &expect.only, expect.condition.as_ref());
        let judged = || judge(expect, &Bounds::of(expect, fast), &[cell], axes);
        concerns.then(|| judged().map_or(Verdict::NoValue, |checked| checked.verdict))
    };
    cell.cell.expect.iter().map(verdict).collect()
}

fn judge(
    expect: &ExpectTable,
    bounds: &Bounds<'_>,
    cells: &[&CellResult],
    axes: &[OutlineAxis],
) -> Result<Checked, Fault> {
    if cells.is_empty() {
        return Err(Fault::value(
            "`only` and `where` select no cell of the sweep",
        ));
    }
    if let Some(share) = expect.share_of_seeds {
        let checked = |cell: &&CellResult| of_seeds(expect, bounds, share.0, cell, axes);
        let checked = cells.iter().map(checked).collect::<Result<Vec<_>, _>>()?;
        return worst(checked);
    }
    let value = |cell: &&CellResult| {
        expect.value.evaluate(&cell.environment).map_err(|fault| {
            let why = cell.missing(&expect.value);
            placed(&why.unwrap_or(fault.problem.to_string()), cell, axes)
        })
    };
    let values = cells.iter().map(value).collect::<Result<Vec<_>, _>>()?;
    if expect.across != Across::Every {
        let numbers: Vec<f64> = values.iter().map(|value| value.value).collect();
        let value = across(expect, &numbers);
        let dimension = expect.across.dimension(values[0].dimension);
        let value = Quantity { value, dimension };
        let note = match cells.len() {
            1 => String::new(),
            count => format!("{} of {count} cells", expect.across.word()),
        };
        return compare(expect, bounds, value, cells[0], note);
    }
    let checked = cells.iter().zip(values).map(|(cell, value)| {
        let note = cell.describe(axes);
        let checked = compare(expect, bounds, value, cell, note);
        checked.map(|checked| Checked {
            cell: Some(cell.cell.index),
            ..checked
        })
    });
    worst(checked.collect::<Result<Vec<_>, _>>()?)
}

/// Returns the expectation with the smallest margin, or the first of several.
fn worst(checked: Vec<Checked>) -> Result<Checked, Fault> {
    let lower = |worst: Checked, next: Checked| match next.margin() < worst.margin() {
        true => next,
        false => worst,
    };
    let worst = checked.into_iter().reduce(lower);
    worst.ok_or_else(|| Fault::value("nothing to compare"))
}

/// Returns a problem with the name of its cell.
fn placed(why: &str, cell: &CellResult, axes: &[OutlineAxis]) -> Fault {
    match cell.describe(axes) {
        place if place.is_empty() => Fault::value(why),
        place => Fault::value(format!("{why}, in cell {}: {place}", cell.cell.index)),
    }
}

/// Checks that a share of a cell's seeds meets the bounds, each seed with its own value.
fn of_seeds(
    expect: &ExpectTable,
    bounds: &Bounds<'_>,
    share: f64,
    cell: &CellResult,
    axes: &[OutlineAxis],
) -> Result<Checked, Fault> {
    let count = cell.seeds.len();
    if count == 0 {
        return Err(placed("no run gave a value", cell, axes));
    }
    let outside = cell.seeds_outside(&expect.value, bounds);
    let kept = (count - outside.len()) as f64 / count as f64;
    let mut notes = vec![cell.describe(axes)];
    if !outside.is_empty() {
        notes.push(format!("not {}", seeds::described(&outside)));
    }
    notes.retain(|note| !note.is_empty());
    Ok(Checked {
        value: Some(Quantity::number(kept)),
        at_least: Some(Quantity::number(share)),
        verdict: match kept >= share {
            true => Verdict::Met,
            false => Verdict::Missed,
        },
        percent: true,
        cell: Some(cell.cell.index),
        ..without_value(expect, notes.join("; "))
    })
}

fn across(expect: &ExpectTable, values: &[f64]) -> f64 {
    let extreme =
        |choose: fn(f64, f64) -> f64| values.iter().copied().reduce(choose).unwrap_or(f64::NAN);
    match expect.across {
        Across::Mean | Across::Every => mean(values),
        Across::Median => quantile(values, 0.5),
        Across::Quantile => quantile(values, expect.quantile.map_or(0.5, |q| q.0)),
        Across::Min => extreme(f64::min),
        Across::Max => extreme(f64::max),
        Across::Ratio => extreme(f64::max) / extreme(f64::min),
        Across::SmallestStep => {
            let steps = values.windows(2).map(|pair| pair[1] - pair[0]);
            steps.reduce(f64::min).unwrap_or(f64::NAN)
        }
    }
}

fn compare(
    expect: &ExpectTable,
    bounds: &Bounds<'_>,
    value: Quantity,
    cell: &CellResult,
    note: String,
) -> Result<Checked, Fault> {
    if !value.value.is_finite() {
        return Err(Fault::value("the result is not a finite number"));
    }
    let evaluate = |bound: Option<&Expression>| {
        bound
            .map(|bound| bound.evaluate(&cell.environment))
            .transpose()
    };
    let mut checked = Checked {
        value: Some(value),
        at_least: evaluate(bounds.at_least)?,
        at_most: evaluate(bounds.at_most)?,
        note,
        ..without_value(expect, String::new())
    };
    if let (Some(low), Some(high)) = (checked.at_least, checked.at_most)
        && low.value > high.value
    {
        let message = format!("`at-least` evaluates to {low}, above `at-most`, {high}");
        return Err(Fault::value(message));
    }
    checked.verdict = match checked.margin() >= 0.0 {
        true => Verdict::Met,
        false => Verdict::Missed,
    };
    Ok(checked)
}

fn without_value(expect: &ExpectTable, note: String) -> Checked {
    Checked {
        what: expect.what.clone(),
        value: None,
        at_least: None,
        at_most: None,
        verdict: Verdict::NoValue,
        cell: None,
        note,
        paper: expect.paper.clone(),
        source: expect.source.clone(),
        percent: expect.percent,
    }
}

impl Checked {
    /// Returns the distance of the value from its bounds. It is negative outside.
    fn margin(&self) -> f64 {
        let Some(value) = self.value else {
            return f64::NEG_INFINITY;
        };
        let above = self
            .at_least
            .map_or(f64::INFINITY, |bound| value.value - bound.value);
        let below = self
            .at_most
            .map_or(f64::INFINITY, |bound| bound.value - value.value);
        above.min(below)
    }

    /// Returns one line for a terminal: the verdict, the expectation, the value and its bounds. If
    /// the value is outside, also the cell that has it, which `manyflow sim --cell` runs alone.
    pub fn line(&self) -> String {
        let paper = self.paper.as_ref();
        let paper = paper.map_or(String::new(), |paper| format!("; paper: {paper}"));
        let word = match self.verdict {
            Verdict::Met => "met   ",
            Verdict::Missed => "MISSED",
            Verdict::NoValue => return format!("MISSED {}: no value; {}", self.what, self.note),
            Verdict::NotJudged => return format!("not judged {}: {}", self.what, self.note),
        };
        let (shown, bounds) = (self.shown(), self.bounds());
        let place = self.place();
        format!("{word} {}: {shown} ({bounds}{paper}){place}", self.what)
    }

    /// Names the cell of a value outside its bounds, if the scenario has several cells.
    fn place(&self) -> String {
        match (self.verdict, self.cell, self.note.as_str()) {
            (Verdict::Missed, Some(cell), note) if !note.is_empty() => {
                format!("; in cell {cell}: {note}")
            }
            (Verdict::Missed, None, note) if !note.is_empty() => format!("; {note}"),
            _ => String::new(),
        }
    }

    /// Formats the value.
    pub fn shown(&self) -> String {
        self.value
            .map_or("none".to_owned(), |value| self.show(value))
    }

    /// Formats the bounds.
    pub fn bounds(&self) -> String {
        match (self.at_least, self.at_most) {
            (Some(low), Some(high)) => format!("{} to {}", self.show(low), self.show(high)),
            (Some(low), None) => format!("at least {}", self.show(low)),
            (None, Some(high)) => format!("at most {}", self.show(high)),
            (None, None) => String::new(),
        }
    }

    fn show(&self, quantity: Quantity) -> String {
        match self.percent {
            true => format!("{} %", short(quantity.value * 100.0)),
            false => quantity.to_string(),
        }
    }
}
