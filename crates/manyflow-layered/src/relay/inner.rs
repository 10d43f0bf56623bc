//! The IP datagram inside an AMT Multicast Data message: its ECN field and its payload.

use manyflow_core::Ecn;

use crate::{Data, Message};

/// The bytes before the IP datagram in a Multicast Data message (RFC 7450, section 5.1.6).
const INNER_AT: usize = 2;
/// The bytes before the UDP payload with an IPv4 and an IPv6 datagram.
const PAYLOAD_AT_V4: usize = INNER_AT + 20 + 8;
const PAYLOAD_AT_V6: usize = INNER_AT + 40 + 8;

/// Returns the UDP payload of the datagram inside `message`; `None` if the message is too short.
pub fn inner_payload(message: &[u8]) -> Option<&[u8]> {
    let start = match message.get(INNER_AT)? >> 4 {
        4 => PAYLOAD_AT_V4,
        _ => PAYLOAD_AT_V6,
    };
    message.get(start..)
}

/// Returns the header of layered data inside `message`; `None` if there is none.
pub(super) fn inner_data(message: &[u8]) -> Option<Data> {
    match Message::decode(inner_payload(message)?) {
        Ok(Message::Data(data)) => Some(data),
        _ => None,
    }
}

/// Returns the ECN field of the datagram inside `message`.
pub fn inner_ecn(message: &[u8]) -> Ecn {
    Ecn::of_datagram(message.get(INNER_AT..).unwrap_or_default())
}

/// Sets the ECN field of the datagram inside `message` to "congestion experienced", if the datagram
/// supports ECN. Corrects the checksum of an IPv4 header.
pub(super) fn mark_inner(message: &mut [u8]) {
    if inner_ecn(message) != Ecn::NotCapable {
        Ecn::Marked.write_into(&mut message[INNER_AT..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the checksum of an IPv4 header whose checksum field is 0 (RFC 791).
    fn checksum(header: &[u8]) -> u16 {
        let words = header.chunks_exact(2);
        let mut sum: u32 = words
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])))
            .sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    proptest! {
        #[test]
        fn a_marked_ipv4_header_has_the_right_checksum(mut header in prop::array::uniform20(any::<u8>()), ecn in 1..3u8) {
            header[0] = 0x45;
            header[1] = header[1] & !3 | ecn;
            header[10..12].fill(0);
            let sum = checksum(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            let mut message = [&[6, 0], header.as_slice()].concat();
            mark_inner(&mut message);
            prop_assert_eq!(inner_ecn(&message), Ecn::Marked);
            let mut after = message[2..].to_vec();
            let found = u16::from_be_bytes([after[10], after[11]]);
            after[10..12].fill(0);
            // Zero has two encodings in one's complement arithmetic.
            let right = checksum(&after);
            prop_assert!(found == right || (found ^ right) == 0xffff, "{found:x} {right:x}");
        }

        #[test]
        fn any_bytes_can_be_marked(mut bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let before = bytes.clone();
            mark_inner(&mut bytes);
            prop_assert_eq!(bytes.len(), before.len());
            if inner_ecn(&before) == Ecn::NotCapable {
                prop_assert_eq!(bytes, before);
            }
        }
    }

    #[test]
    fn ipv6_keeps_its_traffic_class_and_flow_label() {
        let mut message = [6, 0, 0x6a, 0xad, 0xcd, 0xef, 0, 0];
        assert_eq!(inner_ecn(&message), Ecn::Capable);
        mark_inner(&mut message);
        assert_eq!(message, [6, 0, 0x6a, 0xbd, 0xcd, 0xef, 0, 0]);
        assert_eq!(inner_ecn(&message), Ecn::Marked);
    }
}
