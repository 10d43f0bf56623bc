//! The bytes of TFMCC's headers, behind UDP. Integers are in network order.
//!
//! ```text
//!            0        1        2     3           4 ...
//!   data     | 1      | fb_nr  | e c 0 0 X_supp  | i | ts_i | R_max 0 0 0 | r | tr_r'     24 bytes
//!   feedback | 2      | fb_nr  | t l v 0 X_r     | r | tr_r | ts_i'                       16 bytes
//! ```
//!
//! | bit | meaning |
//! |---|---|
//! | `e` | the packet has an echo; otherwise r and tr_r' are ignored |
//! | `c` | is_CLR |
//! | `t`, `l`, `v` | have_RTT, have_loss, receiver_leave |
//!
//! RFC 4654 names the fields and their sizes (section 2.2) and leaves the format to the transport
//! protocol. Senders set the bits shown as 0 to zero; decoders ignore them.

use manyflow_core::Header;
use manyflow_core::wire::{self, TooShort};

use crate::header::{Data, Echo, Feedback, Message, ReceiverId};
use crate::number::{RateCode, RttCode, Stamp};

const DATA: u8 = 1;
const FEEDBACK: u8 = 2;

const HAS_ECHO: u16 = 1 << 15;
const IS_CLR: u16 = 1 << 14;

const HAVE_RTT: u16 = 1 << 15;
const HAVE_LOSS: u16 = 1 << 14;
const LEAVING: u16 = 1 << 13;

/// The bytes of an encoded data header.
pub const DATA_BYTES: usize = 24;
/// The bytes of an encoded feedback header.
pub const FEEDBACK_BYTES: usize = 16;

/// The headers of IPv4 and UDP, which count as part of a packet (section 4.3.4).
const LOWER_BYTES: u32 = 28;

/// Why bytes cannot be decoded as a TFMCC header.
#[derive(Copy, Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// There are fewer bytes than the header takes.
    #[error(transparent)]
    Short(#[from] TooShort),
    /// The first byte names no known kind of header.
    #[error("kind {0} is unknown: 1 is data, 2 is feedback")]
    Kind(u8),
}

impl Header for Message {
    /// The encoded header, and the headers of IPv4 and UDP below it.
    fn wire_bytes(&self) -> u32 {
        let own = match self {
            Message::Data(_) => DATA_BYTES,
            Message::Feedback(_) => FEEDBACK_BYTES,
        };
        LOWER_BYTES + own as u32
    }
}

/// An encoded header.
pub type Encoded = manyflow_core::wire::Encoded<DATA_BYTES>;

/// Encodes a header.
fn encode<const WORDS: usize>(kind: u8, round: u8, rate: u16, words: [u32; WORDS]) -> Encoded {
    let [high, low] = rate.to_be_bytes();
    Encoded::new([kind, round, high, low], words)
}

impl Message {
    /// Encodes the header.
    pub fn encode(&self) -> Encoded {
        match self {
            Message::Data(data) => encode_data(data),
            Message::Feedback(feedback) => encode_feedback(feedback),
        }
    }

    /// Decodes the header at the beginning of `bytes`; a payload may follow it.
    ///
    /// # Errors
    /// If there are fewer bytes than the header has, or its kind is unknown.
    pub fn decode(bytes: &[u8]) -> Result<Message, WireError> {
        match bytes.first() {
            Some(&DATA) => decode_data(bytes).map(Message::Data),
            Some(&FEEDBACK) => decode_feedback(bytes).map(Message::Feedback),
            Some(&kind) => Err(WireError::Kind(kind)),
            None => Err(WireError::Short(TooShort { have: 0, want: 1 })),
        }
    }
}

fn flag(set: bool, bit: u16) -> u16 {
    if set { bit } else { 0 }
}

fn encode_data(data: &Data) -> Encoded {
    let (receiver, sent, is_clr) = data.echo.map_or((0, 0, false), |echo| {
        (echo.receiver.0, echo.sent.bits(), echo.is_clr)
    });
    let flags = flag(data.echo.is_some(), HAS_ECHO) | flag(is_clr, IS_CLR);
    let words = [
        data.sequence,
        data.sent.bits(),
        u32::from(data.rtt_max.bits()) << 24,
        receiver,
        sent,
    ];
    encode(DATA, data.round, flags | data.suppression.bits(), words)
}

fn encode_feedback(feedback: &Feedback) -> Encoded {
    let flags = flag(feedback.have_rtt, HAVE_RTT)
        | flag(feedback.have_loss, HAVE_LOSS)
        | flag(feedback.leaving, LEAVING);
    let words = [
        feedback.receiver.0,
        feedback.sent.bits(),
        feedback.echo.bits(),
    ];
    encode(
        FEEDBACK,
        feedback.round,
        flags | feedback.rate.bits(),
        words,
    )
}

fn decode_data(bytes: &[u8]) -> Result<Data, WireError> {
    let (round, rate, [sequence, sent, rtt_max, receiver, echo]) = words(bytes)?;
    Ok(Data {
        sequence,
        sent: Stamp::from_bits(sent),
        round,
        rtt_max: RttCode::from_bits((rtt_max >> 24) as u8),
        suppression: RateCode::from_bits(rate),
        echo: (rate & HAS_ECHO != 0).then_some(Echo {
            receiver: ReceiverId(receiver),
            sent: Stamp::from_bits(echo),
            is_clr: rate & IS_CLR != 0,
        }),
    })
}

fn decode_feedback(bytes: &[u8]) -> Result<Feedback, WireError> {
    let (round, rate, [receiver, sent, echo]) = words(bytes)?;
    Ok(Feedback {
        receiver: ReceiverId(receiver),
        sent: Stamp::from_bits(sent),
        echo: Stamp::from_bits(echo),
        round,
        rate: RateCode::from_bits(rate),
        have_rtt: rate & HAVE_RTT != 0,
        have_loss: rate & HAVE_LOSS != 0,
        leaving: rate & LEAVING != 0,
    })
}

/// Reads the round, the flags with the rate, and the words that follow.
fn words<const WORDS: usize>(bytes: &[u8]) -> Result<(u8, u16, [u32; WORDS]), TooShort> {
    let ([_, round, high, low], words) = wire::words(bytes)?;
    Ok((round, u16::from_be_bytes([high, low]), words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use manyflow_core::{Channel, Destination, Header, Packet};
    use proptest::prelude::*;

    #[test]
    fn the_bytes_of_each_kind_are_those_of_the_table() {
        let data = Message::Data(Data {
            sequence: 0x0102_0304,
            sent: Stamp::from_bits(0x1112_1314),
            round: 7,
            rtt_max: RttCode::from_bits(0x59),
            suppression: RateCode::from_bits(0xABC),
            echo: Some(Echo {
                receiver: ReceiverId(0x2122_2324),
                sent: Stamp::from_bits(0x3132_3334),
                is_clr: true,
            }),
        });
        #[rustfmt::skip]
        let data_bytes = [
            1, 7, 0xCA, 0xBC, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x59, 0, 0, 0,
            0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34,
        ];
        assert_eq!(data.encode().as_bytes(), data_bytes);
        let feedback = Message::Feedback(Feedback {
            receiver: ReceiverId(0x0102_0304),
            sent: Stamp::from_bits(0x1112_1314),
            echo: Stamp::from_bits(0x2122_2324),
            round: 255,
            rate: RateCode::from_bits(0x123),
            have_rtt: true,
            have_loss: false,
            leaving: true,
        });
        #[rustfmt::skip]
        let feedback_bytes = [
            2, 255, 0xA1, 0x23, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24,
        ];
        assert_eq!(feedback.encode().as_bytes(), feedback_bytes);
    }

    #[test]
    fn fewer_bytes_than_a_header_and_unknown_kinds_are_refused() {
        for (kind, want) in [(DATA, DATA_BYTES), (FEEDBACK, FEEDBACK_BYTES)] {
            let mut bytes = [0; DATA_BYTES];
            bytes[0] = kind;
            for have in 1..want {
                let short = WireError::Short(TooShort { have, want });
                assert_eq!(Message::decode(&bytes[..have]), Err(short));
            }
            assert!(Message::decode(&bytes[..want]).is_ok());
        }
        assert_eq!(
            Message::decode(&[]),
            Err(WireError::Short(TooShort { have: 0, want: 1 }))
        );
        for kind in [0, 3, 255] {
            let refused = Message::decode(&[kind; DATA_BYTES]);
            assert_eq!(refused, Err(WireError::Kind(kind)));
        }
    }

    fn any_echo() -> impl Strategy<Value = Echo> {
        (any::<u32>(), any::<u32>(), any::<bool>()).prop_map(|(receiver, sent, is_clr)| Echo {
            receiver: ReceiverId(receiver),
            sent: Stamp::from_bits(sent),
            is_clr,
        })
    }

    fn any_data() -> impl Strategy<Value = Message> {
        let numbers = any::<(u32, u32, u8, u8)>();
        let echo = prop::option::of(any_echo());
        (numbers, 0..4096u16, echo).prop_map(|((sequence, sent, round, rtt_max), rate, echo)| {
            Message::Data(Data {
                sequence,
                sent: Stamp::from_bits(sent),
                round,
                rtt_max: RttCode::from_bits(rtt_max),
                suppression: RateCode::from_bits(rate),
                echo,
            })
        })
    }

    fn any_feedback() -> impl Strategy<Value = Message> {
        let numbers = any::<(u32, u32, u32, u8)>();
        let flags = any::<(bool, bool, bool)>();
        (numbers, 0..4096u16, flags).prop_map(|((receiver, sent, echo, round), rate, flags)| {
            let (have_rtt, have_loss, leaving) = flags;
            Message::Feedback(Feedback {
                receiver: ReceiverId(receiver),
                sent: Stamp::from_bits(sent),
                echo: Stamp::from_bits(echo),
                round,
                rate: RateCode::from_bits(rate),
                have_rtt,
                have_loss,
                leaving,
            })
        })
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself_with_or_without_a_payload(
            message in prop_oneof![any_data(), any_feedback()],
            payload in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut bytes = message.encode().as_bytes().to_vec();
            prop_assert_eq!(Message::decode(&bytes), Ok(message));
            bytes.extend(payload);
            prop_assert_eq!(Message::decode(&bytes), Ok(message));
        }

        #[test]
        fn the_length_is_what_links_charge(
            message in prop_oneof![any_data(), any_feedback()], payload_bytes in 0..60_000u32,
        ) {
            let encoded = message.encode().as_bytes().len() as u32;
            prop_assert_eq!(encoded + 28, message.wire_bytes());
            let channel = Destination::Channel(Channel { session: 0, number: 0 });
            let packet = Packet::new(channel, message, payload_bytes);
            prop_assert_eq!(packet.wire_bytes(), 28 + encoded + payload_bytes);
        }

        /// The first byte is drawn from a small range so that each kind occurs.
        #[test]
        fn any_bytes_are_refused_or_are_a_message_that_decodes_to_itself(
            kind in 0..4u8, rest in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let bytes: Vec<u8> = [kind].into_iter().chain(rest).collect();
            for length in 0..=bytes.len() {
                if let Ok(message) = Message::decode(&bytes[..length]) {
                    prop_assert_eq!(Message::decode(message.encode().as_bytes()), Ok(message));
                }
            }
        }
    }
}
