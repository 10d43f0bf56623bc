//! A congestion control of one's own, evaluated by criteria of RFC 9743.
//!
//! Arguments are the names of scenarios, such as `collapse short`, or `all`. The default is
//! `collapse`.

#![allow(clippy::print_stdout, reason = "a program for the terminal")]

use std::error::Error;
use std::path::Path;

use manyflow_results::{Provenance, Results, Verdicts};
use manyflow_scenario::Controls;
use manyflow_scenario::evaluation::{Subject, scenarios};
use manyflow_tcp::{Control, Moment};

/// Slow start, then one segment more in each round-trip time, and 70 % of the window after a loss.
#[derive(Debug)]
struct Aimd {
    window: f64,
    threshold: f64,
}

impl Control for Aimd {
    fn on_ack(&mut self, moment: &Moment) {
        let acknowledged = f64::from(moment.acknowledged);
        match self.window < self.threshold {
            true => self.window += acknowledged,
            false => self.window += acknowledged / self.window,
        }
    }

    fn on_loss(&mut self, _moment: &Moment) {
        self.window = (0.7 * self.window).max(2.0);
        self.threshold = self.window;
    }

    fn on_timeout(&mut self, _moment: &Moment) {
        self.threshold = (self.window / 2.0).max(2.0);
        self.window = 1.0;
    }

    fn window_segments(&self) -> f64 {
        self.window
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.is_empty() {
        wanted.push("collapse".to_owned());
    }
    let is_wanted = |id: &str| wanted.iter().any(|name| name == id || name == "all");
    let mut controls = Controls::default();
    controls.add("aimd", || {
        Box::new(Aimd {
            window: 10.0,
            threshold: f64::INFINITY,
        })
    });
    let subject = Subject::of_control("aimd");
    let mut verdicts = Verdicts::new(&subject.title(), subject.left_out(), Provenance::default());
    for scenario in scenarios(&subject, true)? {
        if !is_wanted(scenario.id()) {
            continue;
        }
        let scenario = scenario.with_controls(controls.clone());
        let jobs = scenario.jobs()?;
        let outcomes = scenario.run(&jobs, 2, &mut |_| {});
        let results = Results::new(scenario.outline()?, &jobs, &outcomes, Provenance::default());
        let conclusion = results.conclusion();
        for checked in &conclusion.expectations {
            println!("{}: {}", scenario.id(), checked.line());
        }
        verdicts.add(conclusion);
    }
    println!("{}", verdicts.table());
    verdicts.write(Path::new("results/evaluate-aimd"))?;
    Ok(())
}
