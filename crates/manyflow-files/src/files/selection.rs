//! The choice of files to send, by patterns.

use std::path::Path;

use globset::{GlobBuilder, GlobSet};

use super::FileError;

/// The choice of files to send. By default, all files are selected.
///
/// Patterns are globs, and match paths as receivers see them. A pattern without `/` matches a name
/// in any folder, and others match from the beginning of the path: `*.log`, `docs/*.md`,
/// `docs/**/draft`. `*` and `?` do not match `/`. A pattern that matches a folder matches all that
/// is in it.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Files that are selected; all files if there are no patterns.
    include: GlobSet,
    /// Files that are left out, even if `include` has them.
    exclude: GlobSet,
}

impl Selection {
    /// Makes a selection of the files that match a pattern of `include`, if there is one, and none
    /// of `exclude`.
    ///
    /// # Errors
    /// [`FileError::Pattern`] if a pattern is not a glob.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, FileError> {
        Ok(Selection {
            include: to_set(include)?,
            exclude: to_set(exclude)?,
        })
    }

    /// Whether a file or folder is left out, because a pattern excludes it.
    pub(super) fn excludes(&self, name: &str) -> bool {
        self.exclude.is_match(name)
    }

    /// Whether a file is included, by its name or by that of a folder that has it.
    pub(crate) fn includes(&self, name: &str) -> bool {
        self.include.is_empty()
            || Path::new(name)
                .ancestors()
                .any(|path| self.include.is_match(path))
    }
}

fn to_set(patterns: &[String]) -> Result<GlobSet, FileError> {
    let mut set = GlobSet::builder();
    for pattern in patterns {
        let wrong = |error: globset::Error| FileError::Pattern(error.to_string());
        let in_any_folder = match pattern.contains('/') {
            true => pattern.clone(),
            false => format!("**/{pattern}"),
        };
        let glob = GlobBuilder::new(&in_any_folder)
            .literal_separator(true)
            .build();
        set.add(glob.map_err(wrong)?);
    }
    set.build()
        .map_err(|error| FileError::Pattern(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts that exactly the paths of `matching` are excluded by the pattern.
    fn assert_excludes(pattern: &str, matching: &[&str]) {
        let selection = Selection::new(&[], &[pattern.to_owned()]).unwrap();
        let paths = ["a.log", "docs/a.log", "docs/old/a.log", "docs/a.md", ".git"];
        for path in paths {
            assert_eq!(
                selection.excludes(path),
                matching.contains(&path),
                "{pattern} {path}"
            );
        }
    }

    #[test]
    fn a_pattern_without_a_slash_matches_in_any_folder() {
        assert_excludes("*.log", &["a.log", "docs/a.log", "docs/old/a.log"]);
        assert_excludes(
            "a.{md,log}",
            &["a.log", "docs/a.log", "docs/old/a.log", "docs/a.md"],
        );
        assert_excludes(".git", &[".git"]);
    }

    #[test]
    fn a_pattern_with_a_slash_matches_the_whole_path() {
        assert_excludes("docs/*.log", &["docs/a.log"]);
        assert_excludes("docs/**/*.log", &["docs/a.log", "docs/old/a.log"]);
        assert_excludes("/a.log", &[]);
        assert_excludes("old/*.log", &[]);
    }

    #[test]
    fn a_wrong_pattern_is_named() {
        let error = Selection::new(&["[z-".to_owned()], &[]).unwrap_err();
        assert!(error.to_string().contains("[z-"), "{error}");
    }
}
