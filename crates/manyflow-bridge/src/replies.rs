//! Reply subjects that are valid everywhere.
//!
//! The reply subject of a message that crosses becomes `_MF.reply.SITE.MAC.SUBJECT`. An answer
//! finds the way back by the site, and the bridge there publishes it to the subject. The MAC shows
//! that this bridge has made the reply subject: otherwise, everyone who may send answers could
//! publish to every subject of a site, such as those of JetStream's administration. Nothing is
//! stored.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use crate::names::OVERLAY;

const PREFIX: &str = "_MF.reply.";

/// All subjects of answers.
pub(crate) const REPLIES: &str = "_MF.reply.>";

/// The reply subjects of a bridge.
#[derive(Clone, Debug)]
pub(crate) struct Replies {
    site: String,
    key: [u8; 16],
}

impl Replies {
    /// Returns the reply subjects of a bridge with a secret key. Answers to requests that an
    /// earlier process has passed on are lost.
    pub(crate) fn new(site: &str, key: [u8; 16]) -> Replies {
        Replies {
            site: site.to_owned(),
            key,
        }
    }

    /// Returns the pattern of answers for this site.
    pub(crate) fn pattern(&self) -> String {
        format!("{PREFIX}{}.>", self.site)
    }

    /// Returns the reply subject of a message that leaves the site.
    pub(crate) fn leaving(&self, reply: &str) -> String {
        self.wrap(reply, &self.site)
    }

    /// Returns the reply subject, at this site, of a message that has arrived. One of this site is
    /// used as it was; one of a client of the overlay gets a way back.
    pub(crate) fn arriving(&self, reply: &str) -> String {
        match self.unwrap(reply, &self.site) {
            Some(own) => own.to_owned(),
            None => self.wrap(reply, OVERLAY),
        }
    }

    /// Returns the subject at this site of an answer from the overlay; `None` if this bridge has
    /// not asked for it.
    pub(crate) fn answer_here<'a>(&self, subject: &'a str) -> Option<&'a str> {
        self.unwrap(subject, &self.site)
    }

    /// Returns the subject in the overlay of an answer that was published at this site; `None` if
    /// it is for this site, or for a client of the overlay that has not asked for it.
    pub(crate) fn answer_elsewhere<'a>(&self, subject: &'a str) -> Option<&'a str> {
        let (to, _) = subject.strip_prefix(PREFIX)?.split_once('.')?;
        match to {
            OVERLAY => self.unwrap(subject, OVERLAY),
            to if to == self.site => None,
            // The bridge of that site checks it.
            _ => Some(subject),
        }
    }

    fn wrap(&self, reply: &str, to: &str) -> String {
        match reply.starts_with(PREFIX) {
            true => reply.to_owned(),
            false => format!("{PREFIX}{to}.{:016x}.{reply}", self.mac(to, reply)),
        }
    }

    fn unwrap<'a>(&self, subject: &'a str, to: &str) -> Option<&'a str> {
        let rest = subject.strip_prefix(PREFIX)?.strip_prefix(to)?;
        let (mac, reply) = rest.strip_prefix('.')?.split_once('.')?;
        let mac = u64::from_str_radix(mac, 16).ok()?;
        (mac == self.mac(to, reply)).then_some(reply)
    }

    fn mac(&self, to: &str, reply: &str) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        // The name of a site contains no dot.
        hasher.write(to.as_bytes());
        hasher.write(b".");
        hasher.write(reply.as_bytes());
        hasher.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bridges() -> [Replies; 2] {
        [
            Replies::new("berlin", [1; 16]),
            Replies::new("paris", [2; 16]),
        ]
    }

    #[test]
    fn an_answer_of_another_site_comes_back_to_the_subject_of_the_request() {
        let [berlin, paris] = bridges();
        let leaving = berlin.leaving("_INBOX.x.1");
        assert!(leaving.starts_with("_MF.reply.berlin."), "{leaving}");
        let at_paris = paris.arriving(&leaving);
        assert_eq!(at_paris, leaving, "programs at paris answer to it");
        assert_eq!(paris.answer_elsewhere(&at_paris), Some(&*leaving));
        assert_eq!(berlin.answer_here(&leaving), Some("_INBOX.x.1"));
        assert_eq!(
            berlin.answer_elsewhere(&leaving),
            None,
            "it is for this site"
        );
        assert_eq!(berlin.arriving(&leaving), "_INBOX.x.1");
    }

    #[test]
    fn an_answer_for_a_client_of_the_overlay_gets_its_own_subject() {
        let [_, paris] = bridges();
        let at_paris = paris.arriving("_INBOX.y");
        assert_eq!(paris.answer_elsewhere(&at_paris), Some("_INBOX.y"));
    }

    #[test]
    fn subjects_that_a_bridge_has_not_made_are_refused() {
        let [berlin, paris] = bridges();
        let leaving = berlin.leaving("_INBOX.x");
        let forged = leaving.replace("_INBOX.x", "$JS.API.STREAM.DELETE.S");
        assert_eq!(berlin.answer_here(&forged), None);
        let of_other = paris.leaving("_INBOX.x").replace("paris", "berlin");
        assert_eq!(berlin.answer_here(&of_other), None);
        let for_overlay = berlin.arriving("_INBOX.x").replace(OVERLAY, "berlin");
        assert_eq!(berlin.answer_here(&for_overlay), None);
        for wrong in [
            "",
            "_MF.reply.berlin",
            "_MF.reply.berlin.1",
            "_MF.reply.berlin.x.y",
            "a.b",
        ] {
            assert_eq!(berlin.answer_here(wrong), None, "{wrong}");
            assert_eq!(berlin.answer_elsewhere(wrong), None, "{wrong}");
        }
    }
}
