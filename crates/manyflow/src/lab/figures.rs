//! The scenarios that the page offers: those that the program holds, and files of the user.

use std::io;
use std::path::PathBuf;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::figures::{BUILT_IN, order};
use manyflow_terminal::usage;

/// The scenarios that the page offers.
pub(super) struct Figures(Vec<Figure>);

struct Figure {
    entry: Entry,
    source: Source,
}

/// The place of a scenario's text.
enum Source {
    BuiltIn(&'static str),
    /// A file, which is read again each time, because its user may edit it.
    File(PathBuf),
}

impl Source {
    fn read(&self) -> io::Result<String> {
        match self {
            Source::BuiltIn(text) => Ok((*text).to_owned()),
            Source::File(path) => std::fs::read_to_string(path),
        }
    }
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
            figure(&file, file.clone(), Source::File(path.clone()))
        });
        let mut figures = own.collect::<Result<Vec<_>>>()?;
        let mut built_in: Vec<_> = BUILT_IN.to_vec();
        built_in.sort_by_cached_key(|(id, _)| order(id));
        for (id, text) in built_in {
            figures.push(figure(id, format!("{id}.toml"), Source::BuiltIn(text))?);
        }
        Ok(Figures(figures))
    }

    /// Returns the list without the texts.
    pub(super) fn entries(&self) -> Vec<&Entry> {
        self.0.iter().map(|figure| &figure.entry).collect()
    }

    /// Returns the text of a scenario; `None` if there is none of this id, or its file is gone.
    pub(super) fn text(&self, id: &str) -> Option<String> {
        let found = self.0.iter().find(|figure| figure.entry.id == id)?;
        found.source.read().ok()
    }
}

fn figure(id: &str, file: String, source: Source) -> Result<Figure> {
    let text = source.read();
    let text = text.map_err(|error| usage(format!("cannot read {file}: {error}")))?;
    // A file with an error is offered, too, because the page shows the error.
    let titled = toml::from_str(&text).map(|titled: Titled| titled.title);
    let entry = Entry {
        id: id.to_owned(),
        title: titled.unwrap_or_default(),
        file,
        is_built_in: matches!(source, Source::BuiltIn(_)),
    };
    Ok(Figure { entry, source })
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
            assert_eq!(figures.text(&id), Some(text), "{id}");
        }
        assert!(
            figures
                .entries()
                .iter()
                .all(|entry| !entry.title.is_empty())
        );
    }
}
