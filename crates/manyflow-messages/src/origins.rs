//! The pages in browsers that may connect over WebSocket, by their origins (RFC 6454).
//!
//! A browser lets every page open a WebSocket to every host that it reaches, and sends the origin
//! of the page in the header `Origin`. Programs send none.

/// The origin that stands for all pages.
const ANY: &str = "*";

/// Returns whether a page may connect. `origin` is the page's, `host` the header `Host` of its
/// request. A page may connect to the host and port that it was loaded from, and so may the pages
/// of `others`.
pub(super) fn may_connect(origin: &str, host: Option<&str>, others: &[String]) -> bool {
    let is_listed = |other: &String| other == ANY || is_same(other, origin);
    is_same_host(origin, host.unwrap_or_default()) || others.iter().any(is_listed)
}

/// Returns whether a text of the file is an origin, such as `https://www.example.net`, `*`, or
/// `null`, which browsers send for pages in files.
pub(super) fn is_origin(text: &str) -> bool {
    let is_host = |rest: &str| !rest.is_empty() && !rest.contains(['/', ' ', '*']);
    text == ANY
        || text == "null"
        || text
            .split_once("://")
            .is_some_and(|(_, rest)| is_host(rest))
}

fn is_same(a: &str, b: &str) -> bool {
    let normal = |text: &str| match parts(text) {
        Some((scheme, host)) => format!("{scheme}://{host}"),
        None => text.to_owned(),
    };
    normal(a) == normal(b)
}

/// Compares without schemes: TLS may end before the daemon.
fn is_same_host(origin: &str, host: &str) -> bool {
    let Some((scheme, of_page)) = parts(origin) else {
        return false;
    };
    let own = host.to_ascii_lowercase();
    own == of_page || own.strip_suffix(default_port(&scheme)) == Some(&of_page)
}

/// Returns an origin's scheme, and its host and port, in small letters and without the scheme's
/// default port.
fn parts(origin: &str) -> Option<(String, String)> {
    let (scheme, host) = origin.split_once("://")?;
    let (scheme, host) = (scheme.to_ascii_lowercase(), host.to_ascii_lowercase());
    let short = host.strip_suffix(default_port(&scheme)).map(str::to_owned);
    Some((scheme, short.unwrap_or(host)))
}

fn default_port(scheme: &str) -> &'static str {
    match scheme {
        "https" => ":443",
        _ => ":80",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_may_connect_where_it_was_loaded_from() {
        for (origin, host, expected) in [
            ("http://a.example.net:8080", "a.example.net:8080", true),
            ("http://A.example.net", "a.Example.net", true),
            ("https://a.example.net", "a.example.net:443", true),
            ("https://a.example.net:443", "a.example.net", true),
            ("http://[::1]:8080", "[::1]:8080", true),
            ("http://a.example.net:8081", "a.example.net:8080", false),
            ("http://b.example.net:8080", "a.example.net:8080", false),
            ("http://a.example.net", "a.example.net:443", false),
            ("null", "a.example.net", false),
            ("", "", false),
        ] {
            assert_eq!(
                may_connect(origin, Some(host), &[]),
                expected,
                "{origin} {host}"
            );
        }
        assert!(!may_connect("http://a", None, &[]));
    }

    #[test]
    fn pages_of_other_origins_are_listed() {
        let others = ["https://www.example.net:443".to_owned(), "null".to_owned()];
        let may = |origin: &str, others: &[String]| may_connect(origin, Some("b:1"), others);
        assert!(may("https://www.example.net", &others) && may("null", &others));
        assert!(!may("http://www.example.net", &others));
        assert!(may("http://anything", &[ANY.to_owned()]));
        for (text, expected) in [
            ("https://www.example.net", true),
            ("http://127.0.0.1:9464", true),
            ("*", true),
            ("null", true),
            ("www.example.net", false),
            ("https://", false),
            ("https://www.example.net/", false),
            ("https://*.example.net", false),
        ] {
            assert_eq!(is_origin(text), expected, "{text}");
        }
    }
}
