//! Errors in scenarios: file, line, key, and what to do next.

use std::ops::Range;

/// An error in a scenario, with its place in the file.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{file}:{line}: {}{problem}", key_prefix(.key))]
pub struct ScenarioError {
    /// The name of the file, as the caller gave it.
    pub file: String,
    /// The line number, from 1.
    pub line: usize,
    /// The dotted key, such as `links.bottleneck.delay`. Empty if the error concerns the
    /// whole file.
    pub key: String,
    /// The error itself.
    pub problem: Problem,
}

fn key_prefix(key: &str) -> String {
    if key.is_empty() {
        String::new()
    } else {
        format!("`{}`: ", shortened(key, 2 * NAME_MAX))
    }
}

/// The cause of an error in a scenario.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The file is not TOML.
    #[error("{0}")]
    Syntax(String),
    /// A name that does not exist in this context.
    #[error("there is no {kind} `{name}`{}", suggestion(.nearest))]
    Unknown {
        /// The kind of name that was expected: a key, a node, a measure.
        kind: &'static str,
        /// The name in the file.
        name: String,
        /// A hint: the nearest known name, or all known names if there are few.
        nearest: Option<String>,
    },
    /// A value that cannot be used, with the reason.
    #[error("{0}")]
    Value(String),
}

fn suggestion(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map_or(String::new(), |hint| format!("; {hint}"))
}

impl Problem {
    /// Returns the error for a `name` that is not among `known`, with a hint.
    pub fn unknown<'a>(
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

/// The maximum number of characters that an error quotes from a name or a formula.
pub const NAME_MAX: usize = 60;

/// The maximum length, in characters, of a message that may quote a value.
const MESSAGE_MAX: usize = 600;

/// Returns the first `characters_max` characters of `text`, with `...` if there are more.
pub fn shortened(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns a hint for a misspelt name: "did you mean" with a similar known name, otherwise the
/// list of the known names if there are at most 32.
fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let known: Vec<&str> = known.into_iter().collect();
    // A name this long is not a typing error, and the distance costs the product of the lengths.
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

/// A problem with the path of its key. Each enclosing table prepends its own key.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The keys from the outermost table to the value.
    pub path: Vec<String>,
    /// The bytes of the value in the file, if known.
    pub span: Option<Range<usize>>,
    /// The error itself.
    pub problem: Problem,
}

impl Fault {
    /// Returns a problem with the value at `path`. The place in the file is looked up later.
    pub fn at(path: &[&str], problem: Problem) -> Fault {
        Fault {
            path: path.iter().map(|&key| key.to_owned()).collect(),
            span: None,
            problem,
        }
    }

    /// Returns a problem with a value. The caller adds the path.
    pub fn value(message: impl ToString) -> Fault {
        Fault::at(&[], Problem::Value(message.to_string()))
    }

    /// Prepends `key` to the path.
    pub fn within(mut self, key: &str) -> Fault {
        self.path.insert(0, key.to_owned());
        self
    }

    /// Sets the place in the file, unless a more exact one is known.
    pub fn spanned(mut self, span: &Range<usize>) -> Fault {
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
