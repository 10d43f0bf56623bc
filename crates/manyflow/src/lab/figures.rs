//! The scenarios that the page offers: those that the program holds, and files of the user.

use std::io;

use anyhow::Result;
use manyflow_figures::{Figure, Source};
use manyflow_lab::Entry;

use crate::figures::found;
use manyflow_terminal::usage;

/// The scenarios that the page offers.
pub(super) struct Figures(Vec<Offered>);

struct Offered {
    entry: Entry,
    /// A file is read again each time, because its user may edit it.
    source: Source,
}

impl Figures {
    /// Reads the files and figures that the user has named, which stand before all others.
    pub(super) fn new(named: &[String]) -> Result<Figures> {
        let named = named.iter().map(|name| {
            let figure = found(manyflow_figures::resolve(name, None))?;
            offered(name, &figure)
        });
        let mut all = named.collect::<Result<Vec<_>>>()?;
        for figure in manyflow_figures::built_in() {
            if all.iter().all(|known| known.entry.id != figure.id()) {
                all.push(offered(figure.id(), &figure)?);
            }
        }
        Ok(Figures(all))
    }

    /// Returns the list without the texts.
    pub(super) fn entries(&self) -> Vec<&Entry> {
        self.0.iter().map(|offered| &offered.entry).collect()
    }

    /// Returns the text of a scenario; `None` if there is none of this id, or its file is gone.
    pub(super) fn text(&self, id: &str) -> Option<String> {
        let found = self.0.iter().find(|offered| offered.entry.id == id)?;
        read(&found.source).ok()
    }
}

fn read(source: &Source) -> io::Result<String> {
    match source {
        Source::BuiltIn(text) => Ok((*text).to_owned()),
        Source::File(path) => std::fs::read_to_string(path),
    }
}

fn offered(id: &str, figure: &Figure) -> Result<Offered> {
    let source = figure.source().clone();
    let file = match &source {
        Source::BuiltIn(_) => format!("{id}.toml"),
        Source::File(path) => path.display().to_string(),
    };
    let text = read(&source).map_err(|error| usage(format!("cannot read {file}: {error}")))?;
    let entry = Entry::new(id, &file, &text, matches!(source, Source::BuiltIn(_)));
    Ok(Offered { entry, source })
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
