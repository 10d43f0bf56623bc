//! The lab without a server: questions of a page, and runs on the calling thread.
//!
//! A page in a browser asks a [`LocalLab`] in a thread of its own, by [`ask`](LocalLab::ask). The
//! question that makes runs is answered at their end; until then, events say how far they are. They
//! are those of `manyflow lab`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use manyflow_results::{Provenance, Results};
use manyflow_scenario::{Inspection, Outcome, Progress, Sample, Scenario};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    Entry, Prepared, SweepProgress, Wanted, Work, conclusion_of_all, conclusion_of_one, download,
    results,
};

/// The number of runs that are kept for downloads.
const KEPT_MAX: usize = 16;
/// The maximum number of samples in an event. A run has about 600.
const BATCH: usize = 4;

/// A question of a page.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ask")]
enum Question {
    /// The scenarios that the page offers.
    Figures,
    /// The text of a scenario.
    Text { id: String },
    /// The JSON schema of scenario files.
    Schema,
    /// A scenario's description, or its first error.
    Check { wanted: Wanted },
    /// The description and the number of a run.
    Run { wanted: Wanted },
    /// The same of all runs of a sweep.
    Sweep { wanted: Wanted },
    /// The runs of this number.
    Make { run: u64 },
    /// A file of results.
    Download { run: u64, what: String },
}

/// A lab on one thread.
#[derive(Default)]
pub struct LocalLab {
    runs: BTreeMap<u64, LocalRun>,
    /// The number of the latest run.
    latest: u64,
}

struct LocalRun {
    scenario: Scenario,
    work: Work,
    outcomes: Vec<Outcome>,
}

impl LocalLab {
    /// Answers a question, which is JSON. `event` takes the kind and the value of each event of a
    /// run: `samples`, `progress`, and at the end `done` or `failed`.
    ///
    /// # Errors
    /// If there is no such question, scenario, run or file.
    pub fn ask(
        &mut self,
        question: &str,
        event: &mut dyn FnMut(&str, &Value),
    ) -> Result<Value, String> {
        let question = serde_json::from_str(question).map_err(|error| error.to_string())?;
        match question {
            Question::Figures => Ok(json!(Entry::built_in())),
            Question::Text { id } => {
                let mut all = manyflow_figures::BUILT_IN.iter();
                let found = all.find(|(known, _)| *known == id);
                found
                    .map(|(_, text)| json!(text))
                    .ok_or_else(|| format!("there is no figure `{id}`"))
            }
            Question::Schema => {
                serde_json::from_str(&manyflow_figures::SCHEMA).map_err(|error| error.to_string())
            }
            Question::Check { wanted } => Ok(wanted.check()),
            Question::Run { wanted } => Ok(self.begin(wanted.run())),
            Question::Sweep { wanted } => Ok(self.begin(wanted.sweep())),
            Question::Make { run } => {
                let (kind, value) = match self.find(run)?.make(event) {
                    Ok(conclusion) => ("done", conclusion),
                    Err(message) => ("failed", json!({"message": message})),
                };
                event(kind, &value);
                Ok(Value::Null)
            }
            Question::Download { run, what } => {
                let run = self.find(run)?;
                let results = run.results()?;
                let file = download(&results, &what).map_err(|error| error.to_string())?;
                let file = file.ok_or("the run has no such results")?;
                let name = format!("{}-{what}", run.work.name(&run.scenario));
                Ok(json!({"name": name, "media_type": file.media_type, "text": file.text}))
            }
        }
    }

    fn begin(&mut self, prepared: Result<Prepared, Value>) -> Value {
        let Prepared {
            scenario,
            work,
            mut description,
        } = match prepared {
            Ok(prepared) => prepared,
            Err(problem) => return problem,
        };
        if self.runs.len() >= KEPT_MAX {
            self.runs.pop_first();
        }
        self.latest += 1;
        description["run"] = self.latest.into();
        let run = LocalRun {
            scenario,
            work,
            outcomes: Vec::new(),
        };
        self.runs.insert(self.latest, run);
        description
    }

    fn find(&mut self, run: u64) -> Result<&mut LocalRun, String> {
        let found = self.runs.get_mut(&run);
        found.ok_or_else(|| format!("run {run} is no longer kept: run the scenario again"))
    }
}

impl LocalRun {
    /// Makes the runs and returns their conclusion, or the reason for which a run failed.
    fn make(&mut self, event: &mut dyn FnMut(&str, &Value)) -> Result<Value, String> {
        match &self.work {
            Work::One(_) => self.make_one(event),
            Work::All(_) => self.make_all(event),
        }
        let results = self.results()?;
        Ok(match (&self.work, &self.outcomes[0]) {
            (Work::One(_), Err(failed)) => return Err(failed.message.clone()),
            (Work::One(job), Ok(run)) => conclusion_of_one(&results, *job, run),
            (Work::All(_), _) => conclusion_of_all(&results),
        })
    }

    fn make_one(&mut self, event: &mut dyn FnMut(&str, &Value)) {
        let mut samples: Vec<Sample> = Vec::new();
        let mut flush = |samples: &mut Vec<Sample>| {
            event("samples", &json!(samples));
            samples.clear();
        };
        let outcome = self.scenario.run_inspected(
            self.work.jobs()[0],
            Inspection {
                watch: Some(&mut |sample| {
                    samples.push(sample);
                    if samples.len() >= BATCH {
                        flush(&mut samples);
                    }
                    ControlFlow::Continue(())
                }),
                ..Inspection::default()
            },
        );
        flush(&mut samples);
        self.outcomes = vec![outcome];
    }

    fn make_all(&mut self, event: &mut dyn FnMut(&str, &Value)) {
        let jobs = self.work.jobs();
        let mut progress = SweepProgress::new(&self.scenario, jobs);
        let mut outcomes = Vec::with_capacity(jobs.len());
        for job in jobs {
            let outcome = self.scenario.run_inspected(
                *job,
                Inspection {
                    progress: Some(&mut |passed| progress.hear(&Progress::Simulated(passed))),
                    ..Inspection::default()
                },
            );
            let left = jobs.len() - outcomes.len() - 1;
            progress.hear(&Progress::Ended(&outcome, left));
            outcomes.push(outcome);
            event("progress", &progress.report());
        }
        self.outcomes = outcomes;
    }

    fn results(&self) -> Result<Results<'_>, String> {
        if self.outcomes.is_empty() {
            return Err("the run has not ended".to_owned());
        }
        let results = results(
            &self.scenario,
            &self.work,
            &self.outcomes,
            Provenance::default(),
        );
        results.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCENARIO: &str = r#"
title = "TCP alone"
run.duration = "5 s"
run.seeds = 2
parameters.speed = "1 Mbit/s"
sweep.speed = ["1 Mbit/s", "2 Mbit/s"]
nodes.names = ["A", "B"]
links = [{ between = ["A", "B"], rate = "speed", delay = "10 ms", queue = "20 packets" }]
sessions = [{ name = "tcp", protocol = "tcp", sender = "A", receivers = ["B"] }]
measure = [{ name = "rate", what = "received-rate", of = "tcp" }]
expect = [{ what = "it is used", value = "mean(rate) / speed", at-least = 0.5, source = "a test", paper = "0.9" }]
plots = [{ name = "rates", title = "Rates", series = [{ what = "received-rate", of = "tcp" }] }]
"#;

    /// Asks a question. Returns the answer, and the kinds and values of the events.
    fn ask(lab: &mut LocalLab, question: &Value) -> (Result<Value, String>, Vec<(String, Value)>) {
        let mut events = Vec::new();
        let answer = lab.ask(&question.to_string(), &mut |kind, value| {
            events.push((kind.to_owned(), value.clone()));
        });
        (answer, events)
    }

    fn wanted() -> Value {
        json!({"text": SCENARIO, "file": "own.toml", "cell": 1})
    }

    #[test]
    fn a_run_is_described_watched_and_downloaded() {
        let mut lab = LocalLab::default();
        let (described, _) = ask(&mut lab, &json!({"ask": "run", "wanted": wanted()}));
        let described = described.unwrap();
        assert_eq!(
            (&described["run"], &described["seed"]),
            (&json!(1), &json!(1))
        );
        assert_eq!(described["expectations"][0]["bounds"], "at least 0.5");
        let early = ask(
            &mut lab,
            &json!({"ask": "download", "run": 1, "what": "measures.csv"}),
        );
        assert_eq!(early.0, Err("the run has not ended".to_owned()));
        let (_, events) = ask(&mut lab, &json!({"ask": "make", "run": 1}));
        let (last, samples) = events.split_last().unwrap();
        assert!(samples.len() > 10 && samples.iter().all(|(kind, _)| kind == "samples"));
        assert_eq!(last.0, "done");
        assert_eq!(last.1["expectations"][0]["verdict"], "not judged");
        let (file, _) = ask(
            &mut lab,
            &json!({"ask": "download", "run": 1, "what": "rates.csv"}),
        );
        let file = file.unwrap();
        assert_eq!(file["name"], "own-cell1-seed1-rates.csv");
        assert!(file["text"].as_str().unwrap().contains("tcp"), "{file}");
    }

    #[test]
    fn a_sweep_reports_each_run_and_ends_with_verdicts() {
        let mut lab = LocalLab::default();
        let (described, _) = ask(&mut lab, &json!({"ask": "sweep", "wanted": wanted()}));
        let described = described.unwrap();
        assert_eq!(described["sweep_runs"], 4);
        assert_eq!(described["cell"], 1, "the page keeps its cell");
        let (_, events) = ask(&mut lab, &json!({"ask": "make", "run": 1}));
        let ended = events.iter().map(|(_, value)| value["ended"].as_u64());
        assert_eq!(
            ended.collect::<Vec<_>>(),
            [Some(1), Some(2), Some(3), Some(4), None]
        );
        let conclusion = &events[4].1;
        assert_eq!(conclusion["expectations"][0]["verdict"], "met");
        assert_eq!(conclusion["expectations"][0]["paper"], "0.9");
        assert_eq!(conclusion["rows"][1]["labels"], json!(["2 Mbit/s"]));
        assert_eq!(conclusion["rows"][1]["seeds"], 2);
        let shown = conclusion["rows"][1]["values"][0].as_str().unwrap();
        assert!(shown.contains("Mbit/s ± "), "{shown}");
        let name = conclusion["figures"][1]["name"].as_str().unwrap();
        let question = json!({"ask": "download", "run": 1, "what": format!("{name}.svg")});
        let (file, _) = ask(&mut lab, &question);
        assert!(file.unwrap()["text"].as_str().unwrap().starts_with("<svg"));
    }

    #[test]
    fn an_error_in_a_scenario_has_its_line_and_a_wrong_question_a_reason() {
        let mut lab = LocalLab::default();
        let text = SCENARIO.replace("duration", "duratio");
        let question = json!({"ask": "sweep", "wanted": {"text": text, "file": "own.toml"}});
        let (answer, _) = ask(&mut lab, &question);
        assert_eq!(answer.unwrap()["problem"]["line"], 3);
        for question in [
            json!({"ask": "make", "run": 7}),
            json!({"ask": "text", "id": "no-figure"}),
            json!({"ask": "sell"}),
        ] {
            assert!(ask(&mut lab, &question).0.is_err(), "{question}");
        }
    }

    #[test]
    fn only_the_latest_runs_are_kept() {
        let mut lab = LocalLab::default();
        for number in 1..=KEPT_MAX as u64 + 1 {
            let (described, _) = ask(&mut lab, &json!({"ask": "run", "wanted": wanted()}));
            assert_eq!(described.unwrap()["run"], number);
        }
        let (answer, _) = ask(&mut lab, &json!({"ask": "make", "run": 1}));
        assert!(answer.unwrap_err().contains("no longer kept"));
        assert!(ask(&mut lab, &json!({"ask": "make", "run": 2})).0.is_ok());
    }
}
