//! Catalogues: lists of descriptions on an HTTP server.
//!
//! ```json
//! {"sessions": [{"url": "/firmware.sdp", "sha256": "0f3a..."}]}
//! ```
//!
//! `url` is relative to the catalogue, or absolute. `sha256` is the digest of the description, so
//! that a receiver fetches it only if it has changed. `manyflow send` and `serve` publish one at
//! `/catalogue.json`, and any HTTP server can.
//!
//! A catalogue has no signature: its descriptions have. So a catalogue that was changed can
//! withhold sessions, or list old ones, which a follower recognises by their time. It cannot forge
//! any.

use serde::Deserialize;

use super::Digest;
use crate::sdp::digest_from_digits;

/// The reason why a text is not a catalogue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// The text is not the JSON of a catalogue.
    #[error("not a catalogue ({0}): `manyflow serve` publishes one at /catalogue.json")]
    Json(#[from] serde_json::Error),
    /// A digest is not a SHA-256.
    #[error("not a catalogue: the sha256 of {0} is not 64 hexadecimal digits")]
    Digest(String),
}

/// A session of a catalogue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The absolute URL of the description.
    pub url: String,
    /// The SHA-256 of the description.
    pub digest: Digest,
}

#[derive(Deserialize)]
struct Catalogue {
    sessions: Vec<Session>,
}

#[derive(Deserialize)]
struct Session {
    url: String,
    sha256: String,
}

/// Reads the catalogue that `url` has returned. Unknown keys are ignored.
///
/// # Errors
/// See [`CatalogueError`].
pub fn parse(url: &str, text: &str) -> Result<Vec<Listed>, CatalogueError> {
    let catalogue: Catalogue = serde_json::from_str(text)?;
    let sessions = catalogue.sessions.into_iter();
    let listed = sessions.map(|session| {
        let digest = digest_from_digits(&session.sha256);
        Ok(Listed {
            digest: digest.ok_or_else(|| CatalogueError::Digest(session.url.clone()))?,
            url: resolve(url, &session.url),
        })
    });
    listed.collect()
}

/// Returns `link` as an absolute URL, on a page with the URL `base`.
fn resolve(base: &str, link: &str) -> String {
    if link.contains("://") {
        return link.to_owned();
    }
    let host = base.find("://").map_or(0, |place| place + 3);
    let path = base[host..].find('/').map_or(base.len(), |at| host + at);
    if link.starts_with('/') {
        return format!("{}{link}", &base[..path]);
    }
    let folder = base[path..].rfind('/').map_or(path, |at| path + at);
    format!("{}/{link}", &base[..folder])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_relative_to_the_catalogue() {
        for (base, link, expected) in [
            ("http://h:80/catalogue.json", "/a.sdp", "http://h:80/a.sdp"),
            (
                "http://h:80/x/catalogue.json",
                "a.sdp",
                "http://h:80/x/a.sdp",
            ),
            (
                "http://h:80/x/catalogue.json",
                "/a.sdp",
                "http://h:80/a.sdp",
            ),
            ("https://h", "a.sdp", "https://h/a.sdp"),
            ("http://h/c.json", "https://k/a.sdp", "https://k/a.sdp"),
        ] {
            assert_eq!(resolve(base, link), expected);
        }
    }

    #[test]
    fn a_text_that_is_no_catalogue_is_refused() {
        let digest = "0f".repeat(32);
        let text =
            format!(r#"{{"sessions": [{{"url": "/a.sdp", "sha256": "{digest}", "name": "a"}}]}}"#);
        let listed = parse("http://h/catalogue.json", &text).unwrap();
        assert_eq!(listed[0].digest, [0x0f; 32]);
        assert_eq!(listed[0].url, "http://h/a.sdp");
        for text in [
            "",
            "[]",
            "{}",
            "v=0",
            &text.replace("0f", "0g"),
            &text.replace("url", "ur"),
        ] {
            assert!(parse("http://h/", text).is_err(), "{text}");
        }
    }
}
