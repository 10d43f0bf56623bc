//! Subjects and headers by which bridges find each other.
//!
//! | subject | where | what it carries |
//! |---|---|---|
//! | those of the configuration | both | core messages, unchanged |
//! | `_MF.reply.SITE.MAC.SUBJECT` | both | an answer for `SUBJECT` at a site, or in the overlay (`replies.rs`) |
//! | `_MF.stream.SITE.STREAM` | overlay | messages of a site's JetStream stream |
//! | `_MF.stored.SITE.STREAM` | overlay | which of them another site has stored |
//! | `_MF.bridge.SITE` | nats-server | the site's bridges, of which one is active |

/// The site at which a message entered the overlay.
pub(crate) const SITE: &str = "Manyflow-Site";
/// The subject of a message of a stream.
pub(crate) const SUBJECT: &str = "Manyflow-Subject";
/// The place of a message of a stream: the creation of the stream and the sequence number.
pub(crate) const PLACE: &str = "Manyflow-Place";
/// The sequence number below which a stream sends no message again.
pub(crate) const FLOOR: &str = "Manyflow-Floor";
/// The highest place of a message of the other stream that was stored here when this one was.
pub(crate) const HIGHEST: &str = "Manyflow-Highest";
/// The beginning of all these headers.
const OWN: &str = "Manyflow-";
/// The site of messages that clients of the overlay have published. No bridge has this name.
pub(crate) const OVERLAY: &str = "overlay";

/// Returns the subject for messages of a stream.
pub(crate) fn stream(site: &str, stream: &str) -> String {
    format!("_MF.stream.{site}.{stream}")
}

/// Returns the subject for reports of messages that are stored.
pub(crate) fn stored(site: &str, stream: &str) -> String {
    format!("_MF.stored.{site}.{stream}")
}

/// Returns the subject at which the bridges of a site find each other.
pub(crate) fn bridge(site: &str) -> String {
    format!("_MF.bridge.{site}")
}

/// Returns whether a header is one of daemons and bridges. Programs at a nats-server cannot send
/// these to other sites, so they can neither name another place nor further subjects.
pub(crate) fn is_own_header(name: &str) -> bool {
    let start = name.get(..OWN.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(OWN))
}
