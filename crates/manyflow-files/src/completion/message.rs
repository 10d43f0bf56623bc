//! The format of the messages: reports of receivers, and answers of the sender.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! |      'm'      |      'f'      |      'c'      |     kind      |
//! |                       TSI, 2 words                            |
//! |           number of the receiver, 2 words                     |
//! |       cookie, 2 words: 0 if the receiver has none yet         |
//! ```
//!
//! A report goes on with the receiver's state, and ends with its MAC:
//!
//! ```text
//! |     state     |    failure    | bytes of name |     flags     |
//! |       bytes that the receiver has, 2 words                    |
//! |       bytes of all files, 2 words                             |
//! |       rate in bits per second, 2 words                        |
//! |       name                                                  ...
//! | bytes of needs in 2 bytes, and the symbols that it needs: if it says so ...
//! |       public key, 8 words, and signature, 16 words: if signed |
//! |       MAC, 4 words: HMAC-SHA-256, its first 128 bits          |
//! ```
//!
//! Flags are 1 if the report is signed, and 2 if it says which symbols the receiver needs.
//!
//! An answer has the cookie of the report that it answers, and goes on with these:
//!
//! ```text
//! |       cookie for the next report, 2 words                     |
//! |       window in seconds: the receiver reports once in each    |
//! |       MAC, 4 words                                            |
//! ```
//!
//! No packet of a session starts with these letters, because an LCT header starts with its version,
//! 1 (RFC 5651 section 5.1). So the MAC of one cannot be used for the other. A signature covers the
//! digest of the session's table of files and the report through the public key. A report contains
//! a cookie that only this sender knew, and that the sender accepts once. So no report of another
//! session or another time has the signature.

use std::time::Duration;

use manyflow_core::units::Rate;
use manyflow_net::keys::{KEY_BYTES, PublicKey, SIGNATURE_BYTES, SigningKey};
use manyflow_object::needs::Needs;
use ring::hmac;
use subtle::ConstantTimeEq as _;

use super::CompletionKey;
use super::identity::{Identity, NAME_BYTES_MAX, ReceiverName};
use super::status::{self, ReceiverStatus, Transfer};

/// The maximum length of a message in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize =
    NAME_START + NAME_BYTES_MAX + 2 + NEEDS_BYTES_MAX + SIGNED_BYTES + MAC_BYTES;
/// The maximum length of the needs in a report, so that it fits any path of 1280 bytes.
pub(crate) const NEEDS_BYTES_MAX: usize = 900;
/// Length of an answer in bytes.
pub(super) const ANSWER_BYTES: usize = 40 + MAC_BYTES;

const MAGIC: [u8; 3] = *b"mfc";
const NAME_START: usize = 56;
const MAC_BYTES: usize = 16;
/// Length of a public key and a signature.
const SIGNED_BYTES: usize = KEY_BYTES + SIGNATURE_BYTES;
/// Begins what a receiver's key signs, so that the signature means nothing elsewhere.
const SIGNED_CONTEXT: &[u8] = b"manyflow completion report\0";
/// The kind of reports.
const REPORT: u8 = 1;
/// The flags of reports.
const SIGNED: u8 = 1;
const HAS_NEEDS: u8 = 2;

// An attacker cannot make a sender send more to a forged address than the attacker has sent.
const _: () = assert!(ANSWER_BYTES <= NAME_START + 1 + MAC_BYTES);

/// A report of a receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) number: u64,
    /// The proof of the receiver's address; 0 for none.
    pub(super) cookie: u64,
    pub(super) status: ReceiverStatus,
    pub(super) transfer: Transfer,
    /// The symbols that the receiver needs, if it says so.
    pub(super) needs: Option<Needs>,
    pub(super) name: ReceiverName,
    /// The key that the receiver claims to have. See [`is_signed`].
    pub(super) claimed_key: Option<PublicKey>,
}

/// The kind of an answer.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum AnswerKind {
    /// The receiver shall report again, with the next cookie.
    Challenge = 2,
    /// The sender has accepted the report.
    Accepted = 3,
}

/// An answer of the sender.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) kind: AnswerKind,
    pub(super) number: u64,
    /// The cookie of the report that this answers.
    pub(super) answered_cookie: u64,
    pub(super) next_cookie: u64,
    /// The window in which the receiver reports once, in whole seconds.
    pub(super) window: Duration,
}

/// Returns a report of the receiver `identity`.
pub(super) fn encode_report(
    key: &CompletionKey,
    identity: &Identity,
    cookie: u64,
    status: ReceiverStatus,
    transfer: &Transfer,
    needs: Option<&[u8]>,
) -> Vec<u8> {
    let name = identity.name.as_str().as_bytes();
    let mut bytes = Vec::with_capacity(MESSAGE_BYTES_MAX);
    begin(&mut bytes, REPORT, key, identity.number, cookie);
    bytes.extend(status::encode(status));
    let needs = needs.filter(|needs| needs.len() <= NEEDS_BYTES_MAX);
    let signed = identity.key.as_ref().map_or(0, |_| SIGNED);
    let flags = signed | needs.map_or(0, |_| HAS_NEEDS);
    bytes.extend([name.len() as u8, flags]);
    let numbers = [
        transfer.bytes,
        transfer.total_bytes,
        transfer.rate.bits_per_s(),
    ];
    bytes.extend(numbers.into_iter().flat_map(u64::to_be_bytes));
    bytes.extend(name);
    if let Some(needs) = needs {
        bytes.extend((needs.len() as u16).to_be_bytes());
        bytes.extend(needs);
    }
    if let Some(signing) = &identity.key {
        sign(&mut bytes, key, signing);
    }
    append_mac(&mut bytes, key);
    debug_assert!(bytes.len() <= MESSAGE_BYTES_MAX);
    bytes
}

fn sign(bytes: &mut Vec<u8>, key: &CompletionKey, signing: &SigningKey) {
    bytes.extend(signing.public().to_bytes());
    let signature = signing.sign(&signed_bytes(bytes, key));
    bytes.extend(signature);
}

/// Returns the bytes that a key signs, for a report through the key.
fn signed_bytes(report: &[u8], key: &CompletionKey) -> Vec<u8> {
    [SIGNED_CONTEXT, &key.content_id, report].concat()
}

/// Whether the key that the report in `bytes` names has signed it. The report has been decoded.
pub(super) fn is_signed(bytes: &[u8], key: &CompletionKey, report: &Report) -> bool {
    let Some(claimed) = &report.claimed_key else {
        return false;
    };
    let body = &bytes[..bytes.len() - MAC_BYTES];
    let Some((signed, signature)) = body.split_last_chunk() else {
        return false;
    };
    claimed.verifies(&signed_bytes(signed, key), signature)
}

/// Returns the report in a datagram. Returns `None` for datagrams of other protocols or sessions,
/// and for reports with a wrong MAC. The signature is not checked.
pub(super) fn decode_report(bytes: &[u8], key: &CompletionKey) -> Option<Report> {
    let body = checked_body(bytes, key)?;
    if body[3] != REPORT {
        return None;
    }
    let [state, failure, name_bytes, flags] = *body.get(28..)?.first_chunk()?;
    let (name, rest) = body
        .get(NAME_START..)?
        .split_at_checked(name_bytes.into())?;
    let (needs, signed) = match flags & HAS_NEEDS {
        0 => (None, rest),
        _ => {
            let (length, rest) = rest.split_first_chunk()?;
            let (needs, signed) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
            (Some(Needs::decode(needs)?), signed)
        }
    };
    let claimed_key = match (flags & !HAS_NEEDS, signed.len()) {
        (0, 0) => None,
        (SIGNED, SIGNED_BYTES) => Some(PublicKey::from_bytes(*signed.first_chunk()?)),
        _ => return None,
    };
    let report = Report {
        number: word(body, 12)?,
        cookie: word(body, 20)?,
        status: status::decode([state, failure])?,
        transfer: Transfer {
            bytes: word(body, 32)?,
            total_bytes: word(body, 40)?,
            rate: Rate::from_bits_per_s(word(body, 48)?),
        },
        needs,
        name: std::str::from_utf8(name).ok()?.parse().ok()?,
        claimed_key,
    };
    (report.transfer.bytes <= report.transfer.total_bytes).then_some(report)
}

impl Answer {
    pub(super) fn encode(&self, key: &CompletionKey) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ANSWER_BYTES);
        begin(
            &mut bytes,
            self.kind as u8,
            key,
            self.number,
            self.answered_cookie,
        );
        bytes.extend(self.next_cookie.to_be_bytes());
        bytes.extend((self.window.as_secs() as u32).to_be_bytes());
        append_mac(&mut bytes, key);
        debug_assert_eq!(bytes.len(), ANSWER_BYTES);
        bytes
    }

    /// Returns the answer in a datagram. Returns `None` for datagrams of other protocols or
    /// sessions, and for answers with a wrong MAC.
    pub(super) fn decode(bytes: &[u8], key: &CompletionKey) -> Option<Answer> {
        let body = checked_body(bytes, key).filter(|_| bytes.len() == ANSWER_BYTES)?;
        let window = u32::from_be_bytes(*body[36..].first_chunk()?);
        Some(Answer {
            kind: match body[3] {
                2 => AnswerKind::Challenge,
                3 => AnswerKind::Accepted,
                _ => return None,
            },
            number: word(body, 12)?,
            answered_cookie: word(body, 20)?,
            next_cookie: word(body, 28)?,
            window: Duration::from_secs(window.into()),
        })
    }
}

/// Writes the first seven words of a message.
fn begin(bytes: &mut Vec<u8>, kind: u8, key: &CompletionKey, number: u64, cookie: u64) {
    bytes.extend(MAGIC);
    bytes.push(kind);
    let words = [key.tsi, number, cookie];
    bytes.extend(words.into_iter().flat_map(u64::to_be_bytes));
}

fn append_mac(bytes: &mut Vec<u8>, key: &CompletionKey) {
    let mac = hmac::sign(&key.key, bytes);
    bytes.extend(&mac.as_ref()[..MAC_BYTES]);
}

/// Returns a message without its MAC, if it is one of this session and the MAC is right.
fn checked_body<'a>(bytes: &'a [u8], key: &CompletionKey) -> Option<&'a [u8]> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return None;
    }
    let (body, mac) = bytes.split_last_chunk::<MAC_BYTES>()?;
    if !body.starts_with(&MAGIC) || word(body, 4)? != key.tsi || body.len() < 40 {
        return None;
    }
    let expected = hmac::sign(&key.key, body);
    let is_genuine: bool = expected.as_ref()[..MAC_BYTES].ct_eq(mac).into();
    is_genuine.then_some(body)
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_be_bytes(*word))
}
