//! The scenarios that the page offers: those that the program holds, and files of the user.

use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::usage;

/// The id and text of each scenario of `scenarios/`.
const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// The scenarios that the page offers.
pub(super) struct Figures(Vec<Figure>);

struct Figure {
    entry: Entry,
    text: String,
}

/// A scenario in the list.
#[derive(Serialize)]
pub(super) struct Entry {
    /// The name by which requests refer to it.
    id: String,
    title: String,
    /// The name of the file in errors.
    file: String,
    is_built_in: bool,
}

/// The only key that the list shows. Everything else is read by the scenario's own parser.
#[derive(Deserialize)]
struct Titled {
    title: String,
}

impl Figures {
    /// Reads the user's files, which stand before the built-in scenarios.
    pub(super) fn new(files: &[PathBuf]) -> Result<Figures> {
        let own = files.iter().map(|path| {
            let file = path.display().to_string();
            let text = std::fs::read_to_string(path)
                .map_err(|error| usage(format!("cannot read {file}: {error}")))?;
            Ok(figure(&file, file.clone(), text, false))
        });
        let mut figures = own.collect::<Result<Vec<_>>>()?;
        let mut built_in: Vec<_> = BUILT_IN.to_vec();
        built_in.sort_by_cached_key(|(id, _)| crate::sim::order(id));
        figures.extend(
            built_in
                .iter()
                .map(|(id, text)| figure(id, format!("{id}.toml"), (*text).to_owned(), true)),
        );
        Ok(Figures(figures))
    }

    /// Returns the list without the texts.
    pub(super) fn entries(&self) -> Vec<&Entry> {
        self.0.iter().map(|figure| &figure.entry).collect()
    }

    /// Returns the text of a scenario.
    pub(super) fn text(&self, id: &str) -> Option<&str> {
        let found = self.0.iter().find(|figure| figure.entry.id == id);
        found.map(|figure| figure.text.as_str())
    }
}

fn figure(id: &str, file: String, text: String, is_built_in: bool) -> Figure {
    // A file with an error is offered, too, because the page shows the error.
    let titled = toml::from_str(&text).map(|titled: Titled| titled.title);
    let entry = Entry {
        id: id.to_owned(),
        title: titled.unwrap_or_default(),
        file,
        is_built_in,
    };
    Figure { entry, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_folder_is_built_in_with_its_title() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
        let files = std::fs::read_dir(folder).unwrap();
        let figures = Figures::new(&[]).unwrap();
        for file in files {
            let path = file.unwrap().path();
            let id = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            assert_eq!(figures.text(&id), Some(text.as_str()), "{id}");
        }
        assert!(
            figures
                .entries()
                .iter()
                .all(|entry| !entry.title.is_empty())
        );
    }
}
