//! The queries of pages.

use percent_encoding::percent_decode_str;

/// The number of entries of a page without `limit`, and the maximum.
pub(crate) const ENTRIES_MAX: usize = 1024;

/// The order of connections.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    /// By number, the oldest first.
    #[default]
    Cid,
    /// The most subscriptions first.
    Subscriptions,
    /// The most bytes that wait for the client first.
    Pending,
    /// The most messages to the client first.
    MessagesTo,
    /// The most messages from the client first.
    MessagesFrom,
    /// The most bytes to the client first.
    BytesTo,
    /// The most bytes from the client first.
    BytesFrom,
    /// The client that sent last first.
    Last,
    /// The client that has not sent for the longest time first.
    Idle,
    /// The longest round-trip time first.
    Rtt,
}

/// The list of subscriptions with each connection.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Subscriptions {
    #[default]
    Number,
    Subjects,
    Details,
}

/// The query of `/connz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnzQuery {
    pub(crate) sort: Sort,
    pub(crate) subscriptions: Subscriptions,
    /// Whether the users of connections are shown.
    pub(crate) auth: bool,
    /// The only connection.
    pub(crate) cid: Option<u64>,
    /// The only user.
    pub(crate) user: Option<String>,
    pub(crate) page: Page,
}

/// The query of `/subsz`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubszQuery {
    /// Whether subscriptions are listed.
    pub(crate) subscriptions: bool,
    pub(crate) page: Page,
}

/// The part of a list.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) offset: usize,
    pub(crate) limit: usize,
}

impl Default for Page {
    fn default() -> Page {
        Page {
            offset: 0,
            limit: ENTRIES_MAX,
        }
    }
}

impl Page {
    /// Handles a parameter. Returns whether it is one of a page.
    fn set(&mut self, key: &str, value: &str) -> Result<bool, String> {
        let number = || {
            let number: i64 = value.parse().map_err(|_| wrong(key, value, "a number"))?;
            Ok::<_, String>(usize::try_from(number).unwrap_or_default())
        };
        match key {
            "offset" => self.offset = number()?,
            "limit" => {
                self.limit = match number()? {
                    0 => ENTRIES_MAX,
                    limit => limit.min(ENTRIES_MAX),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl ConnzQuery {
    /// Reads a query. Ignores parameters that nats-server does not know.
    ///
    /// # Errors
    /// If a value cannot be used, or a parameter asks for something that a daemon does not have.
    pub(crate) fn parse(query: &str) -> Result<ConnzQuery, String> {
        let mut parsed = ConnzQuery::default();
        for (key, value) in parameters(query) {
            let (key, value) = (key.as_str(), value.as_str());
            match key {
                _ if value.is_empty() || parsed.page.set(key, value)? => {}
                "sort" => parsed.sort = sort(value)?,
                "subs" if value == "detail" => parsed.subscriptions = Subscriptions::Details,
                "subs" => {
                    parsed.subscriptions = match boolean(key, value)? {
                        true => Subscriptions::Subjects,
                        false => Subscriptions::Number,
                    }
                }
                "auth" => parsed.auth = boolean(key, value)?,
                "cid" => {
                    let cid = value.parse().map_err(|_| wrong(key, value, "a number"))?;
                    // nats-server takes 0 for all.
                    parsed.cid = Some(cid).filter(|cid| *cid > 0);
                }
                "user" => parsed.user = Some(value.to_owned()),
                "state" => check_state(value)?,
                "acc" | "mqtt_client" | "filter_subject" => return Err(missing(key)),
                _ => {}
            }
        }
        Ok(parsed)
    }
}

impl SubszQuery {
    /// Reads a query. Ignores parameters that nats-server does not know.
    ///
    /// # Errors
    /// As [`ConnzQuery::parse`].
    pub(crate) fn parse(query: &str) -> Result<SubszQuery, String> {
        let mut parsed = SubszQuery::default();
        for (key, value) in parameters(query) {
            let (key, value) = (key.as_str(), value.as_str());
            match key {
                _ if value.is_empty() || parsed.page.set(key, value)? => {}
                "subs" => parsed.subscriptions = boolean(key, value)?,
                "acc" | "test" => return Err(missing(key)),
                _ => {}
            }
        }
        Ok(parsed)
    }
}

fn parameters(query: &str) -> impl Iterator<Item = (String, String)> {
    let decoded = |text| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(key), decoded(value))
    })
}

fn sort(value: &str) -> Result<Sort, String> {
    Ok(match value {
        // A connection's number grows with the time of its start.
        "cid" | "start" | "uptime" => Sort::Cid,
        "subs" => Sort::Subscriptions,
        "pending" => Sort::Pending,
        "msgs_to" => Sort::MessagesTo,
        "msgs_from" => Sort::MessagesFrom,
        "bytes_to" => Sort::BytesTo,
        "bytes_from" => Sort::BytesFrom,
        "last" => Sort::Last,
        "idle" => Sort::Idle,
        "rtt" => Sort::Rtt,
        "stop" | "reason" => {
            return Err(format!("sort by {value} only valid on closed connections"));
        }
        _ => return Err(format!("invalid sorting option: {}", value.escape_debug())),
    })
}

/// Reads a boolean as Go does.
fn boolean(key: &str, value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(wrong(key, value, "a boolean")),
    }
}

fn check_state(value: &str) -> Result<(), String> {
    match value.to_ascii_lowercase().as_str() {
        "open" | "any" | "all" => Ok(()),
        "closed" => Err("state: a daemon keeps no list of closed connections".to_owned()),
        _ => Err(wrong("state", value, "open, any or all")),
    }
}

fn wrong(key: &str, value: &str, wanted: &str) -> String {
    format!("{key}: \"{}\" is not {wanted}", value.escape_debug())
}

fn missing(key: &str) -> String {
    format!("{key}: a daemon has no such filter")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_nats_top_is_understood() {
        let query = ConnzQuery::parse("limit=1024&sort=msgs_to&subs=1").unwrap();
        let expected = ConnzQuery {
            sort: Sort::MessagesTo,
            subscriptions: Subscriptions::Subjects,
            ..ConnzQuery::default()
        };
        assert_eq!(query, expected);
        for name in [
            "cid",
            "start",
            "subs",
            "pending",
            "msgs_to",
            "msgs_from",
            "bytes_to",
            "bytes_from",
            "last",
            "idle",
            "uptime",
            "rtt",
        ] {
            assert!(ConnzQuery::parse(&format!("sort={name}")).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_page_has_a_maximum() {
        for (text, offset, limit) in [
            ("", 0, ENTRIES_MAX),
            ("limit=0&offset=-3", 0, ENTRIES_MAX),
            ("limit=10&offset=20", 20, 10),
            ("limit=100000000", 0, ENTRIES_MAX),
        ] {
            let page = Page { offset, limit };
            assert_eq!(ConnzQuery::parse(text).unwrap().page, page, "{text}");
            assert_eq!(SubszQuery::parse(text).unwrap().page, page, "{text}");
        }
    }

    #[test]
    fn a_parameter_that_cannot_be_answered_is_named() {
        for (text, key) in [
            ("sort=size", "sorting"),
            ("sort=stop", "stop"),
            ("subs=yes", "subs"),
            ("limit=ten", "limit"),
            ("cid=-1", "cid"),
            ("acc=A", "acc"),
            ("state=closed", "state"),
        ] {
            let error = ConnzQuery::parse(text).unwrap_err();
            assert!(error.contains(key), "{error}");
        }
        let error = SubszQuery::parse("test=a.b").unwrap_err();
        assert!(error.starts_with("test: "), "{error}");
        let query = ConnzQuery::parse("cid=0&user=ann%20b&unknown=7&state=").unwrap();
        assert_eq!((query.cid, query.user.as_deref()), (None, Some("ann b")));
    }
}
