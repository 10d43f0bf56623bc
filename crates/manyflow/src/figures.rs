//! The figures of the papers: the scenarios of a folder, or those that the program holds.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use manyflow_scenario::{Form, Scenario};

use manyflow_terminal::failure::read_description;
use manyflow_terminal::usage;

/// The folder that is read if it exists and no other is named.
const FOLDER: &str = "scenarios";

/// The id and text of each scenario of the repository. A package of this crate alone has none.
pub(crate) const BUILT_IN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// A scenario that has an id.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    id: Cow<'static, str>,
    source: Source,
}

/// The place of a scenario's text.
#[derive(Clone, Debug)]
enum Source {
    File(PathBuf),
    BuiltIn(&'static str),
}

impl Figure {
    /// Reads the scenario.
    ///
    /// # Errors
    /// If the file cannot be read, or is no valid scenario.
    pub(crate) fn read(&self, form: Form) -> Result<Scenario> {
        match &self.source {
            Source::File(path) => read(path, form),
            Source::BuiltIn(text) => parse(&self.id, text, form),
        }
    }
}

/// Reads a scenario file.
pub(crate) fn read(path: &Path, form: Form) -> Result<Scenario> {
    let name = path.display().to_string();
    parse(&name, &read_description(path)?, form)
}

/// Parses the text of the scenario `name`, which is a path or an id.
pub(crate) fn parse(name: &str, text: &str, form: Form) -> Result<Scenario> {
    let scenario = Scenario::parse_form(name, text, form);
    scenario.map_err(|error| usage(error.to_string()))
}

/// Returns the scenarios of `folder`. Without a folder, returns those of `./scenarios` if it
/// exists, else those that the program holds. Numbers in their names give their order.
///
/// # Errors
/// If the folder cannot be read, or if there is no scenario.
pub(crate) fn list(folder: Option<&Path>) -> Result<Vec<Figure>> {
    let default = Path::new(FOLDER);
    let mut figures = match folder.or_else(|| default.is_dir().then_some(default)) {
        Some(folder) => in_folder(folder)?,
        None => BUILT_IN.iter().map(built_in).collect(),
    };
    if figures.is_empty() {
        let searched = folder.unwrap_or(default).display();
        return Err(usage(format!(
            "no scenario in {searched}, and none is looked up elsewhere: name the folder of the scenario files with \
             --scenarios"
        )));
    }
    figures.sort_by_key(|figure| order(&figure.id));
    Ok(figures)
}

fn built_in(&(id, text): &(&'static str, &'static str)) -> Figure {
    Figure {
        id: Cow::Borrowed(id),
        source: Source::BuiltIn(text),
    }
}

fn in_folder(folder: &Path) -> Result<Vec<Figure>> {
    let wrong = || {
        format!(
            "{}: name the folder of the scenario files with --scenarios",
            folder.display()
        )
    };
    let mut figures = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(wrong)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            let id = path.file_stem().unwrap_or_default().to_string_lossy();
            figures.push(Figure {
                id: id.into_owned().into(),
                source: Source::File(path),
            });
        }
    }
    Ok(figures)
}

/// Returns the key by which figures are sorted: numbers in their names count as numbers.
pub(crate) fn order(id: &str) -> (String, u32, String) {
    let (group, number) = id.split_once('-').unwrap_or((id, ""));
    (
        group.to_owned(),
        number.parse().unwrap_or(u32::MAX),
        number.to_owned(),
    )
}

/// Returns the figure with this id.
///
/// # Errors
/// If there is none.
pub(crate) fn find<'a>(all: &'a [Figure], id: &str) -> Result<&'a Figure> {
    all.iter().find(|figure| figure.id == id).ok_or_else(|| {
        usage(format!(
            "there is no figure `{id}`: `manyflow figure --list` has them"
        ))
    })
}
