//! What is wrong with a scenario: file, line, key, and what to do about it.

use std::ops::Range;

/// A scenario that cannot be run, with the place in its file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{file}:{line}: {}{problem}", key_prefix(.key))]
pub struct ScenarioError {
    /// The file's name as given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key, dotted: `links.bottleneck.delay`; empty where the whole file is meant.
    pub key: String,
    /// What is wrong.
    pub problem: Problem,
}

fn key_prefix(key: &str) -> String {
    if key.is_empty() {
        String::new()
    } else {
        format!("`{}`: ", shortened(key, 2 * NAME_MAX))
    }
}

/// What is wrong at a key of a scenario.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Problem {
    /// The file is not TOML.
    #[error("{0}")]
    Syntax(String),
    /// Nothing of this name is known here.
    #[error("there is no {kind} `{name}`{}", suggestion(.nearest))]
    Unknown {
        /// What was looked for: a key, a node, a measure.
        kind: &'static str,
        /// The name that was given.
        name: String,
        /// The known name nearest to it, or all of them where they are few.
        nearest: Option<String>,
    },
    /// The value cannot be used.
    #[error("{0}")]
    Value(String),
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map_or(String::new(), |hint| format!("; {hint}"))
}

impl Problem {
    /// Nothing of this name among `known`; suggests the nearest.
    pub(crate) fn unknown<'a>(
        kind: &'static str,
        name: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Problem {
        Problem::Unknown {
            kind,
            name: shortened(name, NAME_MAX),
            nearest: nearest(name, known),
        }
    }
}

/// Characters that an error repeats of a name or a formula.
pub(crate) const NAME_MAX: usize = 60;

/// Characters that an error repeats of a message in which a value may stand.
const MESSAGE_MAX: usize = 600;

/// The first characters of a text that may be of any length.
pub(crate) fn shortened(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// `did you mean ...`, where a known name is a few strokes away; otherwise the known names, where
/// they are few.
fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let known: Vec<&str> = known.into_iter().collect();
    // Nobody mistypes one of these, and the distance costs the product of the lengths.
    let name = if name.len() > 8 * NAME_MAX { "" } else { name };
    let close = known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .min()?;
    if close.0 <= 1 + name.len() / 4 {
        return Some(format!("did you mean `{}`?", close.1));
    }
    let listed = known
        .iter()
        .map(|known| format!("`{known}`"))
        .collect::<Vec<_>>();
    (listed.len() <= 32).then(|| format!("known are {}", listed.join(", ")))
}

/// A problem on its way out of the nested tables, which prepend their keys.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    pub(crate) path: Vec<String>,
    pub(crate) span: Option<Range<usize>>,
    pub(crate) problem: Problem,
}

impl Fault {
    /// A problem with the value at `path`, whose place is looked up later.
    pub(crate) fn at(path: &[&str], problem: Problem) -> Fault {
        Fault {
            path: path.iter().map(|&key| key.to_owned()).collect(),
            span: None,
            problem,
        }
    }

    /// A value that cannot be used, at a place that the caller adds.
    pub(crate) fn value(message: impl ToString) -> Fault {
        Fault::at(&[], Problem::Value(message.to_string()))
    }

    /// The same, one level further out.
    pub(crate) fn within(mut self, key: &str) -> Fault {
        self.path.insert(0, key.to_owned());
        self
    }

    /// The same, at `span` unless an inner one is known.
    pub(crate) fn spanned(mut self, span: &Range<usize>) -> Fault {
        self.span.get_or_insert_with(|| span.clone());
        self
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", key_prefix(&self.path.join(".")), self.problem)
    }
}

impl std::error::Error for Fault {}

impl serde::de::Error for Fault {
    fn custom<T: std::fmt::Display>(message: T) -> Fault {
        Fault::value(shortened(&message.to_string(), MESSAGE_MAX))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Fault {
        Fault::at(
            &[],
            Problem::unknown("key", field, expected.iter().copied()),
        )
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Fault {
        Fault::at(
            &[],
            Problem::unknown("choice", variant, expected.iter().copied()),
        )
    }

    fn missing_field(field: &'static str) -> Fault {
        Fault::value(format!("the key `{field}` is missing"))
    }
}
