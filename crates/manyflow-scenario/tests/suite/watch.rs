//! Tests of runs that are watched, of the plots that a watcher adds, and of maps.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use manyflow_scenario::*;

const EVENTFUL: &str = include_str!("../eventful.toml");
const OVERLAY: &str = include_str!("../../../../scenarios/cb-4.toml");
const CHANNELS: &str = include_str!("../../../../scenarios/webrc-4.toml");
const LAYERED: &str = include_str!("../../../../scenarios/sim-2.toml");

const JOB: Job = Job {
    cell: 0,
    seed: 1,
    place: 0,
};

fn scenario(text: &str) -> Scenario {
    let form = Form {
        fast: true,
        cell: Some(0),
        ..Form::default()
    };
    Scenario::parse_form("watched.toml", text, form).unwrap()
}

/// The name of a series: plot, line, subject and channel.
type Key = (usize, usize, String, Option<u16>);

/// Runs a scenario, and returns its samples with the run.
fn watched(scenario: &Scenario) -> (Vec<Sample>, Run) {
    let mut samples = Vec::new();
    let inspection = Inspection {
        watch: Some(&mut |sample| {
            samples.push(sample);
            ControlFlow::Continue(())
        }),
        ..Inspection::default()
    };
    let run = scenario.run_inspected(JOB, inspection).unwrap();
    (samples, run)
}

/// Joins the points of all samples.
fn joined(samples: &[Sample]) -> BTreeMap<Key, Vec<(f64, f64)>> {
    let mut keys: Vec<Key> = Vec::new();
    let mut series = BTreeMap::new();
    for sample in samples {
        for begun in &sample.series {
            let key = (begun.plot, begun.line, begun.of.clone(), begun.channel);
            series.insert(key.clone(), Vec::new());
            keys.push(key);
        }
        for (number, points) in &sample.points {
            let known = series.get_mut(&keys[*number as usize]).unwrap();
            known.extend_from_slice(points);
        }
    }
    series
}

fn recorded(run: &Run) -> BTreeMap<Key, Vec<(f64, f64)>> {
    let mut all = BTreeMap::new();
    for (plot, lines) in run.series.iter().enumerate() {
        for (line, series) in lines.iter().enumerate() {
            for one in series {
                let key = (plot, line, one.of.clone(), one.channel);
                all.insert(key, one.points.clone());
            }
        }
    }
    all
}

/// Returns whether two runs have the same numbers; measures can be NaN.
fn is_same(run: &Run, other: &Run) -> bool {
    format!("{run:?}") == format!("{other:?}")
}

#[test]
fn a_watched_run_is_the_same_and_its_samples_have_all_points() {
    for text in [EVENTFUL, OVERLAY, CHANNELS, LAYERED] {
        let plain = scenario(text);
        let (samples, run) = watched(&plain);
        assert!(is_same(&run, &plain.run_one(JOB).unwrap()));
        assert!(
            joined(&samples) == recorded(&run),
            "{}",
            plain.cell(0).unwrap().schema.title
        );
        let times: Vec<f64> = samples.iter().map(|sample| sample.time_s).collect();
        assert!(times.is_sorted() && times.len() > 200, "{}", times.len());
        let duration = plain.cell(0).unwrap().schema.run.duration.0;
        assert_eq!(times.last(), Some(&duration));
    }
}

#[test]
fn added_plots_change_nothing_of_a_run() {
    for text in [EVENTFUL, OVERLAY, LAYERED] {
        let plain = scenario(text).run_one(JOB).unwrap();
        let overview = scenario(text).with_overview(0).unwrap();
        let (samples, mut run) = watched(&overview);
        assert!(joined(&samples) == recorded(&run));
        assert!(run.series.len() > plain.series.len());
        run.series.truncate(plain.series.len());
        assert!(is_same(&run, &plain));
    }
}

#[test]
fn plots_are_added_for_what_the_file_does_not_show() {
    let overview = scenario(OVERLAY).with_overview(0).unwrap();
    let plots = overview.cell(0).unwrap().schema.plots;
    let names: Vec<&str> = plots.iter().map(|plot| plot.name.as_str()).collect();
    // The file shows the rates and the overlay's queues.
    assert_eq!(
        names,
        ["buffers", "rates", "overview-queues", "overview-drops"]
    );
}

#[test]
fn a_watcher_stops_a_run() {
    let scenario = scenario(OVERLAY);
    let mut count = 0;
    let inspection = Inspection {
        watch: Some(&mut |_| {
            count += 1;
            match count {
                3 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }),
        ..Inspection::default()
    };
    let failed = scenario.run_inspected(JOB, inspection).unwrap_err();
    assert_eq!(failed.message, "the run was stopped");
    assert_eq!(count, 3);
}

#[test]
fn links_of_samples_are_those_of_the_map() {
    let scenario = scenario(OVERLAY);
    let map = scenario.map(0, 7).unwrap().unwrap();
    assert_eq!(scenario.map(0, 6).unwrap(), None);
    let (samples, _) = watched(&scenario);
    let last = samples.last().unwrap();
    assert_eq!(last.links.len(), map.links.len());
    let node = |name: &str| map.nodes.iter().position(|node| node == name).unwrap() as u32;
    let bottleneck = (node("B"), node("D"));
    let place = map
        .links
        .iter()
        .position(|link| (link.from, link.to) == bottleneck)
        .unwrap();
    assert_eq!(map.links[place].rate, Some(1_000_000));
    let rate = last.links[place].delivered_bytes as f64 * 8.0 / last.time_s;
    assert!((0.8e6..1.0e6).contains(&rate), "{rate}");
    // Messages wait for the bottleneck of the overlay, and have their price.
    let overlay = &map.overlays[0];
    let place = overlay
        .links
        .iter()
        .position(|link| *link == bottleneck)
        .unwrap();
    let state = last.overlays[0][place];
    assert!(
        state.waiting > 10 && state.price_dollars.unwrap() > 0.0,
        "{state:?}"
    );
    let (_, tree) = map.sessions[1].overlay.clone().unwrap();
    let tree: Vec<(u32, u32)> = tree
        .iter()
        .map(|&link| overlay.links[link as usize])
        .collect();
    let expected = [("A", "B"), ("B", "D"), ("B", "E"), ("E", "G")];
    let mut expected = expected.map(|(from, to)| (node(from), node(to)));
    let mut tree = tree;
    tree.sort_unstable();
    expected.sort_unstable();
    assert_eq!(tree, expected);
}
