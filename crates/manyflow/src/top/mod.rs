//! `manyflow top`: the state of daemons and other roles, as tables that change in place or as JSON
//! lines.

mod rates;
mod table;

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use anyhow::{Result, bail};
use manyflow_messages::{DaemonStatus, FetchError, StatusUrl, fetch_page, fetch_status};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::TopArgs;
use manyflow_terminal::Display;
use manyflow_terminal::signals::interrupted;
use manyflow_terminal::status::{PAGE_PATH, Snapshot};
use rates::Rates;

/// Moves the cursor to the first line.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line.
const CLEAR_LINE: &str = "\x1b[K";
/// Clears everything below the cursor.
const CLEAR_BELOW: &str = "\x1b[J";

pub(crate) async fn run(args: &TopArgs, display: &Display) -> Result<()> {
    tokio::select! {
        watched = watch(args, display) => watched,
        () = interrupted() => Ok(()),
    }
}

/// The answer of an address.
enum Answer {
    Daemon(Box<DaemonStatus>),
    /// Another role.
    Other(Snapshot),
}

/// A role, or the reason why it does not answer.
struct Seen<'a> {
    url: &'a StatusUrl,
    answer: Result<Answer, FetchError>,
    /// Rates of a daemon since the table before; `None` in the first one, and after a restart.
    rates: Option<Rates>,
}

impl Seen<'_> {
    fn daemon(&self) -> Option<&DaemonStatus> {
        match &self.answer {
            Ok(Answer::Daemon(status)) => Some(status),
            _ => None,
        }
    }

    fn other(&self) -> Option<&Snapshot> {
        match &self.answer {
            Ok(Answer::Other(snapshot)) => Some(snapshot),
            _ => None,
        }
    }
}

async fn watch(args: &TopArgs, display: &Display) -> Result<()> {
    let mut tick = interval(args.interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Vec<Option<DaemonStatus>> = vec![None; args.urls.len()];
    let is_live = !args.once && std::io::stdout().is_terminal();
    if args.once {
        // Rates need a state before.
        tick.tick().await;
        before = daemons(fetch_all(&args.urls).await);
    }
    loop {
        tick.tick().await;
        let answers = fetch_all(&args.urls).await;
        let seen = answers.into_iter().zip(&before).zip(&args.urls);
        let seen = seen.map(|((answer, before), url)| {
            let mut seen = Seen {
                url,
                answer,
                rates: None,
            };
            seen.rates = Rates::between(before.as_ref(), seen.daemon());
            seen
        });
        let seen: Vec<_> = seen.collect();
        display.print_json(&to_json(&seen))?;
        if !display.is_json() {
            display.print_screen(&to_screen(&table::render(&seen), is_live))?;
        }
        if args.once {
            return match seen.iter().any(|seen| seen.answer.is_ok()) {
                true => Ok(()),
                false => bail!(
                    "no daemon answered, nor another role: check the addresses, `--metrics`, and \
                     `metrics` in the daemons' files"
                ),
            };
        }
        before = daemons(seen.into_iter().map(|seen| seen.answer));
    }
}

/// Returns the status of each daemon among these answers, and `None` for others.
fn daemons(
    answers: impl IntoIterator<Item = Result<Answer, FetchError>>,
) -> Vec<Option<DaemonStatus>> {
    let answers = answers.into_iter().map(|answer| match answer {
        Ok(Answer::Daemon(status)) => Some(*status),
        _ => None,
    });
    answers.collect()
}

/// Reads the state of all roles at once, in their order.
async fn fetch_all(urls: &[StatusUrl]) -> Vec<Result<Answer, FetchError>> {
    let mut tasks = JoinSet::new();
    for (place, url) in urls.iter().cloned().enumerate() {
        tasks.spawn(async move { (place, fetch(&url).await) });
    }
    let mut fetched = tasks.join_all().await;
    fetched.sort_by_key(|(place, _)| *place);
    fetched.into_iter().map(|(_, answer)| answer).collect()
}

async fn fetch(url: &StatusUrl) -> Result<Answer, FetchError> {
    let error = match fetch_status(url).await {
        Ok(status) => return Ok(Answer::Daemon(Box::new(status))),
        Err(error @ (FetchError::NotStatus(_) | FetchError::Status(_))) => error,
        Err(error) => return Err(error),
    };
    // Other roles have another status at this path, or none, and all have a page.
    let page = fetch_page(url, PAGE_PATH).await.ok();
    let snapshot = page.and_then(|page| serde_json::from_slice(&page).ok());
    snapshot.map(Answer::Other).ok_or(error)
}

/// Returns the text that replaces the table before on a terminal, or stands below it elsewhere.
fn to_screen(table: &str, is_live: bool) -> String {
    if !is_live {
        return table.trim_end().to_owned();
    }
    let mut text = HOME.to_owned();
    for line in table.lines() {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{line}{CLEAR_LINE}");
    }
    text.pop();
    text + CLEAR_BELOW
}

fn to_json(seen: &[Seen<'_>]) -> Value {
    let seen = seen.iter().map(|seen| {
        json!({
            "url": seen.url.to_string(),
            "error": seen.answer.as_ref().err().map(ToString::to_string),
            "status": seen.daemon(),
            "rates": seen.rates,
            "page": seen.other(),
        })
    });
    json!({"event": "status", "daemons": seen.collect::<Vec<_>>()})
}
