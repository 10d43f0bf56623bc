//! `manyflow top`: the state of daemons, as a table that changes in place or as JSON lines.

mod rates;
mod table;

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use anyhow::{Result, bail};
use manyflow_messages::{DaemonStatus, FetchError, StatusUrl, fetch_status};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::cli::TopArgs;
use manyflow_terminal::Display;
use manyflow_terminal::signals::interrupted;
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

/// A daemon, or the reason why it does not answer.
struct Seen<'a> {
    url: &'a StatusUrl,
    status: Result<DaemonStatus, FetchError>,
    /// Rates since the table before; `None` in the first one, and after a restart.
    rates: Option<Rates>,
}

async fn watch(args: &TopArgs, display: &Display) -> Result<()> {
    let mut tick = interval(args.interval);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before: Vec<Option<DaemonStatus>> = vec![None; args.urls.len()];
    let is_live = !args.once && std::io::stdout().is_terminal();
    if args.once {
        // Rates need a state before.
        tick.tick().await;
        before = fetch_all(&args.urls)
            .await
            .into_iter()
            .map(Result::ok)
            .collect();
    }
    loop {
        tick.tick().await;
        let statuses = fetch_all(&args.urls).await;
        let daemons = statuses.into_iter().zip(&before).zip(&args.urls);
        let daemons = daemons.map(|((status, before), url)| Seen {
            url,
            rates: Rates::between(before.as_ref(), status.as_ref().ok()),
            status,
        });
        let daemons: Vec<_> = daemons.collect();
        display.print_json(&to_json(&daemons))?;
        if !display.is_json() {
            display.print_screen(&to_screen(&table::render(&daemons), is_live))?;
        }
        if args.once {
            return match daemons.iter().any(|daemon| daemon.status.is_ok()) {
                true => Ok(()),
                false => bail!(
                    "no daemon answered: check the addresses, and `metrics` in the daemons' files"
                ),
            };
        }
        before = daemons
            .into_iter()
            .map(|daemon| daemon.status.ok())
            .collect();
    }
}

/// Reads the status of all daemons at once, in their order.
async fn fetch_all(urls: &[StatusUrl]) -> Vec<Result<DaemonStatus, FetchError>> {
    let mut tasks = JoinSet::new();
    for (place, url) in urls.iter().cloned().enumerate() {
        tasks.spawn(async move { (place, fetch_status(&url).await) });
    }
    let mut fetched = tasks.join_all().await;
    fetched.sort_by_key(|(place, _)| *place);
    fetched.into_iter().map(|(_, status)| status).collect()
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

fn to_json(daemons: &[Seen<'_>]) -> Value {
    let daemons = daemons.iter().map(|daemon| {
        json!({
            "url": daemon.url.to_string(),
            "error": daemon.status.as_ref().err().map(ToString::to_string),
            "status": daemon.status.as_ref().ok(),
            "rates": daemon.rates,
        })
    });
    json!({"event": "status", "daemons": daemons.collect::<Vec<_>>()})
}
