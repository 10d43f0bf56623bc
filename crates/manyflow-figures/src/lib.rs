//! The scenario files that come with manyflow: figures of papers by their ids, templates for
//! scenarios of one's own, and a schema for editors.
//!
//! This crate has texts. `manyflow-scenario` reads and runs them.
//!
//! | item | contents |
//! |---|---|
//! | [`BUILT_IN`], [`built_in`], [`list`], [`find`] | scenarios by their ids, from a folder or from the program |
//! | [`resolve`] | what a user has named: a file or a figure |
//! | [`TEMPLATES`], [`template`] | scenarios to begin with |
//! | [`SCHEMA`] | a JSON schema of scenario files |
//!
//! ```
//! use manyflow_figures::{Source, resolve, title};
//!
//! // A path names a file, whether it exists or not. Anything else is looked up.
//! assert!(matches!(resolve("my/network.toml", None)?.source(), Source::File(_)));
//! let figure = resolve("webrc-9", None)?;
//! match figure.source() {
//!     Source::BuiltIn(text) => assert!(title(text).is_some()),
//!     // A folder `scenarios` is here.
//!     Source::File(path) => assert!(path.ends_with("webrc-9.toml")),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod templates;

use std::borrow::Cow;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use flate2::read::DeflateDecoder;

pub use templates::{TEMPLATES, Template, template};

/// The folder that is read if it exists and no other is named.
const FOLDER: &str = "scenarios";

/// The id of each scenario of the repository, and the length of its text in bytes.
const LENGTHS: &[(&str, usize)] = include!(concat!(env!("OUT_DIR"), "/scenarios.rs"));

/// The texts of the scenarios, and after them the schema.
static TEXTS: LazyLock<String> = LazyLock::new(|| {
    let packed = &include_bytes!(concat!(env!("OUT_DIR"), "/texts.deflate"))[..];
    let mut texts = String::new();
    let unpacked = DeflateDecoder::new(packed).read_to_string(&mut texts);
    unpacked.expect("build.rs has packed texts");
    texts
});

/// The id and the text of each scenario of the repository, in the order of the ids. The texts are
/// unpacked at the first use.
pub static BUILT_IN: LazyLock<Vec<(&str, &str)>> = LazyLock::new(|| {
    let mut rest = TEXTS.as_str();
    let texts = LENGTHS.iter().map(|(id, length)| {
        let (text, others) = rest.split_at(*length);
        rest = others;
        (*id, text)
    });
    texts.collect()
});

/// A JSON schema of scenario files, for editors. `scripts/keys` makes it from the declarations that
/// read the files.
pub static SCHEMA: LazyLock<&str> = LazyLock::new(|| {
    let scenarios = LENGTHS.iter().map(|(_, length)| length).sum();
    &TEXTS[scenarios..]
});

/// A reason why there is no scenario.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FigureError {
    /// The folder of the scenarios cannot be read.
    #[error("{}: name the folder of the scenario files with --scenarios", folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The folder has no scenario.
    #[error(
        "no scenario in {}, and none is looked up elsewhere: name the folder of the scenario files with --scenarios",
        folder.display()
    )]
    Empty {
        /// The folder.
        folder: PathBuf,
    },
    /// There is no figure with this id.
    #[error("there is no figure `{id}`: {hint}`manyflow figure --list` has them")]
    Unknown {
        /// The id.
        id: String,
        /// A question that names a similar id, or nothing.
        hint: String,
    },
    /// There is neither a file nor a figure with this name.
    #[error(
        "there is no file and no figure `{name}`: {hint}check the path; `manyflow figure --list` has the figures"
    )]
    Neither {
        /// The name.
        name: String,
        /// A question that names a similar id, or nothing.
        hint: String,
    },
}

/// A scenario that has an id.
#[derive(Clone, Debug)]
pub struct Figure {
    id: Cow<'static, str>,
    source: Source,
}

/// The place of a scenario's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A file, which is read when the scenario is used.
    File(PathBuf),
    /// A text that the program holds.
    BuiltIn(&'static str),
}

impl Figure {
    /// Returns the id, which is the name of the file without its ending.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the place of the text.
    pub fn source(&self) -> &Source {
        &self.source
    }

    fn built_in(&(id, text): &(&'static str, &'static str)) -> Figure {
        Figure {
            id: Cow::Borrowed(id),
            source: Source::BuiltIn(text),
        }
    }

    fn file(path: PathBuf) -> Figure {
        let id = path.file_stem().unwrap_or_default().to_string_lossy();
        Figure {
            id: id.into_owned().into(),
            source: Source::File(path),
        }
    }
}

/// Returns the scenarios of `folder`. Without a folder, returns those of `./scenarios` if it
/// exists, else those that the program holds. Numbers in their names give their order.
///
/// # Errors
/// If the folder cannot be read, or if there is no scenario.
pub fn list(folder: Option<&Path>) -> Result<Vec<Figure>, FigureError> {
    let default = Path::new(FOLDER);
    let mut figures = match folder.or_else(|| default.is_dir().then_some(default)) {
        Some(folder) => in_folder(folder).map_err(|source| FigureError::Folder {
            folder: folder.to_owned(),
            source,
        })?,
        None => return Ok(built_in()),
    };
    if figures.is_empty() {
        let folder = folder.unwrap_or(default).to_owned();
        return Err(FigureError::Empty { folder });
    }
    figures.sort_by_cached_key(|figure| order(&figure.id));
    Ok(figures)
}

/// Returns the scenarios that the program holds. Numbers in their names give their order.
pub fn built_in() -> Vec<Figure> {
    let mut figures: Vec<_> = BUILT_IN.iter().map(Figure::built_in).collect();
    figures.sort_by_cached_key(|figure| order(&figure.id));
    figures
}

fn in_folder(folder: &Path) -> io::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "toml") {
            figures.push(Figure::file(path));
        }
    }
    Ok(figures)
}

/// Returns the key by which figures are sorted: numbers in their names count as numbers.
fn order(id: &str) -> (String, u32, String) {
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
pub fn find<'a>(all: &'a [Figure], id: &str) -> Result<&'a Figure, FigureError> {
    let found = all.iter().find(|figure| figure.id == id);
    found.ok_or_else(|| FigureError::Unknown {
        id: id.to_owned(),
        hint: hint(all, id),
    })
}

/// Returns the scenario that a user has named by the path of a file, or else by the id of a figure.
/// A name with a folder or with the ending `.toml` is always a path. The reader of the file reports
/// that it is missing.
///
/// # Errors
/// As [`list`], and if there is neither a file nor a figure with this name.
pub fn resolve(name: &str, folder: Option<&Path>) -> Result<Figure, FigureError> {
    let path = Path::new(name);
    let is_path = name.contains('/') || path.extension().is_some_and(|ending| ending == "toml");
    if is_path || path.exists() {
        return Ok(Figure::file(path.to_owned()));
    }
    let all = list(folder)?;
    let found = all.iter().find(|figure| figure.id == name).cloned();
    found.ok_or_else(|| FigureError::Neither {
        name: name.to_owned(),
        hint: hint(&all, name),
    })
}

/// Asks for a similar id, if there is one.
fn hint(all: &[Figure], id: &str) -> String {
    let distances = all
        .iter()
        .map(|figure| (strsim::damerau_levenshtein(&figure.id, id), &figure.id));
    match distances.min() {
        Some((distance, close)) if distance <= 2 => format!("did you mean `{close}`? "),
        _ => String::new(),
    }
}

/// Returns the title of a scenario, if it is written in one line.
pub fn title(text: &str) -> Option<&str> {
    let rest = text
        .lines()
        .find_map(|line| line.strip_prefix("title = \""))?;
    rest.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_file_and_any_other_name_is_a_figure() {
        let file = resolve("no/such.toml", None).unwrap();
        assert_eq!(file.id(), "such");
        assert_eq!(file.source(), &Source::File("no/such.toml".into()));
        let folder = tempfile::tempdir().unwrap();
        for id in ["x-2", "x-10", "x-1"] {
            std::fs::write(folder.path().join(format!("{id}.toml")), "title = \"A\"").unwrap();
        }
        let folder = Some(folder.path());
        let ids = list(folder).unwrap();
        let ids: Vec<_> = ids.iter().map(Figure::id).collect();
        assert_eq!(ids, ["x-1", "x-2", "x-10"]);
        assert_eq!(resolve("x-10", folder).unwrap().id(), "x-10");
        let error = resolve("x-3", folder).unwrap_err().to_string();
        assert!(
            error.contains("no file and no figure `x-3`: did you mean `x-1`?"),
            "{error}"
        );
        let error = resolve("other", folder).unwrap_err().to_string();
        assert!(!error.contains("did you mean"), "{error}");
    }

    #[test]
    fn a_folder_without_scenarios_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = list(Some(folder.path())).unwrap_err().to_string();
        assert!(error.contains(folder.path().to_str().unwrap()), "{error}");
        let missing = folder.path().join("missing");
        let error = list(Some(&missing)).unwrap_err().to_string();
        assert!(
            error.contains("--scenarios") && error.contains("missing"),
            "{error}"
        );
    }

    #[test]
    fn every_scenario_has_a_title_in_one_line() {
        let texts = BUILT_IN.iter().copied();
        let templates = TEMPLATES
            .iter()
            .map(|template| (template.name, template.text));
        for (id, text) in texts.chain(templates) {
            assert!(title(text).is_some_and(|title| !title.is_empty()), "{id}");
        }
    }
}
