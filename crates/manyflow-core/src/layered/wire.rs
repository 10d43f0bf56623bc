//! The bytes of layered sessions' packets, behind UDP. Integers are in network order.
//!
//! ```text
//!            0        1        2        3        4 ...
//!   data        | 1      | group  | request         | sequence | rate | rtt_us | reserved
//!   feedback    | 2      | m group| request         | source | session | reports | congested | minimum | maximum
//!                                                   | population | hold_us | rtt_us
//!   experiment  | 3      | group  | reserved        | session
//! ```
//!
//! `m` is the highest bit of its byte: more feedback of this source and request follows.

use super::{Data, Experiment, Feedback, GROUPS_MAX, Message};

const DATA: u8 = 1;
const FEEDBACK: u8 = 2;
const EXPERIMENT: u8 = 3;
/// In the byte of the group: more feedback follows.
const MORE: u8 = 0x80;

/// The bytes of the longest encoded header.
pub const HEADER_BYTES_MAX: usize = 40;

/// Why bytes are no packet of a layered session.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// There are fewer bytes than the header takes.
    #[error("{have} bytes, where the header takes {want}")]
    Short {
        /// Bytes there are.
        have: usize,
        /// Bytes that the header takes.
        want: usize,
    },
    /// The first byte is none of the known kinds.
    #[error("kind {0} is not known: 1 is data, 2 feedback, 3 an experiment")]
    Kind(u8),
    /// The rank is not below [`GROUPS_MAX`].
    #[error("group {0} is above the last, {last}", last = GROUPS_MAX - 1)]
    Group(u8),
    /// More reports are congested than there are, or the lowest rate is above the highest.
    #[error("{0}")]
    Contradiction(&'static str),
}

/// An encoded header.
#[derive(Copy, Clone, Debug)]
pub struct Encoded {
    bytes: [u8; HEADER_BYTES_MAX],
    length: usize,
}

impl Encoded {
    fn of<const WORDS: usize>(kind: u8, group: u8, request: u16, words: [u32; WORDS]) -> Encoded {
        let mut bytes = [0; HEADER_BYTES_MAX];
        (bytes[0], bytes[1]) = (kind, group);
        bytes[2..4].copy_from_slice(&request.to_be_bytes());
        for (place, word) in words.into_iter().enumerate() {
            bytes[4 + 4 * place..8 + 4 * place].copy_from_slice(&word.to_be_bytes());
        }
        let length = 4 + 4 * WORDS;
        Encoded { bytes, length }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Message {
    /// The bytes of the header that follow UDP's.
    pub(super) fn header_bytes(&self) -> usize {
        match self {
            Message::Data(_) => 20,
            Message::Feedback(_) => 40,
            Message::Experiment(_) => 8,
        }
    }

    /// Encodes the header.
    pub fn encode(&self) -> Encoded {
        match *self {
            Message::Data(data) => {
                let words = [data.sequence, data.rate, data.rtt_us, 0];
                Encoded::of(DATA, data.group, data.request, words)
            }
            Message::Feedback(feedback) => Encoded::of(
                FEEDBACK,
                feedback.group | if feedback.more { MORE } else { 0 },
                feedback.request,
                [
                    feedback.source,
                    feedback.session,
                    feedback.reports,
                    feedback.congested,
                    feedback.minimum,
                    feedback.maximum,
                    feedback.population,
                    feedback.hold_us,
                    feedback.rtt_us,
                ],
            ),
            Message::Experiment(experiment) => {
                Encoded::of(EXPERIMENT, experiment.group, 0, [experiment.session])
            }
        }
    }

    /// Decodes the header at the beginning of `bytes`; a payload may follow it.
    ///
    /// # Errors
    /// Where the bytes are too few, of no known kind, or contradict themselves.
    pub fn decode(bytes: &[u8]) -> Result<Message, WireError> {
        let [kind, group, ..] = *bytes else {
            return Err(WireError::Short {
                have: bytes.len(),
                want: 2,
            });
        };
        let more = kind == FEEDBACK && group & MORE != 0;
        let group = if more { group & !MORE } else { group };
        if group >= GROUPS_MAX {
            return Err(WireError::Group(group));
        }
        match kind {
            DATA => {
                let (request, [sequence, rate, rtt_us, _]) = words(bytes)?;
                Ok(Message::Data(Data {
                    group,
                    sequence,
                    request,
                    rate,
                    rtt_us,
                }))
            }
            FEEDBACK => feedback(group, more, bytes).map(Message::Feedback),
            EXPERIMENT => {
                let (_, [session]) = words(bytes)?;
                Ok(Message::Experiment(Experiment { session, group }))
            }
            other => Err(WireError::Kind(other)),
        }
    }
}

fn feedback(group: u8, more: bool, bytes: &[u8]) -> Result<Feedback, WireError> {
    let (request, words) = words(bytes)?;
    let [
        source,
        session,
        reports,
        congested,
        minimum,
        maximum,
        population,
        hold_us,
        rtt_us,
    ] = words;
    if congested > reports {
        return Err(WireError::Contradiction(
            "more reports are congested than there are",
        ));
    }
    if minimum > maximum {
        return Err(WireError::Contradiction(
            "the lowest rate is above the highest",
        ));
    }
    Ok(Feedback {
        source,
        session,
        group,
        more,
        request,
        reports,
        congested,
        minimum,
        maximum,
        population,
        hold_us,
        rtt_us,
    })
}

/// The request, and the words behind it.
fn words<const WORDS: usize>(bytes: &[u8]) -> Result<(u16, [u32; WORDS]), WireError> {
    let want = 4 + 4 * WORDS;
    let short = || WireError::Short {
        have: bytes.len(),
        want,
    };
    let header = bytes.get(..want).ok_or_else(short)?;
    let request = u16::from_be_bytes([header[2], header[3]]);
    let word = |place: usize| {
        let at = 4 + 4 * place;
        u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    Ok((request, core::array::from_fn(word)))
}
