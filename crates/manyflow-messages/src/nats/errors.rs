//! Errors that concern one message or one subscription, and leave the connection as it is.
//!
//! Client libraries divide errors by their first words. After "Permissions Violation" all of them
//! report the error to the program and go on. After most other words, nats.go, nats-py and nats.js
//! close the connection and do not connect again. All errors here therefore begin with these two
//! words, in the form of nats-server, and the reason follows: docs/nats.md has a table.

use super::subject::is_text;

/// The maximum number of bytes of a name in an error. Every valid name is shorter.
const NAME_BYTES_SHOWN: usize = 1024;
/// The beginning of errors about a subscription. The pattern and a quotation mark follow.
const SUBSCRIPTION: &str = "Permissions Violation for Subscription to \"";

/// The reason why a daemon refuses a message or a subscription, or ends a subscription.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The user lacks the permission.
    Permission,
    /// The subject, pattern or queue group is not valid.
    Subject,
    /// The subject for replies is not valid.
    Reply,
    /// The pattern and the queue group are too long together.
    Length,
    /// The subscriptions of the client, or those of its user, take all memory that they may.
    Subscriptions,
    /// The client read the messages of the group too slowly.
    SlowConsumer,
}

impl Reason {
    /// Returns the end of the error.
    fn words(self) -> &'static str {
        match self {
            // As nats-server writes it.
            Reason::Permission => "",
            Reason::Subject => ": invalid subject",
            Reason::Reply => ": invalid reply subject",
            Reason::Length => ": a pattern and its queue group have at most 1008 bytes together",
            Reason::Subscriptions => ": maximum subscriptions exceeded",
            Reason::SlowConsumer => ": slow consumer, removed from the group",
        }
    }
}

/// Returns the error of a message that is not published.
pub(crate) fn publish_refused(subject: &[u8], reason: Reason) -> String {
    let (subject, words) = (shown(subject), reason.words());
    format!("Permissions Violation for Publish to \"{subject}\"{words}")
}

/// Returns the error of a subscription that does not exist, or no longer.
pub(crate) fn subscription_refused(pattern: &[u8], queue: Option<&[u8]>, reason: Reason) -> String {
    let (pattern, words) = (shown(pattern), reason.words());
    match queue {
        None => format!("{SUBSCRIPTION}{pattern}\"{words}"),
        Some(queue) => {
            let queue = shown(queue);
            format!("{SUBSCRIPTION}{pattern}\" using queue \"{queue}\"{words}")
        }
    }
}

/// Returns the error of a request of ordered groups that cannot be met.
pub(crate) fn ordered_refused(reason: &str) -> String {
    format!(
        "Permissions Violation for ordered groups: {}",
        shown(reason.as_bytes())
    )
}

/// Returns whether an error is about a subscription to this pattern.
pub(crate) fn is_about_subscription(error: &str, pattern: &str) -> bool {
    let rest = error.strip_prefix(SUBSCRIPTION);
    let rest = rest.and_then(|rest| rest.strip_prefix(pattern));
    rest.is_some_and(|rest| rest.starts_with('"'))
}

/// Returns a name in a form that fits into a line.
fn shown(name: &[u8]) -> String {
    let (name, end) = match name.get(..NAME_BYTES_SHOWN) {
        Some(begin) if begin.len() < name.len() => (begin, "..."),
        _ => (name, ""),
    };
    let text = core::str::from_utf8(name).ok().filter(|_| is_text(name));
    let name = text.map_or_else(|| name.escape_ascii().to_string(), str::to_owned);
    name + end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nats::operations::SUBSCRIPTION_BYTES_MAX;

    const REASONS: [Reason; 6] = [
        Reason::Permission,
        Reason::Subject,
        Reason::Reply,
        Reason::Length,
        Reason::Subscriptions,
        Reason::SlowConsumer,
    ];

    #[test]
    fn each_error_begins_with_the_words_after_which_libraries_go_on() {
        for reason in REASONS {
            let errors = [
                publish_refused(b"a", reason),
                subscription_refused(b"a", None, reason),
                subscription_refused(b"a", Some(b"q"), reason),
            ];
            for error in errors {
                assert!(error.starts_with("Permissions Violation for "), "{error}");
            }
        }
        let length = SUBSCRIPTION_BYTES_MAX.to_string();
        assert!(Reason::Length.words().contains(&length));
    }

    #[test]
    fn a_subscription_is_found_by_its_pattern() {
        let error = subscription_refused(b"a.*", Some(b"q"), Reason::SlowConsumer);
        assert!(is_about_subscription(&error, "a.*"));
        assert!(!is_about_subscription(&error, "a"));
        assert!(!is_about_subscription(&error, "a.*\""));
        let quoted = subscription_refused(b"a\"b", None, Reason::Permission);
        assert!(is_about_subscription(&quoted, "a\"b"));
        let other = publish_refused(b"a.*", Reason::Permission);
        assert!(!is_about_subscription(&other, "a.*"));
    }

    #[test]
    fn names_that_are_no_text_are_escaped_and_cut() {
        assert_eq!(shown("caf\u{e9}".as_bytes()), "caf\u{e9}");
        assert_eq!(shown(b"a\r\n-ERR \xff"), "a\\r\\n-ERR \\xff");
        assert_eq!(shown(&[b'a'; 2000]), "a".repeat(NAME_BYTES_SHOWN) + "...");
    }
}
