//! The encoding of the packets of layered sessions, over UDP. Integers are in network order.
//!
//! ```text
//!            0        1        2        3        4 ...
//!   data        | 1      |pg group| request         | sequence | rate | rtt_us | next_rate
//!   feedback    | 2      | m group| request         | source | session | reports | congested | minimum | maximum
//!                                                   | population | hold_us | rtt_us
//!   experiment  | 3      | group  | reserved        | session
//! ```
//!
//! `m` is the highest bit of its byte: more feedback of this source, in answer to this request,
//! follows. `p` is the same bit in data: the packet is the second of a pair. `g` is the bit below:
//! the request is only for receivers whose top group is that of the packet.

use manyflow_core::wire::{self, TooShort};

use super::{Data, Experiment, Feedback, GROUPS_MAX, Message};

const DATA: u8 = 1;
const FEEDBACK: u8 = 2;
const EXPERIMENT: u8 = 3;
/// The bit in the byte of the group that announces more feedback.
const MORE: u8 = 0x80;
/// The bit in the byte of the group that tells the second packet of a pair.
const PAIR: u8 = 0x80;
/// The bit in the byte of the group with which a request of data is for one group.
const FOR_GROUP: u8 = 0x40;

/// The length in bytes of the longest encoded header, that of feedback.
pub const HEADER_BYTES_MAX: usize = 40;

/// The reason why bytes are not a packet of a layered session.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// There are fewer bytes than the header takes.
    #[error(transparent)]
    Short(#[from] TooShort),
    /// The first byte is not a known kind.
    #[error("kind {0} is not known: 1 is data, 2 feedback, 3 an experiment")]
    Kind(u8),
    /// The rank is not below [`GROUPS_MAX`].
    #[error("group {0} is above the last, {last}", last = GROUPS_MAX - 1)]
    Group(u8),
    /// The header contradicts itself: more reports are congested than there are, or the lowest rate
    /// is above the highest.
    #[error("{0}")]
    Contradiction(&'static str),
}

/// An encoded header.
pub type Encoded = manyflow_core::wire::Encoded<HEADER_BYTES_MAX>;

/// Encodes a header.
fn encode<const WORDS: usize>(kind: u8, group: u8, request: u16, words: [u32; WORDS]) -> Encoded {
    let [high, low] = request.to_be_bytes();
    Encoded::new([kind, group, high, low], words)
}

impl Message {
    /// Returns the length of the header after that of UDP, in bytes.
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
                let words = [data.sequence, data.rate, data.rtt_us, data.next_rate];
                let pair = if data.is_pair { PAIR } else { 0 };
                let for_group = if data.is_for_group { FOR_GROUP } else { 0 };
                encode(DATA, data.group | pair | for_group, data.request, words)
            }
            Message::Feedback(feedback) => encode(
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
                encode(EXPERIMENT, experiment.group, 0, [experiment.session])
            }
        }
    }

    /// Decodes the header at the beginning of `bytes`. A payload may follow it.
    ///
    /// # Errors
    /// If there are too few bytes, the kind or the group is unknown, or the header contradicts
    /// itself.
    pub fn decode(bytes: &[u8]) -> Result<Message, WireError> {
        let [kind, group, ..] = *bytes else {
            return Err(WireError::Short(TooShort {
                have: bytes.len(),
                want: 2,
            }));
        };
        let is_flagged = kind != EXPERIMENT && group & MORE != 0;
        let group = if is_flagged { group & !MORE } else { group };
        let is_for_group = kind == DATA && group & FOR_GROUP != 0;
        let group = if is_for_group {
            group & !FOR_GROUP
        } else {
            group
        };
        if group >= GROUPS_MAX {
            return Err(WireError::Group(group));
        }
        match kind {
            DATA => {
                let (request, [sequence, rate, rtt_us, next_rate]) = words(bytes)?;
                Ok(Message::Data(Data {
                    group,
                    sequence,
                    request,
                    is_for_group,
                    rate,
                    rtt_us,
                    next_rate,
                    is_pair: is_flagged,
                }))
            }
            FEEDBACK => feedback(group, is_flagged, bytes).map(Message::Feedback),
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

/// Returns the request, and the words after it.
fn words<const WORDS: usize>(bytes: &[u8]) -> Result<(u16, [u32; WORDS]), TooShort> {
    let ([.., high, low], words) = wire::words(bytes)?;
    Ok((u16::from_be_bytes([high, low]), words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_core::{Channel, Destination, Ecn, Packet};
    use proptest::prelude::*;

    const FEEDBACK_MESSAGE: Feedback = Feedback {
        source: 0x0102_0304,
        session: 0x1112_1314,
        group: 31,
        more: true,
        request: 0x2122,
        reports: 0x3132_3334,
        congested: 0x3132_3333,
        minimum: 0x4142_4344,
        maximum: 0x5152_5354,
        population: 0x6162_6364,
        hold_us: 0x7172_7374,
        rtt_us: 0x8182_8384,
    };

    #[rustfmt::skip]
    const FEEDBACK_BYTES: [u8; 40] = [
        2, 0x80 | 31, 0x21, 0x22,
        0x01, 0x02, 0x03, 0x04,
        0x11, 0x12, 0x13, 0x14,
        0x31, 0x32, 0x33, 0x34,
        0x31, 0x32, 0x33, 0x33,
        0x41, 0x42, 0x43, 0x44,
        0x51, 0x52, 0x53, 0x54,
        0x61, 0x62, 0x63, 0x64,
        0x71, 0x72, 0x73, 0x74,
        0x81, 0x82, 0x83, 0x84,
    ];

    #[test]
    fn the_bytes_of_each_kind_are_those_of_the_table() {
        let data = Message::Data(Data {
            group: 4,
            sequence: 0x0102_0304,
            request: 0x0506,
            is_for_group: true,
            rate: 125_000,
            rtt_us: 100_000,
            next_rate: 0x1112_1314,
            is_pair: true,
        });
        #[rustfmt::skip]
        let data_bytes = [
            1, 0xc4, 5, 6, 1, 2, 3, 4, 0, 0x01, 0xe8, 0x48, 0, 0x01, 0x86, 0xa0, 0x11, 0x12, 0x13, 0x14,
        ];
        assert_eq!(data.encode().as_bytes(), data_bytes);
        let feedback = Message::Feedback(FEEDBACK_MESSAGE);
        assert_eq!(feedback.encode().as_bytes(), FEEDBACK_BYTES);
        let experiment = Message::Experiment(Experiment {
            session: 0x0a0b_0c0d,
            group: 2,
        });
        let experiment_bytes = [3, 2, 0, 0, 0x0a, 0x0b, 0x0c, 0x0d];
        assert_eq!(experiment.encode().as_bytes(), experiment_bytes);
    }

    #[test]
    fn fewer_bytes_than_a_header_are_refused() {
        for (kind, whole) in [(1, 20), (2, 40), (3, 8)] {
            let mut bytes = [0; HEADER_BYTES_MAX];
            bytes[0] = kind;
            for have in 0..whole {
                let want = if have < 2 { 2 } else { whole };
                let short = WireError::Short(TooShort { have, want });
                assert_eq!(Message::decode(&bytes[..have]), Err(short));
            }
            assert!(Message::decode(&bytes[..whole]).is_ok());
        }
    }

    #[test]
    fn unknown_kinds_and_ranks_are_refused() {
        for kind in [0, 4, 255] {
            let mut bytes = [0; HEADER_BYTES_MAX];
            bytes[0] = kind;
            assert_eq!(Message::decode(&bytes), Err(WireError::Kind(kind)));
        }
        for kind in [1, 2, 3] {
            let mut bytes = [0; HEADER_BYTES_MAX];
            (bytes[0], bytes[1]) = (kind, GROUPS_MAX);
            assert_eq!(Message::decode(&bytes), Err(WireError::Group(32)));
        }
        let message = WireError::Group(32).to_string();
        assert_eq!(message, "group 32 is above the last, 31");
    }

    #[test]
    fn feedback_that_contradicts_itself_is_refused() {
        let with = |place: usize, byte| {
            let mut bytes = FEEDBACK_BYTES;
            bytes[place] = byte;
            Message::decode(&bytes)
        };
        assert_eq!(with(0, 2), Ok(Message::Feedback(FEEDBACK_MESSAGE)));
        // Bytes 19 and 20 are the last byte of the congested reports and the first of the lowest
        // rate.
        assert!(with(19, 0x34).is_ok() && with(20, 0x51).is_ok());
        for (place, byte) in [(19, 0x35), (20, 0x52)] {
            let refused = with(place, byte);
            assert!(
                matches!(refused, Err(WireError::Contradiction(_))),
                "{refused:?}"
            );
        }
    }

    fn any_data() -> impl Strategy<Value = Message> {
        let numbers = (any::<u32>(), any::<u16>(), any::<u32>(), any::<u32>());
        let next = (any::<u32>(), any::<bool>(), any::<bool>());
        (0..GROUPS_MAX, numbers, next).prop_map(|(group, numbers, next)| {
            let (sequence, request, rate, rtt_us) = numbers;
            let (next_rate, is_pair, is_for_group) = next;
            Message::Data(Data {
                group,
                sequence,
                request,
                is_for_group,
                rate,
                rtt_us,
                next_rate,
                is_pair,
            })
        })
    }

    fn any_feedback() -> impl Strategy<Value = Message> {
        let pair = || (any::<u32>(), any::<u32>()).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let names = (
            any::<u32>(),
            any::<u32>(),
            0..GROUPS_MAX,
            any::<bool>(),
            any::<u16>(),
        );
        let rest = (any::<u32>(), any::<u32>(), any::<u32>());
        (names, pair(), pair(), rest).prop_map(|(names, reports, rates, rest)| {
            let (source, session, group, more, request) = names;
            let (population, hold_us, rtt_us) = rest;
            Message::Feedback(Feedback {
                source,
                session,
                group,
                more,
                request,
                reports: reports.1,
                congested: reports.0,
                minimum: rates.0,
                maximum: rates.1,
                population,
                hold_us,
                rtt_us,
            })
        })
    }

    fn any_message() -> impl Strategy<Value = Message> {
        let experiment = (any::<u32>(), 0..GROUPS_MAX)
            .prop_map(|(session, group)| Message::Experiment(Experiment { session, group }));
        prop_oneof![any_data(), any_feedback(), experiment]
    }

    proptest! {
        #[test]
        fn messages_survive_encoding_with_or_without_a_payload(
            message in any_message(), payload in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut bytes = message.encode().as_bytes().to_vec();
            prop_assert_eq!(Message::decode(&bytes), Ok(message));
            bytes.extend(payload);
            prop_assert_eq!(Message::decode(&bytes), Ok(message));
        }

        #[test]
        fn the_length_is_what_links_charge(message in any_message(), payload_bytes in 0..60_000u32) {
            let encoded = message.encode().as_bytes().len() as u32;
            prop_assert_eq!(encoded + 28, message.wire_bytes());
            let packet = Packet::new(Destination::Channel(Channel { session: 0, number: 0 }), message, payload_bytes).with_ecn(Ecn::Capable);
            prop_assert_eq!(packet.wire_bytes(), 28 + encoded + payload_bytes);
        }

        /// The first byte is drawn so that each kind occurs.
        #[test]
        fn any_bytes_are_refused_or_are_a_message_that_decodes_to_itself(
            kind in 0..5u8, group in 0..40u8, rest in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let bytes: Vec<u8> = [kind, group].into_iter().chain(rest).collect();
            for length in 0..=bytes.len() {
                if let Ok(message) = Message::decode(&bytes[..length]) {
                    prop_assert_eq!(Message::decode(message.encode().as_bytes()), Ok(message));
                }
            }
        }
    }
}
