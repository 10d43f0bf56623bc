//! PUB and SUB of a client: checks, and the reasons for which they are refused.

use bytes::Bytes;

use super::errors::{Reason, publish_refused, subscription_refused};
use super::ordered::OrderedSubject;
use super::parse::Published;
use super::serve::{Connection, End};
use super::subject::{is_pattern, is_subject, is_text};
use crate::core::SessionKey;

/// The beginning of the subjects of requests for the members of a group. The pattern of the group
/// follows.
const MEMBERS: &[u8] = b"$MF.members.";

/// Maximum length of a pattern and the name of its queue group together. The name of a group of the
/// overlay contains both, two spaces and a daemon's number of up to 10 digits.
pub(super) const SUBSCRIPTION_BYTES_MAX: usize = manyflow_overlay::NAME_BYTES_MAX as usize - 16;

/// Returns whether a subject belongs to daemons.
fn is_reserved(subject: &[u8]) -> bool {
    subject.starts_with(b"$MF.")
}

/// Returns whether a subject is that of messages to an ordered group.
fn is_ordered(subject: &[u8]) -> bool {
    OrderedSubject::parse(subject).is_some_and(|subject| subject.is_for_senders())
}

impl Connection<'_> {
    pub(super) fn publish(
        &self,
        key: SessionKey,
        message: Published,
        bytes: usize,
    ) -> Result<(), End> {
        let subject = message.subject();
        let refused = message.subjects().find_map(|subject| {
            let reason = self.check_publication(subject, is_ordered(message.subject()))?;
            Some(publish_refused(subject, reason))
        });
        if message.reply().is_some_and(|reply| !is_text(reply)) {
            self.report(&publish_refused(subject, Reason::Reply));
        } else if let Some(pattern) = subject.strip_prefix(MEMBERS) {
            self.answer_members(key, pattern, &message);
        } else if let Some(error) = refused {
            self.report(&error);
        } else {
            let mut core = self.front.core.borrow_mut();
            core.session(key).acknowledge();
            core.publish(key, message, bytes);
            return Ok(());
        }
        self.front.core.borrow_mut().count_operation(key, bytes);
        Ok(())
    }

    /// Returns why the client may not publish to a subject, if it may not. All subjects of a
    /// message are `in_order`, or none.
    fn check_publication(&self, subject: &[u8], in_order: bool) -> Option<Reason> {
        let own = self.permissions.as_ref();
        let ordered = OrderedSubject::parse(subject);
        let is_sent_in_order = is_ordered(subject);
        // The rights to an ordered group are those to the subject of its name.
        let name = ordered.map_or(subject, |subject| subject.group.as_bytes());
        match own.is_some_and(|own| own.may_publish(name)) {
            _ if !is_subject(subject) => Some(Reason::Subject),
            _ if is_reserved(subject) && !is_sent_in_order => Some(Reason::Subject),
            _ if in_order != is_sent_in_order => Some(Reason::Subject),
            true => None,
            false => Some(Reason::Permission),
        }
    }

    /// Answers a request for the members of a group to a client that could become one.
    fn answer_members(&self, key: SessionKey, pattern: &[u8], request: &Published) {
        if self.may_subscribe(pattern) {
            let mut core = self.front.core.borrow_mut();
            core.answer_members(key, pattern, request);
        } else {
            self.report(&subscription_refused(pattern, None, Reason::Permission));
        }
    }

    fn may_subscribe(&self, pattern: &[u8]) -> bool {
        let own = self.permissions.as_ref();
        own.is_some_and(|own| own.may_subscribe(pattern))
    }

    pub(super) fn subscribe(
        &self,
        key: SessionKey,
        pattern: Bytes,
        queue: Option<Bytes>,
        sid: Bytes,
    ) {
        if let Err(reason) = self.check_subscription(key, &pattern, queue.as_deref(), &sid) {
            return self.report(&subscription_refused(&pattern, queue.as_deref(), reason));
        }
        let mut core = self.front.core.borrow_mut();
        match OrderedSubject::parse(&pattern) {
            Some(subject) => core.subscribe_ordered(key, &subject, sid),
            None => core.subscribe(key, pattern, queue, sid),
        }
        core.session(key).acknowledge();
    }

    fn check_subscription(
        &self,
        key: SessionKey,
        pattern: &[u8],
        queue: Option<&[u8]>,
        sid: &[u8],
    ) -> Result<(), Reason> {
        let ordered = OrderedSubject::parse(pattern);
        let is_ordered = ordered.is_some_and(|subject| subject.is_for_members()) && queue.is_none();
        if !is_pattern(pattern)
            || (is_reserved(pattern) && !is_ordered)
            || queue.is_some_and(|queue| !is_pattern(queue))
        {
            return Err(Reason::Subject);
        }
        if pattern.len() + queue.map_or(0, <[u8]>::len) > SUBSCRIPTION_BYTES_MAX {
            return Err(Reason::Length);
        }
        let name = ordered.map_or(pattern, |subject| subject.group.as_bytes());
        if !self.may_subscribe(name) {
            return Err(Reason::Permission);
        }
        let mut core = self.front.core.borrow_mut();
        if core.session(key).subscription_count() >= self.front.limits.subscriptions_max
            || !core.has_room_for(key, pattern, queue, sid)
        {
            core.refuse_subscription(key);
            return Err(Reason::Subscriptions);
        }
        Ok(())
    }
}
