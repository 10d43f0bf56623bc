//! The status page of every role: one page, one style and one script, which draw what a role
//! describes.
//!
//! A role implements [`Described`]: its key figures, its tables and the numbers whose history is
//! drawn. [`Pages::with_page`](crate::metrics::Pages::with_page) serves it at `/`, with its data at
//! `/page.json`.

mod daemon;
mod ensembles;
mod history;
mod sessions;
mod snapshot;
mod streams;

pub use sessions::{Session, Sessions};
pub use snapshot::{PAGE_PATH, Snapshot};

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use manyflow_net::metrics::Page;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::metrics::JSON;
use history::{History, STEP};

/// The state of a role, as its page shows it.
pub trait Described: 'static {
    /// Returns the text of the page at this moment.
    fn view(&self) -> View;

    /// Returns the numbers whose history is drawn, with names that differ. They are read every 2 s,
    /// also while nobody looks at the page.
    fn series(&self) -> Vec<Series>;
}

/// A key figure, with its name.
pub type Fact = (&'static str, Cell);

/// The text of a page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct View {
    /// The name of this instance of the role; empty if it has none.
    pub title: String,
    /// The key figures.
    pub facts: Vec<Fact>,
    /// Lines to copy.
    pub lines: Vec<Line>,
    /// The tables.
    pub tables: Vec<Table>,
}

/// A command line to copy.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// The line.
    pub command: String,
    /// Its QR code as an SVG picture.
    pub qr_svg: Option<String>,
}

/// A table.
#[derive(Clone, Debug, Serialize)]
pub struct Table {
    /// The heading.
    pub title: String,
    /// The names of the columns. The first names the row.
    pub columns: &'static [&'static str],
    /// The rows, each with a cell for each column.
    pub rows: Vec<Vec<Cell>>,
    /// The number of rows that are not shown.
    pub left_out: usize,
}

impl Table {
    /// Returns a table of all its rows.
    pub fn new(
        title: impl Into<String>,
        columns: &'static [&'static str],
        rows: impl IntoIterator<Item = Vec<Cell>>,
    ) -> Table {
        let rows: Vec<_> = rows.into_iter().collect();
        debug_assert!(rows.iter().all(|row| row.len() == columns.len()));
        Table {
            title: title.into(),
            columns,
            rows,
            left_out: 0,
        }
    }

    /// Returns a table of the counts of events that are not 0, with the help of their metrics.
    pub fn of_events(counts: impl IntoIterator<Item = (&'static str, u64)>) -> Table {
        let counts = counts.into_iter();
        let counts = counts.map(|(help, count)| (help.trim_end_matches('.'), count));
        Table::of_counts("Events since the start", counts)
    }

    /// Returns a table of the counts that are not 0.
    pub fn of_counts(
        title: &'static str,
        counts: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> Table {
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        let row = |(of, count)| vec![Cell::text(of), Cell::Count(count as f64)];
        Table::new(title, &["kind", "count"], counts.map(row))
    }
}

/// A cell of a table, or a key figure. The page formats numbers by their unit.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// Nothing.
    Empty,
    /// A text.
    Text(String),
    /// A text about a state as it should be.
    Good(String),
    /// A text about a state that needs attention.
    Bad(String),
    /// A text of little weight.
    Dim(String),
    /// A number of things.
    Count(f64),
    /// A number of bytes.
    Bytes(f64),
    /// A rate in bits per second.
    BitsPerS(f64),
    /// A duration in seconds.
    Seconds(f64),
    /// A part of a whole, 0 to 1, drawn as a bar.
    Share(f64),
    /// A part of a whole, 0 to 1, as a number.
    Ratio(f64),
    /// A time in seconds since 1970.
    Time(f64),
    /// A price in dollars.
    Dollars(f64),
}

impl Cell {
    /// Returns a cell with this text.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    /// Returns a cell with this number of things.
    pub fn count(count: usize) -> Cell {
        Cell::Count(count as f64)
    }

    /// Returns `yes` as a state that is as it should be, or `no` as one that needs attention.
    pub fn state(is_good: bool, yes: &str, no: &str) -> Cell {
        match is_good {
            true => Cell::Good(yes.to_owned()),
            false => Cell::Bad(no.to_owned()),
        }
    }
}

/// A number whose history is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name.
    pub name: String,
    /// The unit of the value, or of its growth per second.
    pub unit: Unit,
    /// The value.
    pub reading: Reading,
}

impl Series {
    /// Returns a series of values.
    pub fn now(name: impl Into<String>, unit: Unit, value: f64) -> Series {
        Series {
            name: name.into(),
            unit,
            reading: Reading::Now(value),
        }
    }

    /// Returns a series of the growth per second of a count.
    pub fn growth(name: impl Into<String>, unit: Unit, total: u64) -> Series {
        Series {
            name: name.into(),
            unit,
            reading: Reading::Total(total),
        }
    }
}

/// A unit of a series.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A number of things.
    Count,
    /// Things per second.
    PerS,
    /// Bytes.
    Bytes,
    /// Bits per second.
    BitsPerS,
    /// Seconds.
    Seconds,
    /// A part of a whole, 0 to 1.
    Share,
    /// A price in dollars.
    Dollars,
}

/// A value of a series.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Reading {
    /// The value, of which the history keeps the samples.
    Now(f64),
    /// A count that only grows, of which the history keeps the growth per second. A count of bytes
    /// in a series of bits per second is multiplied by 8.
    Total(u64),
}

/// Reads the series of a role every 2 s, until its pages are dropped.
pub(crate) type Sampling = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The history of a role, and the function that reads its state.
struct Shown<F> {
    read: F,
    history: Mutex<History>,
}

/// Returns the pages of `role`, a command, and the task that keeps their history.
pub(crate) fn pages<D: Described>(
    role: &'static str,
    read: impl Fn() -> D + Send + Sync + 'static,
) -> (Vec<Page>, Sampling) {
    let history = Mutex::default();
    let shown = Arc::new(Shown { read, history });
    let sampling = keep_history(Arc::downgrade(&shown));
    let render = move || render(role, &shown);
    let file =
        |path, media_type, text: &'static str| Page::new(path, media_type, move || text.to_owned());
    let pages = vec![
        file("/", "text/html; charset=utf-8", include_str!("page.html")),
        file("/page.css", "text/css", include_str!("page.css")),
        file("/page.js", "text/javascript", include_str!("page.js")),
        Page::new(PAGE_PATH, JSON, render),
    ];
    (pages, Box::pin(sampling))
}

/// Samples the series every 2 s, until the pages have ended with their server.
async fn keep_history<D: Described, F: Fn() -> D>(watched: Weak<Shown<F>>) {
    let mut tick = interval(STEP);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let began = Instant::now();
    loop {
        tick.tick().await;
        let Some(shown) = watched.upgrade() else {
            return;
        };
        let series = (shown.read)().series();
        let mut history = shown.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.sample(began.elapsed(), series);
    }
}

fn render<D: Described, F: Fn() -> D>(role: &str, shown: &Shown<F>) -> String {
    let view = (shown.read)().view();
    let history = shown.history.lock().unwrap_or_else(PoisonError::into_inner);
    json!({
        "role": role,
        "title": view.title,
        "facts": view.facts,
        "lines": view.lines,
        "tables": view.tables,
        "series": history.lines(),
        "step_s": STEP.as_secs_f64(),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::Value;
    use tokio::time::sleep;

    struct Role;

    impl Described for Role {
        fn view(&self) -> View {
            View::default()
        }

        fn series(&self) -> Vec<Series> {
            vec![Series::now("members", Unit::Count, 3.0)]
        }
    }

    #[tokio::test(start_paused = true)]
    async fn history_is_kept_while_nobody_looks_and_ends_with_the_pages() {
        let history = Mutex::default();
        let read = || Role;
        let shown = Arc::new(Shown { read, history });
        let sampling = tokio::spawn(keep_history(Arc::downgrade(&shown)));
        sleep(STEP * 3 + STEP / 2).await;
        let page: Value = serde_json::from_str(&render("switch", &shown)).unwrap();
        let expected =
            json!([{"name": "members", "unit": "count", "values": [3.0, 3.0, 3.0, 3.0]}]);
        assert_eq!(page["series"], expected);
        drop(shown);
        sampling.await.unwrap();
    }

    #[test]
    fn counts_of_zero_have_no_row() {
        let table = Table::of_counts("changes", [("it leaves", 0), ("it enters", 2)]);
        let row = vec![Cell::text("it enters"), Cell::Count(2.0)];
        assert_eq!(table.rows, [row]);
    }
}
