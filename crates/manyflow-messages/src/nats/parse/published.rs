//! A published message, as its client wrote it.

use core::ops::Range;

use bytes::{Bytes, BytesMut};

use super::{Name, Operation, ParseError, Words, is_space, memchr_lf};
use crate::nats::subject::{is_subject, is_text, matches};

/// The first bytes of a block of headers, and its last ones.
const HEADERS_BEGIN: &[u8] = b"NATS/1.0";
const HEADERS_END: &[u8] = b"\r\n\r\n";
/// The header with further subjects of a message, which spaces separate.
pub const ALSO: &str = "Manyflow-Also";

/// A published message, in the client's own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// The whole operation, from PUB or HPUB to the CR LF behind the payload.
    raw: Bytes,
    subject: Range<usize>,
    reply: Range<usize>,
    /// Where the headers begin; the payload, if there are none.
    content: usize,
    header_bytes: usize,
}

impl Published {
    /// Decodes a message that another daemon has forwarded. Returns `None` if the bytes are not
    /// exactly one PUB or HPUB that an honest daemon accepts from its client: the other may lie.
    pub fn decode(raw: Bytes) -> Option<Published> {
        let end = memchr_lf(&raw)?;
        let words = Words::of(&raw[..end]);
        let Ok(Name::Publish(has_headers)) = words.operation() else {
            return None;
        };
        let mut parts = words.published(has_headers).ok()??;
        parts.content = end + 1;
        let (subject, reply) = (&raw[parts.subject.clone()], &raw[parts.reply.clone()]);
        let is_valid = parts.end()? == raw.len()
            && parts.is_framed(&raw)
            && is_subject(subject)
            && is_text(reply);
        let message = is_valid.then(|| parts.with(raw))?;
        let are_subjects = message.also().all(is_subject);
        are_subjects.then_some(message)
    }

    /// Returns the bytes that another daemon [decodes](Published::decode).
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Returns the subject.
    pub fn subject(&self) -> &[u8] {
        &self.raw[self.subject.clone()]
    }

    /// Returns the names and values of the headers.
    fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let headers = &self.raw[self.content..self.content + self.header_bytes];
        let lines = headers.split(|byte| *byte == b'\n').skip(1);
        lines.filter_map(|line| {
            let colon = line.iter().position(|byte| *byte == b':')?;
            Some((&line[..colon], &line[colon + 1..]))
        })
    }

    /// Returns the value of the first header with this name, in any case, as it was written.
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        let mut headers = self.headers();
        let found = headers.find(|(other, _)| other.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, value)| value)
    }

    /// Returns whether there are headers other than those with further subjects.
    pub fn has_other_headers(&self) -> bool {
        self.headers().any(|(name, _)| !is_also(name))
    }

    /// Returns the further subjects, which headers name.
    pub fn also(&self) -> impl Iterator<Item = &[u8]> {
        let values = self
            .headers()
            .filter(|(name, _)| is_also(name))
            .map(|(_, value)| value);
        let words = values.flat_map(|value| value.split(|byte| is_space(*byte)));
        words.filter(|word| !word.is_empty())
    }

    /// Returns all subjects.
    pub fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::once(self.subject()).chain(self.also())
    }

    /// Returns the first subject that matches a pattern.
    pub fn subject_for(&self, pattern: &[u8]) -> Option<&[u8]> {
        self.subjects().find(|subject| matches(pattern, subject))
    }

    /// Returns the subject for replies, if there is one.
    pub fn reply(&self) -> Option<&[u8]> {
        let reply = &self.raw[self.reply.clone()];
        (!reply.is_empty()).then_some(reply)
    }

    /// Returns the number of bytes of headers at the beginning of the
    /// [content](Published::content).
    pub fn header_bytes(&self) -> usize {
        self.header_bytes
    }

    /// Returns headers, payload, and the CR LF behind them.
    pub fn content(&self) -> Bytes {
        self.raw.slice(self.content..)
    }

    /// Returns the payload and the CR LF behind it, without headers.
    pub fn payload(&self) -> Bytes {
        self.raw.slice(self.content + self.header_bytes..)
    }
}

fn is_also(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(ALSO.as_bytes())
}

/// The parts of a PUB or HPUB whose line has been read.
pub(super) struct Parts {
    pub(super) subject: Range<usize>,
    pub(super) reply: Range<usize>,
    pub(super) content: usize,
    pub(super) header_bytes: usize,
    /// Bytes of headers and payload.
    pub(super) length: usize,
}

impl Parts {
    /// Returns the length of the whole operation.
    fn end(&self) -> Option<usize> {
        self.content.checked_add(self.length)?.checked_add(2)
    }

    /// Takes the operation from the bytes, if it is complete.
    pub(super) fn take(self, bytes: &mut BytesMut) -> Result<Option<Operation>, ParseError> {
        let end = self.end().ok_or(ParseError::Unknown)?;
        if bytes.len() < end {
            bytes.reserve(end - bytes.len());
            return Ok(None);
        }
        if !self.is_framed(&bytes[..end]) {
            return Err(ParseError::Unknown);
        }
        let raw = bytes.split_to(end).freeze();
        Ok(Some(Operation::Publish(self.with(raw))))
    }

    /// Whether CR LF follows the payload of a whole operation, and its headers, if it has any,
    /// begin with the version and end with an empty line. Subscribers get these bytes unchanged, so
    /// other bytes would let a publisher write operations in the daemon's name.
    fn is_framed(&self, raw: &[u8]) -> bool {
        let (content, behind) = raw[self.content..].split_at(self.length);
        let headers = &content[..self.header_bytes];
        let is_block = headers.starts_with(HEADERS_BEGIN) && headers.ends_with(HEADERS_END);
        behind == b"\r\n" && (headers.is_empty() || is_block)
    }

    fn with(self, raw: Bytes) -> Published {
        Published {
            raw,
            subject: self.subject,
            reply: self.reply,
            content: self.content,
            header_bytes: self.header_bytes,
        }
    }
}
