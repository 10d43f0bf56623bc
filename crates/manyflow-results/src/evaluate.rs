//! Collects runs into cells, and checks expectations.

use std::collections::{BTreeMap, BTreeSet};

use super::seeds;
use manyflow_model::tables::{Across, ExpectTable, Label};
use manyflow_model::{
    CellOutline, Environment, Expression, Fault, Job, OutlineAxis, Quantity, Run, Samples, mean,
    quantile, short,
};

/// A cell of the sweep, with the results of its runs.
#[derive(Clone, Debug)]
pub struct CellResult {
    /// The cell.
    pub cell: CellOutline,
    /// The seeds of the runs that succeeded.
    pub seeds: Vec<u64>,
    /// The parameters and measures. A measure has a sample for each seed, which is NaN if nothing
    /// was observed.
    pub environment: Environment,
}

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

impl CellResult {
    /// Evaluates the measures of a cell. `runs` are its runs, in the order of their seeds.
    pub fn new<'a>(cell: CellOutline, runs: impl IntoIterator<Item = &'a Run>) -> CellResult {
        let runs: Vec<&Run> = runs.into_iter().collect();
        CellResult {
            environment: environment(&cell, &runs),
            seeds: runs.iter().map(|run| run.seed).collect(),
            cell,
        }
    }

    /// Returns the values of the sweep's axes with their names: `rtt = 100 ms, loss = 1 %`.
    pub fn describe(&self, axes: &[OutlineAxis]) -> String {
        self.cell.describe(axes)
    }

    /// Returns whether the cell has the values of `only` and the condition holds. A condition
    /// without a value does not hold.
    pub(super) fn is_chosen(
        &self,
        axes: &[OutlineAxis],
        only: &BTreeMap<String, Label>,
        condition: Option<&Expression>,
    ) -> bool {
        let labels = || axes.iter().zip(&self.cell.labels);
        let has = |(key, Label(wanted)): (&String, &Label)| {
            labels().any(|(axis, label)| axis.key == *key && label == wanted)
        };
        let holds = |condition: &Expression| {
            let value = condition.evaluate(&self.environment);
            value.is_ok_and(|value| value.value != 0.0)
        };
        only.iter().all(has) && condition.is_none_or(holds)
    }
}

/// Returns the cells, with the samples of their measures.
pub(super) fn cells(cells: Vec<CellOutline>, runs: &[&Run]) -> Vec<CellResult> {
    let own = |index| runs.iter().copied().filter(move |run| run.cell == index);
    let results = cells.into_iter().map(|cell| {
        let index = cell.index;
        CellResult::new(cell, own(index))
    });
    results.collect()
}

/// Evaluates the measures in the order of the file. A formula can use the measures before it.
fn environment(cell: &CellOutline, runs: &[&Run]) -> Environment {
    let mut environment = cell.parameters.clone();
    for (index, measure) in cell.measure.iter().enumerate() {
        let samples = match &measure.value {
            Some(formula) => formula.known_samples(&environment).unwrap_or_else(|_| {
                let dimension = formula.dimension(&environment).unwrap_or_default();
                let values = vec![f64::NAN; runs.len().max(1)];
                Samples { values, dimension }
            }),
            None => {
                let mut values: Vec<f64> = runs.iter().map(|run| run.measures[index]).collect();
                if values.is_empty() {
                    values.push(f64::NAN);
                }
                let dimension = measure.dimension();
                Samples { values, dimension }
            }
        };
        environment.insert(measure.name.clone(), samples);
    }
    environment
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

/// The bounds that apply. In shortened runs, the bounds in `fast` replace the others.
pub(super) struct Bounds<'a> {
    pub(super) at_least: Option<&'a Expression>,
    pub(super) at_most: Option<&'a Expression>,
}

impl<'a> Bounds<'a> {
    fn of(expect: &'a ExpectTable, fast: bool) -> Bounds<'a> {
        match expect.fast.as_ref().filter(|_| fast) {
            Some(own) => Bounds {
                at_least: own.at_least.as_ref(),
                at_most: own.at_most.as_ref(),
            },
            None => Bounds {
                at_least: expect.at_least.as_ref(),
                at_most: expect.at_most.as_ref(),
            },
        }
    }
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
        compare(expect, bounds, value, cell, note)
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
        place => Fault::value(format!("{why}, at {place}")),
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
