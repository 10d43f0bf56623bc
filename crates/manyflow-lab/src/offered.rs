//! Scenarios in a list.

use serde::{Deserialize, Serialize};

/// A scenario in the list of a page.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// The name by which requests refer to it.
    pub id: String,
    /// The title; empty if the text is no valid TOML.
    pub title: String,
    /// The origin of the scenario, such as a paper's figure.
    pub source: Option<String>,
    /// The name of the file in errors.
    pub file: String,
    /// Whether the scenario comes with manyflow.
    pub is_built_in: bool,
}

/// The keys that the list shows. Everything else is read by the scenario's own parser.
#[derive(Default, Deserialize)]
struct Titled {
    title: String,
    source: Option<String>,
}

impl Entry {
    /// Returns the entry of a scenario. One with an error is offered, too, because a page shows the
    /// error.
    pub fn new(id: &str, file: &str, text: &str, is_built_in: bool) -> Entry {
        let titled: Titled = toml::from_str(text).unwrap_or_default();
        Entry {
            id: id.to_owned(),
            title: titled.title,
            source: titled.source,
            file: file.to_owned(),
            is_built_in,
        }
    }

    /// Returns the entries of all scenarios that come with manyflow.
    pub fn built_in() -> Vec<Entry> {
        let all = manyflow_figures::BUILT_IN.iter();
        all.map(|(id, text)| Entry::new(id, &format!("{id}.toml"), text, true))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_is_listed_by_its_title_and_source_also_with_an_error() {
        let text = "title = \"Two flows\"\nsource = \"Fig. 1\"\nrun = 5";
        let entry = Entry::new("a/b.toml", "a/b.toml", text, false);
        assert_eq!(entry.title, "Two flows");
        assert_eq!(entry.source.as_deref(), Some("Fig. 1"));
        assert_eq!(Entry::new("x", "x", "title =", false).title, "");
        let all = Entry::built_in();
        assert!(all.len() > 100);
        assert!(all.iter().all(|entry| !entry.title.is_empty()));
    }
}
