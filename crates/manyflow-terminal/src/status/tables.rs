//! A status page of tables, for roles that have no list of receivers.

use manyflow_net::metrics::Page;
use serde_json::{Value, json};

/// The present state of a role, as its page shows it.
#[derive(Clone, Debug)]
pub struct Shown {
    /// The object whose numbers the page lists; its event is left out.
    pub status: Value,
    /// The tables.
    pub tables: Vec<Table>,
}

/// A table on the page.
#[derive(Clone, Debug)]
pub struct Table {
    /// The heading.
    pub title: &'static str,
    /// The names of the columns.
    pub columns: &'static [&'static str],
    /// The rows, each with a value for each column.
    pub rows: Vec<Vec<Value>>,
}

impl Table {
    /// Returns a table of the counts that are not 0.
    pub fn of_counts(
        title: &'static str,
        counts: impl IntoIterator<Item = (&'static str, u64)>,
    ) -> Table {
        let counts = counts.into_iter().filter(|(_, count)| *count > 0);
        Table {
            title,
            columns: &["", "number"],
            rows: counts
                .map(|(of, count)| vec![json!(of), json!(count)])
                .collect(),
        }
    }
}

/// Returns the page of `role`, a command, at the path /, and its data at /status.json.
pub fn pages(role: &'static str, read: impl Fn() -> Shown + Send + Sync + 'static) -> [Page; 2] {
    let render = move || {
        let Shown { mut status, tables } = read();
        if let Some(object) = status.as_object_mut() {
            object.remove("event");
        }
        let tables = tables.iter().map(|table| {
            debug_assert!(
                table
                    .rows
                    .iter()
                    .all(|row| row.len() == table.columns.len())
            );
            json!({"title": table.title, "columns": table.columns, "rows": table.rows})
        });
        json!({"role": role, "status": status, "tables": tables.collect::<Vec<_>>()}).to_string()
    };
    let page = include_str!("tables.html");
    [
        Page::new("/", "text/html; charset=utf-8", || page.to_owned()),
        Page::new("/status.json", "application/json", render),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_zero_have_no_row() {
        let table = Table::of_counts("changes", [("it leaves", 0), ("it enters", 2)]);
        assert_eq!(table.rows, [[json!("it enters"), json!(2)]]);
    }
}
