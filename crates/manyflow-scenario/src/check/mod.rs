//! Checks of a whole scenario: names exist, receivers can be reached, and the units of formulas
//! fit.

mod reports;

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::Plan;
use crate::plan::overlays::Overlays;
use crate::plan::sessions::{PlannedSession, REPETITIONS_MAX, Sessions};
use crate::plan::topology::{Reach, Topology};
use crate::schema::Cell;
use crate::schema::{Across, ExpectTable, Label, MeasureTable, PlotTable, Schema};
use manyflow_model::error::{Fault, Problem};
use manyflow_model::expression::{Environment, Expression, Samples};
use manyflow_model::file::sweep::Axis;
use manyflow_model::names::formula_name;
use manyflow_model::observables::{Observable, Statistic, Subject};
use manyflow_model::quantity::{Dimension, Quantity};

/// Checks the plan of a cell.
pub(crate) fn check(plan: &Plan, axes: &[Axis]) -> Result<(), Fault> {
    let Plan {
        cell,
        topology,
        sessions,
        ..
    } = plan;
    let schema = &cell.schema;
    reachable(sessions, topology)?;
    links(topology)?;
    changes(schema, topology)?;
    let names = Names::of(plan);
    let environment = measures(cell, &names)?;
    plots(schema, axes, &names, &environment)?;
    for (index, expect) in schema.expect.iter().enumerate() {
        expectation(expect, axes, &environment)
            .map_err(|fault| fault.within(&index.to_string()).within("expect"))?;
    }
    Ok(())
}

/// Checks the times in `[run]`.
pub(crate) fn run(schema: &Schema) -> Result<(), Fault> {
    let run = &schema.run;
    let refuse =
        |key, message: &str| Err(Fault::at(&["run", key], Problem::Value(message.to_owned())));
    if run.duration.0 <= 0.0 {
        return refuse("duration", "a run has to last longer than 0 s");
    }
    if run.steady_from.is_some_and(|from| from >= run.duration) {
        return refuse(
            "steady-from",
            "the steady state begins after the end of the run",
        );
    }
    bin(run.bin.0, run.duration.0).map_err(|fault| fault.within("bin").within("run"))
}

/// Checks that a series has at most a million points.
fn bin(bin_s: f64, duration_s: f64) -> Result<(), Fault> {
    match bin_s > 0.0 && duration_s / bin_s <= 1e6 {
        true => Ok(()),
        false => Err(Fault::value(
            "this divides a run into more than a million intervals",
        )),
    }
}

fn reachable(sessions: &Sessions, topology: &Topology) -> Result<(), Fault> {
    let reach = Reach::new(topology);
    // Overlay sessions run over daemons, whose links have been checked already.
    let direct = |session: &&PlannedSession| session.affiliation.is_none();
    for session in sessions.0.iter().filter(direct) {
        let reached = reach.both_ways(session.sender);
        let alone = |receiver: &&crate::plan::sessions::Receiver| !reached[receiver.node as usize];
        if let Some(receiver) = session.receivers.iter().find(alone) {
            let [from, to] = [session.sender, receiver.node].map(|node| topology.nodes.get(node));
            let message = format!("no links lead from `{from}` to `{to}` and back");
            return Err(session.fault("receivers", Problem::Value(message)));
        }
        let mut initiators = session.initiators.iter();
        if let Some(&initiator) = initiators.find(|node| !reached[**node as usize]) {
            let [from, to] = [session.sender, initiator].map(|node| topology.nodes.get(node));
            let message = format!("no links lead from `{from}` to `{to}` and back");
            return Err(session.fault("acp", Problem::Value(message)));
        }
        let mut switches = session.switches.iter();
        if let Some(switch) = switches.find(|switch| !reached[switch.node as usize]) {
            let [from, to] = [session.sender, switch.node].map(|node| topology.nodes.get(node));
            let message = format!("no links lead from `{from}` to the switch at `{to}` and back");
            return Err(session.fault("acp", Problem::Value(message)));
        }
    }
    Ok(())
}

fn links(topology: &Topology) -> Result<(), Fault> {
    for link in &topology.links {
        crate::schema::links::check(&link.config).map_err(|why| {
            let [from, to] = [link.from, link.to].map(|node| topology.nodes.get(node));
            Fault::at(&["links"], Problem::Value(format!("`{from}-{to}`: {why}")))
        })?;
    }
    Ok(())
}

fn changes(schema: &Schema, topology: &Topology) -> Result<(), Fault> {
    for (index, change) in schema.at.iter().enumerate() {
        let fault = |key: &str, problem| Fault::at(&["at", &index.to_string(), key], problem);
        let changed = topology
            .links_named(&change.link)
            .map_err(|problem| fault("link", problem))?;
        let one_queue = change.set.check();
        one_queue.map_err(|why| fault("set", Problem::Value(why.to_owned())))?;
        for link in changed {
            let mut config = topology.links[link as usize].config.as_ref().clone();
            change.set.apply(&mut config);
            crate::schema::links::check(&config)
                .map_err(|why| fault("set", Problem::Value(why.to_owned())))?;
        }
        if change.time > schema.run.duration {
            let message = "this is after the end of the run".to_owned();
            return Err(fault("time", Problem::Value(message)));
        }
        if change.then.is_some() && change.every.is_none() {
            let message = "`then` needs an `every`: the two changes alternate".to_owned();
            return Err(fault("then", Problem::Value(message)));
        }
        let end = change.until.unwrap_or(schema.run.duration);
        let often = change.every.map(|every| (end.0 - change.time.0) / every.0);
        if often.is_some_and(|often| often.is_nan() || often > f64::from(REPETITIONS_MAX)) {
            let message = format!("this makes more than {REPETITIONS_MAX} changes");
            return Err(fault("every", Problem::Value(message)));
        }
    }
    Ok(())
}

/// The names that the keys `of` and `link` can refer to.
pub(crate) struct Names<'a> {
    schema: &'a Schema,
    topology: &'a Topology,
    overlays: &'a Overlays,
    sessions: &'a Sessions,
}

impl<'a> Names<'a> {
    pub(crate) fn of(plan: &'a Plan) -> Names<'a> {
        Names {
            schema: &plan.cell.schema,
            topology: &plan.topology,
            overlays: &plan.overlays,
            sessions: &plan.sessions,
        }
    }

    /// Checks that `of` names something that reports `what`.
    pub(crate) fn check(&self, what: Observable, of: &str) -> Result<(), Fault> {
        let found = match self.sessions.subject_named(what, of, self.topology) {
            Subject::OverlayLink => self.overlays.link_named(of, self.topology).map(|_| ()),
            Subject::Clients => self.sessions.clients_named(of).map(|_| ()),
            Subject::Group => self.sessions.affiliated(of).map(|_| ()),
            Subject::Reporter => {
                let reporter = self
                    .sessions
                    .reporter_named(of, self.overlays, self.topology);
                reporter.map(|_| ())
            }
            Subject::Link | Subject::LinkOrEndpoint => self.topology.links_named(of).map(|_| ()),
            Subject::Sender => self.sessions.named(of).map(|_| ()),
            Subject::Endpoint if self.sessions.staff_named(of, self.topology).is_some() => Ok(()),
            Subject::Endpoint if self.overlays.daemon_named(of, self.topology).is_some() => Ok(()),
            Subject::Endpoint | Subject::Audience => {
                match self.sessions.pairs_named(of, self.topology) {
                    Some(pairs) => pairs.map(|_| ()),
                    None => self.sessions.receivers_named(of, self.topology).map(|_| ()),
                }
            }
        };
        found.map_err(|problem| Fault::at(&["of"], problem))?;
        let network = (self.schema, self.topology);
        reports::check(what, of, network, self.overlays, self.sessions)
    }
}

/// Checks the measures. Returns the names that formulas can use, each with its unit and a
/// placeholder value.
fn measures(cell: &Cell, names: &Names<'_>) -> Result<Environment, Fault> {
    let mut environment = cell.parameters.clone();
    let duration_s = cell.schema.run.duration.0;
    for measure in &cell.schema.measure {
        let within = |fault: Fault| fault.within(&measure.name).within("measure");
        formula_name(&measure.name).map_err(|fault| within(fault.within("name")))?;
        if environment.contains_key(&measure.name) {
            let message = format!("there is another measure or parameter `{}`", measure.name);
            return Err(within(Fault::at(&["name"], Problem::Value(message))));
        }
        window(measure, &cell.schema).map_err(within)?;
        if let Some(length) = measure.bin {
            bin(length.0, duration_s).map_err(|fault| within(fault.within("bin")))?;
        }
        let dimension = measure_dimension(measure, cell, names, &environment).map_err(within)?;
        let values = vec![1.0];
        environment.insert(measure.name.clone(), Samples { values, dimension });
    }
    Ok(environment)
}

/// Checks that the window begins before it ends, and ends before the run does.
fn window(measure: &MeasureTable, schema: &Schema) -> Result<(), Fault> {
    let run = &schema.run;
    let (from, to) = (
        measure.from.unwrap_or(run.steady_from()),
        measure.to.unwrap_or(run.duration),
    );
    let refuse = |key, message: &str| Err(Fault::at(&[key], Problem::Value(message.to_owned())));
    match () {
        _ if to > run.duration => refuse("to", "the window ends after the run"),
        _ if from >= to && measure.from.is_none() => refuse(
            "to",
            "the window ends before the steady state begins: give a `from`",
        ),
        _ if from >= to => refuse("from", "the window begins after its end"),
        _ => Ok(()),
    }
}

fn measure_dimension(
    measure: &MeasureTable,
    cell: &Cell,
    names: &Names<'_>,
    environment: &Environment,
) -> Result<Dimension, Fault> {
    let missing = |message: &str| Err(Fault::value(message));
    let what = match (&measure.value, measure.what) {
        (Some(formula), None) => return dimension(formula, environment, "value"),
        (None, Some(what)) => what,
        _ => return missing("a measure takes either `value` or `what`"),
    };
    if measure.of.0.is_empty() {
        return missing("the key `of` is missing: give a session, receiver or link");
    }
    for of in &measure.of.0 {
        names.check(what, of)?;
    }
    let statistic = measure.statistic_or_default(what);
    match &measure.against {
        Some(against) => {
            let mut of = against.of.0.iter();
            let known = of.try_for_each(|of| names.check(against.what, of));
            known.map_err(|fault| fault.within("against"))?;
            let (given, wanted) = (against.what.dimension(), what.dimension());
            if statistic != Statistic::Correlation && given != wanted {
                return Err(unit_fault("what", given, wanted).within("against"));
            }
        }
        None if statistic == Statistic::Correlation => {
            return missing("`statistic = \"correlation\"` takes `against`: with what");
        }
        None => {}
    }
    let timed = matches!(statistic, Statistic::TimeToRise | Statistic::TimeToFall);
    match &measure.level {
        None if timed => return missing("`time-to-rise` and `time-to-fall` take a `level`"),
        Some(level) => {
            let given = dimension(level, &cell.parameters, "level")?;
            let wanted = measure.value_dimension(what);
            if given != wanted {
                return Err(unit_fault("level", given, wanted));
            }
        }
        None => {}
    }
    match statistic {
        Statistic::Total if measure.against.is_none() && what.is_level() => missing(&format!(
            "`total` adds up counts, but `{}` is a level: take `mean`",
            what.name()
        )),
        Statistic::LongestSilence if what.is_event() => missing(&format!(
            "`longest-silence` counts intervals, but `{}` is reported at events: take a rate",
            what.name()
        )),
        Statistic::Quantile if measure.quantile.is_none() => {
            missing("`statistic = \"quantile\"` takes a `quantile`")
        }
        _ => Ok(measure.dimension()),
    }
}

fn dimension(
    formula: &Expression,
    environment: &Environment,
    key: &str,
) -> Result<Dimension, Fault> {
    formula
        .dimension(environment)
        .map_err(|fault| fault.within(key))
}

fn unit_fault(key: &str, given: Dimension, wanted: Dimension) -> Fault {
    let (given, wanted) = (given.described(), wanted.described());
    let message = format!("this is {given}, where a quantity {wanted} is expected");
    Fault::at(
        &[key],
        Problem::Value(message.replace("a quantity a ", "a ")),
    )
}

/// Checks that the axes of `only` and their values exist in the sweep.
fn only(chosen: &BTreeMap<String, Label>, axes: &[Axis]) -> Result<(), Fault> {
    for (key, Label(label)) in chosen {
        let keys = || axes.iter().map(|axis| axis.key.as_str());
        let axis = axes.iter().find(|axis| axis.key == *key);
        let Some(axis) = axis else {
            let problem = Problem::unknown("axis of the sweep", key, keys());
            return Err(Fault::at(&["only"], problem));
        };
        let labels: Vec<String> = axis.labels().collect();
        if !labels.contains(label) {
            let known = labels.iter().map(String::as_str);
            let problem = Problem::unknown("value of this axis", label, known);
            return Err(Fault::at(&["only", key], problem));
        }
    }
    Ok(())
}

fn expectation(
    expect: &ExpectTable,
    axes: &[Axis],
    environment: &Environment,
) -> Result<(), Fault> {
    only(&expect.only, axes)?;
    let wanted = expect
        .across
        .dimension(dimension(&expect.value, environment, "value")?);
    if let Some(condition) = &expect.condition {
        dimension(condition, environment, "where")?;
    }
    if expect.share_of_seeds.is_some() && expect.across != Across::Every {
        let message = "`share-of-seeds` applies to each cell: leave out `across`".to_owned();
        return Err(Fault::at(&["across"], Problem::Value(message)));
    }
    let own = [("at-least", &expect.at_least), ("at-most", &expect.at_most)];
    if own.iter().all(|(_, bound)| bound.is_none()) {
        return Err(Fault::value(
            "an expectation takes `at-least`, `at-most` or both",
        ));
    }
    let fast = expect
        .fast
        .iter()
        .flat_map(|fast| [("at-least", &fast.at_least), ("at-most", &fast.at_most)]);
    let fast_bounds = expect.fast.as_ref();
    let fast_bounds = fast_bounds.map(|fast| (&fast.at_least, &fast.at_most));
    in_order(&expect.at_least, &expect.at_most)?;
    if let Some((at_least, at_most)) = fast_bounds {
        in_order(at_least, at_most).map_err(|fault| fault.within("fast"))?;
    }
    for (key, bound) in own.into_iter().chain(fast) {
        let Some(bound) = bound else { continue };
        let given = dimension(bound, environment, key)?;
        if given != wanted {
            return Err(unit_fault(key, given, wanted));
        }
    }
    Ok(())
}

/// Checks that the lower bound is not above the upper bound. Bounds that contain names cannot
/// be compared here.
fn in_order(at_least: &Option<Expression>, at_most: &Option<Expression>) -> Result<(), Fault> {
    let known = |bound: &Option<Expression>| {
        let value = bound.as_ref()?.evaluate(&Environment::new());
        value.ok()
    };
    match known(at_least).zip(known(at_most)) {
        Some((low, high)) if low.value > high.value => {
            let message = format!("{low} is above `at-most`, {high}: no value can meet both");
            Err(Fault::at(&["at-least"], Problem::Value(message)))
        }
        _ => Ok(()),
    }
}

fn plots(
    schema: &Schema,
    axes: &[Axis],
    names: &Names<'_>,
    environment: &Environment,
) -> Result<(), Fault> {
    let mut used = BTreeSet::new();
    for plot in &schema.plots {
        let within = |fault: Fault| fault.within(&plot.name).within("plots");
        if !used.insert(&plot.name) {
            let message = format!("there are two plots called `{}`", plot.name);
            return Err(within(Fault::at(&["name"], Problem::Value(message))));
        }
        only(&plot.only, axes).map_err(within)?;
        plot_names(plot, axes, names, environment).map_err(within)?;
        plot_units(plot, environment).map_err(within)?;
    }
    Ok(())
}

fn plot_names(
    plot: &PlotTable,
    axes: &[Axis],
    names: &Names<'_>,
    environment: &Environment,
) -> Result<(), Fault> {
    let keys = || axes.iter().map(|axis| axis.key.as_str());
    let x = plot.x.iter().map(|axis| ("x", axis));
    for (key, axis) in x.chain(plot.each.0.iter().map(|axis| ("each", axis))) {
        if keys().all(|key| key != *axis) {
            return Err(Fault::at(
                &[key],
                Problem::unknown("axis of the sweep", axis, keys()),
            ));
        }
    }
    if plot.x.is_some() != plot.series.is_empty() {
        return Err(Fault::value(
            "a plot takes either `series`, over time, or `x` and `points`",
        ));
    }
    for (index, series) in plot.series.iter().enumerate() {
        names
            .check(series.what, &series.of)
            .map_err(|fault| fault.within(&index.to_string()).within("series"))?;
    }
    for point in &plot.points {
        if !environment.contains_key(point) {
            let known = environment.keys().map(String::as_str);
            return Err(Fault::at(
                &["points"],
                Problem::unknown("measure", point, known),
            ));
        }
    }
    Ok(())
}

fn plot_units(plot: &PlotTable, environment: &Environment) -> Result<(), Fault> {
    let given = match &plot.y_unit {
        Some(unit) => Some(axis_unit("y-unit", unit)?.dimension),
        None => None,
    };
    if let Some(unit) = &plot.x_unit {
        axis_unit("x-unit", unit)?;
    }
    let series = plot.series.iter().map(|series| series.what.dimension());
    let points = plot.points.iter().map(|point| environment[point].dimension);
    let mut drawn: Vec<Dimension> = series.chain(points).collect();
    for (index, curve) in plot.curves.iter().enumerate() {
        let of = dimension(&curve.value, environment, "value");
        drawn.push(of.map_err(|fault| fault.within(&index.to_string()).within("curves"))?);
    }
    let wanted = given
        .or(drawn.first().copied())
        .unwrap_or(Dimension::NUMBER);
    match drawn.into_iter().find(|dimension| *dimension != wanted) {
        Some(other) => Err(unit_fault("y-unit", wanted, other)),
        None => Ok(()),
    }
}

/// Returns one of the unit in which an axis is drawn.
pub(crate) fn axis_unit(key: &str, unit: &str) -> Result<Quantity, Fault> {
    Quantity::of_unit(1.0, unit)
        .ok_or_else(|| Fault::at(&[key], Problem::Value(format!("there is no unit `{unit}`"))))
}
