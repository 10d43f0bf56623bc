//! Plots of rates, channels, queues and losses over time, for scenarios that plot other things.

use crate::check::Names;
use crate::file::Scenario;
use crate::plan::Plan;
use crate::plan::sessions::PlannedSession;
use crate::schema::protocols::Protocol;
use crate::schema::{LogAxes, Observable, OneOrMany, PlotTable, SeriesTable};
use manyflow_model::error::ScenarioError;
use manyflow_model::quantity::{Count, Seconds};

/// The maximum number of sessions that an added plot shows.
const SESSIONS_MAX: usize = 128;
/// The maximum number of receivers that an added plot shows.
const RECEIVERS_MAX: usize = 256;
/// The maximum number of links that an added plot shows.
const LINKS_MAX: usize = 24;

impl Scenario {
    /// Adds plots over time of the rates and channels of receivers, and of the queues and losses of
    /// links with a limited rate, as far as the plots of the file do not show these observables and
    /// the sessions of `cell` report them. They follow the plots of the file. They record more, and
    /// change nothing of a run.
    ///
    /// # Errors
    /// Returns the error in the cell's values. A file that [`parse`](Scenario::parse) has accepted
    /// has no such error.
    pub fn with_overview(mut self, cell: usize) -> Result<Scenario, ScenarioError> {
        let planned = Plan::new(self.cell(cell)?);
        let plan = planned.map_err(|fault| self.place(fault))?;
        self.overview = plots(&plan);
        Ok(self)
    }
}

/// Returns the plots that the file lacks.
fn plots(plan: &Plan) -> Vec<PlotTable> {
    let own = plan.cell.schema.plots.iter().flat_map(|plot| &plot.series);
    let own: Vec<Observable> = own.map(|series| series.what).collect();
    let rows = [
        ("overview-rates", "Rates of receivers", rates(plan)),
        (
            "overview-channels",
            "Channels that receivers have joined",
            of_sessions(plan, |_| Observable::Channels),
        ),
        (
            "overview-queues",
            "Queues",
            of_links(plan, Observable::Queue),
        ),
        (
            "overview-overlay-queues",
            "Messages that wait for links of overlays",
            of_overlay_links(plan),
        ),
        (
            "overview-drops",
            "Packets that queues drop, in each interval",
            of_links(plan, Observable::Drops),
        ),
    ];
    let rows = rows.into_iter().filter(|(_, _, series)| {
        let shown = series.first().is_none_or(|first| own.contains(&first.what));
        !shown
    });
    rows.map(|(name, title, series)| plot(name, title, series))
        .collect()
}

fn plot(name: &str, title: &str, series: Vec<SeriesTable>) -> PlotTable {
    PlotTable {
        title: title.to_owned(),
        name: name.to_owned(),
        series,
        x: None,
        points: Vec::new(),
        curves: Vec::new(),
        each: OneOrMany::default(),
        only: Default::default(),
        condition: None,
        x_label: None,
        y_label: None,
        y_unit: None,
        x_unit: None,
        log: LogAxes::None,
        from: Seconds::default(),
        to: None,
        y_min: None,
        y_max: None,
        seeds: Count(1.0),
    }
}

fn series(what: Observable, of: &str) -> SeriesTable {
    SeriesTable {
        what,
        of: of.to_owned(),
        label: None,
        bin: None,
        scale: None,
    }
}

/// Returns the rates of receivers. Where packets are not addressed to receivers, frames or messages
/// count.
fn rates(plan: &Plan) -> Vec<SeriesTable> {
    of_sessions(plan, |session| match session.protocol {
        Protocol::Acp | Protocol::Overlay => Observable::Goodput,
        _ => Observable::ReceivedRate,
    })
}

/// Returns a series of each session that reports the observable.
fn of_sessions(plan: &Plan, what: impl Fn(&PlannedSession) -> Observable) -> Vec<SeriesTable> {
    let names = Names::of(plan);
    let mut receivers = 0;
    let sessions = plan.sessions.0.iter().take(SESSIONS_MAX);
    let reporting = sessions.filter(|session| names.check(what(session), &session.name).is_ok());
    let few = reporting.take_while(|session| {
        receivers += session.receivers.len();
        receivers <= RECEIVERS_MAX
    });
    few.map(|session| series(what(session), &session.name))
        .collect()
}

/// Returns a series of each link with a limited rate.
fn of_links(plan: &Plan, what: Observable) -> Vec<SeriesTable> {
    let links = plan.topology.links.iter().zip(0u32..);
    let limited = links.filter(|(link, _)| link.config.rate.is_some());
    let named = limited.map(|(_, number)| plan.topology.link_name(number));
    named
        .take(LINKS_MAX)
        .map(|name| series(what, &name))
        .collect()
}

/// Returns a series of each link of each overlay.
fn of_overlay_links(plan: &Plan) -> Vec<SeriesTable> {
    let overlays = plan.overlays.0.iter().enumerate();
    let links = overlays.flat_map(|(number, overlay)| {
        let links = overlay.topology.links();
        links.map(move |link| {
            let ends = plan.overlays.link_name(number, link, &plan.topology);
            format!("{}/{ends}", overlay.name)
        })
    });
    links
        .take(LINKS_MAX)
        .map(|name| series(Observable::OverlayQueue, &name))
        .collect()
}
