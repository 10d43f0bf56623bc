//! File names: converts a Content-Location into a safe relative path, and a path into a
//! Content-Location.
//!
//! An FDT comes from the network. A name is accepted only if writing it below the output folder can
//! touch nothing else on any operating system. A doubtful name is refused, never repaired, because
//! a repaired name could collide with another.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::error::NameError;

/// Characters of a path that need no escape: RFC 3986's unreserved characters and the separator.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');
const PATH_BYTES_MAX: usize = 4_096;
/// The maximum length of a component of a path, in bytes, on common file systems.
pub const COMPONENT_BYTES_MAX: usize = 255;
const FILE_PREFIX: &str = "file:///";

/// The Content-Location of the file `name`, a relative path with `/` between its components: a
/// `file` URI.
///
/// # Errors
/// [`NameError`] if a receiver would refuse the name.
pub fn to_location(name: &str) -> Result<String, NameError> {
    check(name)?;
    Ok(format!(
        "{FILE_PREFIX}{}",
        utf8_percent_encode(name, ESCAPED)
    ))
}

/// The safe relative path that `location` names: percent-decoded, with `/` between its components.
///
/// Only the path of a `file`, `http` or `https` URI is used; anything else is read as a relative
/// path.
///
/// # Errors
/// [`NameError`] if the name could lead outside the output folder, or is not portable.
pub fn from_location(location: &str) -> Result<String, NameError> {
    if location.len() > 3 * PATH_BYTES_MAX {
        return Err(NameError::TooLong(abbreviate(location)));
    }
    let decoded = percent_decode_str(path_of(location)).decode_utf8();
    let name = decoded.map_err(|_| NameError::NotUtf8(abbreviate(location)))?;
    check(&name)?;
    Ok(name.into_owned())
}

fn path_of(location: &str) -> &str {
    let web = location
        .strip_prefix("http://")
        .or_else(|| location.strip_prefix("https://"));
    match (location.strip_prefix(FILE_PREFIX), web) {
        (Some(path), _) => path,
        (None, Some(rest)) => rest.split_once('/').map_or("", |(_host, path)| path),
        (None, None) => location,
    }
}

/// Checks that `name` is a relative path that is safe to write below a folder.
///
/// # Errors
/// [`NameError`] gives the reason why it is not.
pub fn check(name: &str) -> Result<(), NameError> {
    let refused = |error: fn(String) -> NameError| Err(error(abbreviate(name)));
    if name.is_empty() {
        return Err(NameError::Empty);
    }
    if let Some(character) = name
        .chars()
        .find(|&character| character.is_control() || character == '\\')
    {
        return Err(NameError::Character(abbreviate(name), character));
    }
    if name.starts_with('/') || name.as_bytes().get(1) == Some(&b':') {
        return refused(NameError::Absolute);
    }
    if name
        .split('/')
        .any(|component| matches!(component, "" | "." | ".."))
    {
        return refused(NameError::Component);
    }
    if name.len() > PATH_BYTES_MAX
        || name
            .split('/')
            .any(|component| component.len() > COMPONENT_BYTES_MAX)
    {
        return refused(NameError::TooLong);
    }
    Ok(())
}

/// Checks that no component of `name` starts with a dot. Programs read such files, for example
/// `.bashrc`, without being asked to.
///
/// # Errors
/// [`NameError::Hidden`] if one does.
pub fn check_visible(name: &str) -> Result<(), NameError> {
    let hidden = name.split('/').any(|component| component.starts_with('.'));
    if hidden {
        return Err(NameError::Hidden(abbreviate(name)));
    }
    Ok(())
}

/// The beginning of a text from the network: long enough to recognise it, too short to flood a log.
pub(crate) fn abbreviate(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_name_that_can_be_sent_comes_back(name in "\\PC{1,40}(/\\PC{1,40}){0,3}") {
            if let Ok(location) = to_location(&name) {
                prop_assert!(location.is_ascii());
                prop_assert_eq!(from_location(&location), Ok(name));
            }
        }

        #[test]
        fn an_accepted_name_stays_below_its_folder(location in "([.%/\\\\:a0-9]|%2[eEfF]|%5c|%00){0,12}") {
            if let Ok(name) = from_location(&location) {
                let path = std::path::Path::new(&name);
                prop_assert!(path.components().all(|part| matches!(part, std::path::Component::Normal(_))));
            }
        }
    }

    #[test]
    fn uris_of_other_senders_yield_their_path() {
        for (location, name) in [
            ("file:///a/b.txt", "a/b.txt"),
            ("http://example.com/video/1.mp4", "video/1.mp4"),
            ("https://example.com:80/x", "x"),
            ("a%20b/%C3%A9t%C3%A9", "a b/été"),
            ("plain.bin", "plain.bin"),
            (".hidden", ".hidden"),
        ] {
            assert_eq!(from_location(location).as_deref(), Ok(name));
        }
    }

    #[test]
    fn a_component_that_starts_with_a_dot_is_not_visible() {
        for name in [".bashrc", ".ssh/authorized_keys", "a/.git/hooks/b", "a/.b"] {
            assert_eq!(check(name), Ok(()));
            assert!(matches!(check_visible(name), Err(NameError::Hidden(_))));
        }
        for name in ["a.b", "a./b", "a/b.c", "~"] {
            assert_eq!(check_visible(name), Ok(()));
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        for location in [
            "",
            "/",
            "/etc/passwd",
            "file:////etc/passwd",
            "..",
            "../x",
            "a/../../x",
            "a//b",
            "a/",
            "./a",
            "%2e%2e/x",
            "..%2fx",
            "%2fetc/passwd",
            "a%00b",
            "a\\b",
            "..%5cx",
            "C:/x",
            "c:x",
            "file:///C:/x",
            "http://host",
            "http://host/../x",
            "%ff",
            "a\nb",
        ] {
            assert!(
                from_location(location).is_err(),
                "{location:?} was accepted"
            );
        }
        assert!(matches!(
            from_location(&"x".repeat(256)),
            Err(NameError::TooLong(_))
        ));
        assert!(matches!(
            from_location(&"x/".repeat(40_000)),
            Err(NameError::TooLong(_))
        ));
    }
}
