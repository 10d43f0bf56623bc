//! The requests of the page about scenarios and runs.

use std::sync::Arc;

use hyper::StatusCode;
use manyflow_lab::{Prepared, Wanted};
use serde::Deserialize;
use serde_json::Value;

use super::Lab;
use super::pace::Speed;
use super::reply::{Reply, attachment, failure, json as reply_json, page};
use super::runs::LabRun;

/// A scenario as the page has it, and the run that it wants.
#[derive(Deserialize)]
pub(super) struct Asked {
    #[serde(flatten)]
    wanted: Wanted,
    /// The speed of a single run.
    #[serde(default)]
    speed: Speed,
}

/// Reads a scenario. Answers with its description, or with its first error and the line.
///
/// The request succeeds with an error, too: one while somebody types is no failure, and a browser
/// would list it as one.
pub(super) fn check(asked: &Asked) -> Reply {
    reply_json(StatusCode::OK, &asked.wanted.check())
}

/// Starts a run. Answers with its number and the scenario's description.
pub(super) fn start(lab: &Lab, asked: &Asked) -> Reply {
    begin(lab, asked.wanted.run(), asked.speed)
}

/// Starts all runs of a sweep, as fast as they can be. Answers as [`start`] does.
pub(super) fn start_sweep(lab: &Lab, asked: &Asked) -> Reply {
    begin(lab, asked.wanted.sweep(), Speed::default())
}

fn begin(lab: &Lab, prepared: Result<Prepared, Value>, speed: Speed) -> Reply {
    let mut prepared = match prepared {
        Ok(prepared) => prepared,
        Err(problem) => return reply_json(StatusCode::OK, &problem),
    };
    let mut description = prepared.description.take();
    match lab.runs.start(prepared, speed) {
        Some(number) => {
            description["run"] = number.into();
            reply_json(StatusCode::OK, &description)
        }
        None => failure(
            StatusCode::TOO_MANY_REQUESTS,
            "four runs are in progress: stop one of them, or wait",
        ),
    }
}

/// Answers a request about a run: `events`, or a file of its results.
pub(super) fn of_run(run: &Arc<LabRun>, what: &str, first_event: usize) -> Reply {
    if what == "events" {
        return super::reply::events(Arc::clone(&run.log).follow(first_event));
    }
    match download(run, what) {
        Ok(Some(reply)) => reply,
        Ok(None) => failure(
            StatusCode::NOT_FOUND,
            "the run has no such results, or it has not ended",
        ),
        Err(error) => failure(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

fn download(run: &LabRun, what: &str) -> anyhow::Result<Option<Reply>> {
    let Some(results) = run.results() else {
        return Ok(None);
    };
    let file = manyflow_lab::download(&results?, what)?;
    let name = format!("{}-{what}", run.name());
    Ok(file.map(|file| attachment(page(StatusCode::OK, file.media_type, file.text), &name)))
}
